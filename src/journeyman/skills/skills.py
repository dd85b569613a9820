"""The tool with which a model loads skills: `tools=[Skills("skills"), *workspace.tools()]`.

The model reads their names and descriptions from the first request on, in the description of the tool, which never
changes in a run: so it is cached with the prefix. It reads the instructions of a skill when it loads it, and a file of
it when it asks for that. Nothing here runs anything: scripts are run by `bash`, as far as its permissions go.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

from journeyman.definition import explain_arguments
from journeyman.errors import DefinitionError, Problem, count
from journeyman.gate import make_path_hider
from journeyman.skills.format import MAX_SKILL_BYTES, SKILL_FILE, Skill, read_skill
from journeyman.toolbox.files import (
    LocalFiles,
    Reach,
    ToolRefused,
    decode_file,
    first_lines,
    nothing_hidden,
    split_lines,
)
from journeyman.tools.check import is_count
from journeyman.tools.tools import Tool
from journeyman.types import JsonObject

NAME: Final = "skill"
_MOST_LISTED: Final = 100
"""So many files of a skill are listed when it is loaded. The list is sent with every later request."""
_ABOUT: Final = (
    "Load a skill: instructions for one kind of task, and files that go with them. When a task fits a description "
    "below, load that skill before you begin, and do as it says.\n\nThe skills:"
)
_log = logging.getLogger("journeyman")


@explain_arguments
class Skills(Tool[..., Any]):
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
    if not is_count(max_bytes):
        yield Problem("INVALID_ARGUMENT", f"max_bytes is {max_bytes!r}.", "Pass a whole number of at least 1.")


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
