"""Readers for untrusted JSON: a value of the wrong type reads as empty, so a rule can look at every body."""

from typing import TypeAlias, cast

Json: TypeAlias = dict[str, object]


def as_object(value: object) -> Json:
    """Return the JSON object, or an empty one if it is anything else."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """Return the JSON array, or an empty one if it is anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return the string, or an empty one if it is anything else."""
    return value if isinstance(value, str) else ""


def as_number(value: object) -> float | None:
    """Return the number, or None if it is anything else (a boolean is not a number)."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
