"""Numbers in arguments keep their digits on every wire: integers of any size, and fractions that no double holds."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import Agent, Runtime, Tool, run
from journeyman.definition.json_numbers import WrittenNumber, read_json, write_json
from journeyman.gate import DecisionCodec, GateRequest, Rewrite
from journeyman.model import Prefix
from journeyman.models.anthropic.decode import AnthropicDecoder
from journeyman.models.decoding import Decoder
from journeyman.models.google.decode import GoogleDecoder
from journeyman.models.google.encode import GoogleCodec, encode
from journeyman.models.openai.chat_decode import ChatDecoder
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.types import JsonObject, Message, Text, ToolUse
from tests.models.decoding import fed, summed

WRITTEN = '{"wei":25000000000000000001,"less":-9223372036854775809,"rate":0.12345678901234567890}'
CALL = b'{"name":"send","args":%b}'
GOOGLE = b'{"candidates":[{"content":{"role":"model","parts":[{"functionCall":%b}]},"finishReason":"STOP"}]}' % CALL
CALLS = b'{"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"send","arguments":%b}}]}'
CHAT = b'{"choices":[{"index":0,"delta":%b,"finish_reason":"tool_calls"}]}' % CALLS
WHOLE = CHAT.replace(b"delta", b"message")
USE = b'{"type":"tool_use","id":"1","name":"send","input":%b}'
ANTHROPIC = b'{"type":"content_block_start","index":0,"content_block":%b}' % USE
BEFORE = b'{"type":"message_start","message":{"id":"m","model":"c","usage":{"input_tokens":1,"output_tokens":1}}}'
AFTER = [
    b'{"type":"content_block_stop","index":0}',
    b'{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}',
    b'{"type":"message_stop"}',
]


@pytest.mark.parametrize(
    ("decoder", "events"),
    [
        pytest.param(GoogleDecoder("google:m"), [GOOGLE], id="google"),
        pytest.param(ChatDecoder("openai"), [CHAT], id="chat"),
        pytest.param(ChatDecoder("openai"), [WHOLE], id="whole document"),
        pytest.param(AnthropicDecoder(), [BEFORE, ANTHROPIC, *AFTER], id="anthropic"),
    ],
)
def test_arguments_that_come_as_an_object_keep_their_digits(decoder: Decoder, events: list[bytes]) -> None:
    written = [event % WRITTEN.encode() if b"%b" in event else event for event in events]
    [use] = [block for block in summed(fed(decoder, written)).content if isinstance(block, ToolUse)]
    assert use.input_json == WRITTEN
    messages = [Message("user", (Text("Go."),)), Message("assistant", (use,))]
    assert WRITTEN.encode() in encode({}, Prefix(), messages, codec=GoogleCodec("gemini-2.5-flash"))


async def test_a_gate_rewrites_numbers_as_they_are() -> None:
    got: list[object] = []

    class Limit:
        async def decide(self, request: GateRequest) -> Rewrite:
            assert "25000000000000000001" in request.input_json
            return Rewrite({"wei": request.arguments["wei"], "most": 2**70})

    def send(arguments: dict[str, Any]) -> str:
        got.append(arguments)
        return "ok"

    schema: JsonObject = {"type": "object", "properties": {"wei": {"type": "integer"}}}
    model = ScriptedModel([call("send", wei=25_000_000_000_000_000_001), "Sent."])
    agent = Agent(name="clerk", model=model, tools=[Tool("send", "Send wei.", schema, send)])
    (await run(agent, "Go.", runtime=Runtime(gate=Limit()))).unwrap()
    assert got == [{"wei": 25_000_000_000_000_000_001, "most": 2**70}]
    decision = Rewrite({"wei": 2**70})
    assert DecisionCodec().decode(DecisionCodec().encode(decision)) == decision


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_is_written_is_read_as_the_same(value: object) -> None:
    written = write_json(value)
    assert read_json(written) == json.loads(written) == value
    assert read_json(written.decode()) == value
    assert write_json(read_json(written)) == written


@pytest.mark.parametrize(
    "text",
    [*("NaN", "-Infinity", "1" + 400 * "0" + ".0", 5_000 * "9", '"\\ud83d"', '{"a":', "[1]x"), 30_000 * "["],
    ids=lambda text: text[:9],
)
def test_what_is_no_json_is_refused_beside_long_numbers_too(text: str) -> None:
    for given_text in (text, f"[{2**70},{text}]", f"[{text},0.12345678901234567890]"):
        for data in (given_text, given_text.encode()):
            with pytest.raises(orjson.JSONDecodeError):
                read_json(data)


def test_a_fraction_is_the_nearest_double_with_its_text() -> None:
    number = read_json("0.10000000000000000000")
    assert isinstance(number, WrittenNumber)
    assert number == 0.1
    assert number.text == "0.10000000000000000000"
