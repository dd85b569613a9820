"""Permissions on the command line: calls that an agent may make by itself, and questions about the others."""
