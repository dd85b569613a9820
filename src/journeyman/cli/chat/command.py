"""`journeyman chat`: a conversation with an agent, in a terminal or over a pipe.

What draws the terminal is imported by its name, and only in a terminal: its package is an extra. Over a pipe each line
of stdin is said when the one before is answered, answers go to stdout, and nobody answers questions.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from pkgutil import resolve_name
from shlex import quote
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter
from pydantic_core import to_json

from journeyman.agent import Agent, Host
from journeyman.cancel import Abort
from journeyman.chat.chat import Chat
from journeyman.chat.questions import NOBODY
from journeyman.cli.app import Mistake
from journeyman.cli.chat.dialog import Dialog
from journeyman.cli.chat.sessions import SessionFile, data_folder, make_folder
from journeyman.cli.chat.tree import recalled
from journeyman.cli.chat.view import Entry, Keys, View
from journeyman.cli.loading import load_model
from journeyman.cli.opening import OPENING_S, AgentLoop
from journeyman.cli.run import Flag, Stdout, output_json, parse_input
from journeyman.cli.show.lines import EMPTY, Line
from journeyman.cli.show.log import log_shown
from journeyman.cli.show.screen import Interrupt, PlainScreen, hearing, print_error, stderr_console
from journeyman.endings import ErrorCode
from journeyman.errors import InvalidArguments
from journeyman.events import ApprovalRequested, Event, QuestionAsked, TurnEnded
from journeyman.files import make_private_folder
from journeyman.gate import Deny
from journeyman.permission.approvals import Approvals
from journeyman.permission.permission import Mode, Permission
from journeyman.result import Failure, Result, Success

if TYPE_CHECKING:
    from journeyman.cli.chat.terminal import Terminal

_DAY_S: Final = 86_400.0
_FAILED: Final = 1
_TERMINATED: Final = 143


def chat(  # noqa: PLR0913 - one for each choice, all by name
    target: Annotated[str, Parameter(name="FILE:AGENT")],
    /,
    *,
    resume: str | None = None,
    session_file: Path | None = None,
    model: str | None = None,
    mode: Mode | None = None,
    debug: Flag = False,
    mcp: Path | None = None,
    pins: Path | None = None,
    timeout: float = OPENING_S,
) -> int:
    """Talk with an agent. What is typed while it works steers it. /help shows what else there is.

    What it may not do by itself is asked about; the conversation is kept. Without a terminal, each line of stdin is
    said in turn, and the answers go to stdout.

    Args:
        target: A Python file or a module, a colon, and the agent in it, or the function or context manager that gives
            one: agents.py:analyst. Where there is one agent only, the file is enough.
        resume: Go on with the conversation that has this id; without an id with the latest of this agent.
        session_file: Keep the conversations in this file instead of the one in the user's data folder.
        model: Use this model instead of the agent's, for example anthropic:claude-sonnet-5-5.
        mode: What happens to calls of which no rule speaks, by the gate that an agent without one gets (balanced),
            or besides its own.
        debug: Show the traceback of whatever the agent's own code raises, also where the chat goes on.
        mcp: Give the agent the tools of the MCP servers in this file, too: mcp.json, as desktop programs have it.
        pins: Refuse tools that are not as `journeyman mcp pin` has pinned them in this file.
        timeout: How many seconds a function or context manager may take to give the agent.
    """
    is_terminal = os.isatty(0) and os.isatty(1) and os.environ.get("TERM", "") not in ("dumb", "unknown")
    stdout = None if is_terminal else Stdout()
    with AgentLoop(timeout) as loop:
        agent = loop.agent(target, mcp=mcp, pins=pins)
        host = Host(model=load_model(model), gate=_gate(agent, target, mode))
        sessions = SessionFile(given=session_file, resume=resume)
        if stdout is not None:
            return _converse_plainly(loop, _Plain(agent, sessions, stdout), host, debug=debug)
        try:
            return _converse(loop, agent, host, sessions, debug=debug)
        finally:
            _tell_how_to_go_on(target, sessions)


def _tell_how_to_go_on(target: str, sessions: SessionFile) -> None:
    if not sessions.id:
        return
    file = "" if sessions.given is None else f" --session-file {quote(str(sessions.path))}"
    text = f"Go on with it: journeyman chat {quote(target)}{file} --resume {sessions.id}"
    PlainScreen(stderr_console()).say([Line(text=text, style="dim", rows=3)])


def _gate(agent: Agent[Any, Any, Any], target: str, mode: Mode | None) -> Permission | None:
    """Return the gate around the agent: for one without a gate of its own, or where a mode is asked for."""
    if mode is None and agent.gate:
        return None
    place = hashlib.sha256(os.path.abspath(target).encode()).hexdigest()[:12]  # noqa: PTH100 - it may be no path
    folder = data_folder() / "approvals"
    make_folder(folder)
    approvals = Approvals(folder / f"{agent.name}-{place}.json", expires_s=_DAY_S)
    return Permission(mode=mode or "balanced", approvals=approvals)


# -- in a terminal ----------------------------------------------------------------------------------------------------


def _converse(loop: AgentLoop, agent: Agent[Any, Any, Any], host: Host, sessions: SessionFile, *, debug: bool) -> int:
    view = View()
    dialog = Dialog(agent, view, sessions)
    # Closing the loop may wait for a thread of the user's. The terminal ends the process then.
    with closing(_terminal(view, dialog, loop.runner.get_loop(), data_folder() / "entered")) as terminal:

        def hear(number: signal.Signals) -> None:
            if number == signal.SIGINT:
                terminal.interrupt()
            else:
                terminal.leave(_TERMINATED)

        with log_shown(dialog.say, debug=debug), hearing(hear), closing(loop):
            loop.run(_conversed_in_terminal(agent, host, dialog, terminal))
    return dialog.exit_code


async def _conversed_in_terminal(agent: Agent[Any, Any, Any], host: Host, dialog: Dialog, terminal: Terminal) -> None:
    async with dialog.sessions.opened(agent, host, dialog.hear) as chat:
        dialog.say(list(_greeting(agent, host, dialog.sessions, chat)))
        dialog.attach(chat)
        terminal.start()
        await dialog.left.wait()
        terminal.hurry(dialog.exit_code)
        await dialog.close()


def _terminal(view: View, dialog: Dialog, loop: asyncio.AbstractEventLoop, entered_before: Path) -> Terminal:
    """Return the terminal, with keys that reach the thread of the chat."""
    try:
        open_terminal: Callable[..., Terminal] = resolve_name("journeyman.cli.chat.terminal:Terminal")
    except ModuleNotFoundError as error:
        missing = (error.name or "a package").partition(".")[0]
        hint = f"Install it where journeyman is: {sys.executable} -m pip install 'journeyman[cli]'"
        raise Mistake(f"A chat in a terminal needs {missing}, which is not installed.", hint) from error

    def then(do: Callable[..., None], *given: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(do, *given)

    keys = Keys(
        entered=lambda entry: then(dialog.enter, entry),
        interrupted=lambda: then(dialog.interrupt),
        left=lambda exit_code: then(dialog.leave, exit_code),
    )
    return open_terminal(view, keys, history=_writable(entered_before))


def _writable(path: Path) -> Path | None:
    """Return the file if it can be written, by nobody else: what was entered may be private."""
    try:
        make_private_folder(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        return None
    return path


def _greeting(agent: Agent[Any, Any, Any], host: Host, sessions: SessionFile, chat: Chat[Any, Any]) -> Iterator[Line]:
    model = host.model or agent.model
    name = model if isinstance(model, str) else f"{model.provider}:{model.name}"
    yield Line(name=agent.name, text=f"· {name}")
    yield Line(text="Type at any time, also while it works. /help shows what else there is.", style="dim")
    if sessions.notice:
        yield Line(mark="warning", text=sessions.notice, rows=4)
    yield EMPTY
    if chat.messages:
        yield from recalled(chat.messages)
        if chat.messages[-1].role == "user":
            yield Line(mark="warning", text="The last turn was interrupted. /continue goes on where it was.")


# -- without a terminal ------------------------------------------------------------------------------------------------


def _converse_plainly(loop: AgentLoop, plain: _Plain, host: Host, *, debug: bool) -> int:
    """Say the lines of stdin to the agent, and return the exit code: 1 as soon as a turn fails."""
    screen, abort = PlainScreen(stderr_console()), Abort()
    plain.view.watch(lambda: screen.say(plain.view.take()))
    interrupt = Interrupt(abort, screen.stopping)
    interrupt.has_ended = True  # nothing runs yet: a signal quits
    with log_shown(screen.say, debug=debug), interrupt.listening(), closing(loop):
        code = loop.run(_conversed(plain, host, abort, interrupt))
        interrupt.has_ended = True
    return code if interrupt.exit_code is None else interrupt.exit_code


class _Plain:
    """A chat with nobody who answers."""

    def __init__(self, agent: Agent[Any, Any, Any], sessions: SessionFile, stdout: Stdout) -> None:
        self.agent: Final = agent
        self.view: Final = View()
        self.dialog: Final = Dialog(agent, self.view, sessions, shows_answers=False)
        self.stdout: Final = stdout
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
