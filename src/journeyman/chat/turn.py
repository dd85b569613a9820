"""A turn of a chat under way, a hold that keeps turns from beginning, what can be seen of both, and what the model
reads of an interruption. `chat.py` makes them. Imports `agent`, `cancel`, `execution` and values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic

from typing_extensions import TypeVar

from journeyman.agent import Agent
from journeyman.cancel import Abort
from journeyman.endings import Ending
from journeyman.loop.record import Run
from journeyman.result import CallbackError, Result
from journeyman.types import NOTHING_USED, Effect, ToolUse, Usage

Out = TypeVar("Out", default=str, covariant=True)

ABORTED: Final = "[The user stopped the work here.]"
"""What the model reads after an abort that interrupted it, in front of whatever is said next."""


INTERRUPTED: Final[Mapping[Effect, str]] = {
    "pure": "Error: interrupted before it finished. It changes nothing, so it may be called again.",
    "idempotent": "Error: interrupted before it finished. It may be called again with the same arguments.",
    "once": "Error: interrupted before it finished. Whether it took effect is unknown: find out before calling again.",
}
"""How a call is closed that a death or a cancellation cut off, by the effect of its tool."""


def closing_of(agent: Agent[Any, Any]) -> Callable[[ToolUse], str]:
    """Return what closes a call of `agent` that was cut off."""
    plan = agent.plan
    default: Effect = "idempotent" if agent.tools_are_idempotent else "once"

    def closing(call: ToolUse) -> str:
        if call.name in (plan.output_name, plan.submit_name):
            return INTERRUPTED["pure"]
        tool = plan.tools.get(call.name)
        return INTERRUPTED["once" if tool is None else tool.effect or default]

    return closing


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatState:
    """A chat as it was at one moment."""

    is_running: bool
    """True while a turn goes on."""
    is_held: bool
    """True while no turn may begin."""
    steering: tuple[str, ...]
    """What waits for the next model call, oldest first."""
    follow_ups: tuple[str, ...]
    """What waits for the next natural stop, oldest first."""
    pending_calls: tuple[ToolUse, ...]
    """Calls that have begun and not ended."""
    open_questions: tuple[str, ...]
    """Ids of approvals and questions that wait for `Chat.answer`, oldest first."""
    usage: Usage
    """Of all turns so far."""
    last_error: Ending | None
    """Why the last turn failed; None when it did not, or while one goes on."""
    listener_errors: tuple[CallbackError, ...]
    """What listeners raised at events of the chat itself. What they raise in a run is in its result."""


class Turn(Generic[Out]):
    """What one prompt began. Await it for its result; who stops waiting does not stop the turn."""

    def __init__(self, chat_name: str) -> None:
        self.signal: Final = Abort()
        """Stops the runs of this turn."""
        self.note = ABORTED
        """What the model reads if the signal interrupts it."""
        self.run: Run | None = None
        """The run that goes on."""
        self.is_over = False
        """True once the chat is idle again, which is before anybody is told."""
        self._chat_name = chat_name
        self._task: asyncio.Task[Result[Out]] | None = None

    def abort(self, reason: str = "aborted by the user") -> None:
        """Stop the turn: its result is `Failure(EXECUTION_CANCELLED)`, and the model will read that it was stopped.

        Any thread may. Without effect once the turn is over.
        """
        self.stop(reason, note=ABORTED)

    def stop(self, reason: str, *, note: str = "") -> None:
        """Stop the turn. `note` is for the model, if it is interrupted."""
        if not self.is_over and not self.signal.aborted:
            self.note = note
            self.signal.abort(reason)

    def carry(self, task: asyncio.Task[Result[Out]]) -> None:
        """Take the task that does the work."""
        self._task = task

    def is_here(self) -> bool:
        """Tell whether this is the task of the turn itself, which cannot wait for its own end."""
        return self._task is asyncio.current_task()

    def cancel(self) -> None:
        """Cancel the work as a task is cancelled: there is no result, but the conversation is kept."""
        if self._task is not None:
            self._task.cancel()

    async def settled(self) -> None:
        """Wait until the turn is over and everybody was told."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
        if not self.is_over:  # it was cancelled before it began, and its chat is told in this step of the event loop
            await asyncio.sleep(0)

    async def stopped(self) -> None:
        """Wait for a turn that nobody else waits for: who stops waiting cancels it, and still waits for its end."""
        was_cancelled = False
        while True:
            try:
                await self.settled()
                break
            except asyncio.CancelledError:
                was_cancelled = True
                self.cancel()
        if was_cancelled:
            raise asyncio.CancelledError

    def used(self) -> Usage:
        """Return what the run that goes on has used."""
        return NOTHING_USED if self.run is None else self.run.ledger.usage

    def pending_calls(self) -> tuple[ToolUse, ...]:
        """Return the calls that have begun and not ended."""
        return () if self.run is None else tuple(self.run.calls.announced.values())

    async def _result(self) -> Result[Out]:
        await self.settled()
        if self._task is None:
            raise RuntimeError("The turn never began.")
        return self._task.result()

    def __await__(self) -> Generator[object, None, Result[Out]]:
        return self._result().__await__()

    def __repr__(self) -> str:
        return f"<Turn of {self._chat_name!r}, {'over' if self.is_over else 'going on'}>"


class Hold:
    """Keeps a chat from beginning turns, from when it is entered or awaited until it is left or released."""

    def __init__(self, begin: Callable[[], Awaitable[None]], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end
        self._is_held = False

    def release(self) -> None:
        """Let the chat go. Again, it changes nothing."""
        if self._is_held:
            self._is_held = False
            self._end()

    async def __aenter__(self) -> Hold:
        if not self._is_held:
            await self._begin()
            self._is_held = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __await__(self) -> Generator[object, None, Hold]:
        return self.__aenter__().__await__()
