"""Where the files are: the port, and the files of this machine.

Paths are absolute, with `/`. `LocalFiles` opens a path folder by folder and follows no link on the way: between the
moment a path was found to be inside of the workspace and the moment it is opened, nobody can bend it. Imports
`refusal`. Read `reach.py` next: it decides which paths may be touched.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from journeyman.toolbox.refusal import Refusal

Kind: TypeAlias = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a path without reading it."""

    kind: Kind
    size: int
    """In bytes."""
    modified_ns: int
    """When it was last changed, in nanoseconds; only its order counts."""


class Files(Protocol):
    """A file system. Its paths are absolute, with `/`. Called from several threads; may raise OSError."""

    def resolve(self, path: str) -> str:
        """Return the path with every link followed and every `..` gone, also where nothing exists there yet."""
        ...

    def facts(self, path: str) -> Facts | None:
        """Return what is at a resolved path; None if nothing is."""
        ...

    def read(self, path: str, limit: int) -> bytes:
        """Return the first `limit` bytes of the file at a resolved path, or all if there are fewer."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Give the file at a resolved path this content, all at once or not at all. Missing folders are made."""
        ...

    def list(self, path: str) -> Sequence[Entry]:
        """Return what is in the folder at a resolved path."""
        ...


_FOLDER = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe without a writer must not hold us up
_CREATED = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalFiles:
    """The files of this machine (POSIX)."""

    def resolve(self, path: str) -> str:
        return os.path.realpath(path)

    def facts(self, path: str) -> Facts | None:
        parent, name = _split(path)
        try:
            with _folder(parent) as folder:
                found = os.stat(name or ".", dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Facts(_kind(found.st_mode), found.st_size, found.st_mtime_ns)

    def read(self, path: str, limit: int) -> bytes:
        parent, name = _split(path)
        with _folder(parent) as folder:
            opened = os.open(name, _READ, dir_fd=folder)
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise Refusal("not_a_text", f"{path} is not a regular file, so it cannot be read.")
            return file.read(limit)

    def replace(self, path: str, data: bytes) -> None:
        parent, name = _split(path)
        with _folder(parent, create=True) as folder:
            _replace(folder, name, data)

    def list(self, path: str) -> list[Entry]:
        parent, name = _split(path)
        with _folder(parent) as folder:
            opened = os.open(name or ".", _LISTED, dir_fd=folder)
        try:
            with os.scandir(opened) as entries:
                return [Entry(entry.name, _kind_of(entry)) for entry in entries]
        finally:
            os.close(opened)


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name


@contextmanager
def _folder(path: str, *, create: bool = False) -> Generator[int]:
    """Open a folder by way of each folder above it, none of which may be a link."""
    opened = os.open("/", _FOLDER)
    try:
        for name in path.split("/"):
            if name:
                inner = _inner(opened, name, create=create)
                os.close(opened)
                opened = inner
        yield opened
    finally:
        os.close(opened)


def _inner(folder: int, name: str, *, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def _replace(folder: int, name: str, data: bytes) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", name)
    temporary = f".journeyman-{secrets.token_hex(8)}"
    opened = os.open(temporary, _CREATED, 0o666, dir_fd=folder)
    try:
        with os.fdopen(opened, "wb") as file:
            _keep_mode_and_owner(folder, name, opened)
            file.write(data)
            file.flush()
            os.fsync(opened)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


def _keep_mode_and_owner(folder: int, name: str, opened: int) -> None:
    try:
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):  # only root may give files away; the content is what was asked for
            os.fchown(opened, old.st_uid, old.st_gid)
    os.fchmod(opened, stat.S_IMODE(old.st_mode))


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def _kind_of(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


if TYPE_CHECKING:
    _proof: Files = LocalFiles()
