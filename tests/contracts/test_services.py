"""Services with records of facts, each against a strict server with its habits: whole runs, and what is sent.

The habits are those of the services' documentation and of reports, not of recordings: see `docs/providers.md`.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from journeyman import Agent, Limits, ModelSettings, Output, run, tool
from journeyman.connect import connect
from journeyman.errors import ModelUnavailable, ProviderError
from journeyman.model import Prefix, Request, ThinkingLevel
from journeyman.models.openai import Endpoint, OpenAIChatModel, OpenAIModel
from journeyman.models.openai import endpoint as services
from journeyman.types import Image, Message, Text, Thinking, ToolResult, ToolUse
from tests.contracts.makers import KEY
from tests.models.asking import QUERY, Json, unavailable
from tests.play import existing, instance_of, succeeded
from tests.support.files import PNG
from tests.support.openai_answers import Answer, Counted, answer, call, fault, reasoning
from tests.support.servers import OpenAiApi, Service

_OPENAIS_OWN: Final = frozenset({"store", "metadata", "prediction", "service_tier"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One service: where it is, what it is asked with, and how its server behaves."""

    endpoint: Endpoint
    model: str
    url: str
    key: str
    tokens: str = "max_tokens"
    """The field with the longest answer."""
    asks_for_usage: bool = True
    habits: Service
    is_priced: bool = False

    @property
    def name(self) -> str:
        return f"{self.endpoint.provider}:{self.model}"


SERVED: Final = (
    Served(
        endpoint=services.MISTRAL,
        model="mistral-medium-2604",
        url="https://api.mistral.ai/v1/chat/completions",
        key="MISTRAL_API_KEY",
        asks_for_usage=False,
        is_priced=True,
        habits=Service(
            reasoning_field="reasoning_content",
            refused=_OPENAIS_OWN | {"stream_options", "max_completion_tokens", "reasoning"},
            exact_id=9,
            replies_to_results=True,
            always_counts=True,
            thinks_in_content=True,
        ),
    ),
    Served(
        endpoint=services.GROQ,
        model="openai/gpt-oss-120b",
        url="https://api.groq.com/openai/v1/chat/completions",
        key="GROQ_API_KEY",
        tokens="max_completion_tokens",
        is_priced=True,
        habits=Service(reasoning_field="reasoning", longest_id=None, refused=frozenset({"store", "logit_bias"})),
    ),
    Served(
        endpoint=services.DEEPSEEK,
        model="deepseek-v3.2",
        url="https://api.deepseek.com/chat/completions",
        key="DEEPSEEK_API_KEY",
        is_priced=True,
        habits=Service(
            reasoning_field="reasoning_content",
            longest_id=None,
            refused=frozenset({"max_completion_tokens", "parallel_tool_calls"}),
            reasoning_with_calls=True,
            extensions=frozenset({"thinking"}),
        ),
    ),
    Served(
        endpoint=services.XAI,
        model="grok-4.7",
        url="https://api.x.ai/v1/chat/completions",
        key="XAI_API_KEY",
        tokens="max_completion_tokens",
        is_priced=True,
        habits=Service(reasoning_field="reasoning_content", longest_id=None, output_without_reasoning=True),
    ),
    Served(
        endpoint=services.TOGETHER,
        model="openai/gpt-oss-20b",
        url="https://api.together.ai/v1/chat/completions",
        key="TOGETHER_API_KEY",
        asks_for_usage=False,
        habits=Service(
            reasoning_field="reasoning", longest_id=None, refused=_OPENAIS_OWN, always_counts=True, good_end="eos"
        ),
    ),
    Served(
        endpoint=services.FIREWORKS,
        model="accounts/fireworks/models/glm-5p3",
        url="https://api.fireworks.ai/inference/v1/chat/completions",
        key="FIREWORKS_API_KEY",
        asks_for_usage=False,
        habits=Service(
            reasoning_field="reasoning_content", longest_id=None, refused=frozenset({"store"}), always_counts=True
        ),
    ),
    Served(
        endpoint=services.CEREBRAS,
        model="gpt-oss-120b",
        url="https://api.cerebras.ai/v1/chat/completions",
        key="CEREBRAS_API_KEY",
        tokens="max_completion_tokens",
        asks_for_usage=False,
        is_priced=True,
        habits=Service(
            reasoning_field="reasoning",
            longest_id=None,
            refused=_OPENAIS_OWN | {"parallel_tool_calls", "frequency_penalty"},
            always_counts=True,
        ),
    ),
    Served(
        endpoint=services.HUGGINGFACE,
        model="zai-org/GLM-5.3:novita",
        url="https://router.huggingface.co/v1/chat/completions",
        key="HF_TOKEN",
        habits=Service(reasoning_field="reasoning_content", longest_id=None, refused=_OPENAIS_OWN),
    ),
    Served(
        endpoint=services.COHERE,
        model="command-a-03-2025",
        url="https://api.cohere.ai/compatibility/v1/chat/completions",
        key="CO_API_KEY",
        asks_for_usage=False,
        is_priced=True,
        habits=Service(
            longest_id=None,
            refused=_OPENAIS_OWN | {"stream_options", "parallel_tool_calls", "logit_bias"},
            always_counts=True,
        ),
    ),
)
RESPONSES: Final = Served(
    endpoint=services.PERPLEXITY,
    model="openai/gpt-5.5",
    url="https://api.perplexity.ai/v1/responses",
    key="PERPLEXITY_API_KEY",
    habits=Service(),
)
ALL: Final = (*SERVED, RESPONSES)


