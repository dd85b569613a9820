"""From what `FILE:AGENT` names to an agent that is open: an agent, a function that makes one, or a context manager.

A command has one event loop. What is opened in it is closed after the command, by the task that opened it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pkgutil
import re
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing, contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from journeyman.agent import Agent
from journeyman.cli.app import USAGE, Misdefined, Mistake, Refused, explain_errors
from journeyman.cli.ending import awaited_threads
from journeyman.cli.options import OPENING_S, AnyAgent, LentOptions
from journeyman.cli.permit.policy import load_rules, with_policy
from journeyman.cli.show.lines import one_line
from journeyman.cli.show.log import log_shown
from journeyman.cli.show.screen import PlainScreen, print_error, stderr_console
from journeyman.closing import TimeToEnd
from journeyman.connect import connect
from journeyman.definition.narrowing import is_group
from journeyman.errors import (
    DefinitionError,
    McpUnavailable,
    PinsDiffer,
    count,
    frames_of,
    is_installed,
    is_pythons,
    name_and_words,
    quoted,
)
from journeyman.model import Model
from journeyman.permission.permission import PermissionMode
from journeyman.skills import Skills
from journeyman.tools.deps import deps_of_run, lacks_deps

if TYPE_CHECKING:
    from journeyman.mcp.tools import ServerTools
    from journeyman.subagents import Subagents


T = TypeVar("T")

_EXAMPLE: Final = "agents.py:analyst"
_NOTHING: Final = object()
_NOTHING_LENT: Final = LentOptions()
_AGENT_HINTS: Final = {
    "UNKNOWN_TOOL": "Take it out of the file, or give the agent that is run this tool: they share its tools.",
    "INVALID_MODEL_NAME": "Write provider:name there, or inherit.",
}
"""The hints about a sub-agent that differ on the command line from those in a program."""


def find_object(target: str) -> object:
    """Return the agent that `target` names, or what gives one: a function, or a context manager. That there is no such
    file, module or agent, or that importing it failed, is a `Mistake`."""
    module, origin, attribute = _load_module(target)
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


def load_value(option: str, target: str, fits: Callable[[object], bool], *, what: str, hint: str) -> object:
    """Return what an option names by `FILE:NAME` or `package.module:NAME`, and what `fits` is true of; a `Mistake` if
    it is not `what` the option takes."""
    found: object
    found, origin, attribute = _load_module(target)
    for name in attribute.split("."):
        found = _attribute(found, name, origin)
    found = None if found is _NOTHING else found
    if isinstance(found, type) or not fits(found):
        raise Mistake(f"{option} {quoted(target[:80])} is {describe_kind(found)}, not {what}.", hint)
    return found


def is_context(value: object) -> bool:
    """Return whether a value is a context manager, or a class of such; one that is not async is refused by name."""
    return hasattr(value, "__aenter__") or hasattr(value, "__enter__")


def lasting(target: str) -> str:
    """Return `target` so that it names the same agent from any other folder, if it names a file."""
    origin, attribute = _split_target(target)
    if not _is_file(origin):
        return target
    return f"{Path(origin).resolve()}{':' if attribute else ''}{attribute}"


def load_model(name: str | None) -> Model | None:
    """Return the model of that name, or None for None; `ModelUnavailable` if it cannot be used."""
    return None if name is None else connect(name)


def load_file(path: Path) -> ModuleType:
    """Import a Python file: as a part of its package if its folder is one, else as a module of its own.

    The folder that `import` then looks in first is the file's, or the package's. That it raised is a `Mistake`.
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
    with explain_errors("Check its permissions.", about=f"{path} cannot be read"):
        path.open("rb").close()


def _load_module(target: str) -> tuple[ModuleType, str, str]:
    """Return the file or module that is named, how it is named, and the attribute of it, if there is one."""
    origin, attribute = _split_target(target)
    if _is_file(origin):
        return load_file(Path(origin)), origin, attribute
    return _load_or_explain(origin, lambda: _import(origin)), origin, attribute


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


def _agents_in(module: ModuleType) -> Mapping[str, AnyAgent]:
    """Return the agents by the first name each has in the module."""
    found: dict[int, tuple[str, AnyAgent]] = {}
    for name, value in vars(module).items():
        if isinstance(value, Agent):
            found.setdefault(id(value), (name, value))  # pyright: ignore[reportUnknownArgumentType] - a stranger's types
    return dict(found.values())


def _only_agent(module: ModuleType, origin: str) -> AnyAgent:
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


