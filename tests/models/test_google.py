"""Gemini over HTTP: addresses, credentials, what is asked again, and what each failure means.

The numbers beside tests are sections of the measured wire.
"""

import asyncio
from typing import Any, Final

import google.genai as genai
import orjson
import pytest
from google.genai import types as official

from journeyman import Agent, Limits, run
from journeyman.connect import connect
from journeyman.errors import ModelUnavailable
from journeyman.models.google import GoogleModel
from journeyman.models.transport import Timeouts
from journeyman.types import Message, Text, Thinking, ToolResult, ToolUse, Usage
from tests.contracts.makers import GEMINI, KEY
from tests.contracts.makers import google as made
from tests.contracts.makers import vertex as made_on_vertex
from tests.models.asking import Json, ask, everything_said_by, failure_of, known_of, request, unavailable
from tests.play import failed, instance_of, make_tool, raising, succeeded
from tests.support.gemini_answers import answer, call, fault, signed, text, thought
from tests.support.gemini_rules import DUMMIES
from tests.support.messages_answers import Raw, html_page, raw
from tests.support.servers import GeminiApi

VARIABLES: Final = (
    *("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    *("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"),
)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


look = make_tool("look", "row {n}")


def connected(name: str, **options: Any) -> GoogleModel:
    model = instance_of(GoogleModel, connect(name, **options))
    return model


def test_the_key_comes_from_the_environment_and_the_first_variable_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "second")
    assert connected(f"google:{GEMINI}").api_key == "second"
    monkeypatch.setenv("GOOGLE_API_KEY", "first")
    model = connected(f"google:{GEMINI}")
    assert (model.api_key, model.url) == (
        "first",
        f"https://generativelanguage.googleapis.com/v1beta/models/{GEMINI}:streamGenerateContent?alt=sse",
    )
    assert known_of(model)[2:] != (None, None, None)


def test_facts_and_prices_are_known() -> None:
    provider, name, price, longest, window = known_of(connected("google:gemini-2.5-pro", api_key="k"))
    assert (provider, name, longest, window) == ("google", "gemini-2.5-pro", 65_536, 1_048_576)
    assert price is not None
    assert (price.input, price.output, price.cache_read, price.at(200_001).input) == (1.25, 10, 0.125, 2.5)


def test_another_address_has_no_price_and_gets_the_path() -> None:
    model = connected(f"google:{GEMINI}", api_key="k", base_url="http://gateway.test/")
    assert (model.price, model.base_url) == (None, "http://gateway.test/v1beta")
    assert connected(f"google:{GEMINI}", api_key="k", base_url="http://gateway.test/v1").base_url.endswith("/v1")


