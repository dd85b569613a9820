"""What the tests of durable runs share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durable.processes import IN_POSTGRES, Stage, in_file, in_memory, in_postgres


@pytest.fixture(params=["memory", "file", IN_POSTGRES])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A store, for each engine that there is."""
    if request.param == "postgres":
        made = in_postgres(request.getfixturevalue("postgres"), request.getfixturevalue("emptied"))
    else:
        made = in_memory() if request.param == "memory" else in_file(tmp_path / "runs.db")
    yield made
    made.close()
