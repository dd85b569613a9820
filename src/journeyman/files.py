"""Writing a file whole: whoever reads it finds what was there before, or all of what is new, also after a crash.

Imports nothing of this package.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

_NAME_CHARACTERS: Final = 100  # a name with more may not have room for what is added


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """Replace the file at `path` at once, or not at all; it then has the permissions `mode`.

    Raises:
        OSError: the folder does not exist or cannot be written, or there is no room.
    """
    new = path.with_name(f".{path.name[:_NAME_CHARACTERS]}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        new.chmod(mode)
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
