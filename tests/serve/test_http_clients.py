"""Clients that are slow, silent or gone: real sockets, at every moment of a request."""

import asyncio
import gc
import os
import signal
import socket
import struct
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
import pytest

from journeyman import Agent
from journeyman.serve import ServeLimits
from journeyman.serve.http_guard import SLOW_S
from journeyman.testing.scripted import FunctionModel
from tests.cli.program import Warm
from tests.play import Door, virtual_clock
from tests.serve.http_served import AppOptions, Served, events_of, serving, waiter
from tests.serve.test_serve_command import code_of, started

BODY = b'{"input": "Go."}'
LINE = b"POST /agents/%b/runs HTTP/1.1\r\n"
HEAD = LINE + b"Host: 127.0.0.1\r\nAccept: text/event-stream\r\nIdempotency-Key: r\r\nContent-Length: 16\r\n\r\n"


def echo() -> Agent:
    return Agent(name="echo", model=FunctionModel(lambda request: request.messages[-1].text))


@asynccontextmanager
async def connected(served: Served) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Give a connection of which nothing is known but that it is open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]), limit=1_024)
    try:
        yield reader, writer
    finally:
        writer.close()


async def until(reader: asyncio.StreamReader, word: bytes) -> None:
    """Read until a word comes."""
    read = b""
    while word not in read:
        piece = await reader.read(1_024)
        assert piece, f"It ended without {word!r}."
        read += piece


async def settled(served: Served, tasks: int) -> None:
    """Wait until nothing is left of the clients but the connection that asks."""
    while len(asyncio.all_tasks()) > tasks:
        assert (await served.ask("GET", "/health"))[0] == 200


@virtual_clock
async def test_a_client_that_never_reads_is_cut_off_and_nobody_waits_for_it() -> None:
    door, text = Door(), "x" * 900_000
    agent = Agent(name="long", model=FunctionModel(door.before(text)))
    async with serving([agent, echo()], on_disconnect="continue") as served:
        await served.ask("GET", "/ready")
        before = len(asyncio.all_tasks())
        async with connected(served) as (_, writer):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            writer.write(HEAD % b"long" + BODY)
            await door.reached.wait()
            other = asyncio.create_task(served.told("GET", "/runs/r/events"))
            door.opened.set()
            assert len((await other)[-1]["output"]) == len(text)
            await asyncio.sleep(SLOW_S)
            await settled(served, before)
            assert (await served.ask("POST", "/agents/echo/runs", {"input": "Hi."}))[1]["output"] == "Hi."
            assert (await served.ended("r"))["code"] == "SUCCESS"


A_MINUTE = (
    ("in its head", LINE % b"echo" + b"Host: 127.0.0.1\r\nX: ", b"", 60),
    ("in its body", HEAD % b"echo", b"", 60),
    ("in its body, just fast enough for the connection", HEAD % b"echo", b"408", 4),
)


@pytest.mark.parametrize(("where", "first", "told", "every_s"), A_MINUTE, ids=[each[0] for each in A_MINUTE])
@virtual_clock
async def test_a_client_that_sends_a_byte_now_and_then_is_cut_off(
    where: str, first: bytes, told: bytes, every_s: float
) -> None:
    async with serving([echo()]) as served, connected(served) as (reader, writer):
        writer.write(first)
        reading = asyncio.create_task(reader.read())
        n_sent = 0
        while not reading.done() and n_sent < 20:
            writer.write(b" ")
            n_sent += 1
            await asyncio.wait({reading}, timeout=every_s)
        assert reading.done(), where
        assert told in reading.result()


MOMENTS = ("connected", "in the head", "before the body", "in the body", "before the first event", "in the middle")
"""When a client leaves; and `at the end`, and while the server closes, which are other tests."""
N_BYTES = {"connected": 0, "in the head": 30, "before the body": -16, "in the body": -5}


