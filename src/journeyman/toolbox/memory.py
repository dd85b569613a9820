"""Loads a project's AGENTS.md files, its instructions to every agent that works in it, for the system prompt.

They are read once, when the agent is made, so that all its requests begin in the same way. Nothing above the project is
read, so a file that somebody left in `/tmp` does not count.
"""

from __future__ import annotations

import codecs
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from journeyman.errors import DefinitionError, Problem
from journeyman.toolbox.files import LocalFiles, ToolRefused
from journeyman.types import Text

MAX_MEMORY_BYTES: Final = 32 * 1024
"""The longest memory, all files together, unless something else is said."""
_BEGINNING: Final = "Rules of the project that you work in, from {}. Where two such files differ, the later one holds."
_REST: Final = "[The rest of this file is left out: it is too long.]"
# As Claude Code reads them: not in code, and five files deep.
_IMPORT: Final = re.compile(r"(?<![^\s(*])@([^\s`()<>\"']+)")
_CODE: Final = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_DEEPEST_IMPORT: Final = 5

_log = logging.getLogger("journeyman")


def load_agents_md(
    folder: str | os.PathLike[str] = ".",
    *,
    top: str | os.PathLike[str] | None = None,
    names: Sequence[str] = ("AGENTS.md", "CLAUDE.md"),
    untrusted: bool = False,
    max_bytes: int = MAX_MEMORY_BYTES,
    skip_broken: bool = False,
) -> tuple[Text, ...]:
    """Return the AGENTS.md files of a folder and of those above it, the outermost first: the nearest has the last word.

        agent = Agent(..., system=[Text("You are a careful programmer."), *load_agents_md("project")])

    A file of the project that one of them imports, by `@docs/style.md` outside of code, follows it. What is not
    imported, because it is missing or outside of the project, is logged.

    Args:
        folder: Where the agent works.
        top: The outermost folder to look into. None: the nearest one, from `folder` upwards, that holds `.git`; where
            there is none, `folder` alone.
        names: What such a file may be called. Of one folder only the first that is there is read.
        untrusted: Whether strangers write these files. If True, a `TaintGate` treats them as untrusted.
        max_bytes: How many bytes all files together may have.
        skip_broken: Take what fits, the nearest files first, and what can be read, and log the rest, instead of
            raising.

    Raises:
        DefinitionError: `folder` is not a folder, or not in `top`. Without `skip_broken` also: a file cannot be read,
            is not UTF-8, or is a link that leads out of `top`; or all files together are too long. Lists every problem.
    """
    place = Path(os.path.realpath(os.path.expanduser(folder)))
    nearest = next((each for each in (place, *place.parents) if (each / ".git").exists()), place)
    outermost = nearest if top is None else Path(os.path.realpath(os.path.expanduser(top)))
    if not place.is_dir() or not place.is_relative_to(outermost):
        text = f"{place} is not a folder{'' if top is None else f' in {outermost}'}."
        problem = Problem("NO_WORKSPACE", text, "Give the folder that the agent works in.")
        raise DefinitionError("A project's memory", [problem])
    above = [each for each in (place, *place.parents) if each.is_relative_to(outermost)]
    found = [next((each / name for name in names if (each / name).exists()), None) for each in above]
    reading = _MemoryReader(outermost, max_bytes)
    read = [list(reading.read(path)) for path in found if path is not None]
    if reading.cut:
        listed = ", ".join(map(str, reading.cut))
        text = f"The memory in {listed} is longer than {max_bytes:,} bytes."
        hint = "Shorten them, or raise max_bytes: every request carries them."
        reading.problems.append(Problem("MEMORY_TOO_LONG", text, hint))
    if reading.problems and not skip_broken:
        raise DefinitionError("A project's memory", reading.problems)
    for problem in reading.problems:
        _log.warning("Not all of the project's memory is taken: %s", problem.message)
    origin = "memory" if untrusted else None
    return tuple(
        Text(f"{_BEGINNING.format(path.relative_to(outermost))}\n\n{text.strip()}", origin=origin)
        for texts in reversed(read)
        for path, text in texts
        if text.strip()
    )


class _MemoryReader:
    """The reading of one project's memory, in the order in which its files are to find room."""

    def __init__(self, top: Path, max_bytes: int) -> None:
        self.problems: Final[list[Problem]] = []
        self.cut: Final[list[Path]] = []
        """The files that found no room, or not for all they hold."""
        self._top: Final = top
        self._n_left = max_bytes
        self._read: Final[set[str]] = set()

    def read(self, path: Path, depth: int = 0) -> Iterator[tuple[Path, str]]:
        """Yield a file with its text, and then those that it imports; each file once."""
        real = os.path.realpath(path)
        if real in self._read:
            return
        self._read.add(real)
        text = self._text(path, real)
        yield path, text
        for imported in self._imports(path, text) if depth < _DEEPEST_IMPORT else ():
            yield from self.read(imported, depth + 1)

    def _text(self, path: Path, real: str) -> str:
        """Return the text of a file, as far as there is room; empty, with a problem noted, if it cannot be read."""
        if not Path(real).is_relative_to(self._top):
            hint = "Put the file itself there, or widen top."
            return self._refuse(path, f"is a link that leads out of {self._top}, to {real}", hint)
        try:
            data = LocalFiles().read(real, self._n_left + 1)
        except OSError as error:
            return self._refuse(path, f"cannot be read: {error.strerror or error}", "Let this program read it.")
        except ToolRefused:
            return self._refuse(path, "is not a regular file", "Put a text file there.")
        is_cut = len(data) > self._n_left
        data = data[: self._n_left]
        self._n_left -= len(data)
        text = self._decode(path, data, is_whole=not is_cut)
        if is_cut:
            self.cut.append(path)
            text = f"{text[: text.rfind(chr(10)) + 1].strip()}\n\n{_REST}" if "\n" in text else ""
        return text

    def _decode(self, path: Path, data: bytes, *, is_whole: bool) -> str:
        has_mark = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        decoder = codecs.getincrementaldecoder("utf-16" if has_mark else "utf-8-sig")
        try:
            text = decoder().decode(data, final=is_whole)
        except UnicodeDecodeError as error:
            wrong = f"is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}"
            self._refuse(path, wrong, "Save it in UTF-8.")
            text = decoder("replace").decode(data, final=is_whole)
        return self._refuse(path, "is no text", "Put a text file there.") if "\0" in text else text

    def _refuse(self, path: Path, wrong: str, hint: str) -> str:
        self.problems.append(Problem("UNREADABLE_MEMORY", f"{path} {wrong}.", hint))
        return ""

    def _imports(self, path: Path, text: str) -> Iterator[Path]:
        """Yield the files of the project that a text imports. What only looks like a path is a word of the text."""
        for found in _IMPORT.finditer(_CODE.sub(" ", text)):
            named = found[1].rstrip(".,;:!?*_")
            given = path.parent / os.path.expanduser(named)
            if not Path(os.path.realpath(given)).is_relative_to(self._top):
                _log.warning("%s imports %s, which is outside of the project. It is left out.", path, named)
            elif not os.path.isfile(given):
                if given.suffix == ".md":
                    _log.warning("%s imports %s, which is not there.", path, named)
            elif given.name.startswith("."):  # settings, and secrets
                _log.warning("%s imports %s, whose name begins with a dot. It is left out.", path, named)
            else:
                yield given
