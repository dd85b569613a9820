"""The strict Messages API server: what is scripted arrives, rules are applied, faults are what they say."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import aiohttp
import anthropic
import orjson
import pytest
from anthropic.types import MessageParam, ToolParam

from tests.support import messages_answers as says
from tests.support.messages_answers import answer, fault
from tests.support.messages_api import MessagesApi
from tests.support.messages_json import Json, as_list, as_object
from tests.support.messages_memory import Memory
from tests.support.messages_request import Request
from tests.support.messages_rules import OPTIONAL_RULES, judge
from tests.support_tests import client as bare
from tests.support_tests import messages_bodies
from tests.support_tests.client import event_types, events_in
from tests.support_tests.messages_bodies import ASKED, THINKING, assistant, body, call, result, text, tool, turn, user
from tests.support_tests.mutants import rules_broken

pytestmark = pytest.mark.anyio

judged = partial(judge, headers=messages_bodies.HEADERS)

QUESTION: list[MessageParam] = [{"role": "user", "content": "What sold best in May?"}]
QUERY: ToolParam = {"name": "query", "input_schema": {"type": "object", "properties": {"sql": {"type": "string"}}}}
FULL = answer(
    says.thinking("Umläute, 漢字, and 🦜 may all be cut."),
    says.redacted_thinking(),
    "First the search: “best seller” — naïve 🦜🦜",
    says.server_tool_use("web_search", {"query": "best seller 🦜"}, id="srvtoolu_1"),
    says.web_search_tool_result("srvtoolu_1", "May", "June"),
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
    says.tool_use("query", {"sql": "select \"ä\", '🦜' \\ \n", "deep": {"n": [1, -2.5e-7, True, None, ""]}}),
    says.tool_use("query", {}),
    usage={"input_tokens": 17, "output_tokens": 99, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 7},
)


async def post(api: MessagesApi, request: Json, **headers: str) -> tuple[int, bytes]:
    return await bare.post(api, "/v1/messages", request, **headers)


def streamed(**more: object) -> Json:
    return body(ASKED, stream=True, **more)


@asynccontextmanager
async def sdk(api: MessagesApi) -> AsyncGenerator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=api.url, api_key="k", max_retries=0) as client:
        yield client


def served(whole: says.Answer, serial: int) -> list[Json]:
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
    script = [answer(says.thinking("Query."), says.tool_use("query", {"sql": "select 1"})), answer("42.")]
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
        (answer(says.tool_use("query", {})), "tool_use"),
        (answer("Cut", stop_reason="max_tokens"), "max_tokens"),
        (answer("Wait", says.server_tool_use("web_search", {}, id="s1"), stop_reason="pause_turn"), "pause_turn"),
        (answer("Full", stop_reason="model_context_window_exceeded"), "model_context_window_exceeded"),
        (answer("Odd", stop_reason="something_new"), "something_new"),
        (answer("None", stop_reason=None), None),
        (says.refusal(category="cyber"), "refusal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_every_stop_reason_arrives(reply: says.Answer, stop_reason: str | None, stream: bool) -> None:
    async with MessagesApi([reply]) as api, sdk(api) as client:
        message = without_defaults(await final_message(client, stream=stream))
    assert message["stop_reason"] == stop_reason
    assert message["stop_details"] == reply.stop_details


async def test_a_stop_sequence_and_the_details_of_a_refusal_arrive() -> None:
    script = [
        answer("A", stop_reason="stop_sequence", stop_sequence="END"),
        says.refusal("I cannot", category="bio", explanation="No."),
    ]
    async with MessagesApi(script) as api, sdk(api) as client:
        stopped, refused = [await final_message(client, stream=True) for _ in script]
    assert stopped.stop_sequence == "END"
    assert refused.stop_details is not None
    assert (refused.stop_details.category, refused.stop_details.explanation) == ("bio", "No.")


async def test_a_stream_has_the_events_of_the_real_one() -> None:
    async with MessagesApi(
        [answer(says.thinking("Hm"), "Hello", says.tool_use("query", {"a": 1}), delta_chars=3)]
    ) as api:
        _, stream = await post(api, streamed(tools=[tool()]))
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
        {"type": "signature_delta", "signature": says.thinking("Hm")["signature"]},
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
    async with MessagesApi([answer(says.tool_use("query", {"bird": "🦜"}), delta_chars=1)]) as api:
        _, stream = await post(api, streamed(tools=[tool()]))
    deltas = [as_object(event["delta"]) for event in events_in(stream) if event["type"] == "content_block_delta"]
    assert "".join(str(delta["partial_json"]) for delta in deltas) == r'{"bird": "\ud83e\udd9c"}'


async def test_the_same_seed_cuts_at_the_same_places_and_another_does_not() -> None:
    streams: list[bytes] = []
    for seed in (1, 1, 2):
        async with MessagesApi([FULL], seed=seed) as api:
            streams.append((await post(api, streamed(tools=[tool()])))[1])
    assert streams[0] == streams[1] != streams[2]


async def test_an_answer_served_twice_has_two_ids() -> None:
    again = answer(says.tool_use("query", {}))
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
        async with session.post(
            f"{api.url}/v1/messages", data=b"{'a': 1}", headers=messages_bodies.HEADERS
        ) as response:
            assert response.status == 400
        async with session.get(f"{api.url}/v1/models", headers=messages_bodies.HEADERS) as response:
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
    async with MessagesApi(
        [answer("I look.", says.tool_use("query", {})), answer("Hi")], accept_violations=True
    ) as api:
        await post(api, body(ASKED, tools=[tool()]))
        changed = assistant(text("I looked."), call("toolu_1_1"))
        await post(api, body(ASKED, changed, user(result("toolu_1_1")), tools=[tool()]))
    assert [violation.partition(": ")[2].partition(":")[0] for violation in api.violations] == [
        "answers_come_back_unchanged"
    ]


async def test_bound_thinking_fails_when_the_conversation_before_it_changes() -> None:
    script = [answer(says.thinking("Query."), says.tool_use("query", {}, id="t1")), answer("42.")]
    for system, n_violations in (("Be careful.", 0), ("Be quick.", 1)):
        async with MessagesApi(script, bind_thinking=True, accept_violations=True) as api:
            await post(api, body(ASKED, tools=[tool()], system="Be careful."))
            echo = assistant(says.thinking("Query."), call("t1"))
            await post(api, body(ASKED, echo, user(result("t1")), tools=[tool()], system=system))
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
    def first_word(request: Json) -> says.Reply:
        return answer(str(as_object(as_list(request["messages"])[0])["content"]).split()[0])

    async def later(request: Json) -> says.Reply:
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
    async with MessagesApi(says.by_turn([answer("One"), answer("Two")]), accept_violations=True) as api:
        replies: list[object] = []
        for messages in ([ASKED], [ASKED], [ASKED, assistant(text("One")), ASKED]):
            replies.append(orjson.loads((await post(api, body(*messages)))[1])["content"][0]["text"])
        assert replies == ["One", "One", "Two"]
        assert (await post(api, body(*[assistant(text("One")), ASKED] * 2)))[0] == 500


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


# -- faults on purpose -------------------------------------------------------------------------------------------------


async def test_a_reply_can_be_anything_at_all() -> None:
    script = [says.html_page(503), says.raw(b""), says.raw(b"\xff\xfe{", content_type="text/event-stream")]
    async with MessagesApi(script) as api:
        page, empty, garbage = [await post(api, streamed()) for _ in script]
    assert page == (503, b"<html><head><title>503</title></head><body><h1>503 Bad Gateway</h1></body></html>")
    assert (empty, garbage) == ((200, b""), (200, b"\xff\xfe{"))


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_cut_answer_is_an_error_of_the_transport(ending: str, stream: bool) -> None:
    whole = answer("A text of some length, cut before its end.")
    broken = says.cut(whole, after_bytes=60, ending="close" if ending == "close" else "reset")
    async with MessagesApi([broken]) as api:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await post(api, body(ASKED, stream=stream))


async def test_a_stream_can_end_in_order_and_yet_too_early() -> None:
    script = [
        says.cut(answer("Hello"), after_events=3, ending="end"),
        says.cut(answer("Hello"), after_bytes=70, ending="end"),
    ]
    async with MessagesApi(script) as api:
        assert event_types((await post(api, streamed()))[1]) == ["message_start", "ping", "content_block_start"]
        assert len((await post(api, body(ASKED)))[1]) == 70


async def test_a_stream_can_break_off_with_an_error_event() -> None:
    async with MessagesApi([says.broken_off(answer("Hello"), after_events=3)]) as api:
        last = events_in((await post(api, streamed()))[1])[-1]
    assert last == {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


async def test_anything_can_stand_inside_a_stream() -> None:
    whole = answer("Hello")
    script = [
        whole,
        says.insert(whole, b"data: \xff{\n\n", after_events=2),
        says.insert(whole, says.enormous_line(2**20), after_events=1),
    ]
    async with MessagesApi(script) as api:
        clean, spoilt, enormous = [(await post(api, streamed()))[1] for _ in script]
    assert spoilt.replace(b"data: \xff{\n\n", b"").replace(b"msg_2", b"msg_1") == clean
    assert max(map(len, enormous.split(b"\n"))) > 2**20
    assert event_types(enormous) == [*event_types(clean)[:1], "ping", *event_types(clean)[1:]]


async def test_a_stalled_stream_lasts_until_the_client_goes_away() -> None:
    async with MessagesApi([says.stall(answer("Hello"), after_events=3)]) as api, aiohttp.ClientSession() as session:
        async with session.post(f"{api.url}/v1/messages", json=streamed(), headers=messages_bodies.HEADERS) as response:
            received = b""
            while b"content_block_start" not in received:
                received += await response.content.readany()
            assert (api.in_flight, api.requests[0].hung_up) == (1, False)
        await api.until(lambda: api.requests[0].hung_up)
    assert api.in_flight == 0


async def test_leaving_does_not_wait_for_a_stalled_client() -> None:
    async with aiohttp.ClientSession() as session:
        async with MessagesApi([says.stall(answer("Hello"), after_events=1)]) as api:
            response = await session.post(f"{api.url}/v1/messages", json=streamed(), headers=messages_bodies.HEADERS)
            assert api.in_flight == 1
        assert (api.in_flight, response.closed) == (0, False)
        response.close()


async def test_headers_can_be_held_back_until_they_are_released() -> None:
    released = asyncio.Event()
    async with MessagesApi([says.late(answer("One"), until=released), says.late(fault(529), seconds=0.001)]) as api:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(post(api, body(ASKED)))
            await api.until(lambda: api.in_flight == 1)
            assert (await post(api, body(ASKED)))[0] == 529
            assert not first.done()
            released.set()
        assert first.result()[0] == 200
    assert api.peak_in_flight == 2


# -- what the server remembers, and how it says what is wrong ----------------------------------------------------------


def test_a_bearer_token_is_a_key_and_header_names_have_no_case() -> None:
    headers = {
        "Authorization": "Bearer k",
        "Anthropic-Version": "2026-10-21",
        "Content-Type": "application/json; charset=utf-8",
    }
    assert judge(messages_bodies.GOOD["plain text"], headers) == []


def test_a_violation_says_where_and_what() -> None:
    request = body(
        user({"type": "image", "source": messages_bodies.PNG | {"media_type": "image/bmp"}}),
        assistant(call("t1")),
        user(text("Well?"), result("t2", 5)),
        tools=[tool()],
    )
    assert judged(request) == [
        'types_fit: messages.0.content.0.source.media_type: "image/bmp" is not one of "image/jpeg", "image/png"'
        " or 2 other candidates",
        'types_fit: messages.2.content.1.content: 5 is not of type "string"',
        "files_are_of_a_kind_that_is_taken: messages.0.content.0.source.base64.media_type: Input should be one of"
        " ['image/gif', 'image/jpeg', 'image/png', 'image/webp']",
        "every_call_is_answered: messages.1.content.0: call t1 has no result right after it",
        "every_result_has_its_call: messages.2.content.1: no call t2 right before it",
        "tool_results_come_first: messages.2.content.1: `tool_result` blocks must come before other content",
    ]


def test_marks_nulls_and_empty_texts_may_change_in_what_was_served() -> None:
    memory = Memory()
    memory.remember([text(""), text("I look."), call("t1")], paused=False, prefix="")
    echo = assistant(text("I look.", citations=None), {**call("t1"), "cache_control": messages_bodies.MARK})
    assert judged(body(ASKED, echo, user(result("t1")), tools=[tool()]), memory=memory) == []


def test_thinking_may_be_left_out_once_what_was_before_it_has_changed() -> None:
    answers = turn(THINKING, call("t1"))
    before = body(ASKED, tools=[tool()])
    memory = Memory()
    memory.remember(
        [THINKING, call("t1")], paused=False, prefix=Request(before, messages_bodies.HEADERS, memory).prefix()
    )
    bare = turn(call("t1"))
    kept = body(ASKED, *bare, tools=[tool()])
    assert rules_broken(judged(kept, memory=memory)) == {"answers_come_back_unchanged"}
    changed = body(user(text("Asked otherwise.")), *bare, tools=[tool()])
    assert judged(changed, memory=memory, bind_thinking=True) == []
    manual = judged({**changed, "thinking": messages_bodies.MANUAL}, memory=memory)
    assert rules_broken(manual) == {"the_tool_turn_starts_with_thinking"}
    stale = body(user(text("Asked otherwise.")), *answers, tools=[tool()])
    assert rules_broken(judged(stale, memory=memory, bind_thinking=True)) == {"thinking_keeps_its_conversation"}


def test_thinking_that_came_last_does_not_come_back() -> None:
    memory = Memory()
    memory.remember([call("t1"), THINKING], paused=False, prefix="")
    without = body(ASKED, assistant(call("t1")), user(result("t1")), tools=[tool()])
    assert judged(without, memory=memory) == []
    unchanged = body(ASKED, assistant(call("t1"), THINKING), user(result("t1")), tools=[tool()])
    assert rules_broken(judged(unchanged, memory=memory)) == {"an_answer_does_not_end_in_thinking"}


def test_a_call_whose_id_the_conversation_had_before_may_come_back_with_another() -> None:
    def faults(second: Json, *, taken: frozenset[str] = frozenset({"t1"})) -> list[str]:
        memory = Memory()
        memory.remember([THINKING, call("t1")], paused=False, prefix="")
        memory.remember([{**THINKING, "signature": "c2Vjb25k"}, call("t1")], paused=False, prefix="", taken=taken)
        first = turn(THINKING, call("t1"))
        answer = [assistant({**THINKING, "signature": "c2Vjb25k"}, second), user(result(str(second["id"])))]
        return judged(body(ASKED, *first, *answer, tools=[tool()]), memory=memory)

    assert faults(call("call_2")) == faults(call("t1")) == []
    renamed_for_nothing = faults(call("call_2"), taken=frozenset())
    assert rules_broken(renamed_for_nothing) == {"answers_come_back_unchanged"}
    changed = {**call("call_2"), "input": {"sql": "drop table sales"}}
    assert rules_broken(faults(changed)) == {"answers_come_back_unchanged"}


def test_calls_of_one_answer_that_share_an_id_come_back_with_two() -> None:
    memory = Memory()
    memory.remember([THINKING, call("t1"), call("t1")], paused=False, prefix="")
    for ids, n_violations in ((("t1", "call_2"), 0), (("call_1", "t1"), 1)):
        answer = assistant(THINKING, *map(call, ids))
        request = body(ASKED, answer, user(*map(result, ids)), tools=[tool()])
        assert len(judged(request, memory=memory)) == n_violations


def test_equal_ids_of_two_conversations_do_not_mix() -> None:
    memory = Memory()
    for said in ("One.", "Two."):
        memory.remember([text(said), call("t1")], paused=False, prefix="")
    for said, n_violations in (("One.", 0), ("Two.", 0), ("Three.", 1)):
        request = body(ASKED, *turn(text(said), call("t1")), tools=[tool()])
        assert len(judged(request, memory=memory)) == n_violations


def test_a_block_of_an_unknown_type_is_taken_if_it_was_served() -> None:
    future: Json = {"type": "oracle", "vision": {"depth": 3}}
    request = body(ASKED, *turn(future, call("t1")), tools=[tool()])
    memory = Memory()
    assert rules_broken(judged(request, memory=memory)) == {"types_fit"}
    memory.remember([future, call("t1")], paused=False, prefix="")
    assert judged(request, memory=memory) == []


def test_a_paused_answer_is_continued_as_it_is_and_then_joined() -> None:
    paused, continued = [text("I search. ")], [text("Umbrellas."), call("t1")]
    memory = Memory()
    memory.remember([THINKING, *paused], paused=True, prefix="")
    request = body(ASKED, assistant(THINKING, *paused), tools=[tool()], thinking=messages_bodies.MANUAL)
    assert judged(request, memory=memory) == []
    memory.remember(continued, paused=False, prefix="")
    joined = body(
        ASKED,
        assistant(THINKING, *paused, *continued),
        user(result("t1")),
        tools=[tool()],
        thinking=messages_bodies.MANUAL,
    )
    apart = body(
        ASKED,
        assistant(THINKING, *paused),
        assistant(*continued),
        user(result("t1")),
        tools=[tool()],
        thinking=messages_bodies.MANUAL,
    )
    assert judged(joined, memory=memory) == judged(apart, memory=memory) == []


def test_optional_rules_are_off_by_default() -> None:
    memory = Memory()
    memory.remember([THINKING, call("t1")], paused=False, prefix="another conversation")
    request = body(ASKED, *turn(THINKING, call("t1")), tools=[tool()])
    assert judged(request, memory=memory) == []
    bound = judged(request, memory=memory, bind_thinking=True)
    assert rules_broken(bound) == {rule.__name__ for rule in OPTIONAL_RULES}
