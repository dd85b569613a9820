"""Dependencies: what a run is given beside its input, as a connection to a database. They are never stored, never
copied and never shown: of what was given, messages name the type alone.

Type checkers see most of what is checked here. What cannot be told while a program runs, as of a protocol, passes.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_list_or_tuple
from journeyman.errors import Problem
from journeyman.tools.check import function_problem
from journeyman.tools.signature import positional_parameters, underlying
from journeyman.tools.tools import AnyTool

NOT_DECLARED: Final = object
"""The type of the deps of an agent that declares none: it may be given any, and needs none."""


@lazy_dataclass(frozen=True)
class Bound:
    """Deps that an agent was given for all its runs, in the place of their type."""

    kind: Any
    value: Any = field(repr=False)


def declared(deps: object) -> Any:  # noqa: ANN401 - a type, as it was declared
    """Return the type that an agent declares for its deps."""
    return deps.kind if isinstance(deps, Bound) else deps


def kind_name(kind: object) -> str:
    """Return the name of a type as a person writes it."""
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _kinds(kind: object) -> tuple[object, ...]:
    """Return the types that a union holds, or the one; of a generic type, the type."""
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(each for arg in get_args(kind) for each in _kinds(arg))
    return (types.NoneType if kind is None else get_origin(kind) or kind,)


def will_do(declared: object, asked: object) -> bool:
    """Tell whether what is declared as one type may be given where another one is asked for."""
    if asked is object or asked is Any or declared is Any:
        return True
    return all(any(_is_kind_of(each, wanted) for wanted in _kinds(asked)) for each in _kinds(declared))


def _is_kind_of(declared: object, asked: object) -> bool:
    if declared is object:
        return asked is object
    try:
        return issubclass(cast("type", declared), cast("type", asked))
    except TypeError:  # a protocol that cannot be asked, or no class at all
        return True


def deps_of_run(given: object, deps: object) -> Any:  # noqa: ANN401 - of the type that the agent declares
    """Return what a run is given: by its caller, or else what its agent was given for all runs."""
    return deps.value if given is None and isinstance(deps, Bound) else given


def lacks_deps(given: object, deps: object) -> str | None:
    """Say what is wrong with what a run is given, for an agent that declares these deps; None: nothing is."""
    kind = declared(deps)
    if kind is NOT_DECLARED or kind is Any:
        return None
    try:
        is_right = isinstance(given, cast("tuple[type, ...]", _kinds(kind)))
    except TypeError:  # a protocol that cannot be asked, or no class at all
        is_right = given is not None
    if is_right:
        return None
    if given is None:
        return f"deps are missing: the agent needs {kind_name(kind)}. Pass deps=…"
    return f"deps are of type {kind_name(type(given))}, and the agent needs {kind_name(kind)}. Pass deps=… of that type"


def takes_deps(function: object, n: int) -> bool:
    """Tell whether a function that is called with `n` arguments needs one more, by position."""
    return callable(function) and len(positional_parameters(function)) == n + 1


def function_or_deps_problem(
    deps: object,
    what: str,
    function: object,
    takes: str,
    *,
    n: int = 1,
    least: int | None = None,
    code: str = "INVALID_FUNCTION",
) -> Iterator[Problem]:
    """Give what is wrong with a function of an agent, which is called with `n` arguments, or with as few as `least`;
    and with the deps, if it needs one more."""
    if not takes_deps(function, n):
        yield from function_problem(what, function, takes, n=n, least=least, code=code)
        return
    name = getattr(function, "__qualname__", None) or repr(function)
    if deps is NOT_DECLARED:
        wrong = f"{what}, {name}, cannot be called with {takes}: it takes one more, and the agent declares no deps."
        yield Problem(code, wrong, f"Declare them: Agent(deps=…); or let it take {takes}, and no more.")
        return
    kind, asked = declared(deps), _parameter_type(cast("Callable[..., object]", function), n)
    if not will_do(kind, asked):
        wrong = f"{what}, {name}, takes deps of type {kind_name(asked)}, and the agent's are {kind_name(kind)}."
        yield Problem("WRONG_DEPS", wrong, "Let both be of one type.")


def _parameter_type(function: Callable[..., object], place: int) -> object:
    """Return the type of a parameter, by its place; Any, where it says none that can be found."""
    name = positional_parameters(function)[place]
    try:
        return get_type_hints(underlying(function)).get(name, Any)
    except (NameError, TypeError, AttributeError):  # it may be imported for type checkers only
        return Any


def deps_problems(deps: object, gate: object) -> Iterator[Problem]:
    """Give what is wrong with the type that an agent declares for its deps, and with gates that decide with them."""
    kind = declared(deps)
    if not isinstance(kind, type) and kind is not Any and get_origin(kind) is None:
        wrong = f"deps is of type {type(kind).__name__}, and no type itself."
        hint = "Declare the type, Agent(deps=Db), and give the object to each run, run(agent, …, deps=db)."
        yield Problem("INVALID_DEPS", wrong, hint)
    for each in gate if is_list_or_tuple(gate) else (gate,):
        decide = getattr(each, "decide", None)
        if takes_deps(decide, 1):
            yield from function_or_deps_problem(deps, "The gate", decide, "a request", code="INVALID_GATE")


def tool_deps_problems(tool: AnyTool, *, deps: object, input: object) -> Iterator[Problem]:
    """Give what a tool asks of its `ToolContext` that runs of the agent do not have."""
    kind = declared(deps)
    for asked in tool.asked_deps:
        if will_do(kind, asked):
            continue
        name, is_missing = kind_name(asked), kind is NOT_DECLARED
        has = "declares none" if is_missing else f"has {kind_name(kind)}"
        wrong = f"Tool {tool.name!r} asks for deps of type {name}, and the agent {has}."
        hint = f"Declare them, Agent(deps={name}), and pass them to each run, run(agent, …, deps=…)."
        yield Problem("MISSING_DEPS" if is_missing else "WRONG_DEPS", wrong, hint)
    if not will_do(input, tool.asked_input):
        wrong = f"Tool {tool.name!r} asks for an input of type {kind_name(tool.asked_input)}, and the agent's is "
        yield Problem("WRONG_INPUT", f"{wrong}{kind_name(input)}.", "Ask for that, or leave it out: ToolContext[Db].")
