"""The official SDK's clients as carriers: the same conversation, usage and failures as over the adapter's own wire."""

import asyncio
import gc
import os
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from struct import pack
from typing import Any
from zlib import crc32

import anthropic
import httpx2
import orjson
import pytest
from anthropic.lib.bedrock import AsyncAnthropicBedrock
from anthropic.lib.vertex import AsyncAnthropicVertex

from journeyman import Agent, Failure, run
from journeyman.connect import connect
from journeyman.model import Response
from journeyman.models.anthropic.client import AnthropicClientModel
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.types import Base64, Document, Image, Message, Opaque, Price, Text, Thinking, ToolResult, ToolUse, Usage
from tests.models.asking import HELLO, ask, everything_said_by, failure_of, request, unavailable
from tests.models.raw_server import RawServer, closing_after, http
from tests.play import existing, instance_of, raising
from tests.support import messages_answers as says
from tests.support.servers import MessagesApi

KEY = "sk-ant-api03-very-secret"
PIXEL = Image(Base64("iVBORw==", "image/png"))
PAPER = Document(Base64("JVBERi0xLjQ=", "application/pdf"), "Plan")


@asynccontextmanager
async def carried(api: MessagesApi | RawServer, **more: Any) -> AsyncGenerator[AnthropicClientModel]:
    """Give a model that the SDK's plain client carries, and close the client as its owner would."""
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=api.url) as client:
        yield AnthropicClientModel("claude-sonnet-5-5", client=client, **more)


