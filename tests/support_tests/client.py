"""A bare client of the strict servers, for what the official SDKs do not show."""

import io
from typing import Any

import aiohttp
import orjson

from tests.support.loopback import Loopback
from tests.support.messages_api import MessagesApi
from tests.support.messages_json import Json
from tests.support_tests import messages_bodies, openai_bodies


async def post(api: Loopback[Any], path: str, request: Json, **headers: str) -> tuple[int, bytes]:
    """Send a request with a bare client and return status and body."""
    usual = messages_bodies.HEADERS if isinstance(api, MessagesApi) else openai_bodies.HEADERS
    data = io.BytesIO(orjson.dumps(request))
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{api.url}{path}", data=data, headers=usual | headers) as response,
    ):
        return response.status, await response.read()


def events_in(stream: bytes) -> list[Json]:
    return [orjson.loads(line[6:]) for line in stream.split(b"\n") if line.startswith(b"data: ")]


def event_types(stream: bytes) -> list[object]:
    return [event["type"] for event in events_in(stream)]
