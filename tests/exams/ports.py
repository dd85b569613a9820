"""Who takes which exam."""

PLACES = ("in_process", "memory", "file", "postgres")
