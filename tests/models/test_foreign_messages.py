"""Conversations of other programs: told by their shape, read without a word lost in silence, and sendable."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import Agent, Message, Text, ToolResult, run
from journeyman.definition.narrowing import is_list
from journeyman.history import INTERRUPTED, ImportedHistory, from_messages
from journeyman.models.anthropic import AnthropicModel
from journeyman.models.google.model import GoogleModel
from journeyman.models.openai import OpenAIChatModel, OpenAIModel
from journeyman.testing import ScriptedModel
from journeyman.types import Opaque, Thinking
from tests.models.encoding import AnyModel, faults_of, request
from tests.play import succeeded
from tests.support.invariants_history import history_faults
from tests.support.messages_json import Json, as_list, as_object

BODIES: Final = Path(__file__).parent.parent / "contracts" / "bodies"
WIRES: dict[str, tuple[Any, str, str]] = {
    "anthropic": (AnthropicModel("claude-sonnet-5-5", api_key="k"), "anthropic-events", "messages"),
    "chat": (OpenAIChatModel("gpt-4.1", api_key="k"), "openai-chat-events", "messages"),
    "responses": (OpenAIModel("gpt-5.2", api_key="k"), "openai-responses-events", "input"),
    "google": (GoogleModel("gemini-3-flash-preview", api_key="k"), "google-events", "contents"),
}


JUDGED: list[AnyModel] = [WIRES[wire][0] for wire in ("anthropic", "chat", "responses")]


def checked(messages: object, **options: Any) -> ImportedHistory:
    """Return what was read, once the project's own rules of a sendable history are kept."""
    read = from_messages(messages, **options)
    assert list(history_faults(read.messages)) == []
    return read


def sent(model: Any, read: ImportedHistory) -> dict[str, Any]:  # noqa: ANN401 - any adapter
    return json.loads(model.body(request(*read.messages, system=(Text(read.system),))))


def without_marks(value: object) -> object:
    if is_list(value):
        return [without_marks(each) for each in value]
    fields = as_object(value)
    return {key: without_marks(fields[key]) for key in fields if key != "cache_control"} if fields else value


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_that_was_read_is_sent_again_as_it_was(wire: str) -> None:
    model, name, key = WIRES[wire]
    body = json.loads((BODIES / f"{name}.json").read_bytes())
    provider = "google:gemini-3-flash-preview" if wire == "google" else None
    read = checked(body, provider=provider)
    assert read.form == wire
    assert read.dropped == tuple(f"the request.{key}: no field of a message here" for key in SETTINGS[wire])
    again = [each for each in sent(model, read)[key] if each.get("role") != "system"]
    assert without_marks(again) == without_marks([each for each in body[key] if each.get("role") != "system"])
    assert "careful analyst" in read.system


SETTINGS = {
    "anthropic": ("max_tokens", "output_config", "thinking", "tools"),
    "chat": ("max_completion_tokens", "reasoning_effort", "stream_options", "tools"),
    "responses": ("include", "max_output_tokens", "reasoning", "tools"),
    "google": ("generationConfig", "toolConfig", "tools"),
}

CALL = {"name": "look", "arguments": '{"n": 1}'}
PYDANTIC = [
    {
        "kind": "request",
        "parts": [
            {"part_kind": "system-prompt", "content": "Be brief."},
            {"part_kind": "user-prompt", "content": ["Hello.", {"kind": "text-content", "content": "Look."}]},
        ],
    },
    {
        "kind": "response",
        "provider_name": "anthropic",
        "parts": [
            {"part_kind": "thinking", "content": "Hm.", "signature": "sig"},
            {"part_kind": "text", "content": "So."},
            {"part_kind": "tool-call", "tool_name": "look", "args": {"n": 1}, "tool_call_id": "a"},
        ],
    },
    {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_call_id": "a", "content": "seen"}]},
    {"kind": "response", "parts": [{"part_kind": "text", "content": "Done."}]},
]
LANGCHAIN_AI = {
    "content": [{"type": "thinking", "thinking": "Hm.", "signature": "sig"}, {"type": "text", "text": "So."}],
    "tool_calls": [{"name": "look", "args": {"n": 1}, "id": "a", "type": "tool_call"}],
    "usage_metadata": {"input_tokens": 3},
}
LANGCHAIN: list[dict[str, Any]] = [
    {"type": "system", "data": {"content": "Be brief."}},
    {"type": "human", "data": {"content": ["Hello.", {"type": "text", "text": "Look."}]}},
    {"type": "ai", "data": LANGCHAIN_AI},
    {"type": "tool", "data": {"content": "seen", "tool_call_id": "a", "name": "look", "status": "success"}},
    {"type": "ai", "data": {"content": "Done."}},
]
CLASSES = {"system": "SystemMessage", "human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}
ANTHROPIC_SAID = [
    {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
    {"type": "text", "text": "So."},
    {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}},
]
ASKED = [{"type": "text", "text": "Hello."}, {"type": "text", "text": "Look."}]
SEEN = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "seen"}]}


