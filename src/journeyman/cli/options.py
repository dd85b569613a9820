"""The options of commands that are declared once for several: those that all share, which stand before a command or
behind it, and the types of others.

What stands in `SHARED` is explained by `journeyman --help`; the help of a command only names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter as SignatureParameter
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_type_hints

from cyclopts import App, Parameter

from journeyman.agent import Agent
from journeyman.cli import COMMANDS, SHARED
from journeyman.permission.permission import PermissionMode

OPENING_S: Final = 30.0
"""How many seconds an agent may take to open, and again to close, where nothing else is said."""
_SWITCHES: Final = {"-m": "--model", "--no-record": "--record"}
"""The other spellings of an option."""

Flag: TypeAlias = Annotated[bool, Parameter(negative=())]
Texts: TypeAlias = Annotated[list[str] | None, Parameter(negative=())]
Paths: TypeAlias = Annotated[list[Path] | None, Parameter(negative=())]
SandboxUse: TypeAlias = Literal["auto", "required", "none"]
"""The choice of a box for commands: where one holds; always, or nothing begins; never."""


def explain(text: str, *, name: str | None = None) -> Parameter:
    """Return what the help says of an option, or of an argument with a name."""
    return Parameter(name=name, help=text)


def check_positive(_: object, value: float | None) -> None:
    """Check what an option says, as cyclopts asks for it: a `ValueError` if it is 0 or less, or no number that is
    known."""
    if value is not None and not 0 < value < math.inf:
        raise ValueError("Give a number above 0.")


def check_not_negative(_: object, value: float | None) -> None:
    """Check what an option says, as `check_positive` does, which may also be 0."""
    if value is not None and not 0 <= value < math.inf:
        raise ValueError("Give a number from 0 on.")


POSITIVE: Final = Parameter(validator=check_positive)
NOT_NEGATIVE: Final = Parameter(validator=check_not_negative)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOptions:
    """The options of a command line that several commands share; each command says in `SHARED` that it takes one."""

    model: Annotated[str | None, Parameter(name=("--model", "-m"))] = None
    mode: PermissionMode | None = None
    sandbox: SandboxUse | None = None
    store: str | None = None
    record: bool | None = None
    otel: Flag = False
    debug: Flag = False
    json: Flag = False
    quiet: Flag = False
    timeout: Annotated[float, POSITIVE] = OPENING_S


GivenOptions: TypeAlias = Annotated[SharedOptions, Parameter(parse=False)]
"""The shared options, as a command is given them beside its own."""
_read = App(result_action="return_value", exit_on_error=False, print_error=False, help_flags=(), version_flags=())


@_read.default
def _return_options(*, options: Annotated[SharedOptions | None, Parameter(name="*")] = None) -> SharedOptions:
    return options or SharedOptions()


def read_shared(words: Sequence[str]) -> SharedOptions:
    """Return what shared options say; a `CycloptsError` if one has no value, or a wrong one."""
    return _read(words)


def command_of(words: Sequence[str]) -> str:
    """Return the name of the command that words begin with; the first word, if there is none."""
    return next((name for name in (" ".join(words[:2]), *words[:1]) if name in COMMANDS), "".join(words[:1]))


def options_taken(command: str) -> list[str]:
    """Return the shared options that a command takes."""
    return [name for name, each in SHARED.items() if command in each.commands]


def with_shared(command: str, work: Callable[..., int]) -> Callable[..., None]:
    """Return a function that takes what a command takes, its shared options too, for whoever reads its signature."""

    def stand_in(*_: object, **__: object) -> None:
        """Do nothing."""

    hints, own = get_type_hints(SharedOptions, include_extras=True), signature(work, eval_str=True)
    taken = partial(SignatureParameter, kind=SignatureParameter.KEYWORD_ONLY, default=None)
    names = [name.removeprefix("--") for name in options_taken(command)]
    shared = [taken(name, annotation=hints[name]) for name in names]
    kept = [each for name, each in own.parameters.items() if name != "shared"]
    stand_in.__dict__["__signature__"] = own.replace(parameters=[*kept, *shared])
    return stand_in


def split_shared(words: Sequence[str], names: Collection[str], *, leading: bool = False) -> tuple[list[str], list[str]]:
    """Take the shared options with these names out of words, each with its value, and return them, and the rest.
    `leading`: only those before the first other word."""
    taken, rest, left = list[str](), list[str](), list(words)
    while left:
        word = left.pop(0)
        option, has_value, _ = word.partition("=")
        name = _SWITCHES.get(option, option)
        if name in names:
            taken.append(word)
            if SHARED[name].value and not has_value:
                taken += [left.pop(0)] if left and not left[0].startswith("--") else []
        elif leading or word == "--":
            return taken, [*rest, word, *left]
        else:
            rest.append(word)
    return taken, rest


RunName = Annotated[str, explain("Its id, its name, its beginning, or last.", name="RUN")]
AgentName = Annotated[str, explain("A Python file or module, a colon, and the agent in it.", name="FILE:AGENT")]
AgentNames = Annotated[
    str, explain("The agents: each a Python file or module, and the agent in it.", name="FILE:AGENT")
]
AnyAgent: TypeAlias = Agent[Any, Any, Any]
"""An agent of somebody's file: its types are known only there."""
InputText = Annotated[str | None, explain("A text, or JSON for other types; else what is piped in.", name="INPUT")]
TreeFlag = Annotated[Flag, explain("At the end, print all runs, iterations and calls.")]
ForceFlag = Annotated[Flag, explain("Replace what is there.")]
RulesFile = Annotated[Path | None, explain("Take the rules (allow, ask, deny) of this settings.json.")]
SkillFolders = Annotated[Paths, explain("Give it the skills in this folder; repeatable.")]
Port = Annotated[int | None, explain("The port to listen on; 0 takes a free one.")]
HostNames = Annotated[Texts, explain("A further name that clients use; repeatable.")]
Seconds = Annotated[float, NOT_NEGATIVE, explain("Seconds in which it ends after the first signal (30).")]
MaxConcurrency = Annotated[int, POSITIVE, Parameter(help="So many runs at the same time.", show_default=True)]
OwnAgent = Annotated[str | None, explain("Where its agent is, if elsewhere: agents.py:analyst.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class BoxOptions:
    """The options that give commands more than their box does."""

    allow_host: Annotated[Texts, explain("Let commands reach this host; repeatable.")] = None
    write: Annotated[Texts, explain("Let commands change this file or folder; repeatable.")] = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class LentOptions:
    """The options that lend an agent tools, beside its own."""

    mcp: Annotated[Path | None, explain("Give it the tools of these MCP servers: mcp.json.")] = None
    pins: Annotated[Path | None, explain("Refuse tools that are not as pinned here.")] = None
    skills: SkillFolders = None
    agents: Annotated[Path | None, explain("Give it the agents in this folder as sub-agents: .claude/agents.")] = None
