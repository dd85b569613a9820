"""Requests as the three APIs get them, side by side: what becomes of each block, field and setting.

What only one API has is in its own file. The exact bytes of one rich conversation are in `tests/contracts/bodies`.
"""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given

from journeyman import Document, Image, Message, ModelSettings, Text, ToolResult, Usage
from journeyman.errors import ProviderError
from journeyman.model import ThinkingLevel
from journeyman.models.anthropic import AnthropicModel
from journeyman.models.google import GoogleModel
from journeyman.models.openai import (
    AZURE,
    LM_STUDIO,
    MISTRAL,
    OLLAMA,
    OPENAI,
    OPENROUTER,
    VLLM,
    Endpoint,
    InputMedia,
    OpenAIChatModel,
    OpenAIModel,
)
from journeyman.models.openai.endpoint import Reasoning
from journeyman.types import Base64, Block, JsonObject, Opaque, RedactedThinking, Thinking, ToolUse, Url
from tests.contracts.test_cross_provider import calls_and_results
from tests.models.asking import HELLO, QUERY, Json
from tests.models.encoding import (
    PLAIN,
    AnyModel,
    assistant,
    body_of,
    closed,
    faults_of,
    histories,
    request,
    strict_tool,
    user,
)

SONNET = AnthropicModel("claude-sonnet-5-5", api_key="k")
CHAT = OpenAIChatModel("gpt-4.1", api_key="k")
GPT = OpenAIModel("gpt-5.2", api_key="k")
MODELS = (SONNET, CHAT, GPT)
each = pytest.mark.parametrize("model", MODELS, ids=["anthropic", "chat", "responses"])
each_of_openai = pytest.mark.parametrize("model", MODELS[1:], ids=["chat", "responses"])

LIMIT: dict[type[AnyModel], str] = {
    AnthropicModel: "max_tokens",
    OpenAIChatModel: "max_completion_tokens",
    OpenAIModel: "max_output_tokens",
}


def limit_of(model: AnyModel, **more: Any) -> int:
    return body_of(model, **more)[LIMIT[type(model)]]


def conversation_of(body: Json) -> list[Any]:
    return body.get("messages") or body["input"]


PICTURE, PDF = Base64("aGk=", "image/png"), Base64("aGk=", "application/pdf")
MARKDOWN = Base64(b64encode("Grüße".encode()).decode(), "text/markdown")
PICTURE_URL, PDF_URL = "https://example.com/a.png", "https://example.com/a.pdf"
IN_LINE, PDF_IN_LINE = "data:image/png;base64,aGk=", "data:application/pdf;base64,aGk="
AT_PICTURE, AT_PDF = {"type": "url", "url": PICTURE_URL}, {"type": "url", "url": PDF_URL}
SENT_PICTURE = {"type": "base64", "media_type": "image/png", "data": "aGk="}
SENT_PDF = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
SENT_MARKDOWN = {"type": "text", "media_type": "text/plain", "data": "Grüße"}


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def input_text(said: str) -> Json:
    return {"type": "input_text", "text": said}


def image(source: Json) -> Json:
    return {"type": "image", "source": source}


def document(source: Json, **more: str) -> Json:
    return {"type": "document", "source": source, **more}


def image_url(url: str) -> list[Json]:
    return [{"type": "image_url", "image_url": {"url": url}}]


def file(name: str) -> list[Json]:
    return [{"type": "file", "file": {"filename": name, "file_data": PDF_IN_LINE}}]


def input_image(url: str) -> Json:
    return {"type": "input_image", "detail": "auto", "image_url": url}


def input_file(name: str) -> Json:
    return {"type": "input_file", "filename": name, "file_data": PDF_IN_LINE}


NAME, NAMED = "a.b.PDF", "A:\nGrüße"
INPUT_ADDRESS: Json = {"type": "input_file", "file_url": PDF_URL}
NO_ADDRESS = "[A document (https://example.com/a.pdf) that cannot be sent to this model is left out.]"
BY_USERS: dict[str, tuple[Block, Json | None, object, Json | None]] = {
    "a text": (Text("Hé"), text("Hé"), "Hé", input_text("Hé")),
    "an empty text": (Text(""), None, None, None),
    "a blank text": (Text(" \n"), None, " \n", input_text(" \n")),
    "a lone surrogate": (Text("a\ud83d"), text("a?"), "a?", input_text("a?")),
    "citations": (Text("A", extra={"citations": [{}]}), text("A"), "A", input_text("A")),
    "an image's bytes": (Image(PICTURE), image(SENT_PICTURE), image_url(IN_LINE), input_image(IN_LINE)),
    "an address": (Image(Url(PICTURE_URL)), image(AT_PICTURE), image_url(PICTURE_URL), input_image(PICTURE_URL)),
    "a PDF": (Document(PDF, "Plan"), document(SENT_PDF, title="Plan"), file("Plan.pdf"), input_file("Plan.pdf")),
    "a PDF that is called a file": (Document(PDF, NAME), document(SENT_PDF, title=NAME), file(NAME), input_file(NAME)),
    "a text document": (Document(MARKDOWN), document(SENT_MARKDOWN), [text("Grüße")], input_text("Grüße")),
    "a named text": (Document(MARKDOWN, "A"), document(SENT_MARKDOWN, title="A"), [text(NAMED)], input_text(NAMED)),
    "a document's address": (Document(Url(PDF_URL)), document(AT_PDF), [text(NO_ADDRESS)], INPUT_ADDRESS),
}


