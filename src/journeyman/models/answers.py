"""The parts of an answer over HTTP, whether it came in events or in one piece, and what a failure status means.

The provider's own label decides which failure it is, or else the status; the wording never does, with two exceptions:
see `with_overflow` and `with_lack`.

| status | kind |
|---|---|
| 400, 405, 422 and other 4xx, 501 | `bad_request` |
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
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from email.utils import mktime_tz, parsedate_tz
from typing import Final, Protocol

import orjson

from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.model import Part, is_negative
from journeyman.models.sse import Event
from journeyman.models.transport import HttpAnswer
from journeyman.models.wire import as_list, as_object, as_text, to_json
from journeyman.types import NOTHING_USED, JsonObject, Usage

_QUOTED_BYTES: Final = 2_048
_ERROR_BODY_BYTES: Final = 64 * 1024
_QUOTED_CHARACTERS: Final = 200
_PASSED_ON_CHARACTERS: Final = 1_000


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

    def unfinished(self) -> str:
        """Return the text that no part has told yet, of an answer that breaks off here; see `model.unfinished`."""
        ...


@dataclass(slots=True, repr=False, eq=False)
class RequestedStream(AbstractAsyncContextManager[AsyncIterator[Part]]):
    """A request to a model, open as long as the block, which reads its answer.

    A class, because a generator costs more for each request: the benchmark `over-http` needs it.
    """

    open: Callable[[], AbstractAsyncContextManager[HttpAnswer]]
    """Posts the request, when the block is entered."""
    decoder: Decoder
    kinds: Mapping[str, ProviderErrorKind]
    """For `refused`."""
    overflow: Sequence[str]
    """For `with_overflow`."""
    expected: str
    """What the answer should be, for example `a Messages API stream`."""
    _opened: AbstractAsyncContextManager[HttpAnswer] = field(init=False)

    async def __aenter__(self) -> AsyncIterator[Part]:
        self._opened = self.open()
        answer = await self._opened.__aenter__()
        if answer.status < 300 and not answer.packing:
            return _Parts(answer, self.decoder, self.expected, answer.media_type)
        try:
            if answer.status < 300:
                raise answer.failure(f"packed its answer ({answer.packing[:40]}), which it was asked not to", "unknown")
            raise with_lack(with_overflow(await refused(answer, self.kinds), self.overflow))
        finally:
            await self._opened.__aexit__(None, None, None)

    async def __aexit__(self, *raised: object) -> None:
        await self._opened.__aexit__(None, None, None)


@dataclass(slots=True, repr=False, eq=False)
class Parts(ABC):
    """An asynchronous iterator over the parts of one answer. It holds nothing open."""

    _ready: Iterator[Part] = field(default_factory=lambda: iter(()), init=False)
    _has_ended: bool = field(default=False, init=False)

    @abstractmethod
    async def _more(self) -> Iterable[Part]:
        """Return the next parts, and note whether they are the last."""

    @abstractmethod
    def _failure(self, error: Exception) -> ProviderError:
        """Return what it means that `error` came instead of the next parts; raise it if it is a mistake of ours."""

    @abstractmethod
    def unfinished(self) -> str:
        """Return the text that no part has told yet; see `model.unfinished`."""

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
            return part
        # Outside of `except`, and without the frames of decoders: those hold what the service said, which may echo the
        # key, and the exceptions of other packages hold requests.
        raise failure.with_traceback(None)


def completed(
    error: ProviderError, text: str, *, status: int, request_id: str | None, used: Usage | None
) -> ProviderError:
    """Add what a decoder does not know: `text` without the keys, the status, the request and the use so far."""
    error.args = (text,)
    error.status = error.status or status
    error.request_id = error.request_id or request_id
    if error.usage is None and used is not None and not is_negative(used):
        error.usage = replace(used, exact=False)
    return error


@dataclass(slots=True, repr=False, eq=False)
class _Parts(Parts):
    """The parts of an answer over our own transport."""

    _answer: HttpAnswer
    _decoder: Decoder
    _expected: str
    _media_type: str

    def unfinished(self) -> str:
        return self._decoder.unfinished()

    def _failure(self, error: Exception) -> ProviderError:
        if not isinstance(error, ProviderError):
            raise error
        answer, text = self._answer, self._answer.scrubbed(str(error))
        used = self._decoder.usage()
        return completed(error, text, status=answer.status, request_id=answer.request_id, used=used)

    async def _more(self) -> Iterable[Part]:
        answer, decoder = self._answer, self._decoder
        if self._media_type == "text/event-stream":
            events = () if decoder.complete else await answer.events()
            if events:
                return decoder.parts(events)
            await answer.drain()
            parts = decoder.end()
        elif self._media_type == "application/json":
            parts = decoder.document(await answer.body())
        else:
            found = quoted(answer, await answer.body(_QUOTED_BYTES))
            raise answer.failure(f"did not answer with {self._expected}", "unknown", found)
        self._has_ended = True
        return parts


# -- answers with a failure status -------------------------------------------------------------------------------------

_STATUS_KINDS: Final[Mapping[int, ProviderErrorKind]] = {
    **dict.fromkeys((401, 403), "auth"),
    402: "quota",
    **dict.fromkeys((404, 410), "not_found"),
    **dict.fromkeys((408, 504), "timeout"),
    **dict.fromkeys((409, 425), "overloaded"),
    413: "context_overflow",
    501: "bad_request",
    429: "rate_limited",
}


def kinds_of_labels(labels: Mapping[ProviderErrorKind, str]) -> Mapping[str, ProviderErrorKind]:
    """Return a provider's labels for errors, each with its kind, from the labels of each kind, in one text."""
    return {label: kind for kind, words in labels.items() for label in words.split()}


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
        body = b"" if answer.packing else await answer.body(_ERROR_BODY_BYTES)
    except ProviderError:
        body = b""
    labels, text, wait_s = _reported(body)
    named_kind: ProviderErrorKind | None = next((kinds[label] for label in labels if label in kinds), None)
    named = f" {labels[0]}" if labels else ""
    said = f"answered {answer.status}{named}: {text or quoted(answer, body)}".rstrip(".")
    failure = answer.failure(said, named_kind or kind_of_status(answer.status))
    failure.type = labels[0] if labels else None
    asked_s = retry_after_s(answer.headers)
    failure.retry_after_s = wait_s if asked_s is None else asked_s
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


