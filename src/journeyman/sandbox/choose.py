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
    found = [(each, each.holds()) for each in (_usual() if sandboxes is None else sandboxes)]
    good = [sandbox for sandbox, guarantees in found if guarantees.is_enough]
    fair = [sandbox for sandbox, guarantees in found if guarantees.held]
    none = NoSandbox("; ".join(f"{sandbox.name}: {guarantees}" for sandbox, guarantees in found))
    return (good or fair or [none])[0]


@cache
def _usual() -> tuple[Sandbox, ...]:
    return (Seatbelt(),) if sys.platform == "darwin" else (Bubblewrap(), Landlock())
