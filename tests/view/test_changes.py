"""Changes in a real Chromium: an edit that waits, with the lines around it, and texts whose lines are long."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect
from pydantic import BaseModel

from journeyman import Agent, Chat, Output, Runtime, run
from journeyman.model import Response
from journeyman.permission import Permission
from journeyman.record import Recorder, Recordings
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.toolbox import Workspace
from tests.view.conftest import Opened, Serve
from tests.view.test_browser import stands_in_nobodys_way

pytestmark = pytest.mark.browser

LONG = "word " * 120
PAGE = "".join(f"Line {number} of the page.\n" for number in range(1, 401)).replace("Line 1 of", f"{LONG}Line 1 of")


@asynccontextmanager
async def waiting(folder: Path, *answers: Response) -> AsyncGenerator[Path]:
    """Record a chat that edits a page of 400 lines; it waits wherever it may not go on by itself."""
    (folder / "docs").mkdir()
    (folder / "docs" / "page.md").write_text(PAGE, encoding="utf-8")
    tools = Workspace(folder / "docs").tools("read", "edit", "write")
    agent = Agent(
        name="mender", model=ScriptedModel(answers), tools=tools, gate=Permission(mode="balanced", roots=[folder])
    )
    with Recorder(folder / "runs.db") as recorder:
        async with Chat(agent, runtime=Runtime(recorder=recorder), on_event=lambda _: None) as chat:
            turn = asyncio.ensure_future(chat.prompt("Mend the page."))
            try:
                yield folder / "runs.db"
            finally:
                chat.abort("the viewer was closed")
                await turn


def edit(before: str, after: str, *, everywhere: bool = False) -> Response:
    given = {"path": "./page.md", "old_text": before, "new_text": after}
    return say("I edit it.", call("edit", {**given, **({"replace_all": True} if everywhere else {})}))


async def asked(page: Page) -> Locator:
    """Open the run that waits, and return what it would change."""
    await page.get_by_role("link", name="mender").click()
    await expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
    return page.locator(".would")


async def told(would: Locator) -> list[str]:
    """Return its lines: their numbers, the sign, and the text."""
    lines = await would.locator(".dline").all()
    return [
        "|".join(
            [
                (await part.inner_text()).strip().replace("\N{MINUS SIGN}", "-")
                for part in await each.locator("> span").all()
            ]
        )
        for each in lines
    ]


READ = say("I read it.", call("read", path="page.md", limit=300), call("read", path="page.md", offset=301))


async def test_an_edit_stands_between_the_lines_around_it(tmp_path: Path, serve: Serve, open_page: Opened) -> None:
    answers = [
        READ,
        edit("Line 10 of the page.\n", "Line 10 of\nthis page.\n"),
        edit("338 of the page.\nLine 339", "338 of this page.\nLine 339"),
        edit(" of the page.\nLine 401", " of the page.\nLine 402"),
        say("It is mended."),
    ]
    async with waiting(tmp_path, *answers) as store, serve(store) as url:
        page = await open_page(url)
        would = await asked(page)
        assert await told(would) == [
            *(f"{n}|{n}||Line {n} of the page." for n in (7, 8, 9)),
            *("10||-|Line 10 of the page.", "|10|+|Line 10 of", "|11|+|this page."),
            *(f"{n}|{n + 1}||Line {n} of the page." for n in (11, 12, 13, 14)),
        ]
        await page.keyboard.press("y")
        await expect(would).to_contain_text("Line 338")
        assert await told(would) == [  # one line further down than it was read
            *(f"{n + 1}|{n + 1}||Line {n} of the page." for n in (335, 336, 337)),
            *("339||-|Line 338 of the page.", "|339|+|Line 338 of this page."),
            *(f"{n + 1}|{n + 1}||Line {n} of the page." for n in (339, 340, 341, 342)),
        ]
        assert await would.locator("mark").all_inner_texts() == ["the", "this"]
        await expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
        await page.keyboard.press("y")
        await expect(would).to_contain_text("Where this is in the file could not be told.")
        assert await told(would) == ["|of the page.", "-|Line 401", "+|Line 402"]


async def test_an_edit_of_several_places_says_how_many(tmp_path: Path, serve: Serve, open_page: Opened) -> None:
    answers = [READ, edit("page", "book", everywhere=True), say("It is mended.")]
    async with waiting(tmp_path, *answers) as store, serve(store) as url:
        page = await open_page(url, width=400, height=860)
        await page.get_by_role("link", name="mender").click()
        would = page.locator(".would")
        await expect(would.locator(".place")).to_have_count(3)
        await expect(would).to_contain_text("And at 397 other places.")
        await stands_in_nobodys_way(page, 400)


@pytest.mark.parametrize(
    "asks",
    [
        edit("Line 2 of the page.", f"Line 2 {LONG}of the page."),
        say("I write it.", call("write", path="new.md", content=f"Short.\n{LONG}\nShort.")),
    ],
    ids=["edit", "write"],
)
async def test_long_lines_of_what_would_be_written_are_broken(
    tmp_path: Path, serve: Serve, open_page: Opened, asks: Response
) -> None:
    async with waiting(tmp_path, READ, asks, say("It is mended.")) as store, serve(store) as url:
        page = await open_page(url)
        would = await asked(page)
        await expect(would.locator(".added")).not_to_have_count(0)
        assert await would.evaluate("element => element.scrollWidth <= element.clientWidth")
        heights = await would.locator(".added").evaluate_all("all => all.map(each => each.offsetHeight)")
        assert max(heights) > 60
        assert set(await would.locator(".context").evaluate_all("all => all.map(each => each.offsetHeight)")) <= {18}


class Story(BaseModel):
    """A text."""

    text: str


async def test_long_lines_of_a_preview_are_broken_and_stand_beside_what_they_were(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    drafts = [f"A beginning.\n{LONG}\nA middle.\nAn end.", "A beginning.\nShort.\nA middle.\nThe end."]
    answers = [*[say(call("story", text=each)) for each in drafts], say(call("submit"))]
    story = Output(Story, name="story", reflection=lambda draft: draft.text)
    agent = Agent(name="writer", model=ScriptedModel(answers), output=story)
    (await run(agent, "Tell it.", runtime=Runtime(recorder=tmp_path / "runs.db"))).unwrap()
    with Recordings(tmp_path / "runs.db") as recordings:
        id = recordings.find("last").id
    async with serve(tmp_path / "runs.db") as url:
        page = await open_page(f"{url}?run={id}&at=writer/1.2")
        tops = "all => all.map(each => each.getBoundingClientRect().top)"
        before, after = [page.get_by_role("group", name=f"Text of draft {n}") for n in (1, 2)]
        await expect(before.locator(".pline")).to_have_count(4)
        assert await before.locator(".pline").evaluate_all(tops) == await after.locator(".pline").evaluate_all(tops)
        assert await before.evaluate("element => element.scrollWidth <= element.clientWidth")
        assert await before.locator(".pline").nth(1).evaluate("each => each.offsetHeight") > 60
        await stands_in_nobodys_way(page, 1440)
        narrow = await open_page(f"{url}?run={id}&at=writer/1.2", width=400, height=860)
        await expect(narrow.get_by_role("group", name="Text of draft 2")).to_be_visible()
        assert await narrow.get_by_role("group", name="Text of draft 2").evaluate("each => each.offsetHeight") < 100
        await stands_in_nobodys_way(narrow, 400)
