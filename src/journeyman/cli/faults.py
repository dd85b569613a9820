"""Finds the line of the user's own files that raised an error, and explains a module that Python does not find.

The rule: what has the name of a file or a folder of the user's is never something to install; the package that has
this name in a public index is a stranger's.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Final

from journeyman.cli.app import Mistake
from journeyman.errors import frames_of, is_installed, is_pythons

_MARKS_OF_A_PROJECT: Final = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_NOBODYS: Final = frozenset({"node_modules", "__pycache__", "site-packages"})
_MOST_FOLDERS: Final = 5_000
"""In how many folders of a project a name is looked for: a tenth of a second."""


def short_path(origin: str) -> str:
    """Return a path as people would type it; a module's name as it is."""
    path = Path(origin)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else origin


def line_of(filename: str, number: int | None) -> str:
    """Name a line as people would: `agents.py, line 3`."""
    return short_path(filename) if number is None else f"{short_path(filename)}, line {number}"


def place_of_raise(error: BaseException) -> str:
    """Say where in the user's own files it was raised: `agents.py, line 3`. Empty: in none of them."""
    return _last_line([each for each in _frames(error) if not is_installed(each[0])])


def place_of_import(error: BaseException) -> str:
    """Say where importing a user's file has failed: `agents.py, line 3`. Empty: it is not one that was imported."""
    if isinstance(error, SyntaxError) and error.filename:
        return line_of(error.filename, error.lineno)
    if place := place_of_raise(error):
        return place
    frames = _frames(error)  # the user's files are an installed package themselves
    return _last_line([each for each in frames if Path(each[0]).is_relative_to(Path(frames[0][0]).parent)])


def missing_module(name: str, error: ModuleNotFoundError, *, target: Path | str) -> Mistake:
    """Return what is said of a module called `name` that importing `target`, a file or a module, did not find."""
    place, (top, _, _) = place_of_import(error), name.partition(".")
    verb = "imports" if place and place == _last_line(_frames(error)) else "needs"
    text = f"{place} {verb} {name}" if place else f"There is no module {name}"
    above = [name.rsplit(".", n_parts)[0] for n_parts in range(1, name.count(".") + 1)]
    parent = next((sys.modules[each] for each in above if each in sys.modules), None)
    if parent is not None:
        return _lacking(text, name, parent, is_target=not place)
    starts = [Path.cwd(), *(Path(file).resolve().parent for file, _ in _frames(error))]
    if (own := _find_own(top, starts)) is not None:
        text = f"{text}, which Python does not find." if place else f"{text}."
        return Mistake(text, f"{top} is yours: {short_path(str(own))}. {_way(own, target)}")
    if not place:
        return Mistake(f"{text}.", "Install it, or name a file, for example agents.py:analyst.")
    if top in sys.stdlib_module_names:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return Mistake(f"{text}, which Python {version} does not have.", "Use what has taken its place.")
    return Mistake(
        f"{text}, which is not installed.", f"Install it where journeyman is: {sys.executable} -m pip install {top}"
    )


def _frames(error: BaseException) -> list[tuple[str, int]]:
    """Return the file and line of each frame that is in a file, but neither ours nor Python's own."""
    return [each for each in frames_of(error) if not (each[0].startswith("<") or is_pythons(each[0]))]


def _last_line(frames: Sequence[tuple[str, int]]) -> str:
    return line_of(*frames[-1]) if frames else ""


def _lacking(text: str, name: str, parent: ModuleType, *, is_target: bool) -> Mistake:
    """Return the mistake of a missing name in a module that exists."""
    held, file = parent.__name__, getattr(parent, "__file__", None)
    if not hasattr(parent, "__path__"):
        where = f": {short_path(file)}" if file else ""
        hint = "Rename it, if another is meant." if where and not is_target else "Name a module, then a colon."
        return Mistake(f"{text}. {held} is a file, not a package{where}.", hint)
    wanted = name.removeprefix(f"{held}.").partition(".")[0]
    close = get_close_matches(wanted, [each.name for each in pkgutil.iter_modules(parent.__path__)], n=1)
    hint = f"Did you mean {held}.{close[0]}?" if close else f"Look at what {held} has."
    return Mistake(f"{text}." if is_target else f"{text}, which {held} does not have.", hint)


# -- what is the user's own --------------------------------------------------------------------------------------------


def _find_own(name: str, starts: Sequence[Path]) -> Path | None:
    """Return the file or folder of that name beside or above where it is looked for, or in the same project."""
    above = dict.fromkeys(folder for start in starts for folder in (start, *start.parents))
    for folder in above:
        for path in (folder / name, folder / f"{name}.py"):
            if os.path.exists(path):
                return path
    tops: dict[Path, None] = {}
    for start in starts:
        if not is_installed(f"{start}{os.sep}"):
            project = (
                each for each in (start, *start.parents) if any((each / mark).exists() for mark in _MARKS_OF_A_PROJECT)
            )
            tops[next(project, start)] = None
    below = (path for top in tops for path in islice(_paths_below(top), _MOST_FOLDERS))
    return next((path for paths in below for path in paths if _module_name(path) == _module_name(Path(name))), None)


def _paths_below(top: Path) -> Iterator[list[Path]]:
    """Return what each folder below `top` holds, without the packages of others."""
    for place, folders, files in os.walk(top):
        folder = Path(place)
        folders[:] = [
            each
            for each in sorted(folders)
            if not (each.startswith(".") or each in _NOBODYS or (folder / each / "pyvenv.cfg").exists())
        ]
        yield [folder / each for each in (*folders, *sorted(files))]


def _module_name(path: Path) -> str:
    """Return what a file or folder would be imported as: `acme-tools` is where `acme_tools` is at home."""
    name = path.name.partition(".")[0] if path.suffix in (".py", ".pyi", ".pyx", ".so", ".pyd") else path.name
    return name.replace("-", "_").casefold()


def _way(own: Path, target: Path | str) -> str:
    """Say how Python finds a file or folder of the user's."""
    above = own.parent
    if isinstance(target, Path) and above == Path.cwd() and target.is_relative_to(own):
        return f"Name it as a module: {'.'.join(target.relative_to(above).with_suffix('').parts)}:agent"
    return f"Set PYTHONPATH={short_path(str(above))}, or install your project in editable form."
