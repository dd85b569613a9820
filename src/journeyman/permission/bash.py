"""Reading a bash command exactly, or not at all.

`read_commands` knows the part of bash that everyday commands are written in: simple commands with quotes, variables,
substitutions and redirections, joined by operators, in groups, loops, functions and conditions. Of such a command it
gives every simple command that may run, nested ones included. For anything else it gives None: a command that is not
understood for certain may run anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

MOST_CHARS: Final = 8_192
"""A longer command is not read."""

ONE: Final = "\1"
MANY: Final = "\2"
NAMES: Final = "\3"
_MARKS: Final = str.maketrans("", "", "\1\2\3")

_DEEPEST: Final = 12
_WORD_ENDS = re.compile(r"(?=[ \t\n;&|<>()]|\Z)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=|\[)")
_PARAMETER = re.compile(
    r"\{#?([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[?#@*$!-])(\[[@*0-9]+\])?"
    r"(:[0-9]+(:[0-9]+)?|(:?[+?-]|[#%/^,])[^$`'\"\\{}()<>&|;]*)?\}|[A-Za-z_][A-Za-z0-9_]*|[0-9?#@*$!-]"
)
"""What bash evaluates nothing of: a name behind `:` or in a subscript may hold a command."""
_GAP = re.compile(r"[ \t]+|\\\n|#[^\n]*")
_LINES = re.compile(r"(?:[ \t\n]|\\\n)*")
_OPERATOR = re.compile(r"&&|\|\||\|&|[;&|\n]")
_REDIRECTION = re.compile(r"(?:[0-9]*(<<<|<<-?|<[>&]?(?!\()|>[>&|]?(?!\())|(&>>?))[ \t]*")
_DELIMITER = re.compile(r"(['\"]?)([A-Za-z0-9_.!-]+)\1(?=[\s;&|<>)]|$)")
_PLAIN_VARIABLE = re.compile(r"\$(\w+|\{\w+\})")
_SUM = re.compile(r"\(\([0-9+*/% ()-]*?\)\)(?!\))")
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_SINGLE = re.compile(r"'[^']*'")
_ESCAPED = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL)
_BACKTICKS = re.compile(r"`[^`\\]*`")
_IN_QUOTES = re.compile(r'[^"\\$`]+|\\(?:.|\n)')
_LONE_BRACE = re.compile(rf"\{{\}}?{_WORD_ENDS.pattern}")
_TEST_OPERATOR = re.compile(r"&&|\|\||[()]|[<>](?!\()")
_IN = re.compile(rf"[ \t\n]*in{_WORD_ENDS.pattern}[ \t]*")
_PATTERN_ENDS = re.compile(r"[ \t]*([|)])[ \t]*")
_ESAC = re.compile(rf"esac{_WORD_ENDS.pattern}")
_CLOSES = re.compile(r"\)|;;&?|;&|\Z")

_BEFORE_COMMAND: Final = frozenset(["if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!"])
"""Reserved words that a command, an operator or nothing follows."""
_NOT_READ: Final = frozenset(["esac", "select", "function", "coproc", "in"])
"""Reserved words of what is not read."""


class _NotUnderstood(Exception):
    """The text is outside of what is read here."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command."""

    shape: str
    """Without quotes and escapes, with a mark wherever bash puts something: `ONE` for a part of this one word, `MANY`
    where any number of words may come of it, `NAMES` for names of files that begin as it does."""

    @property
    def text(self) -> str:
        """The parts of it that are known."""
        return self.shape.translate(_MARKS)

    @property
    def is_known(self) -> bool:
        """Whether it is what stands there: no variable, no names of files, no output of a command."""
        return not (ONE in self.shape or MANY in self.shape or NAMES in self.shape)


@dataclass(slots=True)
class Simple:
    """A simple command: one program or builtin with its arguments."""

    words: list[Word] = field(default_factory=list[Word])
    assigned: list[tuple[str, Word]] = field(default_factory=list[tuple[str, Word]])
    """The variables that are set in front of it, by themselves, or by a loop."""
    written: list[Word] = field(default_factory=list[Word])
    """The files that its output is redirected to."""


def read_commands(command: str) -> list[Simple] | None:
    """Return every simple command that may run in this one; None if it is not surely understood."""
    if len(command) > MOST_CHARS or {"\0", ONE, MANY, NAMES} & {*command}:
        return None
    reader = _CommandReader(command)
    try:
        reader.commands(end="")
    except _NotUnderstood:
        return None
    return [simple for simple in reader.found if simple != Simple()]


