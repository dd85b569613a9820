"""Requests that OpenAI's APIs refuse: each is a good one with one fault, and names the rule that must find it."""

from dataclasses import dataclass

from tests.support.messages_json import Json
from tests.support.openai_schema import Api
from tests.support_tests.messages_mutants import Change, add, both, drop, put
from tests.support_tests.openai_bodies import (
    STRICT,
    call,
    called,
    flat,
    message,
    output,
    parameters,
    result,
    thought,
    tool,
    user,
)


@dataclass(frozen=True)
class Mutant:
    name: str
    base: str
    rule: str
    change: Change


ANTHROPIC_TOOL: Json = {"name": "query", "input_schema": {"type": "object"}}
MANY: list[object] = [tool(f"query_{n}") for n in range(129)]
LIST_OF_NOTHING = parameters(properties={"sql": {"type": "array"}})
CALL, FUNCTION = "messages.2.tool_calls.0", "messages.2.tool_calls.0.function"

CHAT_MUTANTS = [
    Mutant("no model", "plain text", "types_fit", drop("model")),
    Mutant("unknown parameter", "plain text", "types_fit", put("max_output_tokens", 100)),
    Mutant("unknown key in a message", "plain text", "types_fit", put("messages.0.cache_control", {})),
    Mutant(
        "cache mark beside the content",
        "plain text",
        "cache_marks_are_few_and_at_texts",
        put("messages.0.cache_control", {"type": "ephemeral"}),
    ),
    Mutant("unknown key in an answer", "tool turn", "types_fit", put("messages.2.stop_reason", "stop")),
    Mutant("reasoning where there is none", "tool turn", "types_fit", put("messages.2.reasoning_content", "Hm.")),
    Mutant("tool of another provider", "tool turn", "types_fit", put("tools.0", ANTHROPIC_TOOL)),
    Mutant("call without a type", "tool turn", "types_fit", drop(f"{CALL}.type")),
    Mutant("arguments as an object", "tool turn", "types_fit", put(f"{FUNCTION}.arguments", {"sql": "select 1"})),
    Mutant("picture in a result", "tool turn", "types_fit", put("messages.3.content", [{"type": "image_url"}])),
    Mutant("result without an id", "tool turn", "types_fit", drop("messages.3.tool_call_id")),
    Mutant("stream as text", "plain text", "types_fit", put("stream", "true")),
    Mutant("no messages", "plain text", "there_is_a_message", put("messages", [])),
    Mutant("a role of old", "tool turn", "roles_are_known", put("messages.3.role", "function")),
    Mutant("a role of nobody", "plain text", "roles_are_known", put("messages.0.role", "model")),
    Mutant("content is null", "plain text", "content_is_given", put("messages.0.content", None)),
    Mutant("content of no parts", "everything optional", "content_is_given", put("messages.1.content", [])),
    Mutant("an answer of nothing", "a refusal", "content_is_given", put("messages.1.refusal", None)),
    Mutant("call never answered", "tool turn", "every_tool_call_is_answered", drop("messages.3")),
    Mutant("one of three unanswered", "parallel results", "every_tool_call_is_answered", drop("messages.3")),
    Mutant(
        "user between call and result",
        "tool turn",
        "every_tool_call_is_answered",
        both(drop("messages.3"), add("messages", user("Wait."), result("call_1"))),
    ),
    Mutant("result of no call", "tool turn", "every_tool_message_has_its_call", add("messages", result("call_9"))),
    Mutant("result before the call", "tool turn", "every_tool_message_has_its_call", drop("messages.2")),
    Mutant(
        "result of an earlier call",
        "parallel results",
        "every_tool_message_has_its_call",
        add("messages", result("call_1")),
    ),
    Mutant("answered twice", "tool turn", "a_call_is_answered_once", add("messages", result("call_1", "43"))),
    Mutant("calls of nothing", "a refusal", "tool_calls_are_not_empty", put("messages.1.tool_calls", [])),
    Mutant("id twice in a message", "parallel results", "call_ids_fit", put("messages.1.tool_calls.1.id", "call_1")),
    Mutant(
        "long id",
        "tool turn",
        "call_ids_fit",
        both(put(f"{CALL}.id", "c" * 41), put("messages.3.tool_call_id", "c" * 41)),
    ),
    Mutant("empty id", "tool turn", "call_ids_fit", both(put(f"{CALL}.id", ""), put("messages.3.tool_call_id", ""))),
    Mutant("call of a name with a dot", "tool turn", "called_names_fit_the_pattern", put(f"{FUNCTION}.name", "db.q")),
    Mutant("call of no name", "tool turn", "called_names_fit_the_pattern", put(f"{FUNCTION}.name", "")),
    Mutant(
        "broken arguments", "tool turn", "arguments_are_the_text_of_an_object", put(f"{FUNCTION}.arguments", '{"sq')
    ),
    Mutant(
        "arguments of a list", "tool turn", "arguments_are_the_text_of_an_object", put(f"{FUNCTION}.arguments", "[]")
    ),
    Mutant("no tools", "everything optional", "tools_are_some_but_not_too_many", put("tools", [])),
    Mutant("129 tools", "tool turn", "tools_are_some_but_not_too_many", put("tools", MANY)),
    Mutant("tool name with a dot", "tool turn", "tool_names_fit_the_pattern", put("tools.0.function.name", "db.query")),
    Mutant("long tool name", "tool turn", "tool_names_fit_the_pattern", put("tools.0.function.name", "q" * 65)),
    Mutant("two tools of a name", "tool turn", "tool_names_are_unique", add("tools", tool())),
    Mutant("array schema", "tool turn", "a_tool_schema_is_an_object", put("tools.0.function.parameters.type", "array")),
    Mutant(
        "anyOf on top",
        "tool turn",
        "a_tool_schema_is_an_object",
        put("tools.0.function.parameters", parameters(anyOf=[{"required": ["sql"]}])),
    ),
    Mutant(
        "unknown type in a schema",
        "tool turn",
        "a_tool_schema_is_valid",
        put("tools.0.function.parameters.properties.sql.type", "text"),
    ),
    Mutant(
        "a list of nothing", "tool turn", "a_tool_schema_is_valid", put("tools.0.function.parameters", LIST_OF_NOTHING)
    ),
    Mutant(
        "strict and open",
        "strict tool",
        "strict_schemas_have_the_form",
        drop("tools.0.function.parameters.additionalProperties"),
    ),
    Mutant(
        "strict and optional",
        "strict tool",
        "strict_schemas_have_the_form",
        put("tools.0.function.parameters.required", ["sql"]),
    ),
    Mutant(
        "strict with a default",
        "strict tool",
        "strict_schemas_have_the_form",
        put("tools.0.function.parameters.properties.sql.default", "select 1"),
    ),
    Mutant(
        "strict with the format uri",
        "strict tool",
        "strict_schemas_have_the_form",
        put("tools.0.function.parameters.properties.sql.format", "uri"),
    ),
    Mutant(
        "strict with words beside a reference",
        "strict tool",
        "strict_schemas_have_the_form",
        put("tools.0.function.parameters.properties.sql", {"$ref": "#", "description": "More."}),
    ),
    Mutant(
        "strict and open within a list",
        "strict tool",
        "strict_schemas_have_the_form",
        put("tools.0.function.parameters.properties.sql", {"type": "array", "items": {"type": "object"}}),
    ),
    Mutant("choice without tools", "everything optional", "tool_choice_has_its_tools", drop("tools")),
    Mutant(
        "choice of another tool",
        "everything optional",
        "tool_choice_has_its_tools",
        put("tool_choice.function.name", "delete"),
    ),
    Mutant(
        "parallel calls without tools",
        "plain text",
        "parallel_calls_have_their_tools",
        put("parallel_tool_calls", True),
    ),
    Mutant("options without a stream", "everything optional", "stream_options_are_for_streams", put("stream", False)),
    Mutant("five stops", "everything optional", "there_are_at_most_four_stops", put("stop", list("abcde"))),
    Mutant("two limits", "everything optional", "the_longest_answer_is_given_once", put("max_tokens", 100)),
    Mutant(
        "picture that is a path",
        "pictures",
        "pictures_have_an_address",
        put("messages.0.content.1.image_url.url", "a.png"),
    ),
    Mutant(
        "picture of an unknown kind",
        "pictures",
        "pictures_have_an_address",
        put("messages.0.content.1.image_url.url", "data:image/bmp;base64,Qk0="),
    ),
]

