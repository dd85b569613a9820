"""A viewer that serves, and runs that go on in the store that it shows."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp

from journeyman import Abort, Agent, tool
from journeyman.gate import Ask
from journeyman.model import Response
from journeyman.testing.scripted import ScriptedModel
from journeyman.view import serve_view
from tests.play import make_gate

TOKEN = "a-token-of-24-characters"


@tool
async def look(topic: str = "") -> str:
    """Look something up."""
    return f"about {topic}"


def asking(*answers: Response) -> Agent:
    """Return an agent each call of which somebody has to allow."""
    return Agent(name="scout", model=ScriptedModel(answers), tools=[look], gate=make_gate(Ask("May it?")))


class Desk:
    """Somebody who looks."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.session = session

    async def get(self, path: str, **headers: str) -> Any:  # noqa: ANN401 - JSON
        async with self.session.get(f"{self.url}{path}", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json(content_type=None)

    async def status(self, path: str, method: str = "GET", data: bytes | None = None, **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(
            method, f"{self.url}{path}", data=data, headers=named, allow_redirects=False
        ) as answer:
            return answer.status

    async def say(self, run: str, **signal: object) -> dict[str, Any]:
        given = {"idempotency_key": "d", **signal}
        async with self.session.post(f"{self.url}/api/runs/{run}/signals", json=given) as answer:
            return {"http": answer.status, **await answer.json()}

    async def forget(self, *runs: str) -> dict[str, Any]:
        async with self.session.post(f"{self.url}/api/forget", json={"runs": runs}) as answer:
            return {"http": answer.status, **await answer.json()}

    async def live(self, query: str = "") -> AsyncGenerator[tuple[str, Any]]:
        """Give what the stream tells."""
        timeout = aiohttp.ClientTimeout(total=30)
        async with self.session.get(f"{self.url}/api/live{query}", timeout=timeout) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            kind = ""
            buffer = b""
            async for chunk in answer.content.iter_any():
                buffer += chunk
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    if line.startswith(b"event: "):
                        kind = line[7:].decode()
                    elif line.startswith(b"data: "):
                        yield kind, json.loads(line[6:])

    async def waiting(self, run: str) -> dict[str, Any]:
        """Return the question that a run waits with, once it does."""
        async for kind, told in self.live(f"?run={run}"):
            for event in told if kind == "events" else ():
                if event["type"] in ("ApprovalRequested", "QuestionAsked"):
                    return event
        raise AssertionError("It never asked.")

    async def newest(self) -> str:
        """Return the id of the first run that is there."""
        async for kind, told in self.live():
            if kind == "runs" and told:
                return str(told[0]["id"])
        raise AssertionError("There is no run.")


@asynccontextmanager
async def viewing(path: Path | str, **options: Any) -> AsyncGenerator[Desk]:
    """Serve the viewer of a store on a free port."""
    abort, ready = Abort(), cast("asyncio.Future[str]", asyncio.get_running_loop().create_future())
    options = {"port": 0, "token": TOKEN, **options}
    serving = asyncio.create_task(serve_view(path, abort=abort, on_ready=ready.set_result, **options))
    await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    shown = urlsplit(ready.result())
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {options['token']}"}) as session:
        try:
            yield Desk(f"http://{shown.netloc}", session)
        finally:
            abort.abort()
            await serving
