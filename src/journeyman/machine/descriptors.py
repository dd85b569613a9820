"""Standard descriptors that one part of a program takes away from all others, and what reads and writes them.

Whoever takes a descriptor keeps what it led to, and gives it back, or does not. Reading waits in a thread that can be
left behind: nothing interrupts it, and the process ends without it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from queue import SimpleQueue
from select import select
from threading import Thread
from typing import Final, TypeVar

STDIN, STDOUT, STDERR = 0, 1, 2
_READ_BYTES: Final = 1 << 16
T = TypeVar("T")


def take_descriptor(number: int, instead: int) -> int:
    """Return a new descriptor of what `number` leads to. It leads where `instead` does from then on: that is closed."""
    taken = -1  # where it was closed by whoever started the program, so that `instead` may have its number
    if instead != number:
        with suppress(OSError):
            taken = os.dup(number)
        os.dup2(instead, number)
        os.close(instead)
    os.set_inheritable(number, True)
    return os.open(os.devnull, os.O_RDWR) if taken < 0 else taken


def take_stdout(*, drop_others: bool = False) -> int:
    """Return a new descriptor of what stdout leads to. What others print goes to stderr from then on; with
    `drop_others`, or where stderr is closed, nowhere."""
    try:
        others = os.open(os.devnull, os.O_WRONLY) if drop_others else os.dup(STDERR)
    except OSError:  # stderr is closed
        others = os.open(os.devnull, os.O_WRONLY)
    return take_descriptor(STDOUT, others)


def take_stdin() -> int:
    """Return a new descriptor of what stdin leads to. Others find nothing there from then on."""
    return take_descriptor(STDIN, os.open(os.devnull, os.O_RDONLY))


def lines_of(descriptor: int) -> Iterator[bytes]:
    """Give the lines as they come, with their ends, as a file does.

    No file's buffer is used: if the process ended while a thread waits for one of stdin, Python would abort.
    """
    begun = bytearray()
    while data := _read(descriptor):
        *whole, rest = data.split(b"\n")
        for line in whole:
            yield bytes(begun) + line + b"\n"
            begun.clear()
        begun += rest
    if begun:
        yield bytes(begun)


def _read(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, _READ_BYTES)
        except BlockingIOError:  # it is shared with a program that does not wait
            select([descriptor], [], [])


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of it, however slowly it is read.

    Raises:
        OSError: it cannot be written.
    """
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # it is shared with a program that does not wait
            select([], [descriptor], [])


class LeavableThread:
    """A thread that does one job after the other, and can be left behind in one: the process does not wait for it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._work, name=name, daemon=True).start()

    async def do(self, job: Callable[[], T]) -> T:
        """Do a job there, and return its result, or raise what it raises."""
        done: asyncio.Future[T] = self._loop.create_future()

        def work() -> None:
            try:
                settle = partial(done.set_result, job())
            except Exception as error:  # noqa: BLE001 - it is raised where the job is waited for
                settle = partial(done.set_exception, error)
            with suppress(RuntimeError):  # nobody waits any more: the event loop is closed
                self._loop.call_soon_threadsafe(lambda: None if done.done() else settle())

        self._jobs.put(work)
        return await done

    def close(self) -> None:
        """Let the thread end, after the jobs that it has."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (work := self._jobs.get()) is not None:
            work()


async def iterate_in_thread(items: Iterator[T], name: str) -> AsyncGenerator[T]:
    """Give what an iterator gives that may have to wait. It is asked in a thread that can be left behind."""
    with closing(LeavableThread(name)) as thread:
        while (item := await thread.do(partial(next, items, None))) is not None:
            yield item
