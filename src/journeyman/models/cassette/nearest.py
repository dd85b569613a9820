"""Which recorded request a new one is nearest to, and how the two differ, in words that fit on a screen.

Works on JSON alone. Imports `types`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Final, Literal

from pydantic import JsonValue

from journeyman.types import JsonObject

_WIDTH: Final = 110
"""The longest line, in characters."""
_AROUND: Final = 30
"""How many characters are shown before a difference."""
_ROWS: Final = 18
"""How many lines are shown of all differences together."""
_COMPARED_CHARS: Final = 2_000
_COMPARED_LINES: Final = 400
_COMPARED_REQUESTS: Final = 40


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two JSON values differ."""

    path: str
    """For example `messages[4].content[0].text`."""
    kind: Literal["differs", "is missing", "is new"]
    recorded: JsonValue
    now: JsonValue


# -- which one is nearest ---------------------------------------------------------------------------------------------


def nearest(asked: JsonObject, recorded: Sequence[JsonObject]) -> int | None:
    """Return the index of the request that `asked` is nearest to; of equally near ones the first. None of none."""
    if not recorded:
        return None
    scores = [_score(asked, other) for other in recorded]
    best = max(scores)
    equal = [index for index, score in enumerate(scores) if score == best]
    if len(equal) == 1:
        return equal[0]
    words = _words(asked)
    return max(equal[:_COMPARED_REQUESTS], key=lambda index: _likeness(words, _words(recorded[index])))


def _score(asked: JsonObject, other: JsonObject) -> tuple[int, int, int]:
    """Say how near: messages in common, then how close they are in length, then equal fields beside the messages."""
    mine, theirs = _messages(asked), _messages(other)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(mine, theirs, strict=False)))
    beside = sum(asked.get(name) == other.get(name) for name in asked if name != "messages")
    return common, -abs(len(mine) - len(theirs)), beside


def _messages(body: JsonObject) -> list[JsonValue]:
    messages = body.get("messages")
    return messages if isinstance(messages, list) else []


def _words(body: JsonObject) -> str:
    return json.dumps(_messages(body), ensure_ascii=False)[-_COMPARED_CHARS:]


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).quick_ratio()


# -- how two differ ---------------------------------------------------------------------------------------------------


def differences(recorded: JsonValue, now: JsonValue, path: str = "") -> Iterator[Difference]:
    """Give the places where two values differ, as deep inside as possible, in order."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        for key in {**now, **recorded}:
            place = f"{path}.{key}" if path else key
            yield from _in_member(recorded, now, key, place)
    elif isinstance(recorded, list) and isinstance(now, list):
        yield from _in_lists(recorded, now, path)
    elif recorded != now or type(recorded) is not type(now):
        yield Difference(path, "differs", recorded, now)


def _in_member(recorded: JsonObject, now: JsonObject, key: str, place: str) -> Iterator[Difference]:
    if key not in recorded:
        yield Difference(place, "is new", None, now[key])
    elif key not in now:
        yield Difference(place, "is missing", recorded[key], None)
    else:
        yield from differences(recorded[key], now[key], place)


def _in_lists(recorded: list[JsonValue], now: list[JsonValue], path: str) -> Iterator[Difference]:
    mine, theirs = (_by_name(recorded), _by_name(now)) if path == "tools" else (None, None)
    if mine is not None and theirs is not None:  # one tool more does not change those behind it
        for name in {**theirs, **mine}:
            yield from _in_member(mine, theirs, name, f"{path}[{name!r}]")
        return
    for index in range(max(len(recorded), len(now))):
        place = f"{path}[{index}]"
        if index >= len(recorded):
            yield Difference(place, "is new", None, now[index])
        elif index >= len(now):
            yield Difference(place, "is missing", recorded[index], None)
        else:
            yield from differences(recorded[index], now[index], place)


def _by_name(items: list[JsonValue]) -> JsonObject | None:
    """Return items by their names; None if one has none, or two have the same."""
    named = {str(item["name"]): item for item in items if isinstance(item, dict) and "name" in item}
    return dict(named) if len(named) == len(items) else None


# -- in words ---------------------------------------------------------------------------------------------------------


def headline(found: Sequence[Difference]) -> str:
    """Say what differs: `messages[4].content[0].text differs`."""
    first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{first.path} {first.kind}{more}"


def shown(found: Sequence[Difference]) -> list[str]:
    """Return lines that show the differences: what was recorded behind `-`, what is asked now behind `+`."""
    lines: list[str] = []
    for number, difference in enumerate(found):
        block = [f"{difference.path} {difference.kind}:"] if number else []
        block += _compared(difference)
        if lines and len(lines) + len(block) > _ROWS:
            lines.append(f"and {len(found) - number} more")
            break
        lines += block[:_ROWS]
    return lines


def _compared(difference: Difference) -> list[str]:
    if difference.kind == "is new":
        return [_cut("+ ", _as_text(difference.now))]
    if difference.kind == "is missing":
        return [_cut("- ", _as_text(difference.recorded))]
    return list(_texts_compared(_as_text(difference.recorded), _as_text(difference.now)))


def _as_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _texts_compared(recorded: str, now: str) -> Iterator[str]:
    """Give the lines that differ, each with at most one equal line before and after it."""
    before, after = recorded.split("\n"), now.split("\n")
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    start = max(0, same - 1)
    before, after = before[start : start + _COMPARED_LINES], after[start : start + _COMPARED_LINES]
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        match tag:
            case "equal":
                yield from _context(before, i1, i2)
            case "replace" if i2 - i1 == j2 - j1:
                for old, new in zip(before[i1:i2], after[j1:j2], strict=True):
                    yield from _lines_compared(old, new)
            case _:
                yield from (_cut("- ", line) for line in before[i1:i2])
                yield from (_cut("+ ", line) for line in after[j1:j2])


def _context(lines: Sequence[str], start: int, end: int) -> Iterator[str]:
    """Give the equal lines next to a difference."""
    if end - start <= 2:
        yield from (_cut("  ", line) for line in lines[start:end])
        return
    if start:
        yield _cut("  ", lines[start])
    yield "  …"
    if end < len(lines):
        yield _cut("  ", lines[end - 1])


def _lines_compared(old: str, new: str) -> Iterator[str]:
    """Give two lines, long ones only from a little before the place where they part."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    is_long = max(len(old), len(new)) > _WIDTH
    start = max(0, same - _AROUND) if is_long else 0
    yield _cut("- ", old, start)
    yield _cut("+ ", new, start)


def _cut(sign: str, line: str, start: int = 0) -> str:
    shown = f"…{line[start:]}" if start else line
    shown = shown.replace("\n", "\\n").replace("\r", "\\r")
    return f"{sign}{shown}" if len(shown) <= _WIDTH else f"{sign}{shown[:_WIDTH]}…"
