"""Requests that the Messages API takes, one per feature, and those that it refuses.

Each of the latter is a good one with one fault, beside the rule that must find it.
"""

from tests.support.messages_json import Json
from tests.support_tests.mutants import add, both, drop, put, refusals

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
OLDER_DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
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
    "a form": body(ASKED, output_config={"effort": "low", "format": {"type": "json_schema", "schema": FORM}}),
    "tool turn": body(ASKED, *turn(text("Let me look."), call("t1", sql="select 1")), tools=[tool()]),
    "parallel results": body(
        ASKED,
        assistant(call("t1"), call("t2"), call("t3", "other")),
        user(result("t1"), result("t2", "no such table", is_error=True), result("t3", ""), text("Be quick.")),
        tools=[tool(), tool("other")],
    ),
    "an id again in a later turn": body(ASKED, *turn(call("t1")), *turn(call("t1")), tools=[tool()]),
    "thinking turn": body(ASKED, *turn(THINKING, text("I look."), call("t1")), tools=[tool()], thinking=MANUAL),
    "thinking only before the first call": body(
        ASKED, *turn(THINKING, call("t1")), *turn(call("t2"), id="t2"), tools=[tool()], thinking=MANUAL
    ),
    "redacted thinking": body(
        ASKED, *turn({"type": "redacted_thinking", "data": "b3BhcXVl"}, call("t1")), tools=[tool()], thinking=MANUAL
    ),
    "adaptive thinking without any": body(
        ASKED, *turn(call("t1")), tools=[tool()], thinking={"type": "adaptive"}, tool_choice={"type": "any"}
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
    "open server call beside a call": body(ASKED, *turn(searched("srvtoolu_1")[0], call("t1")), tools=[SEARCH, tool()]),
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
    "one space in an answer": body(ASKED, assistant(text(" "), text("Well.")), user(text("Pardon?"))),
    "prefill": body(ASKED, assistant(text("The best seller was"))),
    "empty final answer": body(ASKED, assistant()),
}

OPENAI_TOOL: Json = {"type": "function", "function": {"name": "query", "parameters": {"type": "object"}}}
LAST = "messages.2.content"

