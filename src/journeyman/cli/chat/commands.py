"""The commands of a chat in the terminal, typed with a `/` before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Final, TypeAlias

from journeyman.cli.chat.dialog import Commands, Dialog
from journeyman.cli.show.lines import Line, one_line, usage_sentence
from journeyman.errors import NothingToContinue, StoreError, count
from journeyman.foreign import OLD_SLASH_WORDS
from journeyman.narrowing import is_one_of
from journeyman.permission.permission import MODES, PermissionMode

_SESSIONS_SHOWN: Final = 12
_OUTPUT_ROWS: Final = 2_000
_LONGEST_ROW: Final = 4_000
_KEYS: Final = (
    ("a line", "says it; while the agent works, before its next model call"),
    ("!COMMAND", "runs it here; the agent reads what it wrote with what you say next; with !! it does not"),
    ("@ and a path", "names a file; Tab completes it, and commands, too"),
    ("Alt-Enter", "begins another line; arrows and Ctrl-R find what was entered before"),
    ("Esc, Ctrl-C", "stops the turn; at an empty line, Ctrl-C twice: leaves"),
    ("Ctrl-D", "leaves"),
)

Act: TypeAlias = Callable[[Dialog, str], Iterator[Line]]
"""Does what the command says with what follows its name, and gives the lines that tell."""


Choices: TypeAlias = Callable[[Dialog], Iterator[tuple[str, str]]]
"""Gives what may follow the name of a command, each with what it is."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a chat: what it does, its help, and the values that may follow it."""

    act: Act
    about: str
    takes: str = ""
    """What must follow its name, or may if it stands in brackets; empty when nothing may."""
    choices: Choices = lambda _: iter(())
    at_start: str = ""
    """The option by which the command line says the same. Through a pipe, what may be anybody's text, only it does."""


def _find(text: str) -> tuple[Command, str] | None:
    """Return the command that a line asks for, and what follows it. None: it is no command that there is."""
    name, _, rest = text.strip().partition(" ")
    command = COMMANDS.get(name)
    return None if command is None else (command, rest.strip())


