"""What the tests of served agents get: each generation of the protocol."""

import pytest


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """The generation: of 2026, without a handshake; and all before it."""
    return str(request.param)
