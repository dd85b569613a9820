"""The server, once for each process of tests, or a reason to skip."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.aimock.server import Play, missing, serving

_numbers = count(1)


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if reason := missing():
        pytest.skip(reason)
    with serving(tmp_path_factory.mktemp("aimock")) as url:
        yield url


@pytest.fixture
def play(address: str) -> Play:
    return Play(f"play-{next(_numbers)}", address)
