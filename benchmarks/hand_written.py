"""The loops that one would write without a framework: in process and over aiohttp; `on_sdk.py` has the third.

They are honest, not minimal: arguments and output are validated by Pydantic, what a tool raises goes back to the model,
usage is added up, iterations are limited, failures of the API raise. They have no retries beyond the SDK's own, no
streaming, no events, no budgets, no cancellation of their own, and no checks but the type.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import aiohttp
import orjson
from pydantic import BaseModel

from benchmarks.measuring import Contender
from benchmarks.work import MAX_ITERATIONS, MAX_TOKENS, MODEL, PROMPT, AddArguments, Function, Report, add, is_right

if TYPE_CHECKING:  # importing the SDK takes a second
    from anthropic.types import ToolParam, ToolResultBlockParam

Json: TypeAlias = dict[str, Any]
Tools: TypeAlias = Mapping[str, tuple[type[BaseModel], Function]]

SPECS: list[ToolParam] = [
    {"name": "output", "description": "Hand in the report.", "input_schema": Report.model_json_schema()},
    {"name": "add", "description": "Add one.", "input_schema": AddArguments.model_json_schema()},
]


async def result_of(tools: Tools, name: str, arguments: object, id: str) -> ToolResultBlockParam:
    """Run one call; what goes wrong is for the model to read."""
    try:
        model, function = tools[name]
        value = await function(**model.model_validate(arguments).model_dump())
        content, is_error = value if isinstance(value, str) else json.dumps(value), False
    except Exception as error:  # noqa: BLE001 - a failing tool is an answer to the model
        content, is_error = f"Error: {error}", True
    return {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}


def in_process(iterations: int, function: Function = add) -> Contender:
    """Return the loop on a model that is a function, for `iterations` model calls."""
    tools: Tools = {"add": (AddArguments, function)}

    async def model(messages: Sequence[Json]) -> Json:
        turn = len(messages) // 2
        name, arguments = ("output", {"total": 3.0}) if turn == iterations - 1 else ("add", {"x": 1})
        return {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": f"call_{turn}", "name": name, "input": arguments}],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }

    async def loop() -> Report:
        messages: list[Json] = [{"role": "user", "content": PROMPT}]
        used = {"input_tokens": 0, "output_tokens": 0}
        for _ in range(MAX_ITERATIONS):
            reply = await model(messages)
            for kind in used:
                used[kind] += reply["usage"][kind]
            messages.append({"role": "assistant", "content": reply["content"]})
            results: list[ToolResultBlockParam] = []
            for block in reply["content"]:
                if block["type"] != "tool_use":
                    continue
                if block["name"] == "output":
                    return Report.model_validate(block["input"])
                results.append(await result_of(tools, block["name"], block["input"], block["id"]))
            messages.append({"role": "user", "content": results})
        raise RuntimeError("too many iterations")

    async def work() -> None:
        is_right((await loop()).total)

    return work


@asynccontextmanager
async def over_aiohttp(url: str, function: Function = add) -> AsyncGenerator[Contender]:
    """Give the loop on aiohttp. Connections stay open as long as the block."""
    tools: Tools = {"add": (AddArguments, function)}
    specs = orjson.Fragment(orjson.dumps(SPECS))
    headers = {"content-type": "application/json", "x-api-key": "key", "anthropic-version": "2023-06-01"}

    async def ask(session: aiohttp.ClientSession, messages: Sequence[orjson.Fragment]) -> Json:
        body = {"model": MODEL, "max_tokens": MAX_TOKENS, "tools": specs, "messages": messages}
        async with session.post(f"{url}/v1/messages", data=orjson.dumps(body), headers=headers) as response:
            read = await response.read()
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {read[:500]!r}")
            return orjson.loads(read)

    async def loop(session: aiohttp.ClientSession) -> Report:
        messages = [_encoded("user", PROMPT)]
        used = {"input_tokens": 0, "output_tokens": 0}
        for _ in range(MAX_ITERATIONS):
            reply = await ask(session, messages)
            for kind in used:
                used[kind] += reply["usage"][kind]
            messages.append(_encoded("assistant", reply["content"]))
            results: list[ToolResultBlockParam] = []
            for block in reply["content"]:
                if block["type"] != "tool_use":
                    continue
                if block["name"] == "output":
                    return Report.model_validate(block["input"])
                results.append(await result_of(tools, block["name"], block["input"], block["id"]))
            messages.append(_encoded("user", results))
        raise RuntimeError("too many iterations")

    async def work() -> None:
        is_right((await loop(session)).total)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield work


def _encoded(role: str, content: object) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps({"role": role, "content": content}))
