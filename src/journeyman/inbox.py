"""What is said to a run from outside while it goes on: two queues, and a receipt for everything in them.

*Steering* is said before the next model call; a *follow-up* when there is nothing else left to do. What is taken out
of a queue is said in the same step, or put back: nothing is lost. Any thread may write. A chat lends its inbox to its
runs: `iteration.py` says the steering, `calls.py` starts no call while some waits, `chat.py` does the rest. Imports
`types`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from threading import Lock
from typing import Literal, TypeAlias

from journeyman.types import Text

Disposition: TypeAlias = Literal["steered", "resumed", "queued"]
"""What comes of a text. `steered`: the turn that goes on reads it. `resumed`: it began a turn. `queued`: it waits."""

Status: TypeAlias = Literal["queued", "delivered", "withdrawn"]

Queue: TypeAlias = Literal["steering", "follow_ups"]


class Receipt:
    """What became of one text. Await it to learn whether it was `delivered` or `withdrawn`.

    Delivered means: it is part of the conversation, and of every request from then on.
    """

    __slots__ = ("_lock", "_status", "_waiting", "disposition", "text")

    def __init__(self, text: str, disposition: Disposition) -> None:
        self.text = text
        self.disposition: Disposition = disposition
        self._status: Status = "queued"
        self._lock = Lock()
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def status(self) -> Status:
        return self._status

    def __await__(self) -> Generator[object, None, Status]:
        with self._lock:
            waiting = asyncio.get_running_loop().create_future() if self._status == "queued" else None
            if waiting is not None:
                self._waiting.append(waiting)
        if waiting is not None:
            yield from waiting
        return self._status

    def settle(self, status: Literal["delivered", "withdrawn"]) -> None:
        """Say what became of the text. The inbox does, once."""
        with self._lock:
            self._status = status
            waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.get_loop().is_closed():
                future.get_loop().call_soon_threadsafe(_wake, future)

    def __repr__(self) -> str:
        return f"<Receipt {self._status} {self.text!r}>"


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Inbox:
    """The texts that wait for a conversation."""

    __slots__ = ("_follow_ups", "_in_hand", "_is_open", "_lock", "_source", "_steering")

    def __init__(self) -> None:
        self._lock = Lock()
        self._steering: list[Receipt] = []
        self._follow_ups: list[Receipt] = []
        self._in_hand: list[Receipt] = []
        """The texts with which a run is about to begin. Nobody can withdraw them."""
        self._source: Queue = "steering"
        """The queue they are from."""
        self._is_open = False

    # -- writing

    def put(self, text: str, queue: Queue) -> Receipt:
        """Let `text` wait at the end of a queue.

        Raises:
            ValueError: it is blank.
        """
        if not text.strip():
            raise ValueError("The text is blank: there is nothing to say.")
        with self._lock:
            steers = queue == "steering" and self._is_open
            receipt = Receipt(text, "steered" if steers else "queued")
            self._queue(queue).append(receipt)
        return receipt

    def clear(self, *queues: Queue) -> tuple[str, ...]:
        """Withdraw what waits in these queues, and return it."""
        withdrawn: list[Receipt] = []
        with self._lock:
            for queue in queues:
                withdrawn += self._queue(queue)
                self._queue(queue).clear()
        for receipt in withdrawn:
            receipt.settle("withdrawn")
        return tuple(receipt.text for receipt in withdrawn)

    # -- reading

    @property
    def has_steering(self) -> bool:
        """True when a text waits for the next model call."""
        return bool(self._steering)

    @property
    def is_empty(self) -> bool:
        """True when nothing waits."""
        return not (self._steering or self._follow_ups)

    def waiting(self, queue: Queue) -> tuple[str, ...]:
        """Return what waits in a queue, oldest first; what a run is about to begin with is first."""
        with self._lock:
            in_hand = self._in_hand if queue == self._source else []
            return tuple(receipt.text for receipt in (*in_hand, *self._queue(queue)))

    # -- saying

    def open(self) -> None:
        """A run begins: from now on steering reaches it."""
        with self._lock:
            self._is_open = True

    def close(self) -> None:
        """The run is over: from now on everything waits."""
        with self._lock:
            self._is_open = False

    def take_steering(self) -> tuple[Text, ...]:
        """Take all steering out. The caller says it at once."""
        with self._lock:
            taken, self._steering = self._steering, []
        return _delivered(taken)

    def pick_up(self) -> bool:
        """Take all steering, or else all follow-ups, in hand for the next run. If there is nothing, close.

        Both in one step: whatever is put in later finds the inbox closed.
        """
        with self._lock:
            self._source = "steering" if self._steering else "follow_ups"
            self._in_hand = self._queue(self._source).copy()
            self._queue(self._source).clear()
            self._is_open = bool(self._in_hand)
            return self._is_open

    def hand_over(self) -> tuple[Text, ...]:
        """Give out what is in hand. The caller says it at once."""
        with self._lock:
            taken, self._in_hand = self._in_hand, []
        return _delivered(taken)

    def put_back(self) -> None:
        """Return to its queue what is in hand and was not said."""
        with self._lock:
            queue = self._queue(self._source)
            queue[:0] = self._in_hand
            self._in_hand = []

    def _queue(self, queue: Queue) -> list[Receipt]:
        return self._steering if queue == "steering" else self._follow_ups


def _delivered(taken: list[Receipt]) -> tuple[Text, ...]:
    for receipt in taken:
        receipt.settle("delivered")
    return tuple(Text(receipt.text) for receipt in taken)
