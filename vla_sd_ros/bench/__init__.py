"""Benchmarks: ratios taken in one run, on the same weights and the same machine."""
