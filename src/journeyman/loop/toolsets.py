"""The toolsets of a run: asked what tools there are at this moment, checked, and shown to the model.

Each answer is a step of the journal. In another life of the run the model is shown the tools that it was shown, and
whatever the toolsets give otherwise is told. An agent without toolsets never comes here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from journeyman.cancellation import is_failure
from journeyman.endings import InternalContext
from journeyman.errors import name_and_words
from journeyman.events import ToolsDiffer
from journeyman.gate import Guard
from journeyman.history import History
from journeyman.journal import TypedCodec
from journeyman.loop.replay import decide_once
from journeyman.loop.state import HandIn, Run, ToolFacts, input_for_functions, iteration_place
from journeyman.model import Model, ToolSpec, facts_of, sent_tools
from journeyman.step import RunStep
from journeyman.tools.context import ToolsetContext
from journeyman.tools.deps import tool_deps_problems
from journeyman.tools.schema import anthropic_problems
from journeyman.tools.tools import TOOL_NAME, AnyTool, tool_problems
from journeyman.tools.toolsets import is_tool, list_tools, name_of_source
from journeyman.types import JsonObject

_log = logging.getLogger("journeyman")
_FACTS: Final = TypedCodec[tuple[ToolFacts, ...] | None](tuple[ToolFacts, ...] | None)
"""A codec of what the model is told of the tools that it may call; None: the same as before."""


class ToolsetFailed(Exception):
    """A toolset has given nothing that can be used. `context` says why."""

    def __init__(self, where: str, error: str) -> None:
        self.context = InternalContext(where=where, error=error)
        super().__init__(str(self.context))


def is_asked_again(run: Run) -> bool:
    """Tell whether a toolset of the agent is asked before each request."""
    return any([not is_tool(each) and each.each == "iteration" for each in run.agent.plan.sources])


async def ask_toolsets(run: Run, step: RunStep, model: Model, hand_in: HandIn) -> tuple[ToolSpec, ...]:
    """Ask the toolsets, and let the run have the tools that they give; before its first attempt, only the toolsets that
    are asked once. Return the tools as the model sees them. `step` is what the journal has of it.

    Raises:
        ToolsetFailed: what a toolset gives cannot be used.
    """
    live = await _list_tools(run, model, hand_in)
    calls = run.calls
    if run.options.runtime.journal is None:
        calls.tools = live
        return run.agent.plan.list_specs([tool.spec for tool in live.values()], hand_in.mode)
    now, before = tuple([_facts_of(run, tool) for tool in live.values()]), calls.facts

    async def give(_: Run) -> tuple[ToolFacts, ...] | None:
        return None if now == before else now

    stored = await decide_once(run, step, give, codec=_FACTS)
    known = before if stored is None and before is not None else stored or ()
    calls.facts, calls.tools, calls.effects = known, live, {}
    if known == now:
        return run.agent.plan.list_specs([tool.spec for tool in live.values()], hand_in.mode)
    _tell_difference(run, known, now)
    calls.tools = {each.name: live[each.name] for each in known if each.name in live}
    # What was begun with one effect is not to be repeated because the tool now says another.
    calls.effects = {each.name: each.effect for each in known}
    return run.agent.plan.list_specs([each.make_spec() for each in known], hand_in.mode)


async def show_tools(run: Run) -> None:
    """Ask the toolsets that are asked before each request, and send that request with what they give.

    Raises:
        ToolsetFailed: what a toolset gives cannot be used.
    """
    prepared = run.prepared
    given = await ask_toolsets(run, run.attempt.step("tools", "tools"), prepared.model, prepared.hand_in)
    specs = sent_tools(given, loads_tools=facts_of(prepared.model).loads_tools) or retired_tools(run.history)
    if specs != prepared.view.prefix.tools:
        prepared.view.change_prefix(replace(prepared.view.prefix, tools=specs))
    describe_tools(run, prepared.guard)


def describe_tools(run: Run, guard: Guard) -> None:
    """Tell the gates what the model reads of the tools that strangers describe, once of each."""
    if not guard.memories:
        return
    for each in run.calls.tools.values():
        if each.untrusted == "throughout" and not (each.deferred or each.is_proxy):
            text = f"{each.description} {json.dumps(each.spec.input_schema)}"
            if run.calls.described.get(each.name) != text:
                run.calls.described[each.name] = text
                guard.describe(each.name, text)


async def _list_tools(run: Run, model: Model, hand_in: HandIn) -> dict[str, AnyTool]:
    """Return the tools that there are now, by name."""
    attempt, calls = run.attempt, run.calls
    context = ToolsetContext[object, object](
        agent=run.agent.name,
        path=run.path,
        deps=run.deps,
        input=await input_for_functions(run),
        attempt=attempt.number,
        iteration=attempt.iteration,
        n_messages=len(run.history.messages),
        asked=calls.asked,
    )
    found: dict[str, AnyTool] = {}
    givers: dict[str, str] = dict.fromkeys(hand_in.tools, "the agent's output")
    for source in run.agent.plan.sources:
        if is_tool(source):
            given, where = [source], "Agent.tools"
        elif attempt.number == 0 and source.each != "run":
            continue
        else:
            where = f"the toolset {name_of_source(source)}"
            given = await _ask_source(source, context, where)
        for tool in given:
            if (other := givers.get(tool.name)) is not None:
                both = f"{where} gives two tools" if other == where else f"{other} and {where} give tools"
                raise ToolsetFailed("Agent.tools", f"{both} of the name {tool.name!r}: rename one, as prefixed() does")
            givers[tool.name], found[tool.name] = where, tool
            if not is_tool(source) and id(tool) not in calls.checked:
                _refuse_wrong(run, model, where, tool)
    calls.checked = {id(tool): tool for tool in found.values()}  # with the tool: another one could get its `id`
    return found


async def _ask_source(source: object, context: ToolsetContext[object, object], where: str) -> Sequence[AnyTool]:
    try:
        return await list_tools([source], context)
    except BaseException as error:
        if not is_failure(error):
            raise
        raise ToolsetFailed(where[0].upper() + where[1:], name_and_words(error)) from error


def _refuse_wrong(run: Run, model: Model, where: str, tool: AnyTool) -> None:
    wrong = [*tool_problems(tool), *tool_deps_problems(tool, deps=run.agent.deps, input=run.agent.input)]
    if model.provider == "anthropic" and "anthropic" not in tool.spec.provider_schemas:
        wrong += anthropic_problems(tool.spec)
    if wrong:
        said = " ".join(map(str, wrong)).rstrip(".")
        raise ToolsetFailed("Agent.tools", f"{where} gives the tool {tool.name!r}. {said}")


def _facts_of(run: Run, tool: AnyTool) -> ToolFacts:
    spec = tool.spec
    return ToolFacts(
        name=spec.name,
        description=spec.description,
        input_schema=spec.input_schema,
        effect=tool.effect or run.agent.default_effect,
        strict=spec.strict,
        deferred=spec.deferred,
        is_proxy=spec.is_proxy,
        provider_schemas=dict(spec.provider_schemas),
    )


def _tell_difference(run: Run, known: Sequence[ToolFacts], now: Sequence[ToolFacts]) -> None:
    if not run.calls.differs:
        run.calls.differs = True
        differences = tuple(_differences(known, now))
        told = ", ".join(differences)
        run.record(lambda: ToolsDiffer(**iteration_place(run), differences=differences))
        _log.warning(
            "The toolsets of the agent %r give other tools than when the run was here in an earlier life: %s. The model"
            " is shown those of that life; a call of one that is gone is answered as unknown.",
            run.agent.name,
            told,
        )


def _differences(known: Sequence[ToolFacts], now: Sequence[ToolFacts]) -> Iterator[str]:
    before, after = {each.name: each for each in known}, {each.name: each for each in now}
    yield from [f"{name!r} is gone" for name in before if name not in after]
    yield from [f"{name!r} is new" for name in after if name not in before]
    yield from [f"{name!r} has changed" for name, each in after.items() if before.get(name, each) != each]
    if [*before] != [*after] and before == after:
        yield "their order has changed"


def retired_tools(history: History) -> tuple[ToolSpec, ...]:
    """Return tools for the calls in the history, where there are no others: providers refuse calls without any tool."""
    called = [call.name for message in history.messages for call in message.tool_uses]
    names = {name: None for name in called if TOOL_NAME.fullmatch(name)} or dict.fromkeys(["retired"] if called else [])
    nothing: JsonObject = {"type": "object", "properties": {}}
    return tuple(ToolSpec(name=name, description="No longer available.", input_schema=nothing) for name in names)
