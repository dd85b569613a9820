"""Answers of the Responses API as parts, from events and from whole documents."""

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from journeyman.model import BlockFinished, InputPart, ResponseFinished, ResponseStarted, TextPart, ThinkingPart
from journeyman.models.openai.responses_decode import ResponsesDecoder
from journeyman.models.sse import Parser
from journeyman.types import Block, JsonObject, Opaque, Text, Thinking, ToolUse, Usage
from tests.models.decoding import Json, Part, UsageSeen, fed, summed
from tests.models.test_openai_responses_encode import items_of
from tests.support.openai_answers import Answer, answer, call, item, reasoning, refusal, text
from tests.support.openai_sse import responses_parts


def created(**more: Any) -> Json:
    response: Json = {"id": "resp_1", "object": "response", "model": "gpt-x", "status": "in_progress", "output": []}
    return {"type": "response.created", "response": {**response, **more}}


def delta(kind: str, piece: str, index: int = 0, **more: int) -> Json:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": piece, **more}


def added(index: int, output: Json) -> Json:
    begun = {key: value for key, value in output.items() if key not in ("content", "arguments", "summary")}
    return {"type": "response.output_item.added", "output_index": index, "item": begun}


def done(index: int, output: Json) -> Json:
    return {"type": "response.output_item.done", "output_index": index, "item": output}


def whole(index: int, output: Json, *deltas: Json) -> list[Json]:
    return [added(index, output), *deltas, done(index, output)]


def over(status: str = "completed", usage: Json | None = None, **more: Any) -> Json:
    counted = {"input_tokens": 25, "output_tokens": 9} if usage is None else usage
    return {"type": f"response.{status}", "response": {"status": status, "usage": counted, "output": [], **more}}


