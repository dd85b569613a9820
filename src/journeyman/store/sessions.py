"""Sessions as they are stored, over a port of rows: what an open one does, and what a place does that holds many.

The port knows rows, locks and transactions. What the rows mean is known here and in `log`, once for all engines.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from pydantic_core import from_json, to_json

from journeyman.definition.data import lazy_dataclass
from journeyman.errors import StoreError
from journeyman.history import History
from journeyman.inbox.inbox import Queue
from journeyman.machine.forks import hold_at_forks
from journeyman.session import PatientSession, Sessions, Snapshot, Step, check_session_id, turns_of
from journeyman.store.codec import unpack
from journeyman.store.log import RECORD, NewRecord, SessionRecord, Used, lines_of_step, queued, readable_records
from journeyman.types import NOTHING_USED, Message, Usage, adapter_of, dump_messages

if TYPE_CHECKING:
    from journeyman.store.redacted import StepRedactor

T = TypeVar("T")

_OF: Final = "FROM jm_conversation WHERE session = s.id"
_NEWEST: Final = "ORDER BY n DESC LIMIT 1"
# With the very words of the index: by the kind alone, SQLite would go through all records back to the first.
_FACT: Final = f"{_OF} AND kind IN ('title', 'used') AND kind ="
INFO: Final = (
    f"SELECT s.id, s.agent, s.created, s.parent, (SELECT at {_OF} {_NEWEST}),"
    f" (SELECT position + CAST(kind = 'message' AS INTEGER) {_OF} AND kind IN ('message', 'cut') {_NEWEST}),"
    f" (SELECT body {_FACT} 'used' {_NEWEST}), (SELECT body {_FACT} 'title' {_NEWEST})"
    " FROM jm_sessions AS s"
)
READ: Final = f"SELECT {RECORD} FROM jm_conversation WHERE session = {{}} ORDER BY n"
_OF_TURNS: Final = "run IN (SELECT id FROM jm_runs WHERE name >= {0} AND name < {0})"
_MOST_KNOWN: Final = 1_000
"""How many ids are searched for one that is like an unknown one."""


@lazy_dataclass(frozen=True)
class SessionHead:
    """The facts of a session that never change."""

    id: str
    agent: str
    created: float
    """Seconds since 1970."""
    parent: str | None = None
    """The session that it was branched from."""


@lazy_dataclass(frozen=True, kw_only=True)
class SessionInfo:
    """A session in a list."""

    id: str
    """The id of the session."""
    agent: str
    """The name of the agent; empty when it could not be recovered."""
    title: str
    """The beginning of the first prompt."""
    created: float
    """Seconds since 1970."""
    updated: float
    """Seconds since 1970."""
    messages: int
    """How many messages it has."""
    usage: Usage
    """What its runs have used."""
    parent: str | None = None
    """The session that it was branched from."""

    @property
    def cost(self) -> float | None:
        """US dollars; None when that is not known."""
        return self.usage.cost


class SessionRows(Protocol):
    """The rows of sessions in one place, in the hands of who opens one of them.

    Raises, from every method:
        StoreError: they cannot be read or written.
    """

    place: str
    """What holds them, for messages."""
    is_waited_for: bool
    """False: nothing that is done with them takes time."""

    def find(self, id: str) -> SessionHead | None:
        """Return the head of a session; None: there is none."""
        ...

    def list_ids(self) -> Sequence[str]:
        """Return ids that sessions have, for who has mistyped one."""
        ...

    def lock(self, id: str) -> None:
        """Let nobody else write to a session, until this is closed.

        Raises:
            SessionInUse: somebody has it open.
        """
        ...

    def read(self, id: str) -> Sequence[SessionRecord]:
        """Return the records of a session, in order."""
        ...

    def find_open_turn(self, id: str) -> str | None:
        """Return the name of a turn of a session that has begun and not ended; None: there is none."""
        ...

    def append(self, head: SessionHead, lines: Sequence[NewRecord], *, is_new: bool, waits: bool) -> int:
        """Write at the end of the session that is locked: all of it, or nothing. Return the number of the last record.

        `is_new`: the session is to be stored, too. Unless it `waits`, another process that writes is a `StoreError`
        that `is_busy`, where that can be told.
        """
        ...

    def refresh(self, id: str) -> None:
        """Learn where the session that is locked ends, after somebody else has written there who may: if that is not
        read with each write anyway."""

    def put_aside(self, id: str, good: Sequence[SessionRecord], n_bad: int) -> str:
        """Take the records behind the good ones out of the session that is locked. Return what to say about it.

        Raises:
            Damaged: all of the place is to be repaired, and read again.
        """
        ...

    def close(self) -> None:
        """Let somebody else open the session that is locked."""
        ...


class StoredSession:
    """One session of a store, open for writing."""

    def __init__(
        self,
        rows: SessionRows,
        head: SessionHead,
        *,
        snapshot: Snapshot | None,
        notice: str | None,
        redactor: StepRedactor | None,
    ) -> None:
        """`snapshot`: what is stored of it; None: nothing yet. A session in which nothing was said is not stored."""
        self.notice: str | None = notice
        self.snapshot: Snapshot = snapshot or Snapshot()
        self._rows = rows
        self._head = head
        self._is_new = snapshot is None
        self._redactor = redactor
        self.on_close: Callable[[], None] | None = None
        """Called when the session is closed: it closes the store that was opened for it."""
        self._is_closed = False
        # A text that waits may be stored from any thread.
        self._alone = RLock()
        hold_at_forks(self._alone)

    @property
    def id(self) -> str:
        return self._head.id

    @property
    def is_waited_for(self) -> bool:
        """False: nothing that is done with it takes time."""
        return self._rows.is_waited_for

    def add(self, text: str, queue: Queue) -> int:
        return self._append([queued(text if self._redactor is None else self._redactor.redact_text(text), queue)])

    def write(self, step: Step) -> None:
        self._append(self._lines_of(step))

    def write_at_once(self, step: Step) -> None:
        self._append(self._lines_of(step), waits=False)

    def _lines_of(self, step: Step) -> list[NewRecord]:
        return [*lines_of_step(step if self._redactor is None else self._redactor.redact_step(step))]

    def _append(self, lines: Sequence[NewRecord], *, waits: bool = True) -> int:
        with self._alone:
            if self._is_closed:  # somebody else may write there now
                raise StoreError(f"The session {self.id} was closed. Nothing is written.", hint="Open it again.")
            n = self._rows.append(self._head, lines, is_new=self._is_new, waits=waits)
            self._is_new = False
            return n

    def refresh(self) -> None:
        """Learn where the session ends, after somebody else has written.

        Raises:
            StoreError: it could not be read.
        """
        with self._alone:
            self._rows.refresh(self.id)

    def close(self) -> None:
        with self._alone:
            # First this: once the lock is free, somebody else may write.
            self._is_closed = True
            self._rows.close()
        if self.on_close is not None:
            self.on_close()

    def __repr__(self) -> str:
        return f"<StoredSession {self.id} in {self._rows.place}>"


def open_rows(
    rows: SessionRows,
    id: str | None,
    *,
    agent: str,
    any_agent: bool = False,
    create: bool = False,
    has_turns: bool = False,
    parent: str | None = None,
    redactor: StepRedactor | None = None,
) -> StoredSession:
    """Open a session, as `Sessions.session` does; the rows are closed with it.

    `has_turns`: its turns are durable runs, which may go on. `parent`: the session from which a new one is branched.
    """

    def check(id: str) -> SessionHead | None:
        head = rows.find(id)
        if head is None and not create:
            raise unknown_session(rows, id, or_else="To begin one of this id, give create=True.")
        if head is not None and head.agent not in ("", agent) and not any_agent:
            raise StoreError(
                f"Session {id} is one of the agent {head.agent!r}, not of {agent!r}.",
                hint="Open it with that agent, or give any_agent=True to go on with this one.",
            )
        return head

    head, snapshot, notice = None, None, None
    if id is None:
        while rows.find(id := secrets.token_hex(4)) is not None:  # short enough to be typed, so it may be taken
            continue
        rows.lock(id)
    else:
        check(id)  # before the lock, so that a wrong id is told without taking anything
        rows.lock(id)
        head = check(id)  # until the lock was taken, somebody may have made it, or deleted it
    if head is not None:
        if not has_turns and (turn := rows.find_open_turn(id)) is not None:
            hint = "Open the chat with a Durable of this store, which goes on with the turn."
            raise StoreError(f"In session {id}, the durable turn {turn} has not ended.", hint=hint)
        records = rows.read(id)
        good, snapshot = readable_records(records, id)
        if len(good) < len(records):
            notice = rows.put_aside(id, good, len(records) - len(good))
    head = head or SessionHead(id, agent, time.time(), parent)
    return StoredSession(rows, head, snapshot=snapshot, notice=notice, redactor=redactor)


def unknown_session(rows: SessionRows, id: str, *, or_else: str) -> StoreError:
    """Return the refusal of an id that no session has."""
    known = rows.list_ids()
    close = get_close_matches(id, known, n=1)
    hint = f"Did you mean {close[0]}? " if close else "" if known else "It has none yet: leave the id out. "
    return StoreError(f"{rows.place} has no session {id!r}.", hint=f"{hint}{or_else}")


class SqlRows(SessionRows, ABC):
    """The rows of sessions in a database that speaks SQL: what each of them asks with the same words."""

    mark: ClassVar[str]
    """How a statement says that a text is given."""
    is_waited_for = True

    @abstractmethod
    def select(self, query: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows that a query finds."""

    @abstractmethod
    def execute_all(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        """Do these statements in one transaction."""

    def find(self, id: str) -> SessionHead | None:
        query = f"SELECT id, agent, created, parent FROM jm_sessions WHERE id = {self.mark}"
        found = self.select(query, (id,))
        return SessionHead(*found[0]) if found else None

    def get(self, id: str) -> SessionHead:
        """Return the head of a session, or raise a `StoreError` that says what is there instead."""
        head = self.find(id)
        if head is None:
            raise unknown_session(self, id, or_else="Look for it with sessions().")
        return head

    def list_ids(self) -> Sequence[str]:
        return [id for (id,) in self.select(f"SELECT id FROM jm_sessions LIMIT {_MOST_KNOWN}")]

    def read(self, id: str) -> Sequence[SessionRecord]:
        return [SessionRecord(*row) for row in self.select(READ.format(self.mark), (id,))]

    def find_open_turn(self, id: str) -> str | None:
        query = "SELECT name FROM jm_runs WHERE name >= {0} AND name < {0} AND status NOT IN ('done', 'failed') LIMIT 1"
        found = self.select(query.format(self.mark), turns_of(id))
        return found[0][0] if found else None

    def list_infos(self, id: str | None = None) -> list[SessionInfo]:
        """Return what a list tells of one session, or of all: the one that was last written to first."""
        found = self.select(INFO) if id is None else self.select(f"{INFO} WHERE s.id = {self.mark}", (id,))
        infos = [
            SessionInfo(
                id=id,
                agent=agent,
                title="" if title is None else adapter_of(str).validate_json(unpack(title)),
                created=created,
                updated=created if updated is None else updated,
                messages=n_messages or 0,
                usage=NOTHING_USED if used is None else adapter_of(Used).validate_json(unpack(used)).usage,
                parent=parent,
            )
            for id, agent, created, parent, updated, n_messages, used, title in found
        ]
        return sorted(infos, key=lambda info: info.updated, reverse=True)

    def delete(self, id: str) -> None:
        """Forget a session, what was put aside of it, and its turns, if they were durable runs."""
        statements = (
            (
                "DELETE FROM jm_conversation WHERE session = {0} OR (session >= {0} AND session < {0})",
                (id, *aside_of(id)),
            ),
            ("DELETE FROM jm_sessions WHERE id = {0}", (id,)),
            (f"DELETE FROM jm_steps WHERE {_OF_TURNS}", turns_of(id)),
            (f"DELETE FROM jm_signals WHERE {_OF_TURNS}", turns_of(id)),
            ("DELETE FROM jm_runs WHERE name >= {0} AND name < {0}", turns_of(id)),
        )
        # All or nothing: turns of a session that is gone would still be found by their names.
        self.execute_all([(statement.format(self.mark), given) for statement, given in statements])


def aside_of(id: str) -> tuple[str, str]:
    """Return the least name under which records of a session can have been put aside, and the least behind them all."""
    # No id has a slash, and the character behind it is `0`.
    return f"{id}/", f"{id}0"


class StoredSessions(ABC):
    """The sessions of one place."""

    notice: str | None = None
    """What was repaired as it was opened; None if nothing was."""
    _redactor: StepRedactor | None = None

    @abstractmethod
    def _open(self) -> SqlRows:
        """Return the rows, for who opens a session, or looks at them."""

    def _use(self, work: Callable[[SqlRows], T], *, stays_open: bool = False) -> T:
        """Do something with the rows, which `stay_open` afterwards if all went well."""
        rows = self._open()
        try:
            done = work(rows)
        except BaseException:
            rows.close()
            raise
        if not stays_open:
            rows.close()
        return done

    def session(
        self, id: str | None = None, *, agent: str, any_agent: bool = False, create: bool = False
    ) -> StoredSession:
        """Open a session of the agent called `agent`: a new one, or the one with this id, which `create` makes if there
        is none. An id has 1 to 200 characters that can be shown, no slashes, and not only dots.

        Damaged records, and those behind them, are put aside, with a `StoreRepaired` warning.

        Raises:
            StoreError: there is no such session, it is another agent's and not `any_agent`, the id cannot be one, or
                the place cannot be used.
            SessionInUse: somebody has it open.
        """
        return self.shared_session(id, agent=agent, any_agent=any_agent, create=create, has_turns=False)

    def shared_session(
        self, id: str | None, *, agent: str, any_agent: bool, create: bool, has_turns: bool = True
    ) -> StoredSession:
        """Open a session whose turns are durable runs, unless `has_turns` is false: what ends such a turn is written
        there, whoever drives it.

        Raises:
            StoreError, SessionInUse: as for `session`.
        """
        if id is not None:
            check_session_id(id)
        given: dict[str, Any] = {"agent": agent, "any_agent": any_agent, "create": create, "has_turns": has_turns}
        opened = self._use(lambda rows: open_rows(rows, id, **given, redactor=self._redactor), stays_open=True)
        opened.notice = opened.notice or self.notice
        return opened

    def sessions(self) -> list[SessionInfo]:
        """Return all sessions, the one that was last written to first."""
        return self._use(lambda rows: rows.list_infos())

    def snapshot(self, id: str) -> Snapshot:
        """Return what is stored of a session, unchanged: the last calls may have no results.

        Raises:
            StoreError: there is none.
        """
        return self._use(lambda rows: readable_records(rows.read(rows.get(id).id), id)[1])

    def messages(self, id: str) -> list[Message]:
        """Return the conversation of a session, its open calls closed."""
        return _close_calls(self.snapshot(id))

    def export(self, id: str) -> bytes:
        """Return a session as one JSON object. `load_messages` reads what is in its `messages`."""
        snapshot, (info,) = self.snapshot(id), self._use(lambda rows: rows.list_infos(id))
        names = ("id", "agent", "title", "created", "updated", "parent", "usage")
        document: dict[str, object] = {name: getattr(info, name) for name in names}
        document["waiting"] = [{"queue": text.queue, "text": text.text} for text in snapshot.waiting]
        document["messages"] = from_json(dump_messages(_close_calls(snapshot)))
        return to_json(document, indent=2)

    def branch(self, id: str, at: int) -> str:
        """Begin another session with the first `at` messages of this one, and return its id.

        Raises:
            StoreError: there is no such session, or it has fewer messages.
        """
        snapshot = self.snapshot(id)
        messages, turns = snapshot.messages, [turn for turn in snapshot.turns if turn.position < at]
        if not 0 < at <= len(messages):
            what = f"Session {id} cannot be branched at message {at}: it has {len(messages)}."
            raise StoreError(what, hint="Give the number of one of its messages, from 1 on.")

        def begin(rows: SqlRows) -> str:
            branch = open_rows(rows, None, agent=rows.get(id).agent, parent=id)
            branch.write(Step(position=0, messages=messages[:at], turns=turns))
            return branch.id

        return self._use(begin)

    def delete(self, id: str) -> None:
        """Forget a session, and its turns, if they were durable runs.

        Raises:
            StoreError: there is none.
            SessionInUse: somebody has it open.
        """

        def forget(rows: SqlRows) -> None:
            rows.get(id)
            rows.lock(id)  # whoever has it open would go on writing to what is not there
            rows.delete(id)

        self._use(forget)


def _close_calls(snapshot: Snapshot) -> list[Message]:
    """Return a conversation with its open calls closed."""
    staged = (Message("user", snapshot.staged),) if snapshot.staged else ()
    return list(History((*snapshot.messages, *staged)).export())


if TYPE_CHECKING:
    _session: type[PatientSession] = StoredSession
    _sessions: type[Sessions] = StoredSessions
