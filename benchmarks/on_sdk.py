"""The loop that one would write on the official SDK, as the SDK's documentation shows it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from anthropic import AsyncAnthropic
from anthropic.types import MessageParam, ToolResultBlockParam

from benchmarks.hand_written import SPECS, Tools, result_of
from benchmarks.measuring import Contender
from benchmarks.work import MAX_ITERATIONS, MAX_TOKENS, MODEL, PROMPT, AddArguments, Function, Report, add, is_right


@asynccontextmanager
async def over_sdk(url: str, function: Function = add) -> AsyncGenerator[Contender]:
    """Give the loop. Connections stay open as long as the block."""
    tools: Tools = {"add": (AddArguments, function)}

    async def loop(client: AsyncAnthropic) -> Report:
        messages: list[MessageParam] = [{"role": "user", "content": PROMPT}]
        input_tokens = output_tokens = 0
        for _ in range(MAX_ITERATIONS):
            reply = await client.messages.create(model=MODEL, max_tokens=MAX_TOKENS, tools=SPECS, messages=messages)
            input_tokens += reply.usage.input_tokens
            output_tokens += reply.usage.output_tokens
            messages.append({"role": "assistant", "content": reply.content})
            results: list[ToolResultBlockParam] = []
            for block in reply.content:
                if block.type != "tool_use":
                    continue
                if block.name == "output":
                    return Report.model_validate(block.input)
                results.append(await result_of(tools, block.name, block.input, block.id))
            messages.append({"role": "user", "content": results})
        raise RuntimeError("too many iterations")

    async def work() -> None:
        is_right((await loop(client)).total)

    async with AsyncAnthropic(api_key="key", base_url=url) as client:
        yield work
