"""A file of variables is read where it is named, and where a key stands only in `.env`, the error says so."""

import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.connect import connect
from journeyman.errors import ModelUnavailable
from journeyman.machine.env_file import read_env_file
from tests.cli.program import Warm, assert_one_error_line

AGENTS = """
import os
from journeyman import Agent
from journeyman.testing.scripted import ScriptedModel
agent = Agent(name="clerk", model=ScriptedModel([f"{os.environ['WORD']} {os.environ.get('OTHER')}"]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / ".env").write_text("WORD=one\nOTHER=two\nOPENAI_API_KEY=sk-secret\n")
    (tmp_path / "more.env").write_text("WORD=three\nOTHER=four\n")
    return tmp_path


def test_the_variables_of_a_named_file_are_set_before_the_agent_is_loaded(warm: Warm, folder: Path) -> None:
    run = ("run", "agents.py", "hi", "--quiet")
    assert warm("--env-file", ".env", *run, cwd=folder).stdout == "one two\n"
    assert warm("--env-file=more.env", "--env-file", ".env", *run, cwd=folder).stdout == "three four\n"
    assert warm(*run, cwd=folder, env={"JOURNEYMAN_ENV_FILE": "more.env"}).stdout == "three four\n"
    env = {"JOURNEYMAN_ENV_FILE": "more.env", "WORD": "mine", "OTHER": ""}
    assert warm("--env-file", ".env", *run, cwd=folder, env=env).stdout == "mine two\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--env-file", "--env-file names no file. Give one before the command: journeyman --env-file .env run"),
        ("--env-file nope run agents.py hi", "nope cannot be read: No such file or directory. Check --env-file"),
        ("--env-file agents.py run agents.py hi", "The env-file agents.py cannot be read: line 2 is not NAME=value"),
        ("run agents.py hi --env-file .env", "--env-file stands before the command: journeyman --env-file FILE run"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(warm: Warm, folder: Path, words: str, told: str) -> None:
    assert_one_error_line(warm(*words.split(), cwd=folder), 2, [told])


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-5-5", "ANTHROPIC_AUTH_TOKEN"),
        ("google:gemini-2.5-flash", "GEMINI_API_KEY"),
        ("groq:llama", "GROQ_API_KEY"),
        ("azure:mine", "AZURE_OPENAI_ENDPOINT"),
    ],
)
def test_a_variable_that_only_stands_in_dot_env_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, variable: str
) -> None:
    for name in (variable, "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(f"export {variable}='sk-secret'\n")
    with pytest.raises(ModelUnavailable) as raised:
        connect(model)
    assert raised.value.hint.startswith(f"{variable} stands in .env, which is not read unless it is named: journeyman")
    assert "sk-secret" not in str(raised.value)
    (tmp_path / ".env").write_text(f"#{variable}=x\n{variable}=\n")
    with pytest.raises(ModelUnavailable) as raised:
        connect(model)
    assert "Set the environment variable " in raised.value.hint


def test_a_chat_says_that_its_key_stands_in_dot_env(warm: Warm, folder: Path) -> None:
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
    done = warm("chat", cwd=folder, env=dict.fromkeys(keys, ""))
    assert_one_error_line(done, 2, ["no key is set. OPENAI_API_KEY stands in .env", "journeyman --env-file .env"])


def test_the_notations_of_other_tools_are_read(tmp_path: Path) -> None:
    text = """\ufeff# keys
A=1
export B = two words  # said
C='single $X # kept'
D="a\\"b\\n\\t\\\\" # said
E=
F=#c
G= # said
H="-----BEGIN
-----END"

I=it's=${X}
  J=last"""
    (tmp_path / "x").write_text(text, newline="\r\n")
    assert read_env_file(tmp_path / "x") == {
        **{"A": "1", "B": "two words", "C": "single $X # kept", "D": 'a"b\n\t\\', "E": "", "F": "#c", "G": ""},
        **{"H": "-----BEGIN\n-----END", "I": "it's=${X}", "J": "last"},
    }


@pytest.mark.parametrize("text", ["A=1\nB", "A=1\nB='x", 'A=1\nB="x"y', "A=1\n1B=x", "A=1\nB=\0", "A=1\nB-C=x"])
def test_a_line_that_gives_no_variable_is_told_without_its_value(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(ValueError, match=r"^line 2 is not NAME=value, or a quote in it is not closed$"):
        read_env_file(tmp_path / "x")


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_]{1,9}", fullmatch=True),
        st.text(st.characters(exclude_characters="'\0\r", exclude_categories=["Cs"])),
    )
)
def test_what_is_written_in_single_quotes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, held: dict[str, str]
) -> None:
    file = tmp_path_factory.getbasetemp() / "quoted.env"
    file.write_bytes("".join(f"{name}='{value}'\n" for name, value in held.items()).encode())
    assert read_env_file(file) == held


@pytest.mark.parametrize("text", [" " * 900_000, "A=" + " #" * 400_000, "A='" + "\\" * 900_000, "A=" + " " * 900_000])
def test_no_file_takes_long(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    begun = time.process_time()
    with suppress(ValueError):  # a quote that is not closed
        read_env_file(tmp_path / "x")
    assert time.process_time() - begun < 2
