"""Requests that OpenAI's APIs take, one per feature."""

from tests.support.messages_json import Json
from tests.support.strict_schema import Api

HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}
PNG = "data:image/png;base64,iVBORw0KGgo="
ENCRYPTED = "c2VhbGVk"


def parameters(**more: object) -> Json:
    properties: Json = {"sql": {"type": "string"}, "limit": {"type": ["integer", "null"]}}
    return {"type": "object", "properties": properties, "required": ["sql"], **more}


def strict() -> Json:
    return parameters(required=["sql", "limit"], additionalProperties=False)


def tool(name: str = "query", schema: Json | None = None, **more: object) -> Json:
    function = {"name": name, "description": "Run one query.", "parameters": schema or parameters(), **more}
    return {"type": "function", "function": function}


def call(id: str, name: str = "query", arguments: str = '{"sql":"select 1"}') -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def said(content: object = None, *calls: Json, **more: object) -> Json:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}


def result(id: str, content: object = "42") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def user(content: object) -> Json:
    return {"role": "user", "content": content}


def chat(*messages: Json, **more: object) -> Json:
    return {"model": "gpt-test", "messages": list(messages), **more}


def turn(call: Json) -> Json:
    """Return a request that brings back one call."""
    return chat(ASKED, said(None, call), result(str(call["id"])), tools=[tool()])


ASKED = user("What sold best in May?")

CHAT: dict[str, Json] = {
    "plain text": chat(ASKED),
    "a sound": chat(
        user(
            [
                {"type": "text", "text": "What is said?"},
                {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
            ]
        )
    ),
    "tool turn": chat(
        {"role": "system", "content": "Be careful."},
        ASKED,
        said("Let me look.", call("call_1")),
        result("call_1"),
        tools=[tool()],
    ),
    "parallel calls": chat(
        ASKED,
        said(None, call("call_1"), call("call_2"), call("call_3", "other", "{}")),
        result("call_2", [{"type": "text", "text": "no such table"}]),
        result("call_1"),
        result("call_3", ""),
        user("Be quick."),
        tools=[tool(), tool("other")],
    ),
    "a refusal": chat(ASKED, said(None, refusal="No."), user("Why?")),
    "pictures": chat(
        user([{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PNG}}]),
        said("A chart."),
        user([{"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}]),
    ),
    "strict": chat(
        ASKED,
        tools=[tool(schema=strict(), strict=True)],
        tool_choice="required",
        response_format={"type": "json_schema", "json_schema": {"name": "report", "schema": strict(), "strict": True}},
    ),
}


def flat(name: str = "query", schema: Json | None = None, *, strict: bool = False) -> Json:
    tool: Json = {"type": "function", "name": name, "description": "Run one query."}
    return {**tool, "parameters": schema or parameters(), "strict": strict}


def called(call_id: str, name: str = "query", arguments: str = '{"sql":"select 1"}', **more: object) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def output(id: str, value: object = "42") -> Json:
    return {"type": "function_call_output", "call_id": id, "output": value}


def thought(id: str = "rs_1", **more: object) -> Json:
    summary = [{"type": "summary_text", "text": "A query will do."}]
    return {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": ENCRYPTED, **more}


def message(value: str, **more: object) -> Json:
    part: Json = {"type": "output_text", "text": value, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part], "id": "msg_1", "status": "completed", **more}


def responses(*items: Json, **more: object) -> Json:
    return {"model": "gpt-test", "input": list(items), **more}


RESPONSES: dict[str, Json] = {
    "plain text": {"model": "gpt-test", "input": "What sold best in May?"},
    "hosted tools": responses(
        user([{"type": "input_text", "text": "Hello"}]),
        tools=[{"type": "web_search"}, {"type": "file_search", "vector_store_ids": ["vs_1"]}],
        max_tool_calls=2,
    ),
    "tool turn": responses(
        {"role": "developer", "content": "Be careful."},
        ASKED,
        message("Let me look."),
        called("call_1"),
        output("call_1"),
        tools=[flat()],
    ),
    "parallel calls": responses(
        ASKED,
        called("call_1", id="fc_1", status="completed"),
        called("call_2", "other", "{}"),
        output("call_2", [{"type": "input_text", "text": "a chart"}, {"type": "input_image", "image_url": PNG}]),
        output("call_1"),
        user("Be quick."),
        tools=[flat(), flat("other")],
    ),
    "reasoning": responses(
        ASKED,
        thought(),
        called("call_1", id="fc_1"),
        output("call_1"),
        thought("rs_2"),
        message("Umbrellas."),
        user("And June?"),
        tools=[flat()],
        store=False,
    ),
    "pictures": responses(
        user(
            [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": PNG, "detail": "auto"}]
        ),
        {"role": "assistant", "content": [{"type": "output_text", "text": "A chart.", "annotations": []}]},
        user([{"type": "input_file", "file_url": "https://example.com/a.pdf"}]),
    ),
    "strict": responses(
        ASKED,
        tools=[flat(schema=strict(), strict=True)],
        tool_choice="required",
        text={"format": {"type": "json_schema", "name": "report", "schema": strict(), "strict": True}},
    ),
}

GOOD: dict[Api, dict[str, Json]] = {"chat": CHAT, "responses": RESPONSES}
