"""A bare client of the Messages API, for what the official SDK does not show."""

import io

import aiohttp
import orjson

from tests.support.messages_api import MessagesApi
from tests.support.messages_json import Json
from tests.support_tests.messages_bodies import ASKED, HEADERS, body


async def post(api: MessagesApi, request: Json, **headers: str) -> tuple[int, bytes]:
    """Send a request with a bare client and return status and body."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{api.url}/v1/messages", data=io.BytesIO(orjson.dumps(request)), headers=HEADERS | headers
        ) as response,
    ):
        return response.status, await response.read()


def streamed(**more: object) -> Json:
    return body(ASKED, stream=True, **more)


def events_in(stream: bytes) -> list[Json]:
    return [orjson.loads(line[6:]) for line in stream.split(b"\n") if line.startswith(b"data: ")]


def event_types(stream: bytes) -> list[object]:
    return [event["type"] for event in events_in(stream)]
