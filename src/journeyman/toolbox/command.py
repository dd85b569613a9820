"""The tool `bash`: shell commands, in the foreground or as background tasks.

A command has no terminal and no input, and is ended with all that it started, whatever happens. On Linux its parent is
a keeper, a small program that finds what would escape; elsewhere its group is ended. Of what it writes, the beginning
and the end are shown; all of it is in a file once that is too much.
"""

from __future__ import annotations

import asyncio
import codecs
import math
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from journeyman.cancellation import wait_until_ended, within
from journeyman.machine.environment import QUIET, filter_environment, select_environment
from journeyman.texts import plain, signal_name
from journeyman.toolbox.files import MAX_BYTES, MAX_LINES, MAX_SPILL_BYTES, LocalFiles, Spill, ToolRefused
from journeyman.toolbox.workspace_state import Bench
from journeyman.tools.context import ToolContext
from journeyman.tools.tools import AnyTool, tool

if TYPE_CHECKING:
    from journeyman.sandbox import OpenSandbox, SandboxProcess, SandboxRefusal
    from journeyman.tools.background import TaskContext

_LONGEST_DESCRIPTION: Final = 80
_HEAD_BYTES: Final = MAX_BYTES // 5
_TAIL_BYTES: Final = MAX_BYTES - _HEAD_BYTES  # what went wrong is told at the end
_HEAD_LINES: Final = MAX_LINES // 5
_TAIL_LINES: Final = MAX_LINES - _HEAD_LINES
_CHUNK_BYTES: Final = 64 * 1024
_SHOWN_PER_CHUNK: Final = 10
_LONGEST_LINE: Final = 500
_REAP_S: Final = 5.0
_DYING_S: Final = 0.005
_OF_BOX: Final = " It runs in a\nsandbox, which refuses to change what is outside of the workspace and to reach hosts."
"""What a model reads besides that may ask for more than its box."""
_DRAIN_S: Final = 0.5  # whoever holds the pipe after that has left the group and hidden its mark


