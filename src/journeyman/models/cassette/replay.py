"""Which recorded request or call is the answer to a new one.

A request is answered by an equal one; of several equal ones by the first that is left. Runs that go on at the same time
may ask the same: once a run has been given an answer of a recorded run, it is given that run's answers first. Imports
`tape` and `nearest`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from journeyman.errors import NotRecorded
from journeyman.models.cassette.format import CallTake, Take, Tape
from journeyman.models.cassette.nearest import differences, headline, nearest, shown
from journeyman.types import JsonObject

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
