"""The strict servers: what is scripted arrives, what breaks a rule is refused, and what was served is remembered."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import aiohttp
import orjson
import pytest

from tests.support import gemini_answers, messages_answers, messages_rules, openai_answers, openai_rules
from tests.support.loopback import Loopback
from tests.support.messages_answers import Raw, by_turn, thinking, tool_use
from tests.support.messages_json import Json, as_list, as_object
from tests.support.messages_memory import Memory
from tests.support.openai_rules import Service
from tests.support.servers import GeminiApi, MessagesApi, OpenAiApi
from tests.support.strict_request import KEY_HEADERS, make
from tests.support_tests import gemini_bodies, messages_bodies, openai_bodies
from tests.support_tests.messages_bodies import ASKED, MANUAL, THINKING, assistant, body, call, result, text, tool, user


@dataclass(frozen=True, slots=True)
class Wire:
    """One API, and a conversation over it."""

    server: "type[Loopback[Any]]"
    path: str
    headers: Mapping[str, str]
    good: Mapping[str, Json]
    turn: str
    """Which good request brings back `answer`."""
    answer: Any
    change: Mapping[str, object]
    """What makes of it one that does not."""
    fault: Raw
    told: str
    """How its error says so."""

    @property
    def plain(self) -> Json:
        return self.good["plain text"]

    @property
    def changed(self) -> Json:
        request = messages_rules.Request(deepcopy(self.good[self.turn]), {})
        make(self.change, request)
        return request.body

    async def post(self, api: "Loopback[Any]", sent: Json, **headers: str) -> tuple[int, Any]:
        """Send a request with a bare client and return status and body."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{api.url}{self.path}", json=sent, headers={**self.headers, **headers}) as response,
        ):
            came = await response.read()
        return response.status, orjson.loads(came) if response.content_type == "application/json" else came


_CHAT: Final = (
    openai_bodies.CHAT,
    "tool turn",
    openai_answers.answer("Let me look.", openai_answers.call("query", '{"sql":"select 1"}', id="call_1")),
    {"messages.2.tool_calls.0.function.arguments": "{}"},
    openai_answers.fault(429),
    "rate_limit_exceeded",
)
WIRES: Final = {
    "messages": Wire(
        *(MessagesApi, "/v1/messages", messages_bodies.HEADERS, messages_bodies.GOOD, "tool turn"),
        messages_answers.answer("Let me look.", tool_use("query", {"sql": "select 1"}, id="t1")),
        *({"messages.1.content.0.text": "I looked."}, messages_answers.fault(429), "rate_limit_error"),
    ),
    "chat": Wire(OpenAiApi, "/v1/chat/completions", openai_bodies.HEADERS, *_CHAT),
    "azure": Wire(OpenAiApi, "/openai/v1/chat/completions", {"api-key": "k"}, *_CHAT),
    "responses": Wire(
        *(OpenAiApi, "/v1/responses", openai_bodies.HEADERS, openai_bodies.RESPONSES, *_CHAT[1:3]),
        *({"input.3.arguments": "{}"}, *_CHAT[4:]),
    ),
    "gemini": Wire(
        *(GeminiApi, f"/v1beta/models/{gemini_bodies.MODEL}:generateContent", gemini_bodies.HEADERS),
        *(gemini_bodies.GOOD, "parallel calls"),
        gemini_answers.answer(
            gemini_answers.thought("Hm."),
            gemini_answers.signed(gemini_answers.call("a", {"n": 1}, id="1"), "c2ln"),
            gemini_answers.call("b", {"n": 1}, id="2"),
        ),
        *({"contents.1.parts.1.functionCall.args": {"n": 2}}, gemini_answers.fault(429), "RESOURCE_EXHAUSTED"),
    ),
}
MESSAGES, CHAT, RESPONSES = WIRES["messages"], WIRES["chat"], WIRES["responses"]
every_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
either = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


@every_wire
async def test_a_bad_request_gets_an_error_and_fails_the_block(wire: Wire) -> None:
    async def ask_badly() -> None:
        async with wire.server([wire.answer]) as api:
            status, reply = await wire.post(api, {**wire.plain, "unknown": 1})
            assert (status, "unknown" in str(reply["error"]["message"]), api.n_unserved) == (400, True, 1)

    with pytest.raises(AssertionError, match="request 1: A body has the type"):
        await ask_badly()


@every_wire
async def test_a_missing_key_gets_a_401_and_a_bad_one_that_is_no_violation(wire: Wire) -> None:
    (header,) = wire.headers.keys() & {*KEY_HEADERS, "authorization"}
    async with wire.server([wire.answer], bad_keys={"wrong"}, accept_violations=True) as api:
        for key, status in (
            ("", 401),
            ("Bearer wrong" if header == "authorization" else "wrong", 401),
            ("Bearer k", 200),
        ):
            assert (await wire.post(api, wire.plain, **{header: key}))[0] == status
    assert len(api.violations) == 1


