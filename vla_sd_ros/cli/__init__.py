"""The command line, ``vla-sd``: one file per command, thin over the rooms that do the work."""
