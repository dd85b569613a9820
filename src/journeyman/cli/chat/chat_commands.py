"""What can be typed into a chat with a `/` before it. Read `chat_talk.py` next: it is what the commands act on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from journeyman.cli.show.lines import Line
from journeyman.cli.show.words import count, one_line, usage_sentence
from journeyman.errors import NothingToContinue, StoreError
from journeyman.types import dump_messages

if TYPE_CHECKING:
    from journeyman.cli.chat.talk import Talk

Act: TypeAlias = "Callable[[Talk, str], Iterator[Line]]"
"""Does what the command says, and gives the lines that tell."""

_KEYS: Final = (
    ("a line", "says it; while the agent works, before its next model call"),
    ("Alt-Enter", "begins another line"),
    ("Ctrl-C", "stops the turn; at an empty line, twice: leaves"),
    ("Ctrl-D", "leaves"),
)
_SHOWN: Final = 12
"""How many sessions are listed."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    act: Act
    about: str
    takes: str = ""
    """What follows its name; empty when nothing does."""
    is_optional: bool = False


def find(text: str) -> tuple[Command, str] | None:
    """Return the command that a line asks for, and what follows it. None: it is no command that there is."""
    name, _, rest = text.strip().partition(" ")
    command = COMMANDS.get(name)
    return None if command is None else (command, rest.strip())


def obey(talk: Talk, text: str) -> Iterator[Line]:
    """Do what a line that begins with `/` asks for. Gives the lines that tell."""
    found = find(text)
    if found is None:
        yield _unknown(text)
        return
    command, rest = found
    name = text.split()[0]
    if command.takes and not rest and not command.is_optional:
        yield _wrong(f"{name} needs {command.takes}: {name} {command.takes}")
    elif rest and not command.takes:
        yield _wrong(f"{name} takes nothing after it. It {_verb(command.about)}.")
    else:
        yield from command.act(talk, rest)


def _verb(about: str) -> str:
    return about[0].lower() + about[1:].rstrip(".")


def _wrong(text: str) -> Line:
    return Line(mark="warning", text=text, rows=4)


def _unknown(text: str) -> Line:
    name = text.split()[0]
    close = get_close_matches(name, COMMANDS, n=1)
    meant = f"Did you mean {close[0]}? " if close else ""
    return _wrong(
        f"There is no {one_line(name, 40)}. {meant}/help shows what there is; a space before / says it as it is."
    )


# -- each of them -----------------------------------------------------------------------------------------------------


def _help(talk: Talk, rest: str) -> Iterator[Line]:
    names = {name: f"{name} {command.takes}".strip() for name, command in COMMANDS.items()}
    for name, command in COMMANDS.items():
        yield Line(indent=2, text=f"{names[name]:<16} {command.about}", rows=2)
    for key, about in _KEYS:
        yield Line(indent=2, text=f"{key:<16} {about}", style="dim", rows=2)


def _follow(talk: Talk, rest: str) -> Iterator[Line]:
    talk.chat.follow_up(rest)
    talk.look_at_queues()
    if not talk.chat.state.is_running:
        yield Line(indent=2, text="It is said at the end of the next turn; /continue begins one.", style="dim")


def _steer(talk: Talk, rest: str) -> Iterator[Line]:
    talk.chat.steer(rest)
    talk.look_at_queues()
    if not talk.chat.state.is_running:
        yield Line(indent=2, text="It is said with the next turn; /continue begins one.", style="dim")


def _continue(talk: Talk, rest: str) -> Iterator[Line]:
    if talk.chat.state.is_running:
        yield _wrong("A turn goes on already. What you type steers it.")
    else:
        talk.later(_go_on(talk))


async def _go_on(talk: Talk) -> None:
    try:
        await talk.chat.continue_()
    except NothingToContinue:
        talk.say([_wrong("There is nothing to go on with: the model has answered, and no text waits.")])


def _abort(talk: Talk, rest: str) -> Iterator[Line]:
    if talk.chat.state.is_running:
        talk.view.stop()
        talk.chat.abort("aborted by the user (/abort)")
    else:
        yield _wrong("No turn goes on.")


def _drop(talk: Talk, rest: str) -> Iterator[Line]:
    withdrawn = talk.withdraw()
    yield Line(indent=2, text=f"{count(len(withdrawn), 'text')} withdrawn.", style="dim")
    for text in withdrawn:
        yield Line(indent=2, mark="bar", text=one_line(text))


def _reset(talk: Talk, rest: str) -> Iterator[Line]:
    talk.later(_forget(talk))
    yield from ()


async def _forget(talk: Talk) -> None:
    talk.withdraw()
    await talk.chat.reset()
    talk.say([Line(indent=2, text="Forgotten: the conversation, what waited, and the usage.", style="dim")])


def _usage(talk: Talk, rest: str) -> Iterator[Line]:
    usage = talk.chat.usage
    text = f"{count(usage.requests, 'request')} · {usage_sentence(usage)}"
    yield Line(indent=2, text=text, rows=2)
    yield Line(indent=2, text=count(len(talk.chat.messages), "message"), style="dim")


def _sessions(talk: Talk, rest: str) -> Iterator[Line]:
    try:
        found = talk.place.sessions()
    except StoreError as error:
        yield _wrong(str(error))
        return
    for each in found[:_SHOWN]:
        is_here = each.id == talk.place.id
        when = datetime.fromtimestamp(each.updated).astimezone().strftime("%Y-%m-%d %H:%M")
        about = f"· {when} · {count(each.messages, 'message')} · {each.agent} · {one_line(each.title, 200)}"
        yield Line(indent=1 if is_here else 3, mark="step" if is_here else "", name=each.id, text=about)
    if len(found) > _SHOWN:
        yield Line(indent=3, text=f"and {len(found) - _SHOWN} earlier", style="dim")
    yield Line(indent=3, text="Another one: leave, and come back with --resume ID.", style="dim")


def _export(talk: Talk, rest: str) -> Iterator[Line]:
    path = Path(rest).expanduser()
    messages = talk.chat.messages
    try:
        with path.open("xb") as file:
            file.write(dump_messages(messages) + b"\n")
    except FileExistsError:
        yield _wrong(f"There is a {path} already. Name another file.")
    except (OSError, ValueError) as error:
        yield _wrong(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}. Name another file.")
    else:
        yield Line(indent=2, text=f"{count(len(messages), 'message')} in {path}", style="dim")


def _quit(talk: Talk, rest: str) -> Iterator[Line]:
    talk.leave(0)
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
