"""Requests as the Responses API gets them: exact bytes, and what is settled so that nothing is refused."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given

from journeyman import ModelSettings, ToolResult
from journeyman.models.openai.endpoint import AZURE, VLLM, InputMedia
from journeyman.models.openai.responses import OpenAIModel
from journeyman.types import Block, Image, JsonObject, Message, Role, Text, Thinking, ToolUse, Url
from tests.models.asking import HELLO
from tests.models.encoding import PLAIN, assistant, body_of, closed, faults_of, histories, request, strict_tool, user

GPT = OpenAIModel("gpt-5.2", api_key="sk-key-of-openai")

ITEM: JsonObject = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA=="}
ITEM_JSON = orjson.dumps(ITEM).decode()


def sent(*messages: Message, model: OpenAIModel = GPT, **more: Any) -> dict[str, Any]:
    return body_of(model, *messages, **more)


def items_of(role: Role, *content: Block, model: OpenAIModel = GPT) -> list[dict[str, Any]]:
    """Return how one message is sent, after another."""
    return sent(HELLO, Message(role, content), model=model)["input"][1:]


def reasoning(pair: str = "", item: JsonObject | None = None) -> Thinking:
    json = ITEM_JSON if item is None else orjson.dumps(item).decode()
    return Thinking("Hm.", f"{json}\n{pair}" if pair else json, "openai")


def test_results_come_before_what_the_user_says_whatever_it_is() -> None:
    kinds = [item["type"] for item in items_of("user", ToolResult("1", tool_use_id="t"), Text("a"), Text("b"))]
    assert kinds == ["function_call_output", "message"]


PICTURE = Image(Url("https://example.com/a.png"))


def test_services_that_take_different_things_do_not_share_bytes() -> None:
    message = user(PICTURE)
    able, unable = (
        OpenAIModel("m", endpoint=VLLM),
        OpenAIModel("m", endpoint=replace(VLLM, media=InputMedia(image_urls=False))),
    )
    first, second = (sent(message, model=model)["input"] for model in (able, unable))
    assert (first[0]["content"][0]["type"], second[0]["content"][0]["type"]) == ("input_image", "input_text")


def test_reasoning_goes_back_byte_by_byte() -> None:
    written = '{ "type":"reasoning", "id":"rs_1","summary":[], "encrypted_content":"x", "new": 1.50e0 }'
    body = GPT.body(request(HELLO, assistant(Thinking("", written, "openai"), Text("Hi."))))
    assert b"," + written.encode() + b"," in body


CALL = ToolUse("call_1", "query")
LATER: JsonObject = {"id": "rs_2", "type": "reasoning", "summary": [], "encrypted_content": "g"}
IDS: dict[str, tuple[tuple[Block, ...], list[tuple[str, str]]]] = {
    "reasoning and the call that it led to": (
        (reasoning("function_call fc_1"), CALL, ToolUse("call_2", "query")),
        [("reasoning", "rs_1"), ("function_call", "fc_1"), ("function_call", "none")],
    ),
    # else the API would miss the reasoning
    "a call without its reasoning": ((CALL,), [("function_call", "none")]),
    "a text without its reasoning": ((Text("Hi."),), [("message", "none")]),
    "another kind of item": ((reasoning("message msg_1"), CALL), [("reasoning", "rs_1"), ("function_call", "none")]),
    "reasoning that nothing follows": ((reasoning("message msg_1"), Text("")), []),
    "reasoning at the end": (
        (reasoning(), Text("A"), reasoning(item=LATER)),
        [("reasoning", "rs_1"), ("message", "none")],
    ),
}


@pytest.mark.parametrize("name", IDS)
def test_an_id_goes_back_only_with_the_reasoning_that_led_to_its_item(name: str) -> None:
    said, expected = IDS[name]
    assert [(item["type"], item.get("id", "none")) for item in items_of("assistant", *said)] == expected


@pytest.mark.parametrize(
    ("item", "is_sent"),
    [
        ({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "g"}, True),
        (
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            True,
        ),
        ({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}, False),
        ({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None, "content": []}, False),
        ({"type": "message", "encrypted_content": "g"}, False),
    ],
    ids=["encrypted", "in the open", "a summary alone", "nothing", "no reasoning"],
)
def test_only_reasoning_that_can_be_read_again_goes_back(item: JsonObject, is_sent: bool) -> None:
    assert (item in items_of("assistant", reasoning(item=item), Text("A"))) is is_sent


def test_one_service_reads_anothers_reasoning_as_a_text() -> None:
    azure = OpenAIModel("gpt-5.2", endpoint=AZURE, base_url="https://example.com")
    item = items_of("assistant", reasoning("message msg_1"), Text("A"), model=azure)[0]
    assert item["content"] == "<thinking>\nHm.\n</thinking>"


RULES_OF_REASONING = ("No item, call or output comes twice", "Reasoning is followed by what it led to")
"""The histories bring one item of reasoning again and again, and before whatever comes."""


@given(histories())
def test_calls_and_results_stay_paired_and_in_order(requests: list[tuple[Message, ...]]) -> None:
    body = sent(*requests[-1])
    assert [fault for fault in faults_of(GPT, body) if not fault.startswith(RULES_OF_REASONING)] == []
    asked = [item["call_id"] for item in body["input"] if item["type"] == "function_call"]
    answered = [item["call_id"] for item in body["input"] if item["type"] == "function_call_output"]
    assert asked == answered


def test_a_schema_is_enforced_only_if_the_tool_and_the_service_want_that() -> None:
    wanted, unwanted = strict_tool(closed(a=PLAIN)), replace(strict_tool(closed(a=PLAIN)), strict=False)
    local = OpenAIModel("m", endpoint=VLLM)
    assert [sent(tools=(each,))["tools"][0]["strict"] for each in (wanted, unwanted)] == [True, False]
    assert sent(tools=(wanted,), model=local)["tools"][0]["strict"] is False


def test_extra_fields_are_sent_as_they_are_and_objects_are_put_together() -> None:
    extra: JsonObject = {"reasoning": {"summary": "auto"}, "prompt_cache_key": "k", "store": True, "background": False}
    body = sent(settings=ModelSettings(thinking="high", extra=extra))
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert (body["prompt_cache_key"], body["store"], body["background"]) == ("k", True, False)
    assert faults_of(GPT, body) == []


def test_the_cache_policy_changes_nothing_because_the_service_caches_by_itself() -> None:
    bodies = {GPT.body(request(settings=ModelSettings(cache=cache))) for cache in ("off", "auto", "explicit")}
    assert len(bodies) == 1
