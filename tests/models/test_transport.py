"""HTTP and its failures, without any provider: the stream of events, the shared client, and the mapping of errors."""

import asyncio
import gzip
import inspect
import itertools
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import client_exceptions, http_exceptions
from aiohttp.client_reqrep import ConnectionKey
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.models.answers import read_refusal
from journeyman.models.exchange import FOREIGN, Exchange, failure_before, failure_within
from journeyman.models.sse import Event, Parser, TooLarge
from journeyman.models.transport import EVENT_LIMIT_BYTES, HttpAnswer, Timeouts, open_stream
from journeyman.models.vendor_errors import find_meaning
from journeyman.types import Usage
from tests.models.raw_server import Answer as RawAnswer
from tests.models.raw_server import RawServer, closing_after, hanging_after, http

ROOT = Path(__file__).parents[2]
KEY = "sk-ant-very-secret-key"
HEADERS = {"x-api-key": KEY, "content-type": "application/json"}
PATIENT = Timeouts()
BEGINNING = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"


def stream(url: str, *, body: bytes = b"{}", timeouts: Timeouts = PATIENT):
    return open_stream(url, headers=HEADERS, body=body, timeouts=timeouts)


async def events_of(answer: HttpAnswer) -> list[Event]:
    found: list[Event] = []
    while events := await answer.events():
        found += events
    return found


async def ask(url: str, timeouts: Timeouts = PATIENT) -> list[Event]:
    async with stream(url, timeouts=timeouts) as answer:
        return await events_of(answer)


def parse(*chunks: bytes) -> list[tuple[bytes, bytes]]:
    parser = Parser(1_000_000)
    return [*(event for chunk in chunks for event in parser.feed(chunk)), *parser.end()]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        pytest.param(b"event: a\ndata: 1\n\ndata: 2\n\n", [(b"a", b"1"), (b"", b"2")], id="line feeds"),
        pytest.param(b"event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", [(b"a", b"1"), (b"", b"2")], id="CRLF"),
        pytest.param(b"event: a\rdata: 1\r\rdata: 2\r\r", [(b"a", b"1"), (b"", b"2")], id="carriage returns"),
        pytest.param(b"data: 1\r\n\ndata: 2\n\r\n", [(b"", b"1"), (b"", b"2")], id="mixed ends"),
        pytest.param(b": hello\n\n:\n\ndata: 1\n: x\n\n", [(b"", b"1")], id="comments"),
        pytest.param(b"data: 1\ndata: 2\ndata\ndata:3\n\n", [(b"", b"1\n2\n\n3")], id="several data lines"),
        pytest.param(b"\xef\xbb\xbfdata: 1\n\n", [(b"", b"1")], id="byte order mark"),
        pytest.param(b"data: 1\n\nevent: b\ndata: 2", [(b"", b"1"), (b"b", b"2")], id="no final blank line"),
        pytest.param(b"id: 7\nretry: 3\ndata: 1\nwhat: x\n\n", [(b"", b"1")], id="other fields"),
        pytest.param(b"event: a\n\ndata:  1 \n\n", [(b"", b" 1 ")], id="an event without data, spaces"),
        pytest.param(b"data:\n\ndata: \n\nevent: ping\ndata:   \n\ndata: 1\n\n", [(b"", b"1")], id="blank data"),
        pytest.param(b'data: 1\n\n{"error": 2}\n\n', [(b"", b"1"), (b"", b'{"error": 2}')], id="bare JSON"),
        pytest.param(b"\n\n\n\ndata: \xff\n\n\n\n\n", [(b"", b"\xff")], id="blank lines, bytes that are no text"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_a_stream_means_the_same_wherever_it_is_cut(stream: bytes, events: list[tuple[bytes, bytes]]) -> None:
    assert parse(stream) == events
    assert parse(*(bytes([byte]) for byte in stream)) == events
    for place in range(len(stream)):
        assert parse(stream[:place], stream[place:]) == events


LINES = st.sampled_from([b"data: a", b"data:", b"event: e", b": c", b"", b"", b"id: 1"])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS)), st.lists(st.integers(0, 200)))
def test_any_stream_means_the_same_wherever_it_is_cut(lines: list[tuple[bytes, bytes]], places: list[int]) -> None:
    stream = b"".join(line + end for line, end in lines)
    cuts = sorted({0, len(stream), *(place for place in places if place < len(stream))})
    pieces = [stream[start:stop] for start, stop in itertools.pairwise(cuts)]
    assert parse(*pieces) == parse(stream)


