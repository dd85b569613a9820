"""The program's share in its durable runs, which is not stored: agents, deps, gates, and listeners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, Final, cast

from journeyman.agent import DEFAULT_RUNTIME, Agent, Runtime
from journeyman.cancellation import Abort
from journeyman.chat.questions import Questions
from journeyman.chat.writer import TurnLife
from journeyman.definition.data import lazy_dataclass
from journeyman.durable.records import Head, gates_of
from journeyman.errors import SubagentMisused
from journeyman.events import Callbacks, Listener
from journeyman.gate import enter_guard, guard_for
from journeyman.journal import Above
from journeyman.subagents.tool import Subagents
from journeyman.team.life import TurnLimit, in_team
from journeyman.team.team import member_tools
from journeyman.tools.deps import deps_of_run, lacks_deps
from journeyman.types import Text

MOST_ITERATIONS: Final = 10_000
"""So many iterations a member of a team has in all its turns. Those of one turn are limited as its agent says. It
bounds a member that never rests."""


@lazy_dataclass(kw_only=True)
class Program:
    """The part of a run that is not stored, and comes from the program in each of its lives."""

    agent: Agent[Any, Any, Any]
    """The agent."""
    deps: object = field(default=None, repr=False)
    """What its functions and tools use."""
    runtime: Runtime = DEFAULT_RUNTIME
    """What is around the run."""
    callbacks: Callbacks | None = None
    """Functions to call at the steps of the run."""
    on_event: Listener | None = None
    """Called with every event."""
    abort: Abort | None = None
    """The signal that ends the run."""
    turn: TurnLife | None = None
    """What a run is in a chat that is open here."""
    may_leave: bool = False
    """True for a turn that leaves memory when it only waits, as other runs do. The chat is then left, too."""
    ask_here: Callable[[], Questions] | None = None
    """Returns where somebody who is here is asked, besides; asked for with each question."""
    is_worker: bool = False
    """True when whoever drives the run looks for others, too: also for those that it sends out."""
    is_left: bool = False
    """True when whoever drives the run leaves it as soon as it only waits."""
    is_checked: bool = False
    """True: whoever gives it has checked what a run could complain about."""
    above: tuple[tuple[Agent[Any, Any, Any], object], ...] = ()
    """The agents on the way to it, from the root down, each with its deps: their gates hold for its calls."""
    tool: Subagents[Any] | None = None
    """The tool that knows the agent, if it is a sub-agent."""

    def lacks(self, head: Head) -> str | None:
        """Say what a run would lack here: its deps, or a gate that it was begun with. None: nothing."""
        lack = lacks_deps(deps_of_run(self.deps, self.agent.deps), self.agent.deps)
        if lack is not None:
            return lack
        # A gate that stands twice has to be there twice.
        missing = list(head.gates)
        for gate in self.gates():
            if gate in missing:
                missing.remove(gate)
        if not missing:
            return None
        return f"it was begun with the gate {missing[0]}, which this program does not give it"

    def gates(self) -> tuple[str, ...]:
        """Return the names of the gates that the calls of the run pass."""
        above = [gate for agent, _ in self.above for gate in gates_of(agent, DEFAULT_RUNTIME)]
        return tuple(sorted((*gates_of(self.agent, self.runtime), *above)))

    def below(self, names: Sequence[str]) -> Program:
        """Return the part of this program that a run below gets: that of the last of these sub-agents. Each of them
        must be known to the one before it.

        Raises:
            SubagentMisused: there is no such sub-agent, or it cannot be given its deps.
        """
        program = self
        for name in names:
            tools = [
                each for each in program.agent.plan.tools.values() if isinstance(each, Subagents) and each.agent(name)
            ]
            if not tools:
                raise SubagentMisused(f"The agent {program.agent.name!r} has no sub-agent {name!r}.")
            deps = deps_of_run(program.deps, program.agent.deps)
            program = replace(
                program,
                agent=tools[0].ready(name, deps),
                deps=None,
                runtime=replace(program.runtime, model=None),
                callbacks=None,
                abort=None,
                above=(*program.above, (program.agent, deps)),
                tool=tools[0],
            )
        return program

    def sent(self, head: Head) -> Program:
        """Return what a run has of this program, which is that of a run above it: what is below, as a member of a team
        if it is one.

        Raises:
            SubagentMisused: as for `below`.
            DefinitionError: its agent has another tool with the name of one of the team's.
        """
        program, above = self.below(head.agent.split("/")[len(self.above) + 1 :]), head.above
        if above is None or not above.member:
            return program
        agent = program.agent
        limits = replace(agent.limits, iterations=MOST_ITERATIONS)
        own = agent.plan.tools
        tools = [tool for tool in member_tools() if tool.name not in own]
        turns = TurnLimit(most=agent.limits.iterations)
        member = in_team(replace(agent, limits=limits), above.member, above.team, tools=tools, policy=turns)
        return replace(program, agent=member)

    def guard(self, head: Head, above: Above, stop: Callable[[str], None]) -> None:
        """Let the gates of the runs above guard what begins here.

        What those runs had read by then, the gates do not know here. So the task counts as what they had read.
        """
        for depth, (agent, deps) in enumerate(self.above):
            given: Any = agent.gate
            gates = () if given is None else cast("Sequence[Any]", given if isinstance(given, Sequence) else (given,))
            path, taking = above.path[: depth + 1], agent.plan.takes_deps
            made = guard_for(gates, None, path=path, stop=stop, deps=deps, takes_deps=taking)
            made.hear((Text(head.input, origin="mail"),))
            enter_guard(made)
