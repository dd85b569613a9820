"""Requests that OpenAI's APIs take, one per feature, and those that they refuse.

Each of the latter is a good one with one fault, beside the rule that must find it.
"""

from tests.support.messages_json import Json
from tests.support.strict_schema import Api
from tests.support_tests.mutants import Mutant, add, both, drop, put, refusals

HEADERS = {"authorization": "Bearer k", "content-type": "application/json"}
PNG = "data:image/png;base64,iVBORw0KGgo="
ENCRYPTED = "c2VhbGVk"


def parameters(**more: object) -> Json:
    properties: Json = {"sql": {"type": "string"}, "limit": {"type": ["integer", "null"]}}
    return {"type": "object", "properties": properties, "required": ["sql"], **more}


STRICT = parameters(required=["sql", "limit"], additionalProperties=False)


# -- Chat Completions --------------------------------------------------------------------------------------------------


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


ASKED = user("What sold best in May?")

CHAT: dict[str, Json] = {
    "plain text": chat(ASKED),
    "everything optional": chat(
        {"role": "developer", "content": [{"type": "text", "text": "Be careful."}]},
        user([{"type": "text", "text": "Hello"}]),
        stop=["END"],
        max_completion_tokens=100,
        reasoning_effort="low",
        stream=True,
        stream_options={"include_usage": True},
        tools=[tool()],
        tool_choice={"type": "function", "function": {"name": "query"}},
        parallel_tool_calls=False,
        store=False,
    ),
    "a form": chat(
        ASKED,
        response_format={"type": "json_schema", "json_schema": {"name": "report", "schema": STRICT, "strict": True}},
    ),
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
    "parallel results": chat(
        ASKED,
        said(None, call("call_1"), call("call_2"), call("call_3", "other", "{}")),
        result("call_2", [{"type": "text", "text": "no such table"}]),
        result("call_1"),
        result("call_3", ""),
        user("Be quick."),
        tools=[tool(), tool("other")],
    ),
    "an id again in a later turn": chat(
        ASKED, said(None, call("a")), result("a"), said(None, call("a")), result("a"), tools=[tool()]
    ),
    "an echo of all that was answered": chat(
        ASKED, said("Umbrellas.", refusal=None, annotations=[]), user("And June?")
    ),
    "a refusal": chat(ASKED, said(None, refusal="No."), user("Why?")),
    "pictures": chat(
        user([{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PNG}}]),
        said("A chart."),
        user([{"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}]),
    ),
    "a file": chat(
        user([{"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a"}}])
    ),
    "strict tool": chat(ASKED, tools=[tool(schema=STRICT, strict=True)], tool_choice="required"),
    "no parameters": chat(ASKED, tools=[{"type": "function", "function": {"name": "now"}}]),
}


# -- Responses ---------------------------------------------------------------------------------------------------------


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
    "everything optional": responses(
        user([{"type": "input_text", "text": "Hello"}]),
        instructions="Be careful.",
        max_output_tokens=16,
        reasoning={"effort": "low", "summary": "auto"},
        include=["reasoning.encrypted_content"],
        store=False,
        stream=True,
        tools=[flat()],
        tool_choice={"type": "function", "name": "query"},
        parallel_tool_calls=True,
    ),
    "a form": responses(
        ASKED, text={"format": {"type": "json_schema", "name": "report", "schema": STRICT, "strict": True}}
    ),
    "tool turn": responses(
        {"role": "developer", "content": "Be careful."},
        ASKED,
        message("Let me look."),
        called("call_1"),
        output("call_1"),
        tools=[flat()],
    ),
    "parallel outputs": responses(
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
    "a refusal": responses(ASKED, message("No.") | {"content": [{"type": "refusal", "refusal": "No."}]}, user("Why?")),
    "strict tool": responses(ASKED, tools=[flat(schema=STRICT, strict=True)], tool_choice="required"),
}

GOOD: dict[Api, dict[str, Json]] = {"chat": CHAT, "responses": RESPONSES}


# -- refusals ----------------------------------------------------------------------------------------------------------

ANTHROPIC_TOOL: Json = {"name": "query", "input_schema": {"type": "object"}}
CALL, FUNCTION = "messages.2.tool_calls.0", "messages.2.tool_calls.0.function"

CHAT_MUTANTS = refusals(
    {
        "types_fit": {
            "plain text": [put("max_output_tokens", 100), put("messages.0.cache_control", {})],
            "tool turn": [
                put("messages.2.reasoning_content", "Hm."),
                put("tools.0", ANTHROPIC_TOOL),
                put(f"{FUNCTION}.arguments", {"sql": "select 1"}),
                put("messages.3.content", [{"type": "image_url"}]),
            ],
        },
        "cache_marks_are_few_and_at_texts": {"plain text": [put("messages.0.cache_control", {"type": "ephemeral"})]},
        "there_is_a_message": {"plain text": [put("messages", [])]},
        "content_is_given": {
            "plain text": [put("messages.0.content", None)],
            "everything optional": [put("messages.1.content", [])],
            "a refusal": [put("messages.1.refusal", None)],
        },
        "every_call_is_answered": {
            "parallel results": [drop("messages.3")],
            "tool turn": [both(drop("messages.3"), add("messages", user("Wait."), result("call_1")))],
        },
        "every_result_has_its_call": {
            "tool turn": [add("messages", result("call_9")), drop("messages.2")],
            "parallel results": [add("messages", result("call_1"))],
        },
        "a_call_is_answered_once": {"tool turn": [add("messages", result("call_1", "43"))]},
        "tool_calls_are_not_empty": {"a refusal": [put("messages.1.tool_calls", [])]},
        "call_ids_are_unique_in_a_turn": {"parallel results": [put("messages.1.tool_calls.1.id", "call_1")]},
        "call_ids_fit": {
            "tool turn": [
                both(put(f"{CALL}.id", "c" * 41), put("messages.3.tool_call_id", "c" * 41)),
                both(put(f"{CALL}.id", ""), put("messages.3.tool_call_id", "")),
            ]
        },
        "called_names_fit_the_pattern": {"tool turn": [put(f"{FUNCTION}.name", "db.q")]},
        "arguments_are_the_text_of_an_object": {
            "tool turn": [put(f"{FUNCTION}.arguments", '{"sq'), put(f"{FUNCTION}.arguments", "[]")]
        },
        "tools_are_not_empty": {"everything optional": [put("tools", [])]},
        "tool_names_fit_the_pattern": {
            "tool turn": [put("tools.0.function.name", "db.query"), put("tools.0.function.name", "q" * 65)]
        },
        "tool_names_are_unique": {"tool turn": [add("tools", tool())]},
        "a_tool_schema_is_an_object": {
            "tool turn": [
                put("tools.0.function.parameters.type", "array"),
                put("tools.0.function.parameters", parameters(anyOf=[{"required": ["sql"]}])),
            ]
        },
        "a_tool_schema_is_valid": {"tool turn": [put("tools.0.function.parameters.properties.sql.type", "text")]},
        "strict_schemas_have_the_form": {
            "strict tool": [
                drop("tools.0.function.parameters.additionalProperties"),
                put("tools.0.function.parameters.required", ["sql"]),
                put("tools.0.function.parameters.properties.sql.default", "select 1"),
                put("tools.0.function.parameters.properties.sql.format", "uri"),
                put("tools.0.function.parameters.properties.sql", {"$ref": "#", "description": "More."}),
                put("tools.0.function.parameters.properties.sql", {"type": "array", "items": {"type": "object"}}),
            ]
        },
        "tool_choice_has_its_tools": {"everything optional": [drop("tools")]},
        "parallel_calls_have_their_tools": {"plain text": [put("parallel_tool_calls", True)]},
        "hosted_tools_are_of_their_api": {
            "plain text": [put("tools", [{"type": "web_search"}]), put("web_search_options", {})]
        },
        "the_form_of_the_answer_fits": {
            "a form": [
                put("response_format.json_schema.name", "my report"),
                put("response_format.json_schema.schema.type", "array"),
                put("response_format.json_schema.schema.required", []),
            ]
        },
        "sounds_are_of_a_kind_that_is_taken": {"a sound": [put("messages.0.content.1.input_audio.data", "")]},
        "stream_options_are_for_streams": {"everything optional": [put("stream", False)]},
        "pictures_have_an_address": {
            "pictures": [
                put("messages.0.content.1.image_url.url", "a.png"),
                put("messages.0.content.1.image_url.url", "data:image/bmp;base64,Qk0="),
            ]
        },
    }
)

PART: Json = {"type": "input_text", "text": "Hm."}

RESPONSES_MUTANTS = refusals(
    {
        "hosted_tools_are_of_their_api": {
            "hosted tools": [put("tools.1.vector_store_ids", []), put("max_tool_calls", 0), put("tools", [flat()])]
        },
        "types_fit": {
            "plain text": [put("max_completion_tokens", 100)],
            "tool turn": [put("tools.0", tool()), drop("tools.0.strict")],
            "reasoning": [drop("input.1.id")],
        },
        "there_is_a_message": {"plain text": [put("input", [])]},
        "every_call_is_answered": {
            "tool turn": [drop("input.4"), both(drop("input.4"), add("input", user("Wait."), output("call_1")))]
        },
        "every_result_has_its_call": {
            "tool turn": [add("input", output("call_9")), both(drop("input.3"), add("input", called("call_1")))]
        },
        "ids_are_unique": {
            "reasoning": [put("input.4.id", "rs_1")],
            "parallel outputs": [put("input.2.call_id", "call_1")],
        },
        "a_call_is_answered_once": {"tool turn": [add("input", output("call_1", "43"))]},
        "call_ids_fit": {"tool turn": [both(put("input.3.call_id", "c" * 65), put("input.4.call_id", "c" * 65))]},
        "item_ids_fit": {"parallel outputs": [put("input.1.id", "call_1"), put("input.1.id", "")]},
        "called_names_fit_the_pattern": {"tool turn": [put("input.3.name", "db.q")]},
        "arguments_are_the_text_of_an_object": {"tool turn": [put("input.3.arguments", '{"sq')]},
        "content_fits_the_role": {
            "tool turn": [put("input.2.content", [PART]), put("input.1.content", message("Hm.")["content"])]
        },
        "content_is_given": {"reasoning": [put("input.5.content", [])], "tool turn": [put("input.1.content", "")]},
        "reasoning_can_be_read_back": {"reasoning": [drop("input.1.encrypted_content")]},
        "reasoning_has_its_following_item": {"reasoning": [drop("input.5"), add("input", thought("rs_3"))]},
        "tool_names_are_unique": {"tool turn": [add("tools", flat())]},
        "strict_schemas_have_the_form": {
            "strict tool": [put("tools.0.parameters", {**STRICT, "$defs": {"A": {"type": "object", "properties": {}}}})]
        },
        "the_longest_answer_is_not_too_short": {"everything optional": [put("max_output_tokens", 5)]},
        "the_form_of_the_answer_fits": {"a form": [put("text.format.schema.additionalProperties", True)]},
        "pictures_have_an_address": {"pictures": [put("input.0.content.1.image_url", "a.png")]},
    }
)

MUTANTS: dict[Api, list[Mutant]] = {"chat": CHAT_MUTANTS, "responses": RESPONSES_MUTANTS}

SERVED_MUTANTS: dict[Api, list[Mutant]] = {
    "chat": refusals(
        {
            "calls_come_back_unchanged": {
                "tool turn": [put(f"{FUNCTION}.arguments", "{}"), put(f"{CALL}", call("call_1", "other"))]
            }
        }
    ),
    "responses": refusals(
        {
            "items_come_back_unchanged": {
                "reasoning": [
                    put("input.1.summary", []),
                    put("input.1.encrypted_content", "eHh4"),
                    put("input.2.arguments", "{}"),
                    put("input.2.id", "fc_9"),
                ]
            },
            "items_have_their_reasoning": {
                "reasoning": [
                    drop("input.1"),
                    put("input.1", thought("rs_7")),
                    both(put("input.1", called("call_1", id="fc_1")), put("input.2", thought())),
                ]
            },
        }
    ),
}

HEADER_MUTANTS: dict[str, tuple[str, dict[str, str]]] = {
    "no key": ("a_key_is_given", {"authorization": ""}),
    "basic authorization": ("a_key_is_given", {"authorization": "Basic azpr"}),
    "form data": ("the_content_type_is_json", {"content-type": "application/x-www-form-urlencoded"}),
    "no content type": ("the_content_type_is_json", {"content-type": ""}),
}
