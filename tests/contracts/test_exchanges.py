"""One exam for every adapter that speaks HTTP: streams, documents, prices, keys, and what is no answer at all.

What only one adapter has is in its own file of `tests/models`; failures are in `test_faults.py`.
"""

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest

from journeyman.errors import ModelUnavailable
from journeyman.model import BlockFinished, Response, ResponseStarted, TextPart, opened
from journeyman.types import Price, Text, Usage
from tests.contracts import makers
from tests.contracts.makers import KEY, Maker
from tests.models.asking import ask, everything_said_by, failure_of, request
from tests.models.raw_server import RawServer
from tests.play import cancelled
from tests.support import gemini_answers as gemini_says
from tests.support import messages_answers as anthropic_says
from tests.support import openai_answers as openai_says
from tests.support.messages_answers import cut, html_page, raw, stall
from tests.support.servers import GeminiApi, MessagesApi, OpenAiApi

PRICE: Final = Price(input=3, output=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One adapter, and the service that it speaks to."""

    name: str
    server: Callable[..., Any]
    """Makes the strict server: from a script, or a function of the request."""
    says: Any
    """The module that makes the service's answers."""
    model: Maker
    n_events: int = 0
    """After how many events the first text has come."""
    nothing: str = ""
    """What is said of a document that is no answer."""

    def usage(self) -> Any:  # noqa: ANN401 - as its service tells it
        if self.says is gemini_says:
            return gemini_says.Counted(10, 2)
        return openai_says.Counted(10, 2) if self.says is openai_says else {"input_tokens": 10, "output_tokens": 2}


_MESSAGES: Final[dict[str, Any]] = {"server": MessagesApi, "says": anthropic_says, "nothing": "it is not a message"}
_OPENAI: Final[dict[str, Any]] = {"server": OpenAiApi, "says": openai_says}

ANTHROPIC: Final = Examined(name="anthropic", model=makers.anthropic, n_events=4, **_MESSAGES)
CLIENT: Final = Examined(name="anthropic-client", model=makers.client, n_events=4, **_MESSAGES)
CHAT: Final = Examined(name="openai-chat", model=makers.chat, n_events=3, nothing="not a chat completion", **_OPENAI)
RESPONSES: Final = Examined(
    name="openai-responses", model=makers.responses, n_events=5, nothing="it is not a response", **_OPENAI
)
GOOGLE: Final = Examined(
    name="google", server=GeminiApi, says=gemini_says, model=makers.google, n_events=1, nothing="it is not an answer"
)
AZURES: Final = Examined(name="azure-responses", model=makers.azure, **_OPENAI)
BRIDGED: Final = Examined(name="bridge", model=makers.bridged, n_events=6, **_OPENAI)
BRIDGED_ANTHROPIC: Final = Examined(
    name="bridge-anthropic", model=partial(makers.bridged, name=f"anthropic:{makers.CLAUDE}"), n_events=6, **_MESSAGES
)
BRIDGED_RESPONSES: Final = Examined(
    name="bridge-responses", model=partial(makers.bridged, name="openai-responses:gpt-5"), n_events=6, **_OPENAI
)
FOREIGN: Final = (CLIENT, BRIDGED, BRIDGED_ANTHROPIC, BRIDGED_RESPONSES)
"""Those over the client of another package."""
OWN: Final = (ANTHROPIC, CHAT, GOOGLE, RESPONSES)
"""Those over the package's own transport."""


def each(*examined: Examined) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("carrier", examined, ids=lambda carrier: carrier.name)


@each(*OWN, CLIENT, BRIDGED)
async def test_parts_come_while_the_answer_is_still_being_written(carrier: Examined) -> None:
    reply = stall(carrier.says.answer("Hello there", delta_chars=5), after_events=carrier.n_events)
    async with carrier.server([reply]) as api, carrier.model(api.url) as model:
        async with model.stream(request()) as parts:
            async for part in parts:
                if part == TextPart("Hello"):
                    break
            else:
                pytest.fail("The answer ended before its first part came.")
        await api.until(lambda: api.requests[0].hung_up)


@each(*OWN)
async def test_the_parts_of_an_answer_add_up_to_its_blocks(carrier: Examined) -> None:
    answer = carrier.says.answer("Grüße 😀 an alle", delta_chars=3)
    async with carrier.server([answer]) as api, carrier.model(api.url) as model, model.stream(request()) as parts:
        heard = [part async for part in parts]
    said = [part.text for part in heard if isinstance(part, TextPart)]
    assert len(said) > 3
    assert [part.block for part in heard if isinstance(part, BlockFinished)] == [Text("".join(said))]


@each(*OWN, CLIENT, BRIDGED)
async def test_a_cancelled_call_stops_the_server(carrier: Examined) -> None:
    reply = stall(carrier.says.answer("Hello"), after_events=1)
    async with carrier.server([reply]) as api, carrier.model(api.url) as model:
        task = asyncio.create_task(ask(model))
        await api.until(lambda: len(api.requests) == 1)
        await cancelled(task)
        await api.until(lambda: api.requests[0].hung_up)


@each(*OWN, CLIENT, BRIDGED)
async def test_a_price_gives_every_answer_its_cost(carrier: Examined) -> None:
    answer = carrier.says.answer("Hi.", usage=carrier.usage())
    async with carrier.server([answer]) as api, carrier.model(api.url, price=PRICE) as model:
        response = await ask(model)
    assert response.usage.cost == pytest.approx((10 * 3 + 2 * 15) / 1_000_000)


@pytest.mark.share(one_in=2)
@each(*OWN)
async def test_two_hundred_streams_run_at_once_over_one_client(carrier: Examined) -> None:
    def reply(_: object) -> object:
        return carrier.says.answer("Hello " * 50)

    async with carrier.server(reply) as api, carrier.model(api.url) as model, opened(model):
        responses = await asyncio.gather(*(ask(model) for _ in range(200)))
    assert {response.content for response in responses} == {(Text("Hello " * 50),)}
    assert api.peak_in_flight > 20


@each(*OWN)
async def test_failures_leave_no_garbage_behind(carrier: Examined) -> None:
    reply = cut(carrier.says.answer("Hi there.", delta_chars=2), after_events=3)
    async with carrier.server([reply]) as api, carrier.model(api.url) as model:
        assert (await failure_of(model)).kind == "stream_cut"
    gc.collect()  # an unclosed connection or generator would warn, and warnings are errors


@each(*FOREIGN)
def test_three_event_loops_in_a_row_leave_nothing_open(carrier: Examined) -> None:
    script = [stall(carrier.says.answer("Hello there", delta_chars=5), after_events=carrier.n_events)]
    script.append(carrier.says.answer("Hi."))

    async def once() -> Response:
        async with carrier.server(script) as api, carrier.model(api.url) as model:
            async with model.stream(request()) as parts:
                async for part in parts:
                    if isinstance(part, ResponseStarted):
                        break
            return await ask(model)

    for _ in range(3):
        said = asyncio.run(once()).content
        assert [block.text for block in said if isinstance(block, Text)] == ["Hi."]
        gc.collect()  # warnings about what was left open are errors


@each(*OWN, *FOREIGN, AZURES)
async def test_the_key_is_shown_nowhere(carrier: Examined, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO if carrier in FOREIGN else logging.DEBUG)
    more = {"auth_token": "bearer-secret"} if carrier is ANTHROPIC else {}
    refusal = carrier.says.fault(401, message=f"the key {KEY} is bad")
    async with carrier.server([refusal]) as api, carrier.model(api.url, **more) as model:
        error = await failure_of(model)
        said = everything_said_by(error) + repr(model) + str(model) + caplog.text
    assert "the key [redacted] is bad" in said
    assert KEY not in said
    assert "bearer-secret" not in said


@each(*OWN)
@pytest.mark.parametrize("key", ["", "two words", "line\n", "schlüssel"])
def test_a_key_that_cannot_be_one_is_refused_without_being_shown(carrier: Examined, key: str) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        carrier.model("http://service.test", api_key=key)
    assert not key or key not in everything_said_by(caught.value)


@each(*OWN)
@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        pytest.param(html_page(200), "unknown", "text/html, '<html><head><title>200", id="a page"),
        pytest.param(raw(b"", content_type="text/plain"), "unknown", "an empty body", id="nothing"),
        pytest.param(raw(b"\xff\x00" * 300, content_type="image/png"), "unknown", "image/png", id="garbage"),
        pytest.param(raw(b"", content_type="application/json"), "stream_cut", "cannot be read", id="empty JSON"),
        pytest.param(raw(b"[]", content_type="application/json"), "unknown", None, id="other JSON"),
        pytest.param(raw(b"x\n\n", content_type="text/event-stream"), "stream_cut", "it is empty", id="no events"),
    ],
)
async def test_what_is_no_answer_is_quoted(carrier: Examined, reply: Any, kind: str, said: str | None) -> None:  # noqa: ANN401
    async with carrier.server([reply]) as api, carrier.model(api.url) as model:
        error = await failure_of(model)
    assert (error.kind, error.status, error.usage) == (kind, 200, None)
    assert (said or carrier.nothing) in str(error)


@each(*OWN, CLIENT)
async def test_a_connection_that_is_refused_names_the_host_and_costs_nothing(carrier: Examined) -> None:
    async with RawServer(b"") as server:
        pass
    async with carrier.model(server.url) as model:
        error = await failure_of(model)
    assert (error.kind, error.status, error.usage) == ("network", None, Usage())
    assert f"{server.url.removeprefix('http://')} could not be reached" in str(error)
