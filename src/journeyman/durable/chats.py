"""Chats whose turns are durable runs.

Between turns a chat is its conversation, which a session keeps; within a turn it is the steps of a run. The run has a
name that follows from the session, so that whoever opens the chat finds the turn that was cut off; and what it adds to
the conversation is written in the same step as its end. The session's lock says who has the chat open. The claim of the
turn's run says who drives the turn, as for every run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from journeyman.agent import Agent, Runtime
from journeyman.cancellation import Abort, wait_until_ended
from journeyman.chat.writer import DurableSession, TurnLife
from journeyman.durable.binding import Program
from journeyman.durable.dispatch import LATE_S
from journeyman.durable.engine import result_of
from journeyman.durable.handle import RunHandle
from journeyman.durable.journal import Exit
from journeyman.durable.records import OVER, Head, Row, load_head, make_row
from journeyman.durable.watcher import Hub
from journeyman.errors import InvalidArguments, JourneymanError, RunBlocked, RunDiffers, RunInUse, RunOver, StoreError
from journeyman.inbox.inbox import Queue
from journeyman.journal import new_id
from journeyman.result import Result
from journeyman.session import TURN, Snapshot, Step, turn_name
from journeyman.store.sessions import StoredSession
from journeyman.tools.collection import do_aside
from journeyman.tools.exact import StoredValue, load_value

T = TypeVar("T")

# What was said is in the session: the steps only serve whoever looks back.
KEPT_S: Final = 7 * 24 * 3600.0
"""The steps of a turn are forgotten so many seconds after its end, when its chat is opened."""
# A chat that is opened must not wait for all that was ever said in it.
_MOST_FORGOTTEN: Final = 1_000


class TurnSuspended(JourneymanError):
    """The turn has left memory, and only waits. Whoever opens its chat next goes on with it."""


class ChatSession:
    """A session whose turns are durable runs."""

    def __init__(self, hub: Hub, session: StoredSession, *, head: Callable[..., Awaitable[Head]], app: str) -> None:
        """`head` makes what a run is begun with, of an agent and its input."""
        self._hub, self._session, self._head, self._app = hub, session, head, app
        self.leaves_turns = False
        """True: a turn that only waits leaves memory, as other runs do, and is over here with `TurnSuspended`."""

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def notice(self) -> str | None:
        return self._session.notice

    @property
    def snapshot(self) -> Snapshot:
        return self._session.snapshot

    def add(self, text: str, queue: Queue) -> int:
        return self._session.add(text, queue)

    def write(self, step: Step) -> None:
        self._session.write(step)

    def close(self) -> None:
        self._session.close()

    def __repr__(self) -> str:
        return f"<ChatSession of {self._session!r}>"

    async def call(self, work: Callable[[], T]) -> T:
        # In a thread: a session of a database waits for the network.
        if not self._session.is_waited_for:
            return work()
        working = asyncio.ensure_future(asyncio.to_thread(work))
        await wait_until_ended(working)  # also if the waiting is cancelled: what it writes counts
        return working.result()

    async def begin_turn(
        self, agent: Agent[Any, Any, Any], input: object, *, number: int, goes_on: bool, runtime: Runtime
    ) -> None:
        if runtime.journal is not None:
            raise ValueError("The runtime has a journal; a durable chat has its own. Leave Runtime.journal out.")
        head = await self._head(agent, input, max_attempts=None, history=(), runtime=runtime)
        now = self._hub.now()
        make = partial(
            make_row,
            replace(head, session=self.id, number=number, goes_on=goes_on),
            id=new_id(now),
            name=turn_name(self.id, number),
            app=self._app,
            created=now,
            status="ready",
            wake=now + LATE_S,  # until then no worker begins it: it is driven here
        )
        row = await do_aside(head.exact or head.input, lambda _: make())
        if (await self._hub.engine.add(row, is_queued=False)).id != row.id:
            hint = "Open it again to go on from what is stored."
            raise StoreError(f"Session {self.id} was changed elsewhere: it has a turn {row.name}.", hint=hint)
        self._hub.notify()

    async def open_turn(self, agent: Agent[Any, Any, Any], number: int) -> tuple[object, bool] | None:
        engine, name = self._hub.engine, turn_name(self.id, number)
        before = self._hub.now() - KEPT_S
        # Here, so that no program has to remember it.
        old = await engine.rows(prefix=f"{TURN}{self.id}/", statuses=OVER, ended_before=before, limit=_MOST_FORGOTTEN)
        if old:
            await engine.forget([row.id for row in old])
        row = await engine.get(name)
        if row is None or row.status in OVER:
            return None
        if row.status == "blocked":
            raise RunBlocked(name, row.why or "")
        head = load_head(row)
        if head.agent != agent.name:
            raise RunDiffers(name, f"it is one of the agent {head.agent!r}, not of {agent.name!r}")
        input: object = head.input
        with suppress(InvalidArguments):  # if it fits no more, whoever drives the turn says so
            stored = StoredValue(head.input, head.exact)
            input = head.input if agent.input is str else await load_value(agent.plan.input, stored)
        return input, head.goes_on

    async def carry(self, life: TurnLife, *, runtime: Runtime, abort: Abort) -> tuple[Result[Any], Snapshot | None]:
        name, hub = turn_name(self.id, life.number), self._hub
        program = Program(agent=life.agent, runtime=runtime, abort=abort, turn=life, may_leave=self.leaves_turns)
        is_told = False
        while True:
            # Before the look, so that an end that is stored in between is not missed.
            mark = hub.mark()
            row = await hub.row(name)
            if row.status in OVER:
                stored = await hub.engine.conversation(self.id)
                await self.call(self._session.refresh)
                return await result_of(hub.engine, row, life.agent), stored
            outcome = await self._driven(row, program)
            if outcome is not None and not isinstance(outcome, Exit):
                await self.call(self._session.refresh)
                return outcome, await hub.engine.conversation(self.id) if life.has_late_texts else None
            if outcome is not None and outcome.how == "blocked":
                raise RunBlocked(name, outcome.why)
            if outcome is not None and outcome.how == "suspended" and self.leaves_turns:
                raise TurnSuspended(f"The turn {name} waits for an answer.")
            # Once, however long the run takes to end.
            if abort.aborted and not is_told:  # whoever drives it is told
                is_told = True
                with suppress(RunOver):
                    await RunHandle[Any](hub, row.id).stop(abort.reason or "")
                continue
            await hub.changed(since=mark)

    async def _driven(self, row: Row, program: Program) -> Result[Any] | Exit | None:
        """Drive a turn, if that is allowed. None: somebody else has just taken it, or has ended it."""
        try:
            outcome = await self._hub.driven(row.id, program, also=("ready", "waiting"))
        except RunInUse:
            return None
        ended_here = program.turn is not None and program.turn.is_ended
        return outcome if isinstance(outcome, Exit) or ended_here else None


if TYPE_CHECKING:
    _session: type[DurableSession] = ChatSession
