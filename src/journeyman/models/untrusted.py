"""Reading JSON that a provider sent: whatever it is, nothing here raises but `ProviderError`. Imports `errors`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import orjson
from pydantic import JsonValue
from pydantic_core import from_json

from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.types import JsonObject


def damaged(what: str, kind: ProviderErrorKind = "stream_cut") -> ProviderError:
    return ProviderError(f"The answer cannot be read: {what}.", kind=kind)


def parsed(data: bytes) -> JsonObject:
    """Return the JSON object; an empty one for any other JSON."""
    try:
        value: object = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        damage = f"{error}, in {data[:200].decode('utf-8', 'replace')!r}"
    else:
        return as_object(value)
    raise damaged(damage)


def all_parsed(data: Sequence[bytes]) -> Iterator[JsonObject]:
    """Yield what each of several texts holds, as `parsed` would: one after the other only where one is damaged."""
    try:
        values: list[object] = orjson.loads(b"[%b]" % b",".join(data))
    except orjson.JSONDecodeError:
        values = []
    whole = len(values) == len(data)
    return map(as_object, values) if whole else map(parsed, data)


def as_object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[JsonValue]:
    return cast("list[JsonValue]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def is_object(raw: str) -> bool:
    """Return whether `raw` is a JSON object that every reader of this package can parse."""
    try:
        return isinstance(from_json(raw, allow_inf_nan=False), dict)
    except ValueError:
        return False
