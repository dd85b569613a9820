"""Durable runs: kill the process anywhere, and the run goes on where it was, here or in another process.

`Durable` begins runs and finds them again, `RunHandle` is one of them, and a `Worker` does runs that were only started.
Correctness depends on the records behind the port `Engine` alone: only the process that claimed a run last may write.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict, Unpack, cast, overload

from journeyman.agent import DEFAULT_RUNTIME, Agent, Deps, In, Out, Runtime
from journeyman.cancellation import Abort, running_loop, wait_until_ended
from journeyman.definition.foreign import refuse_old_arguments
from journeyman.definition.problems import explain_arguments, is_count, missing_attribute, raise_problems
from journeyman.durable.binding import Program
from journeyman.durable.chats import ChatSession
from journeyman.durable.dispatch import LATE_S, Dispatcher
from journeyman.durable.engine import Engine
from journeyman.durable.handle import RunHandle, check_place, copied, is_before, is_own_system
from journeyman.durable.journal import Exit, log_question
from journeyman.durable.postgres.engine import PostgresEngine
from journeyman.durable.records import (
    Claim,
    Head,
    ListPlace,
    QueueState,
    Row,
    RunInfo,
    Status,
    dump_head,
    gates_of,
    load_head,
    make_row,
    name_fault,
    pending_of,
    prints_of,
    questions_of,
    wall_clock,
)
from journeyman.durable.sqlite import SqliteEngine
from journeyman.durable.watcher import Hub
from journeyman.errors import InvalidArguments, RunBlocked, RunDiffers, RunUnknown, StoreError, SubagentMisused, quoted
from journeyman.events import Callbacks, Listener
from journeyman.events.run_status import RunStatus, words_of
from journeyman.journal import new_id
from journeyman.loop.prepare import wrong_options
from journeyman.loop.run import run as run_once
from journeyman.loop.state import Options, RunOptions
from journeyman.loop.watch import traceparent_of
from journeyman.machine.version import package_version
from journeyman.result import Pending, Result
from journeyman.store.address import read_address
from journeyman.tools.check import listener_problems
from journeyman.tools.collection import do_aside
from journeyman.tools.deps import deps_of_run, lacks_deps
from journeyman.tools.exact import StoredValue, store_value
from journeyman.tools.results import encodable
from journeyman.tools.schema import CheckedValue, RefusedValue
from journeyman.types import Content, Message, UserContent

# Each time it comes back, its steps are read again: somebody who answers at once should not cost that.
LINGER_S: Final = 5.0
_DAY_S: Final = 86_400.0
_REMIND_S: Final = 60.0
# A transaction that deletes more would keep others waiting.
_AT_ONCE: Final = 1_000
"""So many runs are forgotten at a time."""
# It bounds what a dry run reads into memory.
_MOST_SHOWN: Final = 1_000_000
"""The version is read once: its file takes longer to parse than a run takes to begin."""


class DurableOptions(RunOptions, total=False):
    """The options of `Durable.run`, besides the agent, its input and the deps."""

    id: str | None


class StartOptions(TypedDict, total=False):
    """The options of `Durable.start`, besides the agent and its input."""

    id: str | None
    queue: str
    priority: int
    after_s: float
    idempotency_key: str | None
    max_attempts: int | None
    history: Sequence[Message]
    runtime: Runtime | None
    target: str
    model: str
    mode: str


@explain_arguments
class Durable:
    """Durable runs in one store: `async with Durable("runs.db") as durable: await durable.run(agent, "…", id="7")`.

    The store is a SQLite file, which several processes may share, or a Postgres database, which several machines may
    share: `Durable("postgresql://…")`. Use a `Durable` from one event loop.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Engine,
        *,
        dispatcher: Dispatcher | None = None,
        app: str = "",
        suspend_after_s: float = LINGER_S,
        strict: bool = False,
        now: Callable[[], float] = wall_clock,
        on_event: Listener | None = None,
    ) -> None:
        """`store` is the path of a file, which is made if it is not there, the URL of a database, or an engine.

        Args:
            store: The path of a file, `sqlite:PATH`, `postgresql://…`, or an engine.
            dispatcher: The queue that brings the runs of a database to workers, the same in all processes. None:
                Procrastinate.
            app: A label of the program that begins runs; `list` shows it.
            suspend_after_s: How long a run that only waits for somebody stays in memory, in seconds.
            strict: True: a run whose agent has changed since it began is blocked. False: it goes on as long as its
                steps fit.
            now: The wall clock, in seconds since 1970.
            on_event: Gets what this process does with the store's runs: the events of `journeyman.events.durable`. The
                run's own listeners get what happens in a run.

        Raises:
            ValueError: `store` has none of these forms, the dispatcher is a name, or one is given and `store` is not
                a URL.
            DefinitionError: `on_event` cannot be called, or is async: it is not awaited.
        """
        raise_problems("The Durable", () if on_event is None else listener_problems(on_event))
        place = read_address(store) if isinstance(store, str | os.PathLike) else store
        if isinstance(place, str):
            engine: Engine = PostgresEngine(place, dispatcher=dispatcher)
        elif dispatcher is not None:
            given = repr(str(store)) if isinstance(store, str | os.PathLike) else f"a {type(store).__name__}"
            raise ValueError(
                f"dispatcher={dispatcher!r} needs the URL of a database, and the store is {given}. Leave it out: a file"
                " needs none, and an engine has its own."
            )
        elif isinstance(place, Path):
            engine = SqliteEngine(place)
        else:
            engine = place
        self.hub: Final = Hub(engine, suspend_after_s=suspend_after_s, strict=strict, now=now, on_event=on_event)
        self._app: Final = app

    if not TYPE_CHECKING:  # for checkers there is no such attribute

        def __getattr__(self, name: str) -> object:
            raise AttributeError(missing_attribute(self, "Durable", name), name=name, obj=self)

    async def __aenter__(self) -> Self:
        running_loop()  # else the first sentence would be a thread's
        await self.hub.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.hub.close()

    @overload
    async def run(self, agent: Agent[Out, In], input: In, **options: Unpack[DurableOptions]) -> Result[Out]: ...
    @overload
    async def run(
        self, agent: Agent[Out, In, Deps], input: In, *, deps: Deps, **options: Unpack[DurableOptions]
    ) -> Result[Out]: ...
    @overload
    async def run(self, agent: Agent[Out, str], input: Content, **options: Unpack[DurableOptions]) -> Result[Out]: ...
    @overload
    async def run(
        self, agent: Agent[Out, str, Deps], input: Content, *, deps: Deps, **options: Unpack[DurableOptions]
    ) -> Result[Out]: ...
    @overload
    async def run(
        self, agent: Agent[Out, In, Any], input: In, *, wait: Literal[False], **options: Unpack[DurableOptions]
    ) -> Result[Out] | Pending: ...
    @overload
    async def run(
        self,
        agent: Agent[Out, In, Deps],
        input: In,
        *,
        wait: Literal[False],
        deps: Deps,
        **options: Unpack[DurableOptions],
    ) -> Result[Out] | Pending: ...
    @refuse_old_arguments
    async def run(  # noqa: PLR0913 - one for each choice, all by name
        self,
        agent: Agent[Out, Any, Any],
        input: object,
        *,
        deps: object = None,
        id: str | None = None,
        max_attempts: int | None = None,
        callbacks: Callbacks | None = None,
        on_event: Listener | None = None,
        abort: Abort | None = None,
        history: Sequence[Message] = (),
        runtime: Runtime | None = None,
        wait: bool = True,
    ) -> Result[Out] | Pending:
        """Begin a run, or go on with the one that has this id, and return its result. The result of a run that has
        ended is read from the store.

        This process drives the run. If the run waits for somebody for longer than `suspend_after_s`, it leaves memory
        and is only a row in the store; this call then waits for its end, whichever process drives it. If the
        surrounding task is cancelled, the same call later goes on with the run. `deps` are never stored: each call
        gives them again.

        With `wait=False`, a run that only waits for somebody returns a `Pending` at once. Answer with `approve` and
        `answer` of `get(id)`, by the ids of what is open, and call this again.

        The options are those of `journeyman.run`. `callbacks`, `on_event` and `abort` hold for this call alone.

        Raises:
            RunDiffers: there is a run with this id that has another agent, input or options, or more gates.
            RunInUse: it is driven elsewhere.
            RunBlocked: it cannot go on by itself.
            StoreError: the store cannot be read or written.
        """
        runtime = DEFAULT_RUNTIME if runtime is None else runtime
        given = Program(agent=agent, deps=deps, runtime=runtime, callbacks=callbacks, on_event=on_event, abort=abort)
        given = given if wait else replace(given, is_left=True)
        head: Head | None = None
        if not (misuse := _misuse(given, max_attempts=max_attempts, history=history)):
            given = self._usable(given)
        if not misuse and not lacks_deps(deps_of_run(deps, agent.deps), agent.deps):
            try:
                head = await self._head(agent, input, max_attempts=max_attempts, history=history, runtime=runtime)
            except InvalidArguments as invalid:
                input = cast("Any", RefusedValue(invalid))
        if head is None:  # it ends before anything is done or stored, and says why as any run does
            return await run_once(
                agent,
                input,
                deps=deps,
                max_attempts=max_attempts,
                callbacks=callbacks,
                on_event=on_event,
                abort=abort,
                history=history,
                runtime=runtime,
            )
        return await self._drive_to_end(await self._add_run(await self._make_row(head, id=id), is_queued=False), given)

    async def _drive_to_end(self, row: Row, program: Program) -> Result[Any] | Pending:
        """Drive a run, and wait for whoever goes on with it, unless it is left then."""
        also: tuple[Status, ...] = ("waiting",)
        reminding = asyncio.create_task(self._log_questions(row.id))
        try:
            while True:
                # The mark before the look: what is written in between is not missed.
                mark = self.hub.mark()
                outcome = await self.hub.driven(row.id, program, also=also)
                if not isinstance(outcome, Exit):
                    return outcome
                if outcome.how == "blocked":
                    raise RunBlocked(row.name or row.id, outcome.why)
                if program.is_left and outcome.how == "suspended":
                    return pending_of(await self.hub.row(row.id), outcome.history)
                also = ()
                await self.hub.changed(since=mark)
        finally:
            reminding.cancel()

    async def _log_questions(self, id: str) -> None:
        """Log again each minute what a run waits for; whoever asks logs it at once."""
        while True:
            await asyncio.sleep(_REMIND_S)
            try:
                row = await self.hub.row(id)
            except (StoreError, RunUnknown):  # whoever drives the run says so
                continue
            for question in questions_of(row):
                log_question(row, question)

    @overload
    async def start(self, agent: Agent[Out, In, Any], input: In, **options: Unpack[StartOptions]) -> RunHandle[Out]: ...
    @overload
    async def start(
        self, agent: Agent[Out, str, Any], input: Content, **options: Unpack[StartOptions]
    ) -> RunHandle[Out]: ...
    @refuse_old_arguments
    async def start(  # noqa: PLR0913 - one for each choice, all by name
        self,
        agent: Agent[Out, Any, Any],
        input: object,
        *,
        id: str | None = None,
        queue: str = "default",
        priority: int = 0,
        after_s: float = 0.0,
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
        history: Sequence[Message] = (),
        runtime: Runtime | None = None,
        target: str = "",
        model: str = "",
        mode: str = "",
    ) -> RunHandle[Out]:
        """Store a run for a `Worker` to do, and return at once. The worker gives the deps.

        Args:
            agent: Its agent, which the worker knows by its name.
            input: What it is to do.
            id: A name of yours. If the same run has it already, that one is returned.
            queue: Where it waits for a worker.
            priority: Of two runs that wait, the one with the higher number goes first.
            after_s: How many seconds to wait at least before the run begins.
            idempotency_key: If the agent has a run with the same `idempotency_key` already, none is begun, and that one
                is returned.
            max_attempts: As for `run`.
            history: As for `run`.
            runtime: The names of its gates are stored, so that no worker does the run with fewer gates.
            target: Where a command finds the agent: `agents.py:analyst`.
            model: The model that a command uses instead of the agent's.
            mode: What a command lets the agent do without asking.

        Raises:
            InvalidArguments: the input does not fit the agent's type.
            RunDiffers: there is another run with this id.
            StoreError: the store cannot be written.
        """
        head = await self._head(
            agent,
            input,
            max_attempts=max_attempts,
            history=history,
            runtime=DEFAULT_RUNTIME if runtime is None else runtime,
        )
        if target or model or mode:
            head = replace(head, target=target, model=model, mode=mode)
        wake = self.hub.now() + after_s if after_s > 0 else None
        made = await self._make_row(head, id=id, queue=queue, priority=priority, wake=wake, dedup=idempotency_key)
        row = await self._add_run(made, is_queued=True)
        return RunHandle(self.hub, row.id, agent)

    async def begin_here(
        self, agent: Agent[Any, Any, Any], input: object, *, id: str, runtime: Runtime
    ) -> tuple[Row, Row | Claim | None]:
        """Store a run that this program drives itself, at once; return its row, and if it is new what is known of it
        for that. A worker begins it only if this program has not done so in a minute; one that no other program can
        drive is claimed already.

        Raises:
            InvalidArguments, RunDiffers, StoreError: as for `start`.
        """
        hub = self.hub
        head = await self._head(agent, input, max_attempts=None, history=(), runtime=runtime)
        if hub.keeps_steps:
            options: dict[str, Any] = {"wake": hub.now() + LATE_S}
        else:
            options = {"status": "running", "owner": hub.engine.owner, "epoch": 1, "gen": 1, "lives": 1}
            options["is_packed"] = False  # to write it would take longer than all else that is noted of the run
        made = await self._make_row(head, id=id, **options)
        row = await self._add_run(made, is_queued=False)
        if row.id != made.id:
            return row, None
        return row, row if hub.keeps_steps else Claim(row, row.epoch, head)

    @refuse_old_arguments
    async def resume(  # noqa: PLR0913 - one for each choice, all by name
        self,
        run: str,
        agent: Agent[Any, Any, Any],
        *,
        deps: object = None,
        steal: bool = False,
        accept: bool = False,
        callbacks: Callbacks | None = None,
        on_event: Listener | None = None,
        abort: Abort | None = None,
        runtime: Runtime | None = None,
    ) -> Result[Any] | RunInfo:
        """Go on with a run here, until it ends or has to wait. If it has to wait, what is known of it is returned.

        Args:
            run: Its id or name.
            agent: Its agent.
            deps: What its tools and functions use, of the type that the agent declares.
            steal: Take the run from a process that is alive but stopped. What that process does from then on is not
                stored.
            accept: Use stored answers, although the agent asks other questions now.
            callbacks: As for `run`.
            on_event: As for `run`.
            abort: As for `run`.
            runtime: As for `run`.

        Raises:
            ValueError: what was passed beside the run cannot be used. The run stays as it is.
            RunUnknown, RunDiffers, RunInUse, RunBlocked, StoreError: as for `run`.
        """
        row = await self.hub.row(run)
        around = DEFAULT_RUNTIME if runtime is None else runtime
        program = Program(agent=agent, deps=deps, runtime=around, callbacks=callbacks, on_event=on_event, abort=abort)
        head = load_head(row)
        if misuse := _misuse(program):
            raise ValueError(f"The run {run!r} cannot be resumed so: {'; '.join(misuse)}.")
        program = self._usable(program)
        if head.agent.partition("/")[0] != agent.name:
            raise RunDiffers(run, f"it is one of the agent {head.agent!r}, not of {agent.name!r}")
        try:
            program = program.sent(head)
        except SubagentMisused as misused:
            raise RunDiffers(run, str(misused)) from misused
        accepting = dump_head(replace(head, accepts=True)) if accept else None
        outcome = await self.hub.driven(row.id, program, also=("waiting", "blocked"), steal=steal, head=accepting)
        if not isinstance(outcome, Exit):
            return outcome
        if outcome.how == "blocked":
            raise RunBlocked(run, outcome.why)
        return (await self.hub.engine.infos([await self.hub.row(row.id)]))[0]

    async def fork(
        self,
        run: str,
        at: tuple[int, int],
        *,
        id: str | None = None,
        agent: Agent[Any, Any, Any] | None = None,
        input: object = None,
        target: str | None = None,
    ) -> RunHandle[Any]:
        """Store a new run that has done all that this one had done before an attempt and iteration. The new run does
        not go on by itself: `resume` it, or let a worker do it.

        What was done before is used as it is, even if the agent or the input is another now. A call that was begun and
        not finished before is done again.

        Args:
            run: The id or name of the run.
            at: The attempt and the iteration, from 1, from which the new run goes its own way.
            id: A name for the new run.
            agent: Another agent for it; None: the same.
            input: Another input; None: the same.
            target: Where a command finds the agent.

        Raises:
            RunUnknown: there is no such run.
            ValueError: the run never came to this place, `at` is not a place, or the run is a turn of a chat.
            RunDiffers: there is another run with this id.
        """
        row = await self.hub.row(run)
        if load_head(row).session is not None:
            raise ValueError(f"The run {run!r} is a turn of a chat. Branch its session instead, with Store.branch.")
        head, records = load_head(row), await self.hub.engine.records(row.id)
        check_place(run, records, at)
        if agent is not None:
            head = replace(head, agent=agent.name, prints=prints_of(agent))
        if input is not None:
            stored, content = await _stored_input(agent, input)
            head = replace(head, input=stored.text, exact=stored.exact, content=content)
        head = replace(head, target=head.target if target is None else target)
        made = await self._make_row(head, id=id, status="ready", parent=row.id)
        # Another agent has its own system prompt: with the old one stored, it would never be asked.
        kept = [each for each in records if is_before(each, at) and (agent is None or not is_own_system(each))]
        stored = await self.hub.engine.add(made, copied(made, head, kept))
        if stored.id != made.id:
            raise RunDiffers(id or "", "it is not the fork that was just made")
        return RunHandle(self.hub, made.id, agent)

    async def get(self, run: str, agent: Agent[Out, Any] | None = None) -> RunHandle[Out]:
        """Return a run by its id, its name, or a beginning of either that no other run has. If you give its agent, the
        output of its result has the agent's type.

        Raises:
            RunUnknown: there is none.
        """
        return RunHandle(self.hub, (await self.hub.row(run)).id, agent)

    async def list(
        self, *, statuses: Collection[RunStatus] = (), agent: str | None = None, limit: int = 50
    ) -> tuple[RunInfo, ...]:
        """Return what is known of runs, newest first, at most `limit`: of one `agent` and of these `statuses`, or of
        all where none is named."""
        self.hub.check()
        stored: Collection[Any] = {word for each in statuses for word in words_of(each)}
        found, place = list[RunInfo](), None
        while len(found) < limit:
            rows = await self.hub.engine.rows(statuses=stored, agent=agent, older_than=place, limit=limit)
            found += [each for each in await self.hub.engine.infos(rows) if not statuses or each.status in statuses]
            if len(rows) < limit:
                break
            place = ListPlace(rows[-1].created, rows[-1].id)
        return tuple(found[:limit])

    async def queues(self) -> Sequence[QueueState]:
        """Return how many runs have which status, for each queue with a run that has not ended, by name.

        This reads the row of every run that is kept: call it each minute, not each second.
        """
        self.hub.check()
        return await self.hub.engine.queues(now=self.hub.now())

    async def stop(self, run: str, reason: str = "cancelled", *, who: str | None = None) -> None:
        """Stop a run, in whichever process drives it. A run that nobody drives ends when somebody resumes it.
        `reason` stands in its ending; `who` is kept with it, as the one who said so.

        Raises:
            RunUnknown: there is none.
            RunOver: it has ended.
        """
        await (await self.get(run)).stop(reason, who=who)

    async def forget(
        self,
        *runs: str,
        older_s: float = 0.0,
        statuses: Collection[Literal["done", "failed"]] = ("done", "failed"),
        dry: bool = False,
    ) -> tuple[RunInfo, ...]:
        """Forget runs that have ended: delete all that is stored about them, and return what was known about them. A
        run that has not ended is never forgotten.

        In a database, if `older_s` is a day or more, what is stored about the runs is dropped together with all of the
        day on which they began, as soon as that day ended `older_s` seconds ago, too.

        Args:
            runs: The ids or names of the runs. None given: all runs that ended more than `older_s` seconds ago.
            older_s: How many seconds ago the runs ended at least.
            statuses: `done`, `failed`, or both. Those that were cancelled are among those that failed.
            dry: True: only return the runs that would be forgotten.

        Raises:
            RunUnknown: one of `runs` is not there.
            ValueError: one of them has not ended.
        """
        self.hub.check()
        if not runs:
            return await self._forget_older(older_s, statuses, dry=dry)
        found = await self.hub.engine.infos([await self.hub.row(each) for each in runs])
        for each in found:
            if not each.is_over:
                raise ValueError(
                    f"The run {each.name or each.id!r} is {each.status}: only runs that have ended can be forgotten."
                )
        if not dry:
            await self.hub.engine.forget([each.id for each in found])
        return found

    async def _forget_older(
        self, older_s: float, statuses: Collection[Literal["done", "failed"]], *, dry: bool
    ) -> tuple[RunInfo, ...]:
        engine, before = self.hub.engine, self.hub.now() - older_s
        # Before a day has passed, no table of a day is over.
        by_days, found = older_s >= _DAY_S, dict[str, RunInfo]()
        while True:
            limit = _MOST_SHOWN if dry else _AT_ONCE
            rows = await engine.rows(statuses=statuses, ended_before=before, limit=limit)
            new = {each.id: each for each in await self.hub.engine.infos(rows) if each.id not in found}
            found |= new
            if not dry:
                await engine.forget(list(new), by_days=by_days)
            if dry or not new:
                break
        if by_days and not dry:
            await engine.drop_days(before)
        return tuple(found.values())

    def session(
        self, id: str | None = None, *, agent: str, any_agent: bool = False, create: bool = False
    ) -> ChatSession:
        """Open a session of a chat in the store of the runs: `Chat.open(agent, durable, id="user-42", create=True)`.

        The conversation is kept there, as `Store.session` keeps it in a file, or `PostgresSessions.session` in a
        database. Each turn is a durable run with the name `chat/ID/NUMBER`.

        Raises:
            StoreError: as for those.
            SessionInUse: somebody has it open.
        """
        self.hub.check()
        session = self.hub.engine.session(id, agent=agent, any_agent=any_agent, create=create)
        return ChatSession(self.hub, session, head=self._head, app=self._app)

    @asynccontextmanager
    async def open_session(self, id: str, *, agent: str) -> AsyncGenerator[ChatSession]:
        """Open the session of a chat for a block, or begin it. The store is asked in a thread: a database that does not
        answer keeps nothing else in the event loop waiting.

        Raises:
            StoreError, SessionInUse: as for `session`.
        """
        self.hub.check()
        opening = asyncio.ensure_future(
            asyncio.to_thread(self.hub.engine.session, id, agent=agent, any_agent=False, create=True)
        )
        try:
            # Waited for also when this is cancelled: a session that is open by then has to be closed.
            await wait_until_ended(opening)
            yield ChatSession(self.hub, opening.result(), head=self._head, app=self._app)
        finally:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await wait_until_ended(asyncio.ensure_future(asyncio.to_thread(opening.result().close)))

    def _usable(self, program: Program) -> Program:
        self.hub.check()
        if program.runtime.journal is not None:
            raise ValueError("The runtime has a journal; a durable run has its own. Leave Runtime.journal out.")
        program.is_checked = True  # for its misuse, before
        return program

    async def _head(
        self,
        agent: Agent[Any, Any, Any],
        input: object,
        *,
        max_attempts: int | None,
        history: Sequence[Message],
        runtime: Runtime,
    ) -> Head:
        self.hub.check()
        if max_attempts is not None and not is_count(max_attempts):
            wrong = f"max_attempts is {max_attempts!r}, not a whole number of at least 1"
            raise InvalidArguments("the options of a run", [wrong])
        stored, content = await _stored_input(agent, input)
        return Head(
            agent=agent.name,
            input=stored.text,
            exact=stored.exact,
            content=content,
            prints=prints_of(agent),
            gates=gates_of(agent, runtime),
            max_attempts=max_attempts,
            history=tuple(history),
            version=package_version(),
            traceparent=traceparent_of(runtime, agent.name) or None,
        )

    async def _make_row(self, head: Head, *, id: str | None, status: Status = "ready", **options: Any) -> Row:
        if id is not None and (fault := name_fault(id)) is not None:
            raise ValueError(f"The id {quoted(id[:80])} cannot be used: {fault}.")
        for name, given in (("queue", "queue"), ("idempotency_key", "dedup")):
            text: str | None = options.get(given)
            # No database keeps such a text.
            if text is not None and encodable(text) != text:
                raise ValueError(f"The {name} {quoted(text[:80])} cannot be used: it has half of a surrogate pair.")
        now = self.hub.now()
        make = partial(make_row, head, id=new_id(now), name=id, app=self._app, created=now, status=status, **options)
        return await do_aside(head.exact or head.input, lambda _: make()) if options.get("is_packed", True) else make()

    async def _add_run(self, made: Row, *, is_queued: bool) -> Row:
        """Return the row of a new run, or of the same one that is there already."""
        row = await self.hub.engine.add(made, is_queued=is_queued)
        if row.id != made.id and made.name is not None:
            difference = _difference(load_head(row), load_head(made))
            if difference is not None:
                raise RunDiffers(made.name, difference)
        if row.id == made.id and is_queued:
            self.hub.tell_queued(row)
        self.hub.notify(has_signal=False)
        return row


