"""Where an exam is taken: the fixtures that give each implementation of a port, by the list of `ports`."""

from collections.abc import Iterator

import pytest

from tests.durable.processes import Stage, in_file, in_memory, in_postgres
from tests.exams.ports import PLACES


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[Stage | None]:
    """Where a durable run is stored; None: there is none, and all goes on in the process of the run."""
    made: Stage | None = None
    if request.param == "postgres":
        made = in_postgres(request.getfixturevalue("postgres"), request.getfixturevalue("emptied"))
    elif request.param == "file":
        made = in_file(request.getfixturevalue("tmp_path") / "runs.db")
    elif request.param == "memory":
        made = in_memory()
    yield made
    if made is not None:
        made.close()
