"""The choice of the one dispatcher that brings the runs of a database: each brings only the tickets that it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from journeyman.durable.dispatch import Dispatcher
from journeyman.durable.postgres import pgqueuer, procrastinate
from journeyman.durable.postgres.days import AHEAD, days_ddl
from journeyman.durable.postgres.pgqueuer import PgQueuer
from journeyman.durable.postgres.procrastinate import Procrastinate
from journeyman.durable.postgres.tickets import Lender
from journeyman.durable.records import wall_clock
from journeyman.errors import StoreError
from journeyman.store.database import Database, make_recordings, make_tables

if TYPE_CHECKING:
    from journeyman.durable.postgres.connections import Connection

DispatcherName: TypeAlias = Literal["procrastinate", "pgqueuer"]
"""The queues in Postgres that are built in."""
_DEFAULT: Final[DispatcherName] = "procrastinate"
DISPATCHERS: Final = {"procrastinate": Procrastinate, "pgqueuer": PgQueuer}
_SCHEMAS: Final = {"procrastinate": procrastinate.schema, "pgqueuer": pgqueuer.schema}
_MARKS: Final[dict[DispatcherName, str]] = {"procrastinate": "jm_tickets", "pgqueuer": pgqueuer.TABLE}
"""What is in a database whose runs one of them brings."""
_UNMARK: Final[dict[DispatcherName, str]] = {
    "procrastinate": f"psql URL -c 'DROP INDEX {_MARKS['procrastinate']}'",
    "pgqueuer": "pgq --prefix jm_ --pg-dsn URL uninstall",
}
# Each day has two tables, and Postgres plans more slowly with thousands of them.
_MOST_DAYS: Final = 400
_MARKED: Final = (
    f"SELECT to_regclass('{_MARKS['procrastinate']}') IS NOT NULL, to_regclass('{_MARKS['pgqueuer']}') IS NOT NULL"
)


def schema_sql(dispatcher: DispatcherName = _DEFAULT, *, days: int = AHEAD) -> str:
    """Return the statements that make all tables that are not there, and those of today and of so many days after it.

    Those of the dispatcher are last, and fail where they are there.

    Raises:
        ValueError: there is no such dispatcher, or `days` is less than 0, or more than 400.
    """
    _check_dispatcher(dispatcher)
    if not 0 <= days <= _MOST_DAYS:
        raise ValueError(f"Tables of {days:,} days cannot be made ahead. Give a number from 0 to {_MOST_DAYS:,}.")
    return f"{make_tables()}{make_recordings()}{days_ddl(wall_clock(), days)}BEGIN;\n{_SCHEMAS[dispatcher]()}COMMIT;\n"


def named(given: DispatcherName | Dispatcher | None, lender: Lender, *, lease_s: float) -> Dispatcher:
    """Return a dispatcher. None: the one that is taken where nobody has named one.

    Raises:
        ValueError: there is none of that name.
    """
    if given is not None and not isinstance(given, str):
        return given
    _check_dispatcher(given or _DEFAULT)
    return DISPATCHERS[given or _DEFAULT](lender, lease_s=lease_s)


async def choose(given: DispatcherName | None, connection: Connection, database: Database) -> DispatcherName:
    """Return who brings the runs of a database: who was named, or whose tables are there.

    Raises:
        StoreError: another one was named, or the tables of several are there.
    """
    [marked] = await (await connection.execute(_MARKED.encode())).fetchall()
    found: list[DispatcherName] = [each for each, is_there in zip(_MARKS, marked, strict=True) if is_there]
    name: DispatcherName = given if given is not None else found[0] if found else _DEFAULT
    # Tickets of the other one would never be brought.
    for other in found:
        if other != name:
            raise StoreError(
                f"{database.place} has its runs brought by {other}, not by {name}.",
                hint=f"Name {other}. Or, while no worker runs: {_UNMARK[other]}; what was ready is then brought by"
                f" {name} within two minutes.",
            )
    database.ddl = "schema_sql()" if name == _DEFAULT else f"schema_sql('{name}')"
    return name


def _check_dispatcher(name: str) -> None:
    if name not in DISPATCHERS:
        raise ValueError(f"There is no dispatcher {name!r}. Give {' or '.join(map(repr, DISPATCHERS))}, or an object.")
