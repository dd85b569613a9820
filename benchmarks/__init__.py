"""Benchmarks: this library beside the loop that one would write by hand, in the same run.

`make bench`, or `python -m benchmarks [name ...] [--quick] [--json FILE]` from the root of the repository. What is
measured and how to read it: docs/performance.md. Read `measuring.py` first, then the modules that `__main__.py` names.
"""
