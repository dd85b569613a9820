"""A workspace: which tools it gives, what they declare, whose files they work on, and what it costs to import."""

from pathlib import Path
from typing import cast, get_args

import pytest

import journeyman.toolbox
from journeyman import DefinitionError
from journeyman.toolbox import InMemoryFiles, Workspace, deferred_tools, fetch_tool
from journeyman.toolbox.workspace import ToolName
from tests.toolbox.player import Player


def test_each_tool_declares_what_it_does(folder: Path) -> None:
    declared = {each.name: (each.effect, each.parallel, each.untrusted) for each in Workspace(folder).tools()}
    assert declared == {
        **dict.fromkeys(("read", "glob", "grep", "ls"), ("pure", True, False)),
        "write": ("idempotent", False, False),
        **dict.fromkeys(("edit", "bash"), ("once", False, False)),
    }


def test_tools_come_in_the_order_in_which_they_are_asked_for_and_those_of_strangers_are_untrusted(folder: Path) -> None:
    assert [each.name for each in Workspace(folder).tools("edit", "read")] == ["edit", "read"]
    assert {each.name for each in Workspace(folder).tools()} == {*get_args(ToolName)}
    made = Workspace(folder, untrusted=True).tools("read", "grep", "bash", "edit")
    assert [each.untrusted for each in made] == [True, True, True, False]


def test_every_tool_says_what_it_and_its_parameters_are_for(folder: Path) -> None:
    for each in (*Workspace(folder).tools(), fetch_tool(), *deferred_tools([])):
        assert len(each.description) > 40
        properties = cast("dict[str, dict[str, object]]", each.spec.input_schema["properties"])
        assert [name for name, given in properties.items() if not given.get("description")] == []


def test_a_workspace_without_a_folder_is_a_wrong_definition(folder: Path) -> None:
    (folder / "file").touch()
    for wrong in ("none", "file"):
        with pytest.raises(DefinitionError, match="NO_WORKSPACE"):
            Workspace(folder / wrong)
    with pytest.raises(DefinitionError, match="UNKNOWN_TOOL"):
        Workspace(folder).tools("reed")  # pyright: ignore[reportArgumentType] - what a typing error leads to


async def test_files_in_memory_are_worked_on_like_others() -> None:
    files = InMemoryFiles({"/project/src/a.py": "one\n", "/secret.txt": "secret\n", "/project/.gitignore": "*.log\n"})
    player = Player(Workspace("/project", files=files))
    assert await player.text("read", path="src/a.py") == "1\tone"
    assert "Edited" in await player.text("edit", path="src/a.py", old_text="one", new_text="two")
    await player.text("write", path="x/new.log", content="two\n")
    assert files.read("/project/src/a.py", 99) == b"two\n"
    assert await player.text("grep", pattern="two") == "src/a.py\n1:two"
    assert await player.text("glob", pattern="**") == "src/a.py\n.gitignore"
    assert await player.text("ls", depth=2) == "src/\n  a.py\nx/\n  new.log\n.gitignore"
    for path in ("../secret.txt", "/secret.txt", "src/../../secret.txt"):
        assert "outside of the workspace" in await player.refused("read", path=path)
    assert "does not exist" in await player.refused("read", path="none/b.py")
    assert "is not a regular file" in await player.refused("write", path="src", content="x")


def test_commands_cannot_see_files_in_memory() -> None:
    workspace = Workspace("/project", files=InMemoryFiles())
    assert "bash" not in {each.name for each in workspace.tools()}
    with pytest.raises(DefinitionError, match="NO_COMMANDS"):
        workspace.tools("bash")


def test_a_file_in_memory_is_no_folder_and_the_other_way_round() -> None:
    files = InMemoryFiles({"/a/b": "x"})
    for path, error in (("/a", IsADirectoryError), ("/a/b/c", NotADirectoryError)):
        with pytest.raises(error):
            files.replace(path, b"")
    with pytest.raises(FileNotFoundError):
        files.read("/a", 1)
    with pytest.raises(FileNotFoundError):
        files.list("/none")


def test_every_name_of_the_front_page_is_there_and_they_are_in_order() -> None:
    names = journeyman.toolbox.__all__
    assert names == sorted(names) == dir(journeyman.toolbox)
    assert all(getattr(journeyman.toolbox, name) for name in names)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(journeyman.toolbox, "nothing")  # noqa: B009 - a name that a type checker would refuse
