"""A chat without a terminal: each line of stdin is said when the one before is answered; nobody answers questions.

Answers go to stdout, everything else to stderr. Read `chat.py` next.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from journeyman.agent import Agent, Host
from journeyman.cancel import Abort
from journeyman.chat.questions import NOBODY
from journeyman.cli.chat.sessions import Place
from journeyman.cli.chat.talk import Talk
from journeyman.cli.chat.view import Entry, Prompt, Shows
from journeyman.cli.run import Stdout, output_json, parse_input
from journeyman.cli.show.lines import Line
from journeyman.cli.show.screen import Interrupt, PlainScreen, print_error, stderr_console
from journeyman.endings import ErrorCode
from journeyman.errors import InvalidArguments
from journeyman.events import ApprovalRequested, Event, QuestionAsked, TurnEnded
from journeyman.gate import Deny
from journeyman.result import Failure, Result, Success

_FAILED: Final = 1


def converse_plainly(agent: Agent[Any, Any], host: Host, place: Place) -> int:
    """Say the lines of stdin to the agent, and return the exit code: 1 as soon as a turn fails."""
    view = PlainView()
    plain = _Plain(agent, Talk(agent, view, place, shows_answers=False))
    abort = Abort()
    interrupt = Interrupt(abort, view.stopping)
    interrupt.has_ended = True  # nothing runs yet: a signal quits
    with interrupt.listening(), asyncio.Runner() as runner:
        code = runner.run(_conversed(plain, host, abort, interrupt))
        interrupt.has_ended = True
    return code if interrupt.exit_code is None else interrupt.exit_code


class PlainView:
    """Prints each line once, as it comes, and nothing that moves."""

    def __init__(self) -> None:
        self._screen = PlainScreen(stderr_console())

    def say(self, lines: Sequence[Line]) -> None:
        """Print finished lines."""
        self._screen.say(lines)

    def stopping(self) -> None:
        """Say that the user's wish to stop was heard."""
        self._screen.stopping()

    def begin(self) -> None:
        return

    def end(self) -> None:
        return

    def follow(self, event: Event) -> None:
        return

    def write(self, words: str) -> None:
        return

    def queue(self, lines: Sequence[Line]) -> None:
        return

    def ask(self, prompt: Prompt) -> None:
        return

    def stop(self) -> bool:
        return True


class _Plain:
    """A chat with nobody who answers."""

    def __init__(self, agent: Agent[Any, Any], talk: Talk) -> None:
        self.agent: Final = agent
        self.talk: Final = talk
        self.stdout: Final = Stdout()
        self.results: list[Result[Any] | None] = []
        """Of the turns that have ended and were not printed, oldest first."""

    def hear(self, event: Event) -> None:
        """Listen to the chat, and answer that nobody is there."""
        self.talk.hear(event)
        match event:
            case ApprovalRequested():
                self.talk.chat.answer(event.id, Deny(f"{event.question} Nobody is there to approve it."))
            case QuestionAsked():
                self.talk.chat.answer(event.id, NOBODY)
            case TurnEnded(result=Success() | Failure() | None as result, path=path) if len(path) == 1:
                self.results.append(result)
            case _:
                pass


async def _conversed(plain: _Plain, host: Host, abort: Abort, interrupt: Interrupt) -> int:
    talk = plain.talk
    async with talk.place.opened(plain.agent, host, plain.hear) as chat:
        talk.attach(chat)
        abort.subscribe(lambda: chat.abort(abort.reason or ""))
        lines = _lines_of_stdin(asyncio.get_running_loop())
        while not talk.left.is_set() and (line := await lines.get()) is not None:
            interrupt.has_ended = False
            if not await _said(plain, line.strip()):
                return _FAILED
            interrupt.has_ended = True
        while talk.place.tasks.active and not talk.left.is_set():  # nothing more is said, so that it ends
            await talk.place.tasks.wait()
            await talk.settle()
            if not _print_all(plain):
                return _FAILED
    return talk.exit_code


def _lines_of_stdin(loop: asyncio.AbstractEventLoop) -> asyncio.Queue[str | None]:
    """Return the lines of stdin as they come, and then None. A thread reads, which nobody has to wait for."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        given = sys.stdin.buffer if sys.stdin is not None else ()
        for line in given:
            loop.call_soon_threadsafe(lines.put_nowait, line.decode("utf-8", "replace"))
        loop.call_soon_threadsafe(lines.put_nowait, None)

    Thread(target=read, name="journeyman-stdin", daemon=True).start()
    return lines


async def _said(plain: _Plain, line: str) -> bool:
    """Say one line, or do what it commands, and print what comes of it. False: it failed."""
    if not line.startswith("/"):
        try:
            parse_input(plain.agent, line)
        except InvalidArguments as invalid:
            print_error(f"{ErrorCode.INVALID_INPUT}: {invalid}", "Give one line of JSON for each prompt.")
            return False
    plain.talk.enter(Entry(line))
    await plain.talk.settle()
    return _print_all(plain)


def _print_all(plain: _Plain) -> bool:
    """Print what the turns that have ended gave. False: one of them failed."""
    ended, plain.results = plain.results, []
    return all([_printed(plain, result) for result in ended])


def _printed(plain: _Plain, result: Result[Any] | None) -> bool:
    match result:
        case Success(output=str() as text):
            plain.stdout.write_text(text)
        case Success(output=output):
            plain.stdout.write_json(to_json(output_json(plain.agent, output)))
        case Failure(error=error):
            print_error(f"{error.code}: {error.message}", error.hint)
        case None:
            print_error("the turn was cancelled.", "Say it again.")
    return isinstance(result, Success)


if TYPE_CHECKING:
    _view: Shows = PlainView()
