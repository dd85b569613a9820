"""The prices of models: a table that comes with the package, and tables of one's own.

The table holds what providers ask for plain requests, as of a certain day: `prices.json` says which and by what source,
and `make prices` brings it up to date. A model that the table does not hold has an unknown price; it is not free.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from journeyman.data import lazy_dataclass
from journeyman.errors import DefinitionError, Problem
from journeyman.files import read_text
from journeyman.models.requests import by_longest_prefix
from journeyman.narrowing import as_list, as_object, as_text
from journeyman.tools.issues import faults_of, issue_lines
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


@lazy_dataclass(frozen=True, kw_only=True)
class PriceTable:
    """Prices by provider and model."""

    entries: Mapping[str, JsonValue]
    """The prices in a file, by `provider:model`."""
    as_of: date | None = None
    """The day of the prices; None when the file does not say."""
    source: str = ""
    """The source of the prices."""

    def price_for(self, provider: str, model: str) -> Price | None:
        """Return what the model costs; None when that is unknown."""
        provider, model = _ALIASES.get(provider, provider), model.lower()
        entry = self.entries.get(f"{provider}:{model}") or self.entries.get(f"{provider}:{_DATE.sub('', model)}")
        until = as_text(as_object(entry).get("until"))
        if entry is None or (until and date.fromisoformat(until) <= datetime.now(UTC).date()):
            return None
        return _price(as_object(entry))


def price_for(provider: str, model: str) -> Price | None:
    """Return the list price of a model by its names, such as `anthropic` and `claude-sonnet-5-5`; None when unknown.

    With it come the prices of the provider's own tools, as far as they are by the call.
    """
    price = _load_bundled().price_for(provider, model)
    fees = by_longest_prefix(_HOSTED, f"{_ALIASES.get(provider, provider)}:{model.lower()}")
    return None if price is None else replace(price, **fees)


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
    return _load_bundled().as_of or date.min


@cache
def _load_bundled() -> PriceTable:
    return _table(as_object(from_json(read_text("journeyman.models", BUNDLED.name))))


def _table(given: JsonObject) -> PriceTable:
    """Return a table that is known to be well formed: checking it takes longer than reading it."""
    as_of = as_text(given.get("as_of"))
    return PriceTable(
        entries=as_object(given.get("prices")),
        as_of=date.fromisoformat(as_of) if as_of else None,
        source=as_text(given.get("source")),
    )


def _price(entry: JsonObject) -> Price:
    steps = [as_object(step) for step in as_list(entry.get("above"))]
    return Price(
        input=_dollars(entry, "input") or 0.0,
        output=_dollars(entry, "output") or 0.0,
        cache_read=_dollars(entry, "cache_read"),
        cache_write=_dollars(entry, "cache_write"),
        web_search=_dollars(entry, "web_search"),
        code_execution=_dollars(entry, "code_execution"),
        file_search=_dollars(entry, "file_search"),
        above=tuple(sorted(((int(_dollars(step, "tokens") or 0), _price(step)) for step in steps), key=itemgetter(0))),
    )


def _dollars(entry: JsonObject, name: str) -> float | None:
    value = entry.get(name)
    return value if isinstance(value, int | float) else None


# -- tables of one's own -----------------------------------------------------------------------------------------------


def _checked_name(name: str) -> str:
    provider, _, model = name.partition(":")
    if not provider or not model:
        raise ValueError("is not of the form 'provider:model'")
    return name


_Name = Annotated[str, AfterValidator(_checked_name)]
_Amount = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]


@lazy_dataclass(frozen=True, kw_only=True)
class _Amounts:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    input: _Amount
    output: _Amount
    cache_read: _Amount | None = None
    cache_write: _Amount | None = None


@lazy_dataclass(frozen=True, kw_only=True)
class _Step(_Amounts):
    """The price of a request that is longer than `tokens`."""

    tokens: Annotated[int, Field(gt=0, strict=True)]


@lazy_dataclass(frozen=True, kw_only=True)
class _PriceEntry(_Amounts):
    """The price of a model in the table, with its steps for longer requests."""

    web_search: _Amount | None = None
    code_execution: _Amount | None = None
    file_search: _Amount | None = None
    above: tuple[_Step, ...] = ()
    until: date | None = None
    """The day on which the price changes: from then on it is unknown."""


@lazy_dataclass(frozen=True, kw_only=True)
class _File:
    """A table of prices."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    prices: dict[_Name, _PriceEntry]
    as_of: date | None = None
    source: str = ""


def load_prices(path: str | Path) -> PriceTable:
    """Read a price table of your own: TOML if the file's name ends in `.toml`, otherwise JSON, in the form of
    `prices.json`.

    Raises:
        DefinitionError: the file cannot be read or is malformed; lists everything that is wrong, by entry and field.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        given: object = tomllib.loads(data.decode()) if path.suffix == ".toml" else from_json(data)
        table = as_object(given)
        if table is not given:
            raise ValueError("it does not hold a table")
        return _table(as_object(_files().dump_python(_files().validate_python(table), mode="json")))
    except ValidationError as error:
        hint = "Prices are US dollars per million tokens, by 'provider:model'."
        lines = [line.replace('["[key]"]: its key ', ": its name ") for line in issue_lines(faults_of(error))]
        problems = [Problem("INVALID_PRICE", f"{line}.", hint) for line in lines]
    except (OSError, ValueError) as error:
        problems = [Problem("UNREADABLE_PRICES", f"It cannot be read: {error}.", "Fix the file, or name another.")]
    raise DefinitionError(f"The price table {str(path)!r}", problems)


@cache
def _files() -> TypeAdapter[_File]:
    return TypeAdapter(_File)
