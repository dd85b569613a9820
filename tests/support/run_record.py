"""One run as it was seen from outside: what went in, what was told, what came out, and what was left behind.

`record` makes one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from journeyman import Abort, Agent, Callbacks, Event, Failure, Message, Runtime, Success, Usage, run, stream
from journeyman.events import CallbackContext, Listener, ModelResponded
from journeyman.types import Block, StopReason
from tests.support.counting_loop import the_counting_loop

AnyAgent: TypeAlias = Agent[Any, Any]
AnyResult: TypeAlias = Success[Any] | Failure

_LAST_BREATH_S = 5.0


@dataclass(slots=True, kw_only=True)
class Reply:
    """What a model gave for one request."""

    name: str
    """What the model calls itself in this answer: another name each time."""
    content: list[Block] = field(default_factory=list[Block])
    """The blocks that were complete."""
    stop_reason: StopReason | None = None
    """None: it broke off."""
    usage: Usage = field(default_factory=lambda: Usage(requests=1, exact=False))
    """What there is to count: what was reported, not exact if it broke off before all was."""
    is_measured: bool = True
    """False: how much of it arrived is not known, so `usage` is no more than a bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A callback was called."""

    name: str
    context: CallbackContext
    arguments: tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """One run."""

    agent: AnyAgent
    input: object
    given: Sequence[Message] = ()
    """The history that it went on from."""
    max_attempts: int | None = None
    callbacks: Callbacks | None = None
    listener: Listener | None = None
    runtime: Runtime | None = None
    abort: Abort | None = None
    replies: Sequence[Reply] | None = None
    """One for each request; None: the model kept no record."""
    replies_are_all: bool = True
    """False: requests may have been made that never arrived."""
    may_fail_inside: bool = False
    """Functions of the user that no rule protects may raise: `INTERNAL_ERROR` is then an ending like others."""
    watch: Literal["listener", "stream", "nobody"] = "listener"
    """Who sees the events. Without anybody there are none."""
    was_cancelled: bool = False
    """Somebody cancelled the task."""
    was_swallowed: bool = False
    """A function of the user caught the cancellation and went on: it was that function's to take."""
    is_nested: bool = False
    """A tool of another run made it."""
    stopped_at: int | None = None
    """How many events there were when somebody first stopped it; None if nobody did."""

    result: AnyResult | None = None
    raised: BaseException | None = None
    events: list[Event] = field(default_factory=list[Event])
    called: list[Called] = field(default_factory=list[Called])
    inside: list[RunRecord] = field(default_factory=list["RunRecord"])
    """The runs that tools of this run made."""
    leftovers: list[str] = field(default_factory=list[str])
    """What was alive when `run` was left, and had not been before."""
    n_parked_threads: int = 0
    """How many threads of tools wait for the end of the test."""

    @property
    def path(self) -> tuple[str, ...]:
        above = self.events[0].path[:-1] if self.is_nested and self.events else ()
        return (*above, self.agent.name)

    def heard(self, said: Sequence[Reply]) -> None:
        """Take over what a server said; what was heard to the end is known."""
        taken = {event.model for event in self.events if isinstance(event, ModelResponded)}
        self.replies = [replace(reply, is_measured=reply.name in taken) for reply in said]
        self.replies_are_all = False

    def tell(self, event: Event) -> None:
        """Keep the event, and let the listener have it."""
        self.events.append(event)
        if self.listener is not None:
            self.listener(event)

    @property
    def attempts(self) -> int:
        return self.agent.limits.attempts if self.max_attempts is None else self.max_attempts

    def result_of_task(self, task: asyncio.Task[RunRecord]) -> None:
        """Take over how the task ended: cancelled before its first step, it never came to record that."""
        if task.cancelled() and self.result is None:
            self.raised = asyncio.CancelledError()
        elif not task.cancelled() and (error := task.exception()) is not None:
            self.raised = error


async def record(given: RunRecord) -> RunRecord:
    """Run the agent, in the running task, and put into the record what is seen. Cancellation is recorded as well."""
    task = asyncio.current_task()
    assert task is not None
    before = _Alive.now()
    cancelling = task.cancelling()
    try:
        given.result = await _run(given)
    except asyncio.CancelledError as error:
        given.raised = error
    loop = the_counting_loop()
    given.n_parked_threads = 0 if loop is None else len(loop.parked)
    given.leftovers += _Alive.now().beyond(before)
    if given.raised is None and task.cancelling() != cancelling and not given.was_cancelled:
        given.leftovers.append("a cancellation that was not taken back")
    return given


async def _run(given: RunRecord) -> AnyResult:
    options: dict[str, Any] = {"callbacks": _recording(given), "abort": given.abort, "runtime": given.runtime}
    options |= {"max_attempts": given.max_attempts, "history": given.given}
    if given.watch != "stream":
        listener = given.tell if given.watch == "listener" else None
        ended: Any = await run(given.agent, given.input, on_event=listener, **options)
        return ended
    async with stream(given.agent, given.input, **options) as events:
        async for event in events:
            given.tell(event)
    return events.result


@dataclass(frozen=True, slots=True)
class _Alive:
    tasks: frozenset[asyncio.Task[Any]]
    timers: tuple[asyncio.TimerHandle, ...]
    threads: frozenset[threading.Thread]

    @classmethod
    def now(cls) -> _Alive:
        loop = the_counting_loop()
        timers = () if loop is None else loop.pending_timers()
        threads = frozenset(() if loop is None else loop.working_threads())
        return cls(frozenset(asyncio.all_tasks()), tuple(timers), threads)

    def beyond(self, before: _Alive) -> list[str]:
        """Return what is alive now and was not before. Threads that are about to end are waited for."""
        for thread in self.threads:
            thread.join(_LAST_BREATH_S)
        return [
            *(f"task {task!r}" for task in self.tasks - before.tasks),
            *(f"timer {timer!r}" for timer in self.timers if timer not in before.timers),
            *(f"thread {thread!r}" for thread in self.threads - before.threads if thread.is_alive()),
        ]


def _recording(given: RunRecord) -> Callbacks | None:
    """Return the record's callbacks, each noted before it is called."""
    if given.callbacks is None:
        return None
    functions = {each.name: getattr(given.callbacks, each.name) for each in dataclasses.fields(Callbacks)}
    return Callbacks(**{name: _noted(given, name, function) for name, function in functions.items() if function})


def _noted(given: RunRecord, name: str, function: Callable[..., object]) -> Callable[..., object]:
    def noted(context: CallbackContext, *arguments: object) -> object:
        given.called.append(Called(name=name, context=context, arguments=arguments))
        return function(context, *arguments)

    return noted
