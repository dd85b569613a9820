"""The command line: the commands, the options that they share, and `journeyman --help`.

It answers the plainest questions by itself, and imports what they do not need only for the others.
"""

from __future__ import annotations

import codecs
import os
import sys
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Final, NamedTuple
from unicodedata import category, name, normalize

from journeyman.cli.outputs import OutputLost, guard_stream
from journeyman.machine.version import package_version


class CommandText(NamedTuple):
    """The description of a command in its help: its arguments, what it does, and an example of what follows it."""

    arguments: str
    does: str
    example: str


COMMANDS: Final = {
    "run": CommandText(
        "FILE:AGENT [INPUT]", "Run an agent, and print what it hands in.", 'agents.py:analyst "What sold best?"'
    ),
    "batch": CommandText(
        "FILE:AGENT INPUTS --out FILE",
        "Run an agent on every line of a file.",
        "agents.py:analyst questions.jsonl --out answers.jsonl",
    ),
    "chat": CommandText("[FILE:AGENT]", "Talk with an agent, also while it works.", "agents.py:analyst"),
    "check": CommandText("FILE:AGENT", "Show an agent's definition without calling a model.", "agents.py:analyst"),
    "runs": CommandText("", "List durable runs, and recordings.", "--status failed --since 7d"),
    "show": CommandText("RUN", "Show a durable run, or a recording.", "last"),
    "view": CommandText("[STORE]", "Look at runs in a browser, and steer them.", ""),
    "tell": CommandText(
        "RUN VERB [WORD ...]", "Speak to a run: approve, answer, steer, hold, stop.", 'trip-7 steer "Be brief."'
    ),
    "resume": CommandText("RUN", "Go on with a durable run.", "trip-7"),
    "fork": CommandText("RUN --at ATTEMPT/ITERATION", "Begin a run with what another one had done.", "trip-7 --at 1/3"),
    "export": CommandText("RUN", "Write a recording as a file, or a cassette.", "last --as html --out trip.html"),
    "prune": CommandText("[RUN ...]", "Forget runs that have ended, and recordings.", "--older-than 30d --dry-run"),
    "cassette": CommandText(
        "COMMAND", "Record, replay or test the conversation of a run.", "replay trip.jsonl agents.py:planner"
    ),
    "cassette record": CommandText(
        "FILE:AGENT [INPUT] --out FILE",
        "Run an agent, and record its conversation.",
        'agents.py:planner "Oslo" --out trip.jsonl',
    ),
    "cassette replay": CommandText(
        "CASSETTE [FILE:AGENT] [INPUT]", "Play a recorded conversation, offline.", "trip.jsonl agents.py:planner"
    ),
    "cassette test": CommandText("RUN [FILE:AGENT]", "Make a test of a recorded run.", "last --out tests/test_trip.py"),
    "worker": CommandText("FILE:AGENT ...", "Do durable runs that were started.", "agents.py:analyst"),
    "serve": CommandText(
        "FILE:AGENT ...", "Serve agents behind HTTP, for programs and pages.", "agents.py:analyst --port 8080"
    ),
    "mcp": CommandText("FILE:AGENT ...", "Serve agents as MCP tools, over stdio or HTTP.", "agents.py:analyst"),
    "mcp pin": CommandText(
        "CONFIG|URL|COMMAND ...",
        "Pin the tools of MCP servers, and print what is new.",
        "--name git uvx mcp-server-git",
    ),
    "mcp login": CommandText(
        "CONFIG|URL", "Sign in at MCP servers, for agents that use them.", "https://docs.example.org/mcp"
    ),
    "sandbox": CommandText(
        "[-- COMMAND ...]", "Show what a sandbox holds here, or run a command in one.", "-- make test"
    ),
    "demo": CommandText("[QUESTION]", "Watch an analyst at work, with or without a key.", ""),
    "completion": CommandText("SHELL", "Print what completes commands in a shell.", "bash"),
}
"""The commands, in the order of the help; those of a group have its name before their own."""


class SharedText(NamedTuple):
    """The description of an option that several commands share: its value, what it does, and which commands take it."""

    value: str
    does: str
    commands: tuple[str, ...]


