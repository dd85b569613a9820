"""Signals: what anybody says to one run from outside, in whichever process it goes on.

The verbs stand here once, for every kind of run. A kind knows where its signals are kept, what waits for an answer, and
what it does not take.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn, Protocol, TypeAlias

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.foreign import refuse_old_arguments
from journeyman.definition.narrowing import as_object
from journeyman.errors import RunOver, quoted
from journeyman.gate import DECISION, Decision
from journeyman.machine.environment import somebody
from journeyman.types import JsonObject

# A shorter beginning could be that of another question.
_SHORTEST: Final = 6

QuestionKind: TypeAlias = Literal["approve", "answer"]
"""The kind of answer that a question wants: a decision about a call, or a text."""
SignalKind: TypeAlias = Literal[
    QuestionKind, "steer", "follow_up", "withdraw", "task_ended", "mail", "hold", "release", "stop"
]
"""The kind of a signal: what it asks of its run."""

SAID: Final[dict[SignalKind, str]] = {
    "steer": "It is said before the next model call.",
    "follow_up": "It is said when nothing else is left to do.",
    "withdraw": "It is withdrawn.",
    "answer": "It is answered.",
    "hold": "It is held: no further step of it begins.",
    "release": "It is released.",
    "stop": "It was told to stop.",
}
"""The sentence that tells whoever has sent a signal that it is stored, by its kind."""


class Signal(NamedTuple):
    """A message to a run from any process. It is never changed; a step that takes it stores its number."""

    n: int
    """0 until it is stored."""
    run: str
    kind: SignalKind
    dedup: str
    """A second signal of the same run and kind with the same `dedup` is not stored: of an answer, that of its
    question."""
    body: JsonObject
    at: float
    """Seconds since 1970."""
    who: str

    @property
    def text(self) -> str | None:
        """Its words, or why it stops a run; None: it has none."""
        text = self.body.get("text") or self.body.get("reason")
        return str(text) if text else None


SIGNAL_COLUMNS: Final = ", ".join(Signal._fields)
"""The columns of a signal in every table."""


def signal_of(stored: Sequence[Any]) -> Signal:
    """Return a signal from its columns."""
    n, run, kind, dedup, body, *rest = stored
    return Signal(n, run, kind, dedup, json.loads(body), *rest)


@lazy_dataclass(frozen=True, kw_only=True)
class PendingQuestion:
    """A question that waits for an answer: a call waits for a decision, or the model asks for a text."""

    key: str
    """The key of the step that stores the answer; of a recording, the id that is recorded."""
    kind: QuestionKind
    question_id: str
    """The digest of the tool and its arguments, or of the question. The answer holds for nothing else."""
    path: tuple[str, ...]
    tool: str
    arguments: JsonObject | None
    """None: they are longer than 8,000 characters as JSON."""
    question: str
    options: tuple[str, ...] = ()
    """Answers that the model offers; you may give another one."""
    expires_at: float | None = None
    """When it stops waiting, in seconds since 1970. None: it waits without limit."""
    tool_use_id: str = ""
    """The id of the call that waits for a decision, or asks."""
    attempt: int = 0
    """The attempt of its run in which it is asked, from 1."""
    iteration: int = 0
    """The iteration of that attempt."""


class AnsweredBefore(LookupError):
    """Somebody else was first: `This was answered before: allow, by Ann, 2 s ago.`"""

    def __init__(self, signal: Signal, *, age_s: float) -> None:
        self.word: Final = str(as_object(signal.body.get("decision")).get("decision", "a text"))
        """What was answered: the decision about a call, or `a text`."""
        self.who: Final = signal.who
        super().__init__(f"This was answered before: {self.word}, by {self.who}, {age_s:,.0f} s ago.")


class RunSignals(Protocol):
    """A port for the signals of one run: each kind of run keeps them in its own way."""

    @property
    def refuses(self) -> Mapping[SignalKind, str]:
        """What such a run does not take, and why, as one sentence."""
        ...

    def now(self) -> float:
        """Return the seconds since 1970."""
        ...

    async def questions(self) -> Sequence[PendingQuestion]:
        """Return what waits for an answer, the oldest first."""
        ...

    async def list_signals(self) -> Sequence[Signal]:
        """Return what was said to the run, the oldest first."""
        ...

    async def send(self, signal: Signal) -> bool:
        """Store a signal. False: it was said before.

        Raises:
            RunOver: the run has ended.
            LookupError: whoever drives the run refuses it.
        """
        ...


class SignalHandle:
    """Says something to one run, from any process."""

    def __init__(self, id: str, signals: RunSignals) -> None:
        self.id: Final = id
        """The id of the run."""
        self._signals: Final = signals

    @refuse_old_arguments
    async def steer(self, text: str, *, who: str | None = None, idempotency_key: str | None = None) -> None:
        """Say something to the run before its next model call. The text is said once, in whichever life of the run. If
        the `idempotency_key` was used before, nothing is said.

        Raises:
            ValueError: the text is blank, or such a run takes no texts.
            RunOver: the run has ended.
            LookupError: whoever drives it refuses it; the text says why.
        """
        await self._send("steer", {"text": _check_text(text)}, idempotency_key, who)

    @refuse_old_arguments
    async def follow_up(self, text: str, *, who: str | None = None, idempotency_key: str | None = None) -> None:
        """Say something when nothing else is left to do. A durable run takes no such texts. Raises what `steer`
        raises."""
        await self._send("follow_up", {"text": _check_text(text)}, idempotency_key, who)

    async def withdraw(self, n: int, *, who: str | None = None) -> None:
        """Take back the text with this number, which waits to be said. A durable run gives none back.

        Raises:
            LookupError: it no longer waits.
            ValueError, RunOver: as for `steer`.
        """
        await self._send("withdraw", {"text": str(n)}, str(n), who)

    @refuse_old_arguments
    async def approve(self, question_id: str, decision: Decision, *, who: str | None = None) -> PendingQuestion:
        """Answer the question about a call that waits, and return the question. The first answer counts.

        `question_id` is that of the pending question, or its first six characters or more. `decision` is `Allow()`,
        `Deny("…")`, `Rewrite(…)` or `Stop()`. `who` is kept with the answer: the one who gave it.

        Raises:
            LookupError: no question waits under this id, it was answered before, or it has expired. The text says by
                whom and when.
            RunOver: the run has ended.
        """
        return await self._settle("approve", question_id, {"decision": DECISION.document_of(decision)}, who)

    @refuse_old_arguments
    async def answer(self, question_id: str, text: str, *, who: str | None = None) -> PendingQuestion:
        """Answer a question that the model has asked with `ask_user`, and return it. The first answer counts.
        `question_id` and `who` are as for `approve`.

        Raises:
            ValueError: the text is blank.
            LookupError, RunOver: as for `approve`.
        """
        return await self._settle("answer", question_id, {"text": _check_text(text)}, who)

    async def stop(self, reason: str = "cancelled", *, who: str | None = None) -> None:
        """End the run, or the turn of a chat, in whichever process drives it. It ends as `EXECUTION_CANCELLED`, with
        all that it has done so far and this `reason`. `who` is kept: the one who stopped it.

        Raises:
            RunOver: it has ended.
            ValueError: such a run cannot be stopped from outside.
        """
        await self._send("stop", {"reason": reason}, "stop", who)

    async def hold(self, *, who: str | None = None) -> None:
        """Let no further step of the run begin until it is released. Steps that have begun go on to their end.

        Raises:
            RunOver: it has ended.
        """
        await self._send("hold", {}, None, who)

    async def release(self, *, who: str | None = None) -> None:
        """Let a held run go on.

        Raises:
            RunOver: it has ended.
        """
        await self._send("release", {}, None, who)

    async def _send(self, kind: SignalKind, body: JsonObject, dedup: str | None, who: str | None) -> bool:
        if kind in self._signals.refuses:
            raise ValueError(self._signals.refuses[kind])
        given = Signal(0, self.id, kind, dedup or secrets.token_hex(8), body, self._signals.now(), who or somebody())
        try:
            return await self._signals.send(given)
        except RunOver:
            if kind in ("approve", "answer"):  # the run may have ended with the one of somebody else
                await self._check_answers(given.dedup, beside=given)
            raise

    async def _settle(self, kind: QuestionKind, question_id: str, body: JsonObject, who: str | None) -> PendingQuestion:
        waiting = await self._signals.questions()
        asked = [each for each in waiting if each.kind == kind and _is_meant(each.question_id, question_id)]
        asked = [each for each in asked if each.question_id == question_id] or asked
        # Two calls with the same arguments have the same digest: an answer to it is one to either.
        if len({each.question_id for each in asked}) != 1:
            await self._refuse(question_id, waiting)
        question, now = asked[0], self._signals.now()
        if question.expires_at is not None and question.expires_at <= now:
            raise LookupError(
                f"The question about {question.tool} expired {now - question.expires_at:,.0f} s ago, and counts as"
                " denied. Nothing was sent."
            )
        about: JsonObject = {} if question.question_id == question.key else {"digest": question.question_id}
        if not await self._send(kind, {**body, **about}, question.key, who):
            await self._refuse(question.key, ())
        return question

    async def _check_answers(self, id: str, *, beside: Signal | None = None) -> None:
        """Raise `AnsweredBefore` if the question with this id or key was answered, beside by a signal."""
        for signal in reversed(await self._signals.list_signals()):
            ids = signal.dedup, str(signal.body.get("digest", ""))
            is_answer = signal.kind in ("approve", "answer") and signal._replace(n=0) != beside
            if is_answer and any(_is_meant(each, id) for each in ids):
                raise AnsweredBefore(signal, age_s=self._signals.now() - signal.at)

    async def _refuse(self, question_id: str, waiting: Sequence[PendingQuestion]) -> NoReturn:
        """Raise the `LookupError` that says why a question cannot be answered."""
        await self._check_answers(question_id)
        if len(question_id) < _SHORTEST:
            raise LookupError(
                f"{quoted(question_id)} is no id of a question: give at least its first {_SHORTEST} characters."
            )
        names = ", ".join(f"{each.question_id[:12]} ({each.tool})" for each in waiting)
        waits = f"It waits for {names}." if names else "It waits for nobody."
        raise LookupError(f"No question waits under {quoted(question_id[:64])} in the run {self.id}. {waits}")


def _is_meant(id: str, given: str) -> bool:
    """Tell whether somebody who gives an id, or its beginning, means this one."""
    return id == given or (len(given) >= _SHORTEST and id.startswith(given))


def _check_text(text: str) -> str:
    """Return a text that somebody says, or raise a `ValueError`: there is nothing in it."""
    if not text.strip():
        raise ValueError("The text is blank: there is nothing to say.")
    return text
