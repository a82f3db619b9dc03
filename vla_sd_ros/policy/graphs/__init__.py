"""A runtime of fixed shapes: every forward of an action is one of a few graphs that were captured before.

Where a graph cannot be captured, on a CPU, the same steps are called: same buckets, same buffers, same numbers.
"""
