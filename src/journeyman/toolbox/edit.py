"""The tool `edit`: one text for another, in a file that was read.

There are three ways to find the old text, each tried only where those before it found nothing: the very text; the text
except quotes, dashes, odd spaces and blanks at line ends; the same lines, with the same blanks more or less in front of
each. All but the first keep lines that the edit does not change as they are in the file. Line endings are never
compared, and new lines get those of the lines around them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Final, Literal, TypeAlias

from journeyman.errors import count
from journeyman.toolbox.files import Located, ToolRefused, decode_file
from journeyman.toolbox.workspace_state import Bench
from journeyman.tools.tools import AnyTool, tool

MAX_CHARS: Final = 20_000
"""The longest text that is compared word by word."""
_N_COMPARED: Final = 8
_MAX_PAIRS: Final = 500_000  # of equal words: a matcher looks at each, some of them several times
_N_SIMILAR: Final = 3
_SIMILAR: Final = 0.6  # from this ratio on, difflib calls sequences close
_LINES_SHOWN: Final = 12
_NUMBERED = re.compile(r" *\d+\t")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_ENDING: Final = r"(?:\r\n|(?<!\r)\n)"
_ENDINGS = re.compile(r"\r?\n")
_FOLDS = {
    ord(char): to
    for chars, to in (
        ("\u2018\u2019\u201a\u201b\u2032", "'"),
        ("\u201c\u201d\u201e\u201f\u2033", '"'),
        ("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        ("\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    )
    for char in chars
}
"""The usual one for each odd quote, dash and space: what is folded is as long as before."""
_BLANKS: Final = " \t"
_HOW: Final[dict[How, str]] = {
    "exact": "",
    "tolerant": " The old text was found with other quotes, dashes or blanks.",
    "indented": " The old text was found with another indentation; the new text was moved accordingly.",
}
How: TypeAlias = Literal["exact", "tolerant", "indented"]


def edit_tool(bench: Bench) -> AnyTool:
    """Return the tool that edits files of a workspace."""

    def edit(path: str, old_text: str, new_text: str, replace_all: bool = False) -> str:
        """Replace a text in a file that has been read.

        The old text must be in the file exactly once: give as many lines around the change as make it unique.

        Args:
            path: The file, relative to the workspace.
            old_text: The text to replace, as it is in the file, without line numbers.
            new_text: What shall stand there instead.
            replace_all: Replace every place where the old text is.
        """
        if not old_text:
            raise ToolRefused("invalid", "old_text is empty. Give the text to replace; to make a new file, write it.")
        if old_text == new_text:
            raise ToolRefused("invalid", "old_text and new_text are the same, so there is nothing to change.")
        located, facts, _ = bench.existing(path, "write")
        if facts.kind != "file":
            raise ToolRefused("invalid", f"{located.shown} is not a regular file, so it cannot be edited.")
        with bench.stamps.writing:
            return _edit_file(bench, located, old_text, new_text, every=replace_all)

    return tool(edit, effect="once", permission_kind="edit")


def _edit_file(bench: Bench, located: Located, old: str, new: str, *, every: bool) -> str:
    data = located.content()
    text, coding = decode_file(data, located.shown)
    bench.stamps.check(located.path, located.shown, data)
    found = find(text, old, new, every=every)
    if found is None:
        raise ToolRefused("no_match", _no_match(located, text, old))
    if len(found.matches) > 1 and not every:
        raise ToolRefused("ambiguous", _ambiguous(located, text, found))
    changed = replace_matches(text, found.matches)
    after = coding.encode(changed)
    if after == data:
        raise ToolRefused("invalid", f"{located.shown} is already as it would be after this edit.")
    bench.replace(located, after)
    return _report_edit(located, text, changed, found)


def replace_matches(text: str, matches: tuple[Match, ...]) -> str:
    """Return the text with each of the places replaced; they do not overlap."""
    pieces: list[str] = []
    end = 0
    for match in matches:
        pieces += [text[end : match.start], match.replacement]
        end = match.end
    return "".join([*pieces, text[end:]])


def _report_edit(located: Located, text: str, changed: str, found: Found) -> str:
    first = found.matches[0]
    line = _line_at(text, first.start)
    places = count(len(found.matches), "place")
    report = (
        f"Edited {located.shown}: {places}, {'at' if len(found.matches) == 1 else 'from'} line {line}.{_HOW[found.how]}"
    )
    if found.how == "exact":
        return report
    last = line + min(first.replacement.count("\n"), _LINES_SHOWN - 1)
    shown = [f"{line + n}\t{each}" for n, each in enumerate(changed.split("\n")[line - 1 : last])]
    return "\n".join([f"{report} It now reads:", *(each.removesuffix("\r") for each in shown)])


def _ambiguous(located: Located, text: str, found: Found) -> str:
    lines = [_line_at(text, match.start) for match in found.matches]
    listed = ", ".join(map(str, lines[:10])) + (" and more" if len(lines) > 10 else "")
    advice = "Give more of the lines around the one that you mean, or replace_all=true."
    return f"old_text is in {located.shown} {len(lines)} times, from lines {listed}. {advice}"


def _no_match(located: Located, text: str, old: str) -> str:
    lines, wanted = text.split("\n"), old.strip("\n").split("\n")
    if all(_NUMBERED.match(line) for line in wanted):
        return f"old_text is not in {located.shown}. Give it without the line numbers."
    near = similar_blocks(lines, wanted, at_least=_SIMILAR, n=_N_SIMILAR)
    if not near:
        return f"old_text is not in {located.shown}, nor anything like it. Read the file again."
    shown = [f"old_text is not in {located.shown}. The most similar there:"]
    for block in near:
        last = block.first + min(block.n_lines, _LINES_SHOWN)
        share = "The same words with other blanks" if block.similarity == 1 else f"{block.similarity:.0%} similar"
        shown.append(f"{share}, from line {block.first + 1}:")
        shown += [f"{n}\t{line}" for n, line in enumerate(lines[block.first : last], start=block.first + 1)]
    return "\n".join([line.removesuffix("\r") for line in shown])


def _line_at(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1


@dataclass(frozen=True, slots=True)
class Match:
    """A place in the text, and what shall stand there."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class Found:
    """All places that are meant."""

    how: How
    matches: tuple[Match, ...]
    """The places in order. They may overlap, unless every one is to be replaced."""


