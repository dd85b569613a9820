"""What the tests of the command line get."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.program import Warm


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Runs commands, sooner than from nothing."""
    made = Warm(tmp_path_factory.mktemp("warm"))
    yield made
    made.close()
