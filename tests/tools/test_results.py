"""What the model reads of a call: any value, any error, always something, never a traceback."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, TypeAdapter, ValidationError

from journeyman.errors import InvalidArguments, Rejected
from journeyman.tools.results import error_result, to_result
from journeyman.tools.tools import canonical
from journeyman.types import Audio, Base64, Document, Image, Text, ToolResult, Url
from tests.support.naming import steady_repr

PICTURE = Image(Base64("aGk=", "image/png"))
PAPER = Document(Url("https://example.com/a.pdf"))


class Color(Enum):
    RED = "red"


class Word(str, Enum):  # noqa: UP042  as users write it
    GO = "go"


class Level(IntEnum):
    HIGH = 2


class Account(BaseModel):
    name: str
    balance: Decimal = Decimal("1.10")
    password: SecretStr = SecretStr("hunter2")
    notes: str = Field(default="", exclude=True)


@dataclass
class Point:
    x: float
    y: float


class Pair(NamedTuple):
    left: int
    right: str


class Foreign:
    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


class Broken:
    def __str__(self) -> str:
        raise ZeroDivisionError("no text")


# R21, A18, D42: text is not quoted
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        ("  indented\n", "  indented\n"),
        ('{"a": 1}', '{"a": 1}'),
        (Word.GO, "go"),
        (0, "0"),
        (-1.5, "-1.5"),
        ('"quoted"', '"quoted"'),
        ("größe 名 💥", "größe 名 💥"),
        (10**30, "1" + "0" * 30),
        (True, "true"),
        (False, "false"),
        ([], "[]"),
        ({}, "{}"),
        ((), "[]"),
        (set[int](), "[]"),
        ([1, "a", None, True], '[1,"a",null,true]'),
        ({"é": "日本", "n": {"m": [1]}}, '{"é":"日本","n":{"m":[1]}}'),
        ({1: "a", None: 2, (1, 2): 3}, '{"1":"a","None":2,"1,2":3}'),
        ({"b", "a", "c"}, '["a","b","c"]'),
        (frozenset({10, 9}), "[9,10]"),
        ({1, "a"}, '["a",1]'),
        (Pair(1, "x"), '[1,"x"]'),
        (Point(1.0, 2.5), '{"x":1.0,"y":2.5}'),
        ([Point(0, 0)], '[{"x":0,"y":0}]'),
        (Point(1, cast("Any", Point(2, cast("Any", None)))), '{"x":1,"y":{"x":2,"y":null}}'),
        ({"rows": map(str, [1])}, '{"rows":["1"]}'),
        (Account(name="Ann"), '{"name":"Ann","balance":"1.10","password":"**********"}'),
        (Color.RED, "red"),
        (Level.HIGH, "2"),
        ([Color.RED, Level.HIGH, Word.GO], '["red",2,"go"]'),
        (datetime(2024, 2, 29, 12, tzinfo=timezone.utc), "2024-02-29T12:00:00Z"),  # noqa: UP017
        (date(2024, 2, 29), "2024-02-29"),
        (timedelta(days=1, seconds=3), "P1DT3S"),
        (Decimal("1.10"), "1.10"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("/a/b"), "/a/b"),
        (b"bytes", "bytes"),
        (bytearray(b"bytes"), "bytes"),
        (b"\xff\xfe", "__4="),
        ({"raw": b"\xff\xfe"}, '{"raw":"__4="}'),
        (float("nan"), "NaN"),
        ({"a": float("inf"), "b": [float("-inf")]}, '{"a":"Infinity","b":["-Infinity"]}'),
        (Foreign("a stranger"), "a stranger"),
        ([Foreign("a stranger"), 1], '["a stranger",1]'),
        (ValueError("as a value"), "as a value"),
        (complex(1, 2), "1+2j"),
    ],
    ids=steady_repr,
)
def test_a_value_becomes_text_or_json(value: object, text: str) -> None:
    assert to_result(value) == ToolResult(text)


# A18, D7, M4: a result always has content
@pytest.mark.parametrize(
    "value",
    [
        *(None, "", " \n\t", Foreign(""), b""),
        *(ToolResult(""), ToolResult("  "), ToolResult(()), ToolResult((Text(" "),)), Text("")),
    ],
    ids=steady_repr,
)
def test_nothing_becomes_a_word_for_it(value: object) -> None:
    assert to_result(value) == ToolResult("(no output)")
    assert to_result(ToolResult("", is_error=True)) == ToolResult("(no output)", is_error=True)  # still an error


# A18
@pytest.mark.parametrize(
    ("value", "content"),
    [
        (PICTURE, (PICTURE,)),
        (PAPER, (PAPER,)),
        (Text("a"), (Text("a"),)),
        ([Text("a"), PICTURE, PAPER], (Text("a"), PICTURE, PAPER)),
        (("a", PICTURE), (Text("a"), PICTURE)),
        ([Text(""), PICTURE, " "], (PICTURE,)),
        (ToolResult((Text(" "), PICTURE)), (PICTURE,)),
    ],
    ids=steady_repr,
)
def test_blocks_stay_blocks_without_the_blank_ones(value: object, content: tuple[object, ...]) -> None:
    assert to_result(value).content == content


@dataclass
class Shot:
    picture: Image
    width: int = 1


class Shown(BaseModel):
    shots: dict[str, list[Shot]]
    paper: Document | None = None


NOTE = "[image 1, which follows]"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([PICTURE, {"width": 1}], [NOTE, {"width": 1}]),
        ({"picture": PICTURE, "width": 1}, {"picture": NOTE, "width": 1}),
        ({"all": [[PICTURE]], "tags": {"b", "a"}}, {"all": [[NOTE]], "tags": ["a", "b"]}),
        (Shot(PICTURE), {"picture": {"source": {"url": NOTE, "type": "url"}, "type": "image"}, "width": 1}),
    ],
    ids=["in a list", "in a dict", "deep, beside a set", "in a dataclass"],
)
def test_a_picture_beside_data_is_a_picture(value: object, shown: object) -> None:
    content = to_result(value).content
    assert isinstance(content, tuple)
    assert content[1:] == (PICTURE,)
    assert isinstance(content[0], Text)
    told = json.loads(content[0].text, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if v is not None})
    assert told == shown


def test_every_file_of_a_model_is_sent_and_none_of_its_base64_is_text() -> None:
    value = Shown(shots={"a": [Shot(PICTURE), Shot(PICTURE, 2)]}, paper=PAPER)
    content = to_result(value).content
    assert isinstance(content, tuple)
    assert content[1:] == (PICTURE, PICTURE, PAPER)
    assert isinstance(content[0], Text)
    assert "aGk=" not in content[0].text
    assert "[document 3, which follows]" in content[0].text
    assert value.shots["a"][0].picture is PICTURE
    sound = to_result({"sound": Audio(Base64("aGk=", "audio/mpeg"))}).content
    assert isinstance(sound, str)
    assert "aGk=" not in sound


class Tagged(BaseModel):
    tags: set[str]
    groups: frozenset[frozenset[str]] = frozenset()


_ORDERED_PROGRAM = """
from tests.tools.test_results import Tagged, to_result
words = {f"w{n}" for n in range(30)}
tagged = Tagged(tags=words, groups=frozenset([frozenset(["a"]), frozenset(["b", "c"])]))
mixed = [{frozenset(["a", "b"]), frozenset(["c"])}, {("b", 1), ("a", 2)}, {1, "a", None}]
print([to_result(each).text for each in ({"tags": words}, [words, {"x": frozenset(words)}], tagged, *mixed)])
"""


def test_sets_inside_read_the_same_in_each_process() -> None:
    command = [sys.executable, "-c", _ORDERED_PROGRAM]
    told = [subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": seed}) for seed in "12"]
    assert told[0] == told[1] != b""


def test_a_picture_is_shown_by_its_size() -> None:
    picture = Image(Base64("QUJD" * 1_000, "image/png"))
    assert "3,000 bytes, sha256" in repr(picture)
    assert len(repr(picture)) < 200
    assert repr(picture) != repr(Image(Base64("QUJE" * 1_000, "image/png")))


def test_a_result_belongs_to_its_call_and_an_explicit_one_stays_as_it_is() -> None:
    explicit = ToolResult("no such city", is_error=True)
    for value in (1, "text", [1], None, PICTURE, explicit):
        assert to_result(value, tool_use_id="a").tool_use_id == "a"
    assert to_result(explicit) == explicit


# A18, D7
async def test_what_has_no_value_yet_is_an_error_that_says_so() -> None:
    async def later() -> int:
        return 1

    async def items() -> AsyncIterator[int]:
        yield 1

    def numbers() -> Iterator[int]:
        yield 1

    for value in (later(), items(), numbers(), map(str, [1]), iter([1]), zip([1], [2], strict=True)):
        with pytest.raises(TypeError, match=r"has no value yet\. Await it, or collect its items in a list\."):
            to_result(value)
    for value in ([later()], {"a": later()}, (items(),)):
        with pytest.raises(ValueError, match="has no value yet"):
            to_result(value)


# D25
def test_what_contains_itself_is_too_deep_or_breaks_when_it_is_shown_is_an_error() -> None:
    loop: list[object] = []
    loop.append(loop)
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    for value in (loop, {"a": loop}, deep):
        with pytest.raises(ValueError, match=r"^The result cannot be written as JSON: "):
            to_result(value)
    for value in (Broken(), [Broken()]):
        with pytest.raises(Exception, match="no text"):
            to_result(value)


def test_a_result_can_always_be_sent_as_utf_8() -> None:
    for value in ("\udcffname", ["\udcffname"], {"\udcff": 1}, Text("\udcffname"), ToolResult("\udcffname")):
        result = to_result(value)
        assert "\ufffd" in result.text
        result.text.encode()
    assert to_result("\ud83d\ude00").content == "😀"


# A19
@pytest.mark.parametrize(
    ("value", "max_chars", "text"),
    [
        ("é" * 5_000, 1_000, "é" * 1_000 + "\n[Cut: the first 1,000 of 5,000 characters.]"),
        ([1] * 10, 5, "[1,1,\n[Cut: the first 5 of 21 characters.]"),
        pytest.param("x" * 10, 10, "x" * 10, id="a result of just the right length is left alone"),
        pytest.param("😀😀😀", 2, "😀😀\n[Cut: the first 2 of 3 characters.]", id="the cut is between characters"),
    ],
)
def test_a_long_result_is_cut_and_says_how_long_it_was(value: object, max_chars: int, text: str) -> None:
    assert to_result(value, max_chars=max_chars) == ToolResult(text)


def test_the_texts_among_blocks_share_one_limit_and_pictures_are_kept() -> None:
    cut = to_result([Text("abcd"), PICTURE, Text("efgh"), Text("ijkl")], max_chars=6)
    assert cut.content == (
        Text("abcd"),
        PICTURE,
        Text("ef\n[Cut: the first 2 of 4 characters.]"),
        Text("\n[Cut: the first 0 of 4 characters.]"),
    )


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001  to have a traceback
        return caught


# R24, R49, A20, D31
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("the city is unknown"), "Error: the city is unknown"),
        (ValueError(""), "Error: ValueError"),
        (ValueError("  \n"), "Error: ValueError"),
        (TimeoutError(), "Error: TimeoutError"),
        (KeyError("city"), "Error: KeyError: 'city'"),
        (FileNotFoundError(2, "No such file", "a.txt"), "Error: [Errno 2] No such file: 'a.txt'"),
        (ValueError(Foreign("with a text")), "Error: with a text"),
        (ValueError(Broken()), "Error: ValueError"),
        (Rejected("Ask for a city, not a country."), "Ask for a city, not a country."),
        (Rejected(" "), "Rejected"),
        (KeyError(), "Error: KeyError"),
        (AssertionError(), "Error: AssertionError"),
        (OSError("\udcffname"), "Error: \ufffdname"),  # it can always be sent as UTF-8
        (
            InvalidArguments("arguments for tool 'it'", ["a: is required"]),
            "Error: Invalid arguments for tool 'it':\n- a: is required",
        ),
        (
            ExceptionGroup("two failed", [ValueError("one"), ExceptionGroup("inner", [KeyError("k"), OSError()])]),
            "Error: two failed\n- one\n- KeyError: 'k'\n- OSError",
        ),
    ],
    ids=steady_repr,
)
def test_an_error_is_its_message_and_no_traceback(error: Exception, text: str) -> None:
    assert error_result(raised(error)) == ToolResult(text, is_error=True)


def test_an_error_of_pydantic_is_a_list_of_issues_without_an_address() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(dict[str, int]).validate_python({"a": "x"})
    told = 'Error: dict[str,int] is invalid:\n- a: should be a valid integer, got "x"'
    assert error_result(caught.value).content == told


# A19, A20
def test_a_long_error_is_cut_and_a_large_group_shows_twenty_errors_and_counts_the_rest() -> None:
    result = error_result(ValueError("x" * 100_000))
    assert len(result.text) < 4_100
    assert result.text.endswith("\n[Cut: the first 4,000 of 100,007 characters.]")
    result = error_result(ExceptionGroup("many", [ValueError(str(number)) for number in range(1_000)]))
    assert result.text.count("\n") == 21
    assert result.text.endswith("\n- ValueError: 19\n- and 980 more")


@pytest.mark.fuzz
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.binary() | st.dates(),
        lambda inner: st.lists(inner) | st.sets(st.text()) | st.dictionaries(st.text() | st.integers(), inner),
    )
)
def test_any_data_becomes_a_text_that_can_be_sent(value: object) -> None:
    text = to_result(value).content
    assert isinstance(text, str)
    assert text.strip()
    text.encode()


# R75
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"b": 1, "a": [1, {"y": 1, "x": 2}]}, {"a": [1, {"x": 2, "y": 1}], "b": 1}),
        ({"a", "b", "c"}, {"c", "b", "a"}),
        (Point(1.0, 2.0), Point(1.0, 2.0)),
        (Account(name="a"), Account(name="a")),
        (datetime(2024, 1, 1), datetime(2024, 1, 1)),
    ],
    ids=steady_repr,
)
def test_equal_values_have_one_text(left: object, right: object) -> None:
    assert canonical(left) == canonical(right)


# R75: a result must never answer another question
def test_different_values_have_different_texts() -> None:
    values: list[object] = [
        *(None, 0, 1, 1.0, -1, True, False, "", "1", "true", "null", b"1", Decimal(1), Level.HIGH, Word.GO, "go"),
        *([], {}, set[int](), frozenset({1}), [1], ["1"], [[1]], {"a": 1}, {"a": None}, {1: "a"}, {"1": "a"}),
        *(date(2024, 1, 1), datetime(2024, 1, 1), "2024-01-01", Color.RED, "red", PurePosixPath("a"), "a"),
        *(Point(1, 2), {"x": 1, "y": 2}, Account(name="a"), Account(name="a", notes="hidden from others")),
        *(Account(name="a", password=SecretStr("other")), SecretStr("a"), SecretStr("b"), object(), object()),
        *('Point({"x":1,"y":2})', ["Color", "RED"]),
    ]
    texts = [canonical(value) for value in values]
    assert len(set(texts)) == len(values)


def test_plain_values_have_plain_json_as_their_text() -> None:
    assert canonical({"b": [1, 2.5, None, True], "a": "é"}) == '{"a":"é","b":[1,2.5,null,true]}'


def test_odd_text_beside_keys_that_are_no_text_is_json() -> None:
    value = {date(2026, 1, 2): "\udc80", (1, 2): [{UUID(int=1): b"\xff"}], None: {3: 4}}
    told = json.loads(to_result(value).text)
    assert set(told) == {"2026-01-02", "1,2", "None"}
    assert told["None"] == {"3": 4}
