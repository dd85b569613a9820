"""The `Bench` that the tools of one workspace share: their folder, the shell, and a stamp of each file that was read.

The model changes nothing that it does not know. What it has seen is kept as a stamp: a digest of the content, with the
lines that were shown. A stamp is fresh as long as the content is the same, whatever clocks say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from threading import Lock

from journeyman.definition.data import lazy_dataclass
from journeyman.gate import Use, make_path_hider
from journeyman.processes.unboxed import Unboxed
from journeyman.toolbox.boxed import WorkspaceBox
from journeyman.toolbox.files import FileInfo, Located, Reach, Spill, ToolRefused, nothing_hidden


@lazy_dataclass(frozen=True, kw_only=True)
class Bench:
    """The state that the tools of one workspace share: folder, shell, stamps of files, and long outputs put aside."""

    reach: Reach
    stamps: Stamps
    spill: Spill
    shell: Shell
    ripgrep: str | None
    """The path of ripgrep. None: searches work without it."""
    untrusted: bool
    """Whether what is in the files may hold instructions that are not the user's."""
    box: WorkspaceBox | None = None
    """The box of commands; None: they run as this process does."""
    unboxed: Unboxed = field(default_factory=Unboxed)
    """The keeper of commands that are not in the box."""

    def existing(self, path: str, use: Use = "read") -> tuple[Located, FileInfo, Callable[[str], bool]]:
        """Return where a path leads, what is there, and what tells whether other paths are hidden from the call.

        Gates judge the path as it was before the call, and a link may have been changed since. So where it leads now is
        judged again; behind it no link is followed any more.

        Raises:
            Refusal: nothing is there, or it may not be touched.
        """
        self.locate(path, use)
        is_hidden = make_path_hider(use, self.reach.root) or nothing_hidden
        located, facts = self.reach.existing(path, is_hidden)
        _refuse_hidden(located, is_hidden)
        return located, facts, is_hidden

    def locate(self, path: str, use: Use) -> Located:
        """Return where a path leads, also where nothing is there yet.

        Raises:
            Refusal: it may not be touched.
        """
        located = self.reach.locate(path, writing=use == "write")
        _refuse_hidden(located, make_path_hider(use, self.reach.root) or nothing_hidden)
        return located

    def replace(self, located: Located, data: bytes) -> None:
        """Give a file this content, which the model then knows."""
        located.files.replace(located.path, data)
        self.stamps.wrote(located.path, data)


def _refuse_hidden(located: Located, is_hidden: Callable[[str], bool]) -> None:
    if is_hidden(located.path):
        raise ToolRefused("denied", f"{located.shown} may not be touched: a rule forbids where this path leads.")


@lazy_dataclass(frozen=True, kw_only=True)
class Shell:
    """The settings for running commands: program, times, and environment."""

    program: str = "bash"
    """The shell, which is given `-c` and the command."""
    timeout_s: float = 120.0
    """How many seconds a command may take if the model does not say."""
    max_timeout_s: float = 600.0
    """The most seconds that the model may ask for."""
    background_s: float = 600.0
    """How many seconds a command in the background may take."""
    grace_s: float = 2.0
    """How many seconds processes have between the request to end (TERM) and the forced end (KILL)."""
    keep: Collection[str] = ()
    """Names of environment variables that commands get although they look like secrets, or, inside of a box, although
    they are not on its list."""
    environment: Mapping[str, str] | None = None
    """The whole environment of commands. None: this process's environment without its secrets; inside of a box, those
    variables of it that are known to be harmless."""


class Stamps:
    """The stamps of one workspace."""

    def __init__(self) -> None:
        self._stamps: dict[str, _Stamp] = {}
        self.writing = Lock()
        """This is held from the check of a stamp to the change of the file."""

    def saw(self, path: str, data: bytes, *, first: int, last: int, n_lines: int) -> None:
        """Record that lines of this content were shown."""
        digest = _digest(data)
        with self.writing:
            stamp = self._stamps.get(path)
            if stamp is None or stamp.digest != digest:
                stamp = self._stamps[path] = _Stamp(digest, n_lines)
            stamp.seen = _join_stretches([*stamp.seen, (first, last)])

    def wrote(self, path: str, data: bytes) -> None:
        """Record content that the model wrote, so that it knows all of it."""
        self._stamps[path] = _Stamp(_digest(data), 0)

    def check(self, path: str, shown: str, data: bytes) -> None:
        """Let the content be changed only if all of it was shown, as it is now.

        Raises:
            Refusal: it was not.
        """
        stamp = self._stamps.get(path)
        if stamp is None:
            raise ToolRefused("not_read", f"{shown} has not been read. Read it before you change it.")
        if stamp.digest != _digest(data):
            raise ToolRefused("changed_since", f"{shown} has changed since you read it. Read it again, then change it.")
        unseen = stamp.unseen()
        if unseen is not None:
            first, last = unseen
            raise ToolRefused(
                "partly_read",
                f"You have read only a part of {shown}. Read lines {first} to {last} too, with offset={first}, before "
                "you change it.",
            )


@lazy_dataclass()
class _Stamp:
    digest: bytes
    n_lines: int
    seen: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """The first and last line of each part that was shown, in order. No two parts touch."""

    def unseen(self) -> tuple[int, int] | None:
        """Return the first stretch of lines that was not shown."""
        following = 1
        for first, last in self.seen:
            if first > following:
                return following, first - 1
            following = last + 1
        return (following, self.n_lines) if following <= self.n_lines else None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _join_stretches(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(stretches):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
