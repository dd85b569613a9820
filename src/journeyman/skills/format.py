"""One skill, as the open Agent Skills format (agentskills.io) has it: a folder with SKILL.md, and what lies beside it.

A skill is checked as a whole before a model reads any of it. None of its files and links may lead out of its folder.
Each problem is told in one line.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from journeyman.data import lazy_dataclass
from journeyman.errors import DefinitionError, Problem, count, quoted
from journeyman.narrowing import is_dict, is_list_of_texts, is_str_dict
from journeyman.texts import shorten
from journeyman.toolbox.files import LocalFiles, ToolRefused

if TYPE_CHECKING:
    from yaml.nodes import Node

SKILL_FILE: Final = "SKILL.md"
MAX_SKILL_BYTES: Final = 8 * 1024 * 1024
"""The largest skill, all of its files together, unless something else is said."""
MAX_INSTRUCTIONS_BYTES: Final = 256 * 1024
"""The largest SKILL.md. The format recommends less than a tenth of it."""
# The fields that the format bounds have 1,588 characters together; a licence and metadata come on top.
MAX_FRONT_MATTER_BYTES: Final = 16 * 1024
# Both bound how long it takes to make the tool, which looks at each file.
MAX_FILES: Final = 1_000
MAX_DEPTH: Final = 16
# These are the format's own limits.
_MOST_CHARS: Final = {"name": 64, "description": 1_024, "compatibility": 500}
_SHOWN_CHARS: Final = 80

_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FENCED: Final = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
# Up to a blank, `#` or `?`: a title, a place and a query do not belong to the path.
_LINK: Final = re.compile(r"\]\(\s*<?([^()\s<>#?]+)")
# An address may leave its scheme out: `//host/page`.
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:|//")
_RULES: Final = re.compile(r"[^\s,(]+(?:\([^()]*\))?|\([^()]*\)")
"""The names of tools in a text, separated by commas and blanks; what stands in parentheses belongs to the name."""
_DISABLED: Final = "disable-model-invocation"
# Made by Git and Python, and not by the author.
_NOT_PART_OF_IT: Final = frozenset({".git", "__pycache__"})
_TEXTS: Final = ("name", "description", "license", "compatibility")


@lazy_dataclass(frozen=True, kw_only=True)
class Skill:
    """A skill as it was read: the front matter and instructions of its SKILL.md, and the paths of its other files."""

    name: str
    """Lowercase letters, digits and single hyphens, at most 64; the name of its folder, too."""
    description: str
    """What it does and when to use it, on one line of at most 1,024 characters."""
    license: str = ""
    """Its licence; empty when it names none."""
    compatibility: str = ""
    """What the skill needs in its environment; at most 500 characters."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """What else its author says, by name."""
    allowed_tools: Sequence[str] = ()
    """The tools that its author would approve beforehand. This is kept for programs to read; it allows nothing."""
    instructions: str = field(repr=False)
    """The Markdown below the front matter."""
    model_may_load: bool = True
    """False where its author says `disable-model-invocation: true`: models are not told of it."""
    warnings: Sequence[Problem] = field(default=(), repr=False)
    """What is odd about it, and does not keep it from being used."""
    folder: str
    """The folder of the skill: absolute, with links followed."""
    files: Sequence[str] = field(repr=False)
    """The paths of its other files, from its folder, in order; `.git` and `__pycache__` are left out."""


class _Unusable(Exception):
    """A skill cannot be read any further."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_skill(folder: Path, *, max_bytes: int = MAX_SKILL_BYTES) -> Skill:
    """Read the skill in a folder, whose name is the skill's. A skill that is larger than `max_bytes` is refused.

    Raises:
        DefinitionError: there is none, or something is wrong with it; lists every problem.
    """
    # The name that the folder was given by, and not that of the place where a link to it leads.
    named, root = Path(os.path.abspath(folder)).name, os.path.realpath(folder)
    shown = f"{folder}/{SKILL_FILE}"
    problems: list[Problem] = []
    files = _inventory(root, str(folder), max_bytes, problems)
    try:
        front, instructions = _split_front_matter(_read_skill_file(root, shown), shown)
        fields = _front_fields(front, shown)
    except _Unusable as unusable:
        problems.append(unusable.problem)
    else:
        links = [*_links(instructions, shown)]
        problems += [
            *_field_problems(fields, named, shown),
            *(problem for may_stand, problem in links if not may_stand),
        ]
        if not problems:
            texts = {name: " ".join(str(fields.get(name, "")).split()) for name in _TEXTS}
            tools = fields.get("allowed-tools", "")
            listed = tools if is_list_of_texts(tools) else [str(tools)]
            return Skill(
                **texts,
                metadata=cast("Mapping[str, str]", fields.get("metadata") or {}),
                allowed_tools=tuple([name for each in listed for name in _RULES.findall(each)]),
                model_may_load=fields.get(_DISABLED, "false") != "true",
                warnings=tuple([problem for _, problem in links]),
                instructions=instructions,
                folder=root,
                files=tuple(sorted(each for each in files if each != SKILL_FILE)),
            )
    raise DefinitionError(f"The skill in {folder}", problems)


