"""Values that share a hash: Python's hashes of numbers, and of tuples and objects of them, are no secret, so a stranger
can choose thousands that have the same one, and a set of them, or a dict, takes as many comparisons as the square of
their number. Each value is looked at before it gets there, as it is by then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from sys import hash_info
from typing import Any, Final

from pydantic_core import CoreSchema

from journeyman.definition.narrowing import is_list_or_tuple, is_str_dict

_MOST_COMPARISONS: Final = 20_000
"""The most comparisons of the values of one check: as many as 200 of one hash are. It takes a millisecond for
numbers, and 30 for models."""
_WITH_SECRET_HASHES: Final = frozenset({"str", "bytes", "literal", "enum"})

_Json = dict[str, Any]


class TooManyCollide(Exception):
    """A set, or a dict, would be slow."""


def hashes_numbers(schema: CoreSchema) -> bool:
    """Tell whether a value of a type may hold numbers in a set, or as keys."""
    return any(_has_open_items(each) or _has_open_keys(each) for each in each_schema(schema))


def each_schema(schema: CoreSchema) -> Iterator[dict[str, object]]:
    """Give a core schema, and each that is in it."""
    waiting: list[object] = [schema]
    while waiting:
        found = waiting.pop()
        if is_str_dict(found):
            yield found
            waiting += [inner for key, inner in found.items() if key != "metadata"]
        elif is_list_or_tuple(found):
            waiting += found


def _has_open_keys(schema: _Json) -> bool:
    keys = schema.get("keys_schema")
    return is_str_dict(keys) and keys.get("type") not in _WITH_SECRET_HASHES


def _has_open_items(schema: _Json) -> bool:
    is_set = schema.get("type") in ("set", "frozenset")
    return is_set and schema.get("items_schema", {}).get("type") not in _WITH_SECRET_HASHES


class _HashTally:
    """The values of one check by their hashes, and how often they had to be compared."""

    def __init__(self) -> None:
        self._first: dict[int, object] = {}
        self._others: dict[int, set[object]] = {}
        """Those that have the hash of another one."""
        self._n_comparisons = 0

    def count(self, value: object) -> None:
        number = hash(value)
        first = self._first.setdefault(number, value)
        if first is value or first == value:  # an equal one is found at once
            return
        others = self._others.setdefault(number, set())
        others.add(value)
        self._n_comparisons += len(others)
        if self.is_full:
            raise TooManyCollide

    @property
    def is_full(self) -> bool:
        return self._n_comparisons > _MOST_COMPARISONS


class CollisionBound(threading.local):
    """Bounds how often the values of one check are compared for their hashes; of each thread, since several may check
    by one type."""

    def __init__(self) -> None:
        self._tally: _HashTally | None = None

    def in_schema(self, schema: _Json, copied: Callable[[_Json, Callable[[_Json], _Json]], _Json]) -> _Json:
        """Return a core schema that takes the same values, and raises `TooManyCollide` inside of `bound`.

        `copied` returns a copy of a schema, with all that it holds changed by a function.
        """
        new = copied(schema, lambda held: self.in_schema(held, copied))
        if _has_open_items(schema):
            new["items_schema"] = self._count_values(new.get("items_schema", {"type": "any"}))
        elif _has_open_keys(schema):
            new["keys_schema"] = self._count_values(new["keys_schema"])
        return new

    def _count_values(self, schema: _Json) -> _Json:
        return {"type": "function-after", "function": {"type": "no-info", "function": self.count}, "schema": schema}

    def count(self, value: object) -> object:
        """Count a value that is put into a set, and return it."""
        if type(value) is str or (type(value) is int and abs(value) < hash_info.modulus):
            return value  # a secret hash, or that of no other such number
        if self._tally is not None:
            try:
                self._tally.count(value)
            except TypeError:  # it has no hash, and whoever makes the set says so
                return value
        return value

    @contextmanager
    def bound(self) -> Generator[None]:
        """Bound how often the values that are checked in this block are compared for their hashes.

        Raises:
            TooManyCollide: it is too often, whatever else is raised.
        """
        before, tally = self._tally, _HashTally()
        self._tally = tally
        try:
            yield
        finally:
            self._tally = before
            if tally.is_full:  # pydantic may have taken what was raised for a value that does not fit
                raise TooManyCollide


def counts_numbers(schema: _Json) -> bool:
    """Tell whether a schema counts integers of any size."""
    called = getattr(schema["function"]["function"], "__func__", None) if schema["type"] == "function-after" else None
    if called is not CollisionBound.count:
        return False
    return schema["schema"]["type"] == "int" and schema["schema"].keys().isdisjoint({"gt", "lt"})
