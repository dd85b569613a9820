"""Startup files: what a shell, an editor, git, a language or another agent runs, or obeys, by itself. File tools ask
before they change one; a command in a box cannot change those that are there, and those that are new are put aside.

The folder is walked once, whole. Later only those folders are looked at again whose entries have changed since, by a
time that no program can set.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from journeyman.errors import printable

_FOLDERS: Final = frozenset(
    (
        # of agents: their settings, and what they obey
        *(".agents", ".amazonq", ".amp", ".augment", ".claude", ".clinerules", ".codex", ".continue", ".crush"),
        *(".cursor", ".factory", ".gemini", ".junie", ".kilocode", ".kiro", ".mcp", ".opencode", ".openhands"),
        *(".qodo", ".qwen", ".roo", ".tabnine", ".trae", ".windsurf", ".zencoder"),
        # of editors
        *(".devcontainer", ".doom.d", ".emacs.d", ".externaltoolbuilders", ".fleet", ".helix", ".idea", ".nova"),
        *(".nvim", ".spacemacs.d", ".theia", ".vim", ".vscode", ".vscode-insiders", ".zed"),
        # of shells, desktops, and programs that run what stands in their settings
        *(".bundle", ".config", ".flox", ".fluxbox", ".githooks", ".gnupg", ".hammerspoon", ".husky", ".i3"),
        *(".ipython", ".jupyter", ".kde", ".lefthook", ".mvn", ".oh-my-zsh", ".ssh", ".zsh"),
    )
)
"""Folders of which every file is one."""
_NAMES: Final = (
    r"\.(bash_?\w+|profile|z(shrc|shenv|profile|login|logout)|m?kshrc|t?cshrc|login|logout|aliases|functions|exports"
    r"|xinitrc|xprofile|xsession(rc)?|pam_environment|envrc(\..*)?|direnvrc|inputrc|screenrc|tmux\.conf|xonshrc"
    r"|(g|l|local\.)?vimrc(\..*)?|nvimrc|nvim\.lua|exrc|ideavimrc|emacs|spacemacs|projectile|dir-locals(-2)?\.el|kakrc"
    r"|wezterm\.lua|alacritty\.(toml|ya?ml)|phoenix\.js|xbindkeysrc|replit|rules"
    r"|gitconfig|gitmodules|hgrc|tigrc|overcommit\.yml|pre-commit-config\.ya?ml|simple-git-hooks\.(c?js|json)|huskyrc(\..*)?"
    r"|cursorrules|windsurfrules|roorules|goosehints|aider\.conf\.ya?ml|crush\.json"
    r"|pythonrc|pythonstartup|pdbrc(\.py)?|irbrc|pryrc|rprofile|renviron|ghci|ocamlinit|octaverc|sbclrc|guile|perldb"
    r"|gdbinit|lldbinit.*|radare2rc|sqliterc|psqlrc|lesskey|lessfilter"
    r"|mailcap|forward|procmailrc|muttrc|msmtprc|mbsyncrc|fetchmailrc|rtorrent\.rc"
    r"|npmrc|yarnrc(\.yml)?|pnpmfile\.c?js|bazelrc|gemrc|terraformrc|ansible\.cfg|bunfig\.toml)"
    r"|_[gn]?vimrc|init\.vim|config\.fish|config\.worktree|\.?mcp(_config)?\.json|\.?lefthook(-local)?\.ya?ml"
    r"|\.?mise(\..*)?\.toml|ansible\.cfg|bunfig\.toml|(crush|opencode)\.jsonc?"
    r"|(agents?|claude|crush|gemini|qwen|warp)(\.local|\.override)?\.md|copilot-instructions\.md|.*\.code-workspace|.*\.pth"
    r"|(site|user)customize\.py|\.?(microsoft\.\w+_)?profile\.ps1|ipython_config\.py|jupyter_\w+_config\.py"
)
_PLACES: Final = (
    r"(.*/)?(\.cargo/config(\.toml)?|\.(aws|kube|docker|subversion)/config(\.json)?|\.gradle/init(\.d/.+|\.gradle.*)"
    r"|\.(hg/hgrc|(jj|jj/repo|sl|subversion|cabal|stack)/config(\.\w+)?|m2/settings\.xml|julia/config/startup\.jl|mise/.+)"
    r"|\.github/(instructions|prompts|agents|chatmodes)/.+"
    r"|\.local/(bin/.+|share/(systemd|applications|dbus-1)/.+)|Library/Launch(Agents|Daemons)/.+)"
)
_AROUND_PLACES: Final = frozenset(
    (
        *(".aws", ".cabal", ".cargo", ".docker", ".git", ".github", ".gradle", ".hg", ".jj", ".julia", ".kube"),
        *(".local", ".m2", ".mise", ".sl", ".stack", ".subversion", "library"),
    )
)
"""Folders in which some files are one: a link in the place of such a folder, or in it, brings in files that have other
names."""
_OF_GIT: Final = frozenset({"objects", "refs"})
"""A folder of git has these. Its HEAD may be in another one, which names it as its `commondir`."""
_SECTION: Final = re.compile(r'\[\s*([\w.-]+)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]')
_HARMLESS: Final = (
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol)"
    r"|extensions\.(objectformat|refstorage|partialclone)|remote\..*\.(url|fetch|tagopt|prune|promisor)"
    r"|branch\..*\.(remote|merge|rebase|description)|submodule\..*\.(url|active|path|branch)|user\.(name|email)"
    r"|init\.defaultbranch|pull\.rebase"
)
"""The keys of git that run nothing: of all others that is not known."""
_TICK_NS: Final = 20_000_000
"""Two changes within this time may have the same time."""
_NOT_HELD: Final = ()
"""The facts of a file that could not be put aside: it never is as it was."""
_MOST_ENTRIES: Final = 200_000
_LONGEST_CONFIG: Final = 100_000
_LONGEST_NAME: Final = 240  # so that it may be followed by a number and `.held`


def starts_by_itself(path: str) -> bool:
    """Tell whether something runs, or obeys, what stands in a file without being asked to, by its path below a root."""
    parts = path.lower().split("/")
    return ".git" in parts or parts[-1] == "head" or _has_startup_name(path)  # a HEAD makes a repository of any folder


@cache
def _matcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """Return what matches a pattern: to compile these takes longer than to import a module."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL).fullmatch


