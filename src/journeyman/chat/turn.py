"""A turn of a chat that goes on, a hold that keeps turns from beginning, and what can be seen of a chat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack
from threading import RLock
from typing import Final, Generic, TypedDict

from typing_extensions import TypeVar

from journeyman.agent import Agent, Runtime
from journeyman.cancellation import Abort, NeverAwaited, is_done_for, wait_until_ended
from journeyman.chat.questions import Questions
from journeyman.connect import connect
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_sequence
from journeyman.endings import ErrorInfo
from journeyman.errors import ModelUnavailable, Problem
from journeyman.events import Callbacks, Listener
from journeyman.inbox.inbox import Inbox
from journeyman.loop.state import Run
from journeyman.model import Model, opened
from journeyman.result import CallbackError, Result
from journeyman.session import Session
from journeyman.tools.deps import deps_of_run, lacks_deps
from journeyman.types import NOTHING_USED, Message, ToolUse, Usage

Out = TypeVar("Out", default=str, covariant=True)

ABORTED: Final = "[The user stopped the work here.]"
"""What the model reads after an abort that interrupted it, before the next text."""


class OpenOptions(TypedDict, total=False):
    """The options of `Chat.open`, besides the agent, the place and the deps."""

    id: str | None
    runtime: Runtime | None
    callbacks: Callbacks | None
    on_event: Listener | None
    any_agent: bool
    create: bool


class ChatOptions(TypedDict, total=False):
    """The options of `Chat`, besides the agent and the deps."""

    runtime: Runtime | None
    history: Sequence[Message]
    callbacks: Callbacks | None
    on_event: Listener | None
    inbox: Inbox | None
    questions: Questions | None
    session: Session | None


@lazy_dataclass(frozen=True, kw_only=True)
class ChatState:
    """A chat as it was at one moment."""

    is_running: bool
    """True while a turn goes on."""
    is_held: bool
    """True while no turn may begin."""
    steering: tuple[str, ...]
    """The texts that wait for the next model call, oldest first."""
    follow_ups: tuple[str, ...]
    """The texts that wait for the next natural stop, oldest first."""
    pending_calls: tuple[ToolUse, ...]
    """Calls that have begun and not ended."""
    open_questions: tuple[str, ...]
    """Ids of approvals and questions that wait for `Chat.answer`, oldest first."""
    usage: Usage
    """What all turns have used so far."""
    last_error: ErrorInfo | None
    """Why the last turn failed; None if it did not fail, or while a turn goes on."""
    listener_errors: tuple[CallbackError, ...]
    """What listeners raised at events of the chat itself. The result of a run holds what they raise in that run."""


class Turn(NeverAwaited, Generic[Out]):
    """The work that one prompt began. Await it for its result. Cancelling the wait does not stop the turn.

    A hook may return it: it is not awaited there.
    """

    def __init__(self, chat_name: str) -> None:
        self.signal: Final = Abort()
        """Stops the runs of this turn."""
        self.note = ABORTED
        """What the model reads if the signal interrupts it."""
        self.task: asyncio.Task[Result[Out]] | None = None
        """The task that does the work; None before it begins."""
        self.run: Run | None = None
        """The run that goes on; None between two runs."""
        self.spent = NOTHING_USED
        """What those of its runs have used that have ended."""
        self.is_over = False
        """True once the chat is idle again, which is before anybody is told."""
        self._chat_name = chat_name
        self._lock = RLock()
        """Held while the turn is stopped: the note is that of whoever was first."""

    def abort(self, reason: str = "aborted by the user") -> None:
        """Stop the turn: its result is `Failure(EXECUTION_CANCELLED)`, and the model will read that it was stopped.

        Any thread may. Nothing happens once the turn has ended.
        """
        self.stop(reason, note=ABORTED)

    def stop(self, reason: str, *, note: str = "") -> None:
        """Stop the turn. `note` is for the model, if it is interrupted."""
        with self._lock:
            if not self.is_over and not self.signal.aborted:
                # Before the signal, since whoever it wakes reads the note.
                self.note = note
                self.signal.abort(reason)

    def is_here(self) -> bool:
        """Tell whether this is the task of the turn itself, which cannot wait for its own end."""
        return is_done_for(self.task)

    def cancel(self) -> None:
        """Cancel the work as a task is cancelled: there is no result, but the conversation is kept."""
        if self.task is not None:
            self.task.cancel()

    async def wait_until_settled(self) -> None:
        """Wait until the turn has ended and all listeners were told."""
        if self.task is not None and not self.task.done():
            # `asyncio.wait` neither raises what the task raised, nor cancels it if this wait is cancelled.
            await asyncio.wait([self.task])
        await self._let_chat_tell()

    async def wait_until_stopped(self) -> None:
        """Wait for a turn that nobody else waits for: whoever stops waiting cancels it, and still waits for its end."""
        try:
            if self.task is not None:
                await wait_until_ended(self.task, on_cancel=self.task.cancel)
        finally:
            await self._let_chat_tell()

    async def _let_chat_tell(self) -> None:
        """Let the chat tell of a turn that was cancelled before it began: that happens in this step of the loop."""
        if not self.is_over:
            await asyncio.sleep(0)

    @property
    def usage(self) -> Usage:
        """The usage of all runs of this turn so far, including steering and follow-ups, however they ended."""
        return self.spent + self.sum_usage()

    @property
    def cost(self) -> float | None:
        """The cost of the turn so far in US dollars; None when the price of anything is unknown."""
        return self.usage.cost

    def sum_usage(self) -> Usage:
        """Return the usage of the run that goes on."""
        return NOTHING_USED if self.run is None else self.run.ledger.usage

    def pending_calls(self) -> tuple[ToolUse, ...]:
        """Return the calls that have begun and not ended."""
        return () if self.run is None else tuple(self.run.calls.announced.values())

    def __await__(self) -> Generator[object, None, Result[Out]]:
        if self.is_here():
            raise RuntimeError("A turn cannot be waited for from inside itself: that would never end.")
        yield from self.wait_until_settled().__await__()
        if self.task is None:
            raise RuntimeError("The turn never began.")
        return self.task.result()

    def __repr__(self) -> str:
        return f"<Turn of {self._chat_name!r}, {'over' if self.is_over else 'going on'}>"


class Hold(NeverAwaited):
    """A hold on a chat: no turn begins from the moment when it is entered or awaited until it is left or released.

    A hook that returns it holds nothing: it is not awaited there.
    """

    def __init__(self, begin: Callable[[], Awaitable[None]], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end
        self._is_held = False

    def release(self) -> None:
        """Let the chat go. A second call changes nothing."""
        if self._is_held:
            self._is_held = False
            self._end()

    async def __aenter__(self) -> Hold:
        if not self._is_held:
            await self._begin()
            self._is_held = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def __await__(self) -> Generator[object, None, Hold]:
        return self.__aenter__().__await__()


async def opened_model(model: Model | str, stack: AsyncExitStack) -> Model | None:
    """Return the model, open until `stack` is left. None: there is none of that name, as every prompt will say."""
    if isinstance(model, str):
        try:
            model = connect(model)
        except ModelUnavailable:
            return None
    await stack.enter_async_context(opened(model))
    return model


def problems_of(agent: object, deps: object, history: object) -> Iterator[Problem]:
    """Return the problems of the agent, the deps or the history that a chat is given."""
    declared: object = getattr(agent, "deps", None)
    if not isinstance(agent, Agent):
        yield Problem("INVALID_ARGUMENT", f"The agent is {agent!r}.", "Pass an Agent(name=…, model=…).")
    elif (lack := lacks_deps(deps_of_run(deps, declared), declared)) is not None:
        yield Problem("WRONG_DEPS", lack, "")
    messages = history if is_sequence(history) else (history,)
    wrong = next((message for message in messages if not isinstance(message, Message)), None)
    if wrong is not None:
        hint = "Pass the messages of an earlier chat, or what load_messages gives."
        yield Problem("INVALID_ARGUMENT", f"history holds {wrong!r}, which is not a message.", hint)
