"""`journeyman chat`: a conversation with an agent, in a terminal or over a pipe.

What draws the terminal is imported by its name, and only in a terminal: its package is an extra. Over a pipe each line
of stdin is said when the one before is answered, answers go to stdout, and nobody answers questions.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from shlex import quote
from threading import Lock, Thread
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic_core import to_json
from rich.console import Console

from journeyman.agent import Runtime
from journeyman.cancellation import call_in
from journeyman.chat.chat import Chat
from journeyman.chat.questions import NOBODY
from journeyman.cli.app import Mistake, explain_errors
from journeyman.cli.chat.dialog import Dialog, suggest_completions
from journeyman.cli.chat.sessions import SessionFile
from journeyman.cli.chat.tree import recall_lines
from journeyman.cli.chat.view import LEAVING, SAY, ChatExit, ChatView, EnteredLine, Keys
from journeyman.cli.ending import TimedEnd, end_process, hearing
from journeyman.cli.load_agent import AgentLoop, load_model
from journeyman.cli.options import AnyAgent, BoxOptions, Flag, GivenOptions, LentOptions, RulesFile, explain
from journeyman.cli.permit.asked import Prompt, TerminalAsker, asking
from journeyman.cli.permit.policy import Nobody, data_folder
from journeyman.cli.run import Stdout, output_json, parse_input, recorder_in, sandbox_in, telemetry_in, tell_sandbox_in
from journeyman.cli.show.lines import EMPTY, Line
from journeyman.cli.show.log import log_shown
from journeyman.cli.show.screen import PlainScreen, is_dumb, plain_console, print_error, stderr_console
from journeyman.endings import ErrorCode
from journeyman.errors import InvalidArguments
from journeyman.events import Event, QuestionAsked, TurnEnded
from journeyman.machine.descriptors import STDIN, STDOUT, iterate_in_thread, lines_of
from journeyman.machine.files import make_private_folder
from journeyman.result import Failure, Result, Success

if TYPE_CHECKING:
    from journeyman.cli.chat.terminal import Terminal

AnyTerminal: TypeAlias = "Terminal | PlainTerminal"
_TERMINATED: Final = 143  # 128 and the number of SIGTERM, as shells report it


def chat(  # noqa: PLR0913 - one for each option, all by name
    target: Annotated[
        str | None, explain("The agent, as for run; else an assistant in this folder.", name="FILE:AGENT")
    ] = None,
    /,
    *,
    resume: Annotated[str | None, explain("Go on with this conversation; without an id with the latest.")] = None,
    session_file: Annotated[str | None, explain("Keep conversations in this file, or at this URL.")] = None,
    rules: RulesFile = None,
    tools: Annotated[str | None, explain("Of the assistant: coding (else), reading, none, or read,grep,bash.")] = None,
    plain: Annotated[Flag, explain("Draw nothing over: for screen readers.")] = False,
    lent: LentOptions | None = None,
    more: BoxOptions | None = None,
    shared: GivenOptions,
) -> int:
    """Talk with an agent, or with an assistant in this folder. What is typed while it works steers it.

    /help shows what else there is. What it may not do by itself is asked about; the conversation is kept. Without a
    terminal, each line of stdin is said in turn, and the answers go to stdout; one that fails makes the exit code 1.
    """
    if tools is not None and target is not None:
        raise Mistake(f"--tools is for the assistant; {target} has its own tools.", "Leave one of them out.")
    stdout = None if os.isatty(0) and os.isatty(1) else Stdout()
    with (
        sandbox_in(shared, more) as asked,
        AgentLoop(shared.timeout, rules=rules) as loop,
        telemetry_in(shared) as telemetry,
    ):
        made: AnyAgent | None = None
        if target is None:  # imported for it alone
            made = resolve_name("journeyman.cli.chat.assistant:assistant")(model=shared.model, tools=tools)
        place = target or str(Path.cwd())
        agent = loop.agent(place, lent, mode=shared.mode, made=made, model=shared.model)
        tell_sandbox_in(asked, agent, shared)
        runtime = Runtime(model=load_model(shared.model), recorder=recorder_in(shared), telemetry=telemetry)
        sessions = SessionFile(given=session_file, resume=resume, of_folder=target is None)
        is_attended, is_plain = stdout is None, plain or is_dumb()
        echoes = not (is_attended and is_plain)  # what is typed stands there
        dialog = Dialog(agent, ChatView(), sessions, is_attended=is_attended, echoes=echoes)
        dialog.sandbox = asked
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
            async with sessions.open_chat(agent, runtime, dialog.hear) as chat:
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
    return Keys(
        entered=lambda entry: call_in(loop, partial(dialog.enter, entry)),
        interrupted=lambda: call_in(loop, dialog.interrupt),
        left=lambda exit_code: call_in(loop, partial(dialog.leave, exit_code)),
    )


def _terminal(dialog: Dialog, keys: Keys) -> AnyTerminal:
    open_terminal: Callable[..., Terminal] = resolve_name("journeyman.cli.chat.terminal:Terminal")
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


def _greeting(agent: AnyAgent, runtime: Runtime, sessions: SessionFile, chat: Chat[Any, Any]) -> Iterator[Line]:
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


_STOPPING: Final = Line(mark="stopped", text="stopping; press Ctrl-C again to quit at once")


class PlainTerminal:
    """Shows a view, and hears what is typed, unless it comes through a pipe."""

    def __init__(self, view: ChatView, keys: Keys, *, is_attended: bool) -> None:
        self._view = view
        self._keys = keys
        self._is_attended = is_attended
        end = partial(end_process, terminal=STDOUT, last=b"\n")
        self.exit: Final = ChatExit(view, keys, end, is_patient=not is_attended)
        self._screen = PlainScreen(plain_console() if is_attended else stderr_console())
        self._lock = Lock()
        """Guards what follows, and what is written."""
        self._prompt: Prompt | None = None
        """The purpose of the line that is being typed; None when nothing was asked for."""
        self._reader = Thread(target=self._read, name="journeyman-stdin", daemon=True)

    def start(self) -> None:
        """Write, and listen. Once it does, nothing changes."""
        self._view.watch(self._write)
        if self._is_attended and self._reader.ident is None:
            self._reader.start()
        self._write()

    def close(self) -> None:
        """Show what is left."""
        self._view.watch(lambda: None)
        self._write(asks=False)
        if self._is_attended:
            print(flush=True)

    def interrupt(self) -> None:
        """Do what Ctrl-C does, and say what the next one would do. Any thread may."""
        self.exit.interrupt()
        if self._view.is_working:
            self._view.say([_STOPPING])
        elif not self.exit.is_leaving:
            self._view.say([LEAVING])

    def _write(self, *, asks: bool = True) -> None:
        """Write what is new, and ask for a line where one is wanted. Any thread may."""
        with self._lock:
            lines = self._view.take()
            if lines and self._prompt is not None:
                print()
                self._prompt = None
            self._screen.say(lines)
            wanted = self._view.prompt
            may_ask = asks and self._is_attended and (wanted is not SAY or not self._view.is_working)
            if may_ask and wanted is not self._prompt:
                self._ask(wanted)

    def _ask(self, wanted: Prompt) -> None:
        if self._prompt is not None:
            print()
        self._prompt = wanted
        self._screen.say([Line(text=text, rows=100) for text in (wanted.hint, wanted.given) if text])
        print(wanted.label, end="", flush=True)

    def _read(self) -> None:
        with suppress(OSError):  # the terminal is gone: nothing more will come
            for line in lines_of(STDIN):
                with self._lock:
                    prompt, self._prompt = self._prompt or SAY, None
                self.exit.was_asked = False
                text = _text_of(line)
                if text.strip() or prompt.id:
                    self._keys.entered(EnteredLine(text, prompt.id))
                else:
                    self._write()
        self.exit.leave(0)


def _text_of(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _lines_of_stdin() -> Iterator[bytes]:
    with explain_errors("Give a file or a pipe that you may read.", about="stdin cannot be read"):
        yield from lines_of(STDIN)


class Pipe:
    """A chat in which nobody types: the lines of stdin are said, and what comes of them is written to stdout."""

    def __init__(self, dialog: Dialog, stdout: Stdout) -> None:
        self._dialog = dialog
        self._stdout = stdout
        self._results: list[Result[Any] | None] = []
        """The results of the turns that have ended and were not printed, oldest first."""

    async def converse(self, runtime: Runtime, terminal: PlainTerminal) -> None:
        """Say the lines, and wait for what goes on in the background. The exit code is 1 where something failed."""
        dialog, all_succeeded = self._dialog, True
        with asking(dialog.agent, nullcontext, dialog.say) as person:
            assert person is not None  # a chat does not wait
            runtime = replace(runtime, approver=person.approve)
            opening = dialog.sessions.open_chat(dialog.agent, runtime, lambda event: self._hear(event, person))
            async with opening as chat:
                dialog.attach(chat, runtime)
                terminal.start()
                lines = iterate_in_thread(_lines_of_stdin(), "journeyman-stdin")
                while not dialog.left.is_set() and (line := await anext(lines, None)) is not None:
                    all_succeeded &= await self._say(_text_of(line).strip())
                while not dialog.left.is_set():  # nothing more is said, so that it ends
                    await dialog.settle()  # also a turn that began by itself, with what has ended meanwhile
                    all_succeeded &= self._print_results()
                    if not dialog.sessions.tasks.active:
                        break
                    await dialog.sessions.tasks.wait()
        dialog.exit_code = dialog.exit_code or int(not all_succeeded)

    def _hear(self, event: Event, person: TerminalAsker | Nobody) -> None:
        """Listen to the chat, and let who is at the terminal answer, if anybody is."""

        async def answer(asked: QuestionAsked) -> None:
            text = await person.ask(asked.path, asked.question, asked.options)
            with suppress(KeyError):  # its turn has ended
                self._dialog.chat.answer(asked.id, NOBODY if text is None else text)

        match event:
            case QuestionAsked():  # whoever answers is shown it
                self._dialog.later(answer(event))
                return
            case TurnEnded(result=Success() | Failure() | None as result, path=path) if len(path) == 1:
                self._results.append(result)
            case _:
                pass
        self._dialog.hear(event)

    async def _say(self, line: str) -> bool:
        """Say one line, or do what it commands, and print what comes of it. False: it failed."""
        if not line.startswith("/"):
            try:
                parse_input(self._dialog.agent, line)
            except InvalidArguments as invalid:
                print_error(f"{ErrorCode.INVALID_INPUT}: {invalid}", "Give one line of JSON for each prompt.")
                return False
        self._dialog.enter(EnteredLine(line))
        await self._dialog.settle()
        return self._print_results()

    def _print_results(self) -> bool:
        """Print what the turns that have ended gave. False: one of them failed."""
        ended, self._results = self._results, []
        for result in ended:
            match result:
                case Success(output=str() as text):
                    self._stdout.write_text(text)
                case Success(output=output):
                    self._stdout.write_json(to_json(output_json(self._dialog.agent, output)))
                case Failure(error=error):
                    print_error(f"{error.code}: {error.message}", error.hint)
                case None:
                    print_error("the turn was cancelled.", "Say it again.")
        return all(isinstance(result, Success) for result in ended)
