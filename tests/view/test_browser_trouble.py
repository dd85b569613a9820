"""What a real Chromium shows of a store that fails while somebody looks, and of runs while they go on."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from journeyman import Agent, Limits, Runtime, run, tool
from journeyman.model import Request, Response
from journeyman.record import Recorder, Recordings
from journeyman.store.recordings import FORMAT, events_path
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call, say
from tests.support import tamper
from tests.view.conftest import Opened, Serve, clicked
from tests.view.desk import asking, look, viewing
from tests.view.test_browser import stands_in_nobodys_way

pytestmark = pytest.mark.browser

LOOK = say(call("look", {"topic": "tides"}, id="c1"))


async def recorded(path: Path) -> None:
    agent = Agent(name="scout", model=ScriptedModel([LOOK, say("They rise.")]), tools=[look])
    (await run(agent, "What of the tides?", runtime=Runtime(recorder=path))).unwrap()


@asynccontextmanager
async def waiting(path: Path) -> AsyncGenerator[asyncio.Task[object]]:
    """Let a run go on that waits for somebody."""
    with Recorder(path, asks=True) as recorder:
        going = asyncio.create_task(run(asking(LOOK, say("They rise.")), "What?", runtime=Runtime(recorder=recorder)))
        yield going
        going.cancel()
        await asyncio.wait((going,))


@asynccontextmanager
async def chatting(path: Path) -> AsyncGenerator[None]:
    """Let a run go on that says something many times a second."""
    is_over = asyncio.Event()

    async def answer(request: Request) -> Response:
        n = len(request.messages)
        return say("Enough.") if is_over.is_set() else say(f"Look {n}.", call("linger", id=f"c{n}"))

    @tool
    async def linger() -> str:
        """Take as long as a quick tool does."""
        await asyncio.sleep(0.02)
        return "**nothing** <b>yet</b>"

    agent = Agent(name="clock", model=FunctionModel(answer), tools=[linger], limits=Limits(iterations=100_000))
    with Recorder(path) as recorder:
        going = asyncio.create_task(run(agent, "Look on.", runtime=Runtime(recorder=recorder)))
        yield
        is_over.set()
        (await going).unwrap()


def overwrite(path: Path) -> None:
    """Put what is no database over all but the head of a store."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


def make_newer(path: Path) -> None:
    tamper.alter(path, tamper.NEWER_RECORDINGS)


def take_away(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


FAILS: dict[str, tuple[Callable[[Path], None], re.Pattern[str]]] = {
    "newer": (
        make_newer,
        re.compile(f"has recordings of format 99; this version of journeyman knows those up to {FORMAT}. Update"),
    ),
    "gone": (
        take_away,
        re.compile("was removed, or replaced|There is no store"),
    ),  # the second: nobody had opened it yet
}


@pytest.mark.parametrize("how", FAILS)
async def test_the_list_says_what_became_of_its_store_and_the_rows_stay(
    tmp_path: Path, serve: Serve, open_page: Opened, how: str
) -> None:
    path = tmp_path / "runs.db"
    await recorded(path)
    async with serve(path) as url:
        page = await open_page(url, bears="500")  # what the page asks for next, it asks of what is left
        await expect(page.get_by_role("link", name="scout")).to_be_visible()
        happens, told = FAILS[how]
        happens(path)
        await expect(page.get_by_role("alert")).to_contain_text(told)
        await expect(page.get_by_text("The viewer's process does not answer.")).to_have_count(0)
        await expect(page.get_by_role("link", name="scout")).to_be_visible()


@pytest.mark.parametrize("how", FAILS)
async def test_a_live_run_says_what_became_of_its_store_and_the_steps_stay(
    tmp_path: Path, open_page: Opened, how: str
) -> None:
    path = tmp_path / "runs.db"
    async with waiting(path), viewing(path) as desk:
        page = await open_page(f"{desk.url}/?run={await desk.newest()}")
        await expect(page.locator(".approval")).to_be_visible()
        happens, told = FAILS[how]
        happens(path)
        await expect(page.get_by_role("alert").filter(has_text=told)).to_be_visible()
        await expect(page.get_by_role("treeitem").first).to_be_visible()


async def test_damage_is_said_where_it_is_met(tmp_path: Path, serve: Serve, open_page: Opened) -> None:
    path = tmp_path / "runs.db"
    await recorded(path)
    async with serve(path) as url:
        page = await open_page(url, bears="500")
        await expect(page.get_by_role("link", name="scout")).to_be_visible()
        overwrite(events_path(path))
        await page.get_by_role("link", name="scout").click()
        told = page.get_by_role("alert")
        await expect(told).to_contain_text("runs.db is damaged: database disk image is malformed.")
        await expect(told).to_contain_text("Close it and open it again: what can be read of it is then recovered.")
        await expect(told.get_by_role("button", name="Try now")).to_be_visible()


async def test_what_was_repaired_stands_above_the_list(tmp_path: Path, serve: Serve, open_page: Opened) -> None:
    path = tmp_path / "runs.db"
    await recorded(path)
    async with serve(path) as url:
        overwrite(events_path(path))  # before anybody has looked
        page = await open_page(url)
        await expect(page.get_by_role("note")).to_contain_text("was damaged")
        await expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()


async def test_a_store_in_which_another_program_writes_takes_no_words_and_says_so(
    tmp_path: Path, open_page: Opened
) -> None:
    path = tmp_path / "runs.db"
    async with waiting(path) as going, viewing(path) as desk:
        page = await open_page(f"{desk.url}/?run={await desk.newest()}", bears="503")
        await expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
        with closing(sqlite3.connect(path, isolation_level=None)) as another:
            another.execute("BEGIN IMMEDIATE")
            await page.keyboard.press("y")
            told = "could not be written: database is locked. Another program is writing to it. Try again when it has"
            await expect(page.locator("#toast")).to_contain_text(told)
            another.execute("ROLLBACK")
        await page.keyboard.press("y")
        await going
        await expect(page.locator(".head")).to_contain_text("SUCCESS")


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (1440, True), (400, False)])
async def test_what_is_live_stands_in_nobodys_way(
    tmp_path: Path, serve: Serve, open_page: Opened, *, width: int, dark: bool
) -> None:
    path = tmp_path / "runs.db"
    async with chatting(path), serve(path) as url:
        page = await open_page(url, width=width, height=900 if width > 700 else 860, dark=dark)
        await expect(page.get_by_role("link", name="clock")).to_be_visible()
        await stands_in_nobodys_way(page, width)
        await page.get_by_role("link", name="clock").click()
        await expect(page.locator(".operator")).to_be_visible()
        figures = page.locator(".head .figures")
        before = await figures.inner_text()
        await stands_in_nobodys_way(page, width)
        await expect(figures).not_to_have_text(before)


