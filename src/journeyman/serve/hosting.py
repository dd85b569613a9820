"""The runs and chats of clients: begun, found again, answered, stopped, and forgotten.

Every run is a durable run, and every turn of a chat is one; without a store they are kept in memory, and end with their
clients. The name of a run says who owns it: `OWNER:KEY`. A client can name only what begins with its own owner, so it
cannot even ask for what belongs to another owner.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from contextvars import Context
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias, TypedDict

from journeyman.agent import Agent, Runtime
from journeyman.cancellation import Abort, cancel_within, is_awaited
from journeyman.chat import Chat
from journeyman.chat.questions import Questions
from journeyman.closing import TimeToEnd, time_of_work
from journeyman.connect import connect
from journeyman.definition.narrowing import as_text
from journeyman.durable import Durable, InMemoryEngine, Memory, PendingQuestion, RunHandle, RunInfo, Worker
from journeyman.durable.asking import asked_event
from journeyman.durable.binding import Program
from journeyman.durable.chats import ChatSession, TurnSuspended
from journeyman.durable.journal import Exit
from journeyman.durable.records import OVER, Claim, Head, Row, load_head, prints_of, questions_of
from journeyman.errors import (
    InvalidArguments,
    JourneymanError,
    ModelUnavailable,
    RunBlocked,
    RunDiffers,
    RunInUse,
    RunOver,
    StoreError,
    name_and_words,
)
from journeyman.events import Listener, TextDelta
from journeyman.gate import DECISION, Decision
from journeyman.inbox.questions import answered_event
from journeyman.inbox.signals import AnsweredBefore
from journeyman.model import opened
from journeyman.serve.live import KeptRuns, Live, Past, ServeLimits
from journeyman.serve.refusals import (
    ASK_OPERATOR,
    RETRY_S,
    STORE_AWAY,
    Refusal,
    describe_run,
    invalid_input,
    key_of,
    nothing,
    owner_of,
    refusal_of_turn,
    tell_blocked,
)
from journeyman.session import TURN, Snapshot, turn_name

Deps: TypeAlias = Callable[[str], "object | Awaitable[object]"]
"""Makes what the agents use for an owner."""

OnDisconnect: TypeAlias = Literal["stop", "continue"]
"""What becomes of a run that is kept in memory when the last client that follows it leaves: it is stopped, or goes
on."""

_log = logging.getLogger("journeyman")
_TICK_S: Final = 1.0
_LEAVES_S: Final = 5.0
"""So long whoever wants a chat waits until the turn before has closed it; its client has its answer by then."""


class Hosting:  # noqa: PLR0904 - one verb for each thing that a client may ask for
    """All that goes on for clients. It is used from one event loop, while it is open."""

    def __init__(
        self,
        agents: Mapping[str, Agent[Any, Any, Any]],
        store: Durable | str | None,
        *,
        deps: Deps | None,
        runtime: Runtime,
        limits: ServeLimits,
        on_disconnect: OnDisconnect,
    ) -> None:
        """`store`: where the runs are kept; None: in memory."""
        self.agents: Final = agents
        self.limits: Final = limits
        self.runtime: Final = runtime
        self.is_stored: Final = store is not None
        self._given: Final = store
        self._deps: Final = deps
        self._is_tied: Final = store is None and on_disconnect == "stop"
        self._durable: Durable | None = None
        self._worker: Worker | None = None
        self._memory: Memory | None = None
        self._kept: Final = KeptRuns(limits)
        self._n_going = 0
        """How many runs and turns are driven by requests, or begin."""
        self.n_followers = 0
        self.is_closing = False
        self._closing = TimeToEnd()
        """The time in which all of this has to end."""
        self._has_lifespan = False
        """True once the lifespan of the app has begun: then only it opens and closes."""
        self._keeper: asyncio.Task[None] | None = None
        """What keeps it open where there is no lifespan."""
        self._is_there: asyncio.Future[None]
        """Done when the keeper has opened it."""

    @property
    def durable(self) -> Durable:
        """The store of the runs.

        Raises:
            Refusal: it is not open.
        """
        if self._durable is None:
            text = "The server is closing, or not open yet."
            raise Refusal(503, "CLOSING", text, "Ask another one, or ask again.", retry_s=RETRY_S)
        return self._durable

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Keep it open for the lifespan of an application."""
        self._has_lifespan = True
        async with self._open():
            yield

    async def open_for_request(self) -> None:
        """Open it where the application that mounts it has not passed its lifespan on.

        It is then closed when the event loop ends, which cancels the task that keeps it open.

        Raises:
            StoreError: the store cannot be opened.
        """
        loop = asyncio.get_running_loop()
        if self._has_lifespan:
            return
        if self._keeper is None or self._keeper.done() or self._keeper.get_loop() is not loop:
            self._durable = None  # of another event loop, which has ended
            self._is_there = loop.create_future()
            self._keeper = loop.create_task(self._keep_open(self._is_there), context=Context())
        if not self._is_there.done() or self._durable is None:
            await asyncio.shield(self._is_there)

    async def _keep_open(self, is_there: asyncio.Future[None]) -> None:
        try:
            async with self._open():
                is_there.set_result(None)
                await asyncio.get_running_loop().create_future()
        except Exception as error:
            if is_there.done():
                raise
            is_there.set_exception(error)  # for the requests that wait
        finally:
            is_there.cancel()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        """Keep the store and the models open, and go on with what another process has left."""
        if self._durable is not None:
            raise RuntimeError("The agents are open already: an app can be opened only once.")
        self._kept.clear()
        async with AsyncExitStack() as stack:
            for model in (self.runtime.model or agent.model for agent in self.agents.values()):
                with suppress(ModelUnavailable):  # the run that needs it says so
                    await stack.enter_async_context(opened(connect(model) if isinstance(model, str) else model))
            self._durable = await self._open_store(stack)
            self.is_closing = False
            try:
                async with self._beside():
                    yield
            finally:
                self._durable = None

    async def _open_store(self, stack: AsyncExitStack) -> Durable:
        if isinstance(self._given, Durable):
            return self._given
        if self._given is not None:
            return await stack.enter_async_context(Durable(self._given))
        self._memory = Memory()
        kept_here = Durable(InMemoryEngine(self._memory), suspend_after_s=math.inf)
        kept_here.hub.keeps_steps = False  # a run that leaves this process is lost with it
        return await stack.enter_async_context(kept_here)

    @asynccontextmanager
    async def _beside(self) -> AsyncGenerator[None]:
        """Do what has to be done beside the requests."""
        self._closing = TimeToEnd(clock=asyncio.get_running_loop().time)
        looking = asyncio.create_task(self._look_after())
        tasks = {looking}
        if self.is_stored:
            self._worker = worker = Worker(
                self.durable,
                agents=list(self.agents.values()),
                max_concurrency=self.limits.runs,
                runtime=self.runtime,
                prepare=self._equip,
            )
            # Whoever runs the server handles signals.
            tasks.add(asyncio.create_task(worker.run(stop=asyncio.Event())))
        try:
            yield
        finally:
            await self.drain(0.0)
            looking.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=self._closing.part_s())
            await cancel_within(self._closing.part_s(), tasks)

    async def drain(self, grace_s: float) -> None:
        """Begin nothing more, and end what goes on within so many seconds; what is not done after most of them is
        stopped, or left to another process that has the store."""
        self.is_closing = True
        self._closing.begin(grace_s)
        going_on = [live for live in self._kept if live.task is not None and not live.task.done()]
        driving = [live for live in going_on if live.is_driven]
        for live in going_on:
            if live.task is not None and not live.is_driven:  # it only waits for what another process does
                live.task.cancel()
        tasks = {live.task for live in driving if live.task is not None}
        if not tasks:
            return
        await asyncio.wait(tasks, timeout=min(time_of_work(grace_s), self._closing.left_s()))
        for live in driving:
            if live.task is not None and not live.task.done():
                if self.is_stored:
                    if not live.task.cancelling():  # at the end of the event loop it gives its run back already
                        live.task.cancel()
                else:
                    live.abort.abort("the server is closing")
        await asyncio.wait(tasks, timeout=self._closing.part_s())
        # Each time, what keeps one of them is left: the store may be away.
        late = await cancel_within(self._closing.part_s(), tasks)
        for live in driving:
            if live.task in late:
                live.fail("LEFT", "The server was closed.", "The run goes on in another process of its store.")
                _log.warning("%s does not end, and is left as it is.", live.name)

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                self._kept.look(self._look_at)
                if self._memory is not None:
                    self._kept.forget_stored(self._memory, now=self.durable.hub.now())
            except Exception as error:  # noqa: BLE001 - without the next look no limit would hold, nothing be forgotten
                _log.exception("The server could not look after its runs: %s", name_and_words(error))

    def _look_at(self, live: Live, now_s: float) -> None:
        live.wake_waiting()
        limits, quiet_s = self.limits, now_s - live.moved_s
        if limits.run_s is not None and now_s - live.began_s > limits.run_s:
            live.abort.abort(f"it took longer than {limits.run_s:g} s")
        elif self._memory is not None and live.open and not live.n_followers and quiet_s > limits.patience_s:
            live.abort.abort(f"nobody answered within {limits.patience_s:g} s")

    async def wait_until_left(self, id: str) -> None:
        """Wait, within a few seconds, until the turn that has ended has closed its chat."""
        before = self._kept.get(TURN + id)
        if before is not None:
            await self.learn_end(before)
        if before is not None and before.ended is not None and before.task is not None:
            await asyncio.wait({before.task}, timeout=_LEAVES_S)

    def forget(self, name: str) -> None:
        """Forget what has ended here under the name of a run, or of a chat after `TURN`."""
        self._kept.forget(name)

    def _go(self, live: Live, driving: Coroutine[Any, Any, None]) -> None:
        """Let a request's run or turn go on."""

        # Whoever waits for the end was woken before, and is answered first.
        def note(task: object) -> None:
            self._n_going -= 1
            if live.task is task:
                live.task = None
            if live.ended is not None and live.ended.code is not None:
                self._kept.settle(live.name, live)

        self._n_going += 1
        live.is_driven = True
        live.task = asyncio.create_task(driving)
        live.task.add_done_callback(note)

    def agent(self, name: str) -> Agent[Any, Any, Any]:
        """Return the agent of this name.

        Raises:
            Refusal: there is none.
        """
        agent = self.agents.get(name)
        if agent is None:
            raise Refusal(
                404, "UNKNOWN_AGENT", f"There is no agent {name[:80]!r}.", f"There are: {', '.join(self.agents)}."
            )
        return agent

    async def start(self, name: str, agent: Agent[Any, Any, Any], value: object, *, is_tied: bool) -> Live | Past:
        """Begin a run, or find the one that has this name. A run of the same name with another input is refused.

        Raises:
            Refusal: it cannot begin now, or not with this input or this name.
        """
        known = await self.durable.hub.engine.get(name)
        begins = self._kept.find_followed(name) is None and (known is None or known.status == "ready")
        if begins:
            self._check_room()
        self._n_going += 1
        try:
            deps = await self._deps_of(name) if begins else None
            row, begun = await self.durable.begin_here(agent, value, id=name, runtime=self.runtime)
        except InvalidArguments as invalid:
            raise invalid_input(invalid) from None
        except RunDiffers as differs:
            hint = "Take another key for another request."
            text = f"This Idempotency-Key was used before, and {differs.difference}."
            raise Refusal(409, "KEY_REUSED", text, hint) from None
        finally:
            self._n_going -= 1
        past = self._kept.find_past(name)
        if past is not None:
            return past
        live = self._kept.find_followed(name)
        if live is None:
            base = 0 if known is None else known.epoch
            live = self._kept.add(name, self._live(name, agent, base=base, is_tied=is_tied and self._is_tied))
            if begins:
                self._go(live, self._drive(live, row, deps, begun))
        return await self._catch_up(live)

    def _check_room(self) -> None:
        if self.is_closing:
            raise Refusal(
                503, "CLOSING", "The server is closing, and begins no more runs.", "Ask again.", retry_s=RETRY_S
            )
        if self._n_going >= self.limits.runs:
            text = f"{self.limits.runs} runs are under way, and the server begins no more."
            raise Refusal(429, "TOO_MANY_RUNS", text, "Ask again when one has ended.", retry_s=RETRY_S)

    def _live(self, name: str, agent: Agent[Any, Any, Any], *, base: float = 0, is_tied: bool = False) -> Live:
        return Live(name, agent, base=base, is_tied=is_tied, limits=self.limits)

    async def _drive(self, live: Live, row: Row, deps: object, begun: Row | Claim | None) -> None:
        """Drive a run until it is over, or has left this process. `begun`: what is known of it, if it is new."""
        try:
            program = Program(agent=live.agent, runtime=self.runtime, is_checked=True, **_ears(live, deps))
            # As it was just stored, so that it need not be asked again whether this program lacks anything for it.
            outcome = await self.durable.hub.driven(row.id, program, also=("ready",), known=begun)
            if not isinstance(outcome, Exit):
                await live.end(outcome)
                return
        except RunInUse:
            outcome = Exit(how="held", why="")
        except asyncio.CancelledError:
            live.fail("LEFT", "The server was closed.", "The run goes on in another process of its store.")
            raise
        except Exception as error:  # noqa: BLE001 - of one run; its clients are told
            self._broke(live, error)
            return
        live.is_driven = False
        if outcome.how == "blocked":
            live.fail("BLOCKED", tell_blocked(live.run, outcome.why), ASK_OPERATOR)
        else:
            self._suspend(live)

    def _suspend(self, live: Live) -> None:
        """Note that something has left memory, and only waits."""
        live.is_suspended, live.is_driven, live.task = True, False, None
        live.wake_waiting()
        if live.n_followers:
            self._watch(live)

    async def _deps_of(self, name: str) -> object:
        """Make what the agents use for the owner of a run, or of a chat.

        Raises:
            Refusal: that failed, or took too long.
        """
        if self._deps is None:
            return None
        try:
            async with asyncio.timeout(self.limits.hook_s):
                made = self._deps(owner_of(name))
                return await made if is_awaited(made) else made
        except Exception as error:
            _log.warning("deps(%r) failed: %s", owner_of(name), name_and_words(error), exc_info=not _is_ours(error))
            text, hint = "What the agent needs could not be made.", "Ask again. The server's log says why."
            raise Refusal(503, "NO_DEPS", text, hint, retry_s=RETRY_S) from error

    async def _equip(self, row: Row, program: Program) -> Program | None:
        """Give a run that the worker goes on with what it would have had here from its beginning. None: it is a turn of
        a chat, which went on here as if its client had asked for it."""
        head = load_head(row)
        if head.session is not None:
            await self._resume_turn(row, head)
            return None
        first = row
        while (above := load_head(first).above) is not None and (found := await self.durable.hub.engine.get(above.run)):
            first = found
        deps = await self._deps_of(first.name or first.id)
        name = row.name or row.id
        if ":" not in name:
            return replace(program, deps=deps)
        live = self._kept.get(name)
        if live is None or live.ended is not None:
            live = self._kept.add(name, self._live(name, program.agent, base=row.epoch))
        return replace(program, **_ears(live, deps))

    def _watch(self, live: Live) -> None:
        """Wait for the end of a run that is not driven by a task of ours, for those who follow it."""
        live.task = asyncio.create_task(self._watch_run(live))

    async def _watch_run(self, live: Live) -> None:
        hub = self.durable.hub
        try:
            while True:
                mark, row = hub.mark(), await hub.row(live.run)
                if row.status in (*OVER, "blocked"):
                    break
                await self._hear_of(live, row)
                await hub.changed(since=mark)
            result = await (await self.durable.get(live.run, live.agent)).result()
            output = getattr(result, "output", None)
            if isinstance(output, str) and not any(isinstance(each.event, TextDelta) for each in live.entries):
                live.hear(TextDelta(path=(live.agent.name,), text=output))
            await live.end(result)
            self._kept.settle(live.name, live)
        except RunBlocked as blocked:
            live.fail("BLOCKED", tell_blocked(live.run, blocked.why), ASK_OPERATOR)
        except Exception as error:  # noqa: BLE001 - of one run; its clients are told
            self._broke(live, error)

    async def _hear_of(self, live: Live, row: Row) -> None:
        """Let those who follow a run that another process drives hear what it asks, and what is answered."""
        asked = {each.question_id: each for each in questions_of(row)}
        gone = [id for id in live.open if id not in asked]
        given = await self.durable.hub.engine.signals(run=row.id) if gone else ()
        for id in gone:
            if id in live.here or id not in live.open:  # asked in this process, which is about to note it, or answered
                continue
            said = [each.body for each in given if each.body.get("digest") == id]
            body = said[0] if said else {}
            answer = DECISION.read(body["decision"]) if "decision" in body else as_text(body.get("text")) or None
            live.withdraw(answered_event(live.open[id], answer))
        for id, question in asked.items():
            if id in live.open:
                continue
            live.note_asked(asked_event(question, id))
            if question.question in live.early:
                with suppress(LookupError, RunOver):  # somebody was faster
                    handle = await self.durable.get(row.id)
                    await handle.answer(id, live.early[question.question], who=owner_of(live.name))

    def _broke(self, live: Live, error: Exception) -> None:
        _log.warning("The run %s was left: %s", live.name, name_and_words(error), exc_info=not _is_ours(error))
        text = STORE_AWAY if isinstance(error, StoreError) else "The server could not go on with the run."
        live.fail("NOT_DRIVEN", text, ASK_OPERATOR)

    async def _catch_up(self, live: Live, *, is_over: bool = False) -> Live:
        """See to it that those who follow a run will hear of its end; where it `is_over` already, at once."""
        if live.task is None and live.ended is None:
            self._watch(live)
            await (asyncio.shield(live.over) if is_over else asyncio.sleep(0))
        return live

    async def learn_end(self, live: Live) -> None:
        """Learn at once that the end of a turn is stored, whoever drives it: another server may have told it to the
        client by now, and else what that sends next would be refused."""
        if live.ended is not None or not self.is_stored:
            return
        row = await self.durable.hub.engine.get(await self.turn_run(live.name) if live.is_driven else live.run)
        if row is None or row.status not in OVER:
            return
        if live.is_driven:  # here: it is told in a moment, if its chat does not go on by itself
            await asyncio.wait({live.over}, timeout=_TICK_S)
            return
        await self._catch_up(live)
        self.durable.hub.notify()
        await asyncio.shield(live.over)

    async def find(self, name: str) -> Live | Past:
        """Return the run of this name, to be followed.

        Raises:
            Refusal: there is none.
        """
        past, live = self._kept.find_past(name), self._kept.get(name)
        if past is not None:
            return past
        if live is not None:
            return await self._catch_up(live)
        row = await self._row(name)
        live = self._kept.get(name)  # as it may have been found meanwhile
        live = live or self._kept.add(name, self._live(name, self.agent(row.agent), base=row.epoch))
        return await self._catch_up(live, is_over=row.status in OVER)

    async def info(self, name: str) -> RunInfo:
        """Return the info of a run.

        Raises:
            Refusal: there is none.
        """
        await self._row(name)
        return await (await self.durable.get(name)).info()

    async def result(self, name: str) -> bytes | None:
        """Return the document of the result of a run that is over; None: it is not."""
        kept = self._kept.find_past(name) or self._kept.get(name)
        if kept is not None and kept.ended is not None:
            return kept.ended.document if kept.ended.code is not None else None
        row = await self._row(name)
        if row.status not in OVER:
            return None
        found = await self.find(name)
        if isinstance(found, Live):
            await asyncio.shield(found.over)
        return None if found.ended is None or found.ended.code is None else found.ended.document

    async def _row(self, name: str) -> Row:
        row = await self.durable.hub.engine.get(name)
        if row is None or row.name != name or row.agent not in self.agents:
            raise nothing("run", name)
        return row

    async def handle(self, name: str) -> RunHandle[Any]:
        """Return the handle of a run, or of the turn of a chat that goes on.

        Raises:
            Refusal: there is none.
        """
        await self._row(name)
        return await self.durable.get(name)

    async def turn(
        self, id: str, agent: Agent[Any, Any, Any], value: object, *, key: tuple[str, str] | None, is_tied: bool = True
    ) -> Live:
        """Begin a turn of the chat with this session id; or find it, if the newest one has this key.

        Raises:
            Refusal: the chat is in use, is another agent's, or the key was used for another prompt.
        """
        live = self._kept.find_followed(TURN + id)
        if (
            live is not None
            and key is not None
            and (known := self._kept.keys.get(TURN + id)) is not None
            and known[0] == key[0]
        ):
            if known[1] != key[1]:
                text = "This key was used before, for another prompt."
                raise Refusal(409, "KEY_REUSED", text, "Take another key for another request.")
            return live
        if live is not None:
            await self.learn_end(live)
        if live is not None and live.ended is None:
            text = f"In the chat {key_of(id)!r} a turn goes on, in this server."
            raise Refusal(409, "CHAT_IN_USE", text, "Follow it, answer it, or stop it; then say more.")
        self._check_room()
        return await self._begin(id, agent, value, key=key, is_tied=is_tied)

    async def go_on(self, id: str, agent: Agent[Any, Any, Any] | None = None) -> Live:
        """Return the turn of a chat that goes on, or the one that ended a moment ago. `agent`: with what its client
        has given it, where it is begun here again.

        Raises:
            Refusal: there is none.
        """
        live = self._kept.find_followed(TURN + id)
        if live is not None and not (live.is_suspended and agent is not None):
            return await self._catch_up(live)
        engine, number = self.durable.hub.engine, (await self.conversation(id)).n_runs
        row = await engine.get(turn_name(id, number + 1))
        if row is None or row.agent not in self.agents or row.status in OVER:
            last = await engine.get(turn_name(id, number))
            if last is None or last.agent not in self.agents:
                raise nothing("turn in the chat", id)
            live = self._live(id, self.agents[last.agent], base=number + 1 - _A_LIFE / 2)
            live.run = turn_name(id, number)
            return await self._catch_up(live, is_over=last.status in OVER)
        known = self.agents[row.agent] if agent is None or agent.name != row.agent else agent
        try:
            return await self._begin(id, known, None, key=None, is_tied=False, row=row)
        except Refusal as refusal:
            if refusal.code != "CHAT_IN_USE":
                raise
        live = self._kept.get(TURN + id)
        assert live is not None  # another process drives it; what it asks there can be answered here, too
        await self._hear_of(live, row)
        return await self._catch_up(live)

    async def _resume_turn(self, row: Row, head: Head) -> None:
        """Go on with a turn that nobody drives, as if its client had asked for it, until it has ended or only waits."""
        id = head.session or ""
        if self.is_closing:
            raise Refusal(503, "CLOSING", "The server is closing.", "Another one goes on with the turn.")
        live = self._kept.find_followed(TURN + id)
        if live is None or not live.is_driven:
            agent = self.agents[row.agent] if live is None or live.ended is not None else live.agent
            if head.prints.get("tools") != prints_of(agent)["tools"]:
                said = await self.durable.hub.engine.signals(run=row.id)
                if not any(each.kind == "stop" for each in said):  # a run that was stopped ends without its tools, too
                    raise RunBlocked(row.name or row.id, "it waits for its client, which brings tools of its own")
            live = await self._begin(id, agent, None, key=None, is_tied=False, row=row)
        if live.task is not None:
            await asyncio.wait({live.task})

    async def _begin(
        self,
        id: str,
        agent: Agent[Any, Any, Any],
        value: object,
        *,
        key: tuple[str, str] | None,
        is_tied: bool,
        row: Row | None = None,
    ) -> Live:
        """Begin a turn, or go on with the one that is this `row`."""
        await self.wait_until_left(id)
        number = (await self.durable.hub.engine.conversation(id)).n_runs
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begun.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever asked may have left
        live = self._kept.find_followed(TURN + id)
        if live is not None and live.ended is None and (row is None or live.is_driven):
            # Somebody was faster.
            return live if row is not None else await self.turn(id, agent, value, key=key)
        base = number + 1 + min((0 if row is None else row.epoch) * _A_LIFE, 1 - _A_LIFE)
        if live is None or live.ended is not None:
            live = self._live(id, agent, base=base, is_tied=is_tied and self._is_tied)
        elif live.task is not None:
            live.task.cancel()  # it followed what another process did
        live.begin_life(base)
        live.number, live.run = number, turn_name(id, number + 1)
        live.is_suspended = False
        self._kept.add(TURN + id, live)
        self._go(live, self._talk(live, value, begun, goes_on=row is not None))
        await asyncio.shield(begun)
        if key is not None:
            self._kept.keys[TURN + id] = key
        return live

    def _did_not_begin(self, live: Live, *, goes_on: bool) -> None:
        """Forget a turn that did not begin. One that was to go on goes on elsewhere, or later."""
        if goes_on:
            self._suspend(live)
        else:
            live.is_driven = False
            self._kept.drop(TURN + live.name, live)

    async def _talk(self, live: Live, value: object, begun: asyncio.Future[None], *, goes_on: bool) -> None:
        """Do one turn of a chat."""
        id = live.name
        self._kept.use_chat(id)
        try:
            deps = await self._deps_of(id)
            async with self._session(id, live.agent.name) as session:
                session.leaves_turns = self.is_stored
                options: Any = {} if deps is None else {"deps": deps}
                async with Chat(
                    live.agent, runtime=self.runtime, on_event=live.hear, session=session, questions=None, **options
                ) as chat:
                    if chat.turn is not None and not goes_on:
                        text = f"In the chat {key_of(id)!r} a turn was cut off, and has not ended."
                        raise Refusal(409, "CHAT_IN_USE", text, "Follow it, answer it, or stop it; then say more.")
                    if chat.turn is None and goes_on:
                        raise Refusal(409, "CHAT_IN_USE", f"The turn of {key_of(id)!r} has just ended.", "Ask again.")
                    live.number = session.snapshot.n_runs
                    turn = chat.turn or chat.start(value)
                    live.answer = chat.answer
                    unsubscribe = live.abort.subscribe(lambda: turn.abort(live.abort.reason or ""))
                    begun.set_result(None)
                    try:
                        await live.end(await turn)
                    finally:
                        unsubscribe()
        except TurnSuspended:
            live.run = turn_name(id, live.number + max(live.n_runs, 1))
            self._suspend(live)
        except asyncio.CancelledError:
            live.fail("LEFT", "The server was closed.", "The turn goes on in another process of its store.")
            if not begun.done():
                begun.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - of one turn; its clients are told
            if begun.done():
                self._broke(live, error)
            else:
                self._did_not_begin(live, goes_on=goes_on)
                begun.set_exception(refusal_of_turn(id, error))

    @asynccontextmanager
    async def _session(self, id: str, agent: str) -> AsyncGenerator[ChatSession]:
        """Open the session of a chat; one that is stored without keeping the event loop waiting."""
        if self.is_stored:
            async with self.durable.open_session(id, agent=agent) as session:
                yield session
        else:
            with closing(self.durable.session(id, agent=agent, create=True)) as session:
                yield session

    async def turn_run(self, id: str) -> str:
        """Return the name of the run that is the turn of a chat that goes on, or would be the next."""
        live = self._kept.find_followed(TURN + id)
        if live is not None and live.ended is None:
            return turn_name(id, live.number + max(live.n_runs, 1))
        return turn_name(id, (await self.durable.hub.engine.conversation(id)).n_runs + 1)

    async def conversation(self, id: str) -> Snapshot:
        """Return what was said in a chat.

        Raises:
            Refusal: there is none.
        """
        engine = self.durable.hub.engine
        snapshot = await engine.conversation(id)
        is_known = snapshot.messages or snapshot.n_runs or self._kept.get(TURN + id) is not None
        if not is_known and await engine.get(turn_name(id, 1)) is None:  # its first turn may go on elsewhere
            raise nothing("chat", id)
        return snapshot

    def live(self, name: str) -> Live | None:
        """Return the run of a name, or the turn of the chat named after `TURN`, while it goes on here or is kept."""
        return self._kept.get(name)

    async def questions(self, run: str) -> Sequence[PendingQuestion]:
        """Return the questions of a run that nobody has answered yet, and that have not expired."""
        engine, now = self.durable.hub.engine, self.durable.hub.now()
        row = await engine.get(run)
        asked = () if row is None else questions_of(row)
        if row is None or not asked:
            return ()
        answered = {each.dedup for each in await engine.signals(run=row.id) if each.kind in ("approve", "answer")}
        return [
            each for each in asked if each.key not in answered and (each.expires_at is None or each.expires_at > now)
        ]

    async def answer(self, run: str, live: Live | None, id: str, answer: Decision | str, *, who: str) -> None:
        """Answer a question. The first answer counts.

        Raises:
            Refusal: nothing waits under this id, or it was answered before. The text says what was answered.
        """
        handle = await self.handle(run)
        try:
            if isinstance(answer, str):
                await handle.answer(id, answer, who=who)
            else:
                await handle.approve(id, answer, who=who)
        except (LookupError, RunOver) as error:
            row = await self.durable.hub.engine.get(run)
            is_noted = row is not None and any(each.question_id == id for each in questions_of(row))
            if not is_noted and live is not None and live.answer_here(id, answer):  # it is about to be noted
                return
            text = "Nothing waits for an answer under this id."
            if isinstance(error, AnsweredBefore):
                # How the server's people are called, and their machines, is not for its clients.
                by = "you" if error.who == who else "somebody else"
                text = f"This was answered before: {error.word}, by {by}."
            raise Refusal(409, "NOT_WAITING", text, "Look at what it waits for.") from error
        if self._worker is not None:
            self._worker.reconsider(handle.id)

    async def stop(self, run: str, live: Live | None, reason: str, *, who: str) -> None:
        """Stop a run, or the turn of a chat.

        Raises:
            Refusal: there is none, or it has ended.
        """
        if live is not None and live.is_driven:
            live.abort.abort(reason)
            return
        handle = await self.handle(run)
        try:
            await handle.stop(reason, who=who)
        except RunOver as over:
            raise Refusal(409, "OVER", f"{describe_run(run)} has ended.", "Look at its result.") from over
        if self._worker is not None:
            self._worker.reconsider(handle.id)

    async def steer(self, run: str, text: str, *, who: str) -> None:
        """Say something to a run before its next model call.

        Raises:
            Refusal: there is none, or it has ended.
        """
        try:
            await (await self.handle(run)).steer(text, who=who)
        except RunOver as over:
            raise Refusal(409, "OVER", f"{describe_run(run)} has ended.", "Begin another one.") from over


class _Ears(TypedDict):
    """The parts of a program that let clients follow a run, stop it and answer it."""

    deps: object
    on_event: Listener
    abort: Abort
    ask_here: Callable[[], Questions]


def _ears(live: Live, deps: object) -> _Ears:
    return {"deps": deps, "on_event": live.hear, "abort": live.abort, "ask_here": live.ask_here}


_A_LIFE: Final = 2.0**-12
"""So much of the numbers of a turn's events is for one life of it: a million of them."""


def _is_ours(error: Exception) -> bool:
    return isinstance(error, JourneymanError)