def only(values: list[Any]) -> Any:  # noqa: ANN401 - JSON
    """Return the one value that there is, if there is one."""
    assert len(values) <= 1
    return values[0] if values else None


@pytest.mark.parametrize("name", BY_USERS)
def test_what_a_user_says_is_sent_as(name: str) -> None:
    block, *expected = BY_USERS[name]
    bodies = [conversation_of(body_of(model, HELLO, user(block), HELLO))[1:-1] for model in MODELS]
    assert [item["role"] for body in bodies for item in body] == ["user"] * sum(one is not None for one in expected)
    anthropic, chat, responses = [only([item["content"] for item in body]) for body in bodies]
    assert [anthropic and only(anthropic), chat, responses and only(responses)] == expected


def left_out(kind: str, provider: str) -> str:
    return f"[A {kind!r} block that only {provider} can read is left out.]"


def signed(said: str) -> Json:
    return {"type": "thinking", "thinking": said, "signature": "sig"}


def output_text(said: object, **more: object) -> list[Json]:
    return [{"type": "message", "role": "assistant", "content": said, **more}]


ITEM = '{"type": "web_search_call", "id": "ws_1", "status": "completed", "n": 1.0}'
USE = '{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": 1.0}}'
CITED: list[Any] = [{"type": "char_location"}]
NOTED: list[Any] = [{"type": "file_path", "file_id": "f", "index": 0}]
NO_USE, NO_ITEM = left_out("server_tool_use", "anthropic"), left_out("web_search_call", "openai")
NO_PLACE = "[A 'web_search_call' block that has no place in Chat Completions is left out.]"
PHASED = Text("A", extra={"phase": "commentary", "citations": CITED, "annotations": []})
WITH_ID = Text("A", extra={"id": "msg_7", "annotations": NOTED})
SENT_WITH_ID = [{"type": "output_text", "text": "A", "annotations": NOTED}]
REFUSED = [{"type": "refusal", "refusal": "A"}]
TAGGED = "<thinking>\nHm.\n</thinking>"
NO_IMAGE = "[An image (image/png) that cannot be sent to this model is left out.]"

BY_MODELS: dict[str, tuple[Block, Json | None, object, list[Json]]] = {
    "an empty text": (Text(""), None, None, []),
    "a blank text": (Text(" \n"), None, None, []),
    "what the API knows": (PHASED, {**text("A"), "citations": CITED}, "A", output_text("A", phase="commentary")),
    "a refusal": (Text("A", extra={"refusal": True}), text("A"), REFUSED, output_text("A")),
    "annotations with an id": (WITH_ID, text("A"), "A", output_text(SENT_WITH_ID, id="msg_7", status="completed")),
    "annotations without an id": (Text("A", extra={"annotations": NOTED}), text("A"), "A", output_text("A")),
    "signed thinking of nobody": (Thinking("Hm.", "sig"), None, None, []),
    "omitted thinking": (Thinking("", "sig", "anthropic"), None, None, []),
    "thinking without a signature": (Thinking("Hm."), None, None, []),
    "another provider's thinking": (Thinking("Hm.", "sig", "mistral"), text(TAGGED), TAGGED, output_text(TAGGED)),
    "redacted thinking of nobody": (RedactedThinking("x9"), None, None, []),
    "another provider's redacted thinking": (RedactedThinking("x9", "mistral"), None, None, []),
    "a block of Anthropic's": (Opaque("anthropic", USE), orjson.loads(USE), NO_USE, output_text(NO_USE)),
    "an item of OpenAI's": (Opaque("openai", f" {ITEM}\n"), text(NO_ITEM), NO_PLACE, [orjson.loads(ITEM)]),
    "a picture": (Image(PICTURE), image(SENT_PICTURE), None, output_text(NO_IMAGE)),
}


@pytest.mark.parametrize("name", BY_MODELS)
def test_what_a_model_said_goes_back_as(name: str) -> None:
    block, *expected = BY_MODELS[name]
    anthropic, chat, responses = [conversation_of(body_of(m, HELLO, assistant(block), HELLO))[1:-1] for m in MODELS]
    assert {item.get("role") for item in (*anthropic, *chat)} <= {"assistant"}
    told = [only([item["content"] for item in said]) for said in (anthropic, chat)]
    assert [told[0] and only(told[0]), told[1], responses] == expected


REASONING: dict[str, tuple[Block, Json]] = {
    "signed thinking of nobody": (Thinking("Hm.", "sig"), signed("Hm.")),
    "omitted thinking": (Thinking("", "sig", "anthropic"), signed("")),
    "redacted thinking of nobody": (RedactedThinking("x9"), {"type": "redacted_thinking", "data": "x9"}),
}


@pytest.mark.parametrize("name", REASONING)
def test_reasoning_goes_back_to_anthropic_before_what_came_of_it(name: str) -> None:
    block, expected = REASONING[name]
    said = conversation_of(body_of(MODELS[0], HELLO, assistant(block, Text(" "), Text("A"), block), HELLO))[1]
    assert said["content"] == [expected, text(" "), text("A")]


@pytest.mark.parametrize("reasoning", [Thinking("Hm.", "sig"), Thinking("Hm."), RedactedThinking("x9")], ids=str)
@each
def test_an_answer_that_says_nothing_is_not_sent_back(model: Any, reasoning: Block) -> None:  # noqa: ANN401
    alone = body_of(model, HELLO, HELLO)
    blank = Text("\n\n")
    for content in ((blank, Text(" ")), (reasoning,), (reasoning, blank), (blank, reasoning, reasoning)):
        assert body_of(model, HELLO, assistant(*content), HELLO) == alone


