"""Reading a bash command exactly, or not at all.

`read_commands` knows the part of bash that everyday commands are written in: simple commands with quotes, variables,
substitutions and redirections, joined by operators, in groups, loops and conditions. Of such a command it gives every
simple command that may run, nested ones included. For anything else it gives None: a command that is not understood for
certain may run anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

MOST_CHARS: Final = 8_192
"""A longer command is not read."""

_DEEPEST: Final = 12
_BLANKS: Final = " \t"
_ENDS_WORD: Final = frozenset(" \t\n;&|<>()")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_INDEXED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
_PARAMETER = re.compile(
    r"[#!]?([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[?#@*$!-])(\[[@*0-9]+\])?([:#%/^,+=?-][^$`'\"\\{}()<>&|;]*)?"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9?#@*$!-]")
_OPTION = re.compile(r"[ \t]+-[a-z-]+(?=[ \t])")
_DESCRIPTOR = re.compile(r"[0-9]+(?=[<>])(?![<>]\()")
_BRACES = re.compile(r"\{.*(,|\.\.).*\}", re.DOTALL)
_SUM = re.compile(r"[0-9+*/% ()-]*")
_DELIMITER = re.compile(r"(['\"]?)([A-Za-z0-9_.!-]+)\1(?=[\s;&|<>)]|$)")

_BEFORE_COMMAND: Final = frozenset(["if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!"])
"""Reserved words that a command, an operator or nothing follows."""
_NOT_READ: Final = frozenset(["case", "esac", "select", "function", "coproc", "in"])
"""Reserved words of what is not read."""


class _NotUnderstood(Exception):
    """The text is outside of what is read here."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command."""

    text: str
    """Without quotes and escapes; of a word that is not known the parts that are."""
    is_known: bool = True
    """False when bash puts something in place of a part of it: a variable, names of files, the output of a command."""


@dataclass(frozen=True, slots=True)
class Simple:
    """A simple command: one program or builtin with its arguments."""

    words: tuple[Word, ...]
    assigned: tuple[tuple[str, Word], ...] = ()
    """The variables that are set in front of it, or by themselves."""
    targets: tuple[Word, ...] = ()
    """The files that its input and output are redirected from and to."""
    written: tuple[Word, ...] = ()
    """Those of them that its output is redirected to."""


def read_commands(command: str) -> list[Simple] | None:
    """Return every simple command that may run in this one; None if it is not surely understood."""
    if len(command) > MOST_CHARS or "\0" in command:
        return None
    reader = _CommandReader(command)
    try:
        reader.commands(end="")
    except _NotUnderstood:
        return None
    return reader.found


@dataclass(slots=True)
class _Command:
    """A simple command while it is read."""

    words: list[Word] = field(default_factory=list[Word])
    assigned: list[tuple[str, Word]] = field(default_factory=list[tuple[str, Word]])
    targets: list[Word] = field(default_factory=list[Word])
    written: list[Word] = field(default_factory=list[Word])
    is_loop_head: bool = False
    """True for `for NAME in WORD…`, of which nothing runs."""


