"""A durable run works on the very input that it was given, and hands back the very output that was handed in."""

import json
import math
from collections.abc import Callable
from dataclasses import InitVar, dataclass, replace
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from uuid import UUID, uuid4

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    Json,
    PrivateAttr,
    SecretStr,
    computed_field,
    field_serializer,
    field_validator,
)
from typing_extensions import TypedDict

from journeyman import Agent, ErrorCode, Output, Runtime, Subagents, run
from journeyman.definition.json_numbers import LONG
from journeyman.durable import Durable, InMemoryEngine, Memory, Worker
from journeyman.errors import InvalidArguments
from journeyman.journal import InMemoryJournal
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call
from journeyman.tools.exact import store_value
from journeyman.tools.schema import output_schema
from tests.durable.processes import in_memory
from tests.durable.talks import talked
from tests.play import Door, existing, failed
from tests.serve.http_served import serving


class Renamed(BaseModel):
    name: str = Field(serialization_alias="fullName")


@dataclass
class Doubled:
    given: InitVar[int]
    number: int = 0

    def __post_init__(self, given: int) -> None:
        self.number = 2 * given


class Partial(BaseModel):
    name: str = Field(exclude=True)
    note: str = "none"


class Computed(BaseModel, extra="forbid"):
    name: str

    @computed_field
    @property
    def length(self) -> int:
        return len(self.name)


class Written(BaseModel):
    at: int

    @field_serializer("at")
    def words(self, at: int) -> str:
        return f"minute {at}"


class Packed(BaseModel):
    rows: Json[list[int]]


class Cents(BaseModel):
    cents: float

    @field_validator("cents")
    @classmethod
    def from_euros(cls, euros: float) -> float:
        return euros * 100


class Measured(BaseModel):
    at: float


class Secret(BaseModel):
    key: SecretStr


class Kind(BaseModel):
    value: bytes | str


class Numbered(BaseModel):
    name: str
    id: UUID = Field(default_factory=uuid4)


class Grade(StrEnum):
    GOOD = "good"


class Point(NamedTuple):
    x: int
    y: Decimal


class Remembering(BaseModel):
    name: str
    _seen: list[str] = PrivateAttr(default_factory=list)
    graded: dict[Grade, set[Point]] = Field(default_factory=dict[Grade, set[Point]], exclude=True)


class Hundredfold(TypedDict):
    number: Annotated[int, AfterValidator(lambda it: it * 100)]


def remembering() -> Remembering:
    value = Remembering(name="Ada", graded={Grade.GOOD: {Point(1, Decimal("0.10"))}})
    value._seen.append("once")  # pyright: ignore[reportPrivateUsage] - a state that only this module knows
    return value


async def handed_in(agent: Agent[Any, Any], make: Callable[[], Any]) -> Any:  # noqa: ANN401 - of any type
    """Return the output of a run that one process begins, another carries out, and a third reads."""
    memory = Memory()
    async with Durable(InMemoryEngine(memory)) as durable:
        await durable.start(agent, make(), id="one")
        await Worker(durable, agents=[agent]).run(until_idle=True)
    async with Durable(InMemoryEngine(memory)) as durable:
        return (await (await durable.get("one", agent)).result()).unwrap()


OUTPUTS: list[Any] = [
    pytest.param(Renamed, {"name": "Ada"}, Renamed(name="Ada"), id="alias for writing"),
    pytest.param(Doubled, {"given": 2}, Doubled(2), id="InitVar"),
    pytest.param(Partial, {"name": "Ada"}, Partial(name="Ada"), id="excluded"),
    pytest.param(Computed, {"name": "Ada"}, Computed(name="Ada"), id="computed"),
    pytest.param(Written, {"at": 3}, Written(at=3), id="serializer"),
    pytest.param(Packed, {"rows": "[1]"}, Packed.model_validate({"rows": "[1]"}), id="Json"),
    pytest.param(Cents, {"cents": 2}, Cents(cents=2), id="converting"),
    pytest.param(Secret, {"key": "s3cret"}, Secret(key=SecretStr("s3cret")), id="secret"),
    pytest.param(Measured, {"at": "inf"}, Measured(at=math.inf), id="infinity"),
    pytest.param(int, {"value": 2**64 + 1}, 2**64 + 1, id="large integer"),
    pytest.param(list[int], {"value": [2**200]}, [2**200], id="larger integer"),
]


