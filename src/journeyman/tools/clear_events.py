"""Events without the secrets that are known by their text, for whoever is outside of the program.

A piece of a text may end within a secret. What may be its beginning waits for the next piece, or for the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Final, TypeVar, cast

from journeyman.definition.narrowing import is_list_or_tuple, is_mapping
from journeyman.events import Event, OutputDelta, TextDelta, ThinkingDelta, ToolInputDelta
from journeyman.tools.known_secrets import KnownSecrets, TextStream, known_secrets
from journeyman.types import RunPath

T = TypeVar("T")
_Piece = TextDelta | ThinkingDelta | ToolInputDelta
_DEPTH: Final = 32


class ClearEvents:
    """The events of one run, and of those within it, on their way out."""

    def __init__(self, known: KnownSecrets = known_secrets) -> None:
        self._known: Final = known
        self._streams: Final[dict[tuple[RunPath, type[Event], str], tuple[_Piece, TextStream]]] = {}
        """The texts that are being written, each with its last piece."""

    def clear(self, event: Event) -> Iterator[Event]:
        """Give what is told of an event: what was held back of a text before, and the event itself. Nothing, while all
        of a piece is held back."""
        if self._known.current() is None:
            yield event
        elif isinstance(event, _Piece):
            yield from self._piece(event)
        elif isinstance(event, OutputDelta):
            # All that was written so far: what may go on as a secret is shown with the next piece.
            shown = self._known.mark(event.json)
            yield replace(event, json=shown[: self._known.held_from(shown)])
        else:
            for key in [each for each in self._streams if each[0] == event.path]:
                last, stream = self._streams.pop(key)
                if rest := stream.flush():
                    yield from self._tell_piece(last, rest, "")
            yield without_known(event, self._known)

    def _piece(self, event: _Piece) -> Iterator[Event]:
        key = (event.path, type(event), event.tool_use_id if isinstance(event, ToolInputDelta) else "")
        stream = self._streams[key][1] if key in self._streams else TextStream(self._known)
        self._streams[key] = event, stream
        piece = event.json if isinstance(event, ToolInputDelta) else event.text
        yield from self._tell_piece(event, stream.feed(piece), piece)

    def _tell_piece(self, event: _Piece, shown: str, piece: str) -> Iterator[Event]:
        if shown == piece:
            yield event
        elif shown:
            yield replace(event, json=shown) if isinstance(event, ToolInputDelta) else replace(event, text=shown)


def without_known(value: T, known: KnownSecrets = known_secrets) -> T:
    """Return a value in which marks stand for known secrets: the very value, if it holds none."""
    return value if known.current() is None else cast("T", _walk(value, known, _DEPTH))


def _walk(value: object, known: KnownSecrets, depth: int) -> object:
    if isinstance(value, str):
        return known.mark(value)
    if depth == 0:
        return value
    if is_dataclass(value) and not isinstance(value, type):
        old = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        changed = {name: new for name, each in old.items() if (new := _walk(each, known, depth - 1)) is not each}
        return replace(value, **changed) if changed else value
    if is_mapping(value):
        pairs = [(_walk(name, known, depth - 1), _walk(each, known, depth - 1)) for name, each in value.items()]
        is_same = all(a is name and b is each for (a, b), (name, each) in zip(pairs, value.items(), strict=True))
        return value if is_same else dict(pairs)
    if is_list_or_tuple(value) and type(value) in (list, tuple):
        parts = [_walk(each, known, depth - 1) for each in value]
        is_same = all(one is other for one, other in zip(parts, value, strict=True))
        return value if is_same else parts if isinstance(value, list) else tuple(parts)
    return value
