"""The calls of served agents: each is a run of its own, which a client starts, follows, answers and may cancel.

A run belongs to the server and not to the request that started it, because a question to the client may end that
request: the next one goes on with the same run. `CallRegistry` owns all of them, and none outlives it. Nothing here
    knows the protocol.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, TypeAlias

from journeyman import events
from journeyman.agent import Agent, Runtime
from journeyman.cancellation import Abort
from journeyman.gate import Approval, Decision
from journeyman.loop.run import run
from journeyman.result import Result
from journeyman.types import JsonObject

PATIENCE_S: Final = 600.0
"""How long a run waits for the answer to a question, in seconds, before it is given up."""
MAX_CALLS: Final = 64
"""How many calls may be under way at once, those that wait for an answer included."""
_NOTES_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """A report on the progress of a run, for a client that follows it."""

    number: int
    """The numbers of a call's notes begin at 1 and grow."""
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """An approval that a gate asks for, and the future that gets the answer."""

    key: str
    approval: Approval
    answer: asyncio.Future[Decision]


@dataclass(frozen=True, slots=True)
class ClientQuestions:
    """The client must answer these before the run goes on."""

    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The run has ended: with a result, or, which is a fault of this library or its host, with an exception."""

    result: Result[Any] | Exception


News: TypeAlias = ProgressReport | ClientQuestions | CallEnd


class TooManyCalls(Exception):
    """There are as many calls under way as there may be."""


@dataclass(slots=True, kw_only=True, eq=False)
class ServedCall:
    """One call: its run, and what the client has not heard of it yet."""

    tool_name: str
    arguments: JsonObject
    """The arguments as the client gave them."""
    abort: Abort = field(default_factory=Abort)
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """What a client must show to go on with this call. Nobody can guess it."""
    _notes: deque[ProgressReport] = field(default_factory=lambda: deque[ProgressReport](maxlen=_NOTES_KEPT))
    _n_notes: int = 0
    _open: dict[str, Question] = field(default_factory=dict[str, Question])
    _n_asked: int = 0
    _told: frozenset[str] = frozenset()
    """The questions that the client has been given in this request."""
    _ended: CallEnd | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _call_off: Callable[[], None] | None = None
    """Calls off the timer of a call that waits for its client."""

    # -- for the run

    def hear(self, event: events.Event) -> None:
        """Make a note of an event that a person would want to know of."""
        text = _note(event)
        if text:
            self._n_notes += 1
            self._notes.append(ProgressReport(self._n_notes, text))
            self._news.set()

    async def ask(self, approval: Approval) -> Decision:
        """Put a question to the client, and wait for its answer."""
        self._n_asked += 1
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        question = Question(f"approval-{self._n_asked}", approval, answer)
        self._open[question.key] = question
        self._news.set()
        try:
            return await answer
        finally:
            del self._open[question.key]

    def end(self, result: Result[Any] | Exception) -> None:
        self._ended = CallEnd(result)
        self._news.set()

    # -- for the client

    async def news(self) -> News:
        """Wait for what comes next. Notes first, then questions that were not told yet, then the end."""
        while True:
            if self._notes:
                return self._notes.popleft()
            if self._ended is not None:
                return self._ended
            unanswered = {key: each for key, each in self._open.items() if not each.answer.done()}
            if unanswered.keys() - self._told:
                self._told = frozenset(unanswered)
                return ClientQuestions(tuple(unanswered.values()))
            self._news.clear()
            await self._news.wait()

    def reply(self, key: str, decision: Decision) -> None:
        """Answer a question. One that is no longer open, because its time was up, is left alone."""
        question = self._open.get(key)
        if question is not None and not question.answer.done():
            question.answer.set_result(decision)

    def wait(self, seconds: float, give_up: Callable[[], None]) -> None:
        """Call `give_up` when the client has not come back by then."""
        self._call_off = asyncio.get_running_loop().call_later(seconds, give_up).cancel

    def go_on(self) -> None:
        """Take note that the client is back: what it left open is told again."""
        if self._call_off is not None:
            self._call_off()
            self._call_off = None
        self._told = frozenset()


def _note(event: events.Event) -> str:
    """Return the progress report for an event; empty for most."""
    match event:
        case events.IterationStarted(path=path, attempt=attempt, iteration=iteration):
            text = f"iteration {iteration}" if attempt == 1 else f"attempt {attempt}, iteration {iteration}"
        case events.ToolCalled(path=path, kind="tool", tool_name=text):
            pass
        case events.ToolProgress(path=path, tool_name=name, message=message):
            text = f"{name}: {message}"
        case events.ModelRetried(path=path, kind=kind, delay_s=delay_s):
            text = f"{kind}, again in {delay_s:.1f} s"
        case events.ValidationFailed(path=path, attempt=attempt):
            text = f"attempt {attempt} was rejected"
        case _:
            return ""
    return f"{' > '.join(path[1:])}: {text}" if len(path) > 1 else text  # the agent that was called needs no name


class CallRegistry:
    """All calls under way. Leaving the block aborts them and waits for their ends."""

    def __init__(
        self, *, abort: Abort | None = None, max_calls: int = MAX_CALLS, patience_s: float = PATIENCE_S
    ) -> None:
        """`abort` ends every run."""
        self._abort = abort
        self._max_calls = max_calls
        self._patience_s = patience_s
        self._group = asyncio.TaskGroup()
        self._under_way: set[ServedCall] = set()
        self._waiting: dict[str, ServedCall] = {}

    async def __aenter__(self) -> CallRegistry:
        await self._group.__aenter__()
        self._unsubscribe: Callable[[], None] = lambda: None
        if (abort := self._abort) is not None:
            self._unsubscribe = abort.subscribe(lambda: self._end_all(abort.reason or ""))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unsubscribe()
        self._end_all("the server is closing")
        await self._group.__aexit__(None, None, None)  # it would wrap the error, which is not of its tasks

    def _end_all(self, reason: str) -> None:
        """End every run; each returns what it has."""
        for call in [*self._under_way, *self._waiting.values()]:
            call.go_on()
            call.abort.abort(reason)
        self._waiting.clear()

    def start(
        self,
        agent: Agent[Any, Any, Any],
        value: object,
        call: ServedCall,
        runtime: Runtime,
        *,
        on_event: events.Listener | None,
    ) -> None:
        """Start the run of a call, in a task of its own with a copy of the caller's context.

        Raises:
            TooManyCalls: there are too many under way.
        """
        if len(self._under_way | {*self._waiting.values()}) >= self._max_calls:
            calls = "1 call is" if self._max_calls == 1 else f"{self._max_calls} calls are"
            raise TooManyCalls(f"{calls} under way, and no more are taken.")
        self._under_way.add(call)
        self._group.create_task(
            self._run(run(agent, value, on_event=on_event, abort=call.abort, runtime=runtime), call)
        )

    async def _run(self, running: Coroutine[Any, Any, Result[Any]], call: ServedCall) -> None:
        try:
            call.end(await running)
        except Exception as error:  # noqa: BLE001 - one broken run must not end the others: its client is told
            call.end(error)
        finally:
            self._under_way.discard(call)

    def wait(self, call: ServedCall) -> None:
        """Keep a call until its client comes back with the answers, or for as long as patience lasts."""

        def give_up() -> None:
            self._waiting.pop(call.token, None)
            call.abort.abort(f"the client did not answer within {self._patience_s:g} s")

        self._waiting[call.token] = call
        call.wait(self._patience_s, give_up)

    def go_on(self, token: str, tool_name: str, arguments: JsonObject) -> ServedCall | None:
        """Return the call that waits for this client; None if there is none, or it was another."""
        call = self._waiting.get(token)
        if call is None or (call.tool_name, call.arguments) != (tool_name, arguments):
            return None
        del self._waiting[token]
        call.go_on()
        return call
