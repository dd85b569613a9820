"""The chat service: a real server and a real client, and a model behind HTTP."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import uvicorn
from yarl import URL

from examples.service.service import service
from journeyman import Agent
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.store import Store
from tests.play import Door
from tests.support.messages_answers import Answer, answer, tool_use
from tests.support.messages_json import Json
from tests.support.servers import MessagesApi

LINES_AT_MOST = 80


@dataclass(slots=True)
class Service:
    """The service under way."""

    url: str
    client: aiohttp.ClientSession
    server: uvicorn.Server
    store: Path
    door: Door

    @asynccontextmanager
    async def saying(self, user: str, text: str) -> AsyncGenerator[aiohttp.ClientResponse]:
        async with self.client.post(f"{self.url}/chats/{user}", json={"text": text}) as response:
            yield response

    async def said(self, user: str, text: str) -> list[dict[str, Any]]:
        """Say something, and return what comes of it."""
        async with self.saying(user, text) as response:
            assert (response.status, response.content_type) == (200, "text/event-stream")
            return [json.loads(line[6:]) async for line in response.content if line.startswith(b"data: ")]

    async def told(self, user: str, text: str) -> str:
        return "".join(each.get("text", "") for each in await self.said(user, text))

    async def idle(self) -> None:
        """Wait until no request is being answered."""
        while tasks := set(self.server.server_state.tasks):
            await asyncio.wait(tasks)


def reply(request: Json) -> Answer:
    """Say what all prompts were; call the tool where the last one asks for it."""
    messages = cast("list[dict[str, Any]]", request["messages"])
    blocks = [block for message in messages if message["role"] == "user" for block in message["content"]]
    if blocks[-1]["type"] == "text" and "wait" in blocks[-1]["text"]:
        return answer(tool_use("wait", {}))
    return answer("You said: " + " ".join(block["text"] for block in blocks if block["type"] == "text"))


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[Service]:
    door = Door()
    async with MessagesApi(reply) as api:
        model = AnthropicModel("claude-sonnet-5-5", api_key="key-of-a-test", base_url=api.url)
        agent = Agent(name="companion", model=model, tools=[door.tool()])
        listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(service(agent, folder / "chats.db"), lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            async with aiohttp.ClientSession() as client:
                yield Service(url, client, server, folder / "chats.db", door)
        finally:
            server.should_exit = True
            await serving


async def test_the_second_prompt_of_a_user_knows_the_first_and_nobody_sees_anothers(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        assert await service.told("ada", "I am Ada.") == "You said: I am Ada."
        assert await service.told("bob", "I am Bob.") == "You said: I am Bob."
        assert await service.told("ada", "Who am I?") == "You said: I am Ada. Who am I?"
        assert (await service.said("bob", "And I?"))[-1] == {"end": "SUCCESS", "used": "25 in, 14 out, cost unknown"}
    with Store(tmp_path / "chats.db") as store:
        assert {info.id: info.messages for info in store.sessions()} == {"ada": 4, "bob": 4}


async def test_events_arrive_while_the_turn_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, service.saying("ada", "Please wait.") as response:
        first = await response.content.readline()
        assert json.loads(first[6:]) == {"tool": "wait", "arguments": {}}
        assert not response.content.at_eof()
        service.door.opened.set()
        rest = await response.content.read()
    assert b'"end": "SUCCESS"' in rest


async def test_a_second_prompt_of_the_same_user_at_the_same_time_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, service.saying("ada", "Please wait.") as response:
        await service.door.reached.wait()
        async with service.saying("ada", "Hello?") as refused:
            assert (refused.status, await refused.json()) == (
                409,
                {"detail": "Your last prompt is being answered. Wait for it, or hang up."},
            )
        assert await service.told("bob", "Hello?") == "You said: Hello?"
        service.door.opened.set()
        assert b'"end": "SUCCESS"' in await response.content.read()


async def test_a_client_that_leaves_stops_its_turn(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        async with service.saying("ada", "Please wait.") as response:
            await service.door.reached.wait()
            response.close()
        await service.idle()
        assert not service.door.opened.is_set()
        with Store(service.store) as store:
            stopped = [block.text for block in store.messages("ada")[-1].content if block.type == "text"]
            assert stopped == ["[The user stopped the work here.]"]
            assert store.sessions()[0].usage.requests == 1
        assert "Again." in await service.told("ada", "Again.")


@pytest.mark.parametrize("user", ["%2E%2E%2E", "%0A", "a" * 201])
async def test_a_user_whose_name_is_no_id_is_refused_in_one_line(tmp_path: Path, user: str) -> None:
    async with serving(tmp_path) as service:
        url = f"{service.url}/chats/{user}"
        async with service.client.post(URL(url, encoded=True), json={"text": "Hi."}) as response:
            assert response.status == 422
            assert (await response.json())["detail"].startswith("The session id ")


async def test_what_is_no_prompt_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as service, service.client.post(f"{service.url}/chats/ada", json={}) as response:
        assert response.status == 422


def test_the_service_is_short() -> None:
    source = Path(__file__).parent.parent / "examples" / "service" / "service.py"
    assert len(source.read_text(encoding="utf-8").splitlines()) < LINES_AT_MOST
