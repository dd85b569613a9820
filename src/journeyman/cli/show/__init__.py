"""Shows runs in a terminal: trees, progress, and outlines."""
