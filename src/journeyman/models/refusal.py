"""What an answer with a failure status means: by the provider's own label, else by the status, never by the wording.

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

Imports `errors`, `types` and `transport`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Final

import orjson

from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.models.transport import Answer
from journeyman.types import NOTHING_USED

_ERROR_BODY_BYTES: Final = 64 * 1024
_QUOTED_CHARACTERS: Final = 200

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


async def refused(answer: Answer, kinds: Mapping[str, ProviderErrorKind]) -> ProviderError:
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


def quoted(answer: Answer, body: bytes) -> str:
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
