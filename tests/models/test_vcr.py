"""Cassettes of vcrpy: what they hold of traffic with models is played back, and all else is told."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from journeyman import Agent, Runtime, run
from journeyman.errors import CassetteError
from journeyman.models.cassette import Cassette, import_vcr
from tests.play import failed, succeeded

CHAT = {"role": "assistant", "content": "It rains."}
MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "It rains."}],
    "stop_reason": "end_turn",
}
SAID = {"content": {"role": "model", "parts": [{"text": "It rains."}]}, "finishReason": "STOP"}
OUTPUT = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It rains."}]}]
STREAM = "".join(
    f"data: {json.dumps({'choices': [{'delta': {'content': piece}, 'finish_reason': end}]})}\n\n"
    for piece, end in (("It ", None), ("rains.", "stop"))
)


def vcr_traffic(url: str, body: object, answer: Any, *, status: int = 200, **headers: str) -> dict[str, Any]:  # noqa: ANN401
    text = answer if isinstance(answer, str | bytes) else json.dumps(answer)
    sent = {
        "method": "POST",
        "uri": f"https://{url}",
        "body": json.dumps(body),
        "headers": {"authorization": ["Bearer k"]},
    }
    named = {name.replace("_", "-"): [value] for name, value in headers.items()}
    return {"request": sent, "response": {"body": {"string": text}, "headers": named, "status": {"code": status}}}


def rain_messages(*, system: bool = True) -> list[dict[str, str]]:
    return [*([{"role": "system", "content": "Be brief."}] if system else []), {"role": "user", "content": "Rain?"}]


MESSAGES = {"model": "m", "system": "Be brief.", "messages": rain_messages(system=False), "max_tokens": 9}
CONTENTS = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [{"role": "user", "parts": [{"text": "Rain?"}]}],
}
WIRES: dict[str, tuple[dict[str, Any], str]] = {
    "chat": (
        vcr_traffic(
            "a.test/v1/chat/completions",
            {"model": "m", "messages": rain_messages()},
            {"choices": [{"message": CHAT, "finish_reason": "stop"}]},
        ),
        "openai:m",
    ),
    "chat stream": (
        vcr_traffic(
            "a.test/chat/completions",
            {"model": "m", "messages": rain_messages()},
            STREAM,
            content_type="text/event-stream",
        ),
        "openai:m",
    ),
    "packed": (
        vcr_traffic(
            "a.test/v1/messages", MESSAGES, gzip.compress(json.dumps(MESSAGE).encode()), content_encoding="gzip"
        ),
        "anthropic:m",
    ),
    "messages": (vcr_traffic("a.test/v1/messages", MESSAGES, MESSAGE), "anthropic:m"),
    "responses": (
        vcr_traffic(
            "a.test/v1/responses",
            {"model": "m", "instructions": "Be brief.", "input": "Rain?"},
            {"output": OUTPUT, "status": "completed"},
        ),
        "openai:m",
    ),
    "google": (
        vcr_traffic("a.test/v1beta/models/m:generateContent?key=k", CONTENTS, {"candidates": [SAID]}),
        "google:m",
    ),
}


def write_vcr(tmp_path: Path, *exchanges: dict[str, Any], as_json: bool = False) -> Path:
    file = tmp_path / "vcr"
    whole = {"version": 1, "interactions": [*exchanges]}
    file.write_text(json.dumps(whole) if as_json else yaml.safe_dump(whole))
    return file


@pytest.mark.parametrize("name", WIRES)
async def test_an_agent_that_asks_the_same_gets_the_recorded_answer(tmp_path: Path, name: str) -> None:
    traffic, model = WIRES[name]
    path = tmp_path / "ours.jsonl"
    assert import_vcr(write_vcr(tmp_path, traffic, as_json="chat" in name), path) == ()
    with Cassette(path, "none") as cassette:
        agent = Agent(name="a", model="none:m", system="Be brief.")
        result = await run(agent, "Rain?", runtime=Runtime(model=cassette.model(model), journal=cassette.journal))
    assert succeeded(result).output == "It rains."
    assert cassette.unused == ()
    assert "Bearer" not in path.read_text()


async def test_a_refusal_is_played_and_other_traffic_is_told(tmp_path: Path) -> None:
    refused = vcr_traffic(
        "a.test/v1/messages",
        MESSAGES,
        {"type": "error", "error": {"type": "invalid_request_error", "message": "No."}},
        status=400,
    )
    page = vcr_traffic("a.test/page", {}, "hello")
    packed = vcr_traffic("a.test/v1/messages", MESSAGES, b"\x00\x01\x02", content_encoding="br")
    search = vcr_traffic(
        "a.test/v1/messages", {**MESSAGES, "tools": [{"type": "web_search_20250305", "name": "w"}]}, MESSAGE
    )
    path = tmp_path / "ours.jsonl"
    told = import_vcr(write_vcr(tmp_path, refused, page, packed, search), path)
    assert [each.partition(".")[0] for each in told] == [
        "interactions[1]: POST /page is no request to a model",
        "interactions[2]: its answer is packed as br",
        "interactions[3]: a tool",
    ]
    with Cassette(path, "none") as cassette:
        agent = Agent(name="a", model="none:m", system="Be brief.")
        result = await run(agent, "Rain?", runtime=Runtime(model=cassette.model("anthropic:m")))
    assert "No." in str(failed(result).error)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("interactions: []", "holds no traffic with a model"),
        ("[1", "cannot be read"),
        ("{1", "cannot be read"),
        ("just: this", "no cassette of vcrpy"),
        ("!!python/object/apply:os.system ['true']", "cannot be read"),
    ],
)
def test_what_is_no_such_cassette_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "vcr").write_text(text)
    with pytest.raises(CassetteError, match=told):
        import_vcr(tmp_path / "vcr", tmp_path / "ours.jsonl")
    assert not (tmp_path / "ours.jsonl").exists()