MUTANTS = refusals(
    {
        "types_fit": {
            "plain text": [
                drop("max_tokens"),
                put("reasoning", "high"),
                put("messages.0.role", "tool"),
                put("messages.0.content", None),
            ],
            "tool turn": [
                put("messages.1.content.1.index", 1),
                put("messages.1.content.1.input", '{"sql": "select 1"}'),
                put("tools.0", OPENAI_TOOL),
            ],
            "images": [put(f"{LAST}.0.content", [call("t9")])],
        },
        "there_is_a_message": {"plain text": [put("messages", [])]},
        "content_is_not_empty": {
            "plain text": [put("messages.0.content", "")],
            "one space in an answer": [put("messages.1.content", [])],
        },
        "text_is_not_empty": {
            "tool turn": [put("messages.1.content.0.text", "")],
            "everything optional": [put("system.0.text", "")],
            "images": [put(f"{LAST}.0.content.0.text", "")],
        },
        "user_text_is_not_blank": {"plain text": [put("messages.0.content", " \n")]},
        "an_answer_is_not_blank": {
            "one space in an answer": [drop("messages.1.content.1"), put("messages.1.content", " \n")],
            "thinking turn": [put("messages.1", assistant(THINKING, text(" ")))],
        },
        "an_answer_does_not_end_in_thinking": {
            "thinking turn": [put("messages.1", assistant(text("I look."), THINKING))]
        },
        "the_final_answer_has_no_trailing_space": {
            "prefill": [put("messages.1.content.0.text", "The best seller was ")]
        },
        "block_types_fit_the_role": {
            "plain text": [put("messages.0", user(call("t1")))],
            "thinking turn": [add(LAST, THINKING)],
            "server tool": [add(LAST, *searched("srvtoolu_2"))],
            "tool turn": [put("messages.2.role", "assistant")],
        },
        "every_call_is_answered": {
            "tool turn": [
                drop("messages.2"),
                both(
                    put("messages.2", user(text("Wait."))),
                    add("messages", assistant(text("Well.")), user(result("t1"))),
                ),
            ],
            "parallel results": [drop(f"{LAST}.1")],
        },
        "every_result_has_its_call": {"tool turn": [add(LAST, result("t9")), drop("messages.1")]},
        "tool_results_come_first": {"tool turn": [put(LAST, [text("Here:"), result("t1")])]},
        "a_call_is_answered_once": {"tool turn": [add(LAST, result("t1", "43"))]},
        "call_ids_are_unique_in_a_turn": {"parallel results": [put("messages.1.content.1.id", "t1")]},
        "tool_use_ids_fit_the_pattern": {
            "tool turn": [
                both(put("messages.1.content.1.id", "call.1"), put(f"{LAST}.0.tool_use_id", "call.1")),
                both(put("messages.1.content.1.id", ""), put(f"{LAST}.0.tool_use_id", "")),
            ]
        },
        "error_results_have_content": {
            "tool turn": [put(f"{LAST}.0", result("t1", "", is_error=True))],
            "parallel results": [put(f"{LAST}.1.content", [])],
        },
        "searches_fit": {
            "server tool": [
                both(put("tools.0.allowed_domains", ["a.com"]), put("tools.0.blocked_domains", ["b.com"])),
                put("tools.0.allowed_domains", ["https://a.com"]),
            ]
        },
        "server_results_have_their_call": {"server tool": [drop("messages.1.content.0")]},
        "an_open_server_call_takes_only_results": {
            "server tool": [drop("messages.1.content.1")],
            "open server call beside a call": [add(LAST, text("Hurry."))],
        },
        "the_tool_turn_starts_with_thinking": {
            "thinking only before the first call": [drop("messages.1.content.0")],
            "thinking turn": [put("messages.1", assistant(text("I look."), THINKING, call("t1")))],
        },
        "thinking_is_signed": {"thinking turn": [put("messages.1.content.0.signature", "")]},
        "tools_are_given_for_tool_blocks": {"tool turn": [drop("tools")]},
        "tool_names_fit_the_pattern": {"tool turn": [put("tools.0.name", "db.query"), put("tools.0.name", "q" * 129)]},
        "tool_names_are_unique": {"tool turn": [add("tools", tool())]},
        "a_tool_schema_is_an_object": {
            "tool turn": [
                put("tools.0.input_schema", {"type": "array"}),
                put("tools.0", tool(anyOf=[{"required": ["sql"]}])),
            ]
        },
        "a_tool_schema_is_valid": {
            "tool turn": [put("tools.0.input_schema.properties.sql.type", "text")],
            "tool schema that names an older draft": [
                put("tools.0.input_schema.properties.sql", {"type": "array", "items": [{"type": "string"}]})
            ],
        },
        "tool_choice_has_its_tools": {"everything optional": [drop("tools")]},
        "not_every_tool_is_deferred": {"deferred tool": [put("tools.0.defer_loading", True)]},
        "deferred_tools_have_no_cache_mark": {"deferred tool": [put("tools.1.cache_control", MARK)]},
        "references_name_deferred_tools": {
            "deferred tool": [put("messages.2.content.0.content.0.tool_name", "other"), drop("tools.1.defer_loading")]
        },
        "the_form_of_the_answer_is_closed": {
            "a form": [
                drop("output_config.format.schema.additionalProperties"),
                put("output_config.format.schema.properties.total", {"type": "number", "minimum": 0}),
                put("output_config.format.schema.properties.total", {"description": "Anything."}),
                put("output_config.format.schema.$defs.Row.properties", {"next": {"$ref": "#/$defs/Row"}}),
            ]
        },
        "files_are_of_a_kind_that_is_taken": {
            "images": [
                put("messages.0.content.0.source.media_type", "image/tiff"),
                put("messages.0.content.0.source.data", "A" * (5 * 1024 * 1024 + 4)),
            ]
        },
        "the_thinking_budget_fits": {
            "thinking turn": [put("thinking.budget_tokens", 1023), put("thinking.budget_tokens", 4096)]
        },
        "thinking_allows_no_forced_tool": {"thinking turn": [put("tool_choice", {"type": "any"})]},
        "thinking_allows_no_prefill": {"prefill": [put("thinking", MANUAL), put("thinking", {"type": "adaptive"})]},
        "there_are_at_most_four_cache_marks": {"four cache marks": [put("messages.1.content.0.cache_control", MARK)]},
        "cache_marks_sit_on_content": {
            "thinking turn": [put("messages.1.content.0.cache_control", MARK)],
            "four cache marks": [put("system.0.text", "")],
        },
    }
)

SERVED_MUTANTS = refusals(
    {
        "answers_come_back_unchanged": {
            "thinking turn": [
                put("messages.1.content.0.thinking", "A query is fine."),
                put("messages.1.content.0.signature", "Zm9yZ2Vk"),
                drop("messages.1.content.0"),
                put("messages.1.content.1.text", "I'll look."),
                drop("messages.1.content.1"),
                put("messages.1.content.2.input.limit", 10),
                put("messages.1", assistant(THINKING, call("t1"), text("I look."))),
            ],
            "redacted thinking": [put("messages.1.content.0.data", "eHh4")],
        }
    }
)

HEADER_MUTANTS: dict[str, tuple[str, dict[str, str]]] = {
    "no key": ("a_key_is_given", {"x-api-key": ""}),
    "basic authorization": ("a_key_is_given", {"x-api-key": "", "authorization": "Basic azpr"}),
    "no version": ("the_version_is_given", {"anthropic-version": ""}),
    "version as a number": ("the_version_is_given", {"anthropic-version": "v1"}),
    "form data": ("the_content_type_is_json", {"content-type": "application/x-www-form-urlencoded"}),
    "no content type": ("the_content_type_is_json", {"content-type": ""}),
}