async def test_what_was_made_by_chance_comes_back_as_it_was() -> None:
    made: list[Numbered] = []

    def note(output: Numbered) -> None:
        made.append(output)

    agent = Agent(
        name="clerk", model=ScriptedModel([call("output", name="Ada")]), output=Output(Numbered), validators=[note]
    )
    assert await handed_in(agent, lambda: "Who?") == made[0]


MANY = {f"n{n}": [Cents(cents=n)] * 30 for n in range(200)}
INPUTS: list[Any] = [
    pytest.param(Renamed, lambda: Renamed(name="Ada"), id="alias for writing"),
    pytest.param(Doubled, lambda: Doubled(2), id="InitVar"),
    pytest.param(Partial, lambda: Partial(name="Ada"), id="excluded"),
    pytest.param(Computed, lambda: Computed(name="Ada"), id="computed"),
    pytest.param(Packed, lambda: Packed.model_validate({"rows": "[1]"}), id="Json"),
    pytest.param(Cents, lambda: Cents(cents=2), id="converting"),
    pytest.param(Kind, lambda: Kind(value=b"\xff"), id="bytes or text"),
    pytest.param(float, lambda: math.inf, id="infinity"),
    pytest.param(int, lambda: 2**64 + 1, id="large integer"),
    pytest.param(Remembering, remembering, id="private state"),
    pytest.param(Point, lambda: Point(1, Decimal("0.10")), id="named tuple"),
    pytest.param(list[Cents], lambda: [Cents(cents=2)], id="list"),
    pytest.param(dict[str, list[Cents]], lambda: MANY, id="many"),
]


async def test_of_a_large_value_no_piece_takes_long_to_read() -> None:
    lines = (await store_value(output_schema(dict[str, list[Cents]]), MANY)).exact.splitlines()
    assert (len(lines) >= 5, max(map(len, lines)) < 2 * LONG) == (True, True)


async def test_a_converting_validator_sees_what_was_given_once() -> None:
    seen: list[object] = []

    def prompt(given: Hundredfold) -> str:
        seen.append(given["number"])
        return "Go."

    inner = Agent(name="inner", model=ScriptedModel(["Done."]), input=Hundredfold, prompt=prompt)
    await handed_in(inner, lambda: {"number": 2})
    task = call("subagent", agent="inner", task='{"number": 2}')
    outer = Agent(name="outer", model=ScriptedModel([task, "Done."]), tools=[Subagents(inner)])
    (await run(outer, "Go.", runtime=Runtime(journal=InMemoryJournal()))).unwrap()
    assert seen == [200, 200]


async def test_an_input_that_would_be_read_as_another_is_refused_before_anything_is_spent() -> None:
    model = ScriptedModel(["Done."])
    agent = Agent(name="clerk", model=model, input=Secret, prompt=lambda _: "Go.")
    async with Durable(InMemoryEngine(Memory())) as durable:
        with pytest.raises(InvalidArguments, match="cannot be stored so that another process gets the same value"):
            await durable.start(agent, Secret(key=SecretStr("s3cret")))
        result = failed(await durable.run(agent, Secret(key=SecretStr("s3cret"))))
    assert result.code == ErrorCode.INVALID_INPUT
    assert model.requests == []


async def by_fork(agent: Agent[Any, Any], make: Callable[[], Any]) -> Any:  # noqa: ANN401 - of any type
    memory = Memory()
    async with Durable(InMemoryEngine(memory)) as durable:
        await durable.run(agent, make(), id="one")
        await durable.fork("one", at=(1, 1), id="branch")
    async with Durable(InMemoryEngine(memory)) as durable:
        await durable.resume("branch", agent)
    async with Durable(InMemoryEngine(memory)) as durable:
        return (await (await durable.get("branch", agent)).result()).unwrap()


