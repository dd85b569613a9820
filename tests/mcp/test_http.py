"""MCP servers over HTTP: one made with the SDK as a process, and small ones that misbehave."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any

import pytest
from aiohttp import web

from journeyman.errors import McpUnavailable
from journeyman.events import Event
from journeyman.mcp import Http, Target, mcp
from journeyman.testing.scripted import call
from tests.mcp.small import by_name, progress_in, stopped_at_progress
from tests.play import answered
from tests.support.stopwatch import STALL_S, longest_stall

pytestmark = pytest.mark.timeout(60)


async def test_a_server_over_http_is_listed_and_called_and_goes_on_after_a_cancelled_call(modern: str) -> None:
    events: list[Event] = []
    async with mcp({"web": modern}) as tools:
        named = by_name(tools)
        assert (await answered(named["weather"], {"town": "Bern"})).text == '{"town":"Bern","degrees":[3,5]}'
        assert (await answered(named["slowly"], {}, on_event=events.append)).text == "there"
        await stopped_at_progress(tools, call("forever", {}))
        assert (await answered(named["towns"], {})).text == "Bern\nBasel"
    assert progress_in(events) == [("half way", 0.5)]


Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


class Small:
    """A server in the older form, whose calls are answered by a function."""

    def __init__(self, on_call: Answer) -> None:
        self.on_call = on_call
        self.sessions: list[str] = []
        self.headers: list[str] = []
        self.deleted: list[str] = []

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers.get("Authorization", ""))
        if request.method == "DELETE":
            self.deleted.append(request.headers["mcp-session-id"])
        if request.method != "POST":
            return web.Response(status=405)
        message = json.loads(await request.read())
        if message["method"] == "tools/call":
            is_known = request.headers["mcp-session-id"] == self.sessions[-1]
            return await self.on_call(request, message) if is_known else web.Response(status=404)
        return self.greet(message) if "id" in message else web.Response(status=202)

    def greet(self, message: dict[str, Any]) -> web.Response:
        match message["method"]:
            case "initialize":
                self.sessions.append(f"session-{len(self.sessions) + 1}")
                about = {"name": "small", "version": "1"}
                result: dict[str, object] = {"capabilities": {"tools": {}}, "serverInfo": about}
                result["protocolVersion"] = message["params"]["protocolVersion"]
                return said(message, result, {"mcp-session-id": self.sessions[-1]})
            case "tools/list":
                return said(message, {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]})
            case method:
                error = {"code": -32601, "message": f"no method {method}"}
                return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})


def said(message: dict[str, Any], result: object, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)


@asynccontextmanager
async def serving(
    serve: Callable[[web.Request], Awaitable[web.StreamResponse]],
    pages: Mapping[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = MappingProxyType({}),
) -> AsyncGenerator[str]:
    app = web.Application()
    for path, page in {"/mcp": serve, **pages}.items():
        app.router.add_route("*", path, page)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


async def refusal(target: Target) -> str:
    with pytest.raises(McpUnavailable) as caught:
        async with mcp({"web": target}):
            pass
    return caught.value.reason


async def fine(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    return said(message, {"content": [{"type": "text", "text": "fine"}]})


async def test_a_server_is_told_when_its_session_ends() -> None:
    small = Small(fine)
    async with serving(small.serve) as url, mcp({"web": url}):
        assert small.deleted == []
    assert small.deleted == small.sessions == ["session-1"]


async def test_headers_are_sent_and_never_shown() -> None:
    small = Small(fine)
    async with serving(small.serve) as url:
        target = Http(url, headers={"Authorization": "Bearer hunter2"})
        assert "hunter2" not in repr(target)
        async with mcp({"web": target}) as (go,):
            assert (await answered(go, {})).text == "fine"
    assert set(small.headers) == {"Bearer hunter2"}


async def test_a_server_that_wants_another_key_says_so() -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=401, text="no such key: hunter2")

    async with serving(refuse) as url:
        told = await refusal(Http(url, headers={"Authorization": "hunter2"}))
        assert told == f"{url} answered with HTTP 401 Unauthorized"


async def test_an_address_where_nobody_listens() -> None:
    async with serving(Small(fine).serve) as url:
        pass
    assert (await refusal(url)).startswith(f"{url} could not be asked: ConnectError: ")


async def test_an_address_that_is_a_page() -> None:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<html>Welcome</html>", content_type="text/html")

    async with serving(page) as url:
        assert "Unexpected content type: text/html" in await refusal(url)


async def test_a_session_that_the_server_has_forgotten_is_begun_anew() -> None:
    small = Small(fine)
    async with serving(small.serve) as url, mcp({"web": url}) as (go,):
        small.sessions.append("another")
        text = (await answered(go, {})).text
        assert f"{url} has ended the session. Whether the call took effect is not known." in text
        assert (await answered(go, {})).text == "fine"


async def endless(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    with suppress(ConnectionError):  # the client hangs up
        for _ in range(64):
            await response.write(b" " * 2**20)
    return response


async def squeezed(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    response = await fine(request, message)
    response.enable_compression(web.ContentCoding.gzip)
    return response


async def in_very_many_pieces(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    return said(message, {"content": [], "structuredContent": {"a": [1] * 600_000}})


async def as_one_event(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    result: dict[str, object] = {"content": [], "structuredContent": {"a": [1] * 600_000}}
    answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
    return web.Response(text=f"event: message\r\ndata: {answer}\r\n\r\n", content_type="text/event-stream")


async def a_long_table(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    return said(message, {"content": [{"type": "text", "text": "1,2,3,4\n" * 200_000}]})


async def broken(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    return web.Response(status=503)


def nonsense(body: bytes) -> Answer:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    return answer


BROKEN = "Server returned an error response (URL answered with HTTP 503 Service Unavailable)."
LONG = "it failed during the call: it sent an answer of more than 32 MB."
FINE = "it failed during the call: it sent a message of more pieces than can be right."
DEEP = "it failed during the call: it sent a message that is nested more than 190 deep."
DEEP_ANSWER = b'{"jsonrpc": "2.0", "id": 3, "result": {"structuredContent": {"a": %b}}}' % (b"[" * 5_000 + b"]" * 5_000)
PACKED = "it failed during the call: it sent a compressed answer, which it was asked not to."


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(endless, LONG, id="an answer that is too long is not read"),
        pytest.param(squeezed, PACKED, id="nor is one that is compressed"),
        pytest.param(in_very_many_pieces, FINE, id="nor one of very many pieces"),
        pytest.param(as_one_event, FINE, id="nor such an event"),
        pytest.param(nonsense(DEEP_ANSWER), DEEP, id="nor one that is nested very deeply"),
        pytest.param(broken, BROKEN, id="a server that breaks says how"),
        *((nonsense(body), "") for body in (b"{", b"[]", b'{"jsonrpc": "2.0", "id": 1, "result": 7}', b"\xff\xff")),
    ],
)
async def test_a_bad_answer_is_an_error_and_the_session_goes_on(answer: Answer, told: str) -> None:
    small = Small(answer)
    async with serving(small.serve) as url, mcp({"web": url}, call_timeout_s=20) as (go,):
        result = await answered(go, {})
        text, _, _ = result.text.replace(url, "URL").partition(" Whether the call took effect is not known.")
        assert (result.is_error, text if told else "") == (True, f"Error: the MCP server 'web': {told}" if told else "")
        small.on_call = fine
        assert (await answered(go, {})).text == "fine"


async def test_a_long_table_in_a_text_is_read_whatever_it_is_divided_by() -> None:
    async with serving(Small(a_long_table).serve) as url, mcp({"web": url}) as (go,):
        assert (await answered(go, {})).text.startswith("1,2,3,4\n1,2,3,4\n")


class Rich(Small):
    """A server of many tools with large schemas."""

    def greet(self, message: dict[str, Any]) -> web.Response:
        if message["method"] != "tools/list":
            return super().greet(message)
        schema = {"type": "object", "properties": {f"p{n}": {"type": "string", "pattern": "^a+$"} for n in range(9)}}
        return said(message, {"tools": [{"name": f"go_{n}", "inputSchema": schema} for n in range(400)]})


async def test_many_tools_are_made_while_others_have_their_turn() -> None:
    async with serving(Rich(fine).serve) as url:

        async def opened() -> None:
            async with mcp({"web": url}) as tools:
                assert len(tools) == 400

        await opened()
        assert await longest_stall(opened) < STALL_S
