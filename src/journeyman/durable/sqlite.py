"""Durable runs in a SQLite file, which several processes may share: a store, with tables of its own.

A process is alive while it holds its lock beside the file: that ends with it, however it dies. A run whose owner's
lock is free may be claimed by anybody.

A write takes some 30 microseconds and is made where the event loop runs. One that has to reach the disk, and one that
another process keeps waiting, does not keep the loop: the first is made in a thread, with all others that wait for the
disk, and the second is tried again.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import fields
from functools import partial
from operator import attrgetter
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from journeyman.cancellation import wait_until_ended
from journeyman.data import field_names
from journeyman.durable.engine import Engine, RunChanges, Taken, Written
from journeyman.durable.records import (
    LAST,
    OVER,
    QUEUES,
    Change,
    Claim,
    KeptSession,
    ListedRun,
    ListPlace,
    QueueState,
    Record,
    Row,
    Signal,
    Status,
    queue_state,
)
from journeyman.durable.rules import FactName, RowRule, RunFacts, signal_row
from journeyman.errors import StoreError
from journeyman.session import SharedSession, Snapshot
from journeyman.store.file import Lock, is_held
from journeyman.store.log import RECORD, SessionRecord, readable_records
from journeyman.store.repair import open_or_repair, rescue_on_close
from journeyman.store.store import Store, add_lines, open_session

T = TypeVar("T")
_Tried: TypeAlias = tuple[Any, Exception | None]
"""The value that a write returned, or the error with which it failed."""

_COLUMNS: Final = tuple(each.name for each in fields(Row))
_values_of: Final = attrgetter(*_COLUMNS)  # `dataclasses.astuple` copies each value, which takes twenty times as long
_LIST: Final = ", ".join(_COLUMNS)
_MARKS: Final = ", ".join("?" * len(_COLUMNS))
_ADD_RUN: Final = f"INSERT INTO jm_runs ({_LIST}) VALUES ({_MARKS})"
_STEP: Final = ", ".join(Record._fields)
_STEP_MARKS: Final = ", ".join("?" * len(Record._fields))
_ADD_STEP: Final = f"INSERT INTO jm_steps ({_STEP}) VALUES ({_STEP_MARKS})"
_WRITE: Final = (
    # One statement, which writes only if the run is still ours: there is no moment between looking and writing.
    f"INSERT INTO jm_steps ({_STEP}) SELECT {_STEP_MARKS} FROM jm_runs WHERE id = ? AND epoch = ?"
    " ON CONFLICT DO NOTHING"
)
_NEXT: Final = "SELECT queue FROM jm_runs WHERE status = 'ready' AND agent = ? AND queue >= ? ORDER BY queue LIMIT 1"
"""The next queue in which a run of an agent waits, in the order of their names: one search in the index."""
_PATIENCE_S: Final = 5.0
"""So long a write that another process keeps waiting is tried again before it is an error. As long as Python's
module for SQLite waits by itself."""
# SQLite tells nobody that it is free again. A write of others takes some 30 microseconds, and one that is synced some
# milliseconds.
_AGAIN_S: Final = 0.005


class SqliteEngine(RunChanges):  # noqa: PLR0904 - those of the port
    """An engine on the store at a path, which is made if it is not there."""

    def __init__(self, path: str | Path) -> None:
        self.path: Final = Path(path).absolute()
        self.owner = f"w{secrets.token_hex(8)}"
        self.tickets = None
        self._n_changes = 0
        self._for_disk: list[tuple[Callable[[Connection], Any], asyncio.Future[_Tried]]] = []
        """The writes that wait for the disk, each with the future that gets its outcome."""

    async def open(self) -> None:
        # It does not wait at all: it would do so in the thread of the event loop.
        self._file, _ = open_or_repair(self.path, busy_s=0.0)
        try:
            self._lock = Lock(self.path, self.owner, what=f"The worker {self.owner}")
        except BaseException:
            self._file.close()
            raise
        # One at a time: the connection is one, and a write in a thread must not meet another.
        self._alone = asyncio.Lock()

    async def close(self) -> None:
        self._lock.release()
        self._file.close()
        if self._file.is_damaged:
            rescue_on_close(self.path)

    # -- runs

    async def add(self, row: Row, records: Sequence[Record] = (), *, is_queued: bool = True) -> Row:
        def work(connection: Connection) -> Row:
            known = connection.execute(
                f"SELECT {_LIST} FROM jm_runs WHERE name = ? OR (agent = ? AND dedup = ?)",
                (row.name, row.agent, row.dedup),
            ).fetchone()
            if known is not None:
                return Row(**dict(zip(_COLUMNS, known, strict=True)))
            connection.execute(_ADD_RUN, _values_of(row))
            connection.executemany(_ADD_STEP, records)
            return row

        return await self._written(work)

    async def get(self, id: str) -> Row | None:
        # Where an id of one run is the name of another, the id counts.
        found = await self._rows("WHERE id = ? OR name = ? ORDER BY id = ? DESC LIMIT 1", (id, id, id))
        return found[0] if found else None

    async def rows(
        self,
        *,
        statuses: Collection[Status] = (),
        agent: str | None = None,
        prefix: str = "",
        ended_before: float | None = None,
        older_than: ListPlace | None = None,
        limit: int = 100,
    ) -> Sequence[ListedRun]:
        where, given = ["1"], list[object]()
        if statuses:
            where.append("status IN (SELECT value FROM json_each(?))")
            given.append(json.dumps(list(statuses)))
        if agent is not None:
            where.append("agent = ?")
            given.append(agent)
        if prefix:
            where.append("((id >= ? AND id < ?) OR (name >= ? AND name < ?))")  # as the indexes are sorted
            given += [prefix, prefix + LAST] * 2
        if ended_before is not None:
            where.append("ended < ?")
            given.append(ended_before)
        if older_than is not None:
            where.append("(created, id) < (?, ?)")
            given += older_than
        columns = field_names(ListedRun)
        query = f"SELECT {', '.join(columns)} FROM jm_runs WHERE {' AND '.join(where)}"
        query += " ORDER BY created DESC, id DESC LIMIT ?"
        found = await self._read(query, (*given, limit), in_thread=bool(prefix))
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
        dead = json.dumps([name for name in owners if self._is_dead(name)])
        left = f"WHERE status = 'running' AND owner IN (SELECT value FROM json_each(?)) AND {which} {order}"
        found += await self._rows(left, (dead, *given, limit))
        return sorted(found, key=lambda row: (-row.priority, row.created, row.id))[:limit]

    async def change(
        self,
        id: str,
        rule: RowRule,
        *,
        now: float,
        says: Change | None = None,
        posts: Signal | None = None,
        is_synced: bool = False,
    ) -> Row | None:
        def work(connection: Connection) -> Row | None:
            row = _row_of(connection, id)
            after = None if row is None else rule.apply(row, self._facts(connection, row, now=now, reads=rule.reads))
            if row is None or after is None:
                return None
            _update_row(connection, row, after)
            if says is not None:
                add_lines(connection, says.session, says.lines)
            if posts is not None:
                _signal(connection, posts)
            return after

        return await self._written(work, is_synced=is_synced)

    def session(self, id: str | None, *, agent: str, any_agent: bool, create: bool) -> SharedSession:
        return open_session(str(self.path), id, agent=agent, any_agent=any_agent, create=create, has_turns=True)

    async def conversation(self, session: str) -> Snapshot:
        query = f"SELECT {RECORD} FROM records WHERE session = ? ORDER BY n"
        return readable_records([SessionRecord(*row) for row in await self._read(query, (session,))], session)[1]

    async def sessions(
        self, prefix: str, *, older_than: ListPlace | None = None, limit: int = 100
    ) -> Sequence[KeptSession]:
        newest = older_than or ListPlace(math.inf, "")
        query = (
            "SELECT id, agent, created FROM sessions WHERE id >= ? AND id < ? AND (created, id) < (?, ?)"
            " ORDER BY created DESC, id DESC LIMIT ?"
        )
        found = await self._read(query, (prefix, prefix + LAST, *newest, limit), in_thread=True)
        return [KeptSession(*each) for each in found]

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
            for table, column in (("jm_steps", "run"), ("jm_signals", "run"), ("jm_runs", "id")):
                connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", found)
            return len(found)

        return await self._written(work)

    async def drop_days(self, before: float) -> None:
        """Nothing is kept by days."""

    # -- steps and signals

    async def records(self, id: str) -> Sequence[Record]:
        found = await self._read(f"SELECT {_STEP} FROM jm_steps WHERE run = ? ORDER BY n", (id,))
        return [Record(*each) for each in found]

    async def write(
        self,
        claim: Claim,
        record: Record,
        *,
        is_synced: bool = False,
        starts: Row | None = None,
        posts: Signal | None = None,
    ) -> Written:
        if is_synced or starts is not None or posts is not None:
            with_others = partial(_write_record, claim=claim, record=record, starts=starts, posts=posts)
            # With a run or a signal it always waits for the disk: another process may act on it at once.
            return await self._written(with_others, is_synced=True)

        def work() -> Written:
            if self._file.write(_WRITE, (*record, claim.row.id, claim.epoch)) == 1:
                return "written"
            # An epoch only grows: what is read after the write is as true as what was read with it.
            found = self._file.rows("SELECT epoch FROM jm_runs WHERE id = ?", (claim.row.id,))
            return "taken" if found and found[0][0] == claim.epoch else "fenced"

        if not self._alone.locked():  # the usual case, without what only others need
            try:
                return work()
            except StoreError as error:
                if not error.is_busy:
                    raise
        return await self._patiently(work)

    async def signal(self, signal: Signal) -> Taken:
        return await self._written(lambda connection: _signal(connection, signal))

    async def signals(self, *, run: str | None = None, after: int = 0) -> Sequence[Signal]:
        query = "SELECT n, run, kind, dedup, body, at, who FROM jm_signals WHERE n > ?"
        if run is None:
            found = await self._read(f"{query} ORDER BY n", (after,))
        else:
            found = await self._read(f"{query} AND run = ? ORDER BY n", (after, run))
        return [Signal(n, run, kind, dedup, json.loads(body), *rest) for n, run, kind, dedup, body, *rest in found]

    async def newest(self) -> int:
        return (await self._read("SELECT ifnull(max(n), 0) FROM jm_signals", ()))[0][0]

    def listen(self, wake: Callable[[], None]) -> None:
        """Nobody tells of a change of a file."""

    def has_news(self) -> bool:
        if self._alone.locked():  # somebody writes here: the event loop does not wait for that
            return False
        # This number changes when another connection has written, and not for what this one writes.
        before, self._n_changes = self._n_changes, self._file.rows("PRAGMA data_version")[0][0]
        return before != self._n_changes

    # -- the file

    async def _rows(self, where: str, given: Sequence[object]) -> list[Row]:
        found = await self._read(f"SELECT {_LIST} FROM jm_runs {where}", given)
        return [Row(**dict(zip(_COLUMNS, each, strict=True))) for each in found]

    async def _read(self, query: str, given: Sequence[object] = (), *, in_thread: bool = False) -> list[Any]:
        return await self._patiently(lambda: self._file.rows(query, given), in_thread=in_thread)

    async def _written(self, work: Callable[[Connection], T], *, is_synced: bool = False) -> T:
        """Do `work` in a transaction."""
        if is_synced:
            return await self._again(lambda: self._to_disk(work))

        def write() -> T:
            with self._file.transaction() as connection:
                return work(connection)

        return await self._patiently(write)

    async def _to_disk(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in a transaction that is on the disk afterwards, together with all that waits for the disk by the
        time at which it is its turn: many runs that end at once wait for one sync."""
        done: asyncio.Future[_Tried] = asyncio.get_running_loop().create_future()
        waiting = (work, done)
        self._for_disk.append(waiting)
        try:
            async with self._alone:
                if not done.done():
                    await self._write_all_to_disk()
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
        together, self._for_disk = self._for_disk, []
        works = [work for work, _ in together]
        working = asyncio.ensure_future(asyncio.to_thread(self._try_all, works))
        try:
            await wait_until_ended(working)
        finally:
            for (_, done), outcome in zip(together, working.result(), strict=True):
                done.set_result(outcome)

    def _try_all(self, works: Sequence[Callable[[Connection], Any]]) -> list[_Tried]:
        """Do all in one transaction; if that fails, each in one of its own, so that it fails alone."""
        try:
            with self._file.transaction(is_synced=True) as connection:
                return [(work(connection), None) for work in works]
        except Exception as error:  # noqa: BLE001 - of one write, whose caller gets it
            if len(works) == 1:
                return [(None, error)]
        return [outcome for work in works for outcome in self._try_all([work])]

    async def _patiently(self, work: Callable[[], T], *, in_thread: bool = False) -> T:
        """Do `work` alone; again, as long as another process writes."""

        async def work_alone() -> T:
            async with self._alone:
                if not in_thread:
                    return work()
                working = asyncio.ensure_future(asyncio.to_thread(work))
                await wait_until_ended(working)  # also if the waiting is cancelled: what it does counts
                return working.result()

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