class _CommandReader:
    def __init__(self, text: str, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise _NotUnderstood
        self.found: list[Simple] = []
        self._text = text
        self._at = 0
        self._depth = depth
        self._here: list[tuple[str, bool, bool]] = []
        """The here-documents that begin behind the next newline: their delimiter, whether they are taken as they are,
        and whether tabs in front of their lines are left out."""

    # -- lists of commands

    def commands(self, *, end: str) -> None:
        """Read commands up to `end`, the bracket that closes them, or up to the end of the text."""
        command = _Command()
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == ")":
                if end != ")" or self._here:
                    raise _NotUnderstood
                self._at += 1
                self._finish(command)
                return
            command = self._next(command, character)
        if end or self._here:
            raise _NotUnderstood
        self._finish(command)

    def _next(self, command: _Command, character: str) -> _Command:
        """Read what comes next, and return the command that is then being read."""
        if character in _BLANKS:
            self._at += 1
        elif self._text.startswith("\\\n", self._at):
            self._at += 2
        elif (number := _DESCRIPTOR.match(self._text, self._at)) is not None:
            self._at = number.end()
            self._redirection(command)
        elif character == "#":
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        elif character == "(":
            self._bracket(command)
        elif character in "<>" or self._text.startswith("&>", self._at):
            self._redirection(command)
        elif character in "\n;&|":
            self._operator()
            self._finish(command)
            return _Command()
        else:
            self._argument(command)
        return command

    def _bracket(self, command: _Command) -> None:
        """Read a subshell, or the brackets behind the name of a function, whose body is read as what it is."""
        if len(command.words) == 1 and not command.assigned and self._text.startswith("()", self._at):
            if not (command.words[0].is_known and _NAME.fullmatch(command.words[0].text)):
                raise _NotUnderstood
            command.words.clear()
            self._at += 2
            return
        if command.words or command.assigned or self._text.startswith("((", self._at):
            raise _NotUnderstood
        self._at += 1
        self._inside()

    def _inside(self) -> None:
        """Read the commands up to the bracket that closes them."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _NotUnderstood
        self.commands(end=")")
        self._depth -= 1

    def _operator(self) -> None:
        if self._text[self._at] == "\n":
            self._at += 1
            self._here_documents()
            return
        for operator in ("&&", "||", "|&", ";;", ";&", ";", "&", "|"):
            if self._text.startswith(operator, self._at):
                if operator in (";;", ";&"):
                    raise _NotUnderstood
                self._at += len(operator)
                return

    def _finish(self, command: _Command) -> None:
        if command.words or command.assigned or command.targets:
            words = () if command.is_loop_head else tuple(command.words)
            self.found.append(Simple(words, tuple(command.assigned), tuple(command.targets), tuple(command.written)))

    def _argument(self, command: _Command) -> None:
        start = self._at
        word, is_bare = self._word()
        raw = self._text[start : self._at]
        if command.is_loop_head and len(command.words) == len(("for", "NAME")) and is_bare and word.text == "do":
            command.words, command.is_loop_head = [], False  # `for NAME do`: what follows runs
            return
        if command.words:
            command.words.append(word)
            return
        if is_bare and word.text in _NOT_READ:
            raise _NotUnderstood
        if is_bare and word.text in _BEFORE_COMMAND:
            return
        if is_bare and word.text == "time":
            while (option := _OPTION.match(self._text, self._at)) is not None:
                self._at = option.end()
            return
        assigns = _ASSIGNS.match(raw)
        if assigns is not None:
            command.assigned.append((assigns[1], Word(word.text[len(assigns[0]) :], word.is_known)))
            return
        if _INDEXED.match(raw):
            raise _NotUnderstood
        command.is_loop_head = is_bare and word.text == "for"
        command.words.append(word)

    # -- redirections

    def _redirection(self, command: _Command) -> None:
        for operator in ("&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", "<(", "<", ">>", ">&", ">|", ">(", ">"):
            if self._text.startswith(operator, self._at):
                break
        else:  # pragma: no cover - every character that leads here begins one of them
            raise _NotUnderstood
        if operator in ("<(", ">("):
            self._argument(command)
            return
        self._at += len(operator)
        while self._text[self._at : self._at + 1] in tuple(_BLANKS):
            self._at += 1
        if operator in ("<<", "<<-"):
            self._here_document(strips_tabs=operator == "<<-")
        elif operator in ("<&", ">&") and self._text.startswith("-", self._at):
            self._at += 1  # closed: the next word is no target, even where no blank comes before it
        else:
            word = self._word()[0]
            command.targets.append(word)
            command.written += [] if operator in ("<", "<<<", "<&") or word.text in ("1", "2") else [word]

    def _here_document(self, *, strips_tabs: bool) -> None:
        found = _DELIMITER.match(self._text, self._at)
        if found is None:
            raise _NotUnderstood
        self._at = found.end()
        self._here.append((found[2], bool(found[1]), strips_tabs))

    def _here_documents(self) -> None:
        """Leave out the bodies of the here-documents whose line has ended. One with anything to expand is not read."""
        for delimiter, is_literal, strips_tabs in self._here:
            while True:
                end = self._text.find("\n", self._at)
                line = self._text[self._at : len(self._text) if end < 0 else end]
                self._at = len(self._text) if end < 0 else end + 1
                if (line.lstrip("\t") if strips_tabs else line) == delimiter:
                    break
                if end < 0 or (not is_literal and ({*line} & {*"$`\\"})):
                    raise _NotUnderstood
        self._here.clear()

    # -- words

    def _word(self) -> tuple[Word, bool]:
        """Read one word; also return whether it is written without any quotes."""
        start, parts, is_known, is_bare = self._at, [""], True, True
        while self._at < len(self._text):
            character = self._text[self._at]
            if self._text.startswith("\\\n", self._at):
                self._at += 2  # the line goes on: as if it were not there, also within a reserved word
                continue
            if self._text.startswith(("<(", ">("), self._at):
                self._at += 2
                self._inside()
                is_known = is_bare = False
                continue
            if character in _ENDS_WORD:
                break
            if character in "'\"\\$`":
                is_bare = False
                part, known = self._read_quoted(character)
                parts.append(part)
                is_known = is_known and known
                continue
            if not " " < character <= "~":
                raise _NotUnderstood
            parts.append(character)
            is_known = is_known and character not in "*?["
            self._at += 1
        raw, following = self._text[start : self._at], self._text[self._at : self._at + 1]
        if not raw or (following == "(" and not is_bare) or (following in ("<", ">") and raw.endswith("}")):
            raise _NotUnderstood  # the last: {name}>file, where the name is a variable
        text = "".join(parts)
        return Word(text, text in ("[", "[[") or (is_known and not _BRACES.search(raw))), is_bare

    def _read_quoted(self, character: str) -> tuple[str, bool]:
        """Read one quoted or expanded part of a word. Return its text, and whether that is what bash makes of it."""
        self._at += 1
        if character == "'":
            return self._upto("'"), True
        if character == '"':
            return self._double_quoted()
        if character == "\\":
            if self._at >= len(self._text):
                raise _NotUnderstood
            self._at += 1
            escaped = self._text[self._at - 1]
            return ("" if escaped == "\n" else escaped), True
        return self._expansion(character)

    def _upto(self, end: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise _NotUnderstood
        taken, self._at = self._text[self._at : stop], stop + len(end)
        return taken

    def _double_quoted(self) -> tuple[str, bool]:
        parts, is_known = [""], True
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == '"':
                return "".join(parts), is_known
            if character == "\\":
                escaped = self._text[self._at : self._at + 1]
                self._at += 1
                parts.append({"\n": ""}.get(escaped, escaped if escaped in tuple('$`"\\') else f"\\{escaped}"))
            elif character in "$`":
                part, known = self._expansion(character, is_quoted=True)
                parts.append(part)
                is_known = is_known and known
            else:
                parts.append(character)
        raise _NotUnderstood

    def _expansion(self, mark: str, *, is_quoted: bool = False) -> tuple[str, bool]:
        """Read what stands behind `$` or a backtick."""
        if mark == "`":
            self._read_nested(self._upto("`"))
            return "", False
        following = self._text[self._at : self._at + 1]
        if following == "(":
            self._substitution()
        elif following == "{":
            self._parameter()
        elif following in ("'", '"') and not is_quoted:
            self._at += 1
            self._skip_escaped() if following == "'" else self._double_quoted()
        elif (found := _VARIABLE.match(self._text, self._at)) is not None:
            self._at = found.end()
        elif following == "[":
            raise _NotUnderstood
        else:
            return "$", True
        return "", False

    def _parameter(self) -> None:
        self._at += 1
        found = _PARAMETER.fullmatch(self._upto("}"))
        if found is None or re.search(r"@[A-Za-z]", found[0]):  # `${x@P}` runs what is in the variable
            raise _NotUnderstood

    def _skip_escaped(self) -> None:
        """Read up to the quote that ends `$'…'`; one behind a backslash does not."""
        while (character := self._text[self._at : self._at + 1]) != "'":
            if not character:
                raise _NotUnderstood
            self._at += 2 if character == "\\" else 1
        self._at += 1

    def _substitution(self) -> None:
        if not self._text.startswith("((", self._at):
            self._at += 1
            self._inside()
            return
        self._at += 2
        if not _SUM.fullmatch(self._upto("))")) or self._text.startswith(")", self._at):
            raise _NotUnderstood

    def _read_nested(self, text: str) -> None:
        """Read a text of its own that is a command."""
        if "\\" in text:
            raise _NotUnderstood
        reader = _CommandReader(text, self._depth + 1)
        reader.commands(end="")
        self.found += reader.found
