"""From what the user typed, `FILE:AGENT` or `package.module:AGENT`, to the agent.

Whatever a stranger's file may do when it is imported becomes a `Mistake` with one line and the next step.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, Final, TypeVar

from journeyman.agent import Agent
from journeyman.cli.app import Misdefined, Mistake
from journeyman.cli.faults import missing_module, place_of_import, short_path
from journeyman.cli.show.lines import one_line
from journeyman.connect import connect
from journeyman.errors import DefinitionError, ModelUnavailable, count
from journeyman.model import Model

T = TypeVar("T")

_EXAMPLE: Final = "agents.py:analyst"
_NOTHING: Final = object()


def find_object(target: str) -> object:
    """Return the agent that `target` names, or what gives one: a function, or a context manager.

    Raises:
        Mistake: there is no such file, module or agent, or importing it failed.
    """
    origin, attribute = _split_target(target)
    module = load_file(Path(origin)) if _is_file(origin) else _load_or_explain(origin, lambda: _import(origin))
    if not attribute:
        return _only_agent(module, origin)
    found: object = module
    for name in attribute.split("."):
        found = _attribute(found, name, origin)
        if found is _NOTHING:
            close = get_close_matches(attribute, [*_agents_in(module), *vars(module)], n=1)
            meant = f"Did you mean {origin}:{close[0]}? " if close else ""
            raise Mistake(f"{origin} has no {attribute!r}.", f"{meant}{_agents_hint(module, origin)}")
    value: object = found
    if not (isinstance(value, Agent | partial) or inspect.isroutine(value) or is_context(found)):
        raise Mistake(f"{target} is {describe_kind(found)}, not an agent.", _agents_hint(module, origin))
    return found


def load_value(target: str) -> object:
    """Return whatever `FILE:NAME` or `package.module:NAME` names; None if it has no such name.

    Raises:
        Mistake: there is no such file or module, or importing it failed.
    """
    origin, attribute = _split_target(target)
    found: object = load_file(Path(origin)) if _is_file(origin) else _load_or_explain(origin, lambda: _import(origin))
    for name in attribute.split("."):
        found = _attribute(found, name, origin)
    return None if found is _NOTHING else found


def is_context(value: object) -> bool:
    """Return whether a value is a context manager, of either kind, or a class of such."""
    return hasattr(value, "__aenter__") or hasattr(value, "__enter__")


def lasting(target: str) -> str:
    """Return `target` so that it names the same agent from any other folder, if it names a file."""
    origin, attribute = _split_target(target)
    if not _is_file(origin):
        return target
    return f"{Path(origin).resolve()}{':' if attribute else ''}{attribute}"


def load_model(name: str | None) -> Model | None:
    """Return the model of that name, or None for None.

    Raises:
        Mistake: it cannot be used.
    """
    try:
        return None if name is None else connect(name)
    except ModelUnavailable as error:
        raise Mistake(str(error), error.hint) from error


def load_file(path: Path) -> ModuleType:
    """Import a Python file: as a part of its package if its folder is one, else as a module of its own.

    The folder that `import` then looks in first is the file's, or the package's.

    Raises:
        Mistake: it is not there, or it raised.
    """
    _check_readable(path)
    path = path.resolve()
    top, names = path.parent, [path.stem]
    while (top / "__init__.py").is_file() and top.name.isidentifier():
        names.insert(0, top.name)
        top = top.parent
    _search_first(top)
    if len(names) == 1 or not path.stem.isidentifier():
        return _load_or_explain(str(path), lambda: _execute(path, path.stem))
    return _load_or_explain(str(path), lambda: _import(".".join(names).removesuffix(".__init__")))


# -- what was typed ---------------------------------------------------------------------------------------------------


def _split_target(target: str) -> tuple[str, str]:
    """Cut off the attribute, if there is one; a drive letter is none."""
    origin, colon, attribute = target.rpartition(":")
    is_attribute = bool(origin) and all(part.isidentifier() for part in attribute.split("."))
    if colon and origin and not attribute:
        raise Mistake(f"{target} names no agent after the colon.", f"Name one, for example {_EXAMPLE}.")
    return (origin, attribute) if is_attribute else (target, "")


def _is_file(origin: str) -> bool:
    if origin.endswith(".py") or "/" in origin or "\\" in origin or os.path.exists(origin):
        return True
    return not all(part.isidentifier() for part in origin.split("."))


def _check_readable(path: Path) -> None:
    if not os.path.exists(path):
        names = sorted(file.name for file in path.parent.glob("*.py")) if os.path.isdir(path.parent) else []
        close = get_close_matches(path.name, names, n=1, cutoff=0.6)
        relative = "Check the path; it is relative to the current folder."
        raise Mistake(f"There is no file {path}.", f"Did you mean {path.parent / close[0]}?" if close else relative)
    if path.is_dir():
        raise Mistake(f"{path} is a folder.", f"Name a file in it, for example {path / _EXAMPLE}.")
    if path.suffix != ".py":
        raise Mistake(f"{path} is no Python file.", f"Give a file that ends in .py, for example {_EXAMPLE}.")
    try:
        path.open("rb").close()
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error


# -- importing --------------------------------------------------------------------------------------------------------


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import(name: str) -> ModuleType:
    _search_first(Path.cwd())
    return resolve_name(f"{name}:")  # without the colon, a failing import is taken for an attribute


def _execute(path: Path, name: str) -> ModuleType:
    for known in [sys.modules.get(each) for each in list(sys.modules) if each.endswith(name)]:
        if known is not None and getattr(getattr(known, "__spec__", None), "origin", None) == str(path):
            return known  # its agents, named one by one, may know one another
    # A file named like a module that is loaded, or could be, must not stand in its place.
    taken = name in sys.modules or name in sys.stdlib_module_names or not name.isidentifier()
    spec = spec_from_file_location(f"journeyman_file_{name}" if taken else name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


# -- what a file may do when it is imported ---------------------------------------------------------------------------


def _attribute(value: object, name: str, origin: str) -> object:
    """Return an attribute, which a lazy package imports only now; `_NOTHING` if there is none."""
    return _load_or_explain(origin, lambda: getattr(value, name, _NOTHING))


def _load_or_explain(origin: str, load: Callable[[], T]) -> T:
    """Import, and make a mistake of whatever is raised."""
    try:
        return load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a file may raise anything
        mistake = _mistake_of(origin, error)
    raise mistake


def _mistake_of(origin: str, error: BaseException) -> Mistake:
    place = place_of_import(error) or origin
    match error:
        case Mistake():
            return error
        case DefinitionError():
            return misdefined_agent(origin, place, error)
        case ModuleNotFoundError(__cause__=ModuleNotFoundError()):  # a room of ours says which extra brings it
            text, _, hint = str(error).partition(": ")
            return Mistake(f"{place}: {text}.", hint)
        case ModuleNotFoundError(name=str(name)):
            return missing_module(name, error, target=Path(origin) if _is_file(origin) else origin)
        case SyntaxError():
            text, hint = f"{place} does not parse: {error.msg}", "Fix that line."
        case SystemExit(code=code):
            text = f"{place} calls sys.exit({'' if code is None else repr(code)}) when it is imported"
            hint = "Put that under if __name__ == '__main__'."
        case _:
            reason = str(error).strip().rstrip(".")
            text = f"{place} raises {type(error).__name__}{': ' if reason else ''}{reason}"
            hint = f"Fix it; the whole traceback: python {'' if _is_file(origin) else '-m '}{short_path(origin)}"
    return Mistake(f"{one_line(text)}.", hint)


def misdefined_agent(origin: str, place: str, error: DefinitionError) -> Misdefined:
    """Return the error that reports an agent's wrong definition: its only problem, or the first of several."""
    first = error.problems[0]
    if len(error.problems) == 1:
        return Misdefined(f"{error.subject}: {one_line(first.message)}", first.hint, place=place, error=error)
    text = f"{error.subject} has {count(len(error.problems), 'problem')}, first: {first.message}"
    return Misdefined(one_line(text), f"See them all: journeyman check {short_path(origin)}", place=place, error=error)