def bash_tool(bench: Bench) -> AnyTool:
    """Return the tool that runs shell commands in a workspace."""

    async def bash(
        command: str,
        ctx: ToolContext,
        *,
        timeout_s: float | None = None,
        folder: str = ".",
        background: bool = False,
        needs: Sequence[str] = (),
        why: str = "",
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
            needs: Exactly what it needs beyond its sandbox, which somebody may be asked about: `host:NAME` or
                `host:NAME:PORT`, `write:PATH`, `read:PATH`; `outside` alone to run without a sandbox.
            why: What it needs that for, in a few words, for whoever is asked.
        """
        return await _run_for_model(bench, ctx, _ShellCommand(command, timeout_s, folder, background, tuple(needs)))

    find_box = None if bench.box is None else bench.box.find
    made = partial(tool, effect="once", untrusted=bench.untrusted, permission_kind="bash", find_box=find_box)
    if bench.box is None or not bench.box.may_widen:
        return made(partial(bash, needs=(), why=""))  # what a partial binds by name is not for the model to see
    widened = made(bash)
    return replace(widened, description=widened.description + _OF_BOX)


@dataclass(frozen=True, slots=True)
class _ShellCommand:
    """A command as the model asks for it."""

    text: str
    timeout_s: float | None
    folder: str
    background: bool
    needs: tuple[str, ...] = ()
    """What it needs beyond the box of the workspace."""


async def _run_for_model(bench: Bench, ctx: ToolContext, command: _ShellCommand) -> str:
    where = _folder(bench, command.folder)
    if command.background:
        most = bench.shell.background_s
        return _in_background(bench, command, where, ctx=ctx, seconds=_seconds(command.timeout_s, most, most))
    seconds = _seconds(command.timeout_s, bench.shell.timeout_s, bench.shell.max_timeout_s)
    done = await _run(bench, command, where, ctx=ctx, timeout_s=seconds, on_line=ctx.progress)
    if bench.box is not None and ctx.may_keep is not None:
        returned = await bench.box.return_held(done.refusals, ctx.may_keep)
        done = replace(done, notes=(*done.notes, *returned))
    return _describe_result(done, seconds)


def _folder(bench: Bench, folder: str) -> str:
    located, facts, _ = bench.existing(folder, "exec")
    if facts.kind != "folder":
        raise ToolRefused("not_found", f"{located.shown} is not a folder, so no command can be run in it.")
    if not isinstance(located.files, LocalFiles):
        raise ToolRefused(
            "not_available", "The files of this workspace are not on this machine; no command can see them."
        )
    return located.path


def _seconds(asked: float | None, usual: float, most: float) -> float:
    if asked is None:
        return min(usual, most)
    if not (asked > 0 and math.isfinite(asked)):
        raise ToolRefused("invalid", f"timeout_s is {asked}. Give a number of seconds above 0.")
    return min(asked, most)


def _in_background(bench: Bench, command: _ShellCommand, folder: str, *, ctx: ToolContext, seconds: float) -> str:
    if ctx.tasks is None:
        raise ToolRefused(
            "not_available",
            "Background work is not available here: nobody would await it. Run the command without background=true.",
        )

    async def work(task: TaskContext) -> str:
        given = partial(_run, bench, command, folder, ctx=ctx, timeout_s=seconds)
        done = await given(on_line=task.write, every_line=True)
        if not done.timed_out:
            task.exited(done.exit_code)
        if done.timed_out or done.exit_code != 0:
            raise ToolRefused("timeout" if done.timed_out else "command_failed", _ending(done, seconds))
        return _describe_result(done, seconds)

    first, _, rest = command.text.strip().partition("\n")
    short = f"{first[:_LONGEST_DESCRIPTION]}…" if rest or len(first) > _LONGEST_DESCRIPTION else first
    id = ctx.tasks.start(work, description=short, kind="shell", command=command.text)
    return f"Started in the background as task {id}."


def _describe_result(done: _Completed, timeout_s: float) -> str:
    """Return what the model reads of a command: its output, then how it ended."""
    output = done.output if done.output.endswith("\n") or not done.output else f"{done.output}\n"
    left = "\n[It left processes running. They were ended.]" if done.left_behind else ""
    notes = "".join(f"\n[{note}]" for note in done.notes)
    return f"{output}[{_ending(done, timeout_s)}]{left}{notes}"


def _ending(done: _Completed, timeout_s: float) -> str:
    if done.timed_out:
        return f"timed out after {timeout_s:g} s and was ended with all its processes"
    if done.exit_code >= 0:
        return f"exit code {done.exit_code}"
    return f"ended by {signal_name(-done.exit_code)}"


@dataclass(frozen=True, slots=True)
class _Completed:
    """The outcome of a command: its output, its exit code, and whether it ran out of time."""

    output: str
    """Standard output and standard error as they came, cut in the middle if they are long."""
    exit_code: int
    """If it is below 0, a signal of this number ended the command."""
    timed_out: bool
    left_behind: bool
    """Whether it left processes running, which were then ended."""
    notes: tuple[str, ...] = ()
    """The lines that its box adds: what was refused, and what was put aside."""
    refusals: tuple[SandboxRefusal, ...] = ()
    """The same, as its box tells it."""


async def _run(
    bench: Bench,
    command: _ShellCommand,
    folder: str,
    *,
    ctx: ToolContext,
    timeout_s: float,
    on_line: Callable[[str], None],
    every_line: bool = False,
) -> _Completed:
    """Run a command to its end, or to the end of its time. When this returns or raises, no process of it runs.

    Unless `every_line` is set, `on_line` is not told of all lines of a command that writes many.

    Raises:
        OSError: the shell cannot be started.
    """
    pipe = _Pipe(_Transcript(bench.spill), on_line, every_line)
    try:
        process, opened = await _start_safely(bench, command, folder, pipe)
        try:
            await within(timeout_s, process.wait())
            exit_code = process.exit_code
        finally:
            left_behind = await _end(process, pipe, bench.shell.grace_s)
        if exit_code is not None:
            await process.wait()  # which raises if it could not be started
        pipe.show_rest()
        output = pipe.transcript.finish()
        notes: list[str] = []
        refusals: list[SandboxRefusal] = []
        if bench.box is not None:
            refusals = await bench.box.find_refusals(opened, output, folder)
            for refusal in refusals:
                notes.append(bench.box.explain(refusal))
                on_line(notes[-1])
                ctx.report_refusal(bench.box.name, refusal)
    finally:
        pipe.close()
    return _Completed(
        output=output,
        exit_code=-signal.SIGKILL if exit_code is None else exit_code,
        timed_out=exit_code is None,
        left_behind=left_behind,
        notes=tuple(notes),
        refusals=tuple(refusals),
    )


async def _start_safely(
    bench: Bench, command: _ShellCommand, folder: str, pipe: _Pipe
) -> tuple[SandboxProcess, OpenSandbox | None]:
    """Start the shell. A cancellation at this very moment ends what has just been started."""
    starting = asyncio.ensure_future(_start(bench, command, folder, output=pipe.inner))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            process, _ = await starting
            pipe.close_inner()
            await _end(process, pipe, 0.0)
        raise
    finally:
        pipe.close_inner()


async def _start(
    bench: Bench, command: _ShellCommand, folder: str, *, output: int
) -> tuple[SandboxProcess, OpenSandbox | None]:
    """Start the shell in the box of the workspace, and return that, too; else as this process runs."""
    shell = bench.shell
    given = partial(dict[str, Any], folder=folder)
    if bench.box is not None:
        chosen = {**select_environment(shell.keep), **QUIET} if shell.environment is None else shell.environment
        box_given = given(environment=chosen, output=output)
        boxed = await bench.box.spawn(shell.program, command.text, **box_given, needs=command.needs)
        if boxed is not None:
            return boxed
    environment = {**filter_environment(shell.keep), **QUIET} if shell.environment is None else shell.environment
    words = ["-c", command.text]
    started = bench.unboxed.spawn(shell.program, words, **given(environment=environment, stdout=output, stderr=output))
    return await started, None


async def _end(process: SandboxProcess, pipe: _Pipe, grace_s: float) -> bool:
    """End all processes of the command: ask them, give them time, then kill them. Return whether there were any."""
    is_alive = process.exit_code is None
    were_left = not is_alive and process.are_left()
    try:
        if is_alive or were_left:
            process.send(signal.SIGTERM)
            await within(
                grace_s if is_alive else min(grace_s, _DRAIN_S),
                asyncio.gather(process.wait_for_all(), pipe.ended.wait()),
            )
    finally:  # also when this is cancelled in the meantime
        dying = process.wait_for_all() if not (is_alive or were_left) else _kill_all(process)
        try:
            await wait_until_ended(asyncio.ensure_future(dying), patience_s=_REAP_S)  # the system may not let go of it
        finally:
            process.close()
    await within(_DRAIN_S, pipe.ended.wait())
    return were_left


async def _kill_all(process: SandboxProcess) -> None:
    """Kill what still runs until nothing does: some processes start others meanwhile, and their end takes a moment."""
    process.send(signal.SIGKILL)
    await process.wait_for_all()
    while process.are_left():
        await asyncio.sleep(_DYING_S)
        process.send(signal.SIGKILL)


@dataclass(slots=True)
class _Pipe:
    """The one pipe into which a command writes its output and its errors."""

    transcript: _Transcript
    on_line: Callable[[str], None]
    every_line: bool
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    inner: int = field(init=False)
    """The end that the command writes to."""
    _outer: int = field(init=False)
    _decode: codecs.IncrementalDecoder = field(init=False)
    _line: str = ""
    """The beginning of a line whose end has not come yet."""

    def __post_init__(self) -> None:
        self._outer, self.inner = os.pipe()
        os.set_blocking(self._outer, False)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        asyncio.get_running_loop().add_reader(self._outer, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._outer, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            self.transcript.feed(data)
            self._show(data)
        else:
            asyncio.get_running_loop().remove_reader(self._outer)
            self.ended.set()

    def _show(self, data: bytes) -> None:
        lines = (self._line + self._decode.decode(data)).split("\n")
        self._line = lines.pop()[-_LONGEST_LINE:]
        for line in lines if self.every_line else lines[-_SHOWN_PER_CHUNK:]:
            shown = plain(line[-_LONGEST_LINE:]).strip()
            if shown:
                self.on_line(shown)

    def show_rest(self) -> None:
        """Show what was written after the last end of a line."""
        if self.every_line and self._line:
            self._show(b"\n")

    def close_inner(self) -> None:
        if self.inner >= 0:
            os.close(self.inner)
            self.inner = -1

    def close(self) -> None:
        self.close_inner()
        self.transcript.close()
        asyncio.get_running_loop().remove_reader(self._outer)
        os.close(self._outer)


@dataclass(slots=True)
class _Transcript:
    """The output of one command. `feed` it, then `finish` it once."""

    spill: Spill
    n_bytes: int = 0
    file: str | None = None
    """The file that holds all of the output; None while it fits into memory."""
    _kept: bytearray = field(default_factory=bytearray)
    """The whole output; only its end once there is a file."""
    _head: bytes = b""
    _written: BinaryIO | None = None
    _n_written: int = 0

    def feed(self, data: bytes) -> None:
        self.n_bytes += len(data)
        self._kept += data
        if self._written is not None:
            self._write(data)
        elif self.n_bytes > MAX_BYTES:
            self._written, self.file = self.spill.create("bash")
            self._head = bytes(self._kept[:_HEAD_BYTES])
            self._write(bytes(self._kept))
            del self._kept[:_HEAD_BYTES]
        if self.file is not None and len(self._kept) > 2 * _TAIL_BYTES:
            del self._kept[:-_TAIL_BYTES]

    def _write(self, data: bytes) -> None:
        if self._written is not None and self._n_written < MAX_SPILL_BYTES:
            self._n_written += self._written.write(data[: MAX_SPILL_BYTES - self._n_written])

    def close(self) -> None:
        if self._written is not None:
            self._written.close()
            self._written = None

    def finish(self) -> str:
        """Return what the model reads: all of it, or beginning and end with a note on where the rest is."""
        self.close()
        if self.file is None:
            return self._all()
        head = _decode_output(self._head).rpartition("\n")[0] or _decode_output(self._head)
        end = _decode_output(bytes(self._kept[-_TAIL_BYTES:]))
        tail = end.partition("\n")[2] or end
        head_lines, tail_lines = head.split("\n")[:_HEAD_LINES], tail.split("\n")[-_TAIL_LINES:]
        return self._with_note(head_lines, tail_lines)

    def _all(self) -> str:
        text = _decode_output(bytes(self._kept))
        lines = text.split("\n")
        if len(lines) <= MAX_LINES:
            return text
        self.file = self.spill.keep("bash", text)
        return self._with_note(lines[:_HEAD_LINES], lines[-_TAIL_LINES:])

    def _with_note(self, head: list[str], tail: list[str]) -> str:
        whole = f"all {self.n_bytes:,} bytes are in {self.file}"
        if self.n_bytes > MAX_SPILL_BYTES:
            whole = f"the first {MAX_SPILL_BYTES:,} of {self.n_bytes:,} bytes are in {self.file}"
        note = f"[Cut here: {whole}; read it with an offset, or grep it.]"
        return "\n".join([*head, note, *tail])


def _decode_output(data: bytes) -> str:
    return plain(data.decode("utf-8", "replace"))
