"""Answers of the APIs as blocks, side by side: calls and their ids, streams that are cut, what is no answer."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from journeyman.models.anthropic import AnthropicModel
from journeyman.models.openai import VLLM, OpenAIChatModel, OpenAIModel
from journeyman.types import Block, ToolUse, dump_messages, load_messages
from tests.models import test_anthropic_decode as by_anthropic
from tests.models import test_openai_chat_decode as by_chat
from tests.models import test_openai_responses_decode as by_responses
from tests.models.asking import HELLO
from tests.models.decoding import Json
from tests.models.encoding import AnyModel, assistant, body_of

Calls = Callable[..., tuple[Block, ...]]


def anthropics(*calls: tuple[str, str]) -> tuple[Block, ...]:
    events: list[Json] = []
    for index, (id, written) in enumerate(calls):
        first, piece = {"type": "tool_use", "id": id, "name": "query"}, {"type": "input_json_delta"}
        events += by_anthropic.block(index, first, {**piece, "partial_json": written})
    return by_anthropic.content_of(*events)


def chats(*calls: tuple[str, str]) -> tuple[Block, ...]:
    pieces = [by_chat.piece("query", written, index=index, id=id) for index, (id, written) in enumerate(calls)]
    return by_chat.content_of(by_chat.calls(*pieces), reason="tool_calls")


def responded(*calls: tuple[str, str]) -> tuple[Block, ...]:
    return by_responses.content_of(*[by_responses.function_call(written, call_id=id) for id, written in calls])


each = pytest.mark.parametrize("calls", [anthropics, chats, responded])
NO_OBJECTS = ['{"a": ', '{"a": 1,}', "[1]", '"text"', "null", "{'a': 1}", "select 1", '{"a": NaN}']


@each
@pytest.mark.parametrize("written", [*NO_OBJECTS, "[" * 300 + "]" * 300])
def test_arguments_that_are_no_json_object_are_kept_aside(calls: Calls, written: str) -> None:
    assert calls(("t", written)) == (ToolUse("t", "query", malformed=written),)


@each
@pytest.mark.parametrize("written", ["", "  ", "{}"])
def test_no_arguments_are_an_empty_object(calls: Calls, written: str) -> None:
    assert calls(("t", written)) == (ToolUse("t", "query", "{}"),)


@each
def test_arguments_are_kept_as_they_were_written(calls: Calls) -> None:
    written = '{ "n":1.50e3,"n" : 2 , "big": 123456789012345678901234567890 }'
    [kept] = calls(("t", written))
    assert isinstance(kept, ToolUse)
    assert kept.input_json == written
    assert kept.input["big"] == 123456789012345678901234567890


@each
def test_an_empty_or_repeated_id_is_replaced_and_remembered(calls: Calls) -> None:
    content = calls(("t", "{}"), ("t", "{}"), ("", "{}"), ("u", "{}"))
    ids = [(call.id, call.wire_id) for call in content if isinstance(call, ToolUse)]
    assert (ids[0], ids[3]) == (("t", None), ("u", None))
    assert (ids[1][1], ids[2][1]) == ("t", "")
    assert len({id for id, _ in ids}) == 4


PROGRAM = {"type": "program", "caller_id": "call_p"}
EXECUTED = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
SIGNED = {"google": {"thought_signature": "c2ln"}}
GEMINI = OpenAIChatModel("gemini-x", endpoint=replace(VLLM, provider="gemini"))
BESIDE: dict[str, tuple[AnyModel, tuple[Block, ...], Mapping[str, object]]] = {
    "anthropic": (
        AnthropicModel("claude-sonnet-5-5"),
        by_anthropic.content_of(
            *by_anthropic.block(0, {"type": "tool_use", "id": "t", "name": "query", "caller": EXECUTED})
        ),
        {"caller": EXECUTED},
    ),
    "chat": (
        GEMINI,
        by_chat.content_of(
            by_chat.calls({**by_chat.piece("query", "{}", id="t"), "extra_content": SIGNED}), provider="gemini"
        ),
        {"extra_content": SIGNED},
    ),
    "responses": (
        OpenAIModel("gpt-5.2"),
        by_responses.content_of(by_responses.function_call("{}", "t", caller=PROGRAM, namespace="n")),
        {"caller": PROGRAM, "namespace": "n"},
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_came_beside_a_call_goes_back_to_its_provider_only(name: str) -> None:
    _, content, fields = BESIDE[name]
    [message] = load_messages(dump_messages([assistant(*content)]))
    for reader, (model, _, _) in BESIDE.items():
        call = call_in(body_of(model, HELLO, message))
        assert (fields if reader == name else {}) == {key: call[key] for key in call if key in fields}


def call_in(body: Json) -> Json:
    if "input" in body:
        return body["input"][-1]
    last = body["messages"][-1]
    return last["tool_calls"][0] if "tool_calls" in last else last["content"][0]