SCRIPT: Sequence[says.Reply] = [
    says.answer(
        says.thinking("Hm."),
        says.redacted_thinking(),
        "I look.",
        says.tool_use("query", {"sql": "ü", "n": 1.5}),
        says.tool_use("query", {"sql": ""}),
        usage={"cache_read_input_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}},
    ),
    says.answer("Hm.", says.server_tool_use("web_search", {"query": "x"}, id="srvtoolu_1"), stop_reason="pause_turn"),
    says.answer(says.web_search_tool_result("srvtoolu_1", "A"), "It is 9."),
    says.refusal("You are", category="bio"),
]


async def conversation(model: AnthropicModel | AnthropicClientModel) -> tuple[list[Message], list[Response]]:
    messages, responses = [HELLO], [await ask(model, HELLO)]
    calls = [block for block in responses[0].content if isinstance(block, ToolUse)]
    results = [ToolResult("1" if use is calls[0] else (Text("2"), PIXEL, PAPER), tool_use_id=use.id) for use in calls]
    messages += [Message("assistant", responses[0].content), Message("user", (*results, Text("And?"), PIXEL, PAPER))]
    responses.append(await ask(model, *messages))
    messages.append(Message("assistant", responses[1].content))
    responses.append(await ask(model, *messages))
    messages += [Message("assistant", responses[2].content, continues=True), Message("user", (Text("Thanks."),))]
    responses.append(await ask(model, *messages))
    return messages, responses


async def test_the_history_the_usage_and_the_bodies_are_those_of_the_adapters_own_wire() -> None:
    async with MessagesApi(SCRIPT, bind_thinking=True) as own, MessagesApi(SCRIPT, bind_thinking=True) as theirs:
        ours = await conversation(AnthropicModel("claude-sonnet-5-5", api_key=KEY, base_url=own.url))
        async with carried(theirs) as model:
            by_client = await conversation(model)
    assert by_client == ours
    assert [recorded.body for recorded in theirs.requests] == [recorded.body for recorded in own.requests]
    assert [type(block) for block in by_client[1][2].content] == [Opaque, Text]
    assert any(isinstance(block, Thinking) for block in by_client[1][0].content)
    stops = [response.stop_reason for response in by_client[1]]
    assert stops == ["tool_use", "pause_turn", "end_turn", "refusal"]
    assert own.n_unserved == theirs.n_unserved == 0


async def test_headers_of_the_model_and_of_the_client_are_sent_and_nothing_is_retried_unseen() -> None:
    async with (
        MessagesApi([says.fault(529)]) as api,
        anthropic.AsyncAnthropic(api_key=KEY, base_url=api.url, default_headers={"x-gateway": "y"}) as client,
    ):
        assert client.max_retries > 0
        model = AnthropicClientModel("claude-sonnet-5-5", client=client, headers={"anthropic-beta": "x"})
        assert (await failure_of(model)).kind == "overloaded"
    (recorded,) = api.requests
    assert (recorded.headers["anthropic-beta"], recorded.headers["x-gateway"]) == ("x", "y")


async def test_the_client_stays_open_because_somebody_else_opened_it() -> None:
    async with MessagesApi(lambda _: says.answer("Hi.")) as api, carried(api) as model:
        async with model.open():
            await ask(model)
        assert not existing(model.client).is_closed()
        await ask(model)


def test_a_client_that_is_not_asynchronous_is_refused() -> None:
    with anthropic.Anthropic(api_key=KEY) as client:
        error = unavailable("anthropic:claude-sonnet-5-5", client=client)
    assert str(error) == "The client for 'claude-sonnet-5-5' is Anthropic, which is not asynchronous."
    assert "AsyncAnthropicBedrock" in error.hint


async def test_a_name_and_a_client_give_a_model() -> None:
    async with anthropic.AsyncAnthropic(api_key=KEY) as client:
        model = connect("anthropic:claude-opus-5-5", client=client, price=Price(input=1, output=2))
        assert isinstance(model, AnthropicClientModel)
        assert (model.provider, model.name, model.facts.max_output_tokens) == ("anthropic", "claude-opus-5-5", 128_000)
        assert (model.facts.context_window, model.facts.price) == (1_000_000, Price(input=1, output=2))
        assert repr(model) == "<AnthropicClientModel claude-opus-5-5 by AsyncAnthropic>"
        error = unavailable("anthropic:claude-opus-5-5", client=client, api_key="k", base_url="b")
    assert str(error) == "With client=, the model 'claude-opus-5-5' takes no api_key, base_url."


async def test_foundry_carries_the_same_body_with_its_own_key() -> None:
    async with MessagesApi(SCRIPT) as api:
        client = anthropic.AsyncAnthropicFoundry(base_url=api.url, api_key=KEY)
        async with client:
            messages, _ = await conversation(AnthropicClientModel("claude-sonnet-5-5", client=client))
    assert len(messages) == 6
    assert api.requests[0].headers["api-key"] == KEY


class Wire(httpx2.AsyncBaseTransport):
    """Stands for a service whose address and framing are its own: keeps the requests, answers with given bytes."""

    def __init__(self, body: bytes, content_type: str = "text/event-stream", status: int = 200) -> None:
        self.requests: list[httpx2.Request] = []
        self._answer = (body, content_type, status)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        self.requests.append(request)
        body, content_type, status = self._answer
        return httpx2.Response(status, headers={"content-type": content_type}, content=body)


async def stream_of(reply: says.Reply) -> bytes:
    """Return the bytes of an answer as the strict server streams them."""
    async with MessagesApi([reply]) as api, httpx2.AsyncClient() as client:
        body = AnthropicModel("claude-sonnet-5-5").body(request())
        headers = {"x-api-key": KEY, "anthropic-version": "2026-10-21", "content-type": "application/json"}
        return (await client.post(f"{api.url}/v1/messages", content=body, headers=headers)).content


async def test_vertex_moves_the_model_into_the_address_and_answers_with_the_same_parts() -> None:
    wire = Wire(await stream_of(says.answer("Hi.", says.tool_use("query", {"sql": "x"}, id="toolu_1"))))
    async with httpx2.AsyncClient(transport=wire) as http_client:
        client = AsyncAnthropicVertex(region="global", project_id="p", access_token=KEY, http_client=http_client)
        response = await ask(AnthropicClientModel("claude-sonnet-5-5", client=client), HELLO)
    (sent,) = wire.requests
    assert response.content == (Text("Hi."), ToolUse("toolu_1", "query", '{"sql": "x"}'))
    assert response.usage.exact
    assert sent.url.path.endswith("/publishers/anthropic/models/claude-sonnet-5-5:streamRawPredict")
    body = orjson.loads(sent.content)
    assert body["anthropic_version"]
    own = orjson.loads(AnthropicModel("claude-sonnet-5-5").body(request()))
    assert {key: body[key] for key in body if key != "anthropic_version"} == {k: own[k] for k in own if k != "model"}


def framed(payload: bytes, **headers: str) -> bytes:
    """Return a message in the framing of AWS: lengths, checksum, headers, payload, checksum."""
    named = [(f":{name.replace('_', '-')}".encode(), value.encode()) for name, value in headers.items()]
    head = b"".join(pack(f">B{len(k)}sBH{len(v)}s", len(k), k, 7, len(v), v) for k, v in named)
    prelude = pack(">II", 16 + len(head) + len(payload), len(head))
    frame = prelude + pack(">I", crc32(prelude)) + head + payload
    return frame + pack(">I", crc32(frame))


async def frames_of(reply: says.Reply) -> list[bytes]:
    """Return the frames in which Bedrock streams an answer of the strict server."""
    events = [line[6:] for line in (await stream_of(reply)).split(b"\n") if line.startswith(b"data: ")]
    payloads = [orjson.dumps({"bytes": b64encode(event).decode()}) for event in events]
    return [
        framed(each, message_type="event", event_type="chunk", content_type="application/json") for each in payloads
    ]


@asynccontextmanager
async def bedrock(wire: Wire) -> AsyncGenerator[AnthropicClientModel]:
    async with httpx2.AsyncClient(transport=wire) as http_client:
        client = AsyncAnthropicBedrock(aws_region="us-east-1", api_key=KEY, http_client=http_client)
        yield AnthropicClientModel("anthropic.claude-sonnet-5-5", client=client)


AWS_STREAM = "application/vnd.amazon.eventstream"


async def test_bedrock_is_asked_at_its_own_address_and_answers_with_the_same_parts() -> None:
    wire = Wire(b"".join(await frames_of(says.answer("Hi.", says.tool_use("q", {"n": 1}, id="toolu_1")))), AWS_STREAM)
    async with bedrock(wire) as model:
        response = await ask(model, HELLO)
    (sent,) = wire.requests
    assert response.content == (Text("Hi."), ToolUse("toolu_1", "q", '{"n": 1}'))
    assert response.usage.exact
    assert sent.url.path == "/model/anthropic.claude-sonnet-5-5/invoke-with-response-stream"
    assert sent.headers["authorization"] == f"Bearer {KEY}"


async def test_an_answer_of_bedrock_that_breaks_off_is_mapped_by_what_it_says() -> None:
    frames = await frames_of(says.answer("Hi."))
    said = orjson.dumps({"message": f"Too many tokens for {KEY}"})
    fault = framed(
        said, message_type="exception", exception_type="throttlingException", content_type="application/json"
    )
    for sent, kind in ((b"", "stream_cut"), (frames[0], "stream_cut"), (frames[0] + fault, "rate_limited")):
        async with bedrock(Wire(sent, AWS_STREAM)) as model:
            error = await failure_of(model)
        assert (error.kind, error.usage == Usage()) == (kind, False)
        assert KEY not in everything_said_by(error)


async def test_bedrocks_refusal_is_mapped_by_its_status() -> None:
    body = orjson.dumps({"message": f"Too many requests for {KEY}"})
    async with bedrock(Wire(body, "application/json", 429)) as model:
        error = await failure_of(model)
    assert (error.kind, error.status, error.usage) == ("rate_limited", 429, Usage())
    assert KEY not in everything_said_by(error)


async def test_an_answer_that_ends_within_its_head_is_mapped() -> None:
    async with RawServer(closing_after(http()[:20])) as server, carried(server) as model:
        error = await failure_of(model)
    assert (error.kind, error.status) == ("network", None)
    assert server.url.removeprefix("http://") in str(error)
    assert KEY not in everything_said_by(error)


async def test_credentials_that_are_missing_are_a_fault_of_the_credentials() -> None:
    async def no_token() -> str:
        raise anthropic.AnthropicError("no token in reach")

    async with anthropic.AsyncAnthropicFoundry(base_url="http://localhost", azure_ad_token_provider=no_token) as client:
        error = await failure_of(AnthropicClientModel("claude-sonnet-5-5", client=client))
    assert (error.kind, error.usage) == ("auth", Usage())
    assert "no token in reach" in str(error)
    vertex = AsyncAnthropicVertex(region="global", project_id=None, access_token=KEY)  # pyright: ignore[reportArgumentType]
    async with vertex:
        error = await failure_of(AnthropicClientModel("claude-sonnet-5-5", client=vertex))
    assert error.kind == "bad_request"


OF_CLOUDS = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "CLOUD_ML_REGION")


