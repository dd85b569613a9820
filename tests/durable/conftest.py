"""What the tests of durable runs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durable.processes import Stage, in_file, in_memory, in_postgres
from tests.support.postgres import NoPostgres, PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of these tests."""
    try:
        server = PostgresServer()
    except NoPostgres as error:
        pytest.skip(f"no Postgres can be had: {error}")
    yield server
    server.stop()


@pytest.fixture(params=["memory", "file", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A store, for each engine that there is."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.database()
        made = in_postgres(server, database)
        yield made
        made.close()
        server.drop(database)
        return
    made = in_memory() if request.param == "memory" else in_file(tmp_path / "runs.db")
    yield made
    made.close()
