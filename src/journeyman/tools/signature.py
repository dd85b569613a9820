"""Reads a function's signature: its name, its description, and its parameters with their types and descriptions.

Takes functions, methods, partials, lambdas and objects with `__call__`, async or not, with annotations as types or as
text. Docstrings may describe parameters in any of the three usual forms: Google (`Args:`), NumPy (`Parameters`,
underlined) and Sphinx (`:param name:`).
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import field
from inspect import Parameter as Declared
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_class, is_partial
from journeyman.errors import Problem
from journeyman.tools.schema import REQUIRED, Parameter

Function: TypeAlias = Callable[..., object]


@lazy_dataclass(frozen=True, kw_only=True)
class Signature:
    """A function, read."""

    name: str
    """Empty for a lambda."""
    description: str
    parameters: tuple[Parameter, ...]
    """What the model gives. Left out: the injected parameter, and what a partial has bound."""
    injected: str | None
    """The name of the parameter that takes the injected class."""
    asked: tuple[object, ...]
    """What stands in its brackets: `ToolContext[Db]` asks for `Db`."""
    is_async: bool
    problems: tuple[Problem, ...]


def read_signature(function: Function, inject: type) -> Signature:
    """Read `function`. A parameter annotated with the class `inject`, or with it or None, is not the model's."""
    target = underlying(function)
    reader = _ParameterReader(target, inject)
    declared = _open_parameters(function, reader.problems)
    bound = getattr(getattr(target, "__code__", None), "co_varnames", ())  # a partial binds some
    described = describe(_docstring(function, target), {*bound, *[each.name for each in declared]})
    parameters = [parameter for each in declared if (parameter := reader.read(each, described.parameters))]
    asks = reader.asked[:1] not in ((), (object,), (Any,))
    if asks and reader.injected not in positional_parameters(function)[:1]:
        wrong = f"Its parameter {reader.injected!r} asks for deps, and is not the first."
        hint = "Let it be the first: type checkers see only there what it asks for."
        reader.problems.append(Problem("CONTEXT_NOT_FIRST", wrong, hint))
    return Signature(
        name=_name(function),
        description=described.description,
        parameters=tuple(parameters),
        injected=reader.injected,
        asked=reader.asked,
        is_async=is_async(function),
        problems=tuple(reader.problems),
    )


def is_async(function: Function) -> bool:
    """Tell whether `function` is known to return an awaitable. One that is not may still do so."""
    # What a wrapper wraps does not count: it may run the coroutine to its end.
    return inspect.iscoroutinefunction(underlying(function, unwrap=False))


def return_type(function: Function, inject: type) -> object:
    """Return the type that a function says it returns, or what is awaited of it; `REQUIRED` where it says none that can
    be found."""
    reader = _ParameterReader(underlying(function), inject)
    try:
        kind = reader.resolve(inspect.signature(function).return_annotation)
    except (NameError, TypeError, ValueError, SyntaxError, AttributeError, LookupError):
        return REQUIRED
    origin = get_origin(kind)
    return get_args(kind)[-1] if isinstance(origin, type) and issubclass(origin, Awaitable) else kind


def injected_parameter(function: Function, inject: type) -> tuple[str | None, tuple[object, ...]]:
    """Return the name of the parameter that `read_signature` would find to be injected, and what stands in its
    brackets, whatever else there is."""
    reader = _ParameterReader(underlying(function), inject)
    for declared in _open_parameters(function):
        reader.read(declared, {})
    return reader.injected, reader.asked


def positional_parameters(function: Function) -> list[str]:
    """Return the names of the parameters that must be given and may be given by position."""
    by_position = (Declared.POSITIONAL_ONLY, Declared.POSITIONAL_OR_KEYWORD)
    declared = _open_parameters(function)
    return [each.name for each in declared if each.kind in by_position and each.default is REQUIRED]


def keyword_parameters(function: Function) -> set[str]:
    """Return the names of the parameters that may be given by name."""
    by_name = (Declared.KEYWORD_ONLY, Declared.POSITIONAL_OR_KEYWORD)
    return {each.name for each in _open_parameters(function) if each.kind in by_name}


def underlying(function: object, *, unwrap: bool = True) -> object:
    """Return the plain function beneath partials, methods, objects with `__call__` and, unless told not, wrappers."""
    while True:
        if is_partial(function):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif is_class(function):
            return function.__init__
        elif unwrap and (wrapped := getattr(function, "__wrapped__", None)) is not None:
            function = wrapped
        elif not inspect.isroutine(function) and callable(function):
            function = type(function).__call__
        else:
            return function