def test_an_event_may_not_grow_past_the_limit() -> None:
    parser = Parser(10)
    assert parser.feed(b"data: 1\n\ndata: 12") == [(b"", b"1")]
    with pytest.raises(TooLarge, match="more than 10 bytes"):
        parser.feed(b"345")


async def test_leaving_early_closes_the_request() -> None:
    async with RawServer(hanging_after(BEGINNING)) as server:
        async with stream(server.url) as answer:
            assert await answer.events() == [(b"", b"1")]
        await server.until(lambda: server.n_hung_up == 1)


async def test_draining_does_not_wait_for_a_server_that_never_ends() -> None:
    async with RawServer(hanging_after(BEGINNING)) as server:
        async with stream(server.url) as answer:
            assert await answer.events()
            await answer.drain()
        await server.until(lambda: server.n_hung_up == 1)


RUNS = """
import asyncio, gc
from journeyman.models.transport import Timeouts, open_stream
from tests.models.raw_server import RawServer, hanging_after, http

async def main():
    async with RawServer(http(b"data: 1\\n\\n"), hanging_after(b"")) as server:
        async with open_stream(server.url, headers={}, body=b"{}", timeouts=Timeouts()) as answer:
            while events := await answer.events():
                print(events[0][1].decode())
        task = asyncio.create_task(hanging(server.url))
        await server.until(lambda: len(server.requests) == 2)
        task.cancel()
        await asyncio.wait([task])

async def hanging(url):
    async with open_stream(url, headers={}, body=b"{}", timeouts=Timeouts()):
        pass

for _ in range(3):
    asyncio.run(main())
    gc.collect()
"""


def test_three_runs_in_a_row_leave_nothing_open() -> None:
    python = [sys.executable, "-X", "dev", "-W", "error", "-c", RUNS]
    done = subprocess.run(python, capture_output=True, text=True, timeout=15, check=False, cwd=ROOT)
    problems = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]  # slow, says asyncio
    assert (done.returncode, done.stdout, problems) == (0, "1\n1\n1\n", [])


async def test_a_body_of_megabytes_arrives_whole() -> None:
    body = b"[" + b"0," * 2_000_000 + b"0]"
    async with RawServer(http(b"data: 1\n\n")) as server:
        async with stream(server.url, body=body) as answer:
            await events_of(answer)
        assert server.requests[0].endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize("size", [1_000_000, 8_000_000])
async def test_sending_a_body_makes_no_second_copy_of_it(size: int) -> None:
    async def discard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(head.lower().partition(b"content-length:")[2].split()[0])
        while left > 0:
            left -= len(await reader.read(16_384))
        writer.write(http(b"{}"))
        await writer.drain()
        writer.close()

    body = b"x" * size
    async with await asyncio.start_server(discard, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        tracemalloc.start()
        try:
            async with open_stream(url, headers={}, body=body, timeouts=Timeouts()) as answer:
                assert answer.status == 200
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 800_000


async def test_cookies_are_not_kept() -> None:
    async with RawServer(http(headers={"Set-Cookie": "session=1"})) as server:
        url = server.url.replace("127.0.0.1", "localhost")  # no client keeps cookies of an address
        await ask(url)
        await ask(url)
        assert b"cookie" not in server.requests[1].lower()


async def test_a_redirect_is_not_followed_so_that_no_key_travels() -> None:
    async with RawServer(http()) as elsewhere:
        redirect = http(status=307, headers={"Location": elsewhere.url})
        async with RawServer(redirect) as server, stream(server.url) as answer:
            error = await read_refusal(answer)
        assert (error.kind, error.status, elsewhere.requests) == ("unknown", 307, [])
        assert f"It leads to {elsewhere.url}" in str(error)


async def test_the_environment_names_the_proxy_and_who_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(http(b"data: 1\n\n")) as proxy, RawServer(http(b"data: 2\n\n")) as server:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//user:word@"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert await ask("http://proxied.invalid/v1/messages") == [(b"", b"1")]
        assert await ask(server.url) == [(b"", b"2")]
        assert proxy.requests[0].startswith(b"POST http://proxied.invalid/v1/messages HTTP/1.1\r\n")
        assert b"Proxy-Authorization: Basic dXNlcjp3b3Jk" in proxy.requests[0]


async def failure_of(url: str) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(url)
    return caught.value


async def test_a_host_without_address_is_a_network_failure() -> None:
    error = await failure_of("http://models.invalid/")
    assert (error.kind, error.usage) == ("network", Usage())


async def test_a_port_that_does_not_speak_tls_is_told_as_that() -> None:
    def speak_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(speak_plainly, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failure_of(f"https://127.0.0.1:{port}/")
    assert (error.kind, error.usage) == ("bad_request", Usage())
    assert "does not speak TLS at this port; if it speaks plain HTTP, write http:// in base_url" in str(error)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "http://", "http://127.0.0.1:x/", "no url"])
