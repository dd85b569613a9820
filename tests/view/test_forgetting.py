"""Forgetting runs in the viewer: what is asked of the server, and how it is done in a real Chromium."""

import asyncio
import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from journeyman import Agent, Runtime, Success, run
from journeyman.durable import Durable
from journeyman.errors import RunUnknown
from journeyman.record import Recorder, Recordings
from journeyman.testing.scripted import ScriptedModel, call, say
from tests.view.conftest import Opened, Serve
from tests.view.desk import Desk, asking, viewing
from tests.view.test_browser import stands_in_nobodys_way

NEWEST = "fetch('api/runs?limit=130').then(told => told.json()).then(({ runs }) => runs.map(run => run.id))"
LOOK = say(call("look", {"topic": "tides"}, id="c1"))


async def recorded(place: Path | str, *names: str) -> dict[str, str]:
    """Record a run of each of these agents, the last one the newest, and return their ids."""
    for name in names:
        agent = Agent(name=name, model=ScriptedModel([say("Yes.")]))
        (await run(agent, f"Go, {name}.", runtime=Runtime(recorder=place))).unwrap()
    with Recordings(place) as recordings:
        return {each.agent: each.id for each in recordings.runs()}


async def shown(desk: Desk) -> list[str]:
    return [each["agent"] for each in (await desk.get("/api/runs"))["runs"]]


async def test_runs_are_forgotten_with_all_that_is_stored_of_them(place: str) -> None:
    ids = await recorded(place, "one", "two", "three")
    async with viewing(place) as desk:
        told = await desk.forget(ids["one"], ids["three"], ids["one"])
        assert (told["http"], told["forgotten"]) == (200, 2)
        assert await shown(desk) == ["two"]
        assert (await desk.get("/api/store"))["runs"] == 1
        assert await desk.status(f"/api/runs/{ids['one']}/events") == 404
    with Recordings(place) as recordings:
        found = recordings.file.rows
        assert found("SELECT DISTINCT run FROM rec_events") == found("SELECT n FROM rec_runs")


async def test_while_one_of_them_goes_on_none_is_forgotten(place: str) -> None:
    ids = await recorded(place, "one")
    with Recorder(place, asks=True) as recorder:
        going = asyncio.create_task(run(asking(LOOK, say("They rise.")), "What?", runtime=Runtime(recorder=recorder)))
        async with viewing(place) as desk:
            id = await desk.newest()
            asked = await desk.waiting(id)
            told = await desk.forget(ids["one"], id)
            error = f"The run {id} of scout has not ended. Nothing was forgotten."
            assert (told["http"], told["error"]) == (409, error)
            assert told["hint"] == "Stop what goes on first, or leave it out."
            assert await shown(desk) == ["scout", "one"]
            await desk.say(id, kind="approve", decision="allow", question_id=asked["question_id"])
            (await going).unwrap()
            await recorder.flush()
        async with viewing(place) as desk:
            assert (await desk.forget(ids["one"], id))["http"] == 200
            assert await shown(desk) == []


