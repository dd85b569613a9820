"""JSON in which every number keeps its digits: integers of any size, and fractions that a double cannot hold.

The fast reader makes doubles of both, so texts with so long a number are read by another one.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from journeyman.definition.narrowing import is_dict, is_json_object, is_list, is_list_or_tuple

if TYPE_CHECKING:
    from pydantic import JsonValue

_AS_ZEROS: Final = re.sub(rb"[0-9.]", b"0", re.sub(rb"[^0-9.eE-]", b" ", bytes(range(256)))).replace(b"E", b"e")
_LONG: Final = b"0" * 17
"""What a number has in it that a double may not hold, after digits and points were made zeros: finding it so takes a
third of the time that a pattern does, and a text may be of megabytes."""
_LONG_POWER: Final = b"0" * 16 + b"e"
"""The same of a number with an exponent, and no point."""
_SMALL: Final = b"0e-000"
"""What a number has in it, after the same, that may be too small for a double to hold its digits."""
_IS_SMALL: Final = re.compile(rb"[0-9][eE]-0*(?:29|[3-9][0-9]|[1-9][0-9][0-9])[0-9]\s*(?:[,\]}]|\Z)")
_MAX_INT, _MIN_INT = 2**64, -(2**63)
LONG: Final = 50_000
"""From how many characters on a text is long: it takes some milliseconds to read."""


@contextmanager
def collecting_later() -> Generator[None]:
    """Collect no garbage in the block, which is for work of a moment that does not wait."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class WrittenNumber(float):
    """A number with a fraction, as it was written: the double nearest to it, and its text."""

    text: str

    def __new__(cls, text: str | float) -> Self:
        """Take the number that `text` is.

        Raises:
            ValueError: it is no JSON, or is larger than any double.
        """
        made = super().__new__(cls, text)
        if not isfinite(made):
            raise ValueError(f"{str(text)[:80]} is no number of JSON, or is larger than any double")
        made.text = text if isinstance(text, str) else float.__repr__(made)
        return made

    def __repr__(self) -> str:
        return self.text


def holds_long_numbers(data: bytes) -> bool:
    """Tell whether a JSON text may hold numbers that a double does not; never False if it does."""
    zeros = data.translate(_AS_ZEROS)
    if _LONG in zeros or _LONG_POWER in zeros:
        return True
    return _SMALL in zeros and _IS_SMALL.search(data) is not None


def holds_written_numbers(value: object) -> bool:
    """Tell whether a value that was read holds fractions that a double does not."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, WrittenNumber):
            return True
        if is_json_object(found):
            waiting += found.values()
        elif is_list(found):
            waiting += found
    return False


def read_json(data: bytes | str) -> JsonValue:
    """Return the value of a JSON text.

    Raises:
        orjson.JSONDecodeError: it is none; a `ValueError`.
    """
    written = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if not holds_long_numbers(written):
        if len(data) < LONG:
            return orjson.loads(data)
        with collecting_later():
            return orjson.loads(data)
    try:
        value: JsonValue = json.loads(data, parse_float=WrittenNumber, parse_constant=WrittenNumber)
        if b"\\u" in written:
            write_json(value)  # half a surrogate pair is refused, as by the other reader
        return value
    except (ValueError, TypeError, RecursionError) as error:  # not UTF-8, or thousands of digits or of levels
        if isinstance(error, orjson.JSONDecodeError):
            raise
        raise orjson.JSONDecodeError(str(error), "", 0) from error


def read_object(data: bytes | str) -> dict[str, JsonValue]:
    """Return the object that a JSON text holds.

    Raises:
        ValueError: it holds none.
    """
    value = read_json(data)
    if not isinstance(value, dict):
        raise ValueError(f"The JSON is a {type(value).__name__}, not an object.")
    return value


def write_json(
    value: object, *, default: Callable[[Any], object] | None = None, is_sorted: bool = False, is_indented: bool = False
) -> bytes:
    """Return a value as JSON, compact unless it is to be indented. `default` makes JSON's types of what is none.

    Raises:
        TypeError: it holds what is no JSON, or half a surrogate pair.
    """
    option = (orjson.OPT_SORT_KEYS if is_sorted else 0) | (orjson.OPT_INDENT_2 if is_indented else 0)

    def other(found: object) -> object:
        if isinstance(found, WrittenNumber):
            return orjson.Fragment(found.text)
        if default is None:
            raise TypeError(f"a {type(found).__name__} is no JSON")
        return default(found)

    try:
        return orjson.dumps(value, default=other, option=option)
    except TypeError:
        return orjson.dumps(_with_digits(value), default=other, option=option)


def write_sound_json(value: object) -> bytes:
    """Return a value of JSON's types as JSON, compact. Half of a surrogate pair, which UTF-8 cannot hold, becomes a
    question mark."""
    try:
        return write_json(value)
    except TypeError:
        return write_json(_without_halves(value))


def _without_halves(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if is_dict(value):
        return {_without_halves(key): _without_halves(each) for key, each in value.items()}
    return [_without_halves(each) for each in value] if is_list_or_tuple(value) else value


def _with_digits(value: object) -> object:
    """Return a value with each number that orjson does not take, and gives nobody, as the text of that number."""
    if isinstance(value, int) and not _MIN_INT <= value < _MAX_INT:
        return orjson.Fragment(str(value))
    if is_dict(value):
        return {key: _with_digits(each) for key, each in value.items()}
    if is_list_or_tuple(value):
        return [_with_digits(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _with_digits(getattr(value, each.name)) for each in fields(value)}
    return value
