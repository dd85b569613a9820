"""The servers of the benchmarks over HTTP, each a process of its own: what they cost is not counted."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import orjson

ROOT = Path(__file__).parent.parent
CERTIFICATES = ROOT / "tests" / "contracts" / "certificates"


Api: TypeAlias = Literal["messages", "gemini"]


@contextmanager
def serving(*, iterations: int, delay_s: float = 0.0, api: Api = "messages") -> Generator[str]:
    """Serve conversations of `iterations` answers: calls of `add`, then the report. Give the address."""
    calls = [_answer("add", {"x": 1})] * (iterations - 1)
    script = [*calls, _answer("output", {"total": 3.0})]
    with _written(script) as name, _started("benchmarks.scripted_server", name, str(delay_s), api) as url:
        yield url


@contextmanager
def always(document: object, *, tls: bool = False) -> Generator[str]:
    """Serve the same JSON document to every request. Give the address."""
    certificate = [str(CERTIFICATES / "here.pem")] if tls else []
    with _written(document) as name, _started("benchmarks.fixed_answer", name, *certificate) as url:
        yield url.replace("http", "https") if tls else url


@contextmanager
def failing(document: object, *, delay_s: float, share: float) -> Generator[str]:
    """Serve the same JSON document after a delay, and refuse a share of the requests. Give the address."""
    with _written(document) as name, _started("benchmarks.failing_answer", name, str(delay_s), str(share)) as url:
        yield url


@contextmanager
def _written(document: object) -> Generator[str]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(orjson.dumps(document))
        file.flush()
        yield file.name


@contextmanager
def _started(module: str, *arguments: str) -> Generator[str]:
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as served:
        try:
            yield f"http://127.0.0.1:{_port(served)}"
        finally:
            served.terminate()


def _port(served: subprocess.Popen[str]) -> int:
    line = served.stdout.readline() if served.stdout is not None else ""
    if not line:
        raise RuntimeError("The server did not start; it says why above.")
    return int(line)


def _answer(name: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": None, "name": name, "input": arguments}]
