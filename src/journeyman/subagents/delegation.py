"""Running one sub-agent: what it inherits of the run above, and what it keeps to itself.

It has a conversation of its own, and a journal section of its own. The gates, the budget, the deadline, the signal and
the listeners of all runs above hold for it, too; `execution.py` sees to that, since they hold for every run in a run.

Single, parallel and chain: three ways to let sub-agents work while the call waits.

Only a cancellation leaves here: what fails is part of a result, but for the one task of a single call. Imports
`subagent_calls`, `subagent_results` and `subagent_runs`.

Background and team: two ways to let sub-agents work on after the call has returned.

A sub-agent in the background is a task of `Tasks`. It outlives the run that started it, and so has none of its
deadline, its signal or its state; its gates and its budget still hold, and its listeners still hear. Imports
`execution`, `loop`, `team_spawn`, the other modules of delegation and the parts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, cast

from pydantic_core import from_json, to_json

from journeyman.agent import NOTHING_AROUND, Agent, Host
from journeyman.cancel import Abort
from journeyman.errors import InvalidArguments, SubagentMisused, words_of
from journeyman.events import Event, Listener, MessageCommitted, ModelResponded, ToolCalled, ToolFinished
from journeyman.history import History
from journeyman.inbox import current_inbox
from journeyman.journal import Section
from journeyman.loop.attempts import carry_out
from journeyman.loop.prepare import begin
from journeyman.loop.record import Options, Origin, current_path, current_run, detached
from journeyman.model import Model
from journeyman.result import Result, Success
from journeyman.subagents.calls import MAX_DEPTH, BackgroundCall, ChainCall, ParallelCall, SingleCall, TeamCall
from journeyman.subagents.results import (
    BackgroundResult,
    ChainResult,
    ItemResult,
    ParallelResult,
    Ran,
    SingleResult,
    TeamResult,
    item_result,
    output_of,
    single_result,
)
from journeyman.team.spawn import TeamSpawner, TeamSpawnRequest
from journeyman.tools.background import Notify, OutputFactory, TaskContext, TaskOptions
from journeyman.tools.tools import BackgroundTasks, ToolContext
from journeyman.types import NOTHING_USED, Message, dump_messages

Mode: TypeAlias = Literal["single", "parallel", "chain", "background"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One task for one sub-agent."""

    agent: str
    task: str
    mode: Mode
    place: int
    """Which of the tasks of its call, from 0."""
    number: int | None
    """Tells its run from others in the same run; None outside a run."""


