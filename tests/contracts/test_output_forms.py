"""One of several outputs, an output function and a mode that is chosen, over every wire; recorded, and served."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from journeyman import Agent, OneOf, Output, Rejected, Runtime, run
from journeyman.events import LayerCompleted, OutputDelta
from journeyman.record import Recordings
from journeyman.testing import ScriptedModel, call, say
from journeyman.types import ToolUse
from tests.contracts.carriers import CARRIER, run_over
from tests.play import texts
from tests.serve.http_served import serving


class Sale(BaseModel):
    product: str
    n: int


@dataclass
class Booking:
    flight: str
    seats: int


def some(row: Sale) -> None:
    """There is at least one."""
    if row.n < 1:
        raise ValueError(f"there are {row.n}")


def describe_booking(arguments: dict[str, object]) -> str:
    return f"To be booked: {arguments['flight']}"


def forms(booked: list[str], **options: Any) -> OneOf[Sale | Booking | str]:
    def book_flight(flight: str, seats: int = 1) -> Booking:
        """Book a flight."""
        if flight == "LH1":
            raise Rejected("LH1 is full")
        booked.append(flight)
        return Booking(flight, seats)

    return OneOf(Output(Sale, name="row", validators=[some]), Output(book_flight, effect="once", **options), str)


def book(flight: str, id: str) -> ToolUse:
    return call("book_flight", flight=flight, id=id)


@pytest.mark.parametrize("name", CARRIER)
async def test_a_member_is_rejected_and_a_function_makes_the_output_in_its_place(name: str) -> None:
    booked: list[str] = []
    answers = [say(call("row", product="a", n=0, id="a")), say(book("LH1", "b")), say("I book.", book("LH2", "c"))]
    result, events, bodies = await run_over(name, *answers, output=forms(booked))
    assert (result.unwrap(), booked) == (Booking("LH2", 1), ["LH2"])
    assert ["there are 0" in texts(result)[0], "LH1 is full" in texts(result)[1]] == [True, True]
    assert all('"row"' in json.dumps(body) and '"book_flight"' in json.dumps(body) for body in bodies)
    assert [each for each in events if isinstance(each, OutputDelta)][-1].partial() == {"flight": "LH2"}
    kinds = [each.outcome.kind for each in events if isinstance(each, LayerCompleted)]
    assert kinds == ["schema", "validator", *["schema", "function"] * 2]


@pytest.mark.parametrize("name", CARRIER)
async def test_a_text_and_what_was_submitted_are_outputs_too(name: str) -> None:
    booked: list[str] = []
    result, _, _ = await run_over(name, say("There is nothing to do."), output=forms(booked))
    assert result.unwrap() == "There is nothing to do."
    drafts = [say(book("LH2", "a")), say(book("LH3", "b")), say(call("submit", id="c"))]
    result, _, _ = await run_over(name, *drafts, output=forms(booked, reflection=describe_booking))
    assert (result.unwrap(), booked) == (Booking("LH3", 1), ["LH3"])


@pytest.mark.parametrize("name", CARRIER)
async def test_a_mode_is_chosen_with_which_the_model_can_answer(name: str) -> None:
    answers = [say(call("output", product="umbrella", n=12, id="a"))]
    result, _, [body] = await run_over(name, *answers, output=Output(Sale, mode="auto"))
    assert result.unwrap() == Sale(product="umbrella", n=12)
    assert "output" in json.dumps(body)


async def test_a_function_and_what_it_makes_are_recorded_and_told_over_http_and_ag_ui(tmp_path: Path) -> None:
    model = ScriptedModel([book("LH1", ""), book("LH2", "")], repeat=True)
    agent = Agent(name="clerk", model=model, output=forms([]))
    assert (await run(agent, "Go.", runtime=Runtime(recorder=tmp_path / "runs.db"))).unwrap() == Booking("LH2", 1)
    with Recordings(tmp_path / "runs.db") as recordings:
        [recorded] = recordings.runs()
        found: list[Any] = [each.facts for each in recordings.all_events(recorded) if each.kind == "LayerCompleted"]
    made = [each["outcome"] for each in found if each["outcome"]["kind"] == "function"]
    assert [(each["name"], each["passed"], each.get("feedback", "")) for each in made] == [
        ("book_flight", False, "LH1 is full"),
        ("book_flight", True, ""),
    ]
    agent = Agent(name="clerk", model=ScriptedModel([book("LH1", ""), book("LH2", "")]), output=forms([]))
    async with serving([agent]) as served:
        body = {"threadId": "t", "runId": "r", "messages": [{"id": "0", "role": "user", "content": "Go."}]}
        events = await served.told("POST", "/agents/clerk/agui", body)
    assert events[-1]["result"] == {"flight": "LH2", "seats": 1}
    first = next(each for each in events if each["type"] == "STATE_SNAPSHOT")
    assert first["snapshot"] == {"output": {"flight": "LH1"}}
    assert [each["delta"] for each in events if each["type"] == "STATE_DELTA"][-1] == [
        {"op": "add", "path": "/output/seats", "value": 1}
    ]
