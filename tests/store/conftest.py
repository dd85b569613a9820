"""What the tests of stores get."""

from pathlib import Path

import pytest

from tests.support.kept import kept as kept


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store is to be."""
    return tmp_path / "chats.db"
