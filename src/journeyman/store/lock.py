"""One writer for each session: a lock beside the file, which dies with the process that holds it.

The lock is the system's, on a file of its own: the number in that file is only for the message. Imports `errors`.
"""

from __future__ import annotations

import fcntl
import os
from hashlib import sha256
from pathlib import Path
from typing import Final

from journeyman.errors import SessionInUse, StoreError

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Lock:
    """Held from when it is made until it is released, or the process dies."""

    def __init__(self, store: Path, name: str, *, what: str) -> None:
        """Take the lock called `name`; `what` it is for is said in the error.

        Raises:
            SessionInUse: somebody holds it.
            StoreError: it cannot be made.
        """
        self._path = store.with_name(f"{store.name}-{_safe(name)}.lock")
        self._file = self._taken(what)

    def _taken(self, what: str) -> int:
        while True:
            try:
                file = os.open(self._path, _FLAGS, 0o600)
            except OSError as error:
                hint = "Make the folder writable, or use another path."
                raise StoreError(f"{self._path} could not be opened: {error.strerror}.", hint=hint) from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = _pid(file)
                os.close(file)
                raise _in_use(what, pid) from None
            if self._is_there(file):
                os.truncate(file, 0)
                os.pwrite(file, str(os.getpid()).encode(), 0)
                return file
            os.close(file)  # who held it took it away in this moment

    def _is_there(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let somebody else take it. Again, it changes nothing."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def locks_of(store: Path) -> list[Path]:
    """Return the lock files that are there, held or left behind."""
    return sorted(store.parent.glob(f"{_escaped(store.name)}-*.lock"))


def check_free(store: Path, *, what: str) -> None:
    """Raise `SessionInUse` if anybody holds a lock of the store."""
    for path in locks_of(store):
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(what, _pid(file)) from None
        finally:
            os.close(file)


def _in_use(what: str, pid: int | None) -> SessionInUse:
    whose = "this process" if pid == os.getpid() else f"process {pid}" if pid else "another process"
    return SessionInUse(f"{what} is open in {whose}.", hint="Close it there first, or open another one.", pid=pid)


def _pid(file: int) -> int | None:
    text = os.pread(file, 20, 0)
    return int(text) if text.isdigit() else None


def _safe(name: str) -> str:
    return name if name.isalnum() and name.isascii() and len(name) <= 32 else sha256(name.encode()).hexdigest()[:16]


def _escaped(name: str) -> str:
    return "".join(f"[{each}]" if each in "*?[" else each for each in name)