def _row_of(connection: Connection, id: str) -> Row | None:
    found = connection.execute(f"SELECT {_LIST} FROM jm_runs WHERE id = ?", (id,)).fetchone()
    return None if found is None else Row(**dict(zip(_COLUMNS, found, strict=True)))


def _update_row(connection: Connection, row: Row, after: Row) -> None:
    """Write what has changed of a run: what it was begun with may be long."""
    pairs = zip(_COLUMNS, _values_of(row), _values_of(after), strict=True)
    changed = [(name, new) for name, old, new in pairs if new is not old and new != old]
    if changed:
        names = ", ".join(f"{name} = ?" for name, _ in changed)
        connection.execute(f"UPDATE jm_runs SET {names} WHERE id = ?", (*[new for _, new in changed], row.id))


def _write_record(
    connection: Connection, *, claim: Claim, record: Record, starts: Row | None, posts: Signal | None
) -> Written:
    if connection.execute(_WRITE, (*record, claim.row.id, claim.epoch)).rowcount != 1:
        row = _row_of(connection, claim.row.id)
        return "taken" if row is not None and row.epoch == claim.epoch else "fenced"
    if starts is not None and _row_of(connection, starts.id) is None:
        connection.execute(_ADD_RUN, _values_of(starts))
    if posts is not None:
        _signal(connection, posts)
    return "written"


def _signal(connection: Connection, signal: Signal) -> Taken:
    row = _row_of(connection, signal.run)
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
