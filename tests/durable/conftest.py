"""What the tests of durable runs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman.durable import ddl
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


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The address of a database, in which the tables are."""
    name = postgres.database(ddl())
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def emptied(postgres: PostgresServer) -> str:
    """The address of a database with empty tables, in which nobody else is: the same for all tests."""
    return postgres.url(postgres.emptied(ddl(), "jm_runs", "jm_steps", "jm_signals"))


@pytest.fixture(params=["memory", "file", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A store, for each engine that there is."""
    if request.param == "postgres":
        made = in_postgres(request.getfixturevalue("postgres"), request.getfixturevalue("emptied"))
    else:
        made = in_memory() if request.param == "memory" else in_file(tmp_path / "runs.db")
    yield made
    made.close()
