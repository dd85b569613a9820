"""The port to whatever stores the conversation of a chat: a log of steps, each written whole or not at all.

A `Session` is one conversation that outlives its process, and has one writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from journeyman.definition.data import lazy_dataclass
from journeyman.errors import StoreError, quoted
from journeyman.inbox.inbox import Queue
from journeyman.texts import shorten
from journeyman.types import NOTHING_USED, Message, ToolResult, Usage, UserContent
from journeyman.window import SentView

__all__ = ["Session", "Sessions", "Snapshot", "Step"]

# An id is part of the names of its runs, of addresses and of keys in an index.
MOST_ID_CHARS: Final = 200


def check_session_id(id: object) -> None:
    """Check a session id that a user chose.

    Raises:
        StoreError: it cannot be the id of a session.
    """
    if not isinstance(id, str):
        fault = "is not a text"
    elif not id.strip():
        fault = "is blank"
    elif len(id) > MOST_ID_CHARS:
        fault = f"has {len(id):,} characters"
    elif not id.isprintable() or id != id.strip():
        fault = "begins or ends with a blank, or has a character that cannot be shown"
    # Turns are found by the beginning of their names, `chat/ID/`: with a slash, one id could be the beginning of
    # another's.
    elif set(id) & {"/", "\\"} or set(id) == {"."}:
        fault = "looks like a path"
    else:
        return
    hint = (
        f"Give 1 to {MOST_ID_CHARS} characters that can be shown, without slashes and not only dots, as in 'user-42'."
    )
    shown = quoted(shorten(id, 40)) if isinstance(id, str) else repr(id)
    raise StoreError(f"The session id {shown} {fault}.", hint=hint)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A text that waits in a queue."""

    number: int
    """Names the text in its session. An older text has a smaller number."""
    queue: Queue
    text: str


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The place in a conversation at which a turn begins. To undo the turn is to end the conversation there."""

    position: int
    """How many messages there were."""
    n_blocks: int
    """How many blocks the last of them held: what the turn says may have become part of it."""


@lazy_dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A conversation as it was when it was last written."""

    messages: Sequence[Message] = ()
    """The messages as they were: the last calls may have no results."""
    staged: tuple[UserContent | ToolResult, ...] = ()
    """Results and texts that were on their way into the next user message."""
    waiting: tuple[Waiting, ...] = ()
    """The texts that had been queued and not said, oldest first."""
    usage: Usage = NOTHING_USED
    """What its runs have used."""
    n_runs: int = 0
    """How many runs it has had."""
    turns: tuple[TurnStart, ...] = ()
    """The turns that can be undone, oldest first."""
    view: SentView | None = None
    """What is sent in place of the first messages; None when they are sent as they are."""


@lazy_dataclass(frozen=True, kw_only=True)
class Step:
    """The changes of one step in a conversation, as they are written."""

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
    """How many runs the session has had."""
    turns: Sequence[TurnStart] | None = None
    """The turns from number `n_turns` on; None when none has begun and none was undone."""
    n_turns: int = 0
    """How many turns there were before `turns`. Those that stood behind them are undone."""
    view: SentView | None = None
    """What is sent from now on in place of the first messages. Where `has_view`, None: they are sent as they are."""
    has_view: bool = False
    """True when `view` is another than before."""


class Session(Protocol):
    """One stored conversation, open for one writer."""

    @property
    def id(self) -> str: ...

    @property
    def notice(self) -> str | None:
        """A notice for its reader that it was damaged, and repaired. None when there is nothing to know."""
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


@runtime_checkable
class PatientSession(Session, Protocol):
    """A session that says at once when another process keeps it waiting, so that the event loop need not wait."""

    def write_at_once(self, step: Step) -> None:
        """Store what is new, as `write` does, if no other process is in the way.

        Raises:
            StoreError: it could not be written; `is_busy`: another process is in the way.
        """
        ...


TURN: Final = "chat/"
"""How the names of turns that are durable runs begin."""


def turn_name(id: str, number: int) -> str:
    """Return the name of a run that is a turn of the session with this id; they are numbered from 1."""
    return f"{TURN}{id}/{number}"


def turns_of(id: str) -> tuple[str, str]:
    """Return the least name that a turn of a session may have, and the least one behind them all."""
    # The character behind `/` is `0`: a range of names is found by an index, where a pattern would look at every row.
    return f"{TURN}{id}/", f"{TURN}{id}0"


class Sessions(Protocol):
    """Many stored conversations."""

    def session(self, id: str | None = None, *, agent: str, any_agent: bool = False, create: bool = False) -> Session:
        """Open a session of the agent called `agent`: a new one, or the one with this id, which `create` makes if there
        is none.

        Raises:
            StoreError: there is none, it is another agent's, unless `any_agent`, or the id cannot be one.
            SessionInUse: somebody has it open.
        """
        ...