PART: Json = {"type": "input_text", "text": "Hm."}

RESPONSES_MUTANTS = [
    Mutant("a parameter of chat", "plain text", "types_fit", put("max_completion_tokens", 100)),
    Mutant("unknown key in an item", "tool turn", "types_fit", put("input.3.index", 1)),
    Mutant("a tool of chat", "tool turn", "types_fit", put("tools.0", tool())),
    Mutant("a tool that is not said to be strict or not", "tool turn", "types_fit", drop("tools.0.strict")),
    Mutant("a message of chat", "tool turn", "types_fit", put("input.4", result("call_1"))),
    Mutant("reasoning without a summary", "reasoning", "types_fit", drop("input.1.summary")),
    Mutant("reasoning without an id", "reasoning", "types_fit", drop("input.1.id")),
    Mutant("nothing", "plain text", "there_is_input", put("input", [])),
    Mutant("call never answered", "tool turn", "every_function_call_is_answered", drop("input.4")),
    Mutant(
        "answered after the user spoke",
        "tool turn",
        "every_function_call_is_answered",
        both(drop("input.4"), add("input", user("Wait."), output("call_1"))),
    ),
    Mutant("output of no call", "tool turn", "every_output_has_its_call", add("input", output("call_9"))),
    Mutant(
        "output before its call",
        "tool turn",
        "every_output_has_its_call",
        both(drop("input.3"), add("input", called("call_1"))),
    ),
    Mutant("an item twice", "reasoning", "ids_are_unique", put("input.4.id", "rs_1")),
    Mutant("answered twice", "tool turn", "ids_are_unique", add("input", output("call_1", "43"))),
    Mutant("a call twice", "parallel outputs", "ids_are_unique", put("input.2.call_id", "call_1")),
    Mutant(
        "long call id", "tool turn", "ids_fit", both(put("input.3.call_id", "c" * 65), put("input.4.call_id", "c" * 65))
    ),
    Mutant("call id for an id", "parallel outputs", "ids_fit", put("input.1.id", "call_1")),
    Mutant("empty id", "parallel outputs", "ids_fit", put("input.1.id", "")),
    Mutant("call of a name with a dot", "tool turn", "called_names_fit_the_pattern", put("input.3.name", "db.q")),
    Mutant("broken arguments", "tool turn", "arguments_are_the_text_of_an_object", put("input.3.arguments", '{"sq')),
    Mutant("input from the assistant", "tool turn", "content_fits_the_role", put("input.2.content", [PART])),
    Mutant(
        "output from the user", "tool turn", "content_fits_the_role", put("input.1.content", message("Hm.")["content"])
    ),
    Mutant("an answer of nothing", "reasoning", "content_is_given", put("input.5.content", [])),
    Mutant("a question of nothing", "tool turn", "content_is_given", put("input.1.content", "")),
    Mutant(
        "reasoning that nobody can read", "reasoning", "reasoning_can_be_read_back", drop("input.1.encrypted_content")
    ),
    Mutant("reasoning that leads nowhere", "reasoning", "reasoning_has_its_following_item", drop("input.5")),
    Mutant("reasoning at the end", "reasoning", "reasoning_has_its_following_item", add("input", thought("rs_3"))),
    Mutant("no tools", "tool turn", "tools_are_some_but_not_too_many", put("tools", [])),
    Mutant("tool name with a space", "tool turn", "tool_names_fit_the_pattern", put("tools.0.name", "the query")),
    Mutant("two tools of a name", "tool turn", "tool_names_are_unique", add("tools", flat())),
    Mutant("not an object", "tool turn", "a_tool_schema_is_an_object", put("tools.0.parameters", {"type": "string"})),
    Mutant("a list of nothing", "tool turn", "a_tool_schema_is_valid", put("tools.0.parameters", LIST_OF_NOTHING)),
    Mutant(
        "strict with anything inside",
        "strict tool",
        "strict_schemas_have_the_form",
        put("tools.0.parameters", {**STRICT, "$defs": {"A": {"type": "object", "properties": {}}}}),
    ),
    Mutant("choice of another tool", "everything optional", "tool_choice_has_its_tools", put("tool_choice.name", "x")),
    Mutant(
        "parallel calls without tools",
        "plain text",
        "parallel_calls_have_their_tools",
        put("parallel_tool_calls", True),
    ),
    Mutant("options without a stream", "plain text", "stream_options_are_for_streams", put("stream_options", {})),
    Mutant("five tokens", "everything optional", "the_longest_answer_is_given_once", put("max_output_tokens", 5)),
    Mutant(
        "picture that is a path", "pictures", "pictures_have_an_address", put("input.0.content.1.image_url", "a.png")
    ),
]

