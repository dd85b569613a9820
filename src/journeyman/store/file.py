"""The SQLite file of a store, and the locks beside it.

Rows are only ever added, apart from `Store.delete`. Every write is a transaction of its own in a write-ahead log,
without waiting for the disk: it survives the death of the process at any point and takes some 30 microseconds, so that
it is made where the event loop runs. A power cut may cost the last moments, and never tears a record. Only what must
not be undone waits for the disk, in a synced transaction: that a call begins which must not be made twice, and how runs
end.

A session has one writer: a lock on a file beside the store, which dies with the process that holds it. The number in
that file is only for the message.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from glob import escape
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, Final, NamedTuple, TypeAlias

from journeyman.errors import SessionInUse, StoreError
from journeyman.machine.files import NO_LINKS, check_same_process, make_private_folder, open_lock, read_text, take_lock
from journeyman.machine.forks import hold_at_forks
from journeyman.store.codec import check_version

WorkOutcome: TypeAlias = tuple[Any, Exception | None]
"""The value that a work returned, or the error with which it failed."""

VERSION: Final = 7
"""The version of the format. A file of another one is not touched: those before this one were never released."""

# "jmn1" in letters.
APPLICATION: Final = 0x6A6D6E31
"""Marks a file as a store of this library."""

MAGIC: Final = b"SQLite format 3\x00"

# As long as Python's own module for SQLite waits.
BUSY_S: Final = 5.0

_PAGES_IN_LOG: Final = 1_000
"""With so many pages the log is brought into the file. SQLite's own default."""

GROUP: Final = "JOURNEYMAN_STORE_GROUP"
"""The environment variable with the number of the group whose members may write to stores."""

# SQLite holds locks of its own while it opens a file: a child that is forked in that moment would wait for them
# forever.
_CONNECTING: Final = threading.Lock()
hold_at_forks(_CONNECTING)


def file_tables() -> str:
    """Return the statements that make the tables of a store."""
    return read_text("journeyman.store", "file.sql")


class FileKind(NamedTuple):
    """A kind of file: a store, or the recordings beside it."""

    application: int
    """Marks a file as one of this kind."""
    version: int
    tables: Callable[[], str]
    """Returns the statements that make its tables, each ended by a semicolon."""
    first: str = ""
    """A query that is made as it is opened: its head may be all that is sound."""


STORE: Final = FileKind(APPLICATION, VERSION, file_tables)


class Damaged(StoreError):
    """The file, or a part of it, is not as it was written."""


