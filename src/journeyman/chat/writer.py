"""The writer of a chat's session; and the share in it of a turn that is a durable run: what the turn takes from the
session, and adds to it.

What is new is written before anything comes of it. A turn that is a durable run keeps its steps elsewhere: what it adds
to the conversation is written when it ends, in the same step as its end, by whoever drives it then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from threading import RLock
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from journeyman.agent import Agent, Runtime
from journeyman.cancellation import Abort
from journeyman.chat.questions import Questions
from journeyman.definition.data import lazy_dataclass
from journeyman.history import History
from journeyman.inbox.inbox import Conversation, Inbox, Queue, Receipt
from journeyman.loop.prepare import closing_of
from journeyman.loop.state import Options, Run
from journeyman.model import Prefix
from journeyman.result import Result
from journeyman.session import PatientSession, Session, Snapshot, Step, TurnStart
from journeyman.types import Message, ToolResult, ToolUse, Usage, UserContent
from journeyman.window import CompactedView, Compaction, SentView

T = TypeVar("T")

BOTH: Final[tuple[Queue, Queue]] = ("steering", "follow_ups")


class SessionWriter:
    """The writer of one chat to one session. Without a session, it writes nothing."""

    def __init__(self, session: Session | None, inbox: Inbox, snapshot: Snapshot | None = None) -> None:
        """Put the texts that had been queued into `inbox`, and keep what is queued from now on. `snapshot` is what is
        stored of the conversation; None: as it was when the session was opened."""
        self.session = session
        self._write_at_once = (
            session.write_at_once if isinstance(session, PatientSession) else None if session is None else session.write
        )
        self._inbox = inbox
        # Any thread may queue or withdraw a text while the chat writes.
        self._lock = RLock()
        if snapshot is None:
            snapshot = Snapshot() if session is None else session.snapshot
        self.snapshot = snapshot
        """What was stored when it was last read."""
        self._n_messages = len(snapshot.messages)
        """How many messages the session holds."""
        self._staged: list[UserContent | ToolResult] = []
        """What the session holds beyond them."""
        self.usage = snapshot.usage
        """What all turns have used, as the session knows it."""
        self.n_runs = snapshot.n_runs
        """How many runs there were, as the session knows it."""
        self.turns: Sequence[TurnStart] = snapshot.turns
        """The turns that can be undone, as the session knows them."""
        self._numbers: dict[Receipt, int] = {}
        """The texts that wait, as the session knows them, with their numbers there."""
        self._kept_view: SentView | None = snapshot.view
        """What is sent in place of the first messages, as the session knows it."""
        self._sent: list[Message] | None = None
        """The list of messages in which it is sent; another one is another view."""

        for text in snapshot.waiting:
            # They are stored already.
            self._numbers[inbox.put(text.text, text.queue, is_kept=True)] = text.number
        if session is not None:
            # Only now: what was put in above is stored already.
            inbox.on_put = self._put

    def read(self, snapshot: Snapshot) -> None:
        """Go on from what somebody else has written."""
        with self._lock:
            self.snapshot, self.usage = snapshot, snapshot.usage
            self.n_runs, self.turns = snapshot.n_runs, snapshot.turns
            self._n_messages, self._staged = len(snapshot.messages), []
            self._kept_view = snapshot.view
            waiting = {text.number for text in snapshot.waiting}
            gone = [receipt for receipt, number in self._numbers.items() if number not in waiting]
            known = {self._numbers.pop(receipt) for receipt in gone} | {*self._numbers.values()}
        # Outside of the lock, as in `clear`: whoever queues a text holds the inbox's lock, and waits for this one.
        self._inbox.take_out(gone)
        for text in snapshot.waiting:
            if text.number not in known:
                receipt = self._inbox.put(text.text, text.queue, is_kept=True)
                with self._lock:
                    self._numbers[receipt] = text.number

    def take_out(self, numbers: Collection[int]) -> None:
        """Let these texts wait no more: they were said in another life of the turn."""
        self._inbox.take_out([receipt for receipt, number in self._numbers.items() if number in numbers])

    def note_base(self, history: History) -> None:
        """Note that a turn begins with this conversation, all of which is written: it is what each life begins with."""
        self.snapshot = replace(self.snapshot, messages=history.export(), staged=history.staged, view=self._kept_view)

    def wait_again(self, said: Collection[int]) -> None:
        """Let what a life of the turn has said wait again, unless it is stored that it was said."""
        for receipt, number in list(self._numbers.items()):
            if receipt.status == "delivered" and number not in said:
                del self._numbers[receipt]
                self._numbers[self._inbox.put(receipt.text, "steering", is_kept=True)] = number

    def list_delivered(self) -> list[int]:
        """Return the numbers of the texts that were said, and are not stored as part of the conversation yet."""
        return self._list_numbers("delivered")

    def load_history(self, given: Sequence[Message], closing: Callable[[ToolUse], str]) -> History:
        """Return the conversation that is kept, or else the one that is `given`, with its open calls closed."""
        snapshot = self.snapshot
        said = (Message("user", snapshot.staged),) if snapshot.staged else ()
        history = History((*snapshot.messages, *said) or given, closing=closing)
        history.changed_from = first_difference(snapshot.messages, history.messages)
        if snapshot.view is not None and history.messages:
            self._show_again(history, snapshot.view)
        return history

    def bring_view(self, history: History, view: object) -> None:
        """Let a history that ends earlier have the last view that was kept of the longer one, if it fits."""
        kept = self._kept_view if isinstance(view, CompactedView) else None
        if kept is not None and history.changed_from >= kept.position:
            self._show_again(history, kept)

    def _show_again(self, history: History, kept: SentView) -> None:
        history.view = view = CompactedView(Prefix(), Compaction(()))
        view.restore(kept)
        self._kept_view, self._sent = kept, view.messages

    def write(
        self, history: History, usage: Usage, n_runs: int, turns: Sequence[TurnStart], *, waits: bool = True
    ) -> None:
        """Write what is new, or raise a `StoreError`. Call it in the chat's own thread only. Unless it `waits`, another
        process that is in the way is such an error at once, if the session can tell."""
        if self.session is None or self._write_at_once is None:
            self._sent, self._kept_view = self._view_of(history)
            return
        with self._lock:
            step, note = self.step(history, usage, n_runs, turns)
            if step is not None:
                (self.session.write if waits else self._write_at_once)(step)
            # Not before it is written: what failed is part of the next step.
            note()

    def _view_of(self, history: History) -> tuple[list[Message] | None, SentView | None]:
        """Return what is sent in place of the first messages, and as it is stored; made again only if it is another."""
        view = history.view if isinstance(history.view, CompactedView) and history.view.is_compacted else None
        sent = None if view is None else view.messages
        return sent, self._kept_view if sent is self._sent else None if view is None else view.make_sent_view()

    def step(
        self, history: History, usage: Usage, n_runs: int, turns: Sequence[TurnStart]
    ) -> tuple[Step | None, Callable[[], None]]:
        """Return what is new, if anything is, and what notes that it is written."""
        sent, kept = self._view_of(history)
        position, total = history.changed_from, len(history.messages)
        has_changed = position < total or total < self._n_messages
        # By identity, since two results may be equal.
        staged, known = list(history.staged), set(map(id, self._staged))
        n_turns = min(len(turns), len(self.turns))
        while n_turns and turns[n_turns - 1] is not self.turns[n_turns - 1]:
            n_turns -= 1
        step = Step(
            position=position,
            messages=history.messages[position:] if has_changed else None,
            staged=staged if has_changed else [block for block in staged if id(block) not in known],
            gone=self._list_numbers("delivered", "withdrawn"),
            usage=None if (usage, n_runs) == (self.usage, self.n_runs) else usage,
            n_runs=n_runs,
            turns=turns[n_turns:] if n_turns < max(len(turns), len(self.turns)) else None,
            n_turns=n_turns,
            view=kept,
            has_view=sent is not self._sent,
        )
        is_new = has_changed or step.has_view or step.usage is not None or step.turns is not None

        def note() -> None:
            self._kept_view, self._sent = kept, sent
            history.changed_from = self._n_messages = total
            self._staged = staged
            self.usage, self.n_runs, self.turns = usage, n_runs, tuple(turns)
            self._forget(step.gone)

        return (step if is_new or step.staged or step.gone else None), note

    def clear(self, *queues: Queue) -> tuple[str, ...]:
        """Withdraw what waits, and return it; raise a `StoreError` if that could not be written. Any thread may."""
        # Before the lock is taken: whoever queues a text holds the inbox's lock, and waits for this one.
        withdrawn = self._inbox.clear(*(queues or BOTH))
        with self._lock:
            gone = self._list_numbers("withdrawn")
            if gone and self.session is not None:
                self.session.write(Step(position=self._n_messages, gone=gone))
                self._forget(gone)
        return withdrawn

    def leave(self) -> None:
        """Tell everybody whose text was not said what becomes of it."""
        self._inbox.leave("withdrawn" if self.session is None else "kept")

    def _forget(self, gone: Collection[int]) -> None:
        if gone:
            self._numbers = {receipt: number for receipt, number in self._numbers.items() if number not in gone}

    def _put(self, receipt: Receipt, queue: Queue) -> None:
        with self._lock:
            if self.session is not None:
                self._numbers[receipt] = self.session.add(receipt.text, queue)

    def _list_numbers(self, *statuses: str) -> list[int]:
        return [number for receipt, number in self._numbers.items() if receipt.status in statuses]


def first_difference(before: Sequence[Message], after: Sequence[Message]) -> int:
    """Return the position of the first message that is not the same in both, or where the shorter one ends."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((position for position, (old, new) in pairs if old != new), min(len(before), len(after)))