def wrong(content: object) -> Json:
    return {"content": content, "is_error": True}


SILENT = "(no output)"
TOLD_SILENT = f"Error: {SILENT}"
TOLD_BOOM = [input_text("Error: "), input_text("boom")]
SAID = (Text("a"), Text(""), Text("b"))
RESULTS: dict[str, tuple[ToolResult, Json, str, object]] = {
    "nothing": (ToolResult(""), {"content": ""}, "", ""),
    "no blocks": (ToolResult(()), {"content": []}, "", ""),
    "texts": (ToolResult(SAID), {"content": [text("a"), text("b")]}, "a\n\nb", [input_text("a"), input_text("b")]),
    "an error": (ToolResult("no", True), wrong("no"), "Error: no", "Error: no"),
    "an error that says so": (ToolResult("error: no", True), wrong("error: no"), "error: no", "error: no"),
    "an error of nothing": (ToolResult("", True), wrong(SILENT), TOLD_SILENT, TOLD_SILENT),  # M4
    "an error of no blocks": (ToolResult((), True), wrong(SILENT), TOLD_SILENT, [input_text(TOLD_SILENT)]),  # M4
    "an error of blocks": (ToolResult((Text("boom"),), True), wrong([text("boom")]), "Error: boom", TOLD_BOOM),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_sent_as(name: str) -> None:
    result, *expected = RESULTS[name]
    call, answer = assistant(ToolUse("t", "query")), user(replace(result, tool_use_id="t"))
    sent, chat, responses = [conversation_of(body_of(model, HELLO, call, answer))[-1] for model in MODELS]
    [anthropic] = sent["content"]
    assert {name: anthropic[name] for name in anthropic if name not in ("type", "tool_use_id")} == expected[0]
    assert [chat["content"], responses["output"]] == expected[1:]
    assert (anthropic["tool_use_id"], chat["tool_call_id"], responses["call_id"]) == ("t", "t", "t")


@each
def test_that_a_result_is_a_strangers_is_never_sent(model: AnyModel) -> None:
    bodies = [
        body_of(
            model,
            HELLO,
            assistant(ToolUse("q", "query", "{}")),
            user(ToolResult("Rain.", tool_use_id="q", untrusted=untrusted)),
        )
        for untrusted in (None, True)
    ]
    assert bodies[0] == bodies[1]
    assert "untrusted" not in str(bodies)


def test_pictures_in_results_stay_in_them_where_they_may() -> None:  # for Chat Completions see its own file
    call = assistant(ToolUse("t", "query"))
    answer = user(ToolResult((Text("a"), Text(""), Image(Url(PICTURE_URL))), tool_use_id="t"))
    sent, told = [conversation_of(body_of(model, HELLO, call, answer))[-1] for model in (SONNET, GPT)]
    assert sent["content"][0]["content"] == [text("a"), image(AT_PICTURE)]
    assert told["output"] == [input_text("a"), input_image(PICTURE_URL)]


@each
def test_arguments_go_back_as_the_model_wrote_them(model: AnyModel) -> None:
    written = '{ "n":1.50e3,"n" : 2 , "text":"\\u00fc \\ud83d\\ude00" }'
    answer = user(ToolResult("1", tool_use_id="t"))
    body = model.body(request(HELLO, assistant(ToolUse("t", "query", written)), answer))
    assert (b'"input":' + written.encode() + b"}" if model is SONNET else orjson.dumps(written)) in body


@each
def test_ids_and_names_that_the_api_refuses_are_rewritten_alike_for_call_and_result(model: AnyModel) -> None:
    calls = (ToolUse("call:1", "functions.query", malformed="{"), ToolUse("", ""), ToolUse("c" * 65, "n" * 200))
    results = user(*[ToolResult("1", tool_use_id=call.id) for call in calls])
    body = body_of(model, HELLO, assistant(*calls), results)
    longest = 128 if model is SONNET else 64
    written = orjson.dumps(body).decode()
    for name in ("functions_query", "_", f"{'n' * (longest - 9)}_1be63cc0"):
        assert f'"name":"{name}"' in written
    asked, answered = calls_and_results(body)
    assert asked == answered
    assert len({*asked}) == 3
    assert faults_of(model, body) == []


@each
def test_a_message_of_which_nothing_can_be_sent_is_left_out(model: AnyModel) -> None:
    body = body_of(model, HELLO, assistant(Thinking("cut off"), Text("")), user(Text("")), user(Text("Go on.")))
    assert [item["role"] for item in conversation_of(body)] == ["user", "user"]  # which the API merges
    assert faults_of(model, body) == []


@each
def test_each_message_tool_and_prefix_is_encoded_once(model: AnyModel) -> None:
    system, tool = (Text("Be brief."),), replace(QUERY)
    asked = request(replace(HELLO), assistant(Text("Hi.")), user(Text("More.")), system=system, tools=(tool,))
    kept: list[list[list[int]]] = []
    for more in ([], [assistant(Text("Ok."))]):
        model.body(replace(asked, messages=[*asked.messages, *more]))
        things = (*asked.messages, tool, asked.prefix)
        assert all(thing.wire for thing in things)
        kept.append([[id(value) for value in thing.wire.values()] for thing in things])
    assert kept[0] == kept[1]


NOT_HERE = "that cannot be sent to this model is left out.]"


@pytest.mark.parametrize("adapter", [OpenAIChatModel, OpenAIModel])
@pytest.mark.parametrize(
    ("endpoint", "block", "said"),
    [
        (LM_STUDIO, Image(Url(PICTURE_URL)), f"[An image ({PICTURE_URL}) {NOT_HERE}"),
        (replace(OLLAMA, media=InputMedia(images=False)), Image(PICTURE), f"[An image (image/png) {NOT_HERE}"),
        (VLLM, Document(PDF, "Plan"), f"[A document 'Plan' (application/pdf) {NOT_HERE}"),
    ],
    ids=["address", "picture", "document"],
)
def test_what_the_service_does_not_take_is_a_text_that_says_what_is_missing(
    adapter: type[OpenAIChatModel | OpenAIModel], endpoint: Endpoint, block: Block, said: str
) -> None:
    [message] = conversation_of(body_of(adapter("m", endpoint=endpoint), user(block)))
    assert message["content"] == [text(said) if adapter is OpenAIChatModel else input_text(said)]


@each
@given(requests=histories())
def test_a_request_begins_with_the_bytes_of_the_one_before(  # M8
    model: AnyModel, requests: list[tuple[Message, ...]]
) -> None:
    end = b"]}]}" if model is SONNET else b"]}"  # the last message of Anthropic's may go on
    bodies = [model.body(request(*messages, system=(Text("Be brief."),))) for messages in requests]
    for earlier, later in pairwise(bodies):
        assert earlier.endswith(end)
        assert later.startswith(earlier.removesuffix(end))


def test_a_request_has_these_fields() -> None:
    settings = ModelSettings(max_tokens=1_000, tool_choice="any")
    system = (Text("Be brief."), Text(""), Text("Be right.", cache_mark=True))
    stops = replace(settings, stop=("END",))
    asked = {"system": system, "max_tokens": 2_000}
    anthropic = body_of(SONNET, settings=replace(stops, extra={"service_tier": "auto"}), **asked)
    chat = body_of(CHAT, settings=replace(stops, extra={"seed": 7}), **asked)
    responses = body_of(GPT, settings=replace(settings, thinking="low", extra={"service_tier": "flex"}), **asked)
    query = {"name": "query", "description": "Run a query."}
    mark = {"cache_control": {"type": "ephemeral"}}
    assert anthropic == {
        "model": "claude-sonnet-5-5",
        "max_tokens": 1_000,
        "stream": True,
        "tool_choice": {"type": "any"},
        "stop_sequences": ["END"],
        "service_tier": "auto",
        "tools": [{**query, "input_schema": QUERY.input_schema}],
        "system": [text("Be brief."), {**text("Be right."), **mark}],
        "messages": [{"role": "user", "content": [{**text("Hello"), **mark}]}],
    }
    assert chat == {
        "model": "gpt-4.1",
        "max_completion_tokens": 1_000,
        "stream": True,
        "stream_options": {"include_usage": True},
        "store": False,
        "tool_choice": "required",
        "stop": ["END"],
        "seed": 7,
        "tools": [{"type": "function", "function": {**query, "parameters": QUERY.input_schema}}],
        "messages": [{"role": "system", "content": "Be brief.\n\nBe right."}, {"role": "user", "content": "Hello"}],
    }
    assert responses == {
        "model": "gpt-5.2",
        "max_output_tokens": 1_000,
        "stream": True,
        "store": False,
        "tool_choice": "required",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low"},
        "service_tier": "flex",
        "tools": [{"type": "function", **query, "parameters": QUERY.input_schema, "strict": False}],
        "instructions": "Be brief.\n\nBe right.",
        "input": [{"type": "message", "role": "user", "content": [input_text("Hello")]}],
    }
    assert [faults_of(*pair) for pair in zip(MODELS, (anthropic, chat, responses), strict=True)] == [[], [], []]


def on(endpoint: Endpoint, name: str = "some-model") -> OpenAIChatModel:
    return OpenAIChatModel(name, endpoint=endpoint, base_url="http://127.0.0.1:1")


ENCRYPTED, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"
LEFT_OUT = "left out"
BUDGET = ModelSettings(thinking=2_000)
LOW_QUIETLY = ModelSettings(thinking="low", extra={"reasoning": {"exclude": True}, "tools": [{"type": "x"}], "seed": 1})
QUERY_SENT = {"name": "query", "description": "Run a query.", "parameters": QUERY.input_schema}
CHAT_QUERY: Json = {"type": "function", "function": QUERY_SENT}
ROUTED, HIGH, EFFORT = on(OPENROUTER, "openai/gpt-6-astra"), ModelSettings(thinking="high"), {"effort": "high"}
MORE = ModelSettings(extra={"include": [LOGPROBS, ENCRYPTED]})
NO_STREAM = OpenAIChatModel("m", endpoint=VLLM, streaming=False)
ONE_BY_ONE = OpenAIModel("gpt-5", endpoint=replace(OPENAI, parallel_tool_calls=False))
# The API refuses tools with any effort but `none`, also with the default one (GitHub: BerriAI/litellm#34569).
NEVER_BOTH = on(OPENAI, "gpt-5.6")
WORDS: list[tuple[Endpoint, str, ThinkingLevel, str]] = [
    (OPENROUTER, "anthropic/claude", "max", "xhigh"),
    (OPENROUTER, "anthropic/claude", "minimal", "minimal"),
    (OLLAMA, "qwen3", "off", "none"),
    (VLLM, "openai/gpt-oss-20b", "max", "high"),
    (AZURE, "my-deployment", "medium", "medium"),
    (AZURE, "gpt-6.1-sol", "minimal", "low"),
]
FIELDS: dict[str, tuple[AnyModel, Json, Json]] = {
    "a server that cannot stream": (NO_STREAM, {"tools": ()}, {"stream": False, "stream_options": LEFT_OUT}),
    "usage in the stream": (on(replace(VLLM, usage="none")), {}, {"stream_options": LEFT_OUT}),
    "the endpoint's longest answer": (on(replace(VLLM, max_output_tokens=2_000)), {}, {"max_tokens": 2_000}),
    "extra fields together with ours": (
        on(OPENROUTER),
        {"settings": LOW_QUIETLY},
        {"reasoning": {"effort": "low", "exclude": True}, "seed": 1, "tools": [CHAT_QUERY, {"type": "x"}]},
    ),
    "a budget": (on(OPENROUTER), {"settings": BUDGET}, {"reasoning": {"max_tokens": 2_000}}),
    "a lower budget": (on(OPENROUTER), {"settings": BUDGET, "max_tokens": 1_000}, {"reasoning": {"max_tokens": 744}}),
    "a budget that is too low": (on(OPENROUTER), {"settings": BUDGET, "max_tokens": 256}, {"reasoning": LEFT_OUT}),
    "an endpoint that knows better": (ROUTED, {"settings": HIGH}, {"reasoning": EFFORT, "tools": [CHAT_QUERY]}),
    **{
        f"the best word for {level} on {endpoint.provider}": (
            on(endpoint, name),
            {"settings": ModelSettings(thinking=level), "tools": ()},
            {"reasoning": {"effort": word}} if endpoint is OPENROUTER else {"reasoning_effort": word},
        )
        for endpoint, name, level, word in WORDS
    },
    "extra fields instead of ours": (
        CHAT,
        {"settings": ModelSettings(extra={"stream_options": {"include_obfuscation": False}, "store": [2], "d": None})},
        {"stream_options": {"include_usage": True, "include_obfuscation": False}, "store": [2], "d": None},
    ),
    "tools or reasoning": (NEVER_BOTH, {}, {"reasoning_effort": "none"}),
    "tools and none": (NEVER_BOTH, {"settings": ModelSettings(thinking="off")}, {"reasoning_effort": "none"}),
    "reasoning without tools": (NEVER_BOTH, {"tools": ()}, {"reasoning_effort": LEFT_OUT}),
    "a model that reasons": (OpenAIModel("gpt-5"), {}, {"include": [ENCRYPTED], "reasoning": LEFT_OUT}),
    "a model that does not": (OpenAIModel("gpt-4o"), {}, {"include": LEFT_OUT}),
    "a model that nobody knows": (OpenAIModel("a-deployment-of-who-knows-what"), {}, {"include": LEFT_OUT}),
    "more to include": (GPT, {"settings": MORE}, {"include": [ENCRYPTED, LOGPROBS]}),
    "nothing to include": (GPT, {"settings": ModelSettings(extra={"include": []})}, {"include": []}),
    "only what is asked for": (OpenAIModel("gpt-4o"), {"settings": MORE}, {"include": [LOGPROBS, ENCRYPTED]}),
    "calls in parallel": (GPT, {}, {"parallel_tool_calls": LEFT_OUT, "store": False}),
    "calls one by one": (ONE_BY_ONE, {}, {"parallel_tool_calls": False}),
    "no calls": (ONE_BY_ONE, {"tools": ()}, {"parallel_tool_calls": LEFT_OUT}),
    "nothing stored": (OpenAIModel("m", endpoint=VLLM), {}, {"store": False}),
    "stored if the settings say so": (GPT, {"settings": ModelSettings(extra={"store": True})}, {"store": True}),
}


@pytest.mark.parametrize("name", FIELDS)
def test_what_model_endpoint_and_settings_make_of_the_fields(name: str) -> None:
    model, asked, expected = FIELDS[name]
    body = body_of(model, **asked)
    assert {field: body.get(field, LEFT_OUT) for field in expected} == expected


def test_a_request_without_system_and_tools_has_neither_field() -> None:
    anthropic, chat, responses = [body_of(model, tools=()) for model in MODELS]
    assert list(anthropic) == ["model", "max_tokens", "stream", "messages"]
    assert list(chat) == ["model", "max_completion_tokens", "stream", "stream_options", "store", "messages"]
    assert list(responses) == ["model", "max_output_tokens", "stream", "store", "include", "input"]
    assert faults_of(GPT, responses) == []


@each
def test_a_budget_lowers_the_longest_answer(model: AnyModel) -> None:
    assert limit_of(model, max_tokens=500) == 500
    assert limit_of(model, settings=ModelSettings(max_tokens=300), max_tokens=500) == 300
    assert limit_of(model, settings=ModelSettings(max_tokens=500), max_tokens=300) == 300
    assert limit_of(model, settings=ModelSettings(max_tokens=300)) == 300


@pytest.mark.parametrize(
    ("adapter", "name", "max_output_tokens", "context_window"),
    [
        (AnthropicModel, "claude-opus-5-5", 128_000, 1_000_000),
        (AnthropicModel, "claude-sonnet-5-5", 128_000, 1_000_000),
        (AnthropicModel, "claude-haiku-5-5", 128_000, 1_000_000),
        (AnthropicModel, "claude-mythos-5-2", 128_000, 1_000_000),
        (AnthropicModel, "claude-sonnet-4-6", 128_000, 1_000_000),
        (AnthropicModel, "claude-haiku-4-5-20251001", 64_000, 200_000),
        (AnthropicModel, "claude-sonnet-4-20250514", 64_000, 200_000),
        (AnthropicModel, "claude-opus-4-1-20250805", 32_000, 200_000),
        (AnthropicModel, "claude-3-haiku-20240307", 4_096, 200_000),
        (AnthropicModel, "us.anthropic.claude-sonnet-5-5", 128_000, 1_000_000),
        (AnthropicModel, "claude-unheard-of", 8_192, None),
        (AnthropicModel, "glm-9", 8_192, None),
        (OpenAIChatModel, "gpt-4.1", 32_768, 1_047_576),
        (OpenAIModel, "gpt-5.2", 128_000, 400_000),
        (OpenAIModel, "o3", 100_000, 200_000),
        (OpenAIModel, "gpt-4o", 16_384, 128_000),
        (OpenAIModel, "glm-9", 8_192, None),
    ],
)
def test_the_longest_answer_defaults_to_the_documented_maximum(
    adapter: Callable[[str], AnyModel], name: str, max_output_tokens: int, context_window: int | None
) -> None:
    model = adapter(name)
    assert (model.facts.max_output_tokens, model.facts.context_window) == (max_output_tokens, context_window)
    assert limit_of(model) == max_output_tokens


@each
def test_a_choice_of_tools_is_sent_only_where_there_are_some(model: AnyModel) -> None:
    none = ModelSettings(tool_choice="none")
    assert body_of(model, settings=none)["tool_choice"] == ({"type": "none"} if model is SONNET else "none")
    for choice in ("none", "any"):
        body = body_of(model, tools=(), settings=ModelSettings(tool_choice=choice))
        assert not body.keys() & {"tools", "tool_choice"}
    assert "tool_choice" not in body_of(model, settings=ModelSettings(tool_choice="auto"))


@each
def test_the_providers_own_tools_follow_ours(model: AnyModel) -> None:
    search: JsonObject = {"type": "web_search_20250305" if model is SONNET else "web_search", "name": "web_search"}
    settings = ModelSettings(extra={"tools": [search]}, cache="off")
    ours = body_of(model)["tools"]
    assert body_of(model, settings=settings)["tools"] == [*ours, search]
    assert body_of(model, tools=(), settings=settings)["tools"] == [search]


ALWAYS = "always reasons. Ask for thinking='minimal' instead of 'off'."
NO_BUDGET = "takes no thinking budget. Ask for a level, such as thinking='medium'."
BEYOND = "A thinking budget of 9000 is not between 1 and max_tokens, which is 8192."
PRO = "openai:gpt-5-pro takes no effort 'low' for reasoning. It takes: high"
STOPS = "openai:gpt-5 takes no stop over the Responses API"
NO_EFFORT = "openai:gpt-4.1 takes no effort for reasoning. Leave ModelSettings.thinking at None."
NO_FIELD = "vllm:m has no known field for the effort of reasoning."
WRONG_BUDGET = "budget of 1023 is not between 1024 and max_tokens, which is 64000"


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        (AnthropicModel("claude-opus-5-5"), ModelSettings(thinking="off"), ALWAYS),
        (SONNET, ModelSettings(thinking=2_000), NO_BUDGET),
        (AnthropicModel("claude-haiku-4-5"), ModelSettings(thinking=1_023), WRONG_BUDGET),
        (
            AnthropicModel("claude-haiku-4-5"),
            ModelSettings(thinking=2_000, max_tokens=2_000),
            "2000 is not between 1024",
        ),
        *[
            row
            for adapter in (OpenAIChatModel, OpenAIModel)
            for row in (
                (adapter("o3"), ModelSettings(thinking="off"), f"openai:o3 {ALWAYS}"),
                (adapter("gpt-4.1"), ModelSettings(thinking="low"), NO_EFFORT),
                (adapter("gpt-5-pro"), ModelSettings(thinking="low"), PRO),
                (adapter("o3"), ModelSettings(thinking=2_000), f"openai:o3 {NO_BUDGET}"),
            )
        ],
        (OpenAIChatModel("gpt-6-astra"), ModelSettings(thinking="off"), f"openai:gpt-6-astra {ALWAYS}"),
        (OpenAIModel("gpt-5"), ModelSettings(stop=("END",)), STOPS),
        (SONNET, ModelSettings(extra={"messages": []}), "ModelSettings.extra has ['messages']"),
        (CHAT, ModelSettings(extra={"messages": []}), "ModelSettings.extra has ['messages']"),
        (CHAT, ModelSettings(extra={"stream": []}), "ModelSettings.extra has ['stream']"),
        (GPT, ModelSettings(extra={"input": []}), "ModelSettings.extra has ['input']"),
        (GPT, ModelSettings(extra={"previous_response_id": "r"}), "ModelSettings.extra has ['previous_response_id']"),
        *[(model, ModelSettings(extra={"x": {1, 2}}), "cannot be written as JSON") for model in MODELS],  # pyright: ignore[reportArgumentType]
        (OpenAIChatModel("m", endpoint=replace(VLLM, reasoning=Reasoning())), ModelSettings(thinking="low"), NO_FIELD),
        (OpenAIChatModel("m", endpoint=OPENROUTER), ModelSettings(thinking=9_000), BEYOND),
        (
            SONNET,
            ModelSettings(temperature=0),
            "claude-sonnet-5-5 takes no temperature. Leave it out of ModelSettings, or",
        ),
        (
            AnthropicModel("claude-opus-4-7"),
            ModelSettings(temperature=1, top_p=0.5),
            "takes no temperature and no top_p.",
        ),
        (
            AnthropicModel("claude-haiku-4-5"),
            ModelSettings(seed=7),
            "takes no seed over the Messages API. Leave it out of",
        ),
        (
            AnthropicModel("claude-haiku-4-5"),
            ModelSettings(temperature=0.1, thinking=2_000),
            "temperature while it reasons",
        ),
        (GPT, ModelSettings(seed=7, stop=("END",)), "takes no seed and no stop over the Responses API."),
        (OpenAIModel("gpt-5"), ModelSettings(temperature=0.5), "openai:gpt-5 takes no temperature while it reasons."),
        (OpenAIModel("gpt-5.1"), ModelSettings(top_p=0.5, thinking="low"), "takes no top_p while it reasons"),
        (OpenAIChatModel("o3"), ModelSettings(temperature=0.5), "openai:o3 takes no temperature while it reasons."),
        (GoogleModel("gemini-3-flash"), ModelSettings(thinking="off"), ALWAYS),
        (GoogleModel("gemini-3-flash"), ModelSettings(thinking=2_000), NO_BUDGET),
        (GoogleModel("gemini-2.5-pro"), ModelSettings(thinking="off"), "always reasons"),
        (GoogleModel("gemini-2.5-flash"), ModelSettings(thinking=100), "budget of 100 is not between 512 and 24576"),
        (GoogleModel("gemini-2.0-flash"), ModelSettings(thinking="low"), "does not reason. Leave ModelSettings.thi"),
        (GoogleModel("gemini-3-flash"), ModelSettings(extra={"contents": []}), "has ['contents']"),
        (GoogleModel("gemini-3-flash"), ModelSettings(extra={"systemInstruction": []}), "['systemInstruction']"),
    ],
)
def test_settings_that_the_api_would_refuse_are_refused_before_anything_is_sent_and_never_dropped(
    model: AnyModel, settings: ModelSettings, said: str
) -> None:
    with pytest.raises(ProviderError) as caught:
        body_of(model, settings=settings, tools=())
    assert said in str(caught.value)
    assert (caught.value.kind, caught.value.usage) == ("bad_request", Usage())


