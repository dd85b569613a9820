"""The files of `journeyman batch`: what is read of the inputs line by line, and the results that are kept.

A result is one line with the number and the digest of its input. So the output itself tells what is done, and a batch
goes on where it stopped, however it was stopped.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal, TypeAlias, cast

from cyclopts import Parameter
from pydantic import AliasChoices, AliasPath
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from journeyman.batch.table import TableError, read_table, separator_meant
from journeyman.cli.app import Mistake, Refused
from journeyman.cli.options import AnyAgent, explain
from journeyman.definition.json_numbers import holds_written_numbers, read_json, write_json
from journeyman.definition.narrowing import is_json_object, is_list, is_list_of_texts
from journeyman.errors import count, quoted
from journeyman.machine.descriptors import write_all
from journeyman.machine.files import take_lock
from journeyman.types import JsonObject

Format: TypeAlias = Literal["jsonl", "json", "csv", "tsv"]
FORMATS: Final[Mapping[str, Format]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
}
_BEGINNING: Final = b'{"line":'
"""How every line of an output begins."""
_DIGEST_CHARACTERS: Final = 16
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """One line of the inputs."""

    number: int
    """From 1, as editors count; of a row that has several lines, the last one; of a JSON array, the place."""
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
    custom_id: str | None = None
    """The caller's own name of a line that was written for OpenAI's batches."""
    files: tuple[Path, ...] = ()
    """What is sent after its text: the files of the field that `--files` names."""
    unknown: tuple[str, ...] = ()
    """The keys of an object that the agent does not take."""
    fault: str = ""
    """Why it cannot be read; empty if it can."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """The options of the command line that say how the inputs of a batch are read."""

    format: Annotated[Format | None, explain("How INPUTS are written.")] = None
    separator: Annotated[str | None, explain("What stands between cells.")] = None
    encoding: Annotated[str | None, explain("Of the inputs; else UTF-8.")] = None
    input_field: Annotated[str | None, explain("The field for the agent; else the whole line.")] = None
    key: Annotated[str | None, explain("The field by which a line is known.")] = None
    files: Annotated[str | None, explain("The field with a path of a file, or a list.")] = None

    def complete(self, inputs: Path) -> InputOptions:
        """Return the options with the format, which the end of the file's name tells where nobody has said it; a
        `Mistake` if it does not, or if they do not go together."""
        known = self.format or ("jsonl" if str(inputs) == "-" else FORMATS.get(inputs.suffix.lower()))
        if known is None:
            hint = "Say it: --format jsonl, json, csv or tsv."
            raise Mistake(f"The name of {inputs} does not tell how it is written.", hint)
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n'):
            raise Mistake(f"--separator {self.separator!r} is not one character.", "Give one: --separator ';'")
        if self.separator is not None and known not in ("csv", "tsv"):
            raise Mistake("--separator is for tables.", "Leave it out, or add --format csv.")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except (LookupError, ValueError, TypeError) as error:
                hint = "Give one that Python knows: --encoding windows-1252"
                raise Mistake(f"--encoding {self.encoding!r} is no encoding of text.", hint) from error
        return replace(self, format=known)

    @property
    def between(self) -> str:
        """The character between the cells of a row."""
        return self.separator or ("\t" if self.format == "tsv" else ",")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFields:
    """The fields of the inputs that say something of a line itself, and what the agent takes of the others."""

    options: InputOptions
    folder: Path
    """The folder from which the paths in the inputs lead."""
    taken: Mapping[str, frozenset[str]] | None = None
    """What the agent takes, where that is an object that has no further keys: each key, and what else it is called."""
    required: Sequence[str] = ()
    """The keys of `taken` without which no input fits."""

    @classmethod
    def of(cls, options: InputOptions, inputs: Path, agent: AnyAgent) -> InputFields:
        """Return which fields of a line say what, for an agent."""
        folder = Path() if str(inputs) == "-" else inputs.parent
        if agent.input is str or agent.plan.input.is_wrapped:
            return cls(options=options, folder=folder)
        required = cast("list[str]", agent.plan.input.input_schema.get("required", []))
        return cls(options=options, folder=folder, taken=taken_keys(agent), required=required)

    def read(self, line: BatchLine) -> BatchLine:
        """Return the line with what its fields say; the files are no part of its text any more."""
        key_field, files_field, input_field = self.options.key, self.options.files, self.options.input_field
        given = _value_of(line.text)
        if not is_json_object(given):
            return replace(line, fault="it is no object, so it has no fields")
        key = None if key_field is None else given.get(key_field)
        if key_field is not None and (not isinstance(key, str | int) or isinstance(key, bool) or key == ""):
            return replace(line, fault=f"its field {quoted(key_field)} is no text and no number, so it has no key")
        line = replace(line, key=None if key is None else str(key))
        if input_field is not None and input_field not in given:
            return replace(line, fault=f"it has no field {quoted(input_field)}, which --input-field names")
        if files_field is not None:
            paths = given.pop(files_field, [])
            named = [paths] if isinstance(paths, str) else paths
            if not is_list_of_texts(named):
                return replace(line, fault=f"its field {quoted(files_field)} is no path and no list of paths")
            rest = [each for name, each in given.items() if name != key_field]
            plain = rest[0] if len(rest) == 1 and isinstance(rest[0], str) else None
            files = tuple([self.folder / each for each in named if each])
            line = replace(line, text=_json_of_value(given), plain=plain, files=files)
        if input_field is None:
            return line
        value = given.get(input_field)
        return replace(line, text=_json_of_value(value), plain=value if isinstance(value, str) else None)

    def near(self, name: str, given: Collection[str]) -> str | None:
        """Return the key that a name that the agent does not take seems to mean, and that is not given."""
        absent = {key.casefold(): key for key, names in (self.taken or {}).items() if names.isdisjoint(given)}
        found = get_close_matches(name.casefold(), absent, 1)
        return absent[found[0]] if found else None

    def unknown(self, given: Iterable[str]) -> list[str]:
        """Return which names the agent does not take, and say nothing of a line itself."""
        known = {self.options.key, self.options.files}.union(*(self.taken or {}).values())
        return [name for name in given if name not in known]

    def check_keys(self, line: BatchLine) -> BatchLine:
        """Return the line with the keys that the agent would not see. With one that seems to be misspelt, it cannot be
        read: the run would be paid for without what it says."""
        given = None if line.fault else read_json(line.text)
        if not isinstance(given, dict):
            return line
        unknown = [name for name in self.unknown(given) if name != "custom_id" or line.custom_id is None]
        for name in unknown:
            if (near := self.near(name, given)) is not None:
                return replace(line, fault=f"it has {quoted(name)}, and the agent takes {quoted(near)}")
        return replace(line, unknown=tuple(unknown))


def _value_of(text: str | bytes) -> object:
    """Return the value of a JSON text, with the digits that its numbers have; a `ValueError` if it is none."""
    try:
        return read_json(text)
    except ValueError:
        return from_json(text)  # the check of the input refuses what is no JSON, such as NaN


def _json_of_value(value: object) -> str:
    return write_json(value).decode() if holds_written_numbers(value) else json.dumps(value, ensure_ascii=False)


def taken_keys(agent: AnyAgent) -> Mapping[str, frozenset[str]] | None:
    """Return the keys of what an agent takes, each with what else it is called. None: it takes any key."""
    schema = agent.plan.input.input_schema
    if schema.get("additionalProperties"):
        return None
    taken = {key: {key} for key in cast("JsonObject", schema.get("properties", {}))}
    fields = cast("dict[str, FieldInfo]", getattr(agent.input, "model_fields", {}))
    for name, field in fields.items():
        alias = field.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        firsts = [each.path[0] if isinstance(each, AliasPath) else each for each in choices]
        names = {each for each in (name, *firsts) if isinstance(each, str)}
        for key in names & taken.keys():
            taken[key] |= names
    return {key: frozenset(names) for key, names in taken.items()}


@contextmanager
def open_inputs(inputs: Path, out: Path) -> Generator[BinaryIO]:
    """Open a file of inputs, which is not the file `out`, where the results go; `-` is stdin."""
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


def read_lines(file: BinaryIO, fields: InputFields) -> Iterator[BatchLine]:
    """Give the lines that are not blank. A table without a header that can be used, or without a column that is asked
    for, is a `Mistake`; so is what has to be a JSON array, and is none."""
    options = fields.options
    match options.format:
        case "csv" | "tsv":
            lines = _read_rows(file, fields)
        case "json":
            lines = _read_array(_utf8(file, options.encoding))
        case _:
            lines = _documents(_utf8(file, options.encoding))
    if (options.key, options.files, options.input_field) != (None, None, None):
        lines = _with_fields(lines, fields)
    return lines if fields.taken is None or options.input_field is not None else map(fields.check_keys, lines)


def _with_fields(lines: Iterator[BatchLine], fields: InputFields) -> Iterator[BatchLine]:
    numbers: dict[str, int] = {}
    for each in lines:
        line = each if each.fault else fields.read(each)
        if line.key is not None and (first := numbers.setdefault(line.key, line.number)) != line.number:
            line = replace(line, key=None, fault=f"it has the key {quoted(line.key)}, as line {first} has")
        yield line


def _decode_lines(file: BinaryIO, encoding: str, newline: str) -> Iterator[str]:
    """Give the lines of a file. Bytes that are not UTF-8 stay, so that their row can be told; in another encoding they
    are a `Mistake`."""
    errors = "surrogateescape" if encoding == "utf-8-sig" else "strict"
    text = io.TextIOWrapper(file, encoding=encoding, errors=errors, newline=newline)
    try:
        for number, line in enumerate(text):
            yield line if number else line.removeprefix("\ufeff")
    except UnicodeError as error:
        raise Mistake(f"The inputs are not in {encoding}: {error}.", "Give another --encoding.") from error
    finally:
        with suppress(ValueError):  # the file was closed before
            text.detach()  # closing it is for whoever has opened it


def _utf8(file: BinaryIO, encoding: str | None) -> Iterator[bytes]:
    if encoding is None:
        return iter(file)
    return (line.encode("utf-8", "surrogatepass") for line in _decode_lines(file, encoding, "\n"))


def _read_array(file: Iterator[bytes]) -> Iterator[BatchLine]:
    """Give the items of a JSON array."""
    content = b"".join(file).removeprefix(b"\xef\xbb\xbf")
    try:
        items = _value_of(content)
    except ValueError as error:
        hint = "Correct it; or, if each line is a JSON value of its own, add --format jsonl."
        raise Mistake(f"The inputs are no JSON: {str(error)[:_SHOWN_CHARACTERS]}.", hint) from error
    if not is_list(items):
        raise Mistake("The inputs are no JSON array.", "Give a list of inputs: [{…}, {…}]; or JSON lines.")
    for number, value in enumerate(items, 1):
        text = _json_of_value(value)
        digest = _short_digest(text.encode("utf-8", "surrogatepass"))
        plain = value if isinstance(value, str) else None
        yield BatchLine(number=number, digest=digest, plain=plain, text=text, custom_id=_custom_id(value))


def _custom_id(value: object) -> str | None:
    """Return the `custom_id` of a line of OpenAI's batches."""
    if not is_json_object(value) or "body" not in value:
        return None
    id = value.get("custom_id")
    return id if isinstance(id, str) else None


