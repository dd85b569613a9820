"""The rows of recordings in a Postgres database, which processes on many machines may share.

Each has one connection to the database itself, which holds the lock of who records there, and hears what others say.
Who writes connects again for a while when it is lost, and writes all of it once more, which changes nothing if only the
answer was lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from functools import lru_cache, partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from journeyman.errors import StoreError
from journeyman.store.client import (
    Client,
    do_here,
    in_transaction,
    rows_of,
    run_now,
    take_lock_of,
    wait_here,
    without_limit,
)
from journeyman.store.database import (
    HELD,
    NOTICED,
    NUMBERING,
    Database,
    lock_number,
    make_recordings,
    make_tables,
    restored,
    storable_value,
)
from journeyman.store.storage import SAY, Statement, Storage

if TYPE_CHECKING:
    from psycopg import AsyncCursor

    from journeyman.store.client import Connection

T = TypeVar("T")

ANSWER_S: Final = 30.0
"""How many seconds to wait for an answer before the connection counts as lost. A recorder has a thread of its own,
so nothing else waits for it."""
PATIENCE_S: Final = 30.0
"""How many seconds a recorder waits for a database that is away."""
_BRIEFLY_S: Final = 5.0
"""How many seconds everybody else who writes waits for it."""
# Whoever records and has lost its connection is back sooner.
_GONE_S: Final = 0.5
# Looks at the locks are remembered so long: a list of many recordings waits once, and not for each.
_REMEMBERED_S: Final = 5.0
_NUMBERS: Final = f"SELECT number FROM ({HELD}) AS held"
_NUMBERING: Final = f"SELECT pg_advisory_xact_lock({NUMBERING}::bigint)"
_BEGUN: Final = f"{NOTICED}, set_config('statement_timeout', '{ANSWER_S * 1000:.0f}', false)"
_MAY_WRITE: Final = "INSERT INTO rec_words (run, at, body) SELECT '', 0, '' WHERE false"
_SIZE: Final = (
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE relkind = 'r'"
    " AND relname ~ '^(jm|rec)_' AND pg_table_is_visible(oid)"
)
_TABLES: Final = ("rec_runs", "rec_events", "rec_requests", "rec_pieces", "rec_watched", "rec_words")
_TO_LOOKERS, _TO_RECORDERS = "journeyman_recorded", "journeyman_said"
"""The channels on which who looks is told of what was recorded, and recorders of what was said."""
_SPELLINGS: Final = (
    (re.compile("%"), "%%"),
    (re.compile(r"CAST\(\? AS TEXT\)"), "convert_to(?, 'UTF8')"),
    (re.compile(r"\?"), "%s"),
    (re.compile(r"\binstr\("), 'pg_catalog."position"('),
    (re.compile(r"\bLIKE\b"), "ILIKE"),
    (re.compile(r"CAST\(([^()]+) AS INTEGER\)"), r"floor(\1)::bigint"),
    (re.compile(r"\bbody ->> '(\w+)'"), r"convert_from(body, 'UTF8')::json ->> '\1'"),
)
"""What SQLite reads in another way."""


@lru_cache(maxsize=512)
def _spell_for_postgres(statement: str) -> str:
    """Return a statement as Postgres reads it."""
    for pattern, instead in _SPELLINGS:
        statement = pattern.sub(instead, statement)
    return statement


def _values(given: Sequence[object]) -> list[Any]:
    # The columns are numbers, since SQLite has no truth values.
    return [int(each) if isinstance(each, bool) else storable_value(each) for each in given]


def _restored_rows(found: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [tuple([restored(value) for value in row]) for row in found]


class SharedStorage:
    """Rows in a database."""

    def __init__(self, url: str, *, owner: str | None) -> None:
        """Connect, and hold what is there as `owner`; None: it is only looked at.

        Raises:
            StoreError: the database cannot be used.
        """
        try:
            database = Database(url)
        except ValueError as error:  # of an option
            raise StoreError(str(error), hint="Look at the URL.") from None
        name = owner or "reader"
        self.place: Final = database.place
        self.notice: Final = None
        self.owner: Final = owner
        self.client: Final = Client(
            database,
            waiting=wait_here(ANSWER_S),
            name=name,
            settings=_BEGUN,
            channel=_TO_LOOKERS if owner is None else _TO_RECORDERS,
            take=None if owner is None else partial(take_lock_of, owner),
            always={"application_name": f"journeyman {name}"},
        )
        """Has the one connection. One that is lost is lost with what was begun on it."""
        self._alone = RLock()
        self._version = 0
        self._looks: list[tuple[float, set[int]]] = []
        """Which locks were held, and when."""
        self._tells: Final = (b"SELECT pg_notify(%s, %s)", (_TO_RECORDERS if owner is None else _TO_LOOKERS, name))
        """The statement that tells others that something was written."""
        run_now(self.client.open("Recordings", self._prepare))

    async def _prepare(self, made: Connection, is_lacking: bool) -> None:
        if self.owner is None:
            return
        if is_lacking:
            await made.execute(make_tables().encode())
        ((has_all,),) = await rows_of(made, "SELECT to_regclass('rec_words') IS NOT NULL")  # the newest
        # The statement that writes nothing fails where writing would.
        await made.execute((_MAY_WRITE if has_all else make_recordings()).encode())

    def _do(self, what: str, work: Callable[[Connection], Awaitable[T]], *, patience_s: float = 0.0) -> T:
        with self._alone:
            try:
                return do_here(self.client, what, work, patience_s=patience_s)
            except StoreError as fault:
                fault.is_busy = fault.may_pass and patience_s < PATIENCE_S  # else it was waited for long enough
                raise

    def rows(self, query: str, given: Sequence[object] = (), /) -> list[Any]:
        return _restored_rows(self._do("read", lambda made: rows_of(made, _spell_for_postgres(query), _values(given))))

    def write(self, *said: Statement, tells: bool = False, is_large: bool = False) -> list[Any]:
        async def work(made: Connection) -> list[Any]:
            cursor = made.cursor(binary=True)
            # Without waiting for each answer: a batch has many statements.
            with without_limit(made) if is_large else nullcontext():
                async with in_transaction(made):
                    if is_large:
                        await made.execute(b"SET LOCAL statement_timeout = 0")
                    for statement, rows in said:
                        cursor = await self._send(made, statement, rows)
                    if tells:
                        await made.execute(*self._tells)
            return _restored_rows(await cursor.fetchall()) if cursor.description else []

        return self._do("written", work, patience_s=_BRIEFLY_S if self.owner is None else PATIENCE_S)

    async def _send(self, made: Connection, statement: str, rows: Sequence[Sequence[object]]) -> AsyncCursor[Any]:
        cursor, spelled = made.cursor(binary=True), _spell_for_postgres(statement).encode()
        if len(rows) == 1:
            await cursor.execute(spelled, _values(rows[0]))
        else:
            await cursor.executemany(spelled, [_values(row) for row in rows])
        return cursor

    def say(self, given: Sequence[object], /) -> None:
        self.write((_NUMBERING, [()]), (SAY, [given]), tells=True)

    def has(self, table: str) -> bool:
        return self.rows("SELECT to_regclass(?) IS NOT NULL", (table,))[0][0]

    def version(self) -> int:
        """A database that is away has no news: whoever reads it is told."""
        from psycopg import Error

        with self._alone:
            if self.client.has_news():
                with suppress(Error):
                    run_now(self.client.hold())
                    self._version += 1
            return self._version

    def size(self) -> int:
        return self.rows(_SIZE)[0][0]

    def reclaim(self) -> str | None:
        warned: list[str] = []

        async def work(made: Connection) -> None:
            made.add_notice_handler(lambda told: warned.append(told.message_primary or ""))
            # To vacuum a table may take any time.
            with without_limit(made):
                await made.execute(b"SET statement_timeout = 0")
                for table in _TABLES:
                    await made.execute(f"VACUUM {table}".encode())

        try:
            self._do("vacuumed", work)
        finally:
            self.client.lose()  # with what was set for it
        if not warned:
            return None
        return f"{self.place} uses the room again once it was vacuumed by its owner, or by itself: {warned[0]}."

    def is_held(self, owner: str) -> bool:
        """One who has lost its connection connects again in a moment: gone is who is not there for longer."""
        number = lock_number(owner)
        with self._alone:
            while True:
                held = {each for (each,) in self.rows(_NUMBERS)}
                now_s = time.monotonic()
                self._looks = [each for each in self._looks if each[0] > now_s - _REMEMBERED_S]
                self._looks.append((now_s, held))
                missed_s = next(at_s for at_s, then in self._looks if then is held or number not in then)
                if number in held or now_s - missed_s >= _GONE_S:
                    return number in held
                time.sleep(missed_s + _GONE_S - now_s)

    def close(self) -> None:
        with self._alone:
            self.client.close()


if TYPE_CHECKING:
    _storage: type[Storage] = SharedStorage