class File:
    """An open store. Any thread may use it; one does at a time.

    Raises, from every method:
        StoreError: it cannot be read or written. Of what was to be written, nothing is stored.
        Damaged: it is not as it was written.
    """

    def __init__(self, path: Path, *, busy_s: float = BUSY_S, kind: FileKind = STORE) -> None:
        """Open the file at `path`, and make it if it is not there.

        What another process keeps waiting for more than `busy_s` is a `StoreError` that `is_busy`.

        Raises:
            StoreError: it cannot be opened, or it is not a store that this version can read.
        """
        self.path = path
        self.is_damaged = False
        """True once damage was found."""
        # It may be taken twice: a transaction reads while it writes.
        self._lock = threading.RLock()
        hold_at_forks(self._lock)
        self._busy_ms = int(busy_s * 1000)
        self._pid = os.getpid()
        with self._reporting("opened"):
            make_private_folder(path.parent)
            if not path.exists():
                _check_no_log(path)
                # SQLite would make a file that others can read.
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            self._stat = path.stat()
            _check_writers(path, self._stat)
            with _CONNECTING:
                # No transaction of Python's own, which would begin at some statements and not at others; and any thread
                # may use it, one at a time by the lock here. However short the file waits later, it waits while others
                # make it.
                self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            with self._reporting("opened"):
                self._prepare(kind)
                self._connection.execute(f"PRAGMA busy_timeout = {self._busy_ms}")
                self._check_place()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, kind: FileKind) -> None:
        if self._fact("application_id") == kind.application:
            check_version(f"{self.path} has format", self._fact("user_version"), kind.version)
        else:
            has_tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
            if has_tables and self._fact("application_id") != kind.application:  # else they were made in this moment
                raise not_a_store(self.path)
            # Before the tables: it cannot be changed within a transaction.
            self._connection.execute("PRAGMA journal_mode = WAL")
            facts = f"PRAGMA user_version = {kind.version}; PRAGMA application_id = {kind.application}"
            with self.transaction() as connection:
                # Unless another process has made them since it was asked.
                is_made = self._fact("application_id") == kind.application
                for statement in () if is_made else filter(str.strip, f"{kind.tables()}{facts}".split(";")):
                    connection.execute(statement)
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if kind.first:
            self._connection.execute(kind.first).fetchall()

    @property
    def is_there(self) -> bool:
        """True: whoever opens the path now finds this file."""
        try:
            return os.path.samestat(self.path.stat(), self._stat)
        except FileNotFoundError:
            return False

    def _check_place(self) -> None:
        """Raise a `StoreError` if whoever opens the path now does not find this file: what is written would be lost,
        and what it says was done would be done again."""
        if not self.is_there:
            raise StoreError(
                f"{self.path} was moved, removed or replaced while it was open, so nothing more is written to it.",
                hint="Put the file back, with its -wal file, and begin again: what had been written is all there.",
            )

    def _fact(self, name: str) -> int:
        return self._connection.execute(f"PRAGMA {name}").fetchone()[0]

    @contextmanager
    def transaction(self, *, waits: bool = True) -> Generator[sqlite3.Connection]:
        """Write what the block writes: all of it, or nothing if it raises. Unless it `waits`, another process that
        writes is at once a `StoreError` that `is_busy`."""
        check_same_process(self._pid, str(self.path))
        with self._reporting("written"):
            try:
                if not waits:
                    self._connection.execute("PRAGMA busy_timeout = 0")
                # For writing from the beginning: who reads first and then writes gets an error, and no wait, if
                # somebody wrote meanwhile.
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._check_place()
                self._connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            finally:
                if not waits:
                    self._connection.execute(f"PRAGMA busy_timeout = {self._busy_ms}")

    def _roll_back(self) -> None:
        # At a full disk, SQLite has taken the transaction back by itself.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    @contextmanager
    def synced_transaction(self) -> Generator[None]:
        """Begin a transaction in which `attempt` writes, and which `commit` brings to the disk, with all that was
        written before it: after that it survives a power cut. Without `commit` it is taken back.

        The thread that commits may be another one, so whoever begins it sees to it that nobody else uses the file. One
        that goes away meanwhile is a `StoreError`.
        """
        check_same_process(self._pid, str(self.path))
        try:
            with self._reporting("written"):
                # Before it begins: SQLite does not change that within a transaction.
                self._connection.execute("PRAGMA synchronous = FULL")
                # Whoever commits brings the log into the file, too, once it is long.
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_IN_LOG}")
                self._connection.execute("BEGIN IMMEDIATE")
                self._check_place()
            yield
            with self._reporting("written"):
                self._check_place()  # it may have gone while the disk was waited for
        finally:
            with self._lock:
                self._roll_back()
                # Also after an error: all that follows on this connection would wait for the disk.
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute("PRAGMA wal_autocheckpoint = 0")

    def attempt(self, works: Iterable[Callable[[sqlite3.Connection], Any]]) -> list[WorkOutcome]:
        """Do several works in a synced transaction. What one wrote that fails is taken back, and no more.

        Raises:
            StoreError: SQLite has taken back all of them, as it does where the disk is full.
        """
        tried: list[WorkOutcome] = []
        with self._reporting("written"):
            for work in works:
                self._connection.execute("SAVEPOINT work")
                try:
                    tried.append((work(self._connection), None))
                except Exception as error:
                    if not self._connection.in_transaction:
                        raise
                    self._connection.execute("ROLLBACK TO work")
                    tried.append((None, self._reported("written", error) if isinstance(error, _FAULTS) else error))
                self._connection.execute("RELEASE work")
        return tried

    def commit(self) -> None:
        """Bring a synced transaction to the disk. It takes milliseconds."""
        with self._reporting("written"):
            try:
                self._connection.execute("COMMIT")
            except BaseException:
                self._roll_back()  # here, since whoever began it may wait for the file
                raise

    def write(self, statement: str, parameters: Sequence[object]) -> int:
        """Write what one statement writes, as a transaction does, and return how many rows that are. It costs less than
        a transaction: SQLite makes one of a statement by itself."""
        check_same_process(self._pid, str(self.path))
        with self._lock:
            try:
                # At each write: who moves a file that is open leaves the process writing to what nobody finds.
                self._check_place()
                return self._connection.execute(statement, parameters).rowcount
            except _FAULTS as error:
                raise self._reported("written", error) from error

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Return the rows of a query."""
        check_same_process(self._pid, str(self.path))
        with self._lock:
            try:
                return self._connection.execute(query, parameters).fetchall()
            except _FAULTS as error:
                raise self._reported("read", error) from error

    @contextmanager
    def _reporting(self, what: str) -> Generator[None]:
        """Work on the file alone, explain what goes wrong, and note damage."""
        with self._lock:
            try:
                yield
            except _FAULTS as error:
                raise self._reported(what, error) from error

    def _reported(self, what: str, error: Exception) -> StoreError:
        """Do the last of that where a context manager would cost more than the work."""
        explained = _explanation(self.path, what, error)
        self.is_damaged = self.is_damaged or isinstance(explained, Damaged)
        return explained

    def attach(self, path: Path, name: str) -> None:
        """Have what is read here read another file, too, which is there."""
        with self._lock:
            try:
                self._connection.execute(f"ATTACH ? AS {name}", (str(path),))
            except _FAULTS as error:
                raise _explanation(path, "opened", error) from error

    def close(self) -> None:
        """Close the file. Doing so again, or in a forked child, changes nothing."""
        if self._pid == os.getpid():
            with self._lock:
                self._connection.close()


def _check_writers(path: Path, found: os.stat_result) -> None:
    """Raise a `StoreError` if somebody may write to the file who is not trusted: others, or an unnamed group."""
    mode = stat.S_IMODE(found.st_mode)
    if os.name != "posix" or not mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    # A group is trusted by name only: on many systems all users are in one.
    if (
        not mode & stat.S_IWOTH
        and found.st_uid in (0, os.geteuid())
        and str(found.st_gid) == os.environ.get(GROUP, "").strip()
    ):
        return
    text = f"{path} may be written by others (mode {mode:o}), so what it holds cannot be trusted."
    hint = f"If you trust what is in it, run: chmod 600 {quote(str(path))}. Otherwise use another file."
    if not mode & stat.S_IWOTH:
        hint = f"{hint} To trust all members of its group: {GROUP}={found.st_gid}."
    raise StoreError(text, hint=hint)


def _check_no_log(path: Path) -> None:
    """Refuse to begin a new store beside the log of one that was taken away while it was open: SQLite would remove the
    log, with what was written last."""
    log = path.with_name(f"{path.name}-wal")
    # An empty log is left behind by a process that was killed before it wrote.
    if log.exists() and log.stat().st_size > 0:
        raise StoreError(
            f"{path} is not there, but its log is: it was moved or removed while it was open.",
            hint=f"Put the file back. To begin a new store instead, remove the log: {quote(str(log))}",
        )


def damaged(path: Path, why: str) -> Damaged:
    """Return the report of damage."""
    hint = "Close it and open it again: what can be read of it is then recovered."
    return Damaged(f"{path} is damaged: {why}.", hint=hint)


def not_a_store(path: Path) -> StoreError:
    """Return the refusal of a file that another program made."""
    return StoreError(f"{path} is not a store of journeyman.", hint="Give another path. Nothing was changed.")


_HINTS: Final = {
    sqlite3.SQLITE_FULL: "The disk is full. Make room, and go on: nothing was lost that was written before.",
    sqlite3.SQLITE_READONLY: "Make the file and its folder writable, or use another path.",
    sqlite3.SQLITE_CANTOPEN: "Make the file and its folder writable, or use another path.",
    sqlite3.SQLITE_BUSY: "Another program is writing to it. Try again when it has finished.",
    sqlite3.SQLITE_IOERR: "The disk may be full or gone. Look at it, and try again.",
}


_FAULTS: Final = (sqlite3.Error, UnicodeDecodeError, OSError)
"""What SQLite and the system raise. The second: a name in the file is no text."""


def _explanation(path: Path, what: str, error: Exception) -> StoreError:
    """Turn what SQLite and the system raise into words."""
    if isinstance(error, UnicodeDecodeError):
        return damaged(path, "it holds something that is not a text")
    if isinstance(error, OSError):
        hint = "Make the folder writable, or use another path."
        return StoreError(f"{path} could not be {what}: {error.strerror or error}.", hint=hint)
    # The upper bytes tell the cause more exactly; the lowest one is the kind.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # For a text that is no UTF-8, Python's module raises an error without a code.
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "decode" in str(error):
        return damaged(path, str(error))
    hint = _HINTS.get(code, "Close other programs that use it, and open it again.")
    message, is_busy = f"{path} could not be {what}: {error}.", code == sqlite3.SQLITE_BUSY
    return StoreError(message, hint=hint, may_pass=code in _HINTS, is_busy=is_busy)


class Lock:
    """Held from when it is made until it is released, or until the process dies."""

    def __init__(self, store: Path, name: str, *, what: str) -> None:
        """Take the lock called `name`; the error says `what` it is for.

        Raises:
            SessionInUse: somebody holds it.
            StoreError: the lock file cannot be made, or files cannot be locked here.
        """
        self._path = _lock_path(store, name)
        self._pid = os.getpid()
        self._file = self._taken(what)

    def _taken(self, what: str) -> int:
        while True:
            try:
                file = open_lock(self._path)
            except OSError as error:
                hint = "Make the folder writable, or use another path."
                raise StoreError(f"{self._path} could not be opened: {error.strerror}.", hint=hint) from error
            try:
                _take(file, what)
                if self._is_there(file):
                    os.ftruncate(file, 0)
                    os.write(file, f" {os.getpid()}".encode())  # Windows lets nobody else read the first byte
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # who held it removed the file in this moment

    def _is_there(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let somebody else take it. Doing so again changes nothing; a forked child only lets go of its share."""
        if self._file >= 0 and self._pid != os.getpid():
            os.close(self._file)
            self._file = -1
        if self._file >= 0:
            with suppress(PermissionError):  # Windows removes no file that is open: it stays, and can be taken again
                # Removed while it is held: who has opened it before sees that its lock is on a file that is not there.
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def is_held(store: Path, name: str) -> bool:
    """Tell whether somebody holds the lock called `name`. If nobody does, its file is removed: for locks whose name is
    never used again.

    Raises:
        StoreError: files cannot be locked here.
    """
    path = _lock_path(store, name)
    try:
        file = os.open(path, os.O_RDWR | NO_LINKS)
    except FileNotFoundError:
        return False
    # By taking it, since the system tells nothing else of locks; closed again at once.
    try:
        _take(file, name)
    except SessionInUse:
        return True
    finally:
        os.close(file)
    with suppress(OSError):
        path.unlink()
    return False


