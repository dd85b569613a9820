"""What a person says in a real Chromium to a run of another process: it is heard, and it is seen who said it."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from signal import SIGINT

import pytest
from playwright.async_api import Page, Route, expect

from journeyman.durable import Durable
from journeyman.machine.environment import somebody
from journeyman.record import Recorder, Recordings
from journeyman.store.recordings import events_path
from tests.cli.program import Done, Running, Warm, running
from tests.cli.terminal import PATIENCE_S, terminal
from tests.view.agents import FIRST_WORDS
from tests.view.conftest import Opened, Serve, clicked
from tests.view.served import STEERABLE
from tests.view.stores import mending

pytestmark = pytest.mark.browser

AGENTS = Path(__file__).with_name("agents.py")
ASKED = {"recorded": ("run", "--record"), "durable": ("worker",), "durable and recorded": ("worker", "--record")}
"""How a run is begun that somebody else answers."""
every_kind = pytest.mark.parametrize("kind", ASKED)


class Floor:
    """A folder with a store, the address of its viewer, and commands beside it."""

    def __init__(self, folder: Path, url: str, warm: Warm) -> None:
        self.folder, self.url, self.warm = folder, url, warm
        self.store = str(folder / "runs.db")

    @asynccontextmanager
    async def going(self, agent: str, kind: str, *stops: str) -> AsyncGenerator[Running]:
        """Run an agent in a process of its own, which stops where it is told to."""
        for stop in stops:
            (self.folder / stop).touch()
        command, *options = ASKED[kind]
        given = (f"{AGENTS}:{agent}", "What of the tides?")
        if command == "worker":
            stored = await self.told("run", *given, "--durable", "--id", "it", "--detach")
            assert stored.code == 0, stored.stderr
        words = (command, *given[: 2 if command == "run" else 1], *options, "--store", self.store)
        with running(*words, cwd=self.folder, env=STEERABLE, start=self.warm.start) as process:
            if kind == "durable and recorded":  # until then its page shows its steps, and is opened again after that
                async with asyncio.timeout(PATIENCE_S):
                    while not self.is_recorded():  # noqa: ASYNC110 - another process writes it
                        await asyncio.sleep(0.05)
            yield process

    def is_recorded(self) -> bool:
        if not events_path(Path(self.store)).exists():
            return False
        with Recordings(self.store) as recordings:
            return bool(recordings.runs())

    async def ended(self, process: Running, kind: str) -> Done:
        """Wait for the end of the run, and return what a terminal is told of it."""
        if kind == "recorded":
            return await asyncio.to_thread(process.done)
        async with Durable(self.store) as durable:
            await (await durable.get("it")).result()
        process.send(SIGINT)
        await asyncio.to_thread(process.done)
        return await self.told("resume", "it")

    def go_on(self, stop: str) -> None:
        (self.folder / stop).unlink()

    async def told(self, *words: str) -> Done:
        """Say something from a terminal."""
        return await asyncio.to_thread(self.warm, *words, "--store", self.store, cwd=self.folder, env=STEERABLE)

    def newest(self) -> str:
        with Recordings(self.store) as recordings:
            return recordings.find("last").id

    def digest(self) -> str:
        with Recordings(self.store) as recordings:
            asked = recordings.events(recordings.find("last"), kinds=["ApprovalRequested"])
        return str(asked[-1].facts["question_id"])


@pytest.fixture
async def floor(tmp_path: Path, serve: Serve, warm: Warm) -> AsyncGenerator[Floor]:
    Recorder(tmp_path / "runs.db").close()
    async with serve(tmp_path / "runs.db") as url:
        yield Floor(tmp_path, url, warm)


async def looked_at(floor: Floor, open_page: Opened) -> Page:
    """Return the list of runs, at which somebody looks: what is asked from now on waits for an answer."""
    page = await open_page(floor.url)
    await expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    async with asyncio.timeout(PATIENCE_S):
        while not looked_at_now(floor.store):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
    return page


async def shown(page: Page, agent: str) -> None:
    """Open the run that has just begun."""
    await page.get_by_role("link", name=agent).click()
    await expect(page.locator(".operator")).to_be_visible()


async def before_it_is_heard(page: Page, happens: Callable[[], Awaitable[object]]) -> None:
    """Let something happen between a click and the server."""

    async def held(route: Route) -> None:
        if route.request.method == "POST":
            await happens()
        await route.continue_()

    await page.route("**/signals", held)


def looked_at_now(store: str) -> set[object]:
    """Return the runs at which somebody looks; of the list of all, an empty name."""
    with closing(sqlite3.connect(events_path(Path(store)))) as connection:
        return {run for (run,) in connection.execute("SELECT run FROM rec_watched WHERE until > ?", (time.time(),))}


async def until_nobody_looks(store: str, run: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while run in looked_at_now(store):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)


@every_kind
async def test_what_is_said_in_the_browser_is_heard_by_a_run_of_another_process(
    floor: Floor, open_page: Opened, kind: str
) -> None:
    page = await looked_at(floor, open_page)
    stop = "words-2" if kind != "durable" else "stop-2"  # where nobody listens, no words are streamed
    async with floor.going("asker", kind, stop) as process:
        await shown(page, "asker")
        card = page.locator(".approval")
        await expect(card).to_contain_text("May it look?")
        await page.keyboard.press("m")
        await card.locator("textarea").fill('{"topic": "moon"}')
        await clicked(page.get_by_role("button", name="Approve these"))
        await expect(card).to_contain_text("Which sea?")
        await page.keyboard.press("p")
        await expect(page.get_by_role("button", name="Go on")).to_be_visible()
        await page.keyboard.press("s")
        await page.keyboard.type("In one line.")
        await page.keyboard.press("Enter")
        await expect(page.locator(".queued")).to_contain_text("waits for the next model call")
        await clicked(card.get_by_role("button", name="north"))
        await expect(page.get_by_role("button", name="Go on")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.keyboard.press("p")
        await expect(page.get_by_role("button", name="Pause")).to_be_visible()
        await expect(card).to_have_count(0)
        if kind != "durable":  # of one that is not recorded nobody knows the words
            await expect(page.get_by_role("tabpanel")).to_contain_text(FIRST_WORDS.strip())
        floor.go_on(stop)
        done = await floor.ended(process, kind)
    assert done.code == 0, done.stderr
    # A durable run reads what was steered before it makes the call again that waits: then it does not ask any more.
    heard = ("about moon", "In one line.", *(("north",) if kind == "recorded" else ()))
    assert all(each in done.stdout for each in heard), done.stdout
    await expect(page.locator(".head")).to_contain_text("SUCCESS" if kind != "durable" else "ended")
    await page.get_by_role("treeitem").filter(has_text="Ending").click()
    told = page.get_by_role("region", name="Who did what")
    for each in (
        "allowed it with other arguments",
        "paused it",
        "steered “In one line.”",
        "answered “north”",
        "let it go on",
    ):
        await expect(told).to_contain_text(f"{somebody()} in the viewer {each}")


@every_kind
async def test_a_call_is_denied_with_a_reason_and_the_run_is_stopped(
    floor: Floor, open_page: Opened, kind: str
) -> None:
    page = await looked_at(floor, open_page)
    async with floor.going("asker", kind) as process:
        await shown(page, "asker")
        await expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
        await page.keyboard.press("n")
        await expect(page.get_by_role("button", name="Deny", exact=True)).to_be_enabled()
        await page.keyboard.type("not that")
        await page.keyboard.press("Enter")
        await expect(page.locator(".approval")).to_contain_text("Which sea?")
        await page.keyboard.press(".")
        await page.keyboard.type("enough")
        await page.keyboard.press("Enter")
        done = await floor.ended(process, kind)
    assert (done.code, "EXECUTION_CANCELLED" in done.stderr, "enough" in done.stderr) == (1, True, True), done.stderr
    await expect(page.locator(".head")).to_contain_text("EXECUTION_CANCELLED")
    await page.get_by_role("treeitem").filter(has_text="Ending").click()
    told = page.get_by_role("region", name="Who did what")
    await expect(told).to_contain_text("denied it “not that”")
    await expect(told).to_contain_text("stopped it “enough”")


async def test_what_was_said_is_withdrawn_and_a_follow_up_is_said_at_the_end(floor: Floor, open_page: Opened) -> None:
    page = await looked_at(floor, open_page)
    async with floor.going("reader", "recorded", "stop-1") as process:
        await shown(page, "reader")
        await page.keyboard.press("s")
        await page.keyboard.type("Only the first page.")
        await page.keyboard.press("Enter")
        await expect(page.locator(".queued")).to_contain_text("Only the first page.")
        await page.get_by_role("button", name="Withdraw").click()
        await expect(page.locator(".queued")).to_have_count(0)
        await page.get_by_role("button", name="follow up").click()
        await page.keyboard.press("s")
        await page.keyboard.type("And the last?")
        await page.keyboard.press("Enter")
        await expect(page.locator(".queued")).to_contain_text("until nothing else is left to do")
        floor.go_on("stop-1")
        done = await asyncio.to_thread(process.done)
    assert "And the last?" in done.stdout
    assert "Only the first page." not in done.stdout
    await page.get_by_role("treeitem").filter(has_text="Ending").click()
    await expect(page.get_by_label("Who did what")).to_contain_text("steered “Only the first page.”, withdrawn")


async def test_an_edit_is_approved_as_a_diff_and_nothing_has_focus_by_itself(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    async with mending(tmp_path), serve(tmp_path / "runs.db") as url:
        page = await open_page(url)
        await shown(page, "mender")
        await expect(page.locator(".approval")).to_contain_text("May it edit tools.md?")
        assert await page.locator(".would mark").all_inner_texts() == ["permission", "permissions"]
        assert await page.evaluate("document.activeElement.tagName") == "BODY"
        await expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
        await page.keyboard.press("y")
        await expect(page.get_by_text("The link is mended.").first).to_be_visible()
    assert "permissions.md" in (tmp_path / "docs" / "tools.md").read_text(encoding="utf-8")


async def test_on_a_telephone_the_answer_is_pinned(tmp_path: Path, serve: Serve, open_page: Opened) -> None:
    async with mending(tmp_path), serve(tmp_path / "runs.db") as url:
        page = await open_page(url, width=400, height=860)
        await page.get_by_role("link", name="mender").click()
        button = page.get_by_role("button", name="Approve once")
        await expect(button).to_be_in_viewport(ratio=1)
        await expect(page.locator(".would")).to_be_visible()
        await clicked(button)
        await expect(page.get_by_text("The link is mended.").first).to_be_visible()


@every_kind
async def test_a_click_that_comes_late_says_what_was_decided_meanwhile(
    floor: Floor, open_page: Opened, kind: str
) -> None:
    page = await looked_at(floor, open_page)
    async with floor.going("asker", kind) as process:
        await shown(page, "asker")
        await expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
        digest = (await page.locator(".approval header code").last.inner_text()).strip()

        async def decided() -> None:
            done = await floor.told("tell", "it" if "durable" in kind else "last", "approve", digest)
            assert done.code == 0, done.stderr

        await before_it_is_heard(page, decided)
        await page.keyboard.press("n")
        await expect(page.get_by_role("button", name="Deny", exact=True)).to_be_enabled()
        await page.keyboard.press("Enter")
        told = f"Already decided. This was answered before: allow, by {somebody()}"
        await expect(page.locator("#toast")).to_contain_text(told)
        process.send(2)  # pyright: ignore[reportArgumentType] - a signal


async def test_of_two_operators_the_second_is_told_who_was_first(floor: Floor, open_page: Opened) -> None:
    one = await looked_at(floor, open_page)
    async with floor.going("asker", "recorded") as process:
        await shown(one, "asker")
        two = await open_page(one.url)
        for page in (one, two):
            await expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
        heard = asyncio.Event()
        await before_it_is_heard(two, heard.wait)
        await two.keyboard.press("y")
        await one.keyboard.press("y")
        await expect(one.locator(".approval")).to_contain_text("Which sea?")
        heard.set()
        await expect(two.locator("#toast")).to_contain_text(f"answered before: allow, by {somebody()} in the viewer")
        await expect(two.locator("#toast")).to_be_hidden()  # by then the card stands still, and takes a click
        await clicked(two.get_by_role("button", name="south"))
        done = await asyncio.to_thread(process.done)
    assert "about tides; south" in done.stdout


async def test_what_is_typed_right_after_a_key_is_the_reason_and_no_key(floor: Floor, open_page: Opened) -> None:
    page = await looked_at(floor, open_page)
    async with floor.going("asker", "recorded") as process:
        await shown(page, "asker")
        await expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
        # All at once, as a keyboard that is faster than the page: y would approve, n deny without a reason.
        await page.evaluate("""() => {
            const press = (key) => document.activeElement.dispatchEvent(
                new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
            press("n");
            queueMicrotask(() => queueMicrotask(() => ["y", "n"].forEach(press)));
        }""")
        await expect(page.get_by_label("Why not? The model reads it; it may be empty.")).to_be_focused()
        await page.keyboard.type("yes, but not now")
        await page.keyboard.press("Enter")
        await expect(page.locator(".approval")).to_contain_text("Which sea?")
        await clicked(page.get_by_role("button", name="south"))
        done = await asyncio.to_thread(process.done)
    assert "yes, but not now" in done.stdout
    assert "about tides" not in done.stdout


async def test_a_run_that_ends_while_it_is_steered_says_so(floor: Floor, open_page: Opened) -> None:
    page = await looked_at(floor, open_page)
    async with floor.going("reader", "recorded", "stop-2") as process:
        await shown(page, "reader")

        async def ends() -> None:
            floor.go_on("stop-2")
            await asyncio.to_thread(process.done)

        await before_it_is_heard(page, ends)
        await page.keyboard.press("s")
        await page.keyboard.type("Wait.")
        await page.keyboard.press("Enter")
        await expect(page.locator("#toast")).to_contain_text("has ended")


async def test_an_approval_asked_in_one_terminal_is_given_in_the_browser(
    floor: Floor, open_page: Opened, warm: Warm
) -> None:
    page = await looked_at(floor, open_page)
    words = ("run", f"{AGENTS}:asker", "What of the tides?", "--record", "--store", floor.store)
    with terminal(*words, folder=floor.folder, start=warm.start, JOURNEYMAN_RECORD="1", CI="") as tty:
        await asyncio.to_thread(tty.wait_for, lambda shown: "allow?" in shown)
        await shown(page, "asker")
        await expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
        await page.keyboard.press("y")
        await asyncio.to_thread(tty.wait_for, lambda shown: "since it was answered before: allow, by" in shown)
        await clicked(page.locator(".approval").get_by_role("button", name="south"))
        await asyncio.to_thread(tty.wait_for, lambda shown: "about tides; south" in shown)
        assert await asyncio.to_thread(tty.end) == 0


async def test_an_approval_given_in_the_terminal_is_seen_in_the_browser(
    floor: Floor, open_page: Opened, warm: Warm
) -> None:
    page = await looked_at(floor, open_page)
    words = ("run", f"{AGENTS}:asker", "What of the tides?", "--record", "--store", floor.store)
    with terminal(*words, folder=floor.folder, start=warm.start, JOURNEYMAN_RECORD="1", CI="") as tty:
        await asyncio.to_thread(tty.wait_for, lambda shown: "allow?" in shown)
        await shown(page, "asker")
        await expect(page.locator(".approval")).to_contain_text("May it look?")
        tty.press(b"y\r")
        await expect(page.locator(".approval")).to_contain_text("Which sea?")
        await clicked(page.locator(".approval").get_by_role("button", name="south"))
        await asyncio.to_thread(tty.wait_for, lambda shown: "about tides; south" in shown)
        assert await asyncio.to_thread(tty.end) == 0


async def test_a_browser_that_leaves_in_the_middle_leaves_nothing_behind(floor: Floor, open_page: Opened) -> None:
    first = await looked_at(floor, open_page)
    async with floor.going("reader", "recorded", "stop-1") as process:
        await shown(first, "reader")
        url, id = first.url, floor.newest()
        await first.context.close()
        await until_nobody_looks(floor.store, id)
        again = await open_page(url)
        await expect(again.locator(".operator")).to_be_visible()
        floor.go_on("stop-1")
        await asyncio.to_thread(process.done)
        await expect(again.locator(".head")).to_contain_text("SUCCESS")
