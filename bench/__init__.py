"""Benchmarks: Interlock beside its alternatives, in one run on one machine. `python -m bench --help`."""
