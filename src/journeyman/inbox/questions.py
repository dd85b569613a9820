"""The questions to people that wait in this process: calls that a gate asks about, and what models want to know.

A question is told by one event once it can be answered, and its answer by another one. Whoever answers first is heard:
the program, a terminal, a client, or a signal from another process. The others are told who that was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, get_args

from journeyman.cancellation import call_in, current_scope
from journeyman.definition.json_numbers import read_object
from journeyman.endings import Place
from journeyman.events import ApprovalAnswered, ApprovalRequested, QuestionAnswered, QuestionAsked
from journeyman.gate import DECISION_WORDS, Approval, Approver, Decision, Deny
from journeyman.gate import answer as decide
from journeyman.step import RunStep
from journeyman.types import RunPath

UNANSWERED = "nobody answered"
PATIENCE_S: Final = 60.0
"""A question that only those outside of the process are asked waits so long after the last of them has looked."""
# Nobody tells when the last of those who look has gone, so it is asked.
_LOOK_S: Final = 1.0
_FIRST_KEPT: Final = 1_000
_HERE: Final = "somebody here"

QuestionEvent: TypeAlias = ApprovalRequested | QuestionAsked
"""The event that tells of a question."""


class Elsewhere(NamedTuple):
    """Those in other processes who are asked, too. What is answered is stored, and the store says who was first."""

    wait: Callable[[], Coroutine[Any, Any, Decision | str | None]]
    """Waits for an answer from there."""
    store: Callable[[Decision | str, str], Coroutine[Any, Any, tuple[Decision | str, str]]]
    """Stores an answer, and who gave it, unless there is one. Returns the answer that counts, and who gave that."""


class HearsQuestions(Protocol):
    """A port for whoever is told of questions and of their answers."""

    @property
    def is_heard(self) -> bool:
        """True when somebody in this process may answer."""
        ...

    def show(self, event: QuestionEvent | ApprovalAnswered | QuestionAnswered) -> None:
        """Take in the next event."""
        ...


W = TypeVar("W", bound=HearsQuestions)


class Asker(Protocol):
    """A port that puts a tool's question to the user: of the chat in which it is called, or of the durable run."""

    async def ask(
        self, path: tuple[str, ...], question: str, options: Sequence[str], *, call: RunStep | None = None
    ) -> str | None:
        """Return the user's answer, which need not be one of the options. None: nobody is there.

        `call` says which call it is, if that may be made again in another life of the run: one that only asks.
        """
        ...


class FirstAnswer(str):
    """The answer that counts, and who gave it: `answered before: allow, by Ann`. Whoever is asked beside is cancelled
    with it."""


class _OpenQuestion(NamedTuple):
    """A question that waits."""

    asked: QuestionEvent
    given: asyncio.Future[tuple[Decision | str | None, str]]
    """Its answer, and who gave it; None once it is known that there will be none."""


