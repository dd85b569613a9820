"""Files that exist in this process only: for tests, and for agents that must not touch a disk."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING

from journeyman.definition import explain_arguments
from journeyman.toolbox.files import DirEntry, FileInfo, FileSystem, Kind


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
