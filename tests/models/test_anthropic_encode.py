"""Requests as the Messages API gets them: exact bytes, cache marks, and what is settled so that nothing is refused."""

from __future__ import annotations

from base64 import b64encode
from itertools import pairwise
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.errors import ProviderError
from journeyman.model import CachePolicy, Prefix, Request, Settings, ThinkingLevel, ToolSpec
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.types import (
    Base64,
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Opaque,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Url,
    Usage,
)
from tests.support.messages_rules import judge

SONNET = AnthropicModel("claude-sonnet-5-5", api_key="sk-ant-key")
JUDGED_HEADERS = {"x-api-key": "k", "anthropic-version": "2026-10-21", "content-type": "application/json"}
MARK = {"type": "ephemeral"}

QUERY = ToolSpec(
    name="query",
    description="Run a query.",
    input_schema={"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
)
HELLO = Message("user", (Text("Hello"),))


def request(
    *messages: Message,
    system: tuple[Text, ...] = (),
    tools: tuple[ToolSpec, ...] = (QUERY,),
    settings: Settings | None = None,
    cache: CachePolicy = "off",
    max_tokens: int | None = None,
) -> Request:
    return Request(
        prefix=Prefix(system=system, tools=tools),
        messages=messages or (HELLO,),
        settings=settings or Settings(cache=cache),
        max_tokens=max_tokens,
    )


def sent(*messages: Message, model: AnthropicModel = SONNET, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as request
    return orjson.loads(model.body(request(*messages, **more)))


def user(*content: Block, **more: bool) -> Message:
    return Message("user", content, **more)


def assistant(*content: Block, continues: bool = False) -> Message:
    return Message("assistant", content, continues)


def blocks_of(role: Role, *content: Block) -> list[dict[str, Any]]:
    """Return how the blocks of one message are sent, in the middle of a conversation."""
    message = Message(role, content)
    return sent(HELLO, message, HELLO)["messages"][1]["content"]


def marked_places(body: dict[str, Any]) -> list[str]:
    """Return where the cache marks are: `tools.0`, `system.1`, `2.0` (message 2, block 0)."""
    places = [f"{name}.{i}" for name in ("tools", "system") for i, b in enumerate(body.get(name, [])) if is_marked(b)]
    return places + [
        f"{m}.{i}"
        for m, message in enumerate(body["messages"])
        for i, b in enumerate(message["content"])
        if is_marked(b)
    ]


def is_marked(block: dict[str, Any]) -> bool:
    assert block.get("cache_control", MARK) == MARK
    return "cache_control" in block


def without_marks(body: Any) -> Any:  # noqa: ANN401 - JSON
    match body:
        case dict():
            members = cast("dict[str, Any]", body)
            return {key: without_marks(value) for key, value in members.items() if key != "cache_control"}
        case list():
            return [without_marks(item) for item in cast("list[Any]", body)]
        case _:
            return body


# -- the whole request -------------------------------------------------------------------------------------------------


def test_a_request_of_every_part() -> None:
    body = sent(
        user(Text("What sold best?")),
        assistant(
            Thinking("Hm.", "sig"),
            Text("I look."),
            ToolUse("toolu_1", "query", '{"sql": "select 1"}'),
            ToolUse("toolu_2", "query"),
        ),
        user(ToolResult("[1]", tool_use_id="toolu_1"), ToolResult("no", True, "toolu_2"), Text("Briefly.")),
        system=(Text("Be brief."), Text("Be right.")),
        settings=Settings(max_tokens=1_000, tool_choice="any", stop_sequences=("END",), extra={"service_tier": "auto"}),
        cache="auto",
    )
    assert body == {
        "model": "claude-sonnet-5-5",
        "max_tokens": 1_000,
        "stream": True,
        "tool_choice": {"type": "any"},
        "stop_sequences": ["END"],
        "service_tier": "auto",
        "tools": [{"name": "query", "description": "Run a query.", "input_schema": QUERY.input_schema}],
        "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be right.", "cache_control": MARK}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What sold best?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "query", "input": {"sql": "select 1"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "query", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "[1]"},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no", "is_error": True},
                    {"type": "text", "text": "Briefly.", "cache_control": MARK},
                ],
            },
        ],
    }
    assert judge(body, JUDGED_HEADERS) == []