MUTANTS: dict[Api, list[Mutant]] = {"chat": CHAT_MUTANTS, "responses": RESPONSES_MUTANTS}

SERVED_MUTANTS: dict[Api, list[Mutant]] = {
    "chat": [
        Mutant("argument changed", "tool turn", "calls_come_back_unchanged", put(f"{FUNCTION}.arguments", "{}")),
        Mutant("another tool", "tool turn", "calls_come_back_unchanged", put(f"{CALL}", call("call_1", "other"))),
    ],
    "responses": [
        Mutant("reasoning reworded", "reasoning", "items_come_back_unchanged", put("input.1.summary", [])),
        Mutant("seal replaced", "reasoning", "items_come_back_unchanged", put("input.1.encrypted_content", "eHh4")),
        Mutant("argument changed", "reasoning", "items_come_back_unchanged", put("input.2.arguments", "{}")),
        Mutant("another id", "reasoning", "items_come_back_unchanged", put("input.2.id", "fc_9")),
        Mutant("reasoning dropped", "reasoning", "items_have_their_reasoning", drop("input.1")),
        Mutant("reasoning of another call", "reasoning", "items_have_their_reasoning", put("input.1", thought("rs_7"))),
        Mutant(
            "reasoning after its call",
            "reasoning",
            "items_have_their_reasoning",
            both(put("input.1", called("call_1", id="fc_1")), put("input.2", thought())),
        ),
    ],
}

HEADER_MUTANTS: dict[str, tuple[str, dict[str, str]]] = {
    "no key": ("a_key_is_given", {"authorization": ""}),
    "basic authorization": ("a_key_is_given", {"authorization": "Basic azpr"}),
    "form data": ("the_content_type_is_json", {"content-type": "application/x-www-form-urlencoded"}),
    "no content type": ("the_content_type_is_json", {"content-type": ""}),
}
