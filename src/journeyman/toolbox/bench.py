"""What the tools of one workspace share. Imports the parts of this room that are no tools."""

from __future__ import annotations

from dataclasses import dataclass

from journeyman.toolbox.caps import Spill
from journeyman.toolbox.coding import MAX_FILE_BYTES
from journeyman.toolbox.command import Shell
from journeyman.toolbox.reach import Located, Reach
from journeyman.toolbox.stamps import Stamps


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What the tools of one workspace share."""

    reach: Reach
    stamps: Stamps
    spill: Spill
    shell: Shell
    ripgrep: str | None
    """The path of ripgrep; None to search without it."""
    untrusted: bool
    """Whether what is in the files may hold instructions that are not the user's."""


def content(located: Located) -> bytes:
    """Return what is in a file: one byte more than may be used, if there is more."""
    return located.files.read(located.path, MAX_FILE_BYTES + 1)
