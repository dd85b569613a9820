"""The tool `edit`: one text for another, in a file that was read.

There are four ways to find the old text, each tried only where those before it found nothing: the very text; the text
except quotes, dashes, odd spaces and blanks at line ends; the same lines with another indentation; a block that begins
and ends with the same lines and is similar in between. All but the first keep lines that the edit does not change as
they are in the file. Line endings are never compared, and new lines get those of the lines around them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise, takewhile
from typing import Final, Literal, TypeAlias

from journeyman.errors import count
from journeyman.toolbox.files import Located, ToolRefused, decode_file
from journeyman.toolbox.workspace_state import Bench
from journeyman.tools.tools import AnyTool, tool

MAX_CHARS: Final = 20_000
"""The longest text that is compared word by word."""
SIMILAR_ENOUGH: Final = 0.8
"""How similar a block between two lines that match must be, from 0 to 1."""
_N_COMPARED: Final = 8
_MAX_PAIRS: Final = 500_000  # of equal words: a matcher looks at each, some of them several times
_FEWEST_ANCHORED: Final = 3
_MOST_COMPARED: Final = 50
_N_SIMILAR: Final = 3
_SIMILAR: Final = 0.6  # from this ratio on, difflib calls sequences close
_LINES_SHOWN: Final = 12
_NUMBERED = re.compile(r" *\d+\t")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_ENDING: Final = r"(?:\r\n|(?<!\r)\n)"
_ENDINGS = re.compile(r"\r?\n")
_BLANKS: Final = " \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_ALIKE: Final = ("'\u2018\u2019\u201a\u201b\u2032", '"\u201c\u201d\u201e\u201f\u2033', "-\u2010-\u2015\u2212")
_SPACE: Final = " \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
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
_ODD_BLANKS: Final = " \t" + "".join(chr(char) for char, to in _FOLDS.items() if to == " ")
_ANCHORED: Final = " The old text was found by its first and last line; all in all it was {:.0%} similar."
_HOW: Final = {
    "exact": "",
    "tolerant": " The old text was found with other quotes, dashes or blanks.",
    "indented": " The old text was found with another indentation; the new text was moved accordingly.",
}
How: TypeAlias = Literal["exact", "tolerant", "indented", "anchored"]


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
    how = _HOW.get(found.how, _ANCHORED.format(first.similarity))
    report = f"Edited {located.shown}: {places}, {'at' if len(found.matches) == 1 else 'from'} line {line}.{how}"
    if found.how == "exact":
        return report
    last = line + min(first.replacement.count("\n"), _LINES_SHOWN - 1)
    shown = [f"{line + n}\t{each}" for n, each in enumerate(changed.split("\n")[line - 1 : last])]
    return "\n".join([f"{report} It now reads:", *(each.removesuffix("\r") for each in shown)])


def _ambiguous(located: Located, text: str, found: Found) -> str:
    lines = [_line_at(text, match.start) for match in found.matches]
    listed = ", ".join(map(str, lines[:10])) + (" and more" if len(lines) > 10 else "")
    advice = "Give more of the lines around the one that you mean"
    if found.how != "anchored":
        advice += ", or replace_all=true"
    return f"old_text is in {located.shown} {len(lines)} times, from lines {listed}. {advice}."


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
        shown.append(f"{block.similarity:.0%} similar, from line {block.first + 1}:")
        shown += [f"{n}\t{line}" for n, line in enumerate(lines[block.first : last], start=block.first + 1)]
    return "\n".join([line.removesuffix("\r") for line in shown])


def _line_at(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1


# -- where the old text is ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Match:
    """A place in the text, and what shall stand there."""

    start: int
    end: int
    replacement: str
    similarity: float = 1.0


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


# -- the very text, and the text except for its typography ------------------------------------------------------------


def _exact(text: str, old: str, new: str) -> Iterator[Match]:
    if old not in _ENDINGS.sub("\n", text):  # which takes linear time, the search for a pattern may not
        return
    pattern = _ENDING.join(map(re.escape, old.split("\n")))
    for found in re.finditer(f"(?=({pattern}))", text):
        start, end = found.span(1)
        yield Match(start, end, new.replace("\n", _ending_at(text, start)))


def _tolerant(text: str, old: str, new: str) -> Iterator[Match]:
    lines = old.split("\n")
    if not old.strip() or _fold_blanks(old) not in _fold_blanks(text):
        return
    stripped = [line.rstrip(_ODD_BLANKS) for line in lines[:-1]]
    pattern = f"[{_BLANKS}]*{_ENDING}".join(["".join(map(_alike, line)) for line in [*stripped, lines[-1]]])
    ends_blank = lines[-1].rstrip(_ODD_BLANKS)
    if ends_blank != lines[-1] and ends_blank:  # blanks at the end of the last line, which the file may not have
        last = "".join(map(_alike, ends_blank))
        whole = "".join(map(_alike, lines[-1]))
        pattern = pattern.removesuffix(whole) + f"(?:{whole}|{last}[{_BLANKS}]*(?=\\r?\\n|\\Z))"
    for found in re.finditer(f"(?=({pattern}))", text):
        start, end = found.span(1)
        yield Match(start, end, _merge_lines(text[start:end], lines, new.split("\n"), _ending_at(text, start)))


def _fold_blanks(text: str) -> str:
    return "\n".join([line.rstrip(_ODD_BLANKS) for line in _ENDINGS.split(text)]).translate(_FOLDS)


def _alike(char: str) -> str:
    folded = char.translate(_FOLDS)
    if folded == " ":
        return f"[{_SPACE}]"
    group = next((group for group in _ALIKE if group[0] == folded), None)
    return re.escape(char) if group is None else f"[{re.escape(group[0])}{group[1:]}]"


# -- whole lines -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Lines:
    """A text, line by line, with where each begins and ends."""

    texts: list[str]
    spans: list[tuple[int, int]]
    """Where each line begins and ends, its ending left out."""

    @classmethod
    def of(cls, text: str) -> _Lines:
        ends = [*(found.span() for found in _ENDINGS.finditer(text)), (len(text), len(text))]
        starts = [0, *(after for _, after in ends)]
        spans = [(start, end) for start, (end, _) in zip(starts, ends, strict=False)]
        return cls([text[start:end] for start, end in spans], spans)

    def match(self, text: str, block: range, replace: Callable[[str, str], str], alike: float = 1.0) -> Match:
        start, end = self.spans[block[0]][0], self.spans[block[-1]][1]
        return Match(start, end, replace(text[start:end], _ending_at(text, start)), alike)


def _matches_indented(text: str, old: str, new: str) -> Iterator[Match]:
    """Find the same lines, all of them moved in or out in one way."""
    wanted, closing = _whole_lines(old, new)
    if not any(line.strip() for line in wanted):
        return
    lines = _Lines.of(text)
    goal, bare = [_bare(line) for line in wanted], [_bare(line) for line in lines.texts]
    for first in _occurrences(bare, goal):
        block = lines.texts[first : first + len(goal)]
        shift = _shift(wanted, block)
        if shift is not None:

            def replace(found: str, ending: str, shift: dict[str, str] = shift) -> str:
                moved = [_move_line(line, shift) for line in closing]
                return _merge_lines(found, [_move_line(line, shift) for line in wanted], moved, ending)

            yield lines.match(text, range(first, first + len(goal)), replace)


def _matches_by_anchors(text: str, old: str, new: str) -> Iterator[Match]:
    """Find blocks that begin and end with the same lines, and are similar in between."""
    wanted, closing = _whole_lines(old, new)
    if len(wanted) < _FEWEST_ANCHORED or not (wanted[0].strip() and wanted[-1].strip()):
        return
    lines = _Lines.of(text)
    bare = [_bare(line) for line in lines.texts]
    for n, block in enumerate(_between(bare, _bare(wanted[0]), _bare(wanted[-1]), len(wanted))):
        if n == _MOST_COMPARED:
            return
        found = [lines.texts[index] for index in block]
        alike = similarity("\n".join(found), "\n".join(wanted))
        shift = _shift([wanted[0], wanted[-1]], [found[0], found[-1]])
        if alike >= SIMILAR_ENOUGH and shift is not None:

            def replace(found: str, ending: str, shift: dict[str, str] = shift) -> str:
                return ending.join([_move_line(line, shift) for line in closing])

            yield lines.match(text, block, replace, alike)


def _between(lines: Sequence[str], first_line: str, last_line: str, n_lines: int) -> Iterator[range]:
    """Give the blocks of about `n_lines` lines that begin and end with these."""
    slack = max(1, n_lines // 4)
    for first in (index for index, line in enumerate(lines) if line == first_line):
        for last in range(first + max(1, n_lines - 1 - slack), min(len(lines), first + n_lines + slack)):
            if lines[last] == last_line:
                yield range(first, last + 1)


_WAYS: Final[dict[How, Callable[[str, str, str], Iterator[Match]]]] = {
    "exact": _exact,
    "tolerant": _tolerant,
    "indented": _matches_indented,
    "anchored": _matches_by_anchors,
}


def _whole_lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the lines of both; a line ending at the end of both belongs to neither."""
    if old.endswith("\n") and (new.endswith("\n") or not new):
        old, new = old[:-1], new.removesuffix("\n")
    return old.split("\n"), new.split("\n")


