"""Boxes of bubblewrap: namespaces of Linux, in which a command sees a file system of its own.

What may not be changed is mounted read-only, what is hidden has something unreadable in its place, and every folder
between a protected file and the folder that may be changed is a mount of its own, since a folder that is renamed takes
the mounts in it along.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from journeyman.definition.problems import explain_arguments
from journeyman.machine.files import is_inside
from journeyman.processes.kept import call_at_end, compile_part, memory_of
from journeyman.processes.process import SandboxUnavailable
from journeyman.sandbox.adapter import KeptSandbox, SandboxAdapter
from journeyman.sandbox.box import Box, MountKind, folders_between, plan_mounts
from journeyman.sandbox.filter import build_filter, build_supervision
from journeyman.sandbox.programs import files_of_programs, folders_of_programs, needed_for_programs
from journeyman.sandbox.sandbox import OpenSandbox, Sandbox

_PLACES: Final = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/run/current-system/sw/bin/bwrap")
_NEEDED: Final = (
    *("--unshare-all", "--as-pid-1", "--cap-drop", "--new-session", "--seccomp", "--args", "--ro-bind"),
    *("--ro-bind-data", "--remount-ro"),
)
_ALWAYS: Final = ("--unshare-all", "--unshare-user", "--as-pid-1", "--cap-drop", "ALL", "--new-session")
_SYSTEM: Final = (
    *("/usr", "/etc", "/opt", "/nix/store", "/gnu/store", "/snap", "/sys", "/var/lib/dpkg", "/var/lib/rpm"),
    *("/var/cache/fontconfig", "/var/cache/man"),
)
_ROOT_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_NEW: Final = ("/tmp", "/var/tmp", "/run")
_WRITES, _MAKES_SOCKETS, _MOVES = 1 << 1, 1 << 9, 1 << 13  # as linux/landlock.h has them
_SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
_ADDS: Final = {
    "UV_LINK_MODE": "copy",
    # No key is in a box, so nothing can be signed there.
    **{"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "commit.gpgSign", "GIT_CONFIG_KEY_1": "tag.gpgSign"},
    **{"GIT_CONFIG_VALUE_0": "false", "GIT_CONFIG_VALUE_1": "false"},
}
_CACHES: Final = {
    **{"XDG_CACHE_HOME": "", "PIP_CACHE_DIR": "/pip", "UV_CACHE_DIR": "/uv", "npm_config_cache": "/npm"},
    **{"GOCACHE": "/go", "GOMODCACHE": "/gomod"},
}
"""Programs keep in the box's temporary folder what they keep below home elsewhere, where they may not write."""
_ELSEWHERE: Final = ("TMPDIR", "TMUX_TMPDIR")
"""The variables by which programs find another temporary folder, if no socket can be made in the first one."""
_MOST_MOUNTS: Final = 4_000
_HELP: Final = (
    "Install it (Debian and Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap). If it is there, this "
    "system does not let it make namespaces. Ubuntu from 24.04 on: apt-get install apparmor-profiles, copy "
    "bwrap-userns-restrict of /usr/share/apparmor/extra-profiles to /etc/apparmor.d, and run apparmor_parser -r on it. "
    "Docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined. Kubernetes: hostUsers: false"
)


