"""What the tests of permissions get."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.permission.places import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)
