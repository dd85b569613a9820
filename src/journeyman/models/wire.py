"""Values as JSON bytes, the way every adapter sends them. Imports nothing of this package."""

from __future__ import annotations

import json

import orjson


def to_json(value: object) -> bytes:
    """Return `value` as JSON. Lone surrogates, which no JSON text can carry, become question marks."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