@pytest.mark.parametrize("width", [1440, 400])
async def test_what_waits_stands_in_nobodys_way(tmp_path: Path, open_page: Opened, width: int) -> None:
    path = tmp_path / "runs.db"
    async with waiting(path), viewing(path) as desk:
        page = await open_page(f"{desk.url}/?run={await desk.newest()}", width=width)
        await expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
        await stands_in_nobodys_way(page, width)


async def test_of_two_calls_that_wait_each_is_answered_by_itself(tmp_path: Path, open_page: Opened) -> None:
    path = tmp_path / "runs.db"
    two = say(call("look", {"topic": "ebb"}, id="c1"), call("look", {"topic": "flow"}, id="c2"))
    with Recorder(path, asks=True) as recorder:
        going = asyncio.create_task(run(asking(two, say("They rise.")), "What?", runtime=Runtime(recorder=recorder)))
        async with viewing(path) as desk:
            page = await open_page(f"{desk.url}/?run={await desk.newest()}", width=400, height=860)
            for _ in range(2):
                await page.get_by_role("button", name="Change", exact=True).click()
                written = page.get_by_label("Arguments, as JSON")
                text = await written.input_value()
                await written.fill(text.replace("w", "v").replace("b", "p"))
                await clicked(page.get_by_role("button", name="Approve these"))
            result = (await going).unwrap()
            await recorder.flush()
            with Recordings(path) as recordings:
                found = recordings.events(recordings.find("last"), kinds=["ToolFinished"])
    assert result == "They rise."
    assert sorted(str(each.facts["tool_result"]).rpartition("\n")[2] for each in found) == ["about epp", "about flov"]


async def test_a_run_that_ends_between_the_list_and_its_stream_is_not_missed(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    path = tmp_path / "runs.db"
    async with waiting(path) as going, serve(path) as url:
        page = await open_page(f"{url}favicon.svg")
        held = asyncio.Event()

        async def hold(route: Route) -> None:
            await held.wait()
            await route.continue_()

        await page.route("**/api/live*", hold)
        await page.goto(url)
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="scout"))
        await expect(row).to_contain_text("waits for approval")
        with Recordings(path) as recordings:
            assert len(recordings.runs()) == 1
        going.cancel()
        await asyncio.wait((going,))
        await recorded(path)
        held.set()
        await expect(row).to_have_count(2)
        await expect(row.last).not_to_contain_text("waits for approval")
