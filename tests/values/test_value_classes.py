"""A lazy dataclass is held against an ordinary one: it behaves as that does, and says more of wrong arguments."""

import inspect
import pickle
import pydoc
from copy import copy, deepcopy
from dataclasses import FrozenInstanceError, astuple, dataclass, field, fields, replace
from typing import Any

import pytest

from journeyman import DefinitionError
from journeyman.definition.data import copy_with, lazy_dataclass


@dataclass(frozen=True, slots=True)
class Ordinary:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)
    secret: str = field(default="s", repr=False)
    facts: dict[str, int] = field(default_factory=dict[str, int], hash=False)


@lazy_dataclass(frozen=True, kw_only=True)
class Named:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)
    secret: str = field(default="s", repr=False)
    facts: dict[str, int] = field(default_factory=dict[str, int], hash=False)


@lazy_dataclass(frozen=True)
class Value:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)
    secret: str = field(default="s", repr=False)
    facts: dict[str, int] = field(default_factory=dict[str, int], hash=False)


@lazy_dataclass()
class Record:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)
    secret: str = field(default="s", repr=False)
    facts: dict[str, int] = field(default_factory=dict[str, int], hash=False)


FROZEN: list[Any] = [Named, Value]
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


@pytest.mark.parametrize("made", [Value("a", ("t",), note="n"), Record("a", ("t",), note="n")])
def test_arguments_may_be_given_in_order_and_taken_apart_so(made: Value | Record) -> None:
    match made:
        case Value(name, tags, note) | Record(name, tags, note):
            taken = (name, tags, note)
    assert taken == ("a", ("t",), "n")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs 'name'. Write {}(name=…)."),
        ({"name": "a", "nmae": "b"}, "has no 'nmae'. Did you mean 'name'? Write name='b'."),
        ({"name": "a", "zzz": 1}, "has no 'zzz'. Leave it out: it takes name, tags, note, secret, facts."),
    ],
    ids=["missing", "misspelled", "unknown"],
)
@pytest.mark.parametrize("kind", EVERY)
def test_wrong_arguments_are_named(kind: Any, given: dict[str, str], message: str) -> None:  # noqa: ANN401 - a class
    with pytest.raises(DefinitionError) as caught:
        kind(**given)
    assert [str(each) for each in caught.value.problems] == [f"{kind.__name__} {message.format(kind.__name__)}"]


def test_arguments_too_many_or_given_twice_are_refused() -> None:
    value: Any = Value
    named: Any = Named
    with pytest.raises(TypeError, match=r"multiple values for argument 'name'"):
        value("a", name="b")
    with pytest.raises(DefinitionError, match="Value cannot take 'more' without a name"):
        value("a", (), "n", "s", {}, "more")
    with pytest.raises(DefinitionError, match=r"Named cannot take .a. without a name\. Write Named\(name='a'\)"):
        named("a")


@pytest.mark.parametrize("is_made_first", [False, True])
def test_the_signature_is_that_of_an_ordinary_dataclass(is_made_first: bool) -> None:
    @lazy_dataclass(frozen=True)
    class Late:
        name: str
        tags: tuple[str, ...] = field(default_factory=tuple)
        note: str = field(default="", kw_only=True)

    if is_made_first:
        Late("a")
    told = "(name: str, tags: tuple[str, ...] = <factory>, *, note: str = '') -> None"
    assert str(inspect.signature(Late)) == told
    assert str(inspect.signature(Late.__init__)) == told.replace("(", "(self, ", 1)
    assert pydoc.plain(pydoc.render_doc(Late)).splitlines()[3] == f" |  Late{told}"


@pytest.mark.parametrize("kind", [Named, Value])
def test_a_copy_with_changes_is_what_replace_makes(kind: type[Named | Value]) -> None:
    value = kind(name="a", tags=("b",), facts={"c": 1})
    changes: dict[str, Any] = {"note": "d", "tags": ()}
    assert astuple(copy_with(value, **changes)) == astuple(replace(value, **changes))
    assert copy_with(value).facts is value.facts
    with pytest.raises(AttributeError):
        copy_with(value, unknown=1)
