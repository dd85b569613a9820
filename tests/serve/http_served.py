"""Agents served over HTTP on a loopback port, in this process, and a client that asks them."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack, cast

import aiohttp
import orjson
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request as HttpRequest

from journeyman import Abort, Agent, Output, Runtime, tool
from journeyman.durable import Durable
from journeyman.gate import Ask, GateRequest
from journeyman.model import Request
from journeyman.serve import AgentApp, Authorize, ServeLimits, create_app
from journeyman.serve.hosting import Deps, OnDisconnect
from journeyman.serve.http_guard import serve_on
from journeyman.testing.scripted import Answer, FunctionModel, call
from tests.play import Door

Json = dict[str, Any]


class AppOptions(TypedDict, total=False):
    """What `app` takes beside the agents."""

    store: Durable | str
    deps: Deps
    authorize: Authorize
    runtime: Runtime
    limits: ServeLimits
    on_disconnect: OnDisconnect


class Trip(BaseModel):
    city: str
    days: int
    style: Literal["slow", "fast"] = "slow"


class Plan(BaseModel):
    title: str
    steps: list[str]


class AskFirst:
    async def decide(self, request: GateRequest) -> Ask:
        return Ask("May this be sent?")


@tool(effect="once")
async def send(letter: str) -> str:
    """Send a letter."""
    return "sent"


def reply(request: Request) -> Answer:
    """Send where that is asked for, and say what was said otherwise."""
    last = request.messages[-1]
    if any(block.type == "tool_result" for block in last.content):
        return "It is sent."
    if "send" in last.text:
        return call("send", letter="Dear Ada")
    said = [message.text for message in request.messages if message.role == "user"]
    return "You said: " + " ".join(said)


def clerk() -> Agent:
    return Agent(name="clerk", description="Sends.", model=FunctionModel(reply), tools=[send], gate=AskFirst())


def planner() -> Agent[Plan, Trip]:
    plan = call("output", title="A trip", steps=["go", "return"])
    return Agent(name="planner", model=FunctionModel(lambda _: plan), input=Trip, output=Output(Plan))


def waiter(door: Door) -> Agent:
    """Return an agent whose tool waits at the door."""

    def answer(request: Request) -> Answer:
        called = any(block.type == "tool_result" for block in request.messages[-1].content)
        return "It is open." if called else call("wait")

    return Agent(name="waiter", model=FunctionModel(answer), tools=[door.tool()])


def owner(request: HttpRequest) -> str | None:
    """Name the owner by a header."""
    return request.headers.get("x-user")


@dataclass(slots=True)
class Served:
    """What is served, and a client."""

    url: str
    client: aiohttp.ClientSession
    app: AgentApp

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Return the status and the body of an answer."""
        json_type = {} if body is None else {"content-type": "application/json"}
        named = json_type | {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else to_json(body)
        async with self.client.request(method, self.url + path, data=data, headers=named) as response:
            raw = await response.read()
            return response.status, orjson.loads(raw) if "json" in response.content_type else raw.decode()

    async def told(self, method: str, path: str, body: object = None, **headers: str) -> list[Json]:
        """Return all events of a stream, each with its `id` and `event`."""
        status, text = await self.ask(method, path, body, accept="text/event-stream", **headers)
        assert status == 200, text
        return events_of(text)

    async def waiting(self, path: str, **headers: str) -> Json:
        """Return what waits for an answer, as soon as something does."""
        while True:
            status, shown = await self.ask("GET", path, **headers)
            assert status == 200, shown
            if shown["questions"]:
                return cast("Json", shown["questions"][0])

    async def ended(self, run: str) -> Json:
        """Return what is known of a run, once it is over; it is not followed meanwhile."""
        while True:
            _, shown = await self.ask("GET", f"/runs/{run}")
            if shown["result"] is not None:
                return cast("Json", shown["result"])


def events_of(text: str) -> list[Json]:
    """Return the events of a stream that has ended."""
    events: list[Json] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            events.append({"id": fields.get("id"), "event": fields.get("event"), **orjson.loads(fields["data"])})
    return events


@asynccontextmanager
async def serving(
    agents: Sequence[Agent[Any, Any, Any]], *, grace_s: float | None = None, **options: Unpack[AppOptions]
) -> AsyncGenerator[Served]:
    """Serve agents while the block runs. With `grace_s`, the server is first drained for so long."""
    made, abort = create_app(agents, **options), Abort()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        closing = None if grace_s is None else lambda: made.drain(grace_s)
        server = asyncio.create_task(serve_on(listening, made, abort=abort, before_closing=closing))
        try:
            async with aiohttp.ClientSession() as client:
                yield Served(url, client, made)
                abort.abort()
                await server
        finally:
            server.cancel()
            await asyncio.wait({server})
