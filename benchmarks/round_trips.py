"""Agents behind HTTP: how soon a client has the result of a run, and how many runs a server answers in a second.

The servers run in processes of their own, as the command serves an application: ours with its runs in memory and in a
file, and a bare Starlette endpoint that reads the same body and sends about as much. 1, 16 and 64 clients, each on a
connection that is kept alive, ask as soon as they were answered. The servers take turns, so a ratio says more than a
figure.

A run in a file has ended when that is on the disk. How long a disk takes for that differs by a factor of thirty, on one
machine, too: so one server has a disk that takes 4 ms, as many do. Its runs a second are compared with how often that
disk can be asked.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import Effort, Row, compared

_CLIENTS = (1, 16, 64)
_TURN_S = 2.0
_SYNC_S = 0.004
_BODY = b'{"input": "Go."}'
_ASKED = (
    b"POST /agents/echo/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b"
) % (len(_BODY), _BODY)


def measure(effort: Effort) -> list[Row]:
    """Measure the time of a request, and its 99th percentile, against the bare endpoint."""
    return asyncio.run(_measure(effort))


async def _measure(effort: Effort) -> list[Row]:
    names = ("bare", "memory", "file", "slow")
    turn_s = _TURN_S if effort.share_of_size == 1.0 else 0.2
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        ports = {name: await stack.enter_async_context(_server(name)) for name in names}
        for port in ports.values():
            await _ask_for(port, 1, turn_s / 4)  # warm
        for clients in _CLIENTS:
            each: dict[str, list[float]] = {name: [] for name in (*names, "disk")}
            late: dict[str, list[float]] = {name: [] for name in names}
            for number in range(effort.rounds(5)):
                each["disk"].append(_sync_for(turn_s / 4))
                for name in names[number % 4 :] + names[: number % 4]:
                    began_s = time.perf_counter()
                    took_s = await _ask_for(ports[name], clients, turn_s)
                    # Not the turn alone: what was asked in its last moment is answered after it.
                    each[name].append((time.perf_counter() - began_s) / len(took_s))
                    late[name].append(
                        quantiles(took_s, n=100, method="inclusive")[98] if len(took_s) > 1 else took_s[0]
                    )
            for name, most, latest in (("memory", "≤ 3", "≤ 5"), ("file", "", "")):
                what, by = f"{clients} clients, runs in {'memory' if name == 'memory' else 'a file'}", {"ours": name}
                rows.append(
                    compared(f"{what}: time a run", each, **by, reference="bare", unit="ms", scale=1e3, target=most)
                )
                rows.append(compared(f"{what}: p99", late, **by, reference="bare", unit="ms", scale=1e3, target=latest))
            rates = {name: [1 / took_s for took_s in each[name]] for name in ("slow", "disk")}
            what = f"{clients} clients, a disk that takes {_SYNC_S * 1e3:.0f} ms: runs a second"
            most = "≥ 2" if clients > 1 else ""
            rows.append(compared(what, rates, ours="slow", reference="disk", unit="1/s", scale=1.0, target=most))
    return rows


async def _ask_for(port: int, clients: int, seconds: float) -> list[float]:
    """Let clients ask for so long, and return how long each request took."""
    took_s: list[float] = []
    until_s = time.perf_counter() + seconds

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began_s = time.perf_counter()
        while True:
            writer.write(_ASKED)
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.partition(b"\r\n")[0]:
                raise AssertionError(f"It was answered: {head!r}")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            now_s = time.perf_counter()
            took_s.append(now_s - began_s)
            began_s = now_s
            if now_s > until_s:
                break
        writer.close()

    await asyncio.gather(*(ask() for _ in range(clients)))
    return took_s


class SlowDisk(sqlite3.Connection):
    """A connection to a file on a disk that is slow."""

    is_synced = False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401 - of the driver
        if sql.startswith("PRAGMA synchronous"):
            self.is_synced = sql.endswith("FULL")
        until_s = time.perf_counter() + _SYNC_S
        cursor = super().execute(sql, parameters)
        if sql == "COMMIT" and self.is_synced:
            time.sleep(max(until_s - time.perf_counter(), 0.0))
        return cursor


def _sync_for(seconds: float) -> float:
    """Write one page after the other to that disk for so long, and return the time that each took."""
    with TemporaryDirectory() as folder, closing(SlowDisk(Path(folder) / "pages.db", isolation_level=None)) as file:
        for each in ("PRAGMA journal_mode = WAL", "CREATE TABLE pages (n)", "PRAGMA synchronous = FULL"):
            file.execute(each)
        n_pages, began_s = 0, time.perf_counter()
        while time.perf_counter() < began_s + seconds:
            for each in ("BEGIN", "INSERT INTO pages VALUES (1)", "COMMIT"):
                file.execute(each)
            n_pages += 1
        return (time.perf_counter() - began_s) / n_pages


@asynccontextmanager
async def _server(which: str) -> AsyncGenerator[int]:
    with TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.round_trips",
            which,
            str(Path(folder) / "runs.db"),
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parent.parent,
        )
        if process.stdout is None:
            raise AssertionError("It has no stdout.")
        try:
            yield int(await process.stdout.readline())
        finally:
            process.terminate()
            await process.wait()


async def _serve(which: str, path: str) -> None:
    from starlette.applications import Starlette  # noqa: PLC0415 - only what is measured is loaded
    from starlette.requests import Request  # noqa: PLC0415
    from starlette.responses import Response  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    from journeyman import Agent  # noqa: PLC0415
    from journeyman.serve import ServeLimits, create_app  # noqa: PLC0415
    from journeyman.serve.http_guard import listen, serve_on, spare_collections  # noqa: PLC0415
    from journeyman.testing.scripted import FunctionModel  # noqa: PLC0415

    document = b'{"version":1,"agent":"echo","code":"SUCCESS","output":"Gone.","history":"%b"}' % (b"." * 1_500)

    async def answer(request: Request) -> Response:
        await request.json()
        return Response(document, media_type="application/json")

    bare = Starlette(routes=[Route("/agents/echo/runs", answer, methods=["POST"])])
    echo = Agent(name="echo", model=FunctionModel(lambda _: "Gone."))
    if which == "slow":
        setattr(sqlite3, "connect", partial(sqlite3.connect, factory=SlowDisk))  # noqa: B010 - of a module
    store = None if which == "memory" else path
    served = bare if which == "bare" else create_app([echo], store=store, limits=ServeLimits(runs=1_000))
    spare_collections()  # as the command does, before it takes a port
    with listen("127.0.0.1", 0) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        await serve_on(listening, served)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2]))
