"""Reading a CSV file strictly: either every row makes sense, or one line says what is wrong and what to do."""

from __future__ import annotations

import io
from pathlib import Path
from shlex import quote

from journeyman.batch import TableError, TableRow, read_table, separator_meant

MAX_BYTES = 50_000_000
MAX_COLUMNS = 200


class DataError(ValueError):
    """A data file cannot be used. The message is one line: what is wrong, and the next step."""


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the rows of a CSV file; every row has as many fields as there are columns.

    Raises:
        DataError: the file is missing, too large, not UTF-8, or not a table of two columns and one row at least.
    """
    try:
        header, rows = read_table(io.StringIO(_text(path), newline=""))
    except TableError as fault:
        raise DataError(f"{path} cannot be used: {fault}. Correct its first line.") from fault
    columns = _columns(path, header)
    table = [_checked(path, row, columns) for row in rows]
    if not table:
        raise DataError(f"{path} has a header and no rows. Give a CSV file with at least one row of data.")
    return columns, table


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist. Check the path; it is relative to the current folder.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Give a CSV file that you may read.") from error
    if len(data) > MAX_BYTES:
        raise DataError(
            f"{path} is larger than {MAX_BYTES // 1_000_000} MB. Take a part: head -n 100000 {quote(str(path))}"
        )
    if not data.strip():
        raise DataError(f"{path} is empty. Give a CSV file with a header and at least one row.")
    return _decoded(path, data)


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "windows-1252"
        raise DataError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}. "
            f"Convert it, for example: iconv -f {encoding} -t utf-8 {quote(str(path))} > converted.csv"
        ) from None


def _columns(path: Path, header: list[str]) -> list[str]:
    names = [_column_name(text, number) for number, text in enumerate(header, start=1)]
    if len(names) < 2:
        raise DataError(f"{path} has one column only. {_advice_on_separator(header)}")
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{path} has {len(names)} columns, more than {MAX_COLUMNS}. Leave out those you do not need.")
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise DataError(f"{path} has two columns named {name!r}. Rename one of them in the first line.")
        seen.add(name.lower())
    return names


def _column_name(text: str, number: int) -> str:
    """Return a name that is printable, without double quotes, and not empty."""
    printable = "".join(character if character.isprintable() else " " for character in text.replace('"', ""))
    return " ".join(printable.split()) or f"column {number}"


def _advice_on_separator(header: list[str]) -> str:
    if (separator := separator_meant(header)) is not None:
        return f"Its fields seem to be separated by {separator[1]}: save it with commas."
    return "Give a table with two columns or more, separated by commas."


def _checked(path: Path, row: TableRow, columns: list[str]) -> list[str]:
    if row.error:
        raise DataError(f"{path} is no CSV from line {row.last_line} on ({row.error}). Check the quotes there.")
    if row.fault:
        fields = "1 field" if len(row.cells) == 1 else f"{len(row.cells)} fields"
        raise DataError(
            f"{path} has {len(columns)} columns, but {fields} in line {row.last_line}. "
            "Put fields that hold commas in double quotes."
        )
    return [*row.cells]
