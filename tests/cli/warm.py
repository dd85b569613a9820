"""A process that has imported the command line, and forks a real `journeyman` for everyone who asks at its socket.

It also runs a program of its users, for which a warning is then an error.

The tests run it; it saves them a second for each command. A command has its own arguments, folder, environment, stdin,
stdout and stderr, and everything it does happens in a process of its own, which ends as every program does.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import struct
import sys
import termios
import warnings
from importlib import import_module
from select import select
from typing import Any, NoReturn

import journeyman.cli

_USED_BY_COMMANDS = (
    *(
        "cli.app",
        "cli.batch.command",
        "cli.chat.command",
        "cli.chat.terminal",
        "cli.check",
        "cli.demo",
        "cli.durable",
        "cli.run",
        "cli.runs",
        "cli.worker",
        "cli.cassettes",
        "cli.mcp",
        "cli.permit.editing",
    ),
    *(
        "mcp",
        "mcp.tools",
        "serve.http",
        "serve.server",
        "serve.stdio",
        "models.anthropic",
        "models.scripted",
        "subagents.tool",
        "team.spawn",
        "toolbox.workspace",
    ),
)
_USED_BY_THESE = ("anyio._backends._asyncio", "griffe")


def _become(order: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Do what a fresh `journeyman` would do."""
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    if order["has_terminal"]:  # Ctrl-C there shall reach it
        os.setsid()
        fcntl.ioctl(0 if os.isatty(0) else 2, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
    if os.isatty(1):  # by the line, as Python does there
        sys.stdout = open(1, "w", buffering=1, errors=sys.stdout.errors, closefd=False)  # noqa: SIM115 - to the end
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv = ["journeyman", *order["words"]]
    if order["program"]:
        warnings.simplefilter("error")
        sys.argv[0] = order["program"]
        sys.path.insert(0, os.path.dirname(order["program"]))  # noqa: PTH120 - as Python does
        runpy.run_path(order["program"], run_name="__main__")
        sys.exit()
    if order["is_watched"]:
        journeyman.cli.main()
        raise AssertionError("main() exits")
    try:
        journeyman.cli.main()
    except SystemExit as ended:
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - temporary files are removed there
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(ended.code or 0))  # at once: forgetting all modules takes longer than the command
    raise AssertionError("main() exits")


def _serve(asking: socket.socket) -> None:
    """Start what is asked for. Say its process id, and later its exit code; less than zero is a signal."""
    message, descriptors, *_ = socket.recv_fds(asking, 1_000_000, 3)
    while not message.endswith(b"\n"):
        message += asking.recv(1_000_000)
    process = os.fork()
    if process == 0:
        asking.close()
        _become(json.loads(message), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    asking.sendall(struct.pack("i", process))
    _, status = os.waitpid(process, 0)
    asking.sendall(struct.pack("i", os.waitstatus_to_exitcode(status)))


def main(address: str) -> None:
    """Listen until stdin is closed."""
    for name in (*(f"journeyman.{name}" for name in _USED_BY_COMMANDS), *_USED_BY_THESE):
        import_module(name)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        os.write(1, b"ready\n")
        watchers: list[int] = []
        while listening in select([sys.stdin, listening], [], [])[0]:
            asking, _ = listening.accept()
            watcher = os.fork()
            if watcher == 0:
                listening.close()
                _serve(asking)
                os._exit(0)
            asking.close()
            watchers = [each for each in (*watchers, watcher) if os.waitpid(each, os.WNOHANG) == (0, 0)]


if __name__ == "__main__":
    main(sys.argv[1])
