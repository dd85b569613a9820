"""Running one shell command: no terminal, no input, a group of its own, ended as a whole whatever happens.

What a command wrote: its beginning and its end in memory, all of it in a file once that is too much.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import secrets
import signal
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from journeyman.processes import MARK, QUIET, Processes, filtered, plain
from journeyman.toolbox.files import MAX_BYTES, MAX_LINES, MAX_SPILL_BYTES, Spill

_HEAD_BYTES: Final = MAX_BYTES // 5
_TAIL_BYTES: Final = MAX_BYTES - _HEAD_BYTES  # what went wrong is told at the end
_HEAD_LINES: Final = MAX_LINES // 5
_TAIL_LINES: Final = MAX_LINES - _HEAD_LINES


@dataclass(slots=True)
class Transcript:
    """The output of one command. `feed` it, then `finish` it once."""

    spill: Spill
    n_bytes: int = 0
    file: str | None = None
    """Where all of it is; None while it fits into memory."""
    _kept: bytearray = field(default_factory=bytearray)
    """All of it, and its end once there is a file."""
    _head: bytes = b""
    _written: BinaryIO | None = None
    _n_written: int = 0

    def feed(self, data: bytes) -> None:
        self.n_bytes += len(data)
        self._kept += data
        if self._written is not None:
            self._write(data)
        elif self.n_bytes > MAX_BYTES:
            self._overflow()
        if self.file is not None and len(self._kept) > 2 * _TAIL_BYTES:
            del self._kept[:-_TAIL_BYTES]

    def _overflow(self) -> None:
        self._written, self.file = self.spill.create("bash")
        self._head = bytes(self._kept[:_HEAD_BYTES])
        self._write(bytes(self._kept))
        del self._kept[:_HEAD_BYTES]

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
        head = _text(self._head).rpartition("\n")[0] or _text(self._head)
        end = _text(bytes(self._kept[-_TAIL_BYTES:]))
        tail = end.partition("\n")[2] or end
        head_lines, tail_lines = head.split("\n")[:_HEAD_LINES], tail.split("\n")[-_TAIL_LINES:]
        return self._with_note(head_lines, tail_lines)

    def _all(self) -> str:
        text = _text(bytes(self._kept))
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


def _text(data: bytes) -> str:
    return plain(data.decode("utf-8", "replace"))


_CHUNK_BYTES: Final = 64 * 1024
_SHOWN_PER_CHUNK: Final = 10
_LONGEST_LINE: Final = 500
_REAP_S: Final = 5.0
_DYING_S: Final = 0.005
_DRAIN_S: Final = 0.5  # whoever holds the pipe after that has left the group and hidden its mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """How commands are run."""

    program: str = "bash"
    """The shell; it is given `-c` and the command."""
    timeout_s: float = 120.0
    """How long a command may take if the model does not say."""
    max_timeout_s: float = 600.0
    """The most that the model may ask for."""
    background_s: float = 600.0
    """How long a command in the background may take."""
    grace_s: float = 2.0
    """How long processes have between the request to end (TERM) and the end (KILL)."""
    keep: Collection[str] = ()
    """Environment variables that commands get although they look like secrets."""
    environment: Mapping[str, str] | None = None
    """All that commands get, instead of this process's environment without its secrets."""


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended."""

    output: str
    """Standard output and standard error as they came, cut in the middle if they are long."""
    exit_code: int
    """Below 0: the number of the signal that ended it."""
    timed_out: bool = False
    output_file: str | None = None
    """Where all of the output is, if it was cut."""
    left_behind: bool = False
    """Whether it left processes running, which were then ended."""


async def run_command(
    shell: Shell,
    command: str,
    *,
    folder: str,
    timeout_s: float,
    spill: Spill,
    on_line: Callable[[str], None],
    every_line: bool = False,
) -> Completed:
    """Run a command to its end, or to the end of its time. When this returns or raises, no process of it runs.

    Unless `every_line` is set, `on_line` is not told of all lines of a command that writes many.

    Raises:
        OSError: the shell cannot be started.
    """
    pipe = _Pipe(Transcript(spill), on_line, every_line)
    mark = secrets.token_hex(8)
    try:
        process = await _started(shell, command, folder, mark=mark, pipe=pipe)
        running = Processes(process.pid, mark)
        try:
            timed_out = not await _ended_within(timeout_s, process)
        finally:
            left_behind = await _end(process, running, pipe, shell.grace_s)
        pipe.show_rest()
        output = pipe.transcript.finish()
    finally:
        pipe.close()
    return Completed(
        output=output,
        exit_code=process.returncode if process.returncode is not None else -signal.SIGKILL,
        timed_out=timed_out,
        output_file=pipe.transcript.file,
        left_behind=left_behind and not timed_out,
    )


async def _started(shell: Shell, command: str, folder: str, *, mark: str, pipe: _Pipe) -> asyncio.subprocess.Process:
    """Start the shell. A cancellation at this very moment ends what has just been started."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            shell.program,
            "-c",
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe.inner,
            stderr=pipe.inner,
            cwd=folder,
            env=_environment(shell, mark),
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            process = await starting
            pipe.close_inner()
            await _end(process, Processes(process.pid, mark), pipe, 0.0)
        raise
    finally:
        pipe.close_inner()


