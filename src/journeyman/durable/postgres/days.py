"""The days by which steps and signals are kept in Postgres: a table for each day on which runs began.

The tables of a week are made ahead, by whoever sweeps; what finds no table of its day lies in the default one, and is
moved when there is one. What is over is dropped as a table, and no row of it is deleted one by one: what is still
needed of such a day is copied to the default table first.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from journeyman.durable.postgres import procrastinate
from journeyman.durable.records import wall_clock
from journeyman.store.client import rows_of
from journeyman.store.database import MIGRATING, make_recordings, make_tables

if TYPE_CHECKING:
    from journeyman.store.client import Connection

_log = logging.getLogger("journeyman")

AHEAD: Final = 7
"""So many days after today have their tables. Whoever sweeps may be away for some days, and rows in the default
table have to be moved later."""
MOST_KEPT: Final = 10_000
"""A day of which more runs than this are left is not dropped, because copying them would keep all others waiting."""
# Each day has two tables, and Postgres plans more slowly with thousands of them.
_MOST_DAYS: Final = 400
_TABLES: Final = ("jm_steps", "jm_signals")
_LOCKED: Final = f"SET LOCAL lock_timeout = '1s'; SELECT pg_advisory_xact_lock({MIGRATING}::bigint);"
"""A process that waits longer for a table keeps all others waiting, too."""
_PARTS: Final = (
    "SELECT p.relname, c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON"
    " c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent"
    " WHERE i.inhparent IN (to_regclass('jm_steps'), to_regclass('jm_signals')) ORDER BY c.relname"
)
_RANGE: Final = re.compile(r"FOR VALUES FROM \((MINVALUE|'[^']*')\) TO \('([0-9a-f]{8}-[0-9a-f]{4})'\)")
_DAY: Final = """
DO $$ BEGIN
IF to_regclass('{table}_{name}') IS NULL THEN
    CREATE TABLE {table}_{name} (LIKE {table} INCLUDING ALL) WITH (autovacuum_vacuum_scale_factor = 0.01);
    LOCK TABLE {table}_default IN ACCESS EXCLUSIVE MODE;
    INSERT INTO {table}_{name} SELECT * FROM {table}_default WHERE run >= '{begin}' AND run < '{end}';
    DELETE FROM {table}_default WHERE run >= '{begin}' AND run < '{end}';
    ALTER TABLE {table} ATTACH PARTITION {table}_{name} FOR VALUES FROM ('{begin}') TO ('{end}');
