"""The list prices of models, in a table that comes with the package.

The table holds what providers ask for plain requests, as of a certain day: `prices.json` says which and by what source,
and `make prices` brings it up to date. A model that the table does not hold has an unknown price; it is not free.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Final

from pydantic_core import from_json

from journeyman.definition.narrowing import as_list, as_object, as_text
from journeyman.machine.files import read_text
from journeyman.models.requests import by_longest_prefix
from journeyman.types import JsonObject, Price

BUNDLED: Final = Path(__file__).with_name("prices.json")

# Other names of providers in the table.
_ALIASES: Final[Mapping[str, str]] = {
    "bedrock": "aws",
    "google-cloud": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "grok": "xai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "x-ai": "xai",
}

# claude-sonnet-4-5-20250929 and gpt-5.2-2025-12-11 cost what the names without a date do, unless listed by themselves.
_DATE: Final = re.compile(r"[-@](?:latest|20\d{6}|20\d\d-\d\d-\d\d)$")


def price_for(provider: str, model: str) -> Price | None:
    """Return the list price of a model by its names, such as `anthropic` and `claude-sonnet-5-5`; None when unknown.

    With it come the prices of the provider's own tools, as far as they are by the call.
    """
    provider, model = _ALIASES.get(provider, provider), model.lower()
    price = find_price(as_object(_load_bundled().get("prices")), provider, model)
    return None if price is None else replace(price, **by_longest_prefix(_HOSTED, f"{provider}:{model}"))


def find_price(entries: JsonObject, provider: str, model: str) -> Price | None:
    """Return the price of a model in a table, as it is today; None when it is unknown."""
    entry = entries.get(f"{provider}:{model}") or entries.get(f"{provider}:{_DATE.sub('', model)}")
    until = as_text(as_object(entry).get("until"))
    if entry is None or (until and date.fromisoformat(until) <= datetime.now(UTC).date()):
        return None
    return _price(as_object(entry))


# US dollars for a thousand calls, as the providers listed them in November 2026, allowances that are free left out.
# What is not here is billed otherwise: containers by the hour, Gemini 2 by the answer.
_HOSTED: Final[Mapping[str, Mapping[str, float]]] = {
    "anthropic:": {"web_search": 10.0},
    "openai:": {"web_search": 10.0, "file_search": 2.5},
    "openai:gpt-4o-search": {},
    "openai:gpt-4o-mini-search": {},
    "google:": {"code_execution": 0.0, "file_search": 0.0},
    "google:gemini-3": {"web_search": 14.0, "code_execution": 0.0, "file_search": 0.0},
    "": {},
}


def prices_as_of() -> date:
    """Return the day of the bundled prices."""
    return date.fromisoformat(as_text(_load_bundled().get("as_of")))


@cache
def _load_bundled() -> JsonObject:
    return as_object(from_json(read_text("journeyman.models", BUNDLED.name)))


def _price(entry: JsonObject) -> Price:
    steps = [as_object(step) for step in as_list(entry.get("above"))]
    return Price(
        input=_dollars(entry, "input") or 0.0,
        output=_dollars(entry, "output") or 0.0,
        cache_read=_dollars(entry, "cache_read"),
        cache_write=_dollars(entry, "cache_write"),
        above=tuple(sorted(((int(_dollars(step, "tokens") or 0), _price(step)) for step in steps), key=itemgetter(0))),
    )


def _dollars(entry: JsonObject, name: str) -> float | None:
    value = entry.get(name)
    return value if isinstance(value, int | float) else None
