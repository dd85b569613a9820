"""A schema that is asked for as strict and that no provider can enforce is refused, with its place."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from typing_extensions import TypeForm

from journeyman import Agent, DefinitionError, Output, Tool, tool
from journeyman.models.strict import Grammars, is_enforceable
from journeyman.testing.scripted import ScriptedModel
from journeyman.tools.schema import output_schema
from journeyman.tools.strict import strict_problems


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Open(BaseModel):
    number: int


class Optional(Closed):
    rows: list[Row]


class Row(Closed):
    note: str = ""


class Named(Closed):
    counts: dict[str, int]


class Matched(Closed):
    name: Annotated[str, Field(pattern="^a")]


class Anything(Closed):
    value: Any


class Pair(Closed):
    both: tuple[int, str]


class Cat(Closed):
    kind: Literal["cat"]


class Dog(Closed):
    kind: Literal["dog"]


class Pet(Closed):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Tree(Closed):
    children: list[Tree]


class Good(Closed):
    number: int | None
    parts: list[Literal["a", "b"]]
    took: timedelta
    cats: list[Cat]


REFUSED: dict[str, tuple[TypeForm[object], str]] = {
    "unknown names": (Open, 'schema: names are allowed that it does not have. Forbid them: ConfigDict(extra="forbid")'),
    "a default, deep": (Optional, "at 'rows[].note' it may be left out. Give it no default"),
    "a dict": (Named, "at 'counts' it is a dict of any names. Use a list of objects"),
    "a pattern": (Matched, "at 'name' it has the rule 'pattern'. Leave that rule to a validator"),
    "anything": (Anything, "at 'value' anything is allowed. Give it a type"),
    "a tuple": (Pair, "at 'both' it has the rule "),
    "a tag": (Pet, "at 'pet' it has the rule "),
    "JSON": (JsonValue, "at 'value' "),
}


@pytest.mark.parametrize(("kind", "told"), REFUSED.values(), ids=REFUSED)
def test_an_output_that_cannot_be_strict_is_refused_with_its_place(kind: TypeForm[object], told: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        Agent(name="clerk", model=ScriptedModel("Hm."), output=Output(kind, strict=True))
    assert told in str(caught.value)
    assert "Or leave strict out" in str(caught.value)
    schema = output_schema(kind).input_schema
    assert not is_enforceable(schema)
    assert not Grammars().take(schema)
    Agent(name="clerk", model=ScriptedModel("Hm."), output=Output(kind))


@pytest.mark.parametrize("kind", [Good, Cat, list[int], int | None, Tree], ids=str)
def test_what_some_provider_enforces_is_taken(kind: TypeForm[object]) -> None:
    schema = output_schema(kind).input_schema
    assert is_enforceable(schema) or Grammars().take(schema)
    assert not [*strict_problems(schema)]
    Agent(name="clerk", model=ScriptedModel("Hm."), output=Output(kind, strict=True))


def test_a_tool_is_held_to_the_same() -> None:
    def look(topic: str, most: int = 3) -> str:
        return topic * most

    with pytest.raises(DefinitionError, match=r"CANNOT_BE_STRICT.* at 'most' it may be left out"):
        tool(strict=True)(look)

    def take(arguments: dict[str, object]) -> str:
        return str(arguments)

    raw = Tool("look", "Look.", {"type": "object", "properties": {}}, take, strict=True)
    with pytest.raises(DefinitionError, match=r"CANNOT_BE_STRICT.* it is a dict of any names"):
        Agent(name="clerk", model=ScriptedModel("Hm."), tools=[raw])
