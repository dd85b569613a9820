"""Whose connections are used: those of the event loop, or of `async with model:`; who shares them, and who closes."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, assert_type

import pytest

from journeyman import Agent, Limits, Model, run
from journeyman.connect import connect
from journeyman.errors import ProviderError
from journeyman.model import opened
from journeyman.models import transport
from journeyman.models.anthropic import AnthropicModel
from journeyman.models.transport import Timeouts, offline, open_stream
from journeyman.models.wrappers import HeldOpen
from journeyman.testing import ScriptedModel
from tests.cli.program import Warm
from tests.contracts.fault_wires import ANTHROPIC_EVENTS
from tests.contracts.faults import CERTIFICATES
from tests.models.asking import HELLO, ask
from tests.models.raw_server import RawServer, http
from tests.play import failed, instance_of, virtual_clock
from tests.support import messages_answers as anthropic_says
from tests.support import openai_answers as openai_says
from tests.support.servers import MessagesApi, OpenAiApi

ROOT = Path(__file__).parents[2]
NAME = "anthropic:claude-sonnet-5-5"
KEY = "sk-ant-0123456789"
WELL = http(ANTHROPIC_EVENTS.whole, content_type=ANTHROPIC_EVENTS.content_type)


def model_at(url: str, **options: object) -> AnthropicModel:
    model = instance_of(AnthropicModel, connect(NAME, **{"api_key": KEY, "base_url": url, **options}))
    return model


async def say_hello(model: Model | str) -> str:
    result = await run(Agent(name="greeter", model=model, limits=Limits(request_retries=0)), "Hello.")
    return str(result.unwrap())


@pytest.mark.parametrize("name", [NAME, "openai:gpt-5.2", "openai-chat:gpt-5.2"])
async def test_five_runs_in_a_row_by_name_open_one_connection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server, says = (MessagesApi, anthropic_says) if name == NAME else (OpenAiApi, openai_says)
    async with server([says.answer(says.text("Hi."))] * 5) as api:
        for service, url in (("ANTHROPIC", api.url), ("OPENAI", f"{api.url}/v1")):
            monkeypatch.setenv(f"{service}_API_KEY", KEY)
            monkeypatch.setenv(f"{service}_BASE_URL", url)
        assert [await say_hello(name) for _ in range(5)] == ["Hi."] * 5
        assert (len(api.requests), api.n_connections) == (5, 1)


@pytest.mark.parametrize(
    "others",
    [{"api_key": "sk-ant-9876543210"}, {"auth_token": KEY}, {"headers": {"x-tenant": "b"}}, {"version": "2023-06-01"}],
)
async def test_another_key_or_header_never_uses_the_connection(others: dict[str, object]) -> None:
    async with RawServer(WELL) as server:
        for options in ({}, others, {}, others):
            await say_hello(model_at(server.url, **options))
        assert (len(server.requests), server.n_connections) == (4, 2)


async def test_another_base_url_never_uses_the_connection() -> None:
    async with RawServer(WELL) as server:
        await say_hello(model_at(server.url))
        await say_hello(model_at(server.url.replace("://", "://user:secret@")))
        assert server.n_connections == 2


async def test_a_proxy_that_is_set_between_two_runs_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(WELL) as proxy, RawServer(WELL) as other:
        monkeypatch.setenv("http_proxy", proxy.url)
        await say_hello(model_at("http://models.invalid"))
        monkeypatch.setenv("http_proxy", other.url)
        await say_hello(model_at("http://models.invalid"))
        monkeypatch.setenv("http_proxy", proxy.url)
        await say_hello(model_at("http://models.invalid"))
        assert (len(proxy.requests), proxy.n_connections) == (2, 1)
        assert len(other.requests) == 1


async def test_a_connection_that_one_authority_vouches_for_is_not_used_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(CERTIFICATES / "here.pem")
    async with RawServer(WELL, tls=shown) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / "authority.pem"))
        for _ in range(2):
            await say_hello(model_at(server.url))
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / "idle_authority.pem"))
        result = failed(
            await run(Agent(name="greeter", model=model_at(server.url), limits=Limits(request_retries=0)), "Hello.")
        )
        assert "a certificate that is not trusted here; SSL_CERT_FILE names other authorities" in str(result.error)
        assert len(server.requests) == 2


@pytest.mark.parametrize(("idle_s", "n_connections"), [(44.0, 1), (46.0, 2)])
async def test_an_idle_connection_lives_for_45_seconds(
    idle_s: float, n_connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RawServer(WELL) as server:
        await say_hello(model_at(server.url))
        monkeypatch.setattr("aiohttp.connector.monotonic", lambda: time.monotonic() + idle_s)
        await say_hello(model_at(server.url))
        assert server.n_connections == n_connections


@virtual_clock
async def test_pools_of_many_tenants_are_forgotten_when_their_connections_are_gone() -> None:
    async def ask_without_answer(tenant: int) -> None:
        async with opened(model_at("http://127.0.0.1:1")):
            with pytest.raises(ProviderError):
                await open_stream(
                    "http://127.0.0.1:1", headers={"x-tenant": str(tenant)}, body=b"{}", timeouts=Timeouts()
                ).__aenter__()

    every = transport._process.connections  # pyright: ignore[reportPrivateUsage] - nothing else tells how many there are
    with offline("it is a test"):
        for tenant in range(50):
            await ask_without_answer(tenant)
        connections = every[asyncio.get_running_loop()]
        assert len(connections.pools) == 50
        await asyncio.sleep(46)
        await ask_without_answer(50)
        assert len(connections.pools) == 1


async def test_a_connected_model_has_connections_of_its_own_inside_its_block() -> None:
    async with RawServer(WELL) as server:
        await say_hello(model_at(server.url))
        async with connect(NAME, api_key=KEY, base_url=server.url) as model:
            assert_type(model, Model)
            assert (model.provider, model.name) == ("anthropic", "claude-sonnet-5-5")
            for _ in range(2):
                await say_hello(model)
            await say_hello(model_at(server.url))
            assert server.n_connections == 2
        await say_hello(model_at(server.url))
        assert server.n_connections == 2
        async with connect(NAME, api_key=KEY, base_url=server.url) as model:
            await say_hello(model)
        assert server.n_connections == 3


async def test_leaving_the_block_closes_what_is_the_models_own() -> None:
    closed = asyncio.Event()

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(WELL)
        await reader.read()
        closed.set()

    async with RawServer(answering) as server:
        async with model_at(server.url) as model:
            await say_hello(model)
            assert not closed.is_set()
        await closed.wait()


async def test_blocks_of_one_model_nest_and_the_last_one_closes() -> None:
    async with RawServer(WELL) as server:
        model = model_at(server.url)
        async with model as outer:
            async with model as inner:
                await say_hello(inner)
            await say_hello(outer)
            assert server.n_connections == 1
        async with model as again:
            await say_hello(again)
        assert server.n_connections == 2


async def test_the_model_of_another_package_is_held_open_by_the_block() -> None:
    told: list[str] = []

    class Opening(ScriptedModel):
        def open(self) -> Opening:
            return self

        async def __aenter__(self) -> None:
            told.append("opened")

        async def __aexit__(self, *raised: object) -> None:
            told.append("closed")

    async with HeldOpen(Opening(["Hi."])) as model:
        assert told == ["opened"]
        assert (await ask(model, HELLO)).content
    assert told == ["opened", "closed"]


PROGRAM = """
import asyncio, gc, ssl, sys, threading, weakref
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from journeyman import Agent, Limits, run, run_sync, stream
from journeyman.connect import connect