def _documents(file: Iterator[bytes]) -> Iterator[BatchLine]:
    for number, raw in enumerate(file, 1):
        line = (raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).strip()
        if not line:
            continue
        digest = _short_digest(line)
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            yield BatchLine(number=number, digest=digest, fault=f"it is not UTF-8: byte 0x{line[error.start]:02x}")
            continue
        try:
            value: object = from_json(text)
        except ValueError as error:
            yield BatchLine(number=number, digest=digest, fault=f"it is no JSON: {error}")
        else:
            plain = value if isinstance(value, str) else None
            yield BatchLine(number=number, digest=digest, plain=plain, text=text, custom_id=_custom_id(value))


def _read_rows(file: BinaryIO, fields: InputFields) -> Iterator[BatchLine]:
    lines = _decode_lines(file, fields.options.encoding or "utf-8-sig", "")
    try:
        header, rows = read_table(lines, fields.options.between)
    except TableError as fault:
        hint = "Correct the first line; if the table is not in UTF-8, say --encoding, such as windows-1252 or utf-16."
        raise Mistake(f"The inputs cannot be used: {fault}.", hint) from fault
    _check_header(header, fields)
    for row in rows:
        digest = _short_digest(json.dumps([header, [*row.cells]]).encode())
        if row.error:
            yield BatchLine(number=row.first_line, digest=_short_digest(row.error.encode()), fault=row.fault)
        elif row.fault:
            yield BatchLine(number=row.last_line, digest=digest, fault=row.fault)
        elif any(_is_broken(cell) for cell in row.cells):
            yield BatchLine(number=row.last_line, digest=digest, fault="it is not UTF-8")
        else:
            text = json.dumps(dict(zip(header, row.cells, strict=True)), ensure_ascii=False)
            plain = row.cells[0] if len(row.cells) == 1 else None
            yield BatchLine(number=row.last_line, digest=digest, plain=plain, text=text, is_row=True)


