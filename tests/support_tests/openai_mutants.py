"""Requests that OpenAI's APIs refuse: each is a good one with one fault, beside the rule that must find it."""

from tests.support.messages_json import Json
from tests.support.openai_schema import Api
from tests.support_tests.mutants import Mutant, add, both, drop, mutants, put
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

ANTHROPIC_TOOL: Json = {"name": "query", "input_schema": {"type": "object"}}
MANY: list[object] = [tool(f"query_{n}") for n in range(129)]
LIST_OF_NOTHING = parameters(properties={"sql": {"type": "array"}})
CALL, FUNCTION = "messages.2.tool_calls.0", "messages.2.tool_calls.0.function"

CHAT_MUTANTS = [
    *mutants("types_fit", "plain text", put("max_output_tokens", 100), put("messages.0.cache_control", {})),
    *mutants("types_fit", "tool turn", put("messages.2.reasoning_content", "Hm."), put("tools.0", ANTHROPIC_TOOL)),
    *mutants("types_fit", "tool turn", put(f"{FUNCTION}.arguments", {"sql": "select 1"})),
    *mutants("types_fit", "tool turn", put("messages.3.content", [{"type": "image_url"}])),
    *mutants("cache_marks_are_few_and_at_texts", "plain text", put("messages.0.cache_control", {"type": "ephemeral"})),
    *mutants("there_is_a_message", "plain text", put("messages", [])),
    *mutants("roles_are_known", "tool turn", put("messages.3.role", "function")),
    *mutants("content_is_given", "plain text", put("messages.0.content", None)),
    *mutants("content_is_given", "everything optional", put("messages.1.content", [])),
    *mutants("content_is_given", "a refusal", put("messages.1.refusal", None)),
    *mutants("every_tool_call_is_answered", "parallel results", drop("messages.3")),
    *mutants(
        "every_tool_call_is_answered",
        "tool turn",
        both(drop("messages.3"), add("messages", user("Wait."), result("call_1"))),
    ),
    *mutants("every_tool_message_has_its_call", "tool turn", add("messages", result("call_9")), drop("messages.2")),
    *mutants("every_tool_message_has_its_call", "parallel results", add("messages", result("call_1"))),
    *mutants("a_call_is_answered_once", "tool turn", add("messages", result("call_1", "43"))),
    *mutants("tool_calls_are_not_empty", "a refusal", put("messages.1.tool_calls", [])),
    *mutants("call_ids_fit", "parallel results", put("messages.1.tool_calls.1.id", "call_1")),
    *mutants("call_ids_fit", "tool turn", both(put(f"{CALL}.id", "c" * 41), put("messages.3.tool_call_id", "c" * 41))),
    *mutants("call_ids_fit", "tool turn", both(put(f"{CALL}.id", ""), put("messages.3.tool_call_id", ""))),
    *mutants("called_names_fit_the_pattern", "tool turn", put(f"{FUNCTION}.name", "db.q")),
    *mutants("arguments_are_the_text_of_an_object", "tool turn", put(f"{FUNCTION}.arguments", '{"sq')),
    *mutants("arguments_are_the_text_of_an_object", "tool turn", put(f"{FUNCTION}.arguments", "[]")),
    *mutants("tools_are_some_but_not_too_many", "everything optional", put("tools", [])),
    *mutants("tools_are_some_but_not_too_many", "tool turn", put("tools", MANY)),
    *mutants("tool_names_fit_the_pattern", "tool turn", put("tools.0.function.name", "db.query")),
    *mutants("tool_names_fit_the_pattern", "tool turn", put("tools.0.function.name", "q" * 65)),
    *mutants("tool_names_are_unique", "tool turn", add("tools", tool())),
    *mutants("a_tool_schema_is_an_object", "tool turn", put("tools.0.function.parameters.type", "array")),
    *mutants(
        "a_tool_schema_is_an_object",
        "tool turn",
        put("tools.0.function.parameters", parameters(anyOf=[{"required": ["sql"]}])),
    ),
    *mutants("a_tool_schema_is_valid", "tool turn", put("tools.0.function.parameters.properties.sql.type", "text")),
    *mutants("a_tool_schema_is_valid", "tool turn", put("tools.0.function.parameters", LIST_OF_NOTHING)),
    *mutants("strict_schemas_have_the_form", "strict tool", drop("tools.0.function.parameters.additionalProperties")),
    *mutants("strict_schemas_have_the_form", "strict tool", put("tools.0.function.parameters.required", ["sql"])),
    *mutants(
        "strict_schemas_have_the_form",
        "strict tool",
        put("tools.0.function.parameters.properties.sql.default", "select 1"),
    ),
    *mutants(
        "strict_schemas_have_the_form", "strict tool", put("tools.0.function.parameters.properties.sql.format", "uri")
    ),
    *mutants(
        "strict_schemas_have_the_form",
        "strict tool",
        put("tools.0.function.parameters.properties.sql", {"$ref": "#", "description": "More."}),
    ),
    *mutants(
        "strict_schemas_have_the_form",
        "strict tool",
        put("tools.0.function.parameters.properties.sql", {"type": "array", "items": {"type": "object"}}),
    ),
    *mutants("tool_choice_has_its_tools", "everything optional", drop("tools")),
    *mutants("tool_choice_has_its_tools", "everything optional", put("tool_choice.function.name", "delete")),
    *mutants("parallel_calls_have_their_tools", "plain text", put("parallel_tool_calls", True)),
    *mutants("stream_options_are_for_streams", "everything optional", put("stream", False)),
    *mutants("there_are_at_most_four_stops", "everything optional", put("stop", list("abcde"))),
    *mutants("the_longest_answer_is_given_once", "everything optional", put("max_tokens", 100)),
    *mutants("pictures_have_an_address", "pictures", put("messages.0.content.1.image_url.url", "a.png")),
    *mutants(
        "pictures_have_an_address", "pictures", put("messages.0.content.1.image_url.url", "data:image/bmp;base64,Qk0=")
    ),
]