_HOST_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")
_SAID_CHARACTERS: Final = 500
_GRACE_S: Final = 0.5
"""How many seconds what was cancelled has to end."""


class AgentLoop:
    """The event loop of one command, and the agents that are open in it until it is closed."""

    def __init__(
        self, timeout_s: float = OPENING_S, *, rules: Path | None = None, end: TimeToEnd | None = None
    ) -> None:
        """`timeout_s`: how long an agent may take to open, and again to close. `rules`: a file of rules for the agents.
        `end`: in which time the command has to end."""
        self._rules: Final = None if rules is None else load_rules(rules)
        self.runner: Final = asyncio.Runner()
        self._timeout_s: Final = timeout_s
        self._end: Final = TimeToEnd() if end is None else end
        self._open: Final[list[_OpenAgent]] = []

    def __enter__(self) -> AgentLoop:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work in the loop."""
        return self.runner.run(work)

    def agent(
        self,
        target: str,
        lent: LentOptions | None = None,
        *,
        durable: bool = False,
        mode: PermissionMode | None = None,
        is_guarded: bool = True,
        made: AnyAgent | None = None,
        model: str | None = None,
    ) -> AnyAgent:
        """Return the agent that `target` names, open; with what it is lent. A durable run is lent nothing: the command
        line is not there when it goes on. What it may do is decided as `with_policy` says, unless it is not to be
        guarded. One that was `made` already belongs to the folder that `target` names. Sub-agents that it is lent
        inherit `model`, if there is one, and else its own. That it cannot be opened, or lacks its deps, is a
        `Mistake`."""
        lent = lent or _NOTHING_LENT
        given = {"--mcp": lent.mcp is not None, "--skills": bool(lent.skills), "--agents": lent.agents is not None}
        option = next((name for name, is_given in given.items() if is_given), None)
        if durable and option is not None:
            hint = "Give them in code."
            raise Mistake(f"{option} is not for a durable run: it would go on without these tools.", hint)
        if durable and self._rules is not None:
            hint = "Give them in code: Permission(deny=[…])."
            raise Mistake("--rules is not for a durable run: it would go on without these rules.", hint)
        agent = with_skills(self.definition(target, lent, made), lent.skills)
        if lent.agents is not None:
            agent = _with_agents(agent, lent.agents, model)
        if (lack := lacks_deps(deps_of_run(None, agent.deps), agent.deps)) is not None:
            text = f"{target}: {lack.partition('. ')[0]}, which no command can know."
            raise Mistake(text, f"Name a function that returns {agent.name}.with_deps(…), or a context manager.")
        return with_policy(agent, target, mode, self._rules) if is_guarded else agent

    def definition(self, target: str, lent: LentOptions = _NOTHING_LENT, made: AnyAgent | None = None) -> AnyAgent:
        """Return what `agent` returns, also without deps that it would need in a run."""
        if lent.pins is not None and lent.mcp is None:
            raise Mistake("--pins is for the tools of MCP servers.", "Add --mcp FILE, or leave it out.")
        found = find_object(target) if made is None else made
        if isinstance(found, Agent) and lent.mcp is None:
            return found  # pyright: ignore[reportUnknownVariableType] - its types are known to its file only
        opening = _OpenAgent(target, cast("object", found), lent, timeout_s=self._timeout_s)
        with _ended_by_one_interrupt():
            agent = self.run(opening.open())
        self._open.append(opening)
        return agent

    def close(self) -> None:
        """Close the agents, the last one first, and then the loop. Where closing one fails, the others are closed, and
        then that is raised."""
        mistakes: list[Mistake] = []
        with closing(self.runner):
            while self._open:
                last = self._open.pop()
                try:
                    self.run(last.close(self._end.part_s(last.limit_s)))
                except Mistake as mistake:
                    mistakes.append(mistake)
        if mistakes:
            raise mistakes[0]


def check_names(hosts: Sequence[str]) -> None:
    """Check the further names of a server. An empty one would let requests for any name in."""
    for host in hosts:
        if not _HOST_NAME.fullmatch(host):
            text = f"--allow-host {quoted(host[:80])} is no name of a machine."
            raise Mistake(text, "Give it without https://, as a request has it: --allow-host agents.example.org")


def with_skills(agent: AnyAgent, folders: Sequence[Path] | None) -> AnyAgent:
    """Return the agent with the skills in these folders besides its tools. Those that are left out are told on
    stderr."""
    if not folders:
        return agent
    with explain_errors("", about="--skills"), log_shown(PlainScreen(stderr_console()).say, debug=False):
        return replace(agent, tools=[*agent.tools, Skills(*folders, skip_broken=True)])


def _with_agents(agent: AnyAgent, folder: Path, model: str | None) -> AnyAgent:
    """Return the agent with the agents in a folder as its sub-agents, which may have its own tools."""
    crew: type[Subagents[Any]] = resolve_name("journeyman.subagents:Subagents")  # imported for it alone
    own = [tool for tool in agent.plan.tools.values() if not isinstance(tool, crew)]
    try:
        lent = crew.from_folder(folder, model=model or agent.model, tools=own)
        return replace(agent, tools=[*agent.tools, lent])
    except DefinitionError as error:
        problem = error.problems[0]
        hint = _AGENT_HINTS.get(problem.code, problem.hint)
        raise Mistake(one_line(f"--agents: {problem.message}", _SAID_CHARACTERS), hint) from error


@contextmanager
def explain_servers(pins: Path | None = None, hint: str = "") -> Generator[None]:
    """Say in one line why MCP servers cannot be used in the block: a `Mistake` where they are named wrongly, or are not
    as pinned, `Refused` where one cannot be used. `hint`: what to do where they differ from `pins`."""
    try:
        yield
    except DefinitionError as error:
        problem = error.problems[0]
        raise Mistake(one_line(f"{error.subject}: {problem.message}"), problem.hint) from error
    except PinsDiffer as error:
        raise Mistake(one_line(f"{pins}: {error.differences[0]}."), hint) from error
    except McpUnavailable as error:
        raise Refused(one_line(error.message), error.hint) from error


class _OpenAgent:
    """An agent that is opened and closed by one task, as cancel scopes and task groups need it."""

    def __init__(self, target: str, found: object, lent: LentOptions, *, timeout_s: float) -> None:
        self._target: Final = target
        self._found: Final = found
        self._mcp, self._pins = lent.mcp, lent.pins
        self._timeout_s: Final = timeout_s
        self.limit_s: Final = timeout_s if lent.mcp is None else 2 * timeout_s + _GRACE_S  # servers have their own time
        self._left: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def late(self, what: str, within_s: float | None = None) -> Mistake:
        """Return what is said when the time is up."""
        has_s = self._timeout_s if within_s is None else min(within_s, self._timeout_s)
        hint = "Fix what it waits for, or give it longer: --timeout SECONDS."
        return Mistake(f"{self._target} {what} within {has_s:.3g} s.", hint)

    async def open(self) -> AnyAgent:
        """Return the agent; a `Mistake` if there is none."""
        opened = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(opened))
        await asyncio.wait({self._task, opened}, timeout=self.limit_s, return_when=asyncio.FIRST_COMPLETED)
        if opened.done():
            return opened.result()
        if not self._task.done():
            await _give_up(self._task, self.late("gives no agent"))
        self._task.result()
        raise AssertionError("It has ended without an agent.")

    async def close(self, limit_s: float) -> None:
        """Close the context that gave the agent, within so many seconds; a `Mistake` if it is not, or raised."""
        if self._task is None:
            return
        self._left.set()
        await asyncio.wait({self._task}, timeout=limit_s)
        if not self._task.done():
            await _give_up(self._task, self.late("is not closed", limit_s))
        self._task.result()

    async def _live(self, opened: asyncio.Future[AnyAgent]) -> None:
        try:
            async with AsyncExitStack() as stack:
                agent = await self._enter_agent(stack)
                opened.set_result(agent if self._mcp is None else await self._add_servers(agent, self._mcp, stack))
                await self._left.wait()
        except (KeyboardInterrupt, Mistake):
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            raise self._mistake(error) from error

    async def _enter_agent(self, stack: AsyncExitStack) -> AnyAgent:
        value = self._found
        if isinstance(value, Agent):
            return value  # pyright: ignore[reportUnknownVariableType] - its types are known to its file only
        place = _place_of_definition(value)
        if callable(value) and (isinstance(value, type) or not is_context(value)):
            _check_no_parameters(value, place or self._target)
            value = value()
        if inspect.isawaitable(value) and not hasattr(value, "__aenter__"):
            value = await value
        made = value
        if hasattr(value, "__aenter__"):
            value = await stack.enter_async_context(cast("Any", value))
        if isinstance(value, Agent):
            return value  # pyright: ignore[reportUnknownVariableType] - as above
        given = "None" if value is None else describe_kind(value)
        text = f"{self._target}{f' ({place})' if place else ''} gives {given}, not an agent."
        raise Mistake(text, _hint(made, value))

    async def _add_servers(self, agent: AnyAgent, file: Path, stack: AsyncExitStack) -> AnyAgent:
        """Return the agent with the tools of MCP servers besides its own."""
        load_servers = resolve_name("journeyman.mcp.servers:load_servers")
        mcp: Callable[..., AbstractAsyncContextManager[ServerTools]] = resolve_name("journeyman.mcp.tools:mcp")
        hint = f"Look at what it offers now, and pin it: journeyman mcp pin --pins {self._pins} {file}"
        with explain_servers(self._pins, hint):
            servers = mcp(load_servers(file), pins=self._pins, start_timeout_s=self._timeout_s)
            tools = await stack.enter_async_context(servers)
            return replace(agent, tools=[*agent.tools, *tools])

    def _mistake(self, error: BaseException) -> Mistake:
        while is_group(error):
            error = error.exceptions[0]
        place = place_of_raise(error) or self._target
        match error:
            case DefinitionError():
                return misdefined_agent(self._target, place, error)
            case SystemExit(code=code):
                text = f"{place} calls sys.exit({'' if code is None else repr(code)})"
                return Mistake(f"{one_line(text)}.", f"{self._target} has to give an agent, or raise what is wrong.")
            case _:
                text = f"{place} raises {one_line(name_and_words(error)).rstrip('.')}."
                kind, when = (Refused, "closed") if self._left.is_set() else (Mistake, "opened")
                return kind(text, f"It happens when {self._target} is {when}. Fix it there.")


def _place_of_definition(found: object) -> str:
    """Say where a function or class is defined, if that is known: `agents.py, line 3`."""
    try:
        inner = inspect.unwrap(cast("Any", found.func if isinstance(found, partial) else found))
        return line_of(inspect.getfile(inner), inspect.getsourcelines(inner)[1])
    except (TypeError, ValueError, OSError):
        return ""


def _check_no_parameters(made: Callable[..., object], place: str) -> None:
    try:
        inspect.signature(made).bind()
    except TypeError as error:
        text = f"{place}: {getattr(made, '__name__', 'the function')} is called without arguments: {error}."
        raise Mistake(one_line(text), "Give each of its parameters a default.") from error
    except ValueError:  # it has no signature
        return


def _hint(made: object, value: object) -> str:
    if inspect.isasyncgen(value):
        return "Put @asynccontextmanager above the function; contextlib has it."
    if inspect.isgenerator(value) or hasattr(value, "__enter__"):
        return "Begin the function with async def, and put @asynccontextmanager above it; contextlib has it."
    return "Return the agent from it." if made is value else "Yield the agent from it."


@contextmanager
def _ended_by_one_interrupt() -> Generator[None]:
    """Let the first Ctrl-C end the block, also what blocks the loop in it. The runner's own handler would only cancel
    the task, and so wait for what blocks."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


