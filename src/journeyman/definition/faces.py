"""The face of a room: its public names, each loaded from its module when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NoReturn


def lazy_face(
    package: str, homes: Mapping[str, str], extras: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package whose modules, by name, hold the names listed in `homes`.
    `extras` says which extra brings which packages."""
    extra_of = {each: extra for extra, packages in extras.items() for each in packages.split()}
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            refuse_name(package, name)
        try:
            value: object = getattr(import_module(f"{package}.{home}"), name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in extra_of:
                raise
            needs = f"{package}.{name} needs the package {missing}, which is not installed"
            raise ModuleNotFoundError(
                f"{needs}: pip install 'journeyman[{extra_of[missing]}]'", name=missing
            ) from error
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(home_of)


def load_function(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module that is loaded only now: of a room above, which few programs need."""
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def refuse_name(package: str, name: str) -> NoReturn:
    """Say that a package has no such name, or what it is called now."""
    renamed: str | None = import_module("journeyman.definition.foreign").tell_new_name(package, name)
    if renamed is not None:
        raise ImportError(renamed, name=package)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
