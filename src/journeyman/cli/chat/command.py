"""`journeyman chat`: a conversation with an agent, in a terminal or over a pipe.

What draws the terminal is imported by its name, and only in a terminal: its package is an extra.
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
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from journeyman.agent import Agent, Host
from journeyman.chat.chat import Chat
from journeyman.cli.app import Mistake
from journeyman.cli.chat.dialog import Dialog
from journeyman.cli.chat.plain import converse_plainly
from journeyman.cli.chat.sessions import SessionFile, data_folder, make_folder
from journeyman.cli.chat.tree import recalled
from journeyman.cli.chat.view import Keys, View
from journeyman.cli.loading import load_agent, load_model
from journeyman.cli.show.lines import EMPTY, Line
from journeyman.cli.show.screen import PlainScreen, hearing, stderr_console
from journeyman.permission.approvals import Approvals
from journeyman.permission.permission import Mode, Permission

if TYPE_CHECKING:
    from journeyman.cli.chat.terminal import Terminal

_DAY_S: Final = 86_400.0
_TERMINATED: Final = 143


def chat(
    target: Annotated[str, Parameter(name="FILE:AGENT")],
    /,
    *,
    resume: str | None = None,
    session_file: Path | None = None,
    model: str | None = None,
    mode: Mode | None = None,
) -> int:
    """Talk with an agent. What is typed while it works steers it. /help shows what else there is.

    What it may not do by itself is asked about; the conversation is kept. Without a terminal, each line of stdin is
    said in turn, and the answers go to stdout.

    Args:
        target: A Python file or a module, a colon, and the agent in it: agents.py:analyst. Where there is one agent
            only, the file is enough.
        resume: Go on with the conversation that has this id; without an id with the latest of this agent.
        session_file: Keep the conversations in this file instead of the one in the user's data folder.
        model: Use this model instead of the agent's, for example anthropic:claude-sonnet-5-5.
        mode: What happens to calls of which no rule speaks, by the gate that an agent without one gets (balanced),
            or besides its own.
    """
    agent = load_agent(target)
    host = Host(model=load_model(model), gate=_gate(agent, target, mode))
    sessions = SessionFile(given=session_file, resume=resume)
    if not _is_terminal():
        return converse_plainly(agent, host, sessions)
    try:
        return _converse(agent, host, sessions)
    finally:
        if sessions.id:
            PlainScreen(stderr_console()).say([_farewell(sessions, target)])


def _is_terminal() -> bool:
    return os.isatty(0) and os.isatty(1) and os.environ.get("TERM", "") not in ("dumb", "unknown")


def _gate(agent: Agent[Any, Any], target: str, mode: Mode | None) -> Permission | None:
    """Return the gate around the agent: for one without a gate of its own, or where a mode is asked for."""
    if mode is None and agent.gate:
        return None
    place = hashlib.sha256(os.path.abspath(target).encode()).hexdigest()[:12]  # noqa: PTH100 - it may be no path
    folder = data_folder() / "approvals"
    make_folder(folder)
    approvals = Approvals(folder / f"{agent.name}-{place}.json", expires_s=_DAY_S)
    return Permission(mode=mode or "balanced", approvals=approvals)


# -- in a terminal ----------------------------------------------------------------------------------------------------


def _converse(agent: Agent[Any, Any], host: Host, sessions: SessionFile) -> int:
    view = View()
    dialog = Dialog(agent, view, sessions)
    # Leaving the runner may wait for a thread of the user's. The terminal ends the process then.
    runner = asyncio.Runner()
    with closing(_terminal(view, dialog, runner.get_loop(), data_folder() / "entered")) as terminal:

        def hear(number: signal.Signals) -> None:
            if number == signal.SIGINT:
                terminal.interrupt()
            else:
                terminal.leave(_TERMINATED)

        with hearing(hear), runner:
            runner.run(_conversed(agent, host, dialog, terminal))
    return dialog.exit_code


async def _conversed(agent: Agent[Any, Any], host: Host, dialog: Dialog, terminal: Terminal) -> None:
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
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        return None
    return path


def _greeting(agent: Agent[Any, Any], host: Host, sessions: SessionFile, chat: Chat[Any, Any]) -> Iterator[Line]:
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


def _farewell(sessions: SessionFile, target: str) -> Line:
    file = "" if sessions.given is None else f" --session-file {quote(str(sessions.path))}"
    text = f"Go on with it: journeyman chat {quote(target)}{file} --resume {sessions.id}"
    return Line(text=text, style="dim", rows=3)
