"""Benchmarks. Compare ratios within one run: absolute times depend on the machine."""
