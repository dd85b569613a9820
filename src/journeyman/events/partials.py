"""An output while the model writes it: the longest beginning of its JSON that makes a value of a type.

What is cut is left out where it cannot stand yet, from the innermost list or object outwards. So a value that was there
stays there while the rest is written, and only grows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from journeyman.definition.narrowing import is_dict, is_json_object, is_list
from journeyman.types import JsonObject

T = TypeVar("T")

_OPEN_NUMBER: Final = re.compile(r"[-+.\w]+$")
_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\]]', re.DOTALL)
_MORE: Final = "\ufffc"
"""A character that may follow in a text of any words, and in no date, enum or pattern."""


def read_object(text: str) -> JsonObject:
    """Return the object as far as it is there. A text is cut where it is; a number is there once something follows."""
    closed, is_text_open = _read_closed(text)
    value = _read_beginning(text) if is_text_open else closed
    return value if is_json_object(value) else {}


def read_value(text: str, adapter: TypeAdapter[T], *, is_wrapped: bool) -> T | None:
    """Return the value of a type that is there; None as long as what is there does not make one."""
    for all_of_it, *also in _beginnings(text):
        try:
            value = _validate(adapter, all_of_it, is_wrapped=is_wrapped)
            for each in also:
                _validate(adapter, each, is_wrapped=is_wrapped)
        except (KeyError, TypeError):  # it is no object, or the wrapper of one that is empty so far
            return None
        except ValidationError as error:
            if any(each["type"] == "missing" and len(each["loc"]) == 1 for each in error.errors(include_url=False)):
                return None  # nothing that is left out would bring it
        else:
            return value
    return None


def _validate(adapter: TypeAdapter[T], value: object, *, is_wrapped: bool) -> T:
    if not is_json_object(value):
        raise TypeError
    return adapter.validate_json(to_json(value["value"] if is_wrapped else value))


def _beginnings(text: str) -> Iterator[tuple[object, ...]]:
    """Give what may be read of a JSON text, the longest first. Behind each stands what must fit, too."""
    try:
        yield (from_json(text),)
        return
    except ValueError:
        pass
    closed, is_text_open = _read_closed(text)
    if is_text_open:
        # Shown if any words may follow: the beginning of a date, or of an enum's value, is none. One that is as long as
        # it may be stays as it was before.
        yield _read_beginning(text), _read_beginning(text, lambda leaf: leaf + _MORE)
        yield _read_beginning(text, lambda leaf: leaf[:-1]), _read_beginning(text, lambda leaf: leaf[:-1] + _MORE)
    yield (closed,)
    for at in _open_brackets(text):
        yield (_read_beginning(text[:at]),)


def _read_closed(text: str) -> tuple[object, bool]:
    """Return what is there without the text or number that may go on; and whether it is a text."""
    closed, whole = _read_beginning(text, open_texts=False), _read_beginning(text)
    if closed != whole:
        return closed, True
    number = _OPEN_NUMBER.search(text)
    return (closed if number is None else _read_beginning(text[: number.start()])), False


def _read_beginning(text: str, change: Callable[[str], str] | None = None, *, open_texts: bool = True) -> object:
    """Return the beginning of a JSON text as a value, perhaps with another text at its end; None if it is no JSON."""
    try:
        value: object = from_json(text, allow_partial="trailing-strings" if open_texts else True)
    except ValueError:  # such as words before a call, or nothing yet
        return None
    if change is None:
        return value
    holder: Any = value
    while is_list(holder) or is_dict(holder):
        keys: Any = range(len(holder)) if is_list(holder) else holder
        key: Any = next(reversed(keys), None)
        leaf: Any = holder[key] if holder else None
        if isinstance(leaf, str):
            holder[key] = change(leaf)
            return value
        holder = leaf
    return None


def _open_brackets(text: str) -> Iterator[int]:
    """Give the places of the lists and objects that have not ended, the innermost first."""
    places: list[int] = []
    for mark in _BRACKETS.finditer(text):
        if mark[0] in "{[":
            places.append(mark.start())
        elif mark[0] in "}]" and places:
            places.pop()
    return reversed(places)
