"""The tools of MCP servers, as tools of ours.

    async with mcp({"files": ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."]}) as tools:
        agent = Agent(..., tools=tools)

A server is somebody else's program. Its results are untrusted, its tools have the effect `once` whatever it says of
them, and with `pins=` only what somebody has looked at is shown to a model. What it asks in the middle of a call goes
to the user of the chat (`elicitation`); its resources and prompts are read through `tools.servers[name]` (`resources`).
Needs `pip install 'journeyman[mcp]'`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeAlias

from journeyman.cancellation import wait_until_ended
from journeyman.errors import DefinitionError, McpUnavailable, PinsDiffer, Problem
from journeyman.mcp.connection import ServerConnection
from journeyman.mcp.contents import to_tool_result
from journeyman.mcp.oauth import show_address
from journeyman.mcp.pins import Definition, Offer, Pins, beginning, differences, load_pins, pin_offer, save_pins
from journeyman.mcp.resources import LIST_RESOURCES, READ_RESOURCE, ConnectedServer, read_schema, resource_list
from journeyman.mcp.servers import Http, OAuth, Server, Target, plain_name, to_servers
from journeyman.texts import shorten_line
from journeyman.tools.context import ToolContext
from journeyman.tools.raw_schema import size_problems
from journeyman.tools.schema import flatten
from journeyman.tools.tools import AnyTool, Tool, tool_problems
from journeyman.tools.toolsets import Toolset
from journeyman.types import Effect, JsonObject, ToolResult

_log = logging.getLogger("journeyman")
START_TIMEOUT_S: Final = 30.0
CALL_TIMEOUT_S: Final = 120.0
MAX_CHARS: Final = 50_000
MAX_DESCRIPTION: Final = 16_000
"""The longest description that a model is shown, in characters."""
_SHOWN: Final = 300
_LONGEST_NAME: Final = 64  # what every provider takes


class ServerTools(list[AnyTool], Toolset):
    """The tools of servers; and the servers themselves, whose resources and prompts can be read."""

    def __init__(self, tools: Iterable[AnyTool], servers: Mapping[str, ConnectedServer]) -> None:
        super().__init__(tools)
        self.servers: Final = servers
        """The servers by name."""

    @property
    def known_tools(self) -> Sequence[AnyTool]:
        """The tools, as a toolset."""
        return tuple(self)


@asynccontextmanager
async def mcp(
    servers: Mapping[str, Target],
    *,
    pins: str | Path | None = None,
    effects: Effect | Mapping[str, Effect] = "once",
    parallel: bool = False,
    resources: bool = False,
    max_chars: int = MAX_CHARS,
    start_timeout_s: float = START_TIMEOUT_S,
    call_timeout_s: float = CALL_TIMEOUT_S,
) -> AsyncGenerator[ServerTools]:
    """Start servers, give their tools, and end the servers. `tools.servers[name]` reads resources and prompts of one.

    A target is the words of a command, an `http(s)://` address, or a `Stdio` or `Http` with options. A tool has the
    name that its server gives it, changed where providers would refuse it. If two names are the same, the server's name
    comes before each.

    Args:
        servers: The servers by name.
        pins: A file that `pin` wrote. What is not exactly as pinned is refused.
        effects: The effect of calls: of all tools, or of each tool by the name that the model reads. All others have
            the effect `once`.
        parallel: Whether calls may run at the same time.
        resources: Whether the model gets the tools `list_resources` and `read_resource`, if a server has resources.
        max_chars: The longest result, in characters.
        start_timeout_s: How long a server may take to start, and to list its tools.
        call_timeout_s: How long a call may take.

    Raises:
        DefinitionError: what is given cannot be right; it lists every problem.
        McpUnavailable: a server does not start, answer or offer what it should.
        PinsDiffer: tools are not as they were pinned; it lists every difference.
    """
    named = to_servers(servers)
    known = None if pins is None else load_pins(Path(pins))
    options = _Taking(
        effects, parallel=parallel, max_chars=max_chars, timeout_s=call_timeout_s, pinned=known is not None
    )
    async with _open_servers(named, start_timeout_s, call_timeout_s) as opened:
        if known is not None:
            differing = [
                line
                for _, offer in opened
                for line in differences(
                    known, offer, only=named[offer.server].only, without=named[offer.server].without
                )
            ]
            if differing:
                raise PinsDiffer(str(pins), differing)
        connected = {at.name: ConnectedServer(at) for at, _ in opened}
        reading = {at.name: connected[at.name] for at, _ in opened if resources and at.has_resources}
        yield ServerTools(await _tools_of_servers(named, opened, reading, options), connected)


async def pin(
    servers: Mapping[str, Target], path: str | Path, *, start_timeout_s: float = START_TIMEOUT_S
) -> list[str]:
    """Start servers, write what they offer to a file of pins, and return what differs from it so far, line by line.

    Pins of other servers stay in the file. Look at the lines, and at the file's difference in version control: a model
    will be told what is pinned.

    Raises:
        DefinitionError: what is given cannot be right; it lists every problem.
        McpUnavailable: a server does not start, answer or offer what it should.
        PinsDiffer: there is a file, but it cannot be read.
    """
    file = Path(path)
    known = _load_known_pins(file)
    named = to_servers(servers)
    async with _open_servers(named, start_timeout_s, CALL_TIMEOUT_S) as opened:
        offers = [offer for _, offer in opened]
    save_pins(file, Pins(servers={**known.servers, **{offer.server: pin_offer(offer) for offer in offers}}))
    return [line for offer in offers for line in _news(known, offer)]


async def sign_in(servers: Mapping[str, Target], *, start_timeout_s: float = START_TIMEOUT_S) -> list[str]:
    """Sign in, as a person at a terminal, at the servers that want it; return the names of those with an address.

    Tokens are kept for programs that open the servers later. The address is printed, and opened in a browser; a server
    that wants nobody to sign in is only opened. Programs to start are left alone.

    Raises:
        DefinitionError: what is given cannot be right; it lists every problem.
        McpUnavailable: a server does not start, or signing in fails, and why.
    """
    asking: dict[str, Server] = {}
    for name, server in to_servers(servers).items():
        if isinstance(server, Http) and not callable(server.auth):
            asking[name] = replace(server, auth=replace(server.auth or OAuth(), open_address=show_address))
    async with _open_servers(asking, start_timeout_s, CALL_TIMEOUT_S):
        return list(asking)


def _load_known_pins(file: Path) -> Pins:
    return load_pins(file) if file.exists() else Pins()


def _news(known: Pins, offer: Offer) -> list[str]:
    if offer.server in known.servers:
        return differences(known, offer)
    lines = [f"tool {each.name!r} of server {offer.server!r} is new: {beginning(each)}" for each in offer.tools]
    return [f"server {offer.server!r} is new: {dict(sorted(offer.identity.items()))}", *lines]


@asynccontextmanager
async def _open_servers(
    servers: Mapping[str, Server], start_timeout_s: float, call_timeout_s: float
) -> AsyncGenerator[list[tuple[ServerConnection, Offer]]]:
    """Open all servers at the same time, and close them all."""
    if find_spec("mcp") is None:
        problem = Problem("MISSING_PACKAGE", "The package mcp is not installed.", "pip install 'journeyman[mcp]'")
        raise DefinitionError("The list of MCP servers", [problem])
    connections = [
        ServerConnection(name, server, start_timeout_s=start_timeout_s, call_timeout_s=call_timeout_s)
        for name, server in servers.items()
    ]
    try:
        offers = await asyncio.gather(*(each.open() for each in connections), return_exceptions=True)
        for failure in offers:
            if isinstance(failure, BaseException):
                raise failure
        yield [(at, offer) for at, offer in zip(connections, offers, strict=True) if isinstance(offer, Offer)]
    finally:
        closing = asyncio.gather(*(each.close() for each in connections))
        await wait_until_ended(closing)  # it takes a moment, and nothing must be left
        closing.result()


@dataclass(frozen=True, slots=True)
class _Taking:
    """The options that all tools of the servers get, and the maker of such tools."""

    effects: Effect | Mapping[str, Effect]
    parallel: bool
    max_chars: int
    timeout_s: float
    pinned: bool
    """Whether somebody has looked at what the model is told of the tools."""

    def effect(self, name: str) -> Effect:
        return self.effects if isinstance(self.effects, str) else self.effects.get(name, "once")

    def make_tool(
        self, name: str, description: str, schema: JsonObject, call: _Handler, *, origin: tuple[str, str] | None = None
    ) -> AnyTool:
        return Tool(
            name,
            description,
            schema,
            call,
            parallel=self.parallel,
            effect=self.effect(name),
            timeout_s=self.timeout_s,
            max_chars=self.max_chars,
            untrusted=True if self.pinned else "throughout",
            external=True,
            server_names=() if origin is None else server_names(*origin),
        )


async def _tools_of_servers(
    servers: Mapping[str, Server],
    opened: Sequence[tuple[ServerConnection, Offer]],
    reading: Mapping[str, ConnectedServer],
    options: _Taking,
) -> list[AnyTool]:
    """Return the tools of servers, and those that read the resources of `reading`; between them others have a turn."""
    taken = [(at, each) for at, offer in opened for each in _select_tools(servers[at.name], offer)]
    readers = _readers(reading)
    names = unique_names([*((at.name, each.name) for at, each in taken), *(("mcp", name) for name, *_ in readers)])
    if not isinstance(options.effects, str) and (unknown := set(options.effects) - set(names)):
        hint = f"There are: {', '.join(names)}."
        raise DefinitionError(
            "The effects of MCP tools",
            [Problem("UNKNOWN_TOOL", f"There is no tool {name!r}.", hint) for name in sorted(unknown)],
        )
    tools: list[AnyTool] = []
    for (at, each), name in zip(taken, names, strict=False):
        made = _tool_of_server(at, each, name, options)
        tools += [] if made is None else [made]
        await asyncio.sleep(0)
    return [
        *tools,
        *(
            options.make_tool(name, description, schema, call)
            for (_, description, schema, call), name in zip(readers, names[len(taken) :], strict=True)
        ),
    ]


_Handler: TypeAlias = Callable[[dict[str, object], ToolContext], Awaitable[ToolResult]]


def _readers(servers: Mapping[str, ConnectedServer]) -> list[tuple[str, str, JsonObject, _Handler]]:
    """Return the tools that read resources, if a server has any: names, descriptions, schemas and handlers."""

    async def list_resources(arguments: dict[str, object], context: ToolContext) -> ToolResult:
        return await resource_list(servers)

    async def read(arguments: dict[str, object], context: ToolContext) -> ToolResult:
        return await servers[str(arguments["server"])].read_as_result(str(arguments["uri"]))

    if not servers:
        return []
    about = "List what can be read with read_resource: resources with their uri, and templates (uri_template) of more."
    nothing: JsonObject = {"type": "object", "properties": {}, "additionalProperties": False}
    return [
        (LIST_RESOURCES, about, nothing, list_resources),
        (READ_RESOURCE, "Read a resource of a server.", read_schema(servers), read),
    ]


def _select_tools(server: Server, offer: Offer) -> list[Definition]:
    offered = {each.name: each for each in offer.tools}
    if absent := [name for name in server.without if name not in offered]:
        _log.warning("MCP server %r does not offer %s, which it is taken without.", offer.server, ", ".join(absent))
    if server.only is None:
        return [each for each in offer.tools if each.name not in server.without]
    missing = [name for name in server.only if name not in offered]
    if missing:
        reason = f"it does not offer {', '.join(map(repr, missing))}"
        raise McpUnavailable(offer.server, reason, hint=f"It offers: {', '.join(offered) or 'nothing'}. Correct only=.")
    return [offered[name] for name in server.only if name not in server.without]


def _tool_of_server(at: ServerConnection, definition: Definition, name: str, options: _Taking) -> AnyTool | None:
    """Return a tool of a server; None for one that cannot be used, which is told."""

    async def call(arguments: dict[str, object], context: ToolContext) -> ToolResult:
        answer = await at.call(definition.name, arguments, context.progress, context.path)
        return at.explain_refusals(to_tool_result(answer))

    origin = (at.name, definition.name)
    about = definition.description.strip() or definition.title or definition.name
    if len(about) > MAX_DESCRIPTION:
        about = f"{about[:MAX_DESCRIPTION]}\n[Cut: the first {MAX_DESCRIPTION:,} of {len(about):,} characters.]"
    schema, description = flatten(definition.input_schema, about)
    made = options.make_tool(name, description, schema, call, origin=origin)
    problems = tool_problems(made)
    if not problems:
        return made
    said = " ".join([shorten_line(str(problem), _SHOWN) for problem in problems])
    if made.schema_fault is None or size_problems(schema):
        _log.warning("MCP server %r: the tool %r is left out. %s", *origin, said)
        return None
    # The server checks its arguments itself; a faulty schema would have the provider refuse every request.
    _log.warning("MCP server %r: the arguments of the tool %r are not checked. %s", *origin, said)
    text = shorten_line(json.dumps(schema, ensure_ascii=False), MAX_DESCRIPTION)
    return options.make_tool(name, f"{description}\n\nIts arguments: {text}", {"type": "object"}, call, origin=origin)


def unique_names(offered: Sequence[tuple[str, str]]) -> list[str]:
    """Return a name for each server and tool: the tool's own, with the server's before it where two are the same."""
    plain = [_fit(tool) for _, tool in offered]
    n_plain = Counter(plain)
    names: dict[str, None] = {}
    for (server, tool), own in zip(offered, plain, strict=True):
        name = own if n_plain[own] == 1 else _fit(f"{server}_{tool}")
        names[name if name not in names else _mark_name(name, f"{server}/{tool}")] = None
    return list(names)


def server_names(server: str, tool: str) -> tuple[str, str]:
    """Return the two names that rules may use: of a server's tool, and of all tools of that server."""
    return f"mcp__{plain_name(server)}__{plain_name(tool)}", f"mcp__{plain_name(server)}"


def _fit(name: str) -> str:
    """Return a name that every provider takes."""
    fit = plain_name(name)
    return fit if len(fit) <= _LONGEST_NAME else _mark_name(fit, name)


def _mark_name(name: str, of: str) -> str:
    """Return a name that is told from others by a digest of what it stands for."""
    digest = sha256(of.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{digest}"
