"""Numbers that share a hash: Python's hashes of numbers are no secret, so a stranger can choose thousands that have the
same one, and a set of them, or a dict, takes as many comparisons as the square of their number."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

from pydantic_core import CoreSchema

from journeyman.narrowing import is_dict, is_list_or_tuple, is_set, is_str_dict

_MOST: Final = 500
"""So many of one hash take some 100,000 comparisons: a few milliseconds."""
_SHORTEST: Final = 15
"""Of shorter numbers, too few have the same hash."""
_LONGEST: Final = 5_000
"""Of longer ones, too few fit into what is checked."""
LEAST_CHARS: Final = _MOST * _SHORTEST
"""A shorter text holds too few."""
_TOKEN: Final = re.compile(rf"[0-9A-Fa-f][0-9A-Fa-f_.+-]{{{_SHORTEST - 1},{_LONGEST}}}")
_UUID_DIGITS: Final = 32
_KEYS_WITH_SECRET_HASHES: Final = frozenset({"str", "bytes", "literal", "enum"})


def hashes_numbers(schema: CoreSchema) -> bool:
    """Tell whether a value of a type may hold numbers in a set, or as keys."""
    waiting: list[object] = [schema]
    while waiting:
        found = waiting.pop()
        if is_str_dict(found):
            kind, keys = found.get("type"), found.get("keys_schema")
            if kind in ("set", "frozenset") or (
                kind == "dict" and is_str_dict(keys) and keys.get("type") not in _KEYS_WITH_SECRET_HASHES
            ):
                return True
            waiting += [inner for key, inner in found.items() if key != "metadata"]
        elif is_list_or_tuple(found):
            waiting += found
    return False


def collide(value: object) -> bool:
    """Tell whether so many numbers of a JSON text, or of a Python value, have one hash that a set would be slow."""
    texts = (value,) if isinstance(value, str | bytes) else _leaves(value)
    hashes = Counter(_hashes({token for text in texts for token in _tokens(text)}))
    return bool(hashes) and max(hashes.values()) > _MOST


def _tokens(value: str | bytes) -> Iterable[str]:
    return _TOKEN.findall(value if isinstance(value, str) else value.decode("latin-1"))


def _leaves(value: object) -> Iterator[str]:
    waiting: list[Any] = [value]
    while waiting:
        found = waiting.pop()
        if is_dict(found):
            waiting += [*found, *found.values()]
        elif is_list_or_tuple(found) or is_set(found):
            waiting += found
        elif isinstance(found, str):
            yield found
        elif isinstance(found, int) and abs(found) >= 2**60 and found.bit_length() < _LONGEST:
            yield str(found)


def _hashes(tokens: Iterable[str]) -> Iterator[int]:
    for token in tokens:
        try:
            yield hash(Decimal(token))
        except (ArithmeticError, ValueError):
            digits = token.replace("-", "")
            if len(digits) == _UUID_DIGITS:
                try:
                    yield hash(int(digits, 16))
                except ValueError:
                    continue
