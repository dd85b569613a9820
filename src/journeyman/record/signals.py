"""The words that reach a recorded run from outside of its process: what is said to it, and answers to its questions.

All of this happens in the event loop of the run. Each word that comes is taken down, with who said it: nothing is
steered without a trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from journeyman.cancellation import current_scope
from journeyman.errors import name_and_words
from journeyman.events import SignalTaken, SinkEvent
from journeyman.events.noted import SignalOutcome
from journeyman.gate import DECISION
from journeyman.inbox.inbox import Outside, Queue, Receipt
from journeyman.inbox.questions import PendingQuestions
from journeyman.inbox.signals import Signal
from journeyman.types import RunPath

_QUEUES: Final[dict[str, Queue]] = {"steer": "steering", "follow_up": "follow_ups"}
_OUTCOMES: Final[dict[str, SignalOutcome]] = {"delivered": "taken", "withdrawn": "withdrawn"}
"""The outcome of a text that was to be said, by the status of its receipt."""


class FromOutside:
    """Whoever is outside, as one recording hears them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        record: Callable[[SinkEvent], None],
        path: RunPath,
        *,
        is_asked: Callable[[], bool],
    ) -> None:
        """`is_asked` tells whether what is asked now may wait for somebody."""
        self.loop: Final = loop
        self._record = record
        self._path = path
        self.questions: PendingQuestions[Any] = PendingQuestions(self, asks_outside=is_asked)
        """The questions that wait for an answer; a chat has its own in place of them."""
        self._released = asyncio.Event()
        self._released.set()
        self._said: dict[int, tuple[Signal, Receipt]] = {}
        """What waits to be said, by number."""
        self._say: Callable[[str, Queue], Receipt] | None = None
        self._withdraw: Callable[[Receipt], bool] | None = None
        self._stop: Callable[[str], None] | None = None

    @property
    def is_heard(self) -> bool:
        """False: of a question of the recording, those outside alone are told."""
        return False

    def show(self, event: SinkEvent) -> None:
        """Tell those outside of a question, or of its answer."""
        self._record(event)

    @property
    def is_held(self) -> bool:
        return not self._released.is_set()

    async def wait_until_released(self) -> None:
        scope = current_scope.get()
        assert scope is not None  # a run waits within its scope
        async with scope.pause_deadlines():
            await self._released.wait()

    def listen(
        self, *, say: Callable[[str, Queue], Receipt], withdraw: Callable[[Receipt], bool], stop: Callable[[str], None]
    ) -> None:
        self._say, self._withdraw, self._stop = say, withdraw, stop

    def deliver(self, word: Signal) -> None:
        """Do what a word says, and take down what became of it."""
        try:
            outcome, why = self._obey(word)
        except Exception as error:  # noqa: BLE001 - of a hook or of a file: no word may end a run
            outcome, why = "refused", name_and_words(error)
        self._note(word, outcome, why)

    def _obey(self, word: Signal) -> tuple[SignalOutcome, str]:
        text = str(word.body.get("text") or "")
        match word.kind:
            case "approve" | "answer":
                return self._answer_question(word, text)
            case "steer" | "follow_up" if self._say is not None:
                self._said[word.n] = word, self._say(text, _QUEUES[word.kind])
                return "waits", ""
            case "withdraw":
                _, receipt = self._said.get(int(text)) or (None, None)
                if receipt is None or self._withdraw is None or not self._withdraw(receipt):
                    return "late", "it was said before"
                self.look()
                return "taken", ""
            case "hold":
                self._released.clear()
            case "release":
                self._released.set()
            case "stop" if self._stop is not None:
                # A run that is held would never come to where it stops.
                self._released.set()
                self._stop(str(word.body.get("reason") or "stopped from outside"))
            case _:
                return "refused", "nobody here does that"
        return "taken", ""

    def _answer_question(self, word: Signal, text: str) -> tuple[SignalOutcome, str]:
        answer = DECISION.read(word.body.get("decision")) if word.kind == "approve" else text
        # What was asked may have been answered, and another call have come in its place, while somebody decided.
        about = str(word.body.get("digest") or "")
        try:
            self.questions.answer(word.dedup, answer, question_id=about, who=word.who)
        except KeyError:
            first = self.questions.find_first(word.dedup)
            return "late", "it waits no more" if first is None else f"it was {first}"
        except ValueError as error:
            return "refused", str(error)
        return "taken", ""

    def look(self) -> None:
        """Take down which of the texts that waited were said, or withdrawn."""
        for n, (word, receipt) in list(self._said.items()):
            if receipt.status != "queued":
                del self._said[n]
                self._note(word, _OUTCOMES.get(receipt.status, "late"), "")

    @property
    def has_waiting(self) -> bool:
        """True while a text waits to be said."""
        return bool(self._said)

    def leave(self) -> None:
        """Take down that nothing is said any more."""
        self.look()
        for word, _ in self._said.values():
            self._note(word, "late", "it has ended")
        self._said.clear()

    def _note(self, word: Signal, outcome: SignalOutcome, why: str) -> None:
        says_it = outcome != "withdrawn" and word.kind in ("steer", "follow_up", "answer", "stop")
        self._record(
            SignalTaken(
                path=self._path,
                signal=word.n,
                what=word.kind,
                who=word.who,
                outcome=outcome,
                id=word.dedup,
                text=word.text if says_it else None,
                why=why,
            )
        )


if TYPE_CHECKING:
    _outside: type[Outside] = FromOutside
