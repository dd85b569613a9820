"""The command line: `journeyman run`, `batch`, `chat`, `check`, `record`, `replay`, `mcp` and `demo`.

It answers the plainest questions by itself, and imports what they do not need only for the others.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pkgutil import resolve_name
from typing import Final

HELP: Final = """\
Usage: journeyman COMMAND

Run agents that hand in checked work.

  run FILE:AGENT [INPUT]   Run an agent, and print what it hands in.
  batch FILE:AGENT INPUTS --out F
                           Run an agent on every line of a file.
  chat FILE:AGENT          Talk with an agent, also while it works.
  check FILE:AGENT         Show an agent's definition without calling a model.
  record FILE:AGENT [INPUT] --cassette F
                           Run an agent, and record its conversation.
  replay CASSETTE          Play a recorded conversation, offline.
  runs                     List the durable runs of a store.
  show RUN                 Show a durable run: its steps, what it waits for.
  resume RUN               Go on with a durable run.
  cancel RUN               End a durable run as cancelled.
  steer RUN TEXT           Say something to a durable run.
  approve RUN DIGEST       Allow a call that waits, or deny it.
  answer RUN DIGEST TEXT   Answer a question of a durable run's model.
  hold RUN                 Let no further step of a durable run begin.
  release RUN              Let a durable run go on that was held.
  fork RUN --at A/I        Begin a run with what another one had done.
  prune [RUN ...]          Forget durable runs that have ended.
  worker FILE:AGENT ...    Do durable runs that were started.
  mcp FILE:AGENT ...       Serve agents as MCP tools, over stdio or HTTP.
  mcp pin SERVER           Pin the tools of an MCP server.
  demo [QUESTION]          Watch an analyst at work, with or without a key.

  --help (-h)              Show this; after a command, show its options.
  --version                Show the version.

The result goes to stdout, everything else to stderr.
Exit code: 0 success, 1 failure, 2 usage, 130 after Ctrl-C; of a durable run
also 3: it waits for a person, 4: it is blocked.
"""


def main() -> None:
    """Do what the command line asks for, and exit."""
    words = sys.argv[1:]
    if not words or words in (["--help"], ["-h"]):
        sys.exit(_print(HELP))
    if words == ["--version"]:
        sys.exit(_print(f"{version('journeyman')}\n"))
    sys.exit(resolve_name("journeyman.cli.app:execute")(words))


def _print(text: str) -> int:
    sys.stdout.write(text)
    return 0
