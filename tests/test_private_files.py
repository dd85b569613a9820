"""What is made for data is its owner's alone; what is there stays as it is, and a store that others write to shut."""

import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from journeyman import Agent, Runtime, run_sync
from journeyman.errors import StoreError
from journeyman.models.cassette import Cassette
from journeyman.store import Store
from journeyman.testing.scripted import ScriptedModel
from journeyman.tools.background import in_folder


@pytest.fixture(autouse=True)
def wide_open() -> Iterator[None]:
    """Let the system take away no permission by itself."""
    before = os.umask(0)
    yield
    os.umask(before)


def record(path: Path) -> None:
    script = ScriptedModel(["Hello."])
    with Cassette(path, "all") as cassette:
        runtime = Runtime(model=cassette.model(script), journal=cassette.journal)
        run_sync(Agent(name="a", model=script), "Hi.", runtime=runtime).unwrap()


def write_output(path: Path) -> None:
    made = in_folder(path.parent)("bg-1", "x")
    assert not isinstance(made, Awaitable)
    made[0].close()


def write_store(path: Path) -> None:
    Store(path).close()


def modes_of(*paths: Path) -> list[str]:
    return [f"{stat.S_IMODE(path.stat().st_mode):o}" for path in paths]


@pytest.mark.parametrize("write", [record, write_output, write_store])
def test_a_file_and_its_folders_are_their_owners_alone(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "a" / "b" / "bg-1.jsonl"
    write(path)
    assert modes_of(path, path.parent, path.parent.parent) == ["600", "700", "700"]


@pytest.mark.parametrize("write", [record, write_output, write_store])
def test_a_folder_that_is_there_keeps_its_rights(tmp_path: Path, write: Callable[[Path], None]) -> None:
    folder = tmp_path / "a"
    folder.mkdir(mode=0o755)
    write(folder / "bg-1.jsonl")
    assert modes_of(folder / "bg-1.jsonl", folder) == ["600", "755"]


def test_a_cassette_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    record(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").chmod(0o644)
    record(tmp_path / "a.jsonl")
    assert modes_of(tmp_path / "a.jsonl") == ["644"]


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o602, 0o777])
def test_a_store_that_others_may_write_to_is_refused_with_how_to_repair_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "my chats.db"
    Store(path).close()
    path.chmod(mode)
    with pytest.raises(StoreError) as raised:
        Store(path)
    assert f"may be written by others (mode {mode:o})" in str(raised.value)
    hint = f"If you trust what is in it, run: chmod 600 '{path}'. Otherwise use another file."
    group = f" To trust all members of its group: JOURNEYMAN_STORE_GROUP={path.stat().st_gid}."
    assert raised.value.hint == hint + ("" if mode & 0o002 else group)
    path.chmod(0o600)
    Store(path).close()


@pytest.mark.skipif(os.name != "posix", reason="there are no groups")
def test_a_group_that_the_environment_names_may_write_to_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chats.db"
    Store(path).close()
    group = path.stat().st_gid
    for mode, named, is_opened in (
        (0o660, str(group), True),
        (0o664, str(group), True),
        (0o660, str(group + 1), False),
        (0o660, "no such group", False),
        (0o660, "", False),
        (0o666, str(group), False),
    ):
        path.chmod(mode)
        monkeypatch.setenv("JOURNEYMAN_STORE_GROUP", named)
        with nullcontext() if is_opened else pytest.raises(StoreError, match="may be written by others"):
            Store(path).close()


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640])
def test_a_store_that_others_may_only_read_is_opened(tmp_path: Path, mode: int) -> None:
    Store(tmp_path / "chats.db").close()
    (tmp_path / "chats.db").chmod(mode)
    Store(tmp_path / "chats.db").close()
