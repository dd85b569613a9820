"""Agents behind HTTP, each with a workspace in a box of its own: many boxes at once, and what is left of them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from journeyman.processes.whole_run import run_whole
from journeyman.sandbox import Box, Bubblewrap
from journeyman.sandbox.trials import visible_folder
from tests.cli.program import Running, Warm, running
from tests.sandbox.conftest import bubblewrap as bubblewrap
from tests.support.shares import IS_WHOLE

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]
N_AGENTS = 64 if IS_WHOLE else 8
AGENTS = """
from pathlib import Path
from journeyman import Agent
from journeyman.permission import Permission
from journeyman.testing.scripted import FunctionModel, call
from journeyman.toolbox import Workspace

WORK = "touch began; while ! test -e ../go; do sleep 0.05; done; echo done > ended; touch ../outside"

def reply(request):
    return "Done." if "exit code" in repr(request.messages[-1]) else call("bash", command=WORK, timeout_s=100)

def coder(name):
    folder = Path(name)
    folder.mkdir(exist_ok=True)
    tools = Workspace(folder).tools("bash")
    return Agent(name=name, model=FunctionModel(reply), tools=tools, gate=Permission(mode="trust", roots=[folder]))

for number in range({n}):
    globals()[f"a{{number}}"] = coder(f"a{{number}}")
"""


def below(process: int) -> set[int]:
    """Return all processes below one."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found, ours = set[int](), {process}
    while ours := {each for each, parent in parents.items() if parent in ours}:
        found |= ours
    return found


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def until(it_holds: Callable[[], object]) -> None:
    """Wait for what other processes do."""
    async with asyncio.timeout(120):
        while not it_holds():  # noqa: ASYNC110  nothing tells of it here
            await asyncio.sleep(0.05)


@asynccontextmanager
async def serving(warm: Warm, folder: Path, n_agents: int) -> AsyncGenerator[tuple[aiohttp.ClientSession, Running]]:
    (folder / "agents.py").write_text(AGENTS.format(n=n_agents))
    agents = [f"agents.py:a{number}" for number in range(n_agents)]
    words = ("serve", *agents, "--port", "0", "--store", folder / "runs.db", "--sandbox", "required")
    with running(*words, "--max-concurrency", "100", cwd=folder, start=warm.start) as server:
        await asyncio.to_thread(server.wait_for, "serving at ")
        url = server.shown().split("serving at ")[1].split(";")[0]
        async with aiohttp.ClientSession(url) as client:
            yield client, server


async def begin(client: aiohttp.ClientSession, agent: str) -> str:
    headers = {"Prefer": "respond-async", "Idempotency-Key": f"run-{agent}"}
    async with client.post(f"/agents/{agent}/runs", json={"input": "Go."}, headers=headers) as answer:
        assert answer.status < 300, await answer.text()
    return f"run-{agent}"


async def output_of(client: aiohttp.ClientSession, key: str) -> object:
    """Return what a run has handed in, once it has ended."""
    async with asyncio.timeout(60):
        while True:
            async with client.get(f"/runs/{key}") as response:
                answer = await response.json()
            if answer["result"] is not None:
                return answer["result"].get("output", answer)


async def test_of_two_servers_one_is_killed_and_no_box_is_left_and_no_run_is_lost(
    bubblewrap: Bubblewrap, warm: Warm
) -> None:
    agents = [f"a{number}" for number in range(N_AGENTS)]
    with visible_folder() as folder:
        async with serving(warm, folder, N_AGENTS) as (first, killed), serving(warm, folder, N_AGENTS) as (second, _):
            keys = [await begin((first, second)[number % 2], name) for number, name in enumerate(agents)]
            await until(lambda: all((folder / name / "began").exists() for name in agents))
            boxes = below(killed.pid)
            assert len(boxes) >= N_AGENTS // 2
            killed.send(signal.SIGKILL)
            await until(lambda: not any(map(runs, boxes)))
            (folder / "go").touch()
            outputs = [await output_of(second, key) for key in keys]
            assert outputs == ["Done."] * N_AGENTS
        assert not (folder / "outside").exists(), "also where another server went on, there was a box"


@pytest.mark.parametrize("how", ["stop", "delete"])
async def test_a_command_in_its_box_ends_with_its_run(bubblewrap: Bubblewrap, warm: Warm, how: str) -> None:
    with visible_folder() as folder:
        async with serving(warm, folder, 1) as (client, server):
            key = await begin(client, "a0")
            await until(lambda: (folder / "a0/began").exists())
            commands = [each for each in below(server.pid) if b"touch began" in command_line(each)]
            assert commands
            async with client.post(f"/runs/{key}/stop", json={}) as answer:
                assert answer.status < 300
            if how == "delete":
                await until_deleted(client, key)
            await until(lambda: not any(map(runs, commands)))


async def until_deleted(client: aiohttp.ClientSession, key: str) -> None:
    async with asyncio.timeout(30):
        status = 409
        while status == 409:
            async with client.delete(f"/runs/{key}") as answer:
                status = answer.status
    assert status < 300


def command_line(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_what_requires_a_sandbox_does_not_begin_where_none_holds(bubblewrap: Bubblewrap, command: str) -> None:
    with visible_folder() as folder:
        (folder / "agents.py").write_text(AGENTS.format(n=1))
        words = ("-m", "journeyman", command, "agents.py:a0", "--sandbox", "required", "--store", "runs.db")
        # In a box of ours no namespace can be made, as in most containers.
        with closing(bubblewrap.open(Box(work=str(folder), readable=(str(ROOT),)))) as opened:
            given = partial(run_whole, folder=str(folder), environment=os.environ, timeout_s=60, with_errors=True)
            code, output = given(opened.spawn, sys.executable, words)
        assert (code, output.count(b"\n")) == (2, 1)
        assert b"No sandbox holds enough here" in output
        assert b"apt-get install bubblewrap" in output
        assert not (folder / "runs.db").exists()
