"""What wrong arguments cost: no more than right ones, whatever their type and their size."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from operator import attrgetter
from pathlib import Path
from sys import hash_info
from typing import Annotated, Literal, NamedTuple, Never, Union, cast
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    TypeAdapter,
    ValidationError,
    create_model,
)
from typing_extensions import TypedDict, TypeForm

from benchmarks import checks
from benchmarks.checks import ONE_OF_TWENTY, All, Any, Binary, Closed, Firm, Level, Not, Person, Point, Product, nested
from journeyman import Agent, Output, Subagents, Success, ToolContext, run, tool
from journeyman.durable import Durable
from journeyman.errors import InvalidArguments
from journeyman.events.json_form import plain
from journeyman.mcp_server.server import served_tool
from journeyman.serve.bodies import input_of_body
from journeyman.subagents.delegation import input_of_task
from journeyman.testing import FunctionModel, ScriptedModel
from journeyman.testing.scripted import call
from journeyman.tools.collection import do_aside
from journeyman.tools.schema import CheckedValue, Fields, Parameter, output_schema
from tests.support.shares import thinned
from tests.support.stopwatch import STALL_S, longest_stall
from tests.tools.test_schema import ANNOTATIONS, VALUES, Frozen

MANY = 2_100  # more than so few that each error is kept
many = partial(checks.many, size=200_000)
TOO_FAR = "it does not fit, and is too long to say where: look for unknown names, or send less at a time"


class Chosen(TypedDict):
    here: Annotated[int, AfterValidator(abs)]
    there: Annotated[list[All | int], Field(max_length=3)]


class Queued(BaseModel):
    all: deque[Queued | Renamed | NamedHolder | str]


class NamedHolder(NamedTuple):
    all: list[Queued | NamedHolder | str]
    why: OrderedDict[str, int] | None = None


class LookedAt(BaseModel):
    all: list[list[int]]

    def model_post_init(self, context: object) -> None:
        if not all(isinstance(each, list) for each in cast("list[object]", self.all)):
            raise ValueError("what was made is missing")


class Renamed(BaseModel):
    terms: list[Renamed | All | str] = Field([], validation_alias=AliasChoices("t", AliasPath("in", "t")))


Wide = create_model(
    "Wide", **cast("dict[str, Never]", {f"f{n}": (int, ...) for n in range(40)}), rows=(list[dict[str, int]], ...)
)


def issues(check: Callable[[], object]) -> tuple[str, ...]:
    with pytest.raises(InvalidArguments) as caught:
        check()
    return tuple(caught.value.issues)


def binary(depth: int, value: str) -> str:
    below = binary(depth - 1, value) if depth else "null"
    return f'{{"value": {value}, "left": {below}, "right": {below}}}'


MANY_OF_TWENTY = cast("TypeForm[object]", list.__class_getitem__(ONE_OF_TWENTY))
HUNDREDS = cast("TypeForm[object]", list.__class_getitem__(Enum("Hundreds", {f"m{n}": f"v{n}" for n in range(900)})))


def named(item: str, size: int = 200_000) -> str:
    return "{" + ",".join([f'"n{n}":{item}' for n in range(size // (len(item) + 8))]) + "}"


# each of these took very long, or very much memory, for its size
COSTLY: dict[str, tuple[TypeForm[object], str]] = {
    "a union of what holds it": (All, nested(60, "1")),
    "a union in deques and named tuples": (Queued, nested(40, "1")),
    "as a text that holds JSON": (Json[All], json.dumps(nested(60, "1"))),
    "a long text in it": (Queued, nested(9, f'"{"x" * 500_000}", 1')),
}


@pytest.mark.parametrize(("annotation", "written"), COSTLY.values(), ids=COSTLY)
def test_what_would_cost_much_is_refused(annotation: TypeForm[object], written: str) -> None:
    [told] = issues(lambda: Fields([Parameter(name="it", annotation=annotation)]).parse(f'{{"it": {written}}}', "it"))
    assert told.startswith("checking them by their types would take too long")


@dataclass
class Degrees(float):
    value: float


def refuse(value: object) -> object:
    raise ValueError("should be something else")


OF_ONE_HASH = [n * hash_info.modulus for n in range(1, 9_000)]


class TwoNumbers(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int
    b: int


class Marked(BaseModel):
    mark: int
    numbers: set[int]


def pairs_of_one_hash() -> list[tuple[int, int]]:
    """Return pairs of other numbers, which have other hashes: of the tuple of each, the hash is the same."""
    first, second, start, size = 11400714785074694791, 14029467366897019727, 2870177450012600261, 1 << 64

    def mix(number: int) -> int:
        mixed = (start + number * second) % size
        return (mixed << 31 | mixed >> 33) * first % size

    tails = [(n, (mix(0) - mix(n)) * pow(second, -1, size) % size) for n in range(1, 40_000)]
    signed = [(n, tail - size if tail >= size // 2 else tail) for n, tail in tails]
    return [(n, tail) for n, tail in signed if abs(tail) < hash_info.modulus][:9_000]


PAIRS = pairs_of_one_hash()
# of a size at which a fault takes several times as long as it may
HOSTILE: dict[str, tuple[TypeForm[object], str]] = {
    "a flat union": (list[int | bool | None], many("1.5")),
    "models that do not fit": (list[Person | Firm | Level | Point], many('{"z":1}')),
    "a recursive union around much": (All | Any | Not | str, nested(40, ",".join(['"x"'] * 5_000) + ",1", "any")),
    "wrong keys": (dict[int, int], named("1")),
    "40 missing names": (Wide, '{"rows":' + many('{"a":1}') + "}"),
    "unknown tags": (list[Annotated[Person | Firm, Field(discriminator="kind")]], many('{"kind":"x"}')),
    **{str(kind): (kind, many('"x"')) for kind in (set[int], tuple[int, ...], deque[int])},
    **{str(kind): (kind, named('"x"')) for kind in (dict[str, int], OrderedDict[str, int], Counter[str])},
    "named tuples": (list[NamedHolder], many('{"z":1}')),
    "a validator behind": (list[Annotated[int, AfterValidator(refuse)]], many("1")),
    "JSON in a text": (Json[list[int]], json.dumps(many('"x"'))),
    "a type that holds itself, in a text": (Json[Level], json.dumps(f'{{"items":{many("[]")}}}')),
    "a list with numbers, deep": (Level, nested(80, "1," * 200_000 + '"x"', "items")),
    "a recursive union, many": (list[All | Any | Not | str], many('{"all":[1]}', size=150_000)),
    "other numbers in a set": (set[int], f'[{",".join(map(str, range(140_000)))},"x"]'),
    "nulls that may stand": (Binary, binary(13, '""')),
    "nulls that may not be absent": (list[Product], many('{"number":null,"size":null}', size=100_000)),
    "nulls that are absent": (list[Product], many('{"number":1,"size":null}', size=50_000)[:-1] + ",{}]"),
    "one long text": (int, json.dumps("9" * 1_000_000 + "x")),
    "numbers of one hash": (set[int], f"[{','.join(map(str, OF_ONE_HASH))}]"),
    "keys of one hash": (dict[int, int], json.dumps(dict.fromkeys(map(str, OF_ONE_HASH), 1))),
    "keys of one hash in a counter": (Counter[int], json.dumps(dict.fromkeys(map(str, OF_ONE_HASH), 1))),
    "ids of one hash": (list[frozenset[UUID]], json.dumps([[str(UUID(int=each)) for each in OF_ONE_HASH[:5_000]]])),
    "decimals of one hash": (set[Decimal], json.dumps([f"{pow(10, -n, hash_info.modulus)}e{n}" for n in range(8_000)])),
    "tuples of one hash": (set[tuple[int, int]], json.dumps(PAIRS)),
    "models of one hash": (set[TwoNumbers], json.dumps([{"a": a, "b": b} for a, b in PAIRS])),
    "few of one hash, very often": (set[int], json.dumps([*OF_ONE_HASH[:499], *OF_ONE_HASH[498:499] * 30_000])),
    "numbers of one hash behind a fault": (Marked, json.dumps({"mark": "x", "numbers": OF_ONE_HASH})),
    "twenty models around much": (ONE_OF_TWENTY, '{"x":' + many("1")[:-1] + ',"x"]}'),
    "twenty models of many": (MANY_OF_TWENTY, many('{"f3":1,"x":["x"]}')),
}


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize(("annotation", "written"), HOSTILE.values(), ids=HOSTILE)
async def test_no_wrong_value_stalls_the_loop(annotation: TypeForm[object], written: str) -> None:
    fields, output = Fields([Parameter(name="it", annotation=annotation)]), output_schema(annotation)
    as_output = f'{{"value": {written}}}' if output.is_wrapped else written
    value = json.loads(written)
    checks: list[Callable[[], object]] = [
        lambda: fields.parse(f'{{"it": {written}}}', "it"),
        lambda: output.parse(as_output),
        lambda: output.check(value),
    ]
    for check in checks:
        assert len(issues(check)) < 50  # the first time, validators are made
        assert await longest_stall(lambda check=check: issues(check)) < STALL_S


def test_values_that_are_equal_few_or_only_large_are_taken_as_they_are_also_into_sets_and_as_keys() -> None:
    assert (len({*PAIRS}), len({hash(each) for each in PAIRS})) == (9_000, 1)  # these are not
    large = {2**61 + n for n in range(3_000)}
    assert output_schema(set[int]).parse(json.dumps({"value": [*large]})) == large
    assert output_schema(dict[int, int]).check(dict.fromkeys(large, 1)) == dict.fromkeys(large, 1)
    equal, powers = [2**62] * 50_000, {2**n for n in range(1_000)}
    assert output_schema(set[int]).parse(json.dumps({"value": [*equal, *powers]})) == powers
    assert len(output_schema(frozenset[TwoNumbers]).parse(json.dumps({"value": [{"a": 1, "b": 2}] * 5_000}))) == 1
    assert "[1]" in issues(lambda: output_schema(set[Fraction]).check(["1/2", "x"]))[0]
    # An object that is a number, too, stays what it is.
    assert isinstance(output_schema(list[Degrees | float | str]).check([Degrees(1)] * MANY)[0], Degrees)


def test_a_field_may_be_called_as_what_schemas_are_made_of() -> None:
    class FieldsOfSchemas(TypedDict):
        type: int
        keys_schema: int
        cls: int

    given = {"type": 1, "keys_schema": 2, "cls": 3}
    assert output_schema(FieldsOfSchemas).parse(json.dumps(given)) == given


def test_values_that_are_told_together_are_told_as_each_alone() -> None:
    every = (Closed(), Point(1), Decimal("1.5"), date(2026, 1, 1), UUID(int=1), b"x", b"\xff", deque([1]))
    assert [plain([each] * 3) for each in every] == [[plain(each)] * 3 for each in every]
    assert plain([Closed(), b"\xff"]) == [plain(Closed()), plain(b"\xff")]


def test_what_is_wrong_far_behind_is_told_only_where_it_is_cheap_to_look_for() -> None:
    flat, far = output_schema(list[int]), json.dumps({"value": [1] * 50_000 + ["x"]})
    assert "[50000]" in issues(lambda: flat.parse(far))[0]
    holder = output_schema(All)
    near, far = (json.dumps({"all": ["x"] * n + [1]}) for n in (5_000, 100_000))
    assert "all[5000]" in issues(lambda: holder.parse(near))[0]
    assert "too long to say where" in issues(lambda: holder.parse(far))[0]
    deep = json.dumps({"value": [{"value": 1, "left": {"value": 2}}] * 20_000 + [1]})
    assert "too long to say where" in issues(lambda: output_schema(list[Binary]).parse(deep))[0]
    pairs = output_schema(list[tuple[int, str]])
    for n in range(12):  # nothing is told of the list in which the text is cut off
        written = json.dumps({"value": [[1, "x" * n], *[[1, "a"]] * 60_000, ["x"]]})
        assert issues(lambda written=written: pairs.parse(written)) == (TOO_FAR,)
    # Strict types have other rules for JSON than for what is made of it.
    strict = json.dumps({"value": [{"count": "1"}] * MANY})
    assert issues(lambda: output_schema(list[Frozen]).parse(strict)) == (TOO_FAR,)


RIGHT: dict[str, tuple[TypeForm[object], str]] = {
    "a recursive union, deep and long": (All | Any | Not | str, nested(40, many('"x"', size=1_000_000)[1:-1], "any")),
    "a recursive union, deep": (All | Any, nested(60, f'"{"x" * 1_000_000}"', "any")),
}


@pytest.mark.parametrize(("annotation", "written"), RIGHT.values(), ids=RIGHT)
def test_a_megabyte_that_is_right_is_taken(annotation: TypeForm[object], written: str) -> None:
    taken = Fields([Parameter(name="it", annotation=annotation)]).parse(f'{{"it": {written}}}', "it")
    is_the_same = taken == {"it": TypeAdapter(annotation).validate_json(written)}
    assert is_the_same  # not compared in the assertion, which would explain the difference for minutes


async def test_a_megabyte_of_input_is_checked_beside_the_loop() -> None:
    agent, rows = Agent(name="a", model=ScriptedModel([]), input=Report), many('{"number":1}', size=1_000_000)
    written = f'{{"rows": {rows}, "total": 1}}'
    value = json.loads(written)
    checks: list[Callable[[], Awaitable[object]]] = [
        lambda: input_of_body(agent, {"input": value}),
        lambda: served_tool(agent).parse(value),
        lambda: input_of_task(agent, written),
    ]
    for check in checks:
        assert isinstance(await check(), CheckedValue)  # the first time, validators are made
        assert await longest_stall(check) < STALL_S


async def test_a_run_on_what_is_large_and_to_what_is_large_leaves_the_loop_to_others(tmp_path: Path) -> None:
    plain = {"rows": [{"number": 1, "size": 0.5}] * 20_000, "total": 1}
    report, written = Report.model_validate(plain), call("output", plain)
    agent = Agent(
        name="a",
        model=FunctionModel(lambda _: written),
        input=Report,
        prompt=lambda _: "Copy it.",
        output=Output(Report, validators=[lambda copy: None]),
    )
    async with Durable(tmp_path / "runs.sqlite") as durable:
        works: list[Callable[[], Awaitable[object]]] = [
            lambda: run(agent, report, on_event=lambda event: None),
            lambda: run(agent, cast("Report", plain)),
            lambda: durable.run(agent, report),
            lambda: Subagents(agent).run("a", report),
        ]
        for work in works:
            assert isinstance(await work(), Success)
            assert await longest_stall(work) < STALL_S


async def test_checks_side_by_side_are_told_the_same_faults() -> None:
    fields = Fields([Parameter(name="it", annotation=Closed)])
    written = json.dumps({"it": {f"n{n}": 1 for n in range(20_000)}})
    checks = [do_aside(written, lambda text: issues(lambda: fields.parse(text, "it"))) for _ in range(16)]
    assert {len(each) for each in await asyncio.gather(*checks)} == {21}


async def test_what_a_model_wrote_at_length_is_checked_in_a_thread_with_the_context_of_its_run_between_turns() -> None:
    seen, place, heard, n = list[tuple[bool, str]](), ContextVar("place", default=""), dict[str, int](), Counter[str]()

    def note(rows: list[list[int]]) -> list[list[int]]:
        seen.append((threading.current_thread() is threading.main_thread(), place.get()))
        return rows

    class Noted(BaseModel):
        rows: Annotated[list[list[int]], AfterValidator(note)]

        def __deepcopy__(self, _: object = None) -> Noted:
            note([])
            return Noted.model_construct(rows=self.rows)

    @tool
    async def add(context: ToolContext[object, Noted], noted: Noted) -> int:
        """Add rows."""
        return len(noted.rows + context.input.rows)

    def count_turn() -> None:
        n["turns"] += 1
        asyncio.get_running_loop().call_soon(count_turn)

    def hear(event: object, *_: object) -> None:
        n["looks"] += event == "start"  # at garbage: of this many lists, each few hundred
        heard.update({f"{type(event).__name__} {name}": n[name] for name in n})

    place.set("here")
    gc.callbacks.append(hear)
    before, _ = gc.get_threshold(), gc.set_threshold(700)
    count_turn()
    for size, is_on_loop in ((3, True), (20_000, False)):
        rows = {"rows": [[1]] * size}
        model = ScriptedModel([call("add", {"noted": rows}), call("output", rows)])
        agent = Agent(name="adder", model=model, tools=[add], input=Noted, prompt=lambda _: "Go.", output=Output(Noted))
        given = Noted.model_validate(rows)
        seen.clear()
        assert isinstance(await run(agent, given, on_event=hear), Success)
        assert seen == [(is_on_loop, "here")] * 6  # two checks, and the copies for run, prompt, tool and listener
        read, called = heard["ModelResponded turns"], heard["ToolCalled turns"]
        assert (called - read >= 3, heard["LayerCompleted turns"] - called >= 3) == (not is_on_loop,) * 2
        assert heard["ToolCalled looks"] - heard["IterationStarted looks"] <= 2
    gc.callbacks.remove(hear)
    gc.set_threshold(*before)


def test_faults_of_python_values_are_dropped_before_they_are_worded() -> None:
    assert "too long" in issues(lambda: output_schema(All).check(json.loads(nested(60, "1"))))[0]
    more = "there may be more: of a long value, only the first faults are told"
    assert issues(lambda: output_schema(list[str]).check([1] * 500_000)) == (
        "[0]: should be a valid string, got 1",
        more,
    )
    told = issues(lambda: output_schema(Json[list[int]]).check(many('"x"')))
    assert told == ('[0]: should be a valid integer, got "x"', more)
    assert issues(lambda: output_schema(HUNDREDS).check(["x"] * 1_000))[1:] == (more,)
    assert len(issues(lambda: output_schema(HUNDREDS).check(["x"] * 100))) == 100


class Report(BaseModel):
    rows: list[Product]
    total: int


@settings(max_examples=12)
@given(st.integers(0, 30), st.sampled_from(["[3].number", "[4999].number", "total"]))
def test_of_a_long_text_no_fault_is_told_that_only_its_beginning_has(shift: int, wrong: str) -> None:
    # Wherever the text is cut off to look for faults, what is complete in it is right, and `total` is behind it.
    rows = [{"name": "x" * shift, "number": 1}, *[{"name": "a", "number": n} for n in range(4_999)]]
    report: dict[str, object] = {"rows": rows, "total": 1}
    if wrong == "total":
        report["total"] = "x"
    else:
        rows[int(wrong[1:].partition("]")[0])]["number"] = "x"
    found = issues(lambda: output_schema(Report).parse(json.dumps(report)))
    assert "[3]" in found[0] if wrong == "[3].number" else "too long to say where" in found[0]


def test_nulls_that_count_as_absent_are_taken_out_of_many_objects() -> None:
    schema = Fields([Parameter(name="it", annotation=list[Closed])])
    arguments = schema.parse(json.dumps({"it": [{"number": None}] * MANY}), "it")
    assert arguments == {"it": [Closed()] * MANY}


TYPES: dict[str, TypeForm[object]] = {
    **ANNOTATIONS,
    **{"closed": Closed, "binary": Binary, "typed dict": Chosen, "renamed": Renamed, "self": All | Any | Not},
    "json": Json[Binary],
    "a model or a word": Closed | Literal["x"],
    "a model or numbers by name": All | dict[str, int],
    "a model, a list, or scalars": list[Closed | int | list[All | float | None] | str] | Binary | bool | None,
    "sets of numbers": dict[str, set[int] | frozenset[str] | list[int | dict[str, int] | str]],
    **{"queued": Queued, "named": NamedHolder, "counter": Counter[str], "ordered": OrderedDict[str, NamedHolder]},
    "at least one": Annotated[list[int], Field(min_length=1)],
    "two numbers": Annotated[set[Decimal], Field(min_length=2)] | Annotated[dict[Decimal, int], Field(min_length=2)],
    "looked at": LookedAt,
}
MORE = (
    *('{"number": null}', '{"number": 1, "n": 2}', '{"value": 1}', '{"value": 1, "left": {"value": ""}}'),
    *('{"here": 1}', '{"here": -1, "there": [1, {"all": []}]}', '{"here": 1, "there": [1, 2, 3, 4]}'),
    *('{"all": ["x", {"any": []}]}', '{"all": [{"all": [], "why": "x"}]}', '{"t": [{"in": {"t": ["x"]}}]}'),
    *('[["x", ["x", [["x"]]]]]', '[["x"], {"n": 1}]', '{"all": ["x", [[], {"n": "x"}]]}', '{"n": 3}'),
    *('{"n": "x", "n": 1}', '{"value": "", "value": 1}', '{"value": 1, "value": ""}', '{"all": [1], "all": ["x"]}'),
    *('"{\\"value\\": 1}"', '{"left": {"value": 1}, "value": 2}', '{"all": [{"all": [{"all": [1]}]}]}'),
    *('["1", "2"]', '{"1": 1, "2": 2}', '{"all": [[1], [2]]}'),
)


def told(make: Callable[[], object]) -> str:
    """Tell what a value becomes; nothing if it is refused."""
    try:
        return repr(make())
    except (InvalidArguments, ValidationError):
        return ""


def padded(annotation: TypeForm[object], n_lists: int = 0) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Return functions that tell what a value becomes in the company of very many others: of JSON, and of objects."""
    parts: dict[str, object] = {"beside": (list[int | list[int]], ...), "it": (annotation, ...)}
    schema = output_schema(create_model("Padded", **cast("dict[str, Never]", parts)))
    whole = f'{{"beside": [{",".join([*["0"] * MANY, *["[]"] * n_lists])}], "it": %s}}'
    it = attrgetter("it")
    return (
        lambda written: told(lambda: it(schema.parse(whole % written))),
        lambda written: told(lambda: it(schema.check(json.loads(whole % written)))),
    )


