"""What the server said, so that it can tell whether a client sends it back unchanged.

An answer is found again by what only it can contain: the ids of its calls, the signature and text of its thinking.
History that was never served here has no such key and is not compared.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import orjson

from tests.support.messages_json import Json, as_text

THINKING = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """One answer as it left the server, in comparable form."""

    blocks: tuple[Json, ...]
    paused: bool
    prefix: str
    """Digest of the conversation that it answered; empty where nothing needs it."""
    renamable: frozenset[int] = frozenset()
    """Where its calls stand whose id the conversation had before, or that have none: another may come back."""
    is_bare: bool = False
    """True when this is the answer without its thinking: it may come back so once what was before it has changed."""


@dataclass(frozen=True, slots=True)
class Echo:
    """A served answer met again in a turn."""

    served: Served
    start: int
    """Index in the turn at which the answer begins; negative if its first blocks are gone."""
    changed: int | None
    """Index in the answer of the first block that differs; None if it came back unchanged."""


class Memory:
    """All answers served so far."""

    def __init__(self) -> None:
        self._places: defaultdict[str, list[tuple[Served, int]]] = defaultdict(list)
        self._blocks: set[bytes] = set()
        self._ids: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def remember(
        self, content: Iterable[Json], *, paused: bool, prefix: str, taken: Collection[str] = frozenset()
    ) -> None:
        """Keep one answer that the client has received in full; `taken` are ids that its conversation had before."""
        blocks = tuple(comparable(content))
        self._blocks.update(map(_canonical, blocks))
        while blocks and blocks[-1].get("type") in THINKING:  # the API refuses it there, so it does not come back
            blocks = blocks[:-1]
        bare = tuple(block for block in blocks if block.get("type") not in THINKING)
        self._ids.update(_call_ids(blocks))
        if len(bare) < len(blocks):
            self._note(Served(bare, paused, prefix, _renamable(bare, taken), is_bare=True))
        self._note(Served(blocks, paused, prefix, _renamable(blocks, taken)))

    def repeated(self, content: Iterable[Json]) -> set[str]:
        """Return the ids of calls in an answer that were served before, in whichever conversation."""
        return self._ids.intersection(_call_ids(content))

    def _note(self, served: Served) -> None:
        for position, block in enumerate(served.blocks):
            for key in _keys(block):
                self._places[key].append((served, position))

    def knows(self, block: Json) -> bool:
        """Tell whether this very block was served."""
        return any(_canonical(same) in self._blocks for same in comparable([block]))

    def echoes(self, blocks: Sequence[Json]) -> Iterator[Echo]:
        """Yield the served answers among a turn's comparable blocks, each once, in order."""
        reported: set[Served] = set()
        beyond = 0
        for index, block in enumerate(blocks):
            places = next(
                (self._places[key] for key in _keys(block) if key in self._places), list[tuple[Served, int]]()
            )
            if index < beyond or not places or reported & {served for served, _ in places}:
                continue
            echo = _best([_echo(served, index - position, blocks) for served, position in places])
            reported.add(echo.served)
            beyond = echo.start + len(echo.served.blocks) if echo.changed is None else beyond
            yield echo


def comparable(content: Iterable[Json]) -> Iterator[Json]:
    """Drop what a client may change: cache marks, null fields, empty texts (served, but not taken back)."""
    for block in content:
        if block.get("type") == "text" and not block.get("text"):
            continue
        yield {name: value for name, value in block.items() if name != "cache_control" and value is not None}


def digest(parts: Iterable[object]) -> str:
    """Return a fingerprint of JSON values in order."""
    total = hashlib.sha256()
    for part in parts:
        total.update(orjson.dumps(part, option=orjson.OPT_SORT_KEYS) + b"\n")
    return total.hexdigest()


def _canonical(block: Json) -> bytes:
    return orjson.dumps(block, option=orjson.OPT_SORT_KEYS)


def _keys(block: Json) -> Iterator[str]:
    kind = as_text(block.get("type"))
    for field in ("id", "tool_use_id", "signature", "thinking", "data"):
        if value := as_text(block.get(field)):
            yield f"{kind}/{field}/{value}"


def _echo(served: Served, start: int, blocks: Sequence[Json]) -> Echo:
    for position, expected in enumerate(served.blocks):
        index = start + position
        found = blocks[index] if 0 <= index < len(blocks) else None
        if found != expected and not (position in served.renamable and _is_renamed(found, expected)):
            return Echo(served, start, position)
    return Echo(served, start, None)


def _call_ids(content: Iterable[Json]) -> Iterator[str]:
    return (as_text(block.get("id")) for block in content if block.get("type") == "tool_use")


def _renamable(blocks: Sequence[Json], taken: Collection[str]) -> frozenset[int]:
    """Return where calls stand whose id cannot tell them from another: the client may give them one of its own."""
    seen, places = {"", *taken}, set[int]()
    for position, block in enumerate(blocks):
        if block.get("type") == "tool_use":
            id = as_text(block.get("id"))
            places |= {position} if id in seen else set()
            seen.add(id)
    return frozenset(places)


def _is_renamed(found: Json | None, expected: Json) -> bool:
    return found is not None and bool(as_text(found.get("id"))) and {**found, "id": expected.get("id")} == expected


def _best(echoes: list[Echo]) -> Echo:
    """Prefer an unchanged one, since two conversations may have been served equal ids, and of these the longest, since
    an answer may begin as it does without its thinking; else the newest."""
    unchanged = [echo for echo in echoes if echo.changed is None]
    return max(unchanged, key=lambda echo: len(echo.served.blocks)) if unchanged else echoes[-1]
