"""The files of `journeyman batch`: what is read of the inputs line by line, and the results that are kept.

A result is one line with the number and the digest of its input. So the output itself tells what is done, and a batch
goes on where it stopped, however it was stopped.
"""

from __future__ import annotations

import asyncio
import csv
import errno
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, Final, Literal, TypeAlias, cast

from pydantic_core import from_json

from journeyman.cli.app import Mistake, Refused
from journeyman.errors import count, quoted
from journeyman.files import take_lock

Format: TypeAlias = Literal["jsonl", "csv"]
FORMATS: Final[Mapping[str, Format]] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
_BEGINNING: Final = b'{"line":'
"""How every line of an output begins."""
_DIGEST_CHARACTERS: Final = 16
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_LONGEST_CELL: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLine:
    """One line of the inputs."""

    number: int
    """From 1, as editors count; of a row of CSV that has several lines, the last one."""
    digest: str
    """Of what stands there."""
    plain: str | None = None
    """The text that the line is as a JSON string, or the only cell of a row; None if it is something else."""
    text: str = ""
    """The line as it is written; of CSV the row as a JSON object."""
    is_row: bool = False
    """True for CSV."""
    key: str | None = None
    """What its result is found by, where that is not the number: the value of the field that `--key` names."""
    files: tuple[Path, ...] = ()
    """What is sent after its text: the files of the field that `--files` names."""
    fault: str = ""
    """Why it cannot be read; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of the inputs that say something of a line itself."""

    key: str | None = None
    """What the line's result is found by; None: by its number."""
    files: str | None = None
    """The paths of files that are sent after the line's text, from `folder` on."""
    folder: Path = Path()

    def read(self, line: InputLine) -> InputLine:
        """Return the line with what its fields say; `files` is no part of its text any more."""
        value: object = from_json(line.text)
        if not isinstance(value, dict):
            return replace(line, fault="it is no object, so it has no fields")
        given = cast("dict[str, object]", value)
        key = None if self.key is None else given.get(self.key)
        if self.key is not None and (not isinstance(key, str | int) or isinstance(key, bool) or key == ""):
            return replace(line, fault=f"its field {quoted(self.key)} is no text and no number, so it has no key")
        line = replace(line, key=None if key is None else str(key))
        if self.files is None:
            return line
        paths = given.pop(self.files, [])
        named = [paths] if isinstance(paths, str) else paths
        if not isinstance(named, list) or not all([isinstance(each, str) for each in cast("list[object]", named)]):
            return replace(line, fault=f"its field {quoted(self.files)} is no path and no list of paths")
        rest = [each for name, each in given.items() if name != self.key]
        plain = rest[0] if len(rest) == 1 and isinstance(rest[0], str) else None
        files = tuple([self.folder / each for each in cast("list[str]", named) if each])
        return replace(line, text=json.dumps(given, ensure_ascii=False), plain=plain, files=files)


def format_of(inputs: Path, given: Format | None) -> Format:
    """Return how the inputs are written: as was said, else by the end of the file's name.

    Raises:
        Mistake: the name does not tell.
    """
    known = given or ("jsonl" if str(inputs) == "-" else FORMATS.get(inputs.suffix.lower()))
    if known is None:
        raise Mistake(f"The name of {inputs} does not tell how it is written.", "Say it: --format jsonl or csv.")
    return known


@contextmanager
def open_inputs(inputs: Path, out: Path) -> Generator[BinaryIO]:
    """Open a file of inputs; `-` is stdin.

    Raises:
        Mistake: it cannot be read, or it is the file `out`, where the results go.
    """
    try:
        file = os.fdopen(os.dup(sys.stdin.fileno()), "rb") if str(inputs) == "-" else inputs.open("rb")
    except FileNotFoundError as error:
        raise Mistake(f"There is no file {inputs}.", "Check the path; it is relative to the current folder.") from error
    except (OSError, AttributeError, ValueError) as error:  # stdin is None where it is closed
        reason = getattr(error, "strerror", None) or "it is closed"
        raise Mistake(f"{inputs} cannot be read: {reason}.", "Give a file that you may read.") from error
    try:
        if out.exists() and os.path.samestat(os.fstat(file.fileno()), out.stat()):
            raise Mistake(f"{out} is both the inputs and the output.", "Give another --out.")
        yield file
    finally:
        if is_whole(file):  # a thread may be reading from what is no file
            file.close()


def is_whole(file: BinaryIO) -> bool:
    """Tell whether all inputs are there: a file can be read twice, and its next line does not have to be waited for."""
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)


