"""Tools, and the gate before them, in one line each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

from journeyman import Agent, Runtime, Tool, ToolResult, run, tool
from journeyman.events import Listener
from journeyman.gate import Allow, Gate, GateRequest, Verdict
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.tools.tools import AnyTool, ToolOptions
from journeyman.types import JsonObject


@tool
async def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"found {where}"


def make_tool(
    name: str, gives: object = "", /, *, into: list[Any] | None = None, **options: Unpack[ToolOptions]
) -> AnyTool:
    """Return a tool that takes any arguments. It gives a value, or raises an error; in a text, `{to}` is an argument.

    `into` keeps the arguments of its calls, one after the other; its name, where a call has none.
    """

    async def act(arguments: JsonObject) -> object:
        if into is not None:
            into.extend(arguments.values() or [name])
        if isinstance(gives, BaseException):
            raise gives
        return gives.format(**arguments) if isinstance(gives, str) else gives

    return Tool(name, f"The tool {name}.", {"type": "object"}, act, **options)


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a function that raises this, whatever it is given."""

    def fail(*_: object) -> object:
        raise error

    return fail


async def answered(
    made: AnyTool, arguments: dict[str, object], *, on_event: Listener | None = None, runtime: Runtime | None = None
) -> ToolResult:
    """Call a tool as a model does, through a run and with JSON, and return what the model reads."""
    agent = Agent(name="tester", model=ScriptedModel([call(made.name, arguments), "Done."]), tools=[made])
    result = await run(agent, "Go.", runtime=runtime, on_event=on_event)
    assert result.unwrap() == "Done."
    (found,) = [block for block in result.history[2].content if isinstance(block, ToolResult)]
    return found


@dataclass(frozen=True)
class _Gate:
    verdict: Verdict | Callable[[GateRequest], Verdict]
    tools: tuple[str, ...]

    async def decide(self, request: GateRequest) -> Verdict:
        if self.tools and request.tool_name not in self.tools:
            return Allow()
        return self.verdict(request) if callable(self.verdict) else self.verdict


def make_gate(verdict: Verdict | Callable[[GateRequest], Verdict], *tools: str) -> Gate:
    """Return a gate that decides so about the calls of these tools, or of all, and allows the others."""
    return _Gate(verdict, tools)