@every_wire
async def test_an_answer_comes_back_unchanged_or_is_refused(wire: Wire) -> None:
    async with wire.server([wire.answer, wire.answer], accept_violations=True) as api:
        sent = (wire.plain, wire.good[wire.turn], wire.changed)
        assert [(await wire.post(api, each))[0] for each in sent] == [200, 200, 400]
    assert [violation.partition(" (")[0] for violation in api.violations] in (
        ["request 3: Answers come back unchanged"],
        ["request 3: A call comes back as it was served, broken arguments aside"],
        ["request 3: Reasoning and calls come back as served, broken arguments aside"],
        ["request 3: A signature is one that was given, in its own part"],
    )


@every_wire
async def test_by_turn_every_conversation_walks_through_the_script_to_its_end(wire: Wire) -> None:
    async with wire.server(by_turn([wire.answer, wire.fault]), accept_violations=True) as api:
        first, again, second = [await wire.post(api, each) for each in (wire.plain, wire.plain, wire.good[wire.turn])]
    assert (first[0], again[0], second[0]) == (200, 200, 429)
    assert wire.told in str(second[1])


@every_wire
async def test_a_script_that_runs_out_is_a_500_and_a_violation(wire: Wire) -> None:
    async with wire.server([wire.answer], accept_violations=True) as api:
        assert [(await wire.post(api, wire.plain))[0] for _ in range(2)] == [200, 500]
    assert api.violations == ["request 2: script: LookupError: all 1 replies have been served"]


async def test_another_error_is_not_hidden_by_violations() -> None:
    async def fail_after_a_violation() -> None:
        async with MessagesApi([]) as api:
            await MESSAGES.post(api, {"messages": []})
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail_after_a_violation()


async def test_what_is_no_json_and_what_is_not_served_is_refused() -> None:
    async with MessagesApi([], accept_violations=True) as api, aiohttp.ClientSession() as session:
        async with session.post(f"{api.url}/v1/messages", data=b"{'a': 1}", headers=MESSAGES.headers) as response:
            assert response.status == 400
        async with session.get(f"{api.url}/v1/models", headers=MESSAGES.headers) as response:
            assert response.status == 404
    assert api.violations == [
        "request 1: json: the request body is not valid JSON",
        "request 2: path: GET /v1/models is not served",
    ]


async def test_a_server_may_neither_judge_nor_keep_requests() -> None:
    async with MessagesApi([MESSAGES.answer], judging=False, recording=False) as api:
        assert (await MESSAGES.post(api, {"messages": "none"}))[0] == 200
    assert (api.requests, api.violations) == ([], [])


async def test_the_same_seed_cuts_at_the_same_places_and_inside_escapes() -> None:
    async def streamed(seed: int) -> bytes:
        script = [messages_answers.answer(tool_use("query", {"bird": "🦜" * 20}, id="t1"))]
        async with MessagesApi(script, seed=seed) as api:
            return (await MESSAGES.post(api, body(ASKED, stream=True, tools=[tool()])))[1]

    assert await streamed(1) == await streamed(1) != await streamed(2)
    pieces = [str(as_object(each.get("delta")).get("partial_json", "")) for each in events_in(await streamed(1))]
    assert "".join(pieces) == r'{"bird": "%s"}' % (r"\ud83e\udd9c" * 20)
    assert any(piece.endswith(("\\", r"\ud83e")) for piece in pieces)


async def test_thinking_is_bound_to_the_conversation_before_it_if_that_is_asked_for() -> None:
    script = [messages_answers.answer(thinking("Query."), tool_use("query", {}, id="t1")), MESSAGES.answer]
    echo = [ASKED, assistant(thinking("Query."), call("t1")), user(result("t1"))]
    for system, n_violations in (("Be careful.", 0), ("Be quick.", 1)):
        async with MessagesApi(script, bind_thinking=True, accept_violations=True) as api:
            await MESSAGES.post(api, body(ASKED, tools=[tool()], system="Be careful."))
            await MESSAGES.post(api, body(*echo, tools=[tool()], system=system))
        assert len(api.violations) == n_violations


def events_in(stream: bytes) -> list[Json]:
    return [orjson.loads(line[6:]) for line in stream.split(b"\n") if line.startswith(b"data: {")]


