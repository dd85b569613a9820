"""The real command line in real processes: run to its end, or watched and interrupted while it goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import IO

AGENTS = Path(__file__).parent / "agents.py"
"""The agents that these tests run."""
_PATIENCE_S = 30.0
_LEFT_OUT = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "COLUMNS", "NO_COLOR", "FORCE_COLOR")

# Whoever runs the tests may ignore Ctrl-C, and processes inherit that.
# In a terminal of its own, a process has yet to make that its own, so that Ctrl-C there reaches it.
_START = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
if os.isatty(0) and os.getsid(0) == os.getpid():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "journeyman", *sys.argv[1:]])
"""


def command(*words: str | Path) -> list[str]:
    """Return the command that runs `journeyman` with these words."""
    return [sys.executable, "-ISc", _START, *map(str, words)]


def environment(**more: str) -> dict[str, str]:
    """Return an environment without keys and without wishes about colour."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    return {**kept, "PYTHONUTF8": "1", **more}


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
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


class Warm:
    """Runs commands to their ends, forked from a process that has imported the command line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-P", Path(__file__).parent / "warm.py"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __call__(
        self, *words: str | Path, cwd: Path | None = None, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> Done:
        names = [self._folder / name for name in ("stdin", "stdout", "stderr")]
        for name in names:
            name.write_bytes(stdin if name.name == "stdin" else b"")
        command = {
            "words": [*map(str, words)],
            "folder": str(cwd or Path.cwd()),
            "environment": environment(**(env or {})),
            "files": [(str(name), os.O_RDONLY if number == 0 else os.O_WRONLY) for number, name in enumerate(names)],
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
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

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._printed: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self._news = Condition()
        self._readers = [Thread(target=self._read, args=(name,), daemon=True) for name in self._printed]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str) -> None:
        stream = self._process.stdout if name == "stdout" else self._process.stderr
        assert stream is not None
        while data := _next(stream):
            with self._news:
                self._printed[name] += data
                self._news.notify_all()

    def wait_for(self, text: str) -> None:
        """Wait until stderr shows `text`."""
        with self._news:
            found = self._news.wait_for(lambda: text.encode() in self._printed["stderr"], _PATIENCE_S)
        assert found, f"{text!r} did not appear in:\n{self._printed['stderr'].decode()}"

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
def running(*words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Generator[Running]:
    """Start a command. It is killed when the block ends, unless it ended before."""
    with subprocess.Popen(
        command(*words),
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()
