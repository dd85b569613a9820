"""The questions of a recorded run, and the words to it, from any process that can write to its store.

A word is a row that is never changed. The process that records reads it, and records what became of it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from journeyman.definition.narrowing import as_object
from journeyman.errors import RunOver, StoreError
from journeyman.events import SignalTaken
from journeyman.events.run_view import ANSWERS, ASKS, RunViews
from journeyman.inbox.signals import SIGNAL_COLUMNS, PendingQuestion, Signal, SignalKind, signal_of
from journeyman.record.reading import RecordedEvent, RecordedRun, Recordings

# Whoever says something learns in this time what became of it; what takes longer is not waited for.
_PATIENCE_S: Final = 1.0
_LOOK_S: Final = 0.03

ToldState: TypeAlias = Literal["waits", "taken", "withdrawn", "late"]
"""What became of a word. `late`: its run had ended, or somebody else was first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A word that was said to a run, and its outcome."""

    n: int
    """Its number in the store."""
    at: float
    """Seconds since 1970."""
    kind: str
    text: str
    by: str
    """Who said it."""
    state: ToldState
    waits_for: str | None
    """What it waits for, in words."""


def open_questions(recordings: Recordings, run: RecordedRun) -> list[PendingQuestion]:
    """Return what waits for an answer in a recording, the oldest first; nothing once it is over."""
    if run.status != "running":
        return []
    views = RunViews()
    for event in recordings.all_events(run, kinds=(*ASKS, *ANSWERS)):
        views.take(event)
    asked = [told for view in views.open.values() for told in view.questions.values()]
    return [_question_of_event(told) for told in sorted(asked, key=lambda told: told.n)]


def _question_of_event(event: RecordedEvent) -> PendingQuestion:
    facts, id = event.facts, str(event.facts.get("id"))
    given, options = facts.get("arguments"), facts.get("options")
    return PendingQuestion(
        key=id,
        kind="approve" if event.kind == "ApprovalRequested" else "answer",
        question_id=str(facts.get("question_id") or id),
        path=event.path,
        tool=event.tool_name or "ask_user",
        arguments=given if isinstance(given, dict) else None,
        question=str(facts.get("question", "")),
        options=tuple(map(str, options if isinstance(options, list) else ())),
    )


def outcomes(recordings: Recordings, run: RecordedRun) -> dict[int, tuple[str, str]]:
    """Return what became of each word that was heard, by number: the outcome, and why."""
    found: dict[int, tuple[str, str]] = {}
    for event in recordings.all_events(run, kinds=(SignalTaken.__name__,)):
        facts, signal = event.facts, event.facts.get("signal")
        found[signal if isinstance(signal, int) else 0] = str(facts.get("outcome")), str(facts.get("why") or "")
    return found


_WAITS_FOR: Final = {"steer": "waits for the next model call", "follow_up": "waits until nothing else is left to do"}
_BETWEEN: Final = frozenset(("mail", "task_ended"))
"""What runs say to one another."""


def signals_of(recordings: Recordings, id: str) -> list[Signal]:
    """Return what was said to the run with this id, the oldest first."""
    query = f"SELECT {SIGNAL_COLUMNS} FROM jm_signals WHERE run = ? ORDER BY n"
    return [*map(signal_of, recordings.file.rows(query, (id,)))]


def told(recordings: Recordings, id: str, heard: Mapping[int, tuple[str, str]], *, is_over: bool) -> list[Told]:
    """Return what people have said to the run with this id, the oldest first."""
    found: list[Told] = []
    for signal in signals_of(recordings, id):
        if signal.kind in _BETWEEN:
            continue
        outcome = heard.get(signal.n, ("late" if is_over else "waits", ""))[0]
        state = {"refused": "late", "waits": "late" if is_over else "waits"}.get(outcome, outcome)
        decided = as_object(signal.body.get("decision"))
        answer = " ".join(str(decided[each]) for each in ("decision", "reason") if decided.get(each))
        found.append(
            Told(
                n=signal.n,
                at=signal.at,
                kind=signal.kind,
                text=answer if signal.kind == "approve" else signal.text or "",
                by=signal.who,
                state=cast("ToldState", state),
                waits_for=_WAITS_FOR.get(signal.kind, "waits until the run hears it") if state == "waits" else None,
            )
        )
    return found


_OF_A_TEAM: Final[dict[SignalKind, str]] = {
    **dict.fromkeys(
        ("steer", "follow_up"), "Nobody can say something to a team from outside: say it to the program that leads it."
    ),
    "stop": "A team cannot be stopped from outside: stop the program that leads it.",
}


class RecordedSignals:
    """The signals of a recorded run, which its recorder hears."""

    def __init__(self, recordings: Recordings, run: RecordedRun) -> None:
        """`recordings` stay open as long as this is used."""
        self._recordings, self._run, self.now = recordings, run, time.time
        self.refuses: Final = _OF_A_TEAM if run.kind == "team" else {}

    # In threads: a store that is busy, or far away, must not hold the event loop.

    async def questions(self) -> Sequence[PendingQuestion]:
        return await asyncio.to_thread(open_questions, self._recordings, self._run)

    async def list_signals(self) -> Sequence[Signal]:
        return await asyncio.to_thread(signals_of, self._recordings, self._run.id)

    async def send(self, signal: Signal) -> bool:
        """Store a word, and wait a moment for what becomes of it."""
        if signal.kind == "stop" and self._run.kind == "chat":  # it has many turns, and each of them may be stopped
            signal = signal._replace(dedup=secrets.token_hex(8))
        n = await asyncio.to_thread(self._add_signal, signal)
        until = time.monotonic() + _PATIENCE_S
        while n is not None:
            run = await asyncio.to_thread(self._recordings.find, self._run.id)
            heard = await asyncio.to_thread(outcomes, self._recordings, run)
            match heard.get(n):
                case ("refused", why):
                    raise LookupError(f"It was refused: {why}.")
                case ("late", why):
                    raise LookupError(f"It came too late: {why}.")
                case None if run.status != "running":
                    raise RunOver(run.id, run.code or run.status)
                case None if time.monotonic() < until:
                    await asyncio.sleep(_LOOK_S)
                case _:  # one that is busy in a call of its own hears it afterwards
                    break
        return n is not None

    def _add_signal(self, signal: Signal) -> int | None:
        """Add a signal to those of the recording, and return its number. None: it was said before."""
        run = self._recordings.find(self._run.id)
        if run.kind == "durable":
            raise StoreError(
                f"The run {run.id} is durable, and not kept in {self._recordings.file.place}.",
                hint="Name the store that it is kept in with --store.",
            )
        if run.status != "running":
            raise RunOver(run.id, run.code or run.status)
        self._recordings.file.say((*signal[1:4], json.dumps(signal.body), signal.at, signal.who))
        # If the answer to that was lost, it was said more than once, and stands there once.
        stored = [each for each in signals_of(self._recordings, self._run.id) if each._replace(n=0) == signal]
        return stored[0].n if stored else None
