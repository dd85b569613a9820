"""The choice of the recorded request or call that answers a new one, and the error where none does.

A request is answered by an equal one; of several equal ones by the first that is left. Runs that go on at the same time
may ask the same: once a run has been given an answer of a recorded run, it is given that run's answers first.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher, unified_diff
from itertools import takewhile
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from journeyman.errors import NotRecorded, count
from journeyman.models.cassette.format import CassetteFile, RecordedCall, RecordedRequest, messages_of
from journeyman.types import JsonObject

ADVICE: Final = (
    'Undo the change, or record again: mode="all", pytest --journeyman-record=all, journeyman cassette record.'
)


class Playback:
    """The content of a file on its way out: each request and each call is given once."""

    def __init__(self, file: CassetteFile) -> None:
        self._file = file
        self._requests: defaultdict[str, list[RecordedRequest]] = defaultdict(list)
        for request in file.requests.values():
            if request.answer is not None:
                self._requests[request.digest].append(request)
        self._calls: defaultdict[str, list[RecordedCall]] = defaultdict(list)
        for call in file.calls:
            self._calls[call.call.key].append(call)
        self._followed: dict[object, int] = {}
        """The recorded run that each run follows."""
        self.superseded: set[int] = set()
        """The lines with answers that were stopped, and are recorded again."""

    @property
    def path(self) -> Path:
        """The file, as people would type it."""
        path = self._file.path
        return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path

    # -- giving

    def request(self, run: object, digest: str, *, complete: bool = False) -> RecordedRequest | None:
        """Return the request that answers one of `run`; with `complete`, none whose answer was stopped half-way."""
        left = [each for each in self._requests[digest] if not each.is_used]
        if complete:
            self.superseded |= {each.answer_line for each in left if each.is_stopped}
            left = [each for each in left if not each.is_stopped]
        if not left:
            return None
        followed, others = self._followed.get(run), set(self._followed.values())
        is_preferred = (each.run not in others if followed is None else each.run == followed for each in left)
        found = next((each for each, is_best in zip(left, is_preferred, strict=True) if is_best), left[0])
        found.is_used = True
        self._followed.setdefault(run, found.run)
        return found

    def call(self, run: object, key: str) -> RecordedCall | None:
        """Return the recorded outcome of a call of `run`."""
        left = [call for call in self._calls[key] if not call.is_used]
        if not left:
            return None
        followed = self._followed.get(run)
        found = next((call for call in left if call.call.run == followed), left[0])
        found.is_used = True
        return found

    def skip(self, runs: Sequence[int]) -> None:
        """Count as used what these runs asked and called, and the runs that their calls started."""
        left = list(runs)
        while left:
            run = left.pop()
            for request in self._file.requests.values():
                request.is_used = request.is_used or request.run == run
            for call in self._file.calls:
                if call.call.run == run:
                    call.is_used = True
                    left += call.call.runs

    def is_repeated(self, request: RecordedRequest) -> bool:
        """Tell whether the same request was made again after this one: it was a retry."""
        equal = self._requests[request.digest]
        return any(other.number > request.number and other.run == request.run for other in equal)

    def list_unused(self) -> Iterator[str]:
        """Yield the names of the requests and calls that nobody asked for."""
        for request in self._file.requests.values():
            if request.answer is not None and not request.is_used:
                yield f"request {request.number} (line {request.line})"
        for call in self._file.calls:
            if not call.is_used:
                yield f"call {_call_name(call.call.key, call.call.tool)} (line {call.line})"

    # -- refusing

    def missing(self, body: JsonObject, digest: str, number: int) -> NotRecorded:
        """Return the error that there is no answer to the new request `number`."""
        path = self.path
        if equal := self._requests[digest]:
            said = f"request {number}: it equals request {equal[0].number} of {path} (line {equal[0].line}), "
            times = "once" if len(equal) == 1 else f"{len(equal)} times"
            return NotRecorded(f"{said}which is recorded {times} and asked for once more.\n{ADVICE}")
        recorded = [each for equal in self._requests.values() for each in equal]
        if not recorded:
            nothing = f"there is no file {path}" if self._file.header is None else f"{path} holds no answer"
            return NotRecorded(f"request {number}: {nothing}.\n{ADVICE}")
        recorded.sort(key=lambda each: (each.is_used, each.number))
        near = nearest(body, recorded)
        headline, lines = compare_requests(near.body, body)
        said = f"request {number}: {headline} ({path}, line {near.line}; - recorded, + now):"
        return NotRecorded("\n".join([said, *lines, ADVICE]))

    def cut_off(self, request: RecordedRequest) -> NotRecorded:
        """Return the error that the rest of an answer was not recorded."""
        said = f"request {request.number}: its answer ends here in {self.path} (line {request.line}): "
        return NotRecorded(f"{said}the run that was recorded was stopped.\n{ADVICE}")

    def missing_call(self, key: str, tool: str | None, effect: str) -> NotRecorded:
        """Return the error that there is no result of a call."""
        said = f"call {_call_name(key, tool)} is not in {self.path}, and it is not made while replaying"
        return NotRecorded(
            f'{said}: its effect is {effect!r}.\nRecord again: mode="all", with pytest --journeyman-record=all; '
            'or let tools run: Cassette(…, tools="run").'
        )


def _call_name(key: str, tool: str | None) -> str:
    place, _, id = key.rpartition("/call/")
    return f"{id!r} of {tool or 'a tool'} in {place}"


# -- which recorded request is nearest --------------------------------------------------------------------------------

_COMPARED_CHARS: Final = 2_000
_COMPARED_REQUESTS: Final = 40


def nearest(asked: JsonObject, recorded: Sequence[RecordedRequest]) -> RecordedRequest:
    """Return the recorded request that is most like `asked`; of equally like ones the first."""
    scores = [_score(asked, other.body) for other in recorded]
    best = max(scores)
    equal = [other for other, score in zip(recorded, scores, strict=True) if score == best]
    if len(equal) == 1:
        return equal[0]
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(_end_of_messages(asked))

    def likeness(other: RecordedRequest) -> float:
        matcher.set_seq1(_end_of_messages(other.body))
        return matcher.quick_ratio()

    return max(equal[:_COMPARED_REQUESTS], key=likeness)


def _score(asked: JsonObject, other: JsonObject) -> tuple[int, int, int]:
    """Return how much two requests are alike: messages in common, then how close they are in length, then equal fields
    beside the messages."""
    mine, theirs = messages_of(asked), messages_of(other)
    beside = sum(asked.get(name) == other.get(name) for name in asked if name != "messages")
    return _n_common(mine, theirs), -abs(len(mine) - len(theirs)), beside


def _n_common(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the number of items, from the beginning, in which two lists are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _end_of_messages(body: JsonObject) -> str:
    return json.dumps(messages_of(body), ensure_ascii=False)[-_COMPARED_CHARS:]


# -- how two requests differ ------------------------------------------------------------------------------------------

_WIDTH: Final = 100
"""Longer lines of a text are cut into pieces of this many characters, which are compared one by one."""
_COMPARED_LINES: Final = 400
_SHOWN_LINES: Final = 18


def compare_requests(recorded: JsonObject, now: JsonObject) -> tuple[str, list[str]]:
    """Return the first difference in short, and the lines that show all: those recorded with `-`, those asked now with
    `+`."""
    before, after = (
        [*_json_lines({name: each for name, each in body.items() if each != {}})] for body in (recorded, now)
    )
    start = max(0, _n_common(before, after) - 1)
    ends = (before[start : start + _COMPARED_LINES], after[start : start + _COMPARED_LINES])
    _, _, _, *diff = unified_diff(*ends, lineterm="", n=1)
    places = list(dict.fromkeys(_place_in_line(line) for line in diff if line[0] in "-+"))
    kept = [line for line in diff if line[0] == "@" or _place_in_line(line) in places]
    lines = ["  …" if line[0] == "@" else f"{line[0]} {line[1:]}" for line in kept]
    hidden = len(lines) - _SHOWN_LINES
    shown = lines if hidden <= 0 else [*lines[:_SHOWN_LINES], f"and {count(hidden, 'more line')}"]
    more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    return f"{places[0]} differs{more}", shown


def _place_in_line(line: str) -> str:
    return line[1:].partition(": ")[0]


def _json_lines(value: JsonValue, place: str = "") -> Iterator[str]:
    """Give JSON as lines of `place: value`, a line for each line of a text, so that a diff names message and field."""
    match value:
        case dict() if value:
            for key in sorted(value) if place else value:
                name = key if key.isidentifier() else json.dumps(key)
                yield from _json_lines(value[key], f"{place}.{name}" if place else name)
        case list() if value:
            for index, item in enumerate(value):
                # a tool by its name, so that one tool more does not change those behind it
                name = item.get("name", index) if place == "tools" and isinstance(item, dict) else index
                yield from _json_lines(item, f"{place}[{json.dumps(name)}]")
        case str() if value:
            for line in value.splitlines(keepends=True):
                for index in range(0, len(line), _WIDTH):
                    yield f"{place}: {json.dumps(line[index : index + _WIDTH], ensure_ascii=False)}"
        case _:
            yield f"{place}: {json.dumps(value)}"
