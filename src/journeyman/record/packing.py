"""Texts on their way into a store: without secrets, and with their long strings apart, each of which is stored once.

The long strings of a conversation stand in requests and in events alike, written the same way: as JSON writes them.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from pydantic import JsonValue

from journeyman.definition.json_numbers import write_sound_json
from journeyman.record.retention import Lasts
from journeyman.record.schema import SHARED
from journeyman.store.codec import pack
from journeyman.store.recordings import digest_of
from journeyman.tools.redaction import MARK, Redactor

_LONG: Final = 200
"""How many characters a string has, at least, that stands apart. Apart, each costs some 40 bytes and a look for an
equal one."""
# Each character is looked at once, however many quotes and backslashes a stranger writes.
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SEEN: Final = 128
"""So much of a long string stays where it was while secrets are looked for: names say what a secret is."""
# No text of JSON holds this character: there it is written as an escape.
_STANDS_IN: Final = re.compile('"\0([0-9]+)\0[^"]*"')
_NO_PART: Final = re.compile('["\\\\\0]')
_SIGNED: Final = ('"signature":', '"thoughtSignature":', '"encrypted_content":')
"""The names before what a provider has signed or encrypted: no secret, though it looks like one. The first means that
in reasoning only."""
# It bounds the memory; what is forgotten is written once more.
_REMEMBERED: Final = 50_000


@dataclass(frozen=True, slots=True)
class Folded:
    """A text without its long strings, and these, each with the place where it belongs, in characters."""

    text: str
    strings: Sequence[tuple[int, str]]

    def segments(self) -> list[bytes]:
        """Return the whole in order, cut around the long strings."""
        parts: list[str] = []
        end = 0
        for at, string in self.strings:
            parts += [self.text[end:at], string]
            end = at
        # What was no UTF-8 in a body comes back byte for byte.
        return [part.encode("utf-8", "surrogateescape") for part in (*parts, self.text[end:]) if part]


class Folder:
    """Folds all texts of a batch: looking for secrets costs less for many at once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._texts: list[str] = []
        """What secrets are looked for in: texts without their long strings, and these."""
        self._strings: dict[str, int] = {}
        """Where each long string stands in `_texts`: the same one is often in several texts."""
        self._kept: list[str] = []
        """The strings that stay as they are: of them -1 stands for the first, -2 for the second."""
        self._added: list[tuple[int, list[int]]] = []
        """Of each text that was taken in: where it stands, and where its long strings do."""

    def add(self, text: str) -> int:
        """Take in a text, and return its number."""
        parts, strings, end = list[str](), list[int](), 0
        is_signed = _SIGNED[0] in text or _SIGNED[1] in text or _SIGNED[2] in text
        names = _SIGNED if '"type":"thinking"' in text else _SIGNED[1:]
        # Most texts are short: they are not searched.
        for found in _STRING.finditer(text) if len(text) >= _LONG or is_signed else ():
            string = found[0][1:-1]
            if is_signed and text.endswith(names, 0, found.start()):
                parts += [text[end : found.start()], f'"\0{len(strings)}\0"']
                strings.append(-1 - len(self._kept))
                self._kept.append(string)
                end = found.end()
            elif found.end() - found.start() >= _LONG:
                shown = _NO_PART.sub("", string[:_SEEN])
                parts += [text[end : found.start()], f'"\0{len(strings)}\0{shown}"']
                if string not in self._strings:
                    self._strings[string] = len(self._texts)
                    self._texts.append(string)
                strings.append(self._strings[string])
                end = found.end()
        self._added.append((len(self._texts), strings))
        self._texts.append("".join([*parts, text[end:]]) if parts else text)
        return len(self._added) - 1

    def fold(self, pace: Callable[[Sequence[str]], Iterable[str]] = iter) -> list[Folded]:
        """Return what became of each text, by its number. `pace` goes through the texts."""
        clean = self._redactor.redacted_texts(pace(self._texts))
        return [
            Folded(clean[place], ()) if not strings else self._folded(clean[place], clean, strings)
            for place, strings in self._added
        ]

    def _folded(self, text: str, clean: Sequence[str], places: Sequence[int]) -> Folded:
        parts, strings = list[str](), list[tuple[int, str]]()
        end = length = 0
        for found in _STANDS_IN.finditer(text):  # one whose name says that it is a secret is gone
            place = places[int(found[1])]
            parts.append(text[end : found.start()])
            length += found.start() - end
            string = self._kept[-1 - place] if place < 0 else _sound(clean[place], self._texts[place])
            strings.append((length, f'"{string}"'))
            end = found.end()
        return Folded("".join([*parts, text[end:]]), strings)


def _sound(clean: str, raw: str) -> str:
    """Return the inside of a JSON string without secrets; if it is none any more, nothing of it."""
    if clean == raw:
        return raw
    try:
        # Not strictly: a secret may have been replaced in a string that has line ends in it.
        json.loads(f'"{clean}"', strict=False)
    except ValueError:
        return MARK
    return clean


_SAFE: Final = frozenset(
    (
        *("type", "kind", "role", "code", "category", "phase", "status", "delivery", "liveness", "decision", "mode"),
        *("stop_reason", "model", "provider", "agent", "name", "id", "tool_use_id", "effect", "scope", "policy"),
        *("error_kind", "key", "extent", "url", "request_id", "question_id", "offers", "what", "outcome"),
    )
)
"""The fields whose texts say nothing of what was said."""


def shape_of(value: JsonValue, name: str = "") -> JsonValue:
    """Return JSON values with each text replaced by its length and its digest."""
    match value:
        case str() if name not in _SAFE:
            digest = blake2b(value.encode("utf-8", "replace"), digest_size=8).hexdigest()
            return {"characters": len(value), "digest": digest}
        case dict():
            return {each: shape_of(item, each) for each, item in value.items()}
        case list():
            return [shape_of(item, name) for item in value]
        case _:
            return value


def dumped(facts: object) -> str:
    """Return JSON values as a text. Half of a surrogate pair becomes a question mark."""
    return write_sound_json(facts).decode()


class Pieces:
    """The long texts of one batch, each under its digest, and on which day it goes.

    Nothing is looked up: a text that this recorder has not written for long enough is written again, which changes
    nothing where it is there. So no event or request outlives a text of its own, whoever forgets what meanwhile.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: OrderedDict[tuple[int, int], int] = OrderedDict()
        """By root and digest the day on which a text goes that was written."""
        self._rows: dict[tuple[int, int], tuple[object, ...]] = {}

    def forget(self) -> None:
        """Forget what was written: it may not be there."""
        self._known.clear()
        self._rows.clear()

    def take(self) -> list[tuple[object, ...]]:
        """Return the rows to write. In one order, whoever writes: two who write the same wait for one another, and not
        both."""
        rows, self._rows = self._rows, {}
        return [rows[place] for place in sorted(rows)]

    def digest(self, body: bytes) -> int:
        """Return what a text is found by."""
        return digest_of(body, self._key)

    def place(self, body: bytes, root: int, lasts: Lasts) -> tuple[int, int]:
        """Have a text stand under a root, unless it stands there or under the empty one for as long as it is needed.
        Return its digest, and how many bytes that has added."""
        digest = self.digest(body)
        for known in ((SHARED, digest), (root, digest)):
            if self._known.get(known, 0) >= lasts.until:
                return digest, 0
        stored = pack(body)
        self._rows[root, digest] = (root, digest, lasts.shared_until, len(body), stored)
        self._known[root, digest] = lasts.shared_until
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return digest, len(stored) + 40
