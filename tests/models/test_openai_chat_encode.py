"""Requests as Chat Completions get them: exact bodies, and what is settled so that nothing is refused."""

from base64 import b64encode
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from journeyman import Document, Message, ToolResult
from journeyman.errors import ProviderError
from journeyman.model import CachePolicy, ModelSettings, Prefix, Request, ToolSpec
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.openai.endpoint import AZURE, LLAMA_CPP, LM_STUDIO, OLLAMA, OPENAI, OPENROUTER, VLLM, Endpoint
from journeyman.types import Base64, Block, Image, JsonObject, Opaque, RedactedThinking, Text, Thinking, ToolUse, Url
from tests.models.asking import HELLO, QUERY
from tests.models.encoding import JUDGED_HEADERS, Json, assistant, body_of, request, user
from tests.support.openai_rules import Service, judge

GPT = OpenAIChatModel("gpt-4.1", api_key="sk-key")
PNG = b64encode(b"\x89PNG").decode()
PDF = b64encode(b"%PDF-1.7").decode()

HELLO_SENT = {"role": "user", "content": "Hello"}


def sent(*messages: Message, model: OpenAIChatModel = GPT, **more: Any) -> Json:
    return body_of(model, *messages, **more)


def on(endpoint: Endpoint, name: str = "some-model") -> OpenAIChatModel:
    return OpenAIChatModel(name, endpoint=endpoint, base_url="http://127.0.0.1:1")


def messages_of(*messages: Message, endpoint: Endpoint = OPENAI) -> list[Json]:
    return sent(*messages, model=on(endpoint, "gpt-4.1"))["messages"]


def test_a_request_to_a_plain_server_has_only_what_every_server_knows() -> None:
    body = sent(model=on(LLAMA_CPP), tools=())
    assert body == {
        "model": "some-model",
        "max_tokens": 8_192,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [HELLO_SENT],
    }


def test_the_names_of_fields_are_those_of_the_endpoint() -> None:
    fields = {"max_tokens": "max_completion_tokens", "seed": "random_seed", "stop": ""}
    endpoint = replace(VLLM, field_names=fields, parallel_tool_calls=False)
    body = sent(model=on(endpoint), settings=ModelSettings(seed=7, top_p=0.5))
    assert (body["max_completion_tokens"], body["parallel_tool_calls"]) == (8_192, False)
    assert (body["random_seed"], body["top_p"]) == (7, 0.5)
    with pytest.raises(ProviderError, match="takes no stop over Chat Completions"):
        sent(model=on(endpoint), settings=ModelSettings(stop=("END",)))
    assert "max_tokens" not in sent(model=on(replace(VLLM, field_names={"max_tokens": ""})))
    assert "parallel_tool_calls" not in sent(model=on(endpoint), tools=())


DETAILS = [{"type": "reasoning.encrypted", "data": "gAAA", "index": 0}]
KEPT = orjson.dumps(DETAILS).decode()
YES, SAID_YES = Text("Yes."), {"content": "Yes."}
DETAILED: Json = {**SAID_YES, "reasoning_details": DETAILS}
REFUSED = Text("I cannot.", extra={"refusal": True})
FOREIGN = (
    Thinking("Hm.", "sig", "anthropic"),
    RedactedThinking("xxx", "anthropic"),
    Text("I look."),
    Opaque("anthropic", '{"type":"server_tool_use"}'),
    Text("It is 9."),
)
FOREIGN_AS_TEXT = (
    "<thinking>\nHm.\n</thinking>\n\nI look.\n\n"
    "[A 'server_tool_use' block that only anthropic can read is left out.]\n\nIt is 9."
)
CALLED = {"id": "call_1", "type": "function", "function": {"name": "query", "arguments": "{}"}}
BACK: dict[str, tuple[Endpoint, tuple[Block, ...], Json]] = {
    "calls without words": (OPENAI, (ToolUse("call_1", "query"),), {"content": None, "tool_calls": [CALLED]}),
    **{
        f"reasoning of {endpoint.provider} in {field}": (
            replace(endpoint, reasoning=replace(endpoint.reasoning, message_field=field)),
            (Thinking("Hm.", None, endpoint.provider), YES),
            {**SAID_YES, field: "Hm."},
        )
        for endpoint in (OLLAMA, VLLM)
        for field in (endpoint.reasoning.message_field, "reasoning_content")
    },
    **{
        f"reasoning, which {endpoint.provider} does not take": (endpoint, (Thinking("Hm.", "sig"), YES), SAID_YES)
        for endpoint in (OPENAI, AZURE, LM_STUDIO)
    },
    "details of reasoning, not its text": (OPENROUTER, (Thinking("Hm.", KEPT, "openrouter"), YES), DETAILED),
    "details of reasoning alone": (OPENROUTER, (RedactedThinking(KEPT, "openrouter"), YES), DETAILED),
    "reasoning without details": (OPENROUTER, (Thinking("Hm.", "no JSON"), YES), {**SAID_YES, "reasoning": "Hm."}),
    "what another provider said as text": (OPENAI, FOREIGN, {"content": FOREIGN_AS_TEXT}),
    "texts to the letter": (OPENAI, (Text("\n One "), Text("two.\n")), {"content": "\n One two.\n"}),
    "a refusal": (OPENAI, (REFUSED,), {"content": [{"type": "refusal", "refusal": "I cannot."}]}),
    "a refusal where they are not known": (VLLM, (REFUSED,), {"content": "I cannot."}),
}


