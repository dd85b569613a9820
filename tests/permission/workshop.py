"""Where the attacks of these tests take place: a workspace, real tools that leave a trace, and who approves.

The tools of `Workshop` say which ready tools they act as, so that a `Permission` knows them. `StubShell` is a real bash
in which every program only notes that it was called.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from journeyman import Agent, Message, Result, Runtime, Tool, run, tool
from journeyman.gate import READY_TOOLS, Approval, Decision, Deny, Gate, GateRequest, ReadyTool
from journeyman.testing.scripted import Answer, ScriptedModel
from journeyman.types import Effect, JsonObject

READY: dict[str, ReadyTool] = {name: name for name in READY_TOOLS}

BASH = shutil.which("bash") or "/bin/bash"


def request(tool_name: str, effect: Effect = "once", *, untrusted: bool = False, **arguments: Any) -> GateRequest:
    """Return a call of the ready tool of that name, if there is one."""
    return GateRequest(
        path=("tester",),
        tool_use_id="a",
        tool_name=tool_name,
        arguments=arguments,
        effect=effect,
        untrusted=untrusted,
        permission_kind=READY.get(tool_name),
        proxied=READY if tool_name == "call_tool" else {},
    )


@dataclass
class Approver:
    """Answers every question the same way, and keeps them."""

    decision: Decision = field(default_factory=lambda: Deny("not today"))
    asked: list[Approval] = field(default_factory=list[Approval])

    async def __call__(self, approval: Approval) -> Decision:
        self.asked.append(approval)
        return self.decision


class Workshop:
    """Tools that really work, each test in a folder of its own."""

    root: Path
    outside: Path
    ran: list[JsonObject]

    def open_in(self, folder: Path) -> None:
        """Begin anew in this folder."""
        self.root = folder / "project"
        self.outside = folder / "outside"
        for path in (self.root / "src", self.outside):
            path.mkdir(parents=True)
        (self.root / "src" / "way-out").symlink_to(self.outside)
        (self.root / "way-out").symlink_to(self.outside)
        (self.outside / "secret").write_text("the password")
        self.ran = []

    def trace(self) -> set[str]:
        """Name every file that is there and was not when the workshop was opened."""
        found = {str(path.relative_to(self.root.parent)) for path in self.root.parent.rglob("*") if path.is_file()}
        return found - {"outside/secret"}

    def tools(self) -> list[Tool[..., Any]]:
        return [*self._made]

    @cached_property
    def _made(self) -> list[Tool[..., Any]]:
        """Made once for all tests: a tool takes milliseconds, and there are hundreds of attacks."""

        @tool(effect="once", thread=False, permission_kind="bash")
        def bash(command: str, folder: str = ".") -> str:
            self.ran.append({"command": command})
            shell = ["bash", "--norc", "-c", command]
            done = subprocess.run(shell, cwd=self.root / folder, capture_output=True, text=True, check=False)
            return f"{done.stdout}{done.stderr}[{done.returncode}]"

        @tool(effect="idempotent", thread=False, permission_kind="write")
        def write(path: str, content: str) -> str:
            self.ran.append({"path": path})
            target = self.root / Path(path).expanduser()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)
            return "written"

        @tool(effect="pure", thread=False, permission_kind="read")
        def read(path: str) -> str:
            self.ran.append({"path": path})
            return (self.root / Path(path).expanduser()).read_text()

        @tool(effect="pure", untrusted=True, thread=False, permission_kind="fetch")
        def fetch(url: str) -> str:
            """Fetch a page. Here: note that it was asked for."""
            self.ran.append({"url": url})
            return "a page"

        return [bash, write, read, fetch]

    async def play(
        self, gate: Gate | Sequence[Gate], *answers: Answer, approver: Approver | None = None, input: str = "Go."
    ) -> Result[str]:
        return await play(self.tools(), *answers, input=input, runtime=Runtime(gate=gate, approver=approver))


async def play(
    tools: Sequence[Tool[..., Any]],
    *answers: Answer,
    input: str = "Go.",
    history: Sequence[Message] = (),
    runtime: Runtime | None = None,
    **fields: Any,
) -> Result[str]:
    agent = Agent(name="tester", model=ScriptedModel([*answers, "Done."]), tools=tools, **fields)
    return await run(agent, input, history=history, runtime=runtime)


_STUB = """#!/bin/sh
printf '%s\\0' "${0##*/}" "$@" "$(printf '\\001')" >> "$CALLS"
"""


class StubShell:
    """A bash in an empty folder. Its programs note their arguments, and do nothing else."""

    def __init__(self, folder: Path, *programs: str, with_real: bool = False) -> None:
        """`with_real`: the programs of this machine are there, too."""
        self._path = os.environ["PATH"] if with_real else ""
        self.folder = folder / "work"
        self._programs = folder / "programs"
        self._calls = folder / "calls"
        for path in (self.folder, self._programs):
            path.mkdir()
        for name in programs:
            stub = self._programs / name
            stub.write_text(_STUB)
            stub.chmod(0o755)

    def run(self, command: str) -> list[tuple[str, ...]]:
        self._calls.unlink(missing_ok=True)
        subprocess.run(
            [BASH, "--norc", "--noprofile", "-c", command],
            cwd=self.folder,
            env={
                "PATH": f"{self._programs}{':' * bool(self._path)}{self._path}",
                "BIN": str(self._programs),
                "CALLS": str(self._calls),
                "HOME": str(self.folder),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=10,
        )
        text = self._calls.read_bytes().decode("utf-8", "replace") if self._calls.exists() else ""
        return [tuple(words.split("\0")) for words in text.split("\0\x01\0")[:-1]]