async def test_a_bad_address_is_a_bad_request(url: str) -> None:
    error = await failure_of(url)
    assert (error.kind, error.usage) == ("bad_request", Usage())


async def test_garbage_instead_of_http_is_told_apart_from_a_bad_request() -> None:
    async with RawServer(b"\x00\x01\x02 garbage\r\n\r\n") as server:
        error = await failure_of(server.url)
    assert (error.kind, error.status, error.usage) == ("unknown", None, None)
    assert "did not answer in HTTP" in str(error)


async def test_an_enormous_event_is_an_error() -> None:
    async with RawServer(http(b"data: " + b"x" * (EVENT_LIMIT_BYTES + 1))) as server:
        error = await failure_of(server.url)
    assert error.kind == "unknown"
    assert f"{EVENT_LIMIT_BYTES:,} bytes" in str(error)


def foreign_exceptions() -> Iterator[type[Exception]]:
    for module in (client_exceptions, http_exceptions):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Exception) and kind.__module__ == module.__name__:
                yield kind


def made(kind: type[Exception]) -> Exception:
    """Return an exception as aiohttp makes it; each class wants other arguments."""
    url = URL("http://host/")
    info = aiohttp.RequestInfo(url, "POST", CIMultiDictProxy(CIMultiDict(HEADERS)), url)
    key = ConnectionKey("host", 80, False, True, None, None, None)
    error = OSError(1, "no")
    by_parts = (b"a", b"b", "host", 80)
    for arguments in ((), (url,), (key, error), (info, ()), by_parts, ("path", key, error), ("a", "b"), ("a",)):
        try:
            exception = kind(*arguments)
            str(exception)
        except (TypeError, AttributeError):
            continue
        return exception
    raise AssertionError(f"no arguments fit {kind}")


WEB_SOCKETS = {aiohttp.WSMessageTypeError}  # raised only where web sockets are read, which nothing here does


@pytest.mark.parametrize("kind", sorted({*foreign_exceptions()} - WEB_SOCKETS, key=str))
def test_no_exception_of_aiohttp_leaves(kind: type[Exception]) -> None:
    exchange = Exchange("http://host/", HEADERS)
    error = made(kind)
    assert isinstance(error, FOREIGN)
    for failure in (failure_before(error, exchange), failure_within(error, exchange)):
        assert str(failure).startswith("host ")
        assert KEY not in str(failure)


@pytest.mark.parametrize(("begun", "kind"), [(False, "timeout"), (True, "stream_idle")])
@pytest.mark.parametrize("silence", [aiohttp.SocketTimeoutError, aiohttp.ServerTimeoutError, TimeoutError])
def test_a_silence_is_one_over_any_carrier(silence: type[Exception], begun: bool, kind: ProviderErrorKind) -> None:
    read, exchange = failure_within if begun else failure_before, Exchange("http://h", {})
    known = find_meaning(silence("quiet"), begun=begun)
    assert known is not None
    assert (known.kind, read(silence("quiet"), exchange).kind) == (kind, kind)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(http(f"no {KEY}".encode(), status=401, content_type="text/plain"), id="an echo of the key"),
        pytest.param(closing_after(b""), id="a closed connection"),
        pytest.param(closing_after(f"{KEY}\r\n\r\n".encode()), id="garbage"),
        pytest.param(closing_after(http(b"data: 1")[:-2]), id="a cut stream"),
    ],
)
async def test_keys_appear_in_no_error(answer: RawAnswer) -> None:
    async def read() -> None:
        async with stream(server.url.replace("//", "//name:pass-word-1@")) as got:
            if got.status != 200:
                raise await read_refusal(got)
            await events_of(got)

    async with RawServer(answer) as server:
        with pytest.raises(ProviderError) as caught:
            await read()
    error: BaseException | None = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    said = f"{error} {error!r} {error.args} {vars(error)}"
    assert KEY not in said
    assert "pass-word-1" not in said


def test_keys_appear_in_no_repr() -> None:
    assert KEY not in repr(Exchange("http://host/", HEADERS))


async def refusal(answer: bytes) -> ProviderError:
    async with RawServer(answer) as server, stream(server.url) as got:
        return await read_refusal(got)