# -- the files --------------------------------------------------------------------------------------------------------


def _inventory(root: str, shown: str, max_bytes: int, problems: list[Problem]) -> list[str]:
    """Return the paths of the files in a skill's folder, from there, and say what is wrong with them."""
    files: list[str] = []
    n_bytes, folders = 0, [(root, 0)]
    # It stops once there is too much, so a folder full of files costs no more than a full skill.
    while folders and n_bytes <= max_bytes and len(files) <= MAX_FILES:
        folder, depth = folders.pop()
        try:
            with os.scandir(folder) as entries:
                # Of the link itself: one that leads back up would never end.
                found = [(each, each.stat(follow_symlinks=False)) for each in entries]
        except OSError as error:
            problems.append(_unreadable(folder, error))
            continue
        for entry, facts in sorted(found, key=lambda pair: pair[0].name):
            path = entry.path[len(root) + 1 :]
            wrong = _entry_problem(entry, facts.st_mode, root, f"{shown}/{path}")
            if wrong is not None:
                problems.append(wrong)
            elif stat.S_ISDIR(facts.st_mode):
                folders += [(entry.path, depth + 1)] if depth < MAX_DEPTH and entry.name not in _NOT_PART_OF_IT else []
            elif entry.is_file():
                n_bytes += facts.st_size
                files.append(path)
    if n_bytes > max_bytes:
        hint = "Keep in it what its tasks need, or raise max_bytes."
        problems.append(Problem("SKILL_TOO_LARGE", f"The skill in {shown} has more than {max_bytes:,} bytes.", hint))
    elif len(files) > MAX_FILES:
        text = f"The skill in {shown} has more than {MAX_FILES:,} files."
        problems.append(Problem("SKILL_TOO_LARGE", text, "Keep in it what its tasks need."))
    return files


def _entry_problem(entry: os.DirEntry[str], mode: int, root: str, shown: str) -> Problem | None:
    if not entry.name.isprintable():
        hint = "Rename it: models read the names."
        return Problem("INVALID_SKILL_FILE", f"{quoted(shown)} has a name that is not plain text.", hint)
    if entry.is_symlink():
        # To the last one: a link may lead to a link.
        target = os.path.realpath(entry.path)
        if not target.startswith(f"{root}/"):
            hint = "Put the file itself into the folder."
            return Problem(
                "OUTSIDE_SKILL", f"{shown} is a link that leads out of the skill, to {quoted(target)}.", hint
            )
    elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return Problem("INVALID_SKILL_FILE", f"{shown} is neither a file nor a folder.", "Remove it.")
    return None


def _unreadable(shown: str, error: OSError) -> Problem:
    hint = "Let this program read it."
    return Problem("UNREADABLE_SKILL", f"{shown} cannot be read: {error.strerror or error}.", hint)


