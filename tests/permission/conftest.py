"""What the tests of permissions get."""

from pathlib import Path

import pytest

from tests.permission.workshop import Workshop


@pytest.fixture(scope="session")
def any_workshop() -> Workshop:
    return Workshop()


@pytest.fixture
def workshop(any_workshop: Workshop, tmp_path: Path) -> Workshop:
    any_workshop.open_in(tmp_path)
    return any_workshop
