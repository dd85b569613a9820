"""Requests that the Messages API refuses: each is a good one with one fault, beside the rule that must find it."""

from tests.support.messages_json import Json
from tests.support_tests.messages_bodies import (
    MANUAL,
    MARK,
    THINKING,
    assistant,
    call,
    result,
    searched,
    text,
    tool,
    user,
)
from tests.support_tests.mutants import add, both, drop, put, refusals

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
            "one space as an answer": [put("messages.1.content", [])],
        },
        "text_is_not_empty": {
            "tool turn": [put("messages.1.content.0.text", "")],
            "everything optional": [put("system.0.text", "")],
            "images": [put(f"{LAST}.0.content.0.text", "")],
        },
        "user_text_is_not_blank": {"plain text": [put("messages.0.content", " \n")]},
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