# -- the agents of a module -------------------------------------------------------------------------------------------


def _agents_in(module: ModuleType) -> Mapping[str, Agent[Any, Any, Any]]:
    """Return the agents by the first name each has in the module."""
    found: dict[int, tuple[str, Agent[Any, Any, Any]]] = {}
    for name, value in vars(module).items():
        if isinstance(value, Agent):
            found.setdefault(id(value), (name, value))  # pyright: ignore[reportUnknownArgumentType] - a stranger's types
    return dict(found.values())


def _only_agent(module: ModuleType, origin: str) -> Agent[Any, Any, Any]:
    agents = _agents_in(module)
    match list(agents.values()):
        case [agent]:
            return agent
        case []:
            raise Mistake(f"{origin} holds no agent.", "Define one at the top level: analyst = Agent(…)")
        case _:
            choices = " or ".join(f"{origin}:{name}" for name in agents)
            raise Mistake(f"{origin} holds {len(agents)} agents.", f"Say which: {choices}")


def _agents_hint(module: ModuleType, origin: str) -> str:
    names = list(_agents_in(module))
    if not names:
        return f"{origin} holds no agent; define one at the top level: analyst = Agent(…)"
    return f"{'Agents' if len(names) > 1 else 'The agent'} in {origin}: {', '.join(names)}."


def describe_kind(value: object) -> str:
    """Say what a value is: `a function`, `an int`."""
    name = "class" if isinstance(value, type) else type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