async def by_turn(agent: Agent[Any, Any], make: Callable[[], Any]) -> Any:  # noqa: ANN401 - of any type
    stage, door = in_memory(), Door()
    stuck = replace(agent, model=FunctionModel(door.before("")))
    assert await talked(stage, stuck, prompt=make(), until=door.reached) is None
    ended = existing(await talked(stage, agent))
    return ended[0].unwrap()


async def by_the_same_name(agent: Agent[Any, Any], make: Callable[[], Any]) -> Any:  # noqa: ANN401 - of any type
    """A batch that goes on asks for the runs of its lines again, each by its name."""
    memory = Memory()
    async with Durable(InMemoryEngine(memory)) as durable:
        await durable.start(agent, make(), id="line/1")
    async with Durable(InMemoryEngine(memory)) as durable:
        await durable.run(agent, make(), id="line/1")
    async with Durable(InMemoryEngine(memory)) as durable:
        return (await durable.run(agent, make(), id="line/1")).unwrap()


WAYS = [pytest.param(way, id=way.__name__) for way in (handed_in, by_fork, by_turn, by_the_same_name)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "arguments", "expected"), OUTPUTS)
async def test_an_output_comes_back_as_it_was_by_every_way(
    way: Callable[..., Any], kind: type[object], arguments: dict[str, Any], expected: object
) -> None:
    model = ScriptedModel([call("output", **arguments)], repeat=True)
    output = await way(Agent(name="clerk", model=model, output=Output(kind)), lambda: "Who?")
    assert output == expected
    assert type(output) is type(expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "make"), INPUTS)
async def test_a_run_works_on_the_very_input_by_every_way(
    way: Callable[..., Any], kind: type[object], make: Callable[[], object]
) -> None:
    seen: list[object] = []

    def prompt(given: object) -> str:
        seen.append(given)
        return "Go."

    model = ScriptedModel(["Done."], repeat=True)
    assert await way(Agent(name="clerk", model=model, input=kind, prompt=prompt), make) == "Done."
    assert seen
    assert all(each == make() and type(each) is type(make()) for each in seen)


@pytest.mark.parametrize(("kind", "arguments", "expected"), [each for each in OUTPUTS if each.id != "secret"])
async def test_a_background_run_works_on_the_very_task_and_its_output_comes_back(
    kind: type[object], arguments: dict[str, Any], expected: object
) -> None:
    seen: list[object] = []

    def prompt(given: object) -> str:
        seen.append(given)
        return "Go."

    inner = Agent(
        name="clerk",
        model=ScriptedModel([call("output", **arguments)], repeat=True),
        input=kind,
        prompt=prompt,
        output=Output(kind),
    )
    task = json.dumps(arguments)
    sends = call("subagent", agent="clerk", task=task, background=True, description="It works.", id="c")
    outer = Agent(name="lead", model=ScriptedModel([sends, "It works.", "Done."]), tools=[Subagents(inner)])
    memory = Memory()
    async with Durable(InMemoryEngine(memory)) as durable:
        await durable.start(outer, "Go.", id="one")
        await Worker(durable, agents=[outer]).run(until_idle=True)
    async with Durable(InMemoryEngine(memory)) as durable:
        (info,) = await durable.list(agent="lead/clerk")
        output = (await (await durable.get(info.id, inner)).result()).unwrap()
    assert (output, seen) == (expected, [expected])
    assert type(output) is type(seen[0]) is type(expected)


@pytest.mark.parametrize(("kind", "arguments", "expected"), OUTPUTS)
async def test_a_served_result_is_the_same_document_after_a_restart(
    tmp_path: Path, kind: type[object], arguments: dict[str, Any], expected: object
) -> None:
    model = ScriptedModel([call("output", **arguments)])
    agent, store = Agent(name="clerk", model=model, output=Output(kind)), str(tmp_path / "runs.db")
    async with serving([agent], store=store) as served:
        _, before = await served.ask("POST", "/agents/clerk/runs", {"input": "Who?"}, idempotency_key="r")
        assert before["code"] == "SUCCESS"
    async with serving([agent], store=store) as served:
        assert (await served.ask("GET", "/runs/r"))[1]["result"] == before
        assert (await served.ask("POST", "/agents/clerk/runs", {"input": "Who?"}, idempotency_key="r"))[1] == before
