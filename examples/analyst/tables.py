"""A CSV file as a SQL table that can be read, and nothing else.

`Table.from_csv` loads the file into a temporary SQLite database. Whatever SQL comes in afterwards, from a model or
from a report, runs on a connection of its own that can only read, stops in time, and gives no more than it should.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
import time
import weakref
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from .csv_file import DataError, read_csv

Cell: TypeAlias = int | float | str | None
Kind: TypeAlias = Literal["integer", "number", "date", "text"]

MAX_ROWS = 200
"""The most rows that one query gives."""
MAX_CHARACTERS = 40_000
"""The most text that one query gives: fewer rows come where they are long."""
MAX_SECONDS = 5.0
"""The longest time that one query takes."""


class QueryError(ValueError):
    """A query does not work. The message says how to write one that does."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a query gives."""

    columns: list[str]
    rows: list[list[Cell]]
    note: str = ""
    """Says so when rows were left out."""


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """One column, at a glance. Empty cells are NULL and count in `empty` only; long texts are cut."""

    name: str
    kind: Kind
    distinct: int
    empty: int
    smallest: Cell
    largest: Cell
    frequent: list[Cell]
    """The three most frequent values."""


@dataclass(frozen=True, slots=True)
class Description:
    """A table, at a glance."""

    table: str
    rows: int
    columns: list[ColumnSummary]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Table:
    """A table to be read. Its database is deleted with it."""

    name: str
    kinds: dict[str, Kind]
    """The kind of each column, in the order of the file."""
    n_rows: int
    database: Path

    @classmethod
    def from_csv(cls, path: Path) -> Table:
        """Load a CSV file: UTF-8, commas, the first line names the columns. Empty fields become NULL.

        Raises:
            DataError: the file cannot be used; the message is one line.
        """
        columns, rows = read_csv(path)
        kinds: dict[str, Kind] = {name: _kind({row[index] for row in rows}) for index, name in enumerate(columns)}
        table = cls(_table_name(path), kinds, len(rows), _temporary_file())
        weakref.finalize(table, table.database.unlink, missing_ok=True)
        _fill(table, rows)
        return table

    def query(self, sql: str, *, max_rows: int = MAX_ROWS, max_seconds: float = MAX_SECONDS) -> Rows:
        """Run one SELECT.

        Raises:
            QueryError: it is wrong, does more than read, takes too long, or a value is too large.
        """
        self._check_names(sql)
        with self._reading(max_seconds) as connection:
            cursor = connection.execute(sql)
            rows = cursor.fetchmany(max_rows + 1)
        if not cursor.description:
            raise QueryError("That is no query. Write one SELECT statement.")
        shown = [[_cell(value) for value in row] for row in _within_size(rows[:max_rows])]
        cut = f"Only the first {len(shown)} rows are shown. Aggregate, filter or use LIMIT."
        return Rows([name for name, *_ in cursor.description], shown, cut if len(shown) < len(rows) else "")

    def number(self, sql: str) -> float:
        """Run one SELECT that gives a single number.

        Raises:
            QueryError: as `query`, or it gives something else.
        """
        rows = self.query(sql).rows
        match rows:
            case [[int() | float() as value]]:
                return float(value)
            case _:
                raise QueryError(f"It gives {len(rows)} rows, beginning {rows[:1]}, not one row with one number.")

    def count(self, column: str, value: str | None) -> int:
        """Return how many rows have this value, compared as text, in this column; None is an empty cell."""
        sql = f"SELECT COUNT(*) FROM {quoted(self.name)} WHERE CAST({quoted(column)} AS TEXT) IS ?"
        with self._reading(MAX_SECONDS) as connection:
            return int(connection.execute(sql, (value,)).fetchone()[0])

    def describe(self) -> Description:
        """Say what is in the table."""
        return Description(self.name, self.n_rows, [self._summary(name) for name in self.kinds])

    def _summary(self, name: str) -> ColumnSummary:
        kind, column, table = self.kinds[name], quoted(name), quoted(self.name)
        ends = f"{_brief(kind, f'MIN({column})')}, {_brief(kind, f'MAX({column})')}"
        facts = self.query(f"SELECT COUNT(DISTINCT {column}), COUNT({column}), {ends} FROM {table}")
        distinct, filled, smallest, largest = facts.rows[0]
        frequent = self.query(
            f"SELECT {_brief(kind, column)} FROM {table} WHERE {column} IS NOT NULL "
            f"GROUP BY {column} ORDER BY COUNT(*) DESC, {column} LIMIT 3"
        )
        return ColumnSummary(
            name=name,
            kind=kind,
            distinct=int(distinct or 0),
            empty=self.n_rows - int(filled or 0),
            smallest=smallest,
            largest=largest,
            frequent=[value for (value,) in frequent.rows],
        )

    @contextmanager
    def _reading(self, max_seconds: float) -> Generator[sqlite3.Connection]:
        """Open a connection that can do nothing but read, for so long."""
        deadline = time.monotonic() + max_seconds
        location = f"{self.database.as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(location, uri=True)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
            connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 20_000)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.set_authorizer(_only_reads)
            connection.set_progress_handler(lambda: time.monotonic() > deadline, 1_000)  # each may make a megabyte
            try:
                yield connection
            except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
                raise QueryError(self._advice(error, max_seconds)) from error

    def _advice(self, error: Exception, max_seconds: float) -> str:
        reason = str(error).rstrip(".")
        match getattr(error, "sqlite_errorname", ""):
            case "SQLITE_INTERRUPT":
                return f"The query took longer than {max_seconds:g} s and was stopped. Aggregate or filter first."
            case "SQLITE_AUTH":
                return f"{reason}. Only SELECT on {quoted(self.name)} is allowed: no PRAGMA, ATTACH or change."
            case "SQLITE_TOOBIG":
                return f"{reason}. A value may have a million bytes, the SQL 20,000."
            case _:
                return f"{reason}. {self._names()}"

    def _check_names(self, sql: str) -> None:
        """Refuse a name in double quotes that does not exist: SQLite would take it for a text, and count wrongly."""
        known = {self.name.lower(), *(name.lower() for name in self.kinds)}
        for name in _quoted_names(sql):
            if name.lower() not in known and not re.search(rf'\bas\s+"{re.escape(name)}"', sql, re.IGNORECASE):
                raise QueryError(f'no such column: "{name}". Texts take single quotes. {self._names()}')

    def _names(self) -> str:
        return f"The table is {quoted(self.name)}, its columns are {', '.join(map(quoted, self.kinds))}."


