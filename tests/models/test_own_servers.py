"""Servers of one's own: the window of a model is asked for, and a server is waited for, or told as what it is."""

import asyncio
import logging
import socket

import pytest

from journeyman import Agent, Chat, Event, Failure, Limits, Output, run, tool
from journeyman.compaction import ClearToolResults
from journeyman.connect import Connected, connect
from journeyman.events import ContextCompacted
from journeyman.model import facts_of
from journeyman.models.openai import LLAMA_CPP, OpenAIModel
from journeyman.models.transport import Timeouts
from tests.models.asking import failure_of
from tests.support.messages_answers import Raw, raw
from tests.support.messages_json import Json
from tests.support.openai_answers import Answer, answer, text
from tests.support.servers import OpenAiApi

PROPS: Json = {"default_generation_settings": {"n_ctx": 2_048}, "chat_template_caps": {"supports_tools": True}}
ROOM = 2_048 - 2_048 // 50 - 8
"""What the window leaves but for a margin of a fiftieth, a message around its words, and these."""
LLAMA: dict[str, Json | Raw] = {"/props": PROPS}
OTHER = {"id": "other", "max_model_len": 1}
TELLS: dict[str, tuple[str, dict[str, Json | Raw]]] = {
    "llama.cpp": ("llama-cpp:m", {"/props": PROPS}),
    "vLLM": ("vllm:m", {"/v1/models": {"data": [OTHER, {"id": "m", "max_model_len": 2_048}]}}),
    "LM Studio": (
        "lm-studio:m",
        {
            "/v1/models": {"data": [{"id": "m"}]},
            "/api/v0/models": {"data": [{"id": "m", "max_context_length": 131_072, "loaded_context_length": 2_048}]},
        },
    ),
    "Ollama, loaded": ("ollama:m", {"/api/ps": {"models": [{"name": "m:latest", "context_length": 2_048}]}}),
    "Ollama, by the model's file": (
        "ollama:m",
        {
            "/api/ps": {"models": [{"name": "n:latest", "context_length": 9}]},
            "/api/show": {
                "parameters": 'stop "num_ctx 5"\nnum_ctx    2048',
                "model_info": {"llama.context_length": 131_072},
            },
        },
    ),
}
SILENT: dict[str, tuple[str, dict[str, Json | Raw]]] = {
    "nothing there": ("llama-cpp:m", {}),
    "a page": ("llama-cpp:m", {"/props": raw(b"<html></html>", content_type="text/html")}),
    "no number": ("llama-cpp:m", {"/props": {"default_generation_settings": {"n_ctx": "2048"}}}),
    "no window at all": ("llama-cpp:m", {"/props": {"default_generation_settings": {"n_ctx": 0}}}),
    "a list": ("vllm:m", {"/v1/models": {"data": {"id": "m"}}}),
    "another model": ("vllm:m", {"/v1/models": {"data": [OTHER]}}),
    "LM Studio, not loaded": ("lm-studio:m", {"/api/v0/models": {"data": [{"id": "m", "max_context_length": 9_999}]}}),
    "Ollama, only what it was trained with": ("ollama:m", {"/api/show": {"model_info": {"llama.context_length": 1}}}),
    "Ollama, no number": ("ollama:m", {"/api/show": {"parameters": "num_ctx many"}}),
}


def model_at(api: OpenAiApi, name: str = "llama-cpp:m", **options: object) -> Connected:
    """Return a model of the server, with the key that it wants."""
    return connect(name, base_url=api.url, api_key="sk-test", **options)


def said() -> Answer:
    return answer(text("Hello."))