@explain_arguments
class Bubblewrap(SandboxAdapter):
    """Sandboxes of the program bubblewrap (`bwrap`), which needs no privileges."""

    def __init__(self, program: str | None = None) -> None:
        """Use the `bwrap` of the system, or the one at an absolute path, whose owner is root or the caller."""
        super().__init__("bubblewrap", help=_HELP, lets_through=("hosts",))
        self._given: Final = program
        self._offers: str | None = None

    def open_box(self, box: Box) -> OpenSandbox:
        """Open a box: see `Sandbox.open`."""
        program = self._program(box)
        filter, supervision = build_filter(), build_supervision()
        if filter is None or supervision is None:
            raise SandboxUnavailable("There is no filter of system calls for this machine, so no box can be closed.")
        denied = files_of_programs(box.denied, folders_of_programs(box.path))[0] if box.denied else []
        mounts = _find_mounts(box, [each for each in denied if each != program])
        new = [os.path.realpath(each) for each in _NEW if box.reads == "system" or Path(each).is_dir()]
        shown: list[int] = []
        with ExitStack() as stack:

            def show(content: bytes) -> str:
                shown.append(stack.enter_context(memory_of(content)).fileno())
                return str(shown[-1])

            options = [*_ALWAYS, *self._options_of_system(box, new)]
            for path, kind, _ in mounts:
                source = unreadable_like(path) if kind == "mask" else path
                options += ["--bind" if kind == "change" else "--ro-bind", source, path]
            for path, content in _lists_of_git(box).items():
                options += ["--ro-bind-data", show(content), path]
            if box.reads == "system":  # what is written between the mounts would be lost, and nobody told
                options += ["--remount-ro", "/"]
            told = show("\0".join([*options, "--chdir", "/", ""]).encode("utf-8", "surrogateescape"))
            start = [program, "--args", told, "--seccomp", show(filter), "--"]
            # A command that is given a terminal may open it by the name of its descriptor.
            terminals = [os.dup(number) for number in range(3) if os.isatty(number)]
            for number in terminals:
                stack.callback(os.close, number)
            writable = [*box.roots, *new, "/dev", "/proc"]
            expected = {os.fsencode(path): None if kind == "mask" else identity for path, kind, identity in mounts}
            # A named pipe that is mounted read-only takes what is written to it nevertheless, and a program outside
            # reads that. So Landlock refuses it, where the system has it; and it lets nobody move a file to another
            # folder unless it is told so. Unix sockets are made where no program outside finds them: a rule holds for
            # all that is mounted below.
            rules = {each: _WRITES | (0 if os.path.isfile(each) else _MOVES) for each in writable}
            apart = [
                own
                for own in (*new, "/dev")
                if not any(is_inside(each, own) or is_inside(own, each) for each in box.roots)
            ]
            rules |= {own: rules[own] | _MAKES_SOCKETS for own in apart}
            allowed = [("/", _MOVES), *rules.items(), *((number, _WRITES) for number in terminals)]
            masks = [path for path, kind, _ in mounts if kind == "mask"]
            settings = {
                "mounts": {"expected": expected, "writable": [*map(os.fsencode, writable)]},
                "borders": {"handled": [_MOVES | _WRITES | _MAKES_SOCKETS], "rules": allowed, "filter": None},
                "sockets": {**supervision, "code": compile_part(_SUPERVISOR), **_own_systems(apart, masks)},
            }
            inherited = [*shown, *terminals]
            temporary = next((each for each in apart if each != "/dev"), _NEW[0])
            adds = {**_ADDS, **{name: f"{temporary}/.cache{below}" for name, below in _CACHES.items()}}
            adds |= dict.fromkeys(_ELSEWHERE, temporary) if [temporary] != new[:1] else {}
            return KeptSandbox(box, lambda line, _: ([*start, *line], inherited), lambda _: settings, adds=adds)

    def _program(self, box: Box) -> str:
        """Return the path of bwrap.

        Raises:
            SandboxUnavailable: there is none that can be trusted, or it is too old.
        """
        places = _PLACES if self._given is None else (self._given,)
        there = (each for each in places if each.startswith("/") and os.path.isfile(each) and os.access(each, os.X_OK))
        program = next(there, None)
        if program is None:
            raise SandboxUnavailable(f"bubblewrap is not installed ({' or '.join(places)}). {_HELP}.")
        real = os.path.realpath(program)
        facts = Path(real).stat()
        if facts.st_uid not in (0, os.geteuid()) or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise SandboxUnavailable(f"{real} may be changed by others, so it is not trusted. Install bubblewrap.")
        if any(is_inside(real, root) for root in (box.work, *box.writes)):
            raise SandboxUnavailable(f"{real} lies where commands may write, so it is not trusted. Install bubblewrap.")
        if self._offers is None:
            asked = [real, "--help"]
            self._offers = subprocess.run(asked, capture_output=True, text=True, check=False, env={}).stdout
        missing = [option for option in _NEEDED if option not in self._offers]
        if missing:
            raise SandboxUnavailable(f"{real} is too old: it has no {', '.join(missing)}. Install a newer bubblewrap.")
        return real

    def _options_of_system(self, box: Box, new: Sequence[str]) -> Iterator[str]:
        """Give the options for what is the same in all boxes, with the folders that are new in this one."""
        offers = self._offers or ""
        if "--disable-userns" in offers:
            yield "--disable-userns"
        if box.reads == "all":
            yield from ("--ro-bind", "/", "/")
        else:
            yield from (each for path in _SYSTEM for each in ("--ro-bind-try", path, path))
            for path in filter(os.path.lexists, _ROOT_LINKS):
                is_link = Path(path).is_symlink()
                yield from ("--symlink", str(Path(path).readlink()), path) if is_link else ("--ro-bind", path, path)
        # As root, a command could change settings of the kernel in `/proc`, which are those of the host.
        yield from ("--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc")
        size = ("--size", str(box.limits.temporary_bytes)) if "--size" in offers else ()
        for folder in new:
            yield from (*size, "--tmpfs", folder)
        for path in needed_for_programs(box.path, new if box.reads == "all" else ("/",)):
            if not is_inside(path, "/usr"):
                yield from ("--ro-bind-try", path, path)


