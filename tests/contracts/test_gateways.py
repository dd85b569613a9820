"""What gateways do to the wire of a service, on all wires: words and errors of another one, other labels, heartbeats.

Each row is one thing that a gateway was seen to do; the wires are those whose bytes we read ourselves.
"""

import gzip
from collections.abc import Callable
from dataclasses import dataclass

import orjson
import pytest

from journeyman import Agent, ErrorCode, Text, run, tool
from journeyman.errors import ProviderError
from journeyman.model import Response
from journeyman.models.wrappers import FallbackModel
from tests.contracts import fault_wires as wires
from tests.contracts import makers
from tests.contracts.fault_wires import EVENTS, JSON, Wire, events
from tests.contracts.makers import PLAIN_GPT, Maker
from tests.contracts.patient_clock import on_patient_clock
from tests.models.asking import ask, failure_of
from tests.models.raw_server import RawServer, http
from tests.play import existing, failed, succeeded

Json = dict[str, object]


def _messages(word: str, *, calls: bool) -> bytes:
    text: Json = {"type": "text", "text": "It is 42."}
    call: Json = {"type": "tool_use", "id": "c1", "name": "query", "input": {"sql": "1"}}
    told: list[Json] = [{"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 1}}}]
    for index, block in enumerate([text, *[call] * calls]):
        told.append({"type": "content_block_start", "index": index, "content_block": block})
        told.append({"type": "content_block_stop", "index": index})
    told.append({"type": "message_delta", "delta": {"stop_reason": word}, "usage": {"output_tokens": 1}})
    return events(*told, {"type": "message_stop"}, named=True)


def _chat(word: str, *, calls: bool) -> bytes:
    function = {"name": "query", "arguments": '{"sql": "1"}'}
    call: Json = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
    deltas: list[Json] = [{"content": "It is 42."}, *[call] * calls, {}]
    choices: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None if delta else word} for delta in deltas]
    chunks: list[Json] = [{"id": "x", "model": "m", "choices": [choice]} for choice in choices]
    return events(*chunks) + b"data: [DONE]\n\n"


def _gemini(word: str, *, calls: bool) -> bytes:
    call: Json = {"functionCall": {"name": "query", "args": {"sql": "1"}}}
    parts: list[Json] = [{"text": "It is 42."}, *[call] * calls]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": word}
    return events({"candidates": [candidate], "responseId": "r", "modelVersion": "m"})


@dataclass(frozen=True, slots=True)
class Told:
    """One wire: how its model is made, how it tells why it stopped, and how it writes an answer."""

    name: str
    model: Maker
    wire: Wire
    stopped: Callable[..., bytes] | None = None


def _responses_model(url: str, **more: object) -> makers.Made:
    return makers.responses(url, name=PLAIN_GPT, **more)


ANTHROPIC = Told("anthropic", makers.anthropic, wires.ANTHROPIC_EVENTS, _messages)
CHAT = Told("chat", makers.chat, wires.CHAT_EVENTS, _chat)
GOOGLE = Told("google", makers.google, wires.GEMINI_EVENTS, _gemini)
RESPONSES = Told("responses", _responses_model, wires.RESPONSES_EVENTS)
STREAMS = (ANTHROPIC, CHAT, GOOGLE, RESPONSES)
DOCUMENTS = (
    Told("anthropic-document", makers.anthropic, wires.ANTHROPIC_DOCUMENT),
    Told("chat-document", makers.chat, wires.CHAT_DOCUMENT),
    Told("google-document", makers.google, wires.GEMINI_DOCUMENT),
    Told("responses-document", _responses_model, wires.RESPONSES_DOCUMENT),
)
every_stop = pytest.mark.parametrize("told", [ANTHROPIC, CHAT, GOOGLE], ids=lambda told: told.name)
every_stream = pytest.mark.parametrize("told", STREAMS, ids=lambda told: told.name)
every_form = pytest.mark.parametrize("told", [*STREAMS, *DOCUMENTS], ids=lambda told: told.name)


async def answer_of(told: Told, body: bytes, **more: object) -> tuple[Response, int]:
    """Return the answer that a model reads from these bytes, and how many requests it took."""
    async with RawServer(http(body, **more)) as server, told.model(server.url) as model:  # pyright: ignore[reportArgumentType] - as `http` takes them
        return await ask(model), len(server.requests)


async def error_of(told: Told, body: bytes, **more: object) -> ProviderError:
    async with RawServer(http(body, **more)) as server, told.model(server.url) as model:  # pyright: ignore[reportArgumentType] - as above
        return await failure_of(model)


MEANINGS = {
    "end_turn": "end_turn stop STOP eos COMPLETE tool_use tool_calls TOOL_CALL",
    "stop_sequence": "stop_sequence STOP_SEQUENCE",
    "max_tokens": "max_tokens MAX_TOKENS length max_output_tokens",
    "refusal": "refusal content_filter SAFETY sensitive guardrail_intervened PROHIBITED_CONTENT",
    "context_window": "model_context_window_exceeded model_length",
    "other": "quantum_flux",
}
BY_ITSELF = "end_turn stop STOP COMPLETE tool_use tool_calls TOOL_CALL function_call"
FAULTS = "error network_error insufficient_system_resource abort ERROR"


