"""The strict OpenAI server: what is scripted arrives, rules are applied, and services differ."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import openai
import orjson
import pytest
from openai.types import chat as chat_types
from openai.types.responses import FunctionToolParam, Response, ResponseInputItemParam

from tests.support import openai_answers as says
from tests.support.messages_json import Json, as_list, as_object
from tests.support.openai_answers import answer, fault
from tests.support.openai_api import OpenAiApi, Service, judge
from tests.support.openai_request import Memory
from tests.support.openai_rules import SERVICE_RULES
from tests.support.strict_schema import Api
from tests.support_tests import openai_bodies
from tests.support_tests.client import event_types, events_in, post
from tests.support_tests.mutants import rules_broken
from tests.support_tests.openai_bodies import (
    ASKED,
    call,
    called,
    chat,
    flat,
    output,
    responses,
    result,
    said,
    tool,
    user,
)

PATHS: dict[Api, str] = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}
judged = partial(judge, headers=openai_bodies.HEADERS)

QUESTION: list[chat_types.ChatCompletionMessageParam] = [{"role": "user", "content": "What sold best in May?"}]
QUERY: chat_types.ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {"name": "query", "parameters": {"type": "object", "properties": {"sql": {"type": "string"}}}},
}
FLAT: FunctionToolParam = {
    "type": "function",
    "name": "query",
    "parameters": {"type": "object", "properties": {"sql": {"type": "string"}}},
    "strict": False,
}
SQL = orjson.dumps({"sql": "select \"ä\", '🦜' \\ \n", "deep": [1, -2.5e-7, True, None, ""]}).decode()
FULL = answer(
    says.reasoning("Umläute, 漢字, and 🦜 may all be cut."),
    "First the query: “best seller” — naïve 🦜🦜",
    says.call("query", SQL),
    says.call("query", '{"broken'),
    usage=says.Counted(input=17, output=99, cached=5, reasoning=7),
)


@asynccontextmanager
async def sdk(api: OpenAiApi) -> AsyncGenerator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key="k", max_retries=0) as client:
        yield client


async def completion(client: openai.AsyncOpenAI, *, stream: bool) -> chat_types.ChatCompletion:
    if not stream:
        return await client.chat.completions.create(model="gpt-test", messages=QUESTION, tools=[QUERY])
    options: chat_types.ChatCompletionStreamOptionsParam = {"include_usage": True}
    async with client.chat.completions.stream(
        model="gpt-test", messages=QUESTION, tools=[QUERY], stream_options=options
    ) as events:
        return await events.get_final_completion()


async def response(client: openai.AsyncOpenAI, *, stream: bool) -> Response:
    if not stream:
        return await client.responses.create(
            model="gpt-test", input="Hi", tools=[FLAT], include=["reasoning.encrypted_content"], store=False
        )
    async with client.responses.stream(
        model="gpt-test", input="Hi", tools=[FLAT], include=["reasoning.encrypted_content"], store=False
    ) as events:
        return await events.get_final_response()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_the_official_sdk_reads_a_completion(stream: bool, seed: int) -> None:
    async with OpenAiApi([FULL], seed=seed, n_writes=20) as api, sdk(api) as client:
        read = await completion(client, stream=stream)
    message = read.choices[0].message
    assert message.content == "First the query: “best seller” — naïve 🦜🦜"
    assert [(each.id, as_object(each.to_dict()["function"])["arguments"]) for each in message.tool_calls or []] == [
        ("call_1_1", SQL),
        ("call_1_2", '{"broken'),
    ]
    assert (read.id, read.model, read.choices[0].finish_reason) == ("chatcmpl-1", "gpt-test", "tool_calls")
    assert read.usage is not None
    assert (
        as_object(read.usage.to_dict()).items()
        >= {"prompt_tokens": 17, "completion_tokens": 99, "total_tokens": 116}.items()
    )
    assert read.usage.prompt_tokens_details is not None
    assert read.usage.completion_tokens_details is not None
    assert read.usage.prompt_tokens_details.cached_tokens == 5
    assert read.usage.completion_tokens_details.reasoning_tokens == 7


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_the_official_sdk_reads_a_response(stream: bool, seed: int) -> None:
    async with OpenAiApi([FULL], seed=seed, n_writes=20) as api, sdk(api) as client:
        read = await response(client, stream=stream)
    items = [as_object(each.to_dict()) for each in read.output]
    thought, message, first, second = items
    assert thought["summary"] == [{"text": "Umläute, 漢字, and 🦜 may all be cut.", "type": "summary_text"}]
    assert (thought["id"], thought["encrypted_content"]) == ("rs_1_1", FULL.content[0]["encrypted"])
    assert as_object(as_list(message["content"])[0])["text"] == "First the query: “best seller” — naïve 🦜🦜"
    assert [(each["id"], each["call_id"], each["arguments"]) for each in (first, second)] == [
        ("fc_1_3", "call_1_1", SQL),
        ("fc_1_4", "call_1_2", '{"broken'),
    ]
    assert (read.id, read.status, read.output_text) == (
        "resp_1",
        "completed",
        as_object(as_list(message["content"])[0])["text"],
    )
    assert read.usage is not None
    assert (read.usage.input_tokens, read.usage.input_tokens_details.cached_tokens) == (17, 5)
    assert (read.usage.output_tokens, read.usage.output_tokens_details.reasoning_tokens) == (99, 7)


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_the_official_sdk_can_continue_a_tool_turn(stream: bool) -> None:
    script = [answer("I look.", says.call("query", {"sql": "select 1"})), answer("42.")]
    async with OpenAiApi(script) as api, sdk(api) as client:
        first = (await completion(client, stream=stream)).choices[0].message.to_dict()
        echo: object = {key: value for key, value in first.items() if key not in ("parsed", "audio", "function_call")}
        for each in as_list(as_object(echo)["tool_calls"]):
            as_object(each).pop("index", None)
            as_object(as_object(each)["function"]).pop("parsed_arguments", None)
        answers = await post(api, PATHS["chat"], chat(ASKED, as_object(echo), result("call_1_1"), tools=[tool()]))
    assert answers[0] == 200


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_the_official_sdk_can_continue_a_reasoning_tool_turn(stream: bool) -> None:
    script = [answer(says.reasoning("Query."), says.call("query", {"sql": "select 1"})), answer("42.")]
    async with OpenAiApi(script) as api, sdk(api) as client:
        first = await response(client, stream=stream)
        items: list[ResponseInputItemParam] = [{"role": "user", "content": "Hi"}]
        for each in first.output:
            given = {key: value for key, value in each.to_dict().items() if key != "parsed_arguments"}
            items.append(given)  # pyright: ignore[reportArgumentType] - an echo, as the documentation shows it
        items.append({"type": "function_call_output", "call_id": "call_1_1", "output": "42"})
        last = await client.responses.create(model="gpt-test", input=items, tools=[FLAT], store=False)
    assert last.output_text == "42."


async def test_refusals_limits_and_filters_have_their_words() -> None:
    script = [answer(says.refusal("No.")), answer("Cut", ending="length"), answer("Hm", ending="content_filter")]
    async with OpenAiApi([*script, *script]) as api, sdk(api) as client:
        completions = [await completion(client, stream=False) for _ in script]
        read = [await response(client, stream=False) for _ in script]
    assert [each.choices[0].finish_reason for each in completions] == ["stop", "length", "content_filter"]
    assert completions[0].choices[0].message.refusal == "No."
    assert [each.status for each in read] == ["completed", "incomplete", "incomplete"]
    reasons = [each.incomplete_details and each.incomplete_details.reason for each in read]
    assert reasons == [None, "max_output_tokens", "content_filter"]


async def test_a_stream_of_chat_has_the_chunks_of_the_real_one() -> None:
    script = [answer(says.reasoning("Hm"), "Hello", says.call("query", {"a": 1}), delta_chars=3)]
    async with OpenAiApi(script, service=Service(reasoning_field="reasoning")) as api:
        _, stream = await post(api, PATHS["chat"], chat(ASKED, stream=True, stream_options={"include_usage": True}))
    assert stream.endswith(b"data: [DONE]\n\n")
    *chunks, last = events_in(stream.removesuffix(b"data: [DONE]\n\n"))
    choices = [as_object(as_list(chunk["choices"])[0]) for chunk in chunks]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"reasoning": "Hm"},
        {"content": "Hel"},
        {"content": "lo"},
        {
            "tool_calls": [
                {"index": 0, "id": "call_1_1", "type": "function", "function": {"name": "query", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '":1'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices][-2:] == [None, "tool_calls"]
    assert (last["choices"], as_object(last["usage"])["total_tokens"]) == ([], 34)


async def test_a_stream_of_responses_has_the_events_of_the_real_one() -> None:
    script = [
        answer(
            says.reasoning("Hm"),
            "Hello",
            says.refusal("No"),
            says.call("query", {}),
            says.item(type="web_search_call", id="ws_1"),
        )
    ]
    async with OpenAiApi(script) as api:
        _, stream = await post(api, PATHS["responses"], responses(ASKED, stream=True))
    added, done = "response.output_item.added", "response.output_item.done"
    summary, part = "response.reasoning_summary", "response.content_part"
    assert list(dict.fromkeys(map(str, event_types(stream)))) == [
        *("response.created", "response.in_progress", added),
        *(f"{summary}_part.added", f"{summary}_text.delta", f"{summary}_text.done", f"{summary}_part.done", done),
        *(f"{part}.added", "response.output_text.delta", "response.output_text.done", f"{part}.done"),
        *("response.refusal.delta", "response.refusal.done"),
        *("response.function_call_arguments.delta", "response.function_call_arguments.done"),
        "response.completed",
    ]
    events = events_in(stream)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert as_object(events[-1]["response"])["output"] == [event["item"] for event in events if event["type"] == done]


async def test_a_server_may_answer_in_one_piece_although_a_stream_was_asked_for() -> None:
    async with OpenAiApi([answer("Hi"), answer("Hi")], streaming=False) as api:
        _, completed = await post(api, PATHS["chat"], chat(ASKED, stream=True))
        _, responded = await post(api, PATHS["responses"], responses(ASKED, stream=True))
    assert orjson.loads(completed)["object"] == "chat.completion"
    assert orjson.loads(responded)["object"] == "response"


async def test_usage_can_be_left_out_whole_or_in_its_details() -> None:
    script = [
        answer("Hi", usage=None),
        answer("Hi", usage=says.Counted(1, 2, None, None)),
        answer("Hi", usage=says.Counted(written=3)),
    ]
    async with OpenAiApi(script) as api:
        none, bare, written = [
            orjson.loads((await post(api, PATHS["chat"], openai_bodies.CHAT["plain text"]))[1]) for _ in script
        ]
    assert "usage" not in none
    assert bare["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert written["usage"]["prompt_tokens_details"]["cache_write_tokens"] == 3


@pytest.mark.parametrize(
    ("api_name", "good"),
    [("chat", openai_bodies.CHAT["plain text"]), ("responses", openai_bodies.RESPONSES["plain text"])],
)
async def test_a_bad_request_gets_a_400(api_name: Api, good: Json) -> None:
    async with OpenAiApi([], accept_violations=True) as api:
        status, reply = await post(api, PATHS[api_name], good | {"thinking": 1})
    assert (status, orjson.loads(reply)["error"]["type"]) == (400, "invalid_request_error")
    assert [violation.partition(": ")[2].partition(":")[0] for violation in api.violations] == ["types_fit"]


async def test_an_answer_that_comes_back_changed_is_refused() -> None:
    first = answer(says.reasoning("Hm"), says.call("query", {"sql": "select 1"}))
    async with OpenAiApi([first, first], accept_violations=True) as api:
        await post(api, PATHS["chat"], chat(ASKED, tools=[tool()]))
        changed = said(None, call("call_1_1", arguments="{}"))
        await post(api, PATHS["chat"], chat(ASKED, changed, result("call_1_1"), tools=[tool()]))
        await post(api, PATHS["responses"], responses(ASKED, tools=[flat()], store=False))
        await post(api, PATHS["responses"], responses(ASKED, called("call_3_1"), output("call_3_1"), tools=[flat()]))
    rules = [violation.partition(": ")[2].partition(":")[0] for violation in api.violations]
    assert rules == ["calls_come_back_unchanged", "items_have_their_reasoning"]


async def test_errors_have_the_shape_and_the_headers_of_the_api() -> None:
    async with OpenAiApi([fault(429, headers={"retry-after": "1"}, message="Slow down")]) as api, sdk(api) as client:
        with pytest.raises(openai.RateLimitError, match="Slow down") as caught:
            await completion(client, stream=True)
    assert caught.value.response.headers["retry-after"] == "1"
    assert (caught.value.code, caught.value.request_id) == ("rate_limit_exceeded", "req_1")


async def test_a_missing_or_bad_key_gets_a_401_and_azure_has_its_own_header() -> None:
    async with OpenAiApi([answer("Hi")], bad_keys={"wrong"}, accept_violations=True) as api:
        assert (await post(api, PATHS["chat"], openai_bodies.CHAT["plain text"], authorization=""))[0] == 401
        assert (await post(api, PATHS["chat"], openai_bodies.CHAT["plain text"], authorization="Bearer wrong"))[
            0
        ] == 401
        azure = {"authorization": "", "api-key": "k"}
        assert (await post(api, "/openai/v1/chat/completions", openai_bodies.CHAT["plain text"], **azure))[0] == 200
    assert len(api.violations) == 1


@pytest.mark.parametrize("api_name", ["chat", "responses"])
async def test_by_turn_every_conversation_walks_through_the_script(api_name: Api) -> None:
    script: list[says.Reply] = [answer(says.call("query", {}, id="a")), answer("Two")]
    begun = openai_bodies.CHAT["plain text"] if api_name == "chat" else openai_bodies.RESPONSES["plain text"]
    in_chat = chat(ASKED, said(None, call("a", arguments="{}")), result("a"), tools=[tool()])
    in_responses = responses(ASKED, called("a", arguments="{}"), output("a"), tools=[flat()])
    async with OpenAiApi(says.by_turn(script)) as api:
        first, again, second = [
            (await post(api, PATHS[api_name], body))[1]
            for body in (begun, begun, in_chat if api_name == "chat" else in_responses)
        ]
    assert [b"Two" in reply for reply in (first, again, second)] == [False, False, True]


async def test_a_stream_can_break_off_with_an_error_event() -> None:
    async with OpenAiApi([says.broken_off(answer("A text of some length."), after_events=2)]) as api:
        _, stream = await post(api, PATHS["chat"], chat(ASKED, stream=True))
    assert as_object(events_in(stream)[-1]["error"])["code"] == "server_error"


# -- what the server remembers, and how services differ ----------------------------------------------------------------


def test_a_service_that_takes_cache_marks_takes_four_at_texts() -> None:
    def part(**more: object) -> Json:
        return {"type": "text", "text": "Hm.", "cache_control": {"type": "ephemeral"}, **more}

    def found(*parts: Json) -> list[str]:
        return judged("chat", chat(user(list(parts))), service=Service(takes_marks=True))

    assert found(*[part()] * 4) == []
    assert found(*[part()] * 5) == [
        "cache_marks_are_few_and_at_texts: A maximum of 4 blocks with cache_control may be provided. Found 5"
    ]
    picture: Json = {
        "type": "image_url",
        "image_url": {"url": openai_bodies.PNG},
        "cache_control": {"type": "ephemeral"},
    }
    at_a_picture = "messages.0.content.1.cache_control: is for texts of the system, the user and tools"
    assert found(part(), picture) == [f"cache_marks_are_few_and_at_texts: {at_a_picture}"]
    assert rules_broken(judged("chat", chat(user([part()])))) == {"types_fit"}


def test_a_violation_says_where_and_what() -> None:
    request = chat(ASKED, said(None, call("t1", arguments="{")), result("t2"), tools=[tool(name="db.query")])
    assert judged("chat", request) == [
        "arguments_are_the_text_of_an_object: messages.1.tool_calls.0.function.arguments:"
        " must be the text of a JSON object",
        r"tool_names_fit_the_pattern: tools.0.function.name: 'db.query' should match '^[a-zA-Z0-9_-]{1,64}\Z'",
        "every_call_is_answered: messages.1.tool_calls.0: call t1 has no result right after it",
        "every_result_has_its_call: messages.2: no call t2 right before it",
    ]


def test_a_service_with_reasoning_in_a_field_takes_it_back_and_may_know_more_parameters() -> None:
    request = chat(ASKED, said("Umbrellas.", reasoning="Hm."), ASKED, top_k=40)
    assert rules_broken(judged("chat", request)) == {"types_fit"}
    service = Service(reasoning_field="reasoning", extensions=frozenset({"top_k"}))
    assert judged("chat", request, service=service) == []


@pytest.mark.parametrize(
    ("service", "message", "more", "broken"),
    [
        (Service(refused=frozenset({"store"})), said(None, call("t1")), {"store": False}, "fields_are_known"),
        (Service(exact_id=9), said(None, call("t1")), {}, "call_ids_have_their_length"),
        (Service(replies_to_results=True), said(None, call("t1")), {}, "the_model_answers_results"),
        (
            Service(reasoning_field="reasoning_content", reasoning_with_calls=True),
            said(None, call("t1")),
            {},
            "calls_come_with_reasoning",
        ),
    ],
)
def test_a_service_may_refuse_what_openai_takes(service: Service, message: Json, more: Json, broken: str) -> None:
    request = chat(ASKED, message, result("t1"), ASKED, tools=[tool()], **more)
    assert judged("chat", request) == []
    assert rules_broken(judged("chat", request, service=service)) == {broken}
    assert broken in {rule.__name__ for rule in SERVICE_RULES}


def test_arguments_that_were_broken_may_come_back_repaired() -> None:
    memory = Memory()
    memory.remember_calls([call("t1", arguments='{"sql')])
    memory.remember_items([called("t1", arguments='{"sql')], stored=False)
    in_chat = chat(ASKED, said(None, call("t1", arguments="{}")), result("t1"), tools=[tool()])
    assert judged("chat", in_chat, memory=memory) == []
    in_responses = responses(ASKED, called("t1", arguments="{}"), output("t1"), tools=[flat()])
    assert judged("responses", in_responses, memory=memory) == []


def test_equal_ids_of_two_conversations_do_not_mix() -> None:
    memory = Memory()
    for n in (1, 2):
        memory.remember_calls([call("t1", arguments=f'{{"sql":"{n}"}}')])
    for n, n_violations in ((1, 0), (2, 0), (3, 1)):
        answered = said(None, call("t1", arguments=f'{{"sql":"{n}"}}'))
        request = chat(ASKED, answered, result("t1"), tools=[tool()])
        assert len(judged("chat", request, memory=memory)) == n_violations


def test_reasoning_that_the_server_stored_needs_no_encrypted_content() -> None:
    memory = Memory()
    item: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
    memory.remember_items([item, called("t1")], stored=True)
    request = responses(ASKED, item, called("t1"), output("t1"), tools=[flat()])
    assert judged("responses", request, memory=memory) == []
