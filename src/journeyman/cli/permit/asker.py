"""Asks the person at the terminal about a call, or what the model wants to know, also where stdin and stdout lead
elsewhere: on `/dev/tty`.

One question after the other. What was typed before a question came is not its answer.
"""

from __future__ import annotations

import asyncio
import os
import termios
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from rich.console import Console

from journeyman.agent import Agent
from journeyman.cli.permit.asked import DENIED, Asked, Prompt, TerminalQuestion
from journeyman.cli.permit.policy import Nobody, find_watched_run
from journeyman.cli.show.lines import Line
from journeyman.cli.show.screen import PlainScreen, is_dumb
from journeyman.events import ApprovalRequested, QuestionAsked
from journeyman.gate import Approval, Decision, Deny
from journeyman.tools.context import Asker as AsksUser
from journeyman.tools.context import current_asker
from journeyman.types import RunPath

_AT_ONCE: Final = 65_536

T = TypeVar("T")

Edit: TypeAlias = Callable[[int, str, str], Awaitable[str | None]]
"""Lets a person edit a text, which is given after the terminal and a label. None: never mind."""


def open_terminal() -> int | None:
    """Return the terminal that this program was started from, if somebody is there: if it is in the foreground."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        if os.tcgetpgrp(terminal) == os.getpgrp():
            return terminal
    os.close(terminal)
    return None


@contextmanager
def asking(
    agent: Agent[Any, Any, Any],
    paused: Callable[[], AbstractContextManager[None]],
    tell: Callable[[Sequence[Line]], None],
    *,
    may_wait: bool = False,
) -> Generator[TerminalAsker | Nobody | None]:
    """Give what answers the questions of gates and models in this block: who is at the terminal, or nobody. None, where
    the runs may wait: nobody is here, and somebody may answer from elsewhere. Whoever follows a recorded run in the
    viewer may answer, too.

    `paused` keeps everyone else from writing to the terminal. `tell` gets the lines that say what nobody has answered.
    """
    terminal = open_terminal()
    if terminal is not None:
        try:
            yield TerminalAsker(agent, terminal, paused)
        finally:
            os.close(terminal)
        return
    nobody = Nobody()
    try:
        yield None if may_wait else nobody
    finally:
        if lines := list(nobody.lines()):
            tell(lines)


async def asked_by(asker: AsksUser | None, work: Coroutine[Any, Any, T]) -> T:
    """Do some work in which this one is asked what a model wants to know."""
    current_asker.set(asker)
    return await work


class TerminalAsker:
    """Asks on one terminal."""

    def __init__(
        self, agent: Agent[Any, Any, Any], terminal: int, paused: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._agent = agent
        self._terminal = terminal
        self._paused = paused
        self._turn = asyncio.Lock()

    async def approve(self, approval: Approval) -> Decision:
        """Ask about a call, and return the answer. Whoever follows the run in the viewer is asked, too; the first
        answer counts."""
        seen = find_watched_run()
        if seen is None:
            return await self._approve(approval)
        return await seen.outside.approver(seen.where, beside=self._approve)(approval)

    async def ask(self, path: RunPath, question: str, options: Sequence[str], *, call: str = "") -> str | None:
        """Ask what the model wants to know, in the same way, and return the answer; None after Ctrl-D."""
        seen = find_watched_run()
        if seen is None:
            return await self._ask_question(path, question, options)
        here = partial(self._ask_question, path, question, options)
        return await seen.outside.ask(path, question, options, call=call, beside=here)

    async def _approve(self, approval: Approval) -> Decision:
        answer = await self._ask(_event_of(approval))
        return Deny(DENIED) if answer is None or isinstance(answer, str) else answer

    async def _ask_question(self, path: RunPath, question: str, options: Sequence[str]) -> str | None:
        answer = await self._ask(QuestionAsked(path=path, id="", question=question, options=(*options,)))
        return answer if isinstance(answer, str) else None

    async def _ask(self, asked: Asked) -> Decision | str | None:
        """Return the answer; None after Ctrl-D."""
        question, prompt = TerminalQuestion(self._agent, asked, may_exit="run"), None
        async with self._has_turn():
            self._say(question.lines(os.get_terminal_size(self._terminal).lines or 24))
            while question.answer is None:
                is_new, prompt = question.prompt is not prompt, question.prompt
                text = await self._enter(prompt, is_new=is_new)
                if text is None:
                    return None
                self._say(question.enter(text))
            return question.answer

    @asynccontextmanager
    async def _has_turn(self) -> AsyncGenerator[None]:
        """Have the terminal for one question."""
        async with self._turn:
            with self._paused():
                try:
                    yield
                except asyncio.CancelledError:
                    os.write(self._terminal, b"\n")
                    self._say([Line(text="It is asked no more: it was answered elsewhere, or stopped.", rows=1)])
                    raise

    async def _enter(self, prompt: Prompt, *, is_new: bool) -> str | None:
        """Return the line that is entered; None: there will be none."""
        edit = _editor() if prompt.given else None
        shown = [prompt.hint] if edit is not None else [prompt.hint, prompt.given]
        self._say([Line(text=text, style="cyan", rows=30) for text in shown if text and is_new])
        if edit is not None:
            return await edit(self._terminal, prompt.label, prompt.given) or ""
        text = await self._line(prompt.label)
        return text or "" if prompt.given else text

    def _say(self, lines: Iterable[Line]) -> None:
        with os.fdopen(os.dup(self._terminal), "w", encoding="utf-8", errors="replace") as file:
            width = os.get_terminal_size(self._terminal).columns or 80
            look: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "soft_wrap": True}
            console = Console(file=file, force_terminal=not is_dumb(), width=width, **look)
            PlainScreen(console).say([*lines])

    async def _line(self, label: str) -> str | None:
        """Return the line that is entered; None: there will be none."""
        termios.tcflush(self._terminal, termios.TCIFLUSH)
        os.write(self._terminal, label.encode())
        entered = b""
        while not entered.endswith(b"\n"):
            async with _readable(self._terminal):
                more = os.read(self._terminal, _AT_ONCE)
            if not more:  # Ctrl-D, or the terminal is gone
                os.write(self._terminal, b"\n")
                return entered.decode("utf-8", "replace") or None
            entered += more
        return entered.decode("utf-8", "replace").rstrip("\n")


@asynccontextmanager
async def _readable(descriptor: int) -> AsyncGenerator[None]:
    """Wait until there is something to read."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    yield


def _editor() -> Edit | None:
    """Return what edits a line; None where its package is not installed."""
    try:
        edit: Edit = resolve_name("journeyman.cli.permit.editing:edit")
    except ModuleNotFoundError:
        return None
    return edit


def _event_of(approval: Approval) -> ApprovalRequested:
    request = approval.request
    return ApprovalRequested(
        path=request.path,
        id=request.tool_use_id,
        question=approval.question,
        tool_use_id=request.tool_use_id,
        tool_name=request.tool_name,
        arguments=request.arguments,
        question_id=approval.question_id,
        offers=approval.offers,
        rule=approval.rule,
    )


if TYPE_CHECKING:
    _asks: type[AsksUser] = TerminalAsker
