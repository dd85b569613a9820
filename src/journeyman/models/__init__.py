"""Models: the adapters to providers, and models without one.

Import what you need from its module: `anthropic` (the Messages API), `scripted` (answers from a script or a function).
This package itself loads nothing, so that a program pays for no adapter but its own.
"""
