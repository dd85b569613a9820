"""The box that rules become: what they say of paths, programs and hosts, the kernel holds.

An allow rule widens a box by hosts alone. What a rule says of the words of a program (`Bash(git push *)`) no kernel can
hold: it is told of.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from journeyman.hosts.names import host_problem
from journeyman.permission.rules import Roots, Rule, Rules, fold_path, is_inside, path_regex, program_of
from journeyman.sandbox.box import Box
from journeyman.sandbox.sandbox import SandboxUnavailable

_MOST_PATHS: Final = 200_000


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
        # A pattern that may fit anywhere is held by what a command does not see.
        reads="system" if any(map(_is_wide, _named_folders(rules, roots))) else "all",
        changes=changes and not is_read_only,
        writes=tuple([folder for folder, is_fixed in others if changes and not is_fixed]),
        readable=tuple(read_only),
        protected=_join(protected, [*read_only, *_outermost(listed, rules.patterns_of_paths("write"))]),
        hidden=_join(hidden, _outermost(listed, rules.patterns_of_paths("read"))),
        denied=tuple(dict.fromkeys(filter(None, map(program_of, rules.deny_rules)))),
        hosts=tuple(dict.fromkeys(host for host in _hosts_of(rules.allow_rules) if host not in unreachable)),
    )


def paths_in(folders: Iterable[str]) -> Iterator[str]:
    """Give what is in folders, a folder before what is in it, without following links.

    Raises:
        SandboxUnavailable: there is more than can be looked at.
    """
    n_paths = 0
    waiting = [*folders]
    yield from waiting  # a rule may mean one of these
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


def covers(box: Box, wanted: Box, roots: Roots) -> bool:
    """Tell whether a box holds all that another one does, which rules have become, and changes nothing outside of the
    roots. What is protected must be there: over a name that is not, nothing can be mounted."""
    at_risk = [path for path in wanted.protected if box.may_change(path)]
    return (
        all(roots.place(path) in ("inside", "internal") for path in box.roots)
        and all(any(is_inside(path, each) for each in box.hidden) for path in wanted.hidden)
        and all(any(is_inside(path, each) for each in box.protected) and os.path.lexists(path) for path in at_risk)
        and {*wanted.denied} <= {*box.denied}
        and (box.reads == wanted.reads or box.reads == "system")
    )


def _outermost(paths: Iterable[str], patterns: Iterable[str]) -> Iterator[str]:
    """Give the paths that fit a pattern, without those below one that is given."""
    wanted = [path_regex(fold_path(each), below=True) for each in patterns]
    found: list[str] = []
    for path in paths:
        place = fold_path(path)
        if any(each.fullmatch(place) for each in wanted) and not any(is_inside(path, each) for each in found):
            found.append(path)
            yield path


def folders_of_rules(rules: Rules, roots: Roots) -> list[str]:
    """Return the folders whose files rules speak of: the roots, and others that are there and that a rule names."""
    named = [folder for folder in _named_folders(rules, roots) if not _is_wide(folder) and os.path.lexists(folder)]
    return [*[folder for folder, _ in roots.folders], *named] if rules.speak_of_paths else []


def _named_folders(rules: Rules, roots: Roots) -> Iterator[str]:
    """Give where the patterns of what must not be read begin, of those that begin outside of the roots."""
    for pattern in rules.patterns_of_paths("read"):
        parts = pattern.split("/")
        n_fixed = next((index for index, part in enumerate(parts) if {*"*?"} & {*part}), len(parts))
        folder = "/".join(parts[:n_fixed]) or "/"
        if not any(is_inside(folder, root) for root, _ in roots.folders):
            yield folder


def _is_wide(folder: str) -> bool:
    """Tell whether a folder holds too much for a look at all of its files."""
    return is_inside(os.path.realpath(os.path.expanduser("~")), folder)


def rules_beyond(rules: Rules) -> Iterator[str]:
    """Give for each deny rule that no box can hold a sentence that says what holds instead."""
    for rule in rules.deny_rules:
        if rule.kind == "Bash" and program_of(rule) is None:
            yield (
                f"The rule {rule.text} is about the words of a command, which a box cannot hold. There it is held by"
                " what the command would need: no host and no key is there. Deny the program, the path or the host."
            )


def _hosts_of(rules: Iterable[Rule]) -> Iterator[str]:
    for rule in rules:
        host = rule.pattern.lower()
        # A name without a dot means another host in each network. An address is nobody's for good.
        if rule.kind == "WebFetch" and ("." in host or host == "localhost") and host_problem(host) is None:
            yield host


def _join(given: Sequence[str], added: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*given, *added]))
