"""What the tests of the toolbox get: a workspace in a folder of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman.toolbox import Workspace
from tests.toolbox.player import Player


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The root of the workspace, with something beside it that is none of its business."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret\n")
    root = tmp_path / "project"
    root.mkdir()
    return root


@pytest.fixture
def player(folder: Path) -> Iterator[Player]:
    with Workspace(folder) as workspace:
        yield Player(workspace)