class _CommandReader:
    def __init__(self, text: str, depth: int = 0) -> None:
        self.found: list[Simple] = []
        self._text = text
        self._at = 0
        self._depth = depth
        self._here: list[tuple[str, bool, bool]] = []
        """The here-documents that begin behind the next newline: their delimiter, whether they are taken as they are,
        and whether tabs in front of their lines are left out."""

    def _try(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Go on behind a pattern, if it is here."""
        if (found := pattern.match(self._text, self._at)) is not None:
            self._at = found.end()
        return found

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        if (found := self._try(pattern)) is None:
            raise _NotUnderstood
        return found

    def commands(self, *, end: str) -> None:
        """Read commands up to `end`: `)`, the end of a clause of `case` for `esac`, or the end of the text."""
        command = Simple()
        while not self._is_at_end(end, command):
            command = self._next(command)
        if self._here and end != "esac":
            raise _NotUnderstood
        self.found.append(command)

    def _is_at_end(self, end: str, command: Simple) -> bool:
        if end == "esac" and not command.words and _ESAC.match(self._text, self._at):
            return True
        if (found := self._try(_CLOSES)) is None:
            return False
        if not (found[0].startswith(";") if end == "esac" else found[0] == end):
            raise _NotUnderstood
        return True

    def _next(self, command: Simple) -> Simple:
        """Read what comes next, and return the command that is then being read."""
        if self._try(_GAP):
            return command
        if (redirection := self._try(_REDIRECTION)) is not None:
            self._redirection(command, redirection[1] or redirection[2])
        elif (operator := self._try(_OPERATOR)) is not None:
            if operator[0] == "\n":
                self._here_documents()
            self.found.append(command)
            return Simple()
        elif self._text.startswith("(", self._at):
            self._bracket(command)
        else:
            self._argument(command)
        return command

    def _bracket(self, command: Simple) -> None:
        """Read a subshell, or the brackets behind the name of a function, whose body is read as what it is."""
        if len(command.words) == 1 and not command.assigned and self._text.startswith("()", self._at):
            if not _NAME.fullmatch(command.words.pop().shape):
                raise _NotUnderstood
            self._at += 2
            return
        if command.words or command.assigned or self._text.startswith("((", self._at):
            raise _NotUnderstood
        self._at += 1
        self._inside()

    def _inside(self, end: str = ")") -> None:
        """Read the commands up to what closes them."""
        if self._depth >= _DEEPEST:
            raise _NotUnderstood
        self._depth += 1
        self.commands(end=end)
        self._depth -= 1

    def _argument(self, command: Simple) -> None:
        start = self._at
        word, is_bare = self._word()
        if command.words:
            command.words.append(word)
        elif is_bare and self._is_reserved(word.text, command):
            return
        elif (assigns := _ASSIGNS.match(self._text, start, self._at)) is None:
            command.words.append(word)
        elif assigns[2] == "[":
            raise _NotUnderstood  # a subscript is evaluated
        else:
            command.assigned.append((assigns[1], Word(word.shape[len(assigns[0]) :])))

    def _is_reserved(self, word: str, command: Simple) -> bool:
        """Tell whether a word is one of the language, and read what belongs to it."""
        if word in _NOT_READ:
            raise _NotUnderstood
        match word:
            case "case":
                self._case()
            case "for":
                self._for(command)
            case "[[":
                self._test(command)
            case _:
                return word in _BEFORE_COMMAND
        return True

    def _lines(self) -> None:
        """Go on to what is neither a blank nor a newline."""
        if "\n" in self._take(_LINES)[0] and self._here:
            raise _NotUnderstood

    def _case(self) -> None:
        self._lines()
        self._word()
        self._take(_IN)
        while self._lines() or self._try(_ESAC) is None:
            self._at += self._text.startswith("(", self._at)
            self._word()
            while self._take(_PATTERN_ENDS)[1] == "|":
                self._word()
            self._inside("esac")

    def _for(self, command: Simple) -> None:
        """Read the head of a loop, of which nothing runs but substitutions."""
        self._lines()
        name, is_bare = self._word()
        if not is_bare or not _NAME.fullmatch(name.text):
            raise _NotUnderstood
        command.assigned.append((name.text, Word(MANY)))
        if self._try(_IN):  # else `for NAME do`: what follows runs
            while self._text[self._at : self._at + 1] not in ("", ";", "\n"):
                if self._try(_GAP) is None:
                    self._word()

    def _test(self, command: Simple) -> None:
        """Read what is between `[[` and `]]`, in which operators are words."""
        word, is_bare = Word("[["), False
        while not (is_bare and word.text == "]]"):
            command.words.append(word)
            self._lines()
            operator = self._try(_TEST_OPERATOR)
            word, is_bare = self._word() if operator is None else (Word(operator[0]), False)
        command.words.append(word)

    def _redirection(self, command: Simple, operator: str) -> None:
        if operator in ("<<", "<<-"):
            delimiter = self._take(_DELIMITER)
            self._here.append((delimiter[2], bool(delimiter[1]), operator == "<<-"))
        elif operator in ("<&", ">&") and self._text.startswith("-", self._at):
            self._at += 1  # closed: the next word is no target, even where no blank comes before it
        else:
            word = self._word()[0]
            command.written += [] if operator in ("<", "<<<", "<&") or word.text in ("1", "2") else [word]

    def _here_documents(self) -> None:
        """Leave out the bodies of the here-documents whose line has ended. Of what they expand, variables are read."""
        for delimiter, is_literal, strips_tabs in self._here:
            while True:
                end = self._text.find("\n", self._at)
                line = self._text[self._at : len(self._text) if end < 0 else end]
                self._at = len(self._text) if end < 0 else end + 1
                if (line.lstrip("\t") if strips_tabs else line) == delimiter:
                    break
                if end < 0 or (not is_literal and {*_PLAIN_VARIABLE.sub("", line)} & {*"$`\\"}):
                    raise _NotUnderstood
        self._here.clear()

    def _word(self) -> tuple[Word, bool]:
        """Read one word; also return whether it is written without any quotes."""
        start, parts, is_bare = self._at, [""], True
        while (character := self._text[self._at : self._at + 1]) not in ("", *" \t\n;&|<>()"):
            if self._text.startswith("\\\n", self._at):
                self._at += 2  # the line goes on: as if it were not there, also within a reserved word
            elif character in "'\"\\$`":
                is_bare = False
                parts.append(self._read_quoted(character))
            elif " " < character <= "~":
                is_brace = character == "{" and not _LONE_BRACE.match(self._text, self._at)
                parts.append(f"{NAMES}{character}" if is_brace or character in "*?[" else character)
                self._at += 1
            else:
                raise _NotUnderstood
        raw, following = self._text[start : self._at], self._text[self._at : self._at + 1]
        if self._text.startswith(("<(", ">("), self._at):
            self._at += 2
            self._inside()
            self._take(_WORD_ENDS)
            return Word(f"{''.join(parts)}{ONE}"), False
        if not raw or (following == "(" and not is_bare) or (following in ("<", ">") and raw.endswith("}")):
            raise _NotUnderstood  # the last: {name}>file, where the name is a variable
        return Word(raw if raw in ("[", "[[") else "".join(parts)), is_bare

    def _read_quoted(self, mark: str) -> str:
        """Read what is quoted or expanded from here on, and return its shape."""
        if mark == "'":
            return self._take(_SINGLE)[0][1:-1]
        if mark == "\\":
            return self._take(_ESCAPE)[0][1]
        if mark != '"':
            return self._expansion(MANY)
        parts = [""]
        self._at += 1
        while not self._text.startswith('"', self._at):
            literal = self._try(_IN_QUOTES)
            parts.append(self._expansion(ONE) if literal is None else re.sub(r'\\(?:\n|([$`"\\]))', r"\1", literal[0]))
        self._at += 1
        return "".join(parts)

    def _expansion(self, shape: str) -> str:
        """Read a part that bash puts something in place of."""
        if (nested := self._try(_BACKTICKS)) is not None:
            reader = _CommandReader(nested[0][1:-1], self._depth + 1)
            reader.commands(end="")
            self.found += reader.found
            return shape
        if not self._text.startswith("$", self._at):
            raise _NotUnderstood
        self._at += 1
        following = self._text[self._at : self._at + 1]
        if self._text.startswith("((", self._at):
            self._take(_SUM)
        elif following == "(":
            self._at += 1
            self._inside()
        elif following in ("'", '"') and shape == MANY:
            if self._try(_ESCAPED) is None:
                self._read_quoted('"')
            return ONE
        elif (parameter := self._try(_PARAMETER)) is not None:
            shape = ONE if parameter[0] in "?#$!" else shape
            return MANY if "@" in parameter[0] else shape  # also in quotes, `$@` is many words
        elif following in ("[", "{"):
            raise _NotUnderstood
        else:
            return "$"
        return shape
