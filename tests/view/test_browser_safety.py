"""Who gets at the viewer with a real Chromium, and what of a store can do it no harm."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from playwright.async_api import Browser, expect

from journeyman import Agent, Runtime, run, tool
from journeyman.record import Recorder, Recordings
from journeyman.testing.scripted import ScriptedModel, call, say
from tests.view.conftest import ARGS, Opened, Serve, Site, chromium
from tests.view.desk import TOKEN, asking, viewing
from tests.view.served import with_token

pytestmark = pytest.mark.browser


@asynccontextmanager
async def another_page(html: str) -> AsyncGenerator[str]:
    """Serve a page of somebody else, on this machine: to a browser the same site, of another origin."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def test_the_token_becomes_a_cookie_that_no_script_reads_and_leaves_the_address(
    site: Site, open_page: Opened
) -> None:
    page = await open_page(site.of("analyst", "done"))
    assert TOKEN not in page.url
    [cookie] = await page.context.cookies()
    facts = {name: cookie.get(name) for name in ("httpOnly", "sameSite", "path", "domain")}
    assert facts == {"httpOnly": True, "sameSite": "Strict", "path": "/", "domain": "127.0.0.1"}
    assert await page.evaluate("document.cookie") == ""


async def test_without_the_token_the_page_says_what_to_open(site: Site, open_page: Opened) -> None:
    page = await open_page(site.url, token=False, bears="401")
    await expect(page.get_by_role("alert")).to_contain_text("Open the address that journeyman view has printed.")
    wrong = await open_page(f"{site.url}?token=wrong", token=False, bears="401")
    await expect(wrong.locator("body")).to_contain_text("The token is wrong.")


async def test_a_name_that_was_pointed_at_this_machine_leads_nowhere(site: Site, browser: Browser) -> None:
    port = urlsplit(site.url).port
    args = [*ARGS, "--host-resolver-rules=MAP evil.example.org 127.0.0.1"]
    rebound = await browser.browser_type.launch(executable_path=chromium(), args=args)
    page = await rebound.new_page()
    answer = await page.goto(with_token(f"http://evil.example.org:{port}/api/runs"))
    assert answer is not None
    assert answer.status == 421
    assert await page.context.cookies() == []
    await rebound.close()


