"""Requests that the Messages API refuses: each is a good one with one fault, and names the rule that must find it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

from tests.support.messages_json import Json, as_list
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

Change: TypeAlias = Callable[[Json], None]


@dataclass(frozen=True)
class Mutant:
    name: str
    base: str
    rule: str
    change: Change


def put(path: str, value: object) -> Change:
    """Return a change that sets what stands at a dotted path."""

    def change(request: Json) -> None:
        place, key = _find(request, path)
        place[key] = value

    return change


def drop(path: str) -> Change:
    """Return a change that deletes what stands at a dotted path."""

    def change(request: Json) -> None:
        place, key = _find(request, path)
        del place[key]

    return change


def add(path: str, *values: object) -> Change:
    """Return a change that appends to the list at a dotted path."""

    def change(request: Json) -> None:
        place, key = _find(request, path)
        as_list(place[key]).extend(values)

    return change


def both(*changes: Change) -> Change:
    """Return several changes as one."""

    def change(request: Json) -> None:
        for each in changes:
            each(request)

    return change


def _find(request: Json, path: str) -> tuple[dict[str | int, object], str | int]:
    place: object = request
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
    for step in steps:
        place = cast("dict[str | int, object]", place)[step]
    return cast("dict[str | int, object]", place), last


OPENAI_TOOL: Json = {"type": "function", "function": {"name": "query", "parameters": {"type": "object"}}}
REDACTED: Json = {"type": "redacted_thinking", "data": "b3BhcXVl"}
LAST = "messages.2.content"

MUTANTS = [
    Mutant("no max_tokens", "plain text", "types_fit", drop("max_tokens")),
    Mutant("no model", "plain text", "types_fit", drop("model")),
    Mutant("unknown parameter", "plain text", "types_fit", put("reasoning", "high")),
    Mutant("role tool", "plain text", "types_fit", put("messages.0.role", "tool")),
    Mutant("content is null", "plain text", "types_fit", put("messages.0.content", None)),
    Mutant("text block without text", "everything optional", "types_fit", drop("messages.0.content.0.text")),
    Mutant("unknown key in a block", "tool turn", "types_fit", put("messages.1.content.1.index", 1)),
    Mutant("unknown key in a message", "tool turn", "types_fit", put("messages.1.stop_reason", "tool_use")),
    Mutant("unknown block type", "everything optional", "types_fit", put("messages.0.content.0.type", "input_text")),
    Mutant("input as text", "tool turn", "types_fit", put("messages.1.content.1.input", '{"sql": "select 1"}')),
    Mutant("tool of another provider", "tool turn", "types_fit", put("tools.0", OPENAI_TOOL)),
    Mutant("tool choice as a word", "everything optional", "types_fit", put("tool_choice", "auto")),
    Mutant("header parameter in the body", "plain text", "types_fit", put("workspace_id", "wrkspc_1")),
    Mutant("image of no known kind", "images", "types_fit", put("messages.0.content.0.source.type", "path")),
    Mutant("result content of a call", "images", "types_fit", put(f"{LAST}.0.content", [call("t9")])),
    Mutant("stream as text", "plain text", "types_fit", put("stream", "true")),
    Mutant("no messages", "plain text", "there_is_a_message", put("messages", [])),
    Mutant(
        "system prompt as the first message",
        "system message later on",
        "the_first_message_is_no_system_prompt",
        drop("messages.0"),
    ),
    Mutant("empty content", "plain text", "content_is_not_empty", put("messages.0.content", "")),
    Mutant("empty list of results", "tool turn", "content_is_not_empty", put(LAST, [])),
    Mutant("empty answer inside", "one space as an answer", "content_is_not_empty", put("messages.1.content", [])),
    Mutant("empty text", "tool turn", "text_is_not_empty", put("messages.1.content.0.text", "")),
    Mutant("empty system text", "everything optional", "text_is_not_empty", put("system.0.text", "")),
    Mutant("empty text in a result", "images", "text_is_not_empty", put(f"{LAST}.0.content.0.text", "")),
    Mutant("blank user text", "plain text", "user_text_is_not_blank", put("messages.0.content", " \n")),
    Mutant("blank text after results", "parallel results", "user_text_is_not_blank", put(f"{LAST}.3.text", "\t")),
    Mutant(
        "prefill with a space",
        "prefill",
        "the_final_answer_has_no_trailing_space",
        put("messages.1.content.0.text", "The best seller was "),
    ),
    Mutant("call of the user", "plain text", "block_types_fit_the_role", put("messages.0", user(call("t1")))),
    Mutant("thinking of the user", "thinking turn", "block_types_fit_the_role", add(LAST, THINKING)),
    Mutant("redacted thinking of the user", "thinking turn", "block_types_fit_the_role", add(LAST, REDACTED)),
    Mutant("search of the user", "server tool", "block_types_fit_the_role", add(LAST, *searched("srvtoolu_2"))),
    Mutant("result of the assistant", "tool turn", "block_types_fit_the_role", put("messages.2.role", "assistant")),
    Mutant("call never answered", "tool turn", "every_tool_use_is_answered", drop("messages.2")),
    Mutant("one of three unanswered", "parallel results", "every_tool_use_is_answered", drop(f"{LAST}.1")),
    Mutant("text in place of a result", "tool turn", "every_tool_use_is_answered", put(f"{LAST}.0", text("42"))),
    Mutant(
        "answered one message late",
        "tool turn",
        "every_tool_use_is_answered",
        both(put("messages.2", user(text("Wait."))), add("messages", assistant(text("Well.")), user(result("t1")))),
    ),
    Mutant("result of no call", "tool turn", "every_tool_result_has_its_tool_use", add(LAST, result("t9"))),
    Mutant("call dropped", "tool turn", "every_tool_result_has_its_tool_use", drop("messages.1.content.1")),
    Mutant("result at the start", "tool turn", "every_tool_result_has_its_tool_use", drop("messages.1")),
    Mutant("text before results", "tool turn", "tool_results_come_first", put(LAST, [text("Here:"), result("t1")])),
    Mutant(
        "text between results",
        "parallel results",
        "tool_results_come_first",
        put(LAST, [result("t1"), text("and"), result("t2"), result("t3")]),
    ),
    Mutant("answered twice", "tool turn", "there_is_one_result_per_tool_use", add(LAST, result("t1", "43"))),
    Mutant(
        "id twice in a turn",
        "parallel results",
        "tool_use_ids_are_unique_in_a_turn",
        put("messages.1.content.1.id", "t1"),
    ),
    Mutant(
        "id with a dot",
        "tool turn",
        "tool_use_ids_fit_the_pattern",
        both(put("messages.1.content.1.id", "call.1"), put(f"{LAST}.0.tool_use_id", "call.1")),
    ),
    Mutant(
        "empty id",
        "tool turn",
        "tool_use_ids_fit_the_pattern",
        both(put("messages.1.content.1.id", ""), put(f"{LAST}.0.tool_use_id", "")),
    ),
    Mutant(
        "error without a word",
        "tool turn",
        "error_results_have_content",
        put(f"{LAST}.0", result("t1", "", is_error=True)),
    ),
    Mutant("error without content", "parallel results", "error_results_have_content", drop(f"{LAST}.1.content")),
    Mutant("error of no blocks", "parallel results", "error_results_have_content", put(f"{LAST}.1.content", [])),
    Mutant("search result alone", "server tool", "server_results_have_their_call", drop("messages.1.content.0")),
    Mutant(
        "user text while a search is open",
        "server tool",
        "an_open_server_call_takes_only_results",
        drop("messages.1.content.1"),
    ),
    Mutant(
        "text beside results while a search is open",
        "open server call beside a call",
        "an_open_server_call_takes_only_results",
        add(LAST, text("Hurry.")),
    ),
    Mutant(
        "thinking left out",
        "thinking turn",
        "the_tool_turn_starts_with_thinking",
        drop("messages.1.content.0"),
    ),
    Mutant(
        "thinking left out before the first call",
        "thinking only before the first call",
        "the_tool_turn_starts_with_thinking",
        drop("messages.1.content.0"),
    ),
    Mutant(
        "thinking after text",
        "thinking turn",
        "the_tool_turn_starts_with_thinking",
        put("messages.1", assistant(text("I look."), THINKING, call("t1"))),
    ),
    Mutant("thinking unsigned", "thinking turn", "thinking_is_signed", put("messages.1.content.0.signature", "")),
    Mutant("no tools for calls", "tool turn", "tools_are_given_for_tool_blocks", drop("tools")),
    Mutant("empty tools for calls", "tool turn", "tools_are_given_for_tool_blocks", put("tools", [])),
    Mutant("tool name with a dot", "tool turn", "tool_names_fit_the_pattern", put("tools.0.name", "db.query")),
    Mutant("empty tool name", "tool turn", "tool_names_fit_the_pattern", put("tools.0.name", "")),
    Mutant("long tool name", "tool turn", "tool_names_fit_the_pattern", put("tools.0.name", "q" * 129)),
    Mutant("two tools of a name", "tool turn", "tool_names_are_unique", add("tools", tool())),
    Mutant("array schema", "tool turn", "a_tool_schema_is_an_object", put("tools.0.input_schema", {"type": "array"})),
    Mutant("schema without type", "tool turn", "a_tool_schema_is_an_object", drop("tools.0.input_schema.type")),
    Mutant(
        "anyOf on top",
        "tool turn",
        "a_tool_schema_has_no_union_on_top",
        put("tools.0", tool(anyOf=[{"required": ["sql"]}])),
    ),
    Mutant(
        "oneOf on top",
        "tool turn",
        "a_tool_schema_has_no_union_on_top",
        put("tools.0", tool(oneOf=[{"required": ["sql"]}])),
    ),
    Mutant(
        "allOf on top",
        "tool turn",
        "a_tool_schema_has_no_union_on_top",
        put("tools.0", tool(allOf=[{"required": ["sql"]}])),
    ),
    Mutant(
        "unknown type in a schema",
        "tool turn",
        "a_tool_schema_is_valid",
        put("tools.0.input_schema.properties.sql.type", "text"),
    ),
    Mutant(
        "schema of an older draft",
        "tool schema that names an older draft",
        "a_tool_schema_is_valid",
        put("tools.0.input_schema.properties.sql", {"type": "array", "items": [{"type": "string"}]}),
    ),
    Mutant(
        "property name with a bracket",
        "tool turn",
        "property_names_fit_the_pattern",
        put("tools.0.input_schema.properties.filter[x]", {"type": "string"}),
    ),
    Mutant("choice of an unknown tool", "strict tool", "tool_choice_names_a_tool", put("tool_choice.name", "delete")),
    Mutant("choice without tools", "everything optional", "tool_choice_names_a_tool", drop("tools")),
    Mutant("only deferred tools", "deferred tool", "not_every_tool_is_deferred", put("tools.0.defer_loading", True)),
    Mutant(
        "mark on a deferred tool",
        "deferred tool",
        "deferred_tools_have_no_cache_mark",
        put("tools.1.cache_control", MARK),
    ),
    Mutant(
        "reference to no tool",
        "deferred tool",
        "references_name_deferred_tools",
        put("messages.2.content.0.content.0.tool_name", "other"),
    ),
    Mutant(
        "reference to a tool that is not deferred",
        "deferred tool",
        "references_name_deferred_tools",
        drop("tools.1.defer_loading"),
    ),
    Mutant("small budget", "thinking turn", "the_thinking_budget_fits", put("thinking.budget_tokens", 1023)),
    Mutant("budget of all tokens", "thinking turn", "the_thinking_budget_fits", put("thinking.budget_tokens", 4096)),
    Mutant("temperature with thinking", "thinking turn", "thinking_leaves_sampling_alone", put("temperature", 0.5)),
    Mutant("top_k with thinking", "thinking turn", "thinking_leaves_sampling_alone", put("top_k", 40)),
    Mutant("low top_p with thinking", "thinking turn", "thinking_leaves_sampling_alone", put("top_p", 0.9)),
    Mutant(
        "any tool with thinking", "thinking turn", "thinking_allows_no_forced_tool", put("tool_choice", {"type": "any"})
    ),
    Mutant(
        "one tool with thinking",
        "thinking turn",
        "thinking_allows_no_forced_tool",
        put("tool_choice", {"type": "tool", "name": "query"}),
    ),
    Mutant("prefill with thinking", "prefill", "thinking_allows_no_prefill", put("thinking", MANUAL)),
    Mutant(
        "prefill with adaptive thinking", "prefill", "thinking_allows_no_prefill", put("thinking", {"type": "adaptive"})
    ),
    Mutant("five marks", "four cache marks", "there_are_at_most_four_cache_marks", put("cache_control", MARK)),
    Mutant(
        "mark on thinking",
        "thinking turn",
        "cache_marks_sit_on_content",
        put("messages.1.content.0.cache_control", MARK),
    ),
    Mutant(
        "mark on redacted",
        "redacted thinking",
        "cache_marks_sit_on_content",
        put("messages.1.content.0.cache_control", MARK),
    ),
    Mutant("mark on empty text", "automatic cache mark", "cache_marks_sit_on_content", put("system.0.text", "")),
    Mutant(
        "long mark after a short one",
        "four cache marks",
        "longer_cache_marks_come_first",
        put(f"{LAST}.0.cache_control", LONG_MARK),
    ),
]

SERVED_MUTANTS = [
    Mutant("thinking reworded", "thinking turn", "", put("messages.1.content.0.thinking", "A query is fine.")),
    Mutant("signature replaced", "thinking turn", "", put("messages.1.content.0.signature", "Zm9yZ2Vk")),
    Mutant("thinking dropped", "thinking turn", "", drop("messages.1.content.0")),
    Mutant("text reworded", "thinking turn", "", put("messages.1.content.1.text", "I'll look.")),
    Mutant("text dropped", "thinking turn", "", drop("messages.1.content.1")),
    Mutant("argument added", "thinking turn", "", put("messages.1.content.2.input.limit", 10)),
    Mutant("blocks swapped", "thinking turn", "", put("messages.1", assistant(THINKING, call("t1"), text("I look.")))),
    Mutant("redacted data replaced", "redacted thinking", "", put("messages.1.content.0.data", "eHh4")),
]

HEADER_MUTANTS: dict[str, tuple[str, dict[str, str]]] = {
    "no key": ("a_key_is_given", {"x-api-key": ""}),
    "basic authorization": ("a_key_is_given", {"x-api-key": "", "authorization": "Basic azpr"}),
    "no version": ("the_version_is_given", {"anthropic-version": ""}),
    "version as a number": ("the_version_is_given", {"anthropic-version": "v1"}),
    "form data": ("the_content_type_is_json", {"content-type": "application/x-www-form-urlencoded"}),
    "no content type": ("the_content_type_is_json", {"content-type": ""}),
}