@pytest.mark.parametrize("name", BACK)
def test_what_the_model_said_goes_back_as(name: str) -> None:
    endpoint, said, expected = BACK[name]
    [_, back] = messages_of(HELLO, assistant(*said), endpoint=endpoint)
    assert back == {"role": "assistant", **expected}


def test_ids_are_rewritten_alike_where_the_service_limits_their_length() -> None:
    long = "toolu_" + "x" * 40
    asked = (HELLO, assistant(ToolUse(long, "query")), user(ToolResult("1", tool_use_id=long)))
    [_, said, result] = messages_of(*asked)
    assert said["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) <= 40
    [_, said, result] = messages_of(*asked, endpoint=VLLM)
    assert said["tool_calls"][0]["id"] == result["tool_call_id"] == long


def results(*content: Block, endpoint: Endpoint = OPENAI) -> list[Json]:
    calls = [ToolUse(block.tool_use_id, "query") for block in content if isinstance(block, ToolResult)]
    return messages_of(HELLO, assistant(*calls), user(*content), endpoint=endpoint)[2:]


def test_pictures_in_results_follow_in_the_users_message_in_the_order_of_the_calls() -> None:
    image = Image(Base64(PNG, "image/png"))
    sent_image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    messages = results(
        ToolResult((Text("A plot:"), image), tool_use_id="call_1"),
        ToolResult("2", tool_use_id="call_2"),
        ToolResult((image, image, Text("and more")), tool_use_id="call_3"),
        Text("Which is best?"),
    )
    note = "[An image: see the user's message after the results.]"
    assert messages == [
        {"role": "tool", "tool_call_id": "call_1", "content": f"A plot:\n{note}"},
        {"role": "tool", "tool_call_id": "call_2", "content": "2"},
        {"role": "tool", "tool_call_id": "call_3", "content": f"{note}\n{note}\nand more"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From the result of the call call_1:"},
                sent_image,
                {"type": "text", "text": "From the result of the call call_3:"},
                sent_image,
                sent_image,
                {"type": "text", "text": "Which is best?"},
            ],
        },
    ]


def test_documents_in_results_are_text_or_follow_in_the_users_message() -> None:
    plain = Document(Base64(b64encode(b"a,b").decode(), "text/csv"))
    pdf = Document(Base64(PDF, "application/pdf"), "Report")
    [result, said] = results(ToolResult((plain, pdf), tool_use_id="call_1"))
    assert result["content"] == "a,b\n[A document: see the user's message after the results.]"
    file = {"filename": "Report.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    assert said["content"][1] == {"type": "file", "file": file}


def parts_of(*content: Block, endpoint: Endpoint = OPENAI) -> Any:  # noqa: ANN401 - JSON
    return messages_of(user(*content), endpoint=endpoint)[0]["content"]


def test_one_text_is_a_string_and_several_are_parts() -> None:
    assert parts_of(Text("a")) == "a"
    assert parts_of(Text("a"), Text(""), Text("b")) == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_the_address_of_a_document_is_sent_where_it_is_taken() -> None:
    [document] = parts_of(Document(Url("https://example.org/a.pdf")), endpoint=OPENROUTER)
    assert document == {"type": "file", "file": {"filename": "document.pdf", "file_data": "https://example.org/a.pdf"}}


CLOSED: JsonObject = {**QUERY.input_schema, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "endpoint", "strict"),
    [
        (CLOSED, OPENAI, True),
        (CLOSED, AZURE, True),
        (CLOSED, VLLM, None),
        (QUERY.input_schema, OPENAI, None),
        ({**CLOSED, "required": []}, OPENAI, None),
    ],
)
def test_a_schema_is_strict_where_that_loses_nothing(schema: JsonObject, endpoint: Endpoint, strict: bool) -> None:
    spec = ToolSpec(name="query", description="Run a query.", input_schema=schema, strict=True)
    [tool] = sent(model=on(endpoint, "gpt-4.1"), tools=(spec,))["tools"]
    assert tool["function"].get("strict") == strict
    assert tool["function"]["parameters"] == schema


