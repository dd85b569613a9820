"""The arguments of `Subagents` as a model writes them, and the five kinds of calls that they may mean.

The arguments are flat, since models cope better with that. `choose_call` makes of them one call of one mode, or says
what is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from journeyman.agent import Agent
from journeyman.errors import InvalidArguments, SubagentMisused
from journeyman.texts import shorten
from journeyman.tools.issues import faults_of, issue_lines
from journeyman.types import JsonObject

NAME: Final = "subagent"
LABEL: Final = "Delegate to a sub-agent"

SubagentMode: TypeAlias = Literal["single", "parallel", "chain", "background", "team"]
"""A way to delegate."""
MODES: Final[tuple[SubagentMode, ...]] = get_args(SubagentMode)

_SHOWN_CHARS: Final = 80
_DESCRIPTION: Final = """\
Delegate work to sub-agents. A sub-agent works by itself, with tools of its own, and sees nothing of this \
conversation: write all that it needs into its task. You get back what it hands in. {use}
Sub-agents:
{agents}"""
_USES: Final[Mapping[SubagentMode, str]] = {
    "single": "agent and task: one sub-agent does one task.",
    "parallel": "tasks: several at the same time{most}; the results come in the order of the tasks.",
    "chain": (
        "chain: one after the other. In a task, {{previous}} stands for the output of the step before, and"
        " {{previous.field}} for a field of it, if that is an object. A chain that stopped goes on with start_at and"
        " previous."
    ),
    "background": "agent, task and background: return at once; you are told when it ends.",
    "team": "agent, task and name or team_name: it joins a team, and stays.",
}
_FIELDS: Final[Mapping[SubagentMode, tuple[str, str]]] = {
    "single": ("agent task", ""),
    "parallel": ("tasks", ""),
    "chain": ("chain", "start_at previous"),
    "background": ("agent task background", "description"),
    "team": ("agent task", "description name team_name color"),
}
"""The fields that a call has to have where there is no other way to delegate, and those that it may have beside."""


Task: TypeAlias = Annotated[
    str, BeforeValidator(lambda task: to_json(task).decode() if isinstance(task, dict | list) else task)
]
"""A text, or the JSON of the sub-agent's input, which models may also send as an object."""


class Item(BaseModel):
    """One task of several."""

    agent: str
    task: Task


class SubagentArguments(BaseModel):
    """The arguments, as they come. Unknown ones are ignored; null is as good as absent."""

    model_config = ConfigDict(extra="ignore")

    agent: str | None = Field(None, description="The sub-agent for task.")
    task: Task | None = Field(None, description="What it shall do, with all that it needs to know.")
    tasks: list[Item] | None = Field(None, description="Tasks to do at the same time.")
    chain: list[Item] | None = Field(None, description="Tasks to do one after the other.")
    start_at: int | None = Field(None, description="The first step of chain to do; 1 if absent.")
    previous: str | None = Field(None, description="With start_at: the output of the step before.")
    background: bool | None = Field(None, description="Do agent and task in the background.")
    description: str | None = Field(
        None, description="What the task is, in a few words; for background work and teams."
    )
    model: str | None = Field(None, description="Another model for this call, where that is allowed.")
    name: str | None = Field(None, description="The name of the sub-agent in its team.")
    team_name: str | None = Field(None, description="The team that it joins.")
    color: str | None = Field(None, description="Its color, in a team.")


@dataclass(frozen=True, slots=True)
class SingleCall:
    """One sub-agent does one task."""

    mode: ClassVar[SubagentMode] = "single"
    agent: str
    task: str


@dataclass(frozen=True, slots=True)
class ParallelCall:
    """Several work at the same time."""

    mode: ClassVar[SubagentMode] = "parallel"
    tasks: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class ChainCall:
    """One works after the other."""

    mode: ClassVar[SubagentMode] = "chain"
    steps: tuple[Item, ...]
    start_at: int
    """The first step to do, from 1."""
    previous: str
    """What `{previous}` stands for in that step."""


@dataclass(frozen=True, slots=True)
class BackgroundCall:
    """One works on, and the call returns at once."""

    mode: ClassVar[SubagentMode] = "background"
    agent: str
    task: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamCall:
    """One joins a team."""

    mode: ClassVar[SubagentMode] = "team"
    agent: str
    task: str
    name: str
    team_name: str
    description: str
    color: str


SubagentCall: TypeAlias = SingleCall | ParallelCall | ChainCall | BackgroundCall | TeamCall


def description_of(
    agents: Mapping[str, Agent[Any, Any, Any]], max_tasks: int | None, modes: Collection[SubagentMode]
) -> str:
    """Return the text for the model, the same for the same agents in any order: it is part of a cached prefix."""
    most = "" if max_tasks is None else f", at most {max_tasks}"
    uses = [_USES[mode].format(most=most) for mode in MODES if mode in modes]
    use = f"Use {uses[0]}" if len(uses) == 1 else "\n- ".join(["Use exactly one of these:", *uses])
    lines = [f"- {name}{_about(agents[name])}" for name in sorted(agents)]
    return _DESCRIPTION.format(use=use, agents="\n".join(lines))


def _about(agent: Agent[Any, Any, Any]) -> str:
    about = f" ({agent.description.strip()})" if agent.description.strip() else ""
    if agent.input is str:
        return about
    return f"{about}; its task is JSON of this schema: {to_json(agent.plan.input.input_schema).decode()}"


