"""Which recorded request or call is the answer to a new one.

A request is answered by an equal one; of several equal ones by the first that is left. Runs that go on at the same time
may ask the same: once a run has been given an answer of a recorded run, it is given that run's answers first. Imports
`tape` and `nearest`.

Which recorded request a new one is nearest to, and how the two differ, in words that fit on a screen.

Works on JSON alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue

from journeyman.errors import NotRecorded
from journeyman.models.cassette.format import CallTake, Take, Tape
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


ADVICE: Final = 'Undo the change, or record again: mode="all", pytest --journeyman-record=all, journeyman record.'


class Playback:
    """Gives what a tape holds, each take once."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._takes: defaultdict[str, list[Take]] = defaultdict(list)
        for take in tape.takes.values():
            if take.answer is not None:
                self._takes[take.digest].append(take)
        self._calls: defaultdict[str, list[CallTake]] = defaultdict(list)
        for call in tape.calls:
            self._calls[call.call.key].append(call)
        self._given: dict[object, int] = {}
        """The recorded run that each run follows."""
        self.superseded: set[int] = set()
        """The lines with answers that were stopped, and are recorded anew."""

    @property
    def path(self) -> Path:
        """The file, as people would type it."""
        path = self._tape.path
        return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path

    # -- giving

    def take(self, run: object, digest: str, *, complete: bool = False) -> Take | None:
        """Return the answer to a request of `run`; with `complete`, none that was stopped in the middle."""
        left = [take for take in self._takes[digest] if not take.is_used]
        if complete:
            self.superseded |= {take.answer_line for take in left if _is_stopped(take)}
            left = [take for take in left if not _is_stopped(take)]
        if not left:
            return None
        taken = self._preferred(run, left)
        taken.is_used = True
        self._given.setdefault(run, taken.run)
        return taken

    def _preferred(self, run: object, left: Sequence[Take]) -> Take:
        followed = self._given.get(run)
        if followed is not None:
            return next((take for take in left if take.run == followed), left[0])
        others = set(self._given.values())
        return next((take for take in left if take.run not in others), left[0])

    def call(self, run: object, key: str) -> CallTake | None:
        """Return what came of a call of `run`."""
        left = [call for call in self._calls[key] if not call.is_used]
        if not left:
            return None
        followed = self._given.get(run)
        taken = next((call for call in left if call.call.run == followed), left[0])
        taken.is_used = True
        return taken

    def skip(self, runs: Sequence[int]) -> None:
        """Count as used what these runs asked and called, and the runs that their calls started."""
        left = list(runs)
        while left:
            run = left.pop()
            for take in self._tape.takes.values():
                take.is_used = take.is_used or take.run == run
            for call in self._tape.calls:
                if call.call.run == run:
                    call.is_used = True
                    left += call.call.runs

    def is_repeated(self, take: Take) -> bool:
        """Tell whether the same request was made again after this one: it was a retry."""
        return any(other.number > take.number and other.run == take.run for other in self._takes[take.digest])

    def unused(self) -> Iterator[str]:
        """Name what was not asked for."""
        for take in self._tape.takes.values():
            if take.answer is not None and not take.is_used:
                yield f"request {take.number} (line {take.line})"
        for call in self._tape.calls:
            if not call.is_used:
                yield f"call {_call_name(call.call.key, call.call.tool)} (line {call.line})"

    # -- refusing

    def missing(self, body: JsonObject, digest: str, number: int) -> NotRecorded:
        """Return why there is no answer to the new request `number`."""
        path = self.path
        if self._takes[digest]:
            first = self._takes[digest][0]
            times = len(self._takes[digest])
            said = f"request {number}: it equals request {first.number} of {path} (line {first.line}), "
            return NotRecorded(f"{said}which is recorded {_times(times)} and asked for once more.\n{ADVICE}")
        takes = [take for takes in self._takes.values() for take in takes]
        takes.sort(key=lambda take: (take.is_used, take.number))
        index = nearest(body, [take.body for take in takes])
        if index is None:
            nothing = f"there is no file {path}" if self._tape.header is None else f"{path} holds no answer"
            return NotRecorded(f"request {number}: {nothing}.\n{ADVICE}")
        take = takes[index]
        found = list(differences(take.body, body))
        said = f"request {number}: {headline(found)} ({path}, line {take.line}; - recorded, + now):"
        return NotRecorded("\n".join([said, *shown(found), ADVICE]))

    def cut_off(self, take: Take) -> NotRecorded:
        """Return why there is no rest of an answer."""
        said = f"request {take.number}: its answer ends here in {self.path} (line {take.line}): "
        return NotRecorded(f"{said}the run that was recorded was stopped.\n{ADVICE}")

    def missing_call(self, key: str, tool: str | None, effect: str) -> NotRecorded:
        """Return why there is no result of a call."""
        said = f"call {_call_name(key, tool)} is not in {self.path}, and it is not made while replaying"
        return NotRecorded(
            f'{said}: its effect is {effect!r}.\nRecord again: mode="all", with pytest --journeyman-record=all; '
            'or let tools run: Cassette(…, tools="run").'
        )


def _is_stopped(take: Take) -> bool:
    return take.answer is None or take.answer.stopped


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _call_name(key: str, tool: str | None) -> str:
    place, _, id = key.rpartition("/call/")
    return f"{id!r} of {tool or 'a tool'} in {place}"
