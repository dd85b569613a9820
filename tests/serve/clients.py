"""The clients of served agents: what they do, on a virtual clock, and the person in front of them."""

import asyncio
from typing import Any

from mcp import Client, types
from mcp.client import ClientRequestContext

from journeyman import Agent, tool
from journeyman.mcp_server import AgentServer
from journeyman.testing.scripted import FunctionModel, call
from tests.play import instance_of, on_virtual_clock


def called(
    server: AgentServer, name: str, arguments: dict[str, Any] | None, mode: str = "auto", **options: Any
) -> types.CallToolResult:
    """Return what a client gets from one call, on a virtual clock. No task may be left."""

    async def scene() -> types.CallToolResult:
        async with Client(server, mode=mode, **options) as client:
            await client.list_tools()  # from here on the client checks what it gets against the schemas
            return await client.call_tool(name, arguments)

    return on_virtual_clock(scene)


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


class Pause:
    """A tool that goes on when it is told to, and knows how its calls ended."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ends: list[str] = []

    async def begun_by(self, client: Client) -> asyncio.Task[types.CallToolResult]:
        """Let a client call the agent that takes the pause, and wait until it does."""
        calling = asyncio.create_task(client.call_tool("idler", {"input": "Rest"}))
        await self.entered.wait()
        return calling

    def agent(self) -> Agent[str, str]:
        @tool
        async def pause() -> str:
            self.entered.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.ends.append("cancelled")
                raise
            self.ends.append("done")
            return "well rested"

        answers = FunctionModel(lambda request: "Rested." if len(request.messages) > 1 else call("pause"))
        return Agent(name="idler", model=answers, tools=[pause])


class Heard:
    """Hears of progress, as the callback of a call."""

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.messages: list[str | None] = []

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.numbers.append(progress)
        self.messages.append(message)


class Person:
    """Answers what a client is asked."""

    def __init__(self, *answers: types.ElicitResult) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        assert isinstance(params, types.ElicitRequestFormParams)
        assert params.requested_schema["required"] == ["decision"]
        self.asked.append(params.message)
        return self._answers.pop(0)


def answered(decision: str, **more: str) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"decision": decision, **more})


async def first_round(client: Client, name: str) -> types.InputRequiredResult:
    asked = await client.session.call_tool(name, {"input": "Go"}, allow_input_required=True)
    assert isinstance(asked, types.InputRequiredResult)
    return asked


async def next_round(
    client: Client, name: str, asked: types.InputRequiredResult, answers: types.InputResponses, input: str = "Go"
) -> types.CallToolResult | types.InputRequiredResult:
    return await client.session.call_tool(
        name, {"input": input}, input_responses=answers, request_state=asked.request_state, allow_input_required=True
    )


async def last_round(
    client: Client, name: str, asked: types.InputRequiredResult, answers: types.InputResponses, input: str = "Go"
) -> str:
    """Return the text of a call that asks for nothing more."""
    result = instance_of(types.CallToolResult, await next_round(client, name, asked, answers, input))
    return text_of(result)
