"""What one request costs over OpenAI's wire, late in a conversation: Chat Completions, answered in one piece.

Each turn brings two new messages, as an iteration does; the others are those of the turn before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from benchmarks.measuring import Contender, Costs, Effort, Row, compared, taking_turns
from benchmarks.server import always
from journeyman import Message, ModelSettings, Text, ToolResult, Usage
from journeyman.loop.retry import respond
from journeyman.model import Prefix, Request, ToolSpec
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import OPENAI
from journeyman.types import ToolUse

if TYPE_CHECKING:  # importing the SDK takes a second
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

MODEL = "gpt-4.1"
N_TOOLS = 20
RESULT = "tea,120.00;coffee,99.00;cocoa,12.50;" * 10
ARGUMENTS = '{"sql":"SELECT product, SUM(total) FROM sales GROUP BY product","limit":50}'
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "sql": {"type": "string", "description": "A single SELECT statement."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 1_000},
        "table": {"type": "string", "enum": ["sales", "stock", "shops"]},
    },
    "required": ["sql"],
}
ANSWER: Mapping[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": MODEL,
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Tea.", "refusal": None}}
    ],
    "usage": {"prompt_tokens": 9_000, "completion_tokens": 2, "total_tokens": 9_002},
}


def measure(effort: Effort) -> list[Row]:
    """Measure one request against the SDK's `create()`."""
    messages = effort.size(100) // 2 * 2
    with always(ANSWER) as url:
        costs = asyncio.run(_costs(url, messages, effort.rounds(200)))
    return [
        compared(
            f"OpenAI's wire, one answer in one piece, {messages} messages, {N_TOOLS} tools",
            costs,
            ours="journeyman",
            reference="SDK: create()",
            unit="us CPU / request",
            scale=1e6,
            target="≤ 0.15",
        )
    ]


async def _costs(url: str, messages: int, rounds: int) -> Costs:
    async with _ours(url, messages) as mine, _over_sdk(url, messages) as sdk:
        return await taking_turns({"journeyman": mine, "SDK: create()": sdk}, rounds=rounds)


@asynccontextmanager
async def _ours(url: str, n_messages: int) -> AsyncGenerator[Contender]:
    model = OpenAIChatModel(MODEL, api_key="key", base_url=url, streaming=False, endpoint=OPENAI)
    tools = [ToolSpec(name=f"query_{n}", description="Run one query.", input_schema=SCHEMA) for n in range(N_TOOLS)]
    prefix = Prefix(system=(Text("You are a careful analyst."),), tools=tuple(tools))
    history = [Message("user", (Text("What sold best?"),))]
    for number in range((n_messages - 2) // 2):
        history += _step(number)

    async def work() -> None:
        # The message that the answer's call belongs to, and its result, are new in each iteration.
        messages = [*history[:-2], *_step(n_messages)]
        request = Request(prefix=prefix, messages=messages, settings=ModelSettings(max_tokens=1_024), deltas=False)
        response = await respond(model, request, retries=0, spent=_forget)
        assert response.content == (Text("Tea."),)

    async with model.open():
        yield work


def _forget(usage: Usage) -> None:
    return


def _step(number: int) -> list[Message]:
    use = ToolUse(f"call_{number}", f"query_{number % N_TOOLS}", ARGUMENTS)
    return [Message("assistant", (use,)), Message("user", (ToolResult(RESULT, tool_use_id=use.id),))]


@asynccontextmanager
async def _over_sdk(url: str, n_messages: int) -> AsyncGenerator[Contender]:
    from openai import AsyncOpenAI  # noqa: PLC0415 - it takes a second

    tools = [
        {"type": "function", "function": {"name": f"query_{n}", "description": "Run one query.", "parameters": SCHEMA}}
        for n in range(N_TOOLS)
    ]
    history: list[object] = [
        {"role": "system", "content": "You are a careful analyst."},
        {"role": "user", "content": "What sold best?"},
    ]
    for number in range((n_messages - 2) // 2):
        history += _sdk_step(number)

    async def work() -> None:
        reply = await client.chat.completions.create(
            model=MODEL,
            max_completion_tokens=1_024,
            messages=cast("list[ChatCompletionMessageParam]", [*history[:-2], *_sdk_step(n_messages)]),
            tools=cast("list[ChatCompletionToolParam]", tools),
            store=False,
        )
        assert reply.choices[0].message.content == "Tea."

    async with AsyncOpenAI(api_key="key", base_url=url) as client:
        yield work


def _sdk_step(number: int) -> list[object]:
    function = {"name": f"query_{number % N_TOOLS}", "arguments": ARGUMENTS}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": RESULT},
    ]
