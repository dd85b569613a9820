"""`journeyman check`: what an agent is, as the model will see it, without asking a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, Final, cast

from pydantic_core import to_json

from journeyman.budget import Budget
from journeyman.cli.app import Misdefined
from journeyman.cli.load_agent import AgentLoop, with_skills
from journeyman.cli.options import AgentName, AnyAgent, GivenOptions, SkillFolders
from journeyman.cli.run import Stdout
from journeyman.cli.show.lines import one_line
from journeyman.connect import connect
from journeyman.definition.problems import join_sentences
from journeyman.errors import DefinitionError, ModelUnavailable, count, visible
from journeyman.loop.validation import layer_name
from journeyman.model import ModelSettings, Prefix, sent_tools
from journeyman.output.output import SubmitTool
from journeyman.output.plan import OutputMember
from journeyman.prompt import SystemPrompt
from journeyman.skills import Skills
from journeyman.tools.deps import NOT_DECLARED, declared, deps_of_run, kind_name, lacks_deps
from journeyman.tools.tools import AnyTool
from journeyman.tools.toolsets import Toolset, is_tool, name_of_source
from journeyman.types import Text
from journeyman.window import AnyStrategy, Compaction, estimate_prefix, estimate_text

_PROBLEMS: Final = 1
_LABEL: Final = 12
_SYSTEM_CHARS: Final = 200
_DEFAULTS: Final = {each.name: getattr(ModelSettings(), each.name) for each in fields(ModelSettings)}


def check(target: AgentName, /, *, skills: SkillFolders = None, shared: GivenOptions) -> int:
    """Show an agent's definition, its limits and the tools as the model sees them. Calls no model.

    Exits with 1 if the definition has problems, and lists each with what to do about it.
    """
    stdout = Stdout()
    try:
        with AgentLoop(shared.timeout) as loop:
            agent = with_skills(loop.definition(target), skills)
            stdout.write_text("\n".join([*_definition_lines(agent), "", *_tool_lines(agent)]))
    except Misdefined as wrong:
        stdout.write_text("\n".join(_problem_lines(wrong.place, wrong.error)))
        return _PROBLEMS
    return 0


def _problem_lines(place: str, error: DefinitionError) -> Iterator[str]:
    yield f"{place}: {error.subject} has {count(len(error.problems), 'problem')}:"
    for problem in error.problems:
        yield ""
        yield f"  {problem.code}"
        yield f"    {problem.message}"
        yield f"    {problem.hint}"


def _definition_lines(agent: AnyAgent) -> Iterator[str]:
    yield _label(agent.name, agent.description)
    yield ""
    yield _label("model", _model_words(agent))
    yield _label("system", _system_words(agent))
    settings = {each.name: getattr(agent.settings, each.name) for each in fields(agent.settings)}
    given = [f"{name} {visible(value, indent=None)}" for name, value in settings.items() if value != _DEFAULTS[name]]
    yield _label("settings", one_line(", ".join(given), _SYSTEM_CHARS) or "the provider's defaults")
    yield _label("input", _type_name(agent.input))
    yield _label("output", _output_words(agent))
    if agent.deps is not NOT_DECLARED:
        missing = "" if lacks_deps(deps_of_run(None, agent.deps), agent.deps) is None else ", given to each run"
        yield _label("deps", f"{kind_name(declared(agent.deps))}{missing}")
    if agent.validators:
        yield _label("validators", ", ".join(layer_name(validator) for validator in agent.validators))
    yield _label("limits", ", ".join(_limits(agent)))
    if agent.gate is not None:
        gates = agent.gate if isinstance(agent.gate, Sequence) else [agent.gate]
        yield _label("gates", ", ".join(map(_gate, gates)))
    if agent.compaction:
        yield _label("compaction", _compaction(agent.compaction))
    if agent.tools:
        sources = agent.plan.sources or agent.plan.tools.values()
        yield _label("tools", ", ".join(_tool_words(each) for each in sources))
    yield from (_label("skills", _skills(tool)) for tool in agent.plan.tools.values() if isinstance(tool, Skills))
    yield _label("prefix", _prefix(agent))


def _label(label: str, text: str) -> str:
    return f"{label:<{_LABEL}} {text}".rstrip()


def _model_words(agent: AnyAgent) -> str:
    """Name the model, and say if it cannot be used here. Finding that out asks no model."""
    if not isinstance(agent.model, str):
        return f"{agent.model.provider}:{agent.model.name}"
    try:
        connect(agent.model)
    except ModelUnavailable as error:
        return f"{agent.model} (cannot be used now: {join_sentences(str(error), error.hint)})"
    return agent.model


def _system_words(agent: AnyAgent) -> str:
    """Show how the system prompt begins."""
    if callable(agent.plan.system):
        return f"made for each run by {layer_name(agent.plan.system)}"
    text = "\n".join(block.text for block in _system_blocks(agent.plan.system))
    if not text:
        return "none"
    return f"{one_line(text, _SYSTEM_CHARS)} ({count(len(text), 'character')})"


def _system_blocks(system: SystemPrompt) -> tuple[Text, ...]:
    return ((Text(system),) if system else ()) if isinstance(system, str) else tuple(system)


def _gate(gate: object) -> str:
    mode = getattr(gate, "mode", None)
    name = getattr(gate, "__name__", None) or type(gate).__name__
    return f"{name} ({mode})" if isinstance(mode, str) else name


def _compaction(given: object) -> str:
    if callable(given):
        return f"made for each run by {_gate(given)}"
    strategies = given.strategies if isinstance(given, Compaction) else cast("Sequence[AnyStrategy]", given)
    window = given.window_tokens if isinstance(given, Compaction) else None
    said = "" if window is None else f", in a window of {count(window, 'token')}"
    return ", then ".join(each.name for each in strategies) + said


def _skills(tool: Skills) -> str:
    """Name the skills, each with about how many tokens it adds to every request, and to the conversation if loaded."""
    skills = tool.skills.values()
    sizes = {each.name: (f"{each.name}: {each.description}", each.instructions) for each in skills}
    told = {name: [f"{estimate_text(text):,}" for text in texts] for name, texts in sizes.items()}
    listed = ", ".join(f"{name} {listed}, loaded {loaded}" for name, (listed, loaded) in told.items())
    return f"about so many tokens: {listed}"


def _prefix(agent: AnyAgent) -> str:
    """Say about how many tokens each request begins with: the system prompt's and each tool's."""
    parts = {} if callable(agent.plan.system) else {"system": Prefix(system=_system_blocks(agent.plan.system))}
    if agent.plan.outputs.mode == "prompted":
        parts["output"] = Prefix(system=(agent.plan.outputs.words,))
    parts |= {spec.name: Prefix(tools=(spec,)) for spec in sent_tools(agent.plan.specs, loads_tools=False)}
    tokens = {name: estimate_prefix(prefix) for name, prefix in parts.items()}
    told = ", ".join(f"{name} {number:,}" for name, number in tokens.items() if number)
    besides = " and the system prompt" if callable(agent.plan.system) else ""
    return f"about {count(sum(tokens.values()), 'token')}{besides}{f': {told}' if told else ''}"


def _output_words(agent: AnyAgent) -> str:
    outputs = agent.plan.outputs
    if outputs.mode is None:
        return "text"
    if outputs.mode != "tool":
        name = _type_name(outputs.kind)
        how = {"native": "read out of the JSON of the answer", "prompted": "read out of the words of the answer"}
        return f"{name}, {how.get(outputs.mode, 'handed in by what the model can: tool, native, prompted')}"
    ways = [_member_words(each, outputs.submit) for each in outputs.members.values()]
    return "; or ".join([*ways, *["text"] * outputs.takes_text])


def _member_words(member: OutputMember, submit: SubmitTool | None) -> str:
    words = f"{_type_name(member.kind)}, handed in with {member.name}"
    return words if member.reflection is None or submit is None else f"{words}, seen as a draft, then {submit.name}"


def _type_name(form: object) -> str:
    if form is str:
        return "text"
    return form.__name__ if isinstance(form, type) else str(form).replace("typing.", "")


def _limits(agent: AnyAgent) -> Iterator[str]:
    limits = agent.limits
    yield count(limits.attempts, "attempt")
    yield f"{count(limits.iterations, 'iteration')} each"
    for each, scope in ((limits, "in all"), (limits.per_attempt or Budget(), "in each attempt")):
        if each.tokens is not None:
            yield f"{count(each.tokens, 'token')} {scope}"
        if each.cost is not None:
            yield f"${each.cost:g} {scope}"
        if each.seconds is not None:
            yield f"{each.seconds:g} s {scope}"
        if each.calls is not None:
            yield f"{count(each.calls, 'call')} {scope}"
    yield from (f"policy {policy.name}" for policy in limits.budget_policies)


def _tool_words(tool: AnyTool | Toolset[Any]) -> str:
    if not is_tool(tool):
        return f"whatever {name_of_source(tool)} gives, asked once for each {tool.each}"
    cache = f"cached per {tool.cache}" if tool.cache else ""
    traits = [trait for trait in ("parallel" if tool.parallel else "", tool.effect or "", cache) if trait]
    return f"{tool.name} ({', '.join(traits)})" if traits else tool.name


def _tool_lines(agent: AnyAgent) -> Iterator[str]:
    yield "Input, as JSON Schema:" if agent.input is not str else "Input: any text."
    if agent.input is not str:
        yield to_json(agent.plan.input.describe(), indent=2).decode()
    yield ""
    specs = sent_tools(agent.plan.specs, loads_tools=False)
    also = ", and those of toolsets" if agent.plan.sources else ""
    yield f"The model sees {count(len(specs), 'tool')}{also}{':' if specs else '.'}"
    for spec in specs:
        shown = {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
        yield ""
        yield to_json(shown | ({"strict": True} if spec.strict else {}), indent=2).decode()