def _has_startup_name(path: str) -> bool:
    *folders, name = path.split("/")
    is_inside = not _FOLDERS.isdisjoint([each.lower() for each in (*folders, name)])
    return is_inside or _matcher(_NAMES)(name) is not None or _matcher(_PLACES)(path) is not None


class HeldFile(NamedTuple):
    """A startup file that is new or changed after a command."""

    path: str
    """The path that it had."""
    aside: str
    """The path that it has now; empty: the one that it had."""
    problem: str = ""
    """The reason why it could not be put aside."""

    def describe(self) -> str:
        """Return a sentence for whoever has to know of it."""
        if self.aside:
            return (
                f"{printable(self.path)} was put aside as {printable(self.aside)}: programs would run it by themselves."
            )
        return f"{printable(self.path)} could not be put aside ({self.problem}): programs run it by themselves."


class StartupFiles:
    """The startup files of a folder."""

    def __init__(self, root: str) -> None:
        """Walk the folder."""
        self.is_whole: bool = True
        """False: the folder has more entries than are looked at."""
        self._root: Final = root
        self._folders: Final[dict[str, int]] = {}
        """The folders, each with the time at which its entries had changed last."""
        self._known: Final[dict[str, tuple[int, ...]]] = {}
        self._aside: Final[dict[str, tuple[str, tuple[int, ...] | None]]] = {}
        """Of each file that was put aside, where it was, and its facts since."""
        self._n_entries: int = 0
        self._has_walked: bool = False
        self._known.update(self._walk(root))
        self._has_walked = True

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, and the folders of which every file is one, as far as they are there."""
        folders = [each for each in self._folders if _is_startup_folder(each)]
        alone = [each for each in self._known if not any(each.startswith(f"{folder}/") for folder in folders)]
        return tuple(sorted([*folders, *alone]))

    def hold_changes(self) -> list[HeldFile]:
        """Put aside each startup file that is new or changed and may run something, as `NAME.held` beside it, or as
        `NAME.2.held` where that is taken. What cannot be put aside is tried again the next time. Return them all."""
        held: list[HeldFile] = []
        for path, facts in dict(self._find_changes()).items():
            if _is_harmless(path):
                self._known[path] = facts
                continue
            self._known.pop(path, None)
            if file := _put_aside(path):
                held.append(file)
                if not file.aside:
                    self._known[path] = _NOT_HELD
                else:
                    self._aside[file.aside] = (path, _facts_of(file.aside))
        return held

    def return_held(self, file: HeldFile, folder: int) -> str:
        """Give a file its name back, in the open folder that it is in. Return why it stays aside; empty: it is back.
        Nothing is replaced, no link is followed, and what has changed since it was put aside stays there."""
        path, facts = self._aside.pop(file.aside, ("", None))
        old, name = os.path.basename(file.aside), os.path.basename(path)
        if facts is None or _facts_of(old, folder) != facts:
            return "it has changed since"
        try:
            os.link(old, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)  # it replaces nothing
            if os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino != facts[0]:  # changed in this moment
                os.unlink(name, dir_fd=folder)
                return "it has changed since"
            os.unlink(old, dir_fd=folder)
            found = _facts_of(name, folder)
        except OSError as error:
            return error.strerror or "nobody says why"
        if found is not None:
            self._known[path] = found
        return ""

    def _find_changes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for folder in [*self._folders]:
            changed_ns = _changed_ns(folder)
            if changed_ns is None:
                del self._folders[folder]
            elif changed_ns != self._folders[folder]:
                yield from self._compare(self._walk(folder))
        yield from self._compare(iter([(path, facts) for path in [*self._known] if (facts := _facts_of(path))]))

    def _compare(self, found: Iterator[tuple[str, tuple[int, ...]]]) -> Iterator[tuple[str, tuple[int, ...]]]:
        return ((path, facts) for path, facts in found if self._known.get(path) != facts)

    def _walk(self, top: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Give the startup files in a folder and in those below it that were not walked yet."""
        folders = [top]
        while folders:
            folder = folders.pop()
            seen_ns = _changed_ns(folder)
            if seen_ns is None:
                continue
            # What changes in this very moment may leave the time as it is, so such a folder is looked at again.
            is_new = folder not in self._folders
            self._folders[folder] = seen_ns if time.time_ns() - seen_ns > _TICK_NS else 0
            with suppress(OSError):
                listed = self._list(folder, is_new=is_new)
                self._n_entries += len(listed) if is_new else 0
                self.is_whole = self.is_whole and self._n_entries <= _MOST_ENTRIES
                of_git = {each.name for each in listed} >= _OF_GIT
                for entry in listed if self.is_whole else ():
                    if entry.is_dir(follow_symlinks=False):
                        is_walked = entry.path in self._folders or (of_git and entry.name in ("objects", "refs"))
                        folders += [] if is_walked else [entry.path]
                    elif self._runs_by_itself(entry, of_git=of_git) and (facts := _facts_of(entry.path)):
                        yield entry.path, facts

    def _list(self, folder: str, *, is_new: bool) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return [*entries]
        except PermissionError:
            if not (is_new and self._has_walked):
                raise
            # A command has made it so: programs that know a name in it still read it.
            Path(folder).chmod(stat.S_IRWXU)
            with os.scandir(folder) as entries:
                return [*entries]

    def _runs_by_itself(self, entry: os.DirEntry[str], *, of_git: bool) -> bool:
        if entry.name.endswith((".held", ".sample")):
            return False
        if entry.name.lower().endswith((".pth", "customize.py")):  # those of a virtual environment are its own
            return not any(os.path.lexists(each / "pyvenv.cfg") for each in Path(entry.path).parents)
        below = entry.path[len(os.path.dirname(self._root)) :].lstrip("/")
        parts = below.lower().split("/")
        if parts[-1] == ".git" or (of_git and parts[-1] in ("config", "hooks")):
            return True
        if entry.is_symlink() and not _AROUND_PLACES.isdisjoint(parts):
            return True
        return _has_startup_name(below) or _is_startup_folder(os.path.dirname(entry.path))


