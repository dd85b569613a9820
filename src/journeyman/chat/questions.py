"""The questions to a person that wait: calls that a gate asks about, and questions of the model through the tool
`ask_user`.

Each is one event, then its answer, then the event of the answer. A turn that ends answers what is still open with a
denial. Where nobody listens, nothing is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from journeyman.cancellation import call_in
from journeyman.events import ApprovalAnswered, ApprovalRequested, QuestionAnswered, QuestionAsked
from journeyman.gate import DECISION_WORDS, Allow, Approval, Decision, Deny, Rewrite, Stop, current_guard
from journeyman.inbox import Outside
from journeyman.json_numbers import read_object
from journeyman.loop.watch import Watch
from journeyman.step import RunStep
from journeyman.tools.context import ToolContext, current_asker
from journeyman.tools.tools import tool
from journeyman.types import RunPath, Text, ToolResult

UNANSWERED = "nobody answered"

_Expected: TypeAlias = Literal["a decision", "a text"]

_FITTING: dict[_Expected, tuple[type, ...]] = {"a decision": (Allow, Deny, Rewrite, Stop), "a text": (str,)}


class Questions:
    """The open questions of one chat."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        """Hears of the questions: it is that of the chat."""
        self.outside: Outside | None = None
        """Who may answer from outside of the process, too: whoever is first is heard."""
        self._open: dict[str, tuple[_Expected, asyncio.Future[Decision | str]]] = {}
        self._n_asked = 0

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of what waits for an answer, oldest first."""
        return tuple(self._open)

    def answer(self, id: str, answer: Decision | str) -> None:
        """Answer what waits under `id`, as `Chat.answer` says. Any thread may."""
        waiting = self._open.get(id)
        if waiting is None:
            raise KeyError(f"Nothing waits for an answer under {id!r}. These wait: {list(self._open)}.")
        expects, future = waiting
        if not isinstance(answer, _FITTING[expects]):
            raise TypeError(f"{id!r} needs {expects}, not {type(answer).__name__}.")
        # Two threads may answer at once: whoever takes it out was first.
        if self._open.pop(id, None) is None:
            raise KeyError(f"{id!r} was answered just now.")

        def resolve() -> None:
            # The turn may have stopped waiting since.
            if not future.done():
                future.set_result(answer)

        # Only the thread of its loop may end a future.
        call_in(future.get_loop(), resolve)

    async def approve(self, approval: Approval, *, opened: Callable[[str], None] | None = None) -> Decision:
        """Let the chat's user decide about a call. `opened` is called with the id under which it waits."""
        if not self._is_anybody_there:
            return Deny(approval.question)
        id, request = self._next("approval"), approval.request
        decision: Decision = Deny(UNANSWERED)
        try:
            shown = partial(self.watch.show, asked_event(approval, id))
            answer = await self._wait_for_answer(id, "a decision", shown, opened, digest=approval.question_id)
            decision = Deny(answer) if isinstance(answer, str) else answer
            return decision
        finally:
            self.watch.show(answered_event(request.path, id, decision))

    async def ask(
        self,
        path: RunPath,
        question: str,
        options: Sequence[str],
        *,
        call: RunStep | None = None,
        opened: Callable[[str], None] | None = None,
    ) -> str | None:
        """Let the chat's user answer a question. None: nobody is there. `opened` is called with the id under which it
        waits."""
        if not self._is_anybody_there:
            return None
        id = self._next("question")
        asked = QuestionAsked(path=path, id=id, question=question, options=tuple(options))
        answer: str | None = None
        try:
            given = await self._wait_for_answer(id, "a text", lambda: self.watch.show(asked), opened)
            answer = given if isinstance(given, str) else None
            return answer
        finally:
            self.watch.show(QuestionAnswered(path=path, id=id, answer=answer))

    @property
    def _is_anybody_there(self) -> bool:
        return self.watch.is_heard or (self.outside is not None and self.outside.asks)

    async def _wait_for_answer(
        self,
        id: str,
        expects: _Expected,
        show: Callable[[], None],
        opened: Callable[[str], None] | None,
        *,
        digest: str = "",
    ) -> Decision | str:
        """Show the question, once it can be answered, and wait for the answer."""
        future: asyncio.Future[Decision | str] = asyncio.get_running_loop().create_future()
        self._open[id] = (expects, future)
        close = None if self.outside is None else self.outside.open(id, digest=digest, take=partial(self.answer, id))
        try:
            if opened is not None:
                opened(id)
            show()
            return await future
        finally:
            if close is not None:
                close()
            self._open.pop(id, None)

    def _next(self, kind: str) -> str:
        self._n_asked += 1
        return f"{kind}_{self._n_asked}"


def asked_event(approval: Approval, id: str) -> ApprovalRequested:
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
    )


def answered_event(path: RunPath, id: str, decision: Decision) -> ApprovalAnswered:
    """Return the event that tells how a call was decided."""
    reason: str = getattr(decision, "reason", "")
    return ApprovalAnswered(path=path, id=id, decision=DECISION_WORDS[type(decision)], reason=reason)


current_questions: ContextVar[Questions | None] = ContextVar("journeyman_questions", default=None)
"""Where the turn that goes on here asks its user."""


# -- the model's tool -------------------------------------------------------------------------------------------------

NOBODY: Final = "Nobody is there to answer. Decide by yourself, and say in your answer what you assumed."
"""What the model reads outside a chat, or in one to which nobody listens."""

_QUESTION = "What you need to know, in one or two sentences."
_OPTIONS = "Answers to choose from, if there are few; the user may answer something else."


@tool(effect="pure", permission_kind="ask_user")
async def ask_user(
    context: ToolContext,
    question: Annotated[str, Field(description=_QUESTION)],
    options: Annotated[list[str] | None, Field(description=_OPTIONS)] = None,
) -> str | ToolResult:
    """Ask the user, and wait for the answer. Ask only for what you cannot find out yourself."""
    asker = current_asker.get()
    # Its step is the same in each life of a durable run, so that a question is asked once.
    answer = None if asker is None else await asker.ask(context.path, question, options or (), call=context.step)
    if answer is None:
        return ToolResult(NOBODY, is_error=True)
    guard = current_guard.get()
    if guard is not None:  # the model has asked, but it is the user who speaks
        guard.hear([Text(answer)])
    return answer
