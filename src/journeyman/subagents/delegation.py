"""Delegating a task: what a sub-agent inherits of the run above, and the five ways to let sub-agents work.

A sub-agent has a conversation of its own, and a section of the journal. The gates, the budget, the deadline, the
signal and the listeners of all runs above hold for it, too: the loop sees to that, since they hold for every run in a
run. Single, parallel and chain let the call wait. What fails there is part of the result, except for the one task of a
single call; only a cancellation is raised.

A sub-agent in the background is a task of `Tasks`. It outlives the run that started it, and so has none of its
deadline, its signal or its state; its gates and its budget still hold, and its listeners still hear.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from pydantic_core import from_json

from journeyman.agent import DEFAULT_RUNTIME, Agent, Runtime
from journeyman.cancellation import Abort, log_caught
from journeyman.definition.json_numbers import read_json, write_json
from journeyman.definition.narrowing import is_list, is_mapping
from journeyman.errors import InvalidArguments, SubagentMisused, TeamError, name_and_words, words_of
from journeyman.events import Event, Listener, MessageCommitted, ModelResponded, ToolCalled, ToolFinished
from journeyman.history import History
from journeyman.inbox.inbox import current_conversation
from journeyman.journal import Above, Journal, Section, SentRun, SentRuns
from journeyman.loop.prepare import begin
from journeyman.loop.run import carry_out
from journeyman.loop.state import Options, Origin, Run, current_tally, enter, run_context
from journeyman.model import Model
from journeyman.result import COUNTED, Result, Success
from journeyman.step import RunStep, call_step
from journeyman.subagents.calls import BackgroundCall, ChainCall, ParallelCall, SingleCall, TeamCall
from journeyman.subagents.results import (
    BackgroundResult,
    ChainResult,
    FinishedAssignment,
    ItemResult,
    ParallelResult,
    SingleResult,
    SubagentUsage,
    TeamResult,
    item_result,
    single_result,
    usage_in_words,
)
from journeyman.team.spawn import DEFAULT_NAME, MAX_DEPTH, SpawnFunction, TeamSpawner, TeamSpawnRequest, spawn_member
from journeyman.texts import shorten
from journeyman.tools.background import TaskContext, TaskOptions, TaskResult, Work
from journeyman.tools.collection import do_aside
from journeyman.tools.context import BackgroundTasks, ToolContext
from journeyman.tools.deps import NOT_DECLARED, Bound, lacks_deps
from journeyman.tools.exact import StoredValue, store_value
from journeyman.tools.schema import CheckedValue
from journeyman.types import Usage, dump_messages

DelegationMode: TypeAlias = Literal["single", "parallel", "chain", "background"]


@dataclass(slots=True, kw_only=True)
class Assignment:
    """One task for one sub-agent."""

    agent: str
    task: str
    mode: DelegationMode
    place: int
    """Which of the tasks of its call it is, from 0."""
    number: int | None
    """Tells its run from others in the same run; None outside a run."""
    run: Run | None = None
    """Its run, once that has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """One call of the tool: where it was made, and what holds for all its tasks."""

    agents: Mapping[str, Agent[Any, Any, Any]]
    """The sub-agents, by name."""
    context: ToolContext[Any] | None = None
    """The call of the tool. None when a program made it."""
    is_call: bool = False
    """True when the model called the tool itself, and no tool's code: then what is done for the call has a section of
    the journal. What a tool's code does is part of that tool's step."""
    model: Model | None = None
    """Used instead of the agents' own."""
    model_name: str = ""
    """The name by which the call asked for it; empty for the agents' own."""
    runs: SentRuns | None = None
    """Starts runs of their own for the durable run around the call; None: there is no such run, or no call."""
    runtime: Runtime | None = None
    """What surrounds the runs, outside a run."""
    abort: Abort | None = None
    listeners: Sequence[Listener] = ()
    deps: object = field(default=None, repr=False)
    """What the run above was given beside its input; or what a program gives."""
    deps_of: Callable[[Any], object] | None = None
    """Makes of them those of the sub-agents. None: they are the same."""

    def find_agent(self, name: str) -> Agent[Any, Any, Any]:
        """Return the sub-agent of that name, with its deps, or raise a `SubagentMisused` that names those there are."""
        agent = self.agents.get(name)
        if agent is None:
            raise SubagentMisused(f"There is no sub-agent {name!r}. There are: {', '.join(sorted(self.agents))}.")
        if agent.deps is NOT_DECLARED or isinstance(agent.deps, Bound):
            return agent
        try:
            deps = self.deps if self.deps_of is None else self.deps_of(self.deps)
        except Exception as error:
            log_caught("Subagents.deps", error)
            raise SubagentMisused(f"Sub-agent {name!r} cannot begin: {name_and_words(error)}") from error
        if (lack := lacks_deps(deps, agent.deps)) is not None:
            raise SubagentMisused(f"Sub-agent {name!r} cannot begin: {lack}")
        return agent.with_deps(deps)

    def assignment(self, agent: str, task: str, mode: DelegationMode, *, place: int = 0) -> Assignment:
        """Return a task, with the next number. Call it in the order of the tasks."""
        above = run_context.get().run
        number = None if above is None else next(above.children.numbers)
        return Assignment(agent=agent, task=task, mode=mode, place=place, number=number)

    def check_depth(self) -> None:
        """Raise a `SubagentMisused` if one more run in a run would be too deep."""
        depth = len(run_context.get().path)
        if depth > MAX_DEPTH:
            raise SubagentMisused(
                f"A sub-agent here would be at depth {depth}, and the deepest is {MAX_DEPTH}. Do the task yourself."
            )

    async def do(self, given: Assignment) -> FinishedAssignment:
        """Let a sub-agent do its task. Only a cancellation is raised."""
        agent: Agent[Any, Any, Any] | None = None
        result: Result[Any] | SubagentMisused
        try:
            self.check_depth()
            agent = self.find_agent(given.agent)
            given.run = begin(agent, await input_of_task(agent, given.task), self.options(given))
            result = await carry_out(given.run)
        except SubagentMisused as misused:
            result = misused
        return FinishedAssignment(agent=given.agent, task=given.task, definition=agent, result=result)

    async def run(self, name: str, input: object) -> Result[Any]:
        """Run a sub-agent on an input of its type, as `Subagents.run` says."""
        self.check_depth()
        agent = self.find_agent(name)
        return await carry_out(begin(agent, input, self.options(self.assignment(name, "", "single"))))

    def options(self, given: Assignment) -> Options:
        """Return the options with which the run of a task begins: among what surrounds the run above, except its model
        and its budget."""
        above = run_context.get().run
        around = self.runtime or (DEFAULT_RUNTIME if above is None else above.options.runtime)
        runtime = replace(
            around,
            model=self.model or (around.model if self.runtime else None),
            # In a run, what the run above may spend holds without being given.
            budget=around.budget if above is None else None,
            journal=self.section(around.journal, given),
        )
        id = None if self.context is None else self.context.tool_use_id
        origin = Origin(mode=given.mode, tool_use_id=id, number=given.number)
        return Options(listeners=self.listeners, abort=self.abort, runtime=runtime, origin=origin)

    def section(self, journal: Journal | None, given: Assignment) -> Journal | None:
        """Return the part of a journal that the run of a task has for itself; None if no call of the model stands for
        it. A journal that a program gives is its own."""
        if journal is None or self.runtime is not None:
            return journal
        context = self.context
        if context is None or not self.is_call:
            return None
        call = call_step(context.attempt, context.iteration, context.tool_use_id)
        return Section(journal, f"{call.key}/{given.mode}/{given.place}", at=call.at)

    def step_to_send(self, context: ToolContext[Any], member: str) -> RunStep:
        """Return the step in which the run of a task is sent out. Code of a tool may send several."""
        tally, place = current_tally.get(), 0
        # Code of a tool sends all of them as number 0, so they are counted.
        if not self.is_call and tally is not None:
            place, tally.n_sent = tally.n_sent, tally.n_sent + 1
        if member:
            return replace(context.step, key=f"{context.step.key}/member/{member}", kind="member")
        return replace(context.step, key=f"{context.step.key}/background/{place}", kind="sent")


