"""Conversations as `generateContent` takes them. The strict server's rules judge every body; the numbers beside tests
are sections of the measured wire.
"""

from typing import Any, Final

import orjson
import pytest
from google.genai import types as official
from hypothesis import given
from hypothesis import strategies as st

from journeyman.model import ModelSettings, ToolSpec
from journeyman.models.google import GoogleModel
from journeyman.models.google.encode import DUMMY_SIGNATURE
from journeyman.types import (
    Base64,
    Block,
    Document,
    Image,
    Message,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Url,
)
from tests.models import encoding
from tests.models.asking import QUERY, Json
from tests.models.encoding import PLAIN, assistant, closed, strict_tool, user

NAME: Final = "gemini-3-flash-preview"
OWNER: Final = f"google:{NAME}"
LATE: Final = GoogleModel(NAME, api_key="k")
EARLY: Final = GoogleModel("gemini-2.5-flash", api_key="k")
PIXEL: Final = Image(Base64("iVBORw0KGgo=", "image/png"))
GO_ON: Final = {"role": "user", "parts": [{"text": "Go on."}]}


def body_of(model: GoogleModel, *messages: Message, **more: Any) -> Json:
    """Return a body that breaks no rule but those about signatures that nobody gave."""
    body = encoding.body_of(model, *messages, **more)
    assert [each for each in encoding.faults_of(model, body) if "Corrupted" not in each] == []
    return body


def contents(*messages: Message, model: GoogleModel = LATE) -> list[Json]:
    return body_of(model, *messages)["contents"]


def parts_of(*content: Block, model: GoogleModel = LATE) -> list[Json]:
    """Return what one answer becomes, in front of results or of the user's next words."""
    calls = [block for block in content if isinstance(block, ToolUse)]
    following = [ToolResult("said", tool_use_id=call.id) for call in calls] or [Text("Go on.")]
    return contents(user(Text("Hi.")), assistant(*content), user(*following), model=model)[1]["parts"]


def test_results_stand_alone_and_what_else_is_said_follows() -> None:  # section 3
    asked = assistant(ToolUse("a", "query"), ToolUse("b", "draw"))
    results = (ToolResult("twelve", tool_use_id="a"), ToolResult("no pen", True, "b"))
    *_, answered, said = contents(user(Text("Hi.")), asked, user(*results, Text("Hurry.")))
    first = {"functionResponse": {"id": "a", "name": "query", "response": {"output": "twelve"}}}
    second = {"functionResponse": {"id": "b", "name": "draw", "response": {"error": "no pen"}}}
    assert answered == {"role": "user", "parts": [first, second]}
    assert said == {"role": "user", "parts": [{"text": "Hurry."}]}


def test_an_empty_result_is_an_object_all_the_same() -> None:
    *_, answered = contents(user(Text("Hi.")), assistant(ToolUse("a", "query")), user(ToolResult("", tool_use_id="a")))
    assert answered["parts"][0]["functionResponse"]["response"] == {"output": ""}


def test_an_answer_that_goes_on_is_one_content_with_what_it_continues() -> None:
    told = contents(
        user(Text("Hi.")), assistant(Text("One.")), assistant(Text("Two."), continues=True), user(Text("?"))
    )
    assert [(each["role"], len(each["parts"])) for each in told] == [("user", 1), ("model", 2), ("user", 1)]


def test_the_first_and_the_last_content_are_the_users() -> None:
    assert contents(user(Text("Hi.")), assistant(Text("One.")))[-1] == GO_ON
    begun = contents(assistant(Text("One.")), user(Text("Hi.")))
    assert begun[0]["parts"] == [{"text": "[The beginning of the conversation is left out.]"}]
    assert contents(user(Text(" "))) == [GO_ON]


def test_what_says_nothing_is_left_out() -> None:
    told = contents(user(Text("Hi."), Text(""), Text(" ")), assistant(Thinking("Hm.", "c2ln", OWNER), Text(" ")))
    assert told == [{"role": "user", "parts": [{"text": "Hi."}]}]


def test_ids_and_names_that_the_api_would_refuse_are_rewritten_on_both_sides() -> None:
    asked = assistant(ToolUse("not sendable!", "2 fast"))
    *_, model, answered = contents(user(Text("Hi.")), asked, user(ToolResult("x", tool_use_id="not sendable!")))
    call, response = model["parts"][0]["functionCall"], answered["parts"][0]["functionResponse"]
    assert call["name"] == response["name"] == "_2_fast"
    assert call["id"] == response["id"] != "not sendable!"


