"""Agents that stand in a folder as Claude Code has them: Markdown files, whose front matter says what they are.

What such a file asks for and a sub-agent cannot carry is refused by its name, so that none works with less than its
author meant.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from journeyman.agent import Agent, Limits
from journeyman.errors import DefinitionError, Problem
from journeyman.faces import load_function
from journeyman.model import Model
from journeyman.narrowing import is_list_or_tuple
from journeyman.tools.tools import AnyTool

_KNOWN: Final = frozenset({"name", "description", "tools", "disallowedTools", "model", "maxTurns", "color"})
"""The fields that are read; a colour is for the eyes only."""
_ELSEWHERE: Final = {"webfetch": "fetch", "multiedit": "edit", "notebookread": "read"}
"""Tools of Claude Code that have another name here, in small letters."""
_MOST_FILES: Final = 200
_RULES: Final = re.compile(r"[^\s,(]+(?:\([^()]*\))?")
"""The names of tools in a text, separated by commas and blanks; what stands in parentheses belongs to the name."""


def read_agents(
    folder: str | os.PathLike[str], *, model: str | Model, models: Mapping[str, str | Model], tools: Sequence[AnyTool]
) -> list[Agent[Any, Any, Any]]:
    """Return the agents in a folder, by the order of their paths.

    Raises:
        DefinitionError: there is none, or something is wrong with one; lists every problem.
    """
    place = Path(os.path.expanduser(folder))
    agents: list[Agent[Any, Any, Any]] = []
    problems: list[Problem] = []
    for path in _find_files(place, problems):
        try:
            agents.append(_AgentFile(path, model, models, tools).read())
        except DefinitionError as error:
            problems += [Problem(each.code, f"{path}: {each.message}", each.hint) for each in error.problems]
    if not agents and not problems:
        problems.append(Problem("NO_AGENTS", f"{place} holds no agents.", "Give the folder with their .md files."))
    if problems:
        raise DefinitionError(f"The agents in {place}", problems)
    return agents


def _find_files(place: Path, problems: list[Problem]) -> Iterator[Path]:
    root = os.path.realpath(place)
    found = sorted(path for path in place.rglob("*.md") if path.is_file())
    if len(found) > _MOST_FILES:
        text = f"{place} holds {len(found):,} files, and at most {_MOST_FILES} are read."
        problems.append(Problem("FOLDER_TOO_WIDE", text, "Give the folder with the agents alone."))
        return
    for path in found:
        target = os.path.realpath(path)
        if target.startswith(f"{root}/"):
            yield path
        else:
            text = f"{path} is a link that leads out of the folder, to {target}."
            problems.append(Problem("INVALID_AGENT", text, "Put the file itself into the folder."))


class _AgentFile:
    """One file, and what the program gives to its agent."""

    def __init__(
        self, path: Path, model: str | Model, models: Mapping[str, str | Model], tools: Sequence[AnyTool]
    ) -> None:
        self.path, self.model, self.models, self.tools = path, model, models, tools

    def read(self) -> Agent[Any, Any, Any]:
        """Return the agent.

        Raises:
            DefinitionError: something is wrong with it; lists every problem.
        """
        # Skills are read in the same way, in a room above this one.
        split: Callable[..., tuple[Mapping[object, object], str]] = load_function(
            "journeyman.skills.skills", "read_front_matter"
        )
        given, text = split(self.path)
        fields = {str(key): value for key, value in given.items() if value not in ("", [], None)}
        problems = [*self._problems(fields, text)]
        wanted = _names(fields["tools"]) if "tools" in fields else None
        unwanted = _names(fields.get("disallowedTools", ""))
        for name in (*(wanted or ()), *unwanted):
            if not self._find_tools(name):
                there = ", ".join([tool.name for tool in self.tools]) or "none"
                hint = f"Pass it: from_folder(…, tools=[…]). Now there is: {there}."
                problems.append(Problem("UNKNOWN_TOOL", f"It names the tool {name!r}, which is not there.", hint))
        if problems:
            raise DefinitionError(str(self.path), problems)
        left_out = [tool for name in unwanted for tool in self._find_tools(name)]
        chosen = self.tools if wanted is None else [tool for name in wanted for tool in self._find_tools(name)]
        turns = fields.get("maxTurns")
        return Agent(
            name=str(fields["name"]),
            description=" ".join(str(fields["description"]).split()),
            model=self._model(fields) or self.model,
            system=text,
            tools=[tool for tool in dict.fromkeys(chosen) if tool not in left_out],
            limits=Limits(iterations=int(str(turns))) if turns is not None else Limits(),
        )

    def _problems(self, fields: Mapping[str, object], text: str) -> Iterator[Problem]:
        for name in ("name", "description"):
            if not isinstance(fields.get(name), str):
                yield Problem("INVALID_AGENT", f"It has no {name}.", f"Add {name}: to its front matter.")
        for name in fields.keys() - _KNOWN:
            yield Problem("INVALID_AGENT", f"A sub-agent cannot carry its {name}.", "Take it out.")
        if not text:
            yield Problem("EMPTY_PROMPT", "It has no system prompt.", "Write one below the front matter.")
        turns = fields.get("maxTurns", "1")
        if not (isinstance(turns, str) and turns.isdecimal() and int(turns)):
            yield Problem("INVALID_LIMIT", f"Its maxTurns is {turns!r}.", "Write a number from 1 on.")
        if self._model(fields) is None and fields.get("model", "inherit") != "inherit":
            named = fields["model"]
            hint = f"Say which one: from_folder(…, models={{{named!r}: 'provider:name'}})."
            yield Problem("INVALID_MODEL_NAME", f"It wants the model {named!r}.", hint)

    def _model(self, fields: Mapping[str, object]) -> str | Model | None:
        """Return the model that the file names, if anything says which that is."""
        named = fields.get("model")
        if not isinstance(named, str):
            return None
        return self.models.get(named, named if ":" in named else None)

    def _find_tools(self, name: str) -> list[AnyTool]:
        """Return the tools of a name: ours, that of a server, or Claude Code's for a ready tool."""
        lowered = name.lower()
        kind = _ELSEWHERE.get(lowered, lowered)
        own = [tool for tool in self.tools if tool.name == name or name in tool.server_names]
        return own or [tool for tool in self.tools if tool.permission_kind == kind]


def _names(listed: object) -> list[str]:
    """Return the names in a text, or in a list."""
    texts = [str(each) for each in listed] if is_list_or_tuple(listed) else [str(listed)]
    return [name for text in texts for name in _RULES.findall(text)]
