"""The pictures of the docs: each view of the real viewer, over runs that were really run. Their times are moved to one
day that is always the same.

python -m tests.view.pictures [FOLDER [STORE]]      STORE: one that `tests.view.stores` has made, to be quick
"""

import asyncio
import base64
import json
import os
import shutil
import sys
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from playwright.async_api import Browser, Page, Route, async_playwright

from journeyman.machine.environment import somebody
from journeyman.record import Recorder, Recordings
from journeyman.store.file import File
from journeyman.store.recordings import EVENTS, events_path
from tests.view.conftest import ARGS
from tests.view.desk import TOKEN, viewing
from tests.view.provider import Provider
from tests.view.stores import mender, record_all

DOCS = Path(__file__).parents[2] / "docs" / "viewer"
PACE = 0.5
"""Half as long as a provider takes."""
NOW = datetime(2026, 3, 12, 14, 32, tzinfo=UTC)
WIDE, NARROW = (1440, 900), (400, 860)
_AGES_S = (21, 180, 370, 480, 660, 840, 1_100, 1_560, 1_900, 2_300, 2_650, 3_100, 3_700, 4_600)
_FONT = """<match target="pattern"><test name="family"><string>{}</string></test>
<edit name="family" mode="prepend" binding="strong"><string>DejaVu Sans Condensed</string></edit></match>"""
_FONTS = f"""<?xml version="1.0"?><fontconfig><include>/etc/fonts/fonts.conf</include>
{"".join(_FONT.format(each) for each in ("sans", "sans-serif", "system-ui", "DejaVu Sans"))}</fontconfig>"""
"""Where there is no font for screens, the narrow one of those that every Linux has comes nearest to it."""

# What a screenshot is made of, as at most 256 colours: the greys and the others that are
# seen most often, and for each other one the nearest.
_QUANTISE = """async (base64) => {
  const blob = await (await fetch(`data:image/png;base64,${base64}`)).blob();
  const image = await createImageBitmap(blob);
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const pixels = new Uint32Array(canvas.getImageData(0, 0, image.width, image.height).data.buffer);
  const seen = new Map();
  for (const each of pixels) seen.set(each, (seen.get(each) ?? 0) + 1);
  const parts = (colour) => [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255];
  const isGrey = (colour) => Math.max(...parts(colour)) - Math.min(...parts(colour)) < 24;
  const often = [...seen].sort((one, other) => other[1] - one[1]).map(([colour]) => colour);
  const greys = often.filter(isGrey).slice(0, 150);
  const palette = [...greys, ...often.filter((colour) => !isGrey(colour)).slice(0, 256 - greys.length)];
  const known = palette.map(parts);
  const nearest = new Map(palette.map((colour, n) => [colour, n]));
  for (const colour of seen.keys()) {
    if (nearest.has(colour)) continue;
    const [r, g, b] = parts(colour);
    let [best, least] = [0, Infinity];
    known.forEach(([R, G, B], n) => {
      const far = 2 * (r - R) ** 2 + 4 * (g - G) ** 2 + 3 * (b - B) ** 2;
      if (far < least) [best, least] = [n, far];
    });
    nearest.set(colour, best);
  }
  const numbers = new Uint8Array(pixels.length);
  pixels.forEach((each, n) => (numbers[n] = nearest.get(each)));
  let text = "";
  for (let at = 0; at < numbers.length; at += 32768) text += String.fromCharCode(...numbers.subarray(at, at + 32768));
  return { width: image.width, height: image.height, palette: known.flat(), numbers: btoa(text) };
}"""


