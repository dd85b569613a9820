"""What the tests of MCP get: small servers, each with a log of its own."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.program import Warm, running
from tests.mcp.small import ASKING, MODERN, Small


@pytest.fixture
def small(tmp_path: Path) -> Small:
    log = tmp_path / "server.log"
    log.touch()
    return Small(log)


@pytest.fixture(scope="session")
def older(warm: Warm) -> Iterator[str]:
    """The address of a server that asks, in the older form of the protocol."""
    with running("older", "http", start=partial(warm.start, program=ASKING)) as server:
        yield server.first_line()


@pytest.fixture(scope="session")
def newer(warm: Warm) -> Iterator[str]:
    """The address of a server that asks, in the newer form of the protocol."""
    with running("newer", "http", start=partial(warm.start, program=ASKING)) as server:
        yield server.first_line()


@pytest.fixture(params=["older", "newer"])
def either(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(str(request.param))


@pytest.fixture(scope="session")
def modern(warm: Warm) -> Iterator[str]:
    """The address of a server with tools of every kind."""
    with running("http", start=partial(warm.start, program=MODERN)) as server:
        yield server.first_line()
