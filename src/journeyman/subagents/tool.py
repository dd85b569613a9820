"""Delegation as a tool: `tools=[Subagents(analyst, writer)]`. A model lets other agents do part of its work.

A sub-agent is an agent: typed, reflected and validated as in any run, in a conversation of its own. What holds for the
run above holds for it, too: gates, budgets, deadlines and signals only narrow, and its usage and events are part of
the whole. There are five ways to delegate: single, parallel, chain, background and team.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypedDict, TypeVar, Unpack, overload

from pydantic import TypeAdapter

from journeyman.agent import Agent, Limits, Runtime
from journeyman.cancellation import Abort, log_caught
from journeyman.definition.faces import load_function
from journeyman.definition.foreign import refuse_old_arguments
from journeyman.definition.narrowing import is_list_or_tuple, is_set
from journeyman.definition.problems import COUNT_OR_NONE, explain_arguments, raise_problems, value_problems
from journeyman.errors import DefinitionError, Problem, SubagentMisused, name_and_words
from journeyman.events import Listener
from journeyman.hosted.tools import CodeExecution
from journeyman.loop.prepare import runtime_problems
from journeyman.loop.state import run_context, sent_runs
from journeyman.model import Model
from journeyman.result import Result
from journeyman.subagents.calls import (
    LABEL,
    MODES,
    NAME,
    BackgroundCall,
    ChainCall,
    ParallelCall,
    SingleCall,
    SubagentMode,
    TeamCall,
    choose_call,
    description_of,
    parse_arguments,
    schema_of,
)
from journeyman.subagents.delegation import Delegation, background, chain, join_team, parallel, single, team
from journeyman.subagents.results import SubagentResult
from journeyman.team.spawn import MAX_DEPTH, SpawnFunction, TeamSpawner
from journeyman.tools.background import Notify, OutputFactory, TaskOptions, output_factory
from journeyman.tools.check import function_problem, lacking, listener_problems, model_problems, signal_problems
from journeyman.tools.context import BackgroundTasks, ToolContext
from journeyman.tools.deps import NOT_DECLARED, Bound
from journeyman.tools.schema import Arguments, TypedArguments
from journeyman.tools.tools import AnyTool, Needs, Tool
from journeyman.tools.toolsets import Toolset
from journeyman.types import Effect, JsonObject

D = TypeVar("D")

_WIRING: Final = ("tasks", "notify", "create_model", "background_output", "team")
# From what is easiest to undo to what cannot be undone.
_EFFECTS: Final[tuple[Effect, ...]] = ("pure", "idempotent", "once")


class SubagentsOptions(TypedDict, total=False):
    """The options of `Subagents`; they are explained at its attributes."""

    tasks: BackgroundTasks | None
    notify: Notify | None
    create_model: Callable[[str], Model | Awaitable[Model]] | None
    background_output: str | PathLike[str] | OutputFactory | None
    team: TeamSpawner | SpawnFunction | None
    max_tasks: int | None
    max_concurrency: int | None
    modes: Sequence[SubagentMode]


@explain_arguments
class Subagents(Tool[..., Any, Needs], Toolset[Needs]):
    """The tool `subagent`, with which a model lets these agents work: one, several at once, or one after the other.

    Agents that declare deps get the run's deps, or what `deps` makes of them.

    The definition of the tool cannot change; what it needs from the host may be set later: `subagents.tasks = tasks`.

    Raises:
        DefinitionError: when made, if the agents or the limits cannot be used; lists every problem.
    """

    label: Final = LABEL
    """What it is called where a call of it is shown."""
    tasks: BackgroundTasks | None
    """Where background work is started; None: the tasks of the run's runtime."""
    notify: Notify | None
    """Is told when background work ends. None: the `notify` of `tasks` is told, or else the chat from which the call
    came."""
    create_model: Callable[[str], Model | Awaitable[Model]] | None
    """Makes the model that a call asks for by name; None: a call cannot ask for one."""
    background_output: str | PathLike[str] | OutputFactory | None
    """A folder for the output of background work, or a function that opens it. None: `tasks` decides."""
    team: TeamSpawner | SpawnFunction | None
    """Makes members of a team: a `Team`, whatever has such a `spawn`, or a function like it. None: there is no team."""
    max_tasks: int | None
    """How many tasks one parallel call may have. None: without limit."""
    max_concurrency: int | None
    """How many of these tasks run at the same time. None: all of them."""
    modes: Sequence[SubagentMode]
    """The ways to delegate that the model is offered. With fewer than all five, its schema has only what these need,
    and `model` only with a `create_model`: small models cope better with that, and each prompt is shorter."""
    _delegation: Delegation
    """The part of each call that is the same for all."""

    @overload
    def __init__(self, *agents: Agent[Any, Any, Needs], **options: Unpack[SubagentsOptions]) -> None: ...
    @overload
    def __init__(
        self, *agents: Agent[Any, Any, D], deps: Callable[[Needs], D], **options: Unpack[SubagentsOptions]
    ) -> None: ...
    def __init__(  # noqa: PLR0913 - each of them by name
        self,
        *agents: Agent[Any, Any, Any],
        deps: Callable[[Any], object] | None = None,
        tasks: BackgroundTasks | None = None,
        notify: Notify | None = None,
        create_model: Callable[[str], Model | Awaitable[Model]] | None = None,
        background_output: str | PathLike[str] | OutputFactory | None = None,
        team: TeamSpawner | SpawnFunction | None = None,
        max_tasks: int | None = 8,
        max_concurrency: int | None = 4,
        modes: Sequence[SubagentMode] = MODES,
    ) -> None:
        limits = {"max_tasks": max_tasks, "max_concurrency": max_concurrency}
        problems = [*_problems_of_agents(agents, limits)]
        if deps is not None:
            problems += function_problem("deps", deps, "the run's deps")
        given_modes = modes if is_list_or_tuple(modes) or is_set(modes) else ()
        if not given_modes or any(each not in MODES for each in given_modes):
            hint = f"Pass some of {', '.join(map(repr, MODES))}, such as modes=('single',)."
            problems.append(Problem("INVALID_MODES", f"modes is {modes!r:.80}.", hint))
        given = (tasks, notify, create_model, background_output, team)
        wiring = dict(zip(_WIRING, given, strict=True))
        problems += [problem for name, each in wiring.items() for problem in _wiring_problems(name, each)]
        raise_problems("Subagents", problems)
        by_name = {agent.name: agent for agent in agents}
        tools = [(tool, agent.default_effect) for agent in agents for tool in agent.plan.tools.values()]
        # Of what a toolset will give, nobody knows anything.
        are_asked = any(agent.plan.sources for agent in agents)
        effects = [tool.effect or default for tool, default in tools]
        # A call may name any of them, and nobody knows which.
        hardest_to_undo: Effect = "once" if are_asked else _EFFECTS[max(map(_EFFECTS.index, effects), default=0)]
        delegation = Delegation(agents=by_name, deps_of=deps)
        # A tool is frozen.
        self.__dict__.update(_delegation=delegation, modes=tuple(modes), **limits, **wiring)
        super().__init__(
            NAME,
            description_of(by_name, max_tasks, modes),
            schema_of(by_name, max_tasks, modes, has_models=create_model is not None),
            self.execute,
            parallel=True,
            effect=hardest_to_undo,
            # A stranger's words may come from a tool, or from a search of the provider's own.
            untrusted=are_asked
            or any(tool.untrusted for tool, _ in tools)
            or any(not isinstance(each, CodeExecution) for agent in agents for each in agent.settings.hosted),
            # Each run below has a section of the journal.
            journals_itself=True,
            permission_kind="subagent",
        )

    @classmethod
    def from_folder(
        cls,
        folder: str | PathLike[str],
        *,
        model: str | Model,
        models: Mapping[str, str | Model] = MappingProxyType({}),
        tools: Iterable[AnyTool] = (),
        max_tasks: int | None = 8,
        max_concurrency: int | None = 4,
        modes: Sequence[SubagentMode] = MODES,
    ) -> Subagents[Any]:
        """Return the tool for the agents that stand in a folder as Claude Code has them: `.claude/agents/*.md`, each
        with its `name`, `description`, `tools`, `disallowedTools`, `model` and `maxTurns`, and its system prompt below.

            Subagents.from_folder(".claude/agents", model="anthropic:claude-sonnet-5-5", tools=workspace.tools())

        Args:
            folder: Where they are, `~` for the user's home; folders in it are looked through, too.
            model: The model of those that name none, or `inherit`.
            models: By name, what they call their models: `{"haiku": "anthropic:claude-haiku-4-5"}`.
            tools: What they may have: all of it, or those that they name, also as Claude Code calls them (`Read`).
            max_tasks: As of `Subagents`; so are the other two. What else it has is set later.
            max_concurrency: See there.
            modes: See there.

        Raises:
            DefinitionError: a file says what no sub-agent can carry, or cannot be read; lists every problem.
        """
        agents = read_agents(folder, model=model, models=models, tools=[*tools])
        return cls(*agents, max_tasks=max_tasks, max_concurrency=max_concurrency, modes=modes)

    # A tool is frozen, and its class has slots. So assignment is defined again here for what the host may set later.
    def __setattr__(self, name: str, value: object) -> None:
        if name not in _WIRING:
            raise AttributeError(f"{name!r} of Subagents cannot be set. These can: {', '.join(_WIRING)}.")
        raise_problems("Subagents", _wiring_problems(name, value))
        object.__setattr__(self, name, value)

    @property
    def asked_deps(self) -> tuple[object, ...]:
        """The types of the deps that the agents ask for; none, if these are made for them."""
        if self._delegation.deps_of is not None:
            return ()
        asked = [agent.deps for agent in self.agents]
        return tuple([each for each in asked if each is not NOT_DECLARED and not isinstance(each, Bound)])

    @property
    def known_tools(self) -> Sequence[AnyTool]:
        """The tool itself, as a toolset of one."""
        return (self,)

    def __repr__(self) -> str:
        return f"<Subagents {', '.join(sorted(self._delegation.agents))}>"

    def agent(self, name: str) -> Agent[Any, Any, Any] | None:
        """Return the definition of a sub-agent; None if there is none of that name."""
        return self._delegation.agents.get(name)

    @property
    def agents(self) -> tuple[Agent[Any, Any, Any], ...]:
        """The definitions of all sub-agents, as they were given."""
        return tuple(self._delegation.agents.values())

    def ready(self, name: str, deps: object) -> Agent[Any, Any, Any]:
        """Return the definition of a sub-agent with its deps, in a run that has these.

        Raises:
            SubagentMisused: there is none of that name, or it cannot be given its deps.
        """
        return replace(self._delegation, deps=deps).find_agent(name)

    @refuse_old_arguments
    async def run(
        self,
        name: str,
        task: Any,  # noqa: ANN401 - the input of any agent
        *,
        deps: object = None,
        model: Model | None = None,
        on_event: Listener | None = None,
        abort: Abort | None = None,
        runtime: Runtime | None = None,
    ) -> Result[Any]:
        """Run the sub-agent `name` on `task`, and return how its run ended. In a tool, it is a sub-agent of the tool's
        run, and gets the run's deps unless others are given.

        Raises:
            SubagentMisused: there is none of that name, it cannot begin here, or what was passed cannot be used.
        """
        problems = [*runtime_problems(runtime), *signal_problems(abort), *model_problems("model", model)]
        if on_event is not None:
            problems += listener_problems(on_event)
        if problems:
            raise SubagentMisused(" ".join(map(str, problems)))
        listeners = () if on_event is None else (on_event,)
        above = run_context.get().run
        deps = above.deps if deps is None and above is not None else deps
        made = replace(self._delegation, model=model, runtime=runtime, abort=abort, listeners=listeners, deps=deps)
        return await made.run(name, task)

    async def execute(self, arguments: Mapping[str, object], context: ToolContext[Any] | None = None) -> SubagentResult:
        """Delegate as the arguments say, and return what came of it. The model gets the same as JSON.

        Raises:
            InvalidArguments: the arguments do not fit the schema.
            SubagentMisused: the call means nothing, or it cannot be done here.
            SubagentFailed: the one sub-agent of a single call failed.
        """
        return await self._delegate(arguments, context)

    async def _delegate(
        self, arguments: Mapping[str, object], context: ToolContext[Any] | None, *, is_call: bool = False
    ) -> SubagentResult:
        given = parse_arguments(arguments)
        model = await self.model(given.model) if given.model else None
        deps, runs = (None, None) if context is None else (context.deps, sent_runs())
        name = given.model or ""
        delegation = replace(
            self._delegation, context=context, is_call=is_call, model=model, model_name=name, deps=deps, runs=runs
        )
        match choose_call(given, self.max_tasks, self.modes):
            case SingleCall() as call:
                return await single(delegation, call)
            case ParallelCall() as call:
                return await parallel(delegation, call, self.max_concurrency)
            case ChainCall() as call:
                return await chain(delegation, call)
            case BackgroundCall() as call:
                if self.tasks or self.notify or self.background_output:
                    # A run of its own lives on elsewhere, where none of these is.
                    delegation = replace(delegation, runs=None)
                output = output_factory(self.background_output)
                options = TaskOptions(kind="agent", agent=call.agent, notify=self.notify, output=output)
                return await background(delegation, call, self.tasks, options)
            case TeamCall() as call:
                if runs is not None and self.team is not None and not getattr(self.team, "is_open", True):
                    return await join_team(delegation, call, runs)
                return await team(delegation, call, self.team)

    def _read_schema(self, schema: JsonObject) -> Arguments:
        return TypedArguments(schema, TypeAdapter(dict[str, object]))  # they are checked by `parse`

    def parse(self, input_json: str | bytes) -> dict[str, object]:
        """Return the arguments that the model wrote, checked."""
        return parse_arguments(input_json).model_dump(exclude_none=True)

    async def invoke(self, arguments: dict[str, object], context: ToolContext[Any] | None) -> str:
        """Delegate as the arguments say, and return what the model reads."""
        return (await self._delegate(arguments, context, is_call=True)).to_json()

    async def model(self, name: str) -> Model:
        """Return the model that a call asks for by name.

        Raises:
            SubagentMisused: there is none.
        """
        if self.create_model is None:
            raise SubagentMisused(
                f"Model {name!r} cannot be used: nothing here makes models. Leave out model. "
                "(A program gives Subagents(create_model=...).)"
            )
        try:
            made = self.create_model(name)
            model = await made if inspect.isawaitable(made) else made
        except Exception as error:
            log_caught("Subagents.create_model", error)
            raise SubagentMisused(f"Model {name!r} cannot be used: {name_and_words(error)}") from error
        if next(model_problems("model", model), None) is not None or model is None:  # pyright: ignore[reportUnnecessaryComparison] - users' code may not be typed
            raise SubagentMisused(
                f"Model {name!r} cannot be used: create_model gave {model!r}, which is not a model. Leave out model. "
                "(A program returns a model such as connect(name) gives.)"
            )
        return model


