"""Every schema that a server publishes can be used as it stands: all of its references resolve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from jsonschema_rs import Draft202012Validator
from mcp import Client
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from journeyman import Agent, Output
from journeyman.mcp_server import create_mcp_server
from journeyman.serve.api import OPERATIONS
from journeyman.serve.openapi import document
from journeyman.testing.scripted import ScriptedModel

JSON_TYPE = "application/json"


class Color(Enum):
    RED = "red"


class Leaf(BaseModel):
    color: Color
    size: int = 1


class Tree(BaseModel):
    leaves: list[Leaf]
    below: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    leaf: Leaf


class Dog(BaseModel):
    kind: Literal["dog"]


class Pair(NamedTuple):
    left: Leaf
    right: Color


class Named(TypedDict):
    leaf: Leaf


@dataclass
class Held:
    leaf: Annotated[Leaf, Field(examples=[{"$ref": "#/no/reference"}])]


LEAF: dict[str, Any] = {"color": "red", "size": 2}
TYPES: dict[str, tuple[Any, Any]] = {
    "a number": (int, 7),
    "a model": (Leaf, LEAF),
    "a recursive model": (Tree, {"leaves": [LEAF], "below": [{"leaves": [], "below": []}]}),
    "a list": (list[Leaf], [LEAF]),
    "a list of lists": (list[list[Tree]], [[{"leaves": [LEAF], "below": []}]]),
    "a mapping": (dict[str, Leaf], {"a": LEAF}),
    "an optional model": (Leaf | None, LEAF),
    "a tuple": (tuple[Leaf, Color], [LEAF, "red"]),
    "a named tuple": (Pair, [LEAF, "red"]),
    "a union": (Cat | Dog, {"kind": "cat", "leaf": LEAF}),
    "a choice": (Color, "red"),
    "a typed dict": (Named, {"leaf": LEAF}),
    "a dataclass": (Held, {"leaf": LEAF}),
}


OBJECTS: list[Any] = [Leaf, Tree, Named, Held, dict[str, Leaf]]
"""What is an object by itself; all else is wrapped in one."""


def agent(form: Any) -> Agent[Any, Any]:  # noqa: ANN401 - a type
    return Agent(name="clerk", model=ScriptedModel([]), input=form, output=Output(form))


def references(part: object) -> Iterator[str]:
    """Give every reference in a part of a document, but for what is only an example."""
    if isinstance(part, dict):
        for key, value in part.items():  # pyright: ignore[reportUnknownVariableType] - JSON
            if key == "$ref" and isinstance(value, str):
                yield value
            elif key != "examples":
                yield from references(value)  # pyright: ignore[reportUnknownArgumentType] - JSON
    elif isinstance(part, list):
        for each in part:  # pyright: ignore[reportUnknownVariableType] - JSON
            yield from references(each)  # pyright: ignore[reportUnknownArgumentType] - JSON


def resolved(document: Any, reference: str) -> Any:  # noqa: ANN401 - JSON
    """Return that to which a reference leads from the root of a document."""
    assert reference.startswith("#/")
    for name in reference[2:].split("/"):
        document = document[name.replace("~1", "/").replace("~0", "~")]
    return document


def accepts(document: dict[str, Any], schema: dict[str, Any], value: object) -> bool:
    """Tell whether a schema inside of a document takes a value; its references are those of the document."""
    return Draft202012Validator({**document, **schema}).is_valid(value)


@pytest.mark.parametrize(("form", "value"), TYPES.values(), ids=TYPES)
def test_every_reference_of_the_openapi_document_leads_to_a_schema(form: Any, value: object) -> None:  # noqa: ANN401 - a type
    published = document(OPERATIONS, {"clerk": agent(form)}, 1_000)
    for reference in {*references(published)}:
        assert isinstance(resolved(published, reference), dict), reference
    for path in ("runs", "chats/{id}/turns"):
        body = published["paths"][f"/agents/clerk/{path}"]["post"]["requestBody"]["content"][JSON_TYPE]["schema"]
        assert accepts(published, body, {"input": value})
        assert not accepts(published, body, {"input": {"no": ["such", "thing"]}})
    props = published["paths"]["/agents/clerk/agui"]["post"]["requestBody"]["content"][JSON_TYPE]["schema"]
    assert accepts(published, props["properties"]["forwardedProps"], {"input": value})


def test_an_example_that_looks_like_a_reference_stays_as_it_is() -> None:
    schemas = document(OPERATIONS, {"clerk": agent(Held)}, 1_000)["components"]["schemas"]
    assert schemas["clerk.input"]["properties"]["leaf"]["examples"] == [{"$ref": "#/no/reference"}]


@pytest.mark.parametrize(("form", "value"), TYPES.values(), ids=TYPES)
async def test_every_reference_of_a_tool_leads_to_a_schema(form: Any, value: object) -> None:  # noqa: ANN401 - a type
    async with Client(create_mcp_server(agent(form))) as client:
        (made,) = (await client.list_tools()).tools
    for schema in (made.input_schema, made.output_schema or {}):
        for reference in {*references(schema)}:
            assert isinstance(resolved(schema, reference), dict), reference
    output: Any = made.output_schema
    assert accepts({}, output, value if form in OBJECTS else {"output": value})
    assert accepts({}, made.input_schema, value if form in OBJECTS else {"input": value})
