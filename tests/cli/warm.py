"""A process that has imported the command line, and forks a real `journeyman` for every line that it reads.

The tests run it; it saves them half a second for each command. A command has its own arguments, folder, environment
and files for stdin, stdout and stderr, and everything it does happens in a process of its own.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from importlib import import_module
from typing import Any, NoReturn

import journeyman.cli

_IMPORTED_BY_COMMANDS = (
    *("cli.app", "cli.chat.command", "cli.check", "cli.demo", "cli.run", "cli.cassettes", "cli.mcp"),
    "models.anthropic",
)


def _become(command: dict[str, Any]) -> NoReturn:
    for descriptor, (path, flags) in enumerate(command["files"]):
        os.dup2(os.open(path, flags), descriptor)
    os.environ.clear()
    os.environ.update(command["environment"])
    os.chdir(command["folder"])
    sys.argv = ["journeyman", *command["words"]]
    try:
        journeyman.cli.main()
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(ended.code or 0))  # at once: tidying up takes longer than the command
    raise AssertionError("main() exits")


def _wait_for(process: int) -> None:
    _, status = os.waitpid(process, 0)
    os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    for name in _IMPORTED_BY_COMMANDS:
        import_module(f"journeyman.{name}")
    gc.freeze()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            _become(json.loads(line))
        _wait_for(process)
