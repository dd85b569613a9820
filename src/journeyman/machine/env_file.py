"""Files of variables, as `docker`, `uv` and many tools read them: `NAME=value` in lines.

None is read unless it is named: a file of the current folder may be a stranger's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_LARGEST_BYTES: Final = 1_000_000
_LINE: Final = re.compile(
    r"""[ \t]*(?:
        (?:\#[^\n]*)?
        | (?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)[ \t]*=(?:
            [ \t]*(?:'(?P<plain>[^']*)'|"(?P<escaped>(?:[^"\\]|\\.)*)")[ \t]*(?:\#[^\n]*)?
            | (?![ \t]*['"])(?P<bare>[^\n]*)
        )
    )(?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT: Final = re.compile(r"[ \t]#")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the variables of a file. Values stay as they are: nothing is put in for `${NAME}`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too large, not UTF-8, or has a line that gives no variable; the text holds no value.
    """
    with Path(path).open("rb") as file:
        data = file.read(_LARGEST_BYTES + 1)
    if len(data) > _LARGEST_BYTES:
        raise ValueError(f"it has more than {_LARGEST_BYTES:,} bytes")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}") from None
    variables: dict[str, str] = {}
    place = 0
    while place < len(text):
        found = _LINE.match(text, place)
        if found is None or "\0" in found[0]:
            number = text.count("\n", 0, place) + 1
            raise ValueError(f"line {number} is not NAME=value, or a quote in it is not closed")
        if found["name"]:
            escaped = re.sub(r"\\(.)", lambda each: _ESCAPES.get(each[1], each[1]), found["escaped"] or "", flags=re.S)
            bare = _COMMENT.split(found["bare"] or "", maxsplit=1)[0].strip()
            variables[found["name"]] = found["plain"] or escaped or bare
        place = found.end()
    return variables


def hint_of_env_file(names: Iterable[str | None]) -> str:
    """Return what to do for a variable that is not set but stands in `.env` of the current folder; empty if none is."""
    try:
        held = read_env_file(".env")
    except (OSError, ValueError):
        return ""  # nobody has named it
    name = next((name for name in names if name is not None and held.get(name, "").strip()), None)
    if name is None:
        return ""
    return (
        f"{name} stands in .env, which is not read unless it is named: journeyman --env-file .env …, or set"
        " JOURNEYMAN_ENV_FILE=.env; for a program of your own: uv run --env-file .env …"
    )
