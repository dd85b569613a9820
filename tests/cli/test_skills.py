"""`--skills FOLDER`: skills for any agent, those that are broken named, and what each costs in `journeyman check`."""

import json
from pathlib import Path

import pytest

from tests.cli.program import Warm, assert_one_error_line

FILE = """
from journeyman import Agent
from journeyman.testing.scripted import ScriptedModel, call

clerk = Agent(name="clerk", model=ScriptedModel([call("skill", name="letters"), "I read it."], repeat=True))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(FILE)
    for name, text in (("letters", "---\nname: letters\ndescription: Write letters.\n---\nDear Ada,"), ("torn", "---")):
        (tmp_path / "skills" / name).mkdir(parents=True)
        (tmp_path / "skills" / name / "SKILL.md").write_text(text)
    return tmp_path


def test_a_run_has_the_skills_and_tells_in_a_line_which_is_left_out(folder: Path, warm: Warm) -> None:
    done = warm("run", "agents.py:clerk", "Go.", "--skills", "skills", "--json", "--quiet", cwd=folder)
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["tools"]["skill"]["succeeded"] == 1
    told = " ".join(done.stderr.split())
    assert told.startswith("! A skill is left out: skills/torn/SKILL.md has no front matter between two lines ---.")
    assert told.count("!") == 1


def test_a_chat_and_a_batch_have_them_too(folder: Path, warm: Warm) -> None:
    words = ["chat", "agents.py:clerk", "--skills", "skills/letters", "--session-file", "s.db"]
    done = warm(*words, cwd=folder, stdin=b"Go.\n")
    assert (done.code, done.stdout) == (0, "I read it.\n"), done.stderr
    (folder / "in.jsonl").write_text('"a"\n')
    words = ["batch", "agents.py:clerk", "in.jsonl", "--out", "out.jsonl", "--skills", "skills/letters"]
    done = warm(*words, cwd=folder)
    assert done.code == 0, done.stderr
    assert json.loads((folder / "out.jsonl").read_text())["output"] == "I read it."


def test_check_tells_what_each_skill_costs(folder: Path, warm: Warm) -> None:
    done = warm("check", "agents.py:clerk", "--skills", "skills/letters", cwd=folder)
    assert done.code == 0, done.stderr
    assert "skills       about so many tokens: letters 6, loaded 3" in done.stdout
    assert "- letters: Write letters." in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--skills", "none"), "--skills: none holds no skills: No such file or directory."),
        (("--skills", "skills/torn"), "--skills: skills/torn/SKILL.md has no front matter between two lines ---."),
        (("--skills", "skills", "--durable"), "--skills is not for a durable run: it would go on without these tools."),
    ],
)
def test_what_cannot_be_used_is_one_line(folder: Path, warm: Warm, words: tuple[str, ...], said: str) -> None:
    done = warm("run", "agents.py:clerk", "Go.", *words, cwd=folder)
    assert_one_error_line(done, 2, [said])
