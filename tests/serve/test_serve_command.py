"""`journeyman serve`, as a user starts and stops it; the guards of what it listens on; and the example."""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import uvicorn

from examples.service.mounted import companion, service
from journeyman import Agent
from journeyman.closing import LEAST_S
from journeyman.record import Recordings
from journeyman.testing.scripted import ScriptedModel
from tests.cli.program import Running, Start, Warm, from_nothing, running
from tests.cli.terminal import terminal
from tests.serve.http_served import events_of
from tests.support.postgres import DeafSocket, PostgresServer

SLACK_S = 1.5
"""So much later a process may end that has to share its processor."""
TOKEN = "a-token-of-a-test-which-is-long"
AGENTS = """
import asyncio
from dataclasses import replace
from journeyman import Agent, tool
from journeyman.testing.scripted import FunctionModel, call

@tool
async def wait() -> str:
    "Wait."
    await asyncio.sleep(3600)
    return "never"

def reply(request):
    return call("wait") if "wait" in request.messages[-1].text else "Hello."

greeter = Agent(name="greeter", model=FunctionModel(reply), tools=[wait])
"""


@asynccontextmanager
async def started(
    start: Start, folder: Path, *words: str, target: str = "agents.py:greeter", **env: str
) -> AsyncGenerator[tuple[str, Running]]:
    """Start the command, and return where it serves."""
    (folder / "agents.py").write_text(AGENTS, encoding="utf-8")
    words = ("serve", target, "--port", "0", *words)
    with running(*words, cwd=folder, env=env, start=start) as server:
        await asyncio.to_thread(server.wait_for, "serving at ")
        yield server.shown().split("serving at ")[1].split(";")[0].splitlines()[0], server


async def code_of(server: Running) -> int:
    """Wait until the command has ended, and return its exit code."""
    return (await asyncio.to_thread(server.done)).code


async def test_the_command_serves_asks_for_its_token_and_ends_when_it_is_told_to(warm: Warm, tmp_path: Path) -> None:
    ours = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        started(warm.start, tmp_path, JOURNEYMAN_SERVE_TOKEN=TOKEN) as (url, server),
        aiohttp.ClientSession() as client,
    ):
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({**ours, "Host": "evil.example"}, 421),
            ({**ours, "Origin": "https://evil.example"}, 403),
            ({**ours, "Origin": "http://127.0.0.1:9"}, 403),
            ({**ours, "Origin": url}, 200),
        ):
            async with client.get(f"{url}/ready", headers=headers) as response:
                assert response.status == status, headers
        server.send(signal.SIGTERM)
        assert await code_of(server) == 0


AUTH = """
def owner(request):
    return {"Bearer of-ada": "ada", "Bearer of-eve": "eve"}.get(request.headers.get("authorization"))
"""


async def test_a_function_names_the_owners_that_the_command_serves_and_it_keeps_their_runs_apart(
    warm: Warm, tmp_path: Path
) -> None:
    (tmp_path / "auth.py").write_text(AUTH, encoding="utf-8")
    words = ("--authorize", "auth.py:owner", "--host", "0.0.0.0", "--allow-host", "127.0.0.1")
    async with (
        started(warm.start, tmp_path, *words) as (url, _),
        aiohttp.ClientSession(url.replace("0.0.0.0", "127.0.0.1")) as client,
    ):
        for token, status in (("of-ada", 200), ("of-eve", 404), ("of-nobody", 401)):
            ours = {"Authorization": f"Bearer {token}", "Idempotency-Key": "r"}
            if token == "of-ada":
                async with client.post("/agents/greeter/runs", json={"input": "Hi."}, headers=ours) as response:
                    assert (await response.json())["output"] == "Hello."
            async with client.get("/runs/r", headers=ours) as response:
                assert response.status == status


async def test_the_command_keeps_runs_in_postgres(warm: Warm, tmp_path: Path, emptied: str) -> None:
    for _ in range(2):  # the second time it is another process, and the same run
        async with started(warm.start, tmp_path, "--store", emptied) as (url, _), aiohttp.ClientSession(url) as client:
            ours = {"Idempotency-Key": "r"}
            async with client.post("/agents/greeter/runs", json={"input": "Hi."}, headers=ours) as response:
                assert (await response.json())["output"] == "Hello."


