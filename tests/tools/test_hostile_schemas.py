"""Schemas of strangers that would take for ever: what a check costs is counted before it is made."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from journeyman.errors import InvalidArguments
from journeyman.tools.raw_schema import MAX_SCHEMA_CHARS, MAX_SCHEMA_PARTS
from journeyman.tools.tools import Tool, tool_problems
from journeyman.types import JsonObject
from tests.support.stopwatch import STALL_S, longest_stall


def echo(arguments: dict[str, object]) -> object:
    return arguments


def tool_with(schema: Mapping[str, object]) -> Tool[..., object]:
    return Tool("search", "Search.", json.loads(json.dumps({"type": "object", **schema})), echo)


def one(**clause: object) -> JsonObject:
    return json.loads(json.dumps({"properties": {"a": clause}}))


def bomb(keyword: str, depth: int, last: JsonObject, *, anchors: bool = False) -> JsonObject:
    """A schema in which each definition refers to the next one twice."""

    def reference(number: int) -> JsonObject:
        return {"$ref": f"#a{number}" if anchors else f"#/$defs/a{number}"}

    steps: dict[str, Any] = {f"a{n}": {"$anchor": f"a{n}", keyword: [reference(n + 1)] * 2} for n in range(depth)}
    return {**reference(0), "$defs": {**steps, f"a{depth}": {"$anchor": f"a{depth}", **last}}}


def nested(depth: int) -> str:
    return '{"a":' * depth + "{}" + "}" * depth


def twice(keyword: str, reference: JsonObject, *required: str) -> JsonObject:
    """A schema that contains itself twice, in the same place."""
    names = required or ("", "")
    return {keyword: [{"properties": {"a": reference}, "required": [name] if name else []} for name in names]}


def within(schema: JsonObject, keyword: str, depth: int, **beside: object) -> JsonObject:
    for _ in range(depth):
        schema = json.loads(json.dumps({keyword: [schema], **beside}))
    return schema


HOSTILE: dict[str, tuple[JsonObject, str]] = {
    "references, of which none fits": (bomb("anyOf", 20, {"type": "string"}), "{}"),
    "references, of which all fit": (bomb("allOf", 24, {"type": "object"}), "{}"),
    "references by anchors": (bomb("anyOf", 20, {"type": "string"}, anchors=True), "{}"),
    "half as many references": (bomb("anyOf", 12, {"type": "string"}), "{}"),
    "contains itself twice": ({"$ref": "#/$defs/n", "$defs": {"n": twice("allOf", {"$ref": "#/$defs/n"})}}, nested(26)),
    "contains itself, never fits": (
        {"$ref": "#/$defs/n", "$defs": {"n": twice("anyOf", {"$ref": "#/$defs/n"}, "y", "z")}},
        nested(22),
    ),
    "contains itself dynamically": ({"$dynamicAnchor": "n", **twice("allOf", {"$dynamicRef": "#n"})}, nested(26)),
    "unevaluated, again and again": (
        within({"properties": {"a": True}}, "anyOf", 24, unevaluatedProperties=False),
        '{"a": 1, "b": 2}',
    ),
    "a pattern that goes back": (one(items={"pattern": "^(a|a)*(?=b)$"}), json.dumps({"a": ["a" * 1000] * 300})),
    "a pattern with a group again": (one(items={"pattern": r"^(a+)+\1$"}), json.dumps({"a": ["a" * 40] * 300})),
    "a plain pattern that would go back": (one(pattern="^(a+)+$"), json.dumps({"a": "a" * 100_000 + "b"})),
    "very many patterns": ({"properties": {f"a{n}": {"pattern": f"^[a-z]+{n}$"} for n in range(500)}}, '{"a0": "x"}'),
    "patterns that repeat much": (
        {"properties": {f"a{n}": {"pattern": rf"((\w{{100}}){{100}}){{2}}{n}"} for n in range(200)}},
        '{"a0": "x"}',
    ),
    "very many faults": (one(items={"type": "string"}), json.dumps({"a": [1] * 20_000})),
    "very many that are missing": (
        one(items={"required": [f"k{n}" for n in range(100)]}),
        json.dumps({"a": [{}] * 3_000}),
    ),
    "many choices, many values": (one(items={"enum": [*range(3_000)]}), json.dumps({"a": [-1] * 3_000})),
    "a constant that is large": (
        one(items={"const": [[[1] * 100] * 10]}),
        json.dumps({"a": [[[[1] * 100] * 10]] * 60}),
    ),
    "many patterns, many names": (
        {"patternProperties": {f"^(a|b){{1,9}}x{n}": {} for n in range(1_000)}},
        json.dumps({f"ab{n}": 1 for n in range(3_000)}),
    ),
    "a large list of what differs": (one(uniqueItems=True), json.dumps({"a": [[[n]] for n in range(5_000)]})),
    "refers to itself": ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, "{}"),
}


# D43
@pytest.mark.parametrize(("schema", "written"), HOSTILE.values(), ids=HOSTILE)
async def test_a_schema_of_a_stranger_does_not_stop_the_loop(schema: JsonObject, written: str) -> None:
    def check() -> None:
        made = tool_with(schema)
        try:
            assert tool_problems(made) or made.parse(written) is not None
        except InvalidArguments:
            return

    check()  # what is imported for the first time is not counted
    assert await longest_stall(check) < STALL_S


FILTER: JsonObject = {
    "anyOf": [
        {"properties": {"and": {"type": "array", "items": {"$ref": "#/$defs/filter"}}}, "required": ["and"]},
        {"properties": {"or": {"type": "array", "items": {"$ref": "#/$defs/filter"}}}, "required": ["or"]},
        {"properties": {"not": {"$ref": "#/$defs/filter"}}, "required": ["not"]},
        {"properties": {"field": {"type": "string"}, "is": {}}, "required": ["field", "is"]},
    ]
}
LEAF: JsonObject = {"field": "a", "is": 1}
ROW: JsonObject = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}}
UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
WIDE: JsonObject = {"properties": {f"a{n}": {"$ref": "#/$defs/row"} for n in range(500)}, "$defs": {"row": ROW}}
INNOCENT: dict[str, tuple[JsonObject, object]] = {
    "a large file": (one(type="string"), {"a": "x" * 1_000_000}),
    "a thousand rows": (one(type="array", items=ROW), {"a": [{"x": 1, "y": "b"}] * 1_000}),
    "twenty thousand numbers": (one(type="array", items={"type": "integer"}), {"a": [1] * 20_000}),
    "a filter of filters": (
        {**one(**{"$ref": "#/$defs/filter"}), "$defs": {"filter": FILTER}},
        {"a": {"and": [{"or": [LEAF, {"not": LEAF}]}, LEAF, {"and": [LEAF] * 5}]}},
    ),
    "a deep tree": (
        {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
        json.loads(nested(60).replace("a", "left")),
    ),
    "many references to one": (WIDE, {f"a{n}": {"x": n} for n in range(500)}),
    "a pattern for an id": (one(pattern=UUID), {"a": "0b1f9e8a-1c2d-4e3f-8a9b-0c1d2e3f4a5b"}),
    "a pattern for a name": (one(pattern=r"^([a-z]{1,63}\.){1,8}[a-z]{2,63}$"), {"a": "www.example.com"}),
    "a pattern that looks around": (one(pattern=r"^(?!\.)[\w.]+(?<!\.)$"), {"a": "a.b"}),
    "a long list of choices": (one(enum=[f"city {n}" for n in range(2_000)]), {"a": "city 7"}),
    "a name that is a keyword": (
        {"properties": {"$id": {"type": "string"}, "enum": {"type": "string"}}},
        {"enum": "x"},
    ),
}


@pytest.mark.parametrize(("schema", "arguments"), INNOCENT.values(), ids=INNOCENT)
async def test_a_large_schema_or_call_that_means_no_harm_is_checked(schema: JsonObject, arguments: object) -> None:
    made = tool_with(schema)
    assert tool_problems(made) == []
    assert made.parse(json.dumps(arguments)) == arguments


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (bomb("anyOf", 20, {}), f"has more than {MAX_SCHEMA_PARTS:,} parts, with its references followed"),
        (one(enum=[*range(60_000)]), f"has more than {MAX_SCHEMA_PARTS:,} parts, with its references followed"),
        (one(description="x" * 1_000_000), "has texts of 1,000,0"),
        (one(pattern="(a{150}){150}"), "has patterns that repeat 22,600 times, of at most 20,000"),
    ],
)
async def test_a_schema_that_is_too_large_is_refused_when_the_tool_is_made(schema: JsonObject, why: str) -> None:
    (problem,) = tool_problems(tool_with(schema))
    assert problem.code == "INPUT_SCHEMA_TOO_LARGE"
    assert problem.message.startswith(f"The input schema {why}")
    assert MAX_SCHEMA_CHARS == 1_000_000


async def test_arguments_that_take_too_long_to_check_are_answered_with_what_to_do() -> None:
    schema: JsonObject = {"$ref": "#/$defs/n", "$defs": {"n": twice("allOf", {"$ref": "#/$defs/n"})}}
    with pytest.raises(InvalidArguments, match="would take too long; send less at a time"):
        tool_with(schema).parse(nested(26))
    with pytest.raises(InvalidArguments, match="are too many to say where; send less at a time"):
        tool_with(one(items={"type": "string"})).parse(json.dumps({"a": [1] * 20_000}))