async def _give_up(task: asyncio.Task[None], late: Mistake) -> NoReturn:
    """Cancel the task. Where it, or a thread, goes on anyway, end the process: nothing else could."""
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE_S)
    if not task.done() or awaited_threads():
        print_error(late.message, late.hint)
        sys.stderr.flush()
        os._exit(USAGE)
    if not task.cancelled():
        task.exception()  # that it was late says more
    raise late


#
# What has the name of a file or a folder of the user's is never something to install; the package that has this name in
# a public index is a stranger's.

_MARKS_OF_A_PROJECT: Final = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_NOBODYS: Final = frozenset({"node_modules", "__pycache__", "site-packages"})
_MOST_FOLDERS: Final = 5_000
"""In how many folders of a project a name is looked for: a tenth of a second."""


def short_path(origin: str) -> str:
    """Return a path as people would type it; a module's name as it is."""
    path = Path(origin)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else origin


def line_of(filename: str, number: int | None) -> str:
    """Name a line as people would: `agents.py, line 3`."""
    return short_path(filename) if number is None else f"{short_path(filename)}, line {number}"


def place_of_raise(error: BaseException) -> str:
    """Say where in the user's own files it was raised: `agents.py, line 3`. Empty: in none of them."""
    return _last_line([each for each in _frames(error) if not is_installed(each[0])])


