"""A chat at the prompt: what is entered goes to the agent, to a command or to a question; what happens becomes lines.

Everything here happens in the thread of the chat's event loop. Where the lines go is not its concern. Read
`chat_asking.py` and `chat_commands.py` next.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final

from journeyman.agent import Agent
from journeyman.chat.chat import Chat
from journeyman.chat.questions import Answer
from journeyman.cli.chat.asking import Asking
from journeyman.cli.chat.chat_commands import find, obey
from journeyman.cli.chat.sessions import Place
from journeyman.cli.chat.tree import ChatTree, said
from journeyman.cli.chat.view import Entry, Shows
from journeyman.cli.reading import parse_input
from journeyman.cli.show.lines import Line
from journeyman.errors import InvalidArguments, JourneymanError
from journeyman.events.run import (
    ApprovalAnswered,
    ApprovalRequested,
    Event,
    IterationStarted,
    MessageCommitted,
    QuestionAnswered,
    QuestionAsked,
    RunStarted,
    TurnEnded,
)

_SAYS: Final = (MessageCommitted, IterationStarted, TurnEnded)
"""After these, something that waited may have been said."""
_QUEUED_ROWS: Final = 2


class Talk:
    """One chat at the prompt."""

    def __init__(self, agent: Agent[Any, Any], view: Shows, place: Place, *, shows_answers: bool = True) -> None:
        self.view: Final = view
        self.place: Final = place
        self.exit_code = 0
        self.left: Final = asyncio.Event()
        """Set when the user wants to leave."""
        self._agent = agent
        self._tree = ChatTree(agent, shows_answers=shows_answers)
        self._asking = Asking(agent, self._answer, view.ask)
        self._chat: Chat[Any, Any] | None = None
        self._waiting: tuple[tuple[str, str], ...] = ()
        """What was in the queues when they were looked at last."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def chat(self) -> Chat[Any, Any]:
        """The chat."""
        if self._chat is None:
            raise RuntimeError("The chat is not open yet. Use it after attach().")
        return self._chat

    def attach(self, chat: Chat[Any, Any]) -> None:
        """Take the chat, once it is open."""
        self._chat = chat
        self.look_at_queues()

    # -- what happens

    def hear(self, event: Event) -> None:
        """Listen to the chat."""
        lines: list[Line] = []
        if isinstance(event, _SAYS):
            lines += self._delivered()
        if isinstance(event, RunStarted) and len(event.path) == 1:
            self.view.begin()
        lines += self._tree.lines(event)
        lines += self._asked(event)
        self.view.write(self._tree.words)
        self.view.follow(event)
        if lines:
            self.view.say(lines)
        if isinstance(event, TurnEnded) and len(event.path) == 1:
            self.view.end()

    def _asked(self, event: Event) -> Iterator[Line]:
        if isinstance(event, ApprovalRequested | QuestionAsked):
            yield from self._asking.add(event)
        elif isinstance(event, ApprovalAnswered | QuestionAnswered):
            yield from self._asking.remove(event)

    def _answer(self, id: str, answer: Answer) -> None:
        self.chat.answer(id, answer)

    # -- what is entered

    def enter(self, entry: Entry) -> None:
        """Do what the user entered."""
        try:
            self.say(list(self._entered(entry)))
        except (JourneymanError, KeyError) as error:
            self.say([Line(mark="warning", text=str(error.args[0]), rows=4)])

    def _entered(self, entry: Entry) -> Iterator[Line]:
        text = entry.text
        if entry.id and not self._asking.is_open(entry.id):
            yield Line(mark="warning", text="Nothing waits for that answer any more.")
        elif entry.id and self._asking.takes(entry.id, text, is_command=find(text) is not None):
            yield from self._asking.enter(entry.id, text)
        elif text.startswith("/"):
            yield from obey(self, text)
        elif text.strip():
            yield from self._tell(text.strip())

    def _tell(self, text: str) -> Iterator[Line]:
        """Say `text`: now, or before the next model call."""
        if self.chat.state.is_running:
            self.chat.steer(text)
            self.look_at_queues()
            return
        yield said(text)
        try:
            value = parse_input(self._agent, text)
        except InvalidArguments as invalid:
            issues = "\n".join(invalid.issues)
            yield Line(mark="failed", text=f"The agent does not take this:\n{issues}", rows=8)
            return
        self.chat.start(value)
        self.view.begin()

    def interrupt(self) -> None:
        """Stop the turn, because the user pressed Ctrl-C."""
        self.chat.abort("interrupted (Ctrl-C)")

    def leave(self, exit_code: int) -> None:
        """Come to an end."""
        self.exit_code = exit_code
        self.left.set()

    def say(self, lines: Sequence[Line]) -> None:
        """Show lines."""
        if lines:
            self.view.say(lines)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what takes time."""
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except JourneymanError as error:
            self.say([Line(mark="warning", text=str(error), rows=4)])

    async def settle(self) -> None:
        """Wait until what takes time is done, and no turn goes on."""
        while self._tasks or self.chat.state.is_running:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.chat.wait_idle()

    async def close(self) -> None:
        """Stop what takes time, and wait for its end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- what waits

    def look_at_queues(self) -> None:
        """Show what waits to be said, and what was said of it."""
        self.say(list(self._delivered()))

    def withdraw(self) -> tuple[str, ...]:
        """Withdraw what waits to be said, and return it."""
        withdrawn = self.chat.clear()
        self._waiting = ()
        self.look_at_queues()
        return withdrawn

    def _delivered(self) -> Iterator[Line]:
        if self._chat is None:
            return
        state = self._chat.state
        now = (
            *(("queued", text) for text in state.steering),
            *(("when done", text) for text in state.follow_ups),
        )
        gone = Counter(self._waiting) - Counter(now)
        before, self._waiting = self._waiting, now
        for each in before:
            if gone[each]:
                gone[each] -= 1
                yield said(each[1], note="delivered")
        if now != before:
            self.view.queue([_queued(kind, text) for kind, text in now])


def _queued(kind: str, text: str) -> Line:
    return Line(indent=2, name=f"{kind}:", text=text, style="dim", rows=_QUEUED_ROWS)
