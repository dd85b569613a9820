"""Decimals that keep the digits that a JSON text has: pydantic makes a double of every number with a fraction first.

Where a text holds numbers that a double may not hold, each is found by the double that it became. Two numbers with
other digits that became the same double are told apart by nothing, so a decimal that is one of them is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Final

from pydantic_core import CoreSchema, PydanticCustomError, from_json

from journeyman.json_numbers import holds_long_numbers
from journeyman.narrowing import is_list_or_tuple, is_str_dict

_Json = dict[str, Any]
_Numbers = Mapping[float, Decimal | None]
"""The numbers of a text, by the double of each; None where several became one."""

_numbers: ContextVar[_Numbers | None] = ContextVar("journeyman_numbers", default=None)
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?', re.DOTALL)
_IS_FRACTION: Final = re.compile(r"[.eE]")


def kinds_in(schema: CoreSchema) -> frozenset[str]:
    """Return the kinds of schemas of which a core schema is made."""
    kinds, waiting = set[str](), list[object]([schema])
    while waiting:
        found = waiting.pop()
        if is_str_dict(found):
            kinds |= {kind} if isinstance(kind := found.get("type"), str) else set()
            waiting += [inner for key, inner in found.items() if key != "metadata"]
        elif is_list_or_tuple(found):
            waiting += found
    return frozenset(kinds)


def reading_digits(schema: _Json, copied: Callable[[_Json, Callable[[_Json], _Json]], _Json]) -> _Json:
    """Return a core schema that takes the same values, and whose decimals have the digits of `numbers_of` a text.

    `copied` returns a copy of a schema, with all that it holds changed by a function.
    """
    if schema["type"] != "decimal":
        return copied(schema, lambda held: reading_digits(held, copied))
    reference = {"ref": schema["ref"]} if "ref" in schema else {}
    # Without "strict": of JSON, a strict decimal takes the same, but behind a function it is given Python's objects.
    inner = {key: each for key, each in schema.items() if key != "ref"} | {"strict": False}
    function = {"type": "no-info", "function": _with_digits}
    return {"type": "function-before", "function": function, "schema": inner, **reference}


def _with_digits(value: object) -> object:
    written = _numbers.get()
    if not isinstance(value, float) or written is None or value not in written:
        return value
    found = written[value]
    if found is None:
        raise PydanticCustomError(
            "number_ambiguous", "should be a text that holds the number: another one here differs in its last digits"
        )
    return found


def may_be_rounded(input_json: str | bytes) -> bool:
    """Tell whether a double may not hold all numbers of a text."""
    return holds_long_numbers(
        input_json.encode("utf-8", "surrogatepass") if isinstance(input_json, str) else input_json
    )


@contextmanager
def written_numbers(input_json: str | bytes, *, in_texts: bool) -> Generator[None]:
    """In the block, decimals have the digits of this text. `in_texts`: texts that hold JSON are read, too."""
    text = input_json if isinstance(input_json, str) else input_json.decode("utf-8", "replace")
    found: dict[float, Decimal | None] = {}
    _find_numbers(text, found, in_texts=in_texts)
    token = _numbers.set(found)
    try:
        yield
    finally:
        _numbers.reset(token)


def _find_numbers(text: str, found: dict[float, Decimal | None], *, in_texts: bool) -> None:
    waiting = [text]
    while waiting:
        for match in _TOKEN.finditer(waiting.pop()):
            written = match[0]
            if written[0] != '"':
                if _IS_FRACTION.search(written):
                    _take(written, found)
            elif in_texts:
                try:
                    waiting.append(from_json(written))
                except ValueError:
                    continue  # it is no JSON, and the check will say so


def _take(written: str, numbers: dict[float, Decimal | None]) -> None:
    try:
        exact = Decimal(written)
    except ArithmeticError:  # an exponent that no decimal has
        return
    number = float(written)
    numbers[number] = exact if numbers.setdefault(number, exact) == exact else None
