"""What models cost: the bundled table, tables of one's own, long requests, and what nobody knows."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from journeyman import DefinitionError, Usage
from journeyman.connect import connect
from journeyman.model import price_of
from journeyman.models import load_prices, price_for, prices_as_of
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.prices import BUNDLED
from journeyman.types import NOTHING_USED, Price
from tests.support import price_table

STEPPED = Price(input=1, output=2, cache_read=0.1, above=((1_000, Price(input=10, output=20)),))
MILLION = 1_000_000


# -- the bundled table -------------------------------------------------------------------------------------------------


def test_the_table_is_what_its_source_makes_of_its_day() -> None:
    assert BUNDLED.read_text(encoding="utf-8") == price_table.text(prices_as_of()), "Run make prices."


def test_every_entry_is_well_formed_and_has_a_price() -> None:
    table = load_prices(BUNDLED)
    assert table.as_of == prices_as_of()
    assert re.match(r"genai-prices \(.*\) [\d.]+, ", table.source)
    names = [name.split(":", 1) for name in table.entries]
    assert {provider for provider, _ in names} == {*price_table.PROVIDERS.values()}
    by_token = {"web_search": None, "code_execution": None, "file_search": None}
    listed = [(table.price_for(*name), price_for(*name)) for name in names]
    assert all(known is not None and entry == replace(known, **by_token) for entry, known in listed)
    assert all(entry != Price(input=0, output=0) for entry, _ in listed)


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


def test_a_price_counts_until_the_day_on_which_it_changes(tmp_path: Path) -> None:
    def price(until: date) -> Price | None:
        path = tmp_path / "prices.json"
        path.write_text(json.dumps({"prices": {"a:b": {"input": 1, "output": 2, "until": until.isoformat()}}}))
        return load_prices(path).price_for("a", "b")

    assert price(date.max) == Price(input=1, output=2)
    assert price(date(2026, 1, 1)) is None


# -- models by name ----------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("name", ["anthropic:claude-sonnet-5-5", "openai:gpt-5.2", "openai-chat:gpt-5.2"])
def test_a_model_by_name_has_its_list_price_and_a_given_price_wins(name: str) -> None:
    provider, _, model = name.partition(":")
    assert price_of(connect(name, api_key="k")) == price_for(provider, model) is not None
    own = Price(input=1, output=1)
    assert price_of(connect(name, api_key="k", price=own)) == own


@pytest.mark.parametrize("name", ["anthropic:claude-sonnet-5-5", "openai:gpt-5.2"])
def test_at_another_address_the_price_is_unknown(name: str) -> None:
    assert price_of(connect(name, api_key="k", base_url="http://127.0.0.1:1")) is None


def test_an_unknown_model_has_no_price_and_neither_has_one_that_was_made_by_hand() -> None:
    assert price_of(connect("anthropic:claude-next", api_key="k")) is None
    assert price_of(AnthropicModel("claude-sonnet-5-5")) is None


# -- tables of one's own -----------------------------------------------------------------------------------------------

TOML = """
as_of = 2026-11-20
source = "our contract"

[prices."anthropic:claude-sonnet-5-5"]
input = 1.5
output = 7
cache_read = 0.05
above = [{ tokens = 200_000, input = 3, output = 14 }, { tokens = 100_000, input = 2, output = 9 }]
"""


def test_a_table_in_toml_is_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(TOML)
    table = load_prices(path)
    assert (table.as_of, table.source) == (date(2026, 11, 20), "our contract")
    above = ((100_000, Price(input=2, output=9)), (200_000, Price(input=3, output=14)))
    expected = Price(input=1.5, output=7, cache_read=0.05, above=above)
    assert table.price_for("anthropic", "claude-sonnet-5-5-20261001") == expected
    assert table.price_for("anthropic", "claude-opus-5-5") is None


INPUT = 'prices["a:b"].input'
MALFORMED = {
    '{"prices": {"a:b": {"input": -1, "output": 2}}}': [f"{INPUT}: should be greater than or equal to 0, got -1."],
    '{"prices": {"a:b": {"input": "3", "output": 2, "cache-read": 1}}}': [
        f'{INPUT}: should be a valid number, got "3".',
        'prices["a:b"].cache-read: is not a known name.',
    ],
    '{"prices": {"a:b": {"input": 1}}}': ['prices["a:b"].output: is required.'],
    '{"prices": {"a:b": {"input": 1, "output": 1, "above": [{"tokens": 0, "input": 1, "output": 1}]}}}': [
        'prices["a:b"].above[0].tokens: should be greater than 0, got 0.'
    ],
    '{"prices": {"sonnet": {"input": 1, "output": 1}}}': [
        "prices.sonnet: its name is not of the form 'provider:model', got \"sonnet\"."
    ],
    '{"prices": {"a:b": {"input": NaN, "output": 1}}}': [f"{INPUT}: should be a finite number, got NaN."],
    "[]": ["It cannot be read: it does not hold a table."],
    "{": ["It cannot be read: EOF while parsing an object at line 1 column 1."],
}


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_table_is_refused_with_file_entry_and_field(text: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(text)
    with pytest.raises(DefinitionError) as caught:
        load_prices(path)
    assert [problem.message for problem in caught.value.problems] == MALFORMED[text]
    assert str(caught.value).startswith(f"The price table {str(path)!r} has ")
    assert all(problem.hint for problem in caught.value.problems)


def test_a_table_that_is_not_there_or_no_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("prices = ")
    for name, said in (("none.json", "No such file"), ("bad.toml", "Invalid value")):
        with pytest.raises(DefinitionError, match=said) as caught:
            load_prices(tmp_path / name)
        assert [problem.code for problem in caught.value.problems] == ["UNREADABLE_PRICES"]


# -- costs -------------------------------------------------------------------------------------------------------------


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
