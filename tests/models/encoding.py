"""Requests as the encoders write them, without a server: what the tests of all of them share."""

from typing import Any, TypeAlias

import orjson
from hypothesis import strategies as st

from journeyman import ToolResult
from journeyman.model import CachePolicy, ModelSettings, Prefix, Request, ToolSpec
from journeyman.models.anthropic import AnthropicModel
from journeyman.models.google import GoogleModel
from journeyman.models.openai import OpenAIChatModel, OpenAIModel
from journeyman.types import Block, JsonObject, Message, Opaque, Text, Thinking, ToolUse
from tests.models.asking import HELLO, QUERY, Json
from tests.support import gemini_rules, messages_rules, openai_rules

AnyModel: TypeAlias = AnthropicModel | GoogleModel | OpenAIChatModel | OpenAIModel

JUDGED_HEADERS = {"content-type": "application/json", "authorization": "Bearer k", "anthropic-version": "2026-10-21"}


def request(
    *messages: Message,
    system: tuple[Text, ...] = (),
    tools: tuple[ToolSpec, ...] = (QUERY,),
    settings: ModelSettings | None = None,
    cache: CachePolicy = "off",
    max_tokens: int | None = None,
) -> Request:
    prefix = Prefix(system=system, tools=tools)
    settings = settings or ModelSettings(cache=cache)
    return Request(prefix=prefix, messages=messages or (HELLO,), settings=settings, max_tokens=max_tokens)


def body_of(model: AnyModel, *messages: Message, **more: Any) -> Json:
    return orjson.loads(model.body(request(*messages, **more)))


def user(*content: Block) -> Message:
    return Message("user", content)


def assistant(*content: Block, continues: bool = False) -> Message:
    return Message("assistant", content, continues)


def faults_of(model: AnyModel, body: Json) -> list[str]:
    """Return what the model's service would have against a request."""
    if isinstance(model, AnthropicModel):
        return messages_rules.judge(body, JUDGED_HEADERS)
    if isinstance(model, GoogleModel):
        return gemini_rules.judge(model.name, body, JUDGED_HEADERS)
    return openai_rules.judge("chat" if isinstance(model, OpenAIChatModel) else "responses", body, JUDGED_HEADERS)


def strict_tool(schema: JsonObject, name: str = "save") -> ToolSpec:
    return ToolSpec(name=name, description="", input_schema=schema, strict=True)


def closed(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {**properties}, "required": [*properties], "additionalProperties": False}


PLAIN: JsonObject = {"type": "string", "description": "a name"}


_ITEM = '{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA=="}'
_KEPT: tuple[tuple[Block, ...], ...] = (
    *((), (Thinking("Hm.", "sig", "anthropic"),), (Opaque("elsewhere", '{"type":"x"}'),)),
    *[(Thinking("Hm.", f"{_ITEM}\n{pair}", "openai"),) for pair in ("function_call fc_1", "message msg_1")],
)
"""What only one provider can read."""


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Message, ...]]:
    """Growing histories, each as it is when a request is made; answers pause, and bring what one provider reads."""
    texts, marks, kept = st.text(max_size=12), st.booleans(), st.sampled_from(_KEPT)
    written = st.lists(st.sampled_from(["{}", '{"sql": "1"}']), max_size=30)
    pauses = st.lists(st.tuples(st.sampled_from(["Wait. ", "So\n", "x"]), st.booleans()), max_size=2)
    messages: list[Message] = [user(Text("Begin."), Text(draw(texts), cache_mark=draw(marks)))]
    requests: list[tuple[Message, ...]] = [tuple(messages)]
    for turn in range(draw(st.integers(1, 5))):
        for number, (text, think) in enumerate(draw(pauses)):
            blocks = (Thinking("t", "sig", "anthropic"),) * think + (Text(text),)
            messages.append(assistant(*blocks, continues=number > 0))
            requests.append(tuple(messages))
        calls = [ToolUse(f"t:{turn}_{n}", "query", arguments) for n, arguments in enumerate(draw(written))]
        said = (*draw(kept), Text(draw(texts)), Text("Done."), *calls, *draw(kept))
        messages.append(assistant(*said, continues=messages[-1].role == "assistant"))
        results = [ToolResult(draw(texts) + ".", draw(marks), call.id) for call in calls]
        spoken = [Text("Next.", cache_mark=draw(marks))] * draw(st.integers(0 if calls else 1, 2))
        messages.append(user(*results, *spoken))
        requests.append(tuple(messages))
    return requests
