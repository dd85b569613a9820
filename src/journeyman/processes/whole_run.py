"""A program that is started, waited for and read as a whole, for callers that wait in a thread."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from journeyman.processes.process import SandboxProcess


def run_whole(
    spawn: Callable[..., Awaitable[SandboxProcess]],
    program: str,
    arguments: Sequence[str],
    *,
    folder: str,
    environment: Mapping[str, str],
    timeout_s: float,
    with_errors: bool = False,
) -> tuple[int, bytes]:
    """Start a program without input, by what starts one in a box or in none, and return its exit code and its output,
    `with_errors` among it or without them.

    Raises:
        OSError: it cannot be started.
        SandboxUnavailable: the box is closed or broken.
        TimeoutError: it took too long, and was ended.
    """

    async def run(output: int) -> int:
        errors = output if with_errors else None
        process = await spawn(program, arguments, folder=folder, environment=environment, stdout=output, stderr=errors)
        try:
            async with asyncio.timeout(timeout_s):
                return await process.wait()
        finally:
            process.close()

    with tempfile.TemporaryFile() as output, ThreadPoolExecutor(1) as thread:  # an event loop may run in this one
        code = thread.submit(lambda: asyncio.run(run(output.fileno()))).result()
        output.seek(0)
        return code, output.read()
