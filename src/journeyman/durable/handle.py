"""One durable run, from any process that has its store open: to look at it, to wait for it, to say something to it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final, Generic

from typing_extensions import TypeVar

from journeyman.agent import Agent
from journeyman.durable.engine import result_of
from journeyman.durable.records import (
    DONE,
    OVER,
    Head,
    PendingQuestion,
    QuestionKind,
    Record,
    Row,
    RunInfo,
    Signal,
    SignalKind,
    pack_step,
    questions_of,
    record_of_step,
    seal_record,
)
from journeyman.durable.watcher import Hub
from journeyman.environment import somebody
from journeyman.errors import RunBlocked, RunOver, RunUnknown, quoted
from journeyman.foreign import refuse_old_arguments
from journeyman.gate import DECISION, Decision
from journeyman.journal import StepFacts, as_json, encode_step
from journeyman.narrowing import is_json_object
from journeyman.result import Result
from journeyman.step import RunStep
from journeyman.types import JsonObject

# A shorter beginning could be that of another question.
_SHORTEST_DIGEST: Final = 6
Value = TypeVar("Value", default=Any, covariant=True)


class RunHandle(Generic[Value]):
    """One durable run, from any process."""

    def __init__(self, hub: Hub, id: str, agent: Agent[Any, Any, Any] | None = None) -> None:
        """`Durable.get` and `Durable.start` make handles."""
        self.id: Final = id
        self.hub: Final = hub
        self._agent: Final = agent

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"

    async def info(self) -> RunInfo:
        """Return what is known of the run."""
        return (await self.hub.engine.infos([await self._row()]))[0]

    async def result(self) -> Result[Value]:
        """Wait until the run has ended, and return its result. This does not drive the run.

        Raises:
            RunBlocked: it cannot go on by itself, or its result cannot be read.
        """
        while True:
            # The mark before the look: what is written in between is not missed.
            mark = self.hub.mark()
            row = await self._row()
            if row.status in OVER:
                return await result_of(self.hub.engine, row, self._agent)
            if row.status == "blocked":
                raise RunBlocked(row.name or row.id, row.why or "")
            await self.hub.changed(since=mark)

    @refuse_old_arguments
    async def steer(self, text: str, *, who: str | None = None, idempotency_key: str | None = None) -> None:
        """Say something to the run before its next model call. The text is said once, in whichever life of the run. If
        the `idempotency_key` was used before, nothing is said.

        Raises:
            ValueError: the text is blank.
            RunOver: the run has ended.
        """
        if not text.strip():
            raise ValueError("The text is blank: there is nothing to say.")
        await self._send("steer", {"text": text}, dedup=idempotency_key, who=who)

    @refuse_old_arguments
    async def approve(self, question_id: str, decision: Decision, *, who: str | None = None) -> PendingQuestion:
        """Answer the question about a call that waits, and return the question. The first answer counts.

        `question_id` is that of the pending question, or its first six characters or more. `decision` is `Allow()`,
        `Deny("…")`, `Rewrite(…)` or `Stop()`. `who` is kept with the answer: the one who gave it.

        Raises:
            LookupError: no question waits under this id, it was answered before, or it has expired. The text says by
                whom and when.
            RunOver: the run has ended.
        """
        return await self._settle("approve", question_id, {"decision": DECISION.document_of(decision)}, who)

    @refuse_old_arguments
    async def answer(self, question_id: str, text: str, *, who: str | None = None) -> PendingQuestion:
        """Answer a question that the model has asked with `ask_user`, and return it. The first answer counts.
        `question_id` and `who` are as for `approve`.

        Raises:
            ValueError: the text is blank.
            LookupError, RunOver: as for `approve`.
        """
        if not text.strip():
            raise ValueError("The text is blank: there is nothing to say.")
        return await self._settle("answer", question_id, {"text": text}, who)

    async def _settle(self, kind: QuestionKind, question_id: str, body: JsonObject, who: str | None) -> PendingQuestion:
        row = await self._row()
        asked = [
            each
            for each in questions_of(row)
            if each.kind == kind and len(question_id) >= _SHORTEST_DIGEST and each.question_id.startswith(question_id)
        ]
        # Two calls with the same arguments have the same digest: an answer to it is one to either.
        if len({each.question_id for each in asked}) != 1:
            raise LookupError(await self._nothing_waits(row, question_id))
        question, now = asked[0], self.hub.now()
        if question.expires_at is not None and question.expires_at <= now:
            raise LookupError(
                f"The question about {question.tool} expired {now - question.expires_at:,.0f} s ago, and counts as"
                " denied. Nothing was sent."
            )
        if not await self._send(kind, {**body, "digest": question.question_id}, dedup=question.key, who=who, at=now):
            raise LookupError(await self._find_answer(key=question.key))
        return question

    async def stop(self, reason: str = "cancelled", *, who: str | None = None) -> None:
        """End the run, in whichever process drives it. It ends as `EXECUTION_CANCELLED`, with all that it has done so
        far and this `reason`. `who` is kept: the one who stopped it.

        Raises:
            RunOver: it has ended.
        """
        await self._send("stop", {"reason": reason}, dedup="stop", who=who)

    async def hold(self, *, who: str | None = None) -> None:
        """Let no further step of the run begin until it is released. Steps that have begun go on to their end.

        Raises:
            RunOver: it has ended.
        """
        await self._send("hold", {}, who=who)

    async def release(self, *, who: str | None = None) -> None:
        """Let a held run go on.

        Raises:
            RunOver: it has ended.
        """
        await self._send("release", {}, who=who)

    async def records(self) -> Sequence[Record]:
        """Return the steps that are stored of the run, in the order in which they were written."""
        return await self.hub.engine.records(self.id)

    async def effects(self, at: tuple[int, int] = (1, 1)) -> tuple[str, ...]:
        """Return the keys of the calls with effect `once` that the run has begun from an attempt and iteration on: what
        a fork there may do again."""
        calls = [each for each in await self.records() if each.effect == "once" and not is_before(each, at)]
        return tuple(dict.fromkeys(each.key for each in calls))

    async def _row(self) -> Row:
        row = await self.hub.engine.get(self.id)
        if row is None:
            raise RunUnknown(self.id, ())
        return row

    async def _send(
        self,
        kind: SignalKind,
        body: JsonObject,
        *,
        dedup: str | None = None,
        who: str | None = None,
        at: float | None = None,
    ) -> bool:
        now, engine = self.hub.now() if at is None else at, self.hub.engine
        given = Signal(0, self.id, kind, dedup or secrets.token_hex(8), body, now, who or somebody())
        taken = await engine.signal(given)
        if taken == "over":
            if kind in ("approve", "answer") and (before := await self._find_answer(key=given.dedup)) is not None:
                raise LookupError(before)  # which the run has ended with
            row = await self._row()
            raise RunOver(row.name or row.id, row.why or "with success")
        self.hub.notify()
        return taken == "taken"

    async def _find_answer(self, *, key: str = "", id: str = "") -> str | None:
        """Say what was answered to a question, by whom and when: to that of a step, or to the last one of an id."""
        for signal in reversed(await self.hub.engine.signals(run=self.id)):
            has_id = id and str(signal.body.get("digest", "")).startswith(id)
            if signal.kind in ("approve", "answer") and (has_id or signal.dedup == key):
                decision: object = signal.body.get("decision")
                word = decision.get("decision") if is_json_object(decision) else "a text"
                return f"This was answered before: {word}, by {signal.who}, {self.hub.now() - signal.at:,.0f} s ago."
        return None

    async def _nothing_waits(self, row: Row, question_id: str) -> str:
        if len(question_id) < _SHORTEST_DIGEST:
            return (
                f"{quoted(question_id)} is no id of a question: give at least its first {_SHORTEST_DIGEST} characters."
            )
        if (before := await self._find_answer(id=question_id)) is not None:
            return before
        waiting = [f"{each.question_id[:12]} ({each.tool})" for each in questions_of(row)]
        waits = f"It waits for {', '.join(waiting)}." if waiting else "It waits for nobody."
        return f"No question waits under {quoted(question_id[:64])} in the run {row.name or row.id!r}. {waits}"


def is_before(step: Record, at: tuple[int, int]) -> bool:
    """Tell whether a step belongs to what comes before an attempt and iteration."""
    # A fork has its own head, and has not ended.
    if (step.attempt, step.iteration) == (0, 0) and step.kind in ("head", "end"):
        return False
    if step.attempt != at[0]:
        return step.attempt < at[0]
    return step.iteration < at[1] and (step.iteration > 0 or step.kind == "state")


def is_own_system(step: Record) -> bool:
    """Tell whether a step holds the system prompt of the run itself."""
    return step.kind == "system" and (step.attempt, step.iteration) == (0, 0)


# -- forks


def check_place(run: str, records: Sequence[Record], at: tuple[int, int]) -> None:
    """Raise a `ValueError` if a run was never at an attempt and iteration."""
    places = {(each.attempt, each.iteration) for each in records} - {(0, 0)}
    most = max(places, default=(0, 0))
    if not places:
        raise ValueError(f"The run {run!r} has done nothing yet, so there is nothing to fork. Start another one.")
    if min(at) < 1 or at > (most[0], most[1] + 1):
        raise ValueError(
            f"The run {run!r} was never at {at[0]}/{at[1]}. Its last step is of attempt {most[0]}, iteration {most[1]};"
            " both count from 1."
        )


def copied(made: Row, head: Head, records: Sequence[Record]) -> Sequence[Record]:
    """Return the first records of a fork: a head that says whose journal it is, and what another run has done. That is
    taken as it is, whatever it was the answer to; and that something was only begun is not taken."""
    whose = encode_step(as_json({"agent": head.agent, "input": head.input}), StepFacts(kind="head"))
    fields: Any = {"about": None, "effect": "pure", "epoch": 0, "at": made.created, "used_s": 0.0}
    first = record_of_step(made.id, RunStep(key="head", kind="head"), DONE, body=pack_step(whose, key="head"), **fields)
    # What was only begun may have happened: a fork must not inherit that it is unknown.
    done = [each for each in records if each.state == DONE]
    return [first, *[seal_record(each._replace(run=made.id, epoch=0, about=None)) for each in done]]