@pytest.mark.parametrize(
    ("location", "host"),
    [
        (None, "aiplatform.googleapis.com"),
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_vertex_is_addressed_by_project_and_location(location: str | None, host: str) -> None:  # section 1
    model = connected(f"vertex-google:{GEMINI}", token=lambda: "t", project="p", location=location)
    place = f"projects/p/locations/{location or 'global'}/publishers/google"
    assert model.url == f"https://{host}/v1beta1/{place}/models/{GEMINI}:streamGenerateContent?alt=sse"
    assert (model.price is None) == (location is not None)


def test_what_is_missing_is_said_with_what_to_do() -> None:
    assert "GOOGLE_API_KEY, or GEMINI_API_KEY" in unavailable("google:gemini-3-pro").hint
    assert "token=" in unavailable("vertex-google:gemini-3-pro").hint
    assert "GOOGLE_CLOUD_PROJECT" in unavailable("vertex-google:gemini-3-pro", token=lambda: "t").hint
    strange = unavailable("vertex-google:gemini-3-pro", token=lambda: "t", project="p", location="a/b")
    assert "'a/b' is not a location of Vertex" in str(strange)
    with pytest.raises(TypeError, match="no options"):
        connect("google:gemini-3-pro", api_key="k", colour="red")


@pytest.mark.parametrize("name", ["a?key=x", "a&b", "../files", "a..b", "a b", ""])
def test_a_name_that_would_change_the_address_is_refused(name: str) -> None:  # section 1
    with pytest.raises(ModelUnavailable, match="cannot be the name of a model"):
        GoogleModel(name, api_key="k")


async def test_the_token_is_asked_for_each_request() -> None:  # section 1: it lives for 3,599 s
    tokens = iter(["first-token", "second-token"])
    async with GeminiApi([answer("One."), answer("Two.")]) as api:
        model = GoogleModel(GEMINI, token=lambda: next(tokens), base_url=f"{api.url}/v1beta1")
        await ask(model)
        await ask(model)
    assert [each.headers["authorization"] for each in api.requests] == ["Bearer first-token", "Bearer second-token"]


async def test_a_token_that_has_expired_is_replaced_once() -> None:  # section 7, fault 12
    tokens = iter(["expired-token", "valid-token", "never"])

    async def provider() -> str:
        return next(tokens)

    async with GeminiApi([fault(401), answer("Hi.")]) as api:
        response = await ask(GoogleModel(GEMINI, token=provider, base_url=f"{api.url}/v1beta1"))
    assert response.content == (Text("Hi."),)
    assert api.requests[1].headers["authorization"] == "Bearer valid-token"
    async with GeminiApi([fault(401), fault(401)]) as api, made_on_vertex(api.url) as model:
        assert (await failure_of(model)).kind == "auth"


async def test_a_token_provider_that_fails_is_told_without_its_secrets() -> None:  # section 7, fault 13
    provider = raising(RuntimeError(f"metadata server said no to Bearer {KEY}"))
    error = await failure_of(GoogleModel(GEMINI, token=provider, base_url="http://127.0.0.1:9/v1beta1"))
    assert (error.kind, error.usage) == ("auth", Usage())
    assert "127.0.0.1:9 was not asked: the token provider failed (RuntimeError" in str(error)
    assert KEY not in everything_said_by(error)


async def test_a_token_provider_that_hangs_is_given_up() -> None:
    async def provider() -> str:
        return await asyncio.Future[str]()

    model = GoogleModel(GEMINI, token=provider, base_url="http://127.0.0.1:9", timeouts=Timeouts(connect_s=0.01))
    error = await failure_of(model)
    assert (error.kind, str(error)) == (
        "timeout",
        "127.0.0.1:9 was not asked: the token provider gave no token in 0.01 s.",
    )


@pytest.mark.parametrize("token", ["", "two words", "línea", None, 7])
async def test_what_is_no_token_is_not_sent(token: Any) -> None:  # noqa: ANN401 - whatever a user's function returns
    error = await failure_of(GoogleModel(GEMINI, token=lambda: token, base_url="http://127.0.0.1:9"))
    assert error.kind == "auth"
    assert "what the token provider gave is not a token" in str(error)


CALLED: Final = (
    Message("user", (Text("Hi."),)),
    Message("assistant", (Thinking("", "c2ln", f"google:{GEMINI}"), ToolUse("a", "query"))),
    Message("user", (ToolResult("twelve", tool_use_id="a"),)),
)


async def test_a_signature_that_is_not_taken_is_left_out_once() -> None:  # section 7, fault 16
    refusal = fault(400, message="Corrupted thought signature.")
    async with GeminiApi([refusal, answer("Twelve.")], judging=False) as api, made(api.url) as model:
        response = await ask(model, *CALLED)
    assert response.content == (Text("Twelve."),)
    sent = [each.body["contents"] for each in api.requests]
    signatures: list[Any] = [orjson.loads(orjson.dumps(each))[1]["parts"][0]["thoughtSignature"] for each in sent]
    assert signatures == ["c2ln", DUMMIES[0]]


async def test_a_missing_signature_is_a_bad_request() -> None:  # section 7, fault 15
    said = "Function call is missing a thought_signature in functionCall parts."
    async with GeminiApi([fault(400, message=said)], judging=False) as api, made(api.url) as model:
        error = await failure_of(model)
    assert (error.kind, said in str(error)) == ("bad_request", True)


async def test_ten_steps_bring_every_signature_back() -> None:  # section 7, contract 3; the server compares
    steps = [answer(thought(f"Step {n}."), call("look", {"n": n}), call("look", {"n": -n})) for n in range(1, 11)]
    async with GeminiApi([*steps, answer("Done.")]) as api, made(api.url) as model:
        succeeded(await run(Agent(name="a", model=model, tools=[look]), "Look."))
    assert len(api.requests) == 11


async def test_a_conversation_moves_among_geminis_models() -> None:  # section 7, contract 7
    names = [GEMINI, "gemini-2.5-flash", "gemini-3.1-pro-preview", GEMINI]
    async with GeminiApi([each for n in range(4) for each in (answer(call("look", {"n": n})), answer("Ok."))]) as api:
        history: Any = ()
        for name in names:
            async with made(api.url, name=name) as model:
                result = succeeded(await run(Agent(name="a", model=model, tools=[look]), "Look.", history=history))
                history = result.history
    assert len(api.requests) == 8


_INFO: Final[Json] = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
TOO_LONG: Final = "The input token count (1080000) exceeds the maximum number of tokens allowed (1048576)."
_RETRY: Final[Json] = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}


def _quota(id: str) -> Json:
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": id}]}


@pytest.mark.parametrize(
    ("reply", "kind", "label", "wait_s"),
    [
        (fault(400, details=[_INFO]), "auth", "API_KEY_INVALID", None),
        (fault(400, label="FAILED_PRECONDITION"), "bad_request", "FAILED_PRECONDITION", None),
        (fault(429, details=[_RETRY, _quota("RequestsPerMinute")]), "rate_limited", "RESOURCE_EXHAUSTED", 34.4),
        (fault(429, details=[_quota("GenerateRequestsPerDayPerProject")]), "quota", "RESOURCE_EXHAUSTED", None),
        (fault(499, label="CANCELLED"), "overloaded", "CANCELLED", None),
        (fault(503), "overloaded", "UNAVAILABLE", None),
        (fault(504), "timeout", "DEADLINE_EXCEEDED", None),
        (fault(404, in_a_list=True), "not_found", "NOT_FOUND", None),
        (fault(400, content_type="text/event-stream"), "bad_request", "INVALID_ARGUMENT", None),
        (fault(400, message=TOO_LONG), "context_overflow", "INVALID_ARGUMENT", None),
        (html_page(502), "overloaded", None, None),
    ],
)
async def test_a_refusal_is_told_by_its_label_or_its_status(
    reply: Raw, kind: str, label: str | None, wait_s: float | None
) -> None:  # section 6, faults 5 to 11 and 14
    async with GeminiApi([reply]) as api, made(api.url) as model:
        error = await failure_of(model)
    assert (error.kind, error.type, error.retry_after_s) == (kind, label, wait_s)
    assert error.usage == Usage()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "it has no candidates, and does not say why"),
        ({"candidates": [{"content": {"parts": [call("")]}, "finishReason": "STOP"}]}, "a call without a name"),
    ],
)
async def test_an_unusable_answer_is_one_clear_line_and_loses_nothing(body: Json, words: str) -> None:
    event = raw(b"data: " + orjson.dumps(body) + b"\n\n", content_type="text/event-stream")
    begun = answer(call("look", {"n": 1}))
    async with GeminiApi([begun, event]) as api, made(api.url) as model:
        result = failed(
            await run(Agent(name="a", model=model, tools=[look], limits=Limits(request_retries=0)), "Look.")
        )
    assert words in str(result.error)
    assert "\n" not in str(result.error)
    assert [message.role for message in result.history] == ["user", "assistant", "user"]


