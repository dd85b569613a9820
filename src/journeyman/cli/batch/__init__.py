"""`journeyman batch`: an agent on every line of a file."""