def _read_skill_file(root: str, shown: str) -> str:
    """Return what stands in SKILL.md, with plain line ends."""
    try:
        # One byte more, to see that there is more.
        data = LocalFiles().read(os.path.realpath(f"{root}/{SKILL_FILE}"), MAX_INSTRUCTIONS_BYTES + 1)
    except FileNotFoundError:
        hint = "Write one: a name, a description and instructions."
        raise _Unusable(Problem("NO_SKILL_FILE", f"{shown} does not exist.", hint)) from None
    except OSError as error:
        raise _Unusable(_unreadable(shown, error)) from None
    except ToolRefused as refusal:
        raise _Unusable(Problem("UNREADABLE_SKILL", str(refusal), "Put a text file there.")) from None
    if len(data) > MAX_INSTRUCTIONS_BYTES:
        hint = "Move what is not always needed into files beside it."
        text = f"{shown} is larger than {MAX_INSTRUCTIONS_BYTES:,} bytes."
        raise _Unusable(Problem("SKILL_TOO_LARGE", text, hint))
    try:
        # `-sig` drops the mark that editors on Windows put first.
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        text = f"{shown} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}."
        raise _Unusable(Problem("UNREADABLE_SKILL", text, "Save it in UTF-8.")) from None


# -- the front matter -------------------------------------------------------------------------------------------------


def _split_front_matter(text: str, shown: str) -> tuple[str, str]:
    """Return the front matter and the instructions below it."""
    lines = text.split("\n")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if lines[0].rstrip() != "---" or end is None:
        hint = "Begin with a line ---, name: and description:, and another line ---."
        raise _Unusable(Problem("NO_FRONT_MATTER", f"{shown} has no front matter between two lines ---.", hint))
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]).strip()


def _front_fields(front: str, shown: str) -> dict[str, object]:
    """Return the fields of the front matter. Every scalar is the text that stands there: `1.0` stays `1.0`."""
    try:
        import yaml
    except ImportError:
        problem = Problem("MISSING_PACKAGE", "The package pyyaml is not installed.", "pip install 'journeyman[skills]'")
        raise _Unusable(problem) from None
    reason, hint = "", "Put a value that holds ': ' or '#' into quotes, and indent by spaces."
    if len(front.encode()) > MAX_FRONT_MATTER_BYTES:
        reason, hint = f"it is larger than {MAX_FRONT_MATTER_BYTES:,} bytes", "Shorten it."
    else:
        try:
            # `compose` makes no values: `1.0` and `no` stay what was written, and no tag in it has any effect.
            fields = _value_of_node(cast("Node | None", yaml.compose(front, Loader=yaml.BaseLoader)), set())  # pyright: ignore[reportUnknownMemberType] - its stubs leave out the type of the stream
            if is_str_dict(fields):
                return fields
            reason = "it is not a list of fields"
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = "" if mark is None else f"line {mark.line + 2}: "  # counted from the first line ---
            reason = f"{line}{error.problem or error.context}"
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
        except ValueError as error:
            reason, hint = str(error), "Write each value once, as it is."
        except RecursionError:
            # The parser calls itself for each level.
            reason, hint = "it is nested too deeply", "The format has one level below metadata, and no more."
    raise _Unusable(Problem("INVALID_FRONT_MATTER", f"The front matter of {shown} cannot be read: {reason}.", hint))


def _value_of_node(node: Node | None, seen: set[int]) -> object:
    """Return what a part of a YAML document says, in texts, lists and dicts.

    Raises:
        ValueError: a field is there twice, or an alias stands for more than a text.
    """
    if node is None or isinstance(node.value, str):
        return "" if node is None else node.value
    # Lists of aliases of lists grow beyond any memory.
    if id(node) in seen:
        raise ValueError(f"line {node.start_mark.line + 2}: an alias stands for more than a text")
    seen.add(id(node))
    parts = cast("list[Node | tuple[Node, Node]]", node.value)
    fields: dict[object, object] = {}
    for part in parts:
        if isinstance(part, tuple):
            name = str(_value_of_node(part[0], seen))
            if name in fields:
                raise ValueError(f"line {part[0].start_mark.line + 2}: the field {_quote(name)} is there twice")
            fields[name] = _value_of_node(part[1], seen)
    # An empty one has no fields to be known by.
    if fields or node.tag.endswith(":map"):
        return fields
    return [_value_of_node(part, seen) for part in parts if not isinstance(part, tuple)]


