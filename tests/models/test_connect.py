"""From a model's name to a model: the table, entry points of other packages, and what is said when neither helps."""

import sys
from pathlib import Path
from typing import Any

import pytest

from journeyman.connect import connect, name_problem
from journeyman.models.anthropic.model import AnthropicModel
from tests.models.asking import unavailable
from tests.play import existing, instance_of

VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def connected(name: str, **options: object) -> AnthropicModel:
    model = instance_of(AnthropicModel, connect(name, **options))
    return model


@pytest.mark.parametrize("name", ["anthropic:claude-sonnet-5-5", "other-place:a/b:c", "x_y.z:m"])
def test_a_name_is_a_provider_a_colon_and_a_model(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize("name", ["claude-sonnet-5-5", "", ":", "anthropic:", ":claude", "anthropic: claude", "7:a"])
def test_any_other_name_is_a_problem_that_says_how_to_write_it(name: str) -> None:
    problem = existing(name_problem(name))
    assert problem.code == "INVALID_MODEL_NAME"
    assert repr(name) in problem.message
    assert "'anthropic:claude-sonnet-5-5'" in problem.hint
    error = unavailable(name)
    assert (str(error), error.hint, error.model) == (problem.message, problem.hint, name)


def test_an_unknown_provider_is_answered_with_those_that_are_known() -> None:
    error = unavailable("antropic:claude-sonnet-5-5")
    assert str(error) == "No provider is called 'antropic'."
    assert error.hint == (
        "Did you mean 'anthropic:claude-sonnet-5-5'? Known providers: anthropic, azure, azure-responses, bedrock,"
        " bridge, cerebras, cohere, deepseek, fireworks, github, google, groq, huggingface, llama-cpp, lm-studio,"
        " local, mistral, ollama, openai, openai-chat, openrouter, perplexity, together, vertex-anthropic,"
        " vertex-google, vllm, xai. Others may be reached over the bridge, as 'bridge:antropic:claude-sonnet-5-5'."
    )
    assert "Did you mean 'openai:gpt-5'?" in unavailable("opneai:gpt-5").hint
    assert "Did you mean 'llama-cpp:qwen3'?" in unavailable("llamacpp:qwen3").hint
    assert "Did you mean 'mistral:large'?" in unavailable("mistrall:large").hint
    far = unavailable("zzz:m")
    assert "Did you mean" not in far.hint
    assert "Known providers: " in far.hint
    assert "anthropic" in far.hint


def test_a_missing_key_names_the_variable_to_set() -> None:
    error = unavailable("anthropic:claude-sonnet-5-5")
    assert error.model == "anthropic:claude-sonnet-5-5"
    assert "ANTHROPIC_API_KEY" in error.hint
    assert "ANTHROPIC_AUTH_TOKEN" in error.hint


def test_key_and_address_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token")
    model = connected("anthropic:claude-sonnet-5-5")
    assert (model.name, model.provider) == ("claude-sonnet-5-5", "anthropic")
    assert (model.api_key, model.auth_token, model.base_url) == (None, "token", "https://api.anthropic.com")
    monkeypatch.setenv("ANTHROPIC_API_KEY", " key\n")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://gateway")
    model = connected("anthropic:claude-sonnet-5-5")
    assert (model.api_key, model.auth_token, model.base_url) == ("key", None, "http://gateway")


def test_options_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "http://from-environment")
    model = connected("anthropic:claude-sonnet-5-5", auth_token="given", base_url="http://given", version="2023-06-01")
    assert (model.api_key, model.auth_token, model.base_url) == (None, "given", "http://given")
    assert model.version == "2023-06-01"


@pytest.mark.parametrize("name", ["anthropic:m", "openai:m", "openai-chat:m", "google:gemini-m"])
def test_an_option_that_is_none_leaves_the_default(name: str) -> None:  # as programs pass on options of their own
    usual: Any = connect(name, api_key="key")
    nothing = dict.fromkeys(("headers", "timeouts", "network", "price", "base_url"))
    model: Any = connect(name, api_key="key", **nothing)
    for each in (*nothing, "facts"):
        assert getattr(model, each) == getattr(usual, each)


def test_an_empty_variable_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "  ")
    assert "ANTHROPIC_API_KEY" in unavailable("anthropic:m").hint


def offer(folder: Path, provider: str, source: str) -> None:
    """Install a package that offers a provider."""
    (folder / f"plug_{provider}.py").write_text(source)
    info = folder / f"plug_{provider}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plug-{provider}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[journeyman.models]\n{provider} = plug_{provider}:make\n")


def test_a_package_may_offer_a_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(
        tmp_path,
        "mine",
        "from journeyman.models.anthropic.model import AnthropicModel\n"
        "def make(name, *, port):\n"
        "    return AnthropicModel(name, base_url=f'http://127.0.0.1:{port}')\n",
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    model = connected("mine:tiny", port=8_000)
    assert (model.name, model.base_url) == ("tiny", "http://127.0.0.1:8000")
    assert "Did you mean 'mine:tiny'?" in unavailable("mien:tiny").hint


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, "broken", "import not_installed_anywhere.client\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    error = unavailable("broken:m")
    assert str(error) == "The model 'broken:m' needs the package 'not_installed_anywhere', which is not installed."
    assert error.hint == "Install it: pip install not_installed_anywhere"
