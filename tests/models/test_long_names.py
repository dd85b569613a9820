"""Tools whose names are longer than a service takes: one short name, which tells them apart, in every place."""

import orjson
import pytest

from journeyman.model import Prefix, ToolSpec
from journeyman.models.openai import OPENAI, chat_decode, chat_encode, responses_decode, responses_encode
from journeyman.models.wire import safe_name, shorten_names
from journeyman.types import Message, Text, ToolUse
from tests.models.decoding import fed, summed

NAMES = [
    f"get_application_number_manufacturer_name_and_route_of_administration_by_{end}" for end in ("by_drug", "by_code")
]
TOOLS = tuple([ToolSpec(name=name, description="", input_schema={"type": "object"}) for name in (*NAMES, "look")])
HISTORY = [Message("user", (Text("Go."),)), Message("assistant", tuple([ToolUse(name, name) for name in NAMES]))]


def test_short_names_are_the_same_in_tools_and_history() -> None:
    chat = orjson.loads(chat_encode.encode({"model": "m"}, Prefix(tools=TOOLS), HISTORY, endpoint=OPENAI))
    responses = orjson.loads(responses_encode.encode({"model": "m"}, Prefix(tools=TOOLS), HISTORY, endpoint=OPENAI))
    listed = [each["function"]["name"] for each in chat["tools"]]
    assert listed == [each["name"] for each in responses["tools"]]
    assert listed[:2] == [each["function"]["name"] for each in chat["messages"][-1]["tool_calls"]]
    assert listed[:2] == [each["name"] for each in responses["input"] if each.get("type") == "function_call"]
    assert len(set(listed)) == 3
    assert [len(each) for each in listed] == [64, 64, 4]


@pytest.mark.parametrize("is_chat", [True, False])
def test_a_call_by_the_short_name_is_one_of_the_tool(is_chat: bool) -> None:
    short = safe_name(NAMES[1], longest=64)
    names = shorten_names(TOOLS, longest=64)
    if is_chat:
        function = {"index": 0, "id": "1", "function": {"name": short, "arguments": "{}"}}
        choice = {"index": 0, "delta": {"tool_calls": [function]}, "finish_reason": "tool_calls"}
        events = [{"choices": [choice], "id": "c"}]
        decoder = chat_decode.ChatDecoder("openai", names=names)
    else:
        item = {"type": "function_call", "id": "f", "call_id": "1", "name": short, "arguments": "{}"}
        events = [
            {"type": "response.created", "response": {"id": "r", "model": "m"}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "r", "model": "m", "output": [item]}},
        ]
        decoder = responses_decode.ResponsesDecoder("openai", names=names)
    [use] = [block for block in summed(fed(decoder, events)).content if isinstance(block, ToolUse)]
    assert use.name == NAMES[1]