@pytest.mark.parametrize(("name", "tells"), TELLS.values(), ids=TELLS)
async def test_a_server_tells_its_window_and_an_answer_is_asked_for_that_fits_into_it(
    name: str, tells: dict[str, Json | Raw]
) -> None:
    async with OpenAiApi([said(), said()], tells={**tells}) as api:
        model = model_at(api, name)
        assert (facts_of(model).context_window, facts_of(model).max_output_tokens) == (None, 8_192)
        assert (await run(Agent(name="a", model=model), "Hi. " * 200)).unwrap() == "Hello."
        assert (facts_of(model).context_window, facts_of(model).max_output_tokens) == (2_048, 2_048)
        n_asked = len(api.told)
        again = model_at(api, name)
        assert facts_of(again).context_window == 2_048, "another model object knows it, before it is asked"
        await run(Agent(name="b", model=again), "Hi.")
        assert len(api.told) == n_asked, "the answer is kept"
        asked = [request.body["max_tokens"] for request in api.requests]
    assert asked == [ROOM - 200, ROOM - 1]


@pytest.mark.parametrize(("name", "tells"), SILENT.values(), ids=SILENT)
async def test_a_server_that_does_not_tell_its_window_is_used_as_before(
    name: str, tells: dict[str, Json | Raw]
) -> None:
    async with OpenAiApi([said(), said()], tells={**tells}) as api:
        model = model_at(api, name)
        assert (await run(Agent(name="a", model=model), "Hi.")).unwrap() == "Hello."
        assert facts_of(model).context_window is None
        n_asked = len(api.told)
        await run(Agent(name="a", model=model), "Hi.")
        assert len(api.told) == 2 * n_asked, "it is asked again: the model may be loaded by now"
        assert [request.body["max_tokens"] for request in api.requests] == [8_192, 8_192]


async def test_a_server_is_asked_over_the_responses_api_too_and_with_its_key() -> None:
    async with OpenAiApi([said()], tells={**LLAMA}) as api:
        model = OpenAIModel("m", endpoint=LLAMA_CPP, base_url=f"{api.url}/v1", api_key="secret-key")
        await run(Agent(name="a", model=model), "Hi.")
        assert facts_of(model).context_window == 2_048
        assert api.told == ["/props"]


async def test_a_service_is_not_asked_for_its_window() -> None:
    async with OpenAiApi([said()], tells={**LLAMA}) as api:
        model = connect("openai-chat:gpt-4o", base_url=api.url, api_key="sk-test")
        await run(Agent(name="a", model=model), "Hi.")
        assert api.told == []


async def test_a_server_that_hangs_when_it_is_asked_holds_up_no_second_run() -> None:
    hangs = Raw(status=200, body=b"", headers={}, wait=asyncio.Event())
    async with OpenAiApi([said(), said()], tells={"/props": hangs}) as api:
        model = model_at(api, timeouts=Timeouts(idle_s=0.3))
        for _ in range(2):
            assert (await run(Agent(name="a", model=model), "Hi.")).unwrap() == "Hello."
        assert api.told == ["/props"]


async def test_the_window_is_known_before_the_first_prompt_of_a_chat() -> None:
    async with OpenAiApi([said()], tells={**LLAMA}) as api:
        model = model_at(api)
        async with Chat(Agent(name="a", model=model)) as chat:
            assert facts_of(model).context_window == 2_048
            await chat.prompt("Hi.")


LOADING = raw(b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}', status=503)
NOT_RUNNING = {
    "ollama:m": "Is Ollama running? Start it: ollama serve, or set OLLAMA_BASE_URL.",
    "llama-cpp:m": "Is llama.cpp running? Start it: llama-server -m MODEL.gguf, or set LLAMA_CPP_BASE_URL.",
    "vllm:m": "Is vLLM running? Start it: vllm serve MODEL, or set VLLM_BASE_URL.",
    "lm-studio:m": "Is LM Studio running? Start it: lms server start, or set LM_STUDIO_BASE_URL.",
}


@pytest.fixture
def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize(("name", "hint"), NOT_RUNNING.items())
async def test_a_server_that_is_not_running_is_told_as_what_it_is(name: str, hint: str, free_port: int) -> None:
    model = connect(name, base_url=f"http://127.0.0.1:{free_port}")
    result = await run(Agent(name="a", model=model, limits=Limits(request_retries=0)), "Hi.")
    assert isinstance(result, Failure)
    assert result.error.hint == hint
    assert f"127.0.0.1:{free_port} could not be reached" in result.error.message
    assert "ssl" not in result.error.message


