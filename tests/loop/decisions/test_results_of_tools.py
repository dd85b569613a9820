"""What the model reads of what a tool returned or raised: texts, JSON, blocks, long ones, and errors of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import PurePosixPath
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from journeyman import Agent, Image, Output, Rejected, Text, Tool, ToolResult, run, tool
from journeyman.models.scripted import call
from journeyman.types import JsonObject
from tests.loop.pitfalls.players import Report, report, submit
from tests.support.recorder import CallbackLog
from tests.support.stage import Stage


async def answered(stage: Stage, value: Callable[[], object], **options: int) -> ToolResult:
    """Let a tool return a value, and return what the model reads."""

    def give(arguments: JsonObject) -> object:
        return value()

    used = Tool("give", "Give it.", {"type": "object"}, give, max_chars=options.get("max_chars"))
    told = CallbackLog()
    before = stage.n_requests
    model = stage.model([call("give", id="a"), "Done."])
    await run(Agent(name="a", model=model, tools=[used]), "Go.", callbacks=told.callbacks())
    (result,) = stage.tool_results(before + 1)
    ((context, (_, text)),) = told.of("tool_result")
    assert (text, context.is_error) == (result.text, result.is_error)
    return result


# -- values ------------------------------------------------------------------------------------------------------------


class Fruit(BaseModel):
    name: str = Field(alias="fruitName")
    weight: float = 0.5


@dataclass
class Pair:
    left: int
    right: object = None


class Colour(Enum):
    RED = "red"


class Word(StrEnum):
    YES = "yes"


class Odd:
    def __str__(self) -> str:
        return "an odd thing"


VALUES: dict[str, tuple[Callable[[], object], str]] = {
    "text": (lambda: "plain", "plain"),
    "text with quotes and lines": (lambda: 'a "b"\nc', 'a "b"\nc'),
    "text that is JSON": (lambda: '{"a":1}', '{"a":1}'),
    "text of another script": (lambda: "größe 名 💥", "größe 名 💥"),
    "zero": (lambda: 0, "0"),
    "false": (lambda: False, "false"),
    "empty list": (lambda: [], "[]"),
    "empty dict": (lambda: {}, "{}"),
    "nothing": (lambda: None, "(no output)"),
    "empty text": (lambda: "", "(no output)"),
    "number": (lambda: 1.5, "1.5"),
    "dict": (lambda: {"a": [1, None, True], "ü": "名"}, '{"a":[1,null,true],"ü":"名"}'),
    "keys that are no texts": (lambda: {1: "a", None: "b"}, '{"1":"a","None":"b"}'),
    "not a number": (lambda: {"n": float("nan"), "i": float("-inf")}, '{"n":"NaN","i":"-Infinity"}'),
    "not a number at the top": (lambda: float("nan"), "NaN"),
    "model": (lambda: Fruit(fruitName="pear"), '{"fruitName":"pear","weight":0.5}'),
    "models": (lambda: [Fruit(fruitName="pear")], '[{"fruitName":"pear","weight":0.5}]'),
    "dataclass": (lambda: Pair(1, Pair(2)), '{"left":1,"right":{"left":2,"right":null}}'),
    "tuple": (lambda: (1, "a"), '[1,"a"]'),
    "set": (lambda: {"b", "a"}, '["a","b"]'),
    "date": (lambda: [date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)], '["2026-01-02","2026-01-02T00:00:00Z"]'),
    "decimal": (lambda: {"n": Decimal("1.10")}, '{"n":"1.10"}'),
    "enum": (lambda: [Colour.RED, Word.YES], '["red","yes"]'),
    "enum that is a text": (lambda: Word.YES, "yes"),
    "path and id": (lambda: [PurePosixPath("/a"), UUID(int=1)], '["/a","00000000-0000-0000-0000-000000000001"]'),
    "odd": (Odd, "an odd thing"),
    "odd, inside": (lambda: [Odd()], '["an odd thing"]'),
    "iterator, inside": (lambda: {"rows": map(str, [1])}, '{"rows":["1"]}'),
    "huge number": (lambda: 10**30, str(10**30)),
}


@pytest.mark.parametrize("name", VALUES)
async def test_a_value_is_read_as_text_or_json(stage: Stage, name: str) -> None:  # A18
    value, text = VALUES[name]
    assert await answered(stage, value) == ToolResult(text, tool_use_id="a")


async def fetch() -> str:
    return "fetched"


def count() -> Iterator[int]:
    yield 1


UNFINISHED: dict[str, Callable[[], object]] = {
    "generator": count,
    "iterator": lambda: iter([1]),
    "map": lambda: map(str, [1]),
    "coroutine in a list": lambda: [fetch()],
    "coroutine in a dict": lambda: {"a": {"b": fetch()}},
    "circular": lambda: circular(),
}


def circular() -> list[object]:
    ring: list[object] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize("name", UNFINISHED)
async def test_a_value_that_has_no_value_yet_or_no_end_is_an_error(stage: Stage, name: str) -> None:  # A18
    result = await answered(stage, UNFINISHED[name])
    assert result.is_error
    assert result.text.startswith("Error: ")


async def test_a_tool_may_return_blocks_or_a_whole_result(stage: Stage) -> None:  # A18
    picture = Image.from_bytes(b"\x89PNG", "image/png")
    blocks = (Text("A picture:"), picture)
    assert await answered(stage, lambda: blocks) == ToolResult(blocks, tool_use_id="a")
    assert await answered(stage, lambda: ["A picture:", picture]) == ToolResult(blocks, tool_use_id="a")
    assert await answered(stage, lambda: picture) == ToolResult((picture,), tool_use_id="a")
    assert await answered(stage, lambda: ToolResult(blocks, is_error=False)) == ToolResult(blocks, tool_use_id="a")


async def test_a_tool_may_say_that_its_result_is_an_error(stage: Stage) -> None:  # A18
    assert await answered(stage, lambda: ToolResult("no such row", is_error=True)) == ToolResult(
        "no such row", is_error=True, tool_use_id="a"
    )


async def test_the_id_that_a_tool_gives_its_result_does_not_count(stage: Stage) -> None:  # A18, A37
    result = await answered(stage, lambda: ToolResult("mine", tool_use_id="somebody's"))
    assert result == ToolResult("mine", tool_use_id="a")


# -- long results ------------------------------------------------------------------------------------------------------


async def test_a_long_result_is_cut_and_says_how_long_it_was(stage: Stage) -> None:  # A19
    result = await answered(stage, lambda: "x" * 12_345, max_chars=10)
    assert result == ToolResult("x" * 10 + "\n[Cut: the first 10 of 12,345 characters.]", tool_use_id="a")


async def test_a_result_of_exactly_the_limit_is_whole(stage: Stage) -> None:  # A19
    assert (await answered(stage, lambda: "x" * 10, max_chars=10)).content == "x" * 10


async def test_the_limit_of_a_tool_counts_before_the_agents(stage: Stage) -> None:  # A19
    async def long() -> str:
        return "y" * 50

    short, usual = tool(long, name="short", max_chars=5), tool(long, name="usual")
    model = stage.model([[call("short"), call("usual")], "Done."])
    await run(Agent(name="a", model=model, tools=[short, usual], max_result_chars=20), "Go.")
    first, second = (result.text for result in stage.tool_results(1))
    assert first == "yyyyy\n[Cut: the first 5 of 50 characters.]"
    assert second == "y" * 20 + "\n[Cut: the first 20 of 50 characters.]"


async def test_without_a_limit_nothing_is_cut(stage: Stage) -> None:  # A19
    assert len((await answered(stage, lambda: "z" * 200_000)).text) == 200_000


# -- errors ------------------------------------------------------------------------------------------------------------


class Silent(Exception): ...


class Wrong(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raising(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def caused() -> Exception:
    error = ValueError("on top")
    error.__cause__ = LookupError("below")
    return error


NESTED = ExceptionGroup("two failed", [ValueError("one"), ExceptionGroup("inner", [Silent(), KeyError("k")])])

ERRORS: list[tuple[Exception, str]] = [
    (ValueError("too far"), "Error: too far"),
    (Silent(), "Error: Silent"),
    (Silent("  "), "Error: Silent"),
    (Wrong(), "Error: Wrong"),
    (KeyError("name"), "Error: KeyError: 'name'"),
    (OSError(2, "No such file", "a.txt"), "Error: [Errno 2] No such file: 'a.txt'"),
    (ValueError("two\nlines"), "Error: two\nlines"),
    (caused(), "Error: on top"),
    (NESTED, "Error: two failed\n- one\n- Silent\n- KeyError: 'k'"),
    (TimeoutError(), "Error: TimeoutError"),
    (AssertionError(), "Error: AssertionError"),
    (Rejected("ask again later"), "ask again later"),
]


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
async def test_an_error_is_read_as_its_message_and_never_as_a_traceback(
    stage: Stage, error: Exception, text: str
) -> None:  # A20, R49
    assert await answered(stage, raising(error)) == ToolResult(text, is_error=True, tool_use_id="a")


async def test_a_tool_that_raises_the_end_of_an_iteration_has_failed(stage: Stage) -> None:  # A20
    for error in (StopIteration("end"), StopAsyncIteration("end")):
        result = await answered(stage, raising(error))
        assert result.is_error


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
async def test_an_error_of_a_reflection_is_read_the_same_way(stage: Stage, error: Exception, text: str) -> None:  # A20
    def show(draft: Report) -> str:
        raise error

    model = stage.model([report(1, "a"), submit()])
    await run(Agent(name="a", model=model, output=Output(Report, reflection=show)), "Go.")
    assert stage.tool_results(1) == [ToolResult(text, is_error=True, tool_use_id="a")]


async def test_an_endless_error_is_cut(stage: Stage) -> None:  # A20, A19
    assert len((await answered(stage, raising(ValueError("x" * 100_000)))).text) < 5_000