def reset(writer: asyncio.StreamWriter) -> None:
    """Leave without a word."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("leave", [asyncio.StreamWriter.close, reset], ids=["closes", "resets"])
@pytest.mark.parametrize("is_stored", [False, True], ids=["plain", "stored"])
async def test_a_client_may_leave_at_every_moment(
    tmp_path: Path, is_stored: bool, leave: Callable[[asyncio.StreamWriter], None]
) -> None:
    for number, moment in enumerate(MOMENTS):
        door, silent = Door(), Door()
        options = AppOptions(store=str(tmp_path / f"{number}.db")) if is_stored else AppOptions()
        quiet = Agent(name="quiet", model=FunctionModel(silent.before("At last.")))
        async with serving([waiter(door), quiet], **options) as served:
            await served.ask("GET", "/ready")
            before = len(asyncio.all_tasks())
            name = b"quiet" if moment == "before the first event" else b"waiter"
            whole = HEAD % name + BODY
            async with connected(served) as (reader, writer):
                writer.write(whole[: N_BYTES.get(moment, len(whole))])
                await writer.drain()
                if moment == "before the first event":
                    await silent.reached.wait()
                elif moment == "in the middle":
                    await until(reader, b"event: ToolCalled")
                else:
                    assert (await served.ask("GET", "/runs/r"))[0] == 404, moment
                leave(writer)
            if moment not in N_BYTES:
                for each in (door, silent) if is_stored else ():
                    each.opened.set()
                document = await served.ended("r")
                assert document["code"] == ("SUCCESS" if is_stored else "EXECUTION_CANCELLED"), moment
            await settled(served, before)
            assert (await served.ask("GET", "/runs/r"))[0] == (404 if moment in N_BYTES else 200), moment


@pytest.mark.parametrize("leave", [asyncio.StreamWriter.close, reset], ids=["closes", "resets"])
async def test_a_client_that_leaves_at_the_last_event_has_lost_nothing(
    leave: Callable[[asyncio.StreamWriter], None],
) -> None:
    async with serving([echo()]) as served:
        await served.ask("GET", "/ready")
        before = len(asyncio.all_tasks())
        async with connected(served) as (reader, writer):
            writer.write(HEAD % b"echo" + BODY)
            await until(reader, b"event: Result")
            leave(writer)
        assert (await served.told("GET", "/runs/r/events"))[-1]["output"] == "Go."
        await settled(served, before)


@pytest.mark.parametrize("leave", [asyncio.StreamWriter.close, reset], ids=["closes", "resets"])
async def test_a_client_that_leaves_while_the_server_closes_holds_nothing_up(
    leave: Callable[[asyncio.StreamWriter], None],
) -> None:
    door = Door()
    async with serving([waiter(door)], on_disconnect="continue") as served, connected(served) as (reader, writer):
        writer.write(HEAD % b"waiter" + BODY)
        await until(reader, b"event: ToolCalled")
        other = asyncio.create_task(served.told("GET", "/runs/r/events"))
        await door.reached.wait()
        closing = asyncio.create_task(served.app.drain(60.0))
        while (await served.ask("GET", "/ready"))[0] == 200:
            pass
        leave(writer)
        door.opened.set()
        await closing
        assert (await other)[-1]["output"] == "It is open."


async def crowd(served: Served, random: Random, *, first: int, n_clients: int) -> None:
    """Let clients begin runs and leave at random, and see that each has its result."""

    async def ask(number: int) -> None:
        headers = {"Accept": "text/event-stream", "Idempotency-Key": f"r{number}"}
        body = {"input": f"I am {number}."}
        stay = random.random()
        try:
            async with (
                asyncio.timeout(stay * 0.2 if stay < 0.3 else None),
                served.client.post(f"{served.url}/agents/echo/runs", json=body, headers=headers) as response,
            ):
                async for _ in response.content:
                    if random.random() < 0.1:
                        return response.close()
        except TimeoutError:
            pass  # it has left before it was answered

    await asyncio.gather(*map(ask, range(first, first + n_clients)))
    for number in range(first, first + n_clients):
        status, text = await served.ask("GET", f"/runs/r{number}/events")
        if status == 200:  # its request came
            assert events_of(text)[-1]["output"] == f"I am {number}."
        else:
            assert status == 404


async def test_clients_that_leave_at_random_lose_no_result_and_leave_no_task(tmp_path: Path) -> None:
    limits = ServeLimits(runs=40)
    async with serving([echo()], store=str(tmp_path / "runs.db"), limits=limits) as served:
        await served.ask("GET", "/ready")
        before = len(asyncio.all_tasks())
        await crowd(served, Random(7), first=0, n_clients=40)
        await settled(served, before)


@pytest.mark.fuzz
@pytest.mark.skipif("JOURNEYMAN_FUZZ" not in os.environ, reason="500 clients, four times: make fuzz")
async def test_the_memory_of_a_server_does_not_grow_with_clients_that_leave(tmp_path: Path) -> None:
    random = Random(int(os.environ["JOURNEYMAN_FUZZ"]))
    limits, sizes = ServeLimits(runs=500, kept_s=0.0), list[int]()
    async with serving([echo()], store=str(tmp_path / "runs.db"), limits=limits) as served:
        await served.ask("GET", "/ready")
        before = len(asyncio.all_tasks())
        tracemalloc.start()
        for number in range(4):
            await crowd(served, random, first=number * 500, n_clients=500)
            await settled(served, before)
            await asyncio.sleep(2.5)  # what has ended is forgotten once a second
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert sizes[-1] - sizes[1] < 0.2 * sizes[1], sizes


async def asked_for(client: aiohttp.ClientSession, number: int) -> str:
    """Begin a run, and return what comes of it."""
    headers = {"Idempotency-Key": f"r{number}", "Accept": "text/event-stream" if number % 2 else "*/*"}
    async with client.post("/agents/greeter/runs", json={"input": "Please wait."}, headers=headers) as response:
        return f"{response.status} {await response.text()}"


async def goes_on(client: aiohttp.ClientSession, number: int) -> bool:
    async with client.get(f"/runs/r{number}") as response:
        return response.status == 200 and (await response.json())["status"] == "running"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("is_stored", [False, True], ids=["plain", "stored"])
async def test_a_signal_ends_all_runs_as_it_is_said(warm: Warm, tmp_path: Path, is_stored: bool) -> None:
    store = ("--store", "runs.db") if is_stored else ()
    n_runs = 20 if is_stored and "JOURNEYMAN_FUZZ" not in os.environ else 100
    async with (
        started(warm.start, tmp_path, "--grace", "0", "--max-concurrency", "100", *store) as (url, server),
        aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as client,
    ):
        asking = [asyncio.create_task(asked_for(client, number)) for number in range(n_runs)]
        for number in range(n_runs):
            while not await goes_on(client, number):
                pass
        server.send(signal.SIGTERM)
        texts = await asyncio.gather(*asking)
        status, said = ("503", "The server was closed.") if is_stored else ("200", "EXECUTION_CANCELLED")
        assert [text for text in texts if said not in text] == []
        assert {text[:3] for text in texts[::2]} == {status}
        assert await code_of(server) == 0
