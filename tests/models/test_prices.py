"""What models cost: the bundled table, long requests, and what nobody knows."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from operator import itemgetter
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from journeyman import Usage
from journeyman.connect import connect
from journeyman.model import facts_of
from journeyman.models import price_for, prices_as_of
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.prices import BUNDLED, find_price
from journeyman.types import NOTHING_USED, Price
from tests.support import price_table

STEPPED = Price(input=1, output=2, cache_read=0.1, above=((1_000, Price(input=10, output=20)),))
MILLION = 1_000_000


Amount = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]


class Amounts(BaseModel, extra="forbid"):
    input: Amount
    output: Amount
    cache_read: Amount | None = None
    cache_write: Amount | None = None

    def price(self) -> Price:
        return Price(**self.model_dump(include={*Amounts.model_fields}))


class Step(Amounts):
    tokens: Annotated[int, Field(gt=0, strict=True)]


class Entry(Amounts):
    """An entry of the table, as strictly as it can be said."""

    above: list[Step] = []
    until: date | None = None

    def price(self) -> Price:
        steps = sorted([(step.tokens, step.price()) for step in self.above], key=itemgetter(0))
        assert self.input or self.output
        return replace(super().price(), above=tuple(steps))


def test_the_table_is_what_its_source_makes_of_its_day() -> None:
    assert BUNDLED.read_text(encoding="utf-8") == price_table.text(prices_as_of()), "Run make prices."


def test_every_entry_is_well_formed_and_has_a_price() -> None:
    table = json.loads(BUNDLED.read_text(encoding="utf-8"))
    assert (table.keys(), table["as_of"]) == ({"as_of", "prices", "source"}, prices_as_of().isoformat())
    assert re.match(r"genai-prices \(.*\) [\d.]+, ", table["source"])
    names = [name.split(":", 1) for name in table["prices"]]
    assert {provider for provider, _ in names} == {*price_table.PROVIDERS.values()}
    by_token = {"web_search": None, "code_execution": None, "file_search": None}
    for name, entry in zip(names, TypeAdapter(dict[str, Entry]).validate_python(table["prices"]).values(), strict=True):
        price = price_for(*name)
        assert price is not None
        assert replace(price, **by_token) == entry.price(), name


def test_a_dated_name_costs_what_the_plain_one_does_unless_it_is_listed() -> None:
    sonnet = Price(input=2, output=10, cache_read=0.1, cache_write=2.5, web_search=10)
    for name in ("claude-sonnet-5-5", "Claude-Sonnet-5-5", "claude-sonnet-5-5-20261001", "claude-sonnet-5-5@20261001"):
        assert price_for("anthropic", name) == sonnet
    assert price_for("openai", "gpt-4o-2024-08-06") == price_for("openai", "gpt-4o")
    assert price_for("openai", "gpt-4o-2024-05-13") != price_for("openai", "gpt-4o")


def test_a_name_that_is_only_similar_has_no_price() -> None:
    for name in ("claude-sonnet-9", "claude-sonnet-5-5-turbo", "claude", "", "claude-sonnet-5-5-latest-x"):
        assert price_for("anthropic", name) is None, name


def test_a_provider_is_known_by_its_other_names() -> None:
    assert price_for("google-gla", "gemini-2.5-pro") == price_for("google", "gemini-2.5-pro") is not None
    assert price_for("nobody", "gemini-2.5-pro") is None


def test_prices_by_the_time_of_day_are_unknown() -> None:
    assert price_for("deepseek", "deepseek-chat") is None


def test_long_requests_have_the_price_of_long_requests() -> None:
    haiku = price_for("anthropic", "claude-haiku-5-5")
    assert haiku is not None
    assert [haiku.at(tokens).input for tokens in (0, 100_000, 100_001)] == [0.1, 0.1, 0.5]


def test_a_price_counts_until_the_day_on_which_it_changes() -> None:
    def price(until: date) -> Price | None:
        return find_price({"a:b": {"input": 1, "output": 2, "until": until.isoformat()}}, "a", "b")

    assert price(date.max) == Price(input=1, output=2)
    assert price(date(2026, 1, 1)) is None


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("name", ["anthropic:claude-sonnet-5-5", "openai:gpt-5.2", "openai-chat:gpt-5.2"])
def test_a_model_by_name_has_its_list_price_and_a_given_price_wins(name: str) -> None:
    provider, _, model = name.partition(":")
    assert facts_of(connect(name, api_key="k")).price == price_for(provider, model) is not None
    own = Price(input=1, output=1)
    assert facts_of(connect(name, api_key="k", price=own)).price == own


@pytest.mark.parametrize("name", ["anthropic:claude-sonnet-5-5", "openai:gpt-5.2"])
def test_at_another_address_the_price_is_unknown(name: str) -> None:
    assert facts_of(connect(name, api_key="k", base_url="http://127.0.0.1:1")).price is None


def test_an_unknown_model_has_no_price_and_neither_has_one_that_was_made_by_hand() -> None:
    assert facts_of(connect("anthropic:claude-next", api_key="k")).price is None
    assert facts_of(AnthropicModel("claude-sonnet-5-5")).price is None


def used(*, requests: int = 1, read: int | None = None, write: int | None = None, input: int = 0) -> Usage:
    return Usage(requests=requests, input_tokens=input, cache_read_tokens=read, cache_write_tokens=write)


def test_all_input_counts_for_the_length_of_a_request_and_all_of_it_has_the_higher_price() -> None:
    assert STEPPED.of(used(input=500, read=500)) == pytest.approx((500 + 50) / MILLION)
    assert STEPPED.of(used(input=501, read=500)) == pytest.approx(1_001 * 10 / MILLION)
    assert STEPPED.of(Usage(requests=1, input_tokens=1, output_tokens=5_000)) == pytest.approx(10_001 / MILLION)


def test_the_cost_of_several_requests_that_may_have_been_long_is_unknown() -> None:
    assert STEPPED.of(used(requests=2, input=1_001)) is None
    assert STEPPED.of(used(requests=2, input=1_000)) == pytest.approx(1_000 / MILLION)


PRICE = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)


def test_a_cache_saves_what_reading_it_is_cheaper_less_what_writing_it_is_dearer() -> None:
    assert PRICE.saved(used(read=1_000, write=0)) == pytest.approx(2_700 / MILLION)
    assert PRICE.saved(used(read=0, write=1_000)) == pytest.approx(-750 / MILLION)
    assert PRICE.saved(used(read=1_000, write=1_000)) == pytest.approx(1_950 / MILLION)


def test_what_nobody_reported_saved_nothing_that_is_known() -> None:
    assert PRICE.saved(used(input=1_000)) is None
    assert PRICE.saved(used(read=0)) == 0
    assert STEPPED.saved(used(requests=2, read=2_000)) is None


def test_charging_fills_in_what_is_missing_and_nothing_else() -> None:
    charged = PRICE.charged(used(read=1_000))
    assert (charged.cost, charged.cache_saved) == (PRICE.of(used(read=1_000)), PRICE.saved(used(read=1_000)))
    assert Price(input=9, output=9).charged(charged) is charged


def sums() -> Iterator[tuple[list[Usage], float | None]]:
    known, plain = PRICE.charged(used(read=1_000)), PRICE.charged(used(input=5))
    yield [known, known], 2 * (known.cache_saved or 0)
    yield [known, plain, NOTHING_USED], known.cache_saved
    yield [plain], None
    yield [known, used(read=0)], known.cache_saved
    yield [known, used(read=10)], None


@pytest.mark.parametrize(("usages", "saved"), [*sums()])
def test_savings_add_up_and_are_unknown_where_one_of_them_is(usages: list[Usage], saved: float | None) -> None:
    assert Usage.total(usages).cache_saved == (saved if saved is None else pytest.approx(saved))
