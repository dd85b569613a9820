"""`journeyman view`."""