@pytest.mark.share(one_in=5)
@pytest.mark.parametrize(("number", "annotation"), [*enumerate(TYPES.values())], ids=TYPES)
def test_a_long_value_becomes_exactly_what_pydantic_makes_of_it(number: int, annotation: TypeForm[object]) -> None:
    adapter, none_of_json = TypeAdapter(annotation), {"1e400", '"NaN"', '"Infinity"'}
    for n_lists, values in ((0, (*VALUES, *MORE)), (40_000, thinned(MORE[-9:], 3, first=number))):
        parse, check = padded(annotation, n_lists)
        for written in values:
            expected = told(lambda written=written: adapter.validate_json(written))
            assert parse(written) == expected or written in none_of_json
            assert check(written) == told(lambda written=written: adapter.validate_python(json.loads(written)))


def trees() -> st.SearchStrategy[object]:
    holders = st.sampled_from(["all", "any", "why", "value", "left", "number", "t"])
    return st.recursive(
        st.none() | st.integers(-1, 1) | st.text(max_size=1),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(holders, inner | st.lists(inner), max_size=3),
        max_leaves=12,
    )


def types() -> st.SearchStrategy[TypeForm[object]]:
    """Return types made of others: of those that hold themselves, of models, of scalars."""
    models: list[object] = [All, Any, Not, Binary, Closed, Renamed, Chosen, Point, Product, NamedHolder, Queued]
    scalars: list[object] = [int, str, float, bool, None, Literal["x", 1], Decimal, date, bytes]

    def holders(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        several = st.lists(inner, min_size=2, max_size=4).map(lambda every: Union[tuple(every)])  # noqa: UP007 - of a list
        return several | inner.map(list.__class_getitem__) | inner.map(lambda each: dict.__class_getitem__((str, each)))

    made = st.recursive(st.sampled_from([*models, *scalars]), holders, max_leaves=5)
    return cast("st.SearchStrategy[TypeForm[object]]", made)


@pytest.mark.fuzz
@given(annotation=types(), tree=trees())
def test_any_tree_becomes_what_pydantic_makes_of_it_long_or_short(annotation: TypeForm[object], tree: object) -> None:
    written = json.dumps(tree)
    assert padded(annotation)[0](written) == told(lambda: TypeAdapter(annotation).validate_json(written))
