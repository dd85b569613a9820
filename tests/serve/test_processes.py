"""Agents served by real processes: over stdin and stdout, and at a port."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from journeyman import Agent, DefinitionError, Success, ToolResult, run
from journeyman.mcp import Stdio, mcp
from journeyman.mcp_server import create_mcp_server, serve_mcp_http
from journeyman.serve.http_guard import HALF_OPEN_S
from journeyman.testing.scripted import ScriptedModel, call, say
from tests.cli.program import Running, Start, Warm, environment, from_nothing, running
from tests.play import cancelled, existing, virtual_clock
from tests.serve.clients import Heard, Person, answered, text_of
from tests.serve.served import echo

pytestmark = pytest.mark.timeout(60)  # the server, a process of its own, imports the SDK

SERVED = Path(__file__).parent / "served.py"
TOKEN = "a-token-of-many-characters"
PATIENCE_S = 30.0
ACCEPT = {"Accept": "application/json, text/event-stream"}
LISTING: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def command(*agents: str, warm: Warm | None = None) -> StdioServerParameters:
    """Return how a client starts a server of these agents."""
    words = ["mcp", *[f"{SERVED}:{agent}" for agent in agents]]
    program, *rest = warm.command(*words) if warm else [sys.executable, "-m", "journeyman", *words]
    return StdioServerParameters(command=program, args=rest, env=environment())


@asynccontextmanager
async def over_stdio(
    log: Path, *agents: str, mode: str = "auto", warm: Warm | None = None, **options: object
) -> AsyncGenerator[Client]:
    """Start a server and use it. Its stderr goes to `log`."""
    with log.open("w") as errlog:
        async with Client(stdio_client(command(*agents, warm=warm), errlog), mode=mode, **options) as client:  # pyright: ignore[reportArgumentType]
            yield client


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


async def test_stdout_belongs_to_the_protocol_whatever_prints(warm: Warm, mode: str, log: Path) -> None:
    heard = Heard()
    async with over_stdio(log, "talker", "planner", mode=mode, warm=warm) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["talker", "planner"]
        assert text_of(await client.call_tool("talker", {"input": "Talk"}, progress_callback=heard)) == "done"
        assert (await client.call_tool("planner", {"city": "Oslo", "days": 2})).structured_content["total"] == "12.50"
        assert (await client.call_tool("planner", {"days": "two"})).is_error
    assert heard.messages == ["iteration 1", "talk", "talk: read 0 characters", "iteration 2"]
    assert log.read_text() == "the file prints\na tool prints\na tool writes\n"


async def test_a_call_that_is_cancelled_ends_in_the_server_while_others_go_on(warm: Warm, mode: str, log: Path) -> None:
    async with over_stdio(log, "waiter", "echo", mode=mode, warm=warm) as client:
        waiting = asyncio.create_task(client.call_tool("waiter", {"input": "Wait"}))
        await shown(log, "the wait begins")
        assert text_of(await client.call_tool("echo", {"input": "Meanwhile"})) == "<Meanwhile>"
        waiting.cancel()
        await asyncio.wait([waiting])
        await shown(log, "the wait was cancelled")
        assert text_of(await client.call_tool("echo", {"input": "After"})) == "<After>"


async def shown(log: Path, text: str) -> None:
    """Wait until the server has written `text` to its log."""
    async with asyncio.timeout(PATIENCE_S):
        while text not in log.read_text():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)


async def test_the_person_at_the_client_is_asked(warm: Warm, mode: str, log: Path) -> None:
    person = Person(answered("allow"))
    async with over_stdio(log, "cleaner", mode=mode, warm=warm, elicitation_callback=person) as client:
        assert text_of(await client.call_tool("cleaner", {"input": "Tidy up"})) == "removed report.txt"
    assert len(person.asked) == 1


async def test_a_client_whose_server_is_killed_is_told(log: Path) -> None:
    async with over_stdio(log, "waiter") as client:
        waiting = asyncio.create_task(client.call_tool("waiter", {"input": "Wait"}))
        await shown(log, "the wait begins")
        (pid,) = children()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(MCPError):
            await waiting


def children() -> list[int]:
    """Return the processes that this one has started and that run the server."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in found if "mcp" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")]


