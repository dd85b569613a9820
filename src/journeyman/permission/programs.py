"""Finds the programs that a command would run, so that a denied one is not run by way of another.

`Reading` takes a command apart into whatever it would run: also what `timeout`, `xargs`, `bash -c` and their like are
handed. What cannot be told is a doubt: a script in a file, a program that the text does not name, code of a language
that can start programs. Nothing here is a sandbox: a program that is not known for running others may still do so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Final

from journeyman.permission.bash import Simple, Word, read_commands


def names(*rows: str) -> frozenset[str]:
    """Return the words of some lines."""
    return frozenset(name for row in rows for name in row.split())


SHELLS: Final = names("ash bash busybox csh dash eval fish ksh mksh rbash sh tcsh toybox zsh")
"""They run what `-c` says, a file, or what comes in."""

LAUNCHERS: Final = names(
    "builtin chroot chrt command cpulimit daemonize dbus-run-session doas entr env exec fakeroot faketime fd fdfind",
    "find firejail flock fzf gdb i386 ionice jobs linux32 linux64 ltrace mosh nice nohup nsenter parallel perf pkexec",
    "prlimit proot rlwrap rsync runuser scp screen script setarch setpriv setsid sftp softlimit split ssh sshpass",
    "start-stop-daemon stdbuf strace su sudo systemd-run taskset tcsh time timeout tmux trap unbuffer unshare",
    "valgrind watch x86_64 xargs xvfb-run",
)
"""Their arguments may be, or hold, a command with its arguments."""

_CODE: Final = names(
    ". R alias at batch bind bun compgen complete crontab deno dlopen ed emacs enable ex expect fc ghc gmake",
    "groovy guile hash java jq-repl julia just ld.so less lua m4 make man mapfile more nano ninja node nodejs nox npm",
    "npx nvim ocaml octave osascript perl php pico pnpm pry pwsh python python2 python3 rake readarray ruby run-parts",
    "rview rvim scala shopt source swift tclsh tox vi view vim vimdiff wish yarn zx",
)
"""They run code, a file or the text of an editor: what that starts cannot be told from here."""

RUNS_OTHERS: Final = (
    SHELLS | LAUNCHERS | _CODE | names("awk gawk mawk nawk sed gsed tar bsdtar git-shell coproc function")
)
"""Programs and builtins whose arguments are, or may hold, commands. A rule that allows must name them."""

_INERT: Final = names(
    ": [ [[ b2sum base32 base64 basename bg break cal cat cd chgrp chmod chown cksum clear cmp column comm continue",
    "cut date df diff dirname dirs du echo egrep exit expand expr factor false fg fgrep fmt fold free getopts grep",
    "groups head hexdump hostname id join kill killall look ls lsof md5sum mkdir mktemp nl nproc numfmt od paste",
    "pathchk pgrep pkill popd pr printenv printf ps pushd pwd read readlink realpath return rev rm rmdir seq sha1sum",
    "sha224sum sha256sum sha384sum sha512sum shift shred shuf sleep stat strings stty sum sync tac tail tee test",
    "touch tput tr tree true truncate tsort tty type ulimit umask uname unexpand uniq unlink unset uptime users wait",
    "wc whereis which who whoami yes",
)
"""They run nothing, whatever their arguments say."""

_SUBCOMMANDS: Final = names(
    "apt apt-get aws az brew bundle cargo conda dnf docker dotnet flatpak gcloud gem gh git go gradle helm hg kubectl",
    "mvn nerdctl nix pip pip3 pipx podman poetry snap svn systemctl terraform uv yum",
)
"""A bare word among their arguments is a subcommand of theirs."""

_SYSTEM = re.compile(r"(/usr|/usr/local|/opt/homebrew)?/s?bin/[^/]+")
"""Where programs are that a system brings."""
_HARMLESS_OPTIONS: Final = frozenset(("--version", "-V", "--help", "-h"))

_VARIABLE_RUNS = re.compile(
    r"(BASH|LD|DYLD)_.*|PATH|ENV|IFS|PS4|SHELLOPTS|BASHOPTS|GCONV_PATH|PROMPT_COMMAND|TAR_OPTIONS|MAKEFLAGS|MANOPT|LESS.*"
    r"|PERL5(OPT|DB|LIB)|RUBY(OPT|LIB)|NODE_OPTIONS|PYTHON(STARTUP|INSPECT|BREAKPOINT|HOME)|GIT_(CONFIG|EXEC|SSH|PROXY).*"
    r"|GIT_EXTERNAL_DIFF|.*(PAGER|EDITOR|VISUAL|BROWSER|ASKPASS|COMMAND|SHELL|_RSH|_CMD|LAUNCHER|WRAPPER)"
)
"""Variables whose value is, or decides on, a program that others run."""

_GIT_RUNS: Final = {
    **dict.fromkeys(
        ("clone", "fetch", "fetch-pack", "ls-remote", "pull"), r"-u|-c|--(upload-pack|exec|config|template)"
    ),
    **dict.fromkeys(("push", "send-pack", "archive"), r"--(receive-pack|exec|remote)"),
    **dict.fromkeys(("bisect", "difftool", "filter-branch", "instaweb", "mergetool", "send-email"), r""),
    "submodule": r"foreach|--recursive.*foreach",
    "rebase": r"-x|--exec",
    "grep": r"-O|--open-files-in-pager",
    "config": r"(?!--get|--list|-l$)",
}
"""What, behind a subcommand of git, makes it run something."""
_GIT_ANYWHERE = re.compile(r"--(config-env|exec-path=).*|.*!.*|.*ext::.*|alias\..*", re.DOTALL)
_GIT_TAKES_VALUE: Final = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix")
_GIT_SETTINGS = re.compile(r"(user|color|advice|column|log|status|init|pull|push|fetch|merge|rebase)\.[\w.]+=[\w@. -]*")
"""Settings that are no program."""
_SED = re.compile(
    r"((\d+|\$|/[^/\\\n]*/)?(,(\d+|\$|/[^/\\\n]*/))?!?"
    r"([pdq=]|s(?P<mark>[/|,#@:])((?!(?P=mark))[^\\\n]|\\.)*(?P=mark)((?!(?P=mark))[^\\\n]|\\.)*(?P=mark)[gpiI0-9]*)(;\s*|$))+"
)
"""The scripts of sed that surely run nothing: its `e` does, as a command and as a flag."""
_TOKENS = re.compile(r"[A-Za-z0-9_.+-]+")
_MOST: Final = 2_000


_LOOKING: Final = names(
    ": [ [[ awk b2sum base32 base64 basename builtin cal cat cd cksum cmp column command comm cut date declare df",
    "diff dirname dirs du echo egrep env exit expand export expr false fgrep file find fmt fold free git grep",
    "groups head hexdump history hostname id jobs join journalctl jq less local ls lsof man md5sum more nl nm",
    "nproc numfmt objdump od openssl paste pathchk pgrep pip pip3 popd printenv printf ps pushd pwd readelf",
    "readlink realpath rev rg sed seq set sha1sum sha224sum sha256sum sha384sum sha512sum size sleep sort stat",
    "strings sum tac tail tar test top tput tr tree true tsort tty type uname unexpand uniq unset unzip uptime",
    "users wc whereis which who whoami yes",
)
"""They change nothing, or nothing where all their words are as below."""
_LOOKS: Final = {
    "awk": r"(?!-i|-f|--include|--file|-E|--exec)(?!.*(system|[|>])).*",
    "builtin": r"cd|\.\.|[\w./-]+",
    "command": r"-[vV]|[\w.+-]+",
    "date": r"(?!-s|--set).*",
    "env": r"(?!)",
    "find": r"(?!-(delete|exec|ok|fprint|fls)).*",
    "git": r"(?!-c$|-O|--(output|ext-diff|open-files-in-pager|textconv|upload-pack|exec-path|config-env)).*",
    "hostname": r"-.*",
    "man": r"(?!-P|--pager).*",
    "openssl": r"(?!-out$|-signkey$|-engine$).*",
    "pip": r"list|show|freeze|check|--?[\w=-]+|[\w.-]+",
    "pip3": r"list|show|freeze|check|--?[\w=-]+|[\w.-]+",
    "rg": r"(?!--pre).*",
    "sed": rf"-[nEer]+|--quiet|{_SED.pattern}|[\w./*-]+",
    "sort": r"(?!-[a-zA-Z]*[oT]|--[octT]).*",
    "tar": r"-?t[vzJjf]*|[\w./-]+",
    "tree": r"(?!-[a-zA-Z]*o).*",
    "uniq": r"-.*",
    "unzip": r"-l|[\w./-]+",
}
_FIRST_WORD: Final = {
    "builtin": names("cd echo printf pwd type"),
    "command": names("-v -V"),
    "openssl": names("x509 version dgst"),
    "pip": names("list show freeze check"),
    "pip3": names("list show freeze check"),
    "tar": names("t tf tvf tzf -t -tf -tvf -tzf"),
    "unzip": names("-l"),
}
_GIT_LOOKS: Final = names(
    "annotate blame cat-file cherry describe diff for-each-ref grep log ls-files ls-tree merge-base name-rev reflog",
    "rev-list rev-parse shortlog show show-ref status var version whatchanged",
)


def only_looks(command: str) -> bool:
    """Tell whether a command is taken for one that changes nothing. That may be wrong: it is asked about a command in a
    box, which holds what it must not do."""
    found = read_commands(command)
    return found is not None and all(map(_simple_looks, found))


def _simple_looks(simple: Simple) -> bool:
    is_changing = any(target.text != "/dev/null" for target in simple.written)
    if is_changing or any(_VARIABLE_RUNS.fullmatch(name) for name, _ in simple.assigned):
        return False
    program, *arguments = simple.words or (Word(":"),)
    name, texts = program.text if program.is_known else "", [word.text for word in arguments]
    if texts and _HARMLESS_OPTIONS.issuperset(texts):
        return "/" not in name
    if name not in _LOOKING or not all(re.fullmatch(_LOOKS.get(name, ".*"), text, re.DOTALL) for text in texts):
        return False
    if name == "git":
        subcommand = next((text for text in texts if not text.startswith("-")), "version")
        return subcommand in _GIT_LOOKS or texts in (["remote", "-v"], ["remote"]) or texts[:2] == ["config", "--get"]
    return name not in _FIRST_WORD or (bool(texts) and texts[0] in _FIRST_WORD[name])


@dataclass(frozen=True, slots=True)
class Reading:
    """Whatever a command would run."""

    commands: list[tuple[Word, ...]] = field(default_factory=list[tuple[Word, ...]])
    """Every command that may run, as its words."""
    mentions: set[str] = field(default_factory=set[str])
    """Words among the arguments of programs that may do anything with them."""
    doubts: list[str] = field(default_factory=list[str])
    """Why it cannot be told what else runs; empty when it can."""
    unread: list[str] = field(default_factory=list[str])
    """The texts that are commands, and could not be read."""

    @property
    def is_whole(self) -> bool:
        return not self.unread


@lru_cache(maxsize=64)
def take_apart(command: str) -> Reading:
    """Return whatever a command would run."""
    reading = Reading()
    _add_text(reading, command, 0)
    return reading


def program_name(text: str) -> str:
    """Return the name of a program without its path."""
    return text.rpartition("/")[2]


def _add_text(reading: Reading, text: str, depth: int) -> None:
    found = read_commands(text) if depth < 5 and len(reading.commands) < _MOST else None
    if found is None:
        reading.doubts.append("it cannot be read for sure")
        reading.unread.append(text)
        return
    for simple in found:
        _add_simple(reading, simple, depth)


def _add_simple(reading: Reading, simple: Simple, depth: int) -> None:
    for name, value in simple.assigned:
        if _VARIABLE_RUNS.fullmatch(name):
            reading.doubts.append(f"{name} may decide which programs run")
        _look_into(reading, value, depth)
    reading.doubts.extend(
        [f"it writes {target.text}" for target in simple.targets if "/bin/" in target.text or "/sbin/" in target.text]
    )
    if simple.words:
        _add_command(reading, simple.words, depth)


def _add_command(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    program, arguments = words[0], words[1:]
    reading.commands.append(words)
    for word in arguments:
        _look_into(reading, word, depth)
    if not program.is_known:
        reading.doubts.append("it does not say which program runs")
        return
    name = program_name(program.text)
    if "/" in program.text and not (_SYSTEM.fullmatch(program.text) or name.startswith(("ld-", "ld.so"))):
        reading.doubts.append(f"what {program.text} is cannot be told")
    if name in ("command", "type") and any(word.text in ("-v", "-V") for word in arguments[:1]):
        return
    if name in _INERT:
        if _evaluates(name, arguments):
            reading.doubts.append(f"{name} may evaluate what it is given")
        return
    reading.mentions.update(_words_in(name, arguments))
    if {word.text for word in arguments} <= _HARMLESS_OPTIONS and arguments and name not in ("set", "exec", "eval"):
        return
    _READERS.get(name, _LIKE.get(_kind_of_program(name), _other))(reading, words, depth)


def _kind_of_program(name: str) -> str:
    bare = name.rstrip("0123456789.")
    for kind, known in (("shell", SHELLS), ("launcher", LAUNCHERS), ("code", _CODE)):
        if name in known or bare in known:
            return kind
    return "launcher" if name.startswith(("ld-", "ld.so")) else ""


def _look_into(reading: Reading, word: Word, depth: int) -> None:
    """A substitution that is quoted now may be evaluated later: as arithmetic, in a prompt, by `eval`."""
    if "$(" in word.text or "`" in word.text:
        reading.doubts.append("it holds a command in quotes")
        _guess(reading, word.text.replace("`", " ; ").replace("$(", " ; ").replace(")", " ; "), depth)


def _guess(reading: Reading, text: str, depth: int) -> None:
    """Add what a text would run if it were a command; it may be none."""
    found = read_commands(text) if depth < 5 else None
    for simple in found or ():
        if simple.words:
            reading.commands.append(simple.words)
    if found is None:
        reading.doubts.append("a text in it may be a command")
        reading.unread.append(text)


def _words_in(name: str, arguments: Sequence[Word]) -> Iterator[str]:
    for word in arguments:
        if name == "git":
            continue  # what it may run is looked at below
        if name in _SUBCOMMANDS and re.fullmatch(r"[A-Za-z0-9_./-]+", word.text) and not word.text.startswith("--"):
            continue
        if re.fullmatch(r"--?[A-Za-z0-9_-]+", word.text):
            yield word.text[2:] if not word.text.startswith("--") else ""  # an option with its value behind it
            continue
        yield from _TOKENS.findall(word.text)
        yield from [program_name(token) for token in re.findall(r"[A-Za-z0-9_.+/-]+", word.text)]


# -- programs that run others -----------------------------------------------------------------------------------------


def _other(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    """A program that is not known for running others, nor for never doing so."""


def _doubtful(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    reading.doubts.append(f"what {program_name(words[0].text)} starts cannot be told")


def _shell(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    """`-c` and `eval` come with code, which is read; anything else runs a file, or what comes in."""
    name, is_code = program_name(words[0].text), False
    if name == "eval" and all(word.is_known for word in words):
        _add_text(reading, " ".join([word.text for word in words[1:]]), depth + 1)
        return
    for index, word in enumerate(words[1:], 1):
        if not word.is_known:
            break
        if is_code and not word.text.startswith(("-", "+")):
            _add_text(reading, word.text, depth + 1)
            return
        is_code = is_code or re.fullmatch(r"-[a-z]*c", word.text) is not None
        if name in ("busybox", "toybox"):
            _launcher(reading, words, depth)
            return
        if index > 1 and not is_code and not words[index - 1].text.startswith(("-", "+")):
            break
    _doubtful(reading, words, depth)


def _launcher(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    """Any word may be the program; what cannot be read may be anything, and so may what comes in behind."""
    name = program_name(words[0].text)
    tail = (Word("", is_known=False),) if name in ("xargs", "parallel", "find", "fd", "fdfind", "entr", "fzf") else ()
    if any(not word.is_known or (word.text == "{}" and name == "parallel") for word in words[1:]):
        reading.doubts.append(f"what {name} starts cannot be told")
    for index, word in enumerate(words[1:], 1):
        if not word.is_known:
            continue
        if word.text.startswith("-"):
            for glued in filter(None, (word.text.partition("=")[2], word.text[2:])):
                _guess(reading, glued, depth)
        elif " " in word.text or "\n" in word.text:
            _add_text(reading, word.text, depth + 1)
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.+-]*|[^=]*/[^=]*|\.|\[", word.text):
            _add_inner(reading, (*words[index:], *tail), depth)
    if name in ("xargs", "parallel", "find", "fd", "fdfind"):
        _templates(reading, words)
    _place_program(reading, words)


def _place_program(reading: Reading, words: tuple[Word, ...]) -> None:
    """Doubt the path of a program that is no part of the system. What follows the program are its arguments."""
    n_operands = _OPERANDS.get(program_name(words[0].text), 0)
    for before, word in pairwise(words):
        is_path = "/" in word.text and not word.text.startswith("-") and not _SYSTEM.fullmatch(word.text)
        if is_path and not n_operands:
            reading.doubts.append(f"what {word.text} is cannot be told")
        if re.fullmatch(r"[A-Za-z_/.][\w.+/-]*", word.text) and not before.text.startswith("-"):
            if not n_operands:
                return
            n_operands -= 1


def _add_inner(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    """Add a command that may be one, or only the arguments of one: doubts only where it is known to be a program."""
    name = program_name(words[0].text)
    if depth < 5 and len(reading.commands) < _MOST and name in RUNS_OTHERS:
        _add_command(reading, words, depth + 1)
    else:
        reading.commands.append(words)


def _templates(reading: Reading, words: tuple[Word, ...]) -> None:
    """Doubt a command whose program, or a part of its code, is a mark that `xargs` or the like replaces later."""
    marks = {"{}"}
    for index, word in enumerate(words):
        if word.text in ("-I", "-J", "--replace") and index + 1 < len(words):
            marks.add(words[index + 1].text)
        elif re.fullmatch(r"-[IJ].+", word.text):
            marks.add(word.text[2:])
    after = [words[index + 1] for index, word in enumerate(words[:-1]) if re.match(r"-(exec|ok)|-x$|-X$", word.text)]
    is_code = any(program_name(word.text) in RUNS_OTHERS for word in words[1:])
    is_marked = any(mark in word.text for mark in marks for word in words[1:])
    first = next((word for word in words[1:] if not word.text.startswith("-")), None)
    starts = [*after, *([first] if first is not None and program_name(words[0].text) == "xargs" else [])]
    if (is_code and is_marked) or any(mark in word.text for mark in marks for word in starts):
        reading.doubts.append(f"what {program_name(words[0].text)} starts cannot be told")


def _code(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    _doubtful(reading, words, depth)
    for word in words[1:]:
        if " " in word.text:
            for token in _TOKENS.findall(word.text):
                reading.mentions.add(token)


def _sed(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    scripts: list[Word] = []
    takes_next = has_script = False
    for word in words[1:]:
        if takes_next:
            scripts.append(word)
            takes_next = False
        elif word.text in ("-e", "--expression"):
            takes_next = has_script = True
        elif word.text.startswith(("--expression=",)) or re.fullmatch(r"-[nErsuz]*e.+", word.text):
            scripts.append(Word(word.text.partition("=")[2] or word.text.partition("e")[2], word.is_known))
            has_script = True
        elif re.fullmatch(r"-[nErsuzi]*f.*|--file.*", word.text):
            _doubtful(reading, words, depth)
        elif not word.text.startswith("-") and not has_script:
            scripts.append(word)
            has_script = True
    if any(not script.is_known or not _SED.fullmatch(script.text) for script in scripts):
        _doubtful(reading, words, depth)


def _git(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    start = 1
    while start < len(words) and words[start].text.startswith("-"):
        start += 2 if words[start].text in _GIT_TAKES_VALUE else 1
    before, behind = words[1:start], words[start + 1 :]
    settings = [word for at, word in enumerate(before) if at and before[at - 1].text == "-c"]
    settings += [Word(word.text[2:], word.is_known) for word in before if re.match(r"-c.", word.text)]
    is_set = any(not each.is_known or not _GIT_SETTINGS.fullmatch(each.text) for each in settings)
    subcommand = words[start].text if start < len(words) else ""
    runs = _GIT_RUNS.get(subcommand)
    looked_at = behind[:1] if subcommand == "config" else behind
    is_run = runs is not None and any(re.match(runs, word.text) for word in looked_at)
    if is_set or is_run or any(_GIT_ANYWHERE.fullmatch(word.text) for word in (*before, *behind)):
        _doubtful(reading, words, depth)


def _export(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    for word in words[1:]:
        name, assigns, _ = word.text.partition("=")
        if re.match(r"[-+]", name):
            evaluates = re.search(r"[inf]", name)  # as a number, as another's name; functions are exported
        else:
            evaluates = not word.is_known and not (assigns and re.fullmatch(r"[A-Za-z_]\w*\+?", name))
        if evaluates or _VARIABLE_RUNS.fullmatch(name.rstrip("+")):
            reading.doubts.append(f"{name or 'a variable'} may decide which programs run")


def _evaluates(name: str, arguments: Sequence[Word]) -> bool:
    """Tell whether a builtin evaluates what cannot be read: the name of a variable may hold a subscript with a command
    in it, and `[[` takes the operands of `-eq` and its like for arithmetic."""
    is_known = all(word.is_known for word in arguments)
    options = {word.text for word in arguments}
    if name in ("test", "[", "[["):
        sums = name == "[[" and options & {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}
        numbers = all(re.fullmatch(r"-?\d+|-\w+|[!()]|\]\]", word.text) and word.is_known for word in arguments)
        return bool((options & {"-v", "-R"} and not is_known) or (sums and not numbers))
    return not is_known and (name in ("read", "unset", "getopts") or (name in ("printf", "wait") and "-v" in options))


def _options(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    """Programs that run what one of their options, or the code that they are given first, names, and nothing else."""
    name, has_code = program_name(words[0].text), False
    for index, word in enumerate(words[1:]):
        text = f"-{word.text}" if index == 0 and name in _BUNDLED and not word.text.startswith("-") else word.text
        is_unsure = not word.is_known and (text.startswith("-") or (name in _AWKS and not has_code))
        if is_unsure or re.match(_OPTIONS_RUN[name], text, re.DOTALL):
            _doubtful(reading, words, depth)
            return
        has_code = has_code or not text.startswith("-")


def _find(reading: Reading, words: tuple[Word, ...], depth: int) -> None:
    """`find` runs what stands behind `-exec`, and nothing else."""
    runs = [index for index, word in enumerate(words) if re.fullmatch(r"-(exec|ok)(dir)?", word.text)]
    if runs:
        _launcher(reading, words[:1] + words[runs[0] :], depth)
    elif any(word.text in ("", "-") and not word.is_known for word in words[2:3]):
        _doubtful(reading, words, depth)


_OPERANDS: Final = {"chroot": 1, "flock": 1, "ssh": 1, "split": 1}
"""How many words come before the program that these start."""
_AWKS: Final = ("awk", "gawk", "mawk", "nawk")
_BUNDLED: Final = ("tar", "bsdtar")
"""Their first argument is options, with or without a dash."""
_OPTIONS_RUN: Final = {
    **dict.fromkeys(_AWKS, r".*(system|\||getline|@|ENVIRON)|-[fEil]|--(file|exec|include|load)"),
    **dict.fromkeys(_BUNDLED, r"--(to-c|check|use-c|info-s|new-v|rsh|rmt)|-[A-Za-z]*[IF]"),
    "set": r"[-+][euxovn]*[^euxovn-]|(history|histexpand|keyword)$",
    "sort": r"--comp",
    "rg": r"--pre|--hostname-bin",
    "zip": r"-\w*T|--unzip-c|--test",
    "wget": r"--use-ask|-e|--exec",
    "curl": r"-\w*K|--config",
    "ag": r"--pager",
    "pip": r"--editor",
    "svn": r"--(diff|diff3|editor|merge)",
    "gcc": r"-wrapper|-B|-f?plugin|@",
    "cc": r"-wrapper|-B|-f?plugin|@",
}
_Reader = Callable[[Reading, tuple[Word, ...], int], None]
_LIKE: Final[dict[str, _Reader]] = {"shell": _shell, "launcher": _launcher, "code": _code, "": _other}
_READERS: Final[dict[str, _Reader]] = {
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(_OPTIONS_RUN, _options),
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _export),
    **{"git": _git, "find": _find, "let": _doubtful},
}
