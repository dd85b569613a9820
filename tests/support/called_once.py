"""How many private functions are called once, and how many of these are so short that they might be folded back.

A short helper with one caller often says no more than its body. Some say more, so there is no rule for a single one;
but their number may only fall. `make check` shows it; to list them: `python -m tests.support.called_once --list`.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.test_architecture import Module, package_modules

MOST_SHORT: Final = 148
"""So many short helpers are called once at most. Whoever folds some back lowers the number."""

SHORT_LINES: Final = 4
"""A body of at most so many lines is short; a docstring does not count."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Helper:
    """A private function that is called once."""

    place: str
    n_lines: int
    """Lines of the body without its docstring."""

    @property
    def is_short(self) -> bool:
        return self.n_lines <= SHORT_LINES


def called_once(modules: Sequence[Module]) -> Iterator[Helper]:
    """Yield each private function whose name its module uses once."""
    for module in modules:
        nodes = module.nodes
        used = Counter(_used(node) for node in nodes)
        for node in nodes:
            if isinstance(node, Function) and _is_private(node.name) and used[node.name] == 1:
                yield Helper(f"{module.name}.{node.name}", _body_lines(node))


def _used(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            return name
        case _:
            return None


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _body_lines(function: Function) -> int:
    body = function.body[ast.get_docstring(function) is not None :]
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1 if body else 0


def main(arguments: Sequence[str]) -> None:
    """Print the counts, and on request each place."""
    helpers = [*called_once(package_modules())]
    short = [helper for helper in helpers if helper.is_short]
    if "--list" in arguments:
        sys.stdout.writelines(sorted(f"{helper.place}: {helper.n_lines}\n" for helper in short))
    sys.stdout.write(
        f"{len(helpers)} private functions are called once; {len(short)} of them have at most {SHORT_LINES} lines, "
        f"{MOST_SHORT} are allowed.\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
