"""What an answer of Chat Completions says that it used, and what it cost where the service bills and tells.

Imports `types` and `untrusted`. Read `openai_chat_decode.py` next.
"""

from __future__ import annotations

import math

from pydantic import JsonValue

from journeyman.models.untrusted import as_object
from journeyman.types import JsonObject, Usage


def usage_of(told: JsonObject, *, tells_cost: bool) -> Usage:
    """Return the use that `told`, the `usage` of an answer, tells; its cost only where that is in US dollars."""
    prompt, completion = told.get("prompt_tokens"), told.get("completion_tokens")
    inside, outside = as_object(told.get("prompt_tokens_details")), as_object(told.get("completion_tokens_details"))
    read, written = _count_of(inside, "cached_tokens"), _count_of(inside, "cache_write_tokens")
    total = prompt if isinstance(prompt, int) else 0
    return Usage(
        requests=1,
        input_tokens=max(0, total - (read or 0) - (written or 0)),
        output_tokens=completion if isinstance(completion, int) else 0,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_count_of(outside, "reasoning_tokens"),
        cost=_cost(told) if tells_cost else None,
        exact=isinstance(prompt, int) and isinstance(completion, int),
    )


def _count_of(details: JsonObject, name: str) -> int | None:
    count = details.get(name)
    return count if isinstance(count, int) else None


def _cost(told: JsonObject) -> float | None:
    """Return what was billed. Where the user's own key for the provider served (`is_byok`), `cost` is only the fee for
    passing on, and the provider's bill comes on top; without a word on that the whole is unknown."""
    cost = _dollars(told.get("cost"))
    if cost is None or told.get("is_byok") is not True:
        return cost
    upstream = _dollars(as_object(told.get("cost_details")).get("upstream_inference_cost"))
    return None if upstream is None else cost + upstream


def _dollars(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
