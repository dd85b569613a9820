"""What is public: the names on the faces, those that the docs import from modules at the top, endings and errors.

The reference has each of them under one dotted name, the shortest by which it can be imported.
"""

import ast
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from journeyman import definition, errors
from journeyman.endings import Context
from tests.support import pages
from tests.test_architecture import FRONT_PAGE, faces, imports_in_the_docs
from tests.test_architecture import public_names as names_of

REFERENCE = pages.ROOT / "docs" / "reference"
DIRECTIVE = re.compile(r"^::: (journeyman[\w.]*)$", re.MULTILINE)


@functools.cache
def public_objects() -> dict[str, object]:
    """Return what is public, by each dotted name under which it is; the front page's come first."""
    found = {(face.name, name) for face in faces() for name in names_of(face)} | {*imports_in_the_docs()}
    found |= {("endings", context.__name__) for context in get_args(Context)}
    found |= {("errors", name) for name, each in vars(errors).items() if is_error(each)}
    rooms = {face.name for face in faces()}
    ordered = sorted(found, key=lambda each: (each[0] != FRONT_PAGE, each[0] not in rooms, each))
    return {dotted(module, name): resolved(module, name) for module, name in ordered}


def is_error(value: object) -> bool:
    homes = (errors.__name__, definition.__name__)
    return isinstance(value, type) and issubclass(value, errors.JourneymanError) and value.__module__ in homes


def dotted(module: str, name: str) -> str:
    return f"journeyman.{name}" if module == FRONT_PAGE else f"journeyman.{module}.{name}"


def resolved(module: str, name: str) -> object:
    loaded = importlib.import_module("journeyman" if module == FRONT_PAGE else f"journeyman.{module}")
    return getattr(loaded, name)


@functools.cache
def homes() -> dict[str, str]:
    """Lead from each dotted name to the one under which the reference has it: the first for the same thing.

    Two aliases may be equal (`Literal["a"]` twice), so the last word of the name counts, too.
    """
    first: dict[tuple[int, str], str] = {}
    return {
        name: first.setdefault((id(value), name.rpartition(".")[2]), name) for name, value in public_objects().items()
    }


def reference_pages() -> list[Path]:
    return sorted(REFERENCE.glob("*.md"))


@functools.cache
def shown_on() -> dict[str, list[Path]]:
    """Name, for each public name, the pages on which a program imports it and uses it."""
    found: dict[str, list[Path]] = {}
    for page in (*pages.PAGES, *reference_pages()):
        for name in sorted(used_on(page)):
            found.setdefault(homes().get(name, name), []).append(page)
    return found


def used_on(page: Path) -> set[str]:
    """Return the dotted name of all that the page's blocks import from the package and then use."""
    tree = ast.parse("\n".join(pages.python_blocks(page)))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return {target for local, target in _imported(tree) if local in used}


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "journeyman":
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
