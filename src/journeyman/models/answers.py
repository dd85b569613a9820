"""The parts of an answer over HTTP, whether it came in events or in one piece, and what a failure status means.

The provider's own label decides which failure it is, or else the status: see `error_reports`.

| status | kind |
|---|---|
| 400, 405, 422 and other 4xx, 501 | `bad_request` |
| 401, 403 | `auth` |
| 402 | `quota` |
| 404, 410 | `not_found` |
| 408, 504 | `timeout` |
| 413 | `context_overflow`: what is too large is the conversation |
| 429 | `rate_limited`; where nothing tells how long to wait, it may be a spending limit, and `retry_after_s` is None |
| 409, 425, 500, 502, 503, 529 and other 5xx | `overloaded`: a passing fault of the service |
| 3xx | `unknown`: a redirect is not followed, so that no key travels |
"""

from __future__ import annotations

import re
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from email.utils import mktime_tz, parsedate_tz
from typing import Final

import orjson

from journeyman.definition.narrowing import as_list, as_object
from journeyman.errors import ProviderError
from journeyman.history import encodable_text
from journeyman.model import Part, TextPart, ThinkingPart, is_negative
from journeyman.models.decoding import Decoder
from journeyman.models.error_reports import Report, as_seconds, find_error, kind_of_status, read_report, tell_wrapped
from journeyman.models.sse import begins_as_events
from journeyman.models.transport import HttpAnswer
from journeyman.types import NOTHING_USED, Usage

_QUOTED_BYTES: Final = 2_048
_ERROR_BODY_BYTES: Final = 64 * 1024
_QUOTED_CHARACTERS: Final = 200
_DOCUMENT_STARTS: Final = (b"{", b"[")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_EVENT_AFTER: Final = re.compile(rb"\r?\n\r?\n(?=data:)")  # no JSON text has this in it
_UNPACKED: Final = ("gzip", "x-gzip", "deflate")
_ENDS_WITH_HALF: Final = re.compile(r"[\ud800-\udbff]\Z").search


@dataclass(slots=True, repr=False, eq=False)
class RequestedStream(AbstractAsyncContextManager[AsyncIterator[Part]]):
    """A request to a model, open as long as the block, which reads its answer.

    A class, because a generator costs more for each request: the benchmark `over-http` needs it.
    """

    open: Callable[[], AbstractAsyncContextManager[HttpAnswer]]
    """Posts the request, when the block is entered."""
    decoder: Decoder
    expected: str
    """What the answer should be, for example `a Messages API stream`."""
    _opened: AbstractAsyncContextManager[HttpAnswer] = field(init=False)

    async def __aenter__(self) -> AsyncIterator[Part]:
        self._opened = self.open()
        answer = await self._opened.__aenter__()
        if answer.status < 300 and not answer.packing:
            return _WireParts(answer, self.decoder, self.expected)
        try:
            if answer.status < 300:
                raise await _failure_of_packed(answer)
            raise await read_refusal(answer)
        finally:
            await self._opened.__aexit__(None, None, None)

    async def __aexit__(self, *raised: object) -> None:
        await self._opened.__aexit__(None, None, None)


@dataclass(slots=True, repr=False, eq=False)
class Parts(ABC):
    """An asynchronous iterator over the parts of one answer. It holds nothing open."""

    _ready: Iterator[Part] = field(default_factory=lambda: iter(()), init=False)
    _has_ended: bool = field(default=False, init=False)
    _half: str = field(default="", init=False)
    """The first half of a surrogate pair, with which the last piece of text ended: the next one has the other."""

    @abstractmethod
    async def _more(self) -> Iterable[Part]:
        """Return the next parts, and note whether they are the last."""

    @abstractmethod
    def _failure(self, error: Exception) -> ProviderError:
        """Return the error that `error`, which came instead of the next parts, stands for; raise it if it is a mistake
        of ours."""

    @abstractmethod
    def unfinished_text(self) -> str:
        """Return the text that no part has told yet; see `model.read_unfinished_text`."""

    def __aiter__(self) -> Parts:
        return self

    async def __anext__(self) -> Part:
        try:
            while (part := next(self._ready, None)) is None and not self._has_ended:
                self._ready = iter(await self._more())
        except Exception as error:  # noqa: BLE001 - whatever class another package lets through
            failure = self._failure(error)
        else:
            if part is None:
                raise StopAsyncIteration
            if type(part) is not TextPart and type(part) is not ThinkingPart:
                self._half = ""
                return part
            if not self._half and part.text.isascii():
                return part
            text = self._half + part.text
            self._half = text[-1] if _ENDS_WITH_HALF(text) else ""
            return replace(part, text=encodable_text(text.removesuffix(self._half)))
        # Outside of `except`, and without the frames of decoders: those hold what the service said, which may echo the
        # key, and the exceptions of other packages hold requests.
        raise failure.with_traceback(None)