@pytest.fixture
def no_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*OF_CLOUDS, *[name for name in os.environ if name.startswith(("ANTHROPIC_", "GOOGLE_CLOUD_"))]):
        monkeypatch.delenv(variable, raising=False)


def cloud(name: str, **options: Any) -> AnthropicClientModel:
    model = instance_of(AnthropicClientModel, connect(name, **options))
    return model


BEDROCK = "bedrock:global.anthropic.claude-sonnet-5-5"


@pytest.mark.usefixtures("no_clouds")
async def test_bedrock_by_its_prefix_has_a_client_as_long_as_somebody_uses_it() -> None:
    wire = Wire(b"".join(await frames_of(says.answer("Hi."))), AWS_STREAM)
    async with httpx2.AsyncClient(transport=wire) as http_client:
        model = cloud(BEDROCK, aws_region="eu-west-1", api_key=KEY, http_client=http_client, headers={"x-team": "t"})
        result = await run(Agent(name="a", model=model), "Hello.")
        assert (result.unwrap(), http_client.is_closed) == ("Hi.", True)
    (sent,) = wire.requests
    assert sent.url.host == "bedrock-runtime.eu-west-1.amazonaws.com"
    assert sent.url.path.endswith("/invoke-with-response-stream")
    assert (sent.headers["authorization"], sent.headers["x-team"]) == (f"Bearer {KEY}", "t")
    assert (model.provider, model.facts.max_output_tokens, model.facts.price is not None) == (
        "anthropic",
        128_000,
        True,
    )
    assert repr(model) == f"<AnthropicClientModel {BEDROCK}>"
    assert not existing(existing(model.facts.media).image).by_url  # no cloud fetches a picture by its address


