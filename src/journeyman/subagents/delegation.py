"""Running one sub-agent: what it inherits of the run above, and what it keeps to itself.

It has a conversation of its own, and a journal section of its own. The gates, the budget, the deadline, the signal and
the listeners of all runs above hold for it, too; `execution.py` sees to that, since they hold for every run in a run.
Imports `execution`, `loop`, `subagent_results` and the parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from journeyman.agent import NOTHING_AROUND, Agent, Host
from journeyman.cancel import Abort
from journeyman.errors import InvalidArguments, SubagentMisused
from journeyman.events.run import Listener
from journeyman.journal import Section
from journeyman.loop.attempts import carry_out
from journeyman.loop.execution import Options, Origin, begin, current_path, current_run
from journeyman.model import Model
from journeyman.result import Result
from journeyman.subagents.calls import MAX_DEPTH
from journeyman.subagents.results import Ran
from journeyman.tools.tool import ToolContext

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
        number = None if above is None else next(above.numbers)
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