def _lock_path(store: Path, name: str) -> Path:
    # A session's id may be anything that can be shown; a file's name may not.
    is_safe = name.isalnum() and name.isascii() and len(name) <= 32
    shown = name if is_safe else sha256(name.encode()).hexdigest()[:16]
    return store.with_name(f"{store.name}-{shown}.lock")


def check_free(store: Path, *, what: str) -> None:
    """Raise `SessionInUse` if anybody holds a lock of the store."""
    # The name of a folder or a file may hold what is a pattern to `glob`.
    for path in sorted(store.parent.glob(f"{escape(store.name)}-*.lock")):
        try:
            file = os.open(path, os.O_RDWR | NO_LINKS)
        except FileNotFoundError:
            continue
        try:
            _take(file, what)
        finally:
            os.close(file)


def _take(file: int, what: str) -> None:
    try:
        is_taken = take_lock(file)
    except OSError as error:
        hint = "Use a system, and a disk, on which files can be locked."
        raise StoreError(f"{what} cannot be opened: {error.strerror}.", hint=hint) from error
    if not is_taken:
        # Behind the first byte, which Windows has locked.
        os.lseek(file, 1, os.SEEK_SET)
        text = os.read(file, 20)
        pid = int(text) if text.isdigit() else None
        whose = "this process" if pid == os.getpid() else f"process {pid}" if pid else "another process"
        raise SessionInUse(f"{what} is open in {whose}.", hint="Close it there first, or open another one.", pid=pid)
