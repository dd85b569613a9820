"""Two rough readings of a command: `plain_words` gives the words of what can only be one program with its arguments, so
that it may be allowed; `every_command` whatever might run, so that it may be denied."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from journeyman.permission.bash import MANY, MOST_CHARS, Word


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


HANDS_ON: Final = names("""
    ash bash busybox builtin chroot chrt command coproc cpulimit csh dash dbus-run-session doas entr env eval exec
    fakeroot faketime fd fdfind find firejail fish flock function fzf gdb ionice ksh ltrace mksh mosh nice nohup
    nsenter parallel perf pkexec prlimit proot rbash rlwrap rsync runuser scp screen script setarch setpriv setsid
    sftp sh softlimit split ssh sshpass start-stop-daemon stdbuf strace su sudo systemd-run taskset tcsh time timeout
    tmux toybox trap unbuffer unshare valgrind watch xargs xvfb-run zsh
""")
"""Their arguments may be, or hold, a command with its arguments."""
RUNS_OTHERS: Final = HANDS_ON | names("""
    . R alias at awk batch bind bsdtar bun compgen complete crontab deno ed emacs enable ex expect fc gawk ghc
    git-shell gmake groovy gsed guile hash i386 java jobs julia just less linux32 linux64 lua m4 make man mapfile mawk
    more nano nawk ninja node nodejs nox npm npx nvim ocaml octave osascript perl php pico pnpm pry pwsh python
    python2 python3 rake readarray ruby run-parts rview rvim scala sed shopt source swift tar tclsh tox vi view vim
    vimdiff wish x86_64 yarn zx
""")
"""Programs that are there to run others, or code. A rule that allows must name them."""

_PLAIN = re.compile(
    r"""[ \t]*([A-Za-z0-9_][A-Za-z0-9_.+-]*)(?=[ \t]|\Z)"""
    r"""(?:[ \t]+(?>[A-Za-z0-9_@%+=:,./-]|'[\x20-\x26\x28-\x7e]*'|"[\x20\x23\x25-\x5b\x5d-\x5f\x61-\x7e]*")+)*[ \t]*"""
)
"""A program and words that every shell leaves as they are, wherever they stand."""
_REDIRECTIONS = re.compile(r"[0-9]*(?:&>>?|[<>]+[&|]?)(?:-|[ \t]*[^\s;&|<>()]+)")
_ENDS = re.compile(r"[;&|\n\r()`{}#]+")
_COMES_BEFORE = re.compile(
    r"(?s:[A-Za-z_]\w*(\[[^\]]*\])?\+?=.*)|[{}!]|if|then|elif|else|fi|case|esac|for|select|while|until|do|done|in"
    r"|function|time|coproc"
)
_MOST_COMMANDS: Final = 2_000


def plain_words(command: str) -> tuple[str, ...] | None:
    """Return the words of one plain simple command, None of everything else: one program, named without a path, with
    arguments that no shell would change. No operators, substitutions, redirections, assignments, globs, escapes,
    comments, control characters or anything outside of ASCII."""
    found = None if len(command) > MOST_CHARS else _PLAIN.fullmatch(command)
    return None if found is None or _COMES_BEFORE.fullmatch(found[1]) else tuple(shlex.split(command))


def every_command(command: str) -> list[tuple[Word, ...]] | None:
    """Return every command that might run in this one, as its words, read without its quotes: whatever begins a command
    may do so anywhere. None: it is too long to tell."""
    if len(command) > MOST_CHARS:
        return None
    found: list[tuple[Word, ...]] = []
    for text in dict.fromkeys((command, command.replace("\\\n", ""))):
        bare = _REDIRECTIONS.sub(" ", re.sub(r"['\"\\]", "", text))
        for segment in _ENDS.split(bare):
            listed = [Word(f"{MANY}{each}" if {*"$*?["} & {*each} else each) for each in segment.split()]
            found += suffixes(listed)
            if len(found) > _MOST_COMMANDS:
                return None
    return found


def suffixes(words: Sequence[Word]) -> list[tuple[Word, ...]]:
    """Return a command behind what only comes before one, and what it might hand on."""
    comes_before = [_COMES_BEFORE.fullmatch(word.text) is not None for word in words]
    start = comes_before.index(False) if False in comes_before else len(words)
    hands_on = any(word.text.rpartition("/")[2] in HANDS_ON for word in words[start : start + 1])
    ends = range(start, len(words) if hands_on else min(start + 1, len(words)))
    return [tuple(words[index:]) for index in ends if words[index].is_known]
