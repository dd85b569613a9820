"""The box that rules become: what they say of paths, programs and hosts, the kernel holds.

An allow rule widens a box by hosts alone. What a rule says of the words of a program (`Bash(git push *)`) no kernel can
hold: it is told of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from journeyman.permission.capability import Action, Capability
from journeyman.permission.permission import Permission
from journeyman.permission.rules import Roots, Rule, Rules, is_inside
from journeyman.sandbox.box import Box, secrets_of_home
from journeyman.sandbox.sandbox import SandboxUnavailable

_PROGRAM: Final = re.compile(r"[\w@%+.-]+")
_MOST_PATHS: Final = 200_000
_HOST: Final = re.compile(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)+|localhost")


def make_box(permission: Permission) -> Box:
    """Return the box that the rules of a permission become, for the files that are there now: what a sandbox lets
    commands do. In the mode `plan` nothing may be changed in it.

    Raises:
        SandboxUnavailable: there are rules about paths, and more files than can be looked at.
    """
    rules, roots = permission._rules, permission._roots  # pyright: ignore[reportPrivateUsage] - of one room
    protected = permission._protected.paths  # pyright: ignore[reportPrivateUsage] - of one room
    paths = paths_in([folder for folder, _ in roots.folders]) if rules.speak_of_paths else ()
    changes = permission.mode != "plan"
    return box_of(rules, roots, paths=paths, protected=protected, hidden=secrets_of_home(), changes=changes)


def box_of(
    rules: Rules,
    roots: Roots,
    *,
    paths: Iterable[str] = (),
    protected: Sequence[str] = (),
    hidden: Sequence[str] = (),
    changes: bool = True,
) -> Box:
    """Return the box that holds what rules say.

    Args:
        rules: The rules.
        roots: The folders that the agent may work in, of which the first is the folder of the box.
        paths: The paths that the rules are asked about: what is in the roots, a folder before what is in it.
        protected: What is protected besides.
        hidden: What is hidden besides.
        changes: False: nothing may be changed.
    """
    (work, is_read_only), *others = roots.folders
    listed = [*paths]
    read_only = [folder for folder, is_fixed in others if is_fixed]
    unreachable = {*_hosts_of(rules.deny_rules)}
    return Box(
        work=work,
        changes=changes and not is_read_only,
        writes=tuple([folder for folder, is_fixed in others if changes and not is_fixed]),
        readable=tuple(read_only),
        protected=_join(protected, [*read_only, *_outermost(listed, rules, "write")]),
        hidden=_join(hidden, _outermost(listed, rules, "read")),
        denied=tuple(dict.fromkeys(filter(None, map(_program_of, rules.deny_rules)))),
        hosts=tuple(dict.fromkeys(host for host in _hosts_of(rules.allow_rules) if host not in unreachable)),
    )


def paths_in(folders: Iterable[str]) -> Iterator[str]:
    """Give what is in folders, a folder before what is in it, without following links.

    Raises:
        SandboxUnavailable: there is more than can be looked at.
    """
    n_paths = 0
    waiting = [*folders]
    named = ", ".join(waiting)
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                n_paths += 1
                yield entry.path
                waiting += [entry.path] if entry.is_dir(follow_symlinks=False) else []
        if n_paths > _MOST_PATHS:
            many = f"{named} holds more than {_MOST_PATHS:,} files, so rules of paths cannot be held there"
            raise SandboxUnavailable(f"{many}. Give a smaller folder, or name what to hide and protect in a Box.")


def rules_beyond_box(permission: Permission) -> Iterator[str]:
    """Give for each deny rule that no kernel can hold a sentence that says what holds instead."""
    for rule in permission._rules.deny_rules:  # pyright: ignore[reportPrivateUsage] - of one room
        if rule.kind == "Bash" and _program_of(rule) is None:
            yield (
                f"The rule {rule.text} is about the words of a command, which a box cannot hold. There it is held by"
                " what the command would need: no host and no key is there. Deny the program, the path or the host."
            )


def _outermost(paths: Iterable[str], rules: Rules, use: Capability) -> Iterator[str]:
    """Give the paths that must not be read, or changed, without those below one that is given."""
    found: list[str] = []
    for path in paths:
        touched = Action(tool="", capability=use, paths=(path,))
        is_asked = use == "read" and rules.asking(touched, ()) is not None
        if not any(is_inside(path, each) for each in found) and (is_asked or rules.denying(touched, ()) is not None):
            found.append(path)
            yield path


def _program_of(rule: Rule) -> str | None:
    """Return the program that a rule forbids with whatever words; None if it forbids something else."""
    name, _, words = rule.pattern.partition(" ")
    program = name.rpartition("/")[2]
    is_program = rule.kind == "Bash" and words.strip() == "*" and _PROGRAM.fullmatch(program) is not None
    return program if is_program else None


def _hosts_of(rules: Iterable[Rule]) -> Iterator[str]:
    for rule in rules:
        if rule.kind == "WebFetch" and _HOST.fullmatch(rule.pattern.lower()):
            yield rule.pattern.lower()


def _join(given: Sequence[str], added: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*given, *added]))
