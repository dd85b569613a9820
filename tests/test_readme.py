"""The programs of the README: each is run as it stands, as a file in an empty folder, against the API of a provider."""

import asyncio
import io
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TypeAlias, cast

import aiohttp
import pytest
import uvicorn

from journeyman.serve import AgentApp
from tests.support import pages
from tests.support.messages_answers import Answer, answer, by_turn, tool_use
from tests.support.messages_json import Json
from tests.support.servers import MessagesApi

README = pages.ROOT / "README.md"
PROGRAMS = dict(pages.programs(README))
LINES_AT_MOST = 20
GOES_ON = "A first program 2"
"""It goes on where the program before it ended."""

Script: TypeAlias = Sequence[Answer] | Callable[[Json], Any]


def first_text(request: Json) -> str:
    """Return what the conversation began with."""
    message, *_ = cast("list[dict[str, Any]]", request["messages"])
    return message["content"][0]["text"]


def sorts(request: Json) -> Answer:
    return answer(tool_use("output", {"value": "broken" not in first_text(request)}))


def crew(request: Json) -> Answer:
    """Answer as the lead, as a scout or as the writer, whoever asks."""
    tools = [tool["name"] for tool in cast("list[dict[str, Any]]", request.get("tools", []))]
    task = first_text(request)
    if "subagent" in tools:
        scouts: list[Json] = [{"agent": "scout", "task": product} for product in ("tea", "coffee")]
        letter: Json = {"agent": "writer", "task": "Tea: 200.50. Coffee: 99."}
        last = answer("Dear Ann, tea sold better than coffee in May.")
        steps = [answer(tool_use("subagent", {"tasks": scouts})), answer(tool_use("subagent", letter)), last]
    elif tools:
        steps = [answer(tool_use("note", {"product": task})), answer(f"I know about {task}.")]
    else:
        steps = [answer("Dear Ann, tea sold better than coffee in May.")]
    return by_turn(steps)(request)


def stock(fruit: str) -> Json:
    return tool_use("in_stock", {"fruit": fruit})


def invoice(number: str) -> Answer:
    return answer(tool_use("output", {"number": number, "total": 240}))


NOON = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}

SCRIPTS: dict[str, Script] = {
    "A first program": [],
    GOES_ON: [invoice("R-17")],
    "Hello, with a tool": [answer(*map(stock, ["pear", "plum", "fig"])), answer("Only pears: there are three.")],
    "Typed extraction": [invoice("R-17b"), invoice("R-17/b")],
    "A batch": sorts,
    "A crew": crew,
    "The tools of an MCP server": [answer(tool_use("convert_time", cast("Json", NOON))), answer("It is 9 p.m.")],
    "A run that survives": [
        answer(tool_use("pay", {"invoice": "A"}), tool_use("pay", {"invoice": "B"})),
        answer("Both invoices are paid."),
    ],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-a-test")
    return tmp_path


def played(source: str) -> tuple[str, dict[str, Any]]:
    """Run a program, and return what it printed and what it defined."""
    printed, defined = io.StringIO(), {"__name__": "__main__"}
    with redirect_stdout(printed):
        exec(compile(source, "program.py", "exec", dont_inherit=True), defined)
    return printed.getvalue(), defined


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_program_of_the_readme_prints_what_the_page_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = PROGRAMS[name]
    if name == GOES_ON:
        before = PROGRAMS["A first program"]
        program = pages.Program(before.source + program.source, before.printed + program.printed)
    async with MessagesApi(SCRIPTS[name]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        printed, _ = await asyncio.to_thread(played, program.source.replace("sleep(10)", "sleep(0)"))
    assert printed == program.printed


@asynccontextmanager
async def served(service: AgentApp) -> AsyncGenerator[str]:
    """Serve an application, and give its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(service, log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await serving


async def test_the_chat_service_of_the_readme_streams_and_remembers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MessagesApi([answer("Hello, Ada."), answer("You are Ada.")]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        _, defined = played(PROGRAMS["A chat service"].source)
        async with (
            served(defined["service"]) as url,
            aiohttp.ClientSession(headers={"Accept": "text/event-stream"}) as client,
        ):
            for said, heard in [("I am Ada.", "Hello, Ada."), ("Who am I?", "You are Ada.")]:
                async with client.post(f"{url}/agents/companion/chats/ada/turns", json={"input": said}) as response:
                    assert heard in await response.text()
    assert len(cast("list[object]", api.requests[1].body["messages"])) == 3
    assert (folder / "chats.db").exists()


async def test_the_coding_assistant_of_the_readme_asks_before_it_writes_and_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = [
        answer(tool_use("write", {"path": "hello.py", "content": "print('Hello, world!')\n"})),
        answer(tool_use("bash", {"command": "python3 hello.py"})),
        answer("It greets the world."),
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nn\n"))
    async with MessagesApi(script) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        printed, _ = await asyncio.to_thread(played, PROGRAMS["A coding assistant"].source)
    assert printed.count("[y/n]") == 2, capsys.readouterr()
    assert printed.endswith("It greets the world.\n")
    assert (folder / "hello.py").read_text() == "print('Hello, world!')\n"
    assert "The user said no." in str(api.requests[2].body["messages"])


def test_every_program_of_the_readme_is_tried_and_short() -> None:
    tried = {*SCRIPTS, "A chat service", "A coding assistant"}
    assert PROGRAMS.keys() == tried
    lengths = {
        name: sum(bool(line.strip()) for line in program.source.splitlines()) for name, program in PROGRAMS.items()
    }
    assert {name: n_lines for name, n_lines in lengths.items() if n_lines > LINES_AT_MOST} == {}