async def input_of_task(agent: Agent[Any, Any, Any], task: str) -> object:
    """Return the input that a task is: the text, or the value of the JSON that it is. A `SubagentMisused` says that it
    does not fit the type of the agent's input."""
    if agent.input is str:
        return task
    try:
        return await do_aside(task, agent.plan.input.parse_checked)
    except InvalidArguments as invalid:
        raise SubagentMisused(f"The task of {agent.name!r} has to be JSON that fits its input. {invalid}") from invalid


async def _store_task(agent: Agent[Any, Any, Any], task: str) -> StoredValue:
    given = await input_of_task(agent, task)
    if not isinstance(given, CheckedValue):
        return StoredValue(task)
    try:
        return await store_value(agent.plan.input, given.value)
    except InvalidArguments as invalid:
        raise SubagentMisused(f"The task of {agent.name!r} cannot be sent out. {invalid}") from invalid


async def single(delegation: Delegation, call: SingleCall) -> SingleResult:
    """Let one sub-agent do one task; raise a `SubagentMisused` if it cannot begin, a `SubagentFailed` if it fails."""
    finished = await delegation.do(delegation.assignment(call.agent, call.task, "single"))
    return await do_aside(finished.output, lambda _: single_result(finished))


async def parallel(delegation: Delegation, call: ParallelCall, max_concurrency: int | None) -> ParallelResult:
    """Let several work at the same time. One that fails leaves the others alone."""
    assignments = [
        delegation.assignment(item.agent, item.task, "parallel", place=place) for place, item in enumerate(call.tasks)
    ]
    # Without a limit, there is room for all.
    places = asyncio.Semaphore(max_concurrency or len(assignments))

    async def in_place(given: Assignment) -> FinishedAssignment:
        async with places:
            return await delegation.do(given)

    async with asyncio.TaskGroup() as group:
        # A group cancels all when one raises: `do` raises nothing but cancellations.
        running = [group.create_task(in_place(given)) for given in assignments]
    results = tuple([await _item_of(task, given) for task, given in zip(running, assignments, strict=True)])
    n_succeeded = sum(result.is_error is None for result in results)
    return ParallelResult(summary=f"{n_succeeded}/{len(results)} succeeded", results=results)


