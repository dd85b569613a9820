"""Reading shell commands, conservatively: without a shell, and without trusting one.

Two readings that err on different sides. `plain_words` gives the words of a command that can only be one program with
its arguments, and None of anything else, so that what it gives may be allowed. `every_command` gives whatever might
run in a command, nested ones included, so that what it gives may be denied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from journeyman.permission.bash import MOST_CHARS, Word
from journeyman.permission.programs import RUNS_OTHERS, names, program_name

# -- what may be allowed ----------------------------------------------------------------------------------------------

_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
"""Outside of quotes, a shell leaves these as they are, wherever they stand in an argument."""
_SINGLE = re.compile(r"'[\x20-\x26\x28-\x7e]*'")
_DOUBLE = re.compile(r'"[\x20\x23\x25-\x5b\x5d-\x5f\x61-\x7e]*"')
"""Printable ASCII without `"`, `$`, backtick, `\\` and `!`."""
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


_RESERVED: Final = names("if then elif else fi case esac for select while until do done in function time coproc")


def plain_words(command: str) -> tuple[str, ...] | None:
    """Return the words of one plain simple command; None of everything else.

    Plain: one program, named without a path, with arguments that no shell would change. No operators, substitutions,
    redirections, assignments, globs, escapes, comments, control characters or anything outside of ASCII.
    """
    if len(command) > MOST_CHARS:
        return None
    words: list[str] = []
    text = command.strip(" \t")
    position = 0
    while position < len(text):
        word, position = _plain_word(text, position)
        if word is None:
            return None
        words.append(word)
        after = position
        while position < len(text) and text[position] in " \t":
            position += 1
        if position == after and position < len(text):
            return None
    is_plain = bool(words) and text.startswith(words[0]) and _PROGRAM.fullmatch(words[0]) is not None
    return tuple(words) if is_plain and words[0] not in _RESERVED else None


def _plain_word(text: str, position: int) -> tuple[str | None, int]:
    parts: list[str] = []
    while True:
        for pattern, is_quoted in ((_BARE, False), (_SINGLE, True), (_DOUBLE, True)):
            found = pattern.match(text, position)
            if found is not None:
                parts.append(found.group()[1:-1] if is_quoted else found.group())
                position = found.end()
                break
        else:
            return ("".join(parts) if parts else None), position


# -- what may have to be denied ---------------------------------------------------------------------------------------


def every_command(command: str) -> list[tuple[Word, ...]] | None:
    """Return every command that might run in this one, as its words. None: it is too long or too deep to tell.

    It is read with and without its quotes, and with its lines joined and not: what a trick hides from one reading,
    another finds.
    """
    if len(command) > MOST_CHARS:
        return None
    readings = dict.fromkeys(
        (command, command.replace("\\\n", ""))
    )  # a line goes on behind a backslash, but not in a comment
    found: list[tuple[Word, ...]] = []
    waiting = [(text, 0) for reading in readings for text in (reading, reading.translate(_WITHOUT_QUOTES))]
    while waiting:
        text, depth = waiting.pop()
        if depth > _DEEPEST:
            return None
        segments, inner = _segments(text)
        for segment in segments:
            for suffix in _commands_in(segment):
                found.append(suffix)
                inner += [word.text for word in suffix[1:] if _runs_others(suffix[0]) and " " in word.text]
        waiting += [(each, depth + 1) for each in inner]
        if len(found) > _MOST_COMMANDS:
            return None
    return found


_DEEPEST: Final = 8
_MOST_COMMANDS: Final = 2_000

_ENDS_COMMAND: Final = frozenset(";&|\n\r()")
_EXPANDS: Final = frozenset("*?[{")
_REDIRECTS: Final = frozenset("<>&|-")
_WITHOUT_QUOTES: Final = str.maketrans("", "", "'\"\\")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=")


@dataclass(slots=True)
class _Cursor:
    """Reads a text, as a shell would except for its meaning."""

    text: str
    position: int = 0

    def take(self) -> str:
        self.position += 1
        return self.text[self.position - 1]

    def upto(self, end: str) -> str:
        """Take what is before `end`, and `end`; all that is left if there is none."""
        stop = self.text.find(end, self.position)
        stop = len(self.text) if stop < 0 else stop
        taken, self.position = self.text[self.position : stop], stop + len(end)
        return taken

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def substitution(self) -> str:
        """Take what is inside of `$(`…`)`, the brackets that are inside of it included."""
        start, depth = self.position, 1
        while depth and self.position < len(self.text):
            depth += {"(": 1, ")": -1}.get(self.take(), 0)
        return self.text[start : self.position - (depth == 0)]


class _Segments:
    """Collects words into the commands that operators separate."""

    def __init__(self) -> None:
        self.done: list[tuple[Word, ...]] = []
        self.inner: list[str] = []
        self._words: list[Word] = []
        self._text = ""
        self._is_known = True
        self.is_in_word = False
        self.is_target = False
        """True when the next word says where to redirect."""

    def add(self, text: str, *, is_known: bool = True) -> None:
        self._text += text
        self._is_known = self._is_known and is_known
        self.is_in_word = True

    def end_word(self) -> None:
        if self.is_in_word and not self.is_target:
            self._words.append(Word(self._text, self._is_known or self._text in ("[", "[[")))
        self.is_target = self.is_target and not self.is_in_word
        self._text, self._is_known, self.is_in_word = "", True, False

    def end_command(self) -> None:
        self.end_word()
        self.is_target = False
        if self._words:
            self.done.append(tuple(self._words))
        self._words = []

    def redirect(self) -> None:
        """Leave out the number of a file descriptor before this, and the word after it."""
        if self._text.isdigit():
            self._text, self.is_in_word = "", False
        self.end_word()
        self.is_target = True


def _segments(text: str) -> tuple[list[tuple[Word, ...]], list[str]]:
    """Cut a text into commands. Return them, and the texts inside of them that are commands, too."""
    cursor, segments = _Cursor(text), _Segments()
    while cursor.position < len(text):
        _read_segment(cursor, segments)
    segments.end_command()
    return segments.done, segments.inner


def _read_segment(cursor: _Cursor, segments: _Segments) -> None:
    match cursor.take():
        case "'":
            segments.add(cursor.upto("'"))
        case '"':
            _read_double_quoted(cursor, segments)
        case "\\":
            segments.add(cursor.take() if cursor.peek() else "")
        case "$" | "`" as mark:
            _read_expansion(cursor, segments, mark)
        case "<" | ">":
            _read_redirection(cursor, segments)
        case "&" if cursor.peek() == ">":
            _read_redirection(cursor, segments)
        case "#" if not segments.is_in_word:
            segments.inner.append(cursor.upto("\n"))
            segments.end_command()
        case " " | "\t":
            segments.end_word()
        case character if character in _ENDS_COMMAND:
            segments.end_command()
        case character:
            segments.add(character, is_known=character not in _EXPANDS)


def _read_redirection(cursor: _Cursor, segments: _Segments) -> None:
    if cursor.peek() == "(":
        cursor.position += 1
        segments.add("", is_known=False)
        segments.inner.append(cursor.substitution())
        return
    segments.redirect()
    taken = ""
    while cursor.peek() and cursor.peek() in _REDIRECTS:
        taken += cursor.take()
    segments.is_target = not taken.endswith("&-")  # that closes a descriptor, and no file follows


def _read_double_quoted(cursor: _Cursor, segments: _Segments) -> None:
    segments.add("")
    while cursor.peek() and cursor.peek() != '"':
        match cursor.take():
            case "\\":
                segments.add(cursor.take() if cursor.peek() else "")
            case "$" | "`" as mark:
                _read_expansion(cursor, segments, mark)
            case character:
                segments.add(character)
    cursor.position += 1


def _read_expansion(cursor: _Cursor, segments: _Segments, mark: str) -> None:
    segments.add("", is_known=False)
    if mark == "`":
        segments.inner.append(cursor.upto("`").replace("\\", ""))
        return
    match cursor.peek():
        case "(":
            cursor.position += 1
            segments.inner.append(cursor.substitution())
        case "{":
            cursor.position += 1
            segments.inner.append(cursor.upto("}"))
        case "'":
            cursor.position += 1
            while cursor.peek() and (character := cursor.take()) != "'":
                cursor.position += character == "\\"  # a quote behind a backslash does not end it
        case _:
            pass


def _commands_in(segment: Sequence[Word]) -> Iterator[tuple[Word, ...]]:
    """Give the command of a segment, and what that one might run in turn."""
    start = 0
    while start < len(segment) and _comes_before(segment[start]):
        start += 1
    command = tuple(segment[start:])
    if not command:
        return
    yield command
    if not _runs_others(command[0]):
        return
    is_first = True
    for index in range(1, len(command)):
        if command[index].is_known or is_first:  # what is not known may only be a program where one is expected
            yield command[index:]
        is_first = is_first and (command[index].text.startswith("-") or _comes_before(command[index]))


def _comes_before(word: Word) -> bool:
    is_reserved = word.text in _RESERVED and word.text not in RUNS_OTHERS  # those take a name first: `function f {`
    return is_reserved or word.text in ("{", "}", "!") or _ASSIGNMENT.match(word.text) is not None


def _runs_others(program: Word) -> bool:
    return not program.is_known or program_name(program.text) in RUNS_OTHERS
