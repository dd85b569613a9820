"""Telemetry between processes: commands that send it, MCP servers whose runs are parts of their client's trace."""

import asyncio
import socket
from pathlib import Path
from signal import SIGTERM

import pytest

from journeyman import Agent, run
from journeyman.durable import Durable
from journeyman.mcp import Http, Stdio, mcp
from journeyman.mcp_server import create_mcp_server, serve_mcp_http
from journeyman.testing.scripted import ScriptedModel, call, say
from tests.cli.program import Warm, assert_one_error_line, running
from tests.otel.sending import Sending
from tests.play import cancelled, succeeded
from tests.serve.served import echo
from tests.serve.test_processes import command
from tests.support.otlp import collecting

AGENTS = """
from journeyman import Agent, tool
from journeyman.testing.scripted import ScriptedModel, call, say

@tool
async def look() -> str:
    return "seen"

scout = Agent(name="scout", model=ScriptedModel([say(call("look")), "Done."]), tools=[look])
"""


@pytest.fixture
def scout(tmp_path: Path) -> str:
    path = tmp_path / "agents.py"
    path.write_text(AGENTS)
    return f"{path}:scout"


def variables(url: str, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "JOURNEYMAN_RECORD": "0", **more}


def test_a_command_sends_what_its_run_does(warm: Warm, scout: str) -> None:
    with collecting() as collector:
        done = warm("run", scout, "Go.", "--otel", env=variables(collector.url))
    assert (done.code, done.stdout) == (0, "Done.\n"), done.stderr
    assert [line.strip() for line in collector.tree()] == [
        *("invoke_agent scout", "attempt 1", "chat scripted", "execute_tool look", "chat scripted")
    ]
    assert collector.resources[0]["service.name"] == "journeyman"
    assert "gen_ai.client.inference.usage.input_tokens" in collector.metrics
    assert b"Done." not in b"".join(collector.bodies)


def test_the_variables_of_opentelemetry_are_heeded(warm: Warm, scout: str) -> None:
    more = {
        "OTEL_SERVICE_NAME": "whales",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
    }
    with collecting() as collector:
        warm("run", scout, "Go.", "--otel", env=variables(collector.url, **more))
    assert collector.resources[0]["service.name"] == "whales"
    assert collector.metrics == {}
    assert "Done." in str(collector.one("invoke_agent scout").attributes["gen_ai.output.messages"])


async def test_a_run_that_one_process_stores_and_another_does_is_one_trace(
    warm: Warm, scout: str, tmp_path: Path
) -> None:
    store = ("--store", tmp_path / "runs.db")
    with collecting() as collector:
        env = variables(collector.url)
        begun = warm("run", scout, "Go.", "--durable", "--detach", "--id", "go", "--otel", *store, env=env)
        assert begun.code == 0, begun.stderr
        assert [span.name for span in collector.spans] == ["queue scout"]
        with running("worker", scout, "--otel", *store, env=env, start=warm.start) as worker:
            worker.wait_for("Serving scout from ")
            async with Durable(tmp_path / "runs.db") as durable:
                await (await durable.get("go")).result()
            worker.send(SIGTERM)
            assert worker.done().code == 0
    stored, done = collector.one("queue scout"), collector.one("invoke_agent scout")
    assert (done.parent, done.trace) == (stored.id, stored.trace)
    assert {span.trace for span in collector.spans} == {stored.trace}


@pytest.mark.parametrize("is_there", [True, False])
def test_a_collector_that_does_not_answer_is_said_once_and_changes_nothing(
    warm: Warm, scout: str, is_there: bool
) -> None:
    more = {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with collecting(answers=False) as collector, socket.create_server(("127.0.0.1", 0)) as taken:
        url = collector.url if is_there else f"http://user:hunter2@127.0.0.1:{taken.getsockname()[1]}"
        if not is_there:
            taken.close()
        done = warm("run", scout, "Go.", "--otel", env=variables(url, **more))
    assert (done.code, done.stdout) == (0, "Done.\n")
    said = [line for line in done.stderr.splitlines() if "telemetry" in line or "opentelemetry" in line]
    assert len(said) == 1, done.stderr
    assert f"telemetry cannot be sent to {url.replace('user:hunter2@', '')}: " in said[0]
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_TRACES_EXPORTER", "zipkin")]
)
def test_what_cannot_be_done_is_said_before_anything_runs(warm: Warm, scout: str, name: str, value: str) -> None:
    done = warm("run", scout, "Go.", "--otel", env=variables("http://127.0.0.1:9", **{name: value}))
    assert_one_error_line(done, 2, [f"{name} is '{value}'."])


def calling(tools: list[object]) -> Agent:
    asked = call("echo", input="Hello")
    return Agent(name="lead", model=ScriptedModel([say(asked), "Done."]), tools=tools)  # pyright: ignore[reportArgumentType]


def assert_is_one_trace(sending: Sending) -> None:
    came = sending.received()
    served, asked = came.one("invoke_agent echo"), came.one("execute_tool echo")
    assert served.trace == asked.trace, came.tree()
    above, known = served.parent, {span.id: span.parent for span in came.spans}
    while above in known and above != asked.id:  # the SDK of MCP may have spans of its own between them
        above = known[above]
    assert above == asked.id, came.tree()


async def test_a_run_that_is_served_over_http_is_a_part_of_its_clients_trace(sending: Sending) -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_mcp_http(create_mcp_server(echo, runtime=sending.runtime()), port=0, on_ready=ready.set_result)
    )
    async with mcp({"guild": Http(await ready)}) as tools:
        succeeded(await run(calling([*tools]), "Go.", runtime=sending.runtime()))
    await cancelled(serving)
    assert_is_one_trace(sending)


async def test_a_run_that_is_served_over_stdio_is_a_part_of_its_clients_trace(sending: Sending, warm: Warm) -> None:
    words = command("echo", warm=warm)
    env = {**variables(sending.collector.url), "PYTHONUTF8": "1"}
    server = Stdio(words.command, (*words.args, "--otel"), env=env, sandbox=None)  # the collector is on this machine
    async with mcp({"guild": server}) as tools:
        succeeded(await run(calling([*tools]), "Go.", runtime=sending.runtime()))
    assert_is_one_trace(sending)