async def _item_of(task: asyncio.Task[FinishedAssignment], given: Assignment) -> ItemResult:
    if not task.cancelled():
        return await item_result(task.result())
    # Somebody cancelled this one task: had it been the run above, the group would have raised.
    text, run, used = f"Sub-agent {given.agent!r} was cancelled from outside.", given.run, SubagentUsage()
    if run is not None:
        usage = run.ledger.usage if run.agent.track_tokens else None
        used = usage_in_words(usage, turns=run.ledger.n_model_calls, tools=run.ledger.own_calls)
    return ItemResult(agent=given.agent, task=given.task, is_error=True, output=text, usage=used)


_PREVIOUS: Final = re.compile(r"\{previous((?:\.\w+)*)\}")


async def chain(delegation: Delegation, call: ChainCall) -> ChainResult:
    """Let one work after the other, up to the first that fails."""
    done: list[ItemResult] = []
    value = _parse(call.previous)
    previous = call.previous
    for number, item in enumerate(call.steps[call.start_at - 1 :], start=call.start_at):
        try:
            task = fill_task(item.task, previous, value)
            finished = await delegation.do(delegation.assignment(item.agent, task, "chain", place=number - 1))
        except SubagentMisused as misused:
            finished = FinishedAssignment(agent=item.agent, task=item.task, result=misused)
        done.append(await item_result(finished, step=number))
        value = done[-1].output
        if done[-1].is_error:
            again = f"To go on from there, call again with start_at={number}{' and previous' if number > 1 else ''}."
            return ChainResult(error=f"Step {number} failed. {value} {again}", results=tuple(done))
        previous = _as_text(value)
    return ChainResult(output=done[-1].output, results=tuple(done), value=done[-1].value)


def _parse(previous: str) -> object:
    """Return the object or list that a text is as JSON; the text itself, if it is neither."""
    try:
        # Only objects and lists have fields: a number or a word in quotes is meant as it stands.
        return read_json(previous) if previous.lstrip().startswith(("{", "[")) else previous
    except ValueError:
        return previous


def fill_task(task: str, previous: str, value: object) -> str:
    """Put the output of the step before into a task: the text for `{previous}`, a field of it for `{previous.field}`.

    What is put in is not looked at again. Of a text, `{previous.field}` means nothing, and stays as it is; where the
    output has no such field, it raises a `SubagentMisused`.
    """

    def put(found: re.Match[str]) -> str:
        names = found[1].split(".")[1:]
        if not names:
            return previous
        return found[0] if isinstance(value, str) else _as_text(_value_in_result(value, names, found[0]))

    return _PREVIOUS.sub(put, task)