@dataclass(frozen=True, slots=True)
class Crew:
    """The sub-agents of one tool."""

    agents: Mapping[str, Agent[Any, Any]]

    def named(self, name: str) -> Agent[Any, Any]:
        """Return the agent of that name.

        Raises:
            SubagentMisused: there is none.
        """
        agent = self.agents.get(name)
        if agent is None:
            raise SubagentMisused(f"There is no sub-agent {name!r}. There are: {', '.join(sorted(self.agents))}.")
        return agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """One call of the tool: where it was made, and what holds for all its tasks."""

    crew: Crew
    context: ToolContext | None
    """None when a program made it."""
    model: Model | None
    """Used instead of the agents' own."""
    host: Host | None = None
    """What surrounds the runs, outside a run."""
    abort: Abort | None = None
    listeners: Sequence[Listener] = ()

    def errand(self, agent: str, task: str, mode: Mode, *, place: int = 0) -> Errand:
        """Return a task, with the next number. Called in the order of the tasks."""
        above = current_run.get()
        number = None if above is None else next(above.children.numbers)
        return Errand(agent=agent, task=task, mode=mode, place=place, number=number)

    def check_depth(self) -> None:
        """Raise if one more run in a run would be too deep.

        Raises:
            SubagentMisused: it would.
        """
        depth = len(current_path.get())
        if depth > MAX_DEPTH:
            raise SubagentMisused(
                f"A sub-agent here would be at depth {depth}, and the deepest is {MAX_DEPTH}. Do the task yourself."
            )

    async def do(self, errand: Errand) -> Ran:
        """Let a sub-agent do its task. Only a cancellation is raised."""
        agent: Agent[Any, Any] | None = None
        try:
            self.check_depth()
            agent = self.crew.named(errand.agent)
            result = await carry_out(begin(agent, input_of(agent, errand.task), self.options(errand)))
        except SubagentMisused as misused:
            return Ran(agent=errand.agent, task=errand.task, definition=agent, result=misused)
        return Ran(agent=errand.agent, task=errand.task, definition=agent, result=result)

    async def run(self, name: str, given: object) -> Result[Any]:
        """Run a sub-agent on an input of its type.

        Raises:
            SubagentMisused: there is none of that name, or it cannot begin here.
        """
        self.check_depth()
        agent = self.crew.named(name)
        errand = self.errand(name, given if isinstance(given, str) else agent.plan.input.dump(given).decode(), "single")
        return await carry_out(begin(agent, given, self.options(errand)))

    def options(self, errand: Errand) -> Options:
        """Return how the run of a task is to be made."""
        return Options(
            listeners=self.listeners,
            abort=self.abort,
            host=self._surroundings(errand),
            origin=Origin(
                mode=errand.mode,
                tool_use_id=None if self.context is None else self.context.tool_use_id,
                number=errand.number,
            ),
        )

    def _surroundings(self, errand: Errand) -> Host:
        """Return what surrounds the run of a task: what surrounds the run above, but for its model and its budget."""
        above = current_run.get()
        host = self.host or (NOTHING_AROUND if above is None else above.options.host)
        journal = host.journal
        if journal is not None and self.context is not None:
            journal = Section(journal, _place_of(self.context, errand))
        budget = host.budget if above is None else None
        return replace(host, model=self.model or (host.model if self.host else None), budget=budget, journal=journal)


def _place_of(context: ToolContext, errand: Errand) -> str:
    """Return where in the journal the steps of a task are."""
    call = f"attempt/{context.attempt}/iteration/{context.iteration}/call/{context.tool_use_id}"
    return f"{call}/{errand.mode}/{errand.place}"


def input_of(agent: Agent[Any, Any], task: str) -> object:
    """Return the input that a task is: the text, or the value of the JSON that it is.

    Raises:
        SubagentMisused: it does not fit the type of the agent's input.
    """
    if agent.input is str:
        return task
    try:
        return agent.plan.input.parse(task)
    except InvalidArguments as invalid:
        raise SubagentMisused(f"The task of {agent.name!r} has to be JSON that fits its input. {invalid}") from invalid


_CANCELLED: Final = "Sub-agent {name!r} was cancelled from outside."

_PREVIOUS: Final = re.compile(r"\{previous((?:\.\w+)*)\}")


async def single(delegation: Delegation, call: SingleCall) -> SingleResult:
    """Let one sub-agent do one task.

    Raises:
        SubagentMisused: it cannot begin.
        SubagentFailed: its run failed.
    """
    return single_result(await delegation.do(delegation.errand(call.agent, call.task, "single")))


# -- parallel ---------------------------------------------------------------------------------------------------------


async def parallel(delegation: Delegation, call: ParallelCall, max_concurrency: int | None) -> ParallelResult:
    """Let several work at the same time. One that fails leaves the others alone."""
    errands = [
        delegation.errand(item.agent, item.task, "parallel", place=place) for place, item in enumerate(call.tasks)
    ]
    places = asyncio.Semaphore(max_concurrency or len(errands))

    async def in_place(errand: Errand) -> Ran:
        async with places:
            return await delegation.do(errand)

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(in_place(errand)) for errand in errands]
    ran = [_ended(task, errand) for task, errand in zip(running, errands, strict=True)]
    summary = f"{sum(each.succeeded for each in ran)}/{len(ran)} succeeded"
    return ParallelResult(summary=summary, results=tuple([item_result(each) for each in ran]))


def _ended(task: asyncio.Task[Ran], errand: Errand) -> Ran:
    if not task.cancelled():
        return task.result()
    # Somebody cancelled this one task: had it been the run above, the group would have raised.
    cancelled = SubagentMisused(_CANCELLED.format(name=errand.agent))
    return Ran(agent=errand.agent, task=errand.task, definition=None, result=cancelled)


