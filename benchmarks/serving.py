"""Agents behind HTTP: what 500 clients that follow events cost, and when the first event arrives.

Both servers run in processes of their own, and their CPU is compared: ours, and a bare Starlette endpoint that sends
the same bytes in as many pieces; where a client is behind, ours sends it several at once. The clients are in this
process.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from random import Random
from statistics import quantiles

import aiohttp
import orjson

from benchmarks.measuring import Effort, Row, alone, compared
from journeyman import Agent
from journeyman.model import BlockFinished, Part, Request, ResponseFinished, ResponseStarted, TextPart
from journeyman.types import Text, Usage

_CLIENTS = 500
_STREAMS = 100
_PIECES = 50
"""What an answer is made of."""


def measure(effort: Effort) -> list[Row]:
    """Measure the CPU of a server whose events are followed, and the time to the first."""
    return asyncio.run(_measure(effort))


async def _measure(effort: Effort) -> list[Row]:
    clients, streams = effort.size(_CLIENTS), effort.size(_STREAMS)
    costs: dict[str, list[float]] = {"journeyman": [], "Starlette": []}
    async with _server("agents") as ours, _server("bare") as bare:
        body = await _followed_at_once(ours, clients)  # warm
        await _followed_at_once(bare, clients, body)
        for number in range(effort.rounds(7)):
            for name in ("journeyman", "Starlette")[:: 1 if number % 2 else -1]:
                url = ours if name == "journeyman" else bare
                before = await _cpu(url)
                await _followed_at_once(url, clients, b"" if name == "journeyman" else body)
                costs[name].append((await _cpu(url) - before) / clients)
        p99s_ms: list[float] = []
        for _ in range(effort.rounds(7)):
            late_s = await _first_events(ours, streams)
            p99s_ms.append(quantiles(late_s, n=100, method="inclusive")[98] * 1e3)
    what = f"{clients} clients follow a run"
    return [
        compared(
            what, costs, ours="journeyman", reference="Starlette", unit="us CPU / client", scale=1e6, target="≤ 1.2"
        ),
        alone(f"first event after the first token, p99 of {streams} streams", p99s_ms, unit="ms", target="≤ 5"),
    ]


async def _followed_at_once(url: str, clients: int, body: bytes = b"") -> bytes:
    """Let so many clients follow one run to its end, and return what each was sent."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:
        headers = {"Prefer": "respond-async"}
        async with client.post(f"{url}/agents/slow/runs", json={"input": "Go."}, headers=headers) as response:
            run = (await response.json())["id"] if response.status == 202 else "none"
        if body:
            await client.post(f"{url}/body", data=body)

        async def follow() -> bytes:
            async with client.get(f"{url}/runs/{run}/events") as stream:
                await ready.wait()
                return await stream.read()

        ready = asyncio.Event()
        following = [asyncio.create_task(follow()) for _ in range(clients)]
        await asyncio.sleep(1.0)  # all are connected
        ready.set()
        await client.post(f"{url}/go")
        sent = await asyncio.gather(*following)
    if len({len(each) for each in sent}) != 1 or sent[0].count(b"event: TextDelta") != _PIECES:
        raise AssertionError(f"The clients were not sent the same {_PIECES} pieces.")
    return sent[0]


