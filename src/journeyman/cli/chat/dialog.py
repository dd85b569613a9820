"""A chat at the prompt: what is entered goes to the agent, to a command or to a question; what happens becomes lines.

Everything here happens in the thread of the chat's event loop. Where the lines go is not its concern.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

from journeyman import events
from journeyman.agent import Agent
from journeyman.chat.chat import Chat
from journeyman.cli.chat.asking import Asking
from journeyman.cli.chat.sessions import SessionFile
from journeyman.cli.chat.tree import ChatTree, said
from journeyman.cli.chat.view import Entry, View
from journeyman.cli.run import parse_input
from journeyman.cli.show.lines import Line, one_line, usage_sentence
from journeyman.errors import InvalidArguments, JourneymanError, NothingToContinue, StoreError, count
from journeyman.files import private
from journeyman.types import dump_messages

_MAY_DELIVER: Final = (events.MessageCommitted, events.IterationStarted, events.TurnEnded)
"""After these, something that waited may have been said."""
_QUEUED_ROWS: Final = 2
_SESSIONS_SHOWN: Final = 12
_KEYS: Final = (
    ("a line", "says it; while the agent works, before its next model call"),
    ("Alt-Enter", "begins another line"),
    ("Ctrl-C", "stops the turn; at an empty line, twice: leaves"),
    ("Ctrl-D", "leaves"),
)


class Dialog:
    """What goes on between the user and one chat."""

    def __init__(
        self, agent: Agent[Any, Any, Any], view: View, sessions: SessionFile, *, shows_answers: bool = True
    ) -> None:
        self.view: Final = view
        self.sessions: Final = sessions
        self.exit_code = 0
        self.left: Final = asyncio.Event()
        """This event is set when the user wants to leave."""
        self._agent = agent
        self._tree = ChatTree(agent, shows_answers=shows_answers)
        self._asking = Asking(agent, lambda id, answer: self.chat.answer(id, answer), view.ask)
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

    def hear(self, event: events.Event) -> None:
        """Listen to the chat."""
        lines: list[Line] = []
        if isinstance(event, _MAY_DELIVER):
            lines += self._delivered()
        if isinstance(event, events.RunStarted) and len(event.path) == 1:
            self.view.begin()
        lines += self._tree.lines(event)
        if isinstance(event, events.ApprovalRequested | events.QuestionAsked):
            lines += self._asking.add(event)
        elif isinstance(event, events.ApprovalAnswered | events.QuestionAnswered):
            lines += self._asking.remove(event)
        self.view.write(self._tree.words)
        self.view.follow(event)
        self.say(lines)
        if isinstance(event, events.TurnEnded) and len(event.path) == 1:
            self.view.end()

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
        elif entry.id and self._asking.takes(entry.id, text, is_command=_find(text) is not None):
            yield from self._asking.enter(entry.id, text)
        elif text.startswith("/"):
            yield from _obey(self, text)
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
        now = (*(("queued", text) for text in state.steering), *(("when done", text) for text in state.follow_ups))
        gone = Counter(self._waiting) - Counter(now)
        before, self._waiting = self._waiting, now
        for each in before:
            if gone[each]:
                gone[each] -= 1
                yield said(each[1], note="delivered")
        if now != before:
            self.view.queue(
                [Line(indent=2, name=f"{kind}:", text=text, style="dim", rows=_QUEUED_ROWS) for kind, text in now]
            )


# -- commands ---------------------------------------------------------------------------------------------------------


Act: TypeAlias = Callable[[Dialog, str], Iterator[Line]]
"""Does what the command says with what follows its name, and gives the lines that tell."""


@dataclass(frozen=True, slots=True)
class Command:
    """What can be typed with a `/` before it."""

    act: Act
    about: str
    takes: str = ""
    """What must follow its name; empty when nothing may."""


def _find(text: str) -> tuple[Command, str] | None:
    """Return the command that a line asks for, and what follows it. None: it is no command that there is."""
    name, _, rest = text.strip().partition(" ")
    command = COMMANDS.get(name)
    return None if command is None else (command, rest.strip())


def _obey(dialog: Dialog, text: str) -> Iterator[Line]:
    """Do what a line that begins with `/` asks for. Gives the lines that tell."""
    found, name = _find(text), text.split()[0]
    if found is None:
        close = get_close_matches(name, COMMANDS, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        help = "/help shows what there is; a space before / says it as it is."
        yield _wrong(f"There is no {one_line(name, 40)}. {meant}{help}")
        return
    command, rest = found
    if command.takes and not rest:
        yield _wrong(f"{name} needs {command.takes}: {name} {command.takes}")
    elif rest and not command.takes:
        about = command.about[0].lower() + command.about[1:].rstrip(".")
        yield _wrong(f"{name} takes nothing after it. It {about}.")
    else:
        yield from command.act(dialog, rest)


def _wrong(text: str) -> Line:
    return Line(mark="warning", text=text, rows=4)


def _note(text: str, *, indent: int = 2) -> Line:
    return Line(indent=indent, text=text, style="dim")


def _help(dialog: Dialog, rest: str) -> Iterator[Line]:
    for name, command in COMMANDS.items():
        entered = f"{name} {command.takes}".strip()
        yield Line(indent=2, text=f"{entered:<16} {command.about}", rows=2)
    for key, about in _KEYS:
        yield Line(indent=2, text=f"{key:<16} {about}", style="dim", rows=2)


def _follow(dialog: Dialog, rest: str) -> Iterator[Line]:
    dialog.chat.follow_up(rest)
    dialog.look_at_queues()
    if not dialog.chat.state.is_running:
        yield _note("It is said at the end of the next turn; /continue begins one.")


def _steer(dialog: Dialog, rest: str) -> Iterator[Line]:
    dialog.chat.steer(rest)
    dialog.look_at_queues()
    if not dialog.chat.state.is_running:
        yield _note("It is said with the next turn; /continue begins one.")


def _continue(dialog: Dialog, rest: str) -> Iterator[Line]:
    async def go_on() -> None:
        try:
            await dialog.chat.continue_()
        except NothingToContinue:
            dialog.say([_wrong("There is nothing to go on with: the model has answered, and no text waits.")])

    if dialog.chat.state.is_running:
        yield _wrong("A turn goes on already. What you type steers it.")
    else:
        dialog.later(go_on())


def _abort(dialog: Dialog, rest: str) -> Iterator[Line]:
    if dialog.chat.state.is_running:
        dialog.view.stop()
        dialog.chat.abort("aborted by the user (/abort)")
    else:
        yield _wrong("No turn goes on.")


def _drop(dialog: Dialog, rest: str) -> Iterator[Line]:
    withdrawn = dialog.withdraw()
    yield _note(f"{count(len(withdrawn), 'text')} withdrawn.")
    for text in withdrawn:
        yield Line(indent=2, mark="bar", text=one_line(text))


def _reset(dialog: Dialog, rest: str) -> Iterator[Line]:
    async def forget() -> None:
        dialog.withdraw()
        await dialog.chat.reset()
        dialog.say([_note("Forgotten: the conversation, what waited, and the usage.")])

    dialog.later(forget())
    yield from ()


def _usage(dialog: Dialog, rest: str) -> Iterator[Line]:
    usage = dialog.chat.usage
    text = f"{count(usage.requests, 'request')} · {usage_sentence(usage)}"
    yield Line(indent=2, text=text, rows=2)
    yield _note(count(len(dialog.chat.messages), "message"))


def _sessions(dialog: Dialog, rest: str) -> Iterator[Line]:
    try:
        found = dialog.sessions.all()
    except StoreError as error:
        yield _wrong(str(error))
        return
    for each in found[:_SESSIONS_SHOWN]:
        is_here = each.id == dialog.sessions.id
        when = datetime.fromtimestamp(each.updated).astimezone().strftime("%Y-%m-%d %H:%M")
        about = f"· {when} · {count(each.messages, 'message')} · {each.agent} · {one_line(each.title, 200)}"
        yield Line(indent=1 if is_here else 3, mark="step" if is_here else "", name=each.id, text=about)
    if len(found) > _SESSIONS_SHOWN:
        yield _note(f"and {len(found) - _SESSIONS_SHOWN} earlier", indent=3)
    yield _note("Another one: leave, and come back with --resume ID.", indent=3)


def _export(dialog: Dialog, rest: str) -> Iterator[Line]:
    path = Path(rest).expanduser()
    messages = dialog.chat.messages
    try:
        with open(path, "xb", opener=private) as file:
            file.write(dump_messages(messages) + b"\n")
    except FileExistsError:
        yield _wrong(f"There is a {path} already. Name another file.")
    except (OSError, ValueError) as error:
        yield _wrong(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}. Name another file.")
    else:
        yield _note(f"{count(len(messages), 'message')} in {path}")


def _quit(dialog: Dialog, rest: str) -> Iterator[Line]:
    dialog.leave(0)
    yield from ()


COMMANDS: Final[dict[str, Command]] = {
    "/help": Command(_help, "Shows this."),
    "/steer": Command(_steer, "Says TEXT before the next model call.", "TEXT"),
    "/follow": Command(_follow, "Says TEXT when the agent has nothing else left to do.", "TEXT"),
    "/drop": Command(_drop, "Withdraws what waits to be said."),
    "/abort": Command(_abort, "Stops the turn; the chat stays."),
    "/continue": Command(_continue, "Goes on after an interruption, or with what waits."),
    "/reset": Command(_reset, "Stops, and forgets the conversation."),
    "/sessions": Command(_sessions, "Lists the conversations that are kept."),
    "/usage": Command(_usage, "Shows the tokens and the cost of the conversation."),
    "/export": Command(_export, "Writes the conversation to FILE, as JSON.", "FILE"),
    "/quit": Command(_quit, "Leaves. The conversation is kept."),
}
