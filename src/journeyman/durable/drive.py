"""Driving a run that was claimed: from its records to its end, or to where it has to leave this process.

The run is an ordinary run with a journal. Beside it, this looks after what comes from outside: what is said to it, the
word to stop or to hold, answers; and after the journal, which tells when the run is another's now, or cannot go on. A
run for which nothing is left to do but to wait is suspended: then it is a row, and takes no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import field, replace
from typing import Any, Final, TypeVar

from journeyman.agent import NOTHING_AROUND, Agent, Host
from journeyman.cancel import Abort, ended
from journeyman.durable.engine import Engine
from journeyman.durable.journal import Leaving, Life, RunJournal
from journeyman.durable.records import (
    OVER,
    Change,
    Claim,
    Head,
    Signal,
    Status,
    dump_questions,
    gates_of,
    load_head,
    prints_of,
)
from journeyman.errors import InvalidArguments, RunBlocked, StoreError
from journeyman.events import Callbacks, Listener
from journeyman.inbox import Inbox, Receipt
from journeyman.loop.attempts import carry_out
from journeyman.loop.prepare import begin
from journeyman.loop.record import Options, Run, detached
from journeyman.loop.results import dump_result
from journeyman.result import Result, Success
from journeyman.tools.context import current_asker
from journeyman.tools.deps import deps_of_run, lacks_deps
from journeyman.types import Usage, record_class

T = TypeVar("T")

_log = logging.getLogger("journeyman")
_AGAIN_S: Final = 1.0
_ANOTHERS: Final = "somebody else drives it now"
_LOOK_S: Final = 1.0
"""How often a run is looked at when nothing calls for it."""


@record_class(kw_only=True)
class Program:
    """What is not stored of a run, and comes from the program in each of its lives."""

    agent: Agent[Any, Any, Any]
    deps: object = field(default=None, repr=False)
    host: Host = NOTHING_AROUND
    callbacks: Callbacks | None = None
    on_event: Listener | None = None
    abort: Abort | None = None

    def lacks(self, head: Head) -> str | None:
        """Say what a run would lack here: its deps, or a gate that it was begun with. None: nothing."""
        lack = lacks_deps(deps_of_run(self.deps, self.agent.deps), self.agent.deps)
        if lack is not None:
            return lack
        missing = Counter(head.gates) - Counter(gates_of(self.agent, self.host))
        if not missing:
            return None
        return f"it was begun with the gate {next(iter(missing))}, which this program does not give it"


@record_class(kw_only=True)
class Drive:
    """One life of a run, in this process."""

    engine: Engine
    claim: Claim
    program: Program
    now: Callable[[], float]
    linger_s: float
    """How long a run that only waits stays in memory, in seconds."""
    look: Callable[[], Awaitable[bool]]
    """Delivers what was sent to the runs that are driven here."""
    strict: bool = False
    inbox: Inbox = field(default_factory=Inbox)
    abort: Abort = field(default_factory=Abort)
    is_held: bool = False
    seen: set[int] = field(default_factory=set[int])
    """The numbers of the signals that have come."""
    receipts: dict[int, Receipt] = field(default_factory=dict[int, Receipt])
    """What was said and is not heard yet, by the number of its signal."""
    life: Life | None = None
    journal: RunJournal = field(init=False)
    unsubscribe: Callable[[], None] = lambda: None
    left: asyncio.Future[Leaving] = field(init=False)
    looked_s: float = 0.0
    """When it was last seen to be ours, by the clock of the event loop."""
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is something to look at."""

    async def drive(self) -> Result[Any] | Leaving:
        """Drive the run until it is over, or has to leave.

        Raises:
            asyncio.CancelledError: the surrounding task was cancelled. The run may be claimed by whoever comes next.
        """
        self.left = asyncio.get_running_loop().create_future()
        try:
            head = load_head(self.claim.row)
            life = self.life = await self._life(head)
            run = await self._begun(head, life)
        except RunBlocked as blocked:
            return await self._gone(None, Leaving(how="blocked", why=blocked.why))
        except BaseException:
            await self._gone(None, Leaving(how="released"))
            raise
        around = copy_context()
        around.run(current_asker.set, self.journal)  # whoever asks the user asks through it
        carrying = asyncio.create_task(_carried(run), context=around)
        try:
            leaving = await self._watched(carrying, run, life, head)
        except BaseException:
            life.close()
            await _taken_down(carrying)
            await self._gone(run, Leaving(how="released"))
            raise
        finally:
            self.unsubscribe()
        if leaving is not None:
            await _taken_down(carrying)
            return leaving
        result = carrying.result()
        if isinstance(result, BaseException):
            await self._gone(run, Leaving(how="released"))
            raise result
        return await self._over(run, life, result)

    def deliver(self, signal: Signal) -> None:
        """Take a signal in hand, once."""
        life = self.life
        if signal.n in self.seen or life is None:
            return
        self.seen.add(signal.n)
        match signal.kind:
            case "steer" if signal.n not in life.used_up:
                text = signal.body.get("text")
                if isinstance(text, str) and text.strip():
                    self.receipts[signal.n] = self.inbox.put(text, "steering")
                else:
                    _log.warning("What %s has sent to the run %s is no text, and not said.", signal.who, signal.run)
            case "approve" | "answer":
                self.journal.answer(signal)
            case "stop":
                self._stop(str(signal.body.get("reason") or "cancelled"))
            case "hold" | "release":
                self.is_held = signal.kind == "hold"
                if self.is_held and not self.abort.aborted:
                    life.close()
            case _:
                pass
        self.stirred.set()

    # -- a life begins

    async def _life(self, head: Head) -> Life:
        differ = self._differences(head)
        if self.strict and differ and not head.accepts:
            raise RunBlocked(self.claim.row.id, f"{differ}, and the program is strict")
        return Life(
            self.engine,
            self.claim,
            await self._read(self.engine.records),
            now=self.now,
            leave=lambda leaving: None if self.left.done() else self.left.set_result(leaving),
            look=self.look,
            stir=self.stirred.set,
            accepts=head.accepts,
        )

    def _differences(self, head: Head) -> str:
        now = prints_of(self.program.agent)
        parts = [name for name, each in now.items() if head.prints.get(name, each) != each]
        return f"the agent's {' and '.join(parts)} differ from those it was begun with" if parts else ""

    async def _begun(self, head: Head, life: Life) -> Run:
        program = self.program
        try:
            given = head.input if program.agent.input is str else program.agent.plan.input.load(head.input.encode())
        except InvalidArguments as invalid:
            why = f"its input no longer fits the agent's type: {'; '.join(invalid.issues)}"
            raise RunBlocked(self.claim.row.id, why) from invalid

        def taken() -> list[int]:
            heard = [n for n, receipt in self.receipts.items() if receipt.status == "delivered"]
            for n in heard:
                del self.receipts[n]
            return heard

        life.taking = taken
        self.journal = RunJournal(life)
        options = Options(
            deps=program.deps,
            max_attempts=head.max_attempts,
            callbacks=program.callbacks,
            listeners=() if program.on_event is None else (program.on_event,),
            abort=self.abort,
            history=head.history,
            host=replace(program.host, journal=self.journal),
            inbox=self.inbox,
            hears_to_the_end=True,
        )
        with detached():
            run = begin(program.agent, given, options)
        await self._catch_up()
        if program.abort is not None:
            abort = program.abort
            self.unsubscribe = abort.subscribe(lambda: self._stop(abort.reason or ""))
        return run

    def _stop(self, reason: str) -> None:
        """End the run; but not before it is where it was: it would end without what it has done and used."""
        if self.life is not None and self.journal.is_replaying():

            def at_edge() -> None:
                self.journal.go_live("stop")
                self.abort.abort(reason)

            self.life.at_edge = at_edge
        else:
            self.abort.abort(reason)

    # -- a life goes on

    async def _watched(self, carrying: asyncio.Task[Any], run: Run, life: Life, head: Head) -> Leaving | None:
        """Wait until the run is over, or has to leave and is given back. None: it is over."""
        while True:
            await self._stirring(carrying, life)
            leaving = self.left.result() if self.left.done() else None
            if leaving is None and carrying.done():
                return None
            if leaving is None:
                leaving = await self._paused(run, life)
            if leaving is not None and leaving.how in ("fenced", "lost", "suspended"):
                return leaving
            if leaving is not None and not life.n_working:  # what was under way has ended
                if leaving.how == "blocked" and (differ := self._differences(head)):
                    leaving = replace(leaving, why=f"{leaving.why}; {differ}")
                return await self._gone(run, leaving)

    async def _stirring(self, carrying: asyncio.Task[Any], life: Life) -> None:
        """Wait until there is something to look at."""
        patience_s = min(_LOOK_S, max(self.linger_s / 4, 0.005)) if life.questions else _LOOK_S
        if self.left.done() or self.is_held:
            patience_s = 0.05
        stirring = asyncio.ensure_future(self.stirred.wait())
        waited = {carrying, stirring} if self.left.done() else {carrying, stirring, self.left}
        try:
            await asyncio.wait(waited, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stirring.cancel()
        self.stirred.clear()

    async def _paused(self, run: Run, life: Life) -> Leaving | None:
        """Say whether the run has to leave because it is held, or because it only waits."""
        if self.is_held and not self.abort.aborted:
            life.close()
            return Leaving(how="held")
        life.open()
        now_s = asyncio.get_running_loop().time()
        if now_s - self.looked_s >= _LOOK_S:  # the process may have been stopped for a while
            self.looked_s = now_s
            if (taken := await self._taken_over()) is not None:
                return taken
        is_stopping = self.abort.aborted or life.at_edge is not None
        return await self._suspended(run, life) if life.is_idle_for(self.linger_s) and not is_stopping else None

    async def _taken_over(self) -> Leaving | None:
        """Say whether another process drives the run now. One that writes nothing learns of it only so."""
        row = await self._read(self.engine.get)
        is_ours = row is not None and row.epoch == self.claim.epoch
        return None if is_ours else Leaving(how="fenced", why=_ANOTHERS)

    async def _suspended(self, run: Run, life: Life) -> Leaving | None:
        """Give back a run that only waits. None: something has come for it meanwhile."""
        life.close()
        expiries = [each.expires_at for each in life.questions.values() if each.expires_at is not None]
        async with life.noting:
            if not life.is_idle_for(self.linger_s):  # an answer has come while a note was written
                life.open()
                return None
            change = self._change(run, life, "waiting", wake=min(expiries, default=None))
            if await self._settled(change, n_signals=len(self.seen)):
                return Leaving(how="suspended")
        life.open()
        await self._catch_up()
        return await self._taken_over()

    async def _catch_up(self) -> None:
        """Take in hand all signals that have come for the run."""
        for signal in await self._read(lambda id: self.engine.signals(run=id)):
            self.deliver(signal)

    async def _read(self, work: Callable[[str], Awaitable[T]]) -> T:
        """Read something of the run; again, as long as what keeps it from being read may pass."""
        id = self.claim.row.id
        return await patiently(lambda: work(id), what=f"what is stored of the run {id}")

    # -- a life ends

    async def _over(self, run: Run, life: Life, result: Result[Any]) -> Result[Any] | Leaving:
        late = [receipt.text for receipt in self.receipts.values() if receipt.status == "queued"]
        if late:
            _log.warning("%s: %s was said too late: the run had its answer", run.path[-1], ", ".join(map(repr, late)))
        status, why = ("done", None) if isinstance(result, Success) else ("failed", str(result.code))
        change = self._change(run, life, status, why=why)
        change = replace(change, result=dump_result(result, self.program.agent))
        if await self._settled(change):
            return result
        return Leaving(how="fenced", why=_ANOTHERS)

    async def _gone(self, run: Run | None, leaving: Leaving) -> Leaving:
        """Give back a run that cannot go on here."""
        status = _STATUSES[leaving.how]
        if run is None or self.life is None:
            row = self.claim.row
            change = Change(
                status=status,
                why=leaving.why or None,
                asked=row.asked,
                used_s=row.used_s,
                usage=Usage(input_tokens=row.tokens, cost=row.cost),  # a row has only the sums
                attempt=row.attempt,
                iteration=row.iteration,
            )
        else:
            change = self._change(run, self.life, status, why=leaving.why or None)
        n_signals = None if status == "ready" else max(len(self.seen), self.claim.row.n_signals)
        if await self._settled(change, n_signals=n_signals):
            return leaving
        # Something was said that has not been seen here, perhaps that it is released: whoever drives it next sees it.
        change = replace(change, status="ready", why=None)
        is_ours = await self._settled(change)
        return leaving if is_ours else Leaving(how="fenced", why=_ANOTHERS)

    def _change(
        self, run: Run, life: Life, status: Status, *, why: str | None = None, wake: float | None = None
    ) -> Change:
        attempt, iteration = life.place
        return Change(
            status=status,
            why=why,
            wake=wake,
            asked=None if status in OVER else dump_questions(life.asked),
            used_s=life.used_s(),
            usage=run.ledger.usage,
            attempt=max(attempt, run.attempt.number),
            iteration=iteration,
        )

    async def _settled(self, change: Change, *, n_signals: int | None = None) -> bool:
        return await patiently(
            lambda: self.engine.settle(self.claim, change, now=self.now(), n_signals=n_signals),
            what=f"that the run {self.claim.row.id} is {change.status}",
        )


_STATUSES: Final[dict[str, Status]] = {"blocked": "blocked", "held": "held", "released": "ready"}
"""What a run is that leaves in one of these ways."""


async def patiently(work: Callable[[], Awaitable[T]], *, what: str) -> T:
    """Do what has to be read or written; again, as long as what keeps it from being done may pass.

    Raises:
        StoreError: it will not pass.
    """
    is_said = False
    while True:
        try:
            return await work()
        except StoreError as error:
            if not error.may_pass:
                raise
            if not is_said:
                _log.warning("The store of the runs cannot be used, which is tried again: %s: %s", what, error)
            is_said = True
        await asyncio.sleep(_AGAIN_S)


async def _carried(run: Run) -> Result[Any] | BaseException:
    """Return how a run ended. What ends the program is returned, too: a task that raises it ends the event loop before
    whoever waits for the task."""
    try:
        return await carry_out(run)
    except (KeyboardInterrupt, SystemExit) as error:
        return error


async def _taken_down(carrying: asyncio.Task[Any]) -> None:
    """End a run in memory. Nothing that it does by then is stored."""
    carrying.cancel()
    await ended(carrying, on_cancel=carrying.cancel)
    if not carrying.cancelled():
        carrying.exception()  # nobody else looks
