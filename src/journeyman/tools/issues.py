"""Faults of a value as lines that a model can act on: a path, what is expected, what came instead.

Every line is bounded, whatever the model wrote: paths, messages and the values shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum
from typing import TypeAlias

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_dict, is_list, is_list_or_tuple, is_set
from journeyman.texts import shorten_line

Path: TypeAlias = tuple[str | int, ...]


class Rank(IntEnum):
    """The kinds of faults, in the order in which they are listed."""

    MISSING = 0
    TYPE = 1
    VALUE = 2
    UNKNOWN = 3


@lazy_dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a value."""

    rank: Rank
    path: Path
    text: str
    """What is expected, so that it reads on after the path."""
    found: str = ""
    """A short form of what is there instead; empty when nothing is."""
    is_quoted: bool = False
    """True when an array or object came as a string that holds JSON."""


_PREFIXES = ("Value error, ", "Assertion failed, ", "Input ")
_CONTAINERS = frozenset(
    f"{name}_type"
    for name in (
        "arguments", "dataclass", "dict", "frozen_set", "iterable", "list", "mapping", "model", "model_attributes",
        "named_tuple", "set", "tuple",
    )
)  # fmt: skip
_FOUND_SHOWN = 60
_PART_SHOWN = 40
_PARTS_SHOWN = 12
_MAX_FAULTS = 2_000


def faults_of(error: ValidationError, input_json: str | bytes | None = None, *, hides: bool = False) -> list[Fault]:
    """Return what pydantic found. With the JSON text, labels of union members are left out of the paths.

    `hides`, or a model that says so of itself (`hide_input_in_errors`): no value that came is shown. Of very many
    faults there is only the number: each would be copied to be named.
    """
    if (n_faults := error.error_count()) > _MAX_FAULTS:
        return [Fault(Rank.VALUE, (), f"does not fit in {n_faults:,} places, which are too many to name")]
    root = _root(input_json)
    hides = hides or bool(error.__reduce__()[1][-1])  # the last of what pydantic copies an error by
    return [_fault(details, root, hides=hides) for details in error.errors(include_url=False, include_context=False)]


def hides_input(schema: object) -> bool:
    """Tell whether a core schema has a part whose input no error may show."""
    match schema:
        case {"config": {"hide_input_in_errors": True}}:
            return True
        case _ if is_dict(schema):
            return any(map(hides_input, schema.values()))
        case _:
            return is_list_or_tuple(schema) and any(map(hides_input, schema))


def issue_lines(faults: Iterable[Fault]) -> tuple[str, ...]:
    """Return one line for each place: what is missing, of a wrong type, a wrong value, unknown; then by path."""
    places: dict[Path, Fault] = {}
    for fault in sorted(faults, key=lambda fault: fault.rank):
        known = places.get(fault.path)
        places[fault.path] = fault if known is None else _join_faults(known, fault)
    ordered = sorted(places.values(), key=lambda fault: (fault.rank, _sort_key(fault.path)))
    return tuple(_line_of_fault(fault) for fault in ordered)


def excerpt(value: object) -> str:
    """Return a short form of a JSON value."""
    match value:
        case str():
            return _quote(value)
        case _ if is_list_or_tuple(value) or is_set(value):
            return f"an array of {len(value):,}"
        case dict():
            return "an object"
        case bool() | None | float():
            return json.dumps(value)
        case int():
            return str(value) if value.bit_length() < 200 else "a very large number"
        case _:
            return f"a {type(value).__name__}"


def _quote(text: str) -> str:
    shown = text[:_FOUND_SHOWN].encode("utf-8", "replace").decode()
    more = f"… ({len(text):,} characters)" if len(text) > len(shown) else ""
    return json.dumps(shown, ensure_ascii=False) + more


def holds_json(value: object) -> bool:
    """Tell whether `value` is a text that looks like a JSON array or object."""
    return isinstance(value, str) and value.lstrip()[:1] in ("{", "[")