def find(text: str, old: str, new: str, *, every: bool) -> Found | None:
    """Return where `old` is in the text, found in the first way that finds it; None if no way does."""
    old, new = _ENDINGS.sub("\n", old), _ENDINGS.sub("\n", new)
    for how, search in _WAYS.items():
        matches = tuple(search(text, old, new))
        if matches:
            return Found(how, _apart(matches) if every else matches)
    return None


def _apart(matches: Sequence[Match]) -> tuple[Match, ...]:
    kept: list[Match] = []
    for match in matches:
        if not kept or match.start >= kept[-1].end:
            kept.append(match)
    return tuple(kept)


def _exact(text: str, old: str, new: str) -> Iterator[Match]:
    if old not in _ENDINGS.sub("\n", text):  # which takes linear time, the search for a pattern may not
        return
    pattern = _ENDING.join(map(re.escape, old.split("\n")))
    for found in re.finditer(f"(?=({pattern}))", text):
        start, end = found.span(1)
        yield Match(start, end, new.replace("\n", _ending_at(text, start)))


def _tolerant(text: str, old: str, new: str) -> Iterator[Match]:
    if not old.strip() or _fold_blanks(old) not in _fold_blanks(text):
        return
    *ahead, last = old.translate(_FOLDS).split("\n")
    whole, bare = re.escape(last), re.escape(last.rstrip(_BLANKS))
    if bare not in ("", whole):  # blanks at the end of the last line, which the file may not have
        whole = f"(?:{whole}|{bare}[{_BLANKS}]*(?=\\r?\\n|\\Z))"
    pattern = f"[{_BLANKS}]*{_ENDING}".join([*[re.escape(line.rstrip(_BLANKS)) for line in ahead], whole])
    before, after = old.split("\n"), new.split("\n")
    for found in re.finditer(f"(?=({pattern}))", text.translate(_FOLDS)):
        start, end = found.span(1)
        yield Match(start, end, _merge_lines(text[start:end], before, after, _ending_at(text, start)))


def _fold_blanks(text: str) -> str:
    return "\n".join([line.rstrip(_BLANKS) for line in _ENDINGS.split(text.translate(_FOLDS))])


def _matches_indented(text: str, old: str, new: str) -> Iterator[Match]:
    """Find the same lines, all of them with the same blanks more or less in front."""
    wanted, closing = _whole_lines(old, new)
    if not any(line.strip() for line in wanted):
        return
    ends = [*(found.span() for found in _ENDINGS.finditer(text)), (len(text), len(text))]
    starts = [0, *(after for _, after in ends)]
    lines = [text[start:end] for start, (end, _) in zip(starts, ends, strict=False)]
    for first in _occurrences([_bare(line) for line in lines], [_bare(line) for line in wanted]):
        last = first + len(wanted) - 1
        shift = _shift(wanted, lines[first : last + 1])
        if shift is not None:
            start, end = starts[first], ends[last][0]
            before, after = ([_move_line(line, *shift) for line in each] for each in (wanted, closing))
            yield Match(start, end, _merge_lines(text[start:end], before, after, _ending_at(text, start)))


