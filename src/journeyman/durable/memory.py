"""Durable runs in memory: they live as long as the process. For tests, and as the measure of the other engines."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from itertools import count, takewhile
from typing import TYPE_CHECKING, Final

from typing_extensions import Unpack

from journeyman.definition.problems import explain_arguments
from journeyman.durable.dispatch import Tickets
from journeyman.durable.engine import Engine, RunChanges, Taken, WriteOptions, Written
from journeyman.durable.records import (
    OPEN,
    OVER,
    Claim,
    ListedRun,
    ListPlace,
    QueueState,
    Record,
    Row,
    RunFilter,
    RunGlance,
    StepState,
    queue_state,
)
from journeyman.durable.rules import FactName, RowRule, RunFacts, is_free, signal_row
from journeyman.errors import SessionInUse, StoreError
from journeyman.inbox.signals import Signal, SignalKind
from journeyman.session import Snapshot, check_session_id, turns_of
from journeyman.store.log import NewRecord, SessionRecord, added_up, seal_records
from journeyman.store.sessions import SessionHead, SessionRows, StoredSession, open_rows, unknown_session

_FEW_WORDS: Final = 1_000
"""So many names of runs that were dropped may stay where the others are."""


class _Conversations:
    """The conversations of sessions, and of runs by themselves that have ended."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionHead] = {}
        self.lines: dict[str, list[SessionRecord]] = {}

    def add(self, id: str, lines: Sequence[NewRecord]) -> int:
        """Add records to a conversation. Return the number of the last one."""
        records = self.lines.setdefault(id, [])
        records += seal_records(id, lines, after=len(records), at=time.time())
        return len(records)

    def forget(self, id: str) -> None:
        """Forget a session or a run by itself, with what was said in it, but not its turns."""
        self.sessions.pop(id, None)
        self.lines.pop(id, None)