@lazy_dataclass(kw_only=True)
class TurnLife:
    """A turn that is a durable run, as the process has it that drives it: a chat's, or a worker's."""

    number: int
    """Which of the runs of its session it is, from 1."""
    goes_on: bool
    """True when it has no prompt: it says what waits."""
    agent: Agent[Any, Any, Any]
    writer: SessionWriter
    inbox: Inbox
    history: History
    """The conversation. Another life begins with what was stored of it before the turn."""
    questions: Questions | None = None
    """Where the user of the chat is asked; None: nobody is there."""
    around: Callable[[Options], Options] = lambda options: options
    """Adds what a chat gives its runs."""
    told: Callable[[Run, History], None] = lambda run, history: None
    """Is told of the run of each life, and of the conversation with which it begins."""
    is_begun: bool = False
    """True once this process has driven it."""
    is_ended: bool = False
    """True once this process has written its end."""
    has_late_texts: bool = False
    """True when texts came too late for it from elsewhere, and wait in its session now."""

    def options(self, options: Options, *, said: Collection[int], has_begun: bool) -> Options:
        """Return the options of its next life. `said` are the numbers of the texts that it has said in earlier ones;
        `has_begun`: also what it was begun with, if that is no prompt."""
        if self.is_begun or has_begun:
            self.history = self.writer.load_history((), partial(closing_of, self.agent))
        self.is_begun = True
        self.inbox.put_back()
        self.writer.take_out(said)
        self.writer.wait_again(said)
        if self.goes_on and not has_begun:
            self.inbox.pick_up()
        self.inbox.open()
        given = replace(options, history=self.history, inbox=self.inbox)
        if self.goes_on:
            given = replace(given, going_on=tuple if has_begun else self.inbox.hand_over)
        return self.around(given)

    def place(self, around: Conversation) -> Conversation:
        """Return the conversation of what begins in the chat."""
        return around if self.questions is None else replace(around, inbox=self.inbox, questions=self.questions)

    def make_last_step(self, used: Usage) -> tuple[Step | None, Callable[[], None]]:
        """Return what it adds to its session, and what notes that this is written."""
        writer = self.writer
        step, note = writer.step(self.history, writer.usage + used, self.number, writer.turns)

        def note_written() -> None:
            note()
            self.is_ended = True

        return step, note_written