certificate, content_type = sys.argv[1:]
WELL = sys.stdin.buffer.read()
connections = []

class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        connections.append(self)
        super().setup()

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(WELL)))
        self.end_headers()
        self.wfile.write(WELL)

    def log_message(self, *arguments):
        pass

class Patient(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client that leaves is none of ours
            super().handle_error(request, client_address)

server = Patient(("127.0.0.1", 0), Answering)
server.daemon_threads = True
scheme = "http"
if certificate:
    scheme = "https"
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(certificate)
    server.socket = shown.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
model = connect("anthropic:claude-sonnet-5-5", api_key="sk-ant-0123456789", base_url=f"{scheme}://127.0.0.1:{server.server_port}")
agent = Agent(name="greeter", model=model, limits=Limits(request_retries=0))
loops = []

async def main(n_runs=2):
    loops.append(weakref.ref(asyncio.get_running_loop()))
    for _ in range(n_runs):
        (await run(agent, "Hello.")).unwrap()

def tell():
    gc.collect()
    print(len(connections), sum(loop() is not None for loop in loops))
"""


ToldBy: TypeAlias = Callable[[str, bool], list[str]]
"""Runs a program in a process that debugs loops, in which a warning is an error; returns the lines that it prints."""


@pytest.fixture
def told_by(warm: Warm, tmp_path: Path) -> ToldBy:
    def run_program(program: str, tls: bool) -> list[str]:
        path = tmp_path / "program.py"
        path.write_text(PROGRAM + program)
        arguments = [str(CERTIFICATES / "here.pem") if tls else "", ANTHROPIC_EVENTS.content_type]
        env = {"SSL_CERT_FILE": str(CERTIFICATES / "authority.pem"), "PYTHONASYNCIODEBUG": "1"}
        done = warm(*arguments, program=path, stdin=ANTHROPIC_EVENTS.whole, env=env)
        problems = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]  # it was slow
        assert (done.code, problems) == (0, [])
        return done.stdout.splitlines()

    return run_program


@pytest.mark.parametrize("tls", [False, True])
def test_loops_that_just_end_leave_nothing_open_and_are_forgotten(told_by: ToldBy, tls: bool) -> None:
    program = """
for _ in range(3):
    asyncio.run(main())
    tell()
for _ in range(2):
    run_sync(agent, "Hello.").unwrap()
tell()
"""
    assert told_by(program, tls) == ["1 0", "2 0", "3 0", "5 0"]


def test_two_loops_that_share_a_model_each_have_their_connections(told_by: ToldBy) -> None:
    program = """
threads = [threading.Thread(target=lambda: asyncio.run(main(5))) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
del threads, thread
tell()
"""
    assert told_by(program, False) == ["3 0"]


@pytest.mark.parametrize("tls", [False, True])
def test_what_a_server_closed_while_the_loop_did_not_run_is_not_used(told_by: ToldBy, tls: bool) -> None:
    program = """
import socket
with asyncio.Runner() as runner:
    runner.run(main())
    connections[0].connection.shutdown(socket.SHUT_RDWR)
    ended_s = runner.get_loop().time()
    runner.get_loop().time = lambda: ended_s + 10
    runner.run(main())
tell()
"""
    assert told_by(program, tls) == ["2 0"]


def test_a_run_that_is_cut_off_by_the_end_of_the_loop_leaves_nothing_open(told_by: ToldBy) -> None:
    program = """
async def cut_off():
    tasks = [asyncio.create_task(main()) for _ in range(3)]
    while not connections:
        await asyncio.sleep(0)

asyncio.run(cut_off())
gc.collect()
"""
    assert told_by(program, False) == []


def test_a_request_that_comes_while_the_loop_ends_closes_its_connection_itself(told_by: ToldBy) -> None:
    program = """
async def late():
    try:
        yield
    finally:
        for _ in range(50):
            await asyncio.sleep(0)
        await main()

async def begin():
    await main()
    held.append(late())
    await anext(held[0])

held = []
asyncio.run(begin())
held.clear()
tell()
"""
    assert told_by(program, False) == ["3 0"]


def test_a_loop_by_hand_closes_connections_with_its_asynchronous_generators(told_by: ToldBy) -> None:
    program = """
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.run_until_complete(main())
loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
del loop
tell()
"""
    assert told_by(program, False) == ["1 0"]


def test_a_loop_that_nobody_closes_is_left_clean_at_the_end_of_the_process(told_by: ToldBy) -> None:
    program = """
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
import atexit
atexit.register(print, len(connections))
atexit._run_exitfuncs()
loop.close()
"""
    assert told_by(program, False) == ["1"]


def test_a_loop_that_was_closed_by_hand_without_more_is_forgotten_by_the_next_one(told_by: ToldBy) -> None:
    program = """
import warnings
warnings.simplefilter("ignore")
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
del loop
asyncio.run(main())
tell()
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
"""
    assert told_by(program, False) == ["2 0"]