def is_exact(told: Told, word: str) -> bool:
    """Tell whether a word is the wire's own, and means what it says whatever was called: M7, D6."""
    return told is ANTHROPIC and word in ("end_turn", "tool_use")


@every_stop
async def test_a_reason_of_any_wire_means_the_same_on_all(told: Told) -> None:
    assert told.stopped is not None
    for meaning, words in MEANINGS.items():
        for word in words.split():
            response, _ = await answer_of(told, told.stopped(word, calls=False))
            meant = word if is_exact(told, word) else meaning
            assert (word, response.stop_reason) == (word, meant)
            assert response.stop_detail == (word if meaning in ("refusal", "other") and word != meaning else None)


@every_stop
async def test_calls_are_run_whatever_word_says_that_the_model_stopped_by_itself(told: Told) -> None:
    assert told.stopped is not None
    for word in BY_ITSELF.split():
        response, _ = await answer_of(told, told.stopped(word, calls=True))
        assert (word, response.stop_reason) == (word, word if is_exact(told, word) else "tool_use")


@every_stop
def test_a_reason_that_is_a_fault_is_asked_again_and_passed_on(told: Told) -> None:
    stopped = existing(told.stopped)

    async def outcome(word: str) -> tuple[object, int, object]:
        broken, well = http(stopped(word, calls=False)), http(told.wire.whole, content_type=EVENTS)
        async with RawServer(broken, well) as server, told.model(server.url) as model:
            again = await run(Agent(name="bot", model=model), "Go.")
            n_requests = len(server.requests)
        async with (
            RawServer(broken) as first,
            RawServer(well) as second,
            told.model(first.url) as one,
            told.model(second.url) as other,
        ):
            passed_on = await run(Agent(name="bot", model=FallbackModel(one, other)), "Go.")
        return again.code, n_requests, passed_on.code

    for word in FAULTS.split():
        assert on_patient_clock(lambda word=word: outcome(word)) == ("SUCCESS", 2, "SUCCESS")


@every_stop
async def test_a_reason_that_nobody_knows_is_told_with_the_text_kept(told: Told) -> None:
    assert told.stopped is not None
    async with RawServer(http(told.stopped("quantum_flux", calls=False))) as server, told.model(server.url) as model:
        result = failed(await run(Agent(name="bot", model=model), "Go."))
    assert (result.code, result.answer) == (ErrorCode.INVALID_RESPONSE, "It is 42.")
    assert "'quantum_flux'" in str(result.error)
    assert "without any text" not in str(result.error)
    assert "system prompt" not in result.error.hint


@pytest.mark.parametrize(("word", "meaning"), [("length", "max_tokens"), ("SAFETY", "refusal"), ("flux", "other")])
async def test_an_incomplete_response_is_told_in_the_same_words(word: str, meaning: str) -> None:
    started: Json = {"id": "r", "object": "response", "model": "m", "status": "in_progress", "output": []}
    ended = {**started, "status": "incomplete", "incomplete_details": {"reason": word}}
    stream = events(
        {"type": "response.created", "response": started}, {"type": "response.incomplete", "response": ended}
    )
    response, _ = await answer_of(RESPONSES, stream)
    assert response.stop_reason == meaning


def _litellm(message: str, code: object, type: str = "None") -> Json:
    return {"error": {"message": message, "type": type, "param": "None", "code": code}}