@runtime_checkable
class DurableSession(Session, Protocol):
    """A session whose turns are durable runs. Number 1 is the first one."""

    async def call(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, which reads or writes the session. The event loop does not wait for it."""
        ...

    async def begin_turn(
        self, agent: Agent[Any, Any, Any], input: object, *, number: int, goes_on: bool, runtime: Runtime
    ) -> None:
        """Store that a turn begins.

        Raises:
            InvalidArguments: the input does not fit the agent's type.
            StoreError: it could not be written, or there is another one of this number.
        """
        ...

    async def open_turn(self, agent: Agent[Any, Any, Any], number: int) -> tuple[object, bool] | None:
        """Return the input of a turn that has begun and not ended, and whether it goes on without a prompt; None: there
        is none.

        Raises:
            RunBlocked: it cannot go on by itself.
            RunDiffers: it is one of another agent.
        """
        ...

    async def carry(self, life: TurnLife, *, runtime: Runtime, abort: Abort) -> tuple[Result[Any], Snapshot | None]:
        """Drive a turn to its end, or wait for that if somebody else drives it. Return its result, and what is stored
        then, if that is not what `life` has written.

        Raises:
            asyncio.CancelledError: the surrounding task was cancelled. The turn is gone on with by whoever comes next.
            RunBlocked: it cannot go on by itself.
            StoreError: the store cannot be read or written.
        """
        ...
