"""What cannot be used is one line on stderr: what is wrong, and the next step. Never a traceback, nothing on stdout."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cli.program import AGENTS, Warm, assert_one_error_line
from tests.support.messages_api import MessagesApi

FILES = {
    "agents.py": """
        from journeyman import Agent
        from journeyman.models.scripted import Scripted
        analyst = Agent(name="analyst", model=Scripted(["hi"]))
        writer = Agent(name="writer", model="antropic:claude-sonnet-5-5")
        counter = Agent(name="counter", model=Scripted(["hi"]), input=int)
        number = 3
        def make(): ...
        """,
    "raises.py": """
        def dig():
            raise ValueError("it broke\\nbadly.")
        dig()
        """,
    "unparsed.py": "x = 1\ndef f(:\n",
    "leaves.py": "import sys\nprint('{}')\nsys.exit(4)\n",
    "needs.py": "import package_that_is_missing.part\n",
    "cancels.py": "import asyncio\nraise asyncio.CancelledError\n",
    "wrong.py": "from journeyman import Agent\n\nAgent(name='a b', model='claude', nudge=True)\n",
    "toolish.py": "from journeyman import tool\n\n@tool\ndef f(x): ...\n",
    "empty.py": "x = 1\n",
    "notes.txt": "hello\n",
}
BYTES = {
    **{"latin.py": b"x = 'caf\xe9'\n", "latin.txt": b"caf\xe9", "latin.csv": b"caf\xe9,b\n1,2\n"},
    **{"empty.csv": b"", "narrow.csv": b"a\n1\n2\n"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bad")
    for name, text in FILES.items():
        lines = text.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        (made / name).write_text("\n".join(line[indent:] for line in lines) + "\n", encoding="utf-8")
    for name, data in BYTES.items():
        (made / name).write_bytes(data)
    (made / "folder").mkdir()
    return made


CASES: dict[str, tuple[str, list[str]]] = {
    "a file that is missing": ("run agent.py:analyst hi", ["There is no file agent.py. Did you mean agents.py?"]),
    "a file in a folder that is missing": (
        "run nowhere/x.py:analyst hi",
        ["There is no file nowhere/x.py. Check the path; it is relative to the current folder."],
    ),
    "a file to check that is missing": ("check nowhere.py:agent", ["error: There is no file nowhere.py. "]),
    "a folder": ("run folder hi", ["folder is a folder. Name a file in it"]),
    "a file that is no Python": ("run notes.txt hi", ["notes.txt is no Python file. Give a file that ends in"]),
    "a missing attribute with a close one": (
        "run agents.py:analist hi",
        [
            "agents.py has no 'analist'. Did you mean agents.py:analyst?",
            "Agents in agents.py: analyst, writer, counter.",
        ],
    ),
    "no attribute where there are several agents": (
        "run agents.py hi",
        ["agents.py holds 3 agents. Say which: agents.py:analyst or agents.py:writer or agents.py:counter"],
    ),
    "a colon without an attribute": ("run agents.py: hi", ["agents.py: names no agent after the colon."]),
    "an attribute that is no agent": (
        "run agents.py:number hi",
        ["agents.py:number is an int, not an agent. Agents in agents.py: analyst"],
    ),
    "a function that returns nothing": (
        "run agents.py:make hi",
        ["agents.py:make (agents.py, line 7) gives None, not an agent. Return the agent from it."],
    ),
    "a file without agents": ("run empty.py hi", ["empty.py holds no agent. Define one at the top level"]),
    "a file that raises": (
        "run raises.py:a hi",
        ["raises.py, line 2 raises ValueError: it broke badly. Fix it; the whole traceback: python raises.py"],
    ),
    "a file that does not parse": (
        "run unparsed.py:a hi",
        ["unparsed.py, line 2 does not parse: invalid syntax. Fix that line."],
    ),
    "a file that is not UTF-8": ("run latin.py:a hi", ["latin.py", "does not parse", "'utf-8' codec"]),
    "a file that exits": (
        "run leaves.py:a hi --json",
        ["leaves.py, line 3 calls sys.exit(4) when it is imported. Put that under if __name__ == '__main__'."],
    ),
    "a file that raises no Exception": ("run cancels.py:a hi", ["cancels.py, line 2 raises CancelledError."]),
    "a file that needs a package": (
        "run needs.py:a hi",
        ["needs.py, line 1 imports package_that_is_missing, which is not installed. Install it where journeyman is"],
    ),
    "a definition with problems": (
        "run wrong.py hi",
        ["wrong.py, line 3: Agent 'a b' has 3 problems, first: ", "See them all: journeyman check wrong.py"],
    ),
    "a definition with one problem": (
        "run toolish.py hi",
        ["toolish.py, line 3: Tool 'f': Parameter 'x' has no type. Annotate it"],
    ),
    "a module that is missing": ("run no.such:a hi", ["There is no module no. Install it, or name a file"]),
    "no input": ("run agents.py:analyst", ["There is no input. Give it as text", "--input-file FILE"]),
    "two inputs": ("run agents.py:analyst hi --input-file -", ["The input is given twice."]),
    "an input file that is missing": (
        "run agents.py:analyst --input-file nope.txt",
        ["There is no file nope.txt. Check the path"],
    ),
    "an input file that is a folder": (
        "run agents.py:analyst --input-file folder",
        ["folder cannot be read: Is a directory. Give a file that you may read."],
    ),
    "an input file that is not UTF-8": (
        "run agents.py:analyst --input-file latin.txt",
        ["latin.txt is not UTF-8: byte 0xe9 at offset 3. Convert it"],
    ),
    "a table that is missing": ("demo --data missing.csv", ["missing.csv", "does not exist"]),
    "a table that is empty": ("demo --data empty.csv", ["empty.csv", "is empty"]),
    "a table that is not UTF-8": ("demo --data latin.csv", ["latin.csv", "is not UTF-8"]),
    "a table of one column": ("demo --data narrow.csv", ["narrow.csv", "has one column only"]),
    "an unknown command": ("rnu", ["Unknown command", "Did you mean", "run", "See: journeyman --help"]),
    "an unknown option": ("run agents.py hi --jsn", ["Unknown option", "Did you mean --json?"]),
    "no agent": ("run", ["FILE:AGENT requires an argument. See: journeyman --help"]),
    "too many words": ("run agents.py:analyst hi there", ["there", "See: journeyman --help"]),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_usage_is_one_line_and_exit_code_2(case: str, folder: Path, warm: Warm) -> None:
    words, parts = CASES[case]
    done = warm(*words.split(), cwd=folder)
    assert_one_error_line(done, 2, parts)
    assert done.stderr.replace("{}\n", "").count("\n") == 1


FAILURES: dict[str, tuple[str, list[str]]] = {
    "an input that does not fit": (
        'run agents.py:counter "x"',
        ["INVALID_INPUT: The input does not fit: ", "integer", "What it takes: journeyman check agents.py:counter"],
    ),
    "an input that is no JSON": (
        "run agents.py:counter seven",
        ["INVALID_INPUT: ", "it is not valid JSON", "What it takes: journeyman check agents.py:counter"],
    ),
    "an unknown model prefix in the file": (
        "run agents.py:writer hi",
        ["MODEL_UNAVAILABLE: ", "'antropic'", "Did you mean 'anthropic:claude-sonnet-5-5'?"],
    ),
    "an unknown model prefix on the command line": (
        "run agents.py:analyst hi --model antropic:claude-sonnet-5-5",
        ["MODEL_UNAVAILABLE: ", "'antropic'", "Did you mean 'anthropic:claude-sonnet-5-5'?"],
    ),
    "a model without a prefix": (
        "run agents.py:analyst hi --model claude",
        ["MODEL_UNAVAILABLE: ", "'claude'", "such as 'anthropic:claude-"],
    ),
    "no key": (
        "run agents.py:analyst hi --model anthropic:claude-sonnet-5-5",
        ["MODEL_UNAVAILABLE: ", "There is no key", "Set the environment variable ANTHROPIC_API_KEY"],
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_run_that_cannot_begin_is_a_failure(case: str, folder: Path, warm: Warm) -> None:
    words, parts = FAILURES[case]
    done = warm(*words.split(), "--quiet", cwd=folder)
    assert_one_error_line(done, 1, parts)


async def test_a_wrong_key_is_a_failure_that_says_so_and_does_not_show_the_key(warm: Warm) -> None:
    async with MessagesApi([], bad_keys=["sk-wrong"], accept_violations=True) as api:
        env = {"ANTHROPIC_API_KEY": "sk-wrong", "ANTHROPIC_BASE_URL": api.url}
        done = await asyncio.to_thread(warm, "run", f"{AGENTS}:claude", "hi", env=env)
    assert_one_error_line(done, 1, ["API_ERROR: The model call failed (auth, status 401)", "Check the API key"])
    assert "sk-wrong" not in done.stderr


def test_a_host_that_cannot_be_reached_is_a_failure_that_says_so(warm: Warm) -> None:
    env = {"ANTHROPIC_API_KEY": "test", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    done = warm("run", f"{AGENTS}:claude", "hi", env=env)
    assert_one_error_line(done, 1, ["API_ERROR: The model call failed (network)", "127.0.0.1:9", "Check the network"])
