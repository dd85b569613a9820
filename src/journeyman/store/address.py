"""The address of a store: one rule for what may be given, wherever a store is named.

What is neither a path nor a URL is refused. Taken for the name of a new file, it would be an empty store that nobody
looks for, with the password of a database in its name. For the same reason no message repeats what may hold one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from journeyman.errors import StoreError, quoted
from journeyman.store.database import SCHEMES

_FORMS: Final = "a path, sqlite:PATH, or postgresql://…"
# Of two letters at least: C: is a drive.
_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):")
_FAULTS: Final = (
    (r"^\s*$|\0", "it is not a path"),
    (r"^[\"'`]|[\"'`]$", "it begins or ends with a quote, as an env-file keeps it: leave the quotes out"),
    (r"^\s|\s$", "it begins or ends with a blank"),
    (r"^\$|\$\{", "it is the name of a variable, and not what it holds"),
    (
        r"(?:^|\s)(?:host|hostaddr|port|dbname|user|password|passfile|service|sslmode|options)\s*=",
        "it is in the form host=… dbname=…: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE instead",
    ),
)
"""What no text is that names a store, and why."""
_SECRET: Final = re.compile(r"[@=]|pass|pwd", re.IGNORECASE)
_SHOWN_CHARS: Final = 80


def read_address(given: str | os.PathLike[str]) -> str | Path:
    """Return the URL of a database as it is, or the path of a file. A `Path` may have any name.

    Raises:
        ValueError: it is neither.
    """
    text = os.fspath(given)
    problem = _fault_of_text(text) if isinstance(given, str) else _fault_of_path(text)
    if problem is not None:
        shown = "" if _SECRET.search(text) else f"{quoted(text[:_SHOWN_CHARS])} "
        raise ValueError(f"The store {shown}cannot be used: {problem}. Give {_FORMS}.")
    if isinstance(given, str) and text.partition("://")[0] in SCHEMES:
        return text
    return Path(text.removeprefix("sqlite:") if isinstance(given, str) else text)


def find_store(given: str | os.PathLike[str]) -> str | Path:
    """Return the URL of a database, or the absolute path of a file.

    Raises:
        StoreError: it is neither.
    """
    try:
        read = read_address(given)
    except ValueError as error:
        raise StoreError(str(error), hint="Nothing was opened.") from None
    return read.absolute() if isinstance(read, Path) else read


def _fault_of_path(text: str) -> str | None:
    if not text.strip() or "\0" in text:
        return "it is not a path"
    if re.match(rf"(?:{'|'.join(SCHEMES)}):/", text):
        return "it is a URL that was made a Path, which changes it: pass the text"
    return None


def _fault_of_text(text: str) -> str | None:
    fault = next((why for pattern, why in _FAULTS if re.search(pattern, text)), None)
    kind = _SCHEME.match(text)
    if fault is not None:
        return fault
    if kind is None:
        return "it is no URL of a database that is known" if "://" in text else None
    has_slashes = text.startswith("//", kind.end())
    if kind[1] in SCHEMES:
        return None if has_slashes else f"behind {kind[0]} there is no //"
    if kind[1] != "sqlite":
        return f"there is no kind {kind[1]!r}"
    return "a file is named without //, as in sqlite:runs.db" if has_slashes else _fault_of_path(text[kind.end() :])
