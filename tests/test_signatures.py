"""Whatever is public says what it takes: to `inspect`, to `help()`, and to whoever gives it something else."""

import enum
import inspect
import pydoc
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, is_typeddict

import pytest
from pydantic import BaseModel

from journeyman import DefinitionError
from tests.support.public import public_objects

HANDED_OUT = {
    *("AgentApp", "Batch", "ChatSession", "ConnectedServer", "Events", "Exporting", "FileSession", "Handle", "Hold"),
    *("PostgresSession", "RecordingTape", "RedactedSession", "ServerTools", "TaskContext", "Turn"),
}
"""What a program is given, and never makes."""


def public_classes() -> list[type[Any]]:
    """Return each public class that has a constructor: no port, no base of adapters, no typed dict, no enumeration."""
    found: set[type[Any]] = {each for each in public_objects().values() if isinstance(each, type)}
    made = [
        each for each in found if not (is_typeddict(each) or issubclass(each, enum.Enum) or inspect.isabstract(each))
    ]
    return sorted([each for each in made if not getattr(each, "_is_protocol", False)], key=lambda each: each.__name__)


def parameters_of(kind: type[Any]) -> dict[str, inspect.Parameter]:
    return {**inspect.signature(kind).parameters}


def named(parameters: dict[str, inspect.Parameter]) -> Iterator[str]:
    yield from [name for name, each in parameters.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]


CLASSES = public_classes()
DATA = [each for each in CLASSES if is_dataclass(each) and inspect.isfunction(each.__init__)]
MADE_BY_USERS = [
    each
    for each in CLASSES
    if each.__name__ not in HANDED_OUT and not issubclass(each, BaseException | BaseModel | tuple)
]


def test_every_public_class_has_a_signature() -> None:
    assert len(CLASSES) > 150
    for kind in CLASSES:
        by_any_name = [each for each in parameters_of(kind).values() if each.kind is each.VAR_KEYWORD]
        assert by_any_name == [], kind.__name__


@pytest.mark.parametrize("kind", DATA, ids=lambda each: each.__name__)
def test_the_signature_of_data_is_its_fields_with_types_and_defaults(kind: type[Any]) -> None:
    parameters = parameters_of(kind)
    if "__init__" in inspect.getsource(kind):
        return assert_annotated(parameters)
    every = fields(kind)
    assert {*parameters} == {each.name for each in every if each.init}
    for each in every:
        if each.init:
            told = parameters[each.name]
            has_default = each.default is not MISSING or each.default_factory is not MISSING
            assert (told.default is not told.empty) == has_default
            assert str(told.annotation) == str(each.type)
            assert each.default in (MISSING, told.default)
    return None


def assert_annotated(parameters: dict[str, inspect.Parameter]) -> None:
    assert all(each.annotation is not each.empty for each in parameters.values())


@pytest.mark.parametrize("kind", CLASSES, ids=lambda each: each.__name__)
def test_help_begins_with_what_a_class_takes(kind: type[Any]) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    first = next(named(parameters_of(kind)), "")
    head = "\n".join(text.splitlines()[2:6])
    assert f"{kind.__name__}(" in head
    assert first in head
    assert "__extra" not in text


@pytest.mark.parametrize("kind", MADE_BY_USERS, ids=lambda each: each.__name__)
def test_every_constructor_says_what_was_meant(kind: type[Any]) -> None:
    known = [name for name in named(parameters_of(kind)) if not name.startswith("_")]
    given = f"{known[0]}_" if known else "anything"
    with pytest.raises(DefinitionError) as caught:
        kind(**{given: 1})
    told = str(caught.value.problems[0])
    assert told.startswith(f"{kind.__name__} has no {given!r}. ")
    assert (f"Write {known[0]}=1." if known else "Leave it out") in told