def _is_startup_folder(folder: str) -> bool:
    above, name = os.path.split(folder)
    return name.lower() in _FOLDERS or (name.lower() == "hooks" and os.path.lexists(f"{above}/objects"))


def _put_aside(path: str) -> HeldFile | None:
    """Rename a file to `NAME.held`, or to `NAME.2.held` where that is taken. None: it is not there any more."""
    folder, name = os.path.split(path)
    name = os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])
    names = (f"{folder}/{name}.held" if number == 1 else f"{folder}/{name}.{number}.held" for number in count(1))
    aside = next(each for each in names if not os.path.lexists(each))
    try:
        try:
            os.rename(path, aside)  # noqa: PTH104  names may hold what is no text
        except PermissionError:  # a command has taken its own folder's rights away
            Path(folder).chmod(stat.S_IMODE(os.lstat(folder).st_mode) | stat.S_IRWXU)
            os.rename(path, aside)  # noqa: PTH104
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return HeldFile(path, "", error.strerror or "nobody says why")
    return HeldFile(path, aside)


def _is_harmless(path: str) -> bool:
    """Tell whether a file is a config of git whose keys run nothing, or the file by which git finds a repository."""
    name = os.path.basename(path).lower()
    if name not in (".git", "config", "config.worktree", ".gitmodules"):
        return False
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):  # a fifo would never end
                return False
            if name == ".git":
                return True
            text = file.read(_LONGEST_CONFIG + 1).decode()
    except (OSError, ValueError):
        return False
    return len(text) <= _LONGEST_CONFIG and all(_matcher(_HARMLESS)(key) for key in _keys_of(text))


def _keys_of(text: str) -> Iterator[str]:
    """Give the keys of a config of git; something that is no key for a line that is not read for sure."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        header = _SECTION.match(line)
        if header is not None:
            section = header[1] if header[2] is None else f"{header[1]}.{header[2]}"
            line = line[header.end() :].strip()
        if line and not line.startswith(("#", ";")):
            key, equals, value = line.partition("=")
            yield f"{section}.{key.strip()}" if equals and not value.endswith("\\") else ""


def _changed_ns(folder: str) -> int | None:
    with suppress(OSError):
        return os.lstat(folder).st_ctime_ns
    return None


def _facts_of(path: str, folder: int | None = None) -> tuple[int, ...] | None:
    try:
        facts = os.lstat(path, dir_fd=folder)
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_ctime_ns
