"""Prompt caching over a whole run: bytes that stay, marks that move, and what it saves."""

import json
import re
from itertools import pairwise

import orjson
import pytest
from pydantic import BaseModel

from journeyman import Agent, Output, Success, Text, ToolContext, Usage, run, tool
from journeyman.cli.show.lines import usage_sentence
from journeyman.connect import connect
from journeyman.model import CachePolicy, ModelSettings
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.result import dump_document, result_document
from journeyman.types import Price
from tests.play import existing, succeeded
from tests.support import openai_answers as openai_says
from tests.support.messages_answers import answer, thinking, tool_use
from tests.support.servers import MessagesApi, OpenAiApi, Service

MARK = b',"cache_control":{"type":"ephemeral"}'
PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
N_CALLS = 12


class Report(BaseModel):
    title: str
    pages: int


@tool(parallel=True)
async def read(page: int) -> list[Text]:
    """Read a page."""
    return [Text(f'Page {page} says "cache_control". '), Text("§ 2 …")]


@tool(strict=True)
async def note(text: str, ctx: ToolContext) -> str:
    """Take a note."""
    return f"{ctx.iteration}: {text}"


def usage(*, read: int, write: int) -> dict[str, object]:
    cached = {"cache_read_input_tokens": read, "cache_creation_input_tokens": write}
    return {"input_tokens": 10, "output_tokens": 5, **cached}


def script() -> list[object]:
    turns = [
        answer(
            thinking("Hm."),
            f"Turn {number}.",
            *(tool_use("read", {"page": 10 * number + each}) for each in range(number % 4 + 1)),
            *([tool_use("note", {"text": "é" * number})] if number % 2 else []),
            usage=usage(read=1_000 * number, write=1_000),
        )
        for number in range(N_CALLS)
    ]
    rejected = answer(tool_use("output", {"title": "", "pages": 0}), usage=usage(read=12_000, write=100))
    accepted = answer(tool_use("output", {"title": "All", "pages": 3}), usage=usage(read=12_100, write=50))
    return [*turns, rejected, accepted]


def not_empty(report: Report) -> None:
    if not report.title:
        raise ValueError("the title is empty")


async def recorded(cache: CachePolicy) -> tuple[list[bytes], Success[Report]]:
    """Run an agent with everything that changes from call to call. Return the bodies that were sent."""
    async with MessagesApi(script(), bind_thinking=True) as api:  # pyright: ignore[reportArgumentType] - replies
        agent = Agent(
            name="reader",
            model=AnthropicModel("claude-sonnet-5-5", api_key="k", base_url=api.url, price=PRICE),
            system="Read carefully.",
            tools=[read, note],
            output=Output(Report),
            validators=[not_empty],
            settings=ModelSettings(cache=cache, thinking="low"),
        )
        result = succeeded(await run(agent, "Read it all."))
        return [request.raw for request in api.requests], result


def conversation(body: bytes) -> bytes:
    """Return a body without cache marks, up to the end of the last message."""
    plain = body.replace(MARK, b"")
    assert plain.endswith(b"]}]}")
    return plain.removesuffix(b"]}")


@pytest.mark.parametrize("cache", ["auto", "off", "explicit"])
async def test_the_bytes_of_a_request_marks_aside_begin_the_next_one(cache: CachePolicy) -> None:
    bodies, _ = await recorded(cache)
    assert len(bodies) == N_CALLS + 2
    for before, after in pairwise(bodies):
        assert conversation(after).startswith(conversation(before).removesuffix(b"}"))
        assert len(after) > len(before)


async def test_marks_move_to_the_end_and_are_never_more_than_four() -> None:
    bodies, _ = await recorded("auto")
    for body in bodies:
        assert 2 <= body.count(MARK) <= 4
        assert body.endswith(MARK + b"}]}]}")
        assert MARK + b'}],"messages":[' in body, "The end of the system prompt."
    bodies, _ = await recorded("off")
    assert not any(MARK in body for body in bodies)


async def test_tools_and_their_schemas_come_in_one_order_and_in_the_same_bytes_each_time() -> None:
    bodies, _ = await recorded("auto")
    tools = {re.findall(rb'"tools":(\[.*?\]),"system"', body)[0] for body in bodies}
    assert len(tools) == 1
    found = orjson.loads(tools.pop())
    assert [tool["name"] for tool in found] == ["output", "read", "note"], "As the definition has them."
    assert all([*tool["input_schema"]] == sorted(tool["input_schema"]) for tool in found)
    again, _ = await recorded("auto")
    assert again[0] == bodies[0], "Nothing of a run's own is in the first request."


async def test_openrouter_is_told_what_to_cache_and_tells_what_a_run_cost() -> None:
    service = Service(extensions=frozenset({"usage"}), longest_id=None, takes_marks=True)
    turns = [
        openai_says.answer(
            openai_says.call("read", {"page": number}),
            usage=openai_says.Counted(input=1_000 * number, cached=900 * number, written=100, cost=0.001 * number),
        )
        for number in range(1, 6)
    ]
    done = openai_says.answer("Read.", usage=openai_says.Counted(cost=0.01))
    async with OpenAiApi([*turns, done], service=service) as api:
        model = connect("openrouter:anthropic/claude-sonnet-5.5", api_key="k", base_url=f"{api.url}/v1")
        result = await run(Agent(name="reader", model=model, system="Read carefully.", tools=[read]), "Read it all.")
        bodies = [request.raw for request in api.requests]
    used = existing(result.metadata.usage)
    assert used.cost == pytest.approx(0.001 * 15 + 0.01)
    assert (used.cache_read_tokens, used.cache_write_tokens) == (900 * 15, 500)
    for body in bodies:
        assert body.count(MARK) == 2
        assert body.endswith(MARK + b"}]}]}")
        assert b'"text":"Read carefully."' + MARK + b"}]}" in body
    for before, after in pairwise(bodies):
        assert after.replace(MARK, b"").startswith(before.replace(MARK, b"").removesuffix(b"]}") + b",")


async def test_what_the_cache_saved_is_counted_and_shown() -> None:
    _, result = await recorded("auto")
    used = existing(result.metadata.usage)
    n_read, n_written = sum(1_000 * n for n in range(N_CALLS)) + 12_000 + 12_100, N_CALLS * 1_000 + 150
    assert (used.cache_read_tokens, used.cache_write_tokens) == (n_read, n_written)
    saved = (n_read * (3 - 0.3) + n_written * (3 - 3.75)) / 1e6
    assert used.cache_saved == pytest.approx(saved)
    plain = Price(input=3, output=15).of(used)
    assert used.cost is not None
    assert used.cost == pytest.approx(existing(plain) - saved)
    assert usage_sentence(used).endswith(f"· ${used.cost:.4f}, the cache saved ${saved:.4f}")
    document = json.loads(dump_document(result_document(result, agent="any", output=None)))
    assert document["usage"]["cache_saved"] == used.cache_saved


def test_the_summary_says_what_the_cache_cost_and_nothing_of_what_is_unknown() -> None:
    written = PRICE.charged(Usage(requests=1, cache_write_tokens=10_000, cache_read_tokens=0))
    assert usage_sentence(written) == "10,000 tokens in, 0 out · $0.0375, $0.0075 more than without a cache"
    assert usage_sentence(PRICE.charged(Usage(requests=1, input_tokens=1_000))) == "1,000 tokens in, 0 out · $0.0030"
    unread = PRICE.charged(Usage(requests=1, input_tokens=1_000, cache_read_tokens=0))
    assert usage_sentence(unread) == "1,000 tokens in, 0 out · $0.0030"
