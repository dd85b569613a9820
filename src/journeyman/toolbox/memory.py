"""What a project says to every agent that works in it: its AGENTS.md files, as texts of the system prompt.

They are read once, when the agent is made, so that all its requests begin in the same way. Nothing above the project is
read, so a file that somebody left in `/tmp` does not count.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from journeyman.errors import DefinitionError, Problem
from journeyman.toolbox.files import LocalFiles, Refusal
from journeyman.types import Text

MAX_MEMORY_BYTES: Final = 32 * 1024
"""The longest memory, all files together, unless something else is said."""
_BEGINNING: Final = "Rules of the project that you work in, from {}. Where two such files differ, the later one holds."


def project_memory(
    folder: str | os.PathLike[str] = ".",
    *,
    top: str | os.PathLike[str] | None = None,
    names: Sequence[str] = ("AGENTS.md",),
    untrusted: bool = False,
    max_bytes: int = MAX_MEMORY_BYTES,
) -> tuple[Text, ...]:
    """Return the AGENTS.md files of a folder and of those above it, the outermost first: the nearest has the last word.

        agent = Agent(..., system=[Text("You are a careful programmer."), *project_memory("project")])

    Args:
        folder: Where the agent works.
        top: The outermost folder to look into. None: the nearest one, from `folder` upwards, that holds `.git`; where
            there is none, `folder` alone.
        names: What such a file may be called. Of one folder only the first that is there is read.
        untrusted: Whether strangers write these files. If True, a `TaintGate` treats them as untrusted.
        max_bytes: How many bytes all files together may have.

    Raises:
        DefinitionError: `folder` is not a folder, or not in `top`; a file cannot be read, is not UTF-8, or is a link
            that leads out of `top`; or all files together are too long. Lists every problem.
    """
    place = Path(os.path.realpath(os.path.expanduser(folder)))  # noqa: PTH111 - of any path
    nearest = next((each for each in (place, *place.parents) if (each / ".git").exists()), place)
    outermost = nearest if top is None else Path(os.path.realpath(os.path.expanduser(top)))  # noqa: PTH111
    if not place.is_dir() or not place.is_relative_to(outermost):
        text = f"{place} is not a folder{'' if top is None else f' in {outermost}'}."
        problem = Problem("NO_WORKSPACE", text, "Give the folder that the agent works in.")
        raise DefinitionError("A project's memory", [problem])
    above = [each for each in (place, *place.parents) if each.is_relative_to(outermost)]
    found = [next((each / name for name in names if (each / name).exists()), None) for each in reversed(above)]
    problems: list[Problem] = []
    read = {path: _text(path, outermost, max_bytes, problems) for path in found if path is not None}
    if sum(len(text.encode()) for text in read.values()) > max_bytes:
        listed = ", ".join(str(path) for path in read)
        hint = "Shorten them, or raise max_bytes: every request carries them."
        problems.append(Problem("MEMORY_TOO_LONG", f"The memory in {listed} is longer than {max_bytes:,} bytes.", hint))
    if problems:
        raise DefinitionError("A project's memory", problems)
    origin = "memory" if untrusted else None
    return tuple(
        Text(f"{_BEGINNING.format(path.relative_to(outermost))}\n\n{text.strip()}", origin=origin)
        for path, text in read.items()
        if text.strip()
    )


def _text(path: Path, top: Path, max_bytes: int, problems: list[Problem]) -> str:
    """Return what stands in a file, at most a little more than is allowed. Say what is wrong with it."""
    real = os.path.realpath(path)
    if not Path(real).is_relative_to(top):
        wrong, hint = f"is a link that leads out of {top}, to {real}", "Put the file itself there, or widen top."
    else:
        data = b""
        try:
            data = LocalFiles().read(real, max_bytes + 1)
            return data.decode("utf-8-sig", "strict" if len(data) <= max_bytes else "replace")
        except UnicodeDecodeError as error:
            wrong, hint = f"is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}", "Save it in UTF-8."
        except OSError as error:
            wrong, hint = f"cannot be read: {error.strerror or error}", "Let this program read it."
        except Refusal:
            wrong, hint = "is not a regular file", "Put a text file there."
    problems.append(Problem("UNREADABLE_MEMORY", f"{path} {wrong}.", hint))
    return ""
