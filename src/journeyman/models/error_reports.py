"""Errors as services write them, whichever wire they come over: as the body of a refusal, or within an answer.

A gateway passes on what the service behind it says, in a form between the two. So there is one reading for all forms,
and one table of labels. The label decides which failure it is, or else the status; the wording never does, with one
exception: see `tell_wrapped`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from journeyman.definition.narrowing import as_list, as_object, as_text
from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.models.wire import to_json
from journeyman.types import JsonObject

_PASSED_ON_CHARACTERS: Final = 1_000

_LABELS: Final[Mapping[ProviderErrorKind, str]] = {
    "auth": "account_deactivated authentication_error invalid_api_key invalid_authentication permission_error"
    " organization_on_hold API_KEY_INVALID CREDENTIALS_MISSING",
    "bad_request": "not_supported_error validationException ValidationException",
    "content_filtered": "content_filter content_policy_violation invalid_prompt ResponsibleAIPolicyViolation",
    "context_overflow": "context_length_exceeded exceed_context_size_error tokens_exceeded_error request_too_large",
    "not_found": "DeploymentNotFound model_not_found not_found_error",
    "overloaded": "api_error conflict_error engine_overloaded overloaded_error server_error server_is_overloaded"
    " slow_down tool_use_failed unavailable_error CANCELLED internalServerException modelStreamErrorException"
    " serviceUnavailableException",  # `tool_use_failed`: Groq cannot read a call of the model; once more may help
    "quota": "billing_hard_limit_reached billing_not_active insufficient_quota billing_error budget_exceeded"
    " contract_spend_limit_reached enforced_spend_limit_reached PerDay",
    "rate_limited": "rate_limit_error rate_limit_exceeded throttlingException ThrottlingException",
    "timeout": "timeout_error modelTimeoutException",
}
LABELS: Final[Mapping[str, ProviderErrorKind]] = {
    label: kind for kind, labels in _LABELS.items() for label in labels.split()
}
"""Codes and types that say more than the status does. `invalid_request_error` says less, it has many statuses; and so
do the names of `google.rpc.Code`. `PerDay` is ours: see `_rpc_details`."""

_OVERFLOW: Final = (
    *("maximum context length", "context window of this model"),  # vLLM, OpenRouter, OpenAI
    "exceeds the available context size",  # older versions of llama.cpp
    # The Messages API (GitHub: kortix-ai/suna#217, docker/docker-agent#569), Bedrock, and what passes them on.
    *("prompt is too long", "exceed context limit", "input is too long"),
    "exceeds the maximum number of tokens allowed",  # Gemini, with 400 INVALID_ARGUMENT
    *("contextwindowexceeded", "context_length_exceeded"),  # LiteLLM, around any of them
)
"""What services say, in lower case, of a conversation that is too long."""
_NO_QUOTA: Final = ("insufficient_quota", "budget has been exceeded", "exceededbudget")
"""What LiteLLM says, in lower case, of a spent budget, its own or that of the service behind it."""
_LACKS: Final = ("input is not supported", "does not support image", "missing data required for image input")
"""What llama.cpp (of images and sounds) and Ollama say, in lower case, of a request that they will never answer: with a
status 5xx, and the label of a passing fault."""
_MAY_BE_WRAPPED: Final = ("bad_request", "unknown", "overloaded", "rate_limited", "auth")

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
_MESSAGES: Final = ("message", "detail", "msg", "error_msg", "status_msg", "errorMessage", "error_message", "error")
"""The fields that hold the words of an error, the usual one first."""
_NO_LABELS: Final = ("None", "null")  # LiteLLM writes Python's None as a text


def kind_of_status(status: int) -> ProviderErrorKind:
    """Return the kind of an answer with this status; the table is in the docstring of `answers`."""
    if kind := _STATUS_KINDS.get(status):
        return kind
    if status >= 500:
        return "overloaded"
    return "bad_request" if status >= 400 else "unknown"


@dataclass(frozen=True, slots=True)
class Report:
    """The facts that a service's document gives of an error."""

    labels: tuple[str, ...] = ()
    """The service's own labels, the most precise first."""
    status: int | None = None
    """The HTTP status that the document gives as its code, as a number or as a text."""
    message: str = ""
    wait_s: float | None = None
    """How long it asks to wait."""

    @property
    def kind(self) -> ProviderErrorKind | None:
        """The kind of error that the labels mean; None if none is known. A spent quota counts more than what it is
        wrapped in."""
        known: list[ProviderErrorKind] = [LABELS[label] for label in self.labels if label in LABELS]
        if "quota" in known:
            return "quota"
        return known[0] if known else None

    @property
    def label(self) -> str | None:
        return self.labels[0] if self.labels else None


