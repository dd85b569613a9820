"""The strict Messages API server when it misbehaves on purpose: every fault is what its name says."""

import asyncio

import aiohttp
import pytest

from tests.support.messages_answers import (
    answer,
    broken_off,
    cut,
    enormous_line,
    fault,
    html_page,
    insert,
    late,
    raw,
    stall,
)
from tests.support.messages_api import MessagesApi
from tests.support_tests.messages_bodies import ASKED, HEADERS, body
from tests.support_tests.messages_client import event_types, events_in, post, streamed

pytestmark = pytest.mark.anyio


async def test_a_reply_can_be_anything_at_all() -> None:
    script = [html_page(503), raw(b""), raw(b"\xff\xfe{", content_type="text/event-stream")]
    async with MessagesApi(script) as api:
        page, empty, garbage = [await post(api, streamed()) for _ in script]
    assert page == (503, b"<html><head><title>503</title></head><body><h1>503 Bad Gateway</h1></body></html>")
    assert (empty, garbage) == ((200, b""), (200, b"\xff\xfe{"))


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_cut_answer_is_an_error_of_the_transport(ending: str, stream: bool) -> None:
    whole = answer("A text of some length, cut before its end.")
    broken = cut(whole, after_bytes=60, ending="close" if ending == "close" else "reset")
    async with MessagesApi([broken]) as api:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await post(api, body(ASKED, stream=stream))


async def test_a_stream_can_end_in_order_and_yet_too_early() -> None:
    script = [cut(answer("Hello"), after_events=3, ending="end"), cut(answer("Hello"), after_bytes=70, ending="end")]
    async with MessagesApi(script) as api:
        assert event_types((await post(api, streamed()))[1]) == ["message_start", "ping", "content_block_start"]
        assert len((await post(api, body(ASKED)))[1]) == 70


async def test_a_stream_can_break_off_with_an_error_event() -> None:
    async with MessagesApi([broken_off(answer("Hello"), after_events=3)]) as api:
        last = events_in((await post(api, streamed()))[1])[-1]
    assert last == {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


async def test_anything_can_stand_inside_a_stream() -> None:
    whole = answer("Hello")
    script = [
        whole,
        insert(whole, b"data: \xff{\n\n", after_events=2),
        insert(whole, enormous_line(2**20), after_events=1),
    ]
    async with MessagesApi(script) as api:
        clean, spoilt, enormous = [(await post(api, streamed()))[1] for _ in script]
    assert spoilt.replace(b"data: \xff{\n\n", b"").replace(b"msg_2", b"msg_1") == clean
    assert max(map(len, enormous.split(b"\n"))) > 2**20
    assert event_types(enormous) == [*event_types(clean)[:1], "ping", *event_types(clean)[1:]]


async def test_a_stalled_stream_lasts_until_the_client_goes_away() -> None:
    async with MessagesApi([stall(answer("Hello"), after_events=3)]) as api, aiohttp.ClientSession() as session:
        async with session.post(f"{api.url}/v1/messages", json=streamed(), headers=HEADERS) as response:
            received = b""
            while b"content_block_start" not in received:
                received += await response.content.readany()
            assert (api.in_flight, api.requests[0].hung_up) == (1, False)
        await api.until(lambda: api.requests[0].hung_up)
    assert api.in_flight == 0


async def test_leaving_does_not_wait_for_a_stalled_client() -> None:
    async with aiohttp.ClientSession() as session:
        async with MessagesApi([stall(answer("Hello"), after_events=1)]) as api:
            response = await session.post(f"{api.url}/v1/messages", json=streamed(), headers=HEADERS)
        response.close()


async def test_headers_can_be_held_back_until_they_are_released() -> None:
    released = asyncio.Event()
    async with MessagesApi([late(answer("One"), until=released), late(fault(529), seconds=0.001)]) as api:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(post(api, body(ASKED)))
            await api.until(lambda: api.in_flight == 1)
            assert (await post(api, body(ASKED)))[0] == 529
            assert not first.done()
            released.set()
        assert first.result()[0] == 200
    assert api.peak_in_flight == 2