def test_a_request_without_system_and_tools_has_neither_field() -> None:
    body = sent(tools=())
    assert list(body) == ["model", "max_tokens", "stream", "messages"]


def test_arguments_go_back_as_the_model_wrote_them() -> None:
    written = '{ "n":1.50e3,"n" : 2 , "text":"\\u00fc \\ud83d\\ude00" }'
    body = SONNET.body(request(HELLO, assistant(ToolUse("t", "query", written)), user(ToolResult("", tool_use_id="t"))))
    assert b'"input":' + written.encode() + b"}" in body


# -- blocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "block", "expected"),
    [
        pytest.param("user", Text("Hé"), {"type": "text", "text": "Hé"}, id="text"),
        pytest.param("user", Text(""), None, id="an empty text is left out"),
        pytest.param("user", Text(" \n"), None, id="a blank text of the user is left out"),
        pytest.param("assistant", Text(" "), {"type": "text", "text": " "}, id="a blank text of the model stays"),
        pytest.param("assistant", Text(""), None, id="an empty text of the model is left out"),
        pytest.param(
            "assistant",
            Text("A", extra={"citations": [{"type": "char_location"}], "annotations": []}),
            {"type": "text", "text": "A", "citations": [{"type": "char_location"}]},
            id="citations go back, other providers' fields do not",
        ),
        pytest.param(
            "user", Text("A", extra={"citations": [{}]}), {"type": "text", "text": "A"}, id="no citations of the user"
        ),
        pytest.param("user", Text("a\ud83d"), {"type": "text", "text": "a?"}, id="a lone surrogate"),
        pytest.param(
            "assistant",
            Thinking("", "sig"),
            {"type": "thinking", "thinking": "", "signature": "sig"},
            id="omitted thinking",
        ),
        pytest.param("assistant", Thinking("Hm."), None, id="thinking without signature is left out"),
        pytest.param(
            "assistant", RedactedThinking("x9"), {"type": "redacted_thinking", "data": "x9"}, id="redacted thinking"
        ),
        pytest.param(
            "assistant",
            Opaque(
                "anthropic",
                '{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": 1.0}}',
            ),
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": 1.0}},
            id="a block of this provider",
        ),
        pytest.param(
            "assistant",
            Opaque("openai", '{"type": "web_search_call"}'),
            {"type": "text", "text": "[A 'web_search_call' block that only openai can read is left out.]"},
            id="a block of another provider",
        ),
        pytest.param(
            "user",
            Image(Base64("aGk=", "image/png")),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            id="an image's bytes",
        ),
        pytest.param(
            "user",
            Image(Url("https://example.com/a.png")),
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            id="an image's address",
        ),
        pytest.param(
            "user",
            Document(Base64("aGk=", "application/pdf"), "Report"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
                "title": "Report",
            },
            id="a PDF",
        ),
        pytest.param(
            "user",
            Document(Base64(b64encode("Grüße".encode()).decode(), "text/markdown")),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"}},
            id="a text document is sent as text",
        ),
        pytest.param(
            "user",
            Document(Url("https://example.com/a.pdf")),
            {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
            id="a document's address",
        ),
        pytest.param(
            "user",
            ToolResult((Text("a"), Text(""), Image(Url("https://example.com/a.png"))), tool_use_id="t"),
            {
                "type": "tool_result",
                "tool_use_id": "t",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                ],
            },
            id="a result of blocks",
        ),
        pytest.param(
            "user",
            ToolResult("", is_error=True, tool_use_id="t"),
            {"type": "tool_result", "tool_use_id": "t", "content": "(no output)", "is_error": True},
            id="an error says something",  # M4
        ),
        pytest.param(
            "user",
            ToolResult((), is_error=True, tool_use_id="t"),
            {"type": "tool_result", "tool_use_id": "t", "content": "(no output)", "is_error": True},
            id="an error of no blocks says something",  # M4
        ),
    ],
)
def test_a_block_is_sent_as(role: Role, block: Block, expected: JsonObject | None) -> None:
    other = Text("x")
    content = [] if expected is None else [expected]
    assert blocks_of(role, block, other) == [*content, {"type": "text", "text": "x"}]