class PendingQuestions(Generic[W]):
    """The questions that wait in one place: in a chat, a team, or a recorded run."""

    def __init__(self, watch: W, *, asks_outside: Callable[[], bool] = bool) -> None:
        self.watch: Final = watch
        """Hears of the questions."""
        self.asks_outside = asks_outside
        """Tells whether somebody outside of the process may answer, too."""
        self._open: dict[str, _OpenQuestion] = {}
        self._first: dict[str, FirstAnswer] = {}
        """By the ids of the last questions."""
        self._n_asked = 0

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of what waits for an answer, oldest first."""
        return tuple(self._open)

    @property
    def asks(self) -> bool:
        """True when somebody may answer."""
        return self.watch.is_heard or self.asks_outside()

    def answer(self, id: str, answer: Decision | str, *, question_id: str | None = None, who: str = _HERE) -> None:
        """Answer what waits under `id`. Any thread may. `question_id` is that of the call which was decided about.

        Raises:
            KeyError: nothing waits under this id, or no longer; the text says who was first.
            TypeError: a call needs a decision, and a question a text.
            ValueError: another call waits than was decided about.
        """
        waiting = self._open.get(id)
        if waiting is None and id in self._first:
            raise KeyError(f"This was {self._first[id]}.")
        if waiting is None:
            raise KeyError(f"Nothing waits for an answer under {id!r}. These wait: {list(self._open)}.")
        if question_id not in (None, waiting.asked.question_id):
            raise ValueError("it is about another call")
        is_call = isinstance(waiting.asked, ApprovalRequested)
        if not isinstance(answer, get_args(Decision) if is_call else str):
            raise TypeError(f"{id!r} needs {'a decision' if is_call else 'a text'}, not {type(answer).__name__}.")
        if not self._take(waiting, answer, who):
            raise KeyError(f"This was {self._first[id]}.")

    def find_first(self, id: str) -> str | None:
        """Say what was answered to one of the last questions, and by whom: `answered before: allow, by Ann`."""
        return self._first.get(id)

    def _take(self, waiting: _OpenQuestion, answer: Decision | str | None, who: str) -> bool:
        """Let an answer count if it is the first one, and tell whether it is."""
        given = _describe_first(answer, who)
        # Several threads may answer at once: whoever gets it in was first.
        if self._first.setdefault(waiting.asked.id, given) is not given:
            return False
        self._open.pop(waiting.asked.id, None)
        # Only the thread of its loop may end a future. The turn may have stopped waiting since.
        call_in(waiting.given.get_loop(), lambda: waiting.given.done() or waiting.given.set_result((answer, who)))
        return True

    async def approve(
        self,
        approval: Approval,
        *,
        place: Place | None = None,
        opened: Callable[[str], None] | None = None,
        beside: Approver | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> Decision:
        """Let somebody decide about a call; `beside` is asked, too. `place` is where in its run it is asked, as far as
        that is told. `opened` is called with the id under which it waits."""
        if not self.asks and beside is None:
            return Deny(approval.question)
        asked = asked_event(approval, self._next("approval"), place)
        given = await self._wait(
            asked, opened, None if beside is None else partial(decide, approval, beside), elsewhere
        )
        return Deny(f"{UNANSWERED}: {approval.question}") if given is None or isinstance(given, str) else given

    async def ask(
        self,
        path: RunPath,
        question: str,
        options: Sequence[str],
        *,
        call: RunStep | None = None,
        opened: Callable[[str], None] | None = None,
        beside: Callable[[], Coroutine[Any, Any, str | None]] | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> str | None:
        """Let somebody answer a question; `beside` is asked, too. None: nobody is there, or nobody has answered.
        `opened` is called with the id under which it waits."""
        if not self.asks:
            return None
        id, tool_use_id = self._next("question"), None if call is None else call.call
        asked = QuestionAsked(path=path, id=id, question=question, options=tuple(options), tool_use_id=tool_use_id)
        given = await self._wait(asked, opened, beside, elsewhere)
        return given if isinstance(given, str) else None

    async def _wait(
        self,
        asked: QuestionEvent,
        opened: Callable[[str], None] | None,
        beside: Callable[[], Coroutine[Any, Any, Decision | str | None]] | None,
        elsewhere: Elsewhere | None,
    ) -> Decision | str | None:
        """Show the question, once it can be answered, wait for the answer, and show that. None: there will be none."""
        waiting = self._open[asked.id] = _OpenQuestion(asked, asyncio.get_running_loop().create_future())

        beside = beside if elsewhere is None else elsewhere.wait

        async def ask_here(beside: Callable[[], Coroutine[Any, Any, Decision | str | None]]) -> None:
            self._take(waiting, await beside(), _HERE)

        here, counts = None, None
        try:
            if opened is not None:
                opened(asked.id)
            self.watch.show(asked)
            here = None if beside is None else asyncio.create_task(ask_here(beside))
            answer, who = await self._answer_to(waiting.given, here)
            if answer is not None and elsewhere is not None:
                answer, who = await elsewhere.store(answer, who)
                self._first[asked.id] = _describe_first(answer, who)
            counts = answer
            return answer
        finally:
            self._open.pop(asked.id, None)
            if here is not None and not here.done():
                # Whoever is asked here is asked no more, and has ended before the answer is used.
                here.cancel(self._first.get(asked.id))
                await asyncio.wait((here,))
            # Whoever answered was told that it counts, also where nothing waits for it any more.
            if counts is None and waiting.given.done() and not waiting.given.cancelled():
                counts, _ = waiting.given.result()
            self.watch.show(answered_event(asked, counts))

    async def _answer_to(
        self, given: asyncio.Future[tuple[Decision | str | None, str]], here: asyncio.Task[None] | None
    ) -> tuple[Decision | str | None, str]:
        """Wait for an answer. None: there is none, or nobody has looked for so long that none will come.

        As long as only those are asked who are outside, no time of the run passes.
        """
        is_here, left_s, scope = self.watch.is_heard, PATIENCE_S, current_scope.get()
        if is_here and here is None:
            return await given
        look_s = None if is_here or here is not None else _LOOK_S
        async with nullcontext() if is_here or scope is None else scope.pause_deadlines():
            while not given.done() and left_s > 0:
                waits = (given,) if here is None or here.done() else (given, here)
                await asyncio.wait(waits, timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
                if here is not None and here.done() and not given.done():
                    here.result()  # its failure is that of the question
                left_s = PATIENCE_S if look_s is None or self.asks else left_s - _LOOK_S
        return given.result() if given.done() else (None, "")

    def _next(self, kind: str) -> str:
        self._n_asked += 1
        if len(self._first) > _FIRST_KEPT:
            del self._first[next(iter(self._first))]
        return f"{kind}_{self._n_asked}"


def _describe_first(answer: Decision | str | None, who: str) -> FirstAnswer:
    word = "nothing" if answer is None else "a text" if isinstance(answer, str) else DECISION_WORDS[type(answer)]
    return FirstAnswer(f"answered before: {word}, by {who}")


def asked_event(approval: Approval, id: str, place: Place | None = None) -> ApprovalRequested:
    """Return the event by which somebody is asked about a call, under an id."""
    request = approval.request
    return ApprovalRequested(
        path=request.path,
        id=id,
        question=approval.question,
        tool_use_id=request.tool_use_id,
        tool_name=request.tool_name,
        arguments=read_object(request.input_json),  # a copy: the call keeps what was asked about
        question_id=approval.question_id,
        offers=approval.offers,
        rule=approval.rule,
        attempt=None if place is None else place.attempt,
        iteration=None if place is None else place.iteration,
    )


def answered_event(asked: QuestionEvent, given: Decision | str | None) -> ApprovalAnswered | QuestionAnswered:
    """Return the event that tells what was answered to a question. None: nothing was."""
    place: Any = {name: getattr(asked, name) for name in ("path", "id", "tool_use_id", "attempt", "iteration")}
    if isinstance(asked, QuestionAsked):
        return QuestionAnswered(**place, answer=given if isinstance(given, str) else None)
    decision = Deny(UNANSWERED) if given is None or isinstance(given, str) else given
    return ApprovalAnswered(**place, decision=DECISION_WORDS[type(decision)], reason=getattr(decision, "reason", ""))