def read_lines(file: BinaryIO, written: Format, fields: Fields) -> Iterator[InputLine]:
    """Give the lines that are not blank.

    Raises:
        Mistake: CSV has no header.
    """
    lines = _rows(file) if written == "csv" else _documents(file)
    return lines if fields.key is None and fields.files is None else _with_fields(lines, fields)


def _with_fields(lines: Iterator[InputLine], fields: Fields) -> Iterator[InputLine]:
    numbers: dict[str, int] = {}
    for each in lines:
        line = each if each.fault else fields.read(each)
        if line.key is not None and (first := numbers.setdefault(line.key, line.number)) != line.number:
            line = replace(line, key=None, fault=f"it has the key {quoted(line.key)}, as line {first} has")
        yield line


async def streamed(file: BinaryIO, written: Format, fields: Fields) -> AsyncIterator[InputLine]:
    """Give the lines as they come. They are read by a thread that ends with the process: nothing can interrupt it."""
    loop, waiting = asyncio.get_running_loop(), asyncio.Queue[InputLine | Exception | None](1)

    def read() -> None:
        with suppress(RuntimeError, asyncio.CancelledError):  # the loop was closed, and nobody reads on
            try:
                for line in read_lines(file, written, fields):
                    asyncio.run_coroutine_threadsafe(waiting.put(line), loop).result()
            except Exception as error:  # noqa: BLE001 - it is raised where the lines are read
                asyncio.run_coroutine_threadsafe(waiting.put(error), loop).result()
            asyncio.run_coroutine_threadsafe(waiting.put(None), loop).result()

    Thread(target=read, name="journeyman-inputs", daemon=True).start()
    while (line := await waiting.get()) is not None:
        if isinstance(line, Exception):
            raise line
        yield line


def _documents(file: BinaryIO) -> Iterator[InputLine]:
    for number, raw in enumerate(file, 1):
        line = (raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).strip()
        if not line:
            continue
        digest = _digest(line)
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            yield InputLine(number=number, digest=digest, fault=f"it is not UTF-8: byte 0x{line[error.start]:02x}")
            continue
        try:
            value: object = from_json(text)
        except ValueError as error:
            yield InputLine(number=number, digest=digest, fault=f"it is no JSON: {error}")
        else:
            plain = value if isinstance(value, str) else None
            yield InputLine(number=number, digest=digest, plain=plain, text=text)


def _rows(file: BinaryIO) -> Iterator[InputLine]:
    csv.field_size_limit(_LONGEST_CELL)
    first = file.readline().removeprefix(b"\xef\xbb\xbf")
    reader = csv.reader(line.decode("utf-8", "surrogateescape") for line in chain([first], file))
    try:
        header = next(reader, list[str]())
    except csv.Error as error:
        raise Mistake(f"The header of the CSV cannot be read: {error}.", "Save it again as CSV in UTF-8.") from error
    if not any(header) or any(_is_broken(name) for name in header):
        raise Mistake("The CSV has no header in UTF-8.", "Its first line has to name the columns.")
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield InputLine(number=reader.line_num, digest=_digest(str(error).encode()), fault=f"it is no CSV: {error}")
            continue
        if row is None:
            return
        if not row:
            continue
        number, digest = reader.line_num, _digest(json.dumps([header, row]).encode())
        if len(row) != len(header):
            fault = f"it has {len(row)} cells, and the header has {len(header)}"
            yield InputLine(number=number, digest=digest, fault=fault)
        elif any(_is_broken(cell) for cell in row):
            yield InputLine(number=number, digest=digest, fault="it is not UTF-8")
        else:
            text = json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False)
            plain = row[0] if len(row) == 1 else None
            yield InputLine(number=number, digest=digest, plain=plain, text=text, is_row=True)


def _is_broken(cell: str) -> bool:
    """Tell whether a cell holds bytes that are not UTF-8."""
    try:
        cell.encode()
    except UnicodeEncodeError:
        return True
    return False


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:_DIGEST_CHARACTERS]


# -- the results -------------------------------------------------------------------------------------------------------


def _place_of(line: InputLine) -> int | str:
    return line.number if line.key is None else line.key


