"""What is known of OpenAI-style services and models, and models made by name from options and the environment."""

import json
import os
import re
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from pydantic import JsonValue

from journeyman.connect import connect
from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.model import Facts, ModelSettings, Prefix, Request, ToolSpec
from journeyman.models.error_reports import error_within
from journeyman.models.openai import AZURE, Endpoint, InputMedia, OpenAIChatModel, OpenAIModel, Reasoning
from journeyman.models.openai.endpoint import LLAMA_CPP, LM_STUDIO, OLLAMA, OPENAI, OPENROUTER, VLLM, look_up_model
from journeyman.models.openai.names import PREFIXES
from journeyman.models.transport import Timeouts
from journeyman.types import Message, Price, Text
from tests.models.asking import unavailable
from tests.play import instance_of

PRESETS = (OPENAI, AZURE, OPENROUTER, OLLAMA, VLLM, LLAMA_CPP, LM_STUDIO)
LOCAL = (OLLAMA, VLLM, LLAMA_CPP, LM_STUDIO)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in os.environ:
        if variable.startswith(("OPENAI_", "AZURE_", "OPENROUTER_", "OLLAMA_", "VLLM_", "LLAMA_CPP_", "LM_STUDIO_")):
            monkeypatch.delenv(variable)


def chat(name: str, **options: object) -> OpenAIChatModel:
    model = instance_of(OpenAIChatModel, connect(name, **options))
    return model


def responses(name: str, **options: object) -> OpenAIModel:
    model = instance_of(OpenAIModel, connect(name, **options))
    return model


def body_of(endpoint: Endpoint, name: str, settings: ModelSettings, *tools: ToolSpec) -> dict[str, Any]:
    """Return the body of a request over Chat Completions."""
    model = OpenAIChatModel(name, endpoint=endpoint, base_url="http://gpu.test")
    said = [Message("user", (Text("Hello."),))]
    return json.loads(model.body(Request(prefix=Prefix(tools=tools), messages=said, settings=settings)))


def test_services_have_names_addresses_and_variables_of_their_own() -> None:
    assert len({preset.provider for preset in PRESETS}) == len(PRESETS)
    assert [preset.provider for preset in PRESETS if preset.needs_key] == ["openai", "azure", "openrouter"]
    assert all(preset.base_url is not None for preset in PRESETS if preset is not AZURE)
    assert all(preset.base_url_variable and preset.key_variable for preset in PRESETS)


def test_an_endpoint_can_be_kept_in_sets() -> None:
    assert len({OPENAI, AZURE, replace(OPENAI), replace(AZURE, media=InputMedia())}) == 3


@pytest.mark.parametrize(
    ("name", "output_tokens", "window"),
    [
        ("gpt-6-astra", 128_000, 1_050_000),
        ("gpt-6.2-sol", 128_000, 1_050_000),
        ("gpt-5.5-2026-04-23", 128_000, 1_050_000),
        ("gpt-5-mini", 128_000, 400_000),
        ("gpt-5-pro-2025-10-06", 272_000, 400_000),
        ("gpt-5-chat-latest", 16_384, 128_000),
        ("o3-mini", 100_000, 200_000),
        ("gpt-4.1-nano", 32_768, 1_047_576),
        ("gpt-4o-mini", 16_384, 128_000),
        ("gpt-4-0613", 8_192, 8_192),
        ("ft:gpt-4o-mini:acme::id", 16_384, 128_000),
        ("openai/gpt-oss-20b", 131_072, 131_072),
        ("qwen3", 8_192, None),
    ],
)
def test_what_is_known_of_a_model_is_found_by_its_prefix(name: str, output_tokens: int, window: int | None) -> None:
    assert (look_up_model(name).max_output_tokens, look_up_model(name).context_window) == (output_tokens, window)
    facts = replace(OpenAIChatModel(name).facts, media=None, native_output=None, hosted=None)
    assert facts == Facts(max_output_tokens=output_tokens, context_window=window)


def test_the_endpoints_limits_win_over_those_that_are_known() -> None:
    small = replace(OLLAMA, max_output_tokens=2_048, context_window=4_096)
    facts = OpenAIChatModel("gpt-oss-20b", endpoint=small).facts
    assert (facts.max_output_tokens, facts.context_window) == (2_048, 4_096)