def complete_error(
    error: ProviderError, text: str, *, status: int, request_id: str | None, used: Usage | None
) -> ProviderError:
    """Add to an error of a decoder what only the transport knows: `text` without the keys, the status, the request's id
    and the usage so far."""
    error.args = (text,)
    error.status = error.status or status
    error.request_id = error.request_id or request_id
    if error.usage is None and used is not None and not is_negative(used):
        error.usage = replace(used, exact=False)
    return error


@dataclass(slots=True, repr=False, eq=False)
class _WireParts(Parts):
    """The parts of an answer over our own transport."""

    _answer: HttpAnswer
    _decoder: Decoder
    _expected: str
    _form: str = field(default="", init=False)
    """Whether it is `events` or a `document`; empty before its first bytes have come."""

    def unfinished_text(self) -> str:
        return self._decoder.unfinished_text()

    def _failure(self, error: Exception) -> ProviderError:
        if not isinstance(error, ProviderError):
            raise error
        answer, text = self._answer, self._answer.scrub_text(str(error))
        used = self._decoder.usage()
        return complete_error(error, text, status=answer.status, request_id=answer.request_id, used=used)

    async def _more(self) -> Iterable[Part]:
        answer, decoder = self._answer, self._decoder
        if not self._form:
            self._form = form_of(answer.media_type, await answer.look_ahead())
        if self._form == "events":
            events = () if decoder.complete else await answer.events()
            if events:
                return decoder.parts(events)
            await answer.drain()
            parts = decoder.end()
        elif self._form == "document":
            body = (await answer.body()).removeprefix(_BYTE_ORDER_MARK)
            # Some servers put `data: [DONE]` even behind an error that is no event.
            parts = decoder.document(_EVENT_AFTER.split(body, 1)[0] if body.endswith(b"\n") else body)
        else:
            found = quote_body(answer, await answer.body(_QUOTED_BYTES))
            raise answer.failure(f"did not answer with {self._expected}", "unknown", found)
        self._has_ended = True
        return parts


def form_of(media_type: str, start: bytes) -> str:
    """Return whether an answer is `events` or a `document`, by its beginning: gateways give it any media type.

    `page`: it is neither, such as the login page of a proxy. For an empty or damaged answer, the media type decides.
    """
    start = start.removeprefix(_BYTE_ORDER_MARK).lstrip()
    if start.startswith(b"<"):
        return "page"
    if begins_as_events(start):
        return "events"
    if start.startswith(_DOCUMENT_STARTS):
        return "document"
    return {"text/event-stream": "events", "application/json": "document"}.get(media_type, "page")


async def read_refusal(answer: HttpAnswer) -> ProviderError:
    """Return the error that an answer with a failure status reports. Such an answer is not billed."""
    try:
        body = _unpack(answer.packing, await answer.body(_ERROR_BODY_BYTES))
    except ProviderError:
        body = b""
    report, status = _parse_refusal(body), answer.status
    named = f" {report.label}" if report.label else ""
    said = f"answered {status}{named}: {report.message or quote_body(answer, body)}".rstrip(".") + _advice(answer)
    failure = answer.failure(said, report.kind or kind_of_status(status))
    failure.type = report.label
    waits = (retry_after_s(answer.headers), report.wait_s)
    failure.retry_after_s = next((wait_s for wait_s in waits if wait_s is not None), None)
    if failure.kind == "rate_limited" and failure.retry_after_s is None:
        failure.retry_after_s = _reset_s(answer.headers)
    failure.usage = NOTHING_USED
    return tell_wrapped(failure)