class Results:
    """The file with the results of a batch: locked, read, and then written to, one line for each result."""

    def __init__(self, path: Path, agent: str, *, has_keys: bool = False) -> None:
        """Open the file, and read what is done. What a kill has left of a last line is cut. `has_keys`: results are
        found by the keys of their lines.

        Raises:
            Mistake: it cannot be written, or holds something else than results of this agent.
            Refused: another batch writes to it.
        """
        self.path: Final = path
        self.done: Final[dict[int | str, str]] = {}
        """The digests of the inputs that have a result, by the line's number or its key."""
        self._has_keys = has_keys
        self.n_failed = 0
        """How many of the results are failures."""
        self.was_torn = False
        """True if the last line was cut."""
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0), 0o666)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            self._begin(agent)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _begin(self, agent: str) -> None:
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise Mistake(f"{self.path} is no file.", "Give a file for the results: --out results.jsonl")
        try:
            if not take_lock(self._descriptor):
                raise Refused(f"Another batch writes to {self.path}.", "Wait for its end, or give another --out.")
            end = 0
            with os.fdopen(os.dup(self._descriptor), "rb") as file:
                for number, line in enumerate(file, 1):
                    if line.endswith(b"\n"):
                        self._recall(line, number, agent)
                        end += len(line)
                        continue
                    if not (line.startswith(_BEGINNING) or _BEGINNING.startswith(line)):
                        raise self._foreign(number)
                    self.was_torn = True
            if self.was_torn:
                os.ftruncate(self._descriptor, end)
        except OSError as error:
            raise self._unwritable(error) from error

    def _recall(self, line: bytes, number: int, agent: str) -> None:
        try:
            record: object = from_json(line)
        except ValueError as error:
            raise self._foreign(number) from error
        match record:
            case {"line": int(of), "digest": str(digest), "agent": str(name), "code": str(code)}:
                if name != agent:
                    text = f"{self.path} has results of the agent {quoted(name)}, not of {quoted(agent)}."
                    raise Mistake(text, "Give another --out.")
                kept = cast("dict[str, object]", record)
                if ("key" in kept) is not self._has_keys:
                    text = f"{self.path} was begun {'with' if 'key' in kept else 'without'} --key."
                    raise Mistake(text, "Give the same options as then, or another --out.")
                self.n_failed += code != "SUCCESS"
                key = kept.get("key")
                self.done[of if key is None else str(key)] = digest
            case _:
                raise self._foreign(number)

    def _foreign(self, number: int) -> Mistake:
        text = f"{self.path} is not the output of a batch: line {number} is no result of one."
        return Mistake(text, "Nothing was written. Give another --out.")

    def _unwritable(self, error: OSError) -> Mistake:
        return Mistake(f"{self.path} cannot be written: {error.strerror}.", "Give a file that you may write.")

    def has(self, line: InputLine) -> bool:
        """Tell whether the result of a line is there.

        Raises:
            Mistake: the result at that line is of another input.
        """
        digest = self.done.get(_place_of(line))
        if digest is None:
            return False
        if digest != line.digest:
            which = f"line {line.number}" if line.key is None else f"the key {quoted(line.key)}"
            text = f"{self.path} is the output of another batch: its result of {which} is of another input."
            raise Mistake(text, "Nothing was written for it. Give another --out, or the inputs that it was begun with.")
        return True

    def check(self, lines: Iterator[InputLine]) -> int:
        """Return how many lines have no result yet.

        Raises:
            Mistake: there are results of other inputs.
        """
        n_open, n_known = 0, 0
        for line in lines:
            is_there = self.has(line)
            n_known += is_there
            n_open += not is_there
        if n_known < len(self.done) and not self._has_keys:  # a list with keys may have become shorter
            text = f"{self.path} is the output of another batch: it has results of lines that the inputs do not have."
            raise Mistake(text, "Nothing was written. Give another --out, or the inputs that it was begun with.")
        return n_open

    def write(self, line: InputLine, agent: str, facts: Mapping[str, Any]) -> None:
        """Write the result of a line, whole or not at all.

        Raises:
            Refused: the disk is full. What was written before stays.
            Mistake: it cannot be written for another reason.
        """
        key = {"key": line.key} if self._has_keys else {}
        record = {"line": line.number, "digest": line.digest, **key, "agent": agent, **facts}
        data = memoryview(json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode() + b"\n")
        end = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            with suppress(OSError):  # else the next command cuts the torn line
                os.ftruncate(self._descriptor, end)
            if error.errno in _FULL:
                text = f"{self.path} cannot be written: {error.strerror}. It has {count(len(self.done), 'result')}."
                raise Refused(text, "Make room there; then the same command goes on.") from error
            raise self._unwritable(error) from error
        self.done[_place_of(line)] = line.digest
        self.n_failed += cast("str", facts["code"]) != "SUCCESS"

    def close(self) -> None:
        """Let others write to the file."""
        with suppress(OSError):  # where the file system knows no such thing, what was written is as safe as it can be
            os.fsync(self._descriptor)
        os.close(self._descriptor)
