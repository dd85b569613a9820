"""The parts of an answer over HTTP, whether it came in events or in one piece, and what a failure status means.

A failure is told by the provider's own label, else by the status, never by the wording, but for one thing: see
`with_overflow`.

| status | kind |
|---|---|
| 400, 405, 422 and other 4xx | `bad_request` |
| 401, 403 | `auth` |
| 402 | `quota` |
| 404, 410 | `not_found` |
| 408, 504 | `timeout` |
| 413 | `context_overflow`: what is too large is the conversation |
| 429 | `rate_limited`; without a `retry-after` it may be a spending limit, and `retry_after_s` is None |
| 409, 425, 500, 502, 503, 529 and other 5xx | `overloaded`: a passing fault of the service |
| 3xx | `unknown`: a redirect is not followed, so that no key travels |
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from email.utils import mktime_tz, parsedate_tz
from typing import Final, Protocol

import orjson

from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.model import Part
from journeyman.models.sse import Event
from journeyman.models.transport import HttpAnswer
from journeyman.types import NOTHING_USED, Usage

_QUOTED_BYTES: Final = 2_048
_ERROR_BODY_BYTES: Final = 64 * 1024
_QUOTED_CHARACTERS: Final = 200


class Decoder(Protocol):
    """Turns one answer into parts. Everything raises `ProviderError` for an answer that is damaged or an error."""

    @property
    def complete(self) -> bool:
        """True when the last part was given."""
        ...

    def parts(self, events: Iterable[Event]) -> Iterator[Part]:
        """Yield the parts that some events bring."""
        ...

    def document(self, data: bytes) -> Sequence[Part]:
        """Return the parts of an answer in one piece."""
        ...

    def end(self) -> Sequence[Part]:
        """Return what is left to say when the events have ended."""
        ...

    def usage(self) -> Usage | None:
        """Return what the answer has reported as used so far; None before it has reported anything."""
        ...


class RequestedStream(AbstractAsyncContextManager[AsyncIterator[Part]]):
    """A request to a model, open as long as the block, which reads its answer.

    A class, because a generator costs more for each request: the benchmark `over-http` needs it.
    """

    __slots__ = ("_decoder", "_expected", "_kinds", "_open", "_opened", "_overflow")

    def __init__(
        self,
        open: Callable[[], AbstractAsyncContextManager[HttpAnswer]],
        decoder: Decoder,
        *,
        kinds: Mapping[str, ProviderErrorKind],
        overflow: Sequence[str],
        expected: str,
    ) -> None:
        """`open` posts the request when the block is entered; `kinds` are for `refused`, `overflow` is for
        `with_overflow`, and `expected` for `Parts`."""
        self._open = open
        self._decoder = decoder
        self._kinds = kinds
        self._overflow = overflow
        self._expected = expected

    async def __aenter__(self) -> AsyncIterator[Part]:
        self._opened = self._open()
        answer = await self._opened.__aenter__()
        if answer.status < 300:
            return Parts(answer, self._decoder, expected=self._expected)
        try:
            raise with_overflow(await refused(answer, self._kinds), self._overflow)
        finally:
            await self._opened.__aexit__(None, None, None)

    async def __aexit__(self, *raised: object) -> None:
        await self._opened.__aexit__(None, None, None)


class Parts:
    """An asynchronous iterator over the parts of one answer. Holds nothing open: `open_stream` does."""

    __slots__ = ("_answer", "_comes_in_events", "_decoder", "_expected", "_has_ended", "_ready")

    def __init__(self, answer: HttpAnswer, decoder: Decoder, *, expected: str) -> None:
        """`expected` says in an error message what the answer is not, for example `a Messages API stream`."""
        self._answer = answer
        self._comes_in_events = answer.media_type == "text/event-stream"
        self._decoder = decoder
        self._expected = expected
        self._ready: Iterator[Part] = iter(())
        self._has_ended = False

    def __aiter__(self) -> Parts:
        return self

    async def __anext__(self) -> Part:
        try:
            while (part := next(self._ready, None)) is None:
                if self._has_ended:
                    raise StopAsyncIteration
                self._ready = await self._more()
        except ProviderError as error:
            failure = self._completed(error)
        else:
            return part
        raise failure.with_traceback(None)  # the frames of decoders hold what the service said, which may echo the key

    def _completed(self, error: ProviderError) -> ProviderError:
        """Add what a decoder does not know: the keys, which must not be shown, the status and the use so far."""
        answer = self._answer
        error.args = (answer.scrubbed(str(error)),)
        error.status = error.status or answer.status
        error.request_id = error.request_id or answer.request_id
        if error.usage is None and (seen := self._decoder.usage()) is not None:
            error.usage = replace(seen, exact=False)
        return error

    async def _more(self) -> Iterator[Part]:
        answer, decoder = self._answer, self._decoder
        if self._comes_in_events:
            events = () if decoder.complete else await answer.events()
            if events:
                return decoder.parts(events)
            await answer.drain()
            parts = decoder.end()
        elif answer.media_type == "application/json":
            parts = decoder.document(await answer.body())
        else:
            found = quoted(answer, await answer.body(_QUOTED_BYTES))
            raise answer.failure(f"did not answer with {self._expected}", "unknown", found)
        self._has_ended = True
        return iter(parts)


# -- answers with a failure status -------------------------------------------------------------------------------------

_STATUS_KINDS: Final[Mapping[int, ProviderErrorKind]] = {
    401: "auth",
    402: "quota",
    403: "auth",
    404: "not_found",
    408: "timeout",
    409: "overloaded",
    410: "not_found",
    413: "context_overflow",
    425: "overloaded",
    429: "rate_limited",
    504: "timeout",
}


def kind_of_status(status: int) -> ProviderErrorKind:
    """Return the kind of an answer with this status; the table is in the module's docstring."""
    if kind := _STATUS_KINDS.get(status):
        return kind
    if status >= 500:
        return "overloaded"
    return "bad_request" if status >= 400 else "unknown"


