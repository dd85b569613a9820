"""The page of the example, in a real browser: it asks, shows the answer as it comes, and approves."""

import asyncio
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn
from playwright.async_api import Dialog, async_playwright, expect

from examples.service.mounted import companion, service
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, call
from tests.play import Door
from tests.view.conftest import ARGS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


async def test_the_page_asks_streams_and_approves(tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    door = Door()

    async def answer(request: Request) -> Answer:
        last = request.messages[-1]
        if any(block.type == "tool_result" for block in last.content):
            await door.wait()
            return "I know <b>that</b> now."
        return call("remember", fact="She likes oaks.") if "oaks" in last.text else "Hello, Ada."

    agent = replace(companion, model=FunctionModel(answer))
    asked, wrong = list[str](), list[str]()

    async def approve(dialog: Dialog) -> None:
        asked.append(dialog.message)
        await dialog.accept()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(service(agent, str(tmp_path / "chats.db")), log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=list(ARGS))
            page = await browser.new_page()
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("dialog", approve)
            await page.goto(f"{url}/?user=ada")
            await page.fill("#text", "Hello.")
            await page.click("button")
            await expect(page.locator(".agent")).to_have_text("Hello, Ada.", timeout=20_000)
            await page.fill("#text", "I like oaks.")
            await page.keyboard.press("Enter")
            await expect(page.locator(".tool")).to_have_text("remember", timeout=20_000)
            await door.reached.wait()  # it was approved, and is told of before the answer is there
            assert asked == ["May I remember: She likes oaks."]
            assert await page.locator(".agent").count() == 1
            door.opened.set()
            await expect(page.locator(".agent").nth(1)).to_have_text("I know <b>that</b> now.", timeout=20_000)
            assert await page.locator("b").count() == 0
            await page.screenshot(path=tmp_path / "page.png")
            await browser.close()
        assert wrong == []
        server.should_exit = True
        await serving