def test_a_signature_goes_back_with_the_call_that_brought_it() -> None:  # section 4: first of 249
    calls = [ToolUse("a", "query"), ToolUse("b", "query"), ToolUse("c", "query")]
    parts = parts_of(Thinking("Hm.", "c2ln", OWNER), *calls)
    assert [part.get("thoughtSignature") for part in parts] == [None, "c2ln", None, None]
    assert parts[0] == {"text": "Hm.", "thought": True}


def test_a_call_without_a_signature_has_one_that_stands_for_it() -> None:  # section 4: 11 taken
    assert [part.get("thoughtSignature") for part in parts_of(ToolUse("a", "query"), ToolUse("b", "query"))] == [
        DUMMY_SIGNATURE,
        None,
    ]
    assert "thoughtSignature" not in parts_of(ToolUse("a", "query"), model=EARLY)[0]


@pytest.mark.parametrize("provider", ["anthropic", "google:gemini-2.5-flash", "google:gemini-3.7-flash"])
def test_a_signature_that_another_model_gave_does_not_go_back(provider: str) -> None:  # section 4
    *_, part = parts_of(Thinking("Hm.", "c2ln", provider), ToolUse("a", "query"))
    assert part["thoughtSignature"] == DUMMY_SIGNATURE


def test_the_thoughts_of_another_of_geminis_models_stay_thoughts() -> None:
    assert parts_of(Thinking("Hm.", "c2ln", "google:gemini-2.5-flash"), Text("Hi.")) == [
        {"text": "Hm.", "thought": True},
        {"text": "Hi."},
    ]


def test_what_only_another_provider_can_read_is_a_text_or_left_out() -> None:
    foreign = (Thinking("Hm.", "c2ln", "anthropic"), RedactedThinking("c2VhbA", "anthropic"))
    told = parts_of(*foreign, Opaque("google:gemini-2.5-flash", '{"type":"toolCall","toolCall":{}}'))
    said = "[A 'toolCall' block that only google:gemini-2.5-flash can read is left out.]"
    assert told == [{"text": "<thinking>\nHm.\n</thinking>"}, {"text": said}]


def test_pictures_and_documents_are_sent_in_line_or_by_address() -> None:  # section 3: 119 parts
    paper = Document(Base64("JVBERi0=", "application/pdf"), "report.pdf")
    linked = Document(Url("https://example.com/a.pdf"))
    [said] = contents(user(PIXEL, Image(Url("https://example.com/a.webp")), paper, linked))
    assert said["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
        {"fileData": {"mimeType": "image/webp", "fileUri": "https://example.com/a.webp"}},
        {"text": "The document 'report.pdf':"},
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.com/a.pdf"}},
    ]


def answered_with(*content: Text | Image | Document, model: GoogleModel) -> list[Json]:
    asked = assistant(ToolUse("a", "draw"))
    return contents(user(Text("Hi.")), asked, user(ToolResult(content, tool_use_id="a")), model=model)[2:]


def test_late_models_get_pictures_within_results() -> None:  # section 3: 13
    [answered] = answered_with(Text("A chart."), PIXEL, model=LATE)
    response = answered["parts"][0]["functionResponse"]
    assert response["response"] == {"output": "A chart."}
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]


def test_other_models_and_other_files_get_them_after_the_results() -> None:
    [answered, beside] = answered_with(Text("A chart."), PIXEL, model=EARLY)
    output = answered["parts"][0]["functionResponse"]["response"]["output"]
    assert output == "A chart.\n[An image: see the user's message after the results.]"
    assert beside["parts"][0] == {"text": "From the result of the call a:"}
    assert "inlineData" in beside["parts"][1]
    assert len(answered_with(Document(Base64("UklGRg==", "audio/wav")), model=LATE)) == 2


def test_schemas_are_sent_as_they_are_but_for_their_draft() -> None:  # section 2: parametersJsonSchema 385
    schema: Json = {**QUERY.input_schema, "additionalProperties": False, "$defs": {"n": {"type": "integer"}}}
    tool = ToolSpec(name="query", description="Ask.", input_schema={**schema, "$schema": "https://json-schema.org/x"})
    declared = {"name": "query", "description": "Ask.", "parametersJsonSchema": schema}
    assert body_of(LATE, tools=(tool,))["tools"] == [{"functionDeclarations": [declared]}]