def _find_mounts(box: Box, denied: Sequence[str]) -> list[tuple[str, MountKind, tuple[int, int]]]:
    """Return what is there of the plan of a box, each with the number of its file.

    Raises:
        SandboxUnavailable: that is too much, a folder of the box is missing, or somebody swaps one now.
    """
    found: list[tuple[str, MountKind, tuple[int, int]]] = []
    plan = plan_mounts(box, denied)
    masks = {path for path, kind in plan if kind == "mask"}
    for path, kind in plan:
        if not masks.isdisjoint(map(str, Path(path).parents)):  # below what nobody can read nothing can be mounted
            continue
        # Where commands may have made links no link is followed.
        is_ours = any(is_inside(path, root) for root in (box.work, *box.writes))
        real = path if is_ours else os.path.realpath(path)
        is_there = is_ours or os.access(real, os.F_OK)  # not those in a folder of another user
        identity = _identify(real) if is_there else None
        if identity is not None:
            found.append((real, kind, identity))
        elif path in (box.work, *box.writes):
            raise SandboxUnavailable(f"{path} is not there, or has become a link. Make it, or take it out of the box.")
    if len(found) > _MOST_MOUNTS:
        many = f"{len(found):,} files and folders would have to be mounted"
        raise SandboxUnavailable(f"{many}; {_MOST_MOUNTS:,} can be. Use patterns that match fewer.")
    return found


def _lists_of_git(box: Box) -> dict[str, bytes]:
    """Return the files in which repositories of a box list what git leaves out, with its hidden files in them: to add
    all files of a folder fails at one that cannot be read."""
    found: dict[str, bytes] = {}
    for path in box.hidden:
        if not is_inside(path, box.work) or path == box.work or "\n" in path:
            continue
        for folder in (box.work, *folders_between(box.work, path)):
            listed = Path(folder, ".git", "info", "exclude")
            if listed.is_file() and not listed.is_symlink():
                known = found.get(str(listed)) or listed.read_bytes() + b"\n"
                name = re.sub(rb"([\\*?\[ ])", rb"\\\1", os.fsencode(path.removeprefix(folder)))
                found[str(listed)] = known + name + b"\n"
    return found


def _own_systems(folders: Sequence[str], masks: Iterable[str]) -> dict[str, object]:
    """Return the folders at which a box has file systems of its own for sockets, and the devices of all else that may
    be mounted there: what is there outside, and what is mounted over what is hidden."""
    others = {each for each in folders if os.access(each, os.F_OK)} | {unreadable_like(each) for each in masks}
    outside = [Path(each).stat().st_dev for each in others]
    return {"folders": [*map(os.fsencode, folders)], "outside": outside}


def _identify(path: str) -> tuple[int, int] | None:
    """Return the number of the file at a path that no link is a part of. None: nothing is there, or a link itself.

    Raises:
        SandboxUnavailable: a folder has become a link.
    """
    opened = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        for name in path.strip("/").split("/"):
            inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
            os.close(opened)
            opened = inner
        facts = os.fstat(opened)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SandboxUnavailable(f"{path} was swapped for something else while the box was opened: {error}.") from error
    finally:
        os.close(opened)
    return None if stat.S_ISLNK(facts.st_mode) else (facts.st_dev, facts.st_ino)


@cache
def unreadable() -> tuple[str, str]:
    """Return a file and a folder that nobody can read, to be mounted over what is hidden, for all boxes."""
    top = Path(tempfile.mkdtemp(prefix="journeyman-hidden-"))
    (top / "file").touch(0)
    (top / "folder").mkdir(0)

    def remove() -> None:
        with suppress(OSError):  # somebody has cleared the temporary folder
            (top / "file").unlink()
            (top / "folder").rmdir()
            top.rmdir()

    call_at_end(unreadable, remove)
    return str(top / "file"), str(top / "folder")


def unreadable_like(path: str) -> str:
    """Return what nobody can read, to be mounted over a path: a folder, if that is one."""
    if not os.access(unreadable()[0], os.F_OK):
        unreadable.cache_clear()
    return unreadable()[Path(path).is_dir()]


if TYPE_CHECKING:
    _sandbox: type[Sandbox] = Bubblewrap