async def _failure_of_packed(answer: HttpAnswer) -> ProviderError:
    """Return the error of an answer that was packed although it was asked not to be, with what it reports itself."""
    report = _parse_refusal(_unpack(answer.packing, await answer.body(_ERROR_BODY_BYTES)))
    words = f"packed its answer ({answer.packing[:40]}), which it was asked not to"
    failure = answer.failure(f"{words}{': ' if report.message else ''}{report.message}", report.kind or "unknown")
    failure.type = report.label
    return tell_wrapped(failure)


def _advice(answer: HttpAnswer) -> str:
    """Return advice on what to look at, where it is not the request that is at fault."""
    if answer.target is not None:
        return f". It leads to {answer.target}, where the key is not sent by itself: if that is right, set base_url"
    if answer.status == 407:
        return f". It is the proxy of {answer.proxy_variable or 'the service'} that wants a name and a password"
    return f". The address is {answer.address}" if answer.status in (404, 405, 410) else ""


def _unpack(packing: str, body: bytes) -> bytes:
    """Return a body, or its first part, unpacked, if it was packed although that was not asked for. A packing that is
    not known here is left as it is."""
    if packing not in _UNPACKED:
        return body
    try:
        return zlib.decompressobj(wbits=47).decompress(body, _ERROR_BODY_BYTES)  # 32 + 15: tells gzip from zlib
    except zlib.error:
        return body


def _parse_refusal(body: bytes) -> Report:
    """Return the report in the body of a refusal. Google's document may be the one element of a list, and a service
    that was asked for a stream may refuse with an event."""
    start = body.lstrip()
    try:
        document: object = orjson.loads(start.removeprefix(b"data:") if start.startswith(b"data:") else body)
    except orjson.JSONDecodeError:
        return Report()
    if (elements := as_list(document)) and len(elements) == 1:
        document = elements[0]
    return read_report(find_error(as_object(document)) or (document if isinstance(document, str) else {}))


def quote_body(answer: HttpAnswer, body: bytes) -> str:
    """Return the beginning of a body that was not understood, and the media type that it claims to have."""
    start = body.decode("utf-8", "replace")[:_QUOTED_CHARACTERS].strip()
    return f"{answer.media_type or 'no content type'}, {start!r}" if start else "an empty body"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date. A
    date is of the provider's clock, and so is the answer's own `date`: ours may be an hour off.

    A date is of the provider's clock, and so is the answer's own `date`: ours may be an hour off.
    """
    if (milliseconds := as_seconds(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    if (seconds := as_seconds(text)) is not None:
        return seconds
    moment = _moment(text)
    if moment is None:
        return None
    now = _moment(headers.get("date"))
    return max(0.0, moment - (time.time() if now is None else now))


def _moment(text: str | None) -> float | None:
    moment = parsedate_tz(text) if text else None
    try:
        return None if moment is None else float(mktime_tz(moment))
    except (OverflowError, ValueError):  # a year that no clock has
        return None


_RESET: Final = "x-ratelimit-reset-"
_REMAINING: Final = "x-ratelimit-remaining-"
_DURATION: Final = re.compile(
    r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m(?!s))?(?:(?P<s>[\d.]+)s)?(?:(?P<ms>[\d.]+)ms)?"
)
_MOMENTS_FROM: Final = 1e9  # a number as large as this is a moment, of a clock that is not known
_UNITS: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def _reset_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until the limit that was met has room again, by `x-ratelimit-reset-*`, such as `6m0s` or
    `1.5`.

    There is one for requests and one for tokens. The one met is that of which nothing is left; where that is not told,
    the shorter one.
    """
    names = [name.lower().removeprefix(_RESET) for name in headers if name.lower().startswith(_RESET)]
    spent = [name for name in names if headers.get(_REMAINING + name, "").strip() == "0"]
    waits: list[float] = []
    for name in spent or names:
        text = headers[_RESET + name].strip()
        if (seconds := as_seconds(text)) is not None:
            waits += [seconds] if seconds < _MOMENTS_FROM else []
        elif text and (found := _DURATION.fullmatch(text)):
            parts = found.groupdict().items()
            waits.append(sum([(as_seconds(part) or 0.0) * _UNITS[unit] for unit, part in parts if part]))
    return (max if spent else min)(waits, default=None)
