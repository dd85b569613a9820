"""Classifies a call by what it would do, as far as its arguments and its tool's declarations tell.

`classify` knows the ready tools. Of any other tool it assumes the most that its declared effect allows. A ready tool is
known by what it declares to act as, and never by its name, because anybody may choose a name. A name can only restrict
a tool: a deny rule also counts what the tool would do if it were the ready tool of that name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_mapping
from journeyman.gate import GateRequest

Capability: TypeAlias = Literal["read", "write", "exec", "network", "internal", "unknown"]
"""What a call can do. `internal`: nothing outside of the run."""


@lazy_dataclass(frozen=True, kw_only=True)
class Action:
    """The effect that a call would have: its capability, and the paths, command, address or agents that it concerns."""

    tool: str
    """The tool that runs in the end: for a call of `call_tool`, the tool that it names."""
    capability: Capability
    """What kind of thing it would do."""
    paths: tuple[str, ...] = ()
    """The paths that it touches, as the model wrote them; for a command, the folder that it runs in."""
    command: str | None = None
    """The command that it would run; None: it runs none."""
    url: str | None = None
    """The address that it would fetch; None: it fetches none."""
    agents: tuple[str, ...] = ()
    """The agents to which it gives a task."""
    needs: tuple[str, ...] = ()
    """What a command asks for beyond its box: `host:NAME`, `read:PATH`, `write:PATH`, `outside`."""
    in_box: bool = False
    """True: its command runs in a box that holds what the rules say; `Permission` adds it."""
    digest: str = ""
    """The digest of the call's tool and arguments; `Permission` adds it."""
    server_names: tuple[str, ...] = ()
    """The names that a tool of an MCP server has by its server: `mcp__git__log`, `mcp__git`; `Permission` adds them."""
    resembles: Action | None = None
    """What the call would do if the tool were the ready tool of its name. This can only forbid a call or have it asked
    about; it never allows anything."""

    def readings(self) -> Iterator[Action]:
        """Give this action, and what it might be by the names of its tools."""
        reading: Action | None = self
        while reading is not None:
            yield reading
            reading = reading.resembles


Classifier: TypeAlias = Callable[[GateRequest], Action]
"""Says what a call would do: `classify`, or a function of the user's that knows more tools."""


def fits_name(pattern: str, name: str) -> bool:
    """Tell whether a name is the pattern, or begins as it does where the pattern ends with `*`."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def classify(request: GateRequest) -> Action:
    """Say what a call would do."""
    if request.permission_kind is None:  # only its declarations are known
        pure: Capability = "network" if request.untrusted else "read"
        namesake = _READERS.get(request.tool_name)
        return Action(
            tool=request.tool_name,
            capability=pure if request.effect == "pure" else "unknown",
            resembles=None if namesake is None else namesake(request),
        )
    action = _READERS[request.permission_kind](request)
    if action is None:
        return Action(tool=request.tool_name, capability="unknown")
    if action.capability == "read" and request.effect != "pure":
        return replace(action, capability="unknown")
    return action


_Reader: TypeAlias = Callable[[GateRequest], Action | None]

_WILD: Final = frozenset("*?[{")


def _path_classifier(capability: Capability, *, default: str | None = None) -> _Reader:
    def read(request: GateRequest) -> Action | None:
        path, tool = request.arguments.get("path", default), request.tool_name
        return Action(tool=tool, capability=capability, paths=(path,)) if isinstance(path, str) else None

    return read


def _classify_glob(request: GateRequest) -> Action | None:
    pattern, path = request.arguments.get("pattern"), request.arguments.get("path", ".")
    if not isinstance(pattern, str) or not isinstance(path, str):
        return None
    parts = pattern.split("/")
    n_fixed = next((index for index, part in enumerate(parts) if _WILD & {*part}), len(parts))
    searched = posixpath.join(path, *([] if n_fixed == 0 else ["/".join(parts[:n_fixed]) or "/"]))
    capability: Capability = "unknown" if any(".." in part for part in parts[n_fixed:]) else "read"
    return Action(tool=request.tool_name, capability=capability, paths=(path, searched))


def _classify_command(request: GateRequest) -> Action | None:
    command, folder = request.arguments.get("command"), request.arguments.get("folder", ".")
    needs = request.arguments.get("needs") or ()
    if not isinstance(command, str) or not isinstance(folder, str) or not isinstance(needs, list | tuple):
        return None
    asked = tuple([str(need) for need in needs])
    return Action(tool=request.tool_name, capability="exec", command=command, paths=(folder,), needs=asked)


def _classify_fetch(request: GateRequest) -> Action | None:
    url = request.arguments.get("url")
    return Action(tool=request.tool_name, capability="network", url=url) if isinstance(url, str) else None


def _internal(request: GateRequest) -> Action:
    return Action(tool=request.tool_name, capability="internal")


def _classify_task(request: GateRequest) -> Action | None:
    tasks: list[object] = [request.arguments]
    for name in ("tasks", "chain"):
        listed = request.arguments.get(name)
        tasks += listed if isinstance(listed, list) else []
    agents: list[str] = []
    for task in tasks:
        agent: object = task.get("agent") if is_mapping(task) else None
        agents += [agent] if isinstance(agent, str) else []
    return Action(tool=request.tool_name, capability="internal", agents=tuple(agents)) if agents else None


def _classify_proxied(request: GateRequest) -> Action | None:
    """Look at the call that is passed on. What effect its tool declares is not known, so the worst is taken."""
    name, arguments = request.arguments.get("name"), request.arguments.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, dict) or name == request.tool_name:
        return None
    permission_kind = request.proxied.get(name)
    if permission_kind == "call_tool":  # it passes on to tools that nothing is known of
        return None
    return classify(
        replace(
            request, tool_name=name, arguments=arguments, effect="once", permission_kind=permission_kind, proxied={}
        )
    )


_READERS: Final[Mapping[str, _Reader]] = {
    "read": _path_classifier("read"),
    "ls": _path_classifier("read", default="."),
    "grep": _path_classifier("read", default="."),
    "glob": _classify_glob,
    "write": _path_classifier("write"),
    "edit": _path_classifier("write"),
    "bash": _classify_command,
    "fetch": _classify_fetch,
    "tool_search": _internal,
    "ask_user": _internal,
    "subagent": _classify_task,
    # Whoever gave the agent its skills has said that they are read; what hides files hides them there, too.
    "skill": lambda request: Action(tool=request.tool_name, capability="read"),
    "call_tool": _classify_proxied,
}
