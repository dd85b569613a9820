"""Files that several processes share: written whole, and locked.

Whoever reads a file that was replaced here finds what was there before, or all of what is new, also after a crash. A
lock is one of the system's, never a file that stands for a lock: so it ends with the process that holds it.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from errno import ENOSYS
from importlib.util import find_spec
from pathlib import Path
from pkgutil import get_data
from typing import Final, cast

from journeyman.errors import StoreError

NO_LINKS: Final[int] = getattr(os, "O_NOFOLLOW", 0)
"""The flag of `os.open` that refuses a symbolic link, where the system has one."""

_NAME_CHARACTERS: Final = 100  # a name with more may not have room for what is added


def read_text(package: str, name: str) -> str:
    """Return the text of a file that comes with a package of ours."""
    return cast("bytes", get_data(package, name)).decode()


def is_inside(path: str, folder: str) -> bool:
    """Tell whether a path is a folder, or somewhere in it. Both are absolute."""
    return path == folder or path.startswith("/" if folder == "/" else f"{folder}/")


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """Replace the file at `path` at once, or not at all; it then has the permissions `mode`.

    Raises:
        OSError: the folder does not exist or cannot be written, or there is no room.
    """
    new = path.with_name(f".{path.name[:_NAME_CHARACTERS]}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
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


def make_private_folder(folder: Path) -> None:
    """Make a folder and those around it, if they are not there. What is made, its owner alone may enter.

    Raises:
        OSError: it cannot be made, or something else has its name.
    """
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def private(path: str, flags: int) -> int:
    """Open a file as its owner's alone if it is made: `open(path, "x", opener=private)`."""
    return os.open(path, flags, 0o600)


def open_lock(path: Path) -> int:
    """Return the descriptor of a lock file, which its owner alone can read. It is made if it is not there.

    Raises:
        OSError: it cannot be opened, or it is a symbolic link.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | NO_LINKS, 0o600)


def check_same_process(pid: int, what: str) -> None:
    """Refuse to use, in a forked child, a connection that process `pid` has opened: both would use it at once.

    Raises:
        StoreError: this is another process.
    """
    if os.getpid() != pid:
        raise StoreError(f"{what} was opened before this process was forked.", hint="Open it again in each process.")


def take_lock(file: int, *, wait: bool = False) -> bool:
    """Lock an open file until it is closed. False: somebody holds the lock, and this is not to `wait`.

    Raises:
        OSError: this system, or the file system, cannot lock files.
    """
    if find_spec("fcntl") is None and find_spec("msvcrt") is None:
        raise OSError(ENOSYS, "this system cannot lock files: its Python has neither fcntl nor msvcrt")
    from filelock import lock_descriptor

    return lock_descriptor(file, blocking=wait, poll_interval=0.005)
