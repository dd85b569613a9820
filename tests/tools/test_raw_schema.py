"""A JSON Schema that came as such: checked by its own rules, never trusted to be right, never followed outside."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.errors import InvalidArguments
from journeyman.tools import written
from journeyman.tools.schema import flatten
from journeyman.tools.tools import Tool, ToolContext, tool_problems
from journeyman.types import JsonObject
from tests.tools.contexts import context_for

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def echo(arguments: dict[str, object]) -> object:
    return arguments


def raw(schema: JsonObject) -> Tool[..., object]:
    return Tool("search", "Search.", schema, echo)


def schema_of(**properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties}


def issues(schema: JsonObject, input_json: str) -> tuple[str, ...]:
    with pytest.raises(InvalidArguments) as caught:
        raw(schema).parse(input_json)
    assert str(caught.value).startswith("Invalid arguments for tool 'search':\n- ")
    return caught.value.issues


# R20, D43
def test_arguments_that_fit_come_out_as_plain_values() -> None:
    schema = schema_of(a={"type": "integer"}, b={"type": "array", "items": {"type": "string"}})
    assert raw(schema).parse('{"a": 1, "b": ["x"], "c": null}') == {"a": 1, "b": ["x"], "c": None}


DEPTH: JsonObject = {"type": "integer", "default": 1}
PLACE: JsonObject = {"type": "object", "properties": {"x": {"type": "integer"}, "y": DEPTH}, "required": ["x"]}
EITHER: JsonObject = {"anyOf": [PLACE, {"type": "object", "properties": {"kind": {"const": "none"}}}]}


@pytest.mark.parametrize(
    ("schema", "given", "taken"),
    [
        pytest.param(schema_of(a=DEPTH), {"a": None}, {}, id="left out"),
        pytest.param(schema_of(a={"enum": ["x"]}), {"a": None}, {}, id="a choice"),
        pytest.param(schema_of(a={"anyOf": [DEPTH, {"const": "all"}]}), {"a": None}, {}, id="a union"),
        pytest.param(schema_of(a={"allOf": [DEPTH, {"title": "A"}]}), {"a": None}, {}, id="of several schemas"),
        pytest.param(schema_of(a=PLACE), {"a": {"x": 1, "y": None}}, {"a": {"x": 1}}, id="inside"),
        pytest.param(schema_of(a={"items": PLACE}), {"a": [{"x": 1, "y": None}]}, {"a": [{"x": 1}]}, id="in a list"),
        pytest.param(schema_of(a=EITHER), {"a": {"x": 1, "y": None}}, {"a": {"x": 1}}, id="in one of a union"),
        pytest.param(
            {**schema_of(a={"$ref": "#/$defs/b~1c"}), "$defs": {"b/c": DEPTH}}, {"a": None}, {}, id="referred to"
        ),
        pytest.param(
            {**schema_of(a=DEPTH, b=DEPTH), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            *({"a": None, "b": 2}, {"b": 2}),
            id="one of two",
        ),
        pytest.param(schema_of(a={"type": ["integer", "null"]}), {"a": None}, {"a": None}, id="null is allowed"),
        pytest.param(schema_of(a={"enum": ["x", None]}), {"a": None}, {"a": None}, id="null is a choice"),
        pytest.param(schema_of(a={}), {"a": None}, {"a": None}, id="anything is allowed"),
        pytest.param(schema_of(), {"a": None}, {"a": None}, id="not declared"),
        pytest.param(
            {**schema_of(a={"$ref": "#/$defs/b"}), "$defs": {"b": {"type": "null"}}},
            *({"a": None}, {"a": None}),
            id="null is referred to",
        ),
    ],
)
def test_a_null_counts_as_absent_where_it_may_not_stand_and_nothing_has_to(
    schema: JsonObject, given: JsonObject, taken: JsonObject
) -> None:
    assert raw(schema).parse(json.dumps(given)) == taken


def test_a_null_for_what_is_required_is_an_issue() -> None:
    schema: JsonObject = {**schema_of(a=PLACE, b=DEPTH), "required": ["b"]}
    assert issues(schema, '{"a": {"x": null}, "b": null}') == (
        "a.x: should be of type integer, got null",
        "b: should be of type integer, got null",
    )


def test_a_schema_that_refers_to_itself_is_read_to_its_end() -> None:
    loop: JsonObject = {"$ref": "#/$defs/a"}
    schema: JsonObject = {**schema_of(a=loop), "$defs": {"a": {"anyOf": [loop, {"$ref": "#/$defs/none"}]}}}
    with suppress(InvalidArguments):
        raw(schema).parse('{"a": null}')


def test_a_schema_that_branches_without_end_is_read_in_time() -> None:
    branches: JsonObject = {
        f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]} for n in range(60)
    }
    schema: JsonObject = {**schema_of(a={"$ref": "#/$defs/a0"}), "$defs": {**branches, "a60": PLACE}}
    given: dict[str, object] = {"a": {"x": None, "y": None}}
    assert written.AbsentNulls(schema).leave_out(given)
    assert given == {"a": {"x": None}}


# R20
def test_issues_of_a_schema_come_in_the_same_order_as_those_of_types() -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "maximum": 5},
            "names": {"type": "array", "items": {"type": "string", "pattern": "^a+$"}},
            "where": {"type": "object", "required": ["from"], "additionalProperties": False},
            "mode": {"enum": ["fast", "slow"]},
            "list": {"type": ["array", "null"]},
        },
        "required": ["query", "count"],
        "additionalProperties": False,
    }
    given = {"count": 9, "names": ["a", "b", 3], "where": {"to": 1}, "mode": "x", "list": "[1]", "zebra": 1, "apple": 2}
    assert issues(schema, json.dumps(given)) == (
        "query: is required",
        "where.from: is required",
        'list: should be of type array or null, got "[1]"; send the value itself, not a string that holds JSON',
        "names[2]: should be of type string, got 3",
        "count: is greater than the maximum of 5, got 9",
        'mode: is not one of "fast" or "slow", got "x"',
        'names[1]: does not match "^a+$", got "b"',
        "apple: is not a known name",
        "where: takes no names",
        "zebra: is not a known name",
    )
    [line] = issues(schema_of(a={"enum": ["x"]}), json.dumps({"a": "y" * 100_000}))
    assert len(line) < 150  # values in messages are short


@pytest.mark.parametrize(
    ("input_json", "issue"),
    [
        ("", "it is not valid JSON: "),
        ("{", "it is not valid JSON: "),
        ('{"a": NaN}', "it is not valid JSON: "),
        ('{"a": "\ud800"}', "it is not valid JSON: "),
        ('{"a": "\\ud800"}', "it is not valid JSON: "),
        ('{"a": ' + "[" * 10_000 + "]" * 10_000 + "}", "it is not valid JSON: recursion limit exceeded"),
        ("[]", "it should be an object, got an array of 0"),
        ("null", "it should be an object, got null"),
        ('"{}"', 'it should be an object, got "{}"; send the value itself, not a string that holds JSON'),
    ],
)
def test_what_is_no_object_is_refused(input_json: str, issue: str) -> None:
    [line] = issues({"type": "object"}, input_json)
    assert line.startswith(issue)


# the schemas of real servers
def test_a_named_draft_is_heeded_for_the_check_and_left_out_for_the_model() -> None:
    tuple_of_old: JsonObject = {"items": [{"type": "integer"}]}
    made = raw({"$schema": DRAFT_7, **schema_of(pair=tuple_of_old)})
    assert "$schema" not in made.spec.input_schema
    with pytest.raises(InvalidArguments, match=r"pair\[0\]: should be of type integer"):
        made.parse('{"pair": ["x"]}')


@pytest.mark.parametrize("draft", ["http://example.com/mine", "http://json-schema.org/schema#", "", 3, None])
def test_an_unknown_draft_is_read_as_the_current_one(draft: Any) -> None:  # noqa: ANN401
    made = raw({"$schema": draft, **schema_of(a={"type": "integer"})})
    assert made.parse('{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    "schema",
    [
        schema_of(a={"type": "string", "pattern": "("}),
        schema_of(a={"type": "string", "pattern": "\\p{Nonsense}"}),
        schema_of(a={"type": "text"}),
        schema_of(a={"$ref": "#/$defs/missing"}),
        {"type": "object", "required": "a"},
    ],
)
def test_a_faulty_schema_is_an_issue_for_the_model_and_not_a_crash(schema: JsonObject) -> None:
    [line] = issues(schema, '{"a": "x"}')
    assert line.startswith("they cannot be checked, the tool's schema is faulty: ")


def test_references_lead_neither_to_hosts_nor_to_files(tmp_path: Path) -> None:
    file = tmp_path / "secret.json"
    file.write_text('{"type": "string"}', encoding="utf-8")
    for reference in ("http://localhost:1/x.json", "https://example.com/x.json", file.as_uri()):
        [line] = issues(schema_of(a={"$ref": reference}), '{"a": "x"}')
        assert "references to other documents are not followed" in line


def test_definitions_and_recursion_inside_the_schema_are_followed() -> None:
    node: JsonObject = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["id"]}
    schema: JsonObject = {"type": "object", "properties": {"head": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    assert raw(schema).parse('{"head": {"id": 1, "next": {"id": 2}}}')
    assert issues(schema, '{"head": {"id": 1, "next": {}}}') == ("head.next.id: is required",)


def test_a_pattern_that_would_take_for_ever_is_given_up() -> None:
    schema = schema_of(a={"type": "string", "pattern": "^(a|aa)+(?=c)$"})
    (line,) = issues(schema, json.dumps({"a": "a" * 5_000 + "b"}))  # to try every way would take for ever
    assert line.startswith("a: Error executing regex: Max limit for backtracking count exceeded, got ")


# R18
def test_the_handler_takes_the_arguments_as_one_dict() -> None:
    made = raw(schema_of(a={"type": "integer"}))
    assert made.invoke(made.parse('{"a": 1}'), context_for(made)) == {"a": 1}
    assert made({"a": 2}) == {"a": 2}


def test_the_handler_gets_the_context_if_it_asks_for_it() -> None:
    def by_type(arguments: dict[str, object], where: ToolContext) -> object:
        return arguments, where.agent

    def by_name(arguments: dict[str, object], *, it: ToolContext | None = None) -> object:
        return arguments, it and it.agent

    def turned(it: ToolContext, arguments: dict[str, object]) -> object:
        return arguments, it.agent

    def untyped(*both: Any) -> object:
        return both[0], "lead"

    handlers: list[Any] = [by_type, by_name, turned, untyped, lambda arguments, it: (arguments, it.agent)]  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]
    for handler in handlers:
        made: Tool[..., object] = Tool("search", "", {"type": "object"}, handler)
        assert made.invoke({"a": 1}, context_for(made)) == ({"a": 1}, "lead")


SCHEMAS: list[tuple[JsonObject, list[str]]] = [
    ({"type": "object"}, []),
    ({"type": "object", "properties": {"a-b.c_1": {}}}, []),
    ({"type": "object", "properties": {"a": {"anyOf": [{}, {}]}}}, []),
    ({"type": "object", "properties": None}, ["INVALID_INPUT_SCHEMA"]),
    ({"type": "object", "properties": {"a": {"type": "str"}}}, ["INVALID_INPUT_SCHEMA"]),
    ({"type": "object", "properties": {"a": {"type": "string", "required": True}}}, ["INVALID_INPUT_SCHEMA"]),
    ({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}, ["INVALID_INPUT_SCHEMA"]),
    ({"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}, ["INVALID_INPUT_SCHEMA"]),
    ({"type": "object", "properties": {"a": {"pattern": "("}}}, ["INVALID_INPUT_SCHEMA"]),
    ({"type": "object", "properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}}, ["INVALID_INPUT_SCHEMA"]),
    ({}, ["INVALID_INPUT_SCHEMA"]),
    ({"type": "string"}, ["INVALID_INPUT_SCHEMA"]),
    ({"type": ["object", "null"]}, ["INVALID_INPUT_SCHEMA"]),
    ({"type": "object", "anyOf": [{}]}, []),
    ({"type": "object", "properties": {"a b": {}, "": {}, "x" * 65: {}}}, []),
    (cast("Any", None), ["INVALID_INPUT_SCHEMA"]),
]


# M6
@pytest.mark.parametrize(("schema", "codes"), SCHEMAS)
def test_a_schema_that_providers_refuse_is_a_problem(schema: JsonObject, codes: list[str]) -> None:
    assert [problem.code for problem in tool_problems(raw(schema))] == codes


def test_what_stands_at_the_top_for_all_arguments_moves_into_the_description() -> None:
    one: JsonObject = {"properties": {"kind": {"const": "a"}, "id": {"type": "string"}}, "required": ["id"]}
    two: JsonObject = {"properties": {"kind": {"const": "b"}}, "required": ["name"]}
    schema: JsonObject = {"type": "object", "properties": {"name": {"type": "string"}}, "oneOf": [one, two]}
    flat, description = flatten(schema, "Find one.")
    kinds: JsonObject = {"anyOf": [{"const": "a"}, {"const": "b"}]}
    properties: JsonObject = {"name": {"type": "string"}, "kind": kinds, "id": {"type": "string"}}
    assert flat == {"type": "object", "properties": properties}
    assert description.startswith("Find one.\n\nThe arguments as a whole must also fit this JSON Schema: {")
    assert json.loads(description.partition("Schema: ")[2]) == {"oneOf": [one, two]}
    assert flatten(flat, "Find one.") == (flat, "Find one.")
    assert raw(schema).parse('{"kind": "b", "name": "x"}') == {"kind": "b", "name": "x"}
    with pytest.raises(InvalidArguments):
        raw(schema).parse('{"kind": "b"}')


def test_a_handler_is_a_function() -> None:
    made: Tool[..., object] = Tool("search", "", {"type": "object"}, cast("Any", "search"))
    assert [problem.code for problem in tool_problems(made)] == ["INVALID_HANDLER"]


@pytest.mark.fuzz
@given(text=st.text() | st.from_regex(r'\{"(a|b)": ?.*\}', fullmatch=True))
def test_any_text_is_parsed_or_refused_by_a_schema(text: str) -> None:
    made = raw({**schema_of(a={"type": "integer"}, b={"pattern": "^(x|y)+$"}), "additionalProperties": False})
    try:
        parsed = made.parse(text)
    except InvalidArguments:
        return
    assert parsed.keys() <= {"a", "b"}
    assert parsed.get("a", 0) == int(cast("Any", parsed.get("a", 0)))
    assert set(b) <= {*"xy"} if isinstance(b := parsed.get("b"), str) else True