def _check_columns(header: Sequence[str], fields: InputFields) -> None:
    """Refuse a table that lacks what the agent needs, or has a column whose name seems to be misspelt: no row of it
    would be read as it is meant."""
    if fields.taken is None or fields.options.input_field is not None:
        return
    missing = [name for name in fields.required if fields.taken[name].isdisjoint(header)]
    for name in fields.unknown(header):
        if (near := fields.near(name, header)) is not None:
            text = f"The agent takes no {quoted(name)}, but {quoted(near)}, which the inputs have no column for."
            raise Mistake(text, "Correct the name in the first line.")
    if missing:
        text = f"The agent needs {', '.join(map(quoted, missing))}, and the inputs have no such column."
        raise Mistake(text, f"There are: {', '.join(map(quoted, header))[:_SHOWN_CHARACTERS]}.")


def _check_header(header: Sequence[str], fields: InputFields) -> None:
    options = fields.options
    if any(_is_broken(name) for name in header) or "\0" in "".join(header):
        hint = "Save it in UTF-8, or say how it is written: --encoding windows-1252, or utf-16."
        raise Mistake("The header of the inputs is not in UTF-8.", hint)
    if (meant := separator_meant(header, options.between)) is not None:
        character, name = meant
        given = "$'\\t'" if character == "\t" else f"'{character}'"
        text = f"The inputs have one column, {quoted(header[0])}: its cells seem to be separated by {name}."
        raise Mistake(text, f"Say it: --separator {given}")
    _check_columns(header, fields)
    for option, name in (("--key", options.key), ("--files", options.files), ("--input-field", options.input_field)):
        if name is not None and name not in header:
            text = f"{option} names {quoted(name)}, and the inputs have no such column."
            raise Mistake(text, f"There are: {', '.join(map(quoted, header))[:_SHOWN_CHARACTERS]}.")


