"""Files for the tools: a port to where they are, a check of the paths that may be touched, and their decoding as text.

Paths are absolute, with `/`. `LocalFiles` opens a path folder by folder and follows no link on the way: nobody can
redirect a path after it was found to be inside of the workspace and before it is opened. A text becomes bytes again
without loss: byte order marks, encodings and line endings stay. If a tool does not do what it was asked to do, it
raises a `ToolRefused`: a text for the model, and a label for programs.
"""

from __future__ import annotations

import errno
import itertools
import os
import posixpath
import re
import secrets
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, Protocol, TypeAlias

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.problems import explain_arguments
from journeyman.errors import Rejected, count
from journeyman.machine.files import is_inside
from journeyman.tools.results import encodable

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""The largest file that is read, searched or changed."""
MAX_LINES: Final = 2_000
MAX_BYTES: Final = 50 * 1024
"""The longest text that a tool gives, as lines and as bytes."""
MAX_SPILL_BYTES: Final = 32 * 1024 * 1024
"""The most that is kept of one text in a file."""
_N_SIMILAR: Final = 3
_SNIFFED_BYTES: Final = 8_192
_MOST_CONTROLS: Final = 0.3
_CONTROLS = bytes({*range(32)} - {*b"\t\n\r\f\b\x1b"})
_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_ENDING = re.compile(r"\r?\n")
_FOLDER = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe without a writer must not hold us up
_REWRITTEN = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_PUT_BYTES: Final = 1024 * 1024
_CREATED = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
RefusalKind: TypeAlias = (
    Literal[
        "outside",
        "denied",
        "invalid",
        "not_found",
        "not_a_text",
        "too_large",
        "not_read",
        "partly_read",
        "changed_since",
    ]
    | Literal["no_match", "ambiguous", "address", "unreachable", "timeout", "command_failed", "not_available"]
)
"""Why a tool did not do what it was asked to do. These labels do not change.

`outside`: the path leads out of the workspace. `denied`: a gate forbids this very file.
`not_read`, `partly_read`, `changed_since`: the file must be read, or
read to its end, or read again, before it is changed. `no_match`, `ambiguous`: the text to replace is not there, or
there more than once. `address`: the host, or what it resolves to, must not be asked. `command_failed`: a command in the
background ended with an error. `not_available`: this run or this workspace has no such thing.
"""


class ToolRefused(Rejected):
    """A ready tool did not do what it was asked to do. The text says why, and what to do instead."""

    def __init__(self, kind: RefusalKind, text: str) -> None:
        super().__init__(text)
        self.kind: RefusalKind = kind


Kind: TypeAlias = Literal["file", "folder", "link", "other"]
"""What a name in a folder is."""


@lazy_dataclass(frozen=True)
class DirEntry:
    """One name in a folder."""

    name: str
    """The name, without the folder."""
    kind: Kind
    """`file`, `folder`, `link` or `other`."""


@lazy_dataclass(frozen=True)
class FileInfo:
    """A path's kind, size and time of change, known without reading the file."""

    kind: Kind
    """`file`, `folder`, `link` or `other`."""
    size: int
    """The size in bytes."""
    modified_ns: int
    """When it was last changed, in nanoseconds; only its order counts."""


class FileSystem(Protocol):
    """A file system. Its paths are absolute, with `/`. It is called from several threads, and may raise OSError."""

    def resolve(self, path: str) -> str:
        """Return the path with every link followed and every `..` gone, also where nothing exists there yet."""
        ...

    def facts(self, path: str) -> FileInfo | None:
        """Return what is at a resolved path; None if nothing is."""
        ...

    def read(self, path: str, limit: int) -> bytes:
        """Return the first `limit` bytes of the file at a resolved path, or all if there are fewer."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Replace the content of the file at a resolved path, as a whole or not at all. Missing folders are made.

        A file with several names keeps them: it is changed in place, and others may see it half written.
        """
        ...

    def list(self, path: str) -> Sequence[DirEntry]:
        """Return what is in the folder at a resolved path."""
        ...


