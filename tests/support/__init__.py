"""Test doubles that are too large for one test file: strict servers and the tools to build them."""
