"""The errors of the bridge: every exception of a provider's package becomes a `ProviderError` or a `ModelUnavailable`,
by its class and status, not by its words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, get_args

from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from pydantic_ai.models import KnownModelName

from journeyman.errors import ModelUnavailable, ProviderError, ProviderErrorKind
from journeyman.models.error_reports import kind_of_status
from journeyman.models.vendor_errors import Meaning, find_meaning, quote_error, scrub_error
from journeyman.types import NOTHING_USED, Usage

# The first class that fits, before the status is asked.
_KINDS: Final[tuple[tuple[type[Exception], ProviderErrorKind], ...]] = (
    (ModelContextWindowExceededError, "context_overflow"),
    (ModelRateLimitError, "rate_limited"),
    (ModelQuotaExceededError, "quota"),
    (ModelAuthenticationError, "auth"),
    (ModelNotFoundError, "not_found"),
    (ModelUnavailableError, "overloaded"),
    (ContentFilterError, "content_filtered"),
)
_KINDS_WITHOUT_STATUS: Final[tuple[tuple[type[Exception], ProviderErrorKind], ...]] = (
    (ModelRequestRejectedError, "bad_request"),
    (ModelServerError, "overloaded"),
)
_OWN_TIMEOUTS: Final = (ModelTimeoutError, ModelRequestTimeout)


def failure(
    error: Exception, name: str, *, begun: bool, usage: Usage | None = None, secrets: Iterable[str] = ()
) -> ProviderError:
    """Return the error that an exception of pydantic-ai, or of a package below it, stands for.

    `begun`: whether the answer had begun; `usage`: what it had reported. `name` says in the text which model it was.
    """
    if isinstance(error, ModelHTTPError):
        made = _refused(error, name)
    elif (kind := _kind_by_class(error)) is not None:
        made = ProviderError(f"{name} refused: {quote_error(error)}.", kind=kind)
        if isinstance(error, ModelAPIError):
            made.type, made.retry_after_s = _label(error), error.retry_after
    else:
        known = _classify_error(error, begun=begun)
        made = ProviderError(f"{name} {known.words} ({quote_error(error)}).", kind=known.kind)
        made.usage = NOTHING_USED if known.unbilled else None
    if begun:
        made.usage = usage
    made.args = (scrub_error(str(made), secrets),)
    return made


def _refused(error: ModelHTTPError, name: str) -> ProviderError:
    """Return the error that the service reports with a status. Such an answer is not billed."""
    headers: Mapping[str, str] = error.headers or {}
    kind, label = _kind_by_class(error) or kind_of_status(error.status_code), _label(error)
    words = f"answered {error.status_code} {label or ''}".rstrip()
    return ProviderError(
        f"{name} {words}: {_message_in_body(error.body) or quote_error(error)}".rstrip(".") + ".",
        kind=kind,
        status=error.status_code,
        type=label,
        request_id=next((headers[one] for one in ("request-id", "x-request-id") if one in headers), None),
        retry_after_s=error.retry_after,
        usage=NOTHING_USED,
    )


def _kind_by_class(error: Exception) -> ProviderErrorKind | None:
    kinds = _KINDS if isinstance(error, ModelHTTPError) else _KINDS + _KINDS_WITHOUT_STATUS
    return next((kind for category, kind in kinds if isinstance(error, category)), None)


def _label(error: ModelAPIError) -> str | None:
    return error.provider_error_type or error.provider_error_code


def _message_in_body(body: object) -> str:
    """Return the words of an error document, wherever the provider puts them."""
    for key in ("error", "message", "detail"):
        if isinstance(body, dict) and (found := body.get(key)):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            return _message_in_body(found)  # pyright: ignore[reportUnknownArgumentType]
    return body if isinstance(body, str) else ""


def _classify_error(error: Exception, *, begun: bool) -> Meaning:
    if isinstance(error, _OWN_TIMEOUTS) and error.__cause__ is None:
        error = TimeoutError(str(error))
    known = find_meaning(error, begun=begun)
    if known is not None and (begun or isinstance(error, AgentRunError | OSError)):
        return known
    if begun:
        return Meaning("stream_cut", "could not be understood any further")
    if isinstance(error, ModelConnectionError):
        return Meaning("network", "could not be reached", unbilled=error.phase in ("pool", "connect"))
    if isinstance(error, AgentRunError):
        return Meaning("unknown", "could not be understood")
    # `UserError` and what encoders raise: the request never left.
    return known or Meaning("bad_request", "cannot be asked that", unbilled=True)


# -- models that cannot be had -----------------------------------------------------------------------------------------

_EXTRA: Final = re.compile(r"pydantic-ai-slim\[([\w-]+)\]")
_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")


def unavailable(error: Exception, name: str, secrets: Iterable[str]) -> ModelUnavailable:
    """Return the error of a model that cannot even be made: a package or a key is missing, or nobody knows its name."""
    text = scrub_error(" ".join(str(error).split()), secrets)
    if isinstance(error, ImportError):
        extra = _EXTRA.search(text)
        package = f"pydantic-ai-slim[{extra[1]}]" if extra else error.name or "the provider's package"
        message = f"The model {name!r} needs a package that is not installed."
        hint = f"Install it: pip install 'journeyman[providers]' '{package}'"
        return ModelUnavailable(message, model=name, hint=hint)
    first_sentence = re.split(r"(?<=[.!?])\s", text)[0].rstrip(".")
    if variables := sorted({*_VARIABLE.findall(first_sentence)}):
        hint = f"Set {' or '.join(variables)}, or give its option to connect."
    else:
        hint = f"{_suggestion(name)}Look at its name, and at the options that were given to connect."
    return ModelUnavailable(f"The model {name!r} cannot be used: {first_sentence}.", model=name, hint=hint)


def _suggestion(name: str) -> str:
    """Return a name that may have been meant, if pydantic-ai knows a provider that is called almost the same."""
    bridge, provider, model = name.split(":", 2)
    known = {name.partition(":")[0] for name in get_args(KnownModelName.__value__)}
    close = get_close_matches(provider, sorted(known), n=1)
    return f"Did you mean '{bridge}:{close[0]}:{model}'? " if close and provider not in known else ""