@pytest.mark.parametrize(
    ("endpoint", "name", "tools"),
    [
        (OPENAI, "gpt-6.1-sol", "no"),
        (AZURE, "gpt-6-astra", "no"),
        (OPENAI, "gpt-6-luna", "without reasoning"),
        (OPENAI, "gpt-5.4-mini", "without reasoning"),
        (OPENAI, "gpt-5", "yes"),
        (OPENROUTER, "openai/gpt-6-astra", "yes"),
        (replace(OPENAI, reasoning=Reasoning(effort_field="reasoning_effort", efforts=("low",))), "gpt-6-astra", "yes"),
    ],
)
def test_which_models_have_tools_over_chat_completions(endpoint: Endpoint, name: str, tools: str) -> None:
    tool = ToolSpec(name="look", description="", input_schema={"type": "object"})
    said = {"no": "has no tools", "without reasoning": "cannot both reason and use tools", "yes": ""}[tools]
    place = "azure-responses" if endpoint is AZURE else endpoint.provider
    told = f"^{endpoint.provider}:{name} {said} over Chat Completions.*'{place}:{name}'"
    with nullcontext() if tools == "yes" else pytest.raises(ProviderError, match=told):
        body_of(endpoint, name, ModelSettings(thinking=None if tools == "no" else "low"), tool)
    if tools == "without reasoning":
        assert body_of(endpoint, name, ModelSettings(), tool)["reasoning_effort"] == "none"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "server_error", "code": "rate_limit_exceeded"}, "rate_limited"),
        ({"type": "insufficient_quota", "code": "insufficient_quota"}, "quota"),
        ({"type": "invalid_request_error", "code": "context_length_exceeded"}, "context_overflow"),
        ({"type": "invalid_request_error", "code": "invalid_api_key"}, "auth"),
        ({"type": "invalid_request_error", "code": "model_not_found"}, "not_found"),
        ({"type": "invalid_request_error", "code": "content_filter"}, "content_filtered"),
        ({"type": "server_error", "code": None}, "overloaded"),
        ({"type": "invalid_request_error", "code": "string_above_max_length"}, "bad_request"),
        ({"code": 429}, "rate_limited"),
        ({"code": 503}, "overloaded"),
        ({"code": 500, "message": "audio input is not supported", "type": "server_error"}, "bad_request"),
        ({"code": 501, "type": "not_supported_error"}, "bad_request"),
        ({"message": "x"}, "unknown"),
        ("x", "unknown"),
        ([], "unknown"),
    ],
)
def test_an_error_within_an_answer_is_known_by_its_label(error: JsonValue, kind: ProviderErrorKind) -> None:
    assert error_within(error).kind == kind


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("openai-chat:gpt-4.1", "OPENAI_API_KEY"),
        ("openrouter:openai/gpt-5", "OPENROUTER_API_KEY"),
    ],
)
def test_a_missing_key_names_the_variable_to_set(name: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = unavailable(name)
    assert str(error) == f"There is no key for the model {name!r}."
    assert error.hint == f"Set the environment variable {variable}, or give api_key."
    assert error.model == name
    monkeypatch.setenv(variable, " ")
    assert variable in unavailable(name).hint
    monkeypatch.setenv(variable, " key\n")
    model = connect(name)
    assert isinstance(model, OpenAIChatModel | OpenAIModel)
    assert model.api_key == "key"


def test_a_missing_address_names_the_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    error = unavailable("azure:my-deployment")
    assert str(error) == "There is no address for the model 'azure:my-deployment'."
    assert error.hint == "Set the environment variable AZURE_OPENAI_ENDPOINT, or give base_url."
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://acme.openai.azure.com/")
    assert "AZURE_OPENAI_API_KEY" in unavailable("azure:my-deployment").hint
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "key")
    model = chat("azure:my-deployment")
    assert (model.base_url, model.api_key, model.provider) == ("https://acme.openai.azure.com", "key", "azure")
    assert model.endpoint == AZURE
    assert responses("azure-responses:my-deployment").endpoint == AZURE


