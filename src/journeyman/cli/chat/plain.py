"""A chat in lines, one after the other, with nothing drawn over: for screen readers, where nothing can be, and over a
pipe, where nobody types.

What is typed is read by the line, as the terminal gives it. What a line is for is said before it is asked for; where a
question came while one was typed, that line is its answer, if it is one of the words that are. Over a pipe each line of
stdin is said when the one before is answered, answers go to stdout, and everything else to stderr.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from threading import Lock, Thread
from typing import Any, Final

from pydantic_core import to_json

from journeyman.agent import Runtime
from journeyman.chat.questions import NOBODY
from journeyman.cli.app import explained
from journeyman.cli.chat.dialog import Dialog
from journeyman.cli.chat.view import LEAVING, SAY, ChatExit, ChatView, EnteredLine, Keys
from journeyman.cli.ending import end_process
from journeyman.cli.permit.asked import Prompt, TerminalAsker, asking
from journeyman.cli.permit.policy import Nobody
from journeyman.cli.run import Stdout, output_json, parse_input
from journeyman.cli.show.lines import Line
from journeyman.cli.show.screen import PlainScreen, plain_console, print_error, stderr_console
from journeyman.descriptors import STDIN, STDOUT, iterate_in_thread, lines_of
from journeyman.endings import ErrorCode
from journeyman.errors import InvalidArguments
from journeyman.events import Event, QuestionAsked, TurnEnded
from journeyman.result import Failure, Result, Success

_STOPPING: Final = Line(mark="stopped", text="stopping; press Ctrl-C again to quit at once")


class PlainTerminal:
    """Shows a view, and hears what is typed, unless it comes through a pipe."""

    def __init__(self, view: ChatView, keys: Keys, *, is_attended: bool) -> None:
        self._view = view
        self._keys = keys
        self._is_attended = is_attended
        self.exit: Final = ChatExit(
            view, keys, partial(end_process, terminal=STDOUT, last=b"\n"), is_patient=not is_attended
        )
        self._screen = PlainScreen(plain_console() if is_attended else stderr_console())
        self._lock = Lock()
        """Guards what follows, and what is written."""
        self._prompt: Prompt | None = None
        """What the line that is being typed is for; None when nothing was asked for."""
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

    # -- writing

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

    # -- reading

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
    with explained("Give a file or a pipe that you may read.", about="stdin cannot be read"):
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
            async with dialog.sessions.opened(dialog.agent, runtime, lambda event: self._hear(event, person)) as chat:
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
