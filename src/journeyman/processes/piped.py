"""A program whose input, output and errors are pipes of this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import BinaryIO, Final, TypeAlias

from journeyman.processes.process import SandboxProcess

Spawn: TypeAlias = Callable[[int, int, int], Awaitable[SandboxProcess]]
"""Starts a program with the descriptors that it reads from, and writes its output and its errors to."""


class PipedProcess:
    """A program that runs, and the ends of its pipes. A task of its own waits for it."""

    def __init__(self, process: SandboxProcess, stdin: asyncio.StreamWriter, *outputs: asyncio.StreamReader) -> None:
        self.stdin: Final = stdin
        self.stdout, self.stderr = outputs
        self.are_left: Final = process.are_left
        self.send: Final = process.send
        self.failure: OSError | None = None
        """The error with which it could not be started, once that is known."""
        self._process: Final = process
        self._watching: Final = asyncio.create_task(self._watch())

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs. Below 0: a signal of this number ended it."""
        return self._process.exit_code

    async def _watch(self) -> None:
        try:
            await self._process.wait()
        except OSError as error:
            self.failure = error
        await self._process.wait_for_all()

    async def close(self) -> None:
        """End what still runs, and wait for nothing more."""
        self._watching.cancel()
        await asyncio.wait({self._watching})
        self._process.close()
        self.stdin.close()


async def start_piped(spawn: Spawn, *, limit: int) -> PipedProcess:
    """Start a program by `spawn`. `limit`: how many bytes of its output wait to be read."""
    loop = asyncio.get_running_loop()
    with ExitStack() as ours:
        with ExitStack() as theirs:
            ends: list[tuple[int, BinaryIO]] = []
            for writes_here in (True, False, False):
                reading, writing = os.pipe()
                inner, outer = (reading, writing) if writes_here else (writing, reading)
                theirs.callback(os.close, inner)
                ends.append((inner, ours.enter_context(os.fdopen(outer, "wb" if writes_here else "rb", 0))))
            process = await spawn(*[inner for inner, _ in ends])
        ours.callback(process.close)
        input, *outputs = [file for _, file in ends]
        unread = asyncio.StreamReader()  # a writer wants a protocol, and none is made for writing alone
        transport, protocol = await loop.connect_write_pipe(lambda: asyncio.StreamReaderProtocol(unread), input)
        readers = [asyncio.StreamReader(limit) for _ in outputs]
        for reader, file in zip(readers, outputs, strict=True):
            await loop.connect_read_pipe(lambda reader=reader: asyncio.StreamReaderProtocol(reader), file)
        ours.pop_all()
    return PipedProcess(process, asyncio.StreamWriter(transport, protocol, None, loop), *readers)
