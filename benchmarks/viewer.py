"""How fast the viewer is in Chromium: rows of many runs, a long run, a large one, and what is live."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import sys
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, cast

from playwright.async_api import Browser, Page, async_playwright

from benchmarks.measuring import Effort, Row, alone
from journeyman import Agent, Limits, Runtime, run, tool
from journeyman.model import Request, Response
from journeyman.record import Recorder, Recordings
from journeyman.store.file import File
from journeyman.store.recordings import EVENTS, events_path
from journeyman.testing.scripted import FunctionModel, call, say

_TOKEN = secrets.token_hex(16)
_ARGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_RESULT_BYTES = 200_000
_ENDING = ".trow.selected .title.strong"
"""The row of the ending, which is selected once all of a run is here."""


def measure(effort: Effort) -> list[Row]:
    """Measure in the Chromium of this machine. Without one there is nothing to measure."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("there is no Chromium here: the viewer is not measured", file=sys.stderr)
        return []
    with TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), chromium, effort))


async def _measure(folder: Path, chromium: str, effort: Effort) -> list[Row]:
    n_runs, n_iterations = effort.size(100_000), effort.size(1_250)
    n_results, seconds = effort.size(635), effort.size(10_000) / 1_000
    rounds = effort.rounds(7)
    _many(folder / "many.db", n_runs)
    long = await _recorded(folder / "long.db", n_iterations, 20)
    large = await _recorded(folder / "large.db", n_results, _RESULT_BYTES)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(_ARGS))
        async with _viewer(folder / "many.db") as url:
            rows = await _opened(browser, url, "", wanted=".rbody .rrow a", rounds=rounds)
        async with _viewer(folder / "long.db") as url:
            usable = await _opened(browser, url, f"?run={long.id}", wanted=_ENDING, rounds=rounds)
        async with _viewer(folder / "large.db") as url:
            whole = await _opened(browser, url, f"?run={large.id}", wanted=_ENDING, rounds=rounds)
            n_rows, seen, megabytes = await _scrolled(browser, url, f"?run={large.id}")
        assert n_rows > n_results, f"of {n_results} iterations, {n_rows} rows are there"
        lags = await _live(browser, folder / "live.db", seconds)
        await browser.close()
    return [
        alone(f"the newest of {n_runs:,} runs in the browser", rows, unit="ms to the first rows", target="≤ 300"),
        alone(f"a run of {long.events:,} events", usable, unit="ms to its ending", target="≤ 500"),
        alone(f"a run of {large.megabytes:,.0f} MB", whole, unit="ms to its ending", target="≤ 1,500"),
        alone(f"a run of {large.megabytes:,.0f} MB, scrolled", [seen], unit="% of frames without a gap", target="100"),
        alone(f"a run of {large.megabytes:,.0f} MB, scrolled: the tab", [megabytes], unit="MB", target="≤ 300"),
        alone("a live run: its events", [lags.events_per_s], unit="a second"),
        alone("a live run: how late they are seen", lags.ms, unit="ms", target="≤ 200"),
    ]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A run that was recorded."""

    id: str
    events: int
    megabytes: float
    """What it said, and was told."""


@dataclass(frozen=True, slots=True)
class _Lags:
    """How late what happened was seen."""

    ms: list[float]
    events_per_s: float


def _many(path: Path, n: int) -> None:
    """Make a store of so many runs, without what happened in them."""
    Recorder(path).close()
    now = time.time()
    file = File(events_path(path), kind=EVENTS)
    with file.transaction() as connection:
        connection.executemany(
            "INSERT INTO rec_runs"
            " (id, kind, agent, model, input, owner, life, due, until, has_content, started, seen, ended, status, cost)"
            " VALUES (?, 'run', 'reader', 'scripted:x', 'Read it.', '', 1, 99999, 99999, 1, ?, ?, ?, 'success', 0.01)",
            ((f"{each:032x}", *[now - 20 * (n - each)] * 3) for each in range(n)),
        )
    file.close()


async def _recorded(path: Path, iterations: int, size: int) -> _Recorded:
    """Record a run of so many iterations, whose one tool gives so many bytes each time."""
    chance = Random(7)

    async def answer(request: Request) -> Response:
        n = len(request.messages) // 2 + 1
        return say(f"Shelf {n}.", call("look", id=f"c{n}", shelf=n)) if n < iterations else say("It is not here.")

    @tool(effect="idempotent")
    async def look(shelf: int) -> str:
        """Look at a shelf."""
        return chance.randbytes(size // 2).hex()

    agent = Agent(name="archivist", model=FunctionModel(answer), tools=[look], limits=Limits(iterations=iterations + 1))
    with Recorder(path, keep_bytes=None) as recorder:
        await run(agent, "Find the letter.", runtime=Runtime(recorder=recorder))
    with Recordings(path) as recordings:
        found = recordings.find("last")
        n_events = sum(1 for _ in recordings.all_events(found))
    return _Recorded(found.id, n_events, iterations * size / 1e6)


@asynccontextmanager
async def _viewer(path: Path) -> AsyncGenerator[str]:
    """Serve a store in a process of its own."""
    words = ("-m", "journeyman", "view", str(path), "--port", "0", "--no-open")
    env = {**os.environ, "JOURNEYMAN_VIEW_TOKEN": _TOKEN}
    process = await asyncio.create_subprocess_exec(sys.executable, *words, env=env, stdout=PIPE, stderr=STDOUT)
    try:
        assert process.stdout is not None
        while b"http://" not in (line := await process.stdout.readline()):
            assert line, "the viewer did not start"
        yield line[line.index(b"http://") :].decode().partition("?")[0].strip()
    finally:
        process.terminate()
        await process.wait()


_SEEN = """(wanted) => {
  const look = () => {
    if (window.seenAt !== undefined || !document.querySelector(wanted)) return;
    requestAnimationFrame(() => setTimeout(() => (window.seenAt ??= performance.now())));
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
}"""
"""Notes when something was painted, in milliseconds since the address was asked for."""

_WHEN = """() => new Promise((done) => {
  const look = () => (window.seenAt === undefined ? setTimeout(look, 10) : done(window.seenAt));
  look();
})"""

_SCROLL = """async () => {
  document.querySelector(".trow.more")?.click();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const body = document.querySelector(".tbody");
  const { left, top, height } = body.getBoundingClientRect();
  const rows = Math.round(body.querySelector(".tall").clientHeight / 28);
  body.scrollTop = 0;
  let [frames, whole] = [0, 0];
  for (let at = 0; at < body.scrollHeight - height; at += 240) {
    body.scrollTop = at;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    frames += 1;
    const places = [40, height / 2, height - 40].map((y) => document.elementFromPoint(left + 60, top + y));
    if (places.every((each) => each?.closest(".trow"))) whole += 1;
  }
  return [rows, (100 * whole) / Math.max(frames, 1)];
}"""
"""Scrolls through all rows. Tells how many there are, and in how many frames of a hundred rows were everywhere."""

_LAGS = """() => {
  window.lags = [];
  const seen = new Set();
  const look = () => {
    for (const each of document.querySelectorAll(".trow .title")) {
      const stamp = Number(/^at (\\d+)/.exec(each.textContent)?.[1]);
      if (!stamp || seen.has(stamp)) continue;
      seen.add(stamp);
      window.lags.push(Date.now() - stamp);
    }
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true });
}"""
"""Notes how late each row is that says when it happened."""


async def _tab(browser: Browser, url: str) -> Page:
    """Open a page that may look."""
    page = await (await browser.new_context(viewport={"width": 1440, "height": 900})).new_page()
    await page.goto(f"{url}favicon.svg?token={_TOKEN}")
    return page


async def _opened(browser: Browser, url: str, query: str, *, wanted: str, rounds: int) -> list[float]:
    """Return how many milliseconds it took until something was seen, each time in a browser that has seen nothing."""
    found: list[float] = []
    for number in range(rounds + 1):
        page = await _tab(browser, url)
        await page.add_init_script(f"({_SEEN})({json.dumps(wanted)})")
        await page.goto(f"{url}{query}")
        seen_at = await page.evaluate(_WHEN)
        if number > 0:
            found.append(seen_at)
        await page.context.close()
    return found


async def _scrolled(browser: Browser, url: str, query: str) -> tuple[int, float, float]:
    """Return how many rows there are, in how many frames of a hundred they were seen, and how large the tab is."""
    page = await _tab(browser, url)
    await page.goto(f"{url}{query}")
    await page.wait_for_selector(_ENDING)
    rows, seen = await page.evaluate(_SCROLL)
    session = await browser.new_browser_cdp_session()
    told = cast("dict[str, Any]", await session.send("SystemInfo.getProcessInfo"))  # pyright: ignore[reportUnknownMemberType] - of any answer
    processes = cast("list[dict[str, Any]]", told["processInfo"])
    sizes = [_megabytes(each["id"]) for each in processes if each["type"] == "renderer"]
    await page.context.close()
    return rows, seen, max(sizes)


def _megabytes(pid: int) -> float:
    """Return the room that a process takes, with its share of what several use."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1_000 for line in lines if line.startswith("Pss:"))


