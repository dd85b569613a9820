"""A chat at the prompt: what is entered goes to the agent, to a command, typed with a `/` before it, to a shell or to
a question; what happens becomes lines.

Everything here happens in the thread of the chat's event loop. Where the lines go is not its concern.
"""

from __future__ import annotations

import asyncio
import os
import re
from codecs import getincrementaldecoder
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

from journeyman import events
from journeyman.agent import Runtime
from journeyman.chat.chat import Chat
from journeyman.cli.chat.sessions import SessionFile
from journeyman.cli.chat.tree import ChatTree, fold_rows, user_line
from journeyman.cli.chat.view import SAY, ChatView, EnteredLine, Status
from journeyman.cli.options import AnyAgent
from journeyman.cli.permit.asked import TerminalQuestion
from journeyman.cli.permit.policy import Policy
from journeyman.cli.run import parse_input
from journeyman.cli.show.lines import EMPTY, Line, one_line, row_pieces, usage_sentence
from journeyman.connect import connect
from journeyman.definition.foreign import OLD_SLASH_WORDS
from journeyman.definition.narrowing import is_one_of
from journeyman.definition.problems import join_sentences
from journeyman.errors import (
    InvalidArguments,
    JourneymanError,
    ModelUnavailable,
    NothingToContinue,
    StoreError,
    count,
    with_its_end,
)
from journeyman.model import Model, facts_of
from journeyman.permission.permission import MODES, PermissionMode
from journeyman.processes.unboxed import Unboxed
from journeyman.types import Image
from journeyman.window import estimate_message

if TYPE_CHECKING:
    from journeyman.processes.process import SandboxProcess
    from journeyman.toolbox.boxed import AskedSandbox

_MAY_DELIVER: Final = (events.MessageCommitted, events.IterationStarted, events.TurnEnded)
"""After these, something that waited may have been said."""
_QUEUED_ROWS: Final = 2
_SHELL_ROWS: Final = 200
"""How many lines of what a command of the user's writes are shown."""
_SHELL_LINES: Final = 20_000
_SHELL_CHARS: Final = 30_000
"""How many characters of it the agent is told."""
_LONGEST_LINE: Final = 10_000
_PICTURES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_WORD: Final = re.compile(r"""(?<!\S)(@?)("[^"\n]+"|'[^'\n]+'|(?:\\.|[^\s\\])+)""")
"""A word, or what stands in quotes, or has escaped spaces, as where a path is dropped."""


