"""The server of the benchmarks over HTTP: the test kit's loopback server, as a process of its own.

It judges nothing and keeps nothing, so that it costs as little as it can; what it costs is not counted.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).parent.parent


@contextmanager
def serving(*, iterations: int, delay_s: float = 0.0) -> Generator[str]:
    """Serve conversations of `iterations` answers: calls of `add`, then the report. Give the address."""
    calls = [_answer("add", {"x": 1})] * (iterations - 1)
    with tempfile.NamedTemporaryFile(suffix=".json") as script:
        script.write(orjson.dumps([*calls, _answer("output", {"total": 3.0})]))
        script.flush()
        module = ["-m", "tests.support.messages_api", "--script", script.name]
        options = ["--by-turn", "--no-judging", "--delay", str(delay_s)]
        with subprocess.Popen(
            [sys.executable, *module, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as served:
            try:
                yield f"http://127.0.0.1:{_port(served)}"
            finally:
                served.terminate()


def _port(served: subprocess.Popen[str]) -> int:
    line = served.stdout.readline() if served.stdout is not None else ""
    if not line:
        raise RuntimeError("The server did not start; it says why above.")
    return int(line)


def _answer(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "tool_use", "id": None, "name": name, "input": arguments}]}
