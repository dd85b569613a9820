"""A chat without a terminal: each line of stdin is said when the one before is answered; nobody answers questions.

Answers go to stdout, everything else to stderr.
"""

from __future__ import annotations

import asyncio
import sys
from threading import Thread
from typing import Any, Final

from pydantic_core import to_json

from journeyman.agent import Agent, Host
from journeyman.cancel import Abort
from journeyman.chat.questions import NOBODY
from journeyman.cli.chat.dialog import Dialog
from journeyman.cli.chat.sessions import SessionFile
from journeyman.cli.chat.view import Entry, View
from journeyman.cli.run import Stdout, output_json, parse_input
from journeyman.cli.show.screen import Interrupt, PlainScreen, print_error, stderr_console
from journeyman.endings import ErrorCode
from journeyman.errors import InvalidArguments
from journeyman.events import ApprovalRequested, Event, QuestionAsked, TurnEnded
from journeyman.gate import Deny
from journeyman.result import Failure, Result, Success

_FAILED: Final = 1


def converse_plainly(agent: Agent[Any, Any], host: Host, sessions: SessionFile) -> int:
    """Say the lines of stdin to the agent, and return the exit code: 1 as soon as a turn fails."""
    screen, view, abort = PlainScreen(stderr_console()), View(), Abort()
    view.watch(lambda: screen.say(view.take()))
    plain = _Plain(agent, Dialog(agent, view, sessions, shows_answers=False))
    interrupt = Interrupt(abort, screen.stopping)
    interrupt.has_ended = True  # nothing runs yet: a signal quits
    with interrupt.listening(), asyncio.Runner() as runner:
        code = runner.run(_conversed(plain, host, abort, interrupt))
        interrupt.has_ended = True
    return code if interrupt.exit_code is None else interrupt.exit_code


class _Plain:
    """A chat with nobody who answers."""

    def __init__(self, agent: Agent[Any, Any], dialog: Dialog) -> None:
        self.agent: Final = agent
        self.dialog: Final = dialog
        self.stdout: Final = Stdout()
        self.results: list[Result[Any] | None] = []
        """The results of the turns that have ended and were not printed, oldest first."""

    def hear(self, event: Event) -> None:
        """Listen to the chat, and answer that nobody is there."""
        self.dialog.hear(event)
        match event:
            case ApprovalRequested():
                self.dialog.chat.answer(event.id, Deny(f"{event.question} Nobody is there to approve it."))
            case QuestionAsked():
                self.dialog.chat.answer(event.id, NOBODY)
            case TurnEnded(result=Success() | Failure() | None as result, path=path) if len(path) == 1:
                self.results.append(result)
            case _:
                pass


async def _conversed(plain: _Plain, host: Host, abort: Abort, interrupt: Interrupt) -> int:
    dialog, sessions = plain.dialog, plain.dialog.sessions
    async with sessions.opened(plain.agent, host, plain.hear) as chat:
        dialog.attach(chat)
        abort.subscribe(lambda: chat.abort(abort.reason or ""))
        lines = _lines_of_stdin(asyncio.get_running_loop())
        while not dialog.left.is_set() and (line := await lines.get()) is not None:
            interrupt.has_ended = False
            if not await _said(plain, line.strip()):
                return _FAILED
            interrupt.has_ended = True
        while sessions.tasks.active and not dialog.left.is_set():  # nothing more is said, so that it ends
            await sessions.tasks.wait()
            await dialog.settle()
            if not _print_all(plain):
                return _FAILED
    return dialog.exit_code


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
    plain.dialog.enter(Entry(line))
    await plain.dialog.settle()
    return _print_all(plain)


def _print_all(plain: _Plain) -> bool:
    """Print what the turns that have ended gave. False: one of them failed."""
    ended, plain.results = plain.results, []
    for result in ended:
        match result:
            case Success(output=str() as text):
                plain.stdout.write_text(text)
            case Success(output=output):
                plain.stdout.write_json(to_json(output_json(plain.agent, output)))
            case Failure(error=error):
                print_error(f"{error.code}: {error.message}", error.hint)
            case None:
                print_error("the turn was cancelled.", "Say it again.")
    return all(isinstance(result, Success) for result in ended)