def _value_in_result(value: object, names: Sequence[str], written: str) -> object:
    for name in names:
        if is_mapping(value) and name in value:
            value = value[name]
        elif is_list(value) and name.isdecimal() and len(name) < 10 and int(name) < len(value):
            value = value[int(name)]
        else:
            raise SubagentMisused(f"{written} means nothing: {_has(value)}.")
    return value


def _has(value: object) -> str:
    if is_mapping(value):
        return f"there are the fields {', '.join(map(str, value))}"
    if is_list(value):
        return f"there is a list of {len(value)}"
    return "what comes before it has no fields"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else write_json(value).decode()


_NO_TASKS: Final = (
    "Background work is not available here: nobody would await it. Do the task without background. "
    "(A program gives Runtime(tasks=...) or Subagents(tasks=...).)"
)
# It bounds one line of a list.
_SHOWN_CHARS: Final = 60


async def background(
    delegation: Delegation, call: BackgroundCall, own_tasks: BackgroundTasks | None, options: TaskOptions
) -> BackgroundResult:
    """Let a sub-agent work on beside the run above, and return at once: as a run of its own, which outlives this
    process, or else in `own_tasks` or those of the call; raise a `SubagentMisused` if it cannot."""
    if delegation.runs is not None:
        id = await _send_out(delegation, call, delegation.runs)
    else:
        tasks = own_tasks or (None if delegation.context is None else delegation.context.tasks)
        if tasks is None:
            raise SubagentMisused(_NO_TASKS)
        if own_tasks is None and options.get("notify") is None and current_conversation.get().inbox is None:
            raise SubagentMisused(
                "Background work is not available here: nobody would be told when it ends. Do the task without "
                "background. (Outside a chat, a program gives Subagents(notify=...) or Subagents(tasks=...).)"
            )
        delegation.check_depth()
        id = tasks.start(await _work(delegation, call), description=call.description, **options)
    message = f"Sub-agent {call.agent!r} works in the background as task {id}. You will be told when it ends."
    return BackgroundResult(task_id=id, description=call.description, message=message)


async def _send_out(delegation: Delegation, call: BackgroundCall | TeamCall, runs: SentRuns) -> str:
    """Let a sub-agent work as a run of its own, and return the id by which a model knows it."""
    agent, run, context = delegation.find_agent(call.agent), run_context.get().run, delegation.context
    delegation.check_depth()
    member, team = (call.name, call.team_name or DEFAULT_NAME) if isinstance(call, TeamCall) else ("", "")
    if run is None or context is None:
        raise SubagentMisused(_NO_TASKS)
    # Before anything is awaited: what the code of a tool sends is counted.
    step, names = delegation.step_to_send(context, member), [call.agent]
    above = Above(
        path=run.path,
        description=call.description or call.task[:_SHOWN_CHARS],
        tool_use_id=context.tool_use_id,
        number=next(run.children.numbers),
        model=delegation.model_name,
        allowance=run.attempt.budget.left(),
        member=member,
        team=team,
    )
    # The way by names, since another process has to find the agent by its own definitions.
    while run.above is not None:
        names.insert(0, run.agent.name)
        run = run.above
    stored = await _store_task(agent, call.task)
    sent = SentRun(agents=tuple(names), definition=agent, input=stored.text, exact=stored.exact, above=above)
    return await runs.start(step, sent)