def _obey(dialog: Dialog, text: str) -> Iterator[Line]:
    found, name = _find(text), text.split()[0]
    if found is None:
        if name in OLD_SLASH_WORDS:
            yield _wrong(f"{name} is gone. {OLD_SLASH_WORDS[name]}")
            return
        close = get_close_matches(name, COMMANDS, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        help = "/help shows what there is; a space before / says it as it is."
        yield _wrong(f"There is no {one_line(name, 40)}. {meant}{help}")
        return
    command, rest = found
    if command.takes and not rest and not command.takes.startswith("["):
        yield _wrong(f"{name} needs {command.takes}: {name} {command.takes}")
    elif rest and not command.takes:
        about = command.about[0].lower() + command.about[1:].rstrip(".")
        yield _wrong(f"{name} takes nothing after it. It {about}.")
    elif rest and command.at_start and not dialog.is_attended:
        yield _wrong(f"{name} {command.takes} is for terminals only. Begin the chat with {command.at_start}.")
    else:
        yield from command.act(dialog, rest)


def suggest_completions(dialog: Dialog, begun: str) -> list[tuple[str, str]]:
    """Return what may follow the name of a command, each with what it is; of `/`, the commands. Any thread may."""
    if begun != "/":
        return list(COMMANDS[begun].choices(dialog)) if begun in COMMANDS else []
    return [(f"{name} " if command.takes else name, command.about) for name, command in COMMANDS.items()]


def _wrong(text: str) -> Line:
    return Line(mark="warning", text=text, rows=4)


def _note(text: str, *, indent: int = 2) -> Line:
    return Line(indent=indent, text=text, style="dim")


def _help(dialog: Dialog, rest: str) -> Iterator[Line]:
    for name, command in COMMANDS.items():
        entered = f"{name} {command.takes}".strip()
        yield Line(indent=2, name=f"{entered:<13}", text=command.about, rows=3)
    for key, about in _KEYS:
        yield Line(indent=2, name=f"{key:<13}", text=about, style="dim", rows=3)


def _follow(dialog: Dialog, text: str) -> Iterator[Line]:
    dialog.chat.follow_up(text)
    dialog.look()
    if not dialog.chat.state.is_running:
        yield _note("It is said at the end of the next turn; /continue begins one.")


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


def _show_cost(dialog: Dialog, rest: str) -> Iterator[Line]:
    usage = dialog.chat.usage
    text = f"{count(usage.requests, 'request')} · {usage_sentence(usage)}"
    yield Line(indent=2, text=text, rows=2)
    yield _note(count(len(dialog.chat.messages), "message"))


def _resume(dialog: Dialog, rest: str) -> Iterator[Line]:
    try:
        found = dialog.sessions.all()
    except StoreError as error:
        yield _wrong(str(error))
        return
    if not rest:
        for each in found[:_SESSIONS_SHOWN]:
            is_here = each.id == dialog.sessions.id
            when = datetime.fromtimestamp(each.updated).astimezone().strftime("%Y-%m-%d %H:%M")
            about = f"· {when} · {count(each.messages, 'message')} · {each.agent} · {one_line(each.title, 200)}"
            yield Line(indent=1 if is_here else 3, mark="step" if is_here else "", name=each.id, text=about)
        if len(found) > _SESSIONS_SHOWN:
            yield _note(f"and {len(found) - _SESSIONS_SHOWN} earlier", indent=3)
        yield _note("/resume ID goes on with another one.", indent=3)
        return
    there = [each for each in found if each.id == rest] or [each for each in found if each.id.startswith(rest)]
    if len(there) != 1:
        how_many = "No conversation has" if not there else f"{len(there)} conversations have"
        yield _wrong(f"{how_many} an id that begins with {one_line(rest, 60)}. /resume lists them.")
    elif there[0].id == dialog.sessions.id:
        yield _wrong("You are in this conversation.")
    elif there[0].agent != dialog.agent.name:
        yield _wrong(f"That one is with {there[0].agent}, and this chat is with {dialog.agent.name}.")
    elif dialog.chat.state.is_running:
        yield _wrong("A turn goes on. Stop it first, with Esc or Ctrl-C.")
    else:
        dialog.resume = there[0].id
        dialog.left.set()


def _resumable(dialog: Dialog) -> Iterator[tuple[str, str]]:
    with suppress(StoreError):  # /resume says what is wrong
        for each in dialog.sessions.all()[:_SESSIONS_SHOWN]:
            if each.agent == dialog.agent.name and each.id != dialog.sessions.id:
                yield each.id, one_line(each.title, 200)


def _undo(dialog: Dialog, rest: str) -> Iterator[Line]:
    before = len(dialog.chat.messages)
    dialog.chat.undo()
    gone = before - len(dialog.chat.messages)
    dialog.look()
    yield _note(f"The last turn is undone: {count(gone, 'message')} hidden. What its tools did stays done.")


def _compact(dialog: Dialog, rest: str) -> Iterator[Line]:
    async def compact() -> None:
        dialog.view.begin("making the conversation shorter")
        try:
            done = await dialog.chat.compact()
        finally:
            dialog.view.end()
        problems = [f"{step.strategy}: {step.error}" for step in done.steps if step.error]
        if done.after_tokens == done.before_tokens:
            why = f" {' '.join(problems)}" if problems else " There is too little that can be left out."
            dialog.say([_wrong(f"The conversation is as long as before.{one_line(why)}")])

    if dialog.chat.state.is_running:
        yield _wrong("A turn goes on. Stop it first, with Esc or Ctrl-C.")
    else:
        dialog.later(compact())


def _use_model(dialog: Dialog, rest: str) -> Iterator[Line]:
    async def use() -> None:
        await dialog.chat.use(rest)
        dialog.use(rest)
        dialog.say([_note(f"{rest} answers from now on.")])

    if rest:
        dialog.later(use())
        return
    name = dialog.model if isinstance(dialog.model, str) else f"{dialog.model.provider}:{dialog.model.name}"
    yield Line(indent=2, text=name)
    yield _note("/model NAME lets another one answer, for example anthropic:claude-sonnet-5-5.")


def _mode(dialog: Dialog, rest: str) -> Iterator[Line]:
    permission = dialog.permission
    if permission is None:
        yield _wrong("The agent's own gate decides. Begin the chat with --mode to have a mode besides.")
    elif not rest:
        for mode, text in _modes(dialog):
            is_now = mode == permission.mode
            yield Line(indent=1 if is_now else 3, mark="step" if is_now else "", name=mode, text=text, rows=2)
    elif not is_one_of(rest, PermissionMode):
        yield _wrong(f"There is no mode {one_line(rest, 40)}. Use one of {', '.join(MODES)}.")
    else:
        permission.mode = rest
        dialog.look()
        yield _note(f"The mode is {rest} from the next call on.")


def _modes(dialog: Dialog) -> Iterator[tuple[str, str]]:
    for mode, steps in MODES.items():
        yield mode, ", ".join(f"{kind}: {step}" for kind, step in steps.items())


def _show_output(dialog: Dialog, rest: str) -> Iterator[Line]:
    if not dialog.last_output:
        yield _wrong("No command has written anything yet.")
        return
    for row in dialog.last_output.split("\n"):
        for start in range(0, max(len(row), 1), _LONGEST_ROW):
            yield Line(indent=2, mark="bar", text=row[start : start + _LONGEST_ROW], rows=_OUTPUT_ROWS)


def _quit(dialog: Dialog, rest: str) -> Iterator[Line]:
    dialog.leave(0)
    yield from ()


COMMANDS: Final[dict[str, Command]] = {
    "/help": Command(_help, "Shows this."),
    "/model": Command(_use_model, "Shows the model, or lets another one answer.", "[NAME]", at_start="--model NAME"),
    "/mode": Command(_mode, "Shows what happens to calls, or changes it.", "[MODE]", _modes, "--mode MODE"),
    "/cost": Command(_show_cost, "Shows the tokens and the cost of the conversation."),
    "/compact": Command(_compact, "Makes what is sent of the conversation shorter."),
    "/undo": Command(_undo, "Hides the last turn. What its tools did stays done."),
    "/output": Command(_show_output, "Shows all that the last command wrote."),
    "/follow": Command(_follow, "Says TEXT when the agent has nothing else left to do.", "TEXT"),
    "/drop": Command(_drop, "Withdraws what waits to be said."),
    "/continue": Command(_continue, "Goes on after an interruption, or with what waits."),
    "/reset": Command(_reset, "Stops, and forgets the conversation."),
    "/resume": Command(
        _resume, "Lists the conversations that are kept, or goes on with one.", "[ID]", _resumable, "--resume ID"
    ),
    "/quit": Command(_quit, "Leaves. The conversation is kept."),
}

ALL: Final = Commands(knows=lambda text: _find(text) is not None, obey=_obey)
