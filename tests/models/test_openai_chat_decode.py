"""Answers of Chat Completions as parts, from chunks and from whole documents, also of servers that leave things out."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.errors import ProviderError
from journeyman.hosted import hosted_calls
from journeyman.model import BlockFinished, InputPart, ResponseFinished, ResponseStarted, TextPart, ThinkingPart
from journeyman.models.openai.chat_decode import ChatDecoder
from journeyman.models.sse import Parser
from journeyman.models.wire import readable_block
from journeyman.types import Block, Opaque, Price, RedactedThinking, StopReason, Text, Thinking, ToolUse, Usage
from tests.models.decoding import Json, Part, UsageSeen, failed, fed, summed
from tests.support.messages_answers import SERIAL
from tests.support.openai_answers import Answer, Counted, answer, call, reasoning, refusal
from tests.support.openai_sse import chat_parts

USAGE = {"prompt_tokens": 25, "completion_tokens": 9, "total_tokens": 34}
USAGE_ONLY: Json = {"choices": [], "usage": USAGE}


def chunk(delta: Json | None = None, reason: str | None = None, **more: Any) -> Json:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


def calls(*deltas: Json) -> Json:
    return chunk({"tool_calls": list(deltas)})


def piece(name: str | None = None, arguments: object = None, **more: object) -> Json:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**more, "type": "function", "function": function}


def document(message: Json, reason: str | None = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": USAGE}
    return orjson.dumps({**whole, **more})


def decoded(events: Iterable[Json | bytes], decoder: ChatDecoder | None = None) -> list[Part]:
    return fed(decoder or ChatDecoder("openai"), events)


def content_of(*chunks: Json, reason: str = "stop", provider: str = "openai") -> tuple[Block, ...]:
    return summed(decoded([*chunks, chunk(reason=reason)], ChatDecoder(provider))).content


def uses_of(*chunks: Json) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of the calls; an id that was made is `*`."""
    made = summed(decoded([*chunks, chunk(reason="tool_calls")])).content
    uses = [block for block in made if isinstance(block, ToolUse)]
    return [("*" if use.wire_id is not None else use.id, use.name, use.input_json) for use in uses]


def usage_of(usage: Json, price: Price | None = None, *, tells_cost: bool = False) -> Usage:
    decoder = ChatDecoder("openai", price=price, tells_cost=tells_cost)
    return summed(decoded([chunk(reason="stop"), chunk(choices=[], usage=usage)], decoder)).usage


def failure_of(*chunks: Json | bytes) -> ProviderError:
    return failed(ChatDecoder("openai"), chunks)


