"""The nodes: each reads its parameters, translates messages and calls the core."""
