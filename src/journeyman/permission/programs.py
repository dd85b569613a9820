"""Finds the programs that a command would run, so that a denied one is not run by way of another.

One rule: what is not read exactly is a doubt. A program runs nothing else if it is on a list; many of these only while
all of its words are of forms that are known to be harmless. Of any other program it cannot be told what it starts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from journeyman.machine.startup_files import starts_by_itself
from journeyman.permission.bash import MANY, Simple, Word, read_commands
from journeyman.permission.shell import HANDS_ON, RUNS_OTHERS, names, suffixes

_LOOKING: Final = names("""
    : b2sum base32 base64 basename bc break cal cat cd cksum clear cmp column comm continue cut date df diff dig
    dirname dirs du echo egrep exit expand expr factor false fgrep file fmt fold free grep groups head hexdump history
    host hostname id join journalctl jq look ls lsof md5sum nl nproc nslookup numfmt od paste pathchk pgrep ping popd
    pr printenv ps pushd pwd readelf readlink realpath return rev seq sha1sum sha224sum sha256sum sha384sum sha512sum
    shift sleep stat strings sum tac tail top tput tr tree true tsort tty type ulimit umask uname unexpand uniq uptime
    users wc whereis which who whoami yes
""")
"""They run nothing and change nothing, except what is among `_CHANGES`."""
_PUTTING: Final = names("cp ln mv tee")
"""They run nothing, but might put something in the place of a program or of a setting."""
_REMOVING: Final = names("""
    bunzip2 bzip2 chgrp chmod chown curl gunzip gzip kill killall mkdir mktemp pkill rm rmdir shred shuf stty touch
    truncate unlink unxz unzip xxd xz
