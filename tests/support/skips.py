"""Why a test may be skipped: what proof may be missing, and where. A reason that stands in no list is a failure.

A skip hides a proof. On a laptop that may be: it has no Postgres, or nobody has installed a package. In continuous
integration, which sets `JOURNEYMAN_CI`, it may not; `make` sets `JOURNEYMAN_NPM` where npm has brought its packages.
"""

import re
import sys
from collections.abc import Mapping
from typing import Final

ANYWHERE: Final = (
    # another system
    *("another system: Seatbelt is macOS's", "no image for the exam of containers: JOURNEYMAN_IMAGE is not set"),
    *("there is no SIGTERM", "signals of POSIX", "there are no groups", "an open file cannot be moved"),
    *("there is no fork here", "this system does not fork", "needs /dev/zero"),
    "only root can give a folder to another user",
    *("only Linux has a device that is always full", "the rights of root are given up as on Linux"),
    # a kernel, or a container around it, that lets nobody make namespaces or has no Landlock
    *(r"no namespaces can be made here: .+", r"Landlock does not hold here: .+"),
    # many more cases, when somebody asks for them
    r"500 clients, four times: make fuzz",
    *(r"many requests: make fuzz", r"it takes a while: make crash", r"`make fuzz` does it"),
    # a row of a table in which there is nothing to try
    *(r"the server cannot fail with '\w+'", "the service says no limit"),
    r"The package for [\w-]+ is installed, so it cannot be missing\.",
    r"(anthropic|openai|google|gemini|chat|responses|scripted|bridge)[\w. -]*: .+",
    # programs and servers of others that no lock brings
    *(r"(bash|fish|zsh) is not installed", "pgbouncer is not installed", r"strace is not installed: .+"),
    *(r"strace may not look here: .+", "no server of Temporal: TEMPORAL_ADDRESS is not set"),
    r"there is no Chromium here: apt-get install chromium",
)
"""Reasons that hold in continuous integration, too."""

ON_A_LAPTOP: Final = (
    *("there is no bash", "ripgrep is not installed", "Celery is not installed"),
    "bubblewrap is not installed: make test does it",
    "Temporal's package is not installed",
    r"(skipped: )?no Postgres can be had: .+",
    r"there is no node at .+",
    r".+ is installed instead of .+: make test mends it",
)
"""Reasons that fail where everything was set up: the lock brings what they miss."""

FROM_NPM: Final = (
    r".+ is not installed: make test does it, if npm can reach a registry",
    r"(axe-core|what ((tests|checks) the viewer's sources|builds the viewer)) is not installed: npm cannot be reached",
)
"""Reasons that fail where everything was set up and npm has brought its packages; it does not reach a registry from
everywhere."""


def fault_of(reason: str, environment: Mapping[str, str]) -> str | None:
    """Return why a test must not be skipped for this reason. None: it may."""
    is_ci = bool(environment.get("JOURNEYMAN_CI")) and sys.platform == "linux"
    refused = (*(ON_A_LAPTOP if is_ci else ()), *(FROM_NPM if is_ci and environment.get("JOURNEYMAN_NPM") else ()))
    if _fits(reason, refused):
        return f"Skipped where everything was set up: {reason}"
    if _fits(reason, (*ANYWHERE, *ON_A_LAPTOP, *FROM_NPM)):
        return None
    return f"Skipped for a reason that is in no list of tests/support/skips.py: {reason}"


def _fits(reason: str, patterns: tuple[str, ...]) -> bool:
    return any(re.fullmatch(each, reason, re.DOTALL) for each in patterns)
