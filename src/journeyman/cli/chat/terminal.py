"""The terminal of a chat: the conversation above, and an input line that can be typed into at any time.

It has a thread and an event loop of its own, so that keys are heard while a tool blocks that of the agent. What is
finished is printed for good; the tail and the line are drawn again. The terminal is the chat's: what others print
meanwhile becomes lines, and nobody else reads the keys. A long paste stands in the line as a short mark, and is what it
was once the line is entered.
"""

from __future__ import annotations

import asyncio
import codecs
import io
import os
import sys
import termios
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Final, TypeAlias

from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.completion.base import get_common_complete_suffix
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, Filter, is_searching
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, ConditionalContainer, Container, Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.search import accept_search
from prompt_toolkit.widgets import SearchToolbar
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from journeyman.cli.chat.view import LEAVING, SAY, ChatExit, ChatView, EnteredLine, Keys
from journeyman.cli.ending import end_process
from journeyman.cli.show.lines import WIDEST, Line, laid_out, one_line
from journeyman.cli.show.markdown import end_of, markdown_rows
from journeyman.errors import count
from journeyman.machine.descriptors import STDERR, STDIN, STDOUT, take_descriptor, take_stdin

_LONGEST_LINE: Final = 10_000
_ROWS: Final = 100
_PATIENCE_S: Final = 0.2
_BETWEEN_PAINTS_S: Final = 0.1
_ESCAPE_S: Final = 0.05
"""How long Escape waits for what would make it the beginning of another key."""
_TAIL_SHARE: Final = 2
"""The tail takes at most one part in so many of the terminal's rows."""
_RESTORE: Final = b"\r\n\x1b[0m\x1b[?25h\x1b[?2004l"
_WAITS: Final = Line(mark="asks", text="The agent waits for an answer: first send this line, or clear it (Ctrl-U).")
_MOST_ROWS: Final = 8
_MENU_ROWS: Final = 6
_FOLDED_LINES: Final = 6
_FOLDED_CHARS: Final = 1_500
_MOST_FOUND: Final = 60
_MOST_LOOKED_AT: Final = 4_000
_LEFT_OUT: Final = ("node_modules", "__pycache__")
_MARK: Final = "[pasted text "

Suggest: TypeAlias = Callable[[str], Sequence[tuple[str, str]]]
"""Given the beginning of a line, a command, returns what may follow it, each with what it is; given `/`, the commands.
Called in a thread of its own."""


def usable_size(told: os.terminal_size) -> Size:
    """Return the size of a terminal; of one that does not know its own, which says 0, the usual one."""
    return Size(rows=told.lines or 24, columns=told.columns or 80)


