"""Many tools behind two: `tool_search` finds them, `call_tool` calls them. The list of tools never changes in a run.

A provider that loads deferred tools itself is sent these and no `call_tool`: it shows the model what a search refers
to, and the model calls that by its own name, as any other tool. Elsewhere it calls `call_tool`, which the loop takes
for a call of the real tool: it has that one's rules, and gates see that one's name. Neither runs a tool that no search
has found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, Final, cast, overload

from pydantic import Field

from journeyman.definition.problems import raise_problems
from journeyman.errors import Problem
from journeyman.toolbox.files import ToolRefused
from journeyman.tools.context import ToolsetContext
from journeyman.tools.tools import AnyTool, Needs, Tool, tool, tool_problems
from journeyman.tools.toolsets import Toolset, is_toolset, list_tools, toolset
from journeyman.types import Effect, Text, ToolReference, ToolResult

FOUND: Final = 5
"""How many tools a search gives, if it does not say."""
_NAME_SCORE, _DESCRIPTION_SCORE, _PARAMETER_SCORE = 3, 2, 1
_MAX_NAMES_CHARS: Final = 2_000
_SHORTEST_PART: Final = 3
_WORD = re.compile(r"[a-z0-9]+")
_MAX_QUERY_CHARS: Final = 1_000
_NO_WORDS = re.compile(r"(select:).*|/.+/", re.DOTALL)
"""The queries that other programs take besides words: names, and regular expressions."""


class _DeferredTools(tuple[AnyTool, ...], Toolset):
    """`tool_search`, `call_tool`, and the tools that they find and call.

    What is made of it as of any toolset, holds for the tools that are found: `deferred_tools([…]).prefixed("gh_")`.
    """

    @property
    def known_tools(self) -> Sequence[AnyTool]:
        """All of them."""
        return tuple(self)

    def rebuild(self, make: Callable[[Toolset[Any]], Toolset[Any]]) -> Toolset:
        """Return the same for what a function makes of the tools that are found."""
        return deferred_tools(make(toolset([replace(each, deferred=False) for each in self if each.deferred])))


class _DeferredToolset(Toolset[Any]):
    """The same for a toolset that has to be asked for the tools that are found."""

    def __init__(self, behind: Toolset[Any]) -> None:
        self.behind, self.each = behind, behind.each

    async def list_tools(self, context: ToolsetContext[Any, Any], /) -> Sequence[AnyTool]:
        return deferred_tools(await list_tools([self.behind], context))

    def rebuild(self, make: Callable[[Toolset[Any]], Toolset[Any]]) -> Toolset[Any]:
        return deferred_tools(make(self.behind))


@overload
def deferred_tools(tools: Sequence[AnyTool]) -> _DeferredTools: ...
@overload
def deferred_tools(tools: Toolset[Needs]) -> Toolset[Needs]: ...
def deferred_tools(tools: Sequence[AnyTool] | Toolset[Any]) -> _DeferredTools | Toolset[Any]:
    """Return `tool_search`, `call_tool` and these tools, or those of a toolset. At first the model is told only the
    names of these tools.

    Raises:
        DefinitionError: two have the same name, or one is defined wrongly; it lists every problem.
    """
    if is_toolset(tools):
        if tools.known_tools is None:
            return _DeferredToolset(tools)
        tools = tools.known_tools
    problems = [problem for each in tools for problem in _deferral_problems(each)]
    by_name = {each.name: each for each in tools if isinstance(each, Tool)}  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
    if len(by_name) + sum(not isinstance(each, Tool) for each in tools) < len(tools):  # pyright: ignore[reportUnnecessaryIsInstance] - see above
        problems.append(Problem("DUPLICATE_TOOL_NAME", "Two deferred tools have the same name.", "Rename one of them."))
    raise_problems("The list of deferred tools", problems)
    deferred = [replace(each, deferred=True) for each in tools]
    return _DeferredTools((_search_tool(by_name), _call_tool(by_name), *deferred))


def _deferral_problems(given: object) -> Sequence[Problem]:
    if not isinstance(given, Tool):
        hint = "Decorate the function with @tool."
        return [Problem("INVALID_TOOL", f"{given!r} is not a tool.", hint)]
    each = cast("AnyTool", given)
    if type(each) is not Tool:  # it holds what a copy of its fields would not
        hint = "Put it into Agent.tools, beside the others: tools=[*deferred_tools([…]), Subagents(…)]."
        return [Problem("NOT_DEFERRABLE", f"Tool {each.name!r} is a {type(each).__name__}, and cannot wait.", hint)]
    if each.prepare is not None:
        hint = "Write deferred_tools(toolset([…])), which is asked for its tools in each run."
        return [Problem("NOT_DEFERRABLE", f"Tool {each.name!r} is prepared for each run.", hint)]
    return tool_problems(each)


def _search_tool(tools: dict[str, AnyTool]) -> AnyTool:
    def tool_search(
        query: Annotated[str, Field(max_length=_MAX_QUERY_CHARS)], limit: Annotated[int, Field(ge=1, le=20)] = FOUND
    ) -> ToolResult:
        """Find tools.

        Args:
            query: Words of what they do, or their names.
            limit: The most tools to return.
        """
        words = _WORD.findall(query.lower())
        if (other := _NO_WORDS.fullmatch(query.strip())) is not None:
            instead = " ".join(words[1:] if other[1] else words)
            raise ToolRefused("invalid", f"{query!r} is not found: tool_search takes words alone. Try {instead!r}.")
        found = _find_tools(tools.values(), {*words})[:limit]
        if not found:
            return ToolResult(f"No tool matches {query!r}. Try other words.")
        specs = [
            {"name": each.name, "description": each.description, "input_schema": each.spec.input_schema}
            for each in found
        ]
        shown = "\n".join([json.dumps(each, ensure_ascii=False) for each in specs])
        return ToolResult((Text(shown), *[ToolReference(each.name) for each in found]))

    description = (
        "Find tools that are not listed here, with what they do and the JSON Schema of their arguments. "
        f"Then call them: through call_tool if you have it, else by their names. {_list_names(tools)}"
    )
    return tool(
        tool_search,
        description=description,
        parallel=True,
        effect="pure",
        thread=False,
        untrusted=any(each.untrusted == "throughout" for each in tools.values()),
        permission_kind="tool_search",
    )


def _list_names(tools: dict[str, AnyTool]) -> str:
    listed = ", ".join(tools)
    if len(listed) > _MAX_NAMES_CHARS:
        listed = f"{listed[:_MAX_NAMES_CHARS].rpartition(', ')[0]} and more"
    return f"There are {len(tools)}: {listed}." if tools else "There are none."


def _find_tools(tools: Iterable[AnyTool], words: Set[str]) -> list[AnyTool]:
    """Return the tools that have any of the words, those first where they weigh most."""

    def is_in(word: str, place: str) -> bool:  # a longer one may also be a part of a word
        return word in place if len(word) >= _SHORTEST_PART else word in _WORD.findall(place)

    def score(each: AnyTool) -> int:
        properties = each.spec.input_schema.get("properties")
        parameters = " ".join(properties) if isinstance(properties, dict) else ""
        places = ((each.name, _NAME_SCORE), (each.description, _DESCRIPTION_SCORE), (parameters, _PARAMETER_SCORE))
        return sum(points for place, points in places for word in words if is_in(word, place.lower()))

    scored = [(score(each), each) for each in tools]
    return [each for points, each in sorted(scored, key=lambda pair: -pair[0]) if points]


def _call_tool(tools: dict[str, AnyTool]) -> AnyTool:
    def call_tool(name: str, arguments: dict[str, object]) -> ToolResult:
        """Call a tool that tool_search has found, with the arguments that its own schema asks for.

        Args:
            name: The name of the tool.
            arguments: Its arguments, as one object.
        """
        # What has a name of a tool behind it never comes here: it is a call of that tool.
        raise ToolRefused("not_available", f"There is no tool {name!r}. Find one with tool_search.")

    declared = [each.untrusted for each in tools.values()]
    made = tool(
        call_tool,
        thread=False,
        parallel=bool(tools) and all(each.parallel for each in tools.values()),
        effect=_riskiest([each.effect for each in tools.values()]),
        untrusted="throughout" if "throughout" in declared else any(declared),
        permission_kind="call_tool",
    )
    ready = {name: each.permission_kind for name, each in tools.items() if each.permission_kind is not None}
    external = any(each.external for each in tools.values())
    return replace(made, is_proxy=True, proxied=MappingProxyType(ready), external=external)


def _riskiest(effects: Sequence[Effect | None]) -> Effect | None:
    """Return the effect that is hardest to undo; None, what the agent says, if any says nothing."""
    if "once" in effects:
        return "once"
    if None in effects or not effects:
        return None
    return "idempotent" if "idempotent" in effects else "pure"
