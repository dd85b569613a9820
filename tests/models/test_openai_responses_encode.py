"""Requests as the Responses API gets them: exact bytes, and what is settled so that nothing is refused."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.errors import ModelUnavailable, ProviderError
from journeyman.model import Facts, Prefix, Request, Settings, ThinkingLevel, ToolSpec
from journeyman.models.openai.endpoint import AZURE, LM_STUDIO, OLLAMA, OPENAI, VLLM, Endpoint
from journeyman.models.openai.responses import OpenAIModel
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
from tests.support.openai_rules import judge

GPT = OpenAIModel("gpt-5.2", api_key="sk-key-of-openai")
JUDGED_HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}

QUERY = ToolSpec(
    name="query",
    description="Run a query.",
    input_schema={"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
)
HELLO = Message("user", (Text("Hello"),))
HELLO_ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}

ITEM: JsonObject = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA=="}
ITEM_JSON = orjson.dumps(ITEM).decode()


def request(
    *messages: Message,
    system: tuple[Text, ...] = (),
    tools: tuple[ToolSpec, ...] = (QUERY,),
    settings: Settings | None = None,
    max_tokens: int | None = None,
) -> Request:
    return Request(
        prefix=Prefix(system=system, tools=tools),
        messages=messages or (HELLO,),
        settings=settings or Settings(),
        max_tokens=max_tokens,
    )


def sent(*messages: Message, model: OpenAIModel = GPT, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as request
    return orjson.loads(model.body(request(*messages, **more)))


def user(*content: Block) -> Message:
    return Message("user", content)


def assistant(*content: Block) -> Message:
    return Message("assistant", content)


def items_of(role: Role, *content: Block, model: OpenAIModel = GPT) -> list[dict[str, Any]]:
    """Return how one message is sent, after another."""
    return sent(HELLO, Message(role, content), model=model)["input"][1:]


def reasoning(pair: str = "", item: JsonObject | None = None) -> Thinking:
    json = ITEM_JSON if item is None else orjson.dumps(item).decode()
    return Thinking("Hm.", f"{json}\n{pair}" if pair else json, "openai")


# -- the whole request -------------------------------------------------------------------------------------------------


def test_a_request_of_every_part() -> None:
    body = sent(
        user(Text("What sold best?")),
        assistant(
            reasoning("message msg_1"),
            Text("I look."),
            ToolUse("call_1", "query", '{"sql": "select 1"}'),
            ToolUse("call_2", "query"),
        ),
        user(ToolResult("[1]", tool_use_id="call_1"), ToolResult("no", True, "call_2"), Text("Briefly.")),
        assistant(Text("The first.")),
        user(Text("Thanks."), Text("Bye.")),
        system=(Text("Be brief."), Text(""), Text("Be right.", cache_mark=True)),
        settings=Settings(max_tokens=1_000, tool_choice="any", thinking="low", extra={"service_tier": "flex"}),
    )
    assert body == {
        "model": "gpt-5.2",
        "max_output_tokens": 1_000,
        "stream": True,
        "store": False,
        "tool_choice": "required",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low"},
        "service_tier": "flex",
        "tools": [
            {
                "type": "function",
                "name": "query",
                "description": "Run a query.",
                "parameters": QUERY.input_schema,
                "strict": False,
            }
        ],
        "instructions": "Be brief.\n\nBe right.",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What sold best?"}]},
            ITEM,
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
                "id": "msg_1",
                "status": "completed",
            },
            {"type": "function_call", "call_id": "call_1", "name": "query", "arguments": '{"sql": "select 1"}'},
            {"type": "function_call", "call_id": "call_2", "name": "query", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "[1]"},
            {"type": "function_call_output", "call_id": "call_2", "output": "Error: no"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Briefly."}]},
            {"type": "message", "role": "assistant", "content": "The first."},
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Thanks."}, {"type": "input_text", "text": "Bye."}],
            },
        ],
    }
    assert judge("responses", body, JUDGED_HEADERS) == []


def test_a_request_without_system_and_tools_has_neither_field() -> None:
    body = sent(tools=())
    assert list(body) == ["model", "max_output_tokens", "stream", "store", "include", "input"]
    assert judge("responses", body, JUDGED_HEADERS) == []


def test_arguments_go_back_as_the_model_wrote_them() -> None:
    written = '{ "n":1.50e3,"n" : 2 , "text":"\\u00fc \\ud83d\\ude00" }'
    call = items_of("assistant", ToolUse("call_1", "query", written))[0]
    assert call["arguments"] == written


# -- items -------------------------------------------------------------------------------------------------------------


def said(*content: JsonObject) -> list[JsonObject]:
    return [{"type": "message", "role": "user", "content": [*content]}]


def input_text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


@pytest.mark.parametrize(
    ("role", "block", "expected"),
    [
        pytest.param("user", Text("Hé"), said(input_text("Hé")), id="text"),
        pytest.param("user", Text(""), [], id="an empty text is left out"),
        pytest.param("user", Text("a\ud83d"), said(input_text("a?")), id="a lone surrogate"),
        pytest.param("assistant", Text(""), [], id="an empty text of the model is left out"),
        pytest.param(
            "assistant",
            Text("A", extra={"phase": "commentary", "citations": [{}]}),
            [{"type": "message", "role": "assistant", "content": "A", "phase": "commentary"}],
            id="the phase goes back, other providers' fields do not",
        ),
        pytest.param(
            "assistant",
            Text("A", extra={"refusal": True}),
            [{"type": "message", "role": "assistant", "content": "A"}],
            id="a refusal is a text",
        ),
        pytest.param(
            "assistant",
            Text("A", extra={"id": "msg_7", "annotations": [{"type": "file_path", "file_id": "f", "index": 0}]}),
            [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [
                        {
                            "type": "output_text",
                            "text": "A",
                            "annotations": [{"type": "file_path", "file_id": "f", "index": 0}],
                        }
                    ],
                    "id": "msg_7",
                    "status": "completed",
                }
            ],
            id="annotations go back with the id of the message",
        ),
        pytest.param(
            "assistant",
            Text("A", extra={"annotations": [{"type": "file_path", "file_id": "f", "index": 0}]}),
            [{"type": "message", "role": "assistant", "content": "A"}],
            id="annotations without an id are left out",
        ),
        pytest.param(
            "assistant",
            Image(Base64("aGk=", "image/png")),
            [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": "[An image (image/png) that cannot be sent to this model is left out.]",
                }
            ],
            id="a picture of the model's, for which the API has no place",
        ),
        pytest.param("assistant", RedactedThinking("x9"), [], id="another API's redacted thinking"),
        pytest.param("assistant", Thinking("Hm.", "sig"), [], id="reasoning of which nobody knows whose it is"),
        pytest.param(
            "assistant",
            Thinking("Hm.", "sig", "anthropic"),
            [{"type": "message", "role": "assistant", "content": "<thinking>\nHm.\n</thinking>"}],
            id="another provider's thinking is a text",
        ),
        pytest.param("assistant", RedactedThinking("x", "anthropic"), [], id="another provider's redacted thinking"),
        pytest.param(
            "assistant",
            Opaque("openai", ' {"type": "web_search_call", "id": "ws_1", "status": "completed", "n": 1.0}\n'),
            [{"type": "web_search_call", "id": "ws_1", "status": "completed", "n": 1.0}],
            id="an item of this provider",
        ),
        pytest.param(
            "assistant",
            Opaque("anthropic", '{"type": "server_tool_use"}'),
            [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": "[A 'server_tool_use' block that only anthropic can read is left out.]",
                }
            ],
            id="a block of another provider",
        ),
        pytest.param(
            "user",
            Image(Base64("aGk=", "image/png")),
            said({"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="}),
            id="an image's bytes",
        ),
        pytest.param(
            "user",
            Image(Url("https://example.com/a.png")),
            said({"type": "input_image", "detail": "auto", "image_url": "https://example.com/a.png"}),
            id="an image's address",
        ),
        pytest.param(
            "user",
            Document(Base64("aGk=", "application/pdf"), "Report"),
            said({"type": "input_file", "filename": "Report.pdf", "file_data": "data:application/pdf;base64,aGk="}),
            id="a PDF",
        ),
        pytest.param(
            "user",
            Document(Base64("aGk=", "application/pdf"), "a.b.PDF"),
            said({"type": "input_file", "filename": "a.b.PDF", "file_data": "data:application/pdf;base64,aGk="}),
            id="a PDF with the name of a file",
        ),
        pytest.param(
            "user",
            Document(Base64(b64encode("Grüße".encode()).decode(), "text/markdown"), "Letter"),
            said(input_text("Letter:\nGrüße")),
            id="a text document is a text",
        ),
        pytest.param(
            "user",
            Document(Url("https://example.com/a.pdf")),
            said({"type": "input_file", "file_url": "https://example.com/a.pdf"}),
            id="a document's address",
        ),
        pytest.param(
            "user",
            ToolResult("", tool_use_id="t"),
            [{"type": "function_call_output", "call_id": "t", "output": ""}],
            id="an empty result",
        ),
        pytest.param(
            "user",
            ToolResult((Text("a"), Text(""), Image(Url("https://example.com/a.png"))), tool_use_id="t"),
            [
                {
                    "type": "function_call_output",
                    "call_id": "t",
                    "output": [
                        input_text("a"),
                        {"type": "input_image", "detail": "auto", "image_url": "https://example.com/a.png"},
                    ],
                }
            ],
            id="a result of blocks",
        ),
        pytest.param(
            "user",
            ToolResult((), tool_use_id="t"),
            [{"type": "function_call_output", "call_id": "t", "output": ""}],
            id="a result of no blocks",
        ),
        pytest.param(
            "user",
            ToolResult("", is_error=True, tool_use_id="t"),
            [{"type": "function_call_output", "call_id": "t", "output": "Error: (no output)"}],
            id="an error says something",  # M4
        ),
        pytest.param(
            "user",
            ToolResult("error: no such table", is_error=True, tool_use_id="t"),
            [{"type": "function_call_output", "call_id": "t", "output": "error: no such table"}],
            id="an error says so once",
        ),
        pytest.param(
            "user",
            ToolResult((Text("boom"),), is_error=True, tool_use_id="t"),
            [{"type": "function_call_output", "call_id": "t", "output": [input_text("Error: "), input_text("boom")]}],
            id="an error of blocks says so",
        ),
    ],
)
def test_a_block_is_sent_as(role: Role, block: Block, expected: list[JsonObject]) -> None:
    assert items_of(role, block) == expected


def test_results_come_before_what_the_user_says_whatever_it_is() -> None:
    kinds = [item["type"] for item in items_of("user", ToolResult("1", tool_use_id="t"), Text("a"), Text("b"))]
    assert kinds == ["function_call_output", "message"]


def test_ids_and_names_that_the_api_refuses_are_rewritten_alike_for_call_and_result() -> None:
    calls = (ToolUse("call:1", "functions.query", malformed="{"), ToolUse("", ""), ToolUse("c" * 65, "n" * 200))
    body = sent(HELLO, assistant(*calls), user(*[ToolResult("1", tool_use_id=call.id) for call in calls]))
    asked, answered = body["input"][1:4], body["input"][4:]
    assert [call["name"] for call in asked] == ["functions_query", "_", "n" * 64]
    assert [call["call_id"] for call in asked] == [result["call_id"] for result in answered]
    assert judge("responses", body, JUDGED_HEADERS) == []


def test_a_message_of_which_nothing_can_be_sent_is_left_out() -> None:
    body = sent(HELLO, assistant(Thinking("cut off")), user(Text("Go on.")))
    assert [item["role"] for item in body["input"]] == ["user", "user"]
    assert judge("responses", body, JUDGED_HEADERS) == []


PICTURE = Image(Url("https://example.com/a.png"))
PAPER = Document(Base64("aGk=", "application/pdf"), "Report")


@pytest.mark.parametrize(
    ("endpoint", "block", "text"),
    [
        (LM_STUDIO, PICTURE, "[An image (https://example.com/a.png) that cannot be sent to this model is left out.]"),
        (
            replace(OLLAMA, images=False),
            Image(Base64("aGk=", "image/png")),
            "[An image (image/png) that cannot be sent to this model is left out.]",
        ),
        (VLLM, PAPER, "[A document 'Report' (application/pdf) that cannot be sent to this model is left out.]"),
    ],
    ids=["address", "picture", "document"],
)
def test_what_the_service_does_not_take_is_a_text_that_says_what_is_missing(
    endpoint: Endpoint, block: Block, text: str
) -> None:
    assert items_of("user", block, model=OpenAIModel("m", endpoint=endpoint)) == said(input_text(text))


def test_services_that_take_different_things_do_not_share_bytes() -> None:
    message = user(PICTURE)
    able, unable = OpenAIModel("m", endpoint=VLLM), OpenAIModel("m", endpoint=replace(VLLM, image_urls=False))
    first, second = (sent(message, model=model)["input"] for model in (able, unable))
    assert (first[0]["content"][0]["type"], second[0]["content"][0]["type"]) == ("input_image", "input_text")


# -- reasoning ---------------------------------------------------------------------------------------------------------


def test_reasoning_goes_back_byte_by_byte() -> None:
    written = '{ "type":"reasoning", "id":"rs_1","summary":[], "encrypted_content":"x", "new": 1.50e0 }'
    body = GPT.body(request(HELLO, assistant(Thinking("", written, "openai"), Text("Hi."))))
    assert b"," + written.encode() + b"," in body


def test_reasoning_and_the_call_that_it_led_to_go_back_with_their_ids() -> None:
    items = items_of(
        "assistant", reasoning("function_call fc_1"), ToolUse("call_1", "query"), ToolUse("call_2", "query")
    )
    assert [(item["type"], item.get("id")) for item in items] == [
        ("reasoning", "rs_1"),
        ("function_call", "fc_1"),
        ("function_call", None),
    ]


def test_without_its_reasoning_an_item_goes_back_without_an_id() -> None:  # else the API would miss the reasoning
    call, text = ToolUse("call_1", "query"), Text("Hi.")
    assert "id" not in items_of("assistant", call)[0]
    assert items_of("assistant", text) == [{"type": "message", "role": "assistant", "content": "Hi."}]


def test_an_id_is_given_to_the_kind_of_item_that_it_is_of_only() -> None:
    items = items_of("assistant", reasoning("message msg_1"), ToolUse("call_1", "query"))
    assert "id" not in items[1]


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    item: JsonObject = {"id": "rs_2", "type": "reasoning", "summary": [], "encrypted_content": "g"}
    assert items_of("assistant", reasoning("message msg_1"), Text("")) == []
    assert [each["id"] for each in items_of("assistant", reasoning(), Text("A"), reasoning(item=item))[:1]] == ["rs_1"]
    assert len(items_of("assistant", reasoning(), Text("A"), reasoning(item=item))) == 2


@pytest.mark.parametrize(
    ("item", "is_sent"),
    [
        ({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g"}, True),
        (
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            True,
        ),
        ({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}, False),
        ({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None, "content": []}, False),
        ({"type": "message", "encrypted_content": "g"}, False),
    ],
    ids=["encrypted", "in the open", "a summary alone", "nothing", "no reasoning"],
)
def test_only_reasoning_that_can_be_read_again_goes_back(item: JsonObject, is_sent: bool) -> None:
    assert (item in items_of("assistant", reasoning(item=item), Text("A"))) is is_sent


def test_one_service_reads_anothers_reasoning_as_a_text() -> None:
    azure = OpenAIModel("gpt-5.2", endpoint=AZURE, base_url="https://example.com")
    item = items_of("assistant", reasoning("message msg_1"), Text("A"), model=azure)[0]
    assert item["content"] == "<thinking>\nHm.\n</thinking>"


# -- the beginning stays the same --------------------------------------------------------------------------------------


TEXTS = st.text(max_size=12)
CALLS = st.lists(st.sampled_from(["{}", '{"sql": "1"}']), max_size=5)
FOREIGN = st.sampled_from(
    [
        (),
        (reasoning("function_call fc_1"),),
        (reasoning("message msg_1"),),
        (Thinking("Hm.", "sig", "anthropic"),),
        (Opaque("anthropic", '{"type":"x"}'),),
    ]
)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Message, ...]]:
    """Growing histories, each as it is when a request is made."""
    messages: list[Message] = [user(Text("Begin."), Text(draw(TEXTS)))]
    requests: list[tuple[Message, ...]] = [tuple(messages)]
    for turn in range(draw(st.integers(1, 5))):
        calls = [ToolUse(f"t:{turn}_{n}", "query", arguments) for n, arguments in enumerate(draw(CALLS))]
        messages.append(assistant(*draw(FOREIGN), Text(draw(TEXTS)), *calls, *draw(FOREIGN)))
        results = [ToolResult(draw(TEXTS), draw(st.booleans()), call.id) for call in calls]
        messages.append(user(*results, *[Text("Next.")] * draw(st.integers(0 if calls else 1, 2))))
        requests.append(tuple(messages))
    return requests


@given(histories())
def test_a_request_begins_with_the_bytes_of_the_one_before(requests: list[tuple[Message, ...]]) -> None:  # M8
    bodies = [GPT.body(request(*messages, system=(Text("Be brief."),))) for messages in requests]
    for earlier, later in pairwise(bodies):
        assert earlier.endswith(b"]}")
        assert later.startswith(earlier.removesuffix(b"]}"))


RULES_OF_PAIRS = ("every_call_is_answered", "every_result_has_its_call", "there_is_a_message", "content_fits")


@given(histories())
def test_calls_and_results_stay_paired_and_in_order(requests: list[tuple[Message, ...]]) -> None:
    body = sent(*requests[-1])
    broken = [fault for fault in judge("responses", body, JUDGED_HEADERS) if fault.startswith(RULES_OF_PAIRS)]
    assert broken == []
    asked = [item["call_id"] for item in body["input"] if item["type"] == "function_call"]
    answered = [item["call_id"] for item in body["input"] if item["type"] == "function_call_output"]
    assert asked == answered


def test_each_message_tool_and_prefix_is_encoded_once() -> None:
    messages = [HELLO, assistant(Text("Hi.")), user(Text("More."))]
    tool = replace(QUERY)
    prefix = Prefix(system=(Text("Be brief."),), tools=(tool,))
    GPT.body(Request(prefix=prefix, messages=messages, settings=Settings()))
    kept = [dict(thing.wire) for thing in (*messages, tool, prefix)]
    GPT.body(Request(prefix=prefix, messages=[*messages, assistant(Text("Ok."))], settings=Settings()))
    now = [dict(thing.wire) for thing in (*messages, tool, prefix)]
    assert all(kept)
    assert [[id(value) for value in wire.values()] for wire in now] == [
        [id(value) for value in wire.values()] for wire in kept
    ]


# -- tools -------------------------------------------------------------------------------------------------------------


def tool(schema: JsonObject, name: str = "save") -> ToolSpec:
    return ToolSpec(name=name, description="", input_schema=schema, strict=True)


def closed(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {**properties}, "required": [*properties], "additionalProperties": False}


PLAIN: JsonObject = {"type": "string", "description": "a name"}


def nested(levels: int) -> JsonObject:
    schema = closed()
    for _ in range(levels - 1):
        schema = closed(a=schema)
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        closed(),
        closed(a=PLAIN, b={"type": "array", "items": closed(c={"type": "string", "enum": ["x"]}), "minItems": 2}),
        closed(a={"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, b={"type": ["integer", "null"]}),
        closed(a={"type": "integer", "minimum": 1, "exclusiveMaximum": 9}),
        {**closed(a={"$ref": "#/$defs/A"}), "$defs": {"A": closed(b={"type": "integer", "const": 3})}},
        {**closed(a={"$ref": "#/$defs/A"}), "$defs": {"A": closed(a={"anyOf": [{"$ref": "#/$defs/A"}, PLAIN]})}},
        nested(5),
        closed(**{f"p{n}": PLAIN for n in range(100)}),
    ],
    ids=["empty", "nested", "unions", "numbers", "definitions", "recursion", "deep", "wide"],
)
def test_a_schema_that_loses_nothing_is_enforced(schema: JsonObject) -> None:
    body = sent(tools=(tool(schema),))
    assert body["tools"][0]["strict"] is True
    assert judge("responses", body, JUDGED_HEADERS) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": PLAIN}, "required": ["a"]},
        {**closed(a=PLAIN), "additionalProperties": True},
        {**closed(a=PLAIN), "required": []},
        closed(a={"type": "string", "pattern": "^x"}),
        closed(a={"type": "string", "minLength": 1}),
        closed(a={"type": "string", "format": "uri"}),
        closed(a={"type": "string", "default": "x"}),
        closed(a={"type": "array"}),
        closed(a={"type": "array", "items": {}}),
        closed(a={"enum": ["x", 1]}),
        closed(a={"type": "string", "enum": [{"b": 1}]}),
        closed(a={"type": "file"}),
        closed(a={"type": {"b": 1}}),
        closed(a={}),
        closed(a={"$ref": "https://example.com/schema"}),
        closed(a={"$ref": "#/$defs/missing"}),
        {**closed(a={"$ref": "A"}), "$defs": {"A": closed()}},
        {**closed(a={"$ref": "#/$defs/A", "description": "b"}), "$defs": {"A": closed()}},
        {**closed(a=PLAIN), "$defs": {"A": {"type": "object"}}},
        {**closed(a=PLAIN), "oneOf": []},
        {**closed(a=PLAIN), "anyOf": [closed()]},
        nested(6),
        closed(**{f"p{n}": PLAIN for n in range(101)}),
        closed(a={"type": "integer", "enum": [*range(501)]}),
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_a_schema_that_would_lose_something_or_be_refused_is_not_enforced(schema: JsonObject) -> None:
    assert sent(tools=(tool(schema),))["tools"][0]["strict"] is False  # left out, it would be true


def test_a_schema_is_enforced_only_if_the_tool_and_the_service_want_that() -> None:
    wanted, unwanted = tool(closed(a=PLAIN)), replace(tool(closed(a=PLAIN)), strict=False)
    local = OpenAIModel("m", endpoint=VLLM)
    assert [sent(tools=(each,))["tools"][0]["strict"] for each in (wanted, unwanted)] == [True, False]
    assert sent(tools=(wanted,), model=local)["tools"][0]["strict"] is False


def test_a_tool_without_parameters_says_so() -> None:
    spec = sent(tools=(tool({"type": "object"}),))["tools"][0]
    assert spec["parameters"] == {"type": "object", "properties": {}}


def test_the_providers_own_tools_follow_ours() -> None:
    search: JsonObject = {"type": "web_search"}
    body = sent(settings=Settings(extra={"tools": [search]}))
    assert [spec["type"] for spec in body["tools"]] == ["function", "web_search"]
    assert judge("responses", body, JUDGED_HEADERS) == []
    assert sent(tools=(), settings=Settings(extra={"tools": [search]}))["tools"] == [search]


def test_a_model_without_tools_is_not_asked_to_use_some() -> None:
    model = OpenAIModel("m", endpoint=replace(VLLM, tools=False))
    with pytest.raises(ProviderError) as caught:
        model.body(request())
    assert "vllm:m is set up without tools, and the request has some" in str(caught.value)
    assert sent(tools=(), model=model)["input"] == [HELLO_ITEM]


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "max_output_tokens", "context_window"),
    [("gpt-5.2", 128_000, 400_000), ("o3", 100_000, 200_000), ("gpt-4o", 16_384, 128_000), ("glm-9", 8_192, None)],
)
def test_the_longest_answer_defaults_to_the_documented_maximum(
    name: str, max_output_tokens: int, context_window: int | None
) -> None:
    model = OpenAIModel(name)
    assert model.facts == Facts(max_output_tokens=max_output_tokens, context_window=context_window)
    assert sent(model=model)["max_output_tokens"] == max_output_tokens


def test_a_budget_lowers_the_longest_answer() -> None:
    assert sent(max_tokens=500)["max_output_tokens"] == 500
    assert sent(settings=Settings(max_tokens=300), max_tokens=500)["max_output_tokens"] == 300
    assert sent(settings=Settings(max_tokens=300))["max_output_tokens"] == 300


@pytest.mark.parametrize(
    ("name", "thinking", "effort"),
    [
        ("gpt-5.2", "off", "none"),
        ("gpt-5.2", "minimal", "low"),
        ("gpt-5.2", "low", "low"),
        ("gpt-5.2", "medium", "medium"),
        ("gpt-5.2", "high", "high"),
        ("gpt-5.2", "max", "xhigh"),
        ("gpt-5", "minimal", "minimal"),
        ("gpt-5", "max", "high"),
        ("gpt-5.6", "max", "max"),
        ("o3", "max", "high"),
    ],
)
def test_thinking_is_asked_for_by_an_effort_that_the_model_takes(
    name: str, thinking: ThinkingLevel, effort: str
) -> None:
    body = sent(model=OpenAIModel(name), settings=Settings(thinking=thinking))
    assert body["reasoning"] == {"effort": effort}
    assert judge("responses", body, JUDGED_HEADERS) == []


def test_reasoning_is_asked_for_encrypted_of_models_that_reason_only() -> None:
    assert sent(model=OpenAIModel("gpt-5"))["include"] == ["reasoning.encrypted_content"]
    assert "include" not in sent(model=OpenAIModel("gpt-4o"))
    assert "include" not in sent(model=OpenAIModel("a-deployment-of-who-knows-what"))
    assert "reasoning" not in sent(model=OpenAIModel("gpt-5"))


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("gpt-5", Settings(thinking="off"), "openai:gpt-5 always reasons. Ask for thinking='minimal'"),
        ("gpt-4o", Settings(thinking="low"), "openai:gpt-4o takes no effort for reasoning"),
        ("gpt-5-pro", Settings(thinking="low"), "openai:gpt-5-pro takes no effort 'low' for reasoning. It takes: high"),
        ("gpt-5", Settings(thinking=2_000), "openai:gpt-5 takes no thinking budget. Ask for a level"),
        ("gpt-5", Settings(stop_sequences=("END",)), "openai:gpt-5 takes no stop sequences over the Responses API"),
        ("gpt-5", Settings(extra={"input": []}), "Settings.extra has ['input']"),
        ("gpt-5", Settings(extra={"previous_response_id": "r"}), "Settings.extra has ['previous_response_id']"),
        ("gpt-5", Settings(extra={"x": {1, 2}}), "cannot be written as JSON"),  # type: ignore[dict-item]
    ],
)
def test_settings_that_the_api_would_refuse_are_refused_before_anything_is_sent(
    name: str, settings: Settings, said: str
) -> None:
    with pytest.raises(ProviderError) as caught:
        OpenAIModel(name).body(request(settings=settings))
    assert said in str(caught.value)
    assert (caught.value.kind, caught.value.usage) == ("bad_request", Usage())


def test_extra_fields_are_sent_as_they_are_and_objects_are_put_together() -> None:
    extra: JsonObject = {"reasoning": {"summary": "auto"}, "prompt_cache_key": "k", "store": True, "background": False}
    body = sent(settings=Settings(thinking="high", extra=extra))
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert (body["prompt_cache_key"], body["store"], body["background"]) == ("k", True, False)
    assert judge("responses", body, JUDGED_HEADERS) == []


def test_what_else_shall_be_included_is_added() -> None:
    more: JsonObject = {"include": ["message.output_text.logprobs", "reasoning.encrypted_content"]}
    assert sent(settings=Settings(extra=more))["include"] == [
        "reasoning.encrypted_content",
        "message.output_text.logprobs",
    ]
    assert sent(settings=Settings(extra={"include": []}))["include"] == []
    assert sent(model=OpenAIModel("gpt-4o"), settings=Settings(extra=more))["include"] == more["include"]


def test_the_cache_policy_changes_nothing_because_the_service_caches_by_itself() -> None:
    bodies = {GPT.body(request(settings=Settings(cache=cache))) for cache in ("off", "auto", "explicit")}
    assert len(bodies) == 1


def test_a_choice_of_tools_is_not_sent_where_there_are_none() -> None:
    assert "tool_choice" not in sent(tools=(), settings=Settings(tool_choice="none"))
    assert sent(settings=Settings(tool_choice="none"))["tool_choice"] == "none"
    assert "tool_choice" not in sent()


def test_calls_in_parallel_are_the_endpoints_choice() -> None:
    one_by_one = OpenAIModel("gpt-5", endpoint=replace(OPENAI, parallel_tool_calls=False))
    assert "parallel_tool_calls" not in sent()
    assert sent(model=one_by_one)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in sent(model=one_by_one, tools=())


def test_nothing_is_stored_unless_the_endpoint_says_so() -> None:
    assert [sent(model=OpenAIModel("m", endpoint=each))["store"] for each in (OPENAI, VLLM)] == [False, False]
    assert sent(model=OpenAIModel("m", endpoint=replace(VLLM, store=True)))["store"] is True


def test_without_an_address_there_is_no_model() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        OpenAIModel("gpt-5", endpoint=AZURE)
    assert "There is no address for the model 'gpt-5'" in str(caught.value)