def test_each_event_loop_has_a_client_of_its_own() -> None:
    made: list[anthropic.AsyncAnthropic] = []

    async def once() -> None:
        async with MessagesApi([says.answer("Hi."), says.answer("Hi.")]) as api:

            def make() -> anthropic.AsyncAnthropic:
                made.append(anthropic.AsyncAnthropic(api_key=KEY, base_url=api.url))
                return made[-1]

            model = AnthropicClientModel("claude-sonnet-5-5", make=make, prefix="bedrock")
            async with model, model.open():
                await ask(model)
            await ask(model)

    for _ in range(2):
        asyncio.run(once())
        gc.collect()  # warnings about what was left open are errors
    assert [client.is_closed() for client in made] == [True] * 4


@pytest.mark.usefixtures("no_clouds")
async def test_vertex_by_its_prefix_takes_project_and_place_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    wire = Wire(await stream_of(says.answer("Hi.")))
    async with httpx2.AsyncClient(transport=wire) as http_client:
        model = cloud("vertex-anthropic:claude-sonnet-5-5", access_token=KEY, http_client=http_client)
        assert (await ask(model, HELLO)).content == (Text("Hi."),)
    (sent,) = wire.requests
    assert str(sent.url) == (
        "https://aiplatform.googleapis.com/v1/projects/my-project/locations/global/publishers/anthropic/models/"
        "claude-sonnet-5-5:streamRawPredict"
    )
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert (model.facts.price, orjson.loads(model.body(request()))["model"]) == (None, "claude-sonnet-5-5")


@pytest.mark.usefixtures("no_clouds")
def test_what_a_cloud_needs_and_has_not_is_one_line() -> None:
    error = unavailable(BEDROCK, aws_region="us-east-1")  # boto3 is not among the packages of the tests
    assert str(error) == f"The model '{BEDROCK}' needs what is not installed: boto3."
    assert error.hint == "Install it: pip install 'anthropic[bedrock]'"
    error = unavailable(BEDROCK, api_key=KEY)
    assert str(error).startswith(f"The client for '{BEDROCK}' cannot be made: ValueError: No AWS region was provided.")
    error = unavailable("vertex-anthropic:claude-sonnet-5-5", colour="red")
    assert "unexpected keyword argument 'colour'" in str(error)
    assert "AsyncAnthropicVertex" in error.hint
    error = unavailable(BEDROCK, api_key=KEY, aws_secret_key="secret-of-aws-0123", aws_region="us-east-1")
    assert KEY not in everything_said_by(error)
    assert "secret-of-aws-0123" not in everything_said_by(error)


@pytest.mark.usefixtures("no_clouds")
async def test_a_client_that_can_no_longer_be_made_is_a_fault_of_the_credentials() -> None:
    make = raising(ValueError("No AWS region was provided."))
    result = await run(Agent(name="a", model=AnthropicClientModel("claude", make=make, prefix="bedrock")), "Hello.")
    assert isinstance(result, Failure)
    said = "The client for bedrock:claude cannot be made (ValueError: No AWS region was provided.)."
    assert said in str(result.error)
