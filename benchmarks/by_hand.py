"""The loops that one would write by hand: in process, on aiohttp, and on the official SDK."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import aiohttp
import orjson
from anthropic import AsyncAnthropic
from pydantic import BaseModel

Message = dict[str, Any]
ByHandTools = Mapping[str, tuple[type[BaseModel], Callable[..., Awaitable[object]]]]


async def loop(
    ask: Callable[[list[Message]], Awaitable[Message]], tools: ByHandTools, output: type[BaseModel], *, task: str
) -> BaseModel:
    """Call the model and run its tools until it gives the output: validated, errors answered, usage added up."""
    messages: list[Message] = [{"role": "user", "content": task}]
    used = [0, 0]
    for _ in range(5_000):
        reply = await ask(messages)
        used[0] += reply["usage"]["input_tokens"]
        used[1] += reply["usage"]["output_tokens"]
        messages.append({"role": "assistant", "content": reply["content"]})
        results: list[Message] = []
        for block in reply["content"]:
            if block["type"] != "tool_use":
                continue
            if block["name"] == "output":
                return output.model_validate(block["input"])
            results.append(await _result(block, tools))
        messages.append({"role": "user", "content": results})
    raise RuntimeError("The model never gave an output.")


async def _result(block: Message, tools: ByHandTools) -> Message:
    arguments, function = tools[block["name"]]
    try:
        value = await function(**arguments.model_validate(block["input"]).model_dump())
        content, is_error = value if isinstance(value, str) else json.dumps(value), False
    except Exception as error:  # noqa: BLE001 - a tool's error is data for the model
        content, is_error = f"Error: {error}", True
    return {"type": "tool_result", "tool_use_id": block["id"], "content": content, "is_error": is_error}


def over_aiohttp(
    session: aiohttp.ClientSession, url: str, tools: list[Message]
) -> Callable[[list[Message]], Awaitable[Message]]:
    """Return what asks over HTTP, with each message encoded once."""
    head = orjson.dumps({"model": "m", "max_tokens": 1000, "tools": tools})[:-1]
    headers = {"content-type": "application/json", "x-api-key": "key", "anthropic-version": "2026-10-21"}
    encoded: list[bytes] = []

    async def ask(messages: list[Message]) -> Message:
        if len(messages) < len(encoded):
            encoded.clear()
        encoded.extend(orjson.dumps(message) for message in messages[len(encoded) :])
        body = b"".join((head, b',"messages":[', b",".join(encoded), b"]}"))
        async with session.post(f"{url}/v1/messages", data=body, headers=headers) as response:
            return orjson.loads(await response.read())

    return ask


def over_sdk(client: AsyncAnthropic, tools: list[Message]) -> Callable[[list[Message]], Awaitable[Message]]:
    """Return what asks through the official SDK."""

    async def ask(messages: list[Message]) -> Message:
        reply = await client.messages.create(
            model="m", max_tokens=1000, messages=cast("Any", messages), tools=cast("Any", tools)
        )
        return reply.model_dump(exclude_none=True)

    return ask
