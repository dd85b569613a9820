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
from typing import Any, Final, Literal, TypeAlias, cast

from pydantic_core import from_json

from journeyman.environment import somebody
from journeyman.errors import RunOver, StoreError, quoted
from journeyman.events import SignalTaken
from journeyman.foreign import refuse_old_arguments
from journeyman.gate import DECISION, Decision
from journeyman.inbox import text_of_signal
from journeyman.record.reading import RecordedEvent, RecordedRun, Recordings
from journeyman.run_view import ANSWERS, ASKS, RunViews
from journeyman.types import JsonObject, RunPath

# A shorter beginning could be that of another question.
_SHORTEST_DIGEST: Final = 6
# Whoever says something learns in this time what became of it; what takes longer is not waited for.
_PATIENCE_S: Final = 1.0
_LOOK_S: Final = 0.03

ToldState: TypeAlias = Literal["waits", "taken", "withdrawn", "late"]
"""What became of a word. `late`: its run had ended, or somebody else was first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A question that waits for an answer: a call waits for a decision, or the model asks for a text."""

    key: str
    """Its id in the recording."""
    kind: Literal["approve", "answer"]
    question_id: str
    """The digest of the tool and its arguments; for a question, its id."""
    path: RunPath
    tool: str
    arguments: JsonObject | None
    question: str
    options: tuple[str, ...]


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


def open_questions(recordings: Recordings, run: RecordedRun) -> list[OpenQuestion]:
    """Return what waits for an answer in a recording, the oldest first; nothing once it is over."""
    if run.status != "running":
        return []
    views = RunViews()
    for event in recordings.all_events(run, kinds=(*ASKS, *ANSWERS)):
        views.take(event)
    asked = [told for view in views.open.values() for told in view.questions.values()]
    return [_question_of_event(told) for told in sorted(asked, key=lambda told: told.n)]


