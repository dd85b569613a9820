"""What is shown of a run in a terminal."""
