"""The statements that reach a store: each that writes is a place at which the process may die.

They are counted by the connections themselves, whatever code sends them: a renamed method, or one more, hides none.
"""

import re
import sqlite3
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final, Protocol

import psycopg
from psycopg.pq import TransactionStatus

from journeyman.store.database import restored

_MARK: Final = re.compile(r"\?|%[sb](?:::\w+(?:\[\])?)?")
_WRITES: Final = re.compile(r"\b(?:(INSERT)(?: OR REPLACE)? INTO|(UPDATE)|(DELETE) FROM) (\w+)(?: \(([^)]*)\))?")
_SYNC: Final = re.compile(r"PRAGMA synchronous = (\w+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that writes, or the end of a transaction."""

    verb: str
    table: str = ""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What is given for the columns that it names."""

    def __str__(self) -> str:
        said = [str(self.values[each]) for each in ("key", "state", "kind", "status") if each in self.values]
        return " ".join((self.verb, *[each for each in (self.table, *said) if each]))


class Witness(Protocol):
    """Hears of each statement, in the thread that sends it."""

    def begins(self, statement: Statement) -> None: ...

    def ended(self, statement: Statement, *, n_rows: int) -> None: ...

    def committed(self, statements: Sequence[Statement], *, is_synced: bool) -> None:
        """Hear that these statements, each of which wrote something, can no longer be taken back."""
        ...


@cache
def _shape(text: str) -> tuple[str, str, tuple[str, ...]] | None:
    """Return what a statement does, to which table, and the column of each mark; None: it writes nothing."""
    found = [*_WRITES.finditer(text)]
    if not found:
        return None
    insert, update, delete, table, columns = found[-1].groups()
    names = list[str]()
    parts = _MARK.split(text)
    for part in parts[:-1]:
        before = re.search(r"(\w+) = $", part)
        names.append("" if before is None else before[1])
    given = [] if columns is None else columns.split(", ")
    n_before = len(_MARK.findall(text[: found[-1].end()]))
    if insert and len(names) - n_before >= len(given):
        names[n_before : n_before + len(given)] = given
    return insert or update or delete, table, tuple(names)


def statement_of(text: str, given: Any) -> Statement | None:  # noqa: ANN401 - whatever a driver takes
    """Return what a statement writes; None: nothing."""
    shape = _shape(text)
    if shape is None:
        return None
    verb, table, names = shape
    values = dict[str, Any]()
    for name, each in zip(names, given or (), strict=False):
        if name and not (verb == "UPDATE" and name in values):  # what it must be now comes after what it becomes
            values[name] = restored(each)
    return Statement(verb, table, values)


class _Heard:
    """What one connection has written in the transaction that goes on."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.written: list[Statement] = []
        self.is_synced = False
        self.n_kept = 0

    def ended(self, statement: Statement, *, n_rows: int, is_over: bool) -> None:
        if n_rows > 0:
            self.written.append(statement)
        if is_over:
            self.committed()
        self.witness.ended(statement, n_rows=n_rows)

    def committed(self) -> None:
        written, self.written = self.written, []
        self.witness.committed(written, is_synced=self.is_synced)


class FileConnection(sqlite3.Connection):
    """A connection to a file, which a witness hears."""

    heard: _Heard

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401 - of the driver
        statement = statement_of(sql, parameters)
        if synchronous := _SYNC.match(sql):
            self.heard.is_synced = synchronous[1] == "FULL"
        if sql == "SAVEPOINT work":
            self.heard.n_kept = len(self.heard.written)
        if sql.startswith("ROLLBACK"):
            del self.heard.written[self.heard.n_kept if sql == "ROLLBACK TO work" else 0 :]
        if sql == "COMMIT":
            return self._commit()
        if statement is None:
            return super().execute(sql, parameters)
        self.heard.witness.begins(statement)
        cursor = super().execute(sql, parameters)
        self.heard.ended(statement, n_rows=cursor.rowcount, is_over=not self.in_transaction)
        return cursor

    def _commit(self) -> sqlite3.Cursor:
        end = Statement("COMMIT")
        self.heard.witness.begins(end)
        cursor = super().execute("COMMIT")
        self.heard.committed()
        self.heard.witness.ended(end, n_rows=0)
        return cursor

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Any:  # noqa: ANN401 - of the driver
        for each in parameters:
            self.execute(sql, each)

    def cursor(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - of the driver
        raise AssertionError("nobody would hear what a cursor of its own sends: let it be heard, too")

    executescript = commit = cursor


class DatabaseCursor(psycopg.AsyncCursor[Any]):
    """Sends the statements of a connection to a database, which a witness hears."""

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:  # noqa: ANN401 - of the driver
        text = query.decode() if isinstance(query, bytes) else str(query)
        statement = Statement(text) if text == "COMMIT" else None
        statement = statement if statement or "CREATE TABLE" in text else statement_of(text, params)
        if statement is None:
            return await super().execute(query, params, **options)
        _of_database[-1].begins(statement)
        done = await super().execute(query, params, **options)
        connection: Any = self.connection
        if connection.info.pipeline_status:  # it is sent, and its answer comes later
            connection.sent.append((statement, self))
            if text != "COMMIT":
                _of_database[-1].ended(statement, n_rows=self.rowcount)
        else:
            is_over = connection.info.transaction_status == TransactionStatus.IDLE
            connection.heard.ended(statement, n_rows=self.rowcount, is_over=is_over)
        return done

    async def executemany(self, query: Any, params_seq: Any, **options: Any) -> None:  # noqa: ANN401 - of the driver
        for each in params_seq:
            await self.execute(query, each, **options)


_of_database: Final[list[Witness]] = []


class DatabaseConnection(psycopg.AsyncConnection[Any]):
    """A connection to a database, which a witness hears."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.heard = _Heard(_of_database[-1])
        self.sent = list[tuple[Statement, DatabaseCursor]]()
        """The statements of a pipeline, with the cursors that know once it is over how many rows they wrote."""
        self.cursor_factory = DatabaseCursor

    @asynccontextmanager
    async def pipeline(self) -> AsyncGenerator[psycopg.AsyncPipeline]:
        self.sent.clear()
        async with super().pipeline() as pipeline:
            yield pipeline
        if self.sent and self.sent[-1][0].verb == "COMMIT":
            *written, (end, _) = self.sent
            self.heard.written = [statement for statement, cursor in written if cursor.rowcount > 0]
            self.heard.committed()
            self.heard.witness.ended(end, n_rows=0)

    async def rollback(self) -> None:
        self.heard.written.clear()
        await super().rollback()

    @asynccontextmanager
    async def transaction(self, *given: Any, **options: Any) -> AsyncGenerator[psycopg.AsyncTransaction]:
        end = Statement("COMMIT")
        try:
            async with super().transaction(*given, **options) as transaction:
                yield transaction
                self.heard.witness.begins(end)
        except BaseException:
            self.heard.written.clear()
            raise
        self.heard.committed()
        self.heard.witness.ended(end, n_rows=0)


_connect_as: Final[Any] = vars(psycopg.AsyncConnection)["connect"].__func__
"""Connects as one of a class: `AsyncConnection` itself is the base of another one, which no witness hears."""


def hear_statements(witness: Witness) -> None:
    """Let a witness hear all that this process writes into stores from now on: for a process that ends with it."""

    def connect(*given: Any, **options: Any) -> sqlite3.Connection:
        connection = _connect(*given, **options)
        connection.heard = _Heard(witness)
        return connection

    _connect = partial(sqlite3.connect, factory=FileConnection)
    setattr(sqlite3, "connect", connect)  # noqa: B010 - of a module, which the type checker takes for constant
    _of_database.append(witness)
    setattr(psycopg.AsyncConnection, "connect", partial(_connect_as, DatabaseConnection))  # noqa: B010 - the same
