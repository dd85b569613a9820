"""Changes of a store behind the back of the package. SQL that names one of its tables stands here: a test says what has
become of the store, and who changes the tables changes this file.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from journeyman.store.codec import checksum
from journeyman.store.log import first_crc

NEWER_RECORDINGS: Final = "UPDATE rec_format SET version = 99"
"""As a later version leaves the tables of recordings."""
WITHOUT_FORMAT: Final = """
CREATE TABLE new (version INTEGER, key BLOB); INSERT INTO new SELECT NULL, key FROM rec_format;
DROP TABLE rec_format; ALTER TABLE new RENAME TO rec_format
"""
NEWER_RUNS: Final = "UPDATE jm_version SET version = 7"
OLDER_RUNS: Final = "UPDATE jm_version SET version = 4"
WITHOUT_EVENTS: Final = "DROP TABLE rec_events"
OLD_RUN: Final = "UPDATE rec_runs SET seen = 1 WHERE n = 1"
LARGE_RUN: Final = "UPDATE rec_runs SET bytes = 2000000000 WHERE n = 2"


def alter(path: Path, statements: str) -> None:
    """Execute SQL in a store that is a file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(statements)


def change_format(path: Path, session: str, format: int) -> None:
    """Make the records of a session in a file those of another format, as a version that has it writes them."""
    with closing(sqlite3.connect(path)) as connection, connection:
        crc, query = first_crc(session), "SELECT n, kind, position, at, body FROM records WHERE session = ? ORDER BY n"
        for n, *facts, body in connection.execute(query, (session,)).fetchall():
            crc = checksum((*facts, format), body, crc)
            connection.execute("UPDATE records SET f = ?, crc = ? WHERE n = ?", (format, crc, n))
