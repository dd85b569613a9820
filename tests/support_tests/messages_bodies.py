"""Requests that the Messages API takes, one per feature; `test_messages_rules.py` breaks them one by one."""

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


def body(*messages: Json, **more: object) -> Json:
    return {"model": "claude-test", "max_tokens": 4096, "messages": list(messages), **more}


ASKED: Json = {"role": "user", "content": "What sold best in May?"}
OLDER_DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
MANUAL: Json = {"type": "enabled", "budget_tokens": 2048}

GOOD: dict[str, Json] = {
    "plain text": body(ASKED),
    "everything optional": body(
        user(text("Hello")),
        system=[text("Be careful.")],
        stop_sequences=["END"],
        metadata={"user_id": "u1"},
        service_tier="auto",
        stream=True,
        tools=[tool()],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        output_config={"effort": "low"},
    ),
    "tool turn": body(
        ASKED, assistant(text("Let me look."), call("t1", sql="select 1")), user(result("t1")), tools=[tool()]
    ),
    "parallel results": body(
        ASKED,
        assistant(call("t1"), call("t2"), call("t3", "other")),
        user(result("t1"), result("t2", "no such table", is_error=True), result("t3", ""), text("Be quick.")),
        tools=[tool(), tool("other")],
    ),
    "an id again in a later turn": body(
        ASKED, assistant(call("t1")), user(result("t1")), assistant(call("t1")), user(result("t1")), tools=[tool()]
    ),
    "thinking turn": body(
        ASKED, assistant(THINKING, text("I look."), call("t1")), user(result("t1")), tools=[tool()], thinking=MANUAL
    ),
    "thinking only before the first call": body(
        ASKED,
        assistant(THINKING, call("t1")),
        user(result("t1")),
        assistant(call("t2")),
        user(result("t2")),
        tools=[tool()],
        thinking=MANUAL,
    ),
    "redacted thinking": body(
        ASKED,
        assistant({"type": "redacted_thinking", "data": "b3BhcXVl"}, call("t1")),
        user(result("t1")),
        tools=[tool()],
        thinking=MANUAL,
    ),
    "adaptive thinking without any": body(
        ASKED,
        assistant(call("t1")),
        user(result("t1")),
        tools=[tool()],
        thinking={"type": "adaptive"},
        tool_choice={"type": "any"},
    ),
    "images": body(
        user({"type": "image", "source": PNG}, text("What is it?")),
        assistant(call("t1")),
        user(result("t1", [text("a chart"), {"type": "image", "source": PNG}])),
        tools=[tool()],
    ),
    "documents": body(
        user(
            {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "Sales"},
                "title": "Sales",
                "citations": {"enabled": True},
            },
            text("Summarise."),
        )
    ),
    "four cache marks": body(
        ASKED,
        assistant(call("t1")),
        user(result("t1", [text("rows", cache_control=MARK)], cache_control=MARK)),
        tools=[{**tool(), "cache_control": LONG_MARK}],
        system=[text("Be careful.", cache_control=LONG_MARK)],
    ),
    "pause continued": body(
        ASKED, assistant(text("I search. "), searched("srvtoolu_1")[0]), tools=[SEARCH], thinking={"type": "adaptive"}
    ),
    "server tool": body(
        ASKED, assistant(*searched("srvtoolu_1"), text("Umbrellas.")), user(text("And in June?")), tools=[SEARCH]
    ),
    "open server call beside a call": body(
        ASKED, assistant(searched("srvtoolu_1")[0], call("t1")), user(result("t1")), tools=[SEARCH, tool()]
    ),
    "strict tool": body(
        ASKED,
        tools=[{**tool(additionalProperties=False), "strict": True}],
        tool_choice={"type": "tool", "name": "query"},
    ),
    "deferred tool": body(
        ASKED,
        assistant(call("t1")),
        user({**result("t1"), "content": [{"type": "tool_reference", "tool_name": "later"}]}),
        tools=[tool(), {**tool(), "name": "later", "defer_loading": True}],
    ),
    "tool schema that names an older draft": body(ASKED, tools=[tool(**OLDER_DRAFT)]),
    "one space as an answer": body(ASKED, assistant(text(" ")), user(text("Pardon?"))),
    "prefill": body(ASKED, assistant(text("The best seller was"))),
    "empty final answer": body(ASKED, assistant()),
}
