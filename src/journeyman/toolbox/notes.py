"""The tool `memory`: notes in a folder, which outlive the run, with the commands that Claude's memory tool has.

A path is one of the folder's, as in a workspace: nothing leads out of it. Whoever writes holds a lock of the folder, so
that of two writers at the same time, in whichever process, neither undoes the other's work.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from journeyman.definition.narrowing import as_list
from journeyman.definition.problems import COUNT, explain_arguments, raise_problems, value_problems
from journeyman.errors import Problem, count
from journeyman.machine.files import make_private_folder, open_lock, take_lock
from journeyman.toolbox.files import LocalFiles, Located, Reach, ToolRefused, decode_file, first_lines, split_lines
from journeyman.tools.context import ToolContext
from journeyman.tools.schema import Arguments, TypedArguments
from journeyman.tools.tools import Tool
from journeyman.types import JsonObject

TOP: Final = "/memories"
"""What the folder is called in the paths that the model writes."""
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "view": ("path",),
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str", "new_str"),
    "insert": ("path", "insert_line", "insert_text"),
    "delete": ("path",),
    "rename": ("old_path", "new_path"),
}
_USER: Final = re.compile(r"[a-z0-9_-]{1,64}")
_DEEPEST: Final = 8
_LOCK: Final = ".lock"
_ABOUT: Final = (
    f"Notes that outlive this conversation, as text files below {TOP}. View {TOP} before you begin, for what earlier "
    "work has found out. Write down what later work will need: what holds, what failed and why, how far you are. Keep "
    "the notes short, true and in order: correct them instead of adding to them, and delete what is no longer true. "
    "Never write secrets into them."
)
_RANGE: Final = "For view: the first and the last line of a file; -1 for its end."


@with_config(ConfigDict(extra="forbid", strict=True))
class _Arguments(TypedDict):
    command: Annotated[
        Literal["view", "create", "str_replace", "insert", "delete", "rename"], Field(description="What to do.")
    ]
    path: NotRequired[
        Annotated[str, Field(description=f"A file or folder, such as {TOP}/plan.md; for all commands but rename.")]
    ]
    view_range: NotRequired[Annotated[list[int], Field(min_length=2, max_length=2, description=_RANGE)]]
    file_text: NotRequired[Annotated[str, Field(description="For create: what shall be in the new file.")]]
    old_str: NotRequired[Annotated[str, Field(description="For str_replace: a text that stands in the file once.")]]
    new_str: NotRequired[Annotated[str, Field(description="For str_replace: what to put in its place.")]]
    insert_line: NotRequired[Annotated[int, Field(ge=0, description="For insert: behind this line; 0: at the top.")]]
    insert_text: NotRequired[Annotated[str, Field(description="For insert: the new lines.")]]
    old_path: NotRequired[Annotated[str, Field(description="For rename: what to rename or move.")]]
    new_path: NotRequired[Annotated[str, Field(description="For rename: its new path, where nothing is yet.")]]


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(_Arguments)


@explain_arguments
class MemoryTool(Tool[..., Any]):
    """The tool `memory`, with which a model keeps notes in a folder: it views, creates, changes, renames and deletes
    text files.

    Raises:
        DefinitionError: when made, if the folder or a limit cannot be used; lists every problem.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        user: str | Callable[[ToolContext[Any, Any]], str] | None = None,
        untrusted: bool = True,
        max_file_bytes: int = 32 * 1024,
        max_bytes: int = 1024 * 1024,
        max_files: int = 200,
        name: str = "memory",
    ) -> None:
        """Keep the notes in a folder; it is made when the first is written.

        Args:
            folder: Where they are, `~` for the user's home.
            user: Whose notes these are, or a function that says it of a call: `user=lambda ctx: ctx.deps.user`. Each
                user has a folder inside, and sees no other's. None: they are everybody's.
            untrusted: Whether a run may write what it has read of strangers. If True, a `TaintGate` takes what it reads
                here for theirs.
            max_file_bytes: How long a note may be.
            max_bytes: How much all notes may have together; of each user's.
            max_files: How many notes there may be; of each user's.
            name: The name of the tool. Change it for an agent that has two tools of this kind.
        """
        limits = {"max_file_bytes": max_file_bytes, "max_bytes": max_bytes, "max_files": max_files}
        problems = [
            each for key, value in limits.items() for each in value_problems("INVALID_ARGUMENT", key, value, COUNT)
        ]
        place = Path(os.path.expanduser(folder))
        if place.exists() and not place.is_dir():
            problems.append(Problem("NO_WORKSPACE", f"{place} is not a folder.", "Give a folder for the notes."))
        raise_problems("MemoryTool", problems)
        self.__dict__.update(_folder=place, _user=user, _limits=limits)  # a tool is frozen
        super().__init__(
            name, _ABOUT, TypedArguments.describe(_adapter()), self._act, effect="once", untrusted=untrusted
        )

    _folder: Path
    _user: str | Callable[[ToolContext[Any, Any]], str] | None
    _limits: Mapping[str, int]

    def _read_schema(self, schema: JsonObject) -> Arguments:
        return TypedArguments(schema, _adapter())

    def __repr__(self) -> str:
        return f"<MemoryTool {self._folder}>"

    def _act(self, arguments: Mapping[str, object], ctx: ToolContext[Any, Any]) -> str:
        command = str(arguments["command"])
        if missing := [name for name in _NEEDS[command] if name not in arguments]:
            raise ToolRefused("invalid", f"{command} needs {' and '.join(missing)}.")
        notes = _Notes(str(self._folder / self._folder_of(ctx)), self._limits)
        if command == "view":
            return notes.view(arguments)
        with _alone(self._folder):
            make_private_folder(Path(notes.reach.root))
            return {
                "create": notes.create,
                "str_replace": notes.replace,
                "insert": notes.insert,
                "delete": notes.delete,
                "rename": notes.rename,
            }[command](arguments)

    def _folder_of(self, ctx: ToolContext[Any, Any]) -> str:
        """Return the name of the folder with the notes of a call's user; nobody else's is called so."""
        if self._user is None:
            return "."
        user = self._user(ctx) if callable(self._user) else self._user
        if not isinstance(user, str) or not user:  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
            raise ToolRefused("denied", "Nobody knows whose notes these are: there is no user.")
        return user if _USER.fullmatch(user) else f"~{sha256(user.encode('utf-8', 'surrogatepass')).hexdigest()}"


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Hold the folder's lock: whoever writes waits for the one before."""
    make_private_folder(folder)
    lock = open_lock(folder / _LOCK)
    try:
        take_lock(lock, wait=True)
        yield
    finally:
        os.close(lock)


