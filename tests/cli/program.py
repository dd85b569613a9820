"""The real command line in real processes: run to its end, or watched and interrupted while it goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType
from typing import IO, Literal, Protocol, TypeAlias

AGENTS = Path(__file__).parent / "agents.py"
"""The agents that these tests run."""
LACKING = AGENTS.with_name("lacking.py")
"""The command line where a package is not installed: the first of its words."""
_DATA = tempfile.mkdtemp(prefix="journeyman-tests-")
"""Where commands keep what outlives them, if a test does not say: not where the user's own is."""
QUICK_PYTEST = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "journeyman.testing.pytest_plugin"}
"""An environment in which `journeyman test` does not load the plugins of others, which takes longer than its tests."""
_SETTINGS = Path(__file__).parent / "settings"
"""The settings of whoever runs commands in tests: commands of agents have no box, if a test does not say."""
_PATIENCE_S = 60.0
_LEFT_OUT = (
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "COLUMNS",
    "NO_COLOR",
    "FORCE_COLOR",
)

# Whoever runs the tests may ignore Ctrl-C, and processes inherit that.
# In a terminal of its own, a process has yet to make that its own, so that Ctrl-C there reaches it.
_START = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
for terminal in filter(os.isatty, (0, 2)):
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    break
os.execv(sys.executable, [sys.executable, "-m", "journeyman", *sys.argv[1:]])
"""


def command(*words: str | Path) -> list[str]:
    """Return the command that runs `journeyman` with these words."""
    return [sys.executable, "-ISc", _START, *map(str, words)]


def environment(**more: str) -> dict[str, str]:
    """Return an environment without keys and without wishes about colour."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    config = os.environ.get("XDG_CONFIG_HOME", str(_SETTINGS))
    return {"XDG_CONFIG_HOME": config, "XDG_DATA_HOME": _DATA, **kept, "PYTHONUTF8": "1", **more}


