"""Requests as the encoders write them, without a server: what the tests of all of them share."""

from typing import Any, TypeAlias

import orjson

from journeyman.model import CachePolicy, Prefix, Request, Settings, ToolSpec
from journeyman.models.anthropic import AnthropicModel
from journeyman.models.openai import OpenAIChatModel, OpenAIModel
from journeyman.types import Block, JsonObject, Message, Text
from tests.models.asking import HELLO, QUERY, Json
from tests.support import messages_rules, openai_rules

AnyModel: TypeAlias = AnthropicModel | OpenAIChatModel | OpenAIModel

JUDGED_HEADERS = {"content-type": "application/json", "authorization": "Bearer k", "anthropic-version": "2026-10-21"}


def request(
    *messages: Message,
    system: tuple[Text, ...] = (),
    tools: tuple[ToolSpec, ...] = (QUERY,),
    settings: Settings | None = None,
    cache: CachePolicy = "off",
    max_tokens: int | None = None,
) -> Request:
    prefix = Prefix(system=system, tools=tools)
    settings = settings or Settings(cache=cache)
    return Request(prefix=prefix, messages=messages or (HELLO,), settings=settings, max_tokens=max_tokens)


def body_of(model: AnyModel, *messages: Message, **more: Any) -> Json:  # noqa: ANN401 - as request
    return orjson.loads(model.body(request(*messages, **more)))


def user(*content: Block) -> Message:
    return Message("user", content)


def assistant(*content: Block, continues: bool = False) -> Message:
    return Message("assistant", content, continues)


def faults_of(model: AnyModel, body: Json) -> list[str]:
    """Return what the model's service would have against a request."""
    if isinstance(model, AnthropicModel):
        return messages_rules.judge(body, JUDGED_HEADERS)
    return openai_rules.judge("chat" if isinstance(model, OpenAIChatModel) else "responses", body, JUDGED_HEADERS)


def strict_tool(schema: JsonObject, name: str = "save") -> ToolSpec:
    return ToolSpec(name=name, description="", input_schema=schema, strict=True)


def closed(**properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {**properties}, "required": [*properties], "additionalProperties": False}


PLAIN: JsonObject = {"type": "string", "description": "a name"}
