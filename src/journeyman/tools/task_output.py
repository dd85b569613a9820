"""What a task writes down: JSON lines in a file, if there is one, and the last of it in memory.

Nothing that goes wrong with the file is raised: it is kept, and makes the task fail when it ends. Imports `errors`.
"""

from __future__ import annotations

import inspect
import json
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from journeyman.errors import name_and_words

KEPT_CHARS: Final = 50_000
"""How much of the output of a task stays in memory: the last of it."""

Record: TypeAlias = str | Mapping[str, object]
"""One line of output: a text, or anything that can be written as JSON."""


class Writer(Protocol):
    """Where the lines go: a text file, or anything like it."""

    def write(self, text: str, /) -> object: ...
    def close(self) -> object: ...


OutputFactory: TypeAlias = Callable[[str, str], tuple[Writer, str] | Awaitable[tuple[Writer, str]]]
"""Opens the output of one task, given its id and what it is: the agent's name, or else the description. Returns the
writer, and the path that is shown."""


class TaskOutput:
    """The output of one task."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.errors: list[str] = []
        """What went wrong with the file, in order."""
        self._writer: Writer | None = None
        self._kept: deque[str] = deque()
        self._n_kept = 0
        self._n_dropped = 0

    async def open(self, factory: OutputFactory | None, id: str, subject: str) -> None:
        """Open the file. If that fails, `errors` says so."""
        if factory is None:
            return
        try:
            made = factory(id, subject)
            self._writer, self.path = await made if inspect.isawaitable(made) else made
        except Exception as error:  # noqa: BLE001 - whatever the host's factory raises
            self.errors.append(f"cannot open the output: {name_and_words(error)}")

    def write(self, record: Record) -> None:
        """Add one line."""
        self._keep(record if isinstance(record, str) else _json(record))
        if self._writer is not None:
            line = _json({"text": record} if isinstance(record, str) else record)
            try:
                self._writer.write(f"{line}\n")
            except Exception as error:  # noqa: BLE001 - whatever the host's writer raises
                self.errors.append(f"cannot write the output: {name_and_words(error)}")
                self.close()

    def _keep(self, line: str) -> None:
        self._kept.append(line[-KEPT_CHARS:])
        self._n_kept += len(self._kept[-1]) + 1
        while self._n_kept > KEPT_CHARS + 1:
            self._n_kept -= len(self._kept.popleft()) + 1
            self._n_dropped += 1

    def close(self) -> None:
        """Close the file. Again, it changes nothing."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                writer.close()
        except Exception as error:  # noqa: BLE001 - whatever the host's writer raises
            self.errors.append(f"cannot close the output: {name_and_words(error)}")

    def tail(self) -> str:
        """Return the last of the output, with a note if there was more."""
        more = f"[{self._n_dropped:,} lines before this.]\n" if self._n_dropped else ""
        return more + "\n".join(self._kept)


def _json(record: Mapping[str, object]) -> str:
    return json.dumps(record, ensure_ascii=False, default=str)


def in_folder(folder: str | os.PathLike[str]) -> OutputFactory:
    """Return what writes the output of each task to a file of its own in `folder`: `bg-1.jsonl`, or `bg-1-2.jsonl` if
    that one is there already."""

    def opened(id: str, subject: str) -> tuple[Writer, str]:
        Path(folder).mkdir(parents=True, exist_ok=True)
        names = (f"{id}{f'-{n}' if n > 1 else ''}.jsonl" for n in range(1, 1_000_000))
        for path in (Path(folder) / name for name in names):
            try:
                return path.open("x", encoding="utf-8", errors="backslashreplace", buffering=1), str(path)
            except FileExistsError:
                continue
        raise FileExistsError(f"{folder} is full of files of earlier tasks {id}. Use another folder.")

    return opened
