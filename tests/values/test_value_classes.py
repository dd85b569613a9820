"""Value classes are dataclasses that do not compile their methods: each is held against an ordinary one."""

from __future__ import annotations

import pickle
from copy import copy, deepcopy
from dataclasses import FrozenInstanceError, astuple, dataclass, field, fields, replace
from typing import Any

import pytest

from journeyman.types import frozen, frozen_in_order, record_class, value_class


@dataclass(frozen=True, slots=True)
class Ordinary:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)
    secret: str = field(default="s", repr=False)


@frozen
class Named:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)
    secret: str = field(default="s", repr=False)


@frozen_in_order
class InOrder:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)
    secret: str = field(default="s", repr=False)


@value_class()
class Value:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)
    secret: str = field(default="s", repr=False)


@record_class()
class Record:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)
    secret: str = field(default="s", repr=False)


FROZEN: list[Any] = [Named, InOrder, Value]
EVERY: list[Any] = [*FROZEN, Record]
GIVEN: list[dict[str, Any]] = [{"name": "a"}, {"name": "a", "tags": ("t",)}, {"name": "a", "note": "n"}, {"name": "b"}]


@pytest.mark.parametrize("kind", EVERY)
def test_they_are_shown_compared_copied_and_kept_as_an_ordinary_dataclass_is(kind: Any) -> None:  # noqa: ANN401 - a class
    made, ordinary = [kind(**given) for given in GIVEN], [Ordinary(**given) for given in GIVEN]
    assert [repr(each) for each in made] == [repr(each).replace("Ordinary", kind.__name__) for each in ordinary]
    assert [astuple(each) for each in made] == [astuple(each) for each in ordinary]
    assert [[one == other for other in made] for one in made] == [[a == b for b in ordinary] for a in ordinary]
    assert [each.name for each in fields(kind)] == [each.name for each in fields(Ordinary)]
    assert all(each == copy(each) == deepcopy(each) == pickle.loads(pickle.dumps(each)) for each in made)
    assert replace(made[0], tags=("t",)) == made[1]
    assert made[0] != ordinary[0]


@pytest.mark.parametrize("kind", FROZEN)
def test_what_is_frozen_cannot_change_and_can_be_a_key(kind: Any) -> None:  # noqa: ANN401 - a class
    made = kind(name="a")
    with pytest.raises(FrozenInstanceError, match="'name'"):
        made.name = "b"
    with pytest.raises(FrozenInstanceError, match="'name'"):
        del made.name
    assert {made: 1}[kind(name="a", note="n")] == 1


def test_a_record_changes_and_is_no_key() -> None:
    made = Record("a")
    made.name = "b"
    assert made == Record("b")
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)


@pytest.mark.parametrize(
    "made", [InOrder("a", ("t",), note="n"), Value("a", ("t",), note="n"), Record("a", ("t",), note="n")]
)
def test_arguments_may_be_given_in_order_and_taken_apart_so(made: InOrder | Value | Record) -> None:
    match made:
        case InOrder(name, tags, note) | Value(name, tags, note) | Record(name, tags, note):
            taken = (name, tags, note)
    assert taken == ("a", ("t",), "n")


@pytest.mark.parametrize(
    ("given", "message"), [({}, "needs name"), ({"name": "a", "nmae": "b"}, "has no nmae")], ids=["missing", "unknown"]
)
@pytest.mark.parametrize("kind", [Named, InOrder])
def test_wrong_arguments_are_named(kind: Any, given: dict[str, str], message: str) -> None:  # noqa: ANN401 - a class
    with pytest.raises(TypeError, match=rf"{kind.__name__}\(\) {message}"):
        kind(**given)


def test_arguments_too_many_or_given_twice_are_refused() -> None:
    in_order: Any = InOrder
    named: Any = Named
    with pytest.raises(TypeError, match="got name twice"):
        in_order("a", name="b")
    with pytest.raises(TypeError, match="takes 4 arguments without a name, not 5"):
        in_order("a", (), "n", "s", "more")
    with pytest.raises(TypeError, match="takes 0 arguments without a name, not 1"):
        named("a")
