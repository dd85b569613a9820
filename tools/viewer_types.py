"""The types by which the viewer's page reads what its server sends: viewer/src/api.ts, made from the classes.

`python -m tools.viewer_types` rewrites the file; `make fix` and `make viewer` do.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from pydantic import JsonValue

from journeyman.record.live import WordsDocument
from journeyman.record.operator import Told
from journeyman.record.page import PieceDocument, UsageDocument
from journeyman.record.reading import RecordedRun, StoredRequest
from journeyman.types import Usage
from journeyman.view import documents
from journeyman.view.steering import Given, SteeringAnswer

PAGE: Final = Path(__file__).parent.parent / "viewer" / "src" / "api.ts"
SENT: Final[Mapping[str, Sequence[type]]] = {
    "Usage": [UsageDocument],
    "Run": [RecordedRun, documents.RunAddition],
    "Happened": [documents.EventHead],
    "Sent": [StoredRequest],
    "Words": [WordsDocument],
    "Piece": [PieceDocument],
    "SentWhole": [StoredRequest, documents.RequestAddition],
    "Store": [documents.StoreDocument],
    "Runs": [documents.RunsDocument],
    "Day": [documents.DayDocument],
    "Days": [documents.DaysDocument],
    "Events": [documents.EventsDocument],
    "Requests": [documents.RequestsDocument],
    "Told": [Told],
    "Signals": [documents.SignalsDocument],
    "Signal": [Given],
    "SignalAnswer": [SteeringAnswer],
    "Forgotten": [documents.ForgottenDocument],
    "Refusal": [documents.RefusalDocument],
}
"""Each type of the page by the classes that have its fields. What has a default may be left out."""

_PLAIN: Final[Mapping[object, str]] = {
    **{str: "string", bool: "boolean", int: "number", float: "number", NoneType: "null"},
    **{JsonValue: "Json", dict[str, JsonValue]: "Facts"},
}
_NAMES: Final[Mapping[Sequence[type], str]] = {
    **{tuple(classes): name for name, classes in SENT.items()},
    (Usage,): "Usage",
}
_HEAD: Final = """\
// What the server sends and takes. Made from the classes of journeyman.record and journeyman.view, where each field is
// explained, by `make viewer` or `make fix`: change it there. Times are seconds since 1970, sizes are bytes.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Facts = { [name: string]: Json };
"""


def written() -> str:
    """Return the file as it should be."""
    return "\n".join([_HEAD, *(_interface(name, classes) for name, classes in SENT.items())])


def _interface(name: str, classes: Sequence[type]) -> str:
    base = _NAMES.get(tuple(classes[:-1]))
    own = classes[-1:] if base else classes
    lines = [line for each in own for line in _fields(each)]
    if documents.EventHead in classes:
        lines.append("  [fact: string]: Json; // The other fields of the event.")
    title = " ".join((inspect.getdoc(own[0]) or "").split("\n\n")[0].split())
    head = f"export interface {name}{f' extends {base}' if base else ''} {{"
    return "\n".join([f"/** {title} */", head, *lines, "}", ""])


def _fields(made: type) -> Iterator[str]:
    explained = _explanations(made)
    declared: Any = made
    optional = {each.name for each in fields(declared) if _has_default(each)} if is_dataclass(declared) else set[str]()
    for name, hint in get_type_hints(made, include_extras=True).items():
        if name.startswith("_"):
            continue
        may_be_absent = name in optional or get_origin(hint) is NotRequired
        comment = f" // {explained[name]}" if name in explained else ""
        yield f"  {name}{'?' if may_be_absent else ''}: {type_of(hint)};{comment}"


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _explanations(made: type) -> dict[str, str]:
    """Return the first sentence below each field."""
    [declared] = ast.parse(textwrap.dedent(inspect.getsource(made))).body
    assert isinstance(declared, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(declared.body, declared.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = re.split(r"(?<=\.)\s", " ".join(text.split()))[0]
            case _:
                pass
    return found


def type_of(hint: Any) -> str:  # noqa: ANN401 - whatever stands behind a field
    """Return how the page writes a type.

    Raises:
        TypeError: nothing of this kind was sent before.
    """
    if (made := _PLAIN.get(hint) or _NAMES.get((hint,))) is not None:
        return made
    origin, given = get_origin(hint), get_args(hint)
    if hasattr(hint, "__metadata__"):
        return _NAMES[hint.__metadata__]
    if origin is NotRequired:
        return type_of(given[0])
    if origin is Literal:
        return " | ".join(f'"{each}"' for each in given)
    if origin in (Union, UnionType):
        return " | ".join(map(type_of, given))
    if origin in (list, tuple):
        return f"{type_of(given[0])}[]"
    raise TypeError(f"{hint} has no type of the page yet: add it to type_of.")


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
