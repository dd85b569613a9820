"""Patterns for paths, as ignore files and the tools `glob` and `grep` have them: `*`, `?`, `[a-z]`, `{a,b}`, `**`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from journeyman.toolbox.refusal import Refusal

_CLASS = re.compile(r"\[([!^]?)(\]?[^\]]*)\]")


def compiled(pattern: str) -> re.Pattern[str]:
    """Return what matches whole paths relative to a folder. A pattern without a slash matches names at any depth.

    Raises:
        Refusal: it is no pattern.
    """
    stripped = pattern.removeprefix("./")
    anchored = stripped if "/" in stripped.rstrip("/") else f"**/{stripped}"
    try:
        return re.compile(regex(anchored.lstrip("/")), re.DOTALL)
    except re.error as error:
        raise Refusal("invalid", f"{pattern!r} is no pattern for paths: {error}. Example: src/**/*.py") from error


def regex(pattern: str) -> str:
    """Return the regular expression for a pattern: no wildcard but `**` crosses a slash.

    Raises:
        re.error: a brace or a bracket is not closed.
    """
    return f"(?:{''.join(_pieces(pattern))})\\Z"


def _pieces(pattern: str) -> Iterator[str]:
    at, depth = 0, 0
    while at < len(pattern):
        piece, length, change = _piece(pattern, at, depth)
        depth += change
        at += length
        yield piece
    if depth:
        raise re.error("a { is not closed")


def _piece(pattern: str, at: int, depth: int) -> tuple[str, int, int]:
    """Return the expression for what stands here, its length, and the change in the depth of braces."""
    rest = pattern[at:]
    match rest[0]:
        case "*":
            return _stars(pattern, at)
        case "[":
            return _class(rest)
        case "\\" if len(rest) > 1:
            return re.escape(rest[1]), 2, 0
        case "{":
            return "(?:", 1, 1
        case "}" if depth:
            return ")", 1, -1
        case char:
            special = {"?": "[^/]", ",": "|" if depth else ","}
            return special.get(char, re.escape(char)), 1, 0


def _stars(pattern: str, at: int) -> tuple[str, int, int]:
    n = len(pattern[at:]) - len(pattern[at:].lstrip("*"))
    is_begun = at == 0 or pattern[at - 1] == "/"
    after = pattern[at + n : at + n + 1]
    if n == 2 and is_begun and after == "/":
        return "(?:[^/]+/)*", 3, 0
    if n == 2 and is_begun and not after:
        return ".+" if at else ".*", 2, 0
    return "[^/]*", n, 0


def _class(rest: str) -> tuple[str, int, int]:
    found = _CLASS.match(rest)
    if found is None:
        raise re.error("a [ is not closed")
    negated, chars = found.groups()
    quoted = re.sub(r"([\\\[\]&~|^])", r"\\\1", chars)
    return f"(?!/)[{'^' if negated else ''}{quoted}]", found.end(), 0
