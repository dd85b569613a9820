"""Requests that the Messages API refuses: each is a good one with one fault, beside the rule that must find it."""

from tests.support.messages_json import Json
from tests.support_tests.messages_bodies import (
    LONG_MARK,
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
from tests.support_tests.mutants import add, both, drop, mutants, put

OPENAI_TOOL: Json = {"type": "function", "function": {"name": "query", "parameters": {"type": "object"}}}
REDACTED: Json = {"type": "redacted_thinking", "data": "b3BhcXVl"}
LAST = "messages.2.content"

MUTANTS = [
    *mutants("types_fit", "plain text", drop("max_tokens"), put("reasoning", "high"), put("messages.0.role", "tool")),
    *mutants("types_fit", "plain text", put("messages.0.content", None), put("workspace_id", "wrkspc_1")),
    *mutants("types_fit", "tool turn", put("messages.1.content.1.index", 1)),
    *mutants("types_fit", "tool turn", put("messages.1.content.1.input", '{"sql": "select 1"}')),
    *mutants("types_fit", "tool turn", put("tools.0", OPENAI_TOOL)),
    *mutants("types_fit", "images", put(f"{LAST}.0.content", [call("t9")])),
    *mutants("there_is_a_message", "plain text", put("messages", [])),
    *mutants("the_first_message_is_no_system_prompt", "system message later on", drop("messages.0")),
    *mutants("content_is_not_empty", "plain text", put("messages.0.content", "")),
    *mutants("content_is_not_empty", "one space as an answer", put("messages.1.content", [])),
    *mutants("text_is_not_empty", "tool turn", put("messages.1.content.0.text", "")),
    *mutants("text_is_not_empty", "everything optional", put("system.0.text", "")),
    *mutants("text_is_not_empty", "images", put(f"{LAST}.0.content.0.text", "")),
    *mutants("user_text_is_not_blank", "plain text", put("messages.0.content", " \n")),
    *mutants(
        "the_final_answer_has_no_trailing_space", "prefill", put("messages.1.content.0.text", "The best seller was ")
    ),
    *mutants("block_types_fit_the_role", "plain text", put("messages.0", user(call("t1")))),
    *mutants("block_types_fit_the_role", "thinking turn", add(LAST, THINKING)),
    *mutants("block_types_fit_the_role", "server tool", add(LAST, *searched("srvtoolu_2"))),
    *mutants("block_types_fit_the_role", "tool turn", put("messages.2.role", "assistant")),
    *mutants("every_tool_use_is_answered", "tool turn", drop("messages.2")),
    *mutants(
        "every_tool_use_is_answered",
        "tool turn",
        both(put("messages.2", user(text("Wait."))), add("messages", assistant(text("Well.")), user(result("t1")))),
    ),
    *mutants("every_tool_use_is_answered", "parallel results", drop(f"{LAST}.1")),
    *mutants("every_tool_result_has_its_tool_use", "tool turn", add(LAST, result("t9")), drop("messages.1")),
    *mutants("tool_results_come_first", "tool turn", put(LAST, [text("Here:"), result("t1")])),
    *mutants("there_is_one_result_per_tool_use", "tool turn", add(LAST, result("t1", "43"))),
    *mutants("tool_use_ids_are_unique_in_a_turn", "parallel results", put("messages.1.content.1.id", "t1")),
    *mutants(
        "tool_use_ids_fit_the_pattern",
        "tool turn",
        both(put("messages.1.content.1.id", "call.1"), put(f"{LAST}.0.tool_use_id", "call.1")),
    ),
    *mutants(
        "tool_use_ids_fit_the_pattern",
        "tool turn",
        both(put("messages.1.content.1.id", ""), put(f"{LAST}.0.tool_use_id", "")),
    ),
    *mutants("error_results_have_content", "tool turn", put(f"{LAST}.0", result("t1", "", is_error=True))),
    *mutants("error_results_have_content", "parallel results", put(f"{LAST}.1.content", [])),
    *mutants("server_results_have_their_call", "server tool", drop("messages.1.content.0")),
    *mutants("an_open_server_call_takes_only_results", "server tool", drop("messages.1.content.1")),
    *mutants("an_open_server_call_takes_only_results", "open server call beside a call", add(LAST, text("Hurry."))),
    *mutants("the_tool_turn_starts_with_thinking", "thinking only before the first call", drop("messages.1.content.0")),
    *mutants(
        "the_tool_turn_starts_with_thinking",
        "thinking turn",
        put("messages.1", assistant(text("I look."), THINKING, call("t1"))),
    ),
    *mutants("thinking_is_signed", "thinking turn", put("messages.1.content.0.signature", "")),
    *mutants("tools_are_given_for_tool_blocks", "tool turn", drop("tools")),
    *mutants("tool_names_fit_the_pattern", "tool turn", put("tools.0.name", "db.query")),
    *mutants("tool_names_fit_the_pattern", "tool turn", put("tools.0.name", "q" * 129)),
    *mutants("tool_names_are_unique", "tool turn", add("tools", tool())),
    *mutants("a_tool_schema_is_an_object", "tool turn", put("tools.0.input_schema", {"type": "array"})),
    *mutants("a_tool_schema_has_no_union_on_top", "tool turn", put("tools.0", tool(anyOf=[{"required": ["sql"]}]))),
    *mutants("a_tool_schema_has_no_union_on_top", "tool turn", put("tools.0", tool(oneOf=[{"required": ["sql"]}]))),
    *mutants("a_tool_schema_has_no_union_on_top", "tool turn", put("tools.0", tool(allOf=[{"required": ["sql"]}]))),
    *mutants("a_tool_schema_is_valid", "tool turn", put("tools.0.input_schema.properties.sql.type", "text")),
    *mutants(
        "a_tool_schema_is_valid",
        "tool schema that names an older draft",
        put("tools.0.input_schema.properties.sql", {"type": "array", "items": [{"type": "string"}]}),
    ),
    *mutants(
        "property_names_fit_the_pattern",
        "tool turn",
        put("tools.0.input_schema.properties.filter[x]", {"type": "string"}),
    ),
    *mutants("tool_choice_names_a_tool", "strict tool", put("tool_choice.name", "delete")),
    *mutants("tool_choice_names_a_tool", "everything optional", drop("tools")),
    *mutants("not_every_tool_is_deferred", "deferred tool", put("tools.0.defer_loading", True)),
    *mutants("deferred_tools_have_no_cache_mark", "deferred tool", put("tools.1.cache_control", MARK)),
    *mutants(
        "references_name_deferred_tools", "deferred tool", put("messages.2.content.0.content.0.tool_name", "other")
    ),
    *mutants("references_name_deferred_tools", "deferred tool", drop("tools.1.defer_loading")),
    *mutants("the_thinking_budget_fits", "thinking turn", put("thinking.budget_tokens", 1023)),
    *mutants("the_thinking_budget_fits", "thinking turn", put("thinking.budget_tokens", 4096)),
    *mutants("thinking_leaves_sampling_alone", "thinking turn", put("temperature", 0.5), put("top_k", 40)),
    *mutants("thinking_leaves_sampling_alone", "thinking turn", put("top_p", 0.9)),
    *mutants("thinking_allows_no_forced_tool", "thinking turn", put("tool_choice", {"type": "any"})),
    *mutants("thinking_allows_no_forced_tool", "thinking turn", put("tool_choice", {"type": "tool", "name": "query"})),
    *mutants("thinking_allows_no_prefill", "prefill", put("thinking", MANUAL), put("thinking", {"type": "adaptive"})),
    *mutants("there_are_at_most_four_cache_marks", "four cache marks", put("cache_control", MARK)),
    *mutants("cache_marks_sit_on_content", "thinking turn", put("messages.1.content.0.cache_control", MARK)),
    *mutants("cache_marks_sit_on_content", "automatic cache mark", put("system.0.text", "")),
    *mutants("longer_cache_marks_come_first", "four cache marks", put(f"{LAST}.0.cache_control", LONG_MARK)),
]

SERVED_MUTANTS = [
    *mutants("answers_come_back_unchanged", "thinking turn", put("messages.1.content.0.thinking", "A query is fine.")),
    *mutants(
        "answers_come_back_unchanged",
        "thinking turn",
        put("messages.1.content.0.signature", "Zm9yZ2Vk"),
        drop("messages.1.content.0"),
    ),
    *mutants(
        "answers_come_back_unchanged",
        "thinking turn",
        put("messages.1.content.1.text", "I'll look."),
        drop("messages.1.content.1"),
    ),
    *mutants("answers_come_back_unchanged", "thinking turn", put("messages.1.content.2.input.limit", 10)),
    *mutants(
        "answers_come_back_unchanged",
        "thinking turn",
        put("messages.1", assistant(THINKING, call("t1"), text("I look."))),
    ),
    *mutants("answers_come_back_unchanged", "redacted thinking", put("messages.1.content.0.data", "eHh4")),
]

HEADER_MUTANTS: dict[str, tuple[str, dict[str, str]]] = {
    "no key": ("a_key_is_given", {"x-api-key": ""}),
    "basic authorization": ("a_key_is_given", {"x-api-key": "", "authorization": "Basic azpr"}),
    "no version": ("the_version_is_given", {"anthropic-version": ""}),
    "version as a number": ("the_version_is_given", {"anthropic-version": "v1"}),
    "form data": ("the_content_type_is_json", {"content-type": "application/x-www-form-urlencoded"}),
    "no content type": ("the_content_type_is_json", {"content-type": ""}),
}