def _is_broken(cell: str) -> bool:
    """Tell whether a cell holds bytes that are not UTF-8."""
    try:
        cell.encode()
    except UnicodeEncodeError:
        return True
    return False


def _short_digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:_DIGEST_CHARACTERS]


def _place_of_line(line: BatchLine) -> int | str:
    return line.number if line.key is None else line.key


class Results:
    """The file with the results of a batch: locked, read, and then written to, one line for each result."""

    def __init__(self, path: Path, agent: str, *, has_keys: bool = False) -> None:
        """Open the file, and read what is done. What a kill has left of a last line is cut. `has_keys`: results are
        found by the keys of their lines. A file that holds something else than results of this agent is a `Mistake`;
        that another batch writes to it is `Refused`."""
        self.path: Final = path
        self.done: Final[dict[int | str, str]] = {}
        """The digests of the inputs that have a result, by the line's number or its key."""
        self._has_keys = has_keys
        self.unreadable: Final[list[BatchLine]] = []
        """The lines that cannot be read, as far as they were checked."""
        self.unknown: Final = Counter[str]()
        """The keys that the agent does not take, and how many of the lines that were checked have each."""
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

    def has(self, line: BatchLine) -> bool:
        """Tell whether the result of a line is there; a `Mistake` if it is of another input."""
        digest = self.done.get(_place_of_line(line))
        if digest is None:
            return False
        if digest != line.digest:
            which = f"line {line.number}" if line.key is None else f"the key {quoted(line.key)}"
            text = f"{self.path} is the output of another batch: its result of {which} is of another input."
            raise Mistake(text, "Nothing was written for it. Give another --out, or the inputs that it was begun with.")
        return True

    def check(self, lines: Iterator[BatchLine]) -> int:
        """Return how many lines have no result yet; a `Mistake` if there are results of other inputs."""
        n_open, n_known = 0, 0
        for line in lines:
            self.unknown.update(line.unknown)
            if line.fault and not self.has(line):
                self.unreadable.append(line)
            is_there = self.has(line)
            n_known += is_there
            n_open += not is_there
        if n_known < len(self.done) and not self._has_keys:  # a list with keys may have become shorter
            text = f"{self.path} is the output of another batch: it has results of lines that the inputs do not have."
            raise Mistake(text, "Nothing was written. Give another --out, or the inputs that it was begun with.")
        return n_open

    def write(self, line: BatchLine, agent: str, facts: Mapping[str, Any]) -> None:
        """Write the result of a line, whole or not at all. Where the disk is full it is `Refused`, and what was written
        before stays."""
        key = {"key": line.key} if self._has_keys else {}
        own = {} if line.custom_id is None else {"custom_id": line.custom_id}
        record = {"line": line.number, "digest": line.digest, **key, **own, "agent": agent, **facts}
        data = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        end = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            write_all(self._descriptor, data)
        except OSError as error:
            with suppress(OSError):  # else the next command cuts the torn line
                os.ftruncate(self._descriptor, end)
            if error.errno in _FULL:
                text = f"{self.path} cannot be written: {error.strerror}. It has {count(len(self.done), 'result')}."
                raise Refused(text, "Make room there; then the same command goes on.") from error
            raise self._unwritable(error) from error
        self.done[_place_of_line(line)] = line.digest
        self.n_failed += facts["code"] != "SUCCESS"

    def close(self) -> None:
        """Let others write to the file."""
        with suppress(OSError):  # where the file system knows no such thing, what was written is as safe as it can be
            os.fsync(self._descriptor)
        os.close(self._descriptor)
