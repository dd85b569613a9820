"""Durable runs in a SQLite file, which several processes may share: a store, with tables of its own.

A process is alive while it holds its lock beside the file: that ends with it, however it dies. A run whose owner's
lock is free may be claimed by anybody.

A write takes some 30 microseconds and is made where the event loop runs. The disk does not keep the loop, and nor does
another process that writes: what has to reach the disk is committed by a thread, with all else that waits for that, and
what another process keeps waiting is tried again.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import partial
from operator import attrgetter
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, Final, TypeVar

from typing_extensions import Unpack

from journeyman.cancellation import wait_until_ended
from journeyman.definition.data import field_names
from journeyman.durable.engine import Engine, RunChanges, Taken, WriteOptions, Written
from journeyman.durable.records import (
    LAST,
    OVER,
    QUEUES,
    Claim,
    ListedRun,
    ListPlace,
    QueueState,
    Record,
    Row,
    RunFilter,
    RunGlance,
    queue_state,
)
from journeyman.durable.rules import FactName, RowRule, RunFacts, signal_row
from journeyman.errors import StoreError
from journeyman.inbox.signals import SIGNAL_COLUMNS, Signal, signal_of
from journeyman.session import Snapshot
from journeyman.store.file import Lock, WorkOutcome, is_held
from journeyman.store.log import SessionRecord, readable_records
from journeyman.store.repair import open_or_repair, repair_on_close
from journeyman.store.sessions import READ, SessionHead, StoredSession
from journeyman.store.store import Store, add_lines, open_session

T = TypeVar("T")

_COLUMNS: Final = tuple(each.name for each in fields(Row))
_values_of: Final = attrgetter(*_COLUMNS)  # `dataclasses.astuple` copies each value, which takes twenty times as long
_LIST: Final = ", ".join(_COLUMNS)
_MARKS: Final = ", ".join("?" * len(_COLUMNS))
_ADD_RUN: Final = f"INSERT INTO jm_runs ({_LIST}) VALUES ({_MARKS})"
_STEP: Final = ", ".join(Record._fields)
_STEP_MARKS: Final = ", ".join("?" * len(Record._fields))
_ADD_STEP: Final = f"INSERT INTO jm_steps ({_STEP}) VALUES ({_STEP_MARKS})"
_ADD_END: Final = f"INSERT OR REPLACE INTO jm_steps ({_STEP}) VALUES ({_STEP_MARKS})"
"""Writes how a run ends. There is such a step where a repair has lost only that the run is over."""
_WRITE: Final = (
    # One statement, which writes only if the run is still ours: there is no moment between looking and writing.
    f"INSERT INTO jm_steps ({_STEP}) SELECT {_STEP_MARKS} FROM jm_runs WHERE id = ? AND epoch = ?"
    " ON CONFLICT DO NOTHING"
)
_EPOCH: Final = "SELECT epoch FROM jm_runs WHERE id = ?"
_GLANCE: Final = f"SELECT {', '.join(RunGlance._fields)} FROM jm_runs WHERE id = ?"
_OF_A_RUN: Final = (("jm_steps", "run"), ("jm_signals", "run"), ("jm_conversation", "session"), ("jm_runs", "id"))
"""The tables that hold what is stored of a run, and the columns that say of which."""
_NEXT: Final = "SELECT queue FROM jm_runs WHERE status = 'ready' AND agent = ? AND queue >= ? ORDER BY queue LIMIT 1"
"""The next queue in which a run of an agent waits, in the order of their names: one search in the index."""
_PATIENCE_S: Final = 5.0
"""So long a write that another process keeps waiting is tried again before it is an error. As long as Python's
module for SQLite waits by itself."""
# SQLite tells nobody that it is free again. A write of others takes some 30 microseconds, and one that is synced some
# milliseconds.
_AGAIN_S: Final = 0.005
_MOST_IN_LOG: Final = 1_000
"""After so many writes one waits for the disk. Each takes some three pages of the log."""


class SqliteEngine(RunChanges):  # noqa: PLR0904 - those of the port
    """An engine on the store at a path, which is made if it is not there."""

    def __init__(self, path: str | Path) -> None:
        self.path: Final = Path(path).absolute()
        self.owner = f"w{secrets.token_hex(8)}"
        self.tickets = None
        self._n_changes = 0
        self._for_disk: list[tuple[Callable[[Connection], Any], asyncio.Future[WorkOutcome]]] = []
        """The writes that wait for the disk, each with the future that gets its outcome."""
        self._n_in_log = 0
        """The writes since the last that waited for the disk."""
        self._writing: asyncio.Task[None] | None = None
        """Brings them there."""
        self._is_here: asyncio.Event
        """Not set while a thread has the connection, which is one: all else waits, and then goes on at once."""

    async def open(self) -> None:
        # It does not wait at all: it would do so in the thread of the event loop.
        self._file, _ = open_or_repair(self.path, busy_s=0.0)
        try:
            # Nor does it bring the log into the file, which takes the disk tens of milliseconds.
            self._file.rows("PRAGMA wal_autocheckpoint = 0")
            self._lock = Lock(self.path, self.owner, what=f"The worker {self.owner}")
        except BaseException:
            self._file.close()
            raise
        self._is_here = asyncio.Event()
        self._is_here.set()
        # Of its own: those of the event loop may all be busy, and whoever commits holds the file.
        self._thread = ThreadPoolExecutor(1)

    async def close(self) -> None:
        if self._writing is not None:
            await wait_until_ended(self._writing)
        self._thread.shutdown(wait=False)
        self._lock.release()
        self._file.close()
        if self._file.is_damaged:
            repair_on_close(self.path)

    async def add(self, row: Row, records: Sequence[Record] = (), *, is_queued: bool = True) -> Row:
        def work(connection: Connection) -> Row:
            given = row.name, row.agent, row.dedup
            if (known := _find_row(connection, "name = ? OR (agent = ? AND dedup = ?)", given)) is not None:
                return known
            connection.execute(_ADD_RUN, _values_of(row))
            connection.executemany(_ADD_STEP, records)
            return row

        return await self._written(work)

    async def get(self, id: str) -> Row | None:
        # Where an id of one run is the name of another, the id counts.
        found = await self._rows("WHERE id = ? OR name = ? ORDER BY id = ? DESC LIMIT 1", (id, id, id))
        return found[0] if found else None

    async def glance(self, id: str) -> RunGlance | None:
        return next((RunGlance(*each) for each in await self._read(_GLANCE, (id,))), None)

    async def rows(self, **which: Unpack[RunFilter]) -> Sequence[ListedRun]:
        where, given = ["1"], list[object]()
        if statuses := which.get("statuses"):
            where.append("status IN (SELECT value FROM json_each(?))")
            given.append(json.dumps(list(statuses)))
        if (agent := which.get("agent")) is not None:
            where.append("agent = ?")
            given.append(agent)
        if prefix := which.get("prefix"):
            where.append("((id >= ? AND id < ?) OR (name >= ? AND name < ?))")  # as the indexes are sorted
            given += [prefix, prefix + LAST] * 2
        if (before := which.get("ended_before")) is not None:
            where.append("ended < ?")
            given.append(before)
        if (older_than := which.get("older_than")) is not None:
            where.append("(created, id) < (?, ?)")
            given += older_than
        columns = field_names(ListedRun)
        query = f"SELECT {', '.join(columns)} FROM jm_runs WHERE {' AND '.join(where)}"
        query += " ORDER BY created DESC, id DESC LIMIT ?"
        found = await self._read(query, (*given, which.get("limit", 100)), in_thread=bool(prefix))
        return [ListedRun(**dict(zip(columns, each, strict=True))) for each in found]

    async def queues(self, *, now: float) -> Sequence[QueueState]:
        found = await self._read(QUEUES.format(now="?"), [now] * QUEUES.count("{now}"))
        return [queue_state(each, now=now) for each in found]

    async def ready(self, *, now: float, agents: Collection[str], queues: Collection[str], limit: int) -> Sequence[Row]:
        which = "agent IN (SELECT value FROM json_each(?))"
        given: list[object] = [json.dumps(list(agents))]
        if queues:
            which += " AND queue IN (SELECT value FROM json_each(?))"
            given.append(json.dumps(list(queues)))
        order = "ORDER BY priority DESC, created, id LIMIT ?"
        due = f"WHERE status = 'waiting' AND wake <= ? AND {which} {order}"
        found = await self._rows(due, (now, *given, limit))
        # By agent and queue: however many wait for others, none of those is looked at.
        free = f"WHERE status = 'ready' AND agent = ? AND queue = ? AND (wake IS NULL OR wake <= ?) {order}"
        for agent in agents:
            names = list(queues)
            # Behind the last one by its name and a character that comes before all others.
            while not queues and (after := await self._read(_NEXT, (agent, f"{names[-1]}\0" if names else ""))):
                names.append(after[0][0])
            for queue in names:
                found += await self._rows(free, (agent, queue, now, limit))
        # Owners and not runs: there are few of them, and many runs.
        owners = [name for (name,) in await self._read("SELECT DISTINCT owner FROM jm_runs WHERE status = 'running'")]
        dead = json.dumps(await self.find_dead(owners))
        left = f"WHERE status = 'running' AND owner IN (SELECT value FROM json_each(?)) AND {which} {order}"
        found += await self._rows(left, (dead, *given, limit))
        return sorted(found, key=lambda row: (-row.priority, row.created, row.id))[:limit]

    async def find_dead(self, owners: Collection[str]) -> Collection[str]:
        return [each for each in owners if self._is_dead(each)]

    async def change(self, id: str, rule: RowRule, *, now: float, **options: Unpack[WriteOptions]) -> Row | None:
        def work(connection: Connection) -> Row | None:
            row = _find_row(connection, "id = ?", (id,))
            after = None if row is None else rule.apply(row, self._facts(connection, row, now=now, reads=rule.reads))
            if row is None or after is None:
                return None
            _update_row(connection, row, after)
            if (says := options.get("says")) is not None:
                if says.end is not None:
                    connection.execute(_ADD_END, says.end)
                if says.lines:
                    add_lines(connection, says.conversation, says.lines)
            if (posts := options.get("posts")) is not None:
                _signal(connection, posts)
            return after

        return await self._written(work, is_synced=options.get("is_synced", False))

    def session(self, id: str | None, *, agent: str, any_agent: bool, create: bool) -> StoredSession:
        return open_session(str(self.path), id, agent=agent, any_agent=any_agent, create=create, has_turns=True)

    async def conversation(self, id: str, *, n_runs: int | None = None) -> Snapshot:
        found = await self._read(READ.format("?"), (id,))
        return readable_records([SessionRecord(*row) for row in found], id, n_runs)[1]

    async def sessions(
        self, prefix: str, *, older_than: ListPlace | None = None, limit: int = 100
    ) -> Sequence[SessionHead]:
        newest = older_than or ListPlace(math.inf, "")
        query = (
            "SELECT id, agent, created FROM jm_sessions WHERE id >= ? AND id < ? AND (created, id) < (?, ?)"
            " ORDER BY created DESC, id DESC LIMIT ?"
        )
        found = await self._read(query, (prefix, prefix + LAST, *newest, limit), in_thread=True)
        return [SessionHead(*each) for each in found]

    async def delete_session(self, id: str) -> None:
        def work() -> None:
            with Store(self.path) as store:
                store.delete(id)

        await asyncio.to_thread(work)

    async def forget(self, ids: Collection[str], *, by_days: bool = False) -> int:
        def work(connection: Connection) -> int:
            marks = ", ".join("?" * len(OVER))
            over = f"SELECT id FROM jm_runs WHERE id IN (SELECT value FROM json_each(?)) AND status IN ({marks})"
            found = connection.execute(over, (json.dumps(list(ids)), *OVER)).fetchall()
            for table, column in _OF_A_RUN:
                connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", found)
            return len(found)

        return await self._written(work)

    async def records(self, id: str, *, key: str | None = None) -> Sequence[Record]:
        which, given = ("run = ?", (id,)) if key is None else ("run = ? AND key = ?", (id, key))
        found = await self._read(f"SELECT {_STEP} FROM jm_steps WHERE {which} ORDER BY n", given)
        return [Record(*each) for each in found]

    async def write(self, claim: Claim, record: Record, **options: Unpack[WriteOptions]) -> Written:
        # A run and a signal are synced, whether that is asked for or not.
        if any(options.values()) or self._is_log_long():
            # With a run or a signal it always waits for the disk: another process may act on it at once.
            with_others = partial(_write_record, claim=claim, record=record, options=options)
            return await self._written(with_others, is_synced=True)

        def work() -> Written:
            if self._file.write(_WRITE, (*record, claim.row.id, claim.epoch)) == 1:
                return "written"
            # An epoch only grows: what is read after the write is as true as what was read with it.
            return "taken" if self._file.rows(_EPOCH, (claim.row.id,)) == [(claim.epoch,)] else "fenced"

        return await self._patiently(work)

    async def signal(self, signal: Signal) -> Taken:
        return await self._written(lambda connection: _signal(connection, signal))

    async def signals(self, *, run: str | None = None, after: int = 0) -> Sequence[Signal]:
        query = f"SELECT {SIGNAL_COLUMNS} FROM jm_signals WHERE n > ?"
        if run is None:
            found = await self._read(f"{query} ORDER BY n", (after,))
        else:
            found = await self._read(f"{query} AND run = ? ORDER BY n", (after, run))
        return [*map(signal_of, found)]

    async def newest(self) -> int:
        return (await self._read("SELECT ifnull(max(n), 0) FROM jm_signals", ()))[0][0]

    def has_news(self) -> bool:
        if not self._is_here.is_set():  # the event loop does not wait for the thread
            return False
        # This number changes when another connection has written, and not for what this one writes.
        before, self._n_changes = self._n_changes, self._file.rows("PRAGMA data_version")[0][0]
        return before != self._n_changes

    async def _rows(self, where: str, given: Sequence[object]) -> list[Row]:
        found = await self._read(f"SELECT {_LIST} FROM jm_runs {where}", given)
        return [Row(**dict(zip(_COLUMNS, each, strict=True))) for each in found]

    async def _read(self, query: str, given: Sequence[object] = (), *, in_thread: bool = False) -> list[Any]:
        return await self._patiently(lambda: self._file.rows(query, given), in_thread=in_thread)

    async def _written(self, work: Callable[[Connection], T], *, is_synced: bool = False) -> T:
        """Do `work` in a transaction."""
        if is_synced or self._is_log_long():
            return await self._again(lambda: self._to_disk(work))

        def write() -> T:
            with self._file.transaction() as connection:
                return work(connection)

        return await self._patiently(write)

    def _is_log_long(self) -> bool:
        """Count a write that need not wait for the disk, and tell whether it shall: without any that does, the log
        would never be brought into the file."""
        self._n_in_log += 1
        return self._n_in_log > _MOST_IN_LOG

    async def _to_disk(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in a transaction that is on the disk afterwards, together with all that waits for the disk when it
        is its turn: many runs that end at once wait for one sync."""
        done: asyncio.Future[WorkOutcome] = asyncio.get_running_loop().create_future()
        waiting = (work, done)
        self._for_disk.append(waiting)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all_to_disk())
        try:
            await asyncio.wait({done})
        except asyncio.CancelledError:
            if waiting in self._for_disk:  # its turn had not come
                self._for_disk.remove(waiting)
            else:
                await wait_until_ended(done)  # what it writes counts
            raise
        value, error = done.result()
        if error is not None:
            raise error
        return value

    async def _write_all_to_disk(self) -> None:
        """Write what waits for the disk, until nothing does."""
        while self._for_disk:
            # Two turns of the loop, which take microseconds: whoever can go on goes first, and may come to need the
            # disk, too. Else runs that go in step were written in halves, and one half always waited for the other.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            async with self._away():
                together, self._for_disk = self._for_disk, []
                try:
                    tried = await self._try_all([work for work, _ in together])
                    for (_, done), outcome in zip(together, tried, strict=True):
                        done.set_result(outcome)
                finally:
                    for _, done in together:
                        done.cancel()  # unless it has its outcome

    @asynccontextmanager
    async def _away(self) -> AsyncGenerator[None]:
        """Give the connection away, as soon as it is here."""
        while not self._is_here.is_set():
            await self._is_here.wait()
        self._is_here.clear()
        try:
            yield
        finally:
            self._is_here.set()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do `work` in the thread, also if the waiting is cancelled: what it does counts."""
        working = asyncio.get_running_loop().run_in_executor(self._thread, work)
        await wait_until_ended(working)
        return working.result()

    async def _try_all(self, works: Sequence[Callable[[Connection], Any]]) -> list[WorkOutcome]:
        """Do all in one transaction, in which each may fail alone. If that fails itself, each gets one of its own."""
        try:
            with self._file.synced_transaction():
                tried = self._file.attempt(works)
                # All but this is done where the event loop runs: for each statement, a thread would have to wait until
                # the loop lets it go on.
                await self._in_thread(self._file.commit)
            self._n_in_log = 0
            return tried
        except Exception as error:  # noqa: BLE001 - of a write, whose caller gets it
            if len(works) == 1 or (isinstance(error, StoreError) and error.is_busy):
                return [(None, error)] * len(works)
        return [outcome for work in works for outcome in await self._try_all([work])]

    async def _patiently(self, work: Callable[[], T], *, in_thread: bool = False) -> T:
        """Do `work` as soon as the connection is here; again, as long as another process writes."""
        if not in_thread and self._is_here.is_set():  # the usual case, without what only others need
            try:
                return work()
            except StoreError as error:
                if not error.is_busy:
                    raise

        async def work_alone() -> T:
            if in_thread:
                async with self._away():
                    return await self._in_thread(work)
            while not self._is_here.is_set():
                await self._is_here.wait()
            return work()

        return await self._again(work_alone)

    async def _again(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do `work`; again, as long as another process writes."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE_S
        while True:
            try:
                return await work()
            except StoreError as error:
                if not error.is_busy or loop.time() > until:
                    raise
            await asyncio.sleep(_AGAIN_S)

    def _facts(self, connection: Connection, row: Row, *, now: float, reads: Collection[FactName]) -> RunFacts:
        facts = dict[str, Any]()
        if "owner_is_dead" in reads:
            facts["owner_is_dead"] = row.status == "running" and self._is_dead(row.owner)
        if "n_steps" in reads:
            query = "SELECT count(*) FROM jm_steps WHERE run = ?"
            facts["n_steps"] = connection.execute(query, (row.id,)).fetchone()[0]
        if "n_busy" in reads:
            busy = "SELECT owner, count(*) FROM jm_runs WHERE status = 'running' AND queue = ? AND id <> ?"
            # By owner, so that a lock is looked at once for each.
            running = connection.execute(f"{busy} GROUP BY owner", (row.queue, row.id)).fetchall()
            facts["n_busy"] = sum([n for owner, n in running if not self._is_dead(owner)])
        return RunFacts(now=now, **facts)

    def _is_dead(self, owner: str | None) -> bool:
        return owner is None or (owner != self.owner and not is_held(self.path, owner))


def _find_row(connection: Connection, where: str, given: Sequence[object]) -> Row | None:
    found = connection.execute(f"SELECT {_LIST} FROM jm_runs WHERE {where}", given).fetchone()
    return None if found is None else Row(**dict(zip(_COLUMNS, found, strict=True)))


def _update_row(connection: Connection, row: Row, after: Row) -> None:
    """Write what has changed of a run: what it was begun with may be long."""
    pairs = zip(_COLUMNS, _values_of(row), _values_of(after), strict=True)
    changed = [(name, new) for name, old, new in pairs if new is not old and new != old]
    if changed:
        names = ", ".join(f"{name} = ?" for name, _ in changed)
        connection.execute(f"UPDATE jm_runs SET {names} WHERE id = ?", (*[new for _, new in changed], row.id))


def _write_record(connection: Connection, *, claim: Claim, record: Record, options: WriteOptions) -> Written:
    if connection.execute(_WRITE, (*record, claim.row.id, claim.epoch)).rowcount != 1:
        return "taken" if connection.execute(_EPOCH, (claim.row.id,)).fetchone() == (claim.epoch,) else "fenced"
    if (starts := options.get("starts")) is not None and _find_row(connection, "id = ?", (starts.id,)) is None:
        connection.execute(_ADD_RUN, _values_of(starts))
    if (posts := options.get("posts")) is not None:
        _signal(connection, posts)
    return "written"


def _signal(connection: Connection, signal: Signal) -> Taken:
    row = _find_row(connection, "id = ?", (signal.run,))
    after = None if row is None else signal_row(row, RunFacts(now=signal.at), kind=signal.kind)
    if row is None or after is None:
        return "over"
    add = "INSERT INTO jm_signals (run, kind, dedup, body, at, who) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    given = (signal.run, signal.kind, signal.dedup, json.dumps(signal.body), signal.at, signal.who)
    if connection.execute(add, given).rowcount != 1:
        return "known"
    _update_row(connection, row, after)
    return "taken"


if TYPE_CHECKING:
    _engine: type[Engine] = SqliteEngine