async def test_another_page_can_say_nothing_to_a_run_and_read_nothing_of_it(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    path = tmp_path / "runs.db"
    with Recorder(path, asks=True) as recorder:
        agent = asking(say(call("look", {"topic": "tides"}, id="c1")), say("They rise."))
        going = asyncio.create_task(run(agent, "What?", runtime=Runtime(recorder=recorder)))
        async with serve(path) as url:
            page = await open_page(url, bears="403|ERR_|CORS|not allowed|frame|Refused|refused|40[0-9]|X-Frame")
            await page.get_by_role("link", name="scout").click()
            await expect(page.locator(".approval")).to_be_visible()
            id = dict(each.split("=") for each in urlsplit(page.url).query.split("&"))["run"]
            attack = f"""<!doctype html><title>evil</title><form id=f method=post enctype=text/plain
                target=t action="{url}api/runs/{id}/signals">
                <input name='{{"kind":"stop","idempotency_key":"' value='x"}}'></form>
                <iframe name=t></iframe><iframe id=framed src="{url}"></iframe>"""
            async with another_page(attack) as theirs:
                await page.goto(theirs)
                body = '{"kind":"stop","idempotency_key":"x"}'
                for options in (
                    f"{{method: 'POST', mode: 'no-cors', credentials: 'include', body: '{body}'}}",
                    f"{{method: 'POST', credentials: 'include', body: '{body}',"
                    " headers: {'content-type': 'application/json'}}",
                    "{credentials: 'include'}",
                ):
                    asked = f"fetch('{url}api/runs/{id}/signals', {options}).then(a => a.text()).catch(() => 'no')"
                    assert await page.evaluate(asked) in ("no", "")
                stream = f"""new Promise(done => {{
                    const s = new EventSource('{url}api/live', {{withCredentials: true}});
                    s.onerror = () => done('no'); s.onmessage = () => done('yes'); s.onopen = () => done('yes') }})"""
                assert await page.evaluate(stream) == "no"
                await page.evaluate("document.getElementById('f').submit()")
                await page.wait_for_load_state("networkidle")
                for frame in page.frames[1:]:
                    assert await frame.locator("#app").count() == 0
            async with viewing(path) as desk:
                assert (await desk.get(f"/api/runs/{id}/signals"))["signals"] == []
                assert (await desk.get(f"/api/runs/{id}"))["status"] == "running"
        going.cancel()
        await asyncio.wait((going,))


async def test_a_page_of_another_name_that_is_allowed_can_steer(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "runs.db"
    args = [*ARGS, "--host-resolver-rules=MAP box.example.org 127.0.0.1"]
    elsewhere = await browser.browser_type.launch(executable_path=chromium(), args=args)
    with Recorder(path, asks=True) as recorder:
        agent = asking(say(call("look", {"topic": "tides"}, id="c1")), say("They rise."))
        going = asyncio.create_task(run(agent, "What?", runtime=Runtime(recorder=recorder)))
        async with viewing(path, names=["box.example.org"]) as desk:
            page = await elsewhere.new_page()
            await page.goto(with_token(f"http://box.example.org:{urlsplit(desk.url).port}/"))
            await page.get_by_role("link", name="scout").click()
            await expect(page.get_by_role("button", name="Approve", exact=False)).to_be_enabled()
            await page.keyboard.press("y")
            assert (await going).unwrap() == "They rise."
    await elsewhere.close()


async def test_in_a_store_that_is_only_looked_at_nothing_can_be_said(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    path = tmp_path / "runs.db"
    with Recorder(path, asks=True) as recorder:
        agent = asking(say(call("look", {"topic": "tides"}, id="c1")), say("They rise."))
        going = asyncio.create_task(run(agent, "What?", runtime=Runtime(recorder=recorder)))
        async with serve(path, "--read-only") as url:
            page = await open_page(url, bears="403")
            await page.get_by_role("link", name="scout").click()
            await expect(page.locator(".details h2")).to_contain_text("waits for approval")
            await expect(page.locator(".operator")).to_have_count(0)
            await expect(page.locator(".approval")).to_have_count(0)
            asked = "fetch(`api/runs/${new URLSearchParams(location.search).get('run')}/signals`, {method: 'POST'})"
            assert await page.evaluate(f"{asked}.then(answer => answer.status)") == 403
        going.cancel()
        await asyncio.wait((going,))


async def test_results_that_are_html_or_20_mb_or_broken_are_shown_as_text(
    tmp_path: Path, serve: Serve, open_page: Opened
) -> None:
    path = tmp_path / "runs.db"
    html = "<!doctype html><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    results = {"html": html, "huge": "y" * 20_000_000, "broken": "about broken bytes: a\udc80b\ud800c\x00d\x1b[31m"}

    @tool
    async def pour(what: str) -> str:
        """Give it."""
        return results[what]

    answers = [*[say(call("pour", what=each)) for each in results], say("Enough.")]
    agent = Agent(name="pourer", model=ScriptedModel(answers), tools=[pour])
    (await run(agent, "Pour.", runtime=Runtime(recorder=path))).unwrap()
    async with serve(path) as url:
        with Recordings(path) as recordings:
            id = recordings.find("last").id
        for n, seen in enumerate(("<!doctype html><script>", "yyyy", "about broken bytes: a"), 1):
            page = await open_page(f"{url}?run={id}&at=pourer/1.{n}")
            await expect(page.get_by_role("tabpanel")).to_contain_text(seen)
            assert await page.title() == "pourer · journeyman"
            assert await page.locator("#app img, #app script").count() == 0
