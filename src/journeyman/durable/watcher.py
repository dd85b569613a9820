"""The store of durable runs, as one process has it open: what is driven here, and what changes there."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime
from difflib import get_close_matches
from math import inf
from typing import Any, Final

from typing_extensions import Unpack

from journeyman.cancellation import Wakeup, cancel_within
from journeyman.durable.binding import Program
from journeyman.durable.driver import RunDriver
from journeyman.durable.engine import Engine, result_of
from journeyman.durable.journal import Exit, patiently
from journeyman.durable.records import OVER, Claim, Row, load_head
from journeyman.durable.rules import ClaimOptions
from journeyman.errors import RunDiffers, RunInUse, RunUnknown, StoreError, name_and_words
from journeyman.events import (
    DurableEvent,
    Listener,
    RunClaimed,
    RunClaimLost,
    RunNeedsAttention,
    RunQueued,
    RunSuspended,
    RunWoken,
    StepStored,
)
from journeyman.loop.watch import Watch
from journeyman.result import Result

_log = logging.getLogger("journeyman")
_POLL_S: Final = 0.1
# A hundred times in a second at most: to ask SQLite costs a tenth of what a step costs.
_LOOK_S: Final = 0.01
"""Before each step, runs look for what was sent to them. For all runs together, the file is read after so many
seconds."""
_TOLD_S: Final = 0.05
"""When other processes say that they have written, the store is read again after so many seconds at the earliest.
Many processes that tell of each step would have it read all the time."""
_LAST_LOOK_S: Final = 0.25
"""How long what reads the store beside the runs may take in the end, in seconds."""
_GIVE_BACK_S: Final = 1.0
"""How long it may take then to give runs back that nobody else looks for, in seconds."""
_YEAR_2020: Final = 1_577_836_800.0
"""When it began, in seconds since 1970. A clock that was never set says less."""


class Hub:
    """The state that a `Durable`, its handles and its workers share. It is used from one event loop."""

    def __init__(
        self,
        engine: Engine,
        *,
        suspend_after_s: float,
        strict: bool,
        now: Callable[[], float],
        on_event: Listener | None = None,
    ) -> None:
        self.engine: Final = engine
        self.now: Final = now
        """The wall clock, in seconds since 1970."""
        self.keeps_steps = True
        """False: nothing goes on with a run that has left. Then its steps need not be stored: whoever opens it says
        so."""
        self._linger_s: Final = suspend_after_s
        self.strict: Final = strict
        self._watch: Final = None if on_event is None else Watch(path=(), listeners=(on_event,))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._drives: dict[str, RunDriver] = {}
        self._claiming: list[str] = []
        """The runs of claims that are under way; they may be stored already."""
        self._adopted: dict[str, asyncio.Task[None]] = {}
        """What drives the runs here that others have sent out and no worker looks for."""
        self._newest_signal = 0
        self._looked_s = -1.0
        """When another process was last looked for, by the clock of the event loop."""
        self._one_look: Final = asyncio.Lock()
        """Held by the look at the store that is under way."""
        self._is_stale = False
        """True when something was written here that may concern a run that is driven here."""
        self._changed: asyncio.Future[None] | None = None
        """Done at the next change; None: nobody has asked for a mark since the last one."""
        self._looking: Final = Wakeup()
        """Called when signals are to be looked for."""
        self._is_told = False
        """True when another process has said that it has written something."""
        self._polling: asyncio.Task[None]

    async def open(self) -> None:
        """Open the store.

        Raises:
            RuntimeError: it was opened before.
            StoreError: it cannot be opened.
        """
        if self._loop is not None:
            raise RuntimeError("This Durable was entered before. Make another one for the same store.")

        def hear_others() -> None:
            self._is_told = True
            self._looking.call()

        await self.engine.open()
        if self.now() < _YEAR_2020:
            _log.warning(
                "The clock says %s: before 2020, so it is wrong, and waits end early or late. Set it.",
                datetime.fromtimestamp(self.now(), UTC).isoformat(" ", "seconds"),
            )
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()
        try:
            # What was said before is read by each run as its life begins.
            self._newest_signal = await patiently(self.engine.newest, what="which signals are old")
        except BaseException:
            await self.engine.close()
            raise
        self.engine.listen(hear_others)
        self._polling = asyncio.create_task(self._poll())

    async def close(self) -> None:
        """Close the store. What is driven here must have ended, or is left: it fails when it uses the store again."""
        beside = {self._polling, *self._adopted.values()}
        for task in beside:
            task.cancel()
        # First whoever gives runs back: for that the store has to be open.
        await asyncio.wait(beside, timeout=_GIVE_BACK_S if self._adopted else _LAST_LOOK_S)
        await self.engine.close()  # now those that wait for an answer fail
        if await cancel_within(_LAST_LOOK_S, beside):
            _log.warning("The store of the runs does not answer, and was closed anyway.")

    def check(self) -> None:
        """Raise a `RuntimeError` if the store is not open here."""
        if self._loop is None:
            raise RuntimeError("This Durable is not open. Use 'async with Durable(…) as durable:'.")
        if os.getpid() != self._pid:
            raise RuntimeError("This Durable was opened before the process forked. Open another one in each process.")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("This Durable was opened in another event loop. Open one in each event loop.")

    def mark(self) -> asyncio.Future[None]:
        """Return a mark of now, for `changed`: make it before you look."""
        self.check()
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    async def changed(self, timeout_s: float = 1.0, *, since: asyncio.Future[None] | None = None) -> None:
        """Wait until something may have changed in the store, since the mark was made if there is one, or so many
        seconds."""
        await asyncio.wait({since or self.mark()}, timeout=timeout_s)

    def notify(self, *, has_signal: bool = True) -> None:
        """Let whoever waits for a change look now, since something was written here. `has_signal`: it may be for a run
        that is driven here."""
        if has_signal:
            self._is_stale = True
            self._looking.call()
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    async def look(self) -> bool:
        """Give the runs that are driven here what was sent to them since this was last asked. False: nothing was."""
        now_s = asyncio.get_running_loop().time()
        # Many runs ask before each of their steps: within so short a time, one look is for all of them.
        if not self._is_stale and not self._one_look.locked() and now_s - self._looked_s < _LOOK_S:
            return False
        async with self._one_look:  # whoever asks meanwhile waits for what that one finds: it may hold their run
            return await self._look_now(now_s)

    async def _look_now(self, now_s: float) -> bool:
        self._looked_s = now_s
        # Asked also when something was written here, so that the next look does not find the same news again.
        has_news = self.engine.has_news()
        if not has_news and not self._is_stale:
            return False
        self._is_stale = False
        try:
            signals = await self.engine.signals(after=self._newest_signal)
        except BaseException:
            self._is_stale = True  # that something has come is known only once
            raise
        for signal in signals:
            self._newest_signal = max(self._newest_signal, signal.n)
            drive = self._drives.get(signal.run)
            if drive is not None:
                drive.deliver(signal)
        if has_news:
            self._wake()
        return bool(signals)

    async def _poll(self) -> None:
        """Look for what other processes have written."""
        is_said, loop = False, asyncio.get_running_loop()
        while True:
            await self._looking.wait(_POLL_S)
            if self._is_told:  # at once; but however many tell, not all the time
                await asyncio.sleep(max(self._looked_s + _TOLD_S - loop.time(), 0.0))
                self._is_told = False
            try:
                await self.look()
                is_said = False
            except Exception as error:  # noqa: BLE001 - whatever it is, the runs that are driven here go on
                if not is_said:
                    said = error if isinstance(error, StoreError) else name_and_words(error)
                    _log.warning("The store of the runs cannot be read. This is tried again: %s", said)
                is_said = True
                await asyncio.sleep(1.0)

    def drives(self, id: str) -> bool:
        """Tell whether a run is driven here."""
        return id in self._drives

    def has_taken(self, id: str) -> bool:
        """Tell whether a run that is stored as claimed from here is driven, or will be at once."""
        return id in self._drives or id in self._claiming

    def release(self, id: str) -> None:
        """Give a run back that is driven here, once the steps that are under way have ended."""
        if id in self._drives:
            self._drives[id].release()

    async def row(self, run: str) -> Row:
        """Return the run with this id or name, or whose id or name alone begins so.

        Raises:
            RunUnknown: there is none.
        """
        self.check()
        row = await self.engine.get(run)
        if row is not None:
            return row
        near = await self.engine.rows(prefix=run, limit=100) if run else ()
        near = [each for each in near if "." not in each.id] or near  # what a run has sent out begins as it does
        if len(near) == 1 and (row := await self.engine.get(near[0].id)) is not None:
            return row
        known = [each.name or each.id for each in near or await self.engine.rows(limit=200)]
        raise RunUnknown(run, get_close_matches(run, known, n=2, cutoff=0.4) or known[:2])

    async def driven(
        self, id: str, program: Program, *, known: Row | Claim | None = None, **given: Unpack[ClaimOptions]
    ) -> Result[Any] | Exit:
        """Drive a run, if it may be; else say why not. `known` is the run as it was just read or begun, or the claim
        with which it was begun, if the program lacks nothing that it needs."""
        if isinstance(known, Claim):
            return await self._driven(known, program)
        row = known
        if row is None:
            row = await self.row(id)
            lacking = None if row.status in OVER else program.lacks(load_head(row))
            if lacking is not None:
                raise RunDiffers(row.name or row.id, lacking)
        if row.status in OVER:
            return await result_of(self.engine, row, program.agent)
        was_left = bool(row.lives) and not self.keeps_steps  # it would do again what it has done
        if was_left or (row.status == "blocked" and "blocked" not in given.get("also", ())):
            return Exit(how="blocked", why=row.why or "it was left in the middle, and its steps were not kept")
        claim, began_s = None, asyncio.get_running_loop().time()
        if id not in self._drives:
            # Before it is asked for: the answer of the store may be on its way while a second ticket of the run is
            # looked at.
            self._claiming.append(id)
            try:
                claim = await self.engine.claim(id, now=self.now(), **given)
            finally:
                self._claiming.remove(id)  # nothing is waited for between this and its drive
        if claim is None:
            row = await self.row(id)
            if row.status == "running" and given.get("also"):
                raise RunInUse(row.name or row.id, "this process" if id in self._drives else f"the process {row.owner}")
            how = "blocked" if row.status == "blocked" else "held"
            return Exit(how=how, why=row.why or "")
        if self._watch is not None:
            self._tell_claimed(row, claim, asyncio.get_running_loop().time() - began_s)
        return await self._driven(claim, program)

    async def _driven(self, claim: Claim, program: Program) -> Result[Any] | Exit:
        def tell_stored(key: str, size: int, duration_s: float) -> None:
            self._show(StepStored(**self._place(claim), key=key, bytes=size, duration_s=duration_s))

        # An open chat is in memory anyway.
        linger_s = self._linger_s if program.turn is None or program.may_leave else inf
        drive = self._drives[claim.row.id] = RunDriver(
            here=self,
            claim=claim,
            program=program,
            suspend_after_s=0.0 if program.is_left else linger_s,
            stored=None if self._watch is None else tell_stored,
        )
        try:
            outcome = await drive.drive()
        finally:
            del self._drives[claim.row.id]
            # Whoever waits for the run has to look now, however it ended; and the run that has sent it out is told.
            self.notify(has_signal=claim.row.parent is not None)
        if isinstance(outcome, Exit):
            if self._watch is not None:
                self._tell_left(claim, outcome)
            if outcome.error is not None:
                raise outcome.error
        return outcome

    def tell_queued(self, row: Row) -> None:
        """Tell that a run was stored for a worker."""
        if self._watch is not None:
            after_s = 0.0 if row.wake is None else row.wake - row.created
            self._show(
                RunQueued(path=(row.agent,), run=row.id, queue=row.queue, priority=row.priority, after_s=after_s)
            )

    def _show(self, event: DurableEvent) -> None:
        if self._watch is not None:
            self._watch.show(event)

    def _place(self, claim: Claim) -> dict[str, Any]:
        """Return the facts that each event of a claim has."""
        return {"path": (claim.row.agent,), "run": claim.row.id, "worker": self.engine.owner, "epoch": claim.epoch}

    def _tell_claimed(self, before: Row, claim: Claim, duration_s: float) -> None:
        """Tell that a run was claimed, and whether it waits no more. `before`: as it was."""
        row, place = claim.row, self._place(claim)
        self._show(
            RunClaimed(**place, taken_from=before.owner, n_lives=row.lives, n_steps=row.n_steps, duration_s=duration_s)
        )
        if before.owner is None and before.asked is not None:
            self._show(RunWoken(**place))

    def _tell_left(self, claim: Claim, leaving: Exit) -> None:
        match leaving.how:
            case "suspended":
                self._show(RunSuspended(**self._place(claim)))
            case "fenced":
                self._show(RunClaimLost(**self._place(claim)))
            case "blocked":
                self._show(RunNeedsAttention(**self._place(claim), reason=leaving.why))
            case _:
                pass

    def adopt(self, id: str, program: Program) -> None:
        if id not in self._adopted:
            # In an empty context: what runs on must not be a child of the run that has sent it out.
            task = asyncio.create_task(self._adopted_run(id, program), context=Context())
            self._adopted[id] = task
            task.add_done_callback(lambda _: self._adopted.pop(id, None))

    async def _adopted_run(self, id: str, program: Program) -> None:
        is_said = False
        while True:
            mark = self.mark()
            try:
                seen = await self.engine.glance(id)
                if seen is None or seen.status in OVER:
                    return
                await self.driven(id, program)
                is_said = False
            except Exception as error:  # noqa: BLE001 - of one run, and the others go on
                if not is_said:
                    _log.warning("The run %s is not driven: %s", id, name_and_words(error))
                is_said = True
                # After the fault, so that the same change is not taken for a new one.
                mark = self.mark()
            await self.changed(since=mark)