@pytest.mark.parametrize(
    ("statuses", "kind"),
    [
        ((400, 405, 418, 422, 501), "bad_request"),
        ((401, 403), "auth"),
        ((402,), "quota"),
        ((404, 410), "not_found"),
        ((408, 504), "timeout"),
        ((413,), "context_overflow"),
        ((429,), "rate_limited"),
        ((409, 425, 500, 502, 503, 529, 599), "overloaded"),
        ((301, 308), "unknown"),
    ],
)
async def test_a_status_has_its_kind(statuses: tuple[int, ...], kind: str) -> None:
    assert statuses
    for status in statuses:
        error = await refusal(http(b"oops", status=status, content_type="text/plain"))
        assert (error.kind, error.status, error.type, error.usage) == (kind, status, None, Usage())
        assert f"answered {status}: text/plain, 'oops'" in str(error)


BY_TYPE = b'{"error": {"type": "overloaded_error", "message": "Later."}}'
BY_CODE = b'{"error": {"type": "x", "code": "insufficient_quota", "message": "Pay."}}'
BY_DETAIL = b'{"error": {"type": "overloaded_error", "message": "m", "details": {"error_code": "insufficient_quota"}}}'
BY_NEW_TYPE = b'{"error": {"type": "new_error", "message": "m"}}'


@pytest.mark.parametrize(
    ("body", "kind", "type", "said"),
    [
        pytest.param(BY_TYPE, "overloaded", "overloaded_error", "Later", id="type"),
        pytest.param(BY_CODE, "quota", "insufficient_quota", "Pay", id="code"),
        pytest.param(BY_DETAIL, "quota", "insufficient_quota", "m", id="detail"),
        pytest.param(BY_NEW_TYPE, "rate_limited", "new_error", "m", id="unknown label"),
        pytest.param(b'{"error": "no such thing"}', "rate_limited", None, "no such thing", id="a text"),
        pytest.param(b'{"detail": "Not Found"}', "rate_limited", None, "Not Found", id="a web framework's"),
        pytest.param(b"[1, null]", "rate_limited", None, "application/json, '[1, null]'", id="other JSON"),
        pytest.param(b"", "rate_limited", None, "an empty body", id="nothing"),
        pytest.param(b"\xff" * 500, "rate_limited", None, "\ufffd" * 200, id="no text"),
    ],
)
async def test_the_label_says_more_than_the_status(body: bytes, kind: str, type: str | None, said: str) -> None:
    error = await refusal(http(body, status=429, content_type="application/json"))
    assert (error.kind, error.type) == (kind, type)
    assert said in str(error)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),  # may be a spending limit
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        # A date is compared with the answer's own: this service's clock stands still.
        ({"retry-after": "Fri, 01 Jan 2027 00:00:10 GMT", "date": "Fri, 01 Jan 2027 00:00:00 GMT"}, 10.0),
        ({"retry-after": "Thu, 01 Jan 2015 00:00:00 GMT", "date": "Fri, 01 Jan 2027 00:00:00 GMT"}, 0.0),
        # Without it, what the limit that was met tells: OpenAI's, Groq's, Azure's.
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 1.0),
        ({"x-ratelimit-reset-tokens": "1m2.5s", "x-ratelimit-remaining-tokens": "0"}, 62.5),
        ({"x-ratelimit-reset-requests": "250ms", "x-ratelimit-remaining-requests": "0"}, 0.25),
        (
            {
                "x-ratelimit-reset-requests": "9s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "1s",
                "x-ratelimit-remaining-tokens": "70",
            },
            9.0,
        ),
        ({"x-ratelimit-reset-requests": "17", "retry-after": "2"}, 2.0),
        ({"x-ratelimit-reset-requests": "1741305600000"}, None),
        ({"x-ratelimit-reset-tokens": "tomorrow"}, None),
    ],
)
async def test_the_wait_that_a_provider_asks_for_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert (await refusal(http(status=429, headers=headers))).retry_after_s == seconds


@pytest.mark.parametrize(("packing", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_refusal_that_is_packed_keeps_its_words_and_no_more_than_those(
    packing: str, pack: Callable[[bytes], bytes]
) -> None:
    for body, kind, words in (
        (BY_CODE, "quota", "Pay"),
        (b"x" * 5_000_000, "rate_limited", "'xxx"),
        (b'{"error": {"message": "' + b"x" * 5_000_000 + b'"}}', "rate_limited", "xxx"),
    ):
        error = await refusal(http(pack(body), status=429, headers={"Content-Encoding": packing}))
        assert (error.kind, words in str(error), len(str(error)) < 70_000) == (kind, True, True)
    error = await refusal(http(b"no such form", status=429, headers={"Content-Encoding": "br"}))
    assert "no such form" in str(error)


@pytest.mark.parametrize("name", ["request-id", "X-Request-Id"])
async def test_the_request_id_is_kept(name: str) -> None:
    assert (await refusal(http(status=500, headers={name: "req_7"}))).request_id == "req_7"
