"""The inbox of a run: two queues of texts that are said to it while it goes on, and a receipt for each text.

*Steering* is said before the next model call; a *follow-up* when there is nothing else left to do. What is taken out
of a queue is said in the same step, or put back: nothing is lost. Any thread may write. A team's mail comes through a
`Post`, and is said with the steering. A chat lends its inbox to its runs: each iteration begins with the steering, and
no call is started while some waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any, Final, Literal, Protocol, TypeAlias

from journeyman.cancellation import call_in, end_wait
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.problems import explain_arguments
from journeyman.inbox.questions import Asker, PendingQuestions
from journeyman.types import Text, TextOrigin

Disposition: TypeAlias = Literal["steered", "resumed", "queued"]
"""What comes of a text. `steered`: the turn that goes on reads it. `resumed`: it began a turn. `queued`: it waits."""

Status: TypeAlias = Literal["queued", "delivered", "withdrawn", "kept"]
"""What became of a text. `kept`: the chat was left, and the text waits in its session."""

Queue: TypeAlias = Literal["steering", "follow_ups"]
"""`steering`: read before the next model call. `follow_ups`: read at the next natural stop."""


@explain_arguments
class Receipt:
    """A receipt for one text: `await receipt.outcome()` waits until it was `delivered`, `withdrawn` or `kept`.

    Delivered means: it is part of the conversation, and of every request from then on.
    """

    __slots__ = ("_lock", "_status", "_waiting", "disposition", "origin", "text")

    def __init__(self, text: str, disposition: Disposition, origin: TextOrigin | None = None) -> None:
        self.text = text
        self.origin: TextOrigin | None = origin
        """Who speaks, when it is not the user."""
        self.disposition: Disposition = disposition
        self._status: Status = "queued"
        # A text is delivered in the loop's thread, while another thread may begin to wait for it.
        self._lock = Lock()
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def status(self) -> Status:
        return self._status

    async def outcome(self) -> Status:
        """Wait until the text no longer waits, and return what became of it, which is never `queued`.

        A hook of the chat that is to read the text must not wait for this: the chat cannot read the text while its hook
        waits.
        """
        with self._lock:
            # Made under the lock: a text that is settled in between would wake nobody.
            waiting = asyncio.get_running_loop().create_future() if self._status == "queued" else None
            if waiting is not None:
                self._waiting.append(waiting)
        if waiting is not None:
            await waiting
        return self._status

    def settle(self, status: Literal["delivered", "withdrawn", "kept"]) -> None:
        """Say what became of the text. The inbox calls this, once."""
        with self._lock:
            self._status = status
            waiting, self._waiting = self._waiting, []
        for future in waiting:
            # A future may be set in the thread of its own loop only.
            call_in(future.get_loop(), partial(end_wait, future))

    def __repr__(self) -> str:
        return f"<Receipt {self._status} {self.text!r}>"


class Post(Protocol):
    """Mail that waits for a conversation beside what its user says. It is said before the next model call, as steering
    is, but it keeps no call from being made."""

    @property
    def has_mail(self) -> bool:
        """True when mail waits."""
        ...

    def take(self) -> tuple[str, ...]:
        """Give out what is to be said in a run that goes on. The caller says it at once."""
        ...

    def pick_up(self) -> bool:
        """Take in hand what another run is to begin with. False: there is nothing."""
        return False

    def hand_over(self) -> tuple[str, ...]:
        """Give out what is in hand. The caller says it at once."""
        return ()

    def put_back(self) -> None:
        """Let what is in hand wait again, before all other mail."""


@explain_arguments  # noqa: PLR0904 - one verb for each thing that becomes of a text
class Inbox:
    """The texts that wait for a conversation."""

    def __init__(self, post: Post | None = None) -> None:
        self.posts: tuple[Post, ...] = () if post is None else (post,)
        """The posts whose mail is said, too. Assign a new tuple to change them."""
        self.on_put: Callable[[Receipt, Queue], None] | None = None
        """Keeps a text before it waits. What it raises refuses the text."""
        self.conversation = object()
        """Stands for the conversation that the texts are for. Background work notes it when it begins: once the
        conversation was forgotten, the work has nobody to tell."""
        self.is_left = False
        """True when the chat was left. A text is then refused."""
        self._lock = Lock()
        self._steering: list[Receipt] = []
        self._follow_ups: list[Receipt] = []
        self._in_hand: list[Receipt] = []
        """The texts with which a run is about to begin. Nobody can withdraw them."""
        self._source: Queue = "steering"
        """The queue that the texts in hand are from."""
        self._is_open = False

    def put(self, text: str, queue: Queue, *, is_kept: bool = False) -> Receipt:
        """Let `text` wait at the end of a queue. `is_kept`: it is kept elsewhere already.

        Raises:
            ValueError: it is blank.
            RuntimeError: the chat was left.
        """
        with self._lock:
            # Stored under the same lock under which it begins to wait: the order in the session is then the order in
            # which it is said.
            return self._add(text, queue, is_kept=is_kept)

    def take_out(self, receipts: Collection[Receipt]) -> None:
        """Let these wait no more: they were said elsewhere."""
        with self._lock:
            queues = (self._steering, self._follow_ups, self._in_hand)
            taken = [receipt for queue in queues for receipt in queue if receipt in receipts]
            for queue in queues:
                queue[:] = [receipt for receipt in queue if receipt not in receipts]
        _deliver(taken, [])

    def offer(self, text: str, queue: Queue, origin: TextOrigin | None = None) -> Receipt | None:
        """Let `text` wait at the end of a queue, unless the inbox is closed: then nobody would read it.

        Raises:
            ValueError: it is blank.
        """
        with self._lock:
            return self._add(text, queue, origin) if self._is_open else None

    def _add(self, text: str, queue: Queue, origin: TextOrigin | None = None, *, is_kept: bool = False) -> Receipt:
        if not text.strip():
            raise ValueError("The text is blank: there is nothing to say.")
        if self.is_left:
            raise RuntimeError(f"The chat was left, so nobody will read this: {text[:80]!r}")
        receipt = Receipt(text, "steered" if queue == "steering" and self._is_open else "queued", origin)
        # Before it waits: a text that cannot be stored is refused, and not said and then lost.
        if self.on_put is not None and not is_kept:
            self.on_put(receipt, queue)
        self._queue(queue).append(receipt)
        return receipt

    def withdraw(self, receipt: Receipt) -> bool:
        """Withdraw a text that waits. False: it waits no more, or is about to be said."""
        with self._lock:
            queue = next((each for each in (self._steering, self._follow_ups) if receipt in each), None)
            if queue is None:
                return False
            queue.remove(receipt)
        receipt.settle("withdrawn")
        return True

    def steer_with_follow_ups(self) -> bool:
        """Let the follow-ups be said next, for a run that no other follows. Tell whether anything waits to be said."""
        with self._lock:
            self._steering += self._follow_ups
            self._follow_ups.clear()
        return self.has_news

    def clear(self, *queues: Queue, status: Literal["withdrawn", "kept"] = "withdrawn") -> tuple[str, ...]:
        """Withdraw what waits in these queues, and return it. `kept`: it waits elsewhere."""
        withdrawn: list[Receipt] = []
        with self._lock:
            for queue in queues:
                withdrawn += self._queue(queue)
                self._queue(queue).clear()
        for receipt in withdrawn:
            receipt.settle(status)
        return tuple(receipt.text for receipt in withdrawn)

    @property
    def has_steering(self) -> bool:
        """True when a text waits for the next model call."""
        return bool(self._steering)

    @property
    def has_news(self) -> bool:
        """True when a text or mail waits for the next model call."""
        return bool(self._steering) or (bool(self.posts) and any([post.has_mail for post in self.posts]))

    @property
    def is_empty(self) -> bool:
        """True when nothing waits."""
        return not (self._follow_ups or self.has_news)

    def waiting(self, queue: Queue) -> tuple[str, ...]:
        """Return what waits in a queue, oldest first; what a run is about to begin with is first."""
        with self._lock:
            in_hand = self._in_hand if queue == self._source else []
            return tuple(receipt.text for receipt in (*in_hand, *self._queue(queue)))

    def leave(self, status: Literal["withdrawn", "kept"]) -> None:
        """Withdraw all that waits, because the chat was left: nobody will read it, nor what comes later."""
        with self._lock:
            self.is_left = True
            self.on_put = None  # it holds whoever keeps the texts, who holds this inbox
        self.clear("steering", "follow_ups", status=status)

    def open(self) -> None:
        """Let steering reach the run that begins now."""
        with self._lock:
            self._is_open = True

    def close(self) -> None:
        """Let everything wait from now on: the run has ended."""
        with self._lock:
            self._is_open = False

    def take_steering(self) -> tuple[Text, ...]:
        """Take all steering out, and mail. The caller says it at once."""
        with self._lock:
            taken, self._steering = self._steering, []
        return _deliver(taken, [text for post in self.posts for text in post.take()])

    def pick_up(self) -> bool:
        """Take all steering and mail, or else all follow-ups, in hand for the next run. If there is nothing, close.

        Both in one step: whatever is put in later finds the inbox closed.
        """
        # Not under the lock: mail has one of its own, and is only moved in this thread.
        has_mail = any([post.pick_up() for post in self.posts])
        with self._lock:
            self._source = "steering" if self._steering or has_mail else "follow_ups"
            self._in_hand = self._queue(self._source).copy()
            self._queue(self._source).clear()
            self._is_open = bool(self._in_hand) or has_mail
            return self._is_open

    def hand_over(self) -> tuple[Text, ...]:
        """Give out what is in hand. The caller says it at once."""
        with self._lock:
            taken, self._in_hand = self._in_hand, []
        return _deliver(taken, [text for post in self.posts for text in post.hand_over()])

    def put_back(self) -> None:
        """Return to its queue what is in hand and was not said."""
        with self._lock:
            queue = self._queue(self._source)
            # In front, where it was: it is older than what has come since.
            queue[:0] = self._in_hand
            self._in_hand = []
        for post in self.posts:
            post.put_back()

    def _queue(self, queue: Queue) -> list[Receipt]:
        return self._steering if queue == "steering" else self._follow_ups


def _deliver(taken: list[Receipt], mail: list[str]) -> tuple[Text, ...]:
    for receipt in taken:
        receipt.settle("delivered")
    return (
        *[Text(receipt.text, origin=receipt.origin) for receipt in taken],
        *[Text(text, origin="mail") for text in mail],
    )


@lazy_dataclass(frozen=True, kw_only=True)
class Conversation:
    """The conversation in which something goes on."""

    inbox: Inbox | None = None
    """That of the chat: what is put into its follow-ups is read when nothing else is left."""
    questions: PendingQuestions[Any] | None = None
    """The chat's questions: a turn puts there what it asks its user."""
    asker: Asker | None = None
    """The asker puts what tools ask before the user; None: nobody is there."""
    member: object = None
    """The member of a team whose turns these are, if any."""


_NO_CONVERSATION: Final = Conversation()
current_conversation: ContextVar[Conversation] = ContextVar("journeyman_conversation", default=_NO_CONVERSATION)


def enter_conversation(conversation: Conversation) -> None:
    """Let what goes on in this context belong to a conversation from now on."""
    current_conversation.set(conversation)


class Outside(Protocol):
    """A port through which people outside of the process speak to a run, a chat or a team, and answer its questions."""

    questions: PendingQuestions[Any]
    """The questions that they may answer: those of the recording, until a chat puts its own there."""

    @property
    def is_held(self) -> bool:
        """True while no further step may begin."""
        ...

    async def wait_until_released(self) -> None:
        """Wait until it is not held."""
        ...

    def listen(
        self, *, say: Callable[[str, Queue], Receipt], withdraw: Callable[[Receipt], bool], stop: Callable[[str], None]
    ) -> None:
        """Give what is said to `say`, and let `stop` end what goes on."""
        ...