def test_ids_and_names_that_the_api_refuses_are_rewritten_alike_for_call_and_result() -> None:
    body = sent(
        HELLO,
        assistant(ToolUse("call:1", "functions.query", malformed="{"), ToolUse("", ""), ToolUse("c", "n" * 200)),
        user(ToolResult("1", tool_use_id="call:1"), ToolResult("2"), ToolResult("3", tool_use_id="c")),
    )
    calls, results = body["messages"][1]["content"], body["messages"][2]["content"]
    assert [call["name"] for call in calls] == ["functions_query", "_", "n" * 128]
    assert [call["id"] for call in calls] == [result["tool_use_id"] for result in results]
    assert judge(body, JUDGED_HEADERS) == []


def test_a_message_of_which_nothing_can_be_sent_is_left_out() -> None:
    body = sent(HELLO, assistant(Thinking("cut off")), user(Text("Go on.")))
    assert [message["role"] for message in body["messages"]] == ["user", "user"]  # which the API merges
    assert judge(body, JUDGED_HEADERS) == []


# -- turns that pause --------------------------------------------------------------------------------------------------


def test_a_continuation_is_joined_to_the_message_it_continues() -> None:  # A30
    first, second, third = (
        assistant(Text("I look. \n")),
        assistant(continues=True),
        assistant(Text("It is"), continues=True),
    )
    assert sent(HELLO, first)["messages"][1:] == [
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}]}
    ]
    assert sent(HELLO, first, second, third, assistant(Text("9. "), continues=True))["messages"][1:] == [
        {"role": "assistant", "content": [{"type": "text", "text": text} for text in ("I look.", "It is", "9.")]}
    ]
    assert sent(HELLO, first, third, HELLO)["messages"][1]["content"] == [
        {"type": "text", "text": "I look."},
        {"type": "text", "text": "It is"},
    ]


@pytest.mark.parametrize("before", [HELLO, assistant(Thinking("cut off")), assistant(Text(" "))], ids=str)
def test_a_continuation_of_nothing_is_a_message_of_its_own(before: Message) -> None:
    body = sent(HELLO, before, assistant(Text("It is 9."), continues=True))
    assert body["messages"][-1] == {"role": "assistant", "content": [{"type": "text", "text": "It is 9."}]}


def test_what_is_left_out_at_the_end_uncovers_no_white_space() -> None:
    unsigned = Thinking("cut off")
    assert sent(HELLO, assistant(Text("So. "), unsigned, Text(" "), unsigned))["messages"][1:] == [
        {"role": "assistant", "content": [{"type": "text", "text": "So."}]}
    ]
    assert sent(HELLO, assistant(Text(" "), unsigned))["messages"][1:] == []


def test_stored_messages_keep_their_white_space() -> None:
    message = assistant(Text("I look. \n"))
    sent(HELLO, message)
    assert sent(HELLO, message, HELLO)["messages"][1]["content"] == [{"type": "text", "text": "I look. \n"}]


# -- the beginning stays the same --------------------------------------------------------------------------------------


