"""A trip planner for a very small language model, which runs on this machine. Read `planner.py`."""