def schema_of(
    agents: Mapping[str, Agent[Any, Any, Any]],
    max_tasks: int | None,
    modes: Collection[SubagentMode],
    *,
    has_models: bool,
) -> JsonObject:
    """Return the JSON Schema of the arguments. Where not all modes are offered, it has only what these need."""
    names: JsonObject = {"type": "string", "enum": [*sorted(agents)]}
    item_properties: JsonObject = {"agent": names, "task": {"type": "string"}}
    item: JsonObject = {"type": "object", "properties": item_properties, "required": ["agent", "task"]}
    shapes: dict[str, JsonObject] = {
        "agent": names,
        "tasks": {"type": "array", "items": item},
        "chain": {"type": "array", "items": item},
        "start_at": {"type": "integer", "minimum": 1},
        "background": {"type": "boolean"},
    }
    properties: dict[str, JsonObject] = {
        name: {**shapes.get(name, {"type": "string"}), "description": field.description}
        for name, field in SubagentArguments.model_fields.items()
    }
    if max_tasks is not None:
        properties["tasks"]["maxItems"] = max_tasks
    if {*modes} == {*MODES}:
        return {"type": "object", "properties": {**properties}}
    fields = {"model" if has_models else "", *" ".join([each for mode in modes for each in _FIELDS[mode]]).split()}
    offered: JsonObject = {name: each for name, each in properties.items() if name in fields}
    schema: JsonObject = {"type": "object", "properties": offered}
    # With only one way left, the schema itself can say what a call has to have.
    if len({*modes}) == 1:
        schema["required"] = [*_FIELDS[next(iter(modes))][0].split()]
    return schema


def parse_arguments(arguments: str | bytes | Mapping[str, object]) -> SubagentArguments:
    """Return the arguments that the model wrote as JSON, or that a program gives, checked. An `InvalidArguments` lists
    every issue."""
    written = arguments if isinstance(arguments, str | bytes) else None
    try:
        if written is None:
            return SubagentArguments.model_validate(arguments)
        return SubagentArguments.model_validate_json(written)
    except ValidationError as error:
        raise InvalidArguments(f"arguments for tool {NAME!r}", issue_lines(faults_of(error, written))) from None


def choose_call(
    given: SubagentArguments, max_tasks: int | None, offered: Collection[SubagentMode] = MODES
) -> SubagentCall:
    """Return the one call that the arguments mean; raise a `SubagentMisused` if they mean none, or more than one, or
    what is not offered."""
    call = _subagent_call(given, max_tasks)
    if call.mode not in offered:
        ways = " or ".join([_USES[each].partition(":")[0] for each in MODES if each in offered])
        raise SubagentMisused(f"Delegating by {_USES[call.mode].partition(':')[0]} is not offered here. Use {ways}.")
    return call


def _subagent_call(given: SubagentArguments, max_tasks: int | None) -> SubagentCall:
    if given.team_name or given.name or given.background:
        return _call_beside(given)
    given_modes = {"agent with task": given.agent and given.task, "tasks": given.tasks, "chain": given.chain}
    modes = [name for name, is_meant in given_modes.items() if is_meant]
    if len(modes) != 1:
        found = f"it has {' and '.join(modes)}" if modes else "it has none of them"
        raise SubagentMisused(f"A call has exactly one mode: agent and task, or tasks, or chain; {found}.")
    if given.chain:
        start_at = 1 if given.start_at is None else given.start_at
        if not 1 <= start_at <= len(given.chain):
            raise SubagentMisused(f"start_at is {start_at}, and the chain has the steps 1 to {len(given.chain)}.")
        return ChainCall(tuple(given.chain), start_at, given.previous or "")
    if not given.tasks:
        return SingleCall(given.agent or "", given.task or "")
    if max_tasks is not None and len(given.tasks) > max_tasks:
        raise SubagentMisused(
            f"These are {len(given.tasks)} tasks, and at most {max_tasks} may run in one call. Use several calls."
        )
    return ParallelCall(tuple(given.tasks))


def _call_beside(given: SubagentArguments) -> BackgroundCall | TeamCall:
    """Return the call that returns at once, while its sub-agent works on."""
    is_member = bool(given.team_name or given.name)  # nobody else has a name
    others = {"background": is_member and given.background, "tasks": given.tasks, "chain": given.chain}
    combined = " and ".join([name for name, is_given in others.items() if is_given])
    if combined and is_member:
        raise SubagentMisused(f"name and team_name cannot be combined with {combined}.")
    if combined:
        raise SubagentMisused("Background work is one agent with one task. Leave out tasks and chain.")
    agent, task, description = given.agent, given.task, given.description or ""
    if not agent or not task:
        who = "A member of a team" if is_member else "Background work"
        missing = " and ".join([name for name in ("agent", "task") if not getattr(given, name)])
        raise SubagentMisused(f"{who} needs agent and task. The call has no {missing}.")
    if not is_member:
        return BackgroundCall(agent, task, description.strip() or shorten(task, _SHOWN_CHARS))
    name, team_name, color = given.name or agent, given.team_name or "", given.color or ""
    return TeamCall(agent=agent, task=task, name=name, team_name=team_name, description=description, color=color)