TEXTS = st.text(max_size=12)
CALLS = st.lists(st.sampled_from(["{}", '{"sql": "1"}']), max_size=30)
PAUSES = st.lists(st.tuples(st.sampled_from(["Wait. ", "So\n", "x"]), st.booleans()), max_size=2)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Message, ...]]:
    """Growing histories, each as it is when a request is made."""
    messages: list[Message] = [user(Text("Begin."), Text(draw(TEXTS), cache_mark=draw(st.booleans())))]
    requests: list[tuple[Message, ...]] = [tuple(messages)]
    for turn in range(draw(st.integers(1, 5))):
        for number, (text, think) in enumerate(draw(PAUSES)):
            blocks = (Thinking("t", "sig"),) * think + (Text(text),)
            messages.append(assistant(*blocks, continues=number > 0))
            requests.append(tuple(messages))
        calls = [ToolUse(f"t{turn}_{n}", "query", arguments) for n, arguments in enumerate(draw(CALLS))]
        messages.append(assistant(Text(draw(TEXTS)), Text("Done."), *calls, continues=messages[-1].role == "assistant"))
        results = [ToolResult(draw(TEXTS) + ".", tool_use_id=call.id) for call in calls]
        messages.append(
            user(*results, *[Text("Next.", cache_mark=draw(st.booleans()))] * draw(st.integers(0 if calls else 1, 2)))
        )
        requests.append(tuple(messages))
    return requests


@given(histories())
def test_a_request_begins_with_the_bytes_of_the_one_before(requests: list[tuple[Message, ...]]) -> None:  # M8
    bodies = [SONNET.body(request(*messages, system=(Text("Be brief."),))) for messages in requests]
    for earlier, later in pairwise(bodies):
        assert earlier.endswith(b"]}]}")
        assert later.startswith(earlier.removesuffix(b"]}]}"))


@given(histories(), st.lists(st.booleans(), max_size=3), st.sampled_from(["auto", "explicit"]))
def test_marks_change_nothing_else_and_are_never_too_many(
    requests: list[tuple[Message, ...]], system_marks: list[bool], cache: CachePolicy
) -> None:  # D10, A40, M5
    system = tuple(Text("Be brief.", cache_mark=mark) for mark in system_marks)
    prefix = Prefix(system=system, tools=(QUERY,))
    for messages in requests:
        marked = orjson.loads(SONNET.body(Request(prefix=prefix, messages=messages, settings=Settings(cache=cache))))
        plain = Request(prefix=prefix, messages=messages, settings=Settings(cache="off"))
        assert without_marks(marked) == orjson.loads(SONNET.body(plain))
        assert len(marked_places(marked)) <= 4
        assert judge(marked, JUDGED_HEADERS) == []


def test_each_message_tool_and_prefix_is_encoded_once() -> None:
    messages = [HELLO, assistant(Text("Hi.")), user(Text("More."))]
    prefix = Prefix(system=(Text("Be brief."),), tools=(QUERY,))
    SONNET.body(Request(prefix=prefix, messages=messages, settings=Settings()))
    kept = [dict(thing.wire) for thing in (*messages, QUERY, prefix)]
    SONNET.body(Request(prefix=prefix, messages=[*messages, assistant(Text("Ok."))], settings=Settings()))
    now = [dict(thing.wire) for thing in (*messages, QUERY, prefix)]
    assert all(kept)
    assert [[id(value) for value in wire.values()] for wire in now] == [
        [id(value) for value in wire.values()] for wire in kept
    ]


def test_a_mark_leaves_no_trace_in_what_is_kept() -> None:  # X19
    sent(HELLO, cache="auto")
    assert b"cache_control" not in b"".join(HELLO.wire.values())


# -- cache marks -------------------------------------------------------------------------------------------------------

BRIEF, MARKED = Text("Be brief."), Text("Be right.", cache_mark=True)
ANSWERED = (HELLO, assistant(ToolUse("t", "query")), user(ToolResult("1", tool_use_id="t")))


