"""`journeyman chat` without a file: an assistant in the current folder, as a new user would meet it."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from tests.cli.program import Warm, assert_one_error_line
from tests.cli.terminal import terminal
from tests.support.messages_answers import answer, text, tool_use
from tests.support.servers import MessagesApi

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
GREETING = "def greet(name):\n    # says hello\n    return 'Hello ' + name\n\n\nprint(greet('Ada'))\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "greet.py").write_text(GREETING)
    (folder / "AGENTS.md").write_text("Use f-strings.\n")
    return folder


def surroundings(folder: Path, **more: str) -> dict[str, str]:
    return {**dict.fromkeys(KEYS, ""), "XDG_DATA_HOME": str(folder.parent / "data"), **more}


async def test_a_chat_without_a_file_edits_a_project_with_a_diff_asked_and_goes_on_after_a_kill(
    warm: Warm, project: Path
) -> None:
    edit: dict[str, object] = {"path": "greet.py", "old_text": "'Hello ' + name", "new_text": "f'Hello {name}'"}
    answers = [
        answer(tool_use("read", {"path": "greet.py"})),
        answer(tool_use("edit", edit)),
        answer(text("It uses an f-string now.")),
        answer(text("You are welcome.")),
    ]
    async with MessagesApi(answers, accept_violations=True) as api:
        env = surroundings(project, ANTHROPIC_API_KEY="test", ANTHROPIC_BASE_URL=api.url)
        await asyncio.to_thread(_edits, warm, project, env)
        await asyncio.to_thread(_goes_on, warm, project, env)
        system = str(api.requests[0].body["system"])
    assert "Use f-strings." in system
    assert str(project) in system
    assert (project / "greet.py").read_text() == GREETING.replace("'Hello ' + name", "f'Hello {name}'")


def _edits(warm: Warm, project: Path, env: dict[str, Any]) -> None:
    with terminal("chat", "--mode", "balanced", folder=project, rows=40, start=warm.start, **env) as chat:
        chat.see("assistant · anthropic:claude-sonnet-5-5")
        chat.type("Use an f-string.", "\nallow?")
        shown = chat.text
        for row in (
            "│ edits greet.py",
            "│ @@ line 3 @@",
            "│   def greet(name):",
            "│ -     return 'Hello ' + name",
            "│ +     return f'Hello {name}'",
        ):
            assert row in shown, shown
        assert chat.has_colours
        chat.type("y", "It uses an f-string now.")
        chat.kill()


def _goes_on(warm: Warm, project: Path, env: dict[str, Any]) -> None:
    with terminal("chat", "--resume", folder=project, rows=40, start=warm.start, **env) as chat:
        chat.see("It uses an f-string now.")
        chat.type("Thanks.", "You are welcome.")
        chat.press(b"\x04")
        chat.see("Go on with it: journeyman chat --resume")
        assert chat.end() == 0
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    done = warm("chat", "--resume", cwd=elsewhere, env=env)
    assert_one_error_line(done, 2, ["has no conversation with assistant. Leave --resume out to begin one."])


def test_without_a_key_one_line_names_three(warm: Warm, project: Path) -> None:
    done = warm("chat", cwd=project, env=surroundings(project))
    assert_one_error_line(
        done, 2, ["no key is set. Set ANTHROPIC_API_KEY or OPENAI_API_KEY or GEMINI_API_KEY, or name another model"]
    )


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ({"OPENAI_API_KEY": "test"}, "openai:"),
        ({"GOOGLE_API_KEY": "test"}, "google:"),
        ({"ANTHROPIC_AUTH_TOKEN": "test", "OPENAI_API_KEY": "test"}, "anthropic:"),
    ],
)
def test_the_model_is_the_one_whose_key_is_set(warm: Warm, project: Path, given: dict[str, str], model: str) -> None:
    around: dict[str, Any] = surroundings(project, **given)
    with terminal("chat", folder=project, rows=24, start=warm.start, **around) as chat:
        chat.see(f"assistant · {model}")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--tools", "reading,knife"), "There is no tool 'knife'. There are coding, reading, none, and read, write,"),
        (("--tools", ","), "--tools names none. There are coding"),
        (("--tools", "none", "agents.py"), "--tools is for the assistant; agents.py has its own tools."),
        (("--model", "gpt"), "The model name 'gpt' is not of the form"),
    ],
)
def test_what_cannot_be_is_one_line(warm: Warm, project: Path, words: tuple[str, ...], part: str) -> None:
    env = surroundings(project, ANTHROPIC_API_KEY="test")
    assert_one_error_line(warm("chat", *words, cwd=project, env=env), 2, [part])


async def test_over_a_pipe_it_answers_and_has_the_tools_that_were_named(warm: Warm, project: Path) -> None:
    async with MessagesApi([answer(text("Two files."))], accept_violations=True) as api:
        env = surroundings(project, ANTHROPIC_API_KEY="test", ANTHROPIC_BASE_URL=api.url)
        words = ("chat", "--tools", "reading")
        done = await asyncio.to_thread(lambda: warm(*words, cwd=project, stdin=b"How many?\n", env=env))
        assert (done.code, done.stdout) == (0, "Two files.\n"), done.stderr
        tools = cast("list[dict[str, object]]", api.requests[0].body["tools"])
        names = [each["name"] for each in tools]
    assert names == ["read", "glob", "grep", "ls", "ask_user"]


def test_a_chat_starts_in_a_project_whose_memory_is_too_long(warm: Warm, project: Path) -> None:
    (project / "AGENTS.md").write_text("Write tests.\n" * 3_000)
    done = warm("chat", "-m", "ollama:none", cwd=project, env=surroundings(project))
    assert (done.code, done.stdout) == (0, "")
    told = " ".join(done.stderr.split())
    assert "Not all of the project's memory is taken: The memory in AGENTS.md is longer than 32,768 bytes." in told