def _misuse(program: Program, *, max_attempts: int | None = None, history: Sequence[Message] = ()) -> list[str]:
    """Return what is wrong with what a caller gives beside the input of a run."""
    if not isinstance(program.agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
        return [f"the agent is {program.agent!r}"]
    listeners = () if program.on_event is None else (program.on_event,)
    return wrong_options(
        program.agent,
        Options(
            max_attempts=max_attempts,
            callbacks=program.callbacks,
            listeners=listeners,
            abort=program.abort,
            history=history,
            runtime=program.runtime,
        ),
    )


async def _stored_input(
    agent: Agent[Any, Any, Any] | None, input: object
) -> tuple[StoredValue, tuple[UserContent, ...]]:
    """Return an input as it is stored: a text as it is, content as its words and its blocks, any other input as JSON.

    Raises:
        InvalidArguments: it does not fit the agent's type, or cannot be stored so that it is read as the same value.
    """
    if agent is None:
        if not isinstance(input, str):
            raise ValueError("The new input is not a text, so the agent must say how it is stored: give agent=…, too.")
        return StoredValue(input), ()
    schema = agent.plan.input
    checked = input.value if isinstance(input, CheckedValue) else await do_aside(input, schema.check)
    if agent.input is not str:
        return await store_value(schema, checked), ()
    content = cast("tuple[UserContent, ...]", checked) if isinstance(checked, tuple) else ()
    return StoredValue(schema.told(cast("object", checked))), content


def _difference(known: Head, given: Head) -> str | None:
    """Say how a run with the same id differs from the one that is asked for; None if it does not."""
    if known.agent != given.agent:
        return f"it is one of the agent {known.agent!r}, not of {given.agent!r}"
    if (known.input, known.exact) != (given.input, given.exact):
        return f"its input is {quoted(known.input[:200])}, not {quoted(given.input[:200])}"
    if known.max_attempts != given.max_attempts:
        return f"its max_attempts is {known.max_attempts}, not {given.max_attempts}"
    if known.history != given.history:
        return f"its history has {len(known.history)} messages, which are not the {len(given.history)} that were given"
    return None