def quoted(name: str) -> str:
    """Return a column's or table's name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def _brief(kind: Kind, sql: str) -> str:
    return f"substr({sql}, 1, 200)" if kind == "text" else sql


_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}


def _only_reads(action: int, _first: str | None, name: str | None, *_where: str | None) -> int:
    allowed = action in _READING and not (action == sqlite3.SQLITE_FUNCTION and name in _FORBIDDEN)
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


_QUOTED = re.compile(r"""'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|"((?:[^"]|"")*)\"""", re.DOTALL)


def _quoted_names(sql: str) -> set[str]:
    """Find what stands in double quotes, outside of texts and comments."""
    return {found[1].replace('""', '"') for found in _QUOTED.finditer(sql) if found[1] is not None}


def _within_size(rows: Iterable[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    """Yield rows until they have given enough text."""
    left = MAX_CHARACTERS
    for row in rows:
        longest = max((len(value) for value in row if isinstance(value, str)), default=0)
        if longest > MAX_CHARACTERS // 2:
            raise QueryError(f"A value has {longest:,} characters. Use substr() or length() on it.")
        left -= sum(len(str(value)) for value in row)
        if left < 0:
            return
        yield row


def _cell(value: object) -> Cell:
    """Return a value that JSON can hold."""
    if isinstance(value, bytes):
        return f"({len(value)} bytes)"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    return value if isinstance(value, int | float | str) else None


_KINDS: dict[Kind, re.Pattern[str]] = {
    "integer": re.compile(r"[+-]?(0|[1-9]\d{0,17})"),
    "number": re.compile(r"[+-]?((0|[1-9]\d{0,14})(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?"),
    "date": re.compile(r"\d{4}-\d\d-\d\d([ T].*)?|\d{1,2}/\d{1,2}/\d{4}"),
}
"""From the narrowest on. A leading zero makes a code, not a number; 19 digits are more than a number can hold."""


def _kind(values: set[str]) -> Kind:
    filled = values - {""}
    for kind, form in _KINDS.items():
        if filled and all(map(form.fullmatch, filled)):
            return kind
    return "text"


def _table_name(path: Path) -> str:
    name = re.sub(r"\W+", "_", path.stem).strip("_").lower() or "data"
    return f"data_{name}" if name.startswith("sqlite_") else name  # those names are SQLite's own


def _temporary_file() -> Path:
    with tempfile.NamedTemporaryFile(prefix="analyst-", suffix=".sqlite", delete=False) as file:
        return Path(file.name)


_SQL_TYPES: dict[Kind, str] = {"integer": "INTEGER", "number": "REAL", "date": "TEXT", "text": "TEXT"}


def _fill(table: Table, rows: list[list[str]]) -> None:
    """Write the rows; SQLite turns the texts into what each column holds."""
    columns = ", ".join(f"{quoted(name)} {_SQL_TYPES[kind]}" for name, kind in table.kinds.items())
    places = ", ".join("?" * len(table.kinds))
    try:
        with closing(sqlite3.connect(table.database)) as connection, connection:
            connection.execute(f"CREATE TABLE {quoted(table.name)} ({columns})")
            values = ([field or None for field in row] for row in rows)
            connection.executemany(f"INSERT INTO {quoted(table.name)} VALUES ({places})", values)
    except sqlite3.Error as error:
        raise DataError(f"The table {table.name} cannot be loaded: {error}. Check free disk space.") from error
