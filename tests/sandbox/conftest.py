"""What the tests of sandboxes get: a sandbox that holds here, and a workspace with what it must not touch around it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman.sandbox import Bubblewrap
from tests.sandbox.stage import Stage, make_template, staged


@pytest.fixture(scope="session")
def bubblewrap() -> Iterator[Bubblewrap]:
    sandbox = Bubblewrap()
    guarantees = sandbox.holds()
    if not guarantees.is_enough:
        pytest.skip(f"bubblewrap does not hold here: {guarantees}")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("stage") / "template")


@pytest.fixture
def stage(template: Path) -> Iterator[Stage]:
    with staged(template) as made:
        yield made