# -- chain ------------------------------------------------------------------------------------------------------------


async def chain(delegation: Delegation, call: ChainCall) -> ChainResult:
    """Let one work after the other, up to the first that fails."""
    done: list[ItemResult] = []
    previous, value = _given(call)
    for number, item in enumerate(call.steps[call.start_at - 1 :], start=call.start_at):
        ran = await _step(delegation, item.agent, item.task, place=number - 1, previous=(previous, value))
        done.append(item_result(ran, step=number))
        if not isinstance(ran.result, Success) or ran.definition is None:
            return ChainResult(error=_stopped(number, ran.error_text()), results=tuple(done))
        value = output_of(ran.definition, ran.result)
        previous = value if isinstance(value, str) else _as_text(value)
    return ChainResult(output=done[-1].output, results=tuple(done), value=done[-1].value)


def _stopped(number: int, why: str) -> str:
    again = f"To go on from there, call again with start_at={number}"
    return f"Step {number} failed. {why} {again}{' and previous' if number > 1 else ''}."


def _given(call: ChainCall) -> tuple[str, object]:
    """Return what the first step gets of the one before: the text, and the object that it is, if it is one."""
    try:
        value: object = from_json(call.previous) if call.previous.lstrip().startswith(("{", "[")) else call.previous
    except ValueError:
        value = call.previous
    return call.previous, value


async def _step(delegation: Delegation, agent: str, task: str, *, place: int, previous: tuple[str, object]) -> Ran:
    try:
        task = filled(task, *previous)
    except SubagentMisused as misused:
        return Ran(agent=agent, task=task, definition=None, result=misused)
    return await delegation.do(delegation.errand(agent, task, "chain", place=place))


def filled(task: str, previous: str, value: object) -> str:
    """Put the output of the step before into a task: the text for `{previous}`, a field of it for `{previous.field}`.

    What is put in is not looked at again. Of a text, `{previous.field}` means nothing, and stays as it is.

    Raises:
        SubagentMisused: the output has no such field.
    """

    def put(found: re.Match[str]) -> str:
        names = found[1].split(".")[1:]
        if not names:
            return previous
        return found[0] if isinstance(value, str) else _as_text(_field(value, names, found[0]))

    return _PREVIOUS.sub(put, task)


