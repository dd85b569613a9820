"""`journeyman chat`: a conversation with an agent, in a terminal or over a pipe.

What draws the terminal is imported by its name, and only in a terminal: its package is an extra. Over a pipe each line
of stdin is said when the one before is answered, answers go to stdout, and nobody answers questions.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from cyclopts import Parameter
from rich.console import Console

from journeyman.agent import Agent, Runtime
from journeyman.chat.chat import Chat
from journeyman.cli.app import Mistake
from journeyman.cli.chat.dialog import Dialog, suggest_completions
from journeyman.cli.chat.plain import Pipe, PlainTerminal
from journeyman.cli.chat.sessions import SessionFile
from journeyman.cli.chat.tree import recall_lines
from journeyman.cli.chat.view import ChatView, Keys
from journeyman.cli.ending import TimedEnd, hearing
from journeyman.cli.load_agent import AgentLoop, load_model
from journeyman.cli.options import Flag, GivenOptions, LentOptions, RulesFile
from journeyman.cli.permit.policy import data_folder
from journeyman.cli.run import Stdout, recorder_in, telemetry_in
from journeyman.cli.show.lines import EMPTY, Line
from journeyman.cli.show.log import log_shown
from journeyman.cli.show.screen import PlainScreen, is_dumb, plain_console, stderr_console
from journeyman.files import make_private_folder

if TYPE_CHECKING:
    from journeyman.cli.chat.terminal import Terminal

    AnyTerminal: TypeAlias = Terminal | PlainTerminal

_TERMINATED: Final = 143  # 128 and the number of SIGTERM, as shells report it


def chat(
    target: Annotated[
        str | None, Parameter(name="FILE:AGENT", help="The agent, as for run; else an assistant in this folder.")
    ] = None,
    /,
    *,
    resume: Annotated[
        str | None, Parameter(help="Go on with this conversation; without an id with the latest.")
    ] = None,
    session_file: Annotated[str | None, Parameter(help="Keep conversations in this file, or at this URL.")] = None,
    rules: RulesFile = None,
    tools: Annotated[
        str | None, Parameter(help="Of the assistant: coding (else), reading, none, or read,grep,bash.")
    ] = None,
    plain: Annotated[Flag, Parameter(help="Draw nothing over: for screen readers.")] = False,
    lent: LentOptions | None = None,
    shared: GivenOptions,
) -> int:
    """Talk with an agent, or with an assistant in this folder. What is typed while it works steers it.

    /help shows what else there is. What it may not do by itself is asked about; the conversation is kept. Without a
    terminal, each line of stdin is said in turn, and the answers go to stdout; one that fails makes the exit code 1.
    """
    if tools is not None and target is not None:
        raise Mistake(f"--tools is for the assistant; {target} has its own tools.", "Leave one of them out.")
    stdout = None if os.isatty(0) and os.isatty(1) else Stdout()
    with AgentLoop(shared.timeout, rules=rules) as loop, telemetry_in(shared) as telemetry:
        make: Callable[..., Agent[Any, Any, Any]] | None = None
        if target is None:  # imported for it alone
            make = resolve_name("journeyman.cli.chat.assistant:assistant")
        made = None if make is None else make(model=shared.model, tools=tools)
        place = target or str(Path.cwd())
        agent = loop.agent(place, lent, mode=shared.mode, made=made)
        runtime = Runtime(model=load_model(shared.model), recorder=recorder_in(shared), telemetry=telemetry)
        sessions = SessionFile(given=session_file, resume=resume, of_folder=target is None)
        is_attended, is_plain = stdout is None, plain or is_dumb()
        echoes = not (is_attended and is_plain)  # what is typed stands there
        dialog = Dialog(agent, ChatView(), sessions, is_attended=is_attended, echoes=echoes)
        try:
            return _converse(loop, dialog, runtime, stdout, is_plain=is_plain, debug=shared.debug)
        finally:
            if is_attended:
                _tell_how_to_go_on(target, sessions, plain_console(stderr=True) if is_plain else stderr_console())


def _tell_how_to_go_on(target: str | None, sessions: SessionFile, console: Console) -> None:
    if not sessions.id:
        return
    agent = "" if target is None else f" {quote(target)}"
    file = "" if sessions.given is None else f" --session-file {quote(sessions.shown)}"
    text = f"Go on with it: journeyman chat{agent}{file} --resume {sessions.id}"
    PlainScreen(console).say([Line(text=text, style="dim", rows=3)])


# -- in a terminal ----------------------------------------------------------------------------------------------------


def _converse(
    loop: AgentLoop, dialog: Dialog, runtime: Runtime, stdout: Stdout | None, *, is_plain: bool, debug: bool
) -> int:
    keys = _keys(dialog, loop.runner.get_loop())
    # Closing the loop may wait for a thread of the user's. The terminal ends the process then.
    end = TimedEnd(exit_code=_TERMINATED)
    is_attended = dialog.is_attended
    plain = PlainTerminal(dialog.view, keys, is_attended=is_attended) if is_plain or not is_attended else None
    with closing(plain or _terminal(dialog, keys)) as terminal:

        def hear(number: signal.Signals) -> None:
            if number == signal.SIGINT:
                terminal.interrupt()
            else:
                end.hear()
                terminal.exit.leave(_TERMINATED)

        with log_shown(dialog.say, debug=debug), hearing(hear), closing(loop):
            if plain is None or stdout is None:
                loop.run(_converse_in_terminal(runtime, dialog, terminal))
            else:
                loop.run(Pipe(dialog, stdout).converse(runtime, plain))
    return dialog.exit_code


async def _converse_in_terminal(runtime: Runtime, dialog: Dialog, terminal: AnyTerminal) -> None:
    agent, sessions, before = dialog.agent, dialog.sessions, ""
    while True:
        try:
            async with sessions.opened(agent, runtime, dialog.hear) as chat:
                dialog.say(list(_greeting(agent, runtime, sessions, chat)))
                dialog.attach(chat, runtime)
                terminal.start()
                await dialog.left.wait()
                if dialog.resume is None:
                    terminal.exit.hurry(dialog.exit_code)
                await dialog.close()
            if dialog.resume is None:
                return
            before, sessions.resume = sessions.id, dialog.resume
        except Mistake as mistake:  # somebody else has it open, for example: go on where we were
            if not before:
                raise
            dialog.say([Line(mark="warning", text=str(mistake), rows=4)])
            before, sessions.resume = "", before
        dialog.detach()


def _keys(dialog: Dialog, loop: asyncio.AbstractEventLoop) -> Keys:
    """Return keys that reach the thread of the chat."""

    def then(do: Callable[..., None], *given: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(do, *given)

    return Keys(
        entered=lambda entry: then(dialog.enter, entry),
        interrupted=lambda: then(dialog.interrupt),
        left=lambda exit_code: then(dialog.leave, exit_code),
    )


def _terminal(dialog: Dialog, keys: Keys) -> AnyTerminal:
    try:
        open_terminal: Callable[..., Terminal] = resolve_name("journeyman.cli.chat.terminal:Terminal")
    except ModuleNotFoundError as error:
        missing = (error.name or "a package").partition(".")[0]
        install = f"Install it where journeyman is: {sys.executable} -m pip install 'journeyman[cli]'"
        raise Mistake(
            f"A chat in a terminal needs {missing}, which is not installed.", f"{install}; or chat with --plain."
        ) from error
    return open_terminal(dialog.view, keys, partial(suggest_completions, dialog), history=_file_of_entries())


def _file_of_entries() -> Path | None:
    """Return the file of what was entered, if it can be written, by nobody else: it may be private."""
    if (folder := data_folder()) is None:
        return None
    path = folder / "entered"
    try:
        make_private_folder(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        return None
    return path


def _greeting(
    agent: Agent[Any, Any, Any], runtime: Runtime, sessions: SessionFile, chat: Chat[Any, Any]
) -> Iterator[Line]:
    model = runtime.model or agent.model
    name = model if isinstance(model, str) else f"{model.provider}:{model.name}"
    where = f" · in {Path.cwd()}" if sessions.of_folder else ""
    yield Line(name=agent.name, text=f"· {name}{where}", rows=2)
    yield Line(text="Type at any time, also while it works. /help shows what else there is.", style="dim", rows=3)
    if sessions.notice:
        yield Line(mark="warning", text=sessions.notice, rows=4)
    yield EMPTY
    if chat.messages:
        yield from recall_lines(chat.messages)
        if chat.messages[-1].role == "user":
            yield Line(mark="warning", text="The last turn was interrupted. /continue goes on where it was.")