async def _work(delegation: Delegation, call: BackgroundCall) -> Work:
    """Return the work of a sub-agent in the background. It is made where the call is, and done elsewhere."""
    # Here, and not in the work: the model has to read what is wrong with its call.
    agent = delegation.find_agent(call.agent)
    assignment = delegation.assignment(call.agent, call.task, "background")
    given = await input_of_task(agent, call.task)
    options, above, journal = delegation.options(assignment), run_context.get().run, None
    if above is not None:
        journal = above.options.runtime.journal
        # Without the deadline, which this work outlives.
        runtime = replace(options.runtime, budget=above.attempt.budget.outliving())
        options = replace(options, runtime=runtime, watch_above=above.watch, ledger_beside=above.ledger)

    async def work(task: TaskContext) -> TaskResult:
        """Do the work, and what is said to the task meanwhile. Return the output, and what a model reads of it."""
        report = partial(_report_event, task)
        # One conversation for all its runs: each goes on where the one before has ended.
        first = replace(options, listeners=(report,), abort=task.abort, inbox=task.inbox, history=History())
        runs: list[Run] = []

        async def one_more(options: Options) -> Result[Any]:
            # A section for each run: the second must not find the steps of the first.
            section = delegation.section(journal, replace(assignment, place=len(runs)))
            runs.append(begin(agent, given, replace(options, runtime=replace(options.runtime, journal=section))))
            try:
                return await carry_out(runs[-1])
            finally:  # what was seen of it on the way leaves out requests that failed, and calls that were cut off
                ledgers = [run.ledger for run in runs]
                n_calls = sum([ledger.own_calls for ledger in ledgers])
                task.count(n_calls=n_calls, usage=Usage.total([ledger.usage for ledger in ledgers]))

        leave = enter(run=None, call=None)
        try:
            result = await one_more(first)
            while isinstance(result, Success) and result.terminal_result is None and task.inbox.pick_up():
                result = await one_more(replace(first, going_on=task.inbox.hand_over))
        finally:
            leave()
        finished = FinishedAssignment(agent=agent.name, task=call.task, definition=agent, result=result)
        result = await do_aside(finished.output, lambda _: single_result(finished))
        return TaskResult(_as_text(result.output), result.value)

    return work


def _report_event(task: TaskContext, event: Event) -> None:
    """Report an event of a sub-agent in the background to its task: calls, messages, and what was used so far."""
    match event:
        case MessageCommitted(message=message):
            [record] = from_json(dump_messages([message]))
            task.write(record)
        case ToolCalled(tool_name=name, tool_input=arguments):
            task.write(f"[tool] {name}({shorten(write_json(arguments).decode(), _SHOWN_CHARS)})")
        # Only its own calls: those of agents below it are theirs.
        case ToolFinished(path=path, kind=kind) if kind in COUNTED and len(path) == len(task.info.path) + 1:
            task.count(n_calls=task.info.n_calls + 1)
        case ModelResponded(usage=usage):
            task.count(usage=task.info.usage + usage)
        case _:
            pass


async def join_team(delegation: Delegation, call: TeamCall, runs: SentRuns) -> TeamResult:
    """Let a sub-agent join the team that a durable run leads, as a run of its own, and return at once; raise a
    `SubagentMisused` if it cannot join."""
    agent = delegation.find_agent(call.agent)
    if agent.input is not str or agent.plan.output is not None:
        raise SubagentMisused(
            f"Sub-agent {call.agent!r} cannot be a member: a member of a durable run reads texts and answers with "
            "them, and goes on after it has answered."
        )
    try:
        id = await _send_out(delegation, call, runs)
    except TeamError as error:
        raise SubagentMisused(f"{call.name!r} cannot join the team: {error}") from error
    message = f"{call.name!r} is a member now, and works by itself."
    return TeamResult(task_id=id, agent_id=f"{call.name}@{call.team_name or DEFAULT_NAME}", message=message)


async def team(delegation: Delegation, call: TeamCall, spawner: TeamSpawner | SpawnFunction | None) -> TeamResult:
    """Let a sub-agent join a team, and return at once; raise a `SubagentMisused` if it cannot join."""
    if spawner is None:
        hint = "Leave out name and team_name. (A program gives Subagents(team=...).)"
        raise SubagentMisused(f"There is no team to join. {hint}")
    delegation.check_depth()
    request = TeamSpawnRequest(
        agent=delegation.find_agent(call.agent),
        prompt=call.task,
        name=call.name,
        team_name=call.team_name,
        description=call.description,
        color=call.color,
        model=delegation.model,
    )
    try:
        made = await spawn_member(spawner, request)
    except Exception as error:  # whatever a host's spawner raises
        log_caught("What spawns members of the team", error)
        raise SubagentMisused(f"{call.name!r} cannot join the team: {words_of(error)}") from error
    where = f" of team {made.team_name!r}" if call.team_name else ""
    message = f"{made.name!r} is a member{where} now, and works by itself."
    return TeamResult(task_id=made.task_id, agent_id=made.agent_id, message=message)
