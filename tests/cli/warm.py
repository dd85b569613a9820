"""A process that has imported the command line and done a few commands, and forks a real `journeyman` for everyone who
asks at its socket: what is made when it is first needed is there by then, such as constructors and schemas.

It also runs a program of its users, for which a warning is then an error.

The tests run it; it saves them a second for each command. A command has its own arguments, folder, environment, stdin,
stdout and stderr, and everything it does happens in a process of its own. That waits for its threads and does what was
left for the end, as every program does, but does not take its modules apart.
"""

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
import threading
import warnings
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from select import select
from typing import Any, NoReturn, cast

import journeyman.cli
from journeyman.cli.app import app as commands
from journeyman.cli.app import execute

_USED_BY_COMMANDS = (
    *("cli.chat.terminal", "cli.permit.editing", "mcp.tools"),
    *("models.anthropic", "testing.scripted", "mcp_server.http", "mcp_server.server", "mcp_server.stdio"),
    *("subagents.tool", "team.spawn", "toolbox.workspace"),
)
_USED_BY_THESE = (
    *("anyio._backends._asyncio", "concurrent.futures.thread", "cyclopts.config", "cyclopts.help", "docstring_parser"),
    *("filelock", "importlib.readers", "rich._emoji_codes", "rich.panel"),
)
"""Loaded when a command is under way, or when its help is shown."""
_AGENTS = '''
from journeyman import Agent, tool
from journeyman.testing.scripted import ScriptedModel, call, say

@tool
async def look(topic: str) -> str:
    """Look."""
    return f"all about {topic}"

answers = [say(call("look", {"topic": "tides"})), say("They rise.")]
scout = Agent(name="scout", model=ScriptedModel(answers * 9), tools=[look])
'''
_FIRST_COMMANDS = (
    *(
        "run agents.py:scout Hi --record",
        "run agents.py:scout Hi --durable --id first",
        "run agents.py:scout Hi --json",
    ),
    *("chat agents.py:scout", "runs", "runs --json", "show last", "run --help", "prune last"),
)


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
    if encoding := order["environment"].get("PYTHONIOENCODING"):
        for stream, errors in ((sys.stdout, "strict"), (sys.stderr, "backslashreplace")):
            cast("TextIOWrapper", stream).reconfigure(encoding=encoding, errors=errors)
    try:
        journeyman.cli.main()
    except SystemExit as ended:
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - waits for threads
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - temporary files are removed there
        with suppress(OSError):  # a stream takes nothing: then it ends as Python ends then
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(ended.code or 0))  # at once: forgetting all modules takes longer than the command
        raise
    raise AssertionError("main() exits")


def _hear(number: int, frame: object) -> None:
    """Do nothing: what is written to the descriptor of `set_wakeup_fd` tells of the signal."""


def _order_of(asking: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return what is asked for, and the descriptors that become stdin, stdout and stderr."""
    message, descriptors, *_ = socket.recv_fds(asking, 1_000_000, 3)
    while not message.endswith(b"\n"):
        message += asking.recv(1_000_000)
    return json.loads(message), descriptors


class Server:
    """Starts what is asked for at a socket. It says the process id at once, and the exit code later; below zero it is a
    signal.
    """

    def __init__(self, address: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(address)
        self._listening.listen()
        self._woken, waking = socket.socketpair()  # by the end of a command
        self._waking = waking
        self._asking: dict[int, socket.socket] = {}
        """By process: who asked for it."""

    def serve(self) -> None:
        """Serve until stdin is closed."""
        self._waking.setblocking(False)
        signal.signal(signal.SIGCHLD, _hear)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        os.write(1, b"ready\n")
        while sys.stdin not in (ready := select([sys.stdin, self._listening, self._woken], [], [])[0]):
            if self._woken in ready:
                self._woken.recv(4096)
                self._tell_ends()
            if self._listening in ready:
                self._start(self._listening.accept()[0])

    def _start(self, asking: socket.socket) -> None:
        order, descriptors = _order_of(asking)
        process = os.fork()
        if process == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (self._listening, self._woken, self._waking, asking, *self._asking.values()):
                each.close()
            _become(order, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        asking.sendall(struct.pack("i", process))
        self._asking[process] = asking

    def _tell_ends(self) -> None:
        while self._asking:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                return
            with self._asking.pop(process) as asking, suppress(BrokenPipeError):  # nobody wants to know
                asking.sendall(struct.pack("i", os.waitstatus_to_exitcode(status)))


def _do_first_commands(folder: Path) -> None:
    """Do commands in this process, so that nothing is left of them but what is made once.

    Raises:
        RuntimeError: one has failed, or has left a thread, which a fork would lose.
    """
    folder.mkdir()
    (folder / "agents.py").write_text(_AGENTS)
    kept = [*map(os.dup, range(3))]
    path, environment, before = list(sys.path), dict(os.environ), Path.cwd()
    os.environ["JOURNEYMAN_RECORD"] = "0"
    os.chdir(folder)
    with Path(os.devnull).open("r+b") as nothing:
        for standard in range(3):
            os.dup2(nothing.fileno(), standard)
    codes = {words: execute(words.split()) for words in _FIRST_COMMANDS}
    sys.stdout.flush()
    sys.stderr.flush()
    for standard, descriptor in enumerate(kept):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.chdir(before)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    del sys.modules["agents"]
    if any(codes.values()) or len(threading.enumerate()) > 1:
        raise RuntimeError(f"The first commands have failed, or go on: {codes}, {threading.enumerate()}")


def main(address: str) -> None:
    """Load what commands need, and serve."""
    for name in commands:
        commands[name]  # loads its module
    for name in (*(f"journeyman.{name}" for name in _USED_BY_COMMANDS), *_USED_BY_THESE):
        import_module(name)
    _do_first_commands(Path(address).with_name("first"))
    gc.collect()
    gc.freeze()
    Server(address).serve()


if __name__ == "__main__":
    main(sys.argv[1])