def _question_of_event(event: RecordedEvent) -> OpenQuestion:
    facts, id = event.facts, str(event.facts.get("id"))
    given, options = facts.get("arguments"), facts.get("options")
    return OpenQuestion(
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


def told(recordings: Recordings, id: str, heard: Mapping[int, tuple[str, str]], *, is_over: bool) -> list[Told]:
    """Return what people have said to the run with this id, the oldest first."""
    query = "SELECT n, kind, body, at, who FROM jm_signals WHERE run = ? ORDER BY n"
    found: list[Told] = []
    for n, kind, body, at, who in recordings.file.rows(query, (id,)):
        if kind in _BETWEEN:
            continue
        outcome = heard.get(n, ("late" if is_over else "waits", ""))[0]
        state = {"refused": "late", "waits": "late" if is_over else "waits"}.get(outcome, outcome)
        said: Mapping[str, Any] = from_json(body)
        decided: Mapping[str, Any] = said.get("decision") or {}
        answer = " ".join(filter(None, (str(decided.get("decision") or ""), str(decided.get("reason") or ""))))
        text = answer if kind == "approve" else text_of_signal(said) or ""
        waits_for = _WAITS_FOR.get(kind, "waits until the run hears it") if state == "waits" else None
        made = Told(n=n, at=at, kind=kind, text=text, by=who, state=cast("ToldState", state), waits_for=waits_for)
        found.append(made)
    return found


class RecordedHandle:
    """Says something to one recorded run, as `RunHandle` of `journeyman.durable` does to a durable run."""

    def __init__(self, recordings: Recordings, run: RecordedRun) -> None:
        """`recordings` stay open as long as this is used."""
        self._recordings = recordings
        self._run = run

    @refuse_old_arguments
    async def steer(self, text: str, *, who: str | None = None, idempotency_key: str | None = None) -> None:
        """Say something before the next model call.

        Raises:
            ValueError: the text is blank, or the recording takes no such words.
            RunOver: the run has ended.
            LookupError: the words were refused; the text says why.
        """
        await self._say("steer", text, idempotency_key, who)

    @refuse_old_arguments
    async def follow_up(self, text: str, *, who: str | None = None, idempotency_key: str | None = None) -> None:
        """Say something when nothing else is left to do. Raises what `steer` raises."""
        await self._say("follow_up", text, idempotency_key, who)

    async def _say(self, kind: str, text: str, dedup: str | None, who: str | None) -> None:
        if not text.strip():
            raise ValueError("The text is blank: there is nothing to say.")
        if self._run.kind == "team":
            raise ValueError("Nobody can say something to a team from outside: say it to the program that leads it.")
        await self._send(kind, {"text": text}, dedup or secrets.token_hex(8), who)

    @refuse_old_arguments
    async def approve(self, question_id: str, decision: Decision, *, who: str | None = None) -> OpenQuestion:
        """Answer the question about a call that waits, and return the question. The first answer counts.

        Raises:
            LookupError: no question waits under this id, or it was answered before. The text says by whom and when.
            RunOver: the run has ended.
        """
        return await self._settle("approve", question_id, {"decision": DECISION.document_of(decision)}, who)

    @refuse_old_arguments
    async def answer(self, question_id: str, text: str, *, who: str | None = None) -> OpenQuestion:
        """Answer a question of the model, and return it. The first answer counts.

        Raises:
            ValueError: the text is blank.
            LookupError, RunOver: as for `approve`.
        """
        if not text.strip():
            raise ValueError("The text is blank: there is nothing to say.")
        return await self._settle("answer", question_id, {"text": text}, who)

    async def stop(self, reason: str = "stopped from outside", *, who: str | None = None) -> None:
        """End what goes on: a run, or the turn of a chat, ends as `EXECUTION_CANCELLED`.

        Raises:
            RunOver: it has ended.
            ValueError: the recording takes no such words.
        """
        if self._run.kind == "team":
            raise ValueError("A team cannot be stopped from outside: stop the program that leads it.")
        # A chat has many turns, and each of them may be stopped.
        # Any other run is stopped once: a second word of it is not stored.
        dedup = secrets.token_hex(8) if self._run.kind == "chat" else "stop"
        await self._send("stop", {"reason": reason}, dedup, who)

    async def hold(self, *, who: str | None = None) -> None:
        """Let no further model call or tool call begin until the run is released.

        Raises:
            RunOver: it has ended.
        """
        await self._send("hold", {}, secrets.token_hex(8), who)

    async def release(self, *, who: str | None = None) -> None:
        """Let a held run go on. Raises what `hold` raises."""
        await self._send("release", {}, secrets.token_hex(8), who)

    async def withdraw(self, n: int, *, who: str | None = None) -> None:
        """Take back the word with this number, which waits to be said.

        Raises:
            LookupError: it no longer waits.
            RunOver: the run has ended.
        """
        await self._send("withdraw", {"text": str(n)}, str(n), who)

    async def _settle(
        self, kind: Literal["approve", "answer"], question_id: str, body: JsonObject, who: str | None
    ) -> OpenQuestion:
        # In a thread: a store that is busy, or far away, must not hold the event loop.
        waiting = await asyncio.to_thread(open_questions, self._recordings, self._run)
        asked = [each for each in waiting if each.kind == kind and each.question_id == question_id] or [
            each
            for each in waiting
            if each.kind == kind and len(question_id) >= _SHORTEST_DIGEST and each.question_id.startswith(question_id)
        ]
        if not asked:
            raise LookupError(await asyncio.to_thread(self._nothing_waits, question_id, waiting))
        question = asked[0]
        bound = {} if question.question_id == question.key else {"digest": question.question_id}
        if not await self._send(kind, {**body, **bound}, question.key, who):
            raise LookupError(await asyncio.to_thread(self._nothing_waits, question_id, ()))
        return question

    def _find_answer(self, question_id: str) -> str | None:
        """Say what was answered to a question from outside, by whom and when."""
        query = (
            "SELECT body, at, who FROM jm_signals WHERE run = ? AND kind IN ('approve', 'answer')"
            " AND (dedup = ? OR substr(body ->> 'digest', 1, ?) = ?) ORDER BY n"
        )
        given = (self._run.id, question_id, max(len(question_id), _SHORTEST_DIGEST), question_id)
        for body, at, who in self._recordings.file.rows(query, given):
            facts: Mapping[str, Any] = from_json(body).get("decision") or {}
            return (
                f"This was answered before: {facts.get('decision', 'a text')}, by {who}, {time.time() - at:,.0f} s ago."
            )
        return None

    def _nothing_waits(self, question_id: str, waiting: Sequence[OpenQuestion]) -> str:
        if (answered := self._find_answer(question_id)) is not None:
            return answered
        names = ", ".join(f"{each.question_id[:12]} ({each.tool})" for each in waiting)
        waits = f"It waits for {names}." if names else "It waits for nobody."
        return f"No question waits under {quoted(question_id[:64])} in the recording {self._run.id}. {waits}"

    async def _send(self, kind: str, body: JsonObject, dedup: str, who: str | None) -> bool:
        """Store a word, and wait a moment for what becomes of it. False: this was said before."""
        try:
            n = await asyncio.to_thread(self._stored, kind, body, dedup, who or somebody())
        except RunOver:
            answered = await asyncio.to_thread(self._find_answer, dedup)
            if kind in ("approve", "answer") and answered is not None:  # which the run may have ended with
                raise LookupError(answered) from None
            raise
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

    def _stored(self, kind: str, body: JsonObject, dedup: str, who: str) -> int | None:
        run = self._recordings.find(self._run.id)
        if run.kind == "durable":
            raise StoreError(
                f"The run {run.id} is durable, and not kept in {self._recordings.file.place}.",
                hint="Name the store that it is kept in with --store.",
            )
        if run.status != "running":
            raise RunOver(run.id, run.code or run.status)
        at, file = time.time(), self._recordings.file
        file.say((run.id, kind, dedup, json.dumps(body), at, who))
        # If the answer to that was lost, it was said more than once, and stands there once.
        query = "SELECT n FROM jm_signals WHERE (run, kind, dedup, at, who) = (?, ?, ?, ?, ?)"
        found = file.rows(query, (run.id, kind, dedup, at, who))
        return found[0][0] if found else None
