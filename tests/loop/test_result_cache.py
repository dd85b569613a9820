"""Cached results of tools: the same call again is answered without a run of the tool."""

from __future__ import annotations

import asyncio

import pytest

from journeyman import Agent, DefinitionError, Limits, Output, ToolContext, run, tool
from journeyman.models.scripted import call
from journeyman.types import ToolResult
from tests.loop.players import Report, report, small, succeeded
from tests.support.recorder import CallbackLog, Recorder, calls, check_balance
from tests.support.stage import Stage


class Counter:
    """Counts how often a tool has really run."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, word: str) -> str:
        self.seen.append(word)
        return f"{word} {len(self.seen)}"


async def test_nothing_is_cached_unless_asked_for(stage: Stage) -> None:  # R75
    counter = Counter()

    @tool(thread=False, effect="pure")
    def count(word: str) -> str:
        return counter(word)

    model = stage.model([[call("count", word="a"), call("count", word="a")], "Done."])
    await run(Agent(name="tester", model=model, tools=[count]), "Go.")
    assert counter.seen == ["a", "a"]


async def test_the_same_call_is_answered_from_the_cache(stage: Stage) -> None:  # R75
    counter = Counter()

    @tool(thread=False, effect="pure", cache="attempt")
    def count(word: str, n: int = 1) -> str:
        return counter(word)

    model = stage.model(
        [
            [call("count", word="a", n=1, id="1"), call("count", n=1, word="a", id="2")],
            [call("count", word="a", id="3"), call("count", word="b", id="4")],
            "Done.",
        ]
    )
    recorder, log = Recorder(), CallbackLog()
    agent = Agent(name="tester", model=model, tools=[count])
    result = await run(agent, "Go.", on_event=recorder, callbacks=log.callbacks())
    assert counter.seen == ["a", "b"]
    assert stage.tool_results(1) == [ToolResult("a 1", tool_use_id="1"), ToolResult("a 1", tool_use_id="2")]
    assert stage.tool_results(2) == [ToolResult("a 1", tool_use_id="3"), ToolResult("b 2", tool_use_id="4")]
    check_balance(recorder.events)
    assert calls(recorder.events) == [
        "count#1?",
        "count#1: a 1",
        "count#2?",
        "count#2: a 1 (cached)",
        "count#3?",
        "count#3: a 1 (cached)",
        "count#4?",
        "count#4: b 2",
    ]
    assert [context.cached for context, _ in log.of("tool_result")] == [False, True, True, False]
    stats = result.metadata.tools["count"]
    assert (stats.calls, stats.succeeded, stats.cache_hits) == (4, 4, 2)


async def test_the_key_is_what_the_tool_gets_and_not_how_it_was_written(stage: Stage) -> None:  # R75
    counter = Counter()

    @tool(thread=False, effect="pure", cache="attempt")
    def count(word: str, weight: float = 2.0) -> str:
        return counter(word)

    model = stage.model(
        [[call("count", word="a"), call("count", word="a", weight=2), call("count", weight=2.0, word="a")], "Done."]
    )
    await run(Agent(name="tester", model=model, tools=[count]), "Go.")
    assert counter.seen == ["a"]


async def test_tools_do_not_share_their_results(stage: Stage) -> None:  # R75
    counter = Counter()

    @tool(thread=False, effect="pure", cache="run")
    def one(word: str) -> str:
        return counter(f"one {word}")

    @tool(thread=False, effect="pure", cache="run")
    def two(word: str) -> str:
        return counter(f"two {word}")

    model = stage.model([[call("one", word="a"), call("two", word="a")], "Done."])
    await run(Agent(name="tester", model=model, tools=[one, two]), "Go.")
    assert counter.seen == ["one a", "two a"]


async def test_errors_are_not_cached(stage: Stage) -> None:  # R75
    counter = Counter()

    @tool(thread=False, effect="pure", cache="run")
    def count(word: str) -> ToolResult | str:
        text = counter(word)
        if len(counter.seen) == 1:
            raise ValueError("not yet")
        return ToolResult("still not", is_error=True) if len(counter.seen) == 2 else text

    model = stage.model([[call("count", word="a", id=f"{n}") for n in range(4)], "Done."])
    result = await run(Agent(name="tester", model=model, tools=[count]), "Go.")
    assert stage.tool_results(1) == [
        ToolResult("Error: not yet", True, "0"),
        ToolResult("still not", True, "1"),
        ToolResult("a 3", tool_use_id="2"),
        ToolResult("a 3", tool_use_id="3"),
    ]
    assert result.metadata.tools["count"].cache_hits == 1


@pytest.mark.parametrize(("scope", "expected"), [("attempt", ["a", "a"]), ("run", ["a"])])
async def test_an_attempts_cache_ends_with_it_and_a_runs_does_not(
    stage: Stage, scope: str, expected: list[str]
) -> None:  # R75
    counter = Counter()

    @tool(thread=False, effect="pure", cache="run" if scope == "run" else "attempt")
    def count(word: str) -> str:
        return counter(word)

    model = stage.model([[call("count", word="a"), report(7)], [call("count", word="a"), report(2, id="o2")]])
    agent = Agent(name="tester", model=model, tools=[count], output=Output(Report), validators=[small])
    assert succeeded(await run(agent, "Go."))
    assert counter.seen == expected


async def test_runs_do_not_share_a_cache(stage: Stage) -> None:  # R75, A48
    counter = Counter()

    @tool(thread=False, effect="pure", cache="run")
    def count(word: str) -> str:
        return counter(word)

    agent = Agent(
        name="tester",
        model=stage.model([call("count", word="a"), "Done.", call("count", word="a"), "Done."]),
        tools=[count],
    )
    await run(agent, "Go.")
    await run(agent, "Go.")
    assert counter.seen == ["a", "a"]


async def test_equal_calls_at_the_same_time_share_one_run(stage: Stage) -> None:  # R75, R76
    counter = Counter()

    @tool(parallel=True, effect="pure", cache="attempt")
    async def count(word: str) -> str:
        text = counter(word)
        await asyncio.sleep(0)
        return text

    model = stage.model([[call("count", word="a", id="1"), call("count", word="a", id="2")], "Done."])
    result = await run(Agent(name="tester", model=model, tools=[count], limits=Limits(parallel_calls=2)), "Go.")
    assert counter.seen == ["a"]
    assert stage.tool_results(1) == [ToolResult("a 1", tool_use_id="1"), ToolResult("a 1", tool_use_id="2")]
    assert result.metadata.tools["count"].cache_hits == 1


async def test_a_cached_tool_may_not_set_state(stage: Stage) -> None:  # R75
    @tool(thread=False, effect="pure", cache="attempt")
    def keep(word: str, context: ToolContext) -> None:
        context.set_run_state(word)

    model = stage.model([call("keep", word="a", id="1"), "Done."])
    await run(Agent(name="tester", model=model, tools=[keep], run_state=lambda given: ""), "Go.")
    result = stage.tool_results(1)[0]
    assert result.is_error
    assert "has its results cached, so it may not set state" in result.text


@pytest.mark.parametrize("effect", [None, "once", "idempotent"])
def test_only_pure_tools_can_be_cached(effect: str | None) -> None:  # R75
    def count(word: str) -> str:
        return word

    with pytest.raises(DefinitionError) as refused:
        tool(count, cache="attempt", effect=effect)  # pyright: ignore[reportArgumentType] - any text
    assert [problem.code for problem in refused.value.problems] == ["CACHE_NEEDS_PURE"]