class Terminal:
    """Shows a view, and hears what is typed."""

    def __init__(self, view: ChatView, keys: Keys, suggest: Suggest, *, history: Path | None) -> None:
        """`suggest` is asked for completions. `history` is the file of what was entered before; None keeps none."""
        self._view = view
        self._keys = keys
        self._captured = CapturedTerminal(view.say)
        self._before = termios.tcgetattr(self._captured.input.fileno())
        self._output = _SteadyOutput(
            self._captured.output, self._size, term=os.environ.get("TERM"), enable_cpr=False, enable_bell=False
        )
        self._console = Console(file=io.StringIO(), force_terminal=True, highlight=False, markup=False, emoji=False)
        self._prompt = SAY
        self._wanted = SAY
        """The prompt that the view had when its lines were printed last: a question stands there before its answer is
        asked for."""
        self._rows: StyleAndTextTuples = []
        """The tail as it was painted last."""
        self._laid_out: tuple[str, int, list[Text]] = "", 0, []
        """The Markdown that was laid out last, for which width, and its rows."""
        self.exit: Final = ChatExit(view, keys, self._end_at_once)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._closing = Flag()
        self._line = _InputLine(lambda: self._prompt.label, suggest, history=history, on_change=self._note_typing)
        self._buffer = self._line.buffer
        self._app = self._application()
        self._thread = Thread(target=lambda: asyncio.run(self._draw()), name="journeyman-terminal", daemon=True)

    def start(self) -> None:
        """Draw, and listen. Once it does, nothing changes."""
        self._view.watch(self._wake)
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Show what is left, and leave the terminal as it was."""
        self._closing.set()
        if self._thread.is_alive():
            self._wake()
            self._thread.join()
        width = self._size().columns
        self._captured.give_back()
        os.write(STDOUT, self._draw_lines(self._view.take(), width).encode("utf-8", "replace"))

    def interrupt(self) -> None:
        """Do what Ctrl-C does. Any thread may."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._interrupt)

    def _end_at_once(self, exit_code: int) -> None:
        descriptor = self._captured.output.fileno()
        try:
            termios.tcsetattr(descriptor, termios.TCSANOW, self._before)
        finally:
            end_process(exit_code, terminal=descriptor, last=_RESTORE)

    async def _draw(self) -> None:
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        painter = asyncio.create_task(self._paint_on(self._news))
        try:
            await self._app.run_async(handle_sigint=False, set_exception_handler=False)
        except EOFError:  # the terminal is gone
            self._keys.left(0)
        await painter

    def _wake(self) -> None:
        loop, news = self._loop, self._news
        if loop is not None and news is not None and not loop.is_closed():
            loop.call_soon_threadsafe(news.set)

    async def _paint_on(self, news: asyncio.Event) -> None:
        while not self._closing.is_set():
            self._paint()
            news.clear()
            if self._view.is_working:
                await asyncio.sleep(_BETWEEN_PAINTS_S)
            elif not self._closing.is_set():
                await news.wait()
        self._print(self._view.take())
        if self._app.is_running:
            self._app.exit()

    def _paint(self) -> None:
        self._wanted = self._view.prompt
        self._adopt()
        lines, self._rows = self._view.take(), self._tail()
        with self._output.at_once():  # so that nothing flickers
            self._print(lines)
            if self._app.is_running:
                self._app.render_counter += 1  # what was drawn under the same number is not asked for again
                with set_app(self._app):
                    self._app.renderer.render(self._app, self._app.layout)

    def _print(self, lines: Sequence[Line]) -> None:
        """Print lines for good, above what is drawn again."""
        if lines:
            self._app.renderer.erase()
            self._output.write_raw(self._draw_lines(lines).replace("\n", "\r\n"))
            if not self._app.is_running or self._closing.is_set():
                self._output.flush()

    def _draw_lines(self, lines: Sequence[Line], width: int | None = None, n_rows: int = 0) -> str:
        """Lay out lines; of each the last `n_rows` rows, or all if that is 0."""
        self._console.width = width or self._size().columns
        widest = min(self._console.width, WIDEST)
        with self._console.capture() as captured:
            for line in lines:
                if line.is_markdown and self._laid_out[:2] != (line.text, widest):
                    self._laid_out = line.text, widest, markdown_rows(line.text, self._console, widest)
                rows = self._laid_out[2] if line.is_markdown else [*laid_out(line, self._console)]
                if rows:  # all at once: each print takes long
                    self._console.print(*rows[-n_rows:], sep="\n", soft_wrap=True)
        return captured.get()

    def _size(self) -> Size:
        size = usable_size(os.get_terminal_size(self._captured.output.fileno()))
        self._view.height = size.rows
        return size

    def _application(self) -> Application[None]:
        def status() -> ANSI:
            return ANSI(self._draw_lines([self._view.status.line(self._size().columns - 1)]).rstrip("\n"))

        tail = Window(
            FormattedTextControl(lambda: self._rows),
            dont_extend_height=True,
            wrap_lines=False,
            height=lambda: Dimension(max=max(1, self._size().rows // _TAIL_SHARE)),
        )
        above = ConditionalContainer(tail, Condition(lambda: bool(self._rows)))
        below = self._line.below(lambda: self._size().columns)
        last = Window(FormattedTextControl(status), height=1, wrap_lines=False)
        rows = HSplit([above, self._line.window, *below, last])
        app: Application[None] = Application(
            layout=Layout(rows, focused_element=self._line.window),
            key_bindings=self._bindings(),
            input=Vt100Input(self._captured.input),
            output=self._output,
            color_depth=ColorDepth.DEPTH_1_BIT if self._console.no_color else None,
            erase_when_done=True,
        )
        app.ttimeoutlen = app.timeoutlen = _ESCAPE_S
        return app

    def _tail(self) -> StyleAndTextTuples:
        """Return the rows between what is finished and the line."""
        n_rows = max(1, self._size().rows // _TAIL_SHARE)
        tail = self._view.tail()
        lines = [replace(each, text=end_of(each.text, n_rows)) if each.is_markdown else each for each in tail]
        if self.exit.was_asked:
            lines.append(LEAVING)
        if self._wanted is not self._prompt:
            lines.append(_WAITS)
        elif self._prompt.hint:
            lines.append(Line(text=self._prompt.hint, style="cyan", rows=3))
        return to_formatted_text(ANSI("\n".join(self._draw_lines(lines, n_rows=n_rows).splitlines()[-n_rows:])))

    def _adopt(self) -> None:
        """Let the line be for what the view says, unless that would change the meaning of what was typed already."""
        wanted = self._wanted
        if wanted is self._prompt:
            return
        is_gone = bool(self._prompt.id) and wanted.id != self._prompt.id
        if is_gone or wanted.given or not self._buffer.text or self._buffer.text == self._prompt.given:
            self._prompt = wanted
            self._buffer.reset()
            if wanted.given:
                self._buffer.insert_text(wanted.given)

    def _note_typing(self) -> None:
        self.exit.was_asked = False
        if not self._buffer.text:
            self._wake()

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        self._line.bind(bindings)
        is_empty = Condition(lambda: not self._buffer.text)
        _bind(bindings, "enter", act=self._enter)
        _bind(bindings, "escape", act=self._escape)
        _bind(bindings, "<sigint>", act=self._interrupt)
        _bind(bindings, "c-c", act=self._interrupt)
        _bind(bindings, "c-d", act=lambda: self.exit.leave(0), when=is_empty & ~is_searching)
        _bind(bindings, "c-o", act=lambda: self._keys.entered(EnteredLine("/output")))
        return bindings

    def _escape(self) -> None:
        if self._buffer.complete_state is not None:
            self._buffer.cancel_completion()
        elif self._view.is_working and self._view.stop():
            self._keys.interrupted()
            self._wake()

    def _enter(self) -> None:
        if self._line.chooses() and self._buffer.text.endswith((" ", "/")):
            return  # something follows
        text, id = self._line.take(), self._prompt.id
        if not id and text.strip():
            self._buffer.append_to_history()  # for the arrow keys
        self._buffer.reset()
        self.exit.was_asked = False
        if text.strip() or id:
            self._keys.entered(EnteredLine(text, id))
        self._adopt()

    def _interrupt(self) -> None:
        if self._buffer.text and not (self._view.is_working or self.exit.is_leaving):
            self._buffer.reset()
        else:
            self.exit.interrupt()
        self._wake()


def _bind(bindings: KeyBindings, *keys: str, act: Callable[[], None], when: Filter = ~is_searching) -> None:
    """Let keys, pressed one after the other, do something: where nothing is looked for, or at another time."""

    @bindings.add(*keys, filter=when)
    def _(event: KeyPressEvent) -> None:
        act()


class _SteadyOutput(Vt100_Output):
    """Writes what is drawn together in one piece."""

    _is_held = False

    @contextmanager
    def at_once(self) -> Generator[None]:
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self.flush()

    def flush(self) -> None:
        if not self._is_held:
            super().flush()


class CapturedTerminal:
    """The terminal, taken from stdin, stdout and stderr until it is given back."""

    def __init__(self, say: Callable[[Sequence[Line]], None]) -> None:
        """`say` takes the lines that others print, in a thread of its own."""
        self._say = say
        heard, told = os.pipe()
        printed = {number: take_descriptor(number, os.dup(told)) for number in (STDOUT, STDERR) if os.isatty(number)}
        self._kept = {STDIN: take_stdin(), **printed}
        self.input: Final = os.fdopen(os.dup(self._kept[STDIN]), encoding="utf-8", errors="replace")
        self.output: Final = os.fdopen(os.dup(self._kept[STDOUT]), "w", encoding="utf-8", errors="replace")
        os.close(told)
        self._reader = Thread(target=self._listen, args=(heard,), name="journeyman-printed", daemon=True)
        self._reader.start()

    def _listen(self, heard: int) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        rest = ""
        while data := os.read(heard, 65_536):
            *whole, rest = (rest + decode(data)).split("\n")
            if len(rest) > _LONGEST_LINE:
                whole, rest = [*whole, rest], ""
            self._show(whole)
        self._show([rest] if rest else [])
        os.close(heard)

    def _show(self, texts: Sequence[str]) -> None:
        lines = [Line(indent=2, mark="bar", text=text, style="dim", rows=_ROWS) for text in texts]
        if lines:
            self._say(lines)

    def give_back(self) -> None:
        """Let everybody use the terminal again. What was printed until then has been shown."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        for number, kept in self._kept.items():
            os.dup2(kept, number)
            os.close(kept)
        self._kept = {}
        self._reader.join(_PATIENCE_S)  # a program that the agent left running may still hold the other end
        self.input.close()
        self.output.close()


class _InputLine:
    """The input line of a chat: editing, history, completion, and marks in place of long pastes."""

    def __init__(
        self, label: Callable[[], str], suggest: Suggest, *, history: Path | None, on_change: Callable[[], None]
    ) -> None:
        """`label` returns what stands before the line. `history` is the file of what was entered before."""
        self._pastes: dict[str, str] = {}
        self._search = SearchToolbar(backward_search_prompt="search: ", ignore_case=True)
        self._suggested = _Suggested(suggest)
        completes = Condition(lambda: self.buffer.text.startswith("/") or "@" in self.buffer.text)
        self.buffer: Final = Buffer(
            multiline=True,
            history=InMemoryHistory() if history is None else _Entered(history),
            completer=ThreadedCompleter(self._suggested),
            complete_while_typing=completes,
            on_text_changed=lambda _: on_change(),
        )
        control = BufferControl(
            self.buffer,
            input_processors=[BeforeInput(lambda: [("bold", label())])],
            search_buffer_control=self._search.control,
            preview_search=True,
        )
        self.window: Final = Window(
            control, wrap_lines=True, dont_extend_height=True, height=Dimension(min=1, max=_MOST_ROWS)
        )

    def below(self, columns: Callable[[], int]) -> list[Container]:
        """Return what stands below the line: what may be chosen, and what is looked for."""

        def finds_nothing() -> bool:
            wanted = self._search.search_buffer.text.lower()
            return not any(wanted in each.lower() for each in (self.buffer.text, *self.buffer.history.get_strings()))

        has_menu = Condition(lambda: bool(self.buffer.complete_state and self.buffer.complete_state.completions))
        menu = Window(FormattedTextControl(lambda: self._menu(columns())), dont_extend_height=True, wrap_lines=False)
        nothing = Window(FormattedTextControl([("", "  nothing found")]), height=1)
        return [
            ConditionalContainer(menu, has_menu),
            self._search.container,
            ConditionalContainer(nothing, is_searching & Condition(finds_nothing)),
        ]

    def take(self) -> str:
        """Take out what was typed, with all that was pasted."""
        text = self.buffer.text
        for mark, pasted in self._pastes.items():
            text = text.replace(mark, pasted)
        return text

    def chooses(self) -> bool:
        """Close the menu, and keep the choice. False: nothing was chosen."""
        state = self.buffer.complete_state
        if state is None or state.current_completion is None:
            return False
        self.buffer.complete_state = None
        return True

    def _menu(self, columns: int) -> StyleAndTextTuples:
        state = self.buffer.complete_state
        if state is None:
            return []
        first = max(0, min((state.complete_index or 0) - _MENU_ROWS // 2, len(state.completions) - _MENU_ROWS))
        widest = max(cell_len(each.display_text) for each in state.completions)
        rows: StyleAndTextTuples = []
        for number, each in enumerate(state.completions[first : first + _MENU_ROWS], first):
            name = set_cell_size(each.display_text, min(widest, columns))
            row = set_cell_size(f"  {name}  {each.display_meta_text}", max(columns - 1, 1)).rstrip()
            rows += [("reverse" if number == state.complete_index else "", row), ("", "\n")]
        return rows[:-1]

    def bind(self, bindings: KeyBindings) -> None:
        """Add the keys of the line."""
        is_at_mark = Condition(lambda: self._mark_before_cursor() != "")
        _bind(bindings, "escape", "enter", act=lambda: self.buffer.insert_text("\n"))
        _bind(bindings, "tab", act=self._complete)

        def delete_mark() -> None:
            self.buffer.delete_before_cursor(len(self._mark_before_cursor()))

        def accept_found() -> None:
            accept_search()
            self.buffer.cursor_position = len(self.buffer.text)

        _bind(bindings, "backspace", act=delete_mark, when=is_at_mark & ~is_searching)
        _bind(bindings, "enter", act=accept_found, when=is_searching)

        @bindings.add("<bracketed-paste>")
        def _(event: KeyPressEvent) -> None:
            self._paste(event.data.replace("\r\n", "\n").replace("\r", "\n"), event.current_buffer)

    def _complete(self) -> None:
        """Complete as far as there is no choice, at once: the next key may be Enter. Then offer what is left."""
        state, document = self.buffer.complete_state, self.buffer.document
        if state is not None and len(state.completions) > 1:
            self.buffer.complete_next()
            return
        if state is not None and state.completions:
            self.buffer.apply_completion(state.completions[0])
            return
        found = list(self._suggested.get_completions(document, CompleteEvent(completion_requested=True)))
        if len(found) == 1:
            self.buffer.apply_completion(found[0])
        elif found:
            self.buffer.insert_text(get_common_complete_suffix(document, found))
            self.buffer.start_completion()

    def _paste(self, text: str, buffer: Buffer) -> None:
        n_lines = text.rstrip("\n").count("\n") + 1
        if buffer is not self.buffer:
            text = one_line(text)
        elif n_lines > _FOLDED_LINES or len(text) > _FOLDED_CHARS:
            how_much = count(n_lines, "line") if n_lines > 1 else count(len(text), "character")
            mark = f"{_MARK}{len(self._pastes) + 1}: {how_much}]"
            self._pastes[mark] = text
            text = mark
        buffer.insert_text(text)

    def _mark_before_cursor(self) -> str:
        before = self.buffer.document.text_before_cursor
        return next((mark for mark in self._pastes if before.endswith(mark)), "")


class _Entered(FileHistory):
    """A history of entered lines that later chats see, too. Lines with marks are left out: their pastes are gone."""

    def store_string(self, string: str) -> None:
        if _MARK not in string:
            super().store_string(string)


class _Suggested(Completer):
    def __init__(self, suggest: Suggest) -> None:
        self._suggest = suggest

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if text.startswith("/") and "\n" not in text:
            name, space, rest = text.partition(" ")
            known = self._suggest(name if space else "/")
            begun = rest if space else name
            return [_completion(each, about, begun) for each, about in known if each.startswith(begun)]
        word = text[max(text.rfind(" "), text.rfind("\n")) + 1 :]
        return _paths(word[1:]) if word.startswith("@") else []


def _completion(text: str, about: str, begun: str) -> Completion:
    return Completion(text, start_position=-len(begun), display=one_line(text), display_meta=one_line(about, 200))


def _paths(begun: str) -> Iterator[Completion]:
    """Give the files and folders that the beginning of a path may mean; of a name alone, also those further down."""
    folder, slash, start = begun.rpartition("/")
    here = Path(os.path.expanduser(f"{folder}{slash}" or "."))
    found = [each for each in _entries(here) if each.startswith(start) and (start or not each.startswith("."))]
    if not slash and start:
        known = set(found)
        found += [each for each in _below(here, start.lower()) if each not in known]
    for each in islice(found, _MOST_FOUND):
        if each.isprintable():
            yield _completion(f"{folder}{slash}{each}", "", begun)


def _entries(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            found = islice(entries, _MOST_LOOKED_AT)
            return sorted(f"{each.name}/" if each.is_dir() else each.name for each in found)
    except OSError:  # there is no such folder, or it may not be read: nothing can be offered
        return []


def _below(folder: Path, part: str) -> Iterator[str]:
    """Give the files further down with `part` in their names."""
    n_seen = 0
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _LEFT_OUT)
        n_seen += len(files) + len(folders)
        above = os.path.relpath(path, folder)
        if above != ".":
            yield from (f"{above}/{each}" for each in sorted(files) if part in each.lower())
        if n_seen > _MOST_LOOKED_AT:
            return
