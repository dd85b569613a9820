"""`journeyman chat`."""