async def test_a_server_that_loads_its_model_is_waited_for_and_uses_up_no_retry() -> None:
    async with OpenAiApi([LOADING, LOADING, said()], tells={"/health": LOADING}) as api:
        model = model_at(api)
        running = asyncio.create_task(run(Agent(name="a", model=model, limits=Limits(request_retries=0)), "Hi."))
        await api.until(lambda: api.told.count("/health") == 2)
        api.tells |= {"/health": {"status": "ok"}, "/props": PROPS}
        result = await running
        assert result.unwrap() == "Hello."
        assert result.metadata.usage is not None
        assert (result.metadata.usage.requests, result.metadata.usage.exact) == (1, True)
        assert facts_of(model).context_window == 2_048
        assert api.requests[-1].body["max_tokens"] == ROOM - 1


async def test_a_run_waits_no_longer_for_a_server_than_it_may_take() -> None:
    async with OpenAiApi(lambda _: LOADING, tells={"/health": LOADING}) as api:
        agent = Agent(name="a", model=model_at(api), limits=Limits(seconds=0.2))
        result = await run(agent, "Hi.")
    assert isinstance(result, Failure)
    assert result.code == "BUDGET_EXCEEDED"


async def test_a_503_of_another_kind_is_a_failure_as_before() -> None:
    busy = raw(b'{"error":{"message":"Busy","type":"server_error","code":503}}', status=503)
    async with OpenAiApi([busy]) as api:
        assert "Busy" in str(await failure_of(model_at(api)))
        assert "/health" not in api.told


NO_TOOLS: dict[str, Json | Raw] = {"/props": {**PROPS, "chat_template_caps": {"supports_tools": False}}}


@tool
def look(where: str) -> str:
    """Look around."""
    return f"Nothing at {where}."


async def test_a_template_without_tools_is_told_once_and_in_the_ending(caplog: pytest.LogCaptureFixture) -> None:
    async with OpenAiApi([said(), said(), said()], tells={**NO_TOOLS}) as api:
        model = model_at(api)
        agent = Agent(name="a", model=model, output=Output(int))
        with caplog.at_level(logging.WARNING, "journeyman"):
            await run(Agent(name="plain", model=model), "Hi.")
            assert caplog.records == [], "who has no tools misses none"
            failures = [await run(agent, "Hi.") for _ in range(2)]
        assert [record.message for record in caplog.records if "no tools" in record.message] == [
            "The chat template of llama-cpp:m has no tools, so the model does not see those of the agent. Start the"
            " server with a template that has them (--chat-template-file), or take another model."
        ]
    for failure in failures:
        assert isinstance(failure, Failure)
        assert failure.error.message == (
            "The model stopped (end_turn) without calling 'output', which its server does not show it."
        )
        assert "chat template" in failure.error.hint


async def test_an_ending_out_of_iterations_says_that_no_tool_was_ever_called() -> None:
    async with OpenAiApi([said(), said()]) as api:
        model = model_at(api)
        agent = Agent(
            name="a", model=model, tools=[look], output=Output(int, reminder=True), limits=Limits(iterations=2)
        )
        failure = await run(agent, "Hi.")
    assert isinstance(failure, Failure)
    assert failure.error.message == (
        "The attempt used all its 2 iterations without an output; the model never called a tool."
    )
    assert failure.error.hint.startswith("See whether the model can call tools.")


async def test_compaction_begins_by_the_window_that_the_server_tells() -> None:
    told: list[ContextCompacted] = []

    def hear(event: Event) -> None:
        if isinstance(event, ContextCompacted):
            told.append(event)

    async with OpenAiApi([said(), said()], tells={**LLAMA}) as api:
        agent = Agent(name="a", model=model_at(api), compaction=[ClearToolResults()])
        await run(agent, "Hi.", on_event=hear)
        assert told == []
        await run(agent, "Hi. " * 1_200, on_event=hear)
    assert [(each.reason, each.before_tokens > 1_024) for each in told] == [("threshold", True)]