def place_of_import(error: BaseException) -> str:
    """Say where importing a user's file has failed: `agents.py, line 3`. Empty: it is not one that was imported."""
    if isinstance(error, SyntaxError) and error.filename:
        return line_of(error.filename, error.lineno)
    if place := place_of_raise(error):
        return place
    frames = _frames(error)  # the user's files are an installed package themselves
    return _last_line([each for each in frames if Path(each[0]).is_relative_to(Path(frames[0][0]).parent)])


def missing_module(name: str, error: ModuleNotFoundError, *, target: Path | str) -> Mistake:
    """Return what is said of a module called `name` that importing `target`, a file or a module, did not find."""
    place, (top, _, _) = place_of_import(error), name.partition(".")
    verb = "imports" if place and place == _last_line(_frames(error)) else "needs"
    text = f"{place} {verb} {name}" if place else f"There is no module {name}"
    above = [name.rsplit(".", n_parts)[0] for n_parts in range(1, name.count(".") + 1)]
    parent = next((sys.modules[each] for each in above if each in sys.modules), None)
    if parent is not None:
        return _lacking(text, name, parent, is_target=not place)
    starts = [Path.cwd(), *(Path(file).resolve().parent for file, _ in _frames(error))]
    if (own := _find_own(top, starts)) is not None:
        text = f"{text}, which Python does not find." if place else f"{text}."
        return Mistake(text, f"{top} is yours: {short_path(str(own))}. {_way(own, target)}")
    if not place:
        return Mistake(f"{text}.", "Install it, or name a file, for example agents.py:analyst.")
    if top in sys.stdlib_module_names:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return Mistake(f"{text}, which Python {version} does not have.", "Use what has taken its place.")
    hint = f"Install it where journeyman is: {sys.executable} -m pip install {top}"
    return Mistake(f"{text}, which is not installed.", hint)


