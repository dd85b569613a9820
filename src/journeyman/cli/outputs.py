"""Stdout and stderr of the command line where they take nothing: a full disk, or a reader who has left.

A lost stdout ends the command, and one place says so. What stderr does not take is dropped: it costs no result.
"""

from __future__ import annotations

from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TextIO, cast

from typing_extensions import Buffer

from journeyman.machine.descriptors import write_all


class OutputLost(Exception):
    """Stdout takes nothing more."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"Stdout takes no more: {error.strerror or error}. Make room, or send it elsewhere.")
        self.has_reader = not isinstance(error, BrokenPipeError)
        """False: whoever read it has seen enough, which is no error."""


class _Guarded(FileIO):
    """A descriptor of which a fault is either `OutputLost`, or nothing that anybody hears of."""

    def __init__(self, stream: TextIO, *, may_be_lost: bool) -> None:
        super().__init__(stream.fileno(), "wb", closefd=False)
        self._stream = stream  # which may close the descriptor when nobody has it any more
        self._may_be_lost = may_be_lost

    def write(self, data: Buffer, /) -> int:
        written = memoryview(data)
        try:
            write_all(self.fileno(), written)
        except OSError as error:
            if not self._may_be_lost:
                raise OutputLost(error) from error
        return written.nbytes


def guard_stream(stream: TextIO, *, may_be_lost: bool, errors: str | None = None, by_line: bool = False) -> TextIO:
    """Return what writes where a standard stream does. Of one that is not a file the stream itself is returned: a
    console of Windows, or what a test has put there. `may_be_lost`: what it does not take is dropped, not raised as
    `OutputLost`. `errors`: what becomes of characters that its encoding has not; None: what the stream does. `by_line`:
    each line is written as it comes, as to a terminal."""
    if type(stream) is not TextIOWrapper:
        return stream
    buffer: object = stream.buffer
    if not isinstance(getattr(buffer, "raw", buffer), FileIO):
        return stream
    stream.flush()
    guarded = _Guarded(stream, may_be_lost=may_be_lost)
    return TextIOWrapper(
        cast("BufferedWriter", guarded)
        if isinstance(buffer, FileIO)
        else BufferedWriter(guarded),  # python -u has none
        encoding=stream.encoding,
        errors=errors or stream.errors,
        newline=None,
        line_buffering=by_line or stream.line_buffering,
        write_through=stream.write_through,
    )
