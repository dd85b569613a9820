"""`uvicorn module:app` ends when it is told to, though a client reads the events of a run that goes on."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, socket, sys
import uvicorn
from journeyman import Agent, tool
from journeyman.testing.scripted import FunctionModel, call
from journeyman.serve import create_app

@tool
async def think() -> str:
    "Think."
    await asyncio.Event().wait()
    return ""

bot = Agent(name="bot", model=FunctionModel(lambda _: call("think", id="1")), tools=[think])
agents = create_app([bot], store=sys.argv[1] if len(sys.argv) > 1 else None)
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(agents, log_config=None)).run(sockets=[listening])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM")
@pytest.mark.parametrize("store", [[], ["runs.db"]])
def test_uvicorn_ends_though_a_stream_is_open(tmp_path: Path, store: list[str]) -> None:
    command = [sys.executable, "-c", PROGRAM, *store]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            with socket.create_connection(("127.0.0.1", int(server.stdout.readline())), timeout=30) as client:
                body = b'{"input": "go"}'
                head = f"POST /agents/bot/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
                client.sendall(f"{head}Accept: text/event-stream\r\n\r\n".encode() + body)
                stream = client.makefile("rb")
                while b"ToolCalled" not in stream.readline():
                    pass
                server.send_signal(signal.SIGTERM)
                server.send_signal(signal.SIGTERM)  # and at once
                assert stream.read() != b""
            assert server.wait(15) in (0, -signal.SIGTERM)  # uvicorn raises the signal again when it has ended
        finally:
            server.kill()
