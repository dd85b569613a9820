"""The choice of a sandbox, by what each is seen to hold here."""

import sys
from collections.abc import Sequence
from functools import cache

from journeyman.sandbox.adapter import NoSandbox
from journeyman.sandbox.bubblewrap import Bubblewrap
from journeyman.sandbox.landlock import Landlock
from journeyman.sandbox.sandbox import Sandbox
from journeyman.sandbox.seatbelt import Seatbelt


def choose_sandbox(sandboxes: Sequence[Sandbox] | None = None) -> Sandbox:
    """Return the first sandbox that holds enough here for commands to run in it unasked; else the first one that holds
    anything; else `NoSandbox`, which says why. Each is tried, once in a process, which takes some tenths of a second.

    Args:
        sandboxes: Those to try, the best one first; those of this system if not given.
    """
    given = _usual() if sandboxes is None else sandboxes
    good = [each for each in given if each.holds().is_enough]
    fair = [each for each in given if each.holds().held]
    return (good or fair or [NoSandbox(explain_sandboxes(given))])[0]


def explain_sandboxes(sandboxes: Sequence[Sandbox] | None = None) -> str:
    """Return on one line what each sandbox holds here, and what helps where one does not: that of one which holds a
    little does not say what would let a better one hold.

    Args:
        sandboxes: Those to tell of; those of this system if not given.
    """
    given = _usual() if sandboxes is None else sandboxes
    return "; ".join(f"{each.name}: {each.holds()}" for each in given)


@cache
def _usual() -> tuple[Sandbox, ...]:
    return (Seatbelt(),) if sys.platform == "darwin" else (Bubblewrap(), Landlock())