def each(*served: Served) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("served", served, ids=lambda served: served.endpoint.provider)


def of(provider: str) -> Served:
    (found,) = [served for served in ALL if served.endpoint.provider == provider]
    return found


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in os.environ:
        if variable.endswith(("_API_KEY", "_BASE_URL")) or variable == "HF_TOKEN":
            monkeypatch.delenv(variable)


def connected(served: Served, **options: Any) -> OpenAIChatModel | OpenAIModel:
    model = connect(served.name, **options)
    assert isinstance(model, OpenAIChatModel | OpenAIModel)
    return model


def body_of(served: Served, *messages: Message, **settings: Any) -> Json:
    """Return the body of a request that the service takes."""
    model = connected(served, api_key=KEY)
    said = messages or (Message("user", (Text("Hello."),)),)
    request = Request(prefix=Prefix(tools=(QUERY,)), messages=said, settings=ModelSettings(max_tokens=500, **settings))
    body: Json = json.loads(model.body(request))
    return body


def test_every_record_has_its_row_here_and_its_prefix() -> None:
    assert {served.endpoint.provider for served in ALL} == {preset.provider for preset in services.OTHERS}


@each(*ALL)
def test_address_key_and_price_are_known(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    error = unavailable(served.name)
    assert str(error) == f"There is no key for the model {served.name!r}."
    assert served.key in error.hint
    monkeypatch.setenv(served.key, KEY)
    model = connected(served)
    assert (model.provider, model.name, model.url) == (served.endpoint.provider, served.model, served.url)
    assert (model.api_key, model.facts.price is not None) == (KEY, served.is_priced)
    assert KEY not in repr(model)
    monkeypatch.setenv(served.endpoint.base_url_variable or "", "https://gateway.test/here")
    elsewhere = connected(served)
    assert (elsewhere.base_url, elsewhere.price) == ("https://gateway.test/here", None)


@each(*SERVED)
def test_a_request_has_the_fields_that_the_service_takes(served: Served) -> None:
    body = body_of(served, tool_choice="none")
    assert body[served.tokens] == 500
    assert ("max_tokens" in body) == (served.tokens == "max_tokens")
    assert ("stream_options" in body) == served.asks_for_usage
    assert body["tool_choice"] == "none"
    assert not {"store", "parallel_tool_calls"} & body.keys()
    assert "strict" not in body["tools"][0]["function"]


@pytest.mark.parametrize(
    ("provider", "level", "fields"),
    [
        ("mistral", "high", {"reasoning_effort": "high"}),
        ("mistral", "off", {"reasoning_effort": "none"}),
        ("groq", "minimal", {"reasoning_effort": "low"}),
        ("deepseek", "max", {"reasoning_effort": "max"}),
        ("deepseek", "off", {"thinking": {"type": "disabled"}}),
        ("xai", "max", {"reasoning_effort": "high"}),
        ("together", "medium", {"reasoning_effort": "medium"}),
        ("fireworks", "off", {"reasoning_effort": "none"}),
        ("cerebras", "high", {"reasoning_effort": "high"}),
        ("huggingface", "low", {"reasoning_effort": "low"}),
        ("cohere", "off", {"reasoning_effort": "none"}),
        ("perplexity", "low", {"reasoning": {"effort": "low"}}),
    ],
)
def test_reasoning_is_asked_for_as_the_service_takes_it(provider: str, level: ThinkingLevel, fields: Json) -> None:
    body = body_of(of(provider), thinking=level)
    assert {key: body[key] for key in ("reasoning_effort", "reasoning", "thinking") if key in body} == fields


@pytest.mark.parametrize(
    ("provider", "settings", "words"),
    [
        ("mistral", {"thinking": "low"}, "takes no effort 'low' for reasoning. It takes: none, high."),
        ("together", {"thinking": "off"}, "always reasons"),
        ("deepseek", {"tool_choice": "any"}, "cannot be told that it must call a tool"),
        ("groq", {"thinking": 2_000}, "takes no thinking budget"),
        ("perplexity", {"stop": ("x",)}, "takes no stop over"),
    ],
)
def test_what_the_service_cannot_do_is_refused_before_it_is_sent(provider: str, settings: Json, words: str) -> None:
    with pytest.raises(ProviderError) as caught:
        body_of(of(provider), **settings)
    assert caught.value.kind == "bad_request"
    assert words in str(caught.value)


@tool(parallel=True)
async def look(n: int) -> str:
    """Look at one row."""
    return f"row {n}"


USED: Final = Counted(input=40, output=12, cached=8, reasoning=5)


def script() -> list[Answer]:
    """Return the answers of two runs: calls of which one fails, a typed output, and a second run on that history."""
    thought = reasoning("I look at two rows.")
    calls = [call("look", {"n": 1}, id="call_of_some_length_1"), call("look", {"n": "two"}, id="x")]
    return [
        answer(thought, "I look.", *calls, usage=USED),
        answer(reasoning("Enough."), call("output", {"value": 3}, id="abcdefgh9"), usage=USED),
        answer("Three, as I said.", usage=USED),
    ]


@pytest.mark.parametrize("streaming", [True, False], ids=["events", "document"])
@each(*ALL)
async def test_a_run_with_tools_goes_through_and_goes_on(served: Served, streaming: bool) -> None:
    async with OpenAiApi(script(), service=served.habits) as api:
        model = connected(served, api_key=KEY, base_url=f"{api.url}/v1", streaming=streaming)
        counter = Agent(
            name="counter",
            model=model,
            system="Count.",
            tools=[look],
            output=Output(int),
            limits=Limits(request_retries=0),
        )
        first = succeeded(await run(counter, "How many?"))
        talker = Agent(name="talker", model=model, system="Count.", tools=[look], limits=Limits(request_retries=0))
        second = await run(talker, "Say it again.", history=first.history)
    assert (first.output, second.unwrap()) == (3, "Three, as I said.")
    usage = existing(first.metadata.usage)
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (64, 24, 16)
    assert (usage.reasoning_tokens, usage.exact) == (10, True)
    thoughts = [block for message in first.history for block in message.content if isinstance(block, Thinking)]
    expected = ["I look at two rows.", "Enough."] if served.habits.reasoning_field or served is RESPONSES else []
    assert [(each.text, each.provider) for each in thoughts] == [(text, model.provider) for text in expected]
    assert len(api.requests) == 3
    assert api.requests[0].headers["authorization"] == f"Bearer {KEY}"


def foreign() -> Sequence[Message]:
    """Return a conversation of another provider's, with thoughts, odd ids, a picture, and steering after results."""
    ids = ("toolu_01A", "functions.look:1")
    calls = tuple(ToolUse(id, "query", '{"sql":"x"}') for id in ids)
    results = tuple(ToolResult("12", tool_use_id=id) for id in ids)
    return (
        Message("user", (Text("Look."), Image.from_bytes(PNG))),
        Message("assistant", (Thinking("Hm.", "c2ln", "anthropic"), *calls)),
        Message("user", (*results, Text("In French, please."))),
        Message("assistant", (Text("Douze."),)),
        Message("user", (Text("Merci."),)),
    )


@each(*ALL)
async def test_a_conversation_of_another_provider_goes_on(served: Served) -> None:
    async with OpenAiApi([answer("De rien.", usage=USED)], service=served.habits) as api:
        model = connected(served, api_key=KEY, base_url=f"{api.url}/v1")
        result = await run(Agent(name="a", model=model, limits=Limits(request_retries=0)), "Encore.", history=foreign())
    assert result.unwrap() == "De rien."  # the server judges what was sent
    sent = api.requests[0].raw.decode()
    assert "<thinking>" in sent
    assert ("data:image/png" in sent) == served.endpoint.media.images


def test_mistrals_ids_are_of_nine_characters_and_stay_the_same() -> None:
    first, again = body_of(of("mistral"), *foreign()), body_of(of("mistral"), *foreign())
    assert first == again
    called = [each["id"] for each in first["messages"][1]["tool_calls"]]
    assert called == [each["tool_call_id"] for each in first["messages"][2:4]]
    assert [len(id) for id in called] == [9, 9]
    assert len({*called}) == 2


def test_mistrals_model_answers_results_before_the_user_goes_on() -> None:
    roles = [message["role"] for message in body_of(of("mistral"), *foreign())["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant", "user"]


def test_deepseek_gets_its_reasoning_back_and_none_with_the_calls_of_others() -> None:
    own = Message("assistant", (Thinking("Hm.", None, "deepseek"), ToolUse("a", "query", "{}")))
    others = Message("assistant", (ToolUse("b", "query", "{}"),))
    results = [Message("user", (ToolResult("1", tool_use_id=id),)) for id in "ab"]
    body = body_of(of("deepseek"), Message("user", (Text("Go."),)), own, results[0], others, results[1])
    assert [message.get("reasoning_content") for message in body["messages"]] == [None, "Hm.", None, "", None]


async def test_a_call_that_groq_could_not_read_is_asked_for_again() -> None:
    failed = fault(400, code="tool_use_failed", message="Failed to call a function.", headers={"retry-after": "0"})
    async with OpenAiApi([failed, answer("Better.")], service=of("groq").habits) as api:
        model = connected(of("groq"), api_key=KEY, base_url=f"{api.url}/v1")
        patient = Agent(name="a", model=model, tools=[look], limits=Limits(request_retries=1))
        result = await run(patient, "Go.")
    assert result.unwrap() == "Better."
    assert len(api.requests) == 2


def test_github_models_says_that_it_has_ended() -> None:
    error = instance_of(ModelUnavailable, unavailable("github:openai/gpt-5", api_key=KEY))
    assert str(error) == "GitHub ended GitHub Models on 30 July 2026."
    assert "'openai:gpt-5'" in error.hint


def test_a_record_can_be_replaced() -> None:
    strict = replace(services.CEREBRAS, strict=True, forces_calls=False)
    model = instance_of(OpenAIChatModel, connect("cerebras:gpt-oss-120b", api_key=KEY, endpoint=strict))
    assert (model.endpoint, model.url) == (strict, of("cerebras").url)
