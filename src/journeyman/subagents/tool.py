"""Delegation as a tool: `tools=[Subagents(analyst, writer)]`. A model lets other agents do part of its work.

A sub-agent is an agent: typed, reflected and validated as in any run, in a conversation of its own. What holds for the
run above holds for it, too: gates, budgets, deadlines and signals only narrow, and its usage and events are part of
the whole. There are five ways to delegate: single, parallel, chain, background and team.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from journeyman.agent import Agent, Host, is_count
from journeyman.cancel import Abort
from journeyman.errors import DefinitionError, Problem, SubagentMisused, name_and_words
from journeyman.events import Listener
from journeyman.model import Model
from journeyman.result import Result
from journeyman.subagents.calls import (
    LABEL,
    NAME,
    BackgroundCall,
    ChainCall,
    ParallelCall,
    SingleCall,
    TeamCall,
    chosen,
    description_of,
    parsed,
    schema_of,
)
from journeyman.subagents.delegation import Delegation, background, chain, parallel, single, team
from journeyman.subagents.results import SubagentResult
from journeyman.team.spawn import SpawnFunction, TeamSpawner
from journeyman.tools.background import Notify, OutputFactory
from journeyman.tools.context import BackgroundTasks
from journeyman.tools.tools import Tool, ToolContext
from journeyman.types import Effect

_WIRING: Final = ("tasks", "notify", "create_model", "background_output", "team")
_EFFECTS: Final[tuple[Effect, ...]] = ("pure", "idempotent", "once")


class Subagents(Tool[..., Any]):
    """The tool `subagent`: it lets these agents do work, one, several at once, or one after the other.

    What the tool is cannot change; what it needs of the host may be set later: `subagents.tasks = tasks`.

    Raises:
        DefinitionError: when made, if the agents or the limits will not do; lists every problem.
    """

    label: Final = LABEL
    tasks: BackgroundTasks | None
    """Where background work is started; None: the tasks of the run's host."""
    notify: Notify | None
    """Told when background work ends. None: whoever `tasks` tells, or else the chat that the call is from."""
    create_model: Callable[[str], Model] | None
    """Makes the model that a call asks for by name; None: a call cannot ask for one."""
    background_output: OutputFactory | None
    """Opens the output of background work; None: `tasks` says what does."""
    team: TeamSpawner | SpawnFunction | None
    """Makes members of a team: a `Team`, whatever has such a `spawn`, or a function like it. None: there is no team."""
    max_parallel: int | None
    """The most tasks that one parallel call may have; None for no limit."""
    max_concurrency: int | None
    """How many of them run at the same time; None for all."""
    _agents: Mapping[str, Agent[Any, Any]]

    def __init__(
        self,
        *agents: Agent[Any, Any],
        tasks: BackgroundTasks | None = None,
        notify: Notify | None = None,
        create_model: Callable[[str], Model] | None = None,
        background_output: OutputFactory | None = None,
        team: TeamSpawner | SpawnFunction | None = None,
        max_parallel: int | None = 8,
        max_concurrency: int | None = 4,
    ) -> None:
        problems = [*_problems(agents, {"max_parallel": max_parallel, "max_concurrency": max_concurrency})]
        wiring = {"tasks": tasks, "notify": notify, "create_model": create_model, "team": team}
        problems += [problem for name, value in wiring.items() for problem in _wiring_problems(name, value)]
        if problems:
            raise DefinitionError("Subagents", problems)
        by_name = {agent.name: agent for agent in agents}
        self.__dict__.update(
            _agents=by_name,
            max_parallel=max_parallel,
            max_concurrency=max_concurrency,
            tasks=tasks,
            notify=notify,
            create_model=create_model,
            background_output=background_output,
            team=team,
        )
        super().__init__(
            NAME,
            description_of(by_name, max_parallel),
            schema_of(by_name, max_parallel),
            self.execute,
            parallel=True,
            effect=_riskiest(agents),
            untrusted=any(tool.untrusted for agent in agents for tool in agent.tools),
            resumes=True,
        )

    # A tool is frozen, and its class has slots. So assignment is defined anew here for what the host may set later.
    def __setattr__(self, name: str, value: object) -> None:
        if name not in _WIRING:
            raise AttributeError(f"{name!r} of Subagents cannot be set. These can: {', '.join(_WIRING)}.")
        problems = [*_wiring_problems(name, value)]
        if problems:
            raise DefinitionError("Subagents", problems)
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"<Subagents {', '.join(sorted(self._agents))}>"

    # -- for programs

    def agent(self, name: str) -> Agent[Any, Any] | None:
        """Return the definition of a sub-agent; None if there is none of that name."""
        return self._agents.get(name)

    async def run(
        self,
        name: str,
        task: Any,  # noqa: ANN401 - the input of any agent
        *,
        model: Model | None = None,
        on_event: Listener | None = None,
        abort: Abort | None = None,
        host: Host | None = None,
    ) -> Result[Any]:
        """Run the sub-agent `name` on `task`, and return how its run ended. In a tool it is a sub-agent of that run.

        Raises:
            SubagentMisused: there is none of that name, or it cannot begin here.
        """
        listeners = () if on_event is None else (on_event,)
        made = Delegation(agents=self._agents, context=None, model=model, host=host, abort=abort, listeners=listeners)
        return await made.run(name, task)

    async def execute(self, arguments: Mapping[str, object], context: ToolContext | None = None) -> SubagentResult:
        """Delegate as the arguments say, and return what came of it. The model gets the same as JSON.

        Raises:
            InvalidArguments: the arguments do not fit the schema.
            SubagentMisused: the call means nothing, or it cannot be done here.
            SubagentFailed: the one sub-agent of a single call failed.
        """
        given = parsed(arguments)
        model = None if not given.model else self._model(given.model)
        delegation = Delegation(agents=self._agents, context=context, model=model)
        match chosen(given, self.max_parallel):
            case SingleCall() as call:
                return await single(delegation, call)
            case ParallelCall() as call:
                return await parallel(delegation, call, self.max_concurrency)
            case ChainCall() as call:
                return await chain(delegation, call)
            case BackgroundCall() as call:
                output = self.background_output
                return background(delegation, call, own_tasks=self.tasks, notify=self.notify, output=output)
            case TeamCall() as call:
                return await team(delegation, call, self.team)

    # -- for the loop

    def parse(self, input_json: str | bytes) -> dict[str, object]:
        """Return the arguments that the model wrote, checked."""
        return parsed(input_json).model_dump(exclude_none=True)

    async def invoke(self, arguments: dict[str, object], context: ToolContext | None) -> str:
        """Delegate as the arguments say, and return what the model reads."""
        return (await self.execute(arguments, context)).to_json()

    def _model(self, name: str) -> Model:
        if self.create_model is None:
            raise SubagentMisused(
                f"Model {name!r} cannot be used: nothing here makes models. Leave out model. "
                "(A program gives Subagents(create_model=...).)"
            )
        try:
            return self.create_model(name)
        except Exception as error:
            raise SubagentMisused(f"Model {name!r} cannot be used: {name_and_words(error)}") from error


