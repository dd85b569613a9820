"""The tool `bash`. Imports `bench` and `command`."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING

from journeyman.toolbox.bench import Bench
from journeyman.toolbox.command import Completed, run_command
from journeyman.toolbox.files import LocalFiles
from journeyman.toolbox.refusal import Refusal
from journeyman.tools import ToolContext, tool

if TYPE_CHECKING:
    from journeyman.tools import AnyTool


def bash_tool(bench: Bench) -> AnyTool:
    """Return the tool that runs shell commands in a workspace."""

    async def bash(
        command: str,
        ctx: ToolContext,
        *,
        timeout_s: float | None = None,
        folder: str = ".",
        background: bool = False,
    ) -> str:
        """Run a command in bash and return what it writes to standard output and standard error, and its exit code.

        It has no terminal and no input: give options that keep programs from asking. Every call starts a new shell, in
        the workspace. What it leaves running is ended with it, unless it was started with background=true.

        Args:
            command: The command, as for `bash -c`.
            timeout_s: How many seconds it may take; if not given, two minutes or what this workspace allows.
            folder: Where to run it, relative to the workspace.
            background: Return at once, and let it go on in the background.
        """
        where = _folder(bench, folder)
        if background:
            return _in_background(bench, command, where, ctx)
        seconds = _seconds(bench, timeout_s)
        done = await run_command(
            bench.shell, command, folder=where, timeout_s=seconds, spill=bench.spill, on_line=ctx.progress
        )
        return described(done, seconds)

    return tool(bash, effect="once", untrusted=bench.untrusted)


def _folder(bench: Bench, folder: str) -> str:
    located, facts = bench.reach.existing(folder)
    if facts.kind != "folder":
        raise Refusal("not_found", f"{located.shown} is not a folder, so no command can be run in it.")
    if not isinstance(located.files, LocalFiles):
        raise Refusal("not_available", "The files of this workspace are not on this machine; no command can see them.")
    return located.path


def _seconds(bench: Bench, asked: float | None) -> float:
    if asked is None:
        return min(bench.shell.timeout_s, bench.shell.max_timeout_s)
    if not (asked > 0 and math.isfinite(asked)):
        raise Refusal("invalid", f"timeout_s is {asked}. Give a number of seconds above 0.")
    return min(asked, bench.shell.max_timeout_s)


def _in_background(bench: Bench, command: str, folder: str, ctx: ToolContext) -> str:
    if ctx.tasks is None:
        raise Refusal(
            "not_available",
            "Background work is not available here: nobody would await it. Run the command without background=true.",
        )
    seconds = bench.shell.background_s

    async def work() -> str:
        done = await run_command(
            bench.shell, command, folder=folder, timeout_s=seconds, spill=bench.spill, on_line=lambda line: None
        )
        return described(done, seconds)

    task = ctx.tasks.start(work, description=f"bash: {command}")
    return f"Started in the background as task {task}."


def described(done: Completed, timeout_s: float) -> str:
    """Return what the model reads of a command: its output, then how it ended."""
    output = done.output if done.output.endswith("\n") or not done.output else f"{done.output}\n"
    left = "\n[It left processes running. They were ended.]" if done.left_behind else ""
    return f"{output}[{_ending(done, timeout_s)}]{left}"


def _ending(done: Completed, timeout_s: float) -> str:
    if done.timed_out:
        return f"timed out after {timeout_s:g} s and was ended with all its processes"
    if done.exit_code >= 0:
        return f"exit code {done.exit_code}"
    try:
        name = signal.Signals(-done.exit_code).name
    except ValueError:
        name = f"signal {-done.exit_code}"
    return f"ended by {name}"