@asynccontextmanager
async def over_http(*agents: str, token: str = "", start: Start = from_nothing) -> AsyncGenerator[tuple[str, Running]]:
    """Start a server at a free port. Gives its URL."""
    more = {"JOURNEYMAN_MCP_TOKEN": token} if token else {}
    words = ["mcp", *[f"{SERVED}:{agent}" for agent in agents], "--http", "--port", "0"]
    with running(*words, env=more, start=start) as program:
        await asyncio.to_thread(program.wait_for, "Ctrl-C ends it\n")
        yield program.shown().partition("serving at ")[2].partition(";")[0], program


async def test_clients_at_a_port_call_list_and_are_isolated(warm: Warm, mode: str) -> None:
    heard = Heard()
    async with over_http("echo", "square", "talker", "cleaner", start=warm.start) as (url, _):
        person = Person(answered("allow"))
        async with Client(url, mode=mode, elicitation_callback=person) as first, Client(url, mode=mode) as second:
            assert [each.name for each in (await first.list_tools()).tools] == ["echo", "square", "talker", "cleaner"]
            calls = [client.call_tool("square", {"input": n}) for n in range(4) for client in (first, second)]
            results = await asyncio.gather(*calls)
            assert [result.structured_content["output"] for result in results] == [0, 0, 1, 1, 4, 4, 9, 9]
            assert not (await first.call_tool("talker", {"input": "Talk"}, progress_callback=heard)).is_error
            assert text_of(await first.call_tool("cleaner", {"input": "Tidy"})) == "removed report.txt"
            assert "denied" in text_of(await second.call_tool("cleaner", {"input": "Tidy"}))
            with pytest.raises(MCPError, match="No agent is called"):
                await second.call_tool("nobody", {})
    assert heard.messages == ["iteration 1", "talk", "talk: read 0 characters", "iteration 2"]


async def test_a_call_at_a_port_that_is_cancelled_ends_in_the_server(warm: Warm, mode: str) -> None:
    async with over_http("waiter", "echo", start=warm.start) as (url, program), Client(url, mode=mode) as client:
        waiting = asyncio.create_task(client.call_tool("waiter", {"input": "Wait"}))
        await asyncio.to_thread(program.wait_for, "the wait begins")
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.to_thread(program.wait_for, "the wait was cancelled")
        assert text_of(await client.call_tool("echo", {"input": "After"})) == "<After>"


@pytest.mark.parametrize(
    ("number", "code", "mode"),
    [(signal.SIGINT, 130, "auto"), (signal.SIGTERM, 143, "auto"), (signal.SIGINT, 130, "legacy")],
)
async def test_a_signal_ends_the_calls_first_and_then_the_server(
    warm: Warm, number: signal.Signals, code: int, mode: str
) -> None:
    start = from_nothing if number == signal.SIGTERM else warm.start
    async with over_http("waiter", start=start) as (url, program), Client(url, mode=mode) as client:
        waiting = asyncio.create_task(client.call_tool("waiter", {"input": "Wait"}))
        await asyncio.to_thread(program.wait_for, "the wait begins")
        program.send(number)
        assert text_of(await waiting).startswith("EXECUTION_CANCELLED: ")
        done = await asyncio.to_thread(program.done)
    assert (done.code, done.stdout) == (code, "")
    assert "journeyman: stopping; interrupt again to quit at once" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_server_with_a_token_answers_nobody_without_it(warm: Warm) -> None:
    async with over_http("echo", token=TOKEN, start=warm.start) as (url, _):
        with pytest.raises((MCPError, ExceptionGroup, httpx2.HTTPError)):
            async with Client(url) as client:
                await client.list_tools()
        async with aiohttp.ClientSession() as session:
            for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
                async with session.post(url, json={}, headers=given) as response:
                    assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            assert text_of(await client.call_tool("echo", {"input": "Hello"})) == "<Hello>"


