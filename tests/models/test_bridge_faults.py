"""What goes wrong on the bridge: every failure is one of ours, keeps the usage, and shows no key.

Its refusals are rows of `tests/contracts/test_faults.py`.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import anthropic
import pytest
from pydantic_ai import exceptions
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from journeyman.errors import ProviderError
from journeyman.model import Collector
from journeyman.models.bridge.model import BridgeModel, failure
from journeyman.types import Usage
from tests.contracts.patient_clock import on_patient_clock
from tests.contracts.test_foreign_exceptions import classes_of, made
from tests.models import asking
from tests.models.asking import everything_said_by
from tests.models.bridging import ANTHROPIC, CHAT, KEY, Service, each, over
from tests.support import messages_answers as anthropic_says
from tests.support.messages_answers import cut, insert, stall
from tests.support.openai_answers import fault
from tests.support.servers import MessagesApi


async def failure_of(model: BridgeModel, collector: Collector | None = None) -> ProviderError:
    error = await asking.failure_of(model, collector)
    assert KEY not in everything_said_by(error)
    assert (error.__cause__, error.__context__) == (None, None)
    return error


@pytest.mark.parametrize(
    ("service", "reply", "kind"),
    [
        pytest.param(
            ANTHROPIC,
            anthropic_says.fault(400, message="prompt is too long: 205668 tokens > 200000 maximum"),
            "context_overflow",
            id="anthropic: too long",
        ),
        pytest.param(CHAT, fault(400, code="context_length_exceeded"), "context_overflow", id="openai: too long"),
        pytest.param(CHAT, fault(429, code="insufficient_quota"), "quota", id="openai: no money left"),
    ],
)
async def test_what_the_provider_says_more_than_the_status(service: Service, reply: Any, kind: str) -> None:  # noqa: ANN401
    async with service.server([reply]) as api:
        error = await failure_of(over(api, service.name))
    assert (error.kind, error.request_id) == (kind, "req_1")


HTML: bytes = b"event: message_delta\ndata: <html>\n\n"
NO_TEXT: bytes = b'event: message_delta\ndata: {"x": "\xff}\n\n'
CUTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "closed between events": (lambda whole: cut(whole, after_events=6), "stream_cut"),
    "reset between events": (lambda whole: cut(whole, after_events=6, ending="reset"), "stream_cut"),
    "ended as if all were well": (lambda whole: cut(whole, after_events=6, ending="end"), "stream_cut"),
    "closed within the first event": (lambda whole: cut(whole, after_bytes=30), "stream_cut"),
    "an empty stream": (lambda whole: cut(whole, after_bytes=0, ending="end"), "stream_cut"),
    "silence": (lambda whole: stall(whole, after_events=6), "stream_idle"),
    "no JSON": (lambda whole: insert(whole, HTML, after_events=6), "stream_cut"),
    "invalid UTF-8": (lambda whole: insert(whole, NO_TEXT, after_events=6), "stream_cut"),
}


@pytest.mark.parametrize("name", CUTS)
@each
def test_an_answer_that_breaks_off_is_told_from_a_whole_one(service: Service, name: str) -> None:
    broken, kind = CUTS[name]
    whole = service.says.answer("Hi there, this takes a while.", delta_chars=3)
    collector = Collector()

    async def failed() -> ProviderError:
        async with service.server([broken(whole)], judging=False) as api:
            return await failure_of(over(api, service.name), collector)

    error = on_patient_clock(failed)
    # Before its first part an answer that ends may also be called one that never began.
    assert error.kind in {kind, "network", "unknown"} if error.usage is None else error.kind == kind
    assert not collector.sum_usage().exact


async def test_the_use_that_was_reported_is_kept() -> None:
    whole = anthropic_says.answer("Hi there.", usage={"input_tokens": 25, "output_tokens": 40}, delta_chars=3)
    for broken in (cut(whole, after_events=6), anthropic_says.broken_off(whole, after_events=6)):
        async with MessagesApi([broken], judging=False) as api:
            error = await failure_of(over(api, ANTHROPIC.name))
        seen = Usage(requests=1, input_tokens=25, output_tokens=1, cache_read_tokens=0, cache_write_tokens=0)
        assert error.usage == replace(seen, exact=False)


async def test_an_error_event_is_mapped_by_its_label() -> None:
    whole = anthropic_says.answer("Hi there.", delta_chars=3)
    for label, kind in [("overloaded_error", "overloaded"), ("rate_limit_error", "rate_limited")]:
        async with MessagesApi([anthropic_says.broken_off(whole, after_events=6, error_type=label)]) as api:
            assert (await failure_of(over(api, ANTHROPIC.name))).kind == kind


def raising(error: Exception, *, after: Sequence[str] = ()) -> BridgeModel:
    """Return a model that says some words and then raises."""

    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        for word in after:
            yield word
        raise error

    return BridgeModel(FunctionModel(stream_function=stream))


FOREIGN = [*map(made, classes_of(anthropic)), ValueError("x"), KeyError("x"), ImportError("x"), OSError("x")]


@pytest.mark.parametrize("error", [*FOREIGN, ExceptionGroup("x", [ValueError("y")])], ids=repr)
async def test_no_exception_of_anything_below_leaves(error: Exception) -> None:
    """Those of pydantic-ai, openai and httpx2 are raised in `tests/contracts/test_foreign_exceptions.py`."""
    for after in ((), ("Hi",)):
        assert (await failure_of(raising(error, after=after))).kind


@pytest.mark.parametrize(
    ("error", "kind", "begun_kind"),
    [
        (exceptions.ModelRateLimitError("m", "x", retry_after=3.0), "rate_limited", "rate_limited"),
        (exceptions.ModelQuotaExceededError("m", "x"), "quota", "quota"),
        (exceptions.ModelOverloadedError("m", "x"), "overloaded", "overloaded"),
        (exceptions.ModelAuthenticationError("m", "x"), "auth", "auth"),
        (exceptions.ModelNotFoundError("m", "x"), "not_found", "not_found"),
        (exceptions.ModelContextWindowExceededError("m", "x"), "context_overflow", "context_overflow"),
        (exceptions.ModelRequestRejectedError("m", "x"), "bad_request", "bad_request"),
        (exceptions.ContentFilterError("x"), "content_filtered", "content_filtered"),
        (exceptions.ModelServerError("m", "x"), "overloaded", "overloaded"),
        (exceptions.ModelConnectionError("m", "x", phase="connect"), "network", "stream_cut"),
        (exceptions.ModelTimeoutError("m", "x"), "timeout", "stream_idle"),
        (exceptions.ModelRequestTimeout("m", 1.0), "timeout", "stream_idle"),
        (exceptions.UnexpectedModelBehavior("x"), "unknown", "stream_cut"),
        (exceptions.UserError("x"), "bad_request", "stream_cut"),
        (NotImplementedError("x"), "bad_request", "stream_cut"),
        (TimeoutError(), "timeout", "stream_idle"),
        (ConnectionRefusedError("x"), "network", "stream_cut"),
    ],
)
def test_the_kind_follows_from_the_class(error: Exception, kind: str, begun_kind: str) -> None:
    assert failure(error, "m", begun=False).kind == kind
    assert failure(error, "m", begun=True).kind == begun_kind


async def test_a_model_that_can_no_longer_be_made_is_a_failure() -> None:
    def make() -> FunctionModel:
        raise exceptions.UserError(f"no such region, {KEY}")

    model = BridgeModel(raising(ValueError("x")).model, make=make, secrets=(KEY,))
    assert (await failure_of(model)).kind == "bad_request"


@each
async def test_a_key_of_the_environment_is_shown_nowhere(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{provider}_API_KEY", KEY)
    async with service.server([service.says.fault(401, message=f"the key {KEY} is bad")]) as api:
        error = await failure_of(over(api, service.name, api_key=None))
    assert "the key [redacted] is bad" in str(error)


@each
async def test_a_key_that_only_the_foreign_model_holds_is_shown_nowhere(service: Service) -> None:
    async with service.server([service.says.fault(401, message=f"the key {KEY} is bad")]) as api:
        error = await failure_of(BridgeModel(over(api, service.name).model))
    assert "the key [redacted] is bad" in str(error)
