"""How a chat keeps its conversation in a session: what is new is written before anything comes of it.

A step is everything that changed since the last one: messages, staged results, texts that were said or withdrawn, and
usage, so that no text is both in a queue and in the conversation, or in neither. A step that could not be written is
part of the next. Imports `history`, `inbox` and `session`. `chat.py` says when.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Final

from journeyman.errors import StoreError
from journeyman.history import Closing, History
from journeyman.inbox import Inbox, Queue, Receipt
from journeyman.session import Session, Snapshot, Step
from journeyman.types import Message, ToolResult, Usage, UserContent

BOTH: Final[tuple[Queue, Queue]] = ("steering", "follow_ups")


class Keeping:
    """Writes one chat to one session; without a session, it writes nothing."""

    def __init__(self, session: Session | None, inbox: Inbox) -> None:
        """Let the texts wait in `inbox` that had been queued, and keep what is queued from now on."""
        self.session = session
        self._inbox = inbox
        self._lock = RLock()
        self._kept = kept = Snapshot() if session is None else session.snapshot
        self._n_messages = len(kept.messages)
        """How many messages the session holds."""
        self._staged: list[UserContent | ToolResult] = []
        """What the session holds beyond them."""
        self._usage = kept.usage
        self._n_runs = kept.n_runs
        self._numbers: dict[Receipt, int] = {}
        """The texts that wait, as far as the session knows."""

        for text in kept.waiting:
            self._numbers[inbox.put(text.text, text.queue)] = text.number
        if session is not None:
            inbox.on_put = self._put

    def history(self, given: Sequence[Message], closing: Closing) -> History:
        """Return the conversation, its open calls closed; the one that was `given`, if none is kept."""
        kept = self._kept
        said = (Message("user", kept.staged),) if kept.staged else ()
        history = History((*kept.messages, *said) or given, closing=closing)
        history.changed_from = _first_difference(kept, history.messages)
        return history

    @property
    def used(self) -> tuple[Usage, int]:
        """What all turns have used, and how many runs they were."""
        return self._usage, self._n_runs

    def keep(self, history: History, usage: Usage, n_runs: int) -> None:
        """Write what is new. The chat's own thread does.

        Raises:
            StoreError: it could not be written.
        """
        if self.session is None:
            return
        with self._lock:
            position, total = history.changed_from, len(history.messages)
            has_changed = position < total or total < self._n_messages
            staged = history.staged
            step = Step(
                position=position,
                messages=history.messages[position:] if has_changed else None,
                staged=staged if has_changed else self._new_of(staged),
                gone=self._gone(("delivered", "withdrawn")),
                usage=None if (usage, n_runs) == (self._usage, self._n_runs) else usage,
                n_runs=n_runs,
            )
            if has_changed or step.staged or step.gone or step.usage is not None:
                self._write(step)
                history.changed_from = self._n_messages = total
                self._staged = list(staged)
                self._usage, self._n_runs = usage, n_runs

    def clear(self, *queues: Queue) -> tuple[str, ...]:
        """Withdraw what waits, and return it. Any thread may.

        Raises:
            StoreError: it could not be written.
        """
        withdrawn = self._inbox.clear(*(queues or BOTH))
        with self._lock:
            gone = self._gone(("withdrawn",))
            if gone:
                self._write(Step(position=self._n_messages, gone=gone))
        return withdrawn

    def leave(self) -> None:
        """Tell everybody whose text was not said what becomes of it."""
        self._inbox.clear(*BOTH, status="withdrawn" if self.session is None else "kept")

    def _write(self, step: Step) -> None:
        if self.session is None:
            return
        self.session.write(step)
        gone = set(step.gone)
        if gone:
            self._numbers = {receipt: number for receipt, number in self._numbers.items() if number not in gone}

    def _put(self, receipt: Receipt, queue: Queue) -> None:
        with self._lock:
            if self.session is not None:
                self._numbers[receipt] = self.session.add(receipt.text, queue)

    def _gone(self, statuses: tuple[str, ...]) -> list[int]:
        return [number for receipt, number in self._numbers.items() if receipt.status in statuses]

    def _new_of(self, staged: Sequence[UserContent | ToolResult]) -> Sequence[UserContent | ToolResult]:
        if not staged:
            return ()
        known = set(map(id, self._staged))
        return [block for block in staged if id(block) not in known]


@contextmanager
def noted_on(error: BaseException) -> Generator[None]:
    """Note on `error`, which goes on, what else could not be written."""
    try:
        yield
    except StoreError as unsaved:
        error.add_note(str(unsaved))


def _first_difference(kept: Snapshot, messages: Sequence[Message]) -> int:
    pairs = zip(kept.messages, messages, strict=False)
    same = (number for number, (stored, loaded) in enumerate(pairs) if stored != loaded)
    return next(same, min(len(kept.messages), len(messages)))