async def test_pages_and_strange_names_are_refused(warm: Warm) -> None:
    async with over_http("echo", start=warm.start) as (url, _), aiohttp.ClientSession(headers=ACCEPT) as session:
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Host": "evil.example:8000"}, 421),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "http://localhost.evil.example"}, 403),
            ({"Origin": "http://localhost"}, 403),
            ({"Origin": "http://127.0.0.1:9"}, 403),
            ({"Content-Type": "text/plain"}, 400),
        ):
            for version in ("2025-11-25", "2026-07-28"):
                sent = {**headers, "MCP-Protocol-Version": version}
                async with session.post(url, json=LISTING, headers=sent) as response:
                    assert response.status == status, (headers, await response.text())


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ({"address": "0.0.0.0"}, ["NO_TOKEN", "NO_HOST_NAME"]),
        ({"address": "::"}, ["NO_TOKEN", "NO_HOST_NAME"]),
        ({"address": ""}, ["NO_TOKEN", "NO_HOST_NAME"]),
        ({"address": "192.0.2.7"}, ["NO_TOKEN"]),
        ({"address": "agents.example.org", "allowed_hosts": ["agents.example.org"]}, ["NO_TOKEN"]),
        ({"address": "0.0.0.0", "token": TOKEN}, ["NO_HOST_NAME"]),
        ({"address": "127.0.0.1", "allowed_hosts": ["agents.example.org", ""]}, ["NO_HOST_NAME"]),
        ({"token": "short"}, ["WEAK_TOKEN"]),
        ({"token": ""}, ["WEAK_TOKEN"]),
        ({"port": 65_536}, ["NO_PORT"]),
    ],
)
async def test_a_server_that_others_could_use_unasked_is_refused(options: dict[str, object], codes: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        await serve_mcp_http(create_mcp_server(echo), **{"port": 0, **options})  # pyright: ignore[reportArgumentType]
    assert [problem.code for problem in caught.value.problems] == codes


async def test_a_public_server_answers_under_its_names_only() -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    public: dict[str, Any] = {"address": "0.0.0.0", "token": TOKEN, "allowed_hosts": ["agents.example.org"]}
    serving = asyncio.create_task(serve_mcp_http(create_mcp_server(echo), port=0, on_ready=ready.set_result, **public))
    url = (await ready).replace("0.0.0.0", "127.0.0.1")
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}", **ACCEPT}) as session:
        async with session.post(url, json=LISTING) as response:
            assert response.status == 421
        async with session.post(url, json=LISTING, headers={"Host": "agents.example.org"}) as response:
            assert response.status == 400  # it got through to the protocol, which wants a session first
    await cancelled(serving)


async def test_a_taken_port_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="the next free one is"):
        await serve_mcp_http(create_mcp_server(echo), port=taken.getsockname()[1])


async def test_an_agent_uses_an_agent_that_is_served_elsewhere(warm: Warm) -> None:
    words = command("square", "hopeless", warm=warm)
    # The warm process is asked by a socket, which a box lets nobody reach.
    server = Stdio(words.command, words.args, env={"PYTHONUTF8": "1"}, sandbox=None)
    async with mcp({"guild": server}) as tools:
        assert [each.name for each in tools] == ["square", "hopeless"]
        asked = [call("square", input=7), call("hopeless", input="Go"), call("square", input="many")]
        result = await run(
            Agent(name="lead", model=ScriptedModel([say(*asked), "49."]), tools=tools), "What is 7 squared?"
        )
    assert isinstance(result, Success)
    squared, failed, misused = [block for block in result.history[2].content if isinstance(block, ToolResult)]
    assert (squared.is_error, "49" in squared.text) == (False, True)
    assert (failed.is_error, "MAX_ATTEMPTS_EXCEEDED" in failed.text) == (True, True)
    assert misused.is_error


HALF = {
    "nothing": b"",
    "half a line": b"POST /m",
    "half a head": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    "half a body": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n{",
}


@virtual_clock
async def test_a_connection_without_a_whole_request_is_closed_by_the_server() -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_mcp_http(create_mcp_server(echo), port=0, on_ready=ready.set_result))
    port = existing(urlsplit(await ready).port)

    async def is_closed(sent: bytes) -> bool:
        """Send a part of a request, and read to the end, which only the server can make."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await reader.read()
        writer.close()
        return True

    async with asyncio.timeout(2 * HALF_OPEN_S):  # on a clock that jumps
        assert await asyncio.gather(*map(is_closed, HALF.values())) == [True] * len(HALF)
    serving.cancel()
    await asyncio.wait([serving])


async def test_no_more_sessions_are_opened_than_may_be() -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_mcp_http(create_mcp_server(echo), port=0, max_sessions=2, on_ready=ready.set_result)
    )
    url = await ready
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    codes: list[int] = []
    async with aiohttp.ClientSession(headers={"Accept": "application/json, text/event-stream"}) as client:
        for _ in range(4):
            async with client.post(url, json=hello) as answer:
                codes.append(answer.status)
    assert codes == [200, 200, 503, 503]
    serving.cancel()
    await asyncio.wait([serving])