def test_an_answer_becomes_parts_in_order() -> None:
    chunks = [
        chunk({"role": "assistant", "content": "", "refusal": None}, usage=None),
        chunk({"reasoning_content": "Hm."}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        calls(piece("query", "", index=0, id="call_1")),
        calls(piece(None, '{"sql":', index=0)),
        calls(piece(None, ' "x"}', index=0)),
        calls(piece("query", "{}", index=1, id="call_2")),
        chunk(reason="tool_calls"),
        chunk(choices=[], usage=USAGE),
        b"[DONE]",
        chunk({"content": "after the end"}),
    ]
    started = Usage(requests=1, exact=False)
    usage = Usage(requests=1, input_tokens=25, output_tokens=9)
    assert decoded(chunks) == [
        ResponseStarted("m", "chatcmpl-1", started),
        ThinkingPart("Hm."),
        TextPart("Hel"),
        TextPart("lo"),
        InputPart("call_1", "query", '{"sql":'),
        InputPart("call_1", "query", ' "x"}'),
        InputPart("call_2", "query", "{}"),
        UsageSeen(usage),
        BlockFinished(Thinking("Hm.", None, "openai")),
        BlockFinished(Text("Hello")),
        BlockFinished(ToolUse("call_1", "query", '{"sql": "x"}')),
        BlockFinished(ToolUse("call_2", "query", "{}")),
        ResponseFinished("tool_use"),
    ]


def test_an_answer_may_begin_with_a_chunk_about_filters_only() -> None:
    azure: Json = {"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": []}
    first, *_ = decoded([azure, chunk({"content": "Hi"}), chunk(reason="stop")])
    assert first == ResponseStarted("m", "chatcmpl-1", Usage(requests=1, exact=False))


@pytest.mark.parametrize("done", [b"[DONE]", b" [DONE] "])
def test_the_end_may_be_said_or_not(done: bytes) -> None:
    assert decoded([chunk({"content": "Hi"}, "stop"), done]) == decoded([chunk({"content": "Hi"}, "stop")])


SECOND = {"index": 1, "delta": {"content": "No"}, "finish_reason": "stop"}
CITED: Json = {"type": "url_citation", "url_citation": {"url": "http://x"}}
FREE_TEXT = {"index": 0, "id": "1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
IN_PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
    {"type": "thinking", "thinking": "."},
    {"type": "text", "text": "Hi"},
    {"type": "unknown"},
]
HM = Thinking("Hm.", None, "openai")
CONTENTS: dict[str, tuple[list[Json], tuple[Block, ...]]] = {
    "other choices are left out": ([chunk({"content": "Yes"}), chunk(choices=[SECOND])], (Text("Yes"),)),
    **{
        f"{field} is reasoning": ([chunk({field: "Hm"}), chunk({field: ".", "content": None})], (HM,))
        for field in ("reasoning_content", "reasoning")
    },
    "reasoning in both fields is read once": ([chunk({"reasoning_content": "Hm.", "reasoning": "Hm."})], (HM,)),
    "content may be a list of parts": ([chunk({"content": IN_PARTS})], (HM, Text("Hi"))),
    "annotations stay with the text": (
        [chunk({"content": "It is 9."}), chunk({"annotations": [CITED]})],
        (Text("It is 9.", extra={"annotations": [CITED]}),),
    ),
    "a free-text call keeps its text": ([calls(FREE_TEXT)], (ToolUse("1", "sql", malformed="select 1"),)),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_the_content_is_read_from_whichever_field_it_is_in(name: str) -> None:
    chunks, content = CONTENTS[name]
    assert content_of(*chunks) == content


def test_reasoning_comes_before_the_text_of_the_same_piece() -> None:
    parts = decoded([chunk({"role": "assistant", "content": "Hi", "reasoning": "Hm."}, "stop")])
    assert parts[1:3] == [ThinkingPart("Hm."), TextPart("Hi")]


def test_details_of_reasoning_are_put_together_and_kept() -> None:
    def detail(**fields: object) -> Json:
        return chunk({"reasoning_details": [fields]})

    content = content_of(
        detail(type="reasoning.text", text="He", index=0, format="x"),
        chunk({"reasoning": "Hello", "content": ""}),
        detail(type="reasoning.text", text="llo", index=0, signature=None),
        detail(type="reasoning.text", signature="sig", index=0),
        detail(type="reasoning.encrypted", data="gAAA", index=1),
        detail(type="reasoning.encrypted", data="gBBB", index=2),
        provider="openrouter",
    )
    kept = [
        {"type": "reasoning.text", "text": "Hello", "index": 0, "format": "x", "signature": "sig"},
        {"type": "reasoning.encrypted", "data": "gAAA", "index": 1},
        {"type": "reasoning.encrypted", "data": "gBBB", "index": 2},
    ]
    [block] = content
    assert isinstance(block, Thinking)
    assert (block.text, block.provider, orjson.loads(block.signature or "")) == ("Hello", "openrouter", kept)
    [block] = content_of(detail(type="reasoning.encrypted", data="gAAA", index=0), provider="openrouter")
    assert block == RedactedThinking('[{"type":"reasoning.encrypted","data":"gAAA","index":0}]', "openrouter")


REPEATED = (("a", ""), ("b", "1"), ("c", "1"))
X1, X2 = '{"x":1}', '{"x":2}'
CALLS: dict[str, tuple[list[Json], list[tuple[str, str, str]]]] = {
    "in turns": (
        [
            calls(piece("a", '{"x"', index=0, id="1"), piece("b", "{", index=1, id="2")),
            calls(piece(None, "}", index=1), piece(None, ":1}", index=0)),
        ],
        [("1", "a", X1), ("2", "b", "{}")],
    ),
    "whole calls, all with the index 0": (
        [calls(piece("a", "{}", index=0, id="1"), piece("b", "{}", index=0, id="2"))],
        [("1", "a", "{}"), ("2", "b", "{}")],
    ),
    "whole calls without an index": (
        [calls(piece("a", X1, id="1")), calls(piece("a", X2, id="2"))],
        [("1", "a", X1), ("2", "a", X2)],
    ),
    "whole calls without index and id": (
        [calls(piece("a", X1)), calls(piece("a", X2)), calls(piece("b", "{}"))],
        [("*", "a", X1), ("*", "a", X2), ("*", "b", "{}")],
    ),
    "nothing but names": ([calls(piece("a"), piece("b"))], [("*", "a", "{}"), ("*", "b", "{}")]),
    "pieces without index": ([calls(piece("a", '{"x"')), calls(piece(None, ":1}"))], [("*", "a", X1)]),
    "id and name with every piece": (
        [calls(piece("a", '{"x"', index=0, id="1")), calls(piece("a", ":1}", index=0, id="1"))],
        [("1", "a", X1)],
    ),
    "another id with every piece": (
        [calls(piece("a", '{"x"', index=0, id="1")), calls(piece(None, ":1}", index=0, id="other"))],
        [("1", "a", X1)],
    ),
    "every name": ([calls(piece("a", '{"x"', index=0)), calls(piece("a", ":1}", index=0))], [("*", "a", X1)]),
    "the name later": ([calls(piece(None, "", index=0, id="1")), calls(piece("a", "{}", index=0))], [("1", "a", "{}")]),
    "arguments that are an object": ([calls(piece("a", {"x": 1}, index=0, id="1"))], [("1", "a", X1)]),
    "no arguments": ([calls(piece("a", None, index=0, id="1"))], [("1", "a", "{}")]),
    "the old form": (
        [chunk({"function_call": {"name": "a", "arguments": '{"x"'}}), chunk({"function_call": {"arguments": ":1}"}})],
        [("*", "a", X1)],
    ),
    "empty and repeated ids": (
        [calls(piece(name, "{}", index=n, id=id)) for n, (name, id) in enumerate(REPEATED)],
        [("*", "a", "{}"), ("1", "b", "{}"), ("*", "c", "{}")],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_told_apart_however_they_are_sent(name: str) -> None:
    deltas, uses = CALLS[name]
    assert uses_of(*deltas) == uses


def test_an_id_that_had_to_be_made_is_unique_and_keeps_the_providers() -> None:
    deltas = calls(piece("a", "{}", index=0, id="1"), piece("b", "{}", index=1, id="1"), piece("c", "{}", index=2))
    uses = [block for block in content_of(deltas) if isinstance(block, ToolUse)]
    assert [use.wire_id for use in uses] == [None, "1", ""]
    assert len({use.id for use in uses}) == 3
    assert all(use.id.startswith("call_") for use in uses[1:])


A_CALL = calls(piece("a", "{}", index=0, id="1"))


def test_a_refusal_is_a_text() -> None:
    content = content_of(chunk({"refusal": "I can"}), chunk({"refusal": "not."}))
    assert content == (Text("I cannot.", extra={"refusal": True}),)


@pytest.mark.parametrize(
    ("details", "output", "read"),
    [
        ({"total_tokens": 39, "completion_tokens_details": {"reasoning_tokens": 5}}, 14, None),  # xAI
        ({"total_tokens": 34, "completion_tokens_details": {"reasoning_tokens": 5}}, 9, None),
        ({"total_tokens": 40, "completion_tokens_details": {"reasoning_tokens": 5}}, 9, None),
        ({"total_tokens": 34, "prompt_cache_hit_tokens": 20, "prompt_cache_miss_tokens": 5}, 9, 20),  # DeepSeek
        ({"total_tokens": 34, "num_cached_tokens": 20}, 9, 20),  # Mistral
        ({"total_tokens": 34, "cached_tokens": 20}, 9, 20),  # Moonshot
        ({"num_cached_tokens": 20, "prompt_tokens_details": {"cached_tokens": 10}}, 9, 10),
    ],
)
def test_what_services_count_in_ways_of_their_own_adds_up(details: Json, output: int, read: int | None) -> None:
    usage = usage_of({**USAGE, **details})
    assert (usage.output_tokens, usage.cache_read_tokens) == (output, read)
    assert usage.input_tokens + (usage.cache_read_tokens or 0) == 25


@pytest.mark.parametrize(
    ("told", "cost"),
    [
        ({"cost": 0.0015}, 0.0015),
        ({"cost": 0}, 0),
        ({"cost": 0.0015, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.0014}}, 0.0015),
        ({"cost": 0.0001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.002}}, 0.0021),
        ({"cost": 0, "is_byok": True, "cost_details": None}, None),
        ({"cost": None}, None),
        ({"cost": "0.1"}, None),
        ({"cost": True}, None),
        ({"cost": -1}, None),
        ({}, None),
    ],
)
def test_a_service_that_bills_tells_the_cost(told: Json, cost: float | None) -> None:
    usage = usage_of({**USAGE, **told}, tells_cost=True)
    assert usage.cost == (cost if cost is None else pytest.approx(cost))
    assert usage_of({**USAGE, **told}).cost is None, "In whatever money."
    dear = Price(input=1e6, output=1e6)
    assert usage_of({**USAGE, **told}, dear, tells_cost=True).cost == (34 if cost is None else pytest.approx(cost))


@pytest.mark.parametrize("reason", [None, "", 3])
@pytest.mark.parametrize(
    ("delta", "content", "stop"),
    [
        ({"content": "Hi"}, (Text("Hi"),), "end_turn"),
        ({"tool_calls": [piece("a", "{}", index=0, id="1")]}, (ToolUse("1", "a"),), "tool_use"),
        ({"refusal": "No."}, (Text("No.", extra={"refusal": True}),), "refusal"),
    ],
    ids=["text", "call", "refusal"],
)
def test_an_answer_that_ended_is_complete_also_without_a_reason_to_stop(
    delta: Json,
    content: tuple[Block, ...],
    stop: StopReason,
    reason: Any,  # noqa: ANN401 - what a server may send
) -> None:
    streamed = summed(decoded([chunk(delta, reason), b"[DONE]"]))
    whole = summed(ChatDecoder("openai").document(document(delta, reason)))
    for response in (streamed, whole):
        assert (response.content, response.stop_reason) == (content, stop)
    bare = orjson.loads(document(delta))
    del bare["choices"][0]["finish_reason"]
    assert summed(ChatDecoder("openai").document(orjson.dumps(bare))).content == content


def test_an_event_may_be_an_error_by_its_name() -> None:
    with pytest.raises(ProviderError, match="no model loaded"):
        list(ChatDecoder("lm-studio").parts([(b"error", b'{"message": "no model loaded"}')]))


def test_a_document_whose_message_the_filter_took_is_a_refusal() -> None:  # Azure's
    choices = [{"index": 0, "finish_reason": "content_filter", "content_filter_results": {"hate": {"filtered": True}}}]
    document = {"id": "c", "choices": choices, "usage": {"prompt_tokens": 15, "completion_tokens": 19}}
    response = summed(ChatDecoder("azure").document(orjson.dumps(document)))
    assert (response.content, response.stop_reason, response.usage.output_tokens) == ((), "refusal", 19)


GROQ_RAN: list[Json] = [
    {"index": 0, "type": "search", "arguments": '{"query": "hats"}', "output": None},
    {"index": 1, "type": "python", "arguments": '{"code": "print(1)"}'},
    {"index": 0, "search_results": {"results": [{"title": "Hats", "url": "https://example.com", "content": "Buy."}]}},
    {"index": 1, "code_results": [{"text": "1"}]},
]


def test_the_tools_that_groq_runs_are_kept_and_read() -> None:
    pieces = [chunk({"executed_tools": [each]}) for each in GROQ_RAN]
    content = content_of(*pieces, chunk({"content": "Hats."}), provider="groq")
    searched, ran = hosted_calls(content)
    assert (searched.tool, searched.asked, searched.text) == ("web_search", "hats", "Hats https://example.com Buy.")
    assert (ran.tool, ran.asked, ran.output) == ("code_execution", "print(1)", "1")
    assert (searched.is_untrusted, ran.is_untrusted) == (True, False)
    assert isinstance(content[0], Opaque)
    assert readable_block(content[0], content[0].provider) is None


EMPTY_CALLS: list[Json] = [
    {"function_call": {"name": "", "arguments": ""}},
    {"function_call": {"name": None, "arguments": None}},
    {"function_call": {"arguments": "{}"}},
    {"tool_calls": [{"index": 0, "function": {}}]},
    {"tool_calls": [{"index": 0, "id": "", "type": "function", "function": {"name": "", "arguments": ""}}]},
    {"tool_calls": [None]},
]


@pytest.mark.parametrize("empty", EMPTY_CALLS)
def test_an_empty_call_beside_a_text_is_no_call(empty: Json) -> None:
    streamed = summed(decoded([chunk({"content": "Hi", **empty}), chunk(reason="stop")]))
    whole = summed(ChatDecoder("openai").document(document({"content": "Hi", **empty})))
    for response in (streamed, whole):
        assert (response.content, response.stop_reason) == ((Text("Hi"),), "end_turn")


def test_an_empty_call_beside_another_is_no_call() -> None:
    assert uses_of(chunk({"function_call": {"name": ""}, **A_CALL["choices"][0]["delta"]})) == [("1", "a", "{}")]


FAILED_CHOICE = {"index": 0, "error": {"code": 502, "message": "Upstream"}, "finish_reason": "error"}


def test_an_error_of_the_choice_is_the_answers() -> None:  # OpenRouter's
    streamed = failure_of(chunk(choices=[{**FAILED_CHOICE, "delta": {"content": ""}}]))
    with pytest.raises(ProviderError) as caught:
        ChatDecoder("openrouter").document(orjson.dumps({"choices": [{**FAILED_CHOICE, "message": {"content": ""}}]}))
    for failure in (streamed, caught.value):
        assert failure.kind == "overloaded"
        assert "502: Upstream" in str(failure)


_blocks = st.lists(
    st.one_of(
        st.text(min_size=1, max_size=9),
        st.text(min_size=1, max_size=9).map(reasoning),
        st.text(max_size=9).map(lambda sql: call("query", {"sql": sql})),
        st.just(call("query", "{")),
        st.just(refusal("I cannot.")),
    ),
    max_size=4,
)
_counted = st.builds(Counted, cached=st.none() | st.just(3), written=st.none() | st.just(2))


def _bytes(reply: Answer, *, stream: bool, seed: int) -> bytes:
    parts = chat_parts(reply, stream=stream, usage=True, model="m", seed=seed, reasoning_field="reasoning")
    return b"".join(parts).replace(SERIAL.encode(), b"1")


@given(_blocks, _counted, st.integers(0, 99), st.integers(1, 50))
def test_an_answer_is_the_same_streamed_or_not(blocks: list[Json | str], usage: Counted, seed: int, cut: int) -> None:
    reply = answer(*blocks, usage=usage)
    stream = _bytes(reply, stream=True, seed=seed)
    parser, decoder = Parser(1_000_000), ChatDecoder("openai")
    pieces = [stream[i : i + cut] for i in range(0, len(stream), cut)]
    streamed = [part for data in pieces for part in decoder.parts(parser.feed(data))]
    assert decoder.complete
    whole = ChatDecoder("openai").document(_bytes(reply, stream=False, seed=seed))
    assert summed(streamed) == summed(whole)


_keys = st.sampled_from(["arguments", "content", "finish_reason", "function", "id", "index", "name", "text", "type"])
_json: st.SearchStrategy[object] = st.recursive(
    st.none() | st.integers(0, 2) | st.sampled_from(["", "a", "{}"]),
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(_keys, inside, max_size=3),
    max_leaves=6,
)
_fields = st.sampled_from(["content", "function_call", "reasoning", "reasoning_details", "refusal", "tool_calls"])


@given(st.lists(st.dictionaries(_fields, _json, max_size=3), max_size=3), _json, _json)
def test_whatever_the_chunks_hold_an_answer_can_be_read(deltas: list[Json], choices: object, usage: object) -> None:
    odd = {"id": "x", "choices": choices, "usage": usage}
    response = summed(decoded([*map(chunk, deltas), odd, chunk(reason="stop")]))
    assert response.usage.total_tokens >= 0
    assert len({use.id for use in response.content if isinstance(use, ToolUse)}) == len(
        [use for use in response.content if isinstance(use, ToolUse)]
    )


TEA = '{"q": "tea"}'


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([("search", '{"q":'), (None, ' "tea"}'), ("search", TEA)], id="whole at the end"),
        pytest.param([("search", TEA), ("search", TEA)], id="twice"),
        pytest.param([("search", TEA), (None, TEA), (None, '{"q":"tea"}')], id="thrice"),
        pytest.param([("search", "{}"), (None, '{"q": '), (None, '"tea"}')], id="behind an empty one"),
        pytest.param([("search", '{"q":'), (None, ' "tea"}'), (None, ' "tea"}')], id="the last piece twice"),
        pytest.param([("search", TEA), (None, '{"q":'), (None, ' "tea"}')], id="again in pieces"),
    ],
)
@pytest.mark.parametrize("id", ["c1", None])
def test_a_call_that_is_sent_again_is_one_call(pieces: list[tuple[str | None, str]], id: str | None) -> None:
    more: Json = {} if id is None else {"id": id}
    given = [calls(piece(name, arguments, index=0, **more)) for name, arguments in pieces]
    [(_, name, arguments)] = uses_of(*given)
    assert (name, orjson.loads(arguments)) == ("search", {"q": "tea"})


