"""The Postgres of the benchmarks, which writes to the disk as a true one does, and what it costs."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.postgres import NoPostgres, PostgresServer

_SETTINGS: Final = ("max_connections=800", "shared_buffers=1GB", "max_wal_size=4GB", "checkpoint_timeout=5min")
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")


@contextmanager
def postgres() -> Generator[PostgresServer]:
    """Give a server that was started for the benchmarks.

    Raises:
        SystemExit: there is none that can be started; says why.
    """
    try:
        server = PostgresServer(*_SETTINGS)
    except NoPostgres as error:
        raise SystemExit(f"No Postgres can be had: {error}") from error
    try:
        yield server
    finally:
        server.stop()


def cpu_s(server: PostgresServer) -> float:
    """Return how many seconds of CPU all processes of the server have used, those that have ended included."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended: its ticks are those of the first process now
            continue
        if int(stat.parent.name) == server.pid:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == server.pid:
            ticks += sum(map(int, fields[11:13]))
    return ticks / _TICKS_S