def message(*texts: str, **more: Any) -> Json:
    parts: list[Json] = [{"type": "output_text", "text": each, "annotations": []} for each in texts]
    return {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": parts, **more}


def function_call(arguments: str, call_id: str = "call_1", **more: Any) -> Json:
    named = {"name": "query", "arguments": arguments, "call_id": call_id}
    return {"type": "function_call", "id": "fc_1", "status": "completed", **named, **more}


def thought(*summaries: str, **more: Any) -> Json:
    summary = [{"type": "summary_text", "text": each} for each in summaries]
    return {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "g==", **more}


def decoded(events: Iterable[Json | bytes], decoder: ResponsesDecoder | None = None) -> list[Part]:
    return fed(decoder or ResponsesDecoder("openai"), events)


def content_of(*outputs: Json) -> tuple[Block, ...]:
    events = [event for index, output in enumerate(outputs) for event in whole(index, output)]
    return summed(decoded([created(), *events, over()])).content


def stream_of(reply: Answer) -> bytes:
    return b"".join(responses_parts(reply, stream=True, encrypted=True, model="gpt-x", seed=1))


def streamed(reply: Answer, *, deltas: bool = True) -> list[Part]:
    decoder = ResponsesDecoder("openai", deltas=deltas)
    return [*decoder.parts(Parser(1_000_000).feed(stream_of(reply))), *decoder.end()]


def test_an_answer_becomes_parts_in_order() -> None:
    asked = function_call('{"sql": "x"}')
    events = [
        created(),
        {"type": "response.in_progress", "response": {"id": "resp_1"}},
        *whole(0, thought("Hm."), delta("reasoning_summary_text", "Hm.", summary_index=0)),
        added(1, message("Hello")),
        {"type": "response.content_part.added", "output_index": 1, "part": {"type": "output_text", "text": ""}},
        delta("output_text", "Hel", 1),
        {"type": "response.new_event", "output_index": 7},
        delta("output_text", "lo", 1),
        {"type": "response.output_text.done", "output_index": 1, "text": "Hello"},
        done(1, message("Hello")),
        *whole(
            2,
            asked,
            delta("function_call_arguments", "", 2),
            delta("function_call_arguments", '{"sql":', 2),
            delta("function_call_arguments", ' "x"}', 2),
        ),
        over(),
    ]
    assert decoded(events) == [
        ResponseStarted("gpt-x", "resp_1", Usage(requests=1, exact=False)),
        ThinkingPart("Hm."),
        BlockFinished(Thinking("Hm.", f"{orjson.dumps(thought('Hm.')).decode()}\nmessage msg_1", "openai")),
        TextPart("Hel"),
        TextPart("lo"),
        BlockFinished(Text("Hello")),
        InputPart("call_1", "query", '{"sql":'),
        InputPart("call_1", "query", ' "x"}'),
        BlockFinished(ToolUse("call_1", "query", '{"sql": "x"}')),
        UsageSeen(Usage(requests=1, input_tokens=25, output_tokens=9)),
        ResponseFinished("tool_use"),
    ]


EVERYTHING = answer(
    reasoning("Hm, let me see."),
    text("I look. Grüße 😀"),
    item(type="web_search_call", id="ws_1", status="completed", action={"type": "search", "query": "may", "n": 1.0}),
    reasoning(""),
    text("So it is.", annotations=[{"type": "file_path", "file_id": "f", "index": 0}]),
    call("query", {"sql": 'select "ü😀"', "deep": {"list": [1, 2.5, None]}}),
    call("ping", {}),
)


def test_every_kind_of_item_is_read_whole() -> None:  # A41
    content = summed(streamed(EVERYTHING)).content
    kinds = [type(block) for block in content]
    assert kinds == [Thinking, Text, Opaque, Thinking, Text, ToolUse, ToolUse]
    searched = orjson.loads(content[2].json) if isinstance(content[2], Opaque) else None
    calls = [block for block in content if isinstance(block, ToolUse)]
    assert content[1] == Text("I look. Grüße 😀")
    assert searched == EVERYTHING.content[2]["item"]
    assert content[4] == Text("So it is.", extra={"annotations": [{"type": "file_path", "file_id": "f", "index": 0}]})
    assert [(call.name, call.input) for call in calls] == [
        ("query", {"sql": 'select "ü😀"', "deep": {"list": [1, 2.5, None]}}),
        ("ping", {}),
    ]


def shown(parts: Iterable[Part]) -> tuple[str, str, str]:
    """Return what was shown of texts, thoughts and arguments, all pieces together."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    thoughts = [part.text for part in parts if isinstance(part, ThinkingPart)]
    return "".join(texts), "".join(thoughts), "".join([part.json for part in parts if isinstance(part, InputPart)])


def test_an_item_that_came_without_pieces_is_shown_whole() -> None:
    outputs = [thought("Hm."), message("Hi"), function_call("{}")]
    events = [event for index, output in enumerate(outputs) for event in whole(index, output)]
    assert shown(decoded([created(), *events, over()])) == ("Hi", "Hm.", "{}")


def noted(*texts: str, logprobs: bool = False, **more: Any) -> Json:
    """Return a message whose first text has annotations."""
    said = message(*texts, **more)
    said["content"][0] |= {"annotations": [{"type": "x"}], **({"logprobs": [{"token": "Hi"}]} if logprobs else {})}
    return said


def reason(block: Json, text: str = "", pair: str = "") -> Thinking:
    return Thinking(text, orjson.dumps(block).decode() + pair, "openai")


NOTES: JsonObject = {"annotations": [{"type": "x"}]}
KEPT_WITH_HI: JsonObject = {**NOTES, "logprobs": [{"token": "Hi"}], "phase": "commentary", "id": "msg_1"}
LONG_ID, NEW_ITEM = "msg_" + "x" * 61, '{"type":"brand_new","id":"x","n":1.0}'
ITEMS: dict[str, tuple[list[Json], tuple[Block, ...]]] = {
    "an empty text is dropped": ([message("")], ()),
    "an empty text before another": ([message("", "Hi")], (Text("Hi"),)),
    "what comes with a text is kept": (
        [noted("Hi", "Ho", logprobs=True, phase="commentary")],
        (Text("Hi", extra=KEPT_WITH_HI), Text("Ho", extra={"phase": "commentary"})),
    ),
    "an id that is too long to go back is not kept": ([noted("Hi", id=LONG_ID)], (Text("Hi", extra=NOTES),)),
    "nor by its reasoning": ([thought(), noted("Hi", id=LONG_ID)], (reason(thought()), Text("Hi", extra=NOTES))),
    "reasoning may be the last item": ([thought("Hm.")], (reason(thought("Hm."), "Hm."),)),
    "reasoning of nothing is dropped": ([thought(encrypted_content=None), message("Hi")], (Text("Hi"),)),
    "an item that is not known is kept": ([orjson.loads(NEW_ITEM)], (Opaque("openai", NEW_ITEM),)),
}


@pytest.mark.parametrize("name", ITEMS)
def test_what_becomes_of_an_item(name: str) -> None:
    outputs, content = ITEMS[name]
    assert content_of(*outputs) == content


@pytest.mark.parametrize(
    ("following", "pair"),
    [
        (message("Hi"), "\nmessage msg_1"),
        (function_call("{}"), "\nfunction_call fc_1"),
        ({"type": "web_search_call", "id": "ws_1"}, ""),
        (thought(id="rs_2"), ""),
        (message("Hi", id=None), ""),
    ],
    ids=["message", "call", "search", "reasoning", "no id"],
)
def test_reasoning_remembers_what_followed_it(following: Json, pair: str) -> None:
    assert content_of(thought(), following)[0] == reason(thought(), pair=pair)


def test_thoughts_are_set_apart_in_the_block_and_in_its_pieces() -> None:
    open_model = thought("A", "B", content=[{"type": "reasoning_text", "text": "C"}])
    events = [
        created(),
        *whole(
            0,
            open_model,
            delta("reasoning_summary_text", "A", summary_index=0),
            delta("reasoning_summary_text", "B", summary_index=1),
            delta("reasoning_text", "C", content_index=0),
        ),
        *whole(1, thought("D"), delta("reasoning_summary_text", "D", 1, summary_index=0)),
        over(),
    ]
    parts = decoded(events)
    assert [block.text for block in summed(parts).content if isinstance(block, Thinking)] == ["A\n\nB\n\nC", "D"]
    assert shown(parts)[1] == "A\n\nB\n\nCD"


def test_pieces_and_block_of_a_call_have_the_same_id() -> None:
    events = [created(), *whole(0, function_call("{}", call_id=""), delta("function_call_arguments", "{}")), over()]
    parts = decoded(events)
    [piece] = [part for part in parts if isinstance(part, InputPart)]
    [block] = summed(parts).content
    assert isinstance(block, ToolUse)
    assert piece == InputPart(block.id, "query", "{}")


def test_a_part_of_a_message_that_is_not_known_is_kept_as_an_item() -> None:
    song = {"type": "output_audio", "data": "x"}
    [first, kept] = content_of(message("Hi", content=[{"type": "output_text", "text": "Hi"}, song]))
    assert first == Text("Hi")
    assert isinstance(kept, Opaque)
    assert (kept.provider, orjson.loads(kept.json)) == ("openai", message(content=[song]))


def test_items_that_only_the_last_event_tells_of_are_read() -> None:
    events = [created(), *whole(0, message("A")), over(output=[message("A"), function_call("{}")])]
    assert summed(decoded(events)).content == (Text("A"), ToolUse("call_1", "query"))


A, B, C = message("A", id="msg_a"), function_call("{}", id="fc_b"), message("C", id="msg_c")
ABC = (Text("A"), ToolUse("call_1", "query"), Text("C"))


def said(index: int, output: Json, piece: str = "", **more: object) -> Json:
    piece = piece or output["content"][0]["text"]
    return {**delta("output_text", piece, index), "item_id": output["id"], **more}


LAST = over(output=[A, B, C])
OUT_OF_ORDER: dict[str, list[Json]] = {
    "the first two are only in the last event": [added(0, A), said(0, A), added(1, B), *whole(2, C, said(2, C)), LAST],
    "they were never begun either": [said(0, A), *whole(2, C, said(2, C)), LAST],
    "the last one is only in the last event": [*whole(0, A), *whole(1, B), LAST],
    "the second is finished last": [added(0, A), added(1, B), added(2, C), done(0, A), done(2, C), done(1, B), over()],
    "they come backwards": [*whole(2, C), *whole(1, B), *whole(0, A), over()],
    "all have the number 0": [*whole(0, A), *whole(0, B), *whole(0, C), LAST],
    "all have the number 0, one is lost": [*whole(0, A), added(0, B), *whole(0, C), LAST],
    "the numbers begin with 1": [*whole(1, A), *whole(2, B), *whole(3, C), LAST],
    "each is told twice": [*whole(0, A), done(0, A), *whole(1, B), done(1, B), *whole(2, C), done(2, C), LAST],
    "ids change with each event": [
        event
        for index, output in enumerate((A, B, C))
        for event in (added(index, {**output, "id": f"x{index}"}), done(index, {**output, "id": f"y{index}"}))
    ]
    + [LAST],
    "no ids": [
        *[event for n, each in enumerate((A, B, C)) for event in whole(n, {**each, "id": None})],
        over(output=[{**each, "id": None} for each in (A, B, C)]),
    ],
    "one id for all": [
        *[event for n, each in enumerate((A, B, C)) for event in whole(n, {**each, "id": "m"})],
        over(output=[{**each, "id": "m"} for each in (A, B, C)]),
    ],
}


@pytest.mark.parametrize("name", OUT_OF_ORDER)
def test_items_are_told_by_number_and_id_and_given_once_in_the_providers_order(name: str) -> None:
    parts = decoded([created(), *OUT_OF_ORDER[name]])
    response = summed(parts)
    assert (response.content, response.stop_reason) == (ABC, "tool_use")
    texts, _, arguments = shown(parts)
    assert (sorted(texts), arguments) == (["A", "C"], "{}")


def test_pieces_are_told_by_the_id_of_their_item() -> None:
    first, second = function_call('{"a":1}', id="fc_1"), function_call('{"b":2}', "call_2", id="fc_2")
    pieces = [
        {**delta("function_call_arguments", piece, 0), "item_id": id}
        for id, piece in (("fc_2", '{"b"'), ("fc_1", '{"a":1}'), ("fc_2", ":2}"))
    ]
    parts = decoded([created(), added(0, first), added(0, second), *pieces, done(0, second), done(0, first), over()])
    inputs = [(part.tool_use_id, part.json) for part in parts if isinstance(part, InputPart)]
    assert inputs == [("call_2", '{"b"'), ("call_1", '{"a":1}'), ("call_2", ":2}")]
    assert summed(parts).content == (ToolUse("call_1", "query", '{"a":1}'), ToolUse("call_2", "query", '{"b":2}'))


def test_reasoning_that_ends_after_the_message_stays_before_it() -> None:
    events = [added(0, thought("Hm.")), added(1, message("Hi")), done(1, message("Hi")), done(0, thought("Hm."))]
    content = summed(decoded([created(), *events, over()])).content
    assert content == (reason(thought("Hm."), "Hm.", "\nmessage msg_1"), Text("Hi"))


EVERY_KIND: list[Json] = [
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": [{"name": "t", "input_schema": {}}]},
    thought(id="rs_1"),
    {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "s",
        "name": "t",
        "arguments": "{}",
        "output": "9",
        "error": None,
    },
    {"type": "program", "id": "prog_1", "call_id": "call_p", "code": "x", "fingerprint": "f"},
    thought(id="rs_2"),
    {**message("Hi", id="msg_9"), "phase": "commentary"},
    function_call("{}", "call_1", id="fc_1", caller={"type": "program", "caller_id": "call_p"}, namespace="n"),
    {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "t", "arguments": "{}"},
]


@pytest.mark.parametrize("in_events", [True, False])
def test_every_item_goes_back_as_it_came(in_events: bool) -> None:
    events = [event for n, each in enumerate(EVERY_KIND) for event in whole(n, each)] if in_events else []
    content = summed(decoded([created(), *events, over(output=[] if in_events else EVERY_KIND)])).content
    sent = items_of("assistant", *content)
    kept = [{key: value for key, value in item.items() if key not in ("status", "id")} for item in EVERY_KIND]
    back = [{key: value for key, value in item.items() if key not in ("status", "id")} for item in sent]
    assert back == kept
    ids = [item.get("id") for item in sent]
    assert ids == [None if item["id"] == "fc_1" else item["id"] for item in EVERY_KIND]


def test_items_without_numbers_are_taken_as_they_come() -> None:
    asked = [added(0, function_call("{}")), delta("function_call_arguments", "{}"), done(0, function_call("{}"))]
    bare = [{key: value for key, value in event.items() if key != "output_index"} for event in asked]
    parts = decoded([created(), *bare, over()])
    assert InputPart("call_1", "query", "{}") in parts
    assert summed(parts).content == (ToolUse("call_1", "query"),)


def test_a_refusal_keeps_what_was_said() -> None:
    response = summed(streamed(answer("Well,", refusal("I cannot."))))
    assert response.content == (Text("Well,"), Text("I cannot.", extra={"refusal": True}))
    assert (response.stop_reason, response.stop_detail) == ("refusal", None)
    assert shown(streamed(answer(refusal("I cannot."))))[0] == "I cannot."


def test_a_call_that_was_cut_off_is_no_reason_to_call() -> None:
    cut = [added(0, function_call("")), over("incomplete", incomplete_details={"reason": "max_output_tokens"})]
    response = summed(decoded([created(), *cut]))
    assert (response.content, response.stop_reason) == ((), "max_tokens")


TEXT = whole(0, message("Hi"), delta("output_text", "Hi"))


def test_what_comes_after_the_last_event_is_not_read() -> None:
    decoder = ResponsesDecoder("openai")
    events = [(b"", orjson.dumps(event)) for event in (created(), *TEXT, over())]
    parts = [*decoder.parts([*events, (b"", b"[DONE]"), (b"", b"damaged")])]
    assert decoder.complete
    assert parts[-1] == ResponseFinished("end_turn")


def test_items_of_other_forms_do_no_harm() -> None:
    odd: list[Any] = [message(content=3), {"type": "reasoning", "summary": {}}, {"type": "function_call"}, 3]
    events: list[Json] = [{"type": "response.output_item.done", "output_index": {}, "item": output} for output in odd]
    content = summed(decoded([created(), *events, over()])).content
    assert [type(block) for block in content] == [ToolUse]