def _field(value: object, names: Sequence[str], written: str) -> object:
    for name in names:
        if isinstance(value, Mapping) and name in value:
            value = cast("Mapping[str, object]", value)[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(cast("list[Any]", value)):
            value = cast("list[object]", value)[int(name)]
        else:
            raise SubagentMisused(f"{written} means nothing: {_has(cast('object', value))}.")
    return value


def _has(value: object) -> str:
    if isinstance(value, Mapping):
        return f"there are the fields {', '.join(map(str, cast('Mapping[str, object]', value)))}"
    if isinstance(value, list):
        return f"there is a list of {len(cast('list[Any]', value))}"
    return "what comes before it has no fields"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else to_json(value).decode()


NO_TASKS: Final = (
    "Background work is not available here: nobody would await it. Do the task without background. "
    "(A program gives Host(tasks=...) or Subagents(tasks=...).)"
)
NO_RECIPIENT: Final = (
    "Background work is not available here: nobody would be told when it ends. Do the task without background. "
    "(Outside a chat, a program gives Subagents(notify=...) or Subagents(tasks=...).)"
)
NO_TEAM: Final = "There is no team to join. Leave out name and team_name. (A program gives Subagents(team=...).)"

_SHOWN_CHARS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What a tool was given for its background work."""

    tasks: BackgroundTasks | None
    notify: Notify | None
    output: OutputFactory | None


# -- background -------------------------------------------------------------------------------------------------------


def background(delegation: Delegation, call: BackgroundCall, wiring: Wiring) -> BackgroundResult:
    """Start a sub-agent in the background, and return at once.

    Raises:
        SubagentMisused: it cannot be started.
    """
    tasks = _tasks_for(delegation, wiring)
    delegation.check_depth()
    agent = delegation.crew.named(call.agent)
    given = input_of(agent, call.task)
    errand = delegation.errand(call.agent, call.task, "background")
    options = TaskOptions(kind="agent", agent=agent.name)
    if wiring.notify is not None:
        options["notify"] = wiring.notify
    if wiring.output is not None:
        options["output"] = wiring.output
    work = _Work(delegation, agent, given, errand=errand)
    id = tasks.start(work.done, description=call.description, **options)
    message = f"Sub-agent {agent.name!r} works in the background as task {id}. You will be told when it ends."
    return BackgroundResult(task_id=id, description=call.description, message=message)


def _tasks_for(delegation: Delegation, wiring: Wiring) -> BackgroundTasks:
    tasks = wiring.tasks or (None if delegation.context is None else delegation.context.tasks)
    if tasks is None:
        raise SubagentMisused(NO_TASKS)
    if wiring.tasks is None and wiring.notify is None and current_inbox.get() is None:
        raise SubagentMisused(NO_RECIPIENT)
    return tasks


class _Work:
    """A sub-agent in the background. It is made where the call is, and done elsewhere."""

    def __init__(self, delegation: Delegation, agent: Agent[Any, Any], given: object, *, errand: Errand) -> None:
        above = current_run.get()
        self._agent = agent
        self._given = given
        self._task = errand.task
        self._history = History()
        self._options = delegation.options(errand)
        if above is not None:
            host = replace(self._options.host, budget=above.spending.outliving())
            self._options = replace(self._options, host=host, watch_above=above.watch)

    async def done(self, task: TaskContext) -> str:
        """Do the work, and what is said to the task meanwhile. Return the output as a model reads it."""
        reporter = _Reporter(task)
        self._options = replace(
            self._options,
            listeners=(*self._options.listeners, reporter),
            abort=task.abort,
            inbox=task.inbox,
            history=self._history,
        )
        with detached():
            result = await self._run(self._options)
            while isinstance(result, Success) and result.terminal_result is None and task.inbox.pick_up():
                result = await self._run(replace(self._options, going_on=task.inbox.hand_over))
        ran = Ran(agent=self._agent.name, task=self._task, definition=self._agent, result=result)
        output = single_result(ran).output
        return output if isinstance(output, str) else to_json(output).decode()

    async def _run(self, options: Options) -> Result[Any]:
        return await carry_out(begin(self._agent, self._given, options))


class _Reporter:
    """Listens to a sub-agent in the background, and reports to its task: calls, messages, and what was used so far."""

    def __init__(self, task: TaskContext) -> None:
        self._task = task
        self._usage = NOTHING_USED
        self._n_calls = 0

    def __call__(self, event: Event) -> None:
        match event:
            case MessageCommitted(message=message):
                self._task.write(_record(message))
            case ToolCalled(tool_name=name, tool_input=arguments):
                self._task.write(f"[tool] {name}({_cut(to_json(arguments).decode())})")
            case ToolFinished():
                self._n_calls += 1
                self._task.count(n_calls=self._n_calls)
            case ModelResponded(usage=usage):
                self._usage = self._usage + usage
                self._task.count(usage=self._usage)
            case _:
                pass


def _record(message: Message) -> dict[str, object]:
    [record] = from_json(dump_messages([message]))
    return record


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


# -- teams ------------------------------------------------------------------------------------------------------------


async def team(delegation: Delegation, call: TeamCall, spawner: TeamSpawner | None) -> TeamResult:
    """Let a sub-agent join a team, and return at once.

    Raises:
        SubagentMisused: it cannot join.
    """
    if spawner is None:
        raise SubagentMisused(NO_TEAM)
    delegation.check_depth()
    request = TeamSpawnRequest(
        agent=delegation.crew.named(call.agent),
        prompt=call.task,
        name=call.name,
        team_name=call.team_name,
        description=call.description,
        color=call.color,
        model=delegation.model,
    )
    try:
        made = await spawner.spawn(request)
    except Exception as error:  # whatever a host's spawner raises
        raise SubagentMisused(f"{call.name!r} cannot join the team: {words_of(error)}") from error
    where = f" of team {made.team_name!r}" if call.team_name else ""
    message = f"{made.name!r} is a member{where} now, and works by itself."
    return TeamResult(task_id=made.task_id, agent_id=made.agent_id, message=message)