@pytest.mark.parametrize("is_recorded", [False, True], ids=["alone", "recorded"])
async def test_a_durable_run_is_forgotten_once_it_has_ended(place: str, *, is_recorded: bool) -> None:
    async with Durable(place, suspend_after_s=0.01) as durable:
        agent, runtime = asking(LOOK, say("They rise.")), Runtime(recorder=place if is_recorded else None)
        handle = await durable.start(agent, "What?")
        await durable.resume(handle.id, agent, runtime=runtime)
        async with viewing(place) as desk:
            told = await desk.forget(handle.id)
            assert (told["http"], "has not ended" in told["error"]) == (409, True)
            asked = await desk.waiting(handle.id)
            await desk.say(handle.id, kind="approve", decision="allow", question_id=asked["question_id"])
            assert isinstance(await durable.resume(handle.id, agent, runtime=runtime), Success)
            assert (await desk.forget(handle.id))["forgotten"] == 1
            assert await shown(desk) == []
        with pytest.raises(RunUnknown):
            await durable.get(handle.id)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ({}, {"authorization": "Bearer wrong"}, 401),
        ({}, {"origin": "https://evil.example.org"}, 403),
        ({}, {"sec_fetch_site": "cross-site"}, 403),
        ({}, {"host": "evil.example.org"}, 421),
        ({}, {"content_type": "text/plain"}, 415),
        ({"runs": []}, {}, 422),
        ({"runs": "all"}, {}, 422),
        ({"runs": ["{}", *map(str, range(1_000))]}, {}, 422),
        ({"runs": ["", "{}"]}, {}, 404),
        ({"runs": ["{}", "01"]}, {}, 404),
        ({"runs": ["{}"], "older_than": "1s"}, {}, 422),
    ],
)
async def test_what_may_not_be_asked_forgets_nothing(
    tmp_path: Path, body: dict[str, object], headers: dict[str, str], status: int
) -> None:
    path = tmp_path / "runs.db"
    [id] = (await recorded(path, "one")).values()
    told = json.dumps(body or {"runs": ["{}"]}).replace("{}", id).encode()
    async with viewing(path) as desk:
        given = {"content_type": "application/json", **headers}
        assert await desk.status("/api/forget", "POST", told, **given) == status
        assert await desk.status("/api/forget") == 404
        assert await shown(desk) == ["one"]
    async with viewing(path, read_only=True) as desk:
        assert (await desk.forget(id))["http"] == 403
        assert await shown(desk) == ["one"]


def rows(page: Page) -> Locator:
    return page.locator(".rbody [role=row] .agent")