def read_report(error: object) -> Report:
    """Return the report of an error: of an object in the form of any service, or of a text."""
    fields: JsonObject = as_object(error) or {"message": as_text(error)}
    passed_on, raw = _upstream(fields)
    rpc_labels, wait_s = _rpc_details(fields)
    code = next((fields[name] for name in ("code", "error_code", "status_code") if fields.get(name)), None)
    given = (as_object(fields.get("details")).get("error_code"), code, fields.get("type"), *rpc_labels, *passed_on)
    texts = [str(each) if type(each) is int else as_text(each) for each in given]
    labels = tuple(text for text in texts if text and text not in _NO_LABELS and _status_in(text) is None)
    message = next((text for name in _MESSAGES if (text := _words_of_field(fields.get(name)))), "")
    return Report(labels, _status_in(code), message + raw, wait_s)


def find_error(document: JsonObject) -> object:
    """Return the error that a document reports, in whichever service's form; None if it reports none. Only for a
    document that is no answer: some forms are a bare `message`.

    Only for a document that is no answer: some forms are a bare `message`.
    """
    if error := document.get("error"):
        return error
    if errors := as_list(document.get("errors")):
        return errors[0]
    told = as_object(document.get("base_resp"))  # of MiniMax, which answers every error with 200
    if told.get("status_code"):
        return told
    is_one = document.get("type") == "error" or document.get("object") == "error"
    return document if is_one or any([_words_of_field(document.get(name)) for name in _MESSAGES]) else None


def error_within(error: object) -> ProviderError:
    """Return the error that a service reports within an answer: an object, or a text."""
    report = read_report(error)
    what = report.label or (str(report.status) if report.status is not None else "an error")
    text = f"The answer broke off with {what}: {report.message or 'no message'}"
    kind: ProviderErrorKind = "bad_request" if "invalid_request_error" in report.labels else "unknown"
    if report.status is not None:
        kind = kind_of_status(report.status)
    failure = ProviderError(text, kind=report.kind or kind, type=report.label)
    failure.retry_after_s = report.wait_s
    return tell_wrapped(failure)


def tell_wrapped(error: ProviderError) -> ProviderError:
    """Give an error its true kind, where the service's words show that it is a conversation that is too long, a spent
    quota, or something that the server cannot do.

    This reads the message, which nothing else does, for services that give no code, and gateways that lose it.
    """
    said = str(error).lower()
    if error.kind in _MAY_BE_WRAPPED and any([text in said for text in _NO_QUOTA]):
        error.kind = "quota"
    elif error.kind in ("bad_request", "unknown", "overloaded") and any([text in said for text in _OVERFLOW]):
        error.kind = "context_overflow"
    elif error.kind == "overloaded" and any([text in said for text in _LACKS]):
        error.kind = "bad_request"
    return error


def as_seconds(text: str | None) -> float | None:
    """Return a number of seconds, at least 0; None if it is not a finite number."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None


def _status_in(code: object) -> int | None:
    """Return the HTTP status that a code is, which some gateways write as a text; None for any other code."""
    if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3:
        code = int(code)
    return code if type(code) is int and 400 <= code <= 599 else None


def _words_of_field(value: object) -> str:
    """Return the text of a field; of a list, such as the details of a web framework, its JSON."""
    listed = as_list(value)
    return to_json(listed).decode()[:_PASSED_ON_CHARACTERS] if listed else as_text(value)


def _rpc_details(error: JsonObject) -> tuple[Iterable[str], float | None]:
    """Return the labels of an error in the form of Google's services, and how many seconds it asks to wait.

    The labels: the reason, then the status, then `PerDay` if a quota of the day is used up.
    """
    reasons: list[str] = []
    per_day: list[str] = []
    wait_s: float | None = None
    for detail in map(as_object, as_list(error.get("details"))):
        reasons += [reason] if (reason := as_text(detail.get("reason"))) else []
        if (delay := as_text(detail.get("retryDelay"))).endswith("s"):
            wait_s = as_seconds(delay[:-1])
        quotas = [as_text(as_object(each).get("quotaId")) for each in as_list(detail.get("violations"))]
        per_day = ["PerDay"] if any("PerDay" in quota for quota in quotas) else per_day
    status = as_text(error.get("status"))
    return [*reasons, *([status] if status else []), *per_day], wait_s


def _upstream(error: JsonObject) -> tuple[list[str], str]:
    """Return what the provider behind a gateway reported: its labels, and its words, to be added to the gateway's.

    OpenRouter passes them on as `metadata.raw`, and says itself no more than "Provider returned error".
    """
    metadata = as_object(error.get("metadata"))
    raw, name = metadata.get("raw"), as_text(metadata.get("provider_name"))
    document: object = raw
    if isinstance(raw, str):
        try:
            document = orjson.loads(raw)
        except orjson.JSONDecodeError:
            document = raw
    inner: object = as_object(document).get("error") or document
    fields = as_object(inner)
    labels = [label for label in (fields.get("code"), fields.get("type")) if isinstance(label, str) and label]
    message = fields.get("message") or inner
    words = message if isinstance(message, str) else to_json(raw).decode() if raw else ""
    said = f"{name}: {words}" if name else words
    return labels, f" ({said.strip()[:_PASSED_ON_CHARACTERS]})" if words.strip() else ""