def line(id: str, parent: str | None, kind: str, content: object, **more: object) -> dict[str, object]:
    message = {"role": kind, "content": content, **({"id": more.pop("answer", id)} if kind == "assistant" else {})}
    return {"type": kind, "uuid": id, "parentUuid": parent, "sessionId": "s", "message": message, **more}


SESSION = [
    {"type": "file-history-snapshot", "messageId": "x"},
    line("0", None, "user", "An older question."),
    line("1", None, "user", ASKED),
    line("2", "1", "assistant", ANTHROPIC_SAID[:1], answer="m"),
    line("3", "2", "assistant", ANTHROPIC_SAID[1:2], answer="m"),
    line("4", "3", "assistant", ANTHROPIC_SAID[2:], answer="m"),
    line("5", "4", "user", SEEN["content"], toolUseResult={"n": 1}),
    line("6", "5", "user", "of a sub-agent", isSidechain=True),
    line("7", "5", "assistant", [{"type": "text", "text": "Done."}]),
]
CHAT = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": ASKED},
    {
        "role": "assistant",
        "content": "So.",
        "reasoning_content": "Hm.",
        "tool_calls": [{"id": "a", "type": "function", "function": CALL}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "seen"},
    {"role": "assistant", "content": "Done."},
]
FORMS: dict[str, tuple[object, str]] = {
    "anthropic": (
        {
            "system": "Be brief.",
            "messages": [
                {"role": "user", "content": ASKED},
                {"role": "assistant", "content": ANTHROPIC_SAID},
                SEEN,
                {"role": "assistant", "content": "Done."},
            ],
        },
        "anthropic",
    ),
    "chat": (CHAT, "chat"),
    "chat as lines": ("\n".join(map(json.dumps, CHAT)), "chat"),
    "responses": (
        {
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": [{**each, "type": "input_text"} for each in ASKED]},
                {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]},
                {"role": "assistant", "content": "So."},
                {"type": "function_call", "call_id": "a", **CALL},
                {"type": "function_call_output", "call_id": "a", "output": "seen"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
            ],
        },
        "responses",
    ),
    "google": (
        {
            "system_instruction": {"parts": [{"text": "Be brief."}]},
            "contents": [
                {"role": "user", "parts": [{"text": "Hello."}, {"text": "Look."}]},
                {
                    "role": "model",
                    "parts": [
                        {"text": "Hm.", "thought": True},
                        {"text": "So."},
                        {"function_call": {"name": "look", "args": {"n": 1}}},
                    ],
                },
                {"parts": [{"functionResponse": {"name": "look", "response": {"result": "seen"}}}]},
                {"role": "model", "parts": [{"text": "Done."}]},
            ],
        },
        "google",
    ),
    "pydantic-ai": (PYDANTIC, "pydantic_ai"),
    "langchain": (LANGCHAIN, "langchain"),
    "langchain's classes": (
        [{"lc": 1, "id": ["langchain", CLASSES[str(each["type"])]], "kwargs": each["data"]} for each in LANGCHAIN],
        "langchain",
    ),
    "langchain's fields": ([{"type": each["type"], **each["data"]} for each in LANGCHAIN], "langchain"),
    "sharegpt": (
        {
            "conversations": [
                {"from": "system", "value": "Be brief."},
                {"from": "human", "value": "Hello.\n\nLook."},
                {"from": "function_call", "value": json.dumps({"name": "look", "arguments": {"n": 1}})},
                {"from": "observation", "value": "seen"},
                {"from": "gpt", "value": "Done."},
            ]
        },
        "sharegpt",
    ),
    "claude code": ("\n".join(map(json.dumps, SESSION)), "claude_code"),
}