@pytest.mark.parametrize("adapter", [OpenAIChatModel, OpenAIModel])
@pytest.mark.parametrize(
    ("name", "level", "effort"),
    [
        ("gpt-5", "minimal", "minimal"),
        ("gpt-5", "max", "high"),
        ("gpt-5.1", "minimal", "low"),
        ("gpt-5.1", "off", "none"),
        ("gpt-5.1", "medium", "medium"),
        ("gpt-5.1", "max", "high"),
        ("gpt-5.2", "off", "none"),
        ("gpt-5.2", "minimal", "low"),
        ("gpt-5.2", "low", "low"),
        ("gpt-5.2", "medium", "medium"),
        ("gpt-5.2", "high", "high"),
        ("gpt-5.2", "max", "xhigh"),
        ("gpt-5.6-sol", "max", "max"),
        ("o3", "high", "high"),
        ("o3", "max", "high"),
        ("unknown", "low", "low"),
    ],
)
def test_a_level_of_thinking_becomes_the_effort_that_the_model_knows(
    adapter: type[OpenAIChatModel | OpenAIModel], name: str, level: ThinkingLevel, effort: str
) -> None:
    body = body_of(adapter(name), settings=ModelSettings(thinking=level), tools=())
    assert body.get("reasoning_effort", body.get("reasoning")) in (effort, {"effort": effort})
    assert faults_of(adapter(name), body) == []


