"""A coding assistant: files and commands of a folder, git by an MCP server, notes, and a question before each change.

In a folder that is a git repository, chat with it: `journeyman chat examples/assistant/assistant.py:assistant`; or let
it do one thing: `python examples/assistant/assistant.py "Make the tests pass."`. It needs ANTHROPIC_API_KEY (or another
MODEL) and `pip install mcp-server-git`.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from journeyman import Agent, Event, JourneymanError, Runtime, Success, ToolContext, run, tool
from journeyman.events import ToolFinished
from journeyman.gate import Allow, Approval, Decision, Deny
from journeyman.mcp import Stdio, mcp
from journeyman.permission import Permission
from journeyman.toolbox import Workspace


@dataclass(frozen=True)
class Project:
    """What tools of your own are given beside their arguments: here a file, elsewhere a database or a client."""

    notes: Path


@tool
def note(context: ToolContext[Project], text: str) -> str:
    """Note something about this project for next time, in NOTES.md."""
    with context.deps.notes.open("a", encoding="utf-8") as notes:
        notes.write(f"{text}\n")
    return "Noted."


@asynccontextmanager
async def assistant() -> AsyncGenerator[Agent]:
    git = Stdio(sys.executable, ["-m", "mcp_server_git", "--repository", "."], only=["git_status", "git_log"])
    with Workspace(".") as workspace:
        async with mcp({"git": git}) as git_tools:
            coder = Agent(
                name="coder",
                model=os.environ.get("MODEL", "anthropic:claude-sonnet-5-5"),
                system=f"You work on the program in {workspace.root}. Run it before you say that it works.",
                deps=Project,
                tools=[*workspace.tools(), *git_tools, note],
                gate=Permission(allow=["git_status", "git_log", "note", "Bash(ls *)"], deny=["Bash(git push *)"]),
            )
            yield coder.with_deps(Project(Path("NOTES.md")))


async def approve(approval: Approval) -> Decision:
    try:
        answer = await asyncio.to_thread(input, f"  ? {approval.question} [y/n] ")
    except EOFError:  # nobody is there
        answer = "n"
    return Allow() if answer == "y" else Deny("The user said no.")


def show(event: Event) -> None:
    if isinstance(event, ToolFinished):
        first, *_ = event.tool_result.splitlines() or [""]
        print(f"  {event.tool_name}: {first}", flush=True)


async def main(prompt: str) -> None:
    async with assistant() as coder:
        result = await run(coder, prompt, on_event=show, runtime=Runtime(approver=approve))
    print(result.output if isinstance(result, Success) else result)


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?"))
    except JourneymanError as error:  # the server of git does not start, for example
        sys.exit(str(error))