def _quote(value: object) -> str:
    """Return a value on one line, if it is long only its beginning."""
    text = quoted(value) if isinstance(value, str) else quoted(str(value))[1:-1]
    return shorten(text, _SHOWN_CHARS)


# -- what the format asks for -----------------------------------------------------------------------------------------


def _field_problems(fields: Mapping[str, object], named: str, shown: str) -> Iterator[Problem]:
    """Give what is wrong with the fields of a skill in a folder with this name. Fields that nobody knows may stand."""
    name, description = fields.get("name"), fields.get("description")
    if not name:
        yield Problem("MISSING_SKILL_NAME", f"{shown} has no name.", f"Add its folder's: name: {named}")
    elif not isinstance(name, str) or len(name) > _MOST_CHARS["name"] or not _NAME.fullmatch(name):
        hint = "Use 1 to 64 of the characters a-z, 0-9 and single hyphens between them."
        yield Problem("INVALID_SKILL_NAME", f"The name {_quote(name)} in {shown} cannot be the name of a skill.", hint)
    elif name != named:
        hint = "Let both have the same name."
        yield Problem("INVALID_SKILL_NAME", f"The name in {shown} is {name!r}, and its folder's {_quote(named)}.", hint)
    if not isinstance(description, str) or not description.strip():
        hint = "Say in it what the skill does and when to use it."
        yield Problem("MISSING_SKILL_DESCRIPTION", f"{shown} has no description.", hint)
    yield from _text_problems(fields, shown)
    metadata, tools = fields.get("metadata", ""), fields.get("allowed-tools", "")
    said = _quote(metadata)
    is_flat = is_dict(metadata) and is_list_of_texts([*metadata.values()])
    if not (is_flat or metadata == ""):
        text = f"metadata in {shown} is {said}."
        yield Problem("INVALID_SKILL_FIELD", text, "Write names with one text each below it.")
    if (given := fields.get(_DISABLED, "false")) not in ("true", "false", ""):
        yield Problem("INVALID_SKILL_FIELD", f"{_DISABLED} in {shown} is {_quote(given)}.", "Write true or false.")
    if not (isinstance(tools, str) or is_list_of_texts(tools)):
        text = f"allowed-tools in {shown} is {_quote(tools)}."
        yield Problem("INVALID_SKILL_FIELD", text, "Write names of tools, in one text or in a list.")


def _text_problems(fields: Mapping[str, object], shown: str) -> Iterator[Problem]:
    """Give what is wrong with the fields that are one text, except for the name and a description that is missing."""
    for each in _TEXTS:
        value, most = fields.get(each, ""), _MOST_CHARS.get(each, MAX_FRONT_MATTER_BYTES)
        if each == "name" or (each == "description" and not isinstance(value, str)):
            continue
        if not isinstance(value, str):
            yield Problem(
                "INVALID_SKILL_FIELD", f"{each} in {shown} is not a text: {_quote(value)}.", "Write one text."
            )
        elif len(value) > most:
            text = f"{each} in {shown} has {count(len(value), 'character')}; the most is {most:,}."
            yield Problem("INVALID_SKILL_FIELD", text, "Shorten it, and say the rest in the instructions.")


def _links(instructions: str, shown: str) -> Iterator[tuple[bool, Problem]]:
    """Give what is wrong with the links that lead out of the skill, each with whether the skill can still be
    used: nothing is read through a link to a skill beside it. What stands in code is no link."""
    for found in dict.fromkeys(_LINK.findall(_FENCED.sub("", instructions))):
        leads_out = found.startswith(("/", "~")) or os.path.normpath(found).startswith("..")
        if not leads_out or _SCHEME.match(found):
            continue
        parts = os.path.normpath(found).split("/")
        if len(parts) > 1 and parts[0] == ".." and parts[1] != "..":
            text = f"{shown} has a link to another skill, which a model cannot follow: {_quote(found)}."
            yield True, Problem("OUTSIDE_SKILL", text, "Name the skill instead.")
        else:
            text = f"{shown} has a link that leads out of the skill: {_quote(found)}."
            yield (
                False,
                Problem("OUTSIDE_SKILL", text, "Put the file into the skill, or link to an address of the web."),
            )
