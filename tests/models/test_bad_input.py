"""What a user reads who has named, set up or stored a model's things wrongly: the whole text, as it is shown."""

from dataclasses import replace
from pathlib import Path
from textwrap import wrap

import pytest
from inline_snapshot import snapshot

from journeyman import Agent, DefinitionError, Model, Output, run, tool
from journeyman.connect import connect
from journeyman.errors import CassetteError
from journeyman.models.cassette.cassette import Cassette
from journeyman.models.openai import OLLAMA, VLLM, Endpoint
from tests.play import failed


@tool
async def look(n: int) -> str:
    """Look at one row."""
    raise AssertionError(f"Nobody asks for row {n}.")


async def shown(agent: Agent[object]) -> str:
    """Run an agent that cannot be run. Return the failure and its hint."""
    result = failed(await run(agent, "What sold best in May?"))
    assert result.metadata.usage is None or result.metadata.usage.requests == 0
    return folded(f"{result.error}\n{result.error.hint}")


def folded(text: str) -> str:
    """Return text in lines that fit on a page of code."""
    wrapped = [wrap(line, 110, subsequent_indent="    ", break_on_hyphens=False) for line in text.split("\n")]
    return "\n".join(line for lines in wrapped for line in lines)


async def test_an_unknown_prefix_is_answered_with_what_may_be_meant() -> None:
    assert await shown(Agent(name="analyst", model="antropic:claude-sonnet-5-5")) == snapshot("""\
MODEL_UNAVAILABLE: Model 'antropic:claude-sonnet-5-5' cannot be used: No provider is called 'antropic'.
Did you mean 'anthropic:claude-sonnet-5-5'? Known providers: anthropic, azure, azure-responses, bedrock,
    bridge, cerebras, cohere, deepseek, fireworks, github, google, groq, huggingface, llama-cpp, lm-studio,
    local, mistral, ollama, openai, openai-chat, openrouter, perplexity, together, vertex-anthropic,
    vertex-google, vllm, xai. Others may be reached over the bridge, as 'bridge:antropic:claude-sonnet-5-5'.\
""")


async def test_a_name_without_a_prefix_is_refused_with_the_form() -> None:
    with pytest.raises(DefinitionError) as caught:
        Agent(name="analyst", model="claude-sonnet-5-5")
    assert folded(str(caught.value)) == snapshot("""\
Agent 'analyst' has 1 problem:
  - [INVALID_MODEL_NAME] The model name 'claude-sonnet-5-5' is not of the form 'provider:model'. Write the
    provider, a colon and the model, such as 'anthropic:claude-sonnet-5-5'.\
""")


@pytest.mark.parametrize("service", [OLLAMA, VLLM])
async def test_a_model_without_tools_says_so_before_it_is_asked(service: Endpoint) -> None:
    prefix = service.provider
    model = connect(f"{prefix}:tiny", endpoint=replace(service, tools=False), base_url="http://127.0.0.1:1")
    said = await shown(Agent(name="analyst", model=model, tools=[look]))
    assert said.replace(prefix, "<prefix>") == snapshot("""\
API_ERROR: The model call failed (bad_request): <prefix>:tiny is set up without tools, and the request has some.
    Choose a model that supports tools, or remove tools, typed output and sub-agents from the agent.
Nothing was sent.\
""")
    assert await shown(Agent(name="analyst", model=model, output=Output(int))) == said, "Typed output is a tool, too."


async def test_a_model_that_has_its_tools_elsewhere_says_where() -> None:
    model: Model = connect("openai-chat:gpt-6.1-sol", api_key="k")
    assert await shown(Agent(name="analyst", model=model, tools=[look])) == snapshot("""\
API_ERROR: The model call failed (bad_request): openai:gpt-6.1-sol has no tools over Chat Completions. Use it
    over the Responses API, as 'openai:gpt-6.1-sol', or without tools, typed output and sub-agents.
Nothing was sent.\
""")


def test_a_malformed_cassette_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    header = '{"format": "journeyman cassette", "version": 1, "recorded": "2026-11-01T00:00:00+00:00"}\n'
    Path("may.jsonl").write_text(header + '{"event": "request", "request": 1, "run": 1, "model": "a:b"}\n')
    with pytest.raises(CassetteError) as caught:
        Cassette("may.jsonl")
    assert folded(str(caught.value)) == snapshot("may.jsonl, line 2: request has no 'messages'. Record it again.")
