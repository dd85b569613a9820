"""Asking one model one thing: the request that the tests of all adapters share, and what its failure shows."""

from typing import Any, TypeAlias

import pytest

from journeyman import Message, Model, ModelSettings, Text
from journeyman.connect import connect
from journeyman.errors import ModelUnavailable, ProviderError
from journeyman.model import Collector, Part, Prefix, Request, Response, ToolSpec, facts_of
from journeyman.types import Price

Json: TypeAlias = dict[str, Any]

QUERY = ToolSpec(
    name="query",
    description="Run a query.",
    input_schema={"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
)
HELLO = Message("user", (Text("Hello"),))
BRIEF = (Text("Be brief."),)


def request(
    *messages: Message, system: tuple[Text, ...] = BRIEF, max_tokens: int | None = 1_000, **settings: Any
) -> Request:
    chosen = ModelSettings(max_tokens=max_tokens, **settings)
    return Request(prefix=Prefix(system=system, tools=(QUERY,)), messages=messages or (HELLO,), settings=chosen)


async def ask(model: Model, *messages: Message, into: Collector | None = None, **more: Any) -> Response:
    collector = into or Collector()
    async with model.stream(request(*messages, **more)) as parts:
        async for part in parts:
            collector.add(part)
    return collector.response()


async def parts_of(model: Model, *messages: Message) -> list[Part]:
    async with model.stream(request(*messages)) as parts:
        return [part async for part in parts]


def known_of(model: Model) -> tuple[str, str, Price | None, int | None, int | None]:
    """Return who a model is: its provider and name, its price, its longest answer and its window."""
    facts = facts_of(model)
    return model.provider, model.name, facts.price, facts.max_output_tokens, facts.context_window


async def failure_of(model: Model, collector: Collector | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(model, into=collector)
    return caught.value


def unavailable(name: str, **options: object) -> ModelUnavailable:
    with pytest.raises(ModelUnavailable) as caught:
        connect(name, **options)
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
