"""How a reply leaves the server over HTTP, with all its faults: late, torn, cut, reset or stalled."""

import asyncio
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol, cast

from aiohttp import web

from tests.support.messages_answers import SERIAL, Ending, Raw, Twist
from tests.support.messages_sse import body_bytes, with_serial


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How one reply is to be sent."""

    serial: int
    """Number of the request, from 1."""
    stream: bool
    model: str
    n_writes: int
    seed: int
    delay_s: float
    """Waited before every reply, besides what the reply itself asks for."""


class Whole(Protocol):
    """An answer of some API, whatever its content."""

    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def twist(self) -> Twist | None: ...
    @property
    def wait(self) -> float | asyncio.Event: ...


async def send(request: web.Request, reply: Whole | Raw, delivery: Delivery, parts: list[bytes]) -> web.StreamResponse:
    """Send a reply, an answer as its `parts`, and return the response as it then is."""
    await _hold_back(delivery.delay_s)
    await _hold_back(reply.wait)
    headers = {name: value.replace(SERIAL, str(delivery.serial)) for name, value in reply.headers.items()}
    if isinstance(reply, Raw):
        return web.Response(status=reply.status, body=with_serial(reply.body, delivery.serial), headers=headers)
    return await _send_answer(request, reply, delivery, parts, headers)


async def _send_answer(
    request: web.Request, answer: Whole, delivery: Delivery, parts: list[bytes], headers: dict[str, str]
) -> web.StreamResponse:
    payload, claimed_bytes = body_bytes(parts, answer.twist)
    kind = "text/event-stream; charset=utf-8" if delivery.stream else "application/json"
    headers = {"content-type": kind, **headers}
    if not delivery.stream and claimed_bytes == len(payload):
        return web.Response(body=payload, headers=headers)
    response = web.StreamResponse(headers=headers)
    if not delivery.stream:
        response.content_length = claimed_bytes
    await response.prepare(request)
    for piece in _torn(payload, delivery):
        await response.write(piece)
        await asyncio.sleep(0)
    await _finish(request, response, answer.twist.ending if answer.twist else "end")
    return response


async def _hold_back(wait: float | asyncio.Event) -> None:
    if isinstance(wait, asyncio.Event):
        await wait.wait()
    elif wait:
        await asyncio.sleep(wait)


def _torn(payload: bytes, delivery: Delivery) -> list[bytes]:
    if delivery.n_writes <= 1:
        return [payload]
    random = Random(delivery.seed + delivery.serial)
    places = sorted(random.randrange(len(payload) + 1) for _ in range(delivery.n_writes - 1))
    pieces = [payload[start:end] for start, end in zip([0, *places], [*places, len(payload)], strict=True)]
    return [piece for piece in pieces if piece]


async def _finish(request: web.Request, response: web.StreamResponse, ending: Ending) -> None:
    transport = request.transport
    if ending == "end":
        await response.write_eof()
    elif ending == "stall":
        await asyncio.Event().wait()
    elif transport is not None:
        if ending == "reset":
            connection = cast("socket.socket", transport.get_extra_info("socket"))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        else:
            transport.close()