END IF;
EXCEPTION WHEN invalid_object_definition THEN NULL; -- a table that was there before there were days has it
END $$;"""
_LEFT: Final = (
    "SELECT count(*) FROM (SELECT FROM jm_runs WHERE (%s::text IS NULL OR id >= %s::text) AND id < %s::text"
    " LIMIT %s::bigint) AS run"
)


class Days(NamedTuple):
    """A table of some days."""

    table: str
    """Whose part it is: `jm_steps` or `jm_signals`."""
    name: str
    begin: str | None
    """The beginning of the ids of its runs; None: it has all before `end`."""
    end: str
    """The beginning of the ids in the next table."""


def prefix_of(moment: float) -> str:
    """Return how the ids of runs begin that were begun from a moment on, in seconds since 1970."""
    # As the first twelve digits of a UUID of version 7, which are its milliseconds: a day is a range of ids.
    text = f"{int(moment * 1000) & (1 << 48) - 1:012x}"
    return f"{text[:8]}-{text[8:]}"


def schema_sql(days: int = AHEAD) -> str:
    """Return the statements that make all tables that are not there, and those of today and of so many days after it.

    Those of Procrastinate are last, and fail where they are there. A dispatcher of your own makes its tables itself.

    Raises:
        ValueError: `days` is less than 0, or more than 400.
    """
    # Before, this was the name of the dispatcher whose tables were to be made.
    if isinstance(days, str) or not 0 <= days <= _MOST_DAYS:
        raise ValueError(
            f"Tables of {days!r} days cannot be made ahead. Give a number from 0 to {_MOST_DAYS}. The tables of a"
            " dispatcher of your own are made by its `setup`."
        )
    dispatcher = procrastinate.schema()
    return f"{make_tables()}{make_recordings()}{days_ddl(wall_clock(), days)}BEGIN;\n{dispatcher}COMMIT;\n"


def days_ddl(now: float, days: int = AHEAD) -> str:
    """Return the statements that make the tables of today and of so many days after it, unless they are there."""
    made = [_DAY.format(table=table, **day) for day in days_of(now, days) for table in _TABLES]
    return "".join(f"BEGIN;{each}COMMIT;\n" for each in made)


def days_of(now: float, days: int) -> list[dict[str, str]]:
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begins = [today + timedelta(days=n) for n in range(days + 2)]
    bounds = [prefix_of(each.timestamp()) for each in begins]
    return [
        # The days of UTC, wherever the machine is: the bounds of tables must not depend on it.
        {"name": f"{day:%Y%m%d}", "begin": begin, "end": end}
        for day, begin, end in zip(begins, bounds, bounds[1:], strict=False)
    ]


async def parts(connection: Connection) -> list[Days]:
    """Return the tables of days that there are."""
    found = await rows_of(connection, _PARTS)
    ranges = [(table, name, _RANGE.fullmatch(bound or "")) for table, name, bound in found]
    return [
        Days(table, name, None if at[1] == "MINVALUE" else at[1].strip("'"), at[2])
        for table, name, at in ranges
        if at is not None
    ]


async def make_days(connection: Connection, now: float) -> bool:
    """Make the tables of this week that are not there. False: this role may not.

    Where somebody holds the tables for longer than a second, it is left to the next one who sweeps.
    """
    from psycopg.errors import InsufficientPrivilege, LockNotAvailable

    there = await parts(connection)
    lacking = [
        _DAY.format(table=table, **day)
        for day in days_of(now, AHEAD)
        for table in _TABLES
        if not any(each.table == table and (each.begin or "") <= day["begin"] < each.end for each in there)
    ]
    if not lacking:
        return True
    try:
        async with connection.transaction():
            await connection.execute(f"{_LOCKED}{''.join(lacking)}".encode())
    except LockNotAvailable as error:
        _log.debug("The tables of the coming days cannot be made now: %s", error)
    except InsufficientPrivilege:
        return False
    return True


async def drop_days(connection: Connection, before: float, *, most_kept: int = MOST_KEPT) -> int:
    """Drop the tables of days that were over at a moment. What is stored of runs that are still there is kept.

    Return how many tables those were. One stays of which more than `most_kept` runs are left, or that somebody holds.
    """
    from psycopg.errors import LockNotAvailable

    n_dropped = 0
    for part in await parts(connection):
        if part.end > prefix_of(before):
            continue
        given: list[Any] = [part.begin, part.begin, part.end]
        [(n_left,)] = await rows_of(connection, _LEFT, [*given, most_kept + 1])
        if n_left > most_kept:
            _log.warning("%s is kept: more than %d of its runs are left.", part.name, most_kept)
            continue
        try:
            async with connection.transaction():
                await connection.execute(_LOCKED.encode())
                # What is still needed is copied while nobody can write to it.
                await connection.execute(f"ALTER TABLE {part.table} DETACH PARTITION {part.name}".encode())
                which = "(SELECT id FROM jm_runs WHERE (%s::text IS NULL OR id >= %s::text) AND id < %s::text)"
                copy = f"INSERT INTO {part.table} SELECT * FROM {part.name} WHERE run IN {which}"
                await connection.execute(copy.encode(), given)
                await connection.execute(f"DROP TABLE {part.name}".encode())
            n_dropped += 1
        except LockNotAvailable as error:
            _log.warning("%s is dropped the next time: %s", part.name, error)
    return n_dropped
