"""Answers of `generateContent` as blocks. Numbers beside tests: the section of the measured wire, recorded answers."""

from typing import Any, Final

import orjson
import pytest

from journeyman.errors import UnusableAnswer
from journeyman.hosted import hosted_calls
from journeyman.model import InputPart, Prefix, Room, TextPart, ThinkingPart
from journeyman.models.google.decode import GoogleDecoder
from journeyman.models.google.encode import GoogleCodec, encode
from journeyman.types import Block, Message, Opaque, Text, Thinking, ToolUse, Usage
from tests.models.decoding import Json, Response, failed, fed, summed
from tests.play import instance_of

OWNER: Final = "google:gemini-3-flash-preview"


def chunk(*parts: Json, finish: object = None, **more: Any) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": [*parts]}} if parts else {}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-3-flash-preview", "responseId": "r1", **more}


def text(words: str, signature: str | None = None, **more: object) -> Json:
    return {"text": words, **more} | ({} if signature is None else {"thoughtSignature": signature})


def call(name: str = "query", signature: str | None = None, **call: object) -> Json:
    return {"functionCall": {"name": name, **call}} | ({} if signature is None else {"thoughtSignature": signature})


def decoder(**options: Any) -> GoogleDecoder:
    return GoogleDecoder(OWNER, **options)


def response_of(*chunks: Json, finish: object = "STOP") -> Response:
    return summed(fed(decoder(), [*chunks, chunk(finish=finish)]))


def content_of(*parts: Json) -> tuple[Block, ...]:
    return response_of(*map(chunk, parts)).content


def sent_back(content: tuple[Block, ...]) -> list[Json]:
    """Return the parts that the model's answer becomes in the next request."""
    messages = [Message("user", (Text("Hi."),)), Message("assistant", content), Message("user", (Text("Go on."),))]
    codec = GoogleCodec("gemini-3-flash-preview")
    return orjson.loads(encode({}, Prefix(), messages, codec=codec))["contents"][1]["parts"]


def test_a_text_that_is_cut_over_chunks_is_one_block() -> None:
    parts = fed(decoder(), [chunk(text("Hel")), chunk(text("lo")), chunk(text(""), finish="STOP")])
    assert [part for part in parts if isinstance(part, TextPart)] == [TextPart("Hel"), TextPart("lo")]
    assert summed(parts).content == (Text("Hello"),)


def test_thoughts_and_texts_are_blocks_of_their_own() -> None:  # section 5: thought>text 15
    parts = fed(decoder(), [chunk(text("Hm", thought=True)), chunk(text(".", thought=True), text("Hi"), finish="STOP")])
    assert [part for part in parts if isinstance(part, ThinkingPart)] == [ThinkingPart("Hm"), ThinkingPart(".")]
    assert summed(parts).content == (Thinking("Hm.", None, OWNER), Text("Hi"))


def test_calls_without_ids_get_some_and_arguments_may_be_missing() -> None:  # sections 3 and 5: 254 answers, 1 fixture
    first, second = content_of(call(args={"n": 1}), call())
    assert isinstance(first, ToolUse)
    assert isinstance(second, ToolUse)
    assert (first.name, first.input, second.input) == ("query", {"n": 1}, {})
    assert first.id.startswith("call_")
    assert first.id != second.id


def test_the_id_of_a_call_is_kept() -> None:  # section 3: 25 answers
    assert content_of(call(id="abcdefgh", args={})) == (ToolUse("abcdefgh", "query", "{}"),)


def test_calls_are_the_reason_to_stop_whatever_the_api_says() -> None:  # section 5: STOP in 278 of 283
    assert response_of(chunk(call())).stop_reason == "tool_use"
    assert response_of(chunk(call()), finish="UNEXPECTED_TOOL_CALL").stop_reason == "tool_use"
    assert response_of(finish="UNEXPECTED_TOOL_CALL").stop_reason == "other"


def test_arguments_are_shown_as_they_come() -> None:
    parts = fed(decoder(), [chunk(call(id="a", args={"n": 1}), finish="STOP")])
    assert InputPart("a", "query", '{"n":1}') in parts


def test_arguments_that_are_a_text_are_read_and_others_kept_aside() -> None:  # section 7, fault 25
    assert content_of(call(id="a", args='{"n": 1}')) == (ToolUse("a", "query", '{"n": 1}'),)
    assert content_of(call(id="a", args="n = 1")) == (ToolUse("a", "query", malformed="n = 1"),)
    assert content_of(call(id="a", args=[1])) == (ToolUse("a", "query", malformed="[1]"),)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (call(""), "it has a call without a name"),
        ({"functionCall": {"args": {}}}, "it has a call without a name"),
        (call(willContinue=True), "its call of 'query' comes in pieces, which was not asked for"),
        (call(partialArgs=[{"jsonPath": "$.n", "numberValue": 1}]), "its call of 'query' comes in pieces"),
    ],
)
def test_a_call_that_cannot_be_made_is_one_clear_line(part: Json, words: str) -> None:  # section 5: 4 fixtures
    error = instance_of(UnusableAnswer, failed(decoder(), [chunk(text("I look.")), chunk(part, finish="STOP")]))
    assert words in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("kind", ["executableCode", "codeExecutionResult", "toolCall", "toolResponse", "brandNew"])