_THAT_WORK: Final = ("run", "batch", "chat", "worker", "serve")
SHARED: Final = {
    "--model": SharedText(
        "-m NAME", "Use this model instead of the agent's.", (*_THAT_WORK, "mcp", "demo", "cassette record")
    ),
    "--mode": SharedText(
        "MODE",
        "Do unasked: strict, balanced (else), auto, trust, plan.",
        ("run", "batch", "chat", "worker", "mcp", "resume", "cassette record"),
    ),
    "--sandbox": SharedText("WHEN", "Run commands in a box: auto, required, none.", ("run", "chat", "worker", "serve")),
    "--store": SharedText(
        "PLACE",
        "A file or URL; else JOURNEYMAN_STORE, .journeyman/runs.db.",
        (*("run", "runs", "show", "tell", "resume", "fork", "export", "prune", "worker", "serve"), "cassette test"),
    ),
    "--record": SharedText("", "Record what happens; --no-record does not.", (*_THAT_WORK, "mcp", "demo")),
    "--otel": SharedText("", "Send traces and metrics, as OTEL_... variables say.", (*_THAT_WORK, "mcp")),
    "--debug": SharedText("", "Show tracebacks of the agent's own code.", _THAT_WORK),
    "--json": SharedText(
        "", "Print one JSON document.", ("run", "runs", "show", "resume", "demo", "cassette record", "cassette replay")
    ),
    "--quiet": SharedText(
        "",
        "Print nothing but the result, or the error.",
        ("run", "batch", "resume", "demo", "cassette record", "cassette replay"),
    ),
    "--timeout": SharedText(
        "SECONDS",
        "What gives the agent may take so long (30).",
        (*_THAT_WORK, "mcp", "check", "resume", "fork", "cassette record", "cassette replay", "cassette test"),
    ),
}
"""The options that several commands share. They stand before the command or behind it, and are explained once."""
_ROWS: Final = "\n".join(f"  {name:<19} {each.does}" for name, each in COMMANDS.items() if " " not in name)
_SHARED_ROWS: Final = "\n".join(f"  {f'{name} {each.value}'.strip():<19} {each.does}" for name, each in SHARED.items())
HELP: Final = f"""\
Example: journeyman run {COMMANDS["run"].example}
Usage: journeyman COMMAND; journeyman COMMAND --help shows its options.

{_ROWS}

Options before a command or behind it; the help of each names those it takes:
{_SHARED_ROWS}

Before the command: --help (-h), --version (-V), and --env-file FILE, which sets
the variables in FILE that are not set, as JOURNEYMAN_ENV_FILE=FILE does.
The result goes to stdout, everything else to stderr.
Exit code: 0 success, 1 failure, 2 usage, 130 after Ctrl-C, 143 after SIGTERM;
of a durable run also 3: it waits for a person, 4: it is blocked.
"""


def main() -> None:
    """Do what the command line asks for, and exit."""
    nothing = os.open(os.devnull, os.O_RDWR)  # it is stdin where that was closed: the first free number
    if sys.stdout is None:  # it was closed
        sys.stdout = os.fdopen(os.dup(nothing), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.dup(nothing), "w")
    codecs.register_error("journeyman", write_look_alikes)  # consoles of Windows, and some pipes, have few characters
    has_look_alikes = sys.stdout.errors in ("strict", "surrogateescape")  # stderr escapes what it has not got
    sys.stdout = guard_stream(sys.stdout, may_be_lost=False, errors="journeyman" if has_look_alikes else None)
    sys.stderr = guard_stream(sys.stderr, may_be_lost=True)
    try:
        words, fault = _read_env_files(sys.argv[1:])
        code = 2 if fault else _execute(words)
        sys.stderr.write(fault)
        sys.stdout.flush()
    except OutputLost as lost:
        os.dup2(nothing, 1)
        code = 1 if lost.has_reader else 0
        sys.stderr.write(f"error: {lost}\n" if lost.has_reader else "")
    sys.exit(code)


def write_look_alikes(error: UnicodeError) -> tuple[str, int]:
    """Return what stands in for the characters that an encoding has not got, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(ascii_of, error.object[error.start : error.end])), error.end


def ascii_of(character: str) -> str:
    """Return what stands in for a character where only ASCII can be printed."""
    plain = normalize("NFKD", character).encode("ascii", "ignore").decode()
    if plain:
        return plain
    kind = category(character)
    if kind in ("Pi", "Pf"):
        return "'" if "SINGLE" in name(character) else '"'
    return "-" if kind == "Pd" else "?"


def _read_env_files(words: list[str]) -> tuple[list[str], str]:
    """Set the variables of the files that are named, and return the words of the command, and what is wrong with one.

    A variable that is set stays, and of two files the first counts.
    """
    files: list[str] = []
    while words and words[0].partition("=")[0] == "--env-file":
        _, equals, file = words[0].partition("=")
        rest = words[1:] if equals else words[2:]
        file = file if equals else "".join(words[1:2])
        if not file:
            hint = "Give one before the command: journeyman --env-file .env run …"
            return [], f"error: --env-file names no file. {hint}\n"
        files.append(file)
        words = rest
    if named := os.environ.get("JOURNEYMAN_ENV_FILE", "").strip():
        files.append(named)
    for file in files:
        try:
            read = resolve_name("journeyman.machine.env_file:read_env_file")(file)
        except OSError as error:
            hint = "Check --env-file and JOURNEYMAN_ENV_FILE."
            return [], f"error: {file} cannot be read: {error.strerror or error}. {hint}\n"
        except ValueError as error:
            return [], f"error: The env-file {file} cannot be read: {error}. Fix it.\n"
        for variable, value in read.items():
            if not os.environ.get(variable, "").strip():  # an empty one counts as none everywhere
                os.environ[variable] = value
    return words, ""


def _execute(words: list[str]) -> int:
    said = HELP if not words or words in (["--help"], ["-h"]) else ""
    if words in (["--version"], ["-V"]):
        said = f"{package_version()}\n"
    elif find_spec("cyclopts") is None or find_spec("rich") is None:
        sys.stderr.write("error: journeyman's commands need more packages: pip install 'journeyman[cli]'\n")
        return 2
    if not said:
        return resolve_name("journeyman.cli.app:execute")(words)
    sys.stdout.write(said)
    return 0
