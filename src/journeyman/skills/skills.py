"""The tool with which a model loads skills: `tools=[Skills("skills"), *workspace.tools()]`.

The model reads their names and descriptions from the first request on, in the description of the tool, which never
changes in a run: so it is cached with the prefix. It reads the instructions of a skill when it loads it, and a file of
it when it asks for that. Nothing here runs anything: scripts are run by `bash`, as far as its permissions go.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_dict
from journeyman.definition.problems import COUNT, explain_arguments, value_problems
from journeyman.errors import DefinitionError, Problem, count, quoted
from journeyman.gate import make_path_hider
from journeyman.texts import shorten
from journeyman.toolbox.files import (
    LocalFiles,
    Reach,
    ToolRefused,
    decode_file,
    first_lines,
    nothing_hidden,
    split_lines,
)
from journeyman.tools.issues import excerpt
from journeyman.tools.tools import AnyTool, Tool
from journeyman.tools.toolsets import Toolset
from journeyman.types import JsonObject

NAME: Final = "skill"
SKILL_FILE: Final = "SKILL.md"
MAX_SKILL_BYTES: Final = 8 * 1024 * 1024
"""The largest skill, all of its files together, unless something else is said."""
_MOST_LISTED: Final = 100
"""So many files of a skill are listed when it is loaded. The list is sent with every later request."""
_ABOUT: Final = (
    "Load a skill: instructions for one kind of task, and files that go with them. When a task fits a description "
    "below, load that skill before you begin, and do as it says.\n\nThe skills:"
)
_log = logging.getLogger("journeyman")


@explain_arguments
class Skills(Tool[..., Any], Toolset):
    """The tool `skill`, with which a model loads the skills of these folders.

    A folder holds skills, each in a folder of its own with a SKILL.md; or it is a skill itself. Each SKILL.md is read
    once, when the tool is made. Other files are read when the model asks for them.

    Raises:
        DefinitionError: when made, if a folder holds no skill, two skills have the same name, or something is wrong
            with one; lists every problem. With `skip_broken`, only if a folder holds no skill at all, or if no skill is
            left.
    """

    skills: Mapping[str, Skill]
    """The skills by name, in the order of the folders, and in each by name."""
    skipped: tuple[Problem, ...]
    """With `skip_broken`: what is wrong with the skills that were left out. If two have the same name, the second is
    left out."""

    def __init__(
        self,
        *folders: str | os.PathLike[str],
        untrusted: bool = False,
        skip_broken: bool = False,
        name: str = NAME,
        max_bytes: int = MAX_SKILL_BYTES,
    ) -> None:
        """Read the skills.

        Args:
            folders: Where they are, `~` for the user's home.
            untrusted: Whether the skills may hold instructions that are not the user's. If True, a `TaintGate` treats
                their descriptions and everything that is loaded as untrusted.
            skip_broken: Leave out skills with which something is wrong, and log that, instead of raising.
            name: The name of the tool. Change it for an agent that has two tools of this kind.
            max_bytes: How many bytes all files of one skill may have together.
        """
        found: dict[str, Skill] = {}
        problems = [*_argument_problems(folders, max_bytes)]
        broken: list[Problem] = []
        for folder in [] if problems else [Path(os.path.expanduser(each)) for each in folders]:
            empty = _add_folder(folder, found, broken, max_bytes)
            problems += [] if empty is None else [empty]
        if problems or (broken and not (skip_broken and found)):
            raise DefinitionError("Skills", [*problems, *broken])
        for problem in broken:
            _log.warning("A skill is left out: %s", problem)
        for warning in [warning for each in found.values() for warning in each.warnings]:
            _log.warning("A skill is taken as it is: %s", warning)
        offered = {name: each for name, each in found.items() if each.model_may_load}
        if not offered:
            hint = "Take out disable-model-invocation, or give another skill."
            problem = Problem("NO_SKILLS", f"No model may load any of the skills: {', '.join(found)}.", hint)
            raise DefinitionError("Skills", [problem])
        # A tool is frozen.
        self.__dict__.update(skills=MappingProxyType(found), skipped=tuple(broken))
        listed = "".join(f"\n- {each.name}: {each.description}" for each in offered.values())
        super().__init__(
            name,
            f"{_ABOUT}{listed}",
            _schema_of(offered),
            self._load,
            parallel=True,
            effect="pure",
            untrusted="throughout" if untrusted else False,
            permission_kind="skill",
        )

    def __repr__(self) -> str:
        return f"<Skills {', '.join(self.skills)}>"

    @property
    def known_tools(self) -> Sequence[AnyTool]:
        """The tool itself, as a toolset of one."""
        return (self,)

    def _load(self, arguments: Mapping[str, object]) -> str:
        """Return the instructions of a skill, or one of its files, from a line on."""
        skill, file = self.skills[cast("str", arguments["name"])], cast("str | None", arguments.get("file"))
        offset = cast("int", arguments.get("offset", 1))
        reach = Reach(skill.folder, LocalFiles(), also=(), confined=True)
        is_hidden = make_path_hider("read", skill.folder) or nothing_hidden
        if file is not None:
            return _part_from_line(_file_of(reach, file), offset)
        if is_hidden(f"{skill.folder}/{SKILL_FILE}"):
            raise ToolRefused("denied", f"The skill {skill.name} may not be read: a rule forbids it.")
        shown = _part_from_line(skill.instructions, offset)
        if offset > 1:
            return shown
        needs = f"Needs: {skill.compatibility}\n" if skill.compatibility else ""
        files = [each for each in skill.files if not is_hidden(f"{skill.folder}/{each}")]
        beside = ", ".join(files[:_MOST_LISTED]) + (", …" if len(files) > _MOST_LISTED else "")
        listed = f"\n\n[{count(len(files), 'file')}, read with file=…: {beside}]" if files else ""
        return f"[The skill {skill.name}, in {skill.folder}]\n{needs}\n{shown}{listed}"


def _argument_problems(folders: Sequence[object], max_bytes: object) -> Iterator[Problem]:
    if not folders:
        yield Problem("NO_SKILLS", "No folder is given.", 'Pass at least one: Skills("skills").')
    for each in folders:
        if not isinstance(each, str | os.PathLike):
            yield Problem("INVALID_ARGUMENT", f"A folder of skills is {each!r}.", "Pass its path.")
    yield from value_problems("INVALID_ARGUMENT", "max_bytes", max_bytes, COUNT)


def _add_folder(folder: Path, found: dict[str, Skill], broken: list[Problem], max_bytes: int) -> Problem | None:
    """Add the skills of a folder to those that were found. Return why there are none."""
    try:
        # In order: a system lists folders in any, and the description has to be the same for a cache.
        inner = sorted(each for each in folder.iterdir() if each.is_dir())
        # A folder is meant to be a skill where SKILL.md is spelled in another way, too: that is told then.
        meant = [each for each in inner if any(file.name.lower() == SKILL_FILE.lower() for file in each.iterdir())]
        is_one = (folder / SKILL_FILE).is_file()
    except OSError as error:
        hint = "Check the path, and let this program read it."
        return Problem("NO_SKILLS", f"{folder} holds no skills: {error.strerror or error}.", hint)
    places = [folder] if is_one else meant
    root = os.path.realpath(folder)
    for place in places:
        target = os.path.realpath(place)
        # With the slash, since `/skills-old` begins with `/skills`, too.
        if place != folder and not target.startswith(f"{root}/"):
            hint = f"Give the folder that it leads to, too: Skills({str(folder)!r}, {target!r})."
            broken.append(Problem("OUTSIDE_SKILL", f"{place} is a link that leads out of {folder}, to {target}.", hint))
            continue
        try:
            skill = read_skill(place, max_bytes=max_bytes)
        except DefinitionError as error:
            broken += error.problems
            continue
        if skill.name in found:
            text = f"There are two skills {skill.name!r}: in {found[skill.name].folder} and in {skill.folder}."
            broken.append(Problem("DUPLICATE_SKILL_NAME", text, "Leave one of them out, or rename it and its folder."))
        found.setdefault(skill.name, skill)
    hint = f"Put each skill into a folder of its own, with a {SKILL_FILE}."
    return None if places else Problem("NO_SKILLS", f"{folder} holds no skills.", hint)


def _schema_of(skills: Mapping[str, Skill]) -> JsonObject:
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": [*skills], "description": "The name of the skill."},
            "file": {
                "type": "string",
                "description": "Read this file of it, by its path in the skill, instead of the instructions.",
            },
            "offset": {"type": "integer", "minimum": 1, "description": "The first line to read, of a long text."},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def _file_of(reach: Reach, file: str) -> str:
    """Return the text of a file of a skill.

    Raises:
        Refusal: there is no such file, it is out of the skill, no text, or a rule forbids it.
    """
    is_hidden = make_path_hider("read", reach.root) or nothing_hidden
    try:
        located, facts = reach.existing(file, is_hidden)
    except ToolRefused as refusal:
        if refusal.kind != "outside":
            raise
        raise ToolRefused("outside", f"{file!r} is outside of the skill. Give a path in it.") from None
    if is_hidden(located.path):
        raise ToolRefused("denied", f"{located.shown} may not be read: a rule forbids it.")
    if facts.kind != "file":
        raise ToolRefused("invalid", f"{located.shown} is not a file. Give the path of one.")
    return decode_file(located.content(), located.shown)[0]


def _part_from_line(text: str, offset: int) -> str:
    """Return as much of a text as may be shown, from a line on, with a note on how to go on."""
    lines = split_lines(text)
    if offset > max(1, len(lines)):
        raise ToolRefused("invalid", f"It has {count(len(lines), 'line')}, so there is no line {offset:,}.")
    shown = first_lines(lines[offset - 1 :])
    last = offset + len(shown) - 1
    if last < len(lines):
        shown.append(f"[Lines {offset:,} to {last:,} of {len(lines):,}. Go on with offset={last + 1}.]")
    return "\n".join(shown)


# In the open Agent Skills format (agentskills.io): a folder with SKILL.md, and what lies beside it.
# A skill is checked as a whole before a model reads any of it. None of its files and links may lead out of its folder.
# Each problem is told in one line.

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MAX_INSTRUCTIONS_BYTES: Final = 256 * 1024
"""The largest SKILL.md. The format recommends less than a tenth of it."""
MAX_FRONT_MATTER_BYTES: Final = 16 * 1024
MAX_FILES: Final = 1_000
MAX_DEPTH: Final = 16
_SHOWN_CHARS: Final = 80

_FENCED: Final = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\(\s*<?([^()\s<>#?]+)")
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:|//")
_RULES: Final = re.compile(r"[^\s,(]+(?:\([^()]*\))?|\([^()]*\)")
"""The names of tools in a text, separated by commas and blanks; what stands in parentheses belongs to the name."""
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
        front, instructions = _split_front_matter(_read_head_file(f"{root}/{SKILL_FILE}", shown), shown)
        links = [*_links(instructions, shown)]
        fields = _check_fields(_front_fields(front, shown), named, shown, problems)
    except DefinitionError as unusable:  # it cannot be read any further
        problems += unusable.problems
    else:
        problems += [problem for may_stand, problem in links if not may_stand]
        if fields is not None and not problems:
            listed = [fields.allowed_tools] if isinstance(fields.allowed_tools, str) else fields.allowed_tools
            return Skill(
                **{name: " ".join(getattr(fields, name).split()) for name in _TEXTS},
                metadata=fields.metadata or {},
                # Once for each text: an alias may repeat a long one a thousand times.
                allowed_tools=tuple([name for each in dict.fromkeys(listed) for name in _RULES.findall(each)]),
                model_may_load=fields.disable_model_invocation != "true",
                warnings=tuple([problem for _, problem in links]),
                instructions=instructions,
                folder=root,
                files=tuple(sorted(each for each in files if each != SKILL_FILE)),
            )
    raise DefinitionError(f"The skill in {folder}", problems)


def read_front_matter(path: Path) -> tuple[Mapping[object, object], str]:
    """Return what the front matter of a Markdown file says, and the text below it.

    Raises:
        DefinitionError: it has none, or cannot be read.
    """
    shown = str(path)
    front, text = _split_front_matter(_read_head_file(shown, shown), shown)
    return _front_fields(front, shown), text


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


def _read_head_file(path: str, shown: str) -> str:
    """Return what stands in a file with front matter, such as SKILL.md, with plain line ends."""
    try:
        # One byte more, to see that there is more.
        data = LocalFiles().read(os.path.realpath(path), MAX_INSTRUCTIONS_BYTES + 1)
    except FileNotFoundError:
        hint = "Write one: a name, a description and instructions."
        raise DefinitionError(shown, [Problem("NO_SKILL_FILE", f"{shown} does not exist.", hint)]) from None
    except OSError as error:
        raise DefinitionError(shown, [_unreadable(shown, error)]) from None
    except ToolRefused as refusal:
        raise DefinitionError(shown, [Problem("UNREADABLE_SKILL", str(refusal), "Put a text file there.")]) from None
    if len(data) > MAX_INSTRUCTIONS_BYTES:
        hint = "Move what is not always needed into files beside it."
        text = f"{shown} is larger than {MAX_INSTRUCTIONS_BYTES:,} bytes."
        raise DefinitionError(shown, [Problem("SKILL_TOO_LARGE", text, hint)])
    try:
        # `-sig` drops the mark that editors on Windows put first.
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        text = f"{shown} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}."
        raise DefinitionError(shown, [Problem("UNREADABLE_SKILL", text, "Save it in UTF-8.")]) from None


def _split_front_matter(text: str, shown: str) -> tuple[str, str]:
    """Return the front matter and the instructions below it."""
    lines = text.split("\n")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if lines[0].rstrip() != "---" or end is None:
        hint = "Begin with a line ---, name: and description:, and another line ---."
        text = f"{shown} has no front matter between two lines ---."
        raise DefinitionError(shown, [Problem("NO_FRONT_MATTER", text, hint)])
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]).strip()


def _front_fields(front: str, shown: str) -> Mapping[object, object]:
    """Return what the front matter says. Every scalar is the text that stands there: `1.0` stays `1.0`."""
    try:
        import yaml
    except ImportError:
        problem = Problem("MISSING_PACKAGE", "The package pyyaml is not installed.", "pip install 'journeyman[skills]'")
        raise DefinitionError(shown, [problem]) from None
    reason, hint = "it is not a list of fields", "Put a value that holds ': ' or '#' into quotes, and indent by spaces."
    if len(front.encode()) > MAX_FRONT_MATTER_BYTES:
        reason, hint = f"it is larger than {MAX_FRONT_MATTER_BYTES:,} bytes", "Shorten it."
    else:
        try:
            fields: object = yaml.load(front, Loader=yaml.BaseLoader)
            if is_dict(fields):
                return fields
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = "" if mark is None else f"line {mark.line + 2}: "  # counted from the first line ---
            reason = f"{line}{error.problem or error.context}"
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
        except RecursionError:
            # The parser calls itself for each level.
            reason, hint = "it is nested too deeply", "The format has one level below metadata, and no more."
    text = f"The front matter of {shown} cannot be read: {reason}."
    raise DefinitionError(shown, [Problem("INVALID_FRONT_MATTER", text, hint)])


class _Fields(BaseModel):
    """The fields of the front matter. Those that nobody knows may stand."""

    model_config = ConfigDict(strict=True)

    name: Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    description: Annotated[str, Field(max_length=1_024, pattern=r"\S")]
    license: str = ""
    compatibility: Annotated[str, Field(max_length=500)] = ""
    metadata: dict[str, str] | Literal[""] = ""
    allowed_tools: Annotated[str | list[str], Field(alias="allowed-tools")] = ""
    disable_model_invocation: Annotated[Literal["true", "false", ""], Field(alias="disable-model-invocation")] = "false"


_HINTS: Final = {
    "metadata": "Write names with one text each below it.",
    "disable-model-invocation": "Write true or false.",
    "allowed-tools": "Write names of tools, in one text or in a list.",
}


def _check_fields(given: Mapping[object, object], named: str, shown: str, problems: list[Problem]) -> _Fields | None:
    """Return the fields of a skill in a folder with this name, and say what is wrong with them."""
    try:
        fields = _Fields.model_validate(given)
    except ValidationError as error:
        by_field = {str(each["loc"][0]): each for each in error.errors(include_url=False)}
        problems += [_field_problem(name, each, named, shown) for name, each in by_field.items()]
        return None
    if fields.name != named:
        hint, text = "Let both have the same name.", f"is {fields.name!r}, and its folder's {_quote(named)}"
        problems.append(Problem("INVALID_SKILL_NAME", f"The name in {shown} {text}.", hint))
    return fields


def _field_problem(name: str, error: ErrorDetails, named: str, shown: str) -> Problem:
    value: object = error["input"]
    is_missing = error["type"] == "missing" or (isinstance(value, str) and not value.strip())
    said = _quote(value) if isinstance(value, str) else excerpt(value)
    if name == "name" and is_missing:
        return Problem("MISSING_SKILL_NAME", f"{shown} has no name.", f"Add its folder's: name: {named}")
    if name == "name":
        hint = "Use 1 to 64 of the characters a-z, 0-9 and single hyphens between them."
        return Problem("INVALID_SKILL_NAME", f"The name {said} in {shown} cannot be the name of a skill.", hint)
    if name == "description" and is_missing:
        hint = "Say in it what the skill does and when to use it."
        return Problem("MISSING_SKILL_DESCRIPTION", f"{shown} has no description.", hint)
    if error["type"] == "string_too_long":
        most = error.get("ctx", {})["max_length"]
        text = f"{name} in {shown} has {count(len(cast('str', value)), 'character')}; the most is {most:,}."
        return Problem("INVALID_SKILL_FIELD", text, "Shorten it, and say the rest in the instructions.")
    return Problem("INVALID_SKILL_FIELD", f"{name} in {shown} is {said}.", _HINTS.get(name, "Write one text."))


def _quote(text: str) -> str:
    """Return a text on one line, if it is long only its beginning."""
    return shorten(quoted(text), _SHOWN_CHARS)


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
