"""The version of this package, as everybody tells it: `package_version`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def package_version() -> str:
    """Return the version that is installed; "unknown" in a program that was frozen or copied without its metadata."""
    try:
        return version("journeyman")
    except PackageNotFoundError:
        return "unknown"
