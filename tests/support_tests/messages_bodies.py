"""Requests that the Messages API takes, one per feature."""

from tests.support.messages_json import Json

HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01", "content-type": "application/json"}

MARK: Json = {"type": "ephemeral"}
LONG_MARK: Json = {"type": "ephemeral", "ttl": "1h"}
THINKING: Json = {"type": "thinking", "thinking": "A query will do.", "signature": "c2lnbmVk"}
SEARCH: Json = {"type": "web_search_20250305", "name": "web_search"}
PNG: Json = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


def text(value: str, **more: object) -> Json:
    return {"type": "text", "text": value, **more}


def call(id: str, name: str = "query", **arguments: object) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(id: str, content: object = "42", **more: object) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def searched(id: str) -> list[Json]:
    hit = {"type": "web_search_result", "title": "May", "url": "https://example.com", "encrypted_content": "e"}
    return [
        {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "May"}},
        {"type": "web_search_tool_result", "tool_use_id": id, "content": [hit]},
    ]


def tool(name: str = "query", **schema: object) -> Json:
    properties: Json = {"sql": {"type": "string"}, "limit": {"type": ["integer", "null"]}}
    made: Json = {"type": "object", "properties": properties, "required": ["sql"], **schema}
    return {"name": name, "description": "Run one query.", "input_schema": made}


def user(*content: object) -> Json:
    return {"role": "user", "content": list(content)}


def assistant(*content: object) -> Json:
    return {"role": "assistant", "content": list(content)}


def turn(*content: object, id: str = "t1") -> list[Json]:
    """Return what the assistant says with one call, and the call's result."""
    return [assistant(*content), user(result(id))]


def body(*messages: Json, **more: object) -> Json:
    return {"model": "claude-test", "max_tokens": 4096, "messages": list(messages), **more}


ASKED: Json = {"role": "user", "content": "What sold best in May?"}
MANUAL: Json = {"type": "enabled", "budget_tokens": 2048}
FORM: Json = {
    "$defs": {"Row": {"type": "object", "properties": {}, "required": [], "additionalProperties": False}},
    "type": "object",
    "properties": {"total": {"type": "number"}, "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}}},
    "required": ["total"],
    "additionalProperties": False,
}

GOOD: dict[str, Json] = {
    "plain text": body(ASKED),
    "a form": body(ASKED, output_config={"effort": "low", "format": {"type": "json_schema", "schema": FORM}}),
    "tool turn": body(ASKED, *turn(text("Let me look."), call("t1", sql="select 1")), tools=[tool()]),
    "parallel calls": body(
        ASKED,
        assistant(call("t1"), call("t2"), call("t3", "other")),
        user(result("t1"), result("t2", "no such table", is_error=True), result("t3", ""), text("Be quick.")),
        tools=[tool(), tool("other")],
    ),
    "thinking turn": body(ASKED, *turn(THINKING, text("I look."), call("t1")), tools=[tool()], thinking=MANUAL),
    "images": body(
        user({"type": "image", "source": PNG}, text("What is it?")),
        assistant(call("t1")),
        user(result("t1", [text("a chart"), {"type": "image", "source": PNG}])),
        tools=[tool()],
    ),
    "four cache marks": body(
        ASKED,
        assistant(call("t1")),
        user(result("t1", [text("rows", cache_control=MARK)], cache_control=MARK)),
        tools=[{**tool(), "cache_control": LONG_MARK}],
        system=[text("Be careful.", cache_control=LONG_MARK)],
    ),
    "server tool": body(
        ASKED, assistant(*searched("srvtoolu_1"), text("Umbrellas.")), user(text("And in June?")), tools=[SEARCH]
    ),
    "deferred tool": body(
        ASKED,
        assistant(call("t1")),
        user({**result("t1"), "content": [{"type": "tool_reference", "tool_name": "later"}]}),
        tools=[tool(), {**tool(), "name": "later", "defer_loading": True}],
    ),
    "one space in an answer": body(ASKED, assistant(text(" "), text("Well.")), user(text("Pardon?"))),
    "prefill": body(ASKED, assistant(text("The best seller was"))),
}
