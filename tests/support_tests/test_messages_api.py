"""The strict Messages API server over HTTP: the official SDK reads what was scripted, and rules are applied."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import aiohttp
import anthropic
import orjson
import pytest
from anthropic.types import MessageParam, ToolParam

from tests.support.messages_answers import (
    Answer,
    Reply,
    answer,
    by_turn,
    fault,
    redacted_thinking,
    refusal,
    server_tool_use,
    text,
    thinking,
    tool_use,
    web_search_tool_result,
)
from tests.support.messages_api import MessagesApi
from tests.support.messages_json import Json, as_list, as_object
from tests.support_tests.messages_bodies import ASKED, HEADERS, body, result, user
from tests.support_tests.messages_bodies import assistant as assistant_message
from tests.support_tests.messages_bodies import call as call_block
from tests.support_tests.messages_bodies import tool as tool_definition
from tests.support_tests.messages_client import event_types, events_in, post, streamed

pytestmark = pytest.mark.anyio

QUESTION: list[MessageParam] = [{"role": "user", "content": "What sold best in May?"}]
QUERY: ToolParam = {"name": "query", "input_schema": {"type": "object", "properties": {"sql": {"type": "string"}}}}
FULL = answer(
    thinking("Umläute, 漢字, and 🦜 may all be cut."),
    redacted_thinking(),
    "First the search: “best seller” — naïve 🦜🦜",
    server_tool_use("web_search", {"query": "best seller 🦜"}, id="srvtoolu_1"),
    web_search_tool_result("srvtoolu_1", "May", "June"),
    {
        "type": "text",
        "text": "cited",
        "citations": [
            {
                "type": "web_search_result_location",
                "url": "https://example.com",
                "title": "May",
                "cited_text": "May",
                "encrypted_index": "e",
            }
        ],
    },
    tool_use("query", {"sql": "select \"ä\", '🦜' \\ \n", "deep": {"n": [1, -2.5e-7, True, None, ""]}}),
    tool_use("query", {}),
    usage={"input_tokens": 17, "output_tokens": 99, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 7},
)


@asynccontextmanager
async def sdk(api: MessagesApi) -> AsyncGenerator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=api.url, api_key="k", max_retries=0) as client:
        yield client


def served(whole: Answer, serial: int) -> list[Json]:
    """Return the content of an answer as it is served to the request of this number."""
    return orjson.loads(orjson.dumps(whole.content).replace(b"__serial__", str(serial).encode()))


def without_defaults(message: anthropic.types.Message) -> Json:
    return message.model_dump(mode="json", exclude_unset=True)


async def final_message(client: anthropic.AsyncAnthropic, *, stream: bool) -> anthropic.types.Message:
    if not stream:
        return await client.messages.create(model="claude-test", max_tokens=100, messages=QUESTION, tools=[QUERY])
    async with client.messages.stream(model="claude-test", max_tokens=100, messages=QUESTION, tools=[QUERY]) as events:
        return await events.get_final_message()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_the_official_sdk_reads_what_was_scripted(stream: bool, seed: int) -> None:
    async with MessagesApi([FULL], seed=seed, n_writes=20) as api, sdk(api) as client:
        message = without_defaults(await final_message(client, stream=stream))
    assert message["content"] == served(FULL, 1)
    assert as_object(message["usage"]).items() >= FULL.usage.items()
    assert (message["id"], message["model"], message["stop_reason"]) == ("msg_1", "claude-test", "tool_use")
    assert message["stop_sequence"] is None


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_the_official_sdk_can_continue_a_thinking_tool_turn(stream: bool) -> None:
    script = [answer(thinking("Query."), tool_use("query", {"sql": "select 1"})), answer("42.")]
    async with MessagesApi(script, bind_thinking=True) as api, sdk(api) as client:
        first = await final_message(client, stream=stream)
        call = cast("anthropic.types.ToolUseBlock", first.content[-1])
        second = await client.messages.create(
            model="claude-test",
            max_tokens=4096,
            thinking={"type": "enabled", "budget_tokens": 1024},
            tools=[QUERY],
            messages=[
                *QUESTION,
                first.to_param(),
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "42"}]},
            ],
        )
    assert without_defaults(second)["content"] == [text("42.")]
    assert [request.body["messages"] != [] for request in api.requests] == [True, True]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize(
    ("reply", "stop_reason"),
    [
        (answer("Done."), "end_turn"),
        (answer(tool_use("query", {})), "tool_use"),
        (answer("Cut", stop_reason="max_tokens"), "max_tokens"),
        (answer("Wait", server_tool_use("web_search", {}, id="s1"), stop_reason="pause_turn"), "pause_turn"),
        (answer("Full", stop_reason="model_context_window_exceeded"), "model_context_window_exceeded"),
        (answer("Odd", stop_reason="something_new"), "something_new"),
        (answer("None", stop_reason=None), None),
        (refusal(category="cyber"), "refusal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_every_stop_reason_arrives(reply: Answer, stop_reason: str | None, stream: bool) -> None:
    async with MessagesApi([reply]) as api, sdk(api) as client:
        message = without_defaults(await final_message(client, stream=stream))
    assert message["stop_reason"] == stop_reason
    assert message["stop_details"] == reply.stop_details


async def test_a_stop_sequence_and_the_details_of_a_refusal_arrive() -> None:
    script = [
        answer("A", stop_reason="stop_sequence", stop_sequence="END"),
        refusal("I cannot", category="bio", explanation="No."),
    ]
    async with MessagesApi(script) as api, sdk(api) as client:
        stopped, refused = [await final_message(client, stream=True) for _ in script]
    assert stopped.stop_sequence == "END"
    assert refused.stop_details is not None
    assert (refused.stop_details.category, refused.stop_details.explanation) == ("bio", "No.")


async def test_a_stream_has_the_events_of_the_real_one() -> None:
    async with MessagesApi([answer(thinking("Hm"), "Hello", tool_use("query", {"a": 1}), delta_chars=3)]) as api:
        _, stream = await post(api, streamed(tools=[tool_definition()]))
    assert stream.startswith(b"event: message_start\ndata: {")
    start, *_, delta, stop = events_in(stream)
    assert event_types(stream) == [
        *("message_start", "ping"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", *["content_block_delta"] * 4, "content_block_stop"),
        *("message_delta", "message_stop"),
    ]
    assert [event["delta"] for event in events_in(stream) if "delta" in event][:-1] == [
        {"type": "thinking_delta", "thinking": "Hm"},
        {"type": "signature_delta", "signature": thinking("Hm")["signature"]},
        {"type": "text_delta", "text": "Hel"},
        {"type": "text_delta", "text": "lo"},
        {"type": "input_json_delta", "partial_json": ""},
        {"type": "input_json_delta", "partial_json": '{"a'},
        {"type": "input_json_delta", "partial_json": '": '},
        {"type": "input_json_delta", "partial_json": "1}"},
    ]
    assert as_object(as_object(start["message"])["usage"])["output_tokens"] == 1
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None, "stop_details": None}
    assert stop == {"type": "message_stop"}


async def test_tool_input_is_cut_inside_escapes() -> None:
    async with MessagesApi([answer(tool_use("query", {"bird": "🦜"}), delta_chars=1)]) as api:
        _, stream = await post(api, streamed(tools=[tool_definition()]))
    deltas = [as_object(event["delta"]) for event in events_in(stream) if event["type"] == "content_block_delta"]
    assert "".join(str(delta["partial_json"]) for delta in deltas) == r'{"bird": "\ud83e\udd9c"}'


async def test_the_same_seed_cuts_at_the_same_places_and_another_does_not() -> None:
    streams: list[bytes] = []
    for seed in (1, 1, 2):
        async with MessagesApi([FULL], seed=seed) as api:
            streams.append((await post(api, streamed(tools=[tool_definition()])))[1])
    assert streams[0] == streams[1] != streams[2]


async def test_an_answer_served_twice_has_two_ids() -> None:
    again = answer(tool_use("query", {}))
    async with MessagesApi([again, again]) as api:
        replies = [orjson.loads((await post(api, body(ASKED)))[1]) for _ in range(2)]
    assert [reply["id"] for reply in replies] == ["msg_1", "msg_2"]
    assert [reply["content"][0]["id"] for reply in replies] == ["toolu_1_1", "toolu_2_1"]


async def test_requests_are_recorded() -> None:
    async with MessagesApi([answer("Hi")]) as api, sdk(api) as client:
        await final_message(client, stream=False)
    (request,) = api.requests
    assert (request.method, request.path, request.serial) == ("POST", "/v1/messages", 1)
    assert request.headers["content-type"] == "application/json"
    assert request.body == orjson.loads(request.raw)
    assert request.body["messages"] == QUESTION


async def test_a_bad_request_gets_a_400_and_fails_the_block() -> None:
    async def ask_without_tokens() -> None:
        async with MessagesApi([answer("Hi")]) as api:
            status, reply = await post(api, {"model": "m", "messages": [ASKED]})
            error = orjson.loads(reply)["error"]
            assert (status, error["type"]) == (400, "invalid_request_error")
            assert error["message"] == 'types_fit: body: "max_tokens" is a required property'
            assert api.n_unserved == 1

    with pytest.raises(AssertionError, match=r'request 1: types_fit: body: "max_tokens" is a required property'):
        await ask_without_tokens()


async def test_another_error_is_not_hidden_by_violations() -> None:
    async def fail_after_a_violation() -> None:
        async with MessagesApi([]) as api:
            await post(api, {})
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail_after_a_violation()


async def test_what_is_no_json_and_what_is_not_served_is_refused() -> None:
    async with MessagesApi([], accept_violations=True) as api, aiohttp.ClientSession() as session:
        async with session.post(f"{api.url}/v1/messages", data=b"{'a': 1}", headers=HEADERS) as response:
            assert response.status == 400
        async with session.get(f"{api.url}/v1/models", headers=HEADERS) as response:
            assert response.status == 404
    assert api.violations == [
        "request 1: json: the request body is not valid JSON",
        "request 2: path: GET /v1/models is not served",
    ]


async def test_a_missing_key_gets_a_401_and_a_bad_one_that_is_no_violation() -> None:
    async with MessagesApi([answer("Hi")], bad_keys={"wrong"}, accept_violations=True) as api:
        assert (await post(api, body(ASKED), **{"x-api-key": ""}))[0] == 401
        status, reply = await post(api, body(ASKED), **{"x-api-key": "wrong"})
        assert (status, orjson.loads(reply)["error"]["type"]) == (401, "authentication_error")
        assert (await post(api, body(ASKED)))[0] == 200
    assert len(api.violations) == 1


async def test_an_answer_that_comes_back_changed_is_refused() -> None:
    async with MessagesApi([answer("I look.", tool_use("query", {})), answer("Hi")], accept_violations=True) as api:
        await post(api, body(ASKED, tools=[tool_definition()]))
        changed = assistant_message(text("I looked."), call_block("toolu_1_1"))
        await post(api, body(ASKED, changed, user(result("toolu_1_1")), tools=[tool_definition()]))
    assert [violation.partition(": ")[2].partition(":")[0] for violation in api.violations] == [
        "answers_come_back_unchanged"
    ]


async def test_bound_thinking_fails_when_the_conversation_before_it_changes() -> None:
    script = [answer(thinking("Query."), tool_use("query", {}, id="t1")), answer("42.")]
    for system, n_violations in (("Be careful.", 0), ("Be quick.", 1)):
        async with MessagesApi(script, bind_thinking=True, accept_violations=True) as api:
            await post(api, body(ASKED, tools=[tool_definition()], system="Be careful."))
            echo = assistant_message(thinking("Query."), call_block("t1"))
            await post(api, body(ASKED, echo, user(result("t1")), tools=[tool_definition()], system=system))
        assert len(api.violations) == n_violations


async def test_without_judging_anything_is_served() -> None:
    async with MessagesApi([answer("Hi")], judging=False) as api:
        assert (await post(api, {"messages": "none"}))[0] == 200
    assert len(api.requests) == 1


async def test_without_recording_requests_are_judged_but_not_kept() -> None:
    async with MessagesApi([], recording=False, accept_violations=True) as api:
        assert (await post(api, body()))[0] == 400
    assert (api.requests, len(api.violations)) == ([], 1)


async def test_a_policy_may_be_sync_or_async() -> None:
    def first_word(request: Json) -> Reply:
        return answer(str(as_object(as_list(request["messages"])[0])["content"]).split()[0])

    async def later(request: Json) -> Reply:
        return first_word(request)

    for policy in (first_word, later):
        async with MessagesApi(policy) as api:
            reply = orjson.loads((await post(api, body(ASKED)))[1])
        assert reply["content"] == [text("What")]


async def test_a_script_that_runs_out_or_fails_is_a_500_and_a_violation() -> None:
    async with MessagesApi([answer("Hi")], accept_violations=True) as api:
        assert [(await post(api, body(ASKED)))[0] for _ in range(2)] == [200, 500]
    assert api.violations == ["request 2: script: LookupError: all 1 replies have been served"]


async def test_by_turn_every_conversation_walks_through_the_script() -> None:
    async with MessagesApi(by_turn([answer("One"), answer("Two")]), accept_violations=True) as api:
        replies: list[object] = []
        for messages in ([ASKED], [ASKED], [ASKED, assistant_message(text("One")), ASKED]):
            replies.append(orjson.loads((await post(api, body(*messages)))[1])["content"][0]["text"])
        assert replies == ["One", "One", "Two"]
        assert (await post(api, body(*[assistant_message(text("One")), ASKED] * 2)))[0] == 500


async def test_tokens_are_counted() -> None:
    async with MessagesApi([]) as api, sdk(api) as client:
        counted = await client.messages.count_tokens(model="claude-test", messages=QUESTION)
    assert counted.input_tokens == len(api.requests[0].raw) // 4


async def test_errors_have_the_shape_and_the_headers_of_the_api() -> None:
    async with MessagesApi([fault(429, headers={"retry-after": "1"}, message="Slow down")]) as api, sdk(api) as client:
        with pytest.raises(anthropic.RateLimitError, match="Slow down") as caught:
            await final_message(client, stream=True)
    assert caught.value.response.headers["retry-after"] == "1"
    assert caught.value.request_id == "req_1"
    assert orjson.loads(fault(529).body)["error"]["type"] == "overloaded_error"
