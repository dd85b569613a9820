"""Which blocks of a text are like the one that was looked for: by their words, in linear time first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

MAX_CHARS: Final = 20_000
"""The longest text that is compared word by word."""

_N_COMPARED: Final = 8
_MAX_PAIRS: Final = 500_000  # of equal words: a matcher looks at each, some of them several times
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Similar:
    """A block of lines that is like another."""

    first: int
    """Index of its first line."""
    n_lines: int
    similarity: float
    """From 0 to 1, where 1 has the same words in the same order."""


def similarity(one: str, other: str) -> float:
    """Return how much of two texts is the same, by their words: from 0 to 1. 0 if that would take long to say."""
    if max(len(one), len(other)) > MAX_CHARS:
        return 0.0
    ours, theirs = _TOKEN.findall(one), _TOKEN.findall(other)
    counts = Counter(theirs)
    n_pairs = sum(n * counts[token] for token, n in Counter(ours).items())
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio() if n_pairs <= _MAX_PAIRS else 0.0


def similar_blocks(lines: Sequence[str], wanted: Sequence[str], *, at_least: float, n: int) -> list[Similar]:
    """Return up to `n` blocks of as many lines that are like `wanted`, the best one first, none within another."""
    if not wanted or sum(map(len, wanted)) > MAX_CHARS:
        return []
    size = min(len(wanted), len(lines))
    text = "\n".join(wanted)
    compared = [
        Similar(first, size, similarity("\n".join(lines[first : first + size]), text))
        for first in _apart(_by_words(lines, wanted, size, at_least), size)
    ]
    alike = sorted((each for each in compared if each.similarity >= at_least), key=lambda each: -each.similarity)
    return alike[:n]


def _by_words(lines: Sequence[str], wanted: Sequence[str], size: int, at_least: float) -> list[int]:
    """Return where blocks begin that share enough words in any order, those that share most first."""
    goal = Counter(_TOKEN.findall("\n".join(wanted)))
    tokens = [_TOKEN.findall(line) for line in lines]
    n_goal = sum(goal.values())
    window: Counter[str] = Counter()
    n_window = n_shared = 0
    shares: list[tuple[float, int]] = []
    for index, line in enumerate(tokens):
        for token in line:
            n_shared += window[token] < goal[token]
            window[token] += 1
        n_window += len(line)
        first = index - size + 1
        if first > 0:
            for token in tokens[first - 1]:
                window[token] -= 1
                n_shared -= window[token] < goal[token]
            n_window -= len(tokens[first - 1])
        share = 2 * n_shared / max(1, n_window + n_goal)
        if first >= 0 and share >= at_least:
            shares.append((-share, first))
    return [first for _, first in sorted(shares)]


def _apart(firsts: Sequence[int], size: int) -> list[int]:
    kept: list[int] = []
    for first in firsts:
        if all(abs(first - other) >= size for other in kept):
            kept.append(first)
            if len(kept) == _N_COMPARED:
                break
    return kept
