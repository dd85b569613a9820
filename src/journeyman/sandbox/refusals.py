"""The refusals of a box, found in what a command has written: by evidence, never by a word or an exit code alone.

The evidence is the phrase of an error of the system, and beside it a path or a program that this very box refuses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from journeyman.machine.files import is_inside
from journeyman.sandbox.box import Box, SandboxRefusal, is_too_wide
from journeyman.sandbox.needs import need_of_host

_MOST: Final = 5
_LONGEST: Final = 100_000
_DENIED, _READ_ONLY, _BUSY = "permission denied", "read-only file system", "device or resource busy"
_PHRASES: Final = rf"({_DENIED}|{_READ_ONLY}|{_BUSY}|operation not permitted)"
_BEFORE: Final = re.compile(
    rf"^(.*?)(?:: {_PHRASES}(?: at \S+ line \d+)?\.?| \({_PHRASES}\))\r?$", re.MULTILINE | re.IGNORECASE
)
"""As programs of C tell it: `cp: cannot open 'x' for reading: Permission denied`, `awk: cannot open x (Permission
denied)`; and as Perl does: `x: Permission denied at script.pl line 1.`"""
_SPAWNED: Final = re.compile(r"\bspawn(?:Sync)? (\S+) EACCES\b")
"""As Node tells which program it could not run."""
_BEHIND: Final = re.compile(rf"{_PHRASES}(?:\]|, [a-z]+)?:? '([^'\n]+)'", re.IGNORECASE)
"""As Python and Node tell it: `Permission denied: 'x'`, `permission denied, open 'x'`."""
_NAMED: Final = re.compile("(?<!\\w)['`\"\u2018]([^'\"\u2019\n]+)['\"\u2019]|(?:^|[\\s:])([^\\s:'`\"\u2018\u2019]+)")


_UNRESOLVED: Final = re.compile(
    r"(?:curl: \(6\) Could not resolve host: |^fatal: unable to access '[^']+': Could not resolve host: "
    r"|^ssh: Could not resolve hostname |Failed to resolve '|getaddrinfo (?:EAI_AGAIN|ENOTFOUND) "
    r"|^wget: unable to resolve host address ['\u2018]|^Could not resolve '|could not translate host name \""
    r"|Bad hostname ')([\w.-]+\.[\w-]+)|^\w+: line \d+: ([\w.-]+\.[\w-]+): Temporary failure in name resolution$",
    re.MULTILINE,
)
"""As programs tell that they cannot look up a name: in a box, no program can."""
_UNREACHABLE: Final = re.compile(
    r"\bcurl: \(7\) Failed to connect to (?!127\.|0\.0\.0\.0)([0-9][\d.]+) port"
    r"|([0-9][\d.]+)(?:/\d+)?: Network is unreachable"
)
"""As they tell that they cannot reach an address: a box has no network but its own."""
_NAMELESS: Final = re.compile(
    r"\[Errno -3\] Temporary failure in name resolution|:BIO_lookup_ex:.*Temporary failure in name resolution$"
    r"|\[Errno 101\] Network is unreachable",
    re.MULTILINE,
)
_SOCKETS: Final = re.compile(
    r"(?:dial unix (\S+): |^\w[\w-]*: |could not create )socket: operation not permitted\r?$"
    r"|^error (?:connecting to|creating) (\S+) \(Operation not permitted\)$"
    r"|_socket\.socket\.__init__\(.*\)\n(?:[ ~^]+\n)?PermissionError: \[Errno 1\] Operation not permitted$"
    r"|\b(?:listen|connect) EPERM: operation not permitted (\S+)",
    re.MULTILINE | re.IGNORECASE,
)
"""As they tell that they get no unix socket."""
_PRIVILEGES: Final = re.compile(
    r"^(su|runuser|setpriv|unshare|newgrp): .*: Operation not permitted$|^(sudo): .*\bno new privileges\b", re.MULTILINE
)
_OUTSIDE: Final = "outside"


def find_refusals(box: Box, output: str, folder: str | None = None) -> tuple[SandboxRefusal, ...]:
    """Return what a box has refused to a command, by its output: five at most. It ran in `folder`, or the box's own."""
    found: dict[SandboxRefusal, None] = {}
    for phrase, name in _find_accused(output[-_LONGEST:]):
        refusal = _refusal_of(box, phrase, name, box.work if folder is None else folder)
        if refusal is not None:
            found[refusal] = None
    found.update(dict.fromkeys(_find_hosts(output[-_LONGEST:])))
    for names in _SOCKETS.findall(output[-_LONGEST:]):
        found[SandboxRefusal(cause="socket", what="".join(names) or "a unix socket", need=_OUTSIDE)] = None
    for names in _PRIVILEGES.findall(output[-_LONGEST:]):
        found[SandboxRefusal(cause="privilege", what="".join(names), need=_OUTSIDE)] = None
    return tuple(found)[:_MOST]


