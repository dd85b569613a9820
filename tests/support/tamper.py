"""Changes of a store behind the back of the package. Tests say what becomes of it; SQL with its tables stands here."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg

from journeyman.definition.data import field_names
from journeyman.durable.records import Row
from journeyman.store.codec import checksum
from journeyman.store.recordings import events_path

NEWER_RECORDINGS: Final = "UPDATE rec_format SET version = 99"
"""As a later version leaves the tables of recordings."""
WITHOUT_FORMAT: Final = """CREATE TABLE new (version INTEGER, key BLOB); INSERT INTO new SELECT NULL, key
FROM rec_format; DROP TABLE rec_format; ALTER TABLE new RENAME TO rec_format"""
NEWER_RUNS: Final = "UPDATE jm_version SET version = 9"
OLDER_RUNS: Final = "UPDATE jm_version SET version = 4"
WITHOUT_MESSAGES: Final = "DELETE FROM rec_events WHERE kind = 'MessageCommitted'"
LONGEST_REQUEST: Final = "SELECT max(length(pieces)) FROM rec_requests"
STORED_PIECES: Final = "SELECT body FROM rec_pieces"
WITHOUT_A_LINE: Final = "DELETE FROM jm_conversation WHERE n = 2"
WITHOUT_EVENTS: Final = "DROP TABLE rec_events"
OLD_RUN: Final = "UPDATE rec_runs SET due = 1, until = 1, seen = 1 WHERE n = 1"
DONE_RUNS: Final = "UPDATE jm_runs SET status = 'done'"
LARGE_RUN: Final = "UPDATE rec_runs SET bytes = 2000000000 WHERE n = 2"


def multiply_runs(n: int) -> str:
    """Return the statement that adds runs beside the one that there is: as many as it, to the letter but for the id."""
    names = field_names(Row)
    values = {"id": "id || '-' || CAST(i AS TEXT)", "name": "NULL", "dedup": "NULL"}
    return (
        f"WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {n})"
        f" INSERT INTO jm_runs ({', '.join(names)}) SELECT {', '.join(values.get(each, each) for each in names)}"
        " FROM jm_runs, numbers"
    )


def alter(place: Path | str, statements: str) -> None:
    """Execute SQL in a store: a file, or a database."""
    if "://" in str(place):
        with psycopg.connect(str(place), autocommit=True) as database:
            database.execute(statements.encode())
    else:
        # Recordings have a file of their own.
        is_recorded = "rec_" in statements
        with closing(sqlite3.connect(events_path(Path(place)) if is_recorded else place)) as file, file:
            file.executescript(statements)


def change_format(path: Path, session: str, format: int) -> None:
    """Make the records of a session in a file those of another format, as a version that has it writes them."""
    with closing(sqlite3.connect(path)) as connection, connection:
        query = "SELECT session, n, kind, position, at, body FROM jm_conversation WHERE session = ?"
        for *facts, body in connection.execute(query, (session,)).fetchall():
            changes = (format, checksum((*facts, format), body), session, facts[1])
            connection.execute("UPDATE jm_conversation SET f = ?, crc = ? WHERE session = ? AND n = ?", changes)
