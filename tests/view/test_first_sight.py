"""What is seen first: who waits for a person, rows that are found late, and a recording in one file."""

import asyncio
import gzip
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from journeyman import Runtime, run
from journeyman.record import Recorder, Recordings
from journeyman.record.page import page
from journeyman.testing.scripted import call, say
from tests.view.conftest import Opened, Site
from tests.view.desk import asking, viewing
from tests.view.served import with_token

STATIC = Path(__file__).parents[2] / "src" / "journeyman" / "view" / "static"


async def test_the_list_says_which_run_waits_for_a_person_until_it_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    agent = asking(say(call("look", {"topic": "tides"}, id="c1")), say("They rise."))
    with Recorder(path, asks=True) as recorder:
        async with viewing(path) as desk:
            going = asyncio.ensure_future(run(agent, "What of the tides?", runtime=Runtime(recorder=recorder)))
            id = await desk.newest()
            question = await desk.waiting(id)
            [shown] = (await desk.get("/api/runs"))["runs"]
            assert shown["waits"] == "approval"
            await desk.say(id, kind="approve", question_id=question["question_id"], decision="allow")
            (await going).unwrap()
            await recorder.flush()
            assert "waits" not in (await desk.get("/api/runs"))["runs"][0]


def test_the_page_is_small() -> None:
    sizes = [len(gzip.compress(each.read_bytes(), mtime=0)) for each in STATIC.iterdir()]
    assert sum(sizes) <= 120_000


@pytest.mark.browser
async def test_a_recording_in_one_file_opens_without_a_network(site: Site, open_page: Opened, tmp_path: Path) -> None:
    with Recordings(site.path) as recordings:
        for name in ("lead", "echo"):
            found = next(each for each in recordings.runs(limit=100) if each.agent == name)
            (tmp_path / f"{name}.html").write_text("\n".join(page(recordings, found)), encoding="utf-8")
    shown = await open_page((tmp_path / "lead.html").as_uri())
    await expect(shown.get_by_role("treeitem", selected=True)).to_contain_text("Ending")
    await shown.keyboard.press("k")
    await expect(shown.get_by_role("treeitem", selected=True)).to_contain_text("Not sent")
    await shown.go_back()
    await expect(shown.get_by_role("treeitem", selected=True)).to_contain_text("Ending")
    await shown.get_by_role("treeitem").first.click()
    await shown.get_by_role("tab", name="Request").click()
    await expect(shown.locator(".code")).to_contain_text("messages")
    hostile = await open_page((tmp_path / "echo.html").as_uri())
    await expect(hostile.get_by_role("treeitem").first).to_be_visible()
    await hostile.get_by_role("button", name="Conversation").click()
    await expect(hostile.get_by_text("<script>").first).to_be_visible()
    assert "owned" not in await hostile.title()


@pytest.mark.browser
async def test_what_a_page_shows_first_is_asked_for_once_and_before_its_script_runs(
    site: Site, open_page: Opened
) -> None:
    told = "performance.getEntriesByType('resource').map((each) => [each.initiatorType, each.name])"
    page = await open_page(site.url)
    await expect(page.locator(".rbody [role=row]").first).to_be_visible()
    found: list[tuple[str, str]] = await page.evaluate(told)
    assert [how for how, name in found if "/api/runs" in name] == ["link"]
    run = site.of("archivist", "done")
    await page.goto(run)
    await expect(page.get_by_role("treeitem", selected=True)).to_contain_text("Ending")
    while not any(name.endswith("/requests") for _, name in found):  # the page must not run a predicate of ours
        found = await page.evaluate(told)
    id = run.rpartition("=")[2]
    asked = [(how, name.partition(f"/{id}")[2]) for how, name in found if f"/{id}" in name]
    assert [each for each in asked if "signals" not in each[1]] == [
        ("link", ""),
        ("link", "/events?after=0&limit=1000&most=4000"),
        ("link", "/events?after=0&skip=1000&limit=10000&most=4000"),
        ("link", "/requests"),
    ]


@pytest.mark.browser
async def test_runs_that_a_search_finds_late_are_listed_as_well(site: Site, open_page: Opened) -> None:
    late: dict[str, object] = {"runs": [], "more": True, "next": "elsewhere"}
    pages: list[str] = []
    shown = await open_page("about:blank")

    async def answer(route: Route) -> None:
        pages.append(route.request.url)
        if "before=elsewhere" in route.request.url:
            await route.continue_(url=route.request.url.replace("before=elsewhere", ""))
        else:
            await route.fulfill(json=late)

    await shown.route("**/api/runs?*", answer)
    await shown.goto(with_token(f"{site.url}?q=cancelled"))
    await expect(shown.get_by_role("row").filter(has_text="librarian").first).to_be_visible()
    assert "before=elsewhere" in pages[1]
