"""What a run took, as people read it: usage that adds up and prints, the cost of the tree, and results in two lines."""

import pytest
from pydantic import BaseModel

from journeyman import Agent, Limits, Output, Rejected, Success, Usage, run, tool
from journeyman.result import Metadata
from journeyman.testing.scripted import ScriptedModel, call
from tests.play import raising

SMALL = Usage(requests=1, input_tokens=1_000, cache_read_tokens=204, output_tokens=310, cost=0.0123)


class Trip(BaseModel):
    city: str
    days: int


def test_usage_adds_up_with_sum_from_an_empty_start() -> None:
    assert sum([SMALL, SMALL]) == SMALL + SMALL == sum([SMALL, SMALL], Usage())
    assert sum([SMALL]) == SMALL
    assert sum(list[Usage](), Usage()) == Usage()
    with pytest.raises(TypeError):
        _ = 3 + SMALL


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (SMALL, "1,204 in, 310 out, $0.0123"),
        (Usage(), "0 in, 0 out, $0.0000"),
        (Usage(requests=1, input_tokens=2, output_tokens=1), "2 in, 1 out, cost unknown"),
        (Usage(requests=1, input_tokens=2, cost=1.0, exact=False), "at least 2 in, 0 out, $1.0000"),
    ],
)
def test_usage_prints_as_people_read_it(usage: Usage, text: str) -> None:
    assert str(usage) == text


@pytest.mark.parametrize(
    ("usage", "background", "cost"),
    [
        (SMALL, Usage(), 0.0123),
        (SMALL, SMALL, 0.0246),
        (Usage(), SMALL, 0.0123),
        (Usage(), Usage(), 0.0),
        (SMALL, Usage(requests=1, input_tokens=1), None),
        (Usage(requests=1, input_tokens=1), SMALL, None),
        (None, None, None),
    ],
)
def test_the_cost_is_that_of_the_tree_and_none_where_a_price_is_not_known(
    usage: Usage | None, background: Usage | None, cost: float | None
) -> None:
    metadata = Metadata(usage=usage, background_usage=background, latency_s=0)
    assert metadata.cost == (None if cost is None else pytest.approx(cost))


async def test_a_success_prints_its_output_and_what_it_took() -> None:
    @tool
    async def look(days: int) -> int:
        return days

    script = ScriptedModel([call("look", days=3), call("output", city="Rome", days=3)])
    planner = Agent(name="planner", model=script, output=Output(Trip), tools=[look])
    first, second = str(await run(planner, "Somewhere warm.")).splitlines()
    assert first == 'SUCCESS planner: {"city": "Rome", "days": 3}'
    assert second.startswith("1 attempt, 2 iterations, 1 call, 20 in, 10 out, cost unknown, ")


async def test_a_failure_prints_its_code_error_and_hint() -> None:
    refuse = raising(Rejected("Not \x1b[2J there."))
    script = ScriptedModel([call("output", city="Rome", days=3)])
    planner = Agent(name="planner", model=script, output=Output(Trip), validators=[refuse], limits=Limits(attempts=1))
    failure = await run(planner, "Somewhere warm.")
    first, second = str(failure).splitlines()
    assert first.startswith(f"{failure.code} planner: The only attempt was rejected, with: Not \\u001b[2J there.")
    assert second.startswith("1 attempt, 1 iteration, 0 calls, ")


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "\x1b]0;title\x07" * 9_000, "a\nb\r\n" * 9_000, "\u202e\ud800\x9b" * 9_000]
)
def test_a_summary_is_bounded_and_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = str(Success(output=text, metadata=Metadata(usage=SMALL, latency_s=1.0), history=()))
    assert len(shown) < 700
    assert shown.count("\n") == 1
    assert shown.replace("\n", "").isprintable()
    assert shown.endswith("1,204 in, 310 out, $0.0123, 1.0 s")


def test_tokens_that_are_not_counted_are_not_given_as_zero() -> None:
    assert "tokens not counted, 1.0 s" in str(Metadata(usage=None, background_usage=None, latency_s=1.0))
