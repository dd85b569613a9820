"""The values of a sandbox: a `Box` says what a command may touch, `SandboxGuarantees` what a system holds of that.

A box is a value. It names absolute paths with links followed, so that nobody has to ask what a path means.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from journeyman.definition.data import lazy_dataclass
from journeyman.errors import DefinitionError, Problem
from journeyman.hosts.names import host_problem
from journeyman.machine.files import is_inside
from journeyman.sandbox.needs import NEED_HINT, path_of_need, read_need, resolve_need
from journeyman.types import RefusalCause

Guarantee: TypeAlias = Literal["files", "protected", "secrets", "network", "processes", "programs"]
"""`files`: nothing outside of the box is changed; `protected`: nor what is protected inside; `secrets`: what is hidden
is not read; `network`: no host and no socket of the machine is reached; `processes`: no process outside is seen or
ended, and none lives on; `programs`: no denied program runs."""
_SECRETS: Final = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", ".pgpass", ".my.cnf", ".pypirc", ".npmrc", ".yarnrc.yml"),
    *(".git-credentials", ".docker/config.json", ".config/gh", ".config/gcloud", ".config/git/credentials"),
    *(".vault-token", ".password-store", ".local/share/keyrings", ".cargo/credentials.toml", ".gem/credentials"),
    *(".terraform.d", ".mozilla", ".config/google-chrome", ".config/chromium"),
    *(".bash_history", ".zsh_history", ".python_history"),
)


@lazy_dataclass(frozen=True, kw_only=True)
class BoxLimits:
    """The most that processes of a box may use of the machine."""

    file_bytes: int | None = None
    """The size of the largest file that may be written."""
    temporary_bytes: int = 1 << 30
    """The size of the box's own temporary folder, where it is a file system of its own."""


@lazy_dataclass(frozen=True, kw_only=True)
class Box:
    """The borders of a sandbox: what a command in it may change, read, run and reach.

    Raises:
        DefinitionError: a path is not absolute, a folder is too wide, or a host or program is none.
    """

    work: str
    """The folder that commands work in."""
    changes: bool = True
    """False: the folder is read-only."""
    writes: tuple[str, ...] = ()
    """Further files and folders that may be changed."""
    reads: Literal["all", "system"] = "all"
    """`all`: everything but what is hidden. `system`: programs and their libraries, the folder, and what is named."""
    readable: tuple[str, ...] = ()
    """Further files and folders that may be read, with `reads="system"` or below a temporary folder."""
    hidden: tuple[str, ...] = ()
    """Files and folders that cannot be read."""
    protected: tuple[str, ...] = ()
    """Files and folders that cannot be changed, although they lie in a folder that may be."""
    hosts: tuple[str, ...] = ()
    """Hosts that may be reached, each perhaps with a port or, for all below a name, as `*.name`."""
    sockets: tuple[str, ...] = ()
    """Unix sockets that may be reached."""
    denied: tuple[str, ...] = ()
    """Names of programs that cannot be run."""
    path: str | None = None
    """The `PATH` of its commands, by which programs are found; this process's if None."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that each command gets, before its own."""
    limits: BoxLimits = field(default_factory=BoxLimits)
    """The most that its processes may use."""
    sandbox: str = field(default="", compare=False)
    """The name of the sandbox that holds it, for whoever is told of it; empty: not known."""

    def __post_init__(self) -> None:
        problems = [*_path_problems(self), *_word_problems(self)]
        if problems:
            raise DefinitionError("Box", problems)

    def wider(self, needs: Iterable[str]) -> Box:
        """Return a box with what is needed besides: `host:NAME[:PORT]`, `write:PATH`, `read:PATH`, `socket:PATH`.
        A relative path is one below the folder.

        Raises:
            DefinitionError: something is no need, is hidden or protected, or leads by a link that a command may change.
        """
        added: dict[str, list[str]] = {"host": [], "write": [], "read": [], "socket": []}
        for need in needs:
            found = read_need(resolve_need(need, self.work))
            if found is None or found[0] == "outside":
                raise DefinitionError("needs", [Problem("UNKNOWN_NEED", f"{need!r} is no need.", NEED_HINT)])
            kind, value = found
            if kind != "host" and self._passes_own_link(Path(self.work, path_of_need(need))):
                told = f"{need!r} leads to {value} by a link that a command may change."
                raise DefinitionError("needs", [Problem("LINKED_NEED", told, "Name where it leads to.")])
            added[kind].append(value)
        wider = replace(self, changes=self.changes or self.work in added["write"])
        return replace(
            wider,
            # What lies in a folder that may be changed is given by protecting it no longer: a mount of its own could
            # not be replaced, as git does with its config.
            writes=_join(self.writes, [path for path in added["write"] if not wider.may_change(path)]),
            protected=tuple([path for path in self.protected if path not in added["write"]]),
            readable=_join(self.readable, added["read"]),
            hidden=tuple([path for path in self.hidden if path not in added["read"]]),
            hosts=_join(self.hosts, added["host"]),
            sockets=_join(self.sockets, added["socket"]),
        )

    def _passes_own_link(self, path: Path) -> bool:
        """Tell whether a link on the way is one that a command may change, between the answer and the start."""
        place = "/"
        for part in path.parts[1:]:
            here = os.path.normpath(Path(place, part))
            if Path(here).is_symlink() and self.may_change(place):
                return True
            place = os.path.realpath(here)
        return False

    @property
    def roots(self) -> tuple[str, ...]:
        """The files and folders that may be changed, with all that is in them."""
        return (self.work, *self.writes) if self.changes else self.writes

    def may_change(self, path: str) -> bool:
        """Tell whether a path, absolute and with links followed, lies in a folder that may be changed."""
        return any(is_inside(path, root) for root in self.roots)


