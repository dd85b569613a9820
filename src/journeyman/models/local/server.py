"""The servers of local models: a child process each, started when it is first needed, and shared by the whole process.

A server belongs to the process, not to an event loop or an agent: loading takes seconds, and memory. It ends with the
process, however that ends: it reads from a pipe that the process holds open. One that has died is started again by the
next request.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from journeyman.data import lazy_dataclass
from journeyman.errors import ModelUnavailable
from journeyman.models.local.child import MARK
from journeyman.processes import filter_environment, signal_name

_CHILD: Final = Path(__file__).with_name("child.py")
_KEPT_LINES: Final = 40
_END_S: Final = 2.0
_progress: Final = logging.getLogger("journeyman.progress")


@lazy_dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options that a model's server is started with. Models with equal ones share one server."""

    path: Path
    """The file with the weights."""
    name: str
    """The model's name, in requests to the server."""
    window_tokens: int
    """The window of each conversation."""
    max_concurrency: int
    """How many requests it answers at the same time; others wait for their turn."""
    threads: int | None
    """How many threads it computes with; None: half as many as this machine has processors. They wait for one another
    in turns, so more than are free make it slower by far."""
    template: str | None
    """The chat template; None: that of the weights."""


@lazy_dataclass(frozen=True)
class Address:
    """The address of a server, and the key that its requests need."""

    url: str
    key: str


@lazy_dataclass(eq=False)
class _Child:
    """One process of a server."""

    process: subprocess.Popen[str]
    started: Future[Address]
    """Is done when the model is loaded, or when the process has ended before."""
    owner: int
    """The id of the process that started it: after a fork it is not the child of whoever looks."""
    lines: deque[str]
    """The last lines that it wrote."""

    def is_of_use(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None


class LocalServer:
    """The server of one model in this process, whether it runs or not."""

    def __init__(self, options: ServerOptions) -> None:
        self.options: Final = options
        self._lock: Final = threading.Lock()
        self._child: _Child | None = None

    async def address(self) -> Address:
        """Return where the server answers; it is started if it does not run, and waited for while it loads.

        Raises:
            ModelUnavailable: it cannot be started, or ended while it loaded.
        """
        with self._lock:
            child = self._child
            if child is None or not child.is_of_use():
                child = self._child = self._start()
        return await asyncio.wrap_future(child.started)

    @property
    def process_id(self) -> int | None:
        """The id of its process; None if there is none."""
        child = self._child
        return child.process.pid if child is not None and child.is_of_use() else None

    def end(self) -> None:
        """End its process, if this is the one that started it."""
        with self._lock:
            child, self._child = self._child, None
        if child is None or child.owner != os.getpid():
            return
        if child.process.stdin is not None:
            with suppress(OSError):  # it has ended already
                child.process.stdin.close()
        try:
            child.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()

    def _start(self) -> _Child:
        options, key = self.options, secrets.token_urlsafe(24)
        try:
            size_mb = options.path.stat().st_size / 1e6
            _progress.info("local:%s: loading %s, %.0f MB.", options.name, options.path, size_mb)
            process = subprocess.Popen(
                [sys.executable, "-P", str(_CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                env=filter_environment(()),
                start_new_session=True,  # an interrupt at the terminal is for this process
            )
        except OSError as error:
            raise _unavailable(options, f"cannot be started: {error}") from error
        asked = {
            "path": str(options.path),
            "name": options.name,
            "key": key,
            "window_tokens": options.window_tokens,
            "slots": options.max_concurrency,
            "threads": options.threads or max(1, (os.cpu_count() or 1) // 2),
            "template": options.template,
        }
        if process.stdin is not None:
            with suppress(OSError):  # it has ended already, and its last lines say why
                process.stdin.write(f"{json.dumps(asked)}\n")
                process.stdin.flush()
        child = _Child(process, Future(), os.getpid(), deque(maxlen=_KEPT_LINES))
        child.started.set_running_or_notify_cancel()  # so that one who waits no longer cancels it for nobody else
        # Reads on as long as the process lives: a full pipe would stop it.
        threading.Thread(target=_read_output, args=(child, options, key), name="journeyman-local", daemon=True).start()
        return child


@cache
def server_of(options: ServerOptions) -> LocalServer:
    """Return the server with these options: one for the process."""
    server = LocalServer(options)
    atexit.register(server.end)
    return server


def _read_output(child: _Child, options: ServerOptions, key: str) -> None:
    """Read what the process writes until it ends."""
    began_s, out = time.monotonic(), child.process.stdout
    for line in out or ():
        if not line.isspace():
            child.lines.append(line.rstrip())
        if line.startswith(MARK) and not child.started.done():
            _progress.info("local:%s: loaded in %.1f s.", options.name, time.monotonic() - began_s)
            child.started.set_result(Address(json.loads(line.removeprefix(MARK))["url"], key))
    code = child.process.wait()
    for pipe in (child.process.stdin, out):
        with suppress(OSError):  # what was still to be written goes to nobody
            if pipe is not None:
                pipe.close()
    if not child.started.done():
        how = signal_name(-code) if code < 0 else f"exit code {code}"
        said = child.lines[-1].strip() if child.lines else "it wrote nothing"
        child.started.set_exception(_unavailable(options, f"ended while it loaded ({how}): {said}"))


def _unavailable(options: ServerOptions, words: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"The server of local:{options.name} {words}.",
        model=f"local:{options.name}",
        hint=f"See that {options.path} is a whole GGUF file that fits into memory, or give a smaller window_tokens.",
    )