async def refused(answer: HttpAnswer, kinds: Mapping[str, ProviderErrorKind]) -> ProviderError:
    """Return the error that an answer with a failure status reports.

    `kinds` are the provider's labels that say more than the status does. Such an answer is not billed.
    """
    try:
        body = await answer.body(_ERROR_BODY_BYTES)
    except ProviderError:
        body = b""
    labels, text = _reported(body)
    named_kind: ProviderErrorKind | None = next((kinds[label] for label in labels if label in kinds), None)
    named = f" {labels[0]}" if labels else ""
    said = f"answered {answer.status}{named}: {text or quoted(answer, body)}".rstrip(".")
    failure = answer.failure(said, named_kind or kind_of_status(answer.status))
    failure.type = labels[0] if labels else None
    failure.retry_after_s = retry_after_s(answer.headers)
    failure.usage = NOTHING_USED
    return failure


def with_overflow(error: ProviderError, texts: Sequence[str]) -> ProviderError:
    """Tell a conversation that is too long from other bad requests, by what the service says of one: any of `texts`.

    This reads the message, which nothing else does, for the services that give no code. The texts are in lower case.
    """
    said = str(error).lower()
    if error.kind == "bad_request" and any(text in said for text in texts):
        error.kind = "context_overflow"
    return error


def _reported(body: bytes) -> tuple[list[str], str]:
    """Return the labels of an error document, the most precise first, and its message."""
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return [], ""
    error = _get(document, "error") or document
    details = _get(error, "details")
    labels = (_get(details, "error_code"), _get(error, "code"), _get(error, "type"))
    texts = (_get(error, "message"), error, _get(document, "detail"))
    return (
        [label for label in labels if isinstance(label, str) and label],
        next((text for text in texts if isinstance(text, str) and text), ""),
    )


def _get(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def quoted(answer: HttpAnswer, body: bytes) -> str:
    """Return the beginning of a body that was not understood, and what it claims to be."""
    start = body.decode("utf-8", "replace")[:_QUOTED_CHARACTERS].strip()
    return f"{answer.media_type or 'no content type'}, {start!r}" if start else "an empty body"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how long the provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    if (seconds := _number(text)) is not None:
        return seconds
    moment = parsedate_tz(text) if text else None
    return max(0.0, mktime_tz(moment) - time.time()) if moment else None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