async def _live(browser: Browser, path: Path, seconds: float) -> _Lags:
    """Look at a run that tells the time in each of its rows, in about 200 events a second."""
    until = began = inf

    async def answer(request: Request) -> Response:
        await asyncio.sleep(0.04)
        now = time.time()
        more = [call("look", id=f"c{len(request.messages)}")] if now < until else []
        return say(f"at {now * 1_000:.0f}", *more)

    @tool(effect="idempotent")
    async def look() -> str:
        """Look."""
        return "nothing"

    agent = Agent(name="clock", model=FunctionModel(answer), tools=[look], limits=Limits(iterations=100_000))
    with Recorder(path) as recorder:
        async with _viewer(path) as url:
            page = await _tab(browser, url)
            await page.add_init_script(f"({_LAGS})()")
            going = asyncio.ensure_future(run(agent, "Tell the time.", runtime=Runtime(recorder=recorder)))
            await asyncio.sleep(0.1)
            await recorder.flush()
            with Recordings(path) as recordings:
                found = recordings.find("last")
            await page.goto(f"{url}?run={found.id}")
            await page.wait_for_selector(".trow .title")
            await page.evaluate("window.lags.length = 0")
            began = time.time()
            until = began + seconds
            await going
            await page.get_by_text("SUCCESS").first.wait_for()
            ms: list[float] = await page.evaluate("window.lags")
            with Recordings(path) as recordings:
                n_events = sum(each.at > began for each in recordings.all_events(found))
            await page.context.close()
    return _Lags(ms, n_events / seconds)