@pytest.mark.parametrize(
    ("cache", "system", "messages", "places"),
    [
        pytest.param("off", (MARKED,), (user(MARKED),), [], id="off"),
        pytest.param("explicit", (BRIEF,), ANSWERED, [], id="explicit, none set"),
        pytest.param("explicit", (MARKED, BRIEF), (user(MARKED, Text("b")),), ["system.0", "0.0"], id="explicit"),
        pytest.param("auto", (BRIEF, BRIEF), ANSWERED, ["system.1", "2.0"], id="auto: system and the last message"),
        pytest.param("auto", (), ANSWERED, ["tools.0", "2.0"], id="auto: the last tool, without a system prompt"),
        pytest.param("auto", (Text(""),), ANSWERED, ["tools.0", "2.0"], id="auto: an empty system prompt"),
        pytest.param("auto", (MARKED,), (user(MARKED),), ["system.0", "0.0"], id="auto: both are marked by hand"),
        pytest.param(
            "auto",
            (MARKED, BRIEF),
            (user(MARKED, Text("b")), assistant(Text("c")), user(Text("d"))),
            ["system.0", "system.1", "0.0", "2.0"],
            id="auto: between those set by hand",
        ),
        pytest.param(
            "auto",
            (MARKED,) * 5,
            ANSWERED,
            ["system.1", "system.2", "system.3", "system.4"],
            id="the last four by hand",
        ),
        pytest.param(
            "explicit",
            (MARKED, MARKED),
            (user(*[MARKED] * 3), assistant(Text("x")), user(*[MARKED] * 2)),
            ["0.1", "0.2", "2.0", "2.1"],
            id="the last four by hand, over messages",
        ),
        pytest.param(
            "auto", (MARKED, MARKED, MARKED), ANSWERED, ["system.0", "system.1", "system.2", "2.0"], id="one left"
        ),
        pytest.param("auto", (BRIEF,), (user(Text("a"), Text("")),), ["system.0", "0.0"], id="never on an empty text"),
        pytest.param(
            "auto",
            (BRIEF,),
            (HELLO, assistant(Text("x"), Thinking("t", "s"))),
            ["system.0", "0.0"],
            id="never on thinking",
        ),
        pytest.param(
            "auto",
            (BRIEF,),
            (HELLO, assistant(Opaque("anthropic", '{"type":"web_search_tool_result","tool_use_id":"s","content":[]}'))),
            ["system.0", "1.0"],
            id="on the server's results, when a turn pauses",
        ),
        pytest.param(
            "auto",
            (BRIEF,),
            (HELLO, assistant(Opaque("anthropic", '{"type":"brand_new"}'))),
            ["system.0", "0.0"],
            id="never on a block that is not known",
        ),
        pytest.param(
            "explicit",
            (),
            (HELLO, assistant(ToolUse("t", "query")), user(ToolResult((MARKED, BRIEF), tool_use_id="t"), Text("b"))),
            ["2.0"],
            id="a mark inside of a result marks the result",
        ),
    ],
)
def test_marks_are_set(
    cache: CachePolicy, system: tuple[Text, ...], messages: tuple[Message, ...], places: list[str]
) -> None:  # A40, D10
    body = SONNET.body(request(*messages, system=system, cache=cache))
    assert marked_places(orjson.loads(body)) == places
    assert body.count(b"cache_control") == len(places)


def test_the_mark_before_a_long_turn_is_set_too_because_the_api_looks_back_only_20_blocks() -> None:
    calls = [ToolUse(f"t{n}", "query") for n in range(10)]
    results = [ToolResult(str(n), tool_use_id=f"t{n}") for n in range(10)]
    body = sent(HELLO, assistant(*calls), user(*results), system=(BRIEF,), cache="auto")
    assert marked_places(body) == ["system.0", "0.0", "2.9"]


# -- tools -------------------------------------------------------------------------------------------------------------


def tool(schema: JsonObject, name: str = "save") -> ToolSpec:
    return ToolSpec(name=name, description="", input_schema=schema, strict=True)


def closed(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {**properties}, "required": [*properties], "additionalProperties": False}


PLAIN: JsonObject = {"type": "string", "description": "a name"}


