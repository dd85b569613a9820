"""One question to the model of the run that goes on, asked from one of its tools."""

from __future__ import annotations

from collections.abc import Sequence

from journeyman.agent import Agent
from journeyman.budget import Limits
from journeyman.loop.run import run
from journeyman.loop.state import run_context
from journeyman.model import ModelSettings
from journeyman.result import Result
from journeyman.types import Message, UserContent


async def ask_model(
    messages: Sequence[Message] | str, *, instructions: str = "", max_tokens: int | None = None, name: str = "question"
) -> Result[str]:
    """Ask the model of the run that goes on here, from one of its tools, and return how that ended.

    It is a run of its own inside that run, under the name `name`: so its limits and budget hold, and its usage, cost
    and events belong to it. The model has no tools. `Http(…, sampling=ask_model)` lets an MCP server ask in this way.

    Args:
        messages: The conversation, of which the last message is the user's; or one text.
        instructions: The system prompt.
        max_tokens: The longest answer; at most what the run itself may ask for.
        name: The name of the run inside, made as those of agents.

    Raises:
        RuntimeError: no run goes on here, or it has not begun to ask its model.
        ValueError: there is no message, or the last is not the user's.
    """
    above = run_context.get().run
    if above is None or above.clock.prepared_s is None:
        raise RuntimeError("No run goes on here, so there is no model to ask. Call ask_model from a tool.")
    longest = above.prepared.max_tokens
    agent = Agent(
        name=name,
        model=above.prepared.model,
        system=instructions,
        settings=ModelSettings(max_tokens=min(max_tokens or longest, longest)),
        limits=Limits(attempts=1),
    )
    if isinstance(messages, str):
        return await run(agent, messages)
    if not messages or messages[-1].role != "user":
        raise ValueError("The last message is not the user's, so there is nothing to answer.")
    asked = [block for block in messages[-1].content if isinstance(block, UserContent)]
    return await run(agent, asked, history=messages[:-1])