# -- the definition ---------------------------------------------------------------------------------------------------


def _problems(agents: Sequence[Agent[Any, Any]], counts: Mapping[str, int | None]) -> Iterator[Problem]:
    if not agents:
        yield Problem("NO_AGENTS", "There is no agent.", "Pass at least one: Subagents(analyst, writer).")
    seen: set[str] = set()
    for agent in agents:
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
            yield Problem("INVALID_AGENT", f"{agent!r} is no agent.", "Pass agents, one after the other.")
        elif agent.name in seen:
            yield Problem("DUPLICATE_AGENT_NAME", f"Agent {agent.name!r} is there twice.", "Rename or remove one.")
        else:
            seen.add(agent.name)
    for name, value in counts.items():
        if value is not None and not is_count(value, 1):
            yield Problem("INVALID_LIMIT", f"{name} is {value!r}.", "Pass a whole number of at least 1, or None.")


_FITTING: Final[Mapping[str, tuple[str, str]]] = {
    "tasks": ("start", "Pass a Tasks, or whatever has its start()."),
    "notify": ("", "Pass a function of the notification and the task: notify=lambda text, info: …."),
    "create_model": ("", "Pass a function that makes a model of its name."),
    "team": ("spawn", "Pass a Team, whatever has its spawn(), or a function of a TeamSpawnRequest."),
}
"""What a collaborator must have, none for a function, and what to pass. A spawner may be a function, too."""


def _wiring_problems(name: str, value: object) -> Iterator[Problem]:
    if value is None or name not in _FITTING:
        return
    method, advice = _FITTING[name]
    is_class = isinstance(value, type) and bool(method)
    has_method = callable(getattr(value, method, None)) if method else callable(value)
    if is_class or not (has_method or (name == "team" and callable(value))):
        yield Problem("INVALID_COLLABORATOR", f"{name} is {value!r}.", advice)


def _riskiest(agents: Sequence[Agent[Any, Any]]) -> Effect:
    """Return the effect that is hardest to undo, of all tools of all agents."""
    defaults: dict[bool, Effect] = {True: "idempotent", False: "once"}
    effects: list[Effect] = [
        tool.effect or defaults[agent.tools_are_idempotent] for agent in agents for tool in agent.tools
    ]
    return _EFFECTS[max(map(_EFFECTS.index, effects), default=0)]
