"""One durable run, from any process that has its store open: to look at it, to wait for it, to say something to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic

from typing_extensions import TypeVar

from journeyman.agent import Agent
from journeyman.durable.engine import result_of
from journeyman.durable.records import (
    DONE,
    OVER,
    Claim,
    Head,
    Record,
    Row,
    RunInfo,
    pack_step,
    questions_of,
    record_of_step,
    seal_record,
)
from journeyman.durable.watcher import Hub
from journeyman.errors import RunBlocked, RunOver
from journeyman.inbox.signals import PendingQuestion, Signal, SignalHandle, SignalKind
from journeyman.journal import StepFacts, as_json, encode_step
from journeyman.result import Result
from journeyman.step import RunStep

Value = TypeVar("Value", default=Any, covariant=True)


_REFUSES: Final[dict[SignalKind, str]] = {
    "follow_up": "A durable run takes nothing that is said at its end: steer it.",
    "withdraw": "What was said to a durable run is not taken back: steer it.",
}


class DurableSignals:
    """The signals of a durable run."""

    def __init__(self, hub: Hub, id: str) -> None:
        self._hub, self._id, self.now, self.refuses = hub, id, hub.now, _REFUSES

    async def questions(self) -> Sequence[PendingQuestion]:
        return questions_of(await self._hub.row(self._id))

    async def list_signals(self) -> Sequence[Signal]:
        return await self._hub.engine.signals(run=self._id)

    async def send(self, signal: Signal) -> bool:
        taken = await self._hub.engine.signal(signal)
        if taken == "over":
            row = await self._hub.row(self._id)
            raise RunOver(row.name or row.id, row.why or "with success")
        self._hub.notify()
        return taken == "taken"


class RunHandle(SignalHandle, Generic[Value]):
    """One durable run, from any process."""

    def __init__(self, hub: Hub, id: str, agent: Agent[Any, Any, Any] | None = None) -> None:
        """`Durable.get` and `Durable.start` make handles."""
        super().__init__(id, DurableSignals(hub, id))
        self.hub: Final = hub
        self._agent: Final = agent

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"

    async def info(self) -> RunInfo:
        """Return what is known of the run."""
        return (await self.hub.engine.infos([await self.hub.row(self.id)]))[0]

    async def result(self) -> Result[Value]:
        """Wait until the run has ended, and return its result. This does not drive the run.

        Raises:
            RunBlocked: it cannot go on by itself, or its result cannot be read.
        """
        while True:
            # The mark before the look: what is written in between is not missed.
            mark = self.hub.mark()
            self.hub.check()
            seen = await self.hub.engine.glance(self.id)
            if seen is None or seen.status in OVER or seen.status == "blocked":
                row = await self.hub.row(self.id)
                if row.status in OVER:
                    return await result_of(self.hub.engine, row, self._agent)
                if row.status == "blocked":
                    raise RunBlocked(row.name or row.id, row.why or "")
            await self.hub.changed(since=mark)

    async def records(self) -> Sequence[Record]:
        """Return the steps that are stored of the run, in the order in which they were written."""
        return await self.hub.engine.records(self.id)

    async def effects(self, at: tuple[int, int] = (1, 1)) -> tuple[str, ...]:
        """Return the keys of the calls with effect `once` that the run has begun from an attempt and iteration on: what
        a fork there may do again."""
        calls = [each for each in await self.records() if each.effect == "once" and not is_before(each, at)]
        return tuple(dict.fromkeys(each.key for each in calls))


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
    step, body = RunStep(key="head", kind="head"), pack_step(whose, key="head")
    first = record_of_step(Claim(made, 0), step, DONE, effect="pure", at=made.created, used_s=0.0, body=body)
    # What was only begun may have happened: a fork must not inherit that it is unknown.
    done = [each for each in records if each.state == DONE]
    return [first, *[seal_record(each._replace(run=made.id, epoch=0, about=None)) for each in done]]
