"""An output while it is written: what was there once stays there, and only grows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Len, MultipleOf
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, JsonValue, TypeAdapter, model_validator
from typing_extensions import TypedDict

from journeyman.events import OutputDelta


class Color(StrEnum):
    RED = "red"
    REDDISH = "reddish"


class Place(BaseModel):
    city: str
    at: date | None = None
    tags: dict[str, str] = Field(default_factory=dict[str, str])


class Box(TypedDict):
    euros: float
    place: Place


@dataclass
class Trip:
    title: str
    color: Color
    n: Annotated[int, MultipleOf(4)]
    code: Annotated[str, Field(min_length=2, max_length=4)]
    stops: list[Place] = field(default_factory=list[Place])
    last: Place | None = None
    boxes: dict[str, Box] = field(default_factory=dict[str, Box])


class Pair(BaseModel):
    """Both or none, of which only the whole can be judged."""

    side: Literal["a", "ab"] = "a"
    names: list[str] = []

    @model_validator(mode="after")
    def even(self) -> Pair:
        if len(self.names) % 2:
            raise ValueError("odd")
        return self


WORDS = st.text(st.characters(codec="utf-8"), max_size=6)
PLACES = st.builds(Place, city=WORDS, at=st.none() | st.dates(), tags=st.dictionaries(WORDS, WORDS, max_size=2))
BOXES = st.dictionaries(WORDS, st.fixed_dictionaries({"euros": st.floats(-1e6, 1e6), "place": PLACES}), max_size=2)
TRIPS = st.builds(
    Trip,
    title=WORDS,
    color=st.sampled_from(Color),
    n=st.integers(-500, 500).map(lambda n: 4 * n),
    code=st.text('ab"\\\n€😀', min_size=2, max_size=4),
    stops=st.lists(PLACES, max_size=3),
    last=st.none() | PLACES,
    boxes=BOXES,
)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(-9, 9)  # beyond, no float holds every integer
LISTS = st.lists(st.dictionaries(WORDS, st.lists(NUMBERS), max_size=3), max_size=3)
CASES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "dataclass": (Trip, TRIPS),
    "model": (Place, PLACES),
    "list of models": (list[Place], st.lists(PLACES, max_size=3)),
    "list of dicts": (list[dict[str, list[float]]], LISTS),
    "at least two": (Annotated[list[Color], Len(2)], st.lists(st.sampled_from(Color), min_size=2, max_size=4)),
    "text": (str, WORDS),
    "judged as a whole": (
        Pair,
        st.builds(Pair, side=st.sampled_from(("a", "ab")), names=st.sampled_from(([], ["x", "y"]))),
    ),
}


def has_grown(before: JsonValue, now: JsonValue) -> bool:
    """Tell whether one value is another with more at its end."""
    match before, now:
        case str(), str():
            return now.startswith(before)
        case dict(), dict():
            return all(key in now and has_grown(value, now[key]) for key, value in before.items())
        case list(), list():
            return len(before) <= len(now) and all(map(has_grown, before, now))
        case None, _:
            return True
        case _:
            return before == now


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=12)
@given(st.data())
def test_what_was_there_stays_and_only_grows_over_every_split_of_an_answer(name: str, data: st.DataObject) -> None:
    kind, values = CASES[name]
    value = data.draw(values)
    adapter = TypeAdapter[Any](kind)
    plain = adapter.dump_python(value, mode="json")
    is_wrapped = not isinstance(plain, dict)
    text = json.dumps({"value": plain} if is_wrapped else plain, ensure_ascii=data.draw(st.booleans()))
    before: Any = None
    shown: Any = {}
    for end in range(len(text) + 1):  # of each split, the beginnings are among these
        delta = OutputDelta(path=(), tool_use_id="", json=text[:end], is_wrapped=is_wrapped)
        assert has_grown(shown, delta.partial()), text[:end]
        shown, now = delta.partial(), delta.partial(kind)
        assert now is not None or before is None, text[:end]
        if before is not None:
            assert has_grown(adapter.dump_python(before, mode="json"), adapter.dump_python(now, mode="json")), text[
                :end
            ]
        before = now
    assert before == value
    assert shown == json.loads(text)


def test_a_hundred_kilobytes_of_which_nothing_can_be_shown_yet_cost_little() -> None:
    text = json.dumps({"stops": [{"city": "x" * 20}] * 3_000, "title": "late"})
    ends = range(0, len(text), len(text) // 50)
    assert [OutputDelta(path=(), tool_use_id="", json=text[:end]).partial(Trip) for end in ends] == [None] * len(ends)