def test_a_choice_of_tools_is_a_mode_and_strict_schemas_are_enforced() -> None:  # section 2
    def mode(**more: Any) -> object:
        return body_of(LATE, **more).get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")

    strict = strict_tool(closed(name=PLAIN))
    assert mode() is None
    assert mode(settings=ModelSettings(tool_choice="any")) == "ANY"
    assert mode(settings=ModelSettings(tool_choice="none")) == "NONE"
    assert mode(tools=(), settings=ModelSettings(tool_choice="any")) is None
    assert mode(tools=(QUERY, strict)) == "VALIDATED"
    assert mode(tools=(strict_tool({"type": "object", "properties": {"x": PLAIN}}),)) is None


def test_how_words_are_chosen_is_said_in_the_generation_config() -> None:
    body = body_of(LATE, settings=ModelSettings(temperature=0.2, top_p=0.9, seed=7, stop=("END",), max_tokens=100))
    sampling = {"temperature": 0.2, "topP": 0.9, "seed": 7, "stopSequences": ["END"]}
    assert body["generationConfig"] == {"maxOutputTokens": 100, **sampling}


def test_the_users_own_fields_go_where_the_api_looks_for_them() -> None:  # section 2
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    extra: Json = {"temperature": 0.5, "safetySettings": safety, "thinkingConfig": {"includeThoughts": False}}
    body = body_of(LATE, settings=ModelSettings(max_tokens=100, thinking="low", extra={**extra, "labels": {"a": "b"}}))
    thinking = {"thinkingLevel": "LOW", "includeThoughts": False}
    assert body["generationConfig"] == {"maxOutputTokens": 100, "thinkingConfig": thinking, "temperature": 0.5}
    assert (body["safetySettings"], body["labels"]) == (safety, {"a": "b"})


def test_hosted_tools_stand_beside_functions() -> None:  # section 5: 7 taken
    body = body_of(LATE, settings=ModelSettings(extra={"tools": [{"googleSearch": {}}]}))
    assert [sorted(tool) for tool in body["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert body["toolConfig"] == {"includeServerSideToolInvocations": True}


@pytest.mark.parametrize(
    ("name", "thinking", "sent"),
    [
        ("gemini-3-flash-preview", "minimal", {"thinkingLevel": "MINIMAL", "includeThoughts": True}),
        ("gemini-3-pro-preview", "minimal", {"thinkingLevel": "LOW", "includeThoughts": True}),
        ("gemini-3.1-pro-preview", "high", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-flash-latest", "max", {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-2.5-flash", "off", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", "medium", {"thinkingBudget": 12_288, "includeThoughts": True}),
        ("gemini-2.5-pro", 2_000, {"thinkingBudget": 2_000, "includeThoughts": True}),
        ("gemini-2.0-flash", "off", None),
        ("gemini-3-flash-preview", None, None),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(name: str, thinking: Any, sent: Json | None) -> None:  # noqa: ANN401
    body = body_of(GoogleModel(name, api_key="k"), settings=ModelSettings(thinking=thinking))
    assert body["generationConfig"].get("thinkingConfig") == sent


def test_the_thoughts_leave_room_for_the_answer() -> None:  # section 2: thoughts count into maxOutputTokens
    settings = ModelSettings(thinking="high")
    body = body_of(EARLY, settings=settings, max_tokens=4_000)
    assert body["generationConfig"]["thinkingConfig"]["thinkingBudget"] == 3_000
    assert "thinkingConfig" not in body_of(EARLY, settings=settings, max_tokens=400)["generationConfig"]


_words = st.text(min_size=1, max_size=20).filter(lambda words: not words.isspace() and words.isprintable())


@given(words=_words, arguments=st.dictionaries(_words, st.integers(-(2**53), 2**53) | _words | st.none(), max_size=3))
def test_the_official_client_reads_what_is_sent(words: str, arguments: Json) -> None:
    call = ToolUse("a", "query", orjson.dumps(arguments).decode())
    told = contents(user(Text(words)), assistant(Text(words), call), user(ToolResult(words, tool_use_id="a")))
    said, called, answered = [official.Content.model_validate(each) for each in told]
    assert said.parts
    assert said.parts[0].text == words
    assert called.parts
    assert called.parts[1].function_call == official.FunctionCall(id="a", name="query", args=arguments)
    assert answered.parts
    assert answered.parts[0].function_response
    assert answered.parts[0].function_response.response == {"output": words}
