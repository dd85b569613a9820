"""Changes of a store behind the back of the package. SQL that names one of its tables stands here: a test says what has
become of the store, and who changes the tables changes this file.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

NEWER_RECORDINGS: Final = "UPDATE rec_format SET version = 99"
"""As a later version leaves the tables of recordings."""
WITHOUT_FORMAT: Final = """
CREATE TABLE new (version INTEGER, key BLOB); INSERT INTO new SELECT NULL, key FROM rec_format;
DROP TABLE rec_format; ALTER TABLE new RENAME TO rec_format
"""
NEWER_RUNS: Final = "UPDATE jm_version SET version = 7"
OLDER_RUNS: Final = "UPDATE jm_version SET version = 3"
WITHOUT_EVENTS: Final = "DROP TABLE rec_events"
OLD_RUN: Final = "UPDATE rec_runs SET seen = 1 WHERE n = 1"
LARGE_RUN: Final = "UPDATE rec_runs SET bytes = 2000000000 WHERE n = 2"


def alter(path: Path, statements: str) -> None:
    """Execute SQL in a store that is a file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(statements)