def nested(levels: int) -> JsonObject:
    schema = closed()
    for _ in range(levels - 1):
        schema = closed(a=schema)
    return schema


DATE_OR_NOT: JsonObject = {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}
IN_ITSELF: JsonObject = {"A": closed(a={"$ref": "#/$defs/A"})}
LISTED: JsonObject = {"type": "array", "items": closed(c={"type": "string", "enum": ["x"]}), "minItems": 1}
TO_A: JsonObject = {"$ref": "#/$defs/A"}
LOSSLESS: dict[str, tuple[JsonObject, str]] = {
    "nothing": (closed(), "anthropic openai"),
    "a list of objects": (closed(a=PLAIN, b=LISTED), "anthropic openai"),
    **{
        f"a format, {each}": (closed(a={"type": "string", "format": each}), "anthropic openai")
        for each in ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid")
    },
    "an address for Anthropic": (closed(a={"type": "string", "format": "uri"}), "anthropic"),
    "unions": (closed(a=DATE_OR_NOT, b={"type": ["integer", "null"]}), "anthropic openai"),
    "a constant": ({**closed(a=TO_A), "$defs": {"A": closed(b={"type": "integer", "const": 3})}}, "anthropic openai"),
    "choices of many kinds": (closed(a={"enum": ["x", 1, None]}), "anthropic"),
    "a constant without type": ({**closed(a=TO_A), "$defs": {"A": closed(b={"const": 3})}}, "anthropic"),
    "numbers": (closed(a={"type": "integer", "minimum": 1, "exclusiveMaximum": 9}), "openai"),
    "two items": (closed(a={"type": "array", "items": PLAIN, "minItems": 2}), "openai"),
    "recursion": ({**closed(a=TO_A), "$defs": {"A": closed(a={"anyOf": [TO_A, PLAIN]})}}, "openai"),
    "five levels": (nested(5), "anthropic openai"),
    "a hundred fields": (closed(**{f"p{n}": PLAIN for n in range(100)}), "anthropic openai"),
    "an open object": ({"type": "object", "properties": {"a": PLAIN}, "required": ["a"]}, ""),
    "other properties": ({**closed(a=PLAIN), "additionalProperties": True}, ""),
    "an optional field": ({**closed(a=PLAIN), "required": []}, ""),
    "a pattern": (closed(a={"type": "string", "pattern": "^x"}), ""),
    "a list of anything": (closed(a={"type": "array"}), ""),
    "a choice of objects": (closed(a={"enum": [{"b": 1}]}), ""),
    "anything": (closed(a={}), ""),
    "a schema elsewhere": (closed(a={"$ref": "https://example.com/schema"}), ""),
    "a definition that is missing": (closed(a={"$ref": "#/$defs/missing"}), ""),
    "a reference by name": ({**closed(a={"$ref": "A"}), "$defs": {"A": closed()}}, ""),
    "one of none": (closed(a={**PLAIN, "oneOf": []}), ""),
}
LOST_TO: dict[str, tuple[str, JsonObject]] = {
    "a definition in itself": ("anthropic", {**closed(a=TO_A), "$defs": IN_ITSELF}),
    "bytes": ("anthropic", closed(a={"type": "string", "format": "binary"})),
    "a shortest text": ("openai", closed(a={"type": "string", "minLength": 1})),
    "a default": ("openai", closed(a={"type": "string", "default": "x"})),
    "a list of any items": ("openai", closed(a={"type": "array", "items": {}})),
    "choices of two kinds": ("openai", closed(a={"enum": ["x", 1]})),
    "a text that is an object": ("openai", closed(a={"type": "string", "enum": [{"b": 1}]})),
    "a type that there is not": ("openai", closed(a={"type": "file"})),
    "a type that is an object": ("openai", closed(a={"type": {"b": 1}})),
    "words beside a reference": ("openai", {**closed(a={**TO_A, "description": "b"}), "$defs": {"A": closed()}}),
    "an open definition": ("openai", {**closed(a=PLAIN), "$defs": {"A": {"type": "object"}}}),
    "a choice of whole schemas": ("openai", {**closed(a=PLAIN), "anyOf": [closed()]}),
    "six levels": ("openai", nested(6)),
    "a hundred and one fields": ("openai", closed(**{f"p{n}": PLAIN for n in range(101)})),
    "501 choices": ("openai", closed(a={"type": "integer", "enum": [*range(501)]})),
}


