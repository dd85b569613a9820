"""A project's AGENTS.md files: found from the folder upwards to the project's top, the nearest with the last word."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, DefinitionError, Text, run
from journeyman.model import Request
from journeyman.testing.scripted import FunctionModel
from journeyman.toolbox import load_agents_md


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
        load_agents_md(folder, **options)  # pyright: ignore[reportArgumentType] - any of them
    (found,) = raised.value.problems
    assert "\n" not in str(found)
    return found.code, str(found)


async def test_an_agent_reads_them_in_its_system_prompt_the_nearest_last(project: Path) -> None:
    def answer(request: Request) -> str:
        return "\n".join([text.text for text in request.prefix.system])

    system = [Text("You are careful."), *load_agents_md(project / "src" / "deep")]
    result = await run(Agent(name="coder", model=FunctionModel(answer), system=system), "Go.")
    began = "Rules of the project that you work in, from"
    said = "Where two such files differ, the later one holds.\n\n"
    assert result.unwrap() == (
        f"You are careful.\n{began} AGENTS.md. {said}Use tabs.\n{began} src/AGENTS.md. {said}Use spaces."
    )


def test_nothing_above_the_project_is_read(project: Path) -> None:
    assert words(load_agents_md(project / "docs")) == ["Use tabs."]
    (project / ".git").rmdir()
    assert words(load_agents_md(project / "src")) == ["Use spaces."]
    assert load_agents_md(project / "docs") == ()
    assert words(load_agents_md(project / "src", top=project)) == ["Use tabs.", "Use spaces."]


@pytest.mark.parametrize("options", [{}, {"names": ("AGENTS.md", "CLAUDE.md")}])
def test_of_one_folder_the_first_name_that_is_there_counts(project: Path, options: Any) -> None:  # noqa: ANN401 - names
    (project / "CLAUDE.md").write_text("Use semicolons.")
    (project / "docs" / "CLAUDE.md").symlink_to("../CLAUDE.md")
    assert words(load_agents_md(project / "docs", **options)) == ["Use tabs.", "Use semicolons."]


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
    assert len(load_agents_md(project / "docs", max_bytes=50_000)) == 2
    assert problem(project / "nowhere")[0] == "NO_WORKSPACE"
    assert problem(project, top=project / "src")[0] == "NO_WORKSPACE"


def test_with_skip_broken_what_fits_is_taken_nearest_first(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    (project / "AGENTS.md").write_text("Use tabs.\n" * 10)
    (project / "src" / "AGENTS.md").write_text("Use spaces.\n" * 3)
    memory = words(load_agents_md(project / "src", max_bytes=60, skip_broken=True))
    assert memory == [
        "Use tabs.\nUse tabs.\n\n[The rest of this file is left out: it is too long.]",
        "Use spaces.\n" * 2 + "Use spaces.",
    ]
    assert words(load_agents_md(project / "src", max_bytes=36, skip_broken=True)) == [memory[1]]
    assert f"The memory in {project}/AGENTS.md is longer than 60 bytes." in caplog.messages[0]
    (project / "AGENTS.md").write_text("é" * 40)
    assert words(load_agents_md(project, max_bytes=61, skip_broken=True)) == []


@pytest.mark.parametrize(
    ("data", "taken", "words_of_log"),
    [
        (b"Say caf\xe9.", ["Say caf\ufffd."], "AGENTS.md is not UTF-8: byte 0xe9 at offset 7."),
        ("Use tabs.".encode("utf-16"), ["Use tabs."], ""),
        (b"PK\x03\x04\0\0", [], "AGENTS.md is no text."),
    ],
)
def test_with_skip_broken_what_can_be_read_is_taken(
    project: Path, caplog: pytest.LogCaptureFixture, data: bytes, taken: list[str], words_of_log: str
) -> None:
    (project / "AGENTS.md").write_bytes(data)
    assert words(load_agents_md(project, skip_broken=True)) == taken
    assert words_of_log in caplog.text
    assert bool(words_of_log) == bool(caplog.records)


def test_a_file_that_is_imported_follows_once(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    (project / "docs" / "style.md").write_text("Style. See @../AGENTS.md and @more.md.\n")
    (project / "docs" / "more.md").write_text("More.")
    (project / "AGENTS.md").write_text(
        "Tabs (@docs/style.md). By @maria, with @types/node; `@docs/a.md`\n```\n@docs/b.md\n"
    )
    texts = load_agents_md(project)
    assert words(texts)[0].startswith("Tabs")
    assert words(texts)[1:] == ["Style. See @../AGENTS.md and @more.md.", "More."]
    assert "from docs/more.md." in texts[2].text
    assert caplog.messages == []


def test_a_file_that_is_not_of_the_project_or_may_be_secret_is_not_imported(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (project / ".env").write_text("KEY=secret")
    (project / "link.md").symlink_to(project.parent / "AGENTS.md")
    (project / "AGENTS.md").write_text("@/etc/passwd @~/notes.md @../AGENTS.md @link.md @.env @gone.md")
    assert len(load_agents_md(project)) == 1
    outside = "which is outside of the project. It is left out."
    said = [outside] * 4 + ["whose name begins with a dot. It is left out.", "which is not there."]
    assert [(record.levelno, record.getMessage().partition(", ")[2]) for record in caplog.records] == [
        (logging.WARNING, each) for each in said
    ]


def test_imports_end_after_five_files(project: Path) -> None:
    for number in range(9):
        (project / f"{number}.md").write_text(f"Part {number}. @{number + 1}.md")
    (project / "AGENTS.md").write_text("@0.md")
    assert len(load_agents_md(project)) == 6
