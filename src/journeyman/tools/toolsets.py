"""Toolsets: values that say which tools there are at a moment, and how one of them becomes another.

A toolset that gives the same tools at every moment is known when the agent is defined, and is then the same as a list
of these tools. Any other one is asked in each run, by the loop alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Literal, TypeAlias, cast, overload

from typing_extensions import TypeIs, TypeVar

from journeyman.cancellation import is_awaited
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_list_or_tuple, is_set, is_str_mapping
from journeyman.definition.problems import Problem, is_one_of, meant, raise_problems, value_problems
from journeyman.gate import Allow, Ask, GateRequest, Verdict
from journeyman.tools.check import function_problem
from journeyman.tools.context import ToolsetContext
from journeyman.tools.signature import positional_parameters, underlying
from journeyman.tools.tools import AnyTool, Middleware, Tool, change_tool

Needs = TypeVar("Needs", default=object, contravariant=True)

_Each: TypeAlias = Literal["run", "iteration"]
"""How often a toolset is asked: once for each run, or before each request to the model."""

_Keep: TypeAlias = (
    Collection[str]
    | Callable[[AnyTool], bool]
    | Callable[[AnyTool, ToolsetContext[Needs, Any]], bool | Awaitable[bool]]
)
"""The names of the tools to keep, or a function that tells whether to keep one. A function with two required parameters
also gets the context, and is asked as often as a toolset is."""

_Asks: TypeAlias = str | Callable[[GateRequest], str | bool | Awaitable[str | bool | None] | None]
"""The question to ask before a call; or a function that returns the question for one, True for the usual one, and False
or None where nobody need be asked."""

_MOST_NESTED: Final = 16
"""So deep may toolsets give toolsets: one that gives itself would never end."""
_EACH: Final = (is_one_of("run", "iteration"), "Pass 'run' or 'iteration'.")


class Toolset(Generic[Needs]):
    """A value that says which tools there are at a moment.

    A subclass defines `list_tools`, and `known_tools` if the tools are the same at every moment. `filtered`,
    `prefixed`, `renamed`, `wrapped` and `requiring_approval` return another toolset, and change nothing in this one.
    """

    __slots__ = ()
    each: _Each = "run"
    """How often it is asked: once for each run, or before each request."""

    @property
    def known_tools(self) -> Sequence[AnyTool] | None:
        """The tools, if they are the same at every moment; None: it has to be asked for them."""
        return None

    async def list_tools(self, context: ToolsetContext[Needs, Any], /) -> Sequence[ToolSource[Any]]:
        """Return the tools, and toolsets, that there are at this moment. Raising ends the run."""
        known = self.known_tools
        if known is None:
            raise NotImplementedError(f"{type(self).__name__} does not define list_tools")
        return known

    def filtered(self, keep: _Keep[Needs], *, each: _Each = "run") -> Toolset[Needs]:
        """Return a toolset with only those of the tools that `keep` names, or is true for.

        Raises:
            DefinitionError: it names none of the tools, where these are known.
        """
        if is_set(keep) or is_list_or_tuple(keep):
            names = frozenset(map(str, keep))
            return self.narrow_tools(lambda tools: [tool for tool in tools if tool.name in names], names)
        wrong = [*value_problems("INVALID_ARGUMENT", "each", each, _EACH)]
        if not callable(keep):
            hint = "Pass names, or a function of a tool: filtered(['read']), filtered(lambda tool: …)."
            wrong.append(Problem("INVALID_ARGUMENT", f"keep is {keep!r:.80}.", hint))
        raise_problems("Toolset.filtered", wrong)
        function: Any = keep
        if len(positional_parameters(function)) == 2:
            return self.rebuild(lambda inner: _FilteredToolset(inner, function, each))
        return self.narrow_tools(lambda tools: [tool for tool in tools if function(tool)])

    def prefixed(self, prefix: str) -> Toolset[Needs]:
        """Return a toolset whose tools have this in front of their names: `github.prefixed("gh_")`."""
        return self.narrow_tools(lambda tools: [change_tool(tool, name=f"{prefix}{tool.name}") for tool in tools])

    def renamed(self, names: Mapping[str, str]) -> Toolset[Needs]:
        """Return a toolset in which tools have other names: `{"name": "new name"}`. The others keep theirs.

        Raises:
            DefinitionError: there is no tool of such a name, where these are known.
        """
        if not is_str_mapping(names):
            hint = 'Pass a dict: renamed({"read": "read_page"}).'
            raise_problems("Toolset.renamed", [Problem("INVALID_ARGUMENT", f"names is {names!r}.", hint)])
        new = {**names}
        return self.narrow_tools(
            lambda tools: [change_tool(tool, name=new[tool.name]) if tool.name in new else tool for tool in tools], new
        )

    def wrapped(self, *middleware: Middleware) -> Toolset[Needs]:
        """Return a toolset whose calls go through these functions, the first outermost; those of
        `Agent.tool_middleware` are around them."""
        takes = "the call and what comes next"
        raise_problems(
            "Toolset.wrapped",
            [problem for each in middleware for problem in function_problem("A middleware", each, takes, n=2)],
        )
        return self.narrow_tools(lambda tools: [change_tool(tool, middleware=middleware) for tool in tools])

    def requiring_approval(self, asks: _Asks = "") -> Toolset[Needs]:
        """Return a toolset whose calls are asked about, after all gates have let them through. Without an approver, and
        where nobody can be asked, such a call is denied."""
        if not isinstance(asks, str):
            raise_problems("Toolset.requiring_approval", function_problem("asks", asks, "a GateRequest"))
        gate = RequiredApproval(asks)
        return self.narrow_tools(lambda tools: [change_tool(tool, gates=(gate,)) for tool in tools])

    def narrow_tools(
        self, change: Callable[[Sequence[AnyTool]], Sequence[AnyTool]], names: Collection[str] = ()
    ) -> Toolset[Needs]:
        """Return a toolset of what a function makes of the tools; `names` are those that it looks for."""
        return self.rebuild(lambda inner: _ChangedToolset(inner, change, names))

    def rebuild(self, make: Callable[[Toolset[Any]], Toolset[Any]]) -> Toolset[Needs]:
        """Return what a function makes of this toolset. One that gives tools which know of one another makes them again
        of what becomes of those behind them."""
        return make(self)


ToolsetFunction: TypeAlias = Callable[
    [ToolsetContext[Needs, Any]], "Sequence[ToolSource[Any]] | Awaitable[Sequence[ToolSource[Any]]]"
]
"""A function that gives the tools of a moment."""
ToolSource: TypeAlias = Tool[..., Any, Needs] | Toolset[Needs] | ToolsetFunction[Needs]
"""What `Agent(tools=[…])` takes: a tool, a toolset, or a function that gives the tools of a moment."""


@overload
def toolset(
    source: ToolsetFunction[Needs] | Iterable[ToolSource[Needs]], /, *, each: _Each = ...
) -> Toolset[Needs]: ...
@overload
def toolset(*, each: _Each = ...) -> Callable[[ToolsetFunction[Needs]], Toolset[Needs]]: ...
def toolset(source: object = None, /, *, each: _Each = "run") -> object:
    """Make a toolset of a function, or of a list of tools and toolsets: `toolset([search, fetch]).prefixed("web_")`.

    A function is given a `ToolsetContext`, and returns tools and toolsets: `@toolset(each="iteration")`.

    Raises:
        DefinitionError: it is neither, or the list holds something else; it lists every problem.
    """
    wrong = [*value_problems("INVALID_ARGUMENT", "each", each, _EACH)]
    if source is None and not wrong:
        return partial(toolset, each=each)
    if is_list_or_tuple(source):
        wrong += [problem for every in source for problem in source_problems(every)]
        raise_problems("A toolset", wrong)
        return _GroupToolset(tuple(cast("Sequence[ToolSource[Any]]", source)), each)
    if is_tool(source) or is_toolset(source):
        raise_problems("A toolset", wrong)
        return _GroupToolset((source,), each)
    raise_problems("A toolset", [*wrong, *function_problem("A toolset", source, "a ToolsetContext")])
    return _FunctionToolset(cast("ToolsetFunction[Any]", source), each)


def is_tool(source: object) -> TypeIs[AnyTool]:
    """Tell whether something is a tool."""
    return isinstance(source, Tool)


def is_toolset(source: object) -> TypeIs[Toolset[Any]]:
    """Tell whether something is a toolset; some tools are one, too."""
    return isinstance(source, Toolset)


def gives_tools(source: object) -> TypeIs[ToolsetFunction[Any]]:
    """Tell whether something is a function that gives tools, and no tool that lacks its `@tool`: it has one parameter,
    a `ToolsetContext`; or without a type, in a lambda, or by one of the names that one has."""
    if is_tool(source) or is_toolset(source) or isinstance(source, type) or not callable(source):
        return False
    names = positional_parameters(source)
    annotations: Mapping[str, object] = getattr(underlying(source), "__annotations__", {})
    asked = annotations.get(names[0]) if len(names) == 1 else str
    if isinstance(asked, str):
        return asked.partition("[")[0].rpartition(".")[2] == ToolsetContext.__name__
    if asked is not None:
        return getattr(asked, "__origin__", asked) is ToolsetContext
    return names[0] in ("context", "ctx") or getattr(source, "__name__", "") == "<lambda>"


def source_problems(source: object) -> Iterator[Problem]:
    """Give what is wrong with something that stands among tools."""
    if is_toolset(source) and not is_tool(source):
        yield from value_problems("INVALID_TOOLSET", f"{name_of_source(source)}.each", source.each, _EACH)
    elif not is_tool(source) and not gives_tools(source):
        hint = "Decorate the function with @tool; one that gives tools takes a ToolsetContext, and no more."
        yield Problem("INVALID_TOOL", f"A toolset holds {source!r:.100}, which is not a tool.", hint)


def name_of_source(source: object) -> str:
    """Return what errors call a toolset."""
    while isinstance(source, _ChangedToolset | _FilteredToolset):
        source = source.inner
    if isinstance(source, _FunctionToolset):
        source = source.function
    named: object = source if callable(source) else type(source)
    return str(getattr(named, "__qualname__", type(source).__qualname__))


def fixed_tools(sources: Iterable[ToolSource[Any]]) -> list[AnyTool | Toolset[Any]]:
    """Return the tools of sources that give the same ones at every moment, and the others as toolsets, in order."""
    found: list[AnyTool | Toolset[Any]] = []
    for each in sources:
        if is_tool(each):
            found.append(each if each.prepare is None else _GroupToolset((each,), "run"))
        elif is_toolset(each):
            known = each.known_tools
            found += [each] if known is None else known
        else:
            found.append(_FunctionToolset(each, "run"))
    return found


async def list_tools(sources: Iterable[object], context: ToolsetContext[Any, Any], *, depth: int = 0) -> list[AnyTool]:
    """Return the tools that there are at a moment: of tools, of toolsets, and of what these give.

    Raises:
        TypeError: something is neither a tool nor a toolset, or they are nested without an end.
    """
    if depth > _MOST_NESTED:
        raise TypeError(f"it gives toolsets that give toolsets, more than {_MOST_NESTED} deep")
    found: list[AnyTool] = []
    for each in sources:
        if is_tool(each):
            found += await _prepare_tool(each, context)
        elif is_toolset(each):
            found += await _ask_toolset(each, context, depth)
        elif gives_tools(each):
            found += await _ask_toolset(_FunctionToolset(each, "run"), context, depth)
        else:
            raise TypeError(f"it gives {each!r:.80}, which is neither a tool nor a toolset")
    return found


async def _ask_toolset(asked: Toolset[Any], context: ToolsetContext[Any, Any], depth: int) -> Sequence[AnyTool]:
    is_kept = asked.each == "run"
    if is_kept and id(asked) in context.asked:
        return context.asked[id(asked)][1]
    listed: object = asked.list_tools(context)
    given = await listed if is_awaited(listed) else listed
    if is_toolset(given) and not is_list_or_tuple(given):
        given = [given]
    if not is_list_or_tuple(given):
        raise TypeError(f"it gives {given!r:.80}, which is no list of tools")
    tools = await list_tools(given, context, depth=depth + 1)
    if is_kept:
        context.asked[id(asked)] = (asked, tools)  # the toolset, too: another one could get its `id`
    return tools


async def _prepare_tool(tool: AnyTool, context: ToolsetContext[Any, Any]) -> Sequence[AnyTool]:
    if tool.prepare is None:
        return [tool]
    given: object = tool.prepare(tool, context)
    made = await given if is_awaited(given) else given
    if made is None:
        return []
    if not is_tool(made):
        raise TypeError(f"the prepare of {tool.name!r} gives {made!r:.80}, which is neither a tool nor None")
    return [change_tool(made, is_prepared=True)]


class _FunctionToolset(Toolset[Any]):
    """The tools that a function gives."""

    def __init__(self, function: ToolsetFunction[Any], each: _Each) -> None:
        self.function, self.each = function, each

    async def list_tools(self, context: ToolsetContext[Any, Any], /) -> Sequence[ToolSource[Any]]:
        given = self.function(context)
        return await given if is_awaited(given) else given


class _GroupToolset(Toolset[Any]):
    """Tools and toolsets, together."""

    def __init__(self, sources: tuple[ToolSource[Any], ...], each: _Each) -> None:
        found = fixed_tools([source for source in sources if not _is_prepared(source)])
        tools = [tool for tool in found if is_tool(tool)]
        self._known = tools if len(tools) == len(found) and not any(map(_is_prepared, sources)) else None
        self._sources = sources
        inner = [source.each for source in sources if is_toolset(source)]
        self.each = "iteration" if "iteration" in inner else each

    @property
    def known_tools(self) -> Sequence[AnyTool] | None:
        return self._known

    async def list_tools(self, context: ToolsetContext[Any, Any], /) -> Sequence[ToolSource[Any]]:
        return self._sources


class _ChangedToolset(Toolset[Any]):
    """The tools of another toolset, changed in the same way at every moment."""

    def __init__(
        self, inner: Toolset[Any], change: Callable[[Sequence[AnyTool]], Sequence[AnyTool]], names: Collection[str] = ()
    ) -> None:
        self.inner, self.each, self._change = inner, inner.each, change
        known = inner.known_tools
        if known is not None:
            there = [tool.name for tool in known]
            hint = f"It has {', '.join(there)}." if there else "It has none."
            absent = [name for name in names if name not in there]
            text = "The toolset has no tool {!r}.{}"
            raise_problems(
                "A toolset", [Problem("UNKNOWN_TOOL", text.format(name, meant(name, there)), hint) for name in absent]
            )
        self._known = None if known is None else change(known)

    @property
    def known_tools(self) -> Sequence[AnyTool] | None:
        return self._known

    async def list_tools(self, context: ToolsetContext[Any, Any], /) -> Sequence[ToolSource[Any]]:
        return self._change(await list_tools([self.inner], context))


class _FilteredToolset(Toolset[Any]):
    """Those tools of another toolset that a function keeps at this moment."""

    def __init__(self, inner: Toolset[Any], keep: Callable[..., bool | Awaitable[bool]], each: _Each) -> None:
        self.inner, self._keep = inner, keep
        self.each = "iteration" if inner.each == "iteration" else each

    async def list_tools(self, context: ToolsetContext[Any, Any], /) -> Sequence[ToolSource[Any]]:
        tools: list[AnyTool] = []
        for tool in await list_tools([self.inner], context):
            given = self._keep(tool, context)
            tools += [tool] if (await given if is_awaited(given) else given) else []
        return tools


def _is_prepared(source: object) -> bool:
    return is_tool(source) and source.prepare is not None


@lazy_dataclass(frozen=True)
class RequiredApproval:
    """A gate that asks about each call, or about those that a function says so of."""

    asks: _Asks

    async def decide(self, request: GateRequest) -> Verdict:
        given: object = self.asks if isinstance(self.asks, str) else self.asks(request)
        question = await given if is_awaited(given) else given
        if question is None or question is False:
            return Allow()
        return Ask(question if isinstance(question, str) and question.strip() else f"Allow {request.tool_name}?")
