"""Makes the price table of the package from the data of `genai-prices`: `make prices`.

    python -m tests.support.price_table [--date 2026-11-22]

The table holds what is asked for plain requests on that day. What it could not say rightly is left out, and so unknown:
prices by time of day, by request or by page, and where pictures have a price of their own. Names are taken as the
source spells them out, and none of its patterns: a model that is new and dear might fit one.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Final, cast

import genai_prices
from genai_prices import types as theirs
from genai_prices.data import providers

from journeyman.models.prices import BUNDLED

SOURCE: Final = "genai-prices (https://github.com/pydantic/genai-prices)"

# By the source's names, those that models here have.
PROVIDERS: Final[Mapping[str, str]] = {
    "anthropic": "anthropic",
    "aws": "aws",
    "cerebras": "cerebras",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "google": "google",
    "groq": "groq",
    "mistral": "mistral",
    "moonshotai": "moonshotai",
    "openai": "openai",
    "x-ai": "xai",
}

_FIELDS: Final[Mapping[str, str]] = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
}

# Paid for what plain requests do not have.
_BESIDE: Final = frozenset(
    {
        *("web_searches_kcount", "storage_searches_kcount", "cache_write_1h_mtok"),
        *("input_audio_mtok", "output_audio_mtok", "cache_audio_read_mtok", "input_video_mtok", "output_video_mtok"),
        "output_image_mtok",
    }
)

Entry = dict[str, object]


def table(day: date) -> dict[str, object]:
    """Return the whole table."""
    prices: dict[str, Entry] = {}
    for provider in providers:
        for model in provider.models if provider.id in PROVIDERS else ():
            entry = _entry(model, day)
            for name in _names(provider, model) if entry is not None else ():
                prices[f"{PROVIDERS[provider.id]}:{name}"] = entry or {}
    return {
        "as_of": day.isoformat(),
        "source": f"{SOURCE} {genai_prices.__version__}, © Pydantic Services Inc., MIT",
        "prices": dict(sorted(prices.items())),
    }


def text(day: date) -> str:
    """Return the table as it is stored: one line for each model, so that a change can be read."""
    whole = table(day)
    prices = cast("dict[str, object]", whole.pop("prices"))
    head = json.dumps(whole, indent=1, ensure_ascii=False).removesuffix("\n}")
    lines = (f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in prices.items())
    return f'{head},\n "prices": {{\n' + ",\n".join(lines) + "\n }\n}\n"


def _names(provider: theirs.Provider, model: theirs.ModelInfo) -> Iterator[str]:
    """Give the names that mean this model, and no other."""
    for name in sorted({model.id.lower(), *_spelled_out(model.match)}):
        if provider.find_model(name) is model and " " not in name:
            yield name


def _spelled_out(clause: theirs.MatchLogic) -> Iterator[str]:
    match clause:
        case theirs.ClauseEquals(name) | theirs.ClauseStartsWith(name):
            yield name.lower().rstrip("-@:")
        case theirs.ClauseOr(clauses):
            for each in clauses:
                yield from _spelled_out(each)
        case _:
            return


def _entry(model: theirs.ModelInfo, day: date) -> Entry | None:
    """Return the model's entry; None if it has no price that a table can give."""
    prices, until = _in_force(model, day)
    if prices is None or not _is_plain(prices):
        return None
    given = {ours: getattr(prices, theirs) for theirs, ours in _FIELDS.items()}
    base = {name: _number(price, 0) for name, price in given.items() if price is not None}
    if not base["input"] and not base["output"]:
        return None  # a preview, or not known: nothing is free for long
    steps = sorted(
        {tier.start for price in given.values() if isinstance(price, theirs.TieredPrices) for tier in price.tiers}
    )
    entry: Entry = {**base}
    if steps:
        entry["above"] = [
            {"tokens": step, **{name: _number(price, step + 1) for name, price in given.items() if price is not None}}
            for step in steps
        ]
    if until is not None:
        entry["until"] = until.isoformat()
    return entry


def _in_force(model: theirs.ModelInfo, day: date) -> tuple[theirs.ModelPrice | None, date | None]:
    """Return the prices of that day, and the day on which they change."""
    if isinstance(model.prices, theirs.ModelPrice):
        return model.prices, None
    starts = [(_start(price), price.prices) for price in model.prices]
    if any(start is None for start, _ in starts):
        return None, None
    known = [(start, prices) for start, prices in starts if start is not None]
    later = [start for start, _ in known if start > day]
    current = [prices for start, prices in known if start <= day]
    return (current[-1] if current else None), min(later, default=None)


def _start(price: theirs.ConditionalPrice) -> date | None:
    """Return from which day on a price holds; None when that is not all that it depends on."""
    if price.constraint is None:
        return date.min
    return price.constraint.start_date if isinstance(price.constraint, theirs.StartDateConstraint) else None


def _is_plain(prices: theirs.ModelPrice) -> bool:
    """Tell whether input and output tokens are all that is paid for."""
    given = {name: value for name, value in vars(prices).items() if value is not None and not name.startswith("_")}
    if given.get("input_image_mtok") == given.get("input_mtok"):
        given.pop("input_image_mtok", None)
    return {"input_mtok", "output_mtok"} <= given.keys() <= {*_FIELDS, *_BESIDE}


def _number(price: Decimal | theirs.TieredPrices, input_tokens: int) -> float:
    if isinstance(price, theirs.TieredPrices):
        reached = [tier.price for tier in price.tiers if input_tokens > tier.start]
        price = reached[-1] if reached else price.base
    return int(price) if price == int(price) else float(price)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.price_table")
    parser.add_argument("--date", type=date.fromisoformat, default=datetime.now(UTC).date())
    BUNDLED.write_text(text(parser.parse_args().date), encoding="utf-8")


if __name__ == "__main__":
    main()
