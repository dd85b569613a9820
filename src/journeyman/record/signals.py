"""The words that reach a recorded run from outside of its process, and the questions that wait there for an answer.

All of this happens in the event loop of the run. Each word that comes is taken down, with who said it: nothing is
steered without a trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from journeyman.cancellation import current_scope
from journeyman.endings import Place
from journeyman.errors import name_and_words
from journeyman.events import (
    ApprovalAnswered,
    ApprovalRequested,
    QuestionAnswered,
    QuestionAsked,
    SignalTaken,
    SinkEvent,
)
from journeyman.events.noted import SignalOutcome
from journeyman.gate import DECISION, DECISION_WORDS, Approval, Approver, Decision, Deny, answer
from journeyman.inbox import Outside, Queue, Receipt, text_of_signal
from journeyman.json_numbers import read_object
from journeyman.step import RunStep
from journeyman.types import JsonObject, RunPath

_QUEUES: Final[dict[str, Queue]] = {"steer": "steering", "follow_up": "follow_ups"}
_OUTCOMES: Final[dict[str, SignalOutcome]] = {"delivered": "taken", "withdrawn": "withdrawn"}
"""The outcome of a text that was to be said, by the status of its receipt."""
# Nobody tells when the last of those who look has gone, so it is asked.
_LOOK_S: Final = 1.0
PATIENCE_S: Final = 60.0
"""Where only those are asked who look, how long a question waits when nobody looks any more."""


class SignalRow(NamedTuple):
    """One word from outside, as it is stored. It is never changed."""

    n: int
    run: str
    kind: str
    dedup: str
    """Of one run and kind, the second with the same is not stored: of an answer, the id of what it answers."""
    body: JsonObject
    at: float
    """Seconds since 1970."""
    who: str


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
        self._is_asked = is_asked
        self._open: dict[str, tuple[str, Callable[[Decision | str], object]]] = {}
        """What waits for an answer, by id: the digest that the answer must name, and who takes it."""
        self._numbers = count(1)
        self._released = asyncio.Event()
        self._released.set()
        self._said: dict[int, tuple[SignalRow, Receipt]] = {}
        """What waits to be said, by number."""
        self._say: Callable[[str, Queue], Receipt] | None = None
        self._withdraw: Callable[[Receipt], bool] | None = None
        self._stop: Callable[[str], None] | None = None

    @property
    def asks(self) -> bool:
        return self._is_asked()

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

    # -- words that come

    def deliver(self, word: SignalRow) -> None:
        """Do what a word says, and take down what became of it."""
        try:
            outcome, why = self._obey(word)
        except Exception as error:  # noqa: BLE001 - of a hook or of a file: no word may end a run
            outcome, why = "refused", name_and_words(error)
        self._note(word, outcome, why)

    def _obey(self, word: SignalRow) -> tuple[SignalOutcome, str]:
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

    def _answer_question(self, word: SignalRow, text: str) -> tuple[SignalOutcome, str]:
        digest, take = self._open.get(word.dedup, ("", None))
        if take is None:
            return "late", "it waits no more"
        # What was asked may have been answered, and another call have come in its place, while somebody decided.
        if digest != str(word.body.get("digest") or ""):
            return "refused", "it is about another call"
        take(DECISION.read(word.body.get("decision")) if word.kind == "approve" else text)
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

    def _note(self, word: SignalRow, outcome: SignalOutcome, why: str) -> None:
        says_it = outcome != "withdrawn" and word.kind in ("steer", "follow_up", "answer", "stop")
        self._record(
            SignalTaken(
                path=self._path,
                signal=word.n,
                what=word.kind,
                who=word.who,
                outcome=outcome,
                id=word.dedup,
                text=text_of_signal(word.body) if says_it else None,
                why=why,
            )
        )

    # -- questions that wait

    def open(self, id: str, *, digest: str = "", take: Callable[[Decision | str], object]) -> Callable[[], None]:
        self._open[id] = digest, take
        return lambda: self._open.pop(id, None) and None

    def approver(self, place: tuple[RunPath, Place], *, beside: Approver | None = None) -> Approver:
        """Return who answers what a gate asks there: whoever is outside, or `beside` that; the first answer counts."""

        async def approve(approval: Approval) -> Decision:
            (path, spot), request, id = place, approval.request, f"approval_{next(self._numbers)}"
            self._record(
                ApprovalRequested(
                    path=path,
                    id=id,
                    question=approval.question,
                    tool_use_id=request.tool_use_id,
                    tool_name=request.tool_name,
                    arguments=read_object(request.input_json),
                    question_id=approval.question_id,
                    offers=approval.offers,
                    rule=approval.rule,
                    attempt=spot.attempt,
                    iteration=spot.iteration,
                )
            )
            given: Decision | str | None = None
            here = None if beside is None else asyncio.ensure_future(answer(approval, beside))
            try:
                given = await self._waited(id, approval.question_id, here)
            finally:
                # Whoever is asked in this process is asked no more, and has ended before the answer is used.
                await _left(here)
                decision = Deny("nobody answered") if given is None or isinstance(given, str) else given
                self._record(
                    ApprovalAnswered(
                        path=path,
                        id=id,
                        decision=DECISION_WORDS[type(decision)],
                        reason=getattr(decision, "reason", ""),
                        tool_use_id=request.tool_use_id,
                        attempt=spot.attempt,
                        iteration=spot.iteration,
                    )
                )
            return decision if given is not None else Deny(f"nobody answered: {approval.question}")

        return approve

    async def ask(
        self,
        path: tuple[str, ...],
        question: str,
        options: Sequence[str],
        *,
        call: RunStep | None = None,
        beside: Callable[[], Coroutine[Any, Any, str | None]] | None = None,
    ) -> str | None:
        if not self.asks:
            return None
        id, tool_use_id = f"question_{next(self._numbers)}", None if call is None else call.call
        self._record(
            QuestionAsked(path=path, id=id, question=question, options=tuple(options), tool_use_id=tool_use_id)
        )
        given: Decision | str | None = None
        here = None if beside is None else asyncio.ensure_future(beside())
        try:
            given = await self._waited(id, "", here)
        finally:
            await _left(here)
            answer = given if isinstance(given, str) else None
            self._record(QuestionAnswered(path=path, id=id, answer=answer, tool_use_id=tool_use_id))
        return answer

    async def _waited(
        self, id: str, digest: str, here: asyncio.Future[Decision] | asyncio.Future[str | None] | None = None
    ) -> Decision | str | None:
        """Wait for an answer, from outside or from here. None: nobody has looked for so long that none will come."""
        future: asyncio.Future[Decision | str] = self.loop.create_future()
        first = (future,) if here is None else (future, here)
        # Both may answer in the same moment: the first one counts.
        close = self.open(id, digest=digest, take=lambda answer: future.done() or future.set_result(answer))
        left_s, scope = PATIENCE_S, current_scope.get()
        try:
            while not any(each.done() for each in first) and left_s > 0:
                async with nullcontext() if scope is None else scope.pause_deadlines():
                    await asyncio.wait(first, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                left_s = PATIENCE_S if self.asks or here is not None else left_s - _LOOK_S
        finally:
            close()
        return next((each.result() for each in first if each.done()), None)


async def _left(here: asyncio.Future[Any] | None) -> None:
    """Ask no more here."""
    if here is not None:
        here.cancel()
        # It only waits: that it was cancelled, or failed, is of no interest any more.
        await asyncio.wait((here,))


if TYPE_CHECKING:
    _outside: type[Outside] = FromOutside
