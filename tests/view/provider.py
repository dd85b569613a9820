"""A provider on the loopback whose models are functions: real requests over a real wire, at a provider's pace.

What of a request it calls cached is what the request before it of the same agent began with, word for word.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self, cast

import orjson
from aiohttp import web

from journeyman.model import Request, Response
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.testing.scripted import say
from journeyman.types import Price, Usage
from tests.support.messages_answers import Answer, Raw
from tests.support.messages_sse import body_parts
from tests.support.stage_wire import reply_of, request_of

NAME = "claude-sonnet-5-5"
PRICE = Price(input=2.0, cache_read=0.1, cache_write=2.5, output=10.0)
_SHORTEST_CACHED = 1_024

Player = Callable[[Request], Response | Awaitable[Response]]


@dataclass(eq=False)
class Provider:
    """The server; an async context manager."""

    pace: float = 0.0
    """How fast its models are: 1.0 is a provider's pace, 0.0 answers at once."""
    _players: dict[str, Player] = field(default_factory=dict[str, Player])
    _before: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    _serial: int = 0
    _url: str = ""

    def model(self, player: Player) -> AnthropicModel:
        """Return a model that this function plays."""
        key = str(len(self._players))
        self._players[key] = player
        return AnthropicModel(NAME, api_key="key-of-a-test", base_url=f"{self._url}/{key}", price=PRICE)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/{key}/v1/messages", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, asked: web.Request) -> web.StreamResponse:
        body = orjson.loads(await asked.read())
        key = asked.match_info["key"]
        given = self._players[key](request_of(body))
        response = given if isinstance(given, Response) else await given
        self._serial += 1
        usage = replace(self._used(key, body), output_tokens=_tokens_out(response))
        answer = reply_of(
            say(*response.content, stop_reason=response.stop_reason, usage=usage), turn=len(body["messages"])
        )
        if isinstance(answer, Raw):
            return web.Response(status=answer.status, body=answer.body, headers=dict(answer.headers))
        return await self._streamed(asked, answer, usage)

    async def _streamed(self, asked: web.Request, answer: Answer, usage: Usage) -> web.StreamResponse:
        parts = body_parts(answer, stream=True, model=NAME, seed=1, serial=self._serial)
        fresh = usage.input_tokens + (usage.cache_write_tokens or 0)
        stream = web.StreamResponse(headers={"content-type": "text/event-stream", "request-id": f"req_{self._serial}"})
        await asyncio.sleep(self.pace * (0.35 + fresh / 9_000))
        await stream.prepare(asked)
        with suppress(ConnectionResetError):  # whoever asked was stopped
            for part in parts:
                await stream.write(part)
                await asyncio.sleep(self.pace * usage.output_tokens / 90 / len(parts))
            await stream.write_eof()
        return stream

    def _used(self, key: str, body: dict[str, object]) -> Usage:
        told = [orjson.dumps(_without_marks(body.get(name))) for name in ("tools", "system")]
        told += [orjson.dumps(_without_marks(each)) for each in cast("list[object]", body["messages"])]
        before = self._before.get(key, [])
        self._before[key] = told
        same = 0
        while same < min(len(before), len(told)) and before[same] == told[same]:
            same += 1
        cached, whole = _tokens(told[:same]), _tokens(told)
        if cached < _SHORTEST_CACHED:
            cached = 0
        written = whole - cached if whole >= _SHORTEST_CACHED else 0
        return Usage(
            requests=1, input_tokens=whole - cached - written, cache_read_tokens=cached, cache_write_tokens=written
        )


def _tokens(texts: list[bytes]) -> int:
    return sum([math.ceil(len(each) / 4) for each in texts])


def _tokens_out(response: Response) -> int:
    return max(4, math.ceil(sum([len(repr(block)) - 40 for block in response.content]) / 4))


def _without_marks(value: object) -> object:
    match value:
        case dict():
            told = cast("dict[str, object]", value)
            return {name: _without_marks(each) for name, each in told.items() if name != "cache_control"}
        case list():
            return [_without_marks(each) for each in cast("list[object]", value)]
        case _:
            return value
