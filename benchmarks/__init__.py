"""Benchmarks: each interleaves what it compares in one run, states its boundary, and writes JSON with machine and commit."""
