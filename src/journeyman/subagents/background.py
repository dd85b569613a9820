"""Background and team: two ways to let sub-agents work on after the call has returned.

A sub-agent in the background is a task of `Tasks`. It outlives the run that started it, and so has none of its
deadline, its signal or its state; its gates and its budget still hold, and its listeners still hear. Imports
`execution`, `loop`, `team_spawn`, the other modules of delegation and the parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_core import from_json, to_json

from journeyman.agent import Agent
from journeyman.errors import SubagentMisused, words_of
from journeyman.events.run import Event, MessageCommitted, ModelResponded, ToolCalled, ToolFinished
from journeyman.history import History
from journeyman.inbox import current_inbox
from journeyman.loop.attempts import carry_out
from journeyman.loop.execution import Options, begin, current_run, detached
from journeyman.result import Result, Success
from journeyman.subagents.calls import BackgroundCall, TeamCall
from journeyman.subagents.delegation import Delegation, Errand, input_of
from journeyman.subagents.results import BackgroundResult, Ran, TeamResult, single_result
from journeyman.team.spawn import TeamSpawner, TeamSpawnRequest
from journeyman.tools.background import Notify, TaskContext, TaskOptions
from journeyman.tools.task_output import OutputFactory
from journeyman.tools.tool import BackgroundTasks
from journeyman.types import NOTHING_USED, Message, dump_messages

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