@pytest.mark.parametrize(
    "schema",
    [
        closed(),
        closed(a=PLAIN, b={"type": "array", "items": closed(c={"enum": ["x", 1, None]}), "minItems": 1}),
        closed(a={"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, b={"type": ["integer", "null"]}),
        {**closed(a={"$ref": "#/$defs/A"}), "$defs": {"A": closed(b={"const": 3})}},
    ],
    ids=["empty", "nested", "unions", "definitions"],
)
def test_a_schema_that_loses_nothing_is_enforced(schema: JsonObject) -> None:
    body = sent(tools=(tool(schema),))
    assert body["tools"][0]["strict"] is True
    assert judge(body, JUDGED_HEADERS) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": PLAIN}, "required": ["a"]},
        {**closed(a=PLAIN), "additionalProperties": True},
        {**closed(a=PLAIN), "required": []},
        closed(a={"type": "integer", "minimum": 1}),
        closed(a={"type": "string", "pattern": "^x"}),
        closed(a={"type": "string", "format": "binary"}),
        closed(a={"type": "array"}),
        closed(a={"type": "array", "items": PLAIN, "minItems": 2}),
        closed(a={"enum": [{"b": 1}]}),
        closed(a={}),
        closed(a={"$ref": "https://example.com/schema"}),
        closed(a={"$ref": "#/$defs/missing"}),
        {**closed(a={"$ref": "A"}), "$defs": {"A": closed()}},
        {**closed(a={"$ref": "#/$defs/A"}), "$defs": {"A": closed(a={"$ref": "#/$defs/A"})}},
        {**closed(a=PLAIN), "oneOf": []},
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_a_schema_that_would_lose_something_is_not_enforced(schema: JsonObject) -> None:
    assert "strict" not in sent(tools=(tool(schema),))["tools"][0]


def test_no_more_is_enforced_than_one_request_allows() -> None:
    many = sent(tools=tuple(tool(closed(), f"t{n}") for n in range(22)))
    assert ["strict" in spec for spec in many["tools"]] == [True] * 20 + [False] * 2
    union: JsonObject = {"type": ["string", "null"]}
    wide = closed(**{f"p{n}": union for n in range(10)})
    unions = sent(tools=(tool(wide, "a"), tool(wide, "b"), tool(closed(a=union), "c")))
    assert ["strict" in spec for spec in unions["tools"]] == [True, False, True]


def test_the_providers_own_tools_follow_ours() -> None:
    search: JsonObject = {"type": "web_search_20250305", "name": "web_search"}
    body = sent(settings=Settings(extra={"tools": [search]}))
    assert [spec["name"] for spec in body["tools"]] == ["query", "web_search"]
    assert sent(tools=(), settings=Settings(extra={"tools": [search]}))["tools"] == [search]


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "max_output_tokens", "context_window"),
    [
        ("claude-opus-5-5", 128_000, 1_000_000),
        ("claude-sonnet-5-5", 128_000, 1_000_000),
        ("claude-haiku-5-5", 128_000, 1_000_000),
        ("claude-mythos-5-2", 128_000, 1_000_000),
        ("claude-sonnet-4-6", 128_000, 1_000_000),
        ("claude-haiku-4-5-20251001", 64_000, 200_000),
        ("claude-sonnet-4-20250514", 64_000, 200_000),
        ("claude-opus-4-1-20250805", 32_000, 200_000),
        ("claude-3-haiku-20240307", 4_096, 200_000),
        ("us.anthropic.claude-sonnet-5-5", 128_000, 1_000_000),
        ("claude-unheard-of", 8_192, None),
        ("glm-9", 8_192, None),
    ],
)
def test_the_longest_answer_defaults_to_the_documented_maximum(
    name: str, max_output_tokens: int, context_window: int | None
) -> None:
    model = AnthropicModel(name)
    assert (model.facts.max_output_tokens, model.facts.context_window) == (max_output_tokens, context_window)
    assert sent(model=model)["max_tokens"] == max_output_tokens


def test_a_budget_lowers_the_longest_answer() -> None:
    assert sent(max_tokens=500)["max_tokens"] == 500
    assert sent(settings=Settings(max_tokens=300), max_tokens=500)["max_tokens"] == 300
    assert sent(settings=Settings(max_tokens=300))["max_tokens"] == 300


ADAPTIVE = {"type": "adaptive"}


