"""Which tests of the loop and the crews have their second turn, with a journal or over a wire, in `make test`.

Nearly all that such a turn could show, others show, too. So a share has it, which `SHARE` draws, and those of a list,
which together reach every branch that only second turns reach; `make fuzz` gives it to all.
"""

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

_ONE_IN: Final = 10
_SHARE: Final = os.environ.get("JOURNEYMAN_CRASH_SEED", "7")
_HAS_ALL: Final = "JOURNEYMAN_FUZZ" in os.environ


def name_of(nodeid: str) -> str:
    """Return a name of a turn. The order of its parameters depends on what else is collected; that of the name does
    not."""
    test, _, parameters = nodeid.partition("[")
    return f"{test}[{'-'.join(sorted(parameters.removesuffix(']').split('-')))}]"


ALWAYS: Final = frozenset(map(name_of, Path(__file__).with_name("turns.txt").read_text(encoding="utf-8").splitlines()))
"""The names of those that are drawn in any case."""


class Collected(Protocol):
    """A test, as pytest collects it."""

    @property
    def nodeid(self) -> str: ...


def has_turn(item: Collected) -> bool:
    """Tell whether a second turn of a test is one of those that this run has."""
    name = name_of(item.nodeid)
    return _HAS_ALL or name in ALWAYS or zlib.crc32(f"{_SHARE} {name}".encode()) % _ONE_IN == 0


def lost_turns(collected: Sequence[str]) -> list[str]:
    """Return what the list has of the collected files, and what is none of the collected tests."""
    files = {each.partition("::")[0] for each in collected}
    return sorted([each for each in ALWAYS.difference(map(name_of, collected)) if each.partition("::")[0] in files])
