"""The command line: `journeyman run`, `batch`, `chat`, `check`, `record`, `replay`, `test`, `serve`, `mcp` and `demo`.

It answers the plainest questions by itself, and imports what they do not need only for the others.
"""

from __future__ import annotations

import codecs
import os
import sys
from pkgutil import resolve_name
from typing import Final
from unicodedata import category, name, normalize

from journeyman.cli.outputs import OutputLost, guard_stream
from journeyman.version import package_version

COMMANDS: Final = {
    "run": ("FILE:AGENT [INPUT]", "Run an agent, and print what it hands in."),
    "batch": ("FILE:AGENT INPUTS --out FILE", "Run an agent on every line of a file."),
    "chat": ("[FILE:AGENT]", "Talk with an agent, also while it works."),
    "check": ("FILE:AGENT", "Show an agent's definition without calling a model."),
    "record": ("FILE:AGENT [INPUT] --cassette FILE", "Run an agent, and record its conversation."),
    "replay": ("CASSETTE [FILE:AGENT] [INPUT]", "Play a recorded conversation, offline."),
    "runs": ("", "List durable runs, and recordings."),
    "show": ("RUN", "Show a durable run, or a recording."),
    "diff": ("RUN OTHER", "Show where two recordings differ."),
    "tail": ("RUN", "Follow a recording while it is made."),
    "view": ("[STORE]", "Look at runs in a browser, and steer them."),
    "export": ("RUN", "Write a recording as a file, or a cassette."),
    "test": ("RUN [FILE:AGENT]", "Make a test of a recorded run."),
    "resume": ("RUN", "Go on with a durable run."),
    "cancel": ("RUN", "End a run as cancelled."),
    "stop": ("RUN", "Do what cancel does, by another name."),
    "steer": ("RUN TEXT", "Say something to a run that goes on."),
    "approve": ("RUN QUESTION", "Allow a call that waits for an answer."),
    "deny": ("RUN QUESTION [REASON]", "Deny a call that waits for an answer."),
    "answer": ("RUN QUESTION TEXT", "Answer a question of a run's model."),
    "hold": ("RUN", "Let no further step of a run begin."),
    "release": ("RUN", "Let a run go on that was held."),
    "fork": ("RUN --at ATTEMPT/ITERATION", "Begin a run with what another one had done."),
    "prune": ("[RUN ...]", "Forget runs that have ended, and recordings."),
    "queues": ("", "Show how many durable runs wait in each queue."),
    "worker": ("FILE:AGENT ...", "Do durable runs that were started."),
    "serve": ("FILE:AGENT ...", "Serve agents behind HTTP, for programs and pages."),
    "mcp": ("FILE:AGENT ...", "Serve agents as MCP tools, over stdio or HTTP."),
    "mcp pin": ("CONFIG|URL|COMMAND ...", "Pin the tools of MCP servers, and print what is new."),
    "demo": ("[QUESTION]", "Watch an analyst at work, with or without a key."),
    "completion": ("SHELL", "Print what completes commands in a shell."),
}
"""For each command its arguments, and what it does."""
_WIDEST: Final = 24
_ROWS: Final = "\n".join(
    f"  {words:<{_WIDEST}} {does}" if len(words) <= _WIDEST else f"  {words}\n{'':<{_WIDEST + 2}} {does}"
    for words, does in ((f"{name} {arguments}".strip(), does) for name, (arguments, does) in COMMANDS.items())
)
HELP: Final = f"""\
Usage: journeyman COMMAND

Run agents that hand in checked work.

{_ROWS}

  --help (-h)              Show this; after a command, show its options.
  --version (-V)           Show the version.
  --env-file FILE          Before the command: set the variables in FILE that
                           are not set, as JOURNEYMAN_ENV_FILE=FILE does.

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
            return (
                [],
                "error: --env-file names no file. Give one before the command: journeyman --env-file .env run …\n",
            )
        files.append(file)
        words = rest
    if named := os.environ.get("JOURNEYMAN_ENV_FILE", "").strip():
        files.append(named)
    for file in files:
        try:
            read = resolve_name("journeyman.env_file:read_env_file")(file)
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
    if not said:
        return resolve_name("journeyman.cli.app:execute")(words)
    sys.stdout.write(said)
    return 0
