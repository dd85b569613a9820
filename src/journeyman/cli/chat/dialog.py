"""A chat at the prompt: what is entered goes to the agent, to a command, to a shell or to a question; what happens
becomes lines.

Everything here happens in the thread of the chat's event loop. Where the lines go is not its concern.
"""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from codecs import getincrementaldecoder
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

from journeyman import events
from journeyman.agent import Agent, Runtime
from journeyman.chat.chat import Chat
from journeyman.cli.chat.sessions import SessionFile
from journeyman.cli.chat.tree import ChatTree, fold_rows, user_line
from journeyman.cli.chat.view import SAY, ChatView, EnteredLine, Status
from journeyman.cli.permit.asked import TerminalQuestion
from journeyman.cli.permit.policy import Policy
from journeyman.cli.run import parse_input
from journeyman.cli.show.lines import EMPTY, Line, one_line
from journeyman.connect import connect
from journeyman.definition import join_sentences
from journeyman.errors import InvalidArguments, JourneymanError, ModelUnavailable, count, with_its_end
from journeyman.model import Model, context_window_of
from journeyman.types import Image
from journeyman.window import estimate_message

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


@dataclass(frozen=True, slots=True)
class Commands:
    """The two functions by which a dialog recognises and carries out lines that begin with a `/`."""

    knows: Callable[[str], bool]
    """Tells whether a line asks for a command that there is."""
    obey: Callable[[Dialog, str], Iterator[Line]]
    """Does what a line that begins with `/` asks for, and gives the lines that tell."""


class Dialog:
    """A mediator between the user and one chat: it passes on what is typed, and shows what happens."""

    def __init__(
        self,
        agent: Agent[Any, Any, Any],
        view: ChatView,
        sessions: SessionFile,
        commands: Commands,
        *,
        is_attended: bool = True,
        echoes: bool = True,
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
        self.exit_code = 0
        self.resume: str | None = None
        """The id of the conversation to go on with after this one was left; None leaves altogether."""
        self.last_output = ""
        """What the command wrote that was shown last."""
        self.left: Final = asyncio.Event()
        """This event is set when the user wants to leave."""
        self._commands = commands
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

    # -- what happens

    def hear(self, event: events.Event) -> None:
        """Listen to the chat."""
        lines: list[Line] = []
        if isinstance(event, _MAY_DELIVER):
            lines += self._show_delivered()
        if isinstance(event, events.RunStarted) and len(event.path) == 1:
            self.view.begin()
        lines += self._tree.lines(event)
        if isinstance(event, events.ApprovalRequested | events.QuestionAsked):
            self._open[event.id] = asked = TerminalQuestion(self.agent, event, may_exit="turn")
            lines += asked.lines(self.view.height)
        elif isinstance(event, events.ApprovalAnswered | events.QuestionAnswered) and event.id in self._open:
            lines += self._open.pop(event.id).outcome(event)
        if isinstance(event, events.ToolFinished):
            lines += self._fold_output(event)
        self.view.grow(self._tree.growing)
        self.view.follow(event)
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
            self._window_tokens = context_window_of(connect(self.model) if isinstance(self.model, str) else self.model)

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

    # -- what is entered

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
        elif asked is not None and not self._commands.knows(text):
            yield from asked.enter(text)
            if asked.answer is not None:
                self.chat.answer(entry.id, asked.answer)
        elif text.startswith("/") and not (self.is_attended and "/" in text.split()[0][1:]):  # a path is no command
            yield from self._commands.obey(self, text)
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

    # -- what waits

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

    # -- commands of the user's

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
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True
        )
        decode, rest, n_shown = getincrementaldecoder("utf-8")("replace").decode, "", 0
        try:
            while process.stdout is not None and (data := await process.stdout.read(65_536)):
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
                self.say([Line(indent=2, text=f"… {count(n_shown - _SHELL_ROWS, 'more line')}: /output", style="dim")])
            return await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)
            await process.wait()


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
