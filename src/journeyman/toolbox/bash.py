"""The tool `bash`. Imports `bench` and `command`."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING, Final

from journeyman.toolbox.bench import Bench
from journeyman.toolbox.command import Completed, run_command
from journeyman.toolbox.files import LocalFiles, Refusal
from journeyman.tools.tools import ToolContext, tool

if TYPE_CHECKING:
    from journeyman.tools.background import TaskContext
    from journeyman.tools.tools import AnyTool

_LONGEST_DESCRIPTION: Final = 80


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
            timeout_s: How many seconds it may take; if not given, two minutes or what this workspace allows. In the
                background, ten minutes.
            folder: Where to run it, relative to the workspace.
            background: Return at once with the id of a task, and let it go on in the background.
        """
        where = _folder(bench, folder)
        if background:
            most = bench.shell.background_s
            return _in_background(bench, command, where, ctx=ctx, seconds=_seconds(timeout_s, most, most))
        seconds = _seconds(timeout_s, bench.shell.timeout_s, bench.shell.max_timeout_s)
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


def _seconds(asked: float | None, usual: float, most: float) -> float:
    if asked is None:
        return min(usual, most)
    if not (asked > 0 and math.isfinite(asked)):
        raise Refusal("invalid", f"timeout_s is {asked}. Give a number of seconds above 0.")
    return min(asked, most)


def _in_background(bench: Bench, command: str, folder: str, *, ctx: ToolContext, seconds: float) -> str:
    if ctx.tasks is None:
        raise Refusal(
            "not_available",
            "Background work is not available here: nobody would await it. Run the command without background=true.",
        )

    async def work(task: TaskContext) -> str:
        done = await run_command(
            bench.shell,
            command,
            folder=folder,
            timeout_s=seconds,
            spill=bench.spill,
            on_line=task.write,
            every_line=True,
        )
        if not done.timed_out:
            task.exited(done.exit_code)
        if done.timed_out or done.exit_code != 0:
            raise Refusal("timeout" if done.timed_out else "command_failed", _ending(done, seconds))
        return described(done, seconds)

    id = ctx.tasks.start(work, description=_short(command), kind="shell", command=command)
    return f"Started in the background as task {id}."


def _short(command: str) -> str:
    """Return the first line of a command, cut to what can be read at a glance."""
    first, _, rest = command.strip().partition("\n")
    return f"{first[:_LONGEST_DESCRIPTION]}…" if rest or len(first) > _LONGEST_DESCRIPTION else first


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
