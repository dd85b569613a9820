"""What a chat needs of whatever stores its conversation: a log of steps, each written whole or not at all.

A `Session` is one conversation that outlives its process, and has one writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from journeyman.inbox import Queue
from journeyman.types import NOTHING_USED, Message, ToolResult, Usage, UserContent, frozen


@dataclass(frozen=True, slots=True)
class Waiting:
    """A text that waits in a queue."""

    number: int
    """Names the text in its session. An older text has a smaller number."""
    queue: Queue
    text: str


@frozen
class Snapshot:
    """A conversation as it was when it was last written."""

    messages: Sequence[Message] = ()
    """The messages as they were: the last calls may have no results."""
    staged: tuple[UserContent | ToolResult, ...] = ()
    """Results and texts that were on their way into the next user message."""
    waiting: tuple[Waiting, ...] = ()
    """The texts that had been queued and not said, oldest first."""
    usage: Usage = NOTHING_USED
    n_runs: int = 0


@frozen
class Step:
    """What is new in a conversation."""

    position: int
    """Where `messages` begin. The messages that stood there before are replaced."""
    messages: Sequence[Message] | None = None
    """All messages from that position on; None when no message has changed."""
    staged: Sequence[UserContent | ToolResult] = ()
    """What is staged. Where no message has changed, it is added to what was staged before."""
    gone: Sequence[int] = ()
    """The numbers of the texts that no longer wait."""
    usage: Usage | None = None
    """The usage of all turns so far; None when it has not changed."""
    n_runs: int = 0


class Session(Protocol):
    """One stored conversation, open for one writer."""

    @property
    def id(self) -> str: ...

    @property
    def notice(self) -> str | None:
        """What its reader should know: that it was damaged, and repaired. None when there is nothing to know."""
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The conversation as it was when the session was opened."""
        ...

    def add(self, text: str, queue: Queue) -> int:
        """Store a text that waits, and return its number. Any thread may call this.

        Raises:
            StoreError: it could not be written.
        """
        ...

    def write(self, step: Step) -> None:
        """Store what is new: all of it, or nothing.

        Raises:
            StoreError: it could not be written.
        """
        ...

    def close(self) -> None:
        """Let somebody else open it."""
        ...


class Sessions(Protocol):
    """Many stored conversations."""

    def session(self, id: str | None = None, *, agent: str, any_agent: bool = False) -> Session:
        """Open a session of the agent called `agent`: a new one, or the one with this id.

        Raises:
            StoreError: there is none, or it is another agent's, unless `any_agent`.
            SessionInUse: somebody has it open.
        """
        ...