@explain_arguments
class Memory:
    """The storage that several `InMemoryEngine`s share, as processes share a file."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.ids: dict[str, str] = {}
        """The ids of the runs that have names, by their names."""
        self.over: dict[str, float] = {}
        """The runs that have ended, in the order in which they did, and when, in seconds since 1970."""
        self.deduped: dict[tuple[str, str], str] = {}
        """The ids of the runs that were begun with a `dedup`, by their agents and it."""
        # Lists are asked by the beginning of a name: without an order, each question would look at every run that is
        # kept.
        self.words: list[tuple[str, str]] = []
        """Each id and each name, with the id of its run, in order, and those of runs that were dropped since."""
        self.new_words: list[tuple[str, str]] = []
        """Those of the newest runs, which are put in order when they are asked for: a run that nobody looks for by the
        beginning of its name moves nothing."""
        self.records: dict[str, dict[tuple[str, StepState], Record]] = {}
        """The steps of each run, in the order in which they were written."""
        self.signals: dict[int, Signal] = {}
        """By their numbers, which grow."""
        self.sent: dict[str, dict[tuple[SignalKind, str], int]] = {}
        """The numbers of the signals of each run, by what tells them apart."""
        self.owners: set[str] = set()
        """The owners that are alive."""
        self.names: count[int] = count(1)
        self.numbers: count[int] = count(1)
        """The numbers of the signals."""
        self.version = 0
        """Grows with every change."""
        self.said = _Conversations()
        self.open_in: dict[str, str] = {}
        """Who has which session open."""

    def put(self, row: Row) -> None:
        """Keep a run as it is now."""
        if row.id not in self.rows:
            self.new_words.append((row.id, row.id))
            if row.name is not None:
                self.ids[row.name] = row.id
                self.new_words.append((row.name, row.id))
            if row.dedup is not None:
                self.deduped[row.agent, row.dedup] = row.id
        if row.status in OVER:
            self.over.setdefault(row.id, row.ended or row.created)
        self.rows[row.id] = row
        self.version += 1

    def forget_ended(self, *, before: float, most: int) -> None:
        """Forget runs that ended before a time, in seconds since 1970, and the oldest of those that are too many."""
        # From the oldest on: a server that goes on for months must not keep every run in memory.
        while self.over:
            id, ended = next(iter(self.over.items()))
            if ended >= before and len(self.over) <= most:
                return
            self.drop(id)

    def drop(self, id: str) -> None:
        """Forget a run, with its steps and signals."""
        row = self.rows.pop(id)
        del self.records[id]
        self.said.forget(id)
        self.over.pop(id, None)
        if row.name is not None:
            del self.ids[row.name]
        if len(self.words) + len(self.new_words) > 4 * len(self.rows) + _FEW_WORDS:
            self.words = [each for each in self.words if each[1] in self.rows]
            self.new_words = [each for each in self.new_words if each[1] in self.rows]
        if row.dedup is not None:
            del self.deduped[row.agent, row.dedup]
        for n in self.sent.pop(id, {}).values():
            del self.signals[n]

    def find(self, id: str) -> Row | None:
        """Return the run of this id or name."""
        return self.rows.get(id) or self.rows.get(self.ids.get(id, ""))

    def like(self, row: Row) -> Row | None:
        """Return the run that has the name of another, or the same agent and `dedup`."""
        named = None if row.name is None else self.ids.get(row.name)
        return self.rows.get(named or self.deduped.get((row.agent, row.dedup or ""), ""))

    def beginning(self, prefix: str) -> Iterable[Row]:
        """Return the runs whose id or name begins so."""
        if not prefix:
            return self.rows.values()
        if self.new_words:
            self.words += self.new_words
            self.words.sort()  # two parts that are each in order already, or nearly: this merges them
            self.new_words.clear()
        found: dict[str, Row] = {}
        for place in range(bisect_left(self.words, (prefix, "")), len(self.words)):
            word, id = self.words[place]
            if not word.startswith(prefix):
                break
            if id in self.rows:
                found[id] = self.rows[id]
        return found.values()


def _state_of_queue(queue: str, rows: Sequence[Row], *, now: float) -> QueueState:
    n_ready, *others = [sum(row.status == status for row in rows) for status in OPEN]
    is_due = [row for row in rows if row.status == "ready" and (row.wake is None or row.wake <= now)]
    oldest = min([row.created if row.wake is None else row.wake for row in is_due], default=None)
    return queue_state((queue, oldest, len(is_due), n_ready - len(is_due), *others), now=now)


@explain_arguments  # noqa: PLR0904 - those of the port
class InMemoryEngine(RunChanges):
    """An engine on a `Memory`."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory or Memory()
        self.tickets: Tickets | None = None
        self.owner = f"owner{next(self.memory.names)}"
        self._seen = 0

    async def open(self) -> None:
        self.memory.owners.add(self.owner)

    async def close(self) -> None:
        self.memory.owners.discard(self.owner)

    async def add(self, row: Row, records: Sequence[Record] = (), *, is_queued: bool = True) -> Row:
        known = self.memory.like(row)
        if known is not None:
            return known
        self.memory.put(row)
        self.memory.records[row.id] = {(each.key, each.state): each for each in records}
        return row

    async def get(self, id: str) -> Row | None:
        return self.memory.find(id)

    async def glance(self, id: str) -> RunGlance | None:
        row = self.memory.rows.get(id)
        return None if row is None else RunGlance(row.status, row.epoch, row.n_signals, row.parent)

    async def rows(self, **which: Unpack[RunFilter]) -> Sequence[ListedRun]:
        statuses, agent, older_than = which.get("statuses"), which.get("agent"), which.get("older_than")
        before = which.get("ended_before")
        found = [
            row
            for row in self.memory.beginning(which.get("prefix", ""))
            if (not statuses or row.status in statuses)
            and (agent is None or row.agent == agent)
            and (before is None or (row.ended is not None and row.ended < before))
            and (older_than is None or older_than.is_before(row))
        ]
        return sorted(found, key=lambda row: (row.created, row.id), reverse=True)[: which.get("limit", 100)]

    async def queues(self, *, now: float) -> Sequence[QueueState]:
        is_open = [row for row in self.memory.rows.values() if row.status not in OVER]
        return [
            _state_of_queue(queue, [row for row in is_open if row.queue == queue], now=now)
            for queue in sorted({row.queue for row in is_open})
        ]

    async def ready(self, *, now: float, agents: Collection[str], queues: Collection[str], limit: int) -> Sequence[Row]:
        found = [
            row
            for row in self.memory.rows.values()
            if row.agent in agents
            and (not queues or row.queue in queues)
            and is_free(row, now=now, also=(), owner_is_dead=self._is_dead(row))
        ]
        return sorted(found, key=lambda row: (-row.priority, row.created, row.id))[:limit]

    async def find_dead(self, owners: Collection[str]) -> Collection[str]:
        return {*owners}.difference(self.memory.owners)

    async def change(self, id: str, rule: RowRule, *, now: float, **options: Unpack[WriteOptions]) -> Row | None:
        row = self.memory.rows.get(id)
        after = None if row is None else rule.apply(row, self._facts(row, now=now, reads=rule.reads))
        if row is None or after is None:
            return None
        if (says := options.get("says")) is not None:
            if says.end is not None:
                self.memory.records[id][says.end.key, says.end.state] = says.end
            self.memory.said.add(says.conversation, says.lines)
        self.memory.put(after)
        if (posts := options.get("posts")) is not None:
            await self.signal(posts)
        return after

    async def records(self, id: str, *, key: str | None = None) -> Sequence[Record]:
        return [each for each in self.memory.records.get(id, {}).values() if key in (None, each.key)]

    async def write(self, claim: Claim, record: Record, **options: Unpack[WriteOptions]) -> Written:
        row = self.memory.rows.get(claim.row.id)
        if row is None or row.epoch != claim.epoch:
            return "fenced"
        records = self.memory.records[record.run]
        if (record.key, record.state) in records:
            return "taken"
        records[record.key, record.state] = record
        if (starts := options.get("starts")) is not None and starts.id not in self.memory.rows:
            await self.add(starts)
        if (posts := options.get("posts")) is not None:
            await self.signal(posts)
        return "written"

    async def signal(self, signal: Signal) -> Taken:
        row = self.memory.rows.get(signal.run)
        after = None if row is None else signal_row(row, RunFacts(now=signal.at), kind=signal.kind)
        if row is None or after is None:
            return "over"
        sent, n = self.memory.sent.setdefault(signal.run, {}), next(self.memory.numbers)
        if sent.setdefault((signal.kind, signal.dedup), n) != n:
            return "known"
        self.memory.signals[n] = signal._replace(n=n)
        self.memory.put(after)
        return "taken"

    async def signals(self, *, run: str | None = None, after: int = 0) -> Sequence[Signal]:
        signals = self.memory.signals
        if run is not None:
            return [signals[n] for n in self.memory.sent.get(run, {}).values() if n > after]
        # From the newest back, since only the last few are new.
        found = [*takewhile(lambda each: each.n > after, reversed(signals.values()))]
        return found[::-1]

    async def newest(self) -> int:
        return next(reversed(self.memory.signals), 0)

    def has_news(self) -> bool:
        seen, self._seen = self._seen, self.memory.version
        return seen != self._seen

    async def forget(self, ids: Collection[str], *, by_days: bool = False) -> int:
        over = [id for id in ids if id in self.memory.rows and self.memory.rows[id].status in OVER]
        for id in over:
            self.memory.drop(id)
        return len(over)

    def session(self, id: str | None, *, agent: str, any_agent: bool, create: bool) -> StoredSession:
        if id is not None:
            check_session_id(id)
        rows = MemoryRows(self.memory, self.owner)
        return open_rows(rows, id, agent=agent, any_agent=any_agent, create=create, has_turns=True)

    async def conversation(self, id: str, *, n_runs: int | None = None) -> Snapshot:
        return added_up(self.memory.said.lines.get(id, ()), n_runs)

    async def sessions(
        self, prefix: str, *, older_than: ListPlace | None = None, limit: int = 100
    ) -> Sequence[SessionHead]:
        found = [each for each in self.memory.said.sessions.values() if each.id.startswith(prefix)]
        found = [each for each in found if older_than is None or older_than.is_before(each)]
        return sorted(found, key=lambda each: (each.created, each.id), reverse=True)[:limit]

    async def delete_session(self, id: str) -> None:
        rows = MemoryRows(self.memory, self.owner)
        if id not in self.memory.said.sessions:
            raise unknown_session(rows, id, or_else="Look at the list of them.")
        with closing(rows):
            rows.lock(id)
            self.memory.said.forget(id)
        # A copy: what is dropped is taken out of what is gone through.
        for row in [*self.memory.beginning(turns_of(id)[0])]:
            self.memory.drop(row.id)

    def _facts(self, row: Row, *, now: float, reads: Collection[FactName]) -> RunFacts:
        if not reads:
            return RunFacts(now=now)
        busy = self.memory.rows.values() if "n_busy" in reads else ()
        others = [each for each in busy if each.queue == row.queue and each.status == "running" and each is not row]
        return RunFacts(
            now=now,
            owner_is_dead=self._is_dead(row),
            n_steps=len(self.memory.records[row.id]),
            n_busy=sum(not self._is_dead(each) for each in others),
        )

    def _is_dead(self, row: Row) -> bool:
        return row.owner not in self.memory.owners


