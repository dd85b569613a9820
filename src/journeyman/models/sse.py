"""Server-sent events from bytes: a parser that works on whole chunks, cut anywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, TypeAlias

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# Nearly every chunk is whole events in this form, which are found at once: the benchmark `over-http` needs it.
_USUAL: Final = re.compile(rb"^event: (.*+)\ndata: (\S.*+)\n\n", re.MULTILINE)
_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
_MOST_LINES: Final = 10_000  # each becomes an object, and 32 MiB hold millions of them
_USUAL_FRAME_BYTES: Final = len(b"event: \ndata: \n\n")

Event: TypeAlias = tuple[bytes, bytes]
"""The name of one event, empty when it has none, and its data lines, joined by line feeds."""


class TooLarge(ValueError):
    """An event is larger than the limit."""


@dataclass(slots=True, repr=False, eq=False)
class Parser:
    """A parser that turns chunks of an event stream into events.

    Lines may end in LF, CR or CRLF, and chunks may end anywhere. Comments, ids and retry times are left out, and so
    are events without data, or with blank data, which some gateways send as heartbeats. A JSON object that stands
    between events without being one is taken for one: it is how some servers report an error in the middle.
    """

    limit_bytes: int
    """The bound of one event, and with it of the memory that a broken server can take."""
    _held: list[bytes] = field(default_factory=list[bytes], init=False)
    _held_bytes: int = field(default=0, init=False)
    _skip_line_feed: bool = field(default=False, init=False)
    _started: bool = field(default=False, init=False)

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes.

        Raises:
            TooLarge: an event has grown past the limit, or has very many lines.
        """
        if not self._held and not self._skip_line_feed and (events := _usual(chunk)):
            self._started = True
            return events
        if self._skip_line_feed or b"\r" in chunk:
            chunk = self._with_line_feeds(chunk)
        whole: list[bytes] = []
        if self._held:
            if chunk.startswith(b"\n") and self._held[-1].endswith(b"\n"):
                last, chunk = b"", chunk[1:]
            else:
                last, end, chunk = chunk.partition(b"\n\n")
                if not end:
                    self._hold(last)
                    return []
            whole = [b"".join((*self._held, last))]
            self._held.clear()
            self._held_bytes = 0
        *frames, rest = chunk.split(b"\n\n")
        self._hold(rest)
        return self._events(whole + frames)

    def end(self) -> list[Event]:
        """Return the event that the stream's end completes, if its last blank line is missing."""
        frame = b"".join(self._held)
        self._held.clear()
        return self._events([frame])

    def _hold(self, chunk: bytes) -> None:
        if chunk:
            self._held.append(chunk)
            self._held_bytes += len(chunk)
            if self._held_bytes > self.limit_bytes:
                raise TooLarge(f"an event of more than {self.limit_bytes:,} bytes")

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        # A CR ends its line at once; the LF that may open the next chunk then belongs to it.
        if self._skip_line_feed and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_line_feed = False
        if chunk.endswith(b"\r"):
            self._skip_line_feed = True
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _events(self, frames: list[bytes]) -> list[Event]:
        if not self._started and frames:
            self._started = True
            frames[0] = frames[0].removeprefix(_BYTE_ORDER_MARK)
        return [event for frame in frames if (event := _event(frame)) is not None]


def _usual(chunk: bytes) -> list[Event]:
    """Return the events of a chunk that is nothing but whole events in the usual form, as nearly all are; else none."""
    events: list[Event] = [] if b"\r" in chunk else _USUAL.findall(chunk)
    n_bytes = len(events) * _USUAL_FRAME_BYTES + sum([len(name) + len(data) for name, data in events])
    return events if n_bytes == len(chunk) else []


def _event(frame: bytes) -> Event | None:
    if len(frame) > _MOST_LINES and frame.count(b"\n") > _MOST_LINES:
        raise TooLarge(f"an event of more than {_MOST_LINES:,} lines")
    if frame.startswith(b"data: ") and b"\n" not in frame:
        data = frame[6:]  # copied once: it may be large
        return (b"", data) if data and not data.isspace() else None
    if frame[:64].lstrip().startswith(b"{"):
        return (b"", frame.partition(b"\ndata:")[0].strip())
    name = b""
    lines: list[bytes] = []
    for line in frame.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    data = b"\n".join(lines)
    return (name, data) if data and not data.isspace() else None


def begins_as_events(start: bytes) -> bool:
    """Return whether a body that begins like this is a stream of events."""
    return start.startswith(_FIELDS)