def _find_hosts(output: str) -> Iterator[SandboxRefusal]:
    names = ["".join(each) for each in _UNRESOLVED.findall(output)]
    needs = {name: need_of_host(name.lower()) for name in names}
    addresses = ["".join(each) for each in _UNREACHABLE.findall(output)]
    yield from (SandboxRefusal(cause="network", what=name, need=need) for name, need in needs.items() if need)
    yield from (SandboxRefusal(cause="network", what=each) for each in addresses)
    if not names and not addresses and _NAMELESS.search(output):
        yield SandboxRefusal(cause="network", what="a host", need="host:NAME")  # its name is not told


def _find_accused(output: str) -> Iterator[tuple[str, str]]:
    for line, *phrases in _BEFORE.findall(output):
        for quoted, bare in _NAMED.findall(line.partition(": ")[2] or line):  # what stands first is who tells it
            yield "".join(phrases).lower(), quoted or bare
    for name in _SPAWNED.findall(output):
        yield _DENIED, name
    for phrase, name in _BEHIND.findall(output):
        yield phrase.lower(), name


def _refusal_of(box: Box, phrase: str, name: str, folder: str) -> SandboxRefusal | None:
    path = os.path.realpath(Path(folder) / name) if "\0" not in name else "/"
    if (
        phrase == _BUSY and "/" in name and not Path(path).exists()
    ):  # a program writes a new file, and gives it the name of the old one
        beside = [each for each in box.protected if Path(each).parent == Path(path).parent and Path(each).is_file()]
        path = beside[0] if len(beside) == 1 else path
    is_there = "/" in name or Path(path).exists()
    hiding = next((each for each in box.hidden if is_inside(path, each)), None)
    protecting = next((each for each in box.protected if is_inside(path, each)), None)
    is_protected = protecting is not None or any(is_inside(each, path) for each in box.protected)
    if phrase == _DENIED and Path(name).name in box.denied:
        return SandboxRefusal(cause="program", what=Path(name).name)
    if hiding is not None and phrase in (_DENIED, _BUSY):  # what is hidden cannot be moved or removed, either
        cause = "read" if phrase == _DENIED else "protected"
        return SandboxRefusal(cause=cause, what=path, need=f"read:{hiding}")
    if phrase == _DENIED or not is_there:
        return None
    if box.may_change(path) and is_protected:
        need = _OUTSIDE if protecting is None else f"write:{protecting}"
        return SandboxRefusal(cause="protected", what=path, need=need)
    if path in box.writes and Path(path).is_file():  # whoever puts another file in its place needs its folder
        return SandboxRefusal(cause="write", what=path, need=_need_to_write(str(Path(path).parent)))
    is_outside = phrase == _READ_ONLY and not box.may_change(path)
    return SandboxRefusal(cause="write", what=path, need=_need_to_write(path)) if is_outside else None


def _need_to_write(path: str) -> str:
    """Return the need with which a path may be changed: what is not there can be made where its folder may be."""
    place = next(each for each in (path, *map(str, Path(path).parents)) if os.path.lexists(each))
    return _OUTSIDE if is_too_wide(place) else f"write:{place}"
