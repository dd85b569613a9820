"""The function of an output in a durable run that dies in its middle: its effect decides, in every engine."""

import asyncio

import pytest

from journeyman import Agent, OneOf, Output
from journeyman.testing import call
from journeyman.types import Effect
from tests.durable.processes import Stage
from tests.play import following, succeeded, texts, virtual_clock


def describe_booking(arguments: dict[str, object]) -> str:
    return f"To be booked: {arguments['flight']}"


@pytest.mark.parametrize(("effect", "submits"), [("once", False), ("once", True), ("idempotent", False)])
@virtual_clock
async def test_a_function_that_died_is_called_again_only_if_its_effect_allows_it(
    stage: Stage, effect: Effect, submits: bool
) -> None:
    booked, reached = list[str](), asyncio.Event()

    async def book_flight(flight: str) -> list[str]:
        """Book a flight."""
        booked.append(flight)
        if len(booked) == 1:
            reached.set()
            await asyncio.Event().wait()
        return [flight, "booked"]

    ends = [call("submit", id=f"s{n}") for n in range(2)] if submits else []
    output = Output(book_flight, effect=effect, reflection=describe_booking if submits else None)
    books = [call("book_flight", flight=flight, id=flight) for flight in ("LH1", "LH2")]
    answers = [books[0], *ends[:1], books[1], *ends[1:]]
    agent = Agent(name="clerk", model=following(*answers), output=OneOf(output, str))
    assert await stage.life(agent, until=reached) is None
    result = succeeded(await stage.life(agent))
    unknown = [each for each in texts(result) if "whether it took effect is unknown" in each]
    if effect == "once":
        assert (booked, result.output, len(unknown)) == (["LH1", "LH2"], ["LH2", "booked"], 1)
    else:
        assert (booked, result.output, unknown) == (["LH1", "LH1"], ["LH1", "booked"], [])
    again = await stage.life(agent)
    assert again is None or succeeded(again).output == result.output
    assert len(booked) == 2
