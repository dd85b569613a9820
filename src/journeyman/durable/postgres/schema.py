"""The statements that make all tables of a database, for a role that may do so."""

from __future__ import annotations

from typing import Final

from journeyman.durable.postgres import procrastinate
from journeyman.durable.postgres.days import AHEAD, days_ddl
from journeyman.durable.records import wall_clock
from journeyman.store.database import make_recordings, make_tables

# Each day has two tables, and Postgres plans more slowly with thousands of them.
_MOST_DAYS: Final = 400


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
