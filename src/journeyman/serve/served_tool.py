"""One agent as an MCP tool: its name, description and schemas, its input from arguments, its result as content.

What is no object, a text included, is given as the one property `input`, and handed in as the one property `output`.
Imports `agent`, `schema`, `result` and the package mcp. Read `mcp_server.py` next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from mcp import types
from pydantic_core import from_json, to_json

from journeyman.agent import Agent
from journeyman.contexts import InvalidInputContext
from journeyman.endings import Ending
from journeyman.errors import InvalidArguments, name_and_words
from journeyman.result import Failure, Result, Success
from journeyman.tools.schema import Fields, OutputSchema, Parameter
from journeyman.types import JsonObject, Usage

USAGE: Final = "journeyman/usage"
"""The key in a result's `_meta` under which tokens and cost stand."""
FAILURE: Final = "journeyman/failure"
"""The key in a result's `_meta` under which a failure stands as data."""

_INPUT: Final = "input"
_OUTPUT: Final = "output"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedTool:
    """An agent, as clients see it."""

    agent: Agent[Any, Any]
    definition: types.Tool
    _parse: Callable[[str | bytes], object]

    def parse(self, arguments: Mapping[str, Any]) -> object:
        """Return the agent's input.

        Raises:
            InvalidArguments: the arguments do not fit; it lists every issue.
        """
        return self._parse(to_json(arguments))

    def answer(self, result: Result[Any] | Exception) -> types.CallToolResult:
        """Return what the client gets of how the run ended."""
        match result:
            case Success():
                return self._success(result)
            case Failure():
                return _failed(result.error, result.metadata.usage)
            case Exception():
                return refusal("INTERNAL_ERROR", f"The run broke: {name_and_words(result)}.", "Report it.")

    def _success(self, success: Success[Any]) -> types.CallToolResult:
        schema = self.agent.plan.output
        if schema is None:
            return _result(str(success.output), None, success.metadata.usage)
        try:
            value: Any = from_json(schema.dump(success.output))
        except ValueError:
            message = f"The output is no JSON: {success.output!r:.200}."
            return refusal("INTERNAL_ERROR", message, "Give the output type a serializer.", success.metadata.usage)
        text = value if isinstance(value, str) else to_json(value).decode()
        return _result(text, {_OUTPUT: value} if schema.is_wrapped else value, success.metadata.usage)


def served_tool(agent: Agent[Any, Any]) -> ServedTool:
    """Return the agent as a tool."""
    schema, parse = _input(agent)
    definition = types.Tool(
        name=agent.name,
        description=agent.description.strip() or f"Give the agent {agent.name} a task.",
        input_schema=schema,
        output_schema=None if agent.plan.output is None else _output(agent.plan.output),
    )
    return ServedTool(agent=agent, definition=definition, _parse=parse)


def _input(agent: Agent[Any, Any]) -> tuple[JsonObject, Callable[[str | bytes], object]]:
    plan = agent.plan.input
    if not plan.is_wrapped and agent.input is not str:
        return plan.input_schema, plan.parse
    what = "The task, in words." if agent.input is str else "What to work on."
    fields = Fields([Parameter(name=_INPUT, annotation=agent.input, description=what)])
    return fields.input_schema, lambda given: fields.parse(given, f"arguments for {agent.name!r}")[_INPUT]


def _output(schema: OutputSchema[Any]) -> JsonObject | None:
    dumped = schema.dumped_schema()
    if dumped is None or not schema.is_wrapped:
        return dumped
    definitions = dumped.pop("$defs", None)
    wrapper: JsonObject = {"type": "object", "properties": {_OUTPUT: dumped}, "required": [_OUTPUT]}
    return wrapper if definitions is None else {**wrapper, "$defs": definitions}


# -- results ----------------------------------------------------------------------------------------------------------


def invalid(error: InvalidArguments) -> types.CallToolResult:
    """Return the answer to arguments that do not fit. No run was started."""
    return _failed(Ending(InvalidInputContext(issues=error.issues), "prompt_generation"), Usage())


def refusal(code: str, message: str, hint: str, usage: Usage | None = None) -> types.CallToolResult:
    """Return an answer that says why there is no result."""
    return _result(f"{code}: {message} {hint}", None, usage, failure={"code": code, "message": message, "hint": hint})


def _failed(ending: Ending, usage: Usage | None) -> types.CallToolResult:
    facts = {
        "code": str(ending.code),
        "category": ending.category,
        "phase": ending.phase,
        "message": ending.message,
        "hint": ending.hint,
    }
    return _result(f"{ending} {ending.hint}", None, usage, failure=facts)


def _result(
    text: str, structured: object, usage: Usage | None, *, failure: dict[str, str] | None = None
) -> types.CallToolResult:
    meta: dict[str, Any] = {} if failure is None else {FAILURE: failure}
    if usage is not None:
        meta[USAGE] = {**asdict(usage), "total_tokens": usage.total_tokens}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=structured,
        is_error=failure is not None,
        _meta=meta,
    )