@pytest.mark.browser
async def test_a_range_of_runs_is_chosen_with_shift_and_forgotten_after_they_were_named(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    path = tmp_path / "runs.db"
    ids = await recorded(path, "ada", "ben", "cleo", "dora", "emil")
    async with serve(path) as url:
        page = await open_page(url)
        boxes = page.get_by_role("checkbox")
        await boxes.nth(1).click()
        await boxes.nth(3).click(modifiers=["Shift"])
        await expect(page.get_by_role("region", name="Selected runs")).to_contain_text("3 selected")
        await boxes.nth(2).click()
        await page.get_by_role("button", name="Forget…").click()
        dialog = page.get_by_role("dialog", name="Forget 2 runs?")
        named = dialog.get_by_role("listitem")
        await expect(named).to_have_text([re.compile(r"dora Go, dora\. \d+ s"), re.compile(r"ben Go, ben\. \d+ s")])
        await expect(dialog).to_contain_text("Nothing brings this back.")
        await expect(dialog.get_by_role("button", name="Keep them")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(dialog).to_have_count(0)
        await expect(rows(page)).to_have_count(5)
        await page.get_by_role("button", name="Forget…").click()
        await dialog.get_by_role("button", name="Forget 2 runs").click()
        await expect(rows(page)).to_have_text(["emil", "cleo", "ada"])
        await expect(page.get_by_text("2 runs forgotten.")).to_be_visible()
        await expect(page.get_by_text("3 of 3", exact=True)).to_be_visible()
    with Recordings(path) as recordings:
        assert [each.id for each in recordings.runs()] == [ids["emil"], ids["cleo"], ids["ada"]]


async def forgotten_by_keyboard(page: Page) -> None:
    await expect(page.get_by_role("button", name="Keep")).to_be_focused()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.browser
async def test_runs_are_chosen_and_forgotten_by_keyboard_alone(tmp_path: Path, serve: Serve, open_page: Opened) -> None:
    await recorded(tmp_path / "runs.db", "ada", "ben", "cleo", "dora")
    async with serve(tmp_path / "runs.db") as url:
        page = await open_page(url)
        await expect(rows(page)).to_have_count(4)
        for key in ("j", "j", "x", "j", "j", "X", "Delete"):
            await page.keyboard.press(key)
        await expect(page.get_by_role("dialog", name="Forget 3 runs?")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.get_by_role("checkbox", checked=True)).to_have_count(3)
        await page.keyboard.press("Delete")
        await forgotten_by_keyboard(page)
        await expect(rows(page)).to_have_text(["dora"])
        for key in ("k", "x", "Delete"):
            await page.keyboard.press(key)
        await forgotten_by_keyboard(page)
        await expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()


@pytest.mark.browser
async def test_a_list_goes_on_though_somebody_has_forgotten_its_last_row(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    path = tmp_path / "runs.db"
    await recorded(path, *[f"agent-{n}" for n in range(130)])
    async with serve(path) as url:
        page = await open_page(url, height=600, bears="404")
        await expect(page.get_by_text("100+ of 130", exact=True)).to_be_visible()
        with Recordings(path) as recordings:
            recordings.forget([recordings.find(id) for id in (await page.evaluate(NEWEST))[99:110]])
        await page.locator(".rbody").evaluate("body => { body.scrollTop = 80 * 32 }")
        await expect(page.get_by_text("119 of 130", exact=True)).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.browser
async def test_what_goes_on_is_refused_in_words_and_can_be_left_out(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    path = tmp_path / "runs.db"
    await recorded(path, "ada", "ben")
    with Recorder(path, asks=True) as recorder:
        going = asyncio.create_task(run(asking(LOOK, say("They rise.")), "What?", runtime=Runtime(recorder=recorder)))
        async with serve(path) as url:
            page = await open_page(url, bears="409")
            await expect(page.get_by_text("waits for approval")).to_be_visible()
            for n in range(3):
                await page.get_by_role("checkbox").nth(n).click()
            await page.keyboard.press("Delete")
            dialog = page.get_by_role("dialog")
            await dialog.get_by_role("button", name="Forget 3 runs").click()
            await expect(dialog.get_by_role("alert")).to_contain_text("of scout has not ended. Nothing was forgotten.")
            await expect(rows(page)).to_have_text(["scout", "ben", "ada"])
            await dialog.get_by_role("button", name="Leave out what goes on").click()
            await expect(page.get_by_role("checkbox", checked=True)).to_have_count(2)
            await page.keyboard.press("Delete")
            await dialog.get_by_role("button", name="Forget 2 runs").click()
            await expect(rows(page)).to_have_text(["scout"])
        going.cancel()
        with suppress(asyncio.CancelledError):
            await going


@pytest.mark.browser
async def test_in_a_store_that_is_only_looked_at_nothing_can_be_forgotten(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    await recorded(tmp_path / "runs.db", "ada")
    async with serve(tmp_path / "runs.db", "--read-only") as url:
        page = await open_page(url)
        await page.get_by_role("checkbox").click()
        await expect(page.get_by_text("read only")).to_be_visible()
        await page.keyboard.press("Delete")
        await expect(page.get_by_role("button", name="Forget…")).to_have_count(0)
        await expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.browser
@pytest.mark.parametrize(("width", "dark"), [(1440, True), (400, False)])
async def test_the_question_whether_to_forget_stands_in_nobodys_way(
    tmp_path: Path, serve: Serve, open_page: Opened, *, width: int, dark: bool
) -> None:
    await recorded(tmp_path / "runs.db", *[f"agent-{n}" for n in range(12)])
    async with serve(tmp_path / "runs.db") as url:
        page = await open_page(url, width=width, height=860, dark=dark)
        if width < 700:
            await page.get_by_role("button", name="Select").click()
        await page.get_by_role("checkbox").first.click()
        await page.get_by_role("checkbox").last.click(modifiers=["Shift"])
        await stands_in_nobodys_way(page, width)
        await page.get_by_role("button", name="Forget…").click()
        await expect(page.get_by_role("dialog")).to_contain_text("and 4 more")
        await stands_in_nobodys_way(page, width)