def _frames(error: BaseException) -> list[tuple[str, int]]:
    """Return the file and line of each frame that is in a file, but neither ours nor Python's own."""
    return [each for each in frames_of(error) if not (each[0].startswith("<") or is_pythons(each[0]))]


def _last_line(frames: Sequence[tuple[str, int]]) -> str:
    return line_of(*frames[-1]) if frames else ""


def _lacking(text: str, name: str, parent: ModuleType, *, is_target: bool) -> Mistake:
    """Return the mistake of a missing name in a module that exists."""
    held, file = parent.__name__, getattr(parent, "__file__", None)
    if not hasattr(parent, "__path__"):
        where = f": {short_path(file)}" if file else ""
        hint = "Rename it, if another is meant." if where and not is_target else "Name a module, then a colon."
        return Mistake(f"{text}. {held} is a file, not a package{where}.", hint)
    wanted = name.removeprefix(f"{held}.").partition(".")[0]
    close = get_close_matches(wanted, [each.name for each in pkgutil.iter_modules(parent.__path__)], n=1)
    hint = f"Did you mean {held}.{close[0]}?" if close else f"Look at what {held} has."
    return Mistake(f"{text}." if is_target else f"{text}, which {held} does not have.", hint)


def _find_own(name: str, starts: Sequence[Path]) -> Path | None:
    """Return the file or folder of that name beside or above where it is looked for, or in the same project."""
    above = {start: (start, *start.parents) for start in starts}
    for folder in dict.fromkeys(folder for folders in above.values() for folder in folders):
        for path in (folder / name, folder / f"{name}.py"):
            if os.path.exists(path):
                return path
    tops: dict[Path, None] = {}
    for start, folders in above.items():
        if not is_installed(f"{start}{os.sep}"):
            projects = (each for each in folders if any((each / mark).exists() for mark in _MARKS_OF_A_PROJECT))
            tops[next(projects, start)] = None
    below = (path for top in tops for path in islice(_paths_below(top), _MOST_FOLDERS))
    return next((path for paths in below for path in paths if _module_name(path) == _module_name(Path(name))), None)


def _paths_below(top: Path) -> Iterator[list[Path]]:
    """Return what each folder below `top` holds, without the packages of others."""
    for place, folders, files in os.walk(top):
        folder = Path(place)
        own = [each for each in sorted(folders) if not (each.startswith(".") or each in _NOBODYS)]
        folders[:] = [each for each in own if not (folder / each / "pyvenv.cfg").exists()]
        yield [folder / each for each in (*folders, *sorted(files))]


def _module_name(path: Path) -> str:
    """Return what a file or folder would be imported as: `acme-tools` is where `acme_tools` is at home."""
    name = path.name.partition(".")[0] if path.suffix in (".py", ".pyi", ".pyx", ".so", ".pyd") else path.name
    return name.replace("-", "_").casefold()


def _way(own: Path, target: Path | str) -> str:
    """Say how Python finds a file or folder of the user's."""
    above = own.parent
    if isinstance(target, Path) and above == Path.cwd() and target.is_relative_to(own):
        return f"Name it as a module: {'.'.join(target.relative_to(above).with_suffix('').parts)}:agent"
    return f"Set PYTHONPATH={short_path(str(above))}, or install your project in editable form."
