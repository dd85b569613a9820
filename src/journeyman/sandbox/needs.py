"""Needs: what a command asks for beyond its box, as `host:NAME`, `write:PATH`, `read:PATH`, `socket:PATH` or `outside`.

A gate judges them, answers are kept under them, and a box is widened by them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from journeyman.hosts.names import host_problem

NEED_HINT: Final = "Write host:NAME, host:NAME:PORT, write:PATH, read:PATH, socket:PATH, or outside alone."
NeedKind: TypeAlias = Literal["host", "write", "read", "socket", "outside"]
"""The needs that a command may ask for beyond its box."""


def need_of_host(place: str) -> str | None:
    """Return the need for a host and its port; None if it is asked for by an address, and cannot be had."""
    name = place.removesuffix(":443").removesuffix(":80")
    return None if host_problem(name) is not None else f"host:{name}"


def read_need(need: str) -> tuple[NeedKind, str] | None:
    """Return the kind of a need and what it names: `host:NAME[:PORT]`, `write:PATH`, `read:PATH`, `socket:PATH`, or
    `outside`, which names nothing. None: it is no need."""
    kind, _, value = need.partition(":")
    known: NeedKind | None = next((each for each in get_args(NeedKind) if each == kind), None)
    is_need = bool(value) == (known != "outside") and "\0" not in need
    return (known, value) if known is not None and is_need else None


def resolve_need(need: str, work: str) -> str:
    """Return a need with where its path leads: absolute, with links followed, from a folder if it is relative."""
    match read_need(need):
        case ("host", name):
            return f"host:{name.lower()}"
        case ("write" | "read" | "socket" as kind, _):
            return f"{kind}:{os.path.realpath(Path(work, path_of_need(need)))}"
        case _:
            return need


def path_of_need(need: str) -> str:
    """Return the path that a need names, from home if it begins so."""
    return os.path.expanduser(need.partition(":")[2])
