"""Questions about a value whose answers a type checker keeps: after `isinstance`, what a `dict` holds is unknown to it.

Each says no more than `isinstance` proves, and of JSON what each reader of JSON promises: that the keys are texts.
The readers below them take values of JSON that somebody else wrote; a value of another type counts as an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar, get_args

from pydantic_core import from_json
from typing_extensions import TypeForm, TypeIs

if TYPE_CHECKING:
    from pydantic import JsonValue

W = TypeVar("W")


def is_json_object(value: object) -> TypeIs[dict[str, JsonValue]]:
    """Tell whether a value that was read from JSON is an object."""
    return isinstance(value, dict)


def is_json_array(value: object) -> TypeIs[list[JsonValue]]:
    """Tell whether a value that was read from JSON is an array."""
    return isinstance(value, list)


def is_str_dict(value: object) -> TypeIs[dict[str, object]]:
    """Tell whether a value whose keys are texts, such as a schema, is a dict; what it holds may be no JSON."""
    return isinstance(value, dict)


def is_dict(value: object) -> TypeIs[dict[object, object]]:
    """Tell whether a value of any origin is a dict."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeIs[list[object]]:
    """Tell whether a value of any origin is a list."""
    return isinstance(value, list)


def is_list_or_tuple(value: object) -> TypeIs[list[object] | tuple[object, ...]]:
    """Tell whether a value of any origin is a list or a tuple, and no other sequence, such as a text."""
    return isinstance(value, list | tuple)


def is_set(value: object) -> TypeIs[set[object] | frozenset[object]]:
    """Tell whether a value of any origin is a set, of either kind."""
    return isinstance(value, set | frozenset)


def is_list_of_texts(value: object) -> TypeIs[list[str] | tuple[str, ...]]:
    """Tell whether a value of any origin is a list or a tuple that holds texts only."""
    return is_list_or_tuple(value) and all([isinstance(each, str) for each in value])


def is_mapping(value: object) -> TypeIs[Mapping[object, object]]:
    """Tell whether a value of any origin is a mapping."""
    return isinstance(value, Mapping)


def is_str_mapping(value: object) -> TypeIs[Mapping[str, object]]:
    """Tell whether a value whose keys are texts is a mapping."""
    return isinstance(value, Mapping)


def is_sequence(value: object) -> TypeIs[Sequence[object]]:
    """Tell whether a value of any origin is a sequence; a text is one, too."""
    return isinstance(value, Sequence)


def is_partial(value: object) -> TypeIs[partial[object]]:
    """Tell whether a value of any origin is a partial of a function."""
    return isinstance(value, partial)


def is_class(value: object) -> TypeIs[type[object]]:
    """Tell whether a value of any origin is a class."""
    return isinstance(value, type)


def is_one_of(word: object, words: TypeForm[W]) -> TypeIs[W]:
    """Tell whether a value is one of the words of a `Literal`."""
    return word in get_args(words)


def is_group(error: object) -> TypeIs[BaseExceptionGroup[BaseException]]:
    """Tell whether an exception holds others."""
    return isinstance(error, BaseExceptionGroup)


def as_object(value: object) -> dict[str, JsonValue]:
    """Return a value that was read from JSON if it is an object."""
    return value if is_json_object(value) else {}


def as_list(value: object) -> list[JsonValue]:
    """Return a value that was read from JSON if it is an array."""
    return value if is_json_array(value) else []


def as_text(value: object) -> str:
    """Return a value that was read from JSON if it is a text."""
    return value if isinstance(value, str) else ""


def as_number(value: object) -> float:
    """Return a value if it is a number, and else 0."""
    return value if isinstance(value, float | int) else 0.0


def object_in(text: str) -> dict[str, JsonValue]:
    """Return the object that is written in a text as JSON."""
    try:
        return as_object(from_json(text))
    except (ValueError, TypeError):  # no JSON; no text, where a user's own code made the block
        return {}