async def test_the_command_ends_within_its_grace_though_its_database_is_silent(
    warm: Warm, tmp_path: Path, postgres: PostgresServer
) -> None:
    collector = socket.create_server(("127.0.0.1", 0))  # it answers nothing, too
    traces = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.getsockname()[1]}"}
    async with (
        DeafSocket(postgres, postgres.database()) as between,
        started(warm.start, tmp_path, "--store", between.url, "--grace", "2", "--otel", **traces) as (url, server),
        aiohttp.ClientSession(url) as client,
    ):
        for place, document in (
            ("/agents/greeter/runs", {"input": "wait"}),
            ("/agents/greeter/chats/c/turns", {"input": "wait"}),
        ):
            async with client.post(f"{place}", json=document, headers={"Prefer": "respond-async"}) as response:
                assert response.status == 202, await response.text()
        between.is_silent = True
        server.send(signal.SIGTERM)
        began_s = time.monotonic()
        async with asyncio.timeout(30):
            done = await asyncio.to_thread(server.done)
        assert time.monotonic() - began_s < 2 + SLACK_S, done.stderr
    collector.close()
    assert "is left as it is" in done.stderr


HANGING = """
import subprocess
from contextlib import asynccontextmanager
from journeyman import Agent
from journeyman.testing.scripted import ScriptedModel

@asynccontextmanager
async def greeter():
    with subprocess.Popen(["sh", "-c", "trap '' TERM; echo $$ > child; while true; do sleep 1; done"]) as child:
        yield Agent(name="greeter", model=ScriptedModel(["Hi."]))
        child.terminate()
"""


async def test_the_command_ends_in_time_and_kills_a_child_that_does_not_end(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING, encoding="utf-8")
    async with started(from_nothing, tmp_path, "--grace", "0", target="hanging.py:greeter") as (_, server):
        while not (tmp_path / "child").exists():  # noqa: ASYNC110 - before, the child heeds the signal
            await asyncio.sleep(0.01)
        server.send(signal.SIGTERM)
        began_s = time.monotonic()
        async with asyncio.timeout(30):
            done = await asyncio.to_thread(server.done)
        assert time.monotonic() - began_s < LEAST_S + SLACK_S, done.stderr
    assert done.code != 0
    assert "hanging.py:greeter" in done.stderr or "Not everything has ended in time" in done.stderr
    child = int((tmp_path / "child").read_text())
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]


def test_a_token_and_a_function_are_not_both_asked(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    env = {"JOURNEYMAN_SERVE_TOKEN": TOKEN}
    done = warm("serve", "agents.py:greeter", "--authorize", "auth.py:owner", cwd=tmp_path, env=env)
    assert (done.code, "Both JOURNEYMAN_SERVE_TOKEN and --authorize" in done.stderr) == (2, True)


async def test_the_command_keeps_and_records_runs_in_one_database(warm: Warm, tmp_path: Path, emptied: str) -> None:
    async with (
        started(warm.start, tmp_path, "--store", emptied, "--record") as (url, server),
        aiohttp.ClientSession() as client,
    ):
        async with client.post(f"{url}/agents/greeter/runs", json={"input": "Ada"}) as response:
            assert (await response.json())["output"] == "Hello."
        server.send(signal.SIGTERM)
        assert await code_of(server) == 0
    with Recordings(emptied) as recordings:
        [found] = recordings.runs()
    assert (found.kind, found.status, found.input) == ("durable", "done", "Ada")


def test_in_a_terminal_a_server_says_where_it_is_and_then_waits_calmly(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    with terminal("serve", "agents.py:greeter", "--port", "0", folder=tmp_path, columns=120) as screen:
        screen.see("serving at http://127.0.0.1:")
        screen.press(b"\x03")
        screen.see("stopping within 30 s: what goes on has 25 s to end")
        assert screen.end() == 0
        assert screen.is_calm
        assert len(screen.text.splitlines()) == 2, screen.text
        assert screen.times_drawn("\x1b") == 0, screen.output


async def test_the_example_serves_its_page_and_each_user_sees_only_their_own(tmp_path: Path) -> None:
    agent: Agent = replace(companion, model=ScriptedModel("Hello.", repeat=True))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(service(agent, str(tmp_path / "chats.db")), log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        async with aiohttp.ClientSession() as client:
            async with client.get(f"{url}/") as page:
                text = await page.text()
                assert (page.status, "api/agents/companion/agui" in text) == (200, True)
                assert len(text.splitlines()) <= 60
            body = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Hi."}]}
            headers = {"X-User": "ada"}
            async with client.post(f"{url}/api/agents/companion/agui", json=body, headers=headers) as response:
                assert events_of(await response.text())[-1]["result"] == "Hello."
            for user, status in (("ada", 200), ("eve", 404)):
                async with client.get(f"{url}/api/chats/t", headers={"X-User": user}) as response:
                    assert response.status == status
        server.should_exit = True
        await serving