async def test_streams_have_the_events_of_the_real_ones() -> None:
    says = openai_answers
    blocks = (says.reasoning("Hm"), "Hello", says.refusal("No"), says.call("query", {}), says.item(type="x", id="x_1"))
    async with OpenAiApi([says.answer(*blocks)]) as api:
        events = events_in((await RESPONSES.post(api, openai_bodies.responses(openai_bodies.ASKED, stream=True)))[1])
    assert list(dict.fromkeys(each["type"] for each in events)) == [
        f"response.{name}"
        for name in (
            *("created", "in_progress", "output_item.added", "reasoning_summary_part.added"),
            *("reasoning_summary_text.delta", "reasoning_summary_text.done", "reasoning_summary_part.done"),
            *("output_item.done", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"),
            *("refusal.delta", "refusal.done", "function_call_arguments.delta", "function_call_arguments.done"),
            "completed",
        )
    ]
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    async with OpenAiApi([says.answer(*blocks)], service=Service(reasoning_field="reasoning")) as api:
        asked = openai_bodies.chat(openai_bodies.ASKED, stream=True, stream_options={"include_usage": True})
        stream: bytes = (await CHAT.post(api, asked))[1]
    *chunks, last = events_in(stream)
    assert stream.endswith(b"data: [DONE]\n\n")
    call: Json = {"id": "call_1_1", "type": "function", "function": {"name": "query", "arguments": ""}}
    assert [as_object(as_list(chunk["choices"])[0])["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": "", "refusal": None},
        *({"reasoning": "Hm"}, {"content": "Hello"}, {"refusal": "No"}),
        {"tool_calls": [{"index": 0, **call}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {},
    ]
    assert (last["choices"], as_object(last["usage"])["total_tokens"]) == ([], 34)


judged: Final = partial(messages_rules.judge, headers=messages_bodies.HEADERS)
judged_chat: Final = partial(openai_rules.judge, "chat", headers=openai_bodies.HEADERS)
judged_responses: Final = partial(openai_rules.judge, "responses", headers=openai_bodies.HEADERS)


def remembered(*answers: list[Json], paused: bool = False, prefix: str = "") -> Memory:
    memory = Memory()
    for content in answers:
        memory.remember(content, paused=paused, prefix=prefix)
    return memory


TYPES: Final = "A body has the type of the SDK"
CHANGED: Final = "Answers come back unchanged"


def rules_in(violations: list[str]) -> list[str]:
    """Return the rules that are broken, without their sources and exceptions."""
    return list(dict.fromkeys(violation.partition(" (")[0].partition(",")[0] for violation in violations))


def asked(*messages: Json, **more: object) -> Json:
    return body(ASKED, *messages, tools=[tool()], **more)


def test_a_violation_says_where_and_what() -> None:
    picture = user({"type": "image", "source": messages_bodies.PNG | {"media_type": "image/bmp"}})
    request = body(picture, assistant(call("t1")), user(text("Well?"), result("t2", 5)), tools=[tool()])
    assert [violation[violation.index(": messages") + 2 :][:60] for violation in judged(request)] == [
        *("messages.1.content.0", "messages.2.content.1"),
        'messages.0.content.0.source.media_type: "image/bmp" is not o',
        'messages.2.content.1.content: 5 is not of type "string"',
        "messages.2.content.1",
    ]


def test_marks_nulls_and_empty_texts_may_change_in_what_was_served() -> None:
    memory = remembered([text(""), text("I look."), call("t1")])
    echo = assistant(text("I look.", citations=None), {**call("t1"), "cache_control": messages_bodies.MARK})
    assert judged(asked(echo, user(result("t1"))), memory=memory) == []


def test_thinking_may_be_left_out_once_what_was_before_it_has_changed() -> None:
    memory = remembered([THINKING, call("t1")], prefix=messages_rules.Request(asked(), {}).prefix())
    bare, whole = [[assistant(*said, call("t1")), user(result("t1"))] for said in ([], [THINKING])]
    assert rules_in(judged(asked(*bare), memory=memory)) == [CHANGED]
    other = user(text("Asked otherwise."))
    changed = body(other, *bare, tools=[tool()])
    assert judged(changed, memory=memory, bind_thinking=True) == []
    assert rules_in(judged({**changed, "thinking": MANUAL}, memory=memory)) == [
        "With manual thinking a turn that calls tools begins with its thinking"
    ]
    stale = judged(body(other, *whole, tools=[tool()]), memory=memory, bind_thinking=True)
    assert rules_in(stale) == ["Nothing before a thinking block changes"]


def test_thinking_that_came_last_does_not_come_back() -> None:
    memory = remembered([call("t1"), THINKING])
    assert judged(asked(assistant(call("t1")), user(result("t1"))), memory=memory) == []


def test_a_call_whose_id_the_conversation_had_before_may_come_back_with_another() -> None:
    second: Json = {**THINKING, "signature": "c2Vjb25k"}

    def faults(again: Json, *, taken: frozenset[str] = frozenset({"t1"})) -> list[str]:
        memory = remembered([THINKING, call("t1")])
        memory.remember([second, call("t1")], paused=False, prefix="", taken=taken)
        first = [assistant(THINKING, call("t1")), user(result("t1"))]
        return judged(asked(*first, assistant(second, again), user(result(str(again["id"])))), memory=memory)

    assert faults(call("call_2")) == faults(call("t1")) == []
    assert rules_in(faults(call("call_2"), taken=frozenset())) == [CHANGED]
    assert rules_in(faults(call("call_2", sql="drop table sales"))) == [CHANGED]


def test_calls_of_one_answer_that_share_an_id_come_back_with_two() -> None:
    memory = remembered([THINKING, call("t1"), call("t1")])
    for ids, n_violations in ((("t1", "call_2"), 0), (("call_1", "t1"), 1)):
        request = asked(assistant(THINKING, *map(call, ids)), user(*map(result, ids)))
        assert len(judged(request, memory=memory)) == n_violations


def test_equal_ids_of_two_conversations_do_not_mix() -> None:
    memory = remembered([text("1"), call("t1")], [text("2"), call("t1")])
    calls = openai_rules.Memory()
    calls.remember_calls(openai_bodies.call("t1", arguments=f'{{"sql":"{n}"}}') for n in (1, 2))
    for n, n_violations in ((1, 0), (2, 0), (3, 1)):
        assert (
            len(judged(asked(assistant(text(str(n)), call("t1")), user(result("t1"))), memory=memory)) == n_violations
        )
        said = openai_bodies.said(None, openai_bodies.call("t1", arguments=f'{{"sql":"{n}"}}'))
        request = openai_bodies.chat(
            openai_bodies.ASKED, said, openai_bodies.result("t1"), tools=[openai_bodies.tool()]
        )
        assert len(judged_chat(request, memory=calls)) == n_violations


def test_a_block_of_an_unknown_type_is_taken_if_it_was_served() -> None:
    future: Json = {"type": "oracle", "vision": {"depth": 3}}
    request = asked(assistant(future, call("t1")), user(result("t1")))
    assert rules_in(judged(request)) == [TYPES]
    assert judged(request, memory=remembered([future, call("t1")])) == []


def test_a_paused_answer_is_continued_as_it_is_and_then_joined() -> None:
    paused, continued = [THINKING, text("I search. ")], [text("Umbrellas."), call("t1")]
    memory = remembered(paused, paused=True)
    assert judged(asked(assistant(*paused), thinking=MANUAL), memory=memory) == []
    memory.remember(continued, paused=False, prefix="")
    for said in ([assistant(*paused, *continued)], [assistant(*paused), assistant(*continued)]):
        assert judged(asked(*said, user(result("t1")), thinking=MANUAL), memory=memory) == []


def test_a_service_that_takes_cache_marks_takes_four() -> None:
    part: Json = {"type": "text", "text": "Hm.", "cache_control": {"type": "ephemeral"}}
    request = openai_bodies.chat(openai_bodies.user([part] * 4))
    assert judged_chat(request, service=Service(takes_marks=True)) == []
    assert rules_in(judged_chat(request)) == [TYPES]


def test_a_service_with_reasoning_in_a_field_takes_it_back_and_may_know_more_parameters() -> None:
    said = openai_bodies.said("Umbrellas.", reasoning="Hm.")
    request = openai_bodies.chat(openai_bodies.ASKED, said, openai_bodies.ASKED, top_k=40)
    assert len(judged_chat(request)) == 2
    service = Service(reasoning_field="reasoning", extensions=frozenset({"top_k"}))
    assert judged_chat(request, service=service) == []


def test_arguments_that_were_broken_may_come_back_repaired() -> None:
    memory = openai_rules.Memory()
    memory.remember_calls([openai_bodies.call("t1", arguments='{"sql')])
    memory.remember_items([openai_bodies.called("t1", arguments='{"sql')], stored=False)
    assert judged_chat(openai_bodies.turn(openai_bodies.call("t1", arguments="{}")), memory=memory) == []
    items = (openai_bodies.ASKED, openai_bodies.called("t1", arguments="{}"), openai_bodies.output("t1"))
    assert judged_responses(openai_bodies.responses(*items, tools=[openai_bodies.flat()]), memory=memory) == []


def test_reasoning_that_the_server_stored_needs_no_encrypted_content() -> None:
    memory = openai_rules.Memory()
    item: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
    memory.remember_items([item, openai_bodies.called("t1")], stored=True)
    items = (openai_bodies.ASKED, item, openai_bodies.called("t1"), openai_bodies.output("t1"))
    assert judged_responses(openai_bodies.responses(*items, tools=[openai_bodies.flat()]), memory=memory) == []
