"""A recording stays in the project in which somebody works: where a store is looked for, and where no more."""

import os
import subprocess
from pathlib import Path

import pytest

from journeyman.cli.durable import find_project_store
from tests.cli.program import Warm, assert_one_error_line

OTHER = 12345
"""The number of another user, who need not exist."""
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder to another user"
)


def make_store(folder: Path) -> Path:
    """Make what stands for a store: that it is there is all that is asked."""
    (folder / ".journeyman").mkdir(parents=True)
    (folder / ".journeyman" / "runs.db").touch()
    return folder / ".journeyman" / "runs.db"


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store, somewhere below the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    make_store(tmp_path / "top")
    return tmp_path / "top"


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def test_the_nearest_store_is_taken(top: Path) -> None:
    deep = made(top / "deep" / "er")
    assert find_project_store(deep) == top / ".journeyman" / "runs.db"
    nearer = make_store(top / "deep")
    assert find_project_store(deep) == nearer
    (nearer.parent / "runs.db").unlink()
    assert find_project_store(deep) == top / ".journeyman" / "runs.db", "a folder without a store is passed by"


@pytest.mark.parametrize("kind", ["folder", "worktree"])
def test_a_store_above_the_root_of_the_checkout_is_another_projects(top: Path, kind: str) -> None:
    root = made(top / "clients" / "acme")
    (root / ".git").mkdir() if kind == "folder" else (root / ".git").write_text("gitdir: ../elsewhere\n")
    source = made(root / "src")
    assert find_project_store(source) is None
    assert find_project_store(root) is None
    own = make_store(root)
    assert find_project_store(source) == own


def test_a_real_worktree_is_a_checkout_of_its_own(top: Path) -> None:
    def git(*words: str, cwd: Path) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=cwd, check=True, capture_output=True)

    main = made(top / "main")
    git("init", cwd=main)
    git("commit", "--allow-empty", "--message", "first", cwd=main)
    make_store(main)
    git("worktree", "add", "branch", cwd=main)
    assert find_project_store(main / "branch") is None


def test_a_store_above_the_home_directory_is_never_taken(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = made(top / "home")
    work = made(home / "work")
    monkeypatch.setenv("HOME", str(home))
    assert find_project_store(work) is None
    own = make_store(home)
    assert find_project_store(work) == own


def test_a_home_that_is_a_link_is_the_border_too(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = made(top / "home" / "work")
    (top.parent / "link").symlink_to(top / "home")
    monkeypatch.setenv("HOME", str(top.parent / "link"))
    assert find_project_store(work) is None


def test_outside_of_the_home_directory_every_folder_of_ones_own_is_looked_at(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(made(top / "home")))
    assert find_project_store(made(top / "srv" / "app")) == top / ".journeyman" / "runs.db"


@as_root
def test_the_search_ends_at_a_folder_of_another_user(top: Path) -> None:
    work = made(top / "theirs" / "mine")
    os.chown(top / "theirs", OTHER, OTHER)
    assert find_project_store(work) is None
    assert find_project_store(top / "theirs") == top / ".journeyman" / "runs.db", "one may work in such a folder"


@as_root
@pytest.mark.parametrize("linked", [False, True])
def test_a_store_of_another_user_is_never_taken_and_none_is_made_in_its_place(
    top: Path, warm: Warm, linked: bool
) -> None:
    theirs = top / ".journeyman"
    if linked:  # to a store of one's own, which another user has chosen
        theirs.rename(top / "elsewhere")
        theirs.symlink_to(top / "elsewhere")
    os.chown(theirs, OTHER, OTHER, follow_symlinks=False)
    assert find_project_store(top) is None
    done = warm("demo", "--record", cwd=top)
    assert_one_error_line(done, 2, [f"The folder {theirs} belongs to another user. Name a file of your own"])


def test_two_projects_below_one_folder_do_not_see_each_others_runs(top: Path, warm: Warm) -> None:
    environment = {"HOME": str(top.parent)}
    projects = [made(top / name) for name in ("one", "two")]
    for project in projects:
        (project / ".git").mkdir()
        done = warm("demo", "--record", "--quiet", cwd=project, env=environment)
        assert done.code == 0
        assert (project / ".journeyman" / "runs.db").is_file()
        listed = warm("runs", cwd=made(project / "src"), env=environment).stdout.splitlines()
        assert len(listed) == 2, "a heading, and its own run"
    assert (top / ".journeyman" / "runs.db").stat().st_size == 0