def _root(input_json: str | bytes | None) -> object:
    if input_json is None:
        return None
    try:
        return from_json(input_json)
    except (ValueError, TypeError):
        return None


def _fault(details: ErrorDetails, root: object, *, hides: bool) -> Fault:
    kind, found = details["type"], details["input"]
    rank = _rank(kind)
    path = details["loc"] if root is None else _path_in(root, details["loc"], missing=rank is Rank.MISSING)
    shown = excerpt(found) if rank in (Rank.TYPE, Rank.VALUE) and kind != "json_invalid" else ""
    if hides:
        text = "has a tag that is not known" if kind == "union_tag_invalid" else _text_of_details(details)
        return Fault(rank, path, text)
    return Fault(rank, path, _text_of_details(details), shown, is_quoted=kind in _CONTAINERS and holds_json(found))


def _rank(kind: str) -> Rank:
    if kind.startswith("missing") or kind == "union_tag_not_found":
        return Rank.MISSING
    if kind in ("extra_forbidden", "unexpected_keyword_argument", "unexpected_positional_argument"):
        return Rank.UNKNOWN
    if kind.endswith(("_type", "_parsing", "_from_float")) or kind in ("is_instance_of", "none_required"):
        return Rank.TYPE
    return Rank.VALUE


def _text_of_details(details: ErrorDetails) -> str:
    match details["type"]:
        case "missing" | "missing_argument" | "missing_keyword_only_argument":
            return "is required"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return "is not a known name"
        case "json_invalid":
            return "is not valid JSON: " + shorten_line(details["msg"].removeprefix("Invalid JSON: "))
        case _:
            text = details["msg"].partition(", unable to parse ")[0]
            for prefix in _PREFIXES:
                text = text.removeprefix(prefix)
            subject = "its key " if details["loc"][-1:] == ("[key]",) else ""
            return subject + shorten_line(text)


def _path_in(root: object, loc: Path, *, missing: bool) -> Path:
    """Follow `loc` through the input: the parts that are not there are labels, except the name of what is missing."""
    path: list[str | int] = []
    value = root
    for index, part in enumerate(loc):
        match part:
            case _ if is_dict(value) and part in value:
                value = value[part]
            case int() if is_list(value) and 0 <= part < len(value):
                value = value[part]
            case _ if not (missing and index == len(loc) - 1):
                continue
            case _:
                pass
        path.append(part)
    return tuple(path)


def _join_faults(known: Fault, other: Fault) -> Fault:
    """Make one fault of two in the same place: they come from the members of a union, and one must be fixed."""
    text = other.text.removeprefix("should be ") if known.text.startswith("should be ") else other.text
    if text not in known.text:
        known = replace(known, text=f"{known.text} or {text}", found=known.found or other.found)
    return replace(known, is_quoted=known.is_quoted or other.is_quoted)


def _sort_key(path: Path) -> list[tuple[bool, int, str]]:
    return [(False, part, "") if isinstance(part, int) else (True, 0, part) for part in path]


def _line_of_fault(fault: Fault) -> str:
    place = f"{written_path(fault.path)}: " if fault.path else "it "
    return f"{place}{text_of_fault(fault)}"


def text_of_fault(fault: Fault) -> str:
    """Return what is wrong, and what came instead, so that it reads on after the path."""
    found = f", got {fault.found}" if fault.found else ""
    hint = "; send the value itself, not a string that holds JSON" if fault.is_quoted else ""
    return f"{shorten_line(fault.text)}{found}{hint}"


def written_path(path: Path) -> str:
    """Return the path as it is written in an expression: `lines[1].amount`."""
    parts = "".join(_part_of_path(part) for part in path[:_PARTS_SHOWN]).removeprefix(".")
    return parts if len(path) <= _PARTS_SHOWN else f"{parts}…"


def _part_of_path(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    if re.fullmatch(r"[\w-]+", part) and len(part) <= _PART_SHOWN:
        return f".{part}"
    return f"[{json.dumps(shorten_line(part, _PART_SHOWN), ensure_ascii=False)}]"
