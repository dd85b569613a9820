"""The options that several commands have, each declared once: its name, its type and what the help says of it.

What stands in `SHARED` is explained by `journeyman --help`; the help of a command only names it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from cyclopts import Group, Parameter

from journeyman.cli import SHARED
from journeyman.permission.permission import PermissionMode

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

OPENING_S: Final = 30.0
"""How many seconds an agent may take to open, and again to close, where nothing else is said."""


def _print_names(console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
    names = ", ".join(" ".join([*each.names[:1], *each.shorts]) for each in panel.entries)
    console.print(f"Also {names}: see journeyman --help.", markup=False, highlight=False, soft_wrap=False)


_GROUP: Final = Group("Shared", sort_key=9, help_formatter=_print_names)


def _share_option(*names: str, negative: tuple[str, ...] | None = ()) -> Parameter:
    return Parameter(name=names, negative=negative, group=_GROUP, help=SHARED[names[0]][1])


ModelName: TypeAlias = Annotated[str | None, _share_option("--model", "-m")]
ModeName: TypeAlias = Annotated[PermissionMode | None, _share_option("--mode")]
StoreName: TypeAlias = Annotated[str | None, _share_option("--store")]
RecordFlag: TypeAlias = Annotated[bool | None, _share_option("--record", negative=None)]
OtelFlag: TypeAlias = Annotated[bool, _share_option("--otel")]
DebugFlag: TypeAlias = Annotated[bool, _share_option("--debug")]
QuietFlag: TypeAlias = Annotated[bool, _share_option("--quiet")]
Timeout: TypeAlias = Annotated[float, _share_option("--timeout")]

Flag: TypeAlias = Annotated[bool, Parameter(negative=())]
RunName: TypeAlias = Annotated[str, Parameter(name="RUN", help="Its id, its name, its beginning, or last.")]
AgentName: TypeAlias = Annotated[
    str, Parameter(name="FILE:AGENT", help="A Python file or module, a colon, and the agent in it.")
]
AgentNames: TypeAlias = Annotated[
    str, Parameter(name="FILE:AGENT", help="The agents: each a Python file or module, and the agent in it.")
]
InputText: TypeAlias = Annotated[
    str | None, Parameter(name="INPUT", help="A text, or JSON for other types; else what is piped in.")
]
JsonFlag: TypeAlias = Annotated[bool, Parameter(negative=(), help="Print one JSON document.")]
TreeFlag: TypeAlias = Annotated[bool, Parameter(negative=(), help="At the end, print all runs, iterations and calls.")]
ForceFlag: TypeAlias = Annotated[bool, Parameter(negative=(), help="Replace what is there.")]
McpFile: TypeAlias = Annotated[Path | None, Parameter(help="Give it the tools of these MCP servers: mcp.json.")]
PinsFile: TypeAlias = Annotated[Path | None, Parameter(help="Refuse tools that are not as pinned here.")]
RulesFile: TypeAlias = Annotated[
    Path | None, Parameter(help="Take the rules (allow, ask, deny) of this settings.json.")
]
SkillFolders: TypeAlias = Annotated[
    list[Path] | None, Parameter(negative=(), help="Give it the skills in this folder; repeatable.")
]
Port: TypeAlias = Annotated[int | None, Parameter(help="The port to listen on; 0 takes a free one.")]
HostNames: TypeAlias = Annotated[
    list[str] | None, Parameter(negative=(), help="A further name that clients use; repeatable.")
]
Seconds: TypeAlias = Annotated[float, Parameter(help="Seconds in which it ends after the first signal (30).")]
MaxConcurrency: TypeAlias = Annotated[int, Parameter(help="So many runs at the same time.", show_default=True)]
OwnAgent: TypeAlias = Annotated[str | None, Parameter(help="Where its agent is, if elsewhere: agents.py:analyst.")]
