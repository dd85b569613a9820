"""`journeyman check`: what an agent is, as the model will see it, without asking a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from cyclopts import Parameter
from pydantic_core import to_json

from journeyman.agent import Agent
from journeyman.cli.app import Misdefined
from journeyman.cli.loading import load_agent
from journeyman.cli.run import Stdout
from journeyman.connect import connect
from journeyman.errors import DefinitionError, ModelUnavailable, count
from journeyman.loop.validation import layer_name
from journeyman.model import sent_tools
from journeyman.output import TEXT
from journeyman.tools.tools import Tool

_PROBLEMS: Final = 1
_LABEL: Final = 12


def check(target: Annotated[str, Parameter(name="FILE:AGENT")], /) -> int:
    """Show an agent's definition, its limits and the tools as the model sees them. Calls no model.

    Exits with 1 if the definition has problems, and lists each with what to do about it.

    Args:
        target: A Python file or a module, a colon, and the agent in it: agents.py:analyst.
    """
    stdout = Stdout()
    try:
        agent = load_agent(target)
    except Misdefined as wrong:
        stdout.write_text("\n".join(_problems(wrong.place, wrong.error)))
        return _PROBLEMS
    stdout.write_text("\n".join([*_definition(agent), "", *_tools(agent)]))
    return 0


def _problems(place: str, error: DefinitionError) -> Iterator[str]:
    yield f"{place}: {error.subject} has {count(len(error.problems), 'problem')}:"
    for problem in error.problems:
        yield ""
        yield f"  {problem.code}"
        yield f"    {problem.message}"
        yield f"    {problem.hint}"


# -- the definition ---------------------------------------------------------------------------------------------------


def _definition(agent: Agent[Any, Any]) -> Iterator[str]:
    yield _labelled(agent.name, agent.description)
    yield ""
    yield _labelled("model", _model(agent))
    yield _labelled("input", _type_name(agent.input))
    yield _labelled("output", _output(agent))
    if agent.validators:
        yield _labelled("validators", ", ".join(layer_name(validator) for validator in agent.validators))
    yield _labelled("limits", ", ".join(_limits(agent)))
    if agent.tools:
        yield _labelled("tools", ", ".join(_tool(tool) for tool in agent.tools))


def _labelled(label: str, text: str) -> str:
    return f"{label:<{_LABEL}} {text}".rstrip()


def _model(agent: Agent[Any, Any]) -> str:
    """Name the model, and say if it cannot be used here. Finding that out asks no model."""
    if not isinstance(agent.model, str):
        return f"{agent.model.provider}:{agent.model.name}"
    try:
        connect(agent.model)
    except ModelUnavailable as error:
        return f"{agent.model} (cannot be used now: {error} {error.hint})"
    return agent.model


def _output(agent: Agent[Any, Any]) -> str:
    plan = agent.plan
    if agent.output is TEXT:
        return "text"
    by = f"{_type_name(agent.output.type)}, handed in with {plan.output_name}"
    return by if plan.submit_name is None else f"{by}, seen as a draft, then {plan.submit_name}"


def _type_name(form: object) -> str:
    if form is str:
        return "text"
    return form.__name__ if isinstance(form, type) else str(form).replace("typing.", "")


def _limits(agent: Agent[Any, Any]) -> Iterator[str]:
    limits = agent.limits
    yield count(limits.attempts, "attempt")
    yield f"{count(limits.iterations, 'iteration')} each"
    for allowance, scope in ((limits.run_allowance(), "in all"), (limits.each_attempt, "in each attempt")):
        if allowance.tokens is not None:
            yield f"{count(allowance.tokens, 'token')} {scope}"
        if allowance.cost is not None:
            yield f"${allowance.cost:g} {scope}"
        if allowance.seconds is not None:
            yield f"{allowance.seconds:g} s {scope}"
        if allowance.calls is not None:
            yield f"{count(allowance.calls, 'call')} {scope}"
    yield from (f"policy {policy.name}" for policy in agent.budget)


def _tool(tool: Tool[..., Any]) -> str:
    cache = f"cached per {tool.cache}" if tool.cache else ""
    traits = [trait for trait in ("parallel" if tool.parallel else "", tool.effect or "", cache) if trait]
    return f"{tool.name} ({', '.join(traits)})" if traits else tool.name


# -- the tools, as the model sees them --------------------------------------------------------------------------------


def _tools(agent: Agent[Any, Any]) -> Iterator[str]:
    yield "Input, as JSON Schema:" if agent.input is not str else "Input: any text."
    if agent.input is not str:
        yield to_json(_input_schema(agent), indent=2).decode()
    yield ""
    specs = sent_tools(agent.plan.specs, loads_tools=False)
    yield f"The model sees {count(len(specs), 'tool')}{':' if specs else '.'}"
    for spec in specs:
        shown = {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
        yield ""
        yield to_json(shown | ({"strict": True} if spec.strict else {}), indent=2).decode()


def _input_schema(agent: Agent[Any, Any]) -> object:
    schema = agent.plan.input
    if not schema.is_wrapped:
        return schema.input_schema
    properties = schema.input_schema["properties"]
    return properties["value"] if isinstance(properties, dict) else properties
