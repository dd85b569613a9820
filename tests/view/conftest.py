"""What tests of the page share: a store with a run of each kind, its address, and a browser."""

import re
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, Request, Response, async_playwright, expect

from journeyman.record import RecordedRun, Recordings
from tests.cli.program import Warm
from tests.view.served import served, with_token
from tests.view.stores import record_all, record_lives

ARGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


expect.set_options(timeout=15_000)
_ENDED = "ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_(REFUSED|RESET)"
"""What a page tells whose viewer has ended before it."""


@dataclass(frozen=True, slots=True)
class Site:
    """The page of a store that has all kinds of runs."""

    url: str
    path: Path
    runs: dict[tuple[str, str], str]
    """The ids of the runs, by name and how they ended."""

    def of(self, name: str, ending: str) -> str:
        """Return the address of a run."""
        return f"{self.url}?run={self.runs[name, ending]}"


def named(run: RecordedRun) -> str:
    """Return what tests call a run: its agent, or what it is an example of."""
    return run.input[5:-1] if run.input.startswith("Pay, ") else run.agent


def chromium() -> str:
    """Return where the Chromium of this machine is."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("there is no Chromium here: apt-get install chromium")


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store, of each kind that there is."""
    return request.getfixturevalue("emptied") if request.param == "postgres" else str(tmp_path / "runs.db")


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The Chromium of this machine."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=list(ARGS))
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> AsyncIterator[Site]:
    """The page of a store with a run of each kind."""
    path = tmp_path_factory.mktemp("view") / "runs.db"
    await record_all(path)
    record_lives(path, warm)
    with Recordings(path) as recordings:
        runs = {(named(run), run.code or run.status): run.id for run in recordings.runs(limit=100)}
    async with served(path, start=warm.start) as url:
        yield Site(url, path, runs)


class Opened(Protocol):
    """Opens an address in a window of its own."""

    async def __call__(
        self, url: str, *, width: int = 1440, height: int = 900, dark: bool = False, bears: str = "", token: bool = True
    ) -> Page: ...


@pytest.fixture
async def open_page(browser: Browser) -> AsyncGenerator[Opened]:
    """Open an address in a window of its own. What goes wrong in the page fails the test, and so does every request
    that fails, but for those that match `bears`."""
    wrong: list[str] = []
    contexts: list[BrowserContext] = []

    async def opened(
        url: str, *, width: int = 1440, height: int = 900, dark: bool = False, bears: str = "", token: bool = True
    ) -> Page:
        context = await browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = await context.new_page()
        page.set_default_timeout(15_000)

        def note(told: str) -> None:
            if not re.search(f"{_ENDED}|{bears}" if bears else _ENDED, told):
                wrong.append(told)

        def failed(request: Request) -> None:
            if request.failure != "net::ERR_ABORTED":  # whoever asked went on to another page
                note(f"{request.url}: {request.failure}")

        def answered(response: Response) -> None:
            if response.status >= 400:
                note(f"{response.url}: {response.status}")

        page.on("pageerror", lambda error: note(str(error)))
        page.on("console", lambda told: note(told.text) if told.type in ("error", "warning") else None)
        page.on("requestfailed", failed)
        page.on("response", answered)
        await page.goto(with_token(url) if token else url)
        return page

    yield opened
    for context in contexts:
        await context.close()
    assert wrong == []


class Serve(Protocol):
    """Shows a store with `journeyman view`, and gives the address."""

    def __call__(self, store: Path, *words: str) -> AbstractAsyncContextManager[str]: ...


@pytest.fixture
def serve(warm: Warm) -> Serve:
    return lambda store, *words: served(store, *words, start=warm.start)


async def clicked(button: Locator) -> None:
    """Click what answers; again where the page says that what is asked has just moved, as on a busy machine it may."""
    toast = button.page.locator("#toast")
    for _ in range(5):
        await expect(button).to_be_enabled()
        await button.click()
        if not await toast.filter(has_text="has just moved").is_visible():
            return
        await expect(toast).to_be_hidden()
    raise AssertionError("what is asked moves all the time")