QUOTA: Json = {
    "message": "The quota of this group is used up",
    "type": "insufficient_quota",
    "code": "insufficient_quota",
}
OVERFLOW = "litellm.ContextWindowExceededError: AnthropicException - prompt is too long: 205668 tokens > 200000"
BEDROCK = "litellm.BadRequestError: BedrockException - Input is too long for requested model."
BUDGET = "Budget has been exceeded! Current cost: 0.02, Max budget: 0.01"
MESSAGES_ERROR: Json = {"type": "error", "error": {"type": "overloaded_error", "message": "Full."}}
# What is reported, what kind of error that is, and what of its words must be told.
REPORTS: tuple[tuple[str, Json, str, str], ...] = (
    ("a status as a number", _litellm("Busy.", 429), "rate_limited", "Busy."),
    ("a status as a text", _litellm("Busy.", "429"), "rate_limited", "Busy."),
    ("another status as a text", _litellm("Down.", "503"), "overloaded", "Down."),
    ("an overload as a text", _litellm("Down.", "529"), "overloaded", "Down."),
    ("a code of the service's own", _litellm("Too fast.", "1302"), "unknown", "1302"),
    ("a quota", {"error": QUOTA}, "quota", "quota of this group"),
    ("a quota in a rate limit", _litellm("insufficient_quota: pay", "429", "throttling_error"), "quota", "pay"),
    ("a conversation that is too long", _litellm(OVERFLOW, "400"), "context_overflow", "205668"),
    ("the same of Bedrock", _litellm(BEDROCK, "400"), "context_overflow", "Input is too long"),
    ("the same as a fault of the gateway", _litellm(BEDROCK, 500), "context_overflow", "Input is too long"),
    ("a budget of the gateway's", _litellm(BUDGET, "400", "budget_exceeded"), "quota", "Max budget"),
    ("a budget without a label", _litellm(BUDGET, "400"), "quota", "Max budget"),
    ("an error of the Messages API", MESSAGES_ERROR, "overloaded", "Full."),
    ("an error of Google's", {"error": {"code": 503, "message": "Full."}}, "overloaded", "Full."),
    ("a bare message", {"code": "InvalidParameter", "message": "No such field."}, "unknown", "No such"),
    ("a web framework's", {"detail": [{"loc": ["tools"], "msg": "Field required"}]}, "unknown", "Field required"),
    ("MiniMax's", {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, "unknown", "balance"),
    ("a text", {"error": "The model is gone."}, "unknown", "is gone"),
)
PLACES: dict[str, Callable[[bytes, bytes], tuple[bytes, str]]] = {
    "as an event": lambda report, begun: (b"data: %b\n\n" % report, EVENTS),
    "after the beginning": lambda report, begun: (begun + b"data: %b\n\n" % report, EVENTS),
    "bare, after the beginning": lambda report, begun: (begun + report + b"\n\n", EVENTS),
    "alone, labelled as events": lambda report, begun: (report, EVENTS),
    "alone, and [DONE]": lambda report, begun: (report + b"\n\ndata: [DONE]\n\n", EVENTS),
    "as a document": lambda report, begun: (report, JSON),
    "as a text": lambda report, begun: (report, "text/plain"),
}


@pytest.mark.parametrize("place", PLACES)
@every_stream
async def test_an_error_in_place_of_an_answer_keeps_its_words_and_its_meaning(told: Told, place: str) -> None:
    for name, report, kind, words in REPORTS:
        body, content_type = PLACES[place](orjson.dumps(report), told.wire.begun)
        error = await error_of(told, body, content_type=content_type)
        assert (name, error.kind) == (name, kind)
        assert words in str(error)


@every_stream
async def test_the_same_errors_mean_the_same_as_the_body_of_a_refusal(told: Told) -> None:
    for name, report, kind, words in REPORTS:
        error = await error_of(told, orjson.dumps(report), status=400, content_type=JSON)
        expected = (
            kind if kind in ("quota", "context_overflow") or name.startswith("an error of the M") else "bad_request"
        )
        assert (name, error.kind) == (name, expected)
        assert words in str(error)


@every_stream
async def test_a_packed_error_in_place_of_an_answer_keeps_its_words(told: Told) -> None:
    packed = gzip.compress(orjson.dumps({"error": QUOTA}))
    error = await error_of(told, packed, headers={"Content-Encoding": "gzip"})
    assert (error.kind, "quota of this group" in str(error)) == ("quota", True)


SAID = (Text("Hello there."),)
HEARTBEATS = (
    b": beat\n\n",
    b"event: ping\n\n",
    b"data:\n\n",
    b"data: \n\n",
    b"data:   \n\n",
    b"event: ping\ndata: \n\n",
)


@every_stream
async def test_heartbeats_of_any_form_are_left_out(told: Told) -> None:
    for beat in HEARTBEATS:
        response, n_requests = await answer_of(told, beat + told.wire.begun + beat + told.wire.rest)
        assert (beat, response.content, n_requests) == (beat, SAID, 1)


@every_form
async def test_an_answer_is_known_by_how_it_begins_and_not_by_its_label(told: Told) -> None:
    for label in (EVENTS, JSON, "text/plain; charset=utf-8", "application/octet-stream", "text/html", ""):
        for before in (b"", b"\n \r\n", b"\xef\xbb\xbf"):
            response, n_requests = await answer_of(told, before + told.wire.whole, content_type=label)
            assert (label, response.content, n_requests) == (label, SAID, 1)


@every_form
async def test_a_page_is_no_answer_whatever_its_label(told: Told) -> None:
    for label in (EVENTS, JSON, "text/html", ""):
        error = await error_of(told, b"\n<!doctype html><p>Sign in</p>", content_type=label)
        assert (error.kind, "Sign in" in str(error)) == ("unknown", True)


async def test_a_tool_is_run_for_a_call_in_another_services_words() -> None:
    ran: list[str] = []

    @tool
    def query(sql: str) -> str:
        """Run a query."""
        ran.append(sql)
        return "9"

    async with (
        RawServer(http(_chat("end_turn", calls=True)), http(_chat("COMPLETE", calls=False))) as server,
        makers.chat(server.url) as model,
    ):
        result = succeeded(await run(Agent(name="bot", model=model, tools=[query]), "Go."))
    assert (ran, result.output) == (["1"], "It is 42.")
