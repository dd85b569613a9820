"""What the tests of chats get."""

from pathlib import Path

import pytest

from tests.play import door as door
from tests.play import recorder as recorder
from tests.play import stage as stage
from tests.support.journaled import journaled as journaled
from tests.support.journaled import pytest_generate_tests as pytest_generate_tests
from tests.support.kept import kept as kept


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store is to be."""
    return tmp_path / "chats.db"
