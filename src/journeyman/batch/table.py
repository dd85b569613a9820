"""Tables of text, read strictly: every row makes sense, or is told by its line. No row is dropped in silence."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from journeyman.definition.data import lazy_dataclass

_SEPARATORS: Final = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
"""What stands between the cells of a table, and its name."""
# `csv` itself refuses more than 131,072 characters.
_LONGEST_CELL: Final = 16 * 1024 * 1024
_END: Final = "unexpected end of data"
"""How `csv` tells that a quote is still open where the file ends."""


class TableError(ValueError):
    """The header of a table cannot be used; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


@lazy_dataclass(frozen=True, kw_only=True)
class TableRow:
    """A row that is not blank."""

    first_line: int
    """The number of the line where it begins, from 1."""
    last_line: int
    """The number of the line where it ends."""
    cells: Sequence[str] = ()
    """As many as the header has, unless there is a fault."""
    fault: str = ""
    """Why it is none; empty if it is one."""
    error: str = ""
    """The words of the parser, where it could not read the row."""


def separator_meant(header: Sequence[str], separator: str = ",") -> tuple[str, str] | None:
    """Return what the cells of a header of one cell seem to be separated by, and its name; None if it is one cell."""
    if len(header) != 1:
        return None
    return next((each for each in _SEPARATORS.items() if each[0] in header[0] and each[0] != separator), None)


def read_table(lines: Iterator[str], separator: str = ",") -> tuple[list[str], Iterator[TableRow]]:
    """Return the header and the rows of a table. The lines are read one after the other, as the rows are taken.

    Raises:
        TableError: there is no header, or two of its columns have one name.
    """
    # It holds for the whole process, where others may have set it since.
    csv.field_size_limit(_LONGEST_CELL)
    # Without `strict`, quotes in wrong places are read as something, and nobody is told.
    reader = csv.reader(lines, strict=True, delimiter=separator)
    try:
        header = next((row for row in reader if row), list[str]())
    except csv.Error as error:
        raise TableError(f"its header cannot be read: {error}") from error
    if not any(name.strip() for name in header):
        raise TableError("it has no header: its first line has to name the columns")
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise TableError(f"it has two columns named {twice[0]!r}")

    def read_rows() -> Iterator[TableRow]:
        while True:
            first = reader.line_num + 1
            try:
                # By hand: a `for` would end with the first fault, and a reader can go on behind one.
                cells = reader.__next__()
            except StopIteration:
                return
            except csv.Error as error:
                # `csv` has one class for all faults, so only the words tell which it is.
                fault = "its quote is never closed" if str(error) == _END else f"it is no CSV: {error}"
                yield TableRow(first_line=first, last_line=reader.line_num, fault=fault, error=str(error))
                continue
            if not cells:
                continue
            fault = "" if len(cells) == len(header) else f"it has {len(cells)} cells, and the header has {len(header)}"
            yield TableRow(first_line=first, last_line=reader.line_num, cells=cells, fault=fault)

    return header, read_rows()
