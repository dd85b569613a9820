"""The face of a room: its public names, each loaded from its module when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_face(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package whose modules, by name, hold the names listed in `homes`."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(home_of)