def secrets_of_home() -> tuple[str, ...]:
    """Return the files and folders of the home folder in which programs keep keys and passwords, if they are there."""
    paths = [os.path.realpath(Path("~", each).expanduser()) for each in _SECRETS]
    return tuple([path for path in paths if Path(path).exists()])


def _join(given: tuple[str, ...], added: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*given, *added]))


def folders_between(root: str, path: str) -> list[str]:
    """Return the folders around a path that lie below a root."""
    return [str(each) for each in Path(path).parents if str(each) != root and is_inside(str(each), root)]


MountKind: TypeAlias = Literal["change", "read", "mask"]
"""A file or folder may be changed, may only be read, or has something in its place that nobody can read."""


def plan_mounts(box: Box, denied: Iterable[str] = ()) -> list[tuple[str, MountKind]]:
    """Return the files and folders that a box shows besides the system, and the files of programs that it denies. Of
    two that lie in each other the later one counts."""
    protected = sorted(filter(box.may_change, map(_follow_link, box.protected)))
    # A folder that is renamed takes what is mounted in it to another name, so each of those between has to stay.
    around = sorted({each for path in protected for root in box.roots for each in folders_between(root, path)})
    parts: list[tuple[MountKind, Iterable[str]]] = [
        ("read", (*box.readable, *({box.work}.difference(box.roots)))),
        ("change", (*box.roots, *around)),
        ("read", protected),
        ("mask", (*map(_follow_link, box.hidden), *denied)),
    ]
    return [(path, kind) for kind, paths in parts for path in paths]


def _follow_link(path: str) -> str:
    """Return where a path leads that is a link itself. A folder that has become one since is not followed."""
    return os.path.realpath(path) if Path(path).is_symlink() else path


def _path_problems(box: Box) -> Iterator[Problem]:
    named = {
        "writes": box.writes,
        "readable": box.readable,
        "hidden": box.hidden,
        "protected": box.protected,
        "sockets": box.sockets,
    }
    for where, paths in {"work": (box.work,), **named}.items():
        for path in paths:
            if not path.startswith("/") or os.path.normpath(path) != path or "\0" in path:
                hint = "Give it from the root of the file system, without '..' and without a '/' at its end."
                yield Problem("RELATIVE_PATH", f"{where} holds {path!r}, which is no absolute path.", hint)
    for path in (box.work, *box.writes):
        if is_too_wide(path):
            hint = "Give the folder of one project."
            yield Problem("FOLDER_TOO_WIDE", f"A command may not change {path}: it holds too much else.", hint)
        inside = next((folder for folder in box.hidden if is_inside(path, folder)), None)
        if inside is not None:
            hint = "Take one of the two out."
            yield Problem("HIDDEN_AND_WRITTEN", f"{path} may be changed, but lies in {inside}, which is hidden.", hint)


def is_too_wide(path: str) -> bool:
    """Tell whether a folder is home or around it, so that nobody may change all that is in it."""
    return Path("~").expanduser().resolve().is_relative_to(path)


def _word_problems(box: Box) -> Iterator[Problem]:
    if box.reads not in ("all", "system"):
        yield Problem("UNKNOWN_READS", f"reads is {box.reads!r}.", "Write 'all' or 'system'.")
    yield from filter(None, map(host_problem, box.hosts))
    for program in box.denied:
        if not program or "/" in program or "\0" in program:
            hint = "Write its name without a folder."
            yield Problem("INVALID_PROGRAM", f"denied holds {program!r}, which is no name of a program.", hint)


@lazy_dataclass(frozen=True, kw_only=True)
class SandboxGuarantees:
    """The guarantees that a sandbox holds here, found out by trying, and why it does not hold the others."""

    held: frozenset[Guarantee] = frozenset()
    """Those that hold."""
    reasons: Mapping[Guarantee, str] = field(default_factory=dict["Guarantee", str])
    """Why each of the others does not."""
    has_proxy: bool = False
    """True: a box reaches those hosts that it allows. False: a box with hosts is refused."""

    @property
    def is_enough(self) -> bool:
        """True when a command in the box cannot harm: it changes nothing else, nothing that others run by themselves,
        reads no secret and reaches nobody."""
        return self.held >= {"files", "protected", "secrets", "network"}

    def __str__(self) -> str:
        held = ", ".join(each for each in GUARANTEES if each in self.held) or "nothing"
        missing: dict[str, list[str]] = {}
        for each in GUARANTEES:
            if each not in self.held:
                missing.setdefault(self.reasons.get(each, "not tried"), []).append(each)
        return "; ".join([f"holds {held}", *(f"not {', '.join(names)}: {why}" for why, names in missing.items())])


GUARANTEES: Final[tuple[Guarantee, ...]] = get_args(Guarantee)
"""All guarantees, in the order in which they are told."""


@lazy_dataclass(frozen=True, kw_only=True)
class SandboxRefusal:
    """A thing that a box has refused, with evidence."""

    cause: RefusalCause
    """The kind of what was refused."""
    what: str
    """The path, the program or the host."""
    need: str | None = None
    """The need that would have to be asked for. None: it cannot be had."""
    detail: str = ""
    """The path of a file that was put aside, or the reason why it could not be."""