@pytest.mark.parametrize(
    ("name", "thinking", "expected"),
    [
        ("claude-opus-5-5", None, {}),
        ("claude-opus-5-5", "minimal", {"thinking": ADAPTIVE, "output_config": {"effort": "low"}}),
        ("claude-opus-5-5", "max", {"thinking": ADAPTIVE, "output_config": {"effort": "max"}}),
        ("claude-sonnet-5-5", "medium", {"thinking": ADAPTIVE, "output_config": {"effort": "medium"}}),
        ("claude-sonnet-5-5", "off", {"thinking": {"type": "between_tools"}}),
        ("claude-haiku-5-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-opus-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-opus-4-6", 2_000, {"thinking": {"type": "enabled", "budget_tokens": 2_000}}),
        ("claude-opus-4-6", "high", {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}),
        ("claude-haiku-4-5", "minimal", {"thinking": {"type": "enabled", "budget_tokens": 1_024}}),
        ("claude-haiku-4-5", "max", {"thinking": {"type": "enabled", "budget_tokens": 48_000}}),
        ("claude-haiku-4-5", "off", {"thinking": {"type": "disabled"}}),
        ("glm-9", "high", {"thinking": {"type": "enabled", "budget_tokens": 6_144}}),
    ],
)
def test_thinking_is_asked_for_in_the_models_own_way(
    name: str, thinking: ThinkingLevel | int | None, expected: JsonObject
) -> None:
    body = sent(model=AnthropicModel(name), settings=Settings(thinking=thinking))
    assert {key: value for key, value in body.items() if key in ("thinking", "output_config")} == expected
    assert judge(body, JUDGED_HEADERS) == []


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("claude-opus-5-5", Settings(thinking="off"), "always reasons. Ask for thinking='minimal'"),
        ("claude-sonnet-5-5", Settings(thinking=2_000), "takes no thinking budget. Ask for a level"),
        (
            "claude-haiku-4-5",
            Settings(thinking=1_023),
            "budget of 1023 is not between 1024 and max_tokens, which is 64000",
        ),
        ("claude-haiku-4-5", Settings(thinking=2_000, max_tokens=2_000), "budget of 2000 is not between 1024"),
        ("claude-haiku-4-5", Settings(extra={"messages": []}), "Settings.extra has ['messages']"),
        ("claude-haiku-4-5", Settings(extra={"x": {1, 2}}), "cannot be written as JSON"),  # type: ignore[dict-item]
    ],
)
def test_settings_that_the_api_would_refuse_are_refused_before_anything_is_sent(
    name: str, settings: Settings, said: str
) -> None:
    with pytest.raises(ProviderError) as caught:
        AnthropicModel(name).body(request(settings=settings))
    assert said in str(caught.value)
    assert (caught.value.kind, caught.value.usage) == ("bad_request", Usage())


@pytest.mark.parametrize(
    ("limit", "budget"), [(4_000, 2_000), (2_000, 1_744), (1_280, 1_024), (1_279, None), (300, None)]
)
def test_a_lowered_limit_lowers_the_thinking_budget_or_leaves_it_out(limit: int, budget: int | None) -> None:
    body = sent(model=AnthropicModel("claude-haiku-4-5"), settings=Settings(thinking=2_000), max_tokens=limit)
    assert body.get("thinking", {}).get("budget_tokens") == budget
    assert judge(body, JUDGED_HEADERS) == []


def test_extra_fields_are_sent_as_they_are_and_objects_are_put_together() -> None:
    settings = Settings(
        thinking="high",
        extra={"thinking": {"display": "summarized"}, "output_config": {"format": {"type": "x"}}, "max_tokens": 5},
    )
    body = sent(settings=settings)
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "high", "format": {"type": "x"}}
    assert body["max_tokens"] == 5


def test_a_choice_of_tools_is_not_sent_where_there_are_none() -> None:
    assert "tool_choice" not in sent(tools=(), settings=Settings(tool_choice="none"))
    assert sent(settings=Settings(tool_choice="none"))["tool_choice"] == {"type": "none"}