class Dialog:
    """A mediator between the user and one chat: it passes on what is typed, and shows what happens."""

    def __init__(
        self, agent: AnyAgent, view: ChatView, sessions: SessionFile, *, is_attended: bool, echoes: bool
    ) -> None:
        """Not `is_attended`: what is entered comes through a pipe, and answers go to another one. `echoes`: what is
        said is shown again, above."""
        self.agent: Final = agent
        self.is_attended: Final = is_attended
        self.view: Final = view
        self.sessions: Final = sessions
        self.model: Model | str = agent.model
        """The model that answers, or its name."""
        self.permission: Policy | None = None
        """The gate whose mode can be changed, if there is one."""
        self.sandbox: AskedSandbox | None = None
        """The sandbox that the command line wishes for, and the boxes of the agent's workspaces."""
        self.exit_code = 0
        self.resume: str | None = None
        """The id of the conversation to go on with after this one was left; None leaves altogether."""
        self.last_output = ""
        """What the command wrote that was shown last."""
        self.left: Final = asyncio.Event()
        """This event is set when the user wants to leave."""
        self._echoes = echoes
        self._tree = ChatTree(agent, shows_answers=is_attended)
        self._open: dict[str, TerminalQuestion] = {}
        """The approvals and questions that wait for the user, by their id, oldest first."""
        self._chat: Chat[Any, Any] | None = None
        self._waiting: tuple[tuple[str, str], ...] = ()
        """What was in the queues when they were looked at last."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._shell: asyncio.Task[None] | None = None
        self._ran: list[str] = []
        """What the user's commands wrote, to be told with what is said next."""
        self._held: list[EnteredLine] = []
        """What was entered while nothing could be done with it."""
        self._used_tokens = 0
        self._window_tokens: int | None = None

    @property
    def chat(self) -> Chat[Any, Any]:
        """The chat."""
        if self._chat is None:
            raise RuntimeError("The chat is not open yet. Use it after attach().")
        return self._chat

    def attach(self, chat: Chat[Any, Any], runtime: Runtime) -> None:
        """Take the chat, once it is open, and what surrounds it."""
        self._tree = ChatTree(self.agent, shows_answers=self.is_attended)
        self._chat, self._waiting, self.resume = chat, (), None
        self._used_tokens = sum(map(estimate_message, chat.messages))
        gate = self.agent.gate
        gates = gate if isinstance(gate, Sequence) else [gate]
        self.permission = next((each for each in gates if isinstance(each, Policy)), None)
        self.use(runtime.model or self.agent.model)
        self.look()
        self._go_on()

    def detach(self) -> None:
        """Let go of the chat, before another one is opened."""
        self._chat = None
        self.left.clear()

    def use(self, model: Model | str) -> None:
        """Take note of the model that answers."""
        self.model = model
        self._look_at_window()
        self._look_at_status()

    def hear(self, event: events.Event) -> None:
        """Listen to the chat."""
        lines: list[Line] = []
        if isinstance(event, _MAY_DELIVER):
            lines += self._show_delivered()
        if isinstance(event, events.RunStarted) and len(event.path) == 1:
            self.view.begin()
        lines += self._tree.lines(event, self.view.follow(event))
        if isinstance(event, events.ApprovalRequested | events.QuestionAsked):
            self._open[event.id] = asked = TerminalQuestion(self.agent, event, may_exit="turn")
            lines += asked.lines(self.view.height)
        elif isinstance(event, events.ApprovalAnswered | events.QuestionAnswered) and event.id in self._open:
            lines += self._open.pop(event.id).outcome(event)
        if isinstance(event, events.ToolFinished):
            lines += self._fold_output(event)
        self.view.grow(self._tree.growing)
        self.say(lines)
        self._note_usage(event)
        if isinstance(event, events.TurnEnded) and len(event.path) == 1:
            self.view.end()

    def _fold_output(self, event: events.ToolFinished) -> Iterator[Line]:
        """Give the last lines of what a command has written."""
        tool = self.agent.plan.tools.get(event.tool_name) if len(event.path) == 1 else None
        if tool is None or tool.permission_kind != "bash" or event.is_error:
            return
        rows = event.tool_result.removesuffix("[exit code 0]").rstrip().split("\n")
        self.last_output = "\n".join(rows)
        yield from fold_rows([row for row in rows if row.strip()])

    def _note_usage(self, event: events.Event) -> None:
        match event:
            case events.ModelResponded(usage=usage) if len(event.path) == 1:
                self._used_tokens = usage.total_tokens
                if self._window_tokens is None:  # a server of one's own may tell it once it has loaded the model
                    self._look_at_window()
            case events.ContextCompacted(after_tokens=tokens) if len(event.path) == 1:
                self._used_tokens = tokens
            case events.ModelResponded() | events.TaskStarted() | events.TaskEnded() | events.TurnEnded():
                pass
            case _:
                return
        self._look_at_status()

    def _look_at_window(self) -> None:
        self._window_tokens = None
        with suppress(ModelUnavailable):  # the chat says so when it is asked
            model = connect(self.model) if isinstance(self.model, str) else self.model
            self._window_tokens = facts_of(model).context_window

    def _look_at_status(self) -> None:
        """Show how the chat is."""
        if self._chat is None:
            return
        name = self.model if isinstance(self.model, str) else f"{self.model.provider}:{self.model.name}"
        usage = self._chat.usage
        self.view.tell(
            Status(
                model=one_line(name.partition(":")[2] or name, 60),
                used_tokens=self._used_tokens if self._chat.messages else 0,
                window_tokens=self._window_tokens,
                cost=usage.cost if usage.requests else None,
                mode="" if self.permission is None else self.permission.mode,
                n_queued=len(self._waiting) + len(self._held),
                n_background=len(self.sessions.tasks.active),
            )
        )

    def enter(self, entry: EnteredLine) -> None:
        """Do what the user entered."""
        if self._chat is None or (self._shell is not None and not entry.id):
            self._held.append(entry)
            self._show_queue()
            return
        try:
            self.say(list(self._enter(entry)))
        except (JourneymanError, KeyError) as error:
            self.say([Line(mark="warning", text=str(error.args[0]), rows=4)])

    def _enter(self, entry: EnteredLine) -> Iterator[Line]:
        text, asked = entry.text, self._open.get(entry.id)
        if entry.id and asked is None:
            yield Line(mark="warning", text="Nothing waits for that answer any more.")
        elif asked is not None and _find(text) is None:
            yield from asked.enter(text)
            if asked.answer is not None:
                self.chat.answer(entry.id, asked.answer)
        elif text.startswith("/") and not (self.is_attended and "/" in text.split()[0][1:]):  # a path is no command
            yield from _obey(self, text)
        elif text.startswith("!") and text.strip("! ") and self.is_attended:  # what comes through a pipe runs nothing
            yield Line(name="!", text=text.lstrip("! "), rows=_QUEUED_ROWS)
            self._shell = self.later(self._run_shell(text.lstrip("! "), is_told=not text.startswith("!!")))
        elif text.strip():
            yield from self._tell(text.strip())

    def _tell(self, text: str) -> Iterator[Line]:
        """Say `text`, with the pictures that it names: now, or the text alone before the next model call."""
        takes_text = self.agent.input is str
        pictures = [*_pictures(text)] if takes_text and self.is_attended else []
        ran = "".join(f"{each}\n\n" for each in self._ran) if takes_text else ""
        if self.chat.state.is_running:
            self.chat.steer(f"{ran}{text}")
            self._ran.clear()
            self.look()
            if pictures:
                yield Line(mark="warning", text="Only what begins a turn has pictures. Name them again then.", rows=2)
            return
        if self._echoes:
            yield user_line(text)
        try:
            value = parse_input(self.agent, f"{ran}{text}")
        except InvalidArguments as invalid:
            issues = "\n".join(invalid.issues)
            yield Line(mark="failed", text=f"The agent does not take this:\n{issues}", rows=8)
            return
        try:
            images = [Image.from_path(path) for path in pictures]
        except (OSError, ValueError) as error:
            yield Line(mark="warning", text=f"{error} Nothing was said: name another picture, or none.", rows=4)
            return
        self.chat.start([value, *images] if images else value)
        for path in pictures:
            yield Line(indent=2, text=f"with the picture {one_line(str(path))}", style="dim", rows=_QUEUED_ROWS)
        self._ran.clear()
        self.view.begin()

    def interrupt(self) -> None:
        """Stop the turn, and the user's own command, because the user pressed Ctrl-C or Escape."""
        if self._shell is not None:
            self._shell.cancel()
        if self._chat is not None:
            self._chat.abort("interrupted by the user")

    def leave(self, exit_code: int) -> None:
        """Leave the chat, with this exit code."""
        self.exit_code = exit_code
        self.left.set()

    def say(self, lines: Sequence[Line]) -> None:
        """Show lines, and then what the input line is for; nothing is asked for any more before that is told."""
        wanted = next((each.prompt for each in self._open.values()), SAY)
        if wanted is SAY is not self.view.prompt:
            self.view.ask(SAY)
        if lines:
            self.view.say(lines)
        if wanted is not self.view.prompt:
            self.view.ask(wanted)

    def later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do what takes time."""
        task = asyncio.get_running_loop().create_task(self._guard_work(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guard_work(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except JourneymanError as error:
            hint = error.hint if isinstance(error, ModelUnavailable) else ""
            self.say([Line(mark="warning", text=join_sentences(str(error), hint), rows=6)])

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

    def look(self) -> None:
        """Show what waits to be said, what was said of it, and how the chat is."""
        self.say(list(self._show_delivered()))
        self._look_at_status()

    def withdraw(self) -> tuple[str, ...]:
        """Withdraw what waits to be said, and return it."""
        withdrawn = self.chat.clear()
        self._waiting = ()
        self.look()
        return withdrawn

    def _show_delivered(self) -> Iterator[Line]:
        if self._chat is None:
            return
        state = self._chat.state
        now = (*(("queued", text) for text in state.steering), *(("when done", text) for text in state.follow_ups))
        gone = Counter(self._waiting) - Counter(now)
        before, self._waiting = self._waiting, now
        for each in before:
            if gone[each]:
                gone[each] -= 1
                yield user_line(each[1], note="delivered")
        if now != before:
            self._show_queue()

    def _show_queue(self) -> None:
        waiting = [*self._waiting, *(("then", entry.text) for entry in self._held)]
        self.view.queue(
            [Line(indent=2, name=f"{kind}:", text=text, style="dim", rows=_QUEUED_ROWS) for kind, text in waiting]
        )
        self._look_at_status()

    def _go_on(self) -> None:
        """Do what was entered while nothing could be done with it."""
        held, self._held = self._held, []
        if held:
            self._show_queue()
        for entry in held:
            self.enter(entry)

    async def _run_shell(self, command: str, *, is_told: bool) -> None:
        """Run a command in the current folder, show what it writes, and let the agent know with what is said next."""
        self.view.begin("running your command")
        written: deque[str] = deque(maxlen=_SHELL_LINES)
        ending = "interrupted"
        try:
            ending = f"exit code {await self._run_command(command, written)}"
        except OSError as error:
            ending = f"not started: {error.strerror}"
        finally:
            self._shell = None
            if not self.chat.state.is_running:
                self.view.end()
            output = "".join(f"{line}\n" for line in written)
            self.last_output = f"{output}[{ending}]"
            if is_told and self.agent.input is str:
                shown = with_its_end(output, _SHELL_CHARS)
                self._ran.append(f"I ran this command:\n$ {command}\n{shown}[{ending}]")
            note = ". The agent reads it with what you say next." if is_told and self.agent.input is str else ""
            self.say([Line(indent=2, text=f"{ending}{note}", style="dim", rows=_QUEUED_ROWS), EMPTY])
            self._go_on()

    async def _run_command(self, command: str, written: deque[str]) -> int:
        """Run a command, show its first lines, and return its exit code. Whatever happens, nothing of it goes on."""
        decode, rest, n_shown = getincrementaldecoder("utf-8")("replace").decode, "", 0
        unboxed, output = Unboxed(), asyncio.StreamReader()  # whoever types it means what they may do themselves
        reading, writing = os.pipe()
        try:
            with ExitStack() as ends:
                pipe = ends.enter_context(os.fdopen(reading, "rb", 0))
                with os.fdopen(writing, "wb", 0):
                    process = await _start_shell(unboxed, command, writing)
                ends.callback(process.close)
                protocol = asyncio.StreamReaderProtocol(output)
                transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
                ends.callback(transport.close)
                while data := await output.read(65_536):
                    *whole, rest = (rest + decode(data)).split("\n")
                    if len(rest) > _LONGEST_LINE:
                        whole, rest = [*whole, rest], ""
                    written += whole
                    shown = whole[: max(0, _SHELL_ROWS - n_shown)]
                    n_shown += len(whole)
                    self.say([Line(indent=2, mark="bar", text=line, rows=_SHELL_ROWS) for line in shown])
                if rest:
                    written.append(rest)
                    self.say([Line(indent=2, mark="bar", text=rest, rows=_SHELL_ROWS)])
                if n_shown > _SHELL_ROWS:
                    self.say([_note(f"… {count(n_shown - _SHELL_ROWS, 'more line')}: /output")])
                return await process.wait()
        finally:
            await asyncio.to_thread(unboxed.close)


async def _start_shell(unboxed: Unboxed, command: str, output: int) -> SandboxProcess:
    """Start a command in the current folder. A cancellation at this very moment ends what has just been started."""
    folder, environment = str(Path.cwd()), dict(os.environ)
    starting = asyncio.ensure_future(
        unboxed.spawn("bash", ("-c", command), folder=folder, environment=environment, stdout=output, stderr=output)
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            (await starting).close()
        raise


def _pictures(text: str) -> Iterator[Path]:
    """Give the paths of the pictures that a text names, by `@` and a path, or in a single line by the path alone."""
    for found in _WORD.finditer(text):
        word = found[2].strip("\"'") if found[2][0] in "\"'" else re.sub(r"\\(.)", r"\1", found[2])
        path = Path(word.rstrip(".,;:!?)"))
        if path.suffix.lower() in _PICTURES and (found[1] or "\n" not in text):
            with suppress(OSError, RuntimeError):  # the name is too long, or nobody's home: it names no file
                path = path.expanduser()
                if path.is_file():
                    yield path


_SESSIONS_SHOWN: Final = 12
_OUTPUT_ROWS: Final = 2_000
_KEYS: Final = (
    ("a line", "says it; while the agent works, before its next model call"),
    ("!COMMAND", "runs it here; the agent reads what it wrote with what you say next; with !! it does not"),
    ("@ and a path", "names a file; Tab completes it, and commands, too"),
    ("Alt-Enter", "begins another line; arrows and Ctrl-R find what was entered before"),
    ("Esc, Ctrl-C", "stops the turn; at an empty line, Ctrl-C twice: leaves"),
    ("Ctrl-D", "leaves"),
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a chat: what it does, its help, and the values that may follow it."""

    act: Callable[[Dialog, str], Iterator[Line]]
    """Does it with what follows its name, and gives the lines that tell."""
    about: str
    takes: str = ""
    """The words that must follow its name, or may where they stand in brackets; empty when none may."""
    choices: Callable[[Dialog], Iterator[tuple[str, str]]] = lambda _: iter(())
    """Gives what may follow its name, each with what it is."""
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


def _show_sandbox(dialog: Dialog, rest: str) -> Iterator[Line]:
    lines: Callable[[AskedSandbox | None], Iterator[Line]] = resolve_name("journeyman.cli.sandbox:sandbox_lines")
    return lines(dialog.sandbox)


def _show_output(dialog: Dialog, rest: str) -> Iterator[Line]:
    if not dialog.last_output:
        yield _wrong("No command has written anything yet.")
        return
    for piece in row_pieces(dialog.last_output.split("\n")):
        yield Line(indent=2, mark="bar", text=piece, rows=_OUTPUT_ROWS)


def _quit(dialog: Dialog, rest: str) -> Iterator[Line]:
    dialog.leave(0)
    yield from ()


COMMANDS: Final[dict[str, Command]] = {
    "/help": Command(_help, "Shows this."),
    "/model": Command(_use_model, "Shows the model, or lets another one answer.", "[NAME]", at_start="--model NAME"),
    "/mode": Command(_mode, "Shows what happens to calls, or changes it.", "[MODE]", _modes, "--mode MODE"),
    "/sandbox": Command(_show_sandbox, "Shows what commands may do, and what was refused to them."),
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