_LACKS: Final = ("input is not supported", "does not support image", "missing data required for image input")
"""What llama.cpp (of images and sounds) and Ollama say of a request that they will never answer."""


def with_lack(error: ProviderError) -> ProviderError:
    """Tell what a server cannot do from a passing fault of it, by what it says: any of `_LACKS`.

    This reads the message of a status 5xx only: servers of one's own answer so, with the label of a passing fault.
    """
    said = str(error).lower()
    if error.kind == "overloaded" and any(text in said for text in _LACKS):
        error.kind = "bad_request"
    return error


def _reported(body: bytes) -> tuple[list[str], str, float | None]:
    """Return the labels of an error document, the most precise first, its message, and how long it asks to wait.

    Google's may be the one element of a list.
    """
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return [], "", None
    if (elements := as_list(document)) and len(elements) == 1:
        document = elements[0]
    error = _get(document, "error") or document
    passed_on, raw = upstream(error)
    rpc_labels, wait_s = rpc_details(as_object(error))
    labels = (_get(_get(error, "details"), "error_code"), _get(error, "code"), _get(error, "type"), *rpc_labels)
    texts = (_get(error, "message"), error, _get(document, "detail"))
    return (
        [label for label in labels if isinstance(label, str) and label] + passed_on,
        next((text for text in texts if isinstance(text, str) and text), "") + raw,
        wait_s,
    )


def rpc_details(error: JsonObject) -> tuple[list[str], float | None]:
    """Return the labels of an error in the form of Google's services, and how many seconds it asks to wait.

    The labels: the reason, then the status, then `PerDay` if a quota of the day is used up.
    """
    reasons: list[str] = []
    per_day: list[str] = []
    wait_s: float | None = None
    for detail in map(as_object, as_list(error.get("details"))):
        reasons += [reason] if (reason := as_text(detail.get("reason"))) else []
        if (delay := as_text(detail.get("retryDelay"))).endswith("s"):
            wait_s = _number(delay[:-1])
        quotas = [as_text(as_object(each).get("quotaId")) for each in as_list(detail.get("violations"))]
        per_day = ["PerDay"] if any("PerDay" in quota for quota in quotas) else per_day
    status = as_text(error.get("status"))
    return [*reasons, *([status] if status else []), *per_day], wait_s


def upstream(error: object) -> tuple[list[str], str]:
    """Return what the provider behind a gateway reported: its labels, and its words, to be added to the gateway's.

    OpenRouter passes them on as `metadata.raw`, and says itself no more than "Provider returned error".
    """
    metadata = _get(error, "metadata")
    raw, name = _get(metadata, "raw"), _get(metadata, "provider_name")
    document: object = raw
    if isinstance(raw, str):
        try:
            document = orjson.loads(raw)
        except orjson.JSONDecodeError:
            document = raw
    inner = _get(document, "error") or document
    labels = [label for label in (_get(inner, "code"), _get(inner, "type")) if isinstance(label, str) and label]
    message = _get(inner, "message") or inner
    words = message if isinstance(message, str) else to_json(raw).decode() if raw else ""
    said = f"{name}: {words}" if isinstance(name, str) and name else words
    return labels, f" ({said.strip()[:_PASSED_ON_CHARACTERS]})" if words.strip() else ""


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