class MemoryRows(SessionRows):
    """The rows of sessions in a `Memory`."""

    place = "The memory"
    is_waited_for = False

    def __init__(self, memory: Memory, owner: str) -> None:
        self._memory = memory
        self._owner = owner
        self._locked: str | None = None

    def find(self, id: str) -> SessionHead | None:
        return self._memory.said.sessions.get(id)

    def list_ids(self) -> Sequence[str]:
        return list(self._memory.said.sessions)

    def lock(self, id: str) -> None:
        # An owner that has been closed has let go of all its sessions, whatever stands here.
        if self._memory.open_in.get(id) in self._memory.owners:
            text = f"Session {id} in the memory is open in this process."
            raise SessionInUse(text, hint="Close it there first.", pid=os.getpid())
        self._memory.open_in[id], self._locked = self._owner, id

    def read(self, id: str) -> Sequence[SessionRecord]:
        return self._memory.said.lines[id]

    def find_open_turn(self, id: str) -> str | None:
        return next((row.name for row in self._memory.beginning(turns_of(id)[0]) if row.status not in OVER), None)

    def append(self, head: SessionHead, lines: Sequence[NewRecord], *, is_new: bool, waits: bool) -> int:
        if self._memory.open_in.get(head.id) != self._owner:
            raise StoreError(f"The session {head.id} was opened elsewhere. Nothing is written.", hint="Open it again.")
        self._memory.said.sessions.setdefault(head.id, head)
        return self._memory.said.add(head.id, lines)

    def put_aside(self, id: str, good: Sequence[SessionRecord], n_bad: int) -> str:
        raise AssertionError("memory is not damaged")

    def close(self) -> None:
        if self._locked is not None and self._memory.open_in.get(self._locked) == self._owner:
            del self._memory.open_in[self._locked]
        self._locked = None


if TYPE_CHECKING:
    _engine: type[Engine] = InMemoryEngine
    _rows: type[SessionRows] = MemoryRows