def timeless(text: str) -> str:
    """Return `text` without the durations at the ends of lines: short ones are not even shown."""
    return re.sub(r" *\b[\d.]+ m?s$", "", text, flags=re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def error(self) -> str:
        """The line with the error: the last one on stderr."""
        return self.stderr.rstrip("\n").rpartition("\n")[2]


def assert_one_error_line(done: Done, code: int, parts: list[str]) -> None:
    """Assert that the command failed with one line that holds `parts`, and put nothing on stdout."""
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert [part for part in parts if part not in errors[0]] == [], errors[0]
    assert ".." not in errors[0].replace("...", "")
    assert "Traceback" not in done.stderr
    assert (done.code, done.stdout) == (code, "")


def journeyman(
    *words: str | Path, cwd: Path | None = None, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> Done:
    """Run a command to its end, from nothing."""
    done = subprocess.run(
        command(*words),
        cwd=cwd,
        input=stdin,
        env=environment(**(env or {})),
        capture_output=True,
        timeout=_PATIENCE_S,
        check=False,
        start_new_session=True,  # whoever runs the tests is not to be asked
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


class Process(Protocol):
    """A command under way, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...

    def __enter__(self) -> object: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


Words: TypeAlias = Sequence[str | Path]
Streams: TypeAlias = tuple[int, int, int]
"""The descriptors that become stdin, stdout and stderr."""


class Start(Protocol):
    """Starts `journeyman` with these words."""

    def __call__(self, words: Words, streams: Streams, folder: Path | None, env: Mapping[str, str]) -> Process: ...


def from_nothing(words: Words, streams: Streams, folder: Path | None, env: Mapping[str, str]) -> Process:
    """Start it as a user does."""
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        command(*words),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=folder,
        env=env,
        start_new_session=True,  # whoever runs the tests is not to be asked
    )


class Forked:
    """A command that was forked from the warm process, which says over `link` how it goes."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._code: int | None = None
        self.pid = self._number(_PATIENCE_S)

    def _number(self, timeout: float | None) -> int:
        self._link.settimeout(timeout)
        data = self._link.recv(4, socket.MSG_WAITALL)
        assert len(data) == 4, "the warm process has ended"
        return struct.unpack("i", data)[0]

    def poll(self) -> int | None:
        with suppress(BlockingIOError):
            self.wait(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            self._code = self._number(timeout)
            self._link.close()
        return self._code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Forked:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.wait(_PATIENCE_S)


class Warm:
    """Starts commands, forked from a process that has imported the command line. Called, it runs one to its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = folder / "socket"
        here = Path(__file__).parent
        self._process = subprocess.Popen(
            [sys.executable, "-P", here / "warm.py", self._address],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # whoever runs the tests is not to be asked
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def start(
        self,
        words: Words,
        streams: Streams,
        folder: Path | None,
        env: Mapping[str, str],
        *,
        program: Path | None = None,
    ) -> Process:
        """Start a command. With `program`, the words are for that one instead."""
        order = {
            "words": [*map(str, words)],
            "folder": str(folder or Path.cwd()),
            "environment": dict(env),
            "has_terminal": os.isatty(streams[0]) or os.isatty(streams[2]),
            "program": str(program or ""),
        }
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(self._address))
        socket.send_fds(link, [json.dumps(order).encode() + b"\n"], streams)
        return Forked(link)

    def command(self, *words: str | Path, program: Path | None = None) -> list[str]:
        """Return a command that passes its streams to a `journeyman`, or to the program, and ends as that does."""
        passing = Path(__file__).parent / "passing.py"
        return [sys.executable, "-IS", *map(str, (passing, self._address, program or "", *words))]

    def __call__(
        self,
        *words: str | Path,
        cwd: Path | None = None,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        program: Path | None = None,
    ) -> Done:
        names = [self._folder / name for name in ("stdin", "stdout", "stderr")]
        names[0].write_bytes(stdin)
        with names[0].open("rb") as given, names[1].open("wb") as out, names[2].open("wb") as errors:
            streams = (given.fileno(), out.fileno(), errors.fileno())
            process = self.start(words, streams, cwd, environment(**(env or {})), program=program)
            code = process.wait(_PATIENCE_S)
        return Done(code, names[1].read_text("utf-8"), names[2].read_text("utf-8"))

    def close(self) -> None:
        with self._process:
            self._process.kill()


def _next(stream: IO[bytes]) -> bytes:
    try:
        return os.read(stream.fileno(), 4096)
    except (OSError, ValueError):  # nobody wants to know any more, and it was closed
        return b""


class Running:
    """A command under way, with what it has printed so far."""

    def __init__(self, process: Process, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self._process = process
        self._printed: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self._news = Condition()
        streams = zip(self._printed, (stdout, stderr), strict=True)
        self._readers = [Thread(target=self._read, args=each, daemon=True) for each in streams]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    def _read(self, name: str, stream: IO[bytes]) -> None:
        while data := _next(stream):
            with self._news:
                self._printed[name] += data
                self._news.notify_all()

    def wait_for(self, text: str, stream: Literal["stdout", "stderr"] = "stderr") -> None:
        """Wait until `stream` shows `text`."""
        with self._news:
            found = self._news.wait_for(lambda: text.encode() in self._printed[stream], _PATIENCE_S)
        assert found, f"{text!r} did not appear in:\n{self._printed[stream].decode()}"

    def first_line(self) -> str:
        """Return the first line on stdout, when it is there."""
        self.wait_for("\n", "stdout")
        return self._printed["stdout"].decode().partition("\n")[0]

    def shown(self) -> str:
        """Return what stderr shows by now."""
        with self._news:
            return self._printed["stderr"].decode()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def done(self) -> Done:
        """Wait for the end."""
        code = self._process.wait(_PATIENCE_S)
        for reader in self._readers:
            reader.join(_PATIENCE_S)
        return Done(code, self._printed["stdout"].decode(), self._printed["stderr"].decode())


@contextmanager
def running(
    *words: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
    start: Start = from_nothing,
) -> Generator[Running]:
    """Start a command. It is killed when the block ends, unless it ended before."""
    (out, stdout), (errors, stderr) = os.pipe(), os.pipe()
    with open(os.devnull, "rb") as nothing, open(out, "rb") as printed, open(errors, "rb") as told:  # noqa: PTH123
        process = start(words, ((stdin or nothing).fileno(), stdout, stderr), cwd, environment(**(env or {})))
        for descriptor in (stdout, stderr):
            os.close(descriptor)
        with process:
            try:
                yield Running(process, printed, told)
            finally:
                process.kill()