""")
_CHANGES: Final = {
    "find": r"(?:[^\0]*\0)*-(?:delete|printf)\0",
    "sed": r"(?:-\w+\0)*-i",
    "sort": r"(?:[^\0]*\0)*-[^-\0]*[oT]",
    "tar": r"-?[a-zA-Z]*[cx]",
    "uniq": r"(?:[^\0]*\0)*[^-\0][^\0]*\0[^-]",
}
"""The words with which these change something."""

# The words of a command are matched as one text, each with a NUL behind it.
_ANY = r"(?:[^\0]*\0)"
_ONE = r"(?:[^\0\2\3]*\0)"
_KNOWN = r"(?:[^\0\1\2\3]*\0)"
_NAMED = r"(?:[^-+\0\1\2\3][^\0\2]*\0)"
"""What can be no option, however many words come of it."""
_VARIABLE = r"(?:[a-z_]\w*|[A-Z]|FOO|BAR|LANG|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|CI|DEBUG|VERBOSE|NO_COLOR|NAME|VERSION)"
"""A variable that decides on nothing that runs."""
_PLACE = r"(?:\d+|\$|/[^/\\\n\0-\3]*/)"
_SCRIPT = (
    rf"(?:{_PLACE}?(?:,{_PLACE})?!?(?:[pdq=]|s(?P<mark>[/|,#@:])"
    r"(?:(?:(?!(?P=mark))[^\\\n\0-\3]|\\[^\0-\3])*(?P=mark)){2}[gpiI0-9]*)(?:;\s*|(?=\0)))+\0"
)
"""A script of `sed` that runs nothing: its `e` does, as a command and as a flag."""


def _options(short: str, long: str = "(?!)", *, named: str = _NAMED, also: str = "(?!)") -> str:
    """Return the pattern of words that are these options, or can be none."""
    return rf"(?:{also}|{named}|-\0|-[{short}]+\0|--(?:{long})(?:=[^\0\2\3]*)?\0)*(?:--\0{_ANY}*)?"


def _test(word: str, number: str) -> str:
    sums, files = rf"{number}-(?:eq|ne|lt|le|gt|ge)\0{number}", rf"{word}(?:[=!]?=|=~|[<>]|-(?:nt|ot|ef))\0{word}"
    return rf"(?:!\0)*(?:-[b-np-uwxzA-QS-Z]\0{word}|{sums}|{files}|(?!-){word})"


_INNER_TEST = r"(?:[(!]\0)*" + _test(_ANY, r"-?[0-9]+\0") + r"(?:\)\0)*"
_DECLARE = rf"(?:-[rxgpl]+\0)?(?:{_VARIABLE}(?:\+?=(?!\()[^\0\2]*)?\0)*"
_FOUND = (
    rf"(?:(?!\+\0){_NAMED}|-(?:[LHPao]|i?(?:name|path|wholename|regex)|regextype|type|perm|user|group|depth|xdev|mount"
    r"|print0?|printf|ls|delete|empty|not|and|or|prune|quit|(?:max|min)depth|newer)\0|-(?:size|[mac](?:time|min))\0[-+]?\w+\0)*"
)
_GIT_LONG = (
    "abbrev|abbrev-commit|abbrev-ref|abort|absolute-git-dir|all|allow-empty|always|amend|atomic|author|autostash"
    "|branch|cached|check|color|column|compact-summary|contains|continue|copy|count|date|decorate|delete|depth|detach"
    "|diff-filter|dirty|dry-run|exclude-standard|exit-code|ff-only|find-renames|first-parent|fixup|follow|follow-tags"
    "|force|force-with-lease|format|full|git-dir|graph|grep|hard|heads|histogram|ignore-all-space|ignore-space-change"
    "|ignored|include-untracked|intent-to-add|is-inside-work-tree|keep-index|left-right|list|max-count|merged|message"
    "|minimal|mixed|move|name-only|name-status|no-[a-z-]+|numstat|oneline|onto|others|ours|patch|patience|porcelain"
    "|pretty|prune|quiet|quit|raw|rebase|recursive|reverse|root|set-upstream|short|shortstat|show-current|show-origin"
    "|show-prefix|show-toplevel|signoff|since|single-branch|skip|soft|sort|source|squash|staged|stat|summary|tags"
    "|theirs|track|unified|unset-upstream|until|untracked-files|update|verbose|verify|word-diff|worktree"
)
_NO_ADDRESS = rf"(?![^\0]*::){_NAMED}"
_GIT_PLAIN = (
    "add|am|apply|archive|blame|branch|cat-file|check-ignore|cherry|cherry-pick|checkout|clean|count-objects|describe|diff"
    "|diff-tree|for-each-ref|fsck|gc|hash-object|init|log|ls-files|ls-tree|merge-base|mv|name-rev|push|reflog|remote|reset"
    "|restore|rev-list|rev-parse|rm|shortlog|show|show-ref|status|switch|symbolic-ref|var|version|worktree|format-patch"
)
_GIT = "|".join(
    rf"(?:{subcommands})\0{_options(letters, _GIT_LONG, named=_NO_ADDRESS, also=also)}"
    for subcommands, letters, also in (
        (_GIT_PLAIN, r"\w", "(?!)"),
        ("commit|merge|revert|stash|tag|notes", "abdlmnpqvwFuf", rf"-[abq]*m\0{_ONE}"),
        ("clone|fetch|pull|rebase|ls-remote", "abfhjklnpqrtv", "(?!)"),
        ("grep", "A-NP-Za-z0-9", "(?!)"),
    )
)
"""The subcommands with the words with which they run only git, and what the repository is set to run."""
_WORDS: Final = {
    **dict.fromkeys(_LOOKING | _PUTTING | _REMOVING, rf"{_ANY}*"),
    "[": rf"(?:{_test(_ONE, _ONE)})?\]\0",
    "test": rf"(?:{_test(_ONE, _ONE)})?",
    "[[": rf"{_INNER_TEST}(?:(?:&&|\|\|)\0{_INNER_TEST})*\]\]\0",
    **dict.fromkeys(("declare", "export", "local", "readonly", "typeset"), _DECLARE),
    **dict.fromkeys(
        ("awk", "gawk", "mawk", "nawk"),
        rf"(?:-F\0{_ONE}|-F[^\0\2\3]+\0|-v\0[a-z]\w*=[^\0\2\3]*\0)*(?![^\0]*(?:system|[|@]|print[^\0]*>))(?!-){_KNOWN}{_ANY}*",
    ),
    "find": _FOUND,
    "git": rf"(?:-C\0{_NAMED}|--no-pager\0|-c\0(?:user\.(?:name|email)|(?:color|advice)\.\w+)=[^\0\2\3]*\0)*(?:{_GIT}"
    rf"|config\0(?:--(?:global|local|show-origin)\0)*(?:--(?:get|get-all|list)\0{_NAMED}*|-l\0|user\.(?:name|email)\0{_ONE}?"
    rf"|[\w.-]+\0\Z)|bisect\0(?:start|good|bad|reset|log|skip)\0{_NAMED}*"
    r"|submodule\0(?:(?:status|init|update|sync)\0|--(?:init|recursive)\0)*)?",
    "printf": rf"(?:-v\0{_VARIABLE}\0)?(?:--\0)?{_NAMED}{_ANY}*",
    "read": rf"(?:-[rs]+\0|-[dntpu]\0{_ONE})*(?:{_VARIABLE}\0)*",
    "rg": _options(
        "A-Za-y0-9",
        "(after-|before-)?context|color|count(-matches)?|files(-with-matches|-without-match)?|fixed-strings|heading|hidden"
        "|i?glob|ignore-case|invert-match|json|line-number|max-(count|depth)|multiline|no-[a-z-]+|null|only-matching|pcre2"
        "|replace|smart-case|sort|stats|trim|type(-not)?|vimgrep|word-regexp",
    ),
    "sed": rf"(?:-[nErsuz]+\0|-i[.\w]*\0)*(?:(?:-e\0)?{_SCRIPT})+{_NAMED}*",
    "set": rf"(?:[-+][euxvfC]+\0|[-+][eu]*o\0(?:pipefail|errexit|nounset)\0)*(?:--\0{_ANY}*)?",
    "sort": _options(
        "u", "reverse|unique|numeric-sort|key|field-separator|ignore-case|version-sort", also=rf"-(?![-\0-\3]){_KNOWN}"
    ),
    "tar": rf"-?[cxtvzjJfpkO]+\0(?:(?![^\0]*[:\1]){_NAMED}|-[cxtvzjJfpkOC]+\0|--(?:exclude|strip-components)={_ONE})*",
    "unset": rf"(?:-v\0)?(?:{_VARIABLE}\0)*",
    "wait": r"(?:-[nf]\0|%?\d+\0)*",
}
"""The words with which these run nothing else."""
_BEFORE_INNER: Final = {
    **dict.fromkeys(("builtin", "exec", "nohup"), ""),
    "command": rf"-[vV]\0{_ANY}*|(?:-p\0)?(?:--\0)?",
    "env": rf"(?:-i\0|-u\0{_VARIABLE}\0|{_VARIABLE}=[^\0\2\3]*\0)*",
    "find": rf"{_FOUND}-exec\0",
    "nice": r"(?:-n\0-?\d+\0|-n?-?\d+\0)?",
    **dict.fromkeys(("doas", "sudo"), r"(?:-[nE]\0|-u\0\w+\0)*"),
    "timeout": r"(?:-k\0[\d.]+\w?\0|-s\0\w+\0|--signal=\w+\0|--foreground\0)*[\d.]+[smhd]?\0",
    "time": r"(?:-p\0)?",
    "xargs": r"(?:-[0rt]\0|-[nPL]\0?\d+\0)*",
}
"""What comes before the command that these run, where it is surely that."""
_CODE: Final = {
    **dict.fromkeys(("bash", "dash", "sh"), rf"(?:-o\0pipefail\0)*-[eu]*c\0(?:--\0)?((?!-){_KNOWN}){_ANY}*"),
    "eval": rf"((?!-){_KNOWN}*)",
    "trap": rf"(?:--\0)?(?:-\0|((?!-){_KNOWN}))(?:\w+\0)+",
}
"""The code that these run, and nothing else."""

CHECKED: Final = frozenset(_WORDS) - RUNS_OTHERS
"""Programs that run others only with some of their words: a rule that allows them does not allow those."""
_SYSTEM = re.compile(r"(/usr|/usr/local|/opt/homebrew)?/s?bin/[^/]+")
_PROGRAMS_THERE = re.compile(r"(.*/)?s?bin(/.*)?", re.DOTALL)
_OF_GIT = re.compile(r"(.*/)?(hooks(/.*)?|config|HEAD)", re.DOTALL)
_TELLING: Final = ("--version\0", "--help\0")
_MOST, _DEEPEST = 2_000, 5


@dataclass(frozen=True, slots=True)
class Reading:
    """Whatever a command would run."""

    commands: list[tuple[Word, ...]] = field(default_factory=list[tuple[Word, ...]])
    """Every command that may run, as its words."""
    doubts: list[str] = field(default_factory=list[str])
    """Why it cannot be told what else runs; empty when it can."""
    unread: list[str] = field(default_factory=list[str])
    """The texts that are commands, and could not be read."""
    changed: list[Word] = field(default_factory=list[Word])
    """The words that may name what it changes."""


@lru_cache(maxsize=64)
def take_apart(command: str) -> Reading:
    """Return whatever a command would run."""
    reading = Reading()
    _add_text(reading, command, 0)
    moved = [word for words in reading.commands if words[0].text in ("cd", "pushd") for word in words[1:]]
    runs_git = any(program_name(words[0].text) == "git" for words in reading.commands)
    for word in (*reading.changed, *moved):
        if _OF_GIT.fullmatch(word.text) or starts_by_itself(word.text) or (runs_git and not word.is_known):
            reading.doubts.append("it may change what something runs by itself")
    return reading


def program_name(text: str) -> str:
    """Return the name of a program without its path."""
    return text.rpartition("/")[2]


def _shape(words: Sequence[Word]) -> str:
    return "".join([f"{word.shape}\0" for word in words])


def _add_text(reading: Reading, text: str, depth: int) -> None:
    found = read_commands(text) if depth < _DEEPEST and len(reading.commands) < _MOST else None
    if found is None:
        reading.doubts.append("it cannot be read for sure")
        reading.unread.append(text)
    for simple in found or ():
        _add_simple(reading, simple, depth)


def _add_simple(reading: Reading, simple: Simple, depth: int) -> None:
    unsure = [name for name, _ in simple.assigned if not re.fullmatch(_VARIABLE, name)]
    reading.doubts.extend([f"{name} may decide which programs run" for name in unsure])
    if any("$(" in word.text or "`" in word.text for word in (*simple.words, *[value for _, value in simple.assigned])):
        reading.doubts.append("it holds a command in quotes")  # which may be evaluated: as arithmetic, in a prompt
    _add_changed(reading, [word for word in simple.written if word.text != "/dev/null"])
    if simple.words:
        _add_command(reading, tuple(simple.words), depth)


def _add_changed(reading: Reading, words: Sequence[Word]) -> None:
    reading.changed.extend(words)
    unsure = [word.text for word in words if not word.is_known or _PROGRAMS_THERE.fullmatch(word.text)]
    reading.doubts.extend([f"it writes {text or 'what it does not name'}" for text in unsure])


def _add_command(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    reading.commands.append(words)
    program, shape = words[0].text, _shape(words[1:])
    name = program_name(program)
    if not words[0].is_known:
        reading.doubts.append("it does not say which program runs")
    elif "/" in program and not _SYSTEM.fullmatch(program):
        reading.doubts.append(f"what {program} is cannot be told")
    elif shape in _TELLING or re.fullmatch(_WORDS.get(name, "(?!)"), shape) or _add_inner(reading, words, shape, depth):
        if name in _PUTTING:
            _add_changed(reading, words[1:])
        elif name in _REMOVING or (name in _CHANGES and re.match(_CHANGES[name], shape)):
            reading.changed.extend(words[1:])
    else:
        reading.doubts.append(_tell_doubt(name, words[1:]))
        reading.commands.extend(suffixes(words)[1:] if name in HANDS_ON else ())


def _tell_doubt(name: str, words: Sequence[Word]) -> str:
    if _WORDS.get(name) == _DECLARE:
        return f"{', '.join([word.text.partition('=')[0] for word in words])} may decide which programs run"
    is_builtin = name in ("test", "[", "[[", "printf", "read", "unset", "wait")
    return f"{name} may evaluate what it is given" if is_builtin else f"what {name} starts cannot be told"


def _add_inner(reading: Reading, words: tuple[Word, ...], shape: str, depth: int) -> bool:
    """Add what a program surely runs: code, or a command. False: that cannot be told."""
    name = program_name(words[0].text)
    before = re.match(_BEFORE_INNER.get(name, "(?!)"), shape)
    if (code := re.fullmatch(_CODE.get(name, "(?!)"), shape)) is not None:
        _add_text(reading, (code[1] or "").replace("\0", " "), depth + 1)
        return True
    if before is None or depth >= _DEEPEST:
        return False
    inner = [*words[1 + before[0].count("\0") :]]
    if name == "find":
        end = next((index for index, word in enumerate(inner) if word.text in (";", "+")), len(inner))
        if not re.fullmatch(_FOUND, _shape(inner[end + 1 :])):
            return False
        inner = [Word(word.shape.replace("{}", MANY)) for word in inner[:end]]
    elif name == "xargs":
        inner += [Word(MANY)] if inner else []
    if inner and (re.match(r"-|[^\0]*=", inner[0].text) or _WORDS.get(inner[0].text) == _DECLARE):
        return False
    if inner:
        _add_command(reading, tuple(inner), depth + 1)
    return True


_LOOKS = re.compile(
    r"(?:[^\0]*/)?git\0(?:-C\0[^\0]*\0|--no-pager\0)*(?:blame|cat-file|describe|diff|for-each-ref|grep|log|ls-files|ls-tree"
    r"|merge-base|reflog|rev-list|rev-parse|shortlog|show|show-ref|status|remote\0(?:-v\0)?\Z|config\0-|--version|\Z)"
    rf"|(?!(?:[^\0]*/)?(?:git|{'|'.join(_REMOVING)})\0)"
)


def only_looks(command: str) -> bool:
    """Tell whether a command is taken for one that changes nothing."""
    reading = take_apart(command)
    return not reading.doubts and not reading.changed and all(_LOOKS.match(_shape(each)) for each in reading.commands)