def enforced(model: AnyModel, schema: JsonObject) -> bool:
    body = body_of(model, tools=(strict_tool(schema),))
    [sent] = body["tools"]
    is_strict = sent["strict"] if model is GPT else sent.get("strict", False)  # left out, it would be true for GPT
    assert not is_strict or faults_of(model, body) == []
    return is_strict


@pytest.mark.parametrize("name", LOSSLESS)
def test_a_schema_is_enforced_where_that_loses_nothing(name: str) -> None:
    schema, by = LOSSLESS[name]
    assert [enforced(model, schema) for model in (SONNET, GPT)] == ["anthropic" in by, "openai" in by]


@pytest.mark.parametrize("name", LOST_TO)
def test_a_schema_that_would_lose_something_or_be_refused_is_not_enforced(name: str) -> None:
    service, schema = LOST_TO[name]
    assert not enforced(SONNET if service == "anthropic" else GPT, schema)


@each_of_openai
def test_a_tool_without_parameters_has_an_empty_object_of_them(model: AnyModel) -> None:
    body = body_of(model, tools=(strict_tool({"type": "object"}),))
    [tool] = body["tools"]
    assert tool.get("function", tool)["parameters"] == {"type": "object", "properties": {}}
    assert faults_of(model, body) == []


PLAIN_SAMPLING = ModelSettings(temperature=0.2, top_p=0.9)
WITH_STOP = replace(PLAIN_SAMPLING, stop=("END",))
WITH_SEED = replace(WITH_STOP, seed=7)
SAMPLED: Json = {"temperature": 0.2, "top_p": 0.9}


@pytest.mark.parametrize(
    ("model", "settings", "fields"),
    [
        (AnthropicModel("claude-haiku-4-5"), WITH_STOP, {**SAMPLED, "stop_sequences": ["END"]}),
        (AnthropicModel("claude-next"), PLAIN_SAMPLING, SAMPLED),
        (CHAT, WITH_SEED, {**SAMPLED, "seed": 7, "stop": ["END"]}),
        (OpenAIChatModel("m", endpoint=MISTRAL), WITH_SEED, {**SAMPLED, "random_seed": 7, "stop": ["END"]}),
        (OpenAIChatModel("gpt-oss-20b", endpoint=VLLM), WITH_SEED, {**SAMPLED, "seed": 7, "stop": ["END"]}),
        (OpenAIModel("gpt-4.1"), PLAIN_SAMPLING, SAMPLED),
        (OpenAIModel("gpt-5.1"), PLAIN_SAMPLING, SAMPLED),
    ],
)
def test_how_words_are_chosen_is_said_by_the_names_of_the_api(
    model: AnyModel, settings: ModelSettings, fields: Json
) -> None:
    plain, said = body_of(model, tools=()), body_of(model, settings=settings, tools=())
    assert {name: said[name] for name in said if name not in plain} == fields