@pytest.mark.parametrize("endpoint", LOCAL, ids=lambda endpoint: endpoint.provider)
def test_a_local_server_needs_no_key_and_no_address(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{endpoint.provider}:qwen3:8b"
    model = chat(name)
    assert (model.name, model.provider, model.api_key) == ("qwen3:8b", endpoint.provider, None)
    assert (model.base_url, model.endpoint) == (endpoint.base_url, endpoint)
    monkeypatch.setenv(endpoint.base_url_variable or "", "http://gpu:9/v2")
    monkeypatch.setenv(endpoint.key_variable or "", "secret")
    assert (chat(name).base_url, chat(name).api_key) == ("http://gpu:9/v2", "secret")


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://gpu:8000", "http://gpu:8000/v1"),
        ("http://gpu:8000/", "http://gpu:8000/v1"),
        ("http://gpu:8000/v1/", "http://gpu:8000/v1/"),
        ("http://gpu:8000/llm", "http://gpu:8000/llm"),
    ],
)
def test_an_address_without_a_path_gets_the_usual_one(given: str, used: str) -> None:
    assert chat("vllm:qwen3", base_url=given).base_url == used


def test_openai_speaks_responses_and_chat_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj_1")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://eu.api.openai.com/v1")
    for model in (responses("openai:gpt-5"), chat("openai-chat:gpt-5")):
        assert (model.provider, model.api_key, model.base_url) == ("openai", "key", "https://eu.api.openai.com/v1")
        assert model.headers == {"openai-organization": "org-1", "openai-project": "proj_1"}
    assert chat("openai-chat:gpt-5", headers={"openai-project": "mine"}).headers["openai-project"] == "mine"
    assert chat("ollama:qwen3").headers == {}


def test_options_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://from-environment")
    timeouts, price = Timeouts(idle_s=1), Price(input=1, output=2)
    given: dict[str, Any] = {"api_key": "given", "base_url": "http://given/v1"}
    model = chat("openai-chat:gpt-5", **given, streaming=False, timeouts=timeouts, price=price)
    assert (model.api_key, model.base_url, model.streaming) == ("given", "http://given/v1", False)
    assert chat("openai-chat:gpt-5").streaming
    assert (model.timeouts, model.price) == (timeouts, price)


def test_every_field_of_the_endpoint_can_be_given() -> None:
    given = replace(VLLM, provider="gpu", tools=False, media=InputMedia(images=False), context_window=32_768)
    model = chat("vllm:qwen3", endpoint=given)
    assert (model.endpoint, model.provider, model.facts.context_window) == (given, "gpu", 32_768)
    own = Endpoint(provider="acme", base_url="https://acme.example/v1", key_variable="ACME_API_KEY", needs_key=True)
    assert "ACME_API_KEY" in unavailable("openai-chat:m", endpoint=own).hint
    assert chat("openai-chat:m", endpoint=own, api_key="k").base_url == "https://acme.example/v1"
    assert chat("openai-chat:m", endpoint=own, api_key="k", base_url="http://x").base_url == "http://x/v1"


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(TypeError, match=r"vllm:qwen3 has no options \['temprature'\]. It has: \['api_key', "):
        connect("vllm:qwen3", temprature=1)


@pytest.mark.parametrize("name", ["azure:m", "azure-responses:m"])
@pytest.mark.parametrize("version", ["2024-10-21", "preview"])
def test_a_version_of_azures_older_api_is_refused(name: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_VERSION", version)
    options: dict[str, Any] = {"api_key": "k", "base_url": "https://acme.openai.azure.com?api-version=preview"}
    error = unavailable(name, **options)
    assert str(error).startswith(f"OPENAI_API_VERSION is {version!r}, and Azure is asked over its v1 API")
    assert "?api-version=preview" in error.hint
    older = replace(AZURE, chat_path="/openai/deployments/{model}/chat/completions")
    assert chat("azure:m", **options, endpoint=older).url.endswith("/m/chat/completions?api-version=preview")
    monkeypatch.delenv("OPENAI_API_VERSION")
    assert chat("azure:m", **options).url.endswith("/openai/v1/chat/completions?api-version=preview")


def test_connect_knows_every_prefix_of_the_table() -> None:
    hint = unavailable("nobody:m").hint
    assert [prefix for prefix in PREFIXES if not re.search(rf" {prefix}[,.]", hint)] == []
    made = {type(connect(f"{prefix}:m", api_key="k", base_url="http://x")) for prefix in PREFIXES}
    assert made == {OpenAIChatModel, OpenAIModel}


def test_a_token_serves_azure_instead_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://acme.openai.azure.com")
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "token")
    model = chat("azure:m")
    assert (model.api_key, model.endpoint.key_header) == ("token", "authorization")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "key")
    model = chat("azure:m")
    assert (model.api_key, model.endpoint.key_header) == ("key", "api-key")
