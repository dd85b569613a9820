"""The strict Messages API server as a process of its own."""

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT: list[object] = [
    "Hello",
    {"content": [{"type": "tool_use", "name": "query", "input": {}}], "usage": {"input_tokens": 7}},
    {"status": 429, "headers": {"retry-after": "2"}},
]


@contextmanager
def server(tmp_path: Path, *options: str) -> Generator[tuple[subprocess.Popen[str], anthropic.Anthropic]]:
    """Start the server on a script; yield its process and a client of it."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    command = [sys.executable, "-m", "tests.support.messages_api", "--port", "0", "--script", str(script), *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with anthropic.Anthropic(base_url=f"http://127.0.0.1:{port}", api_key="k", max_retries=0) as client:
            yield process, client
        process.kill()


def ask(client: anthropic.Anthropic, text: str = "Hi") -> anthropic.types.Message:
    return client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": text}])


def stopped(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Interrupt the server; return its exit code and what it had to say."""
    process.send_signal(signal.SIGTERM)
    _, complaints = process.communicate()
    return process.returncode, complaints


def test_a_process_serves_its_script_and_exits_with_1_after_a_violation(tmp_path: Path) -> None:
    with server(tmp_path) as (process, client):
        first, second = ask(client), ask(client)
        with pytest.raises(anthropic.RateLimitError):
            ask(client)
        with pytest.raises(anthropic.BadRequestError):
            ask(client, "")
        assert stopped(process) == (
            1,
            "request 4: content_is_not_empty: messages.0.content: messages must have non-empty content\n",
        )
    assert first.to_dict()["content"] == [{"type": "text", "text": "Hello"}]
    assert (second.stop_reason, second.usage.input_tokens) == ("tool_use", 7)


def test_a_process_can_serve_by_turn_and_without_judging(tmp_path: Path) -> None:
    with server(tmp_path, "--by-turn", "--no-judging", "--delay", "0.001", "--writes", "3") as (process, client):
        replies = [ask(client, text).to_dict()["content"] for text in ("Hi", "")]
        assert stopped(process) == (0, "")
    assert replies == [[{"type": "text", "text": "Hello"}]] * 2
