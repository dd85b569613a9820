"""How near a run is to its limits, in a real Chromium."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from journeyman import Agent, Limits, Runtime, run
from journeyman.record import Recordings
from journeyman.testing.scripted import ScriptedModel, call, say
from tests.view.conftest import Opened, Serve, Site
from tests.view.desk import look
from tests.view.stores import mending

pytestmark = pytest.mark.browser


async def gauge(page: Page, name: str) -> Locator:
    """Return a budget of the ending that is shown."""
    found = page.get_by_role("region", name="Budgets").locator(".gauge").filter(has_text=re.compile(f"^{name}"))
    await expect(found).to_be_visible()
    return found


async def share(of: Locator) -> float:
    """Return how much of its track is filled."""
    filled = "track => [...track.children].reduce((n, part) => n + part.offsetWidth, 0) / track.offsetWidth"
    return float(await of.locator(".track").evaluate(filled))


async def test_cost_and_time_are_shown_of_what_is_allowed(site: Site, open_page: Opened) -> None:
    page = await open_page(site.of("lead", "left"))
    await page.get_by_role("treeitem").filter(has_text="Turn 1").click()
    cost = await gauge(page, "cost")
    await expect(cost).to_have_text(re.compile(r"\$0\.\d{4} of \$0\.50$"))
    assert 0 < await share(cost) < 0.5
    assert await cost.locator(".own, .children, .background").count() == 3
    await expect(await gauge(page, "seconds")).to_have_text(re.compile(r"\d of 600$"))
    await expect(await gauge(page, "tokens")).to_have_text(re.compile(r"[\d,]+ of 1,000,000$"))
    await expect(page.locator(".gauge.ended")).to_have_count(0)


async def test_what_ended_a_run_stands_beside_what_was_left(site: Site, open_page: Opened) -> None:
    page = await open_page(site.of("lead", "BUDGET_EXCEEDED"))
    tokens = await gauge(page, "tokens")
    await expect(tokens).to_have_text(re.compile(r"[\d,]+ of 25,000 · [\d,]+ (needed|left)$"))
    await expect(tokens).to_have_class(re.compile("ended"))
    await expect(await gauge(page, "cost")).to_have_text(re.compile(r" of \$0\.50$"))
    await expect(page.locator(".gauge.ended")).to_have_count(1)


async def test_the_tables_of_an_ending_add_up(site: Site, open_page: Opened) -> None:
    page = await open_page(site.of("lead", "BUDGET_EXCEEDED"))
    await expect(page.get_by_role("group", name="Usage by child")).to_be_visible()
    summed: dict[tuple[str, str], int] = {}
    for by in ("child", "model", "tool"):
        table = page.get_by_role("group", name=f"Usage by {by}").get_by_role("table")
        columns = await table.get_by_role("columnheader").all_inner_texts()
        for row in await table.locator("tbody").get_by_role("row").all():
            for name, figure in zip(columns[1:], await row.get_by_role("cell").all_inner_texts(), strict=True):
                told = figure.replace(",", "")
                summed[by, name] = summed.get((by, name), 0) + (int(told) if told.isdigit() else 0)
    with Recordings(site.path) as recordings:
        found = recordings.find(site.runs["lead", "BUDGET_EXCEEDED"])
        n_called = found.calls
    assert summed["child", "requests"] == summed["model", "requests"] > 0
    assert summed["child", "out"] == summed["model", "out"] == found.usage.output_tokens
    assert summed["tool", "calls"] == n_called


async def test_calls_have_a_gauge_where_they_are_limited_and_time_none_where_it_is_not(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    looks = say(call("look", topic="a"), call("look", topic="b"))
    agent = Agent(name="scout", model=ScriptedModel([looks, say("They rise.")]), tools=[look], limits=Limits(calls=8))
    (await run(agent, "What?", runtime=Runtime(recorder=tmp_path / "runs.db"))).unwrap()
    with Recordings(tmp_path / "runs.db") as recordings:
        id = recordings.find("last").id
    async with serve(tmp_path / "runs.db") as url:
        page = await open_page(f"{url}?run={id}")
        calls = await gauge(page, "calls")
        await expect(calls).to_have_text("calls2 of 8")
        assert await share(calls) == pytest.approx(0.25, abs=0.02)
        await expect(await gauge(page, "seconds")).not_to_contain_text(" of ")
        await expect((await gauge(page, "seconds")).locator(".track")).to_be_hidden()


async def test_a_live_run_says_what_it_may_cost_and_how_long_it_may_take(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    async with mending(tmp_path), serve(tmp_path / "runs.db") as url:
        page = await open_page(url)
        await page.get_by_role("link", name="mender").click()
        head = page.get_by_role("region", name="This run")
        await expect(head).to_contain_text(re.compile(r"cost \$0\.\d{4} of \$0\.25for"))
        await expect(head).to_contain_text(re.compile(r"for [\d.]+ m?s\s+began"))
