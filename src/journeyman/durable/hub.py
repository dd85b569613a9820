"""The store of durable runs, as one process has it open: what is driven here, and what changes there."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final

from journeyman.agent import Agent
from journeyman.durable.drive import Drive, Program, patiently
from journeyman.durable.engine import Engine
from journeyman.durable.journal import Leaving
from journeyman.durable.records import Row, Status, load_head
from journeyman.errors import InvalidArguments, RunBlocked, RunDiffers, RunInUse, RunUnknown, StoreError, name_and_words
from journeyman.loop.results import load_result
from journeyman.result import Result

_log = logging.getLogger("journeyman")
_POLL_S: Final = 0.1
_LOOK_S: Final = 0.01
"""Runs look before each step for what was sent to them; the file is looked at so often for all of them together."""
_TOLD_S: Final = 0.05
"""So often at most is looked because other processes say that they have written."""
_YEAR_2020: Final = 1_577_836_800.0
"""When it began, in seconds since 1970."""


class Hub:
    """What a `Durable`, its handles and its workers share. It is used from one event loop."""

    def __init__(self, engine: Engine, *, linger_s: float, strict: bool, now: Callable[[], float]) -> None:
        self.engine: Final = engine
        self.now: Final = now
        """The wall clock, in seconds since 1970."""
        self._linger_s: Final = linger_s
        self._strict: Final = strict
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._drives: dict[str, Drive] = {}
        self._newest_signal = 0
        self._looked_s = -1.0
        """When another process was last looked for, by the clock of the event loop."""
        self._is_stale = False
        """True when something was written here that may concern a run that is driven here."""
        self._changed: asyncio.Future[None]
        self._told: asyncio.Future[None]
        """Done when another process has said that it has written something."""
        self._polling: asyncio.Task[None]

    async def open(self) -> None:
        """Open the store.

        Raises:
            RuntimeError: it was opened before.
            StoreError: it cannot be opened.
        """
        if self._loop is not None:
            raise RuntimeError("This Durable was entered before. Make another one for the same store.")
        await self.engine.open()
        if self.now() < _YEAR_2020:
            _log.warning(
                "The clock says %s: before 2020, so it is wrong, and waits end early or late. Set it.",
                datetime.fromtimestamp(self.now(), UTC).isoformat(" ", "seconds"),
            )
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()
        try:
            self._newest_signal = await patiently(self.engine.newest, what="which signals are old")
        except BaseException:
            await self.engine.close()
            raise
        self._changed = self._loop.create_future()
        self._told = self._loop.create_future()
        self.engine.listen(lambda: None if self._told.done() else self._told.set_result(None))
        self._polling = asyncio.create_task(self._poll())

    async def close(self) -> None:
        """Close the store. What is driven here must have ended."""
        self._polling.cancel()
        await asyncio.wait({self._polling})
        await self.engine.close()

    def check(self) -> None:
        """Raise a `RuntimeError` if the store is not open here."""
        if self._loop is None:
            raise RuntimeError("This Durable is not open. Use 'async with Durable(…) as durable:'.")
        if os.getpid() != self._pid:
            raise RuntimeError("This Durable was opened before the process forked. Open another one in each process.")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("This Durable was opened in another event loop. Open one in each event loop.")

    # -- what changes

    def mark(self) -> asyncio.Future[None]:
        """Return a mark of now, for `changed`: make it before you look."""
        self.check()
        return self._changed

    async def changed(self, timeout_s: float = 1.0, *, since: asyncio.Future[None] | None = None) -> None:
        """Wait until something may have changed in the store, since the mark was made if there is one, or so many
        seconds."""
        await asyncio.wait({since or self.mark()}, timeout=timeout_s)

    def notify(self) -> None:
        """Let whoever waits for a change look now, since something was written here."""
        self._is_stale = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    async def look(self) -> bool:
        """Give the runs that are driven here what was sent to them since this was last asked. False: nothing was."""
        now_s = asyncio.get_running_loop().time()
        if not self._is_stale and now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
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
            await asyncio.wait({self._changed, self._told}, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
            if self._told.done():  # at once; but however many tell, not all the time
                await asyncio.sleep(max(self._looked_s + _TOLD_S - loop.time(), 0.0))
                self._told = loop.create_future()
            try:
                await self.look()
                is_said = False
            except Exception as error:  # noqa: BLE001 - whatever it is, the runs that are driven here go on
                if not is_said:
                    said = error if isinstance(error, StoreError) else name_and_words(error)
                    _log.warning("The store of the runs cannot be read, which is tried again: %s", said)
                is_said = True
                await asyncio.sleep(1.0)

    # -- what is driven

    def drives(self, id: str) -> bool:
        """Tell whether a run is driven here."""
        return id in self._drives

    async def row(self, run: str) -> Row:
        """Return the run with this id or name, or whose id or name alone begins so.

        Raises:
            RunUnknown: there is none.
        """
        self.check()
        row = await self.engine.get(run)
        if row is not None:
            return row
        near = await self.engine.rows(prefix=run, limit=2) if run else ()
        if len(near) == 1:
            return near[0]
        known = [each.name or each.id for each in near or await self.engine.rows(limit=200)]
        raise RunUnknown(run, get_close_matches(run, known, n=2, cutoff=0.4) or known[:2])

    async def driven(
        self,
        id: str,
        program: Program,
        *,
        also: Collection[Status] = (),
        steal: bool = False,
        head: bytes | None = None,
        at_once: int | None = None,
        gen: int | None = None,
    ) -> Result[Any] | Leaving:
        """Drive a run, if it may be; else say why not. `head` replaces what it was begun with; `gen` is that of the
        ticket that brought it."""
        row = await self.row(id)
        if row.result is not None:
            return result_of(row, program.agent)
        lacking = program.lacks(load_head(row))
        if lacking is not None:
            raise RunDiffers(row.name or row.id, lacking)
        if row.status == "blocked" and "blocked" not in also:
            return Leaving(how="blocked", why=row.why or "")
        claim = None
        if id not in self._drives:
            claim = await self.engine.claim(
                id, now=self.now(), also=also, steal=steal, head=head, at_once=at_once, gen=gen
            )
        if claim is None:
            row = await self.row(id)
            if row.status == "running" and also:
                raise RunInUse(row.name or row.id, "this process" if id in self._drives else f"the process {row.owner}")
            how = "blocked" if row.status == "blocked" else "held"
            return Leaving(how=how, why=row.why or "")
        drive = self._drives[id] = Drive(
            engine=self.engine,
            claim=claim,
            program=program,
            now=self.now,
            linger_s=self._linger_s,
            strict=self._strict,
            look=self.look,
        )
        try:
            outcome = await drive.drive()
        finally:
            del self._drives[id]
            self.notify()
        if isinstance(outcome, Leaving) and outcome.error is not None:
            raise outcome.error
        return outcome


def result_of(row: Row, agent: Agent[Any, Any, Any] | None) -> Result[Any]:
    """Return the stored result of a run that is over. Without the agent, its output is plain JSON.

    Raises:
        RunBlocked: it cannot be read, or its output no longer fits the agent's type.
    """
    try:
        return load_result(row.result or b"", agent)
    except (ValueError, InvalidArguments) as error:
        raise RunBlocked(row.name or row.id, f"its stored result cannot be read: {error}") from error