class _Notes:
    """The notes of one user, and what a command does to them."""

    def __init__(self, root: str, limits: Mapping[str, int]) -> None:
        self.reach: Final = Reach(root, LocalFiles(), also=(), confined=True)
        self._files: Final = LocalFiles()
        self._limits = limits

    def view(self, given: Mapping[str, object]) -> str:
        located = self._locate(given["path"])
        facts = located.facts
        if facts is None and located.path == self.reach.root:
            return f"[{TOP} is empty.]"
        if facts is None:
            raise ToolRefused("not_found", f"{self._name_note(located)} does not exist.")
        if facts.kind == "folder":
            listed = [
                f"{TOP}/{self.reach.show_path(path)} ({count(size, 'byte')})" for path, size in self._walk(located.path)
            ]
            return "\n".join(first_lines(listed)) or f"[{self._name_note(located)} is empty.]"
        lines = split_lines(self._read_note(located))
        first, last = [each for each in as_list(given.get("view_range")) if isinstance(each, int)] or [1, -1]
        numbered = [f"{number}\t{line}" for number, line in enumerate(lines, 1)]
        chosen = numbered[max(first, 1) - 1 : None if last < 0 else last]
        shown = first_lines(chosen)
        rest = [f"[{count(len(chosen) - len(shown), 'line')} more: view them with view_range.]"]
        return "\n".join([*shown, *(rest if len(shown) < len(chosen) else ())]) or "[There are no such lines.]"

    def create(self, given: Mapping[str, object]) -> str:
        located = self._locate(given["path"])
        if located.facts is not None:
            raise ToolRefused("invalid", f"{self._name_note(located)} exists. Change it with str_replace or insert.")
        return self._write(located, str(given["file_text"]), is_new=True)

    def replace(self, given: Mapping[str, object]) -> str:
        located, old = self._locate(given["path"]), str(given["old_str"])
        text = self._read_note(located)
        found = text.count(old) if old else 0
        if found != 1:
            advice = "View the file." if not found else "Give more of the text around it."
            raise ToolRefused(
                "no_match", f"old_str stands {count(found, 'time')} in {self._name_note(located)}. {advice}"
            )
        return self._write(located, text.replace(old, str(given["new_str"])))

    def insert(self, given: Mapping[str, object]) -> str:
        located, line = self._locate(given["path"]), int(str(given["insert_line"]))
        lines = self._read_note(located).splitlines(keepends=True)
        if line > len(lines):
            raise ToolRefused(
                "invalid", f"{self._name_note(located)} has {count(len(lines), 'line')}, so there is none {line}."
            )
        if line and not lines[line - 1].endswith("\n"):
            lines[line - 1] += "\n"
        added = str(given["insert_text"])
        ending = "" if added.endswith("\n") or line == len(lines) else "\n"
        return self._write(located, "".join([*lines[:line], added, ending, *lines[line:]]))

    def delete(self, given: Mapping[str, object]) -> str:
        located = self._existing(given["path"])
        self._files.delete(located.path)
        return f"Deleted {self._name_note(located)}."

    def rename(self, given: Mapping[str, object]) -> str:
        old, new = self._existing(given["old_path"]), self._locate(given["new_path"])
        if new.facts is not None or new.path.startswith(f"{old.path}/"):
            raise ToolRefused("invalid", f"{self._name_note(new)} is there already, or inside of what is moved.")
        self._files.rename(old.path, new.path)
        return f"Renamed {self._name_note(old)} to {self._name_note(new)}."

    def _locate(self, path: object) -> Located:
        given = str(path).rstrip("/") or "/"
        if given != TOP and not given.startswith(f"{TOP}/"):
            raise ToolRefused("outside", f"{given[:200]!r} is not below {TOP}. Write {TOP}/NAME.")
        located = self.reach.locate(given.removeprefix(TOP).lstrip("/") or ".")
        steps = located.shown.split("/")
        if located.shown != "." and any(step.startswith(".") or not step.isprintable() for step in steps):
            raise ToolRefused("denied", f"{given[:200]!r} has a name that begins with a dot, or cannot be printed.")
        if len(steps) > _DEEPEST:
            raise ToolRefused("invalid", f"{given[:200]!r} is too deep: {_DEEPEST} levels at most.")
        return located

    def _existing(self, path: object) -> Located:
        located = self._locate(path)
        if located.path == self.reach.root or located.facts is None:
            raise ToolRefused("not_found", f"{self._name_note(located)} is not a note, or a folder of some.")
        return located

    def _name_note(self, located: Located) -> str:
        return TOP if located.shown == "." else f"{TOP}/{located.shown}"

    def _read_note(self, located: Located) -> str:
        facts = located.facts
        if facts is None or facts.kind != "file":
            raise ToolRefused("not_found", f"{self._name_note(located)} is not a note.")
        return decode_file(located.content(), self._name_note(located))[0]

    def _write(self, located: Located, text: str, *, is_new: bool = False) -> str:
        data = text.encode("utf-8", "replace")
        before = located.facts
        sizes = [size for _, size in self._walk(self.reach.root)]
        n_bytes = sum(sizes) + len(data) - (before.size if before is not None else 0)
        for name, size in (("max_file_bytes", len(data)), ("max_bytes", n_bytes), ("max_files", len(sizes) + is_new)):
            if size > self._limits[name]:
                what = {"max_file_bytes": "This note", "max_bytes": "All notes", "max_files": "The number of notes"}[
                    name
                ]
                raise ToolRefused(
                    "invalid", f"{what} would be {size:,}, and {self._limits[name]:,} is the most. Delete some."
                )
        self._files.replace(located.path, data)
        return f"{'Created' if is_new else 'Changed'} {self._name_note(located)}: {count(len(data), 'byte')}."

    def _walk(self, folder: str, depth: int = 0) -> Iterator[tuple[str, int]]:
        """Yield the path and the size of each note in a folder, by name; what is hidden is none."""
        for entry in sorted(self._files.list(folder), key=lambda entry: entry.name):
            path = f"{folder}/{entry.name}"
            if entry.name.startswith("."):
                continue
            if entry.kind == "folder" and depth < _DEEPEST:
                yield from self._walk(path, depth + 1)
            elif entry.kind == "file" and (facts := self._files.facts(path)) is not None:
                yield path, facts.size
