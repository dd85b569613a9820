"""What a chat needs of whatever keeps its conversation: a log of steps, each written whole or not at all.

A `Session` is one conversation that outlives its process. A chat writes to it; a store is what opens it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from journeyman.inbox import Queue
from journeyman.types import NOTHING_USED, Message, ToolResult, Usage, UserContent


@dataclass(frozen=True, slots=True)
class Waiting:
    """A text that waits in a queue."""

    number: int
    """Names the text in its session. An older text has a smaller number."""
    queue: Queue
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A conversation as it was when it was last written."""

    messages: Sequence[Message] = ()
    """The messages as they were: the last calls may have no results."""
    staged: tuple[UserContent | ToolResult, ...] = ()
    """Results and texts that were to be part of the next user message."""
    waiting: tuple[Waiting, ...] = ()
    """What had been queued and not said, oldest first."""
    usage: Usage = NOTHING_USED
    n_runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is new in a conversation."""

    position: int
    """Where `messages` begin in the conversation. They replace what was there."""
    messages: Sequence[Message] | None = None
    """All messages from there on; None when none has changed."""
    staged: Sequence[UserContent | ToolResult] = ()
    """All that is staged, when a message has changed; else what was staged since the last step."""
    gone: Sequence[int] = ()
    """The numbers of texts that wait no longer."""
    usage: Usage | None = None
    """What all turns have used so far; None when it has not changed."""
    n_runs: int = 0


class Session(Protocol):
    """One conversation that is kept, open for one writer."""

    @property
    def id(self) -> str: ...

    @property
    def notice(self) -> str | None:
        """What its reader should know: that it was damaged and repaired. None where there is nothing to know."""
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The conversation as it was when the session was opened."""
        ...

    def add(self, text: str, queue: Queue) -> int:
        """Keep a text that waits, and return its number. Any thread may.

        Raises:
            StoreError: it could not be written.
        """
        ...

    def write(self, step: Step) -> None:
        """Keep what is new: all of it, or nothing.

        Raises:
            StoreError: it could not be written.
        """
        ...

    def close(self) -> None:
        """Let somebody else open it."""
        ...


class Sessions(Protocol):
    """Many conversations that are kept."""

    def session(self, id: str | None = None, *, agent: str, any_agent: bool = False) -> Session:
        """Open a session of the agent called `agent`: a new one, or the one with this id.

        Raises:
            StoreError: there is none, or it is another agent's, unless `any_agent`.
            SessionInUse: somebody has it open.
        """
        ...
