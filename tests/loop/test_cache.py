"""Cached results of tools: the same call again is answered without a run of the tool."""

import asyncio

import pytest

from journeyman import Success, ToolContext, ToolResult, run, tool
from journeyman.testing.scripted import call
from tests.loop.callback_log import CallbackLog
from tests.play import Recorder, Stage, calls, following, report, reporter, talker, texts


class Counter:
    """Counts how often a tool has really run."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, word: str) -> str:
        self.seen.append(word)
        return f"{word} {len(self.seen)}"


async def test_the_same_call_is_answered_from_the_cache(stage: Stage, recorder: Recorder) -> None:  # R75
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
    log = CallbackLog()
    result = await run(talker(model, tools=[count]), "Go.", on_event=recorder, callbacks=log.callbacks())
    assert counter.seen == ["a", "b"]
    assert stage.tool_results(1) == [ToolResult("a 1", tool_use_id="1"), ToolResult("a 1", tool_use_id="2")]
    assert stage.tool_results(2) == [ToolResult("a 1", tool_use_id="3"), ToolResult("b 2", tool_use_id="4")]
    assert calls(recorder.events) == [
        *("count#1?", "count#1: a 1", "count#2?", "count#2: a 1 (cached)"),
        *("count#3?", "count#3: a 1 (cached)", "count#4?", "count#4: b 2"),
    ]
    assert [context.cached for context, _ in log.of("tool_result")] == [False, True, True, False]
    stats = result.metadata.tools["count"]
    assert (stats.calls, stats.succeeded, stats.cache_hits) == (4, 4, 2)


class Counting:
    """A tool's inside: it counts its calls, and fails where it is told to."""

    def __init__(self, *failing: int) -> None:
        self.seen: list[str] = []
        self.failing = failing

    async def find(self, what: str, at: float = 0.0) -> str:
        """Find it."""
        self.seen.append(f"{what}@{at:g}")
        await asyncio.sleep(0)
        if len(self.seen) in self.failing:
            raise ValueError(f"not found, {len(self.seen)}")
        return f"{what} number {len(self.seen)}"


async def test_the_same_arguments_in_another_order_or_form_are_the_same(stage: Stage) -> None:  # R75
    inside = Counting()
    find = tool(inside.find, effect="pure", cache="run")
    arguments: list[dict[str, object]] = [
        *({"what": "x", "at": 0}, {"what": "x", "at": 0.0}, {"at": 0, "what": "x"}),
        *({"what": "x"}, {"what": "x", "at": 1}, {"what": "X"}),
    ]
    await run(talker(stage.model([[call("find", each) for each in arguments], "Done."]), tools=[find]), "Go.")
    assert inside.seen == ["x@0", "x@1", "X@0"]
    assert len({result.tool_use_id for result in stage.tool_results(1)}) == 6


async def test_tools_do_not_share_their_results(stage: Stage) -> None:  # R75
    counter = Counter()

    @tool(thread=False, effect="pure", cache="run")
    def one(word: str) -> str:
        return counter(f"one {word}")

    @tool(thread=False, effect="pure", cache="run")
    def two(word: str) -> str:
        return counter(f"two {word}")

    await run(talker(stage.model([[call("one", word="a"), call("two", word="a")], "Done."]), tools=[one, two]), "Go.")
    assert counter.seen == ["one a", "two a"]


async def test_errors_are_not_cached(stage: Stage) -> None:  # R75, A9
    counter = Counter()

    @tool(thread=False, effect="pure", cache="run")
    def count(word: str) -> ToolResult | str:
        text = counter(word)
        if len(counter.seen) == 1:
            raise ValueError("not yet")
        return ToolResult("still not", is_error=True) if len(counter.seen) == 2 else text

    model = stage.model([[call("count", word="a", id=f"{n}") for n in range(4)], "Done."])
    result = await run(talker(model, tools=[count]), "Go.")
    assert stage.tool_results(1) == [
        ToolResult("Error: not yet", True, "0"),
        ToolResult("still not", True, "1"),
        ToolResult("a 3", tool_use_id="2"),
        ToolResult("a 3", tool_use_id="3"),
    ]
    stats = result.metadata.tools["count"]
    assert (stats.calls, stats.succeeded, stats.cache_hits) == (4, 2, 1)
    assert stats.errors == {"raised": 1, "rejected": 1}


@pytest.mark.parametrize(("scope", "seen"), [("attempt", 2), ("run", 1)])
async def test_a_cache_lasts_as_long_as_it_says(stage: Stage, scope: str, seen: int) -> None:  # R75, A48
    inside = Counting()
    find = tool(inside.find, effect="pure", cache="run" if scope == "run" else "attempt")
    model = stage.model([[call("find", what="x"), report(99)], [call("find", what="x"), report(1)]] * 2)
    agent = reporter(model, tools=[find])
    assert isinstance(await run(agent, "Go."), Success)
    assert len(inside.seen) == seen
    assert isinstance(await run(agent, "Go."), Success)
    assert len(inside.seen) == 2 * seen


@tool(effect="pure", cache="run")
async def remember(n: int, ctx: ToolContext) -> str:
    """Say which run asked first."""
    await asyncio.sleep(0)
    return f"{n} for {ctx.input}"


async def test_a_cache_for_a_run_is_not_for_the_next_or_a_neighbour() -> None:  # A48, R75
    agent = talker(following([call("remember", n=1), call("remember", n=1)], "Done."), tools=[remember])
    results = await asyncio.gather(*(run(agent, str(n)) for n in range(5)))
    assert len(results) == 5
    for n, result in enumerate(results):
        assert texts(result) == [f"1 for {n}"] * 2
        assert result.metadata.tools["remember"].cache_hits == 1


@pytest.mark.parametrize("failing", [(), (1,)])
async def test_equal_calls_at_the_same_time_share_one_execution(
    stage: Stage, failing: tuple[int, ...], recorder: Recorder
) -> None:  # R75, R76
    inside = Counting(*failing)
    find = tool(inside.find, effect="pure", cache="attempt", parallel=True)
    model = stage.model([[call("find", what="x", id=f"f{n}") for n in range(4)], call("find", what="x"), "Done."])
    result = await run(talker(model, tools=[find]), "Go.", on_event=recorder)
    text = "Error: not found, 1" if failing else "x number 1"
    assert stage.tool_results(1) == [ToolResult(text, bool(failing), f"f{n}") for n in range(4)]
    assert len(inside.seen) == 1 + len(failing)
    assert result.metadata.tools["find"].cache_hits == (3 if failing else 4)
