"""The input line of a chat: what is typed, pasted, completed and found again.

A long paste stands in the line as a short mark, and is what it was once the line is entered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import (
    CompleteEvent,
    Completer,
    Completion,
    ThreadedCompleter,
    get_common_complete_suffix,
)
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, Window
from prompt_toolkit.layout.containers import Container
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.search import accept_search
from prompt_toolkit.widgets import SearchToolbar
from rich.cells import cell_len, set_cell_size

from journeyman.cli.show.lines import one_line
from journeyman.errors import count

Suggest: TypeAlias = Callable[[str], Sequence[tuple[str, str]]]
"""Given the beginning of a line, a command, returns what may follow it, each with what it is; given `/`, the commands.
Called in a thread of its own."""

_MOST_ROWS: Final = 8
_MENU_ROWS: Final = 6
_FOLDED_LINES: Final = 6
_FOLDED_CHARS: Final = 1_500
_MOST_FOUND: Final = 60
_MOST_LOOKED_AT: Final = 4_000
_LEFT_OUT: Final = ("node_modules", "__pycache__")
_MARK: Final = "[pasted text "


class InputLine:
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

    def remember(self) -> None:
        """Keep the line for the arrow keys."""
        self.buffer.append_to_history()

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

    # -- keys

    def bind(self, bindings: KeyBindings) -> None:
        """Add the keys of the line."""
        is_at_mark = Condition(lambda: self._mark_before_cursor() != "")

        @bindings.add("escape", "enter", filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            self.buffer.insert_text("\n")

        @bindings.add("enter", filter=is_searching)
        def _(event: KeyPressEvent) -> None:
            accept_search()
            self.buffer.cursor_position = len(self.buffer.text)

        @bindings.add("tab", filter=~is_searching)
        def _(event: KeyPressEvent) -> None:
            state = self.buffer.complete_state
            if state is None or not state.completions:
                self._complete()
            elif len(state.completions) == 1:
                self.buffer.apply_completion(state.completions[0])
            else:
                self.buffer.complete_next()

        @bindings.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            self._paste(event.data.replace("\r\n", "\n").replace("\r", "\n"), event.current_buffer)

        @bindings.add("backspace", filter=is_at_mark & ~is_searching)
        def _(event: KeyPressEvent) -> None:
            self.buffer.delete_before_cursor(len(self._mark_before_cursor()))

    def _complete(self) -> None:
        """Complete as far as there is no choice, at once: the next key may be Enter. Then offer what is left."""
        document = self.buffer.document
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


# -- completion --------------------------------------------------------------------------------------------------------


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
            return sorted(
                f"{entry.name}/" if entry.is_dir() else entry.name for entry in islice(entries, _MOST_LOOKED_AT)
            )
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
