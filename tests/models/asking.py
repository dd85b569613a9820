"""Asking one model one thing: the request that the tests of all adapters share, and what its failure shows."""

from __future__ import annotations

from typing import Any

import pytest

from journeyman.errors import ProviderError
from journeyman.model import Collector, Model, Prefix, Request, Response, Settings, ToolSpec
from journeyman.types import Message, Text

QUERY = ToolSpec(
    name="query",
    description="Run a query.",
    input_schema={"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
)
HELLO = Message("user", (Text("Hello"),))


def request(*messages: Message, **settings: Any) -> Request:  # noqa: ANN401 - as Settings
    prefix = Prefix(system=(Text("Be brief."),), tools=(QUERY,))
    return Request(prefix=prefix, messages=messages or (HELLO,), settings=Settings(max_tokens=1_000, **settings))


async def ask(model: Model, *messages: Message, into: Collector | None = None) -> Response:
    collector = into or Collector()
    async with model.stream(request(*messages)) as parts:
        async for part in parts:
            collector.add(part)
    return collector.response()


async def failure_of(model: Model, collector: Collector | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(model, into=collector)
    return caught.value


def everything_said_by(error: BaseException) -> str:
    """Return all texts that a log, a debugger or an error tracker would show of an exception."""
    chain: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and one not in chain:
            chain.append(one)
            left += [one.__cause__, one.__context__]
    return "\n".join(f"{one} {one!r} {one.args} {vars(one)}" for one in chain)