@explain_arguments
class LocalFiles:
    """The files of this machine (POSIX)."""

    def resolve(self, path: str) -> str:
        return os.path.realpath(path)

    def facts(self, path: str) -> FileInfo | None:
        parent, name = _split_path(path)
        try:
            with open_folder(parent) as folder:
                found = os.stat(name or ".", dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileInfo(_kind_of_mode(found.st_mode), found.st_size, found.st_mtime_ns)

    def read(self, path: str, limit: int) -> bytes:
        parent, name = _split_path(path)
        with open_folder(parent) as folder:
            opened = os.open(name, _READ, dir_fd=folder)
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise ToolRefused("not_a_text", f"{path} is not a regular file, so it cannot be read.")
            return file.read(limit)

    def replace(self, path: str, data: bytes) -> None:
        parent, name = _split_path(path)
        with open_folder(parent, create=True) as folder:
            _replace(folder, name, data)

    def delete(self, path: str) -> None:
        """Delete what is at a resolved path: a file, or a folder with all that is in it."""
        parent, name = _split_path(path)
        with open_folder(parent) as folder:
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)

    def rename(self, path: str, to: str) -> None:
        """Rename, or move, what is at a resolved path. Missing folders are made; an old file at `to` is replaced."""
        (parent, name), (new_parent, new_name) = _split_path(path), _split_path(to)
        with open_folder(parent) as folder, open_folder(new_parent, create=True) as new_folder:
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)

    def list(self, path: str) -> list[DirEntry]:
        parent, name = _split_path(path)
        with open_folder(parent) as folder:
            opened = os.open(name or ".", _LISTED, dir_fd=folder)
        try:
            with os.scandir(opened) as entries:
                return [DirEntry(entry.name, _kind_of(entry)) for entry in entries]
        finally:
            os.close(opened)


def _split_path(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name


@contextmanager
def open_folder(path: str, *, create: bool = False) -> Generator[int]:
    """Open a folder by way of each folder above it, none of which may be a link."""
    opened = os.open("/", _FOLDER)
    try:
        for name in filter(None, path.split("/")):
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=opened)
            inner = os.open(name, _FOLDER, dir_fd=opened)
            os.close(opened)
            opened = inner
        yield opened
    finally:
        os.close(opened)


