"""The servers of the folder `servers`, as processes of their own, and what the tests of the client share."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman import Abort, Agent, Failure, ToolResult, run
from journeyman.events import Event, ToolProgress
from journeyman.mcp import Stdio, mcp
from journeyman.testing.scripted import ScriptedModel
from journeyman.tools.tools import AnyTool
from journeyman.types import ToolUse
from tests.play import answered, failed

SERVERS = Path(__file__).parent / "servers"
ASKING, MODERN = SERVERS / "asking.py", SERVERS / "modern.py"
"""Servers made with the SDK, which takes a second to load: the warm process starts them."""


@dataclass(frozen=True, slots=True)
class Small:
    """A small server of one kind, and the log of what it was sent."""

    log: Path

    def at(self, kind: str, *, only: list[str] | None = None, env: Mapping[str, str] | None = None) -> Stdio:
        words = (str(SERVERS / "misbehaving.py"), kind, str(self.log))
        return Stdio(sys.executable, words, only=only, env=env or {}, grace_s=0.2)

    async def asked(self, word: str, **options: Any) -> ToolResult:
        """Return what `echo` of the server `sour` says to a word."""
        async with mcp({"small": self.at("sour")}, **options) as (echo,):
            return await answered(echo, {"word": word})

    @property
    def lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines()

    def processes(self) -> list[str]:
        """Return the processes of this server that still run, with their command lines."""
        found: list[str] = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = folder.joinpath("cmdline").read_bytes()  # empty when it has ended
                if str(self.log).encode() in words:
                    found.append(f"{folder.name}: {words!r}")
        return found

    @property
    def n_starts(self) -> int:
        return sum('"initialize"' in line for line in self.lines)


def outside(command: list[str]) -> Stdio:
    """Return a server that runs in no box, since its command hands its streams to another process by a socket."""
    return Stdio(command[0], command[1:], sandbox=None)


async def until(it_holds: Callable[[], object]) -> None:
    """Wait for what another process does."""
    while not it_holds():  # noqa: ASYNC110  nothing tells of it here
        await asyncio.sleep(0.01)


def by_name(tools: list[AnyTool]) -> dict[str, AnyTool]:
    return {each.name: each for each in tools}


async def stopped_at_progress(tools: list[AnyTool], given: ToolUse) -> Failure:
    """Return how a run ends that is aborted when its one call reports progress."""
    abort = Abort()

    def stop(event: Event) -> None:
        if isinstance(event, ToolProgress):
            abort.abort("enough")

    agent = Agent(name="tester", model=ScriptedModel([given]), tools=tools)
    return failed(await run(agent, "Go.", abort=abort, on_event=stop))


def progress_in(events: list[Event]) -> list[tuple[str, float | None]]:
    return [(event.message, event.fraction) for event in events if isinstance(event, ToolProgress)]