@pytest.mark.parametrize("written", [TEA + '{"q": "milk"}', TEA + "x", '{"q": NaN}{"q": NaN}', '{"q"{"q"'])
def test_other_arguments_stay_as_the_model_wrote_them(written: str) -> None:
    [use] = content_of(calls(piece("search", written, index=0, id="c1")), reason="tool_calls")
    assert isinstance(use, ToolUse)
    assert use.malformed == written


THOUGHTS: list[tuple[str, str, str]] = [
    ("<think>Hm </think>\n\nYes.", "Hm ", "Yes."),
    ("\n<think>\nHm < b\n</think>Yes </think> no.", "\nHm < b\n", "Yes </think> no."),
    ("<think>Hm </thin", "Hm </thin", ""),
    ("<thin", "", "<thin"),
    ("Yes <think>no</think>.", "", "Yes <think>no</think>."),
    ("<think></think>\n", "", ""),
]


@given(st.sampled_from(THOUGHTS), st.lists(st.integers(0, 40)))
def test_a_local_servers_tags_part_thinking_from_the_answer(case: tuple[str, str, str], cuts: list[int]) -> None:
    written, thought, said = case
    places = sorted({0, len(written), *[cut for cut in cuts if cut < len(written)]})
    pieces = [written[start:end] for start, end in pairwise(places)]
    decoder = ChatDecoder("ollama", finds_thoughts=True)
    parts = decoded([*[chunk({"content": each}) for each in pieces], chunk(reason="stop")], decoder)
    blocks = summed(parts).content
    assert "".join([block.text for block in blocks if isinstance(block, Thinking)]) == thought
    assert "".join([block.text for block in blocks if isinstance(block, Text)]) == said
    assert "".join([part.text for part in parts if isinstance(part, ThinkingPart)]) == thought
    assert "".join([part.text for part in parts if isinstance(part, TextPart)]) == said


def test_another_servers_text_keeps_its_tags() -> None:
    assert content_of(chunk({"content": "<think>a</think>b"})) == (Text("<think>a</think>b"),)