def test_a_message_is_encoded_once_for_all_endpoints_that_take_the_same() -> None:
    message = user(Text("Hello"))
    for model in (GPT, GPT, on(OPENAI, "gpt-5"), on(VLLM), on(replace(VLLM, tools=False))):
        model.body(request(message, tools=()))
    assert len(message.wire) == 2


CLAUDE = on(OPENROUTER, "anthropic/claude-sonnet-5.5")
ROUTED = replace(OPENROUTER, cache_marks=("gpt-4.1",))
POLICIES: tuple[CachePolicy, ...] = ("auto", "explicit", "off")
MARK = {"cache_control": {"type": "ephemeral"}}


def marked_texts(*messages: Message, cache: CachePolicy = "auto", model: OpenAIChatModel = CLAUDE, **more: Any) -> Json:
    """Return the places of cache marks in a request, and the texts that are marked."""
    body = sent(*messages, model=model, settings=ModelSettings(cache=cache), **more)
    places: Json = {}
    for index, message in enumerate(body["messages"]):
        for part in message["content"] if isinstance(message["content"], list) else ():
            if "cache_control" in part:
                assert part == {"type": "text", "text": part["text"], **MARK}
                places[f"{index} {message['role']}"] = part["text"]
    tools = {f"tool {tool['function']['name']}": "" for tool in body["tools"] if "cache_control" in tool}
    return places | tools


def test_texts_are_parts_where_a_model_takes_marks_for_the_cache() -> None:
    asked = assistant(Text("I look."), ToolUse("call_1", "query"), ToolUse("call_2", "query"))
    answered = user(ToolResult("1", tool_use_id="call_1"), ToolResult("", tool_use_id="call_2"))
    body = sent(HELLO, asked, answered, model=CLAUDE, system=(Text("Be brief."),), cache="auto")
    assert [message["content"] for message in body["messages"]] == [
        [{"type": "text", "text": "Be brief.", **MARK}],
        [{"type": "text", "text": "Hello"}],
        "I look.",
        [{"type": "text", "text": "1", **MARK}],
        "",
    ]


def test_the_end_of_the_conversation_and_the_prefix_are_marked() -> None:
    assert marked_texts(system=(Text("Be brief."),)) == {"0 system": "Be brief.", "1 user": "Hello"}
    assert marked_texts() == {"0 user": "Hello", "tool query": ""}
    assert marked_texts(tools=(QUERY,), system=(Text("Be brief."),), cache="off") == {}
    assert marked_texts(cache="explicit") == {}


@pytest.mark.parametrize("name", ["openai/gpt-5", "google/gemini-3-pro", "acme/anthropic/"])
def test_models_that_cache_by_themselves_get_no_marks(name: str) -> None:
    by_hand = user(Text("Hello", cache_mark=True))
    assert marked_texts(by_hand, model=on(OPENROUTER, name), cache="explicit", system=(Text("S"),)) == {}
    assert messages_of(by_hand, endpoint=OPENROUTER) == [HELLO_SENT]


def test_before_a_picture_the_last_text_is_marked() -> None:
    image = Image(Base64(PNG, "image/png"))
    said = 'He said: "Hm.\\"'
    assert marked_texts(user(Text("a"), Text(said), image)) == {"0 user": said, "tool query": ""}
    assert marked_texts(HELLO, assistant(Text("Hi.")), user(image)) == {"0 user": "Hello", "tool query": ""}