def _png(told: Mapping[str, Any]) -> bytes:
    """Return a picture of numbered colours."""
    width, height, numbers = told["width"], told["height"], base64.b64decode(told["numbers"])
    rows = b"".join(b"\0" + numbers[row * width : (row + 1) * width] for row in range(height))
    parts = (
        (b"IHDR", width.to_bytes(4) + height.to_bytes(4) + bytes((8, 3, 0, 0, 0))),
        (b"PLTE", bytes(told["palette"])),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    sums = (len(data).to_bytes(4) + name + data + zlib.crc32(name + data).to_bytes(4) for name, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(sums)


class Camera:
    """Takes pictures of one viewer."""

    def __init__(self, browser: Browser, url: str, folder: Path, hidden: Mapping[str, str]) -> None:
        self._browser, self._url, self._folder, self._hidden = browser, url, folder, hidden

    async def take(self, name: str, query: str, *, narrow: bool = True, live: bool = False, drop: str = "") -> None:
        """Take a picture of an address, light and dark, wide and narrow. `drop`: what is not to be asked for here."""
        sizes = {"": WIDE, "-400": NARROW} if narrow else {"": WIDE}
        for suffix, (width, height) in sizes.items():
            for scheme in ("light", "dark") if not suffix else ("light",):
                context = await self._browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if scheme == "dark" else "light",
                    reduced_motion="reduce",
                    timezone_id="UTC",
                )
                page = await context.new_page()
                if not live:
                    await page.clock.set_fixed_time(NOW)
                await page.route("**/api/days*", self._days)
                await page.route(lambda url: "/api/" in url and "/api/live" not in url, self._told)
                await page.goto(f"{self._url}?token={TOKEN}")
                await page.goto(f"{self._url}{query.replace(drop, '') if suffix and drop else query}")
                await self._settled(page)
                if name == "runs" and not suffix:
                    for key in "jjjjxkx":
                        await page.keyboard.press(key)
                shot = base64.b64encode(await page.screenshot()).decode()
                blank = await context.new_page()
                place = self._folder / f"{name}{suffix}-{scheme}.png"
                place.write_bytes(_png(await blank.evaluate(_QUANTISE, shot)))
                await context.close()

    async def _settled(self, page: Page) -> None:
        await page.wait_for_load_state("load")
        await page.locator("[aria-busy=true]").first.wait_for(state="detached")
        await page.wait_for_timeout(700)

    async def _days(self, route: Route) -> None:
        """Fourteen days of which nobody knows."""
        chance, today = Random(4), NOW.replace(hour=0, minute=0)
        days: list[dict[str, float]] = []
        for back in reversed(range(14)):
            runs = 64 if back == 0 else chance.randint(20, 90) // (4 if back in (3, 4, 10, 11) else 1)
            told = {"runs": runs, "failed": round(runs * 0.09), "cost": round(runs * 0.0253, 2)}
            days.append({"day": (today - timedelta(days=back)).timestamp(), **told})
        await route.fulfill(json={"days": days})

    async def _told(self, route: Route) -> None:
        """Answer as the viewer does, without what is of this machine."""
        if "/api/days" in route.request.url or route.request.method != "GET":
            await route.fallback()
            return
        answer = await route.fetch()
        text = await answer.text()
        for of_this, instead in self._hidden.items():
            text = text.replace(of_this, instead)
        if "/api/store" in route.request.url:
            text = json.dumps({**json.loads(text), "runs": 104_212, "bytes": 182_000_000})
        await route.fulfill(response=answer, body=text)


def move(path: Path) -> None:
    """Move what is recorded to the day of the pictures, give it ids that do not change, and list some of it again as
    what happened before."""
    file = File(events_path(path), kind=EVENTS)
    rows: list[tuple[int, float, str]] = file.rows("SELECT n, started, agent FROM rec_runs ORDER BY started DESC")
    with file.transaction() as connection:
        for nth, (n, started, agent) in enumerate(rows):
            by = NOW.timestamp() - (_AGES_S[nth] if nth < len(_AGES_S) else 7_200) - started
            moved = "started = started + ?, seen = seen + ?, ended = ended + ?, id = ?"
            connection.execute(f"UPDATE rec_runs SET {moved} WHERE n = ?", (by, by, by, _id(agent, n), n))
            for table in ("rec_events", "rec_requests"):
                connection.execute(f"UPDATE {table} SET at = at + ? WHERE run = ?", (by, n))
        known: list[str] = [each[1] for each in connection.execute("PRAGMA table_info(rec_runs)")][1:]
        again = [n for n, _, agent in rows if agent in ("analyst", "lead", "librarian", "reader")]
        for nth in range(14):
            before = f" - {5_400 + 2_900 * nth}"
            given = {"id": f"'{_id('again', nth)}'"} | {each: each + before for each in ("started", "seen", "ended")}
            shown = ", ".join([given.get(each, each) for each in known])
            query = f"INSERT INTO rec_runs ({', '.join(known)}) SELECT {shown} FROM rec_runs WHERE n = ?"
            connection.execute(query, (again[(nth * 5) % len(again)],))
    file.close()


def _id(name: str, n: int) -> str:
    return uuid5(NAMESPACE_URL, f"{name} {n}").hex


async def take_all(folder: Path, store: Path | None = None) -> None:
    """Record runs of each kind, and take their pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        path = Path(temporary) / "runs.db"
        if store is None:
            await record_all(path, pace=PACE)
        else:
            shutil.copy(store, path)
            shutil.copy(events_path(store), events_path(path))
        move(path)
        fonts = Path(temporary) / "fonts.conf"
        fonts.write_text(_FONTS, encoding="utf-8")
        with Recordings(path) as recordings:
            runs = {(run.agent, run.code or run.status): run.id for run in reversed(recordings.runs(limit=100))}
        hidden = {str(path): ".journeyman/runs.db", str(path.parent): "/home/you/site", somebody(): "you"}
        with Recorder(path, keep_s=None) as recorder:
            async with (
                Provider(PACE) as provider,
                mender(recorder, provider, path.parent / "docs"),
                viewing(path) as desk,
                async_playwright() as playwright,
            ):
                browser = await playwright.chromium.launch(
                    executable_path=shutil.which("chromium"),
                    args=list(ARGS),
                    env={**os.environ, "FONTCONFIG_FILE": str(fonts)},
                )
                camera = Camera(browser, f"{desk.url}/", folder, hidden)
                analyst, lead = runs["analyst", "done"], runs["lead", "BUDGET_EXCEEDED"]
                with Recordings(path) as recordings:
                    live = next(run.id for run in recordings.runs(status="running"))
                await desk.say(live, kind="steer", text="Only this one link; leave the wording alone.")
                step = "&at=lead/scout%231/1.2"
                await camera.take("live", f"?run={live}", live=True)  # first: what waits, waits only for a moment
                await camera.take("runs", "")
                await camera.take("run", f"?run={lead}{step}", drop=step)
                await camera.take("draft", f"?run={analyst}&at=analyst/1.4/call_7_1")
                await camera.take("request", f"?run={runs['librarian', 'left']}&at=librarian:2/1.1&tab=request")
                await camera.take("ending", f"?run={lead}", narrow=False)
                await camera.take("conversation", f"?run={analyst}&view=conversation", narrow=False)
                await camera.take(
                    "compare", f"?compare={analyst},{runs['analyst', 'MAX_ATTEMPTS_EXCEEDED']}", narrow=False
                )
                await browser.close()


if __name__ == "__main__":
    given = [Path(each) for each in sys.argv[1:]]
    asyncio.run(take_all(given[0] if given else DOCS, given[1] if len(given) > 1 else None))
