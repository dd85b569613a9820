"""A project's AGENTS.md files: found from the folder upwards to the project's top, the nearest with the last word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from journeyman import Agent, DefinitionError, Text, run
from journeyman.model import Request
from journeyman.models.scripted import FromFunction
from journeyman.toolbox import project_memory


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a part that has rules of its own, below a folder that is not of the project."""
    (tmp_path / "AGENTS.md").write_text("Of a stranger.")
    project = tmp_path / "project"
    for folder in (".git", "docs", "src/deep"):
        (project / folder).mkdir(parents=True)
    (project / "AGENTS.md").write_text("\ufeffUse tabs.\n")
    (project / "src" / "AGENTS.md").write_text("Use spaces.\n")
    return project


def words(memory: tuple[Text, ...]) -> list[str]:
    return [text.text.partition("\n\n")[2] for text in memory]


def problem(folder: Path, **options: Path | int) -> tuple[str, str]:
    with pytest.raises(DefinitionError) as raised:
        project_memory(folder, **options)  # pyright: ignore[reportArgumentType] - any of them
    (found,) = raised.value.problems
    assert "\n" not in str(found)
    return found.code, str(found)


async def test_an_agent_reads_them_in_its_system_prompt_the_nearest_last(project: Path) -> None:
    def answer(request: Request) -> str:
        return "\n".join([text.text for text in request.prefix.system])

    system = [Text("You are careful."), *project_memory(project / "src" / "deep")]
    result = await run(Agent(name="coder", model=FromFunction(answer), system=system), "Go.")
    began = "Rules of the project that you work in, from"
    said = "Where two such files differ, the later one holds.\n\n"
    assert result.unwrap() == (
        f"You are careful.\n{began} AGENTS.md. {said}Use tabs.\n{began} src/AGENTS.md. {said}Use spaces."
    )


def test_nothing_above_the_project_is_read(project: Path) -> None:
    assert words(project_memory(project / "docs")) == ["Use tabs."]
    (project / ".git").rmdir()
    assert words(project_memory(project / "src")) == ["Use spaces."]
    assert project_memory(project / "docs") == ()
    assert words(project_memory(project / "src", top=project)) == ["Use tabs.", "Use spaces."]


def test_of_one_folder_the_first_name_that_is_there_counts(project: Path) -> None:
    (project / "CLAUDE.md").write_text("Use semicolons.")
    (project / "docs" / "CLAUDE.md").symlink_to("../CLAUDE.md")
    memory = project_memory(project / "docs", names=("AGENTS.md", "CLAUDE.md"))
    assert words(memory) == ["Use tabs.", "Use semicolons."]


def test_what_cannot_be_read_is_one_line(project: Path) -> None:
    docs = project / "docs" / "AGENTS.md"
    docs.symlink_to(project.parent / "AGENTS.md")
    assert problem(project / "docs")[0] == "UNREADABLE_MEMORY"
    assert "docs/AGENTS.md is a link that leads out of" in problem(project / "docs")[1]
    docs.unlink()
    docs.write_bytes(b"caf\xe9")
    assert "docs/AGENTS.md is not UTF-8: byte 0xe9 at offset 3. Save it in UTF-8." in problem(project / "docs")[1]
    docs.unlink()
    os.mkfifo(docs)
    assert "docs/AGENTS.md is not a regular file." in problem(project / "docs")[1]
    docs.unlink()
    docs.write_text("x" * 40_000)
    code, said = problem(project / "docs")
    assert code == "MEMORY_TOO_LONG"
    assert "is longer than 32,768 bytes. Shorten them, or raise max_bytes" in said
    assert len(project_memory(project / "docs", max_bytes=50_000)) == 2
    assert problem(project / "nowhere")[0] == "NO_WORKSPACE"
    assert problem(project, top=project / "src")[0] == "NO_WORKSPACE"
