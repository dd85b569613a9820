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
    *("AgentApp", "Batch", "ChatSession", "ConnectedServer", "Events", "Exporting", "RunHandle", "Hold"),
    *("StoredSession", "RunRecording", "ServerTools", "TaskContext", "Toolset", "Turn"),
}
"""What a program is given, or makes a subclass of, and never makes."""


@pytest.fixture(scope="module")
def classes() -> list[type[Any]]:
    """Each public class that has a constructor: no port, no base of adapters, no typed dict, no enumeration."""
    found: set[type[Any]] = {each for each in public_objects().values() if isinstance(each, type)}
    made = [
        each for each in found if not (is_typeddict(each) or issubclass(each, enum.Enum) or inspect.isabstract(each))
    ]
    assert len(made) > 150
    return sorted([each for each in made if not getattr(each, "_is_protocol", False)], key=lambda each: each.__name__)


def parameters_of(kind: type[Any]) -> dict[str, inspect.Parameter]:
    return {**inspect.signature(kind).parameters}


def named(kind: type[Any]) -> list[str]:
    """Return the names of the parameters of a class that can be given by name."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, each in parameters_of(kind).items() if each.kind not in variable]


def test_every_public_class_has_a_signature_that_takes_no_other_names(classes: list[type[Any]]) -> None:
    assert [
        kind.__name__ for kind in classes if any(each.kind is each.VAR_KEYWORD for each in parameters_of(kind).values())
    ] == []


def test_the_signature_of_data_is_its_fields_with_types_and_defaults(classes: list[type[Any]]) -> None:
    data = [each for each in classes if is_dataclass(each) and inspect.isfunction(each.__init__)]
    assert [(kind.__name__, fault) for kind in data for fault in faults_of_data(kind)] == []


def faults_of_data(kind: type[Any]) -> Iterator[str]:
    parameters = parameters_of(kind)
    if "__init__" in inspect.getsource(kind):
        yield from [name for name, each in parameters.items() if each.annotation is each.empty]
        return
    given = {each.name: each for each in fields(kind) if each.init}
    if parameters.keys() != given.keys():
        yield f"{[*parameters]}, but {[*given]}"
    for name in parameters.keys() & given.keys():
        told, field = parameters[name], given[name]
        default = field.default if field.default_factory is MISSING else told.default
        if (told.empty if default is MISSING else default) is not told.default:
            yield f"{name} = {told.default}"
        if field.default_factory is not MISSING and told.default is told.empty:
            yield f"{name} has no default"
        if str(told.annotation) != str(field.type):
            yield f"{name}: {told.annotation}"


def test_help_begins_with_what_a_class_takes(classes: list[type[Any]]) -> None:
    faulty = list[str]()
    for kind in classes:
        text = pydoc.plain(pydoc.render_doc(kind))
        head = "\n".join(text.splitlines()[2:6])
        first = next(iter(named(kind)), "")
        if f"{kind.__name__}(" not in head or first not in head or "__extra" in text:
            faulty.append(head)
    assert faulty == []


def test_every_constructor_says_what_was_meant(classes: list[type[Any]]) -> None:
    made_by_users = [
        each
        for each in classes
        if each.__name__ not in HANDED_OUT and not issubclass(each, BaseException | BaseModel | tuple)
    ]
    assert [(kind.__name__, told) for kind in made_by_users if (told := answer_to_a_wrong_name(kind))] == []


def answer_to_a_wrong_name(kind: type[Any]) -> str:
    """Return what is told of a name that a class does not take. Empty: the right thing."""
    known = [name for name in named(kind) if not name.startswith("_")]
    given = f"{known[0]}_" if known else "anything"
    with pytest.raises(DefinitionError) as caught:
        kind(**{given: 1})
    told = str(caught.value.problems[0])
    is_right = told.startswith(f"{kind.__name__} has no {given!r}. ")
    return "" if is_right and (f"Write {known[0]}=1." if known else "Leave it out") in told else told