PART: Json = {"type": "input_text", "text": "Hm."}

RESPONSES_MUTANTS = [
    *mutants("types_fit", "plain text", put("max_completion_tokens", 100)),
    *mutants("types_fit", "tool turn", put("tools.0", tool()), drop("tools.0.strict")),
    *mutants("types_fit", "reasoning", drop("input.1.id")),
    *mutants("there_is_input", "plain text", put("input", [])),
    *mutants("every_function_call_is_answered", "tool turn", drop("input.4")),
    *mutants(
        "every_function_call_is_answered",
        "tool turn",
        both(drop("input.4"), add("input", user("Wait."), output("call_1"))),
    ),
    *mutants("every_output_has_its_call", "tool turn", add("input", output("call_9"))),
    *mutants("every_output_has_its_call", "tool turn", both(drop("input.3"), add("input", called("call_1")))),
    *mutants("ids_are_unique", "reasoning", put("input.4.id", "rs_1")),
    *mutants("ids_are_unique", "tool turn", add("input", output("call_1", "43"))),
    *mutants("ids_are_unique", "parallel outputs", put("input.2.call_id", "call_1")),
    *mutants("ids_fit", "tool turn", both(put("input.3.call_id", "c" * 65), put("input.4.call_id", "c" * 65))),
    *mutants("ids_fit", "parallel outputs", put("input.1.id", "call_1"), put("input.1.id", "")),
    *mutants("called_names_fit_the_pattern", "tool turn", put("input.3.name", "db.q")),
    *mutants("arguments_are_the_text_of_an_object", "tool turn", put("input.3.arguments", '{"sq')),
    *mutants("content_fits_the_role", "tool turn", put("input.2.content", [PART])),
    *mutants("content_fits_the_role", "tool turn", put("input.1.content", message("Hm.")["content"])),
    *mutants("content_is_given", "reasoning", put("input.5.content", [])),
    *mutants("content_is_given", "tool turn", put("input.1.content", "")),
    *mutants("reasoning_can_be_read_back", "reasoning", drop("input.1.encrypted_content")),
    *mutants("reasoning_has_its_following_item", "reasoning", drop("input.5"), add("input", thought("rs_3"))),
    *mutants("tool_names_are_unique", "tool turn", add("tools", flat())),
    *mutants(
        "strict_schemas_have_the_form",
        "strict tool",
        put("tools.0.parameters", {**STRICT, "$defs": {"A": {"type": "object", "properties": {}}}}),
    ),
    *mutants("tool_choice_has_its_tools", "everything optional", put("tool_choice.name", "x")),
    *mutants("the_longest_answer_is_given_once", "everything optional", put("max_output_tokens", 5)),
    *mutants("pictures_have_an_address", "pictures", put("input.0.content.1.image_url", "a.png")),
]

MUTANTS: dict[Api, list[Mutant]] = {"chat": CHAT_MUTANTS, "responses": RESPONSES_MUTANTS}

SERVED_MUTANTS: dict[Api, list[Mutant]] = {
    "chat": [
        *mutants("calls_come_back_unchanged", "tool turn", put(f"{FUNCTION}.arguments", "{}")),
        *mutants("calls_come_back_unchanged", "tool turn", put(f"{CALL}", call("call_1", "other"))),
    ],
    "responses": [
        *mutants("items_come_back_unchanged", "reasoning", put("input.1.summary", [])),
        *mutants("items_come_back_unchanged", "reasoning", put("input.1.encrypted_content", "eHh4")),
        *mutants("items_come_back_unchanged", "reasoning", put("input.2.arguments", "{}"), put("input.2.id", "fc_9")),
        *mutants("items_have_their_reasoning", "reasoning", drop("input.1"), put("input.1", thought("rs_7"))),
        *mutants(
            "items_have_their_reasoning",
            "reasoning",
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
