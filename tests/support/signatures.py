"""The types that a reader meets only in signatures: what parameters, results, fields and aliases name, and what is not
among the public names. A page of the reference has an entry for each of them.
"""

import functools
from collections.abc import Iterator

import griffe

from tests.support import public
from tests.support.reference import final, package

PAGE = public.REFERENCE / "signatures.md"


@functools.cache
def named_only_in_signatures() -> dict[str, str]:
    """Return the dotted name of each such type, and where one of them is met first."""
    known = {final(package()[name.removeprefix("journeyman.")]).path for name in public.homes()}
    found: dict[str, str] = {}
    waiting = [final(package()[name.removeprefix("journeyman.")]) for name in sorted(public.homes())]
    while waiting:
        for place, path in _named_by(waiting.pop(0)):
            kind = final(package()[path.removeprefix("journeyman.")])
            is_variable = isinstance(kind, griffe.Attribute) and str(kind.value).startswith(("TypeVar", "ParamSpec"))
            if kind.path in known or kind.name.startswith("_") or kind.is_function or is_variable:
                continue
            known.add(kind.path)
            found[kind.path] = place
            if isinstance(kind, griffe.Attribute):  # an alias names others
                waiting.append(kind)
    return found


def _named_by(target: griffe.Object) -> Iterator[tuple[str, str]]:
    """Yield where a name of ours stands in the signature of `target`, or of a member, and its path."""
    match target:
        case griffe.Class():
            for member in target.all_members.values():
                if not member.name.startswith("_") or member.name == "__init__":
                    yield from _named_by(final(member))
        case griffe.Function():
            annotations = [each.annotation for each in target.parameters if not each.name.startswith("_")]
            yield from ((target.path, path) for each in (*annotations, target.returns) for path in _paths(each))
        case griffe.Attribute():
            value = target.value if str(target.annotation) == "TypeAlias" else None
            yield from ((target.path, path) for each in (target.annotation, value) for path in _paths(each))
        case _:
            return


def _paths(annotation: griffe.Expr | str | None) -> Iterator[str]:
    for part in annotation.iterate(flat=True) if isinstance(annotation, griffe.Expr) else ():
        if isinstance(part, griffe.ExprName) and part.canonical_path.startswith("journeyman."):
            yield part.canonical_path
