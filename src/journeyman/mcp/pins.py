"""Pins: what each tool of an MCP server was when somebody looked at it, as digests in a JSON file.

A server can change a tool's words at any time, and the words are instructions to a model. So what a server offers is
compared, field by field, with what was pinned and with what it offered before; a tool that differs is not used.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from journeyman.errors import PinsDiffer, quoted
from journeyman.machine.files import replace_file
from journeyman.texts import shorten_line
from journeyman.tools.tools import canonical
from journeyman.types import JsonObject

_SHOWN: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A tool, as its server describes it."""

    name: str
    title: str | None
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None
    annotations: JsonObject | None

    def digests(self) -> dict[str, str]:
        """Return the digest of each field."""
        texts = {name: canonical(getattr(self, name)).encode("utf-8", "surrogatepass") for name in _PINNED}
        return {name: sha256(text).hexdigest() for name, text in texts.items()}


_PINNED: Final = ("title", "description", "input_schema", "output_schema", "annotations")
"""The fields of a tool that are pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The tools that one server offers now, and the server's identity."""

    server: str
    """The name that the server has here."""
    identity: Mapping[str, str]
    """What kind of server it is, where, and what it calls itself."""
    tools: Sequence[Definition]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedServer:
    """The pins of one server: its identity, and for each tool the digests of its fields."""

    identity: dict[str, str]
    tools: dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The content of a file of pins: those of each server, by its name."""

    version: Literal[1] = 1
    servers: dict[str, PinnedServer] = field(default_factory=dict[str, PinnedServer])


@cache
def _adapter() -> TypeAdapter[Pins]:
    return TypeAdapter(Pins)


def load_pins(path: Path) -> Pins:
    """Return what was pinned.

    Raises:
        PinsDiffer: there is no such file, or it cannot be read.
    """
    try:
        return _adapter().validate_json(path.read_bytes())
    except FileNotFoundError:
        raise PinsDiffer(str(path), ["there is no such file: nothing was pinned yet"]) from None
    except OSError as error:
        raise PinsDiffer(str(path), [f"the file cannot be read: {error.strerror}"]) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = shorten_line(".".join(map(str, first["loc"])) or "the top", 100)
        raise PinsDiffer(str(path), [f"the file is damaged, at {where}: {first['msg']}"]) from None


def save_pins(path: Path, pins: Pins) -> None:
    """Replace the file at once, or not at all."""
    text = json.dumps(_adapter().dump_python(pins), indent=1, sort_keys=True) + "\n"
    replace_file(path, text.encode(), mode=0o644)


def pin_offer(offer: Offer) -> PinnedServer:
    """Return the pins of what a server offers now."""
    tools = {each.name: each.digests() for each in offer.tools}
    return PinnedServer(identity=dict(offer.identity), tools=tools)


def differences(
    pins: Pins, offer: Offer, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> list[str]:
    """Return what a server offers that was not pinned so, one line each. `only`: the tools that count; None for all,
    except those in `without`."""
    known = pins.servers.get(offer.server)
    if known is None:
        return [f"server {offer.server!r} was not pinned"]
    changed = changes(known.identity, offer.identity)
    told = [(key, known.identity.get(key), offer.identity.get(key)) for key in sorted(changed)]
    lines = [f"server {offer.server!r}: its {key} was {before!r} and is {now!r}" for key, before, now in told]
    return [*lines, *_of_tools(known, offer, only, without)]


def _of_tools(
    known: PinnedServer, offer: Offer, only: Collection[str] | None, without: Collection[str]
) -> Iterator[str]:
    offered = {each.name: each for each in offer.tools}
    counted = {*(only if only is not None else (*offered, *known.tools))} - {*without}
    offered = {name: each for name, each in offered.items() if name in counted}
    for name, definition in offered.items():
        before = known.tools.get(name)
        what = f"tool {name!r} of server {offer.server!r}"
        if before is None:
            yield f"{what} is new: {beginning(definition)}"
        elif changed := changes(before, definition.digests()):
            yield f"{what} changed: {', '.join(changed)}"
    for name in known.tools:
        if name not in offered and name in counted:
            yield f"tool {name!r} of server {offer.server!r} is gone"


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the names of the fields that differ."""
    return [key for key in {**now, **before} if before.get(key) != now.get(key)]


def beginning(definition: Definition) -> str:
    """Return the beginning of what a tool says of itself, with every sign that nobody could see spelled out."""
    return quoted(shorten_line(definition.description, _SHOWN))
