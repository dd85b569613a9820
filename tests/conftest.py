"""What every test gets: asyncio as the only event loop, and how Hypothesis searches."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Without a deadline: on a busy machine a slow example is no failure. JOURNEYMAN_FUZZ makes the search longer.
settings.register_profile(
    "journeyman",
    deadline=None,
    max_examples=int(os.environ.get("JOURNEYMAN_FUZZ", settings().max_examples)),
    print_blob=True,
)
settings.load_profile("journeyman")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
