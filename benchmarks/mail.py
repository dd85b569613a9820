"""A hundred members of a team write to one another: every message is a call of its sender, and another reads it."""

from __future__ import annotations

import asyncio
import time

from benchmarks.measuring import Effort, Row, alone, only_new_garbage
from journeyman import Agent, Limits, Team
from journeyman.model import Request, Response
from journeyman.team import TeamHooks, TeamSpawnRequest
from journeyman.testing.scripted import FunctionModel, call, say

_MEMBERS = 100
_MESSAGES = 10_000


def measure(effort: Effort) -> list[Row]:
    """Measure the CPU of one message, model calls and tool calls included."""
    members = effort.size(_MEMBERS)
    each = effort.size(_MESSAGES // _MEMBERS)
    figures = [asyncio.run(_exchange(members, each)) * 1e6 for _ in range(effort.rounds(7))]
    what = f"{members} members exchange {members * each:,} messages"
    return [alone(what, figures, unit="us CPU / message", target="≤ 200")]


async def _exchange(members: int, each: int) -> float:
    """Let every member write `each` messages to its neighbour, and return the CPU of one in seconds."""
    n_read = 0

    def reader(number: int) -> FunctionModel:
        n_written = 0
        next_call = [say(call("send_message", to=f"m{(number + 1) % members}", message="Here is the next one."))]

        def answer(request: Request) -> Response:
            nonlocal n_written, n_read
            n_read += sum([block.type == "text" for block in request.messages[-1].content])
            n_written += 1
            return next_call[0] if n_written <= each else say("Done.")

        return FunctionModel(answer)

    async with Team("crowd", hooks=TeamHooks(idle_notice=None)) as team:
        with only_new_garbage():
            started = time.process_time()
            for number in range(members):
                agent = Agent(name="writer", model=reader(number), limits=Limits(iterations=each + 10))
                await team.spawn(TeamSpawnRequest(agent=agent, prompt="Write.", name=f"m{number}"))
            await team.news()
            seconds = time.process_time() - started
        if n_read != members * (each + 1) or team.roster().dead_letters:
            raise AssertionError(f"{n_read} of {members * (each + 1)} messages were read.")
    return seconds / (members * each)