def _whole_lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the lines of both; a line ending at the end of both belongs to neither."""
    if old.endswith("\n") and (new.endswith("\n") or not new):
        old, new = old[:-1], new.removesuffix("\n")
    return old.split("\n"), new.split("\n")


def _bare(line: str) -> str:
    return line.translate(_FOLDS).strip(_BLANKS)


def _occurrences(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    for first in range(len(lines) - len(wanted) + 1):
        if lines[first] == wanted[0] and lines[first : first + len(wanted)] == wanted:
            yield first


def _shift(wanted: Sequence[str], block: Sequence[str]) -> tuple[str, str] | None:
    """Return the blanks that are missing in front of each line, and those that are too many; None if lines differ."""
    pairs = [(_indent(ours), _indent(theirs)) for ours, theirs in zip(wanted, block, strict=True) if ours.strip()]
    ours, theirs = pairs[0]
    n_missing = len(theirs) - len(ours)
    missing, extra = theirs[: max(0, n_missing)], ours[: max(0, -n_missing)]
    return (missing, extra) if all(missing + ours == extra + theirs for ours, theirs in pairs) else None


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _move_line(line: str, missing: str, extra: str) -> str:
    if not line.strip():
        return line
    # A line further out than all that were compared cannot lose more than it has.
    return missing + (line.removeprefix(extra) if line.startswith(extra) else line.lstrip(" \t"))


_WAYS: Final[dict[How, Callable[[str, str, str], Iterator[Match]]]] = {
    "exact": _exact,
    "tolerant": _tolerant,
    "indented": _matches_indented,
}


def _merge_lines(found: str, old: Sequence[str], new: Sequence[str], ending: str) -> str:
    """Return the new lines; those at the beginning and at the end that are as in the old ones stay as found."""
    endings = _ENDINGS.findall(found)
    texts = _ENDINGS.split(found)
    ahead = _n_common(old, new)
    behind = min(_n_common(old[::-1], new[::-1]), len(old) - ahead, len(new) - ahead)
    kept = [*zip(texts, [*endings, ""], strict=True)]
    middle = [(line, ending) for line in new[ahead : len(new) - behind]]
    pieces = [*kept[:ahead], *middle, *kept[len(kept) - behind :]]
    # The last piece has no ending; one that has become last or is no longer last gives up its own or gets one.
    return "".join(text + (own or ending) for text, own in pieces[:-1]) + pieces[-1][0]


def _n_common(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _ending_at(text: str, start: int) -> str:
    """Return the line ending that new lines get: the first one from the place on, else the last one before it."""
    found = _ENDINGS.search(text, start)
    if found is not None:
        return found.group()
    last = text.rfind("\n", 0, start)
    return "\r\n" if last > 0 and text[last - 1] == "\r" else "\n"


@dataclass(frozen=True, slots=True)
class Similar:
    """A block of lines that is like another."""

    first: int
    """Index of its first line."""
    n_lines: int
    similarity: float
    """How similar it is, from 0 to 1, where 1 has the same words in the same order."""


def similar_blocks(lines: Sequence[str], wanted: Sequence[str], *, at_least: float, n: int) -> list[Similar]:
    """Return up to `n` blocks of as many lines that are like `wanted`, the best one first, none within another."""
    if not wanted or sum(map(len, wanted)) > MAX_CHARS:
        return []
    size = min(len(wanted), len(lines))
    text = "\n".join(wanted)
    compared = [
        Similar(first, size, similarity("\n".join(lines[first : first + size]), text))
        for first in _lines_apart(_by_words(lines, wanted, size, at_least), size)
    ]
    alike = sorted((each for each in compared if each.similarity >= at_least), key=lambda each: -each.similarity)
    return alike[:n]


def similarity(one: str, other: str) -> float:
    """Return how much of two texts is the same, by their words: from 0 to 1. 0 if that would take long to say."""
    if max(len(one), len(other)) > MAX_CHARS:
        return 0.0
    ours, theirs = _TOKEN.findall(one), _TOKEN.findall(other)
    counts = Counter(theirs)
    n_pairs = sum(n * counts[token] for token, n in Counter(ours).items())
    return SequenceMatcher(None, ours, theirs, autojunk=False).ratio() if n_pairs <= _MAX_PAIRS else 0.0


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


def _lines_apart(firsts: Sequence[int], size: int) -> list[int]:
    kept: list[int] = []
    for first in firsts:
        if all(abs(first - other) >= size for other in kept):
            kept.append(first)
            if len(kept) == _N_COMPARED:
                break
    return kept