def _environment(shell: Shell, mark: str) -> dict[str, str]:
    given = {**filtered(shell.keep), **QUIET} if shell.environment is None else dict(shell.environment)
    outer = os.environ.get(MARK)
    return given | {MARK: f"{outer}:{mark}" if outer else mark}


async def _ended_within(seconds: float, process: asyncio.subprocess.Process) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True


async def _end(process: asyncio.subprocess.Process, running: Processes, pipe: _Pipe, grace_s: float) -> bool:
    """End all processes of the command: ask them, give them time, then kill them. Return whether there were any."""
    is_alive = process.returncode is None
    were_left = not is_alive and running.are_left()
    try:
        if is_alive or were_left:
            running.send(signal.SIGTERM)
            await _within(grace_s if is_alive else min(grace_s, _DRAIN_S), _all_over(process, pipe))
    finally:  # also when somebody loses patience in the meantime
        await _undisturbed(process.wait() if not (is_alive or were_left) else _killed(process, running))
    await _within(_DRAIN_S, pipe.ended.wait())
    return were_left


async def _all_over(process: asyncio.subprocess.Process, pipe: _Pipe) -> None:
    await process.wait()
    await pipe.ended.wait()


async def _killed(process: asyncio.subprocess.Process, running: Processes) -> None:
    """Kill all that still runs, until nothing does: some start others in the meantime, and dying takes a moment."""
    running.send(signal.SIGKILL)
    await process.wait()
    while running.are_left():
        await asyncio.sleep(_DYING_S)
        running.send(signal.SIGKILL)


async def _undisturbed(work: Coroutine[object, object, object]) -> None:
    """Wait for what takes but a moment, and let nobody interrupt that; no longer than `_REAP_S`, though."""
    waiting = asyncio.ensure_future(work)
    interrupted: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            if not (await asyncio.wait({waiting}, timeout=_REAP_S))[0]:
                waiting.cancel()  # the system does not let go of it
        except asyncio.CancelledError as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted


async def _within(seconds: float, work: Coroutine[object, object, object]) -> None:
    """Wait for `work` for so long at most, also while a cancellation is on its way."""
    # `asyncio.timeout` takes its own cancellation for that one, in the first versions of Python 3.11.
    waiting = asyncio.ensure_future(work)
    try:
        await asyncio.wait({waiting}, timeout=seconds)
    finally:
        waiting.cancel()
        await asyncio.wait({waiting})


@dataclass(slots=True)
class _Pipe:
    """The one pipe into which a command writes its output and its errors."""

    transcript: Transcript
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
