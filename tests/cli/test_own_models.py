"""Somebody without a key is shown the models of this machine, ready to be copied."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import AGENTS, Warm
from tests.cli.terminal import terminal
from tests.support.messages_answers import Raw, raw
from tests.support.messages_json import Json
from tests.support.openai_answers import answer, text
from tests.support.servers import OpenAiApi

SERVERS: tuple[str, ...] = ("OLLAMA_BASE_URL", "LM_STUDIO_BASE_URL", "LLAMA_CPP_BASE_URL", "VLLM_BASE_URL")
NOBODY: dict[str, str] = dict.fromkeys(SERVERS, "http://127.0.0.1:9")
LISTED: Json = {"data": [{"id": "qwen3:4b"}, {"id": "Qwen/Qwen3-4B"}]}


async def shown(warm: Warm, *words: str | Path, env: dict[str, str]) -> list[str]:
    """Return the lines with the models of servers."""
    done = await asyncio.to_thread(warm, *words, env={**NOBODY, **env})
    assert done.stderr.count("error: ") == 1
    offered = [line.strip() for line in done.stderr.splitlines() if line.startswith("  --model ")]
    return [line for line in offered if not line.endswith("local:smollm2")]  # where its packages are installed


async def test_models_of_this_machine_are_listed_as_they_are_added_to_the_command(warm: Warm) -> None:
    async with OpenAiApi([], tells={"/v1/models": LISTED}) as api:
        env: dict[str, str] = dict.fromkeys(SERVERS, f"{api.url}/v1")
        lines = await shown(warm, "run", f"{AGENTS}:claude", "hi", env=env)
    providers = ("ollama", "lm-studio", "llama-cpp", "vllm")
    assert lines == [f"--model {each}:{name}" for each in providers for name in ("qwen3:4b", "Qwen/Qwen3-4B")]


async def test_a_chat_without_a_key_lists_them_too(warm: Warm, tmp_path: Path) -> None:
    async with OpenAiApi([], tells={"/v1/models": LISTED}) as api:
        done = await asyncio.to_thread(warm, "chat", cwd=tmp_path, env={**NOBODY, "OLLAMA_BASE_URL": api.url})
    assert "--model ollama:qwen3:4b" in done.stderr
    assert "no key is set" in done.stderr


STRANGERS: dict[str, Json | Raw] = {
    "a page": raw(b"<html></html>", content_type="text/html"),
    "a refusal": raw(b"{}", status=401),
    "no list": {"data": "qwen3"},
    "names that would do something": {"data": [{"id": "x; rm -rf ~"}, {"id": "\x1b[31mred"}, {"id": 7}, {}]},
    "one who takes too long": Raw(status=200, body=b"{}", headers={}, wait=1.0),
}


@pytest.mark.parametrize("answer", STRANGERS.values(), ids=STRANGERS)
async def test_whatever_else_listens_there_is_passed_over(warm: Warm, answer: Json | Raw) -> None:
    async with OpenAiApi([], tells={"/v1/models": answer}) as api:
        assert await shown(warm, "run", f"{AGENTS}:claude", "hi", env={"VLLM_BASE_URL": api.url}) == []


async def test_only_this_machine_is_asked_and_only_by_somebody_who_lacks_a_key(warm: Warm) -> None:
    async with OpenAiApi([], tells={"/v1/models": LISTED}) as api:
        port = api.url.rpartition(":")[2]
        far = {"OLLAMA_BASE_URL": f"http://ollama.example.org:{port}"}
        assert await shown(warm, "run", f"{AGENTS}:claude", "hi", env=far) == []
        done = await asyncio.to_thread(
            warm, "run", f"{AGENTS}:greeter", "hi", env={**NOBODY, "OLLAMA_BASE_URL": api.url}
        )
        assert "--model" not in done.stderr
        assert api.told == []


async def test_a_chat_shows_how_much_of_a_servers_window_is_used(warm: Warm, tmp_path: Path) -> None:
    props: Json = {"default_generation_settings": {"n_ctx": 2_048}}
    async with OpenAiApi([answer(text("Hello there."))], tells={"/props": props}) as api:
        env: dict[str, Any] = {"LLAMA_CPP_BASE_URL": api.url, "LLAMA_CPP_API_KEY": "sk-test", "JOURNEYMAN_RECORD": "0"}

        def talk() -> None:
            words = ("chat", "--model", "llama-cpp:m", "--tools", "none")
            with terminal(*words, folder=tmp_path, start=warm.start, **env) as chat:
                chat.type("Hi.", "Hello there.")
                chat.see("2% of 2k")
                chat.press(b"\x04")
                assert chat.end() == 0

        await asyncio.to_thread(talk)
