"""The tool `edit`: one text for another, in a file that was read. Imports `bench`, `matching` and `similar`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from journeyman.toolbox.bench import Bench, content
from journeyman.toolbox.coding import text_of
from journeyman.toolbox.matching import Found, Match, find
from journeyman.toolbox.reach import Located
from journeyman.toolbox.refusal import Refusal
from journeyman.toolbox.similar import similar_blocks
from journeyman.tools.tool import tool

if TYPE_CHECKING:
    from journeyman.tools.tool import AnyTool

_N_SIMILAR: Final = 3
_SIMILAR: Final = 0.6
_LINES_SHOWN: Final = 12
_NUMBERED = re.compile(r" *\d+\t")


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
            raise Refusal("invalid", "old_text is empty. Give the text to replace; to make a new file, write it.")
        if old_text == new_text:
            raise Refusal("invalid", "old_text and new_text are the same, so there is nothing to change.")
        located, facts = bench.reach.existing(path)
        if facts.kind != "file":
            raise Refusal("invalid", f"{located.shown} is not a regular file, so it cannot be edited.")
        bench.reach.locate(path, writing=True)
        with bench.stamps.writing:
            return _edited(bench, located, old_text, new_text, every=replace_all)

    return tool(edit, effect="once")


def _edited(bench: Bench, located: Located, old: str, new: str, *, every: bool) -> str:
    data = content(located)
    text, coding = text_of(data, located.shown)
    bench.stamps.check(located.path, located.shown, data)
    found = find(text, old, new, every=every)
    if found is None:
        raise Refusal("no_match", _no_match(located, text, old))
    if len(found.matches) > 1 and not every:
        raise Refusal("ambiguous", _ambiguous(located, text, found))
    changed = replaced(text, found.matches)
    after = coding.encode(changed)
    if after == data:
        raise Refusal("invalid", f"{located.shown} is already as it would be after this edit.")
    located.files.replace(located.path, after)
    bench.stamps.wrote(located.path, after)
    return _report(located, text, changed, found)


def replaced(text: str, matches: tuple[Match, ...]) -> str:
    """Return the text with each of the places replaced; they do not overlap."""
    pieces: list[str] = []
    end = 0
    for match in matches:
        pieces += [text[end : match.start], match.replacement]
        end = match.end
    return "".join([*pieces, text[end:]])


def _line_at(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1


_ANCHORED: Final = " The old text was found by its first and last line; all in all it was {:.0%} similar."
_HOW: Final = {
    "exact": "",
    "tolerant": " The old text was found with other quotes, dashes or blanks.",
    "indented": " The old text was found with another indentation; the new text was moved accordingly.",
}


def _report(located: Located, text: str, changed: str, found: Found) -> str:
    first = found.matches[0]
    line = _line_at(text, first.start)
    places = "1 place" if len(found.matches) == 1 else f"{len(found.matches)} places"
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
    if wanted and all(_NUMBERED.match(line) for line in wanted):
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
