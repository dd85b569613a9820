"""What a tool asks of its run: facts, progress, state by value, and the ports to tasks and hidden tools."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any, Unpack, cast

import pytest
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from journeyman import Abort, ToolContext, tool
from journeyman.tools.background import TaskContext, TaskOptions, Work
from journeyman.tools.context import States, isolated
from tests.support.naming import steady_repr
from tests.tools.contexts import context_for


@dataclass
class Cart:
    items: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Total:
    amount: Decimal
    currency: str = "EUR"


@dataclass(frozen=True)
class Shallow:
    items: list[str]


class Basket(BaseModel):
    items: list[str] = []


class Price(BaseModel):
    model_config = ConfigDict(frozen=True)
    amount: int
    tags: tuple[str, ...] = ()


class Loose(BaseModel):
    model_config = ConfigDict(frozen=True)
    tags: list[str]


class Color(Enum):
    RED = 1


class Notes(TypedDict):
    lines: list[str]


@tool
def put(item: str) -> None: ...


def context(states: States | None = None, **ports: Any) -> ToolContext:
    return context_for(put, states, **ports)


# X1
def test_the_context_knows_where_the_run_stands() -> None:
    signal = Abort()
    it = context(abort=signal)
    assert (it.input, it.agent, it.path, it.depth) == ({"task": 1}, "lead", ("lead", "scout#2"), 1)
    assert (it.attempt, it.iteration, it.tool_name, it.tool_use_id) == (2, 3, "put", "call_1")
    assert (it.abort, it.tasks) == (signal, None)


# D30, which merged key by key
@pytest.mark.parametrize(("before", "after"), [({"a": 1, "b": 2}, {"a": 3}), (1, None)])
def test_a_state_is_replaced_whole_and_none_is_one_like_any_other(before: object, after: object) -> None:
    states = States(run=before, attempt=1)
    it = context(states)
    it.set_run_state(after)
    states.adopt(it)
    assert states == States(run=after, attempt=1)
    assert context(states).run_state(type(after)) == after


FROZEN: tuple[object, ...] = (
    *(None, True, 3, 2.5, "text", b"bytes", Color.RED, date(2024, 1, 1), Decimal("1.10"), (1, ("a", None))),
    *(frozenset({1, 2}), Total(Decimal(3)), Price(amount=1, tags=("a",))),
)
MUTABLE: tuple[object, ...] = (
    *([1], {"a": 1}, {1}, bytearray(b"a"), (1, [2]), Cart(), Shallow(["a"]), Basket(), Loose(tags=["a"])),
)


@pytest.mark.parametrize("value", FROZEN, ids=steady_repr)
def test_a_value_that_cannot_change_is_shared(value: object) -> None:
    assert isolated(value, "run") is value
    assert context(States(run=value)).run_state(type(value)) is value


@pytest.mark.parametrize("value", MUTABLE, ids=steady_repr)
def test_a_value_that_can_change_is_copied_once_for_each_call(value: object) -> None:
    states = States(attempt=value)
    first, second = context(states), context(states)
    assert first.attempt_state(type(value)) == value
    assert first.attempt_state(type(value)) is first.attempt_state(type(value))
    assert first.attempt_state(type(value)) is not value
    assert first.attempt_state(type(value)) is not second.attempt_state(type(value))


def test_a_state_of_another_type_is_an_error_that_names_both() -> None:
    it = context(States(run=Cart(), attempt=None))
    with pytest.raises(
        TypeError, match=r"The run state is a Cart, not a Basket\. Ask for the type that the agent's run_state gives\."
    ):
        it.run_state(Basket)
    with pytest.raises(TypeError, match=r"The attempt state is a NoneType, not a int\."):
        it.attempt_state(int)


def test_a_state_may_be_asked_for_as_a_generic_type_or_a_typed_dict() -> None:
    it = context(States(run=[1], attempt={"lines": []}))
    assert it.run_state(list[int]) == [1]
    assert it.attempt_state(Notes) == {"lines": []}
    with pytest.raises(TypeError, match="not a Notes"):
        it.run_state(cast("type[Any]", Notes))


def test_a_state_that_cannot_be_copied_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"cannot be copied: TypeError: .*lock.*Keep plain data in it"):
        context(States(run=[threading.Lock()])).run_state(list)
    with pytest.raises(TypeError, match="cannot be copied"):
        context().set_attempt_state({"lock": threading.Lock()})


def test_progress_goes_to_whoever_listens_if_anybody_does() -> None:
    seen: list[tuple[str, float | None]] = []

    def listen(message: str, fraction: float | None) -> None:
        seen.append((message, fraction))

    it = context(progress=listen)
    it.progress("started")
    it.progress("half", 0.5)
    context().progress("anyone?")
    assert seen == [("started", None), ("half", 0.5)]


def test_hidden_tools_are_activated_by_name_and_a_run_that_hides_none_says_so() -> None:
    seen: list[Sequence[str]] = []
    it = context(activate=seen.append)
    it.activate(["grep", "glob"])
    it.activate(name for name in ("ls",))
    it.activate("read")
    assert seen == [["grep", "glob"], ["ls"], ["read"]]
    with pytest.raises(RuntimeError, match="hides no tools"):
        context().activate(["grep"])


def test_background_work_is_started_through_the_port() -> None:
    class Recorder:
        def start(self, work: Work, *, description: str, **options: Unpack[TaskOptions]) -> str:
            return f"task for {description}"

    tasks = context(tasks=Recorder()).tasks
    assert tasks is not None

    async def work(task: TaskContext) -> str:
        return task.id

    assert tasks.start(work, description="digging") == "task for digging"


def test_copied_states_share_nothing_that_can_change() -> None:
    states = States(run=Cart(["tea"]), attempt=Cart(["pen"]), number=2)
    copied = states.copied()
    assert (copied, copied.number) == (states, 2)
    for each in (copied.run, copied.attempt):
        cast("Cart", each).items.append("more")
    assert (states.run, states.attempt) == (Cart(["tea"]), Cart(["pen"]))