async def test_a_line_of_four_megabytes_is_read() -> None:  # section 4: signatures on pictures have 2.9 million
    part: Json = {"inlineData": {"mimeType": "image/png", "data": "A" * 4_000_000}}
    async with GeminiApi([answer("Here.", part)]) as api, made(api.url) as model:
        response = await ask(model)
    assert len(response.content) == 2


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
async def test_the_official_client_reads_what_the_loopback_server_says() -> None:
    reply = answer(thought("Hm."), "I look. 🦜", signed(call("look", {"n": 1}, id="abcdefgh"), "c2ln"))
    async with GeminiApi([reply, reply]) as api, made(api.url) as model:
        ours = await ask(model)
        options = official.HttpOptions(base_url=api.url, api_version="v1beta")
        client: Any = genai.Client(api_key=KEY, http_options=options)
        contents: Any = [{"role": "user", "parts": [text("Hello")]}]
        theirs: list[official.Part] = []
        async for chunk in await client.aio.models.generate_content_stream(model=GEMINI, contents=contents):
            assert chunk.candidates
            assert chunk.usage_metadata
            content = chunk.candidates[0].content
            theirs += (content and content.parts) or []
        await client.aio.aclose()
    assert "".join(part.text or "" for part in theirs if part.thought) == "Hm."
    assert "".join(part.text or "" for part in theirs if not part.thought) == "I look. 🦜"
    [called] = [part for part in theirs if part.function_call]
    assert called.function_call == official.FunctionCall(id="abcdefgh", name="look", args={"n": 1})
    assert called.thought_signature == b"sig"
    assert ours.content == (
        Thinking("Hm.", None, f"google:{GEMINI}"),
        Text("I look. 🦜"),
        Thinking("", "c2ln", f"google:{GEMINI}"),
        ToolUse("abcdefgh", "look", '{"n":1}'),
    )


async def test_the_key_and_vertex_give_one_history_from_the_same_script() -> None:  # section 7, contract 20
    def script() -> list[Any]:
        return [answer(thought("Hm."), call("look", {"n": 1}, id="a")), answer("Done.")]

    async def history(maker: Any, **more: Any) -> tuple[Any, bytes]:  # noqa: ANN401 - of tests/contracts/makers.py
        async with GeminiApi(script()) as api, maker(api.url, **more) as model:
            result = await run(Agent(name="a", model=model, tools=[look]), "Look.")
        return result.history, b"".join(each.raw for each in api.requests)

    assert await history(made) == await history(made_on_vertex)


def test_neither_the_body_nor_the_model_shows_the_key() -> None:
    model = GoogleModel(GEMINI, api_key=KEY)
    assert KEY not in repr(model)
    assert KEY.encode() not in model.body(request())