def _bare(line: str) -> str:
    return line.strip(_ODD_BLANKS).translate(_FOLDS)


def _occurrences(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    for first in range(len(lines) - len(wanted) + 1):
        if lines[first] == wanted[0] and lines[first : first + len(wanted)] == wanted:
            yield first


# -- indentation -------------------------------------------------------------------------------------------------------


def _indent(line: str) -> str:
    return "".join(takewhile(lambda char: char in " \t", line))


def _shift(wanted: Sequence[str], block: Sequence[str]) -> dict[str, str] | None:
    """Return what each indentation is in the file; None if one is two, or if what is deeper is not deeper there."""
    shift: dict[str, str] = {}
    for ours, theirs in zip(wanted, block, strict=True):
        if ours.strip() and shift.setdefault(_indent(ours), _indent(theirs)) != _indent(theirs):
            return None
    widths = [len(theirs) for _, theirs in sorted(shift.items(), key=lambda pair: len(pair[0]))]
    return shift if widths == sorted({*widths}) else None


def _move_line(line: str, shift: dict[str, str]) -> str:
    indent = _indent(line)
    if not line.strip():
        return line
    near = max((each for each in shift if indent.startswith(each)), key=len, default=None)
    if near is None:
        return _outwards(line, indent, shift)
    return shift[near] + _convert_indent(indent[len(near) :], shift) + line[len(indent) :]


def _outwards(line: str, indent: str, shift: dict[str, str]) -> str:
    """Move a line that is further out than all that were compared, by as much as the outermost of those."""
    ours, theirs = min(shift.items(), key=lambda pair: len(pair[0]))
    missing = ours.removeprefix(indent) if ours.startswith(indent) else ours
    converted = _convert_indent(missing, shift)
    return (theirs.removesuffix(converted) if theirs.endswith(converted) else "") + line[len(indent) :]


def _convert_indent(blanks: str, shift: dict[str, str]) -> str:
    """Return blanks in the kind that the file is indented with."""
    for ours, theirs in _steps(shift):
        if {*ours} == {" "} and {*theirs} == {"\t"}:
            unit = max(1, len(ours) // len(theirs))
            return "\t" * (len(blanks) // unit) if {*blanks} <= {" "} else blanks
        if {*ours} == {"\t"} and {*theirs} == {" "}:
            return blanks.replace("\t", " " * max(1, len(theirs) // len(ours)))
    return blanks


def _steps(shift: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Give what each indentation has more than the one before it, there and here; then the whole of each."""
    pairs = sorted(shift.items(), key=lambda pair: len(pair[0]))
    for (outer, outer_there), (inner, inner_there) in pairwise(pairs):
        yield inner.removeprefix(outer), inner_there.removeprefix(outer_there)
    yield from pairs


# -- what stands there afterwards --------------------------------------------------------------------------------------


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


# -- what is similar ---------------------------------------------------------------------------------------------------


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