def test_marks_of_the_users_stay_and_the_last_four_count() -> None:
    said = [user(Text(f"{number}", cache_mark=True), Text("more")) for number in range(6)]
    system = (Text("S", cache_mark=True), Text("T"))
    turns = [message for each in said for message in (each, assistant(Text("Hm.")))]
    assert [*marked_texts(*turns, cache="explicit", system=system).values()] == ["2", "3", "4", "5"]
    assert marked_texts(said[0], cache="explicit", system=system) == {"0 system": "S", "1 user": "0"}
    assert marked_texts(said[0], cache="off", system=system) == {}
    in_result = user(ToolResult((Text("a", cache_mark=True), Text("b")), tool_use_id="call_1"))
    asked = assistant(ToolUse("call_1", "query"))
    assert marked_texts(HELLO, asked, in_result, cache="explicit") == {"2 tool": "a\nb"}


def test_where_a_long_turn_began_is_marked_too() -> None:
    calls = [ToolUse(f"call_{number}", "query") for number in range(10)]
    results = [ToolResult(f"row {number}", tool_use_id=f"call_{number}") for number in range(10)]
    places = marked_texts(HELLO, assistant(*calls), user(*results), system=(Text("S"),))
    assert places == {"0 system": "S", "1 user": "Hello", "12 tool": "row 9"}


def test_a_request_marks_aside_begins_with_the_bytes_of_the_one_before() -> None:
    prefix = Prefix(system=(Text("Be brief."),), tools=(QUERY,))
    turns = [user(Text("Hello", cache_mark=True)), assistant(Text("Hi."), ToolUse("call_1", "query"))]
    turns += [user(ToolResult("1", tool_use_id="call_1")), assistant(Text("One.")), user(Text("And?"))]
    asked = [Request(prefix=prefix, messages=turns[:count], settings=ModelSettings()) for count in (1, 3, 5)]
    bodies = [CLAUDE.body(each).replace(b"," + orjson.dumps(MARK)[1:-1], b"") for each in asked]
    for before, after in pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}") + b",")


_texts = st.text(max_size=5)
_said_texts = st.builds(Text, _texts, cache_mark=st.booleans())
_media: st.SearchStrategy[Image | Document] = st.sampled_from(
    [
        Image(Base64(PNG, "image/png")),
        Image(Url("https://example.org/a.png")),
        Document(Base64(PDF, "application/pdf")),
        Document(Base64("YQ==", "text/plain"), "T"),
        Document(Url("https://example.org/a.pdf")),
    ]
)
_thoughts = st.builds(Thinking, _texts, st.none() | st.just("sig"), st.sampled_from([None, "openai", "anthropic"]))
_calls = st.lists(st.builds(ToolUse, st.uuids().map(str), st.sampled_from(["query", "a.b"])), max_size=3)
_said = st.lists(
    _said_texts
    | _thoughts
    | st.just(RedactedThinking("x", "anthropic"))
    | st.just(Opaque("anthropic", '{"type":"image_like"}')),
    max_size=3,
)
_contents = _texts | st.lists(_said_texts | _media, max_size=3).map(tuple)


@st.composite
def _conversations(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = [HELLO]
    for _ in range(draw(st.integers(0, 3))):
        calls = draw(_calls)
        messages.append(assistant(*draw(_said), *calls))
        answers = [ToolResult(draw(_contents), draw(st.booleans()), call.id) for call in calls]
        messages.append(user(*answers, *draw(st.lists(_said_texts | _media, max_size=2))))
    return messages


@given(
    _conversations(),
    st.sampled_from([OPENAI, AZURE, OPENROUTER, ROUTED, OLLAMA, VLLM, LLAMA_CPP, LM_STUDIO]),
    st.sampled_from(POLICIES),
)
def test_any_conversation_is_one_the_api_takes(said: list[Message], endpoint: Endpoint, cache: CachePolicy) -> None:
    system = (Text("S", cache_mark=True), Text("T"))
    body = sent(*said, model=on(endpoint, "gpt-4.1"), system=system, settings=ModelSettings(cache=cache))
    service = Service(
        reasoning_field=endpoint.reasoning.message_field,
        extensions=frozenset({"usage"} if endpoint.usage == "cost" else ()),
        takes_marks=bool(endpoint.cache_marks),
    )
    assert judge("chat", body, JUDGED_HEADERS, service=service) == []
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(body["messages"])
    asked = [call.id for message in said for call in message.tool_uses]
    wired = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
    assert len(set(asked)) == len(asked) == len(wired)
    assert wired == answered