async def _first_events(url: str, streams: int) -> list[float]:
    """Return how long after the first token of the model each client had it, in seconds."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:

        async def first() -> float:
            headers = {"Accept": "text/event-stream"}
            async with client.post(f"{url}/agents/timed/runs", json={"input": "Go."}, headers=headers) as stream:
                async for line in stream.content:
                    if line.startswith(b'data: {"type":"TextDelta"'):
                        said = float(orjson.loads(line[6:])["text"])
                        return time.monotonic() - said
            raise AssertionError("No text came.")

        return list(await asyncio.gather(*(first() for _ in range(streams))))


async def _cpu(url: str) -> float:
    async with aiohttp.ClientSession() as client, client.get(f"{url}/cpu") as response:
        return float(await response.text())


@asynccontextmanager
async def _server(which: str) -> AsyncGenerator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.serving",
        which,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    )
    if process.stdout is None:
        raise AssertionError("It has no stdout.")
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


class _Pieces:
    """A model that answers in pieces, once it may."""

    provider, name = "bench", "pieces"

    def __init__(self, may_go: asyncio.Event | None) -> None:
        self._may_go = may_go

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        yield self._parts()

    async def _parts(self) -> AsyncIterator[Part]:
        yield ResponseStarted("pieces", "", Usage(requests=1))
        if self._may_go is not None:
            await self._may_go.wait()
        else:
            await asyncio.sleep(Random().uniform(0.5, 3.0))
        texts = [str(time.monotonic())] if self._may_go is None else [f"{number:03} " * 5 for number in range(_PIECES)]
        for text in texts:
            yield TextPart(text)
            await asyncio.sleep(0.002)
        yield BlockFinished(Text("".join(texts)))
        yield ResponseFinished(stop_reason="end_turn", usage=Usage(requests=1, input_tokens=1, output_tokens=1))


async def _serve(which: str) -> None:
    from starlette.applications import Starlette  # noqa: PLC0415 - only what is measured is loaded
    from starlette.requests import Request as HttpRequest  # noqa: PLC0415
    from starlette.responses import PlainTextResponse, StreamingResponse  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415
    from starlette.types import Receive, Scope, Send  # noqa: PLC0415

    from journeyman.serve import ServeLimits, create_app  # noqa: PLC0415
    from journeyman.serve.http_guard import serve_on, spare_collections  # noqa: PLC0415

    may_go, body = asyncio.Event(), b""

    async def go(request: HttpRequest) -> PlainTextResponse:
        may_go.set()
        await asyncio.sleep(0)
        may_go.clear()
        return PlainTextResponse("ok")

    async def cpu(request: HttpRequest) -> PlainTextResponse:
        return PlainTextResponse(str(time.process_time()))

    async def keep(request: HttpRequest) -> PlainTextResponse:
        nonlocal body
        body = await request.body()
        return PlainTextResponse("ok")

    async def begin(request: HttpRequest) -> PlainTextResponse:
        return PlainTextResponse("ok")

    async def sent() -> AsyncIterator[bytes]:
        blocks = [block + b"\n\n" for block in body.split(b"\n\n")[:-1]]
        texts = [block for block in blocks if b"event: TextDelta" in block]
        before = blocks.index(texts[0]) if texts else 0
        yield b"".join(blocks[:before])
        await may_go.wait()
        for block in texts:
            yield block
            await asyncio.sleep(0.002)
        yield b"".join(blocks[before + len(texts) :])

    async def events(request: HttpRequest) -> StreamingResponse:
        return StreamingResponse(sent(), media_type="text/event-stream")

    served_agents = [Agent(name=name, model=_Pieces(gate)) for name, gate in (("slow", may_go), ("timed", None))]
    agents = create_app(served_agents, limits=ServeLimits(runs=1_000, followers=10_000))
    own = [Route("/go", go, methods=["POST"]), Route("/cpu", cpu), Route("/body", keep, methods=["POST"])]
    theirs = [Route("/agents/slow/runs", begin, methods=["POST"]), Route("/runs/{id}/events", events)]
    bare = Starlette(routes=[*own, *theirs])

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        is_ours = which == "agents" and scope.get("path") not in ("/go", "/cpu", "/body")
        await (agents if is_ours else bare)(scope, receive, send)

    spare_collections()
    with socket.create_server(("127.0.0.1", 0), backlog=2_000) as listening:
        sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        await serve_on(listening, served)


if __name__ == "__main__":
    import_module("journeyman.serve.api")  # as the command does, before it takes a port
    asyncio.run(_serve(sys.argv[1]))