def crew_of(agent: Agent[Any, Any, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the way to each agent that may be sent out below this one: the names of sub-agents."""
    ways: list[tuple[tuple[str, ...], Agent[Any, Any, Any]]] = [((), agent)]
    for way, above in ways:
        # A deeper one would be refused.
        if len(way) >= MAX_DEPTH:
            continue
        for tool in above.plan.tools.values():
            for each in tool.agents if isinstance(tool, Subagents) else ():
                ways.append(((*way, each.name), each))
                yield (*way, each.name)


def _problems_of_agents(agents: Sequence[Agent[Any, Any, Any]], counts: Mapping[str, int | None]) -> Iterator[Problem]:
    if not agents:
        yield Problem("NO_AGENTS", "There is no agent.", "Pass at least one: Subagents(analyst, writer).")
    seen: set[str] = set()
    for agent in agents:
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
            yield _not_an_agent(agent)
        elif agent.name in seen:
            yield Problem("DUPLICATE_AGENT_NAME", f"Agent {agent.name!r} is given twice.", "Rename or remove one.")
        else:
            seen.add(agent.name)
    for name, value in counts.items():
        yield from value_problems("INVALID_LIMIT", name, value, COUNT_OR_NONE)


def _not_an_agent(given: object) -> Problem:
    kind = type(given).__name__
    if isinstance(given, list | tuple | set | frozenset | dict):
        text = f"Agents are given one after the other, and not in a {kind}."
        star = "*agents.values()" if isinstance(given, dict) else "*agents"
        return Problem("INVALID_AGENT", text, f"Write Subagents({star}), or Subagents(analyst, writer).")
    text = f"A {kind} is not an agent."
    return Problem("INVALID_AGENT", text, "Pass agents, one after the other: Subagents(analyst, writer).")


def _wiring_problems(name: str, given: object) -> Iterator[Problem]:
    if given is None:
        return
    match name:
        case "tasks":
            yield from lacking(name, given, "start", hint="Pass a Tasks(), or leave it out.")
        case "notify":
            yield from function_problem(name, given, "a text and a TaskInfo", n=2)
        case "create_model":
            yield from function_problem(name, given, "a name")
        case "team":
            if isinstance(given, type) or not callable(given):
                yield from lacking(name, given, "spawn", hint="Pass a Team(), or leave it out.")
        case _:  # background_output
            if not isinstance(given, str | PathLike):
                yield from function_problem(name, given, "an id and a subject", n=2)


#
# As Claude Code has them: Markdown files, whose front matter says what they are. What such a file asks for and a
# sub-agent cannot carry is refused by its name, so that none works with less than its author meant.

_KNOWN: Final = frozenset({"name", "description", "tools", "disallowedTools", "model", "maxTurns", "color"})
"""The fields that are read; a colour is for the eyes only."""
_ELSEWHERE: Final = {"webfetch": "fetch", "multiedit": "edit", "notebookread": "read"}
"""Tools of Claude Code that have another name here, in small letters."""
_MOST_FILES: Final = 200
_RULES: Final = re.compile(r"[^\s,(]+(?:\([^()]*\))?")
"""The names of tools in a text, separated by commas and blanks; what stands in parentheses belongs to the name."""


def read_agents(
    folder: str | os.PathLike[str], *, model: str | Model, models: Mapping[str, str | Model], tools: Sequence[AnyTool]
) -> list[Agent[Any, Any, Any]]:
    """Return the agents in a folder, by the order of their paths. A `DefinitionError` lists every problem."""
    place = Path(os.path.expanduser(folder))
    agents: list[Agent[Any, Any, Any]] = []
    problems: list[Problem] = []
    for path in _find_files(place, problems):
        try:
            agents.append(_AgentFile(path, model, models, tools).read())
        except DefinitionError as error:
            problems += [Problem(each.code, f"{path}: {each.message}", each.hint) for each in error.problems]
    if not agents and not problems:
        problems.append(Problem("NO_AGENTS", f"{place} holds no agents.", "Give the folder with their .md files."))
    if problems:
        raise DefinitionError(f"The agents in {place}", problems)
    return agents


def _find_files(place: Path, problems: list[Problem]) -> Iterator[Path]:
    root = os.path.realpath(place)
    found = sorted(path for path in place.rglob("*.md") if path.is_file())
    if len(found) > _MOST_FILES:
        text = f"{place} holds {len(found):,} files, and at most {_MOST_FILES} are read."
        problems.append(Problem("FOLDER_TOO_WIDE", text, "Give the folder with the agents alone."))
        return
    for path in found:
        target = os.path.realpath(path)
        if target.startswith(f"{root}/"):
            yield path
        else:
            text = f"{path} is a link that leads out of the folder, to {target}."
            problems.append(Problem("INVALID_AGENT", text, "Put the file itself into the folder."))


@dataclass(frozen=True, slots=True)
class _AgentFile:
    """One file, and what the program gives to its agent."""

    path: Path
    model: str | Model
    models: Mapping[str, str | Model]
    tools: Sequence[AnyTool]

    def read(self) -> Agent[Any, Any, Any]:
        """Return the agent. A `DefinitionError` lists every problem."""
        # Skills are read in the same way, in a room above this one.
        split: Callable[..., tuple[Mapping[object, object], str]] = load_function(
            "journeyman.skills.skills", "read_front_matter"
        )
        given, text = split(self.path)
        fields = {str(key): value for key, value in given.items() if value not in ("", [], None)}
        problems = [*self._problems(fields, text)]
        chosen = self._find_tools(fields["tools"], problems) if "tools" in fields else self.tools
        left_out = self._find_tools(fields.get("disallowedTools", ""), problems)
        if problems:
            raise DefinitionError(str(self.path), problems)
        turns = fields.get("maxTurns")
        return Agent(
            name=str(fields["name"]),
            description=" ".join(str(fields["description"]).split()),
            model=self._model(fields) or self.model,
            system=text,
            tools=[tool for tool in dict.fromkeys(chosen) if tool not in left_out],
            limits=Limits(iterations=int(str(turns))) if turns is not None else Limits(),
        )

    def _problems(self, fields: Mapping[str, object], text: str) -> Iterator[Problem]:
        for name in ("name", "description"):
            if not isinstance(fields.get(name), str):
                yield Problem("INVALID_AGENT", f"It has no {name}.", f"Add {name}: to its front matter.")
        for name in fields.keys() - _KNOWN:
            yield Problem("INVALID_AGENT", f"A sub-agent cannot carry its {name}.", "Take it out.")
        if not text:
            yield Problem("EMPTY_PROMPT", "It has no system prompt.", "Write one below the front matter.")
        turns = fields.get("maxTurns", "1")
        if not (isinstance(turns, str) and turns.isdecimal() and int(turns)):
            yield Problem("INVALID_LIMIT", f"Its maxTurns is {turns!r}.", "Write a number from 1 on.")
        if self._model(fields) is None and fields.get("model", "inherit") != "inherit":
            named = fields["model"]
            hint = f"Say which one: from_folder(…, models={{{named!r}: 'provider:name'}})."
            yield Problem("INVALID_MODEL_NAME", f"It wants the model {named!r}.", hint)

    def _model(self, fields: Mapping[str, object]) -> str | Model | None:
        """Return the model that the file names, if anything says which that is."""
        named = fields.get("model")
        if not isinstance(named, str):
            return None
        return self.models.get(named, named if ":" in named else None)

    def _find_tools(self, listed: object, problems: list[Problem]) -> list[AnyTool]:
        """Return the tools that are named in a text, or in a list: ours, that of a server, or Claude Code's for a ready
        tool. A name that no tool has is a problem."""
        found: list[AnyTool] = []
        texts = listed if is_list_or_tuple(listed) else [listed]
        for name in [name for text in texts for name in _RULES.findall(str(text))]:
            kind = _ELSEWHERE.get(name.lower(), name.lower())
            own = [tool for tool in self.tools if tool.name == name or name in tool.server_names]
            of_name = own or [tool for tool in self.tools if tool.permission_kind == kind]
            if not of_name:
                there = ", ".join([tool.name for tool in self.tools]) or "none"
                hint = f"Pass it: from_folder(…, tools=[…]). Now there is: {there}."
                problems.append(Problem("UNKNOWN_TOOL", f"It names the tool {name!r}, which is not there.", hint))
            found += of_name
        return found
