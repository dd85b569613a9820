"""`journeyman run`: what comes out where, and what may go in."""

import asyncio
import json
from pathlib import Path

from tests.cli.program import AGENTS, Warm, journeyman
from tests.support.files import JPEG, PNG
from tests.support.messages_answers import answer
from tests.support.servers import MessagesApi


def test_a_text_is_printed_as_it_is_and_nothing_else_is_on_stdout() -> None:
    done = journeyman("run", f"{AGENTS}:greeter", "Hello")
    assert (done.code, done.stdout) == (0, "Good morning!\nHow are you?\n")


def test_a_typed_output_is_printed_as_readable_json(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:planner", '{"city": "Oslo", "days": 3}', "--quiet")
    assert done.stdout == '{\n  "city": "Oslo",\n  "days": 2\n}\n'


def test_whatever_files_tools_and_programs_print_goes_to_stderr(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:talker", "Hello")
    assert done.stdout == "done\n"
    for printed in ("the file prints\n", "a tool prints\n", "a tool writes\n", "a program prints\n"):
        assert printed in done.stderr


def test_quiet_leaves_only_the_result_or_the_error(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:talker", "Hello", "--quiet")
    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    done = warm("run", f"{AGENTS}:hopeless", "Hello", "--quiet")
    assert (done.code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("error: MAX_ATTEMPTS_EXCEEDED: All 2 attempts were rejected, the last with: ")
    assert "1 day is too short. Look at the report" in done.stderr


def test_a_failure_shows_its_code_and_hint_below_the_tree(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:hopeless", "Hello")
    assert (done.code, done.stdout) == (1, "")
    assert "✗ failed · 2 attempts, 2 iterations, 0 calls" in done.stderr
    assert done.error.startswith("error: MAX_ATTEMPTS_EXCEEDED: ")
    assert done.error.endswith("Raise Limits(attempts=…) if it was close.")


def test_the_input_is_read_from_stdin(tmp_path: Path, warm: Warm) -> None:
    file = tmp_path / "question.txt"
    file.write_bytes(b"\xef\xbb\xbfWhat is up, caf\xc3\xa9?\n")
    done = warm("run", f"{AGENTS}:echo", stdin=file.read_bytes())
    assert done.stdout == "<What is up, café?\n>\n"


def test_files_are_sent_after_the_text(tmp_path: Path, warm: Warm) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "b.png").write_bytes(JPEG)
    ran = warm("run", f"{AGENTS}:echo", "What?", "--file", str(tmp_path / "a.png"), "--json")
    said = json.loads(ran.stdout)["history"][0]["content"]
    assert [block["type"] for block in said] == ["text", "image"]
    refused = warm("run", f"{AGENTS}:echo", "What?", "--file", str(tmp_path / "b.png"))
    assert (refused.code, "its bytes are image/jpeg" in refused.stderr) == (2, True)
    missing = warm("run", f"{AGENTS}:echo", "What?", "--file", str(tmp_path / "c.png"))
    assert (missing.code, "c.png cannot be read" in missing.stderr) == (2, True)
    typed = warm("run", f"{AGENTS}:square", "7", "--file", str(tmp_path / "a.png"))
    assert (typed.code, "no files can be sent with it" in typed.stderr) == (1, True)


def test_an_input_that_is_no_text_is_given_as_json(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:square", "--", "-5")
    assert (done.code, "\n25\n" in done.stderr) == (0, True)


def test_a_module_is_found_in_the_current_folder(tmp_path: Path, warm: Warm) -> None:
    package = tmp_path / "travel"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.py").write_text('GREETING = "Hello from the package"\n')
    (package / "agents.py").write_text(
        "from journeyman import Agent\nfrom journeyman.testing.scripted import ScriptedModel\n"
        "from .words import GREETING\nguide = Agent(name='guide', model=ScriptedModel([GREETING]))\n"
    )
    for target in ("travel.agents:guide", "travel.agents", "travel/agents.py:guide", "travel/agents.py"):
        done = warm("run", target, "Hi", "--quiet", cwd=tmp_path)
        assert (done.stdout, done.stderr) == ("Hello from the package\n", "")


def test_a_file_finds_its_neighbours_and_may_be_named_like_a_module_of_python(tmp_path: Path, warm: Warm) -> None:
    (tmp_path / "texts.py").write_text("WORD = 'neighbour'\n")
    (tmp_path / "json.py").write_text(
        "from journeyman import Agent\nfrom journeyman.testing.scripted import ScriptedModel\n"
        "from texts import WORD\nclass Box:\n    agent = Agent(name='a', model=ScriptedModel([WORD]))\n"
    )
    done = warm("run", f"{tmp_path}/json.py:Box.agent", "Hi", "--json", "--quiet")
    assert json.loads(done.stdout)["output"] == "neighbour"


async def test_another_model_takes_the_place_of_the_agents(warm: Warm) -> None:
    async with MessagesApi([answer("From the other model.")]) as api:
        words = ("run", f"{AGENTS}:greeter", "Hello", "--model", "anthropic:claude-sonnet-5-5")
        env = {"ANTHROPIC_API_KEY": "test", "ANTHROPIC_BASE_URL": api.url}
        done = await asyncio.to_thread(warm, *words, env=env)
    assert (done.code, done.stdout) == (0, "From the other model.\n")
    assert "greeter · anthropic:claude-sonnet-5-5" in done.stderr


def test_a_bug_that_the_run_survives_is_one_line_and_a_traceback_on_demand(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:buggy", "Hello")
    assert (done.code, done.stdout) == (0, "done\n")
    said = f"! The listener Agent.on_message raised KeyError at {AGENTS.relative_to(Path.cwd())}:"
    assert done.stderr.count(said) == 1
    assert "Traceback" not in done.stderr
    debugged = warm("run", f"{AGENTS}:buggy", "Hello", "--debug")
    assert "Traceback (most recent call last):" in debugged.stderr
    assert "KeyError: 'what the user wrote'" in debugged.stderr
    assert warm("run", f"{AGENTS}:buggy", "Hello", "--quiet").stderr == ""