def test_a_part_of_another_kind_comes_back_as_it_came(kind: str) -> None:  # sections 4 and 5
    part: Json = {kind: {"id": "x", "n": [1, 2.5]}, "thoughtSignature": "c2ln"}
    content = content_of(text("I look."), part, text("Found."))
    assert isinstance(content[1], Opaque)
    assert (content[1].provider, content[1].kind) == (OWNER, kind)
    assert sent_back(content) == [text("I look."), part, text("Found.")]


@pytest.mark.parametrize(
    "parts",
    [
        [call(signature="c2ln", id="a", args={}), call(id="b", args={}), call(id="c", args={})],
        [text("Hm.", thought=True), call(signature="c2ln", id="a", args={}), call(id="b", args={})],
        [text("I look."), call(signature="c2ln", id="a", args={})],
        [text("Hi."), text("", "c2ln")],
        [text("Hm.", thought=True), text("Hi."), text("", "c2ln")],
        [text("Hm.", thought=True), text("Hi.", "c2ln")],
        [text("Hi.", "c2ln")],
        [text("Hi "), text("there.", "c2ln")],
        [text("Hi "), text("there.", "c2ln"), text("", "c2lnMg==")],
        [text("Hi ", "c2ln"), text("there.", "c2lnMg==")],
    ],
)
def test_a_signature_comes_back_in_the_part_where_it_came(parts: list[Json]) -> None:  # section 4: 354 returned
    assert sent_back(content_of(*parts)) == parts


def test_a_signature_in_the_middle_of_a_text_does_not_cut_it() -> None:
    signed = Text("Hi there.", extra={"google": {"signed_from": 3}})
    assert content_of(text("Hi "), text("there.", "c2ln")) == (Thinking("", "c2ln", OWNER), signed)
    assert response_of(chunk(text("Hi ")), chunk(text("there.", "c2ln"))).content[-1] == signed


def test_a_finish_message_is_told() -> None:
    last = chunk(finish="MALFORMED_FUNCTION_CALL")
    last["candidates"][0]["finishMessage"] = "Malformed function call: print("
    response = summed(fed(decoder(), [last]))
    assert response.stop_detail == "MALFORMED_FUNCTION_CALL: Malformed function call: print("


def test_a_prompt_that_is_blocked_is_a_refusal() -> None:  # section 5: one answer, its usage only a traffic type
    blocked: Json = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"trafficType": "ON_DEMAND"}}
    response = summed(fed(decoder(), [blocked]))
    assert (response.content, response.stop_reason, response.stop_detail) == ((), "refusal", "SAFETY")
    assert response.usage == Usage(requests=1, exact=False)


def test_only_the_first_candidate_is_read() -> None:
    two: Json = {"candidates": [{"content": {"parts": [text("A")]}}, {"index": 1, "content": {"parts": [text("B")]}}]}
    other: Json = {"candidates": [{"index": 1, "content": {"parts": [text("C")]}, "finishReason": "STOP"}]}
    assert response_of(two, other).content == (Text("A"),)


def test_an_answer_that_grows_without_end_is_not_taken() -> None:
    room = Room(1)
    error = instance_of(UnusableAnswer, failed(decoder(room=room), [chunk(text("x" * 400_000))] * 3))
    error = failed(decoder(), [chunk(*[call()] * 1_001)])
    assert "more than 1,000 blocks" in str(error)


@pytest.mark.parametrize("as_list", [False, True])
def test_a_document_is_one_answer_or_a_list_of_chunks(as_list: bool) -> None:  # section 1: 15 arrays
    chunks = [chunk(text("Hel")), chunk(text("lo"), finish="STOP")]
    data = orjson.dumps(chunks if as_list else chunk(text("Hello"), finish="STOP"))
    assert summed(decoder().document(data)).content == (Text("Hello"),)


def used(*told: Json) -> Usage:
    chunks = [chunk(text("x"), usageMetadata=each) for each in told]
    return response_of(*chunks).usage


@pytest.mark.parametrize("name", ["promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"])
def test_a_negative_use_is_not_taken(name: str) -> None:
    told = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2, name: -500}
    with pytest.raises(UnusableAnswer, match="negative use"):
        used(told)


def test_pages_that_gemini_read_are_kept_and_are_a_strangers() -> None:
    pages: list[Json] = [
        {"retrievedUrl": "https://example.org/a", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"},
        {"retrievedUrl": "https://example.org/b", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_ERROR"},
    ]
    chunks = [chunk(text("Hats.")), *[chunk() for _ in pages]]
    for each, page in zip(chunks[1:], pages, strict=True):
        each["candidates"][0]["urlContextMetadata"] = {"urlMetadata": [page]}
    content = response_of(*chunks).content
    read, failed_page = hosted_calls(content)
    assert (read.tool, read.asked, read.text, read.error) == (
        *("url_context", "https://example.org/a", "https://example.org/a", None),
    )
    assert read.is_untrusted
    assert failed_page.error == "URL_RETRIEVAL_STATUS_ERROR"
    assert sent_back(content) == [text("Hats.")]


def test_how_likely_the_words_were_is_kept() -> None:
    said = chunk(text("Hats."))
    said["candidates"][0]["logprobsResult"] = {"chosenCandidates": [{"token": "Hats", "logProbability": -0.1}]}
    content = response_of(said, said).content
    assert isinstance(content[-1], Opaque)
    kept = orjson.loads(content[-1].json)["logprobsResult"]["chosenCandidates"]
    assert [each["token"] for each in kept] == ["Hats", "Hats"]
    assert hosted_calls(content) == ()
    assert sent_back(content) == [text("Hats.Hats.")]
