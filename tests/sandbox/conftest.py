"""What the tests of sandboxes get: a sandbox that holds here, and a workspace with what it must not touch around it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman.sandbox import Bubblewrap, Landlock
from tests.sandbox.stage import Stage, make_template, staged


def can_make_namespaces() -> bool:
    """Tell whether this kernel, and a container around it, let this process have namespaces of its own."""
    program = shutil.which("unshare")
    asked = [program or "", "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "true"]
    return program is not None and subprocess.run(asked, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="session")
def bubblewrap() -> Iterator[Bubblewrap]:
    sandbox = Bubblewrap()
    guarantees = sandbox.holds()
    if not guarantees.is_enough:
        if shutil.which("bwrap") is None:
            pytest.skip("bubblewrap is not installed: make test does it")
        assert not can_make_namespaces(), f"namespaces can be made here, and yet bubblewrap does not hold: {guarantees}"
        pytest.skip(f"no namespaces can be made here: {guarantees}")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def landlock() -> Landlock:
    sandbox = Landlock()
    if not sandbox.holds().held:
        pytest.skip(f"Landlock does not hold here: {sandbox.holds()}")
    return sandbox


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("stage") / "template")


@pytest.fixture
def stage(template: Path) -> Iterator[Stage]:
    with staged(template) as made:
        yield made


def make_unheld(folder: Path) -> Path:
    """Make a startup file whose path leaves no room for `.held`, and return the path."""
    room = os.pathconf(folder, "PC_PATH_MAX") - 1 - len(os.fsencode(folder)) - len("/.envrc")
    while room > 0:
        name = "d" * (min(room, 200) - 1 if room - 200 != 1 else 198)
        folder, room = folder / name, room - len(name) - 1
        folder.mkdir()
    (folder / ".envrc").write_text("x")
    return folder / ".envrc"
