"""Rules that allow, ask about or deny calls: `Bash(git *)`, `Edit(src/**)`, `Read(**/.env)`, `WebFetch(*.example.org)`,
`Subagent(writer)`, `mcp__git`; and the folders that paths are judged by.

An allow rule matches only if it surely covers everything that the call touches; a deny or ask rule matches everything
that might be meant.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args
from urllib.parse import unquote, urlsplit

from journeyman.definition.data import lazy_dataclass
from journeyman.errors import Problem
from journeyman.gate import READY_TOOLS
from journeyman.hosts.names import fits_host
from journeyman.machine.files import is_inside
from journeyman.permission.bash import Word
from journeyman.permission.capability import Action, Capability, fits_name
from journeyman.permission.programs import CHECKED, program_name, take_apart
from journeyman.permission.shell import RUNS_OTHERS, every_command, plain_words

Kind: TypeAlias = Literal["Bash", "Edit", "Write", "Read", "WebFetch", "Subagent"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)
KINDS_ELSEWHERE: Final[dict[str, Kind]] = {
    "MultiEdit": "Edit",
    "NotebookEdit": "Edit",
    "NotebookRead": "Read",
    "Task": "Subagent",
    "Agent": "Subagent",
}
"""What other programs call these kinds."""
TOOLS_ELSEWHERE: Final = {
    "Grep": "grep",
    "Glob": "glob",
    "LS": "ls",
    "Skill": "skill",
    "AskUserQuestion": "ask_user",
    "ToolSearch": "tool_search",
}
"""What other programs call these tools."""

_TOOL = re.compile(r"[A-Za-z0-9_-]*\*?")
_PROGRAM = re.compile(r"[\w@%+.-]+")
_TOKEN = re.compile(r"[A-Za-z0-9_@%+=:,./*-]+")
_HOST = re.compile(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*|\*|\[[0-9a-f:.]+\]")


@lazy_dataclass(frozen=True)
class Rule:
    """One rule, read."""

    text: str
    kind: Kind | None
    """None when the rule is about tools by their names."""
    pattern: str
    also: str | None = None
    """What a deny or ask rule forbids besides: `Bash(x:*)` may mean the words of `x *`, or one word `x:1`."""


def rule_problems(text: object, *, where: str) -> Iterator[Problem]:
    """Give everything that is wrong with a rule."""
    if not isinstance(text, str) or not text.strip():
        hint = "Write a rule such as 'Bash(git *)' or 'Edit(src/**)'."
        yield Problem("INVALID_RULE", f"{where} holds {text!r}.", hint)
        return
    name, bracket, rest = text.strip().partition("(")
    if bracket and not rest.endswith(")"):
        yield Problem("UNCLOSED_RULE", f"The rule {text!r} in {where} does not end with ')'.", "Close the parenthesis.")
    elif not bracket:
        yield from _name_problems(text, where)
    elif (kind := KINDS_ELSEWHERE.get(name, name)) not in KINDS:
        meant = "Read" if name in TOOLS_ELSEWHERE else _in_another_case(name)
        listed = f"There are {', '.join(f'{kind}(…)' for kind in KINDS)}, and names of tools."
        hint = listed if meant is None else f"Write {meant}(…)."
        yield Problem("UNKNOWN_RULE_KIND", f"The rule {text!r} in {where} is of no known kind.", hint)
    else:
        fault = _FACTS[kind].fault(_pattern_of(kind, rest[:-1]), where == "allow")
        if fault is not None:
            yield Problem("INVALID_RULE", f"The pattern of {text!r} in {where} {fault[0]}.", fault[1])


def _name_problems(text: str, where: str) -> Iterator[Problem]:
    if _TOOL.fullmatch(text.strip()) is None:
        hint = "Give the name of a tool, perhaps with a '*' at its end, or a rule such as 'Bash(git *)'."
        yield Problem("INVALID_RULE", f"The rule {text!r} in {where} names no tool.", hint)
    elif text.strip() not in (*KINDS, *READY_TOOLS) and (kind := _in_another_case(text.strip())) is not None:
        hint = f"Write {kind!r} for every call of this kind. Letters count, small or capital."
        yield Problem("UNKNOWN_RULE_KIND", f"The rule {text!r} in {where} is of no known kind.", hint)


def _in_another_case(name: str) -> str | None:
    return next((kind for kind in KINDS if kind.casefold() == name.casefold()), None)


def _pattern_of(kind: str, given: str) -> str:
    """Return the pattern between the parentheses of a rule in our words."""
    pattern = given.strip()
    if kind == "Bash" and pattern.endswith(":*"):
        return f"{pattern[:-2]} *".strip()
    return pattern.removeprefix("domain:") if kind == "WebFetch" else pattern


def read_rule(text: str) -> Rule:
    """Return a rule that has no problems."""
    name, bracket, rest = text.strip().partition("(")
    called = KINDS_ELSEWHERE.get(name, name)
    kind = next((each for each in get_args(Kind) if each == called), None)
    if bracket and kind is not None:
        pattern = _pattern_of(kind, rest[:-1])
        also = rest[:-1].strip()
        return Rule(text, kind, pattern, also if kind == "Bash" and also != pattern else None)
    return Rule(text, kind, TOOLS_ELSEWHERE.get(name, name) if kind is None else _FACTS[kind].anything)


def program_of(rule: Rule) -> str | None:
    """Return the program that a rule forbids with whatever words; None if it forbids something else."""
    name, _, words = rule.pattern.partition(" ")
    program = program_name(name)
    is_program = rule.kind == "Bash" and words.strip() == "*" and _PROGRAM.fullmatch(program) is not None
    return program if is_program else None


def names_nothing(rule: Rule, names: Collection[str]) -> bool:
    """Tell whether a rule is about a tool that is neither a ready one nor among these names."""
    return rule.kind is None and not any(fits_name(rule.pattern, name) for name in (*READY_TOOLS, *names))


class Rules:
    """The rules of one permission."""

    def __init__(self, allow: Sequence[str], deny: Sequence[str], ask: Sequence[str], roots: Roots) -> None:
        self.allow_rules: Final = tuple(map(read_rule, allow))
        self.deny_rules: Final = tuple(map(read_rule, deny))
        self._ask: Final = tuple(map(read_rule, ask))
        self._roots: Final = roots

    def denying(self, action: Action, names: Sequence[str], *, in_box: bool = False) -> str | None:
        """Return the rule that forbids an action; None if there is none. `names` are those of all tools involved. A
        command in a box is forbidden only where it surely says what the rule does."""
        for rule in self.deny_rules:
            is_held = in_box and rule.kind == "Bash" and action.command is not None
            if (
                _surely_runs(rule.pattern.split(), action.command or "")
                if is_held
                else self._may_mean(rule, action, names)
            ):
                return rule.text
        return None

    @property
    def speak_of_paths(self) -> bool:
        """Whether a rule forbids to read or change something, or has it asked about."""
        return any(rule.kind in ("Read", "Edit", "Write") for rule in (*self.deny_rules, *self._ask))

    def asking(self, action: Action, names: Sequence[str]) -> str | None:
        """Return the rule that has an action asked about; None if there is none."""
        return next((rule.text for rule in self._ask if self._may_mean(rule, action, names)), None)

    def without_effect(self, names: Collection[str]) -> list[str]:
        """Return the deny and ask rules that can match no call, where these are all the names of tools."""
        return [rule.text for rule in (*self.deny_rules, *self._ask) if names_nothing(rule, names)]

    def conflicts(self) -> Iterator[str]:
        """Give a sentence for each allow and ask rule that has no effect: a deny rule forbids all that it is about."""
        for rule in (*self.allow_rules, *self._ask):
            covering = next((each.text for each in self.deny_rules if self._covers(each, rule)), None)
            if covering is not None:
                why = f"the deny rule {covering} forbids all of it"
                yield f"The rule {rule.text} has no effect: {why}. Take one of them out."

    def _covers(self, deny: Rule, rule: Rule) -> bool:
        if deny.kind is None or rule.kind is None:
            return deny.kind == rule.kind and fits_name(deny.pattern, rule.pattern)
        if _FACTS[deny.kind].capability != _FACTS[rule.kind].capability:
            return False
        match deny.kind:
            case "Bash":
                return deny.pattern == "*" or _free_words(deny.pattern.split(), rule.pattern.split()) is not None
            case "WebFetch":
                return fits_host(deny.pattern.lower(), rule.pattern.lower())
            case "Subagent":
                return fits_name(deny.pattern, rule.pattern)
            case _:
                wanted = [path_regex(each, below=True) for each in self._absolute(deny.pattern)]
                return all(any(each.fullmatch(path) for each in wanted) for path in self._absolute(rule.pattern))

    def allowing(self, action: Action) -> str | None:
        """Return the rule that allows an action; None if there is none."""
        return next((rule.text for rule in self.allow_rules if self._surely_means(rule, action)), None)

    def doubting(self, action: Action, *, in_box: bool = False) -> str | None:
        """Return why a rule may forbid a command, although it cannot be told; None if none does. What a program starts
        that a rule allows by its name is no doubt: somebody has thought of it. In a box only those rules are left to
        reading that are about the words of a command."""
        doubted = [rule for rule in (*self.deny_rules, *self._ask) if rule.kind == "Bash"]
        doubted = [rule for rule in doubted if not in_box or (rule in self.deny_rules and program_of(rule) is None)]
        doubts = [] if action.command is None or not doubted else take_apart(action.command).doubts
        words = plain_words(action.command or "") if doubts else None
        is_named = words is not None and words[0] not in CHECKED and self._names_program(action)
        for rule in doubted if doubts else ():
            program = program_name(rule.pattern.split()[0])
            if not is_named:
                return f"the rule {rule.text} may forbid it: {doubts[0]}"
            if any(_fits_token(program, each) for each in re.findall(r"[\w.+-]+", action.command or "")):
                return f"the rule {rule.text} may forbid it: it mentions {program}"
        return None

    def _names_program(self, action: Action) -> bool:
        """Tell whether a rule allows a command, and not only because it allows whatever program."""
        named = [rule for rule in self.allow_rules if rule.kind == "Bash" and "*" not in rule.pattern.split()[0]]
        return any(self._surely_means(rule, action) for rule in named)

    def _may_mean(self, rule: Rule, action: Action, names: Sequence[str]) -> bool:
        if rule.kind is None:
            return any(fits_name(rule.pattern, name) for name in names)
        if action.capability not in (_FACTS[rule.kind].capability, "unknown"):
            return False
        match rule.kind:
            case "Bash":
                patterns = [each.split() for each in (rule.pattern, rule.also) if each is not None]
                return action.command is not None and any(_may_run(each, action.command) for each in patterns)
            case "WebFetch":
                return action.url is not None and _may_reach(rule.pattern, action.url)
            case "Subagent":
                return any(fits_name(rule.pattern, agent) for agent in action.agents)
            case _:
                meant = self._list_patterns(rule)
                # Of a path that can be none, no rule is asked.
                places = [place(path) for path in action.paths for place in (self._roots.locate, self._roots.spelled)]
                wanted = [path_regex(fold_path(each), below=True) for each in meant]
                return any(regex.fullmatch(fold_path(place)) for regex in wanted for place in places)

    def _list_patterns(self, rule: Rule) -> list[str]:
        """Return the patterns of absolute paths that a rule may mean. Programs whose rules people bring write `/x` for
        what is below the root, and `//x` for a whole path."""
        is_doubtful = rule.pattern.startswith("/") and not rule.pattern.startswith("//")
        return [*self._absolute(rule.pattern), *(self._absolute(f".{rule.pattern}") if is_doubtful else [])]

    def patterns_of_paths(self, use: Capability) -> list[str]:
        """Return the patterns of absolute paths that rules deny to read, or to write; of those that are read, also what
        is asked about."""
        rules = [*self.deny_rules, *(self._ask if use == "read" else ())]
        kinds = ("Read", "Edit", "Write")
        found = [rule for rule in rules if rule.kind in kinds and _FACTS[rule.kind].capability == use]
        return [pattern for rule in found for pattern in self._list_patterns(rule)]

    def _surely_means(self, rule: Rule, action: Action) -> bool:
        if rule.kind is None:
            is_plain = action.capability != "exec" or self._runs_plainly("*", action)
            # The name that a server gives its tool is no proof of which server it is.
            names = action.server_names if rule.pattern.startswith("mcp__") and action.server_names else (action.tool,)
            return is_plain and any(fits_name(rule.pattern, name) for name in names)
        if action.capability != _FACTS[rule.kind].capability:
            return False
        match rule.kind:
            case "Bash":
                return self._runs_plainly(rule.pattern, action)
            case "WebFetch":
                host = None if action.url is None else plain_host(action.url)
                return host is not None and fits_host(rule.pattern.lower(), host)
            case "Subagent":
                return bool(action.agents) and all(fits_name(rule.pattern, agent) for agent in action.agents)
            case _:
                return bool(action.paths) and all(self._surely_touches(rule.pattern, path) for path in action.paths)

    def _surely_touches(self, pattern: str, path: str) -> bool:
        places = {self._roots.locate(each) for each in (path, unicodedata.normalize("NFKC", path))}
        wanted = [path_regex(each, below=False) for each in self._absolute(pattern)]
        return all(any(regex.fullmatch(place) for regex in wanted) for place in places)

    def _runs_plainly(self, pattern: str, action: Action) -> bool:
        words = None if action.command is None else plain_words(action.command)
        if words is None or action.command is None:
            return False
        if words[0] in CHECKED and take_apart(action.command).doubts:
            return False  # its arguments make it run something else
        free = _free_words(pattern.split(), words)
        folder = action.paths[0] if action.paths else "."
        takes_addresses = words[0] in _TAKE_ADDRESSES
        return free is not None and all(self._stays_inside(each, folder, takes_addresses) for each in free)

    def _stays_inside(self, word: str, folder: str, takes_addresses: bool) -> bool:
        """Tell whether a word that a `*` stands for leads nowhere outside of the roots, should it hold a path: by
        itself, behind an option or its letter, behind `=`, `@`, `:`, a quote or a blank. An address is a path, too,
        unless the program is known to take addresses; and then one that leads out has no business there either."""
        url = _URL.match(word) if takes_addresses else None
        if url is not None and url[1].lower() != "file":
            return self._is_inside(word, folder)
        named = [word, *_BEFORE_PATH.split(word)]
        if word.startswith("-"):
            named += [word[2:], *[word[index:] for index in (word.find("/"), word.find("..")) if index >= 0]]
        return all(self._is_inside(each, folder) for each in named if each)

    def _is_inside(self, path: str, folder: str) -> bool:
        whole = path if path.startswith(("/", "~")) else f"{folder}/{path}"
        try:
            return self._roots.place(self._roots.locate(whole)) != "outside"
        except ValueError:
            return False

    def _absolute(self, pattern: str) -> list[str]:
        """Return a pattern as patterns of absolute paths: below each root, or anywhere."""
        pattern = f"/{pattern.lstrip('/')}" if pattern.startswith("//") else pattern
        if pattern.startswith("**"):
            return [f"/{pattern}"]
        if not pattern.startswith(("/", "~")):
            pattern = pattern.removeprefix("./")
            return [f"{'' if folder == '/' else folder}/{pattern}" for folder, _ in self._roots.folders]
        parts = pattern.split("/")
        n_fixed = next((index for index, part in enumerate(parts) if {*"*?"} & {*part}), len(parts))
        fixed = "/".join(parts[:n_fixed])
        located = [each.rstrip("/") for each in (self._roots.locate(fixed or "/"), self._roots.spelled(fixed or "/"))]
        return ["/".join([each, *parts[n_fixed:]]) for each in dict.fromkeys(located)]


def fold_path(path: str) -> str:
    """Return a path as a file system that does not tell letters apart might take it."""
    return unicodedata.normalize("NFKC", path).casefold()


@cache
def path_regex(pattern: str, *, below: bool) -> re.Pattern[str]:
    """Return what a pattern of absolute paths matches: `**` any number of folders, `*` and `?` within a name.

    What was matched is not tried again in another way, except for the last `**` and the last `*` of a name: where the
    first place fits, no later one fits better. So however many stars there are, it takes no longer than their number.
    """
    runs = [""]  # the names between two `**`
    for part in pattern.split("/")[1:]:
        if part == "**":
            runs += [] if len(runs) > 1 and not runs[-1] else [""]
        elif part:
            first, *pieces = [
                "".join("[^/]" if each == "?" else re.escape(each) for each in piece) for piece in part.split("*")
            ]
            inner = "".join(f"(?>[^/]*?{piece})" for piece in pieces[:-1] if piece)
            runs[-1] += f"/{first}{inner}" + (f"[^/]*{pieces[-1]}" if pieces else "")
    first_run, *others = runs
    regex = first_run + "".join(rf"(?>(?:/[^/]+)*?{run}(?=/|\Z))" for run in others[:-1])
    regex += f"(?:/[^/]+)*{others[-1]}" if others else ""
    root = "|/" if set(pattern.split("/")) <= {"", "**"} else ""
    return re.compile(f"(?:{regex or '/'}{'(?:/.*)?' if below else ''}){root}", re.DOTALL)


def _free_words(tokens: Sequence[str], words: Sequence[str]) -> list[str] | None:
    """Return the words that a `*` of the pattern stands for; None if the pattern does not match."""
    if "*" in tokens[0] and words[0] in RUNS_OTHERS:
        return None
    has_tail = tokens[-1] == "*"
    fixed = tokens[:-1] if has_tail and len(tokens) > 1 else tokens
    if len(words) < len(fixed) or (len(words) > len(fixed) and not has_tail):
        return None
    if not all(_fits_token(token, word) for token, word in zip(fixed, words, strict=False)):
        return None
    varying = [word for token, word in zip(fixed[1:], words[1:], strict=False) if "*" in token]
    return [*varying, *words[len(fixed) :]]


def _fits_token(token: str, word: str) -> bool:
    """Tell whether a word is a token in which each `*` stands for anything. The first place where a piece fits is as
    good as any later one, so none is tried twice: a regular expression would take the length to the number of stars."""
    first, *pieces = token.split("*")
    if not pieces:
        return word == token
    last = pieces.pop()
    start, end = len(first), len(word) - len(last)
    if start > end or not word.startswith(first) or not word.endswith(last):
        return False
    for piece in pieces:
        start = word.find(piece, start, end) + len(piece)
        if start < len(piece):
            return False
    return True


def _may_run(tokens: Sequence[str], command: str) -> bool:
    """Tell whether a command may run what a pattern says. What cannot be read exactly is read in every way."""
    reading = take_apart(command)
    commands = [*reading.commands]
    if reading.unread:
        roughly = every_command(command)
        if roughly is None:
            return True
        commands += roughly
    return any(_may_be(tokens, words) for words in commands)


def _surely_runs(tokens: Sequence[str], command: str) -> bool:
    """Tell whether a command says for sure that it runs what a pattern names."""
    fixed = tokens[:-1] if tokens[-1] == "*" else tokens
    for program, *arguments in take_apart(command).commands:
        said = [Word(program_name(program.shape)), *arguments]
        fits = all(word.is_known and _fits_token(token, word.text) for token, word in zip(fixed, said, strict=False))
        if fits and len(said) >= len(fixed) and (len(said) == len(fixed) or len(fixed) < len(tokens)):
            return True
    return False


def _may_be(tokens: Sequence[str], words: Sequence[Word]) -> bool:
    """Tell whether a command begins as the pattern says, except options in front of what follows the program. What is
    not known may be anything."""
    if tokens[-1] == "*" and len(tokens) > 1:
        tokens = tokens[:-1]
    if not words:
        return False
    program, name = words[0], program_name(words[0].text)
    if program.is_known and not (_fits_token(tokens[0], program.text) or _fits_token(program_name(tokens[0]), name)):
        return False
    starts = [1]
    while starts[-1] < len(words) and (_is_option(words[starts[-1]]) or _is_option(words[starts[-1] - 1])):
        starts.append(starts[-1] + 1)  # an option, or perhaps its value
    behind = tokens if tokens[0] == "*" else tokens[1:]
    return not program.is_known or _begins(behind, words, starts)


def _is_option(word: Word) -> bool:
    return word.text.startswith("-")


def _begins(tokens: Sequence[str], words: Sequence[Word], starts: Sequence[int]) -> bool:
    """Tell whether the words from one of `starts` on may begin as the tokens say. A `*` by itself stands for any number
    of words; what follows it, as what begins at a start, need only be tried at the first place where it fits: from
    there, all the places that follow a later one can be reached."""
    runs: list[list[str]] = [[]]
    for token in tokens:
        if token == "*":
            runs.append([])
        else:
            runs[-1].append(token)
    place = 0
    for number, run in enumerate(runs):
        places = starts if number == 0 else range(place, len(words) + 1)
        found = next((each for each in places if _may_stand(run, words, each)), None)
        if found is None:
            return False
        place = found + len(run)
    return True


def _may_stand(tokens: Sequence[str], words: Sequence[Word], place: int) -> bool:
    for index, token in enumerate(tokens, place):
        if index >= len(words):
            return False
        if not words[index].is_known:
            return True
        if not _fits_token(token, words[index].text):
            return False
    return True


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_TAKE_ADDRESSES: Final = frozenset(["curl", "git", "http", "https", "wget"])
_BEFORE_PATH = re.compile(r"[=@:,;'\"()\s]+(?://(?=/))?")
_PLAIN_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(?:[/?#][\x21-\x5b\x5d-\x7e]*)?", re.IGNORECASE)


def plain_host(url: str) -> str | None:
    """Return the host of a URL that every program reads alike; None of any other."""
    if _PLAIN_URL.fullmatch(url) is None:
        return None
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return None
    return host.rstrip(".") if host else None


def _may_reach(pattern: str, url: str) -> bool:
    """Tell whether a URL may lead to a host. Of one that programs may read differently, each reading counts."""
    host = plain_host(url)
    pattern = pattern.lower()
    if host is not None:
        return fits_host(pattern, host)
    readings = re.split(r"[/\\@?#\s:]+", unicodedata.normalize("NFKC", unquote(url)).casefold())
    return pattern == "*" or any(fits_host(pattern, each.rstrip(".")) for each in readings)


def _command_fault(pattern: str, allows: bool) -> tuple[str, str] | None:
    tokens = pattern.split()
    if not tokens or not all(map(_TOKEN.fullmatch, tokens)):
        hint = "Write a program and its arguments, with '*' for what may vary; several commands are several rules."
        return "is not a plain command", hint
    if ":" in tokens[0]:
        return "has a ':' in the name of its program", "Write 'git *', or 'git:*' with nothing behind it."
    if allows and "/" in tokens[0]:
        hint = "Name it without: a command that names its program with a path is never allowed by a rule."
        return "names a program with its path", hint
    return None


def _path_fault(pattern: str, allows: bool) -> tuple[str, str] | None:
    parts = pattern.split("/")
    if not pattern.strip() or ".." in parts or "\0" in pattern:
        return "is not a path", "Write a path below a root, or an absolute one, without '..'."
    if any("**" in part and part != "**" for part in parts):
        hint = "Write '**' between slashes, for any number of folders; '*' inside of a name."
        return "has '**' inside of a name", hint
    return None


def _host_fault(pattern: str, allows: bool) -> tuple[str, str] | None:
    if _HOST.fullmatch(pattern.strip().lower()) is None:
        return "is not a host", "Write 'example.org', '*.example.org' or '*', without scheme, port and path."
    return None


def _agent_fault(pattern: str, allows: bool) -> tuple[str, str] | None:
    if not pattern.strip() or _TOOL.fullmatch(pattern.strip()) is None:
        return "cannot be the name of an agent", "Write the name, perhaps with a '*' at its end."
    return None


@lazy_dataclass(frozen=True)
class _Facts:
    """The properties of one kind of rule: its capability, its default pattern, and the check of a pattern."""

    capability: Capability
    """What the calls can do that it is about."""
    anything: str
    """The pattern that a rule without a pattern has."""
    fault: Callable[[str, bool], tuple[str, str] | None]
    """Says what is wrong with a pattern, and what to do about it."""


_FACTS: Final[dict[str, _Facts]] = {
    "Bash": _Facts("exec", "*", _command_fault),
    "Edit": _Facts("write", "/**", _path_fault),
    "Write": _Facts("write", "/**", _path_fault),
    "Read": _Facts("read", "/**", _path_fault),
    "WebFetch": _Facts("network", "*", _host_fault),
    "Subagent": _Facts("internal", "*", _agent_fault),
}


_LONGEST_PATH: Final = 4_096  # PATH_MAX of Linux: the system takes no longer one

Whereabouts: TypeAlias = Literal["inside", "read_only", "internal", "internal_read_only", "outside"]
"""Where a path is. `internal`: in a folder of the program itself, where nothing needs approval."""


@lazy_dataclass(frozen=True)
class WorkingFolder:
    """A folder that an agent may work in."""

    path: str | Path
    """The folder."""
    read_only: bool = False
    """True: nothing may be changed there."""


class Roots:
    """The folders that an agent may work in, links followed."""

    def __init__(
        self,
        roots: Sequence[str | Path | WorkingFolder],
        internal: Sequence[str | Path | WorkingFolder] = (),
        resolve: Callable[[str], str] = os.path.realpath,
    ) -> None:
        self._resolve: Final = resolve
        self.folders: Final = tuple(self._resolve_root(each) for each in roots)
        """Each root with whether it is read-only; relative paths belong to the first."""
        self._internal: Final = tuple(self._resolve_root(each) for each in internal)

    def locate(self, path: str) -> str:
        """Return where a path leads: absolute, every link followed, also where nothing exists there yet.

        Raises:
            ValueError: it cannot be a path.
        """
        if "\0" in path:
            raise ValueError(f"{path[:200]!r} holds a NUL, so it cannot be a path")
        if len(path) > _LONGEST_PATH:
            raise ValueError(f"{path[:200]!r}… is {len(path):,} characters long, so it cannot be a path")
        try:
            return self._resolve(self._absolute(path))
        except (OSError, UnicodeError) as error:
            raise ValueError(f"{path[:200]!r} cannot be a path: {error}") from error

    def spelled(self, path: str) -> str:
        """Return a path as it is written: absolute, no link followed."""
        return os.path.normpath(self._absolute(path))

    def place(self, path: str) -> Whereabouts:
        """Say where a located path is. Of several folders the innermost counts; a root wins over an internal one."""
        found = _innermost(path, self.folders)
        if found is not None:
            return "read_only" if found else "inside"
        found = _innermost(path, self._internal)
        if found is None:
            return "outside"
        return "internal_read_only" if found else "internal"

    def below(self, path: str) -> str:
        """Return a located path from the name of the first root around it on; all of it if there is none."""
        around = (os.path.dirname(folder) for folder, _ in self.folders if is_inside(path, folder))
        return path.removeprefix(next(around, "/")).lstrip("/")

    def _absolute(self, path: str) -> str:
        path = os.path.expanduser(path) if path == "~" or path.startswith("~/") else path
        return path if path.startswith("/") else f"{self.folders[0][0]}/{path}"

    def _resolve_root(self, given: str | Path | WorkingFolder) -> tuple[str, bool]:
        root = given if isinstance(given, WorkingFolder) else WorkingFolder(given)
        return self._resolve(os.path.expanduser(root.path)), root.read_only


def _innermost(path: str, folders: Sequence[tuple[str, bool]]) -> bool | None:
    """Return whether the innermost folder around a path is read-only; None if there is none."""
    around = [(len(folder), read_only) for folder, read_only in folders if is_inside(path, folder)]
    return max(around)[1] if around else None
