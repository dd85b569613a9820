"""Types as JSON Schema: what the model is told agrees with what is checked, for any type."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from types import FrameType
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeAlias, TypeVar
from uuid import UUID

import jsonschema_rs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    TypeAdapter,
    ValidationError,
    create_model,
)
from typing_extensions import TypeAliasType, TypedDict, TypeForm

from journeyman.errors import DefinitionError, InvalidArguments
from journeyman.tools.schema import Fields, OutputSchema, Parameter, is_object, output_schema
from journeyman.types import JsonObject

Item = TypeVar("Item")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(9, ge=0)


class Dog(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["dog"]
    name: str


class Node(BaseModel):
    label: str
    children: list[Node] = []


class Left(BaseModel):
    right: Right | None = None


class Right(BaseModel):
    left: Left | None = None
    depth: int


class Aliased(BaseModel):
    from_: int = Field(alias="from")


class Box(BaseModel, Generic[Item]):
    content: Item


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)
    count: int


@dataclass
class Point:
    x: float
    y: float = 0.0
    tags: list[str] = field(default_factory=list[str])


@dataclass
class Tree:
    left: Tree | None = None
    right: Tree | None = None


class Pair(NamedTuple):
    first: int
    second: str = "two"


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Numbers(RootModel[list[int]]):
    pass


class Prices(RootModel[dict[str, float]]):
    pass


Pet: TypeAlias = Annotated[Cat | Dog, Field(discriminator="kind")]
Nested = TypeAliasType("Nested", "list[Nested] | int")
Even: TypeAlias = Annotated[int, Field(multiple_of=2, description="an even number")]

ANNOTATIONS: dict[str, TypeForm[object]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "none": None,
    "anything": object,
    "json": JsonValue,
    "optional": int | None,
    "union": int | str | list[int],
    "literal": Literal["a", 1, None],
    "enum": Color,
    "int enum": Level,
    "constrained": Even,
    "list": list[int],
    "set": set[str],
    "fixed tuple": tuple[int, str],
    "open tuple": tuple[int, ...],
    "dict": dict[str, int],
    "int keys": dict[int, str],
    "decimal": Decimal,
    "datetime": datetime,
    "date": date,
    "timedelta": timedelta,
    "uuid": UUID,
    "bytes": bytes,
    "model": Cat,
    "strict model": Frozen,
    "recursive model": Node,
    "mutual recursion": Left,
    "discriminated union": Pet,
    "alias": Aliased,
    "generic": Box[Box[int]],
    "dataclass": Point,
    "recursive dataclass": Tree,
    "named tuple": Pair,
    "typed dict": Movie,
    "root list": Numbers,
    "root dict": Prices,
    "recursive alias": Nested,
    "optional recursion": Node | None,
    "list of unions": list[Pet | Node],
}

VALUES: tuple[str, ...] = (
    *("null", "true", "false", "0", "1", "2", "-1", "3.0", "3.5", "1e3", "1e400", "9" * 30, "-0.0"),
    *('""', '"a"', '"1"', '"true"', '"red"', '"RED"', '"null"', '" "', '"\\u0000"', '"\\ud83d\\ude00"', '"1.10"'),
    *('"2024-02-30"', '"2024-02-29"', '"2024-02-29T12:00:00Z"', '"P1DT2H"', '"NaN"', '"Infinity"', '"eno="', '"é"'),
    *('"123e4567-e89b-12d3-a456-426614174000"', '"[1]"', '"{}"', '"{\\"label\\": \\"x\\"}"', '"' + "x" * 300 + '"'),
    *("[]", "[1]", '["a"]', "[1, 2]", '[1, "a"]', '["a", 1]', "[[]]", "[[[1]], 2]", "[null]", '["a", "a"]', "[1, 1.0]"),
    *("{}", '{"a": 1}', '{"1": "a"}', '{"a": null}', '{"": 1}', '{"a": 1, "a": 2}', '{"value": 1}', '{"$ref": "#"}'),
    *('{"kind": "cat"}', '{"kind": "cat", "lives": -1}', '{"kind": "dog", "name": "x"}', '{"kind": "dog", "lives": 1}'),
    *('{"kind": "mouse"}', '{"lives": 1}', '{"kind": "dog", "name": "x", "more": 1}', '{"kind": "cat", "more": 1}'),
    *('{"label": "a"}', '{"label": "a", "children": [{"label": "b"}]}', '{"label": "a", "children": [{}]}'),
    *('{"label": "a", "children": "[]"}', '{"right": null}', '{"right": {"depth": 1}}', '{"right": {}}'),
    *('{"right": {"depth": 1, "left": {"right": {"depth": "x"}}}}', '{"from": 1}', '{"from_": 1}', '{"from": "x"}'),
    *('{"content": {"content": 1}}', '{"content": {"content": "x"}}', '{"content": 1}', '{"x": 1}'),
    *('{"x": "1", "y": 2}', '{"x": 1, "tags": ["a"]}', '{"x": 1, "tags": "a"}', '{"left": {"left": {}}}'),
    *('{"left": {"left": 1}}', '{"count": 1}', '{"count": "1"}', '{"first": 1}', '{"title": "x"}'),
    *('{"title": "x", "year": 1}', '{"title": 1}', '[{"kind": "cat"}]'),
    *('[{"label": "a"}, {"kind": "dog", "name": "b"}]', '[{"label": "a"}, {}]', '{"a": 1.5, "b": 2}', '{"a": "x"}'),
)

each_annotation = pytest.mark.parametrize("annotation", ANNOTATIONS.values(), ids=ANNOTATIONS)


def fields(annotation: TypeForm[object]) -> Fields:
    return Fields([Parameter(name="it", annotation=annotation)])


def accepts(schema: Fields | OutputSchema[object], input_json: str) -> bool:
    try:
        schema.parse(input_json, "it") if isinstance(schema, Fields) else schema.parse(input_json)
    except InvalidArguments:
        return False
    return True


def pydantic_accepts(adapter: TypeAdapter[object], value_json: str) -> bool:
    try:
        adapter.validate_json(value_json)
    except ValidationError:
        return False
    return True


def references(schema: JsonValue) -> Iterator[str]:
    match schema:
        case dict():
            reference = schema.get("$ref")
            if isinstance(reference, str):
                yield reference
            for below in schema.values():
                yield from references(below)
        case list():
            for below in schema:
                yield from references(below)
        case _:
            return


def assert_fit_for_a_provider(schema: JsonObject) -> None:
    assert is_object(schema)
    assert jsonschema_rs.meta.is_valid(schema)
    definitions = schema.get("$defs", {})
    assert isinstance(definitions, dict)
    assert set(references(schema)) <= {f"#/$defs/{name}" for name in definitions}
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema


# M6, A16
@each_annotation
def test_every_type_gives_a_schema_that_providers_take(annotation: TypeForm[object]) -> None:
    assert_fit_for_a_provider(fields(annotation).input_schema)
    assert_fit_for_a_provider(output_schema(annotation).input_schema)


# R20, D43, A16
@each_annotation
def test_a_parameter_and_an_output_take_exactly_what_pydantic_takes_for_their_type(
    annotation: TypeForm[object],
) -> None:
    output, adapter = output_schema(annotation), TypeAdapter(annotation)
    expected = {value: pydantic_accepts(adapter, value) for value in VALUES}
    assert True in expected.values()
    for compiled, form in (
        (fields(annotation), '{{"it": {}}}'),
        (output, '{{"value": {}}}' if output.is_wrapped else "{}"),
    ):
        verdicts = {value: accepts(compiled, form.format(value)) for value in VALUES}
        # NaN and Infinity are no JSON, so no number may become one
        assert {value for value in VALUES if verdicts[value] != expected[value]} <= {"1e400", '"NaN"', '"Infinity"'}


LOOSE = {"datetime", "date", "timedelta", "uuid", "decimal", "int keys"}
"""Types whose texts have a form that the schema does not tell, or only names."""


@pytest.mark.parametrize("name", [name for name in ANNOTATIONS if name not in LOOSE])
def test_what_the_schema_allows_is_accepted(name: str) -> None:
    compiled = fields(ANNOTATIONS[name])
    validator = jsonschema_rs.validator_for(compiled.input_schema)
    texts = [f'{{"it": {value}}}' for value in VALUES]
    allowed = [text for text in texts if validator.is_valid(json.loads(text))]
    assert [text for text in allowed if not accepts(compiled, text)] == []


# D26
def test_a_parameter_with_a_default_is_not_required_and_shows_it() -> None:
    limit = Parameter(name="limit", annotation=int, default=10, description="rows")
    compiled = Fields([Parameter(name="sql", annotation=str), limit])
    assert compiled.input_schema == {
        "type": "object",
        "properties": {"sql": {"type": "string"}, "limit": {"type": "integer", "default": 10, "description": "rows"}},
        "required": ["sql"],
        "additionalProperties": False,
    }
    assert compiled.parse('{"sql": "x"}', "it") == {"sql": "x", "limit": 10}


def test_a_default_that_is_no_json_is_filled_in_but_not_shown() -> None:
    for annotation, default in ((object, object()), (float, float("inf"))):
        compiled = Fields([Parameter(name="it", annotation=annotation, default=default)])
        assert "default" not in json.dumps(compiled.input_schema)
        assert compiled.parse("{}", "it") == {"it": default}


def test_a_field_as_default_counts_as_its_default_and_its_constraints() -> None:
    made: object = Field(default_factory=list)
    compiled = Fields(
        [
            Parameter(name="count", annotation=int, default=Field(3, ge=1, description="how many")),
            Parameter(name="made", annotation=list[int], default=made),
            Parameter(name="needed", annotation=int, default=Field(lt=5)),
        ]
    )
    assert compiled.input_schema["required"] == ["needed"]
    assert compiled.parse('{"needed": 4}', "it") == {"count": 3, "made": [], "needed": 4}
    assert not accepts(compiled, '{"needed": 5}')
    assert not accepts(compiled, '{"needed": 4, "count": 0}')


@pytest.mark.parametrize(
    "name", ["schema", "json", "copy", "dict", "model_config", "model_fields", "self", "class", "_x"]
)
def test_no_parameter_name_collides_with_a_method_of_a_model(name: str) -> None:
    compiled = Fields([Parameter(name=name, annotation=int)])
    assert compiled.parse(f'{{"{name}": 1}}', "it") == {name: 1}


def test_unknown_names_are_refused_at_the_top_and_ignored_where_the_type_ignores_them() -> None:
    compiled = Fields([Parameter(name="movie", annotation=Movie), Parameter(name="point", annotation=Point)])
    assert accepts(compiled, '{"movie": {"title": "x", "stars": 5}, "point": {"x": 1, "z": 2}}')
    assert not accepts(compiled, '{"movie": {"title": "x"}, "point": {"x": 1}, "stars": 5}')


def test_every_parameter_with_an_impossible_type_is_a_problem() -> None:
    with pytest.raises(DefinitionError) as caught:
        Fields(
            [
                Parameter(name="good", annotation=int),
                Parameter(name="opaque", annotation=jsonschema_rs.Draft202012Validator),
                Parameter(name="bad", annotation=object()),
            ]
        )
    assert [problem.code for problem in caught.value.problems] == ["UNSUPPORTED_TYPE"] * 2
    assert ["'opaque'" in str(caught.value), "'bad'" in str(caught.value)] == [True, True]
    assert "errors.pydantic.dev" not in str(caught.value)


def nested(depth: int) -> str:
    return '{"label": "x", "children": [' * depth + '{"label": "x"}' + "]}" * depth


# A16
@pytest.mark.parametrize(
    ("form", "input_json", "value"),
    [
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (int, '{"value": 0}', 0),
        (bool, '{"value": false}', False),
        (str, '{"value": ""}', ""),
        (Cat | None, '{"value": null}', None),
        (Pet, '{"value": {"kind": "dog", "name": "x"}}', Dog(kind="dog", name="x")),
        (Numbers, '{"value": [1]}', Numbers([1])),
        (Nested, '{"value": [[1], 2]}', [[1], 2]),
        (Pair, '{"value": [1, "b"]}', Pair(1, "b")),
        (Color, '{"value": "red"}', Color.RED),
        (JsonValue, '{"value": {"value": 1}}', {"value": 1}),
    ],
)
def test_an_output_that_is_no_object_travels_as_value(form: TypeForm[object], input_json: str, value: object) -> None:
    compiled = output_schema(form, name="hand_in")
    assert compiled.is_wrapped
    assert compiled.input_schema["required"] == ["value"]
    assert compiled.parse(input_json) == value
    with pytest.raises(InvalidArguments) as caught:
        compiled.parse("{}")
    assert str(caught.value) == "Invalid arguments for tool 'hand_in':\n- value: is required"


# A16
@pytest.mark.parametrize(
    ("form", "input_json", "value"),
    [
        (Cat, '{"kind": "cat"}', Cat(kind="cat", lives=9)),
        (Node, nested(1), Node(label="x", children=[Node(label="x")])),
        (Left, '{"right": {"depth": 1}}', Left(right=Right(depth=1))),
        (Tree, '{"left": {}}', Tree(left=Tree())),
        (Movie, '{"title": "x"}', {"title": "x"}),
        (Prices, '{"a": 1}', Prices({"a": 1.0})),
        (dict[str, int], '{"value": 1}', {"value": 1}),
        (Box[int], '{"content": 1}', Box[int](content=1)),
        (Aliased, '{"from": 1}', Aliased(**{"from": 1})),
    ],
)
def test_an_output_that_is_an_object_travels_as_it_is(form: TypeForm[object], input_json: str, value: object) -> None:
    compiled = output_schema(form)
    assert not compiled.is_wrapped
    assert "$ref" not in compiled.input_schema
    assert compiled.parse(input_json) == value


def test_the_schema_says_nothing_that_a_name_says_already() -> None:
    assert "title" not in json.dumps(output_schema(Node).input_schema)
    assert "title" not in json.dumps(output_schema(list[Cat]).input_schema)


def test_an_output_type_that_cannot_be_described_is_a_problem() -> None:
    with pytest.raises(DefinitionError, match=r"\[UNSUPPORTED_TYPE\] It cannot be described as JSON"):
        output_schema(jsonschema_rs.Draft202012Validator)


def test_a_python_value_is_checked_and_not_rebuilt() -> None:
    cat = Cat(kind="cat", lives=1)
    assert output_schema(Cat).check(cat) is cat
    assert output_schema(list[int]).check(["1"]) == [1]
    with pytest.raises(InvalidArguments) as caught:
        output_schema(str, name="input").check(3)
    assert str(caught.value) == "Invalid value for 'input':\n- it should be a valid string, got 3"


def test_a_validator_that_breaks_is_an_issue_and_not_a_crash() -> None:
    def explode(value: int) -> int:
        raise KeyError(value)

    compiled = output_schema(Annotated[int, AfterValidator(explode)])
    for attempt in (lambda: compiled.parse('{"value": 1}'), lambda: compiled.check(1)):
        with pytest.raises(InvalidArguments) as caught:
            attempt()
        assert caught.value.issues == ("it could not be checked: KeyError: 1",)


def test_a_dump_shows_every_change_of_a_value() -> None:
    compiled = output_schema(Node)
    value = Node(label="a", children=[Node(label="b")])
    before = compiled.dump(value)
    assert json.loads(before) == {"label": "a", "children": [{"label": "b", "children": []}]}
    value.children[0].label = "c"
    assert compiled.dump(value) != before


def test_a_dump_of_what_is_no_longer_the_type_still_is_one() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert output_schema(list[int]).dump(["x"]) == b'["x"]'
    assert output_schema(JsonValue).dump(loop) != b""
    assert output_schema(str).dump("\ud800") != b""
    assert output_schema(Cat).dump(None) != b""
    assert b"object" in output_schema(object).dump(object())


def issues(parameters: list[Parameter], input_json: str) -> tuple[str, ...]:
    with pytest.raises(InvalidArguments) as caught:
        Fields(parameters).parse(input_json, "arguments for tool 'it'")
    return caught.value.issues


def test_issues_come_in_order_missing_type_value_unknown_and_then_by_path() -> None:
    parameters = [
        Parameter(name="node", annotation=Node),
        Parameter(name="counts", annotation=list[Annotated[int, Field(lt=10)]]),
        Parameter(name="absent", annotation=int),
        Parameter(name="pet", annotation=Pet),
    ]
    given: dict[str, JsonValue] = {
        "zebra": 1,
        "apple": 2,
        "counts": [1, 10, 2, 3, 4, 5, 6, 7, 8, 9, 11, "x"],
        "node": {"children": [{}, 3]},
        "pet": {"kind": "mouse"},
    }
    assert issues(parameters, json.dumps(given)) == (
        "absent: is required",
        "node.children[0].label: is required",
        "node.label: is required",
        'counts[11]: should be a valid integer, got "x"',
        "node.children[1]: should be an object, got 3",
        "counts[1]: should be less than 10, got 10",
        "counts[10]: should be less than 10, got 11",
        "pet: tag 'mouse' found using 'kind' does not match any of the expected tags: 'cat', 'dog', got an object",
        "apple: is not a known name",
        "zebra: is not a known name",
    )


def test_the_members_of_a_union_are_one_issue_and_no_part_of_the_path() -> None:
    parameters = [Parameter(name="it", annotation=int | list[str] | Cat)]
    assert issues(parameters, '{"it": "x"}') == (
        'it: should be a valid integer or a valid array or an object, got "x"',
    )
    assert issues(parameters, '{"it": {"kind": "dog"}}')[-1] == "it.kind: should be 'cat', got \"dog\""


@pytest.mark.parametrize("annotation", [Node, dict[str, int], list[int], Point, Movie, set[int], Pair, list[int] | int])
def test_an_object_or_array_sent_as_a_string_gets_a_hint_and_a_plain_string_none(annotation: TypeForm[object]) -> None:
    [line] = issues([Parameter(name="it", annotation=annotation)], json.dumps({"it": '[{"a": 1}]'}))
    assert line.endswith("; send the value itself, not a string that holds JSON")
    assert issues([Parameter(name="it", annotation=annotation)], '{"it": "one"}')[0].endswith(', got "one"')


def test_lines_are_bounded_whatever_the_model_wrote() -> None:
    huge = "x" * 100_000
    parameters = [Parameter(name="it", annotation=dict[str, int]), Parameter(name="other", annotation=Literal["a"])]
    lines = issues(parameters, json.dumps({"it": {huge: huge, "a b": [1] * 1000}, "other": huge, huge: 1}))
    assert len(lines) == 4
    assert max(map(len, lines)) < 600
    assert any('"… (100,000 characters)' in line for line in lines)
    assert any("got an array of 1,000" in line for line in lines)


def test_the_text_shows_twenty_issues_and_counts_the_rest() -> None:
    with pytest.raises(InvalidArguments) as caught:
        fields(list[int]).parse(json.dumps({"it": ["x"] * 1_500}), "arguments for tool 'it'")
    assert len(caught.value.issues) == 1_500
    assert str(caught.value).count("\n") == 21
    assert str(caught.value).endswith("\n- and 1,480 more")


def test_a_message_of_a_validator_is_shown_without_pydantics_words() -> None:
    def refuse(value: int) -> int:
        raise ValueError("must be\n  prime")

    assert issues([Parameter(name="it", annotation=Annotated[int, AfterValidator(refuse)])], '{"it": 4}') == (
        "it: must be prime, got 4",
    )


HOSTILE = {
    "nothing": "",
    "blank": "  ",
    "no json": "{'it': 1}",
    "trailing comma": '{"it": 1,}',
    "trailing text": '{"it": 1} and more',
    "two values": "{}{}",
    "cut off": '{"it": "abc',
    "array": "[1]",
    "string": '"it"',
    "null": "null",
    "number": "3",
    "object as text": '"{\\"it\\": 1}"',
    "deep arrays": '{"it": ' + "[" * 10_000 + "]" * 10_000 + "}",
    "deep objects": '{"it":' * 10_000 + "1" + "}" * 10_000,
    "deep and open": "[" * 100_000,
    "deep model": '{"it": ' + nested(5_000) + "}",
    "nan": '{"it": NaN}',
    "infinity": '{"it": {"label": "x", "children": [Infinity]}}',
    "minus infinity": '{"it": [-Infinity]}',
    "huge integer": '{"it": ' + "9" * 10_000 + "}",
    "lone surrogate": '{"it": "\\ud800"}',
    "raw surrogate": '{"it": "\ud800"}',
    "raw control": '{"it": "a\nb"}',
    "null byte": "\x00",
    "byte order mark": "\ufeff{}",
    "other name": '{"that": 1}',
    "constructor": '{"constructor": 1, "__proto__": 2, "__class__": 3}',
}


# D43, R23
@pytest.mark.share(one_in=5)
@pytest.mark.parametrize("annotation", [int, float, Node, object, Nested, dict[str, float]], ids=str)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_arguments_are_refused_with_a_short_text(annotation: TypeForm[object], text: str) -> None:
    compiled = fields(annotation)
    with pytest.raises(InvalidArguments) as caught:
        compiled.parse(text, "arguments for tool 'it'")
    assert str(caught.value).startswith("Invalid arguments for tool 'it':\n- ")
    assert len(str(caught.value)) < 1_000
    assert "pydantic" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_words_that_look_like_constants_are_only_words_in_a_text() -> None:
    assert fields(object).parse('{"it": "NaN and Infinity"}', "it") == {"it": "NaN and Infinity"}
    assert fields(object).parse(b'{"it": "NaN and Infinity"}', "it") == {"it": "NaN and Infinity"}


# the last one wins, as in every JSON library
def test_of_a_repeated_name_the_last_one_counts_and_a_large_text_is_no_problem() -> None:
    assert fields(int).parse('{"it": 1, "it": 2}', "it") == {"it": 2}
    assert fields(str).parse(json.dumps({"it": "x" * 5_000_000}), "it") == {"it": "x" * 5_000_000}


# D12
@pytest.mark.parametrize("text", ["{}", '{"it": {"a": [1]}}'], ids=["by default", "as given"])
def test_each_parse_gives_objects_of_its_own(text: str) -> None:
    compiled = Fields([Parameter(name="it", annotation=dict[str, list[int]], default={"a": [1]})])
    first, second = (compiled.parse(text, "it") for _ in range(2))
    assert first == second == {"it": {"a": [1]}}
    assert first["it"] is not second["it"]


@pytest.mark.fuzz
@given(
    annotation=st.sampled_from([*ANNOTATIONS.values()]),
    text=st.text() | st.from_regex(r'\{"it": ?.*\}', fullmatch=True),
)
def test_any_text_is_parsed_or_refused(annotation: TypeForm[object], text: str) -> None:
    if accepts(fields(annotation), text):
        assert isinstance(json.loads(text or "{}"), dict)


def json_values() -> st.SearchStrategy[JsonValue]:
    numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    leaves: st.SearchStrategy[JsonValue] = st.none() | st.booleans() | numbers | st.text()
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@pytest.mark.fuzz
@given(annotation=st.sampled_from([*ANNOTATIONS.values()]), value=json_values())
def test_any_value_is_judged_as_pydantic_judges_it(annotation: TypeForm[object], value: JsonValue) -> None:
    text = json.dumps(value)
    assume(not re.search("nan|inf", text, re.IGNORECASE))
    expected = pydantic_accepts(TypeAdapter(annotation), text)
    assert accepts(fields(annotation), f'{{"it": {text}}}') == expected


class Corner(Enum):
    TOP = (0, 1)


class Read(Enum):
    TOP = (0, 1)

    @classmethod
    def _missing_(cls, value: object) -> Read:
        return cls.TOP


@pytest.mark.parametrize("form", [Corner, Literal[b"x"], dict[tuple[int, int], str], list[dict[frozenset[int], int]]])
def test_a_type_that_no_json_fits_is_refused_when_it_is_defined(form: Any) -> None:  # noqa: ANN401 - any type
    with pytest.raises(DefinitionError, match="cannot be described as JSON"):
        output_schema(form)


def test_a_type_that_is_made_of_other_json_is_taken() -> None:
    def corner(value: object) -> object:
        return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

    schema = output_schema(Annotated[Corner, BeforeValidator(corner)])
    assert schema.parse('{"value": [0, 1]}') is Corner.TOP
    assert output_schema(Read).parse('{"value": [0, 1]}') is Read.TOP
    assert output_schema(dict[date, int]).parse('{"2026-01-02": 1}') == {date(2026, 1, 2): 1}


def n_calls(work: Callable[[], object]) -> int:
    """Count the calls of functions that are written in Python."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_equal_definitions_are_compiled_once_and_have_schemas_of_their_own() -> None:
    model = create_model("Fresh", city=(str, ...), days=(int, 3))
    parameters = [Parameter(name="place", annotation=model), Parameter(name="n", annotation=int, default=1)]
    for make in (lambda: Fields(parameters), lambda: output_schema(model)):
        first, second = n_calls(make), n_calls(make)
        assert second < first / 3
        one, other = make(), make()
        assert one.input_schema == other.input_schema
        one.input_schema.clear()
        assert other.input_schema
        assert make().input_schema == other.input_schema


def test_types_and_defaults_that_only_count_as_equal_are_told_apart() -> None:
    pairs: list[list[TypeForm[object]]] = [[dict[str, int | str], dict[str, str | int]]]
    for pair in [*pairs, [dict[str, Literal[1]], dict[str, Literal[True]]]]:
        one, other = [json.dumps(output_schema(each).input_schema) for each in pair]
        assert one != other
        assert json.dumps(output_schema(pair[0]).input_schema) == one
    for default in (1, True, 1.0, 1):
        [given] = Fields([Parameter(name="n", annotation=object, default=default)]).parse("{}", "it").values()
        assert type(given) is type(default)
