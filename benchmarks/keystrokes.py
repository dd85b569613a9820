"""From a key to its echo, while an answer streams: a chat in a real terminal, and a model of 200 tokens a second.

`journeyman chat` runs in a process of its own, as for its users; `talker` and `lister` in this file are its agents. The
wall time from the writing of a key to the arrival of what draws it is measured, with the answer being laid out as
Markdown meanwhile: short blocks, and long ones, of which the growing one is laid out anew as a whole. In turn the same
is measured of a loop that echoes: what the machine takes by itself, with all that goes on beside.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from select import select
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.measuring import Effort, Row
from journeyman import Agent
from journeyman.model import Part, Request, ResponseStarted, TextPart
from journeyman.types import Usage

_TOKENS_PER_SECOND: Final = 200
_COLUMNS, _ROWS = 80, 24
_LOOP: Final = "import os, tty; tty.setraw(0); os.write(1, b'ready')\nwhile True: os.write(1, os.read(0, 99))"
_PATIENCE_S: Final = 30.0
_BETWEEN_KEYS_S: Final = 0.03
_KEYS: Final = "äöüéèêñçøåæëïûôîâáíóúàìòù"
"""None of them is in the answer, nor in a control sequence."""
_PARAGRAPH: Final = "Here is *what* I **found** in `src/app.py`, and a list of what there is to do about it:\n\n"
_LIST: Final = (
    "1. Read the `settings` first.\n2. Then call **both** of them, one after the other.\n3. Look at it again.\n\n"
)
_CODE: Final = (
    '```python\ndef total(rows: list[int]) -> int:\n    """Add them up."""\n    return sum(rows)  # all\n```\n\n'
)
_SHORT: Final = _PARAGRAPH + _LIST + _CODE
_ITEMS: Final = "".join(f"{n}. Read the `settings` first, then call **both** of [them](x.md).\n" for n in range(1, 39))
_LONG: Final = f"{_ITEMS}\n```python\n{'    total = sum(row.a for row in rows if row)  # all{chr(10)}' * 38}```\n\n"


class Talker:
    """A model that writes for as long as it is listened to."""

    provider, name = "benchmark", "talker"

    def __init__(self, text: str) -> None:
        self._tokens = re.findall(r"\s*\w{1,5}|\s*\W", text)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        yield self._parts()

    async def _parts(self) -> AsyncIterator[Part]:
        yield ResponseStarted("talker", "1", Usage(requests=1, input_tokens=7))
        started, n = asyncio.get_running_loop().time(), 0
        while True:
            for token in self._tokens:
                n += 1
                yield TextPart(token)
                await asyncio.sleep(started + n / _TOKENS_PER_SECOND - asyncio.get_running_loop().time())


talker = Agent(name="talker", model=Talker(_SHORT))
lister = Agent(name="lister", model=Talker(_LONG))


def measure(effort: Effort) -> list[Row]:
    """Measure the median and the tail; a frame of a screen with 60 of them a second takes 16 ms."""
    with TemporaryDirectory() as folder, _loop() as loop:
        with _chat(Path(folder), "talker") as terminal:
            idle = [*_echoes(terminal, loop, effort.rounds(200))]
            _begin(terminal)
            streaming = [*_echoes(terminal, loop, effort.rounds(1_000))]
        with _chat(Path(folder), "lister") as terminal:
            _begin(terminal)
            long = [*_echoes(terminal, loop, effort.rounds(1_000))]
    what = f"key to echo, {_TOKENS_PER_SECOND} tokens/s stream"
    return [
        _row("key to echo, no answer streams: median", idle, 50),
        _row(f"{what}: median", streaming, 50),
        _row(f"{what}: 95 of 100", streaming, 95, "≤ 16"),
        _row(f"{what}: 99 of 100", streaming, 99),
        _row(f"{what} of long blocks: 95 of 100", long, 95, "≤ 16"),
    ]


def _begin(terminal: int) -> None:
    os.write(terminal, b"\x15go on\r")
    _until(terminal, b"Read the")


def _row(what: str, seconds: list[tuple[float, float]], percent: int, target: str = "") -> Row:
    ours, theirs = (
        quantiles([each[side] * 1e3 for each in seconds] * 2, n=100, method="inclusive")[percent - 1] for side in (0, 1)
    )
    return Row(
        what=what,
        unit="ms",
        ours=ours,
        reference="a loop that echoes",
        theirs=theirs,
        ratio=ours / theirs,
        target=target,
        turns=len(seconds),
    )


@contextmanager
def _chat(folder: Path, agent: str) -> Generator[int]:
    """Start a chat, and wait until it listens."""
    command = [sys.executable, "-m", "journeyman", "chat", f"{Path(__file__).resolve()}:{agent}"]
    with _started(command, b"shows what else there is", XDG_DATA_HOME=str(folder)) as terminal:
        yield terminal


def _loop() -> AbstractContextManager[int]:
    return _started([sys.executable, "-c", _LOOP], b"ready")


@contextmanager
def _started(command: list[str], sign: bytes, **more: str) -> Generator[int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", **more}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    try:
        _until(ours, sign)
        yield ours
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


def _until(terminal: int, sign: bytes) -> None:
    """Read until the terminal was sent `sign`."""
    seen, until = b"", time.monotonic() + _PATIENCE_S
    while sign not in seen:
        if not select([terminal], [], [], max(0.0, until - time.monotonic()))[0]:
            raise TimeoutError(f"The chat did not show {sign!r} within {_PATIENCE_S} s. It showed {seen!r}.")
        seen += os.read(terminal, 65_536)


def _echoes(terminal: int, loop: int, n_keys: int) -> Iterator[tuple[float, float]]:
    """Type keys that the answer has not, and give the time until each was drawn, and until the loop had echoed it."""
    for number in range(n_keys):
        key = _KEYS[number % len(_KEYS)]
        if key == _KEYS[0]:
            os.write(terminal, b"\x15")  # an empty line again
        _rest(terminal)
        yield _echo(terminal, key.encode()), _echo(loop, key.encode())


def _echo(terminal: int, key: bytes) -> float:
    started = time.perf_counter()
    os.write(terminal, key)
    _until(terminal, key)
    return time.perf_counter() - started


def _rest(terminal: int) -> None:
    """Wait a little, as those who type do, and read what is drawn meanwhile."""
    until = time.monotonic() + _BETWEEN_KEYS_S
    while (left := until - time.monotonic()) > 0:
        if select([terminal], [], [], left)[0]:
            os.read(terminal, 65_536)