def _replace(folder: int, name: str, data: bytes) -> None:
    with suppress(FileNotFoundError):
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(old.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", name)
        if old.st_nlink > 1:
            return _rewrite(folder, name, data)
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


def _rewrite(folder: int, name: str, data: bytes) -> None:
    """Change a file in its place, since it has other names, too. If that fails, it gets its old content again."""
    opened = os.open(name, _REWRITTEN, dir_fd=folder)
    with os.fdopen(opened, "r+b", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", name)
        old = file.read()
        try:
            _write_content(opened, data)
        except BaseException:
            _write_content(opened, old)
            raise


def _write_content(opened: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(opened, data[written : written + _PUT_BYTES], written)
    os.ftruncate(opened, len(data))
    os.fsync(opened)


def _keep_mode_and_owner(folder: int, name: str, opened: int) -> None:
    try:
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):  # only root may give files away; the content is what was asked for
            os.fchown(opened, old.st_uid, old.st_gid)
    os.fchmod(opened, stat.S_IMODE(old.st_mode))


def _kind_of_mode(mode: int) -> Kind:
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
    _proof: FileSystem = LocalFiles()


@lazy_dataclass(frozen=True)
class Located:
    """A path that may be touched."""

    path: str
    """The absolute path, with every link followed."""
    shown: str
    """The path as the model reads it: relative to the root, if it is inside of it."""
    files: FileSystem
    """The file system that it is in."""

    @property
    def facts(self) -> FileInfo | None:
        return self.files.facts(self.path)

    def content(self) -> bytes:
        """Return what is in the file: one byte more than may be used, if there is more."""
        return self.files.read(self.path, MAX_FILE_BYTES + 1)


def nothing_hidden(path: str) -> bool:
    """Tell of every path that it may be touched."""
    return False


class Reach:
    """The folders that may be touched."""

    def __init__(self, root: str, files: FileSystem, *, also: Sequence[str], confined: bool) -> None:
        self.files: Final = files
        self.root: Final = files.resolve(root)
        self._roots = (self.root, *(files.resolve(each) for each in also))
        self._confined = confined
        self._read_only: str | None = None

    def open_for_reading(self, folder: str) -> None:
        """Let a folder of this machine be read, too: the one with texts that were too long to show."""
        self._read_only = os.path.realpath(folder)

    def locate(self, path: str, *, writing: bool = False) -> Located:
        """Return where a path of the model's leads.

        Raises:
            Refusal: out of the workspace, or it cannot be a path.
        """
        resolved = self._resolve(path)
        if any(is_inside(resolved, root) for root in self._roots):
            return Located(resolved, self.show_path(resolved), self.files)
        if self._read_only is not None and not writing and path.startswith("/"):
            there = os.path.realpath(path)
            if is_inside(there, self._read_only):
                return Located(there, there, LocalFiles())
        if self._confined:
            raise ToolRefused("outside", f"{path!r} is outside of the workspace {self.root}. Use a path inside of it.")
        return Located(resolved, resolved, self.files)

    def existing(self, path: str, hidden: Callable[[str], bool] = nothing_hidden) -> tuple[Located, FileInfo]:
        """Return where a path leads, and what is there. What is `hidden` is not named as similar.

        Raises:
            Refusal: nothing is, or it may not be touched.
        """
        located = self.locate(path)
        facts = located.facts
        if facts is None:
            raise ToolRefused("not_found", f"{located.shown} does not exist.{self._similar(located, hidden)}")
        return located, facts

    def show_path(self, path: str) -> str:
        """Return a resolved path as the model reads it."""
        if path == self.root:
            return "."
        prefix = "/" if self.root == "/" else f"{self.root}/"
        return path[len(prefix) :] if path.startswith(prefix) else path

    def _resolve(self, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            path = os.path.expanduser(path)  # as text: a `Path` would fold `//` and `.` away before the links
        try:
            path.encode()
            if "\0" in path:
                raise ValueError("it contains a NUL")
            return self.files.resolve(path if path.startswith("/") else f"{self.root}/{path}")
        except (ValueError, OSError) as error:
            raise ToolRefused("invalid", f"{path[:200]!r} cannot be a path: {error}.") from error

    def _similar(self, located: Located, hidden: Callable[[str], bool]) -> str:
        """Name what is in the same folder, or at the nearest folder above, under a name like it."""
        folder, _, name = located.path.rpartition("/")
        if not any(is_inside(folder or "/", root) for root in self._roots):
            return ""
        try:
            names = {entry.name.lower(): entry.name for entry in located.files.list(folder or "/")}
        except OSError:
            return f" Nor does the folder {self.show_path(folder)}." if folder != self.root else ""
        near = get_close_matches(name.lower(), names, n=_N_SIMILAR, cutoff=0.6)
        found = [self.show_path(path) for each in near if not hidden(path := f"{folder}/{names[each]}")]
        return f" Did you mean {' or '.join(found)}?" if found else ""


@lazy_dataclass(frozen=True)
class Coding:
    """The encoding of a text and its byte order mark: enough to write a file back as it was."""

    mark: bytes = b""
    """The byte order mark at its beginning."""
    encoding: str = "utf-8"

    def encode(self, text: str) -> bytes:
        return self.mark + text.encode(self.encoding, self._errors)

    def decode(self, data: bytes) -> str:
        return data[len(self.mark) :].decode(self.encoding, self._errors)

    @property
    def _errors(self) -> str:
        # What is no valid text comes back as it was.
        return "surrogateescape" if self.encoding == "utf-8" else "surrogatepass"


PLAIN: Final = Coding()


def decode_file(data: bytes, shown: str) -> tuple[str, Coding]:
    """Return the text of a file with its coding.

    Raises:
        Refusal: it is too large, or no text.
    """
    if len(data) > MAX_FILE_BYTES:
        raise ToolRefused(
            "too_large",
            f"{shown} is larger than {MAX_FILE_BYTES // 1024 // 1024} MB. Use a command that reads only a part of it.",
        )
    found = decode_text(data)
    if found is None:
        raise ToolRefused("not_a_text", f"{shown} is not a text but binary data ({count(len(data), 'byte')}).")
    return found


def decode_text(data: bytes) -> tuple[str, Coding] | None:
    """Return the text with what gives the same bytes again; None if it is none, by its content."""
    mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", "utf-8"))
    coding = Coding(mark, encoding)
    if encoding == "utf-8" and _is_binary(data):
        return None
    try:
        text = coding.decode(data)
    except UnicodeDecodeError:
        return None
    return (text, coding) if "\0" not in text else None


def _is_binary(data: bytes) -> bool:
    sample = data[:_SNIFFED_BYTES]
    n_controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return b"\0" in data or n_controls > _MOST_CONTROLS * len(sample)


def split_lines(text: str) -> list[str]:
    """Return the lines without their endings; an empty text has none."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def with_endings_like(old: str, new: str) -> str:
    """Return the new text with the line endings of the old one: of each line that stays, its own."""
    if "\r\n" not in old or "\r\n" in new:
        return new
    if old.count("\r\n") == old.count("\n"):
        return new.replace("\n", "\r\n")
    return _with_each_ending(old, new)


def _with_each_ending(old: str, new: str) -> str:
    old_lines, new_lines = _ENDING.split(old), new.split("\n")
    endings = _ENDING.findall(old)
    given = [endings[0]] * (len(new_lines) - 1)
    for i, j, n in SequenceMatcher(None, old_lines, new_lines, autojunk=True).get_matching_blocks():
        for k in range(n):
            if i + k < len(endings) and j + k < len(given):
                given[j + k] = endings[i + k]
    return "".join([*(line + ending for line, ending in zip(new_lines, given, strict=False)), new_lines[-1]])


def cut_output(text: str, spill: Spill | None, stem: str) -> str:
    """Return the beginning of a text that is too long, with a note on where all of it is."""
    lines = text.split("\n")
    kept = first_lines(lines)
    shown = "\n".join(kept)
    if len(shown.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        shown = shown.encode("utf-8", "surrogatepass")[:MAX_BYTES].decode("utf-8", "ignore")
    if len(shown) == len(text):
        return text
    where = "" if spill is None else f" All of it is in {spill.keep(stem, text)}: read it with an offset."
    return f"{shown}\n[Cut: the first {len(kept):,} of {count(len(lines), 'line')}.{where}]"


def left_out_note(n_hidden: int) -> list[str]:
    """Return the line that tells how many files or folders are not shown, if any."""
    return [f"[{count(n_hidden, 'path')} left out: a rule forbids showing more.]"] if n_hidden else []


def cut(line: str, most: int) -> str:
    """Return a line of at most so many characters, with a note on how many there are beyond."""
    return line if len(line) <= most else f"{line[:most]} [{count(len(line) - most, 'more character')}]"


def first_lines(lines: Iterable[str], *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> list[str]:
    """Return as many lines as fit, from the first on; at least one."""
    kept: list[str] = []
    room = max_bytes
    for line in lines:
        room -= len(line.encode("utf-8", "surrogatepass")) + 1
        if kept and (room < 0 or len(kept) >= max_lines):
            break
        kept.append(line)
    return kept


class Spill:
    """A temporary folder for texts that are too long to show. It is made with the first one."""

    def __init__(self, opened: Callable[[str], None]) -> None:
        self._opened = opened
        """This is told where the folder is."""
        self._folder: Path | None = None
        self._numbers = itertools.count(1)
        self._lock = Lock()
        self._finalizer: weakref.finalize[..., Spill] | None = None

    def create(self, stem: str) -> tuple[BinaryIO, str]:
        """Open a new file, and return it with its path."""
        with self._lock:
            folder = self._folder or self._make()
            path = folder / f"{stem}-{next(self._numbers)}.txt"
        return path.open("xb"), str(path)

    def keep(self, stem: str, text: str) -> str:
        """Write a text to a new file, as much of it as is kept, and return the path."""
        file, path = self.create(stem)
        with file:
            file.write(encodable(text).encode()[:MAX_SPILL_BYTES])
        return path

    def close(self) -> None:
        """Remove the folder. The next text makes another."""
        with self._lock:
            self._folder = None
            if self._finalizer is not None:
                self._finalizer()

    def _make(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="journeyman-")).resolve()
        self._folder = folder
        # Whoever forgets to close leaves nothing behind either.
        self._finalizer = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._opened(str(folder))
        return folder


@explain_arguments
class InMemoryFiles:
    """A file system in memory, without links. `contents` are the files that are there at first, by absolute path."""

    def __init__(self, contents: Mapping[str, str | bytes] | None = None) -> None:
        self._lock = Lock()
        self._clock = 0
        self._files: dict[str, tuple[bytes, int]] = {}
        for path, content in (contents or {}).items():
            self.replace(self.resolve(path), content.encode() if isinstance(content, str) else content)

    def resolve(self, path: str) -> str:
        return posixpath.normpath("/" + path.lstrip("/"))

    def facts(self, path: str) -> FileInfo | None:
        with self._lock:
            if path in self._files:
                data, modified = self._files[path]
                return FileInfo("file", len(data), modified)
            is_folder = path == "/" or any(each.startswith(f"{path}/") for each in self._files)
            return FileInfo("folder", 0, 0) if is_folder else None

    def read(self, path: str, limit: int) -> bytes:
        with self._lock:
            if path not in self._files:
                raise FileNotFoundError(2, "No such file", path)
            return self._files[path][0][:limit]

    def replace(self, path: str, data: bytes) -> None:
        with self._lock:
            if any(str(folder) in self._files for folder in PurePosixPath(path).parents):
                raise NotADirectoryError(20, "Not a folder", posixpath.dirname(path))
            if any(each.startswith(f"{path}/") for each in self._files):
                raise IsADirectoryError(21, "Is a folder", path)
            self._clock += 1
            self._files[path] = (data, self._clock)

    def list(self, path: str) -> list[DirEntry]:
        prefix = "/" if path == "/" else f"{path}/"
        with self._lock:
            kinds: dict[str, Kind] = {}
            for each in self._files:
                if each.startswith(prefix):
                    name, _, rest = each[len(prefix) :].partition("/")
                    kinds[name] = "folder" if rest else "file"
        if not kinds and path != "/":
            raise FileNotFoundError(2, "No such folder", path)
        return [DirEntry(name, kind) for name, kind in kinds.items()]


if TYPE_CHECKING:
    _proof: FileSystem = InMemoryFiles()