def _owner(function: object) -> object:
    while is_partial(function):
        function = function.func
    return function


def _name(function: Function) -> str:
    owner = _owner(function)
    name: object = getattr(owner, "__name__", type(owner).__name__)
    return "" if name == "<lambda>" else str(name)


def _docstring(function: Function, target: object) -> str:
    owner = _owner(function)
    if isinstance(owner, type):
        text = owner.__doc__
    elif inspect.isroutine(owner):
        text = target.__doc__
    else:
        text = target.__doc__ or type(owner).__doc__
    return inspect.cleandoc(text or "")


def _open_parameters(function: Function, problems: list[Problem] | None = None) -> list[Declared]:
    """Return the parameters except for those that a partial binds by name: they are not for the model to see."""
    bound: set[str] = set()
    inner: object = function
    while is_partial(inner):
        bound |= inner.keywords.keys()
        inner = inner.func
    try:
        declared = inspect.signature(function).parameters
    except (TypeError, ValueError, NameError) as error:
        if problems is not None:
            hint = "Wrap it in a function that has annotated parameters."
            problems.append(Problem("NO_SIGNATURE", f"Its parameters cannot be read: {error}.", hint))
        return []
    return [parameter for name, parameter in declared.items() if name not in bound]


class _ParameterReader:
    """Reads one parameter after the other, and gathers what is wrong with them."""

    def __init__(self, target: object, inject: type) -> None:
        self.problems: list[Problem] = []
        self.injected: str | None = None
        self.asked: tuple[object, ...] = ()
        self._inject = inject
        self._globals: dict[str, object] = getattr(target, "__globals__", {})

    def read(self, declared: Declared, descriptions: Mapping[str, str]) -> Parameter | None:
        """Return the parameter, or None when it is injected or wrong."""
        name = declared.name
        if problem := _form_problem(declared):
            self.problems.append(problem)
            return None
        try:
            annotation = self.resolve(declared.annotation)
        except (NameError, TypeError, SyntaxError, AttributeError, LookupError) as error:
            wrong = f"The type of parameter {name!r} cannot be found: {declared.annotation!r} ({error})."
            hint = "Import it where the function is defined, outside TYPE_CHECKING."
            self.problems.append(Problem("UNRESOLVED_ANNOTATION", wrong, hint))
            return None
        asked = self._injected_arguments(annotation)
        if asked is not None:
            if self.injected is not None:
                wrong = f"Parameters {self.injected!r} and {name!r} both take a {self._inject.__name__}."
                self.problems.append(Problem("DUPLICATE_CONTEXT", wrong, "Keep one of them."))
            self.injected, self.asked = name, asked
            return None
        description = descriptions.get(name, "")
        return Parameter(name=name, annotation=annotation, default=declared.default, description=description)

    def resolve(self, annotation: object) -> object:
        """Return the type that an annotation stands for."""
        names = {self._inject.__name__: self._inject, **self._globals}
        try:
            return _evaluate(annotation, names)
        except NameError:
            return _evaluate(annotation, {**names, **self._locals()})

    def _locals(self) -> dict[str, object]:
        """Return what the functions of the same module that are running now can see: a tool is often made in one."""
        names: dict[str, object] = {}
        frame = inspect.currentframe()
        while frame is not None:
            if frame.f_globals is self._globals:
                names = {**frame.f_locals, **names}
            frame = frame.f_back
        return names

    def _injected_arguments(self, annotation: object) -> tuple[object, ...] | None:
        """Return what stands in the brackets of the injected class; None: it is another one."""
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        if get_origin(annotation) in (Union, types.UnionType):
            kinds = [each for each in get_args(annotation) if each is not types.NoneType]
            annotation = kinds[0] if len(kinds) == 1 else None
        return get_args(annotation) if self._inject in (annotation, get_origin(annotation)) else None


def _evaluate(annotation: object, names: dict[str, object]) -> object:
    def probe() -> None: ...

    probe.__annotations__ = {"it": annotation}
    return typing.get_type_hints(probe, names, include_extras=True)["it"]


