"""The cost of a check of a megabyte of arguments, and of a run with such an input or output: the longest turn of the
loop, and memory, of the dearest shape.

A shape is a type and a text that is right, or wrong in one way. Each is tried in a process of its own, by the clock of
its CPU time, since a loaded machine makes walls longer; the best of several tries counts. `python -m benchmarks.checks`
lists each shape by itself.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, Never, Union, cast
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, Json, create_model
from typing_extensions import TypedDict, TypeForm

from benchmarks.measuring import Effort, Row, alone
from journeyman import Agent, Failure, Limits, Output, run
from journeyman.errors import InvalidArguments
from journeyman.testing import FunctionModel
from journeyman.tools.collection import do_aside
from journeyman.tools.schema import Fields, Parameter
from journeyman.types import ToolUse
from tests.support.stopwatch import longest_stall

_SIZE: Final = 1_000_000
_TRIES: Final = 3
_TARGET: Final = "≤ 50"
_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_STATUS: Final = Path("/proc/self/status")


class All(BaseModel):
    all: list[All | Any | Not | str]


class Any(BaseModel):
    any: list[All | Any | Not | str]


class Not(BaseModel):
    all: list[All | Any | Not | str]
    why: str = ""


class Level(BaseModel):
    items: list[Level | int]


class Binary(BaseModel):
    value: int
    left: Binary | None = None
    right: Binary | None = None


class Product(BaseModel):
    number: int
    name: str = ""
    size: float = 0


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int = 0
    name: str = ""


class Person(BaseModel):
    kind: Literal["person"]
    age: int


class Firm(BaseModel):
    kind: Literal["firm"]
    name: str


@dataclass
class Point:
    x: int
    y: int = 0


class _Place(TypedDict):
    x: int
    y: list[int]


class _Pair(NamedTuple):
    x: int
    y: str = ""


class _Colour(Enum):
    RED = "red"
    BLUE = "blue"


_Code = cast("TypeForm[object]", Enum("_Code", {f"M{n}": f"v{n}" for n in range(900)}))
_TWENTY: Final = [
    create_model(f"Model{n}", **cast("dict[str, Never]", {f"f{n}": (int, ...), "x": (list[int], [])}))
    for n in range(20)
]
ONE_OF_TWENTY: Final = cast("TypeForm[object]", Union[tuple(_TWENTY)])  # noqa: UP007 - of a list


class _Item(NamedTuple):
    """A type of the items of a list, with one that is right, and one that is wrong."""

    type: TypeForm[object]
    right: str
    wrong: str


_ITEMS: Final[dict[str, _Item]] = {
    "int": _Item(int, "1", '"x"'),
    "bounded int": _Item(Annotated[int, Field(ge=0, lt=9)], "1", "-1"),
    "float": _Item(float, "1.5", '"x"'),
    "Decimal": _Item(Decimal, "1.5", '"x"'),
    "long Decimal": _Item(Decimal, "0.12345678901234567890123", '"x"'),
    "bool": _Item(bool, "true", "2"),
    "str": _Item(str, '"a"', "1"),
    "patterned str": _Item(Annotated[str, Field(pattern="^[ab]+$")], '"ab"', '"c"'),
    "bytes": _Item(bytes, '"a"', "1"),
    "date": _Item(date, '"2026-01-01"', '"x"'),
    "datetime": _Item(datetime, '"2026-01-01T00:00:00Z"', '"x"'),
    "UUID": _Item(UUID, f'"{UUID(int=1)}"', '"x"'),
    "address": _Item(IPv4Address, '"10.0.0.1"', '"x"'),
    "Literal": _Item(Literal["a", "b"], '"a"', '"c"'),
    "Enum": _Item(_Colour, '"red"', '"x"'),
    "Enum of 900": _Item(_Code, '"v7"', '"x"'),
    "scalars": _Item(int | bool | None, "1", "1.5"),
    "number or text": _Item(int | float | str | None, "1.5", "[]"),
    "list": _Item(list[int], "[1]", '["x"]'),
    "lists": _Item(list[list[int]], "[[1]]", '[["x"]]'),
    "dict": _Item(dict[str, int], '{"a":1}', '{"a":"x"}'),
    "dict by number": _Item(dict[int, int], '{"1":1}', '{"x":1}'),
    "dicts": _Item(dict[str, dict[str, int]], '{"a":{"b":1}}', '{"a":{"b":"x"}}'),
    "tuple": _Item(tuple[int, str], '[1,"a"]', '["x"]'),
    "set": _Item(set[int], "[1,2]", '["x"]'),
    "frozenset": _Item(frozenset[str], '["a"]', "[1]"),
    "deque": _Item(deque[int], "[1]", '["x"]'),
    "Counter": _Item(Counter[str], '{"a":1}', '{"a":"x"}'),
    "model": _Item(Product, '{"number":1}', '{"number":"x"}'),
    "closed model": _Item(Closed, '{"number":1}', '{"number":"x"}'),
    "dataclass": _Item(Point, '{"x":1}', '{"x":"x"}'),
    "TypedDict": _Item(_Place, '{"x":1,"y":[1]}', '{"x":1,"y":["x"]}'),
    "NamedTuple": _Item(_Pair, '{"x":1}', '{"x":"x"}'),
    "models": _Item(Product | Person | Firm | None, '{"number":1}', '{"number":"x"}'),
    "tagged models": _Item(
        Annotated[Person | Firm, Field(discriminator="kind")],
        '{"kind":"person","age":1}',
        '{"kind":"person","age":"x"}',
    ),
    "twenty models": _Item(ONE_OF_TWENTY, '{"f3":1,"x":[1]}', '{"f3":1,"x":["x"]}'),
    "JSON in a text": _Item(Json[Product], json.dumps('{"number":1}'), json.dumps('{"number":"x"}')),
    "Level": _Item(Level | int, '{"items":[1]}', '{"items":["x"]}'),
    "Binary": _Item(Binary, '{"value":1,"left":{"value":2}}', '{"value":1,"left":{"value":"x"}}'),
    "recursive union": _Item(All | Any | Not | str, '{"all":["x"]}', '{"all":[1]}'),
}


class Shape(NamedTuple):
    """A type, and a text for it."""

    name: str
    type: TypeForm[object]
    text: str
    is_right: bool
    way: Literal["arguments", "input", "output"] = "arguments"


def many(item: str, *last: str, size: int = _SIZE) -> str:
    return f"[{','.join([*[item] * (size // (len(item) + 1)), *last])}]"


def nested(depth: int, leaf: str, name: str = "all") -> str:
    return f'{{"{name}":[' * depth + leaf + "]}" * depth


def _listed(item: _Item) -> dict[str, str]:
    """Return texts for a list of a type, each wrong in one way."""
    texts = {
        "wrong at the end": many(item.right, item.wrong),
        "wrong at first": f"[{item.wrong},{many(item.right)[1:]}",
        "wrong everywhere": many(item.wrong),
        "of another type": many('[{"a":[]}]'),
        "empty objects": many("{}", "[1]"),
        "deep": many("[" * 60 + "]" * 60, "0,false,[[0]]"),
        "an object": "{" + ",".join([f'"n{n}":{item.right}' for n in range(_SIZE // (len(item.right) + 9))]) + "}",
        "one long text": json.dumps("x" * _SIZE),
        "JSON in a text": json.dumps(many(item.right)),
    }
    if item.right.startswith("{"):
        texts["an unknown name"] = many(item.right, f'{{"z":1,{item.right[1:]}', "7.5")
        texts["unknown names"] = many(f'{{"z":1,{item.right[1:]}', "7.5")
        wide = ",".join([f'"n{n}":1' for n in range(_SIZE // 10)])
        texts["one wide object"] = f"[{{{wide}}},7.5]"
        texts["absent nulls"] = many(f'{item.right[:-1]},"name":null,"size":null,"y":null}}', "7.5")
    return texts


def _shapes() -> Iterator[Shape]:
    for name, item in _ITEMS.items():
        listed = cast("TypeForm[object]", list.__class_getitem__(item.type))
        yield Shape(f"{name}: right", listed, many(item.right), is_right=True)
        for how, text in _listed(item).items():
            yield Shape(f"{name}: {how}", listed, text, is_right=False)
        for way in ("input", "output"):
            yield Shape(f"{name}, as an {way}: right", listed, many(item.right), is_right=True, way=way)
            wrong = many(item.right, item.wrong)
            yield Shape(f"{name}, as an {way}: wrong at the end", listed, wrong, is_right=False, way=way)
    rows = cast("TypeForm[object]", list[Product])
    yield Shape("model: right, with absent nulls", rows, many('{"number":1,"size":null}'), is_right=True)
    unions: dict[str, tuple[TypeForm[object], TypeForm[object], str]] = {
        "recursive union": (All | Any | Not | str, Json[All | Any | Not | str], "any"),
        "level": (Level, Json[Level], "items"),
    }
    for name, (union, inside, key) in unions.items():
        leaf, wrong = ('"x"', "1") if key == "any" else ("1", '"x"')
        for depth in (1, 8, 40):
            within = many(leaf, size=_SIZE)[1:-1]
            yield Shape(f"{name}, {depth} deep: right", union, nested(depth, within, key), is_right=True)
            text = nested(depth, f"{within},{wrong}", key)
            yield Shape(f"{name}, {depth} deep: wrong", union, text, is_right=False)
            yield Shape(f"{name} in a text, {depth} deep: wrong", inside, json.dumps(text), is_right=False)
    tree = '{"value":1,"left":null,"right":null}'
    while len(tree) < _SIZE // 2:
        tree = f'{{"value":1,"left":{tree},"right":{tree}}}'
    yield Shape("binary tree: right", Binary, tree, is_right=True)
    yield Shape("binary tree: wrong", Binary, tree.replace("1", '"x"'), is_right=False)


class Cost(NamedTuple):
    """The cost of the check of one shape."""

    name: str
    turn_ms: float
    """The longest turn of the loop, in CPU time."""
    cpu_ms: float
    """CPU time of the whole check, in whichever thread."""
    peak_mb: float
    """Memory at its peak, beyond what the value takes that is returned."""
    is_right: bool
    """True when it was taken or refused as it should be."""


def measure(effort: Effort) -> list[Row]:
    """Measure the dearest of all shapes; of less effort, that of a few."""
    every = [*_shapes()]
    costs = costs_of(every[:: max(1, len(every) // effort.rounds(len(every)))])
    wrong = [each.name for each in costs if not each.is_right]
    if wrong:
        raise AssertionError(f"not taken or not refused, as they should be: {wrong}")
    return [
        _dearest(costs, lambda each: each.turn_ms, "longest turn of the loop", unit="ms CPU", target=_TARGET),
        _dearest(costs, lambda each: each.cpu_ms, "CPU in its thread", unit="ms CPU"),
        _dearest(costs, lambda each: each.peak_mb, "memory beyond the value", unit="MB", target=_TARGET),
    ]


def _dearest(costs: Sequence[Cost], figure: Callable[[Cost], float], what: str, *, unit: str, target: str = "") -> Row:
    dearest = max(costs, key=figure)
    return alone(f"a check of 1 MB, {what} ({dearest.name})", [figure(dearest)], unit=unit, target=target)


def costs_of(shapes: Sequence[Shape]) -> list[Cost]:
    """Return the costs of shapes, each measured in a process of its own."""
    costs: list[Cost] = []
    forking = get_context("fork")  # the text is there already
    for shape in shapes:
        here, there = forking.Pipe()
        process = forking.Process(target=_measure_here, args=(shape, there))
        process.start()
        costs.append(here.recv())
        process.join()
    return costs


def _taking(shape: Shape) -> Callable[[str], Awaitable[object]]:
    """Return a function that takes a text in the way of a shape. It raises an `InvalidArguments` if it does not fit,
    or returns the `Failure` of the run, which has what the model handed in as a value."""
    if shape.way == "arguments":
        fields = Fields([Parameter(name="it", annotation=shape.type)])
        return lambda text: do_aside(f'{{"it":{text}}}', lambda written: fields.parse(written, "arguments"))
    answers: list[ToolUse | str] = ["Done."]
    model = FunctionModel(lambda _: answers[-1])
    reader = Agent(name="a", model=model, input=cast("type[object]", shape.type))
    writer = Agent(name="a", model=model, output=Output(shape.type), limits=Limits(attempts=1))
    values: dict[str, object] = {}

    async def take(text: str) -> object:
        if shape.way == "output":
            answers.append(ToolUse("t", "output", f'{{"value":{text}}}'))
        elif text not in values:
            values[text] = json.loads(text)
        return await (run(writer, "Go.") if shape.way == "output" else run(reader, values[text]))

    return take


def _measure_here(shape: Shape, results: Connection) -> None:
    take, taken = _taking(shape), list[object]()

    async def check() -> None:
        with suppress(InvalidArguments):
            taken.append(await take(shape.text))

    def cpu_s() -> float:
        started = time.process_time()
        asyncio.run(check())
        return time.process_time() - started

    async def refuse() -> None:
        with suppress(InvalidArguments):
            await take("7.25")

    asyncio.run(refuse())  # the first time, validators are made
    gc.collect()
    gc.freeze()
    _CLEAR_REFS.write_text("5", encoding="ascii")  # the peak begins here
    before = _megabytes("VmRSS")
    cpu_s()
    peak, held = _megabytes("VmHWM"), _megabytes("VmRSS")
    cpu_s()
    value = _megabytes("VmRSS") - held if taken else 0  # a second one finds the memory that the first needed by the way
    is_right = len([each for each in taken if not isinstance(each, Failure)]) == 2 * shape.is_right
    taken.clear()
    cpu = min([cpu_s() for _ in range(_TRIES)])
    taken.clear()
    turn = min([asyncio.run(longest_stall(check)) for _ in range(_TRIES)])
    results.send(Cost(shape.name, turn * 1e3, cpu * 1e3, peak - before - value, is_right))


def _megabytes(name: str) -> float:
    line = next(line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


def main() -> int:
    """Print the cost of each shape whose name holds the first argument."""
    print("turn ms, CPU ms, MB, shape")
    for shape in _shapes():
        if "".join(sys.argv[1:2]) in shape.name:
            (cost,) = costs_of([shape])
            verdict = "" if cost.is_right else "WRONG VERDICT"
            print(f"{cost.turn_ms:7.1f} {cost.cpu_ms:7.1f} {cost.peak_mb:6.1f} {cost.name} {verdict}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