@pytest.mark.parametrize("name", FORMS)
async def test_every_form_is_told_by_its_shape_and_goes_on_in_a_run(name: str) -> None:
    messages, form = FORMS[name]
    read = checked(messages)
    asked, said, seen, done = read.messages
    assert (read.form, read.system) == (form, "" if form == "claude_code" else "Be brief.")
    assert [asked.text, done.text] == ["Hello.\n\nLook.", "Done."]
    [call], [result] = said.tool_uses, [block for block in seen.content if isinstance(block, ToolResult)]
    assert (call.name, call.input, result.text) == ("look", {"n": 1}, "seen")
    thoughts = [(block.text, bool(block.signature)) for block in said.content if isinstance(block, Thinking)]
    assert [text for text, _ in thoughts] == ([] if form == "sharegpt" else ["Hm."])
    if form == "claude_code":
        assert read.dropped == (
            "lines: 1 of type 'file-history-snapshot'",
            "lines: 1 of sub-agents",
            "lines: 1 of another branch, or before a compaction",
        )
    else:
        assert read.dropped == ()
    result = await run(Agent(name="a", model=ScriptedModel(["Yes."])), "More?", history=read.messages)
    assert succeeded(result).history[: len(read.messages)] == read.messages


LOST: list[tuple[object, str]] = [
    ([{"role": "user", "content": [{"type": "video_url"}]}], "messages[0].content[0]: a part of type 'video_url'"),
    ([{"role": "user", "name": "Bob", "content": "Hi."}], "messages[0].name: no field of a message here"),
    ([{"role": "critic", "content": "Hi."}], "messages[0]: a message of the role 'critic'"),
    ([{"role": "user", "content": "Hi."}, "what?"], "messages[1]: 'what?', which is no message"),
    ([{"role": "tool", "tool_call_id": "x", "content": "?"}], "a result for 'x', which no call before it waits for"),
    ([{"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": "{1}"}}]}], "a call without a name"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc"}}]}], "not the address"),
    ([{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}], "a file of which there is only"),
    ([{"role": "user", "content": "Hi."}, {"role": "system", "content": "Now shout."}], "the place of a system prompt"),
    (
        [{"role": "user", "content": [{"type": "input_text", "text": "Hi."}]}, {"type": "computer_call", "id": "c"}],
        "messages[1]: an item of type 'computer_call'",
    ),
    (
        [{"role": "user", "content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]}],
        "document whose source is 'file': only its provider has it",
    ),
    ([{"role": "model", "parts": [{"functionCall": {"args": {}}}]}], "a call without a name"),
    ([{"role": "user", "parts": [{"videoMetadata": {}}]}], "a part with ['videoMetadata']"),
    ([{"kind": "response", "parts": [{"part_kind": "file", "content": {}}]}], "a part of kind 'file'"),
    (
        [{"kind": "response", "parts": [{"part_kind": "thinking", "content": "Hm.", "signature": "s"}]}],
        "the signature of a thought",
    ),
    ([{"type": "ai", "content": [{"type": "image"}]}], "messages[0].content[0]: a part of type 'image'"),
    ([{"from": "narrator", "value": "Once."}], "a turn of 'narrator'"),
]


@pytest.mark.parametrize(("messages", "told"), LOST)
def test_what_no_message_can_say_is_listed_with_its_place(messages: object, told: str) -> None:
    read = checked(messages)
    assert len(read.dropped) == 1
    assert told in read.dropped[0]


def test_what_only_the_provider_reads_is_kept_opaque() -> None:
    search: Json = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found: Json = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    asked = {"role": "user", "content": "Search."}
    said = [{"type": "image_generation_call", "id": "i"}, {"type": "message", "role": "assistant", "content": "There."}]
    anthropic = checked([asked, {"role": "assistant", "content": [search, found]}])
    responses = checked([asked, {"type": "reasoning", "id": "r"}, *said])
    blocks = [*anthropic.messages[1].content, *responses.messages[1].content]
    kept = [(block.provider, block.kind) for block in blocks if isinstance(block, Opaque)]
    assert [read.dropped for read in (anthropic, responses)] == [(), ()]
    assert kept == [
        ("anthropic", "server_tool_use"),
        ("anthropic", "web_search_tool_result"),
        ("openai", "image_generation_call"),
    ]


def test_a_conversation_that_broke_off_is_closed_and_one_that_the_model_begins_gets_a_beginning() -> None:
    calls = [{"id": id, "function": CALL} for id in ("a", "a", "")]
    read = checked([{"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "content": "seen"}])
    beginning, said, results = read.messages
    assert beginning == Message("user", (Text("[The beginning of the conversation is left out.]"),))
    assert [call.wire_id for call in said.tool_uses] == [None, "a", None]
    assert [block.text for block in results.content if isinstance(block, ToolResult)] == ["seen", *[INTERRUPTED] * 2]
    assert (
        checked([{"role": "assistant", "tool_calls": calls}]).messages
        == checked([{"role": "assistant", "tool_calls": calls}]).messages
    )


def test_what_another_library_sent_back_for_a_retry_is_an_error_or_what_the_user_said() -> None:
    calls = [
        {"part_kind": "tool-call", "tool_name": "look", "args": None, "tool_call_id": id} for id in ("a", "b", "c")
    ]
    retried = {"part_kind": "tool-return", "tool_call_id": "a", "content": "Again.", "outcome": "retried"}
    prompt = {"part_kind": "retry-prompt", "tool_call_id": "b", "tool_name": "look", "content": [{"msg": "wrong"}]}
    fine = {"part_kind": "tool-return", "tool_call_id": "c", "content": {"n": 1}, "outcome": "success"}
    feedback = {"part_kind": "retry-feedback", "content": "Answer in JSON."}
    read = checked(
        [{"kind": "response", "parts": calls}, {"kind": "request", "parts": [retried, prompt, fine, feedback]}]
    )
    assert read.dropped == ()
    assert read.messages[-1].content == (
        ToolResult("Again.", True, "a"),
        ToolResult('[{"msg":"wrong"}]', True, "b"),
        ToolResult('{"n":1}', False, "c"),
        Text("Answer in JSON."),
    )


def test_results_of_a_session_that_came_at_the_same_time_are_kept() -> None:
    uses: list[Json] = [{"type": "tool_use", "id": id, "name": "look", "input": {}} for id in ("a", "b")]
    results = [[{"type": "tool_result", "tool_use_id": id, "content": id}] for id in ("a", "b")]
    lines = [
        line("1", None, "user", "The conversation so far.", isCompactSummary=True),
        line("2", "1", "assistant", uses[:1], answer="m"),
        line("3", "2", "assistant", uses[1:], answer="m"),
        line("4", "2", "user", results[0]),
        line("5", "3", "user", results[1]),
        line("6", "5", "assistant", "Done."),
    ]
    read = checked(lines)
    assert read.dropped == ()
    assert [len(message.content) for message in read.messages] == [1, 2, 2, 1]
    assert [getattr(block, "origin", None) for block in read.messages[0].content] == ["summary"]


WRONG: list[tuple[object, dict[str, Any], str]] = [
    ("{", {}, "The messages are no JSON"),
    ('{"role": "user"}\n{', {}, "Line 2 of the messages is no JSON"),
    (5, {}, "no messages, but a int"),
    ([{"speaker": "me", "words": "Hi."}], {}, "No form is known .* anthropic, chat"),
    (CHAT, {"form": "gpt"}, "There is no form 'gpt'"),
    ([*CHAT, {"role": "assistant", "content": ANTHROPIC_SAID}], {}, "is anthropic's and .* is chat's. Say which"),
    ([Message("user", (Text("Hi."),))], {}, "messages of ours already"),
    ([{"role": "user", "content": {1, 2}}], {}, "hold what is no JSON"),
    (
        [{"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}] * 10_001}],
        {},
        r"messages\[0\]: .*more than",
    ),
]


@pytest.mark.parametrize(("messages", "options", "told"), WRONG, ids=[row[2][:20] for row in WRONG])
def test_what_is_no_conversation_is_refused(messages: object, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        from_messages(messages, **options)


def pieces_in(value: object) -> Iterator[Json]:
    """Yield every object in a value of JSON."""
    for each in as_list(value):
        yield from pieces_in(each)
    if fields := as_object(value):
        yield fields
        for each in fields.values():
            yield from pieces_in(each)


def bend(piece: Json, key: str, value: object) -> Json:
    return {**piece, key: value}


PIECES: list[Json] = [piece for messages, _ in FORMS.values() for piece in pieces_in(messages)]
KEYS = sorted({key for piece in PIECES for key in piece})
ODD: list[object] = [None, "", " ", "user", "assistant", "\ud800", "a", 1, True, [], {}, [[]], *PIECES]
VALUES = st.sampled_from([*ODD, *[[each] for each in ODD]])
BENT = st.builds(bend, st.sampled_from(PIECES), st.sampled_from(KEYS), VALUES)


@given(
    st.lists(st.sampled_from(PIECES) | BENT, max_size=8), st.sampled_from(sorted({form for _, form in FORMS.values()}))
)
def test_whatever_is_given_comes_out_sendable(messages: list[dict[str, Any]], form: str) -> None:
    read = checked(messages, form=form)
    # Blocks of a kind that nobody knows go back to their provider as they are.
    is_known = not any(isinstance(block, Opaque) for message in read.messages for block in message.content)
    for model in JUDGED if read.messages and is_known else ():
        assert faults_of(model, sent(model, read)) == []
