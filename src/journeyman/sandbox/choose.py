"""The choice of a sandbox, by what each is seen to hold here."""

import sys
from collections.abc import Sequence
from functools import cache

from journeyman.sandbox.bubblewrap import Bubblewrap
from journeyman.sandbox.landlock import Landlock
from journeyman.sandbox.no_sandbox import NoSandbox
from journeyman.sandbox.sandbox import Sandbox
from journeyman.sandbox.seatbelt import Seatbelt


def choose_sandbox(sandboxes: Sequence[Sandbox] | None = None) -> Sandbox:
    """Return the first sandbox that holds enough here for commands to run in it unasked; else the first one that holds
    anything; else `NoSandbox`, which says why. Each is tried, once in a process, which takes some tenths of a second.

    Args:
        sandboxes: Those to try, the best one first; those of this system if not given.
    """
    return _choose_usual() if sandboxes is None else _choose_of(sandboxes)


@cache
def _choose_usual() -> Sandbox:
    kinds: dict[str, tuple[type[Sandbox], ...]] = {"darwin": (Seatbelt,)}
    return _choose_of([each() for each in kinds.get(sys.platform, (Bubblewrap, Landlock))])


def _choose_of(sandboxes: Sequence[Sandbox]) -> Sandbox:
    found = [(each, each.holds()) for each in sandboxes]
    good = [sandbox for sandbox, guarantees in found if guarantees.is_enough]
    fair = [sandbox for sandbox, guarantees in found if guarantees.held]
    if good or fair:
        return (good or fair)[0]
    return NoSandbox("; ".join(f"{sandbox.name}: {guarantees}" for sandbox, guarantees in found))