def _form_problem(declared: Declared) -> Problem | None:
    if declared.kind in (Declared.VAR_POSITIONAL, Declared.VAR_KEYWORD, Declared.POSITIONAL_ONLY):
        hint = "Declare each parameter by its name, without *, ** or a / after it."
        return Problem("UNSUPPORTED_PARAMETER", f"Parameter '{declared}' cannot be given by name.", hint)
    if declared.annotation is not REQUIRED:
        return None
    if declared.name in ("self", "cls"):
        hint = "To make a tool of a method, bind it first: tool(instance.method)."
    else:
        hint = "Annotate it: the model is told its type, and its value is checked."
    return Problem("MISSING_ANNOTATION", f"Parameter {declared.name!r} has no type.", hint)


_GOOGLE = re.compile(r"(?:args|arguments|params|parameters|(?:keyword|other) (?:args|arguments|parameters)):\s*", re.I)
_NUMPY = re.compile(r"(?:Other )?Parameters\s*")
_UNDERLINE = re.compile(r"-{3,}\s*")
_SPHINX = re.compile(r":(?:param|parameter|arg|argument|key|keyword|type)\s")
_GOOGLE_ENTRY = re.compile(
    r"\s+(?:[-*+•]\s+)?[`*]*(?P<names>\w+)[`*]*(?:\s*\([^()]*(?:\([^()]*\)[^()]*)*\))?"
    r"[`*]*(?:\s*:[`*]*|\s+(?:--?|[\u2013\u2014])(?=\s))(?P<text>.*)"
)
"""Also a little off: with a bullet, marks, a blank before its colon, or a dash in its place."""
_NUMPY_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)(?:\s*:.*)?(?P<text>)")
_SPHINX_ENTRY = re.compile(r":(?!type)\w+\s(?:[^:]*[\s*])?(?P<names>\w+)\s*:(?P<text>.*)")
_SAYS_NOTHING = re.compile(r":type\s.*|:[^:]*:|\s*\w+:")
"""The first line of an entry that may go, if it is all of it."""


@lazy_dataclass(frozen=True)
class Described:
    """A docstring, taken apart."""

    description: str = ""
    """The docstring without its parameter section."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """The description of each parameter that has one."""


def describe(docstring: str | None, names: Collection[str] | None = None) -> Described:
    """Take a cleaned docstring apart. What it says of no parameter that can be read, or of none of these `names`, stays
    in the description."""
    lines, at = (docstring or "").splitlines(), 0
    kept, parameters = list[str](), dict[str, str]()
    while at < len(lines):
        if (section := _section_at(lines, at)) is None:
            kept.append(lines[at])
            at += 1
            continue
        n_header, end, form = section
        unread = list[str]()
        for entry in _entries(lines[at + n_header : end]):
            found = form.fullmatch(entry[0])
            text = " ".join(" ".join([found["text"], *entry[1:]]).split()) if found else ""
            named = re.findall(r"\w+", found["names"]) if found else []
            known = [name for name in named if names is None or name in names]
            if known and text:
                parameters |= dict.fromkeys(known, text)
            elif any(entry[1:]) or not _SAYS_NOTHING.fullmatch(entry[0]):
                unread += entry
        if unread:
            kept += [*lines[at : at + n_header], *unread]
        elif not lines[end - 1].strip():
            kept.append("")
        at = end
    return Described(re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), parameters)


def _section_at(lines: list[str], at: int) -> tuple[int, int, re.Pattern[str]] | None:
    """Return how many lines head the parameter section that begins at a line, where it ends, and the form of its
    entries; None if none begins there."""
    indented_to = next((n for n in range(at + 1, len(lines)) if lines[n][:1].strip()), len(lines))
    if _GOOGLE.fullmatch(lines[at]):
        return 1, indented_to, _GOOGLE_ENTRY
    if _SPHINX.match(lines[at]):
        return 0, indented_to, _SPHINX_ENTRY
    if _NUMPY.fullmatch(lines[at]) and _UNDERLINE.fullmatch("".join(lines[at + 1 : at + 2])):
        headers = (n - 1 for n in range(at + 3, len(lines)) if _UNDERLINE.fullmatch(lines[n]))
        return 2, next(headers, len(lines)), _NUMPY_ENTRY
    return None


def _entries(section: list[str]) -> list[list[str]]:
    """Return the lines of each entry: what is indented further than its first line belongs to it."""
    entries, depth = list[list[str]](), 0
    for line in section:
        indent = len(line) - len(line.lstrip())
        if line.strip() and (not entries or indent <= depth):
            entries.append([])
            depth = indent
        if entries:
            entries[-1].append(line)
    return entries
