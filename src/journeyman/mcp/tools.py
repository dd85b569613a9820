"""The tools of MCP servers, as tools of ours.

    async with mcp({"files": ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."]}) as tools:
        agent = Agent(..., tools=tools)

A server is somebody else's program. Its results are untrusted, its tools have the effect `once` whatever it says of
them, and with `pins=` only what somebody has looked at is shown to a model. Nothing it sends may make a conversation
that no provider takes: pictures are looked at, what cannot be shown is named, and structured results come once. Needs
`pip install 'journeyman[mcp]'`.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from pydantic_core import from_json, to_json

from journeyman.cancel import ended
from journeyman.errors import DefinitionError, McpUnavailable, PinsDiffer, Problem, count
from journeyman.mcp.connection import Connection
from journeyman.mcp.pins import Definition, Offer, Pins, beginning, differences, load_pins, pinned, save_pins
from journeyman.mcp.servers import Server, Target, to_servers
from journeyman.tools.tools import AnyTool, Tool, ToolContext, tool_problems
from journeyman.types import Document, Effect, Image, Text, ToolResult

if TYPE_CHECKING:
    from mcp.types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents


START_TIMEOUT_S: Final = 30.0
CALL_TIMEOUT_S: Final = 120.0
MAX_CHARS: Final = 50_000
MAX_DESCRIPTION: Final = 16_000
"""The longest description that a model is shown, in characters."""
MAX_MEDIA: Final = 20
"""The most pictures and documents of one answer that are shown."""
MAX_MEDIA_BYTES: Final = 5_000_000
"""The largest picture or document that is shown; providers refuse larger ones."""
_LONGEST_NAME: Final = 64  # what every provider takes
_Block: TypeAlias = Text | Image | Document


@asynccontextmanager
async def mcp(
    servers: Mapping[str, Target],
    *,
    pins: str | Path | None = None,
    effects: Effect | Mapping[str, Effect] = "once",
    parallel: bool = False,
    max_chars: int = MAX_CHARS,
    start_timeout_s: float = START_TIMEOUT_S,
    call_timeout_s: float = CALL_TIMEOUT_S,
) -> AsyncGenerator[list[AnyTool]]:
    """Start servers, give their tools, and end the servers.

    A target is the words of a command, an `http(s)://` address, or a `Stdio` or `Http` with more to say. A tool has
    the name that its server gives it, made fit for providers; where two are the same, with the server's name before it.

    Args:
        servers: The servers by name.
        pins: A file that `pin` wrote. What is not exactly as pinned is refused.
        effects: What calls do: of all tools, or of each, by the name that the model reads; `once` for the others.
        parallel: Whether calls may run at the same time.
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
    options = _Taking(effects, parallel=parallel, max_chars=max_chars, timeout_s=call_timeout_s)
    async with _opened(named, start_timeout_s, call_timeout_s) as opened:
        if known is not None:
            differing = [
                line for _, offer in opened for line in differences(known, offer, only=named[offer.server].only)
            ]
            if differing:
                raise PinsDiffer(str(pins), differing)
        yield _tools(named, opened, options)


async def pin(
    servers: Mapping[str, Target], path: str | Path, *, start_timeout_s: float = START_TIMEOUT_S
) -> list[str]:
    """Start servers, write what they offer to a file of pins, and return what differs from it so far, line by line.

    Pins of other servers in the file stay. Look at the lines, and at the file's difference in version control: what is
    pinned is what a model will be told.

    Raises:
        DefinitionError: what is given cannot be right; it lists every problem.
        McpUnavailable: a server does not start, answer or offer what it should.
        PinsDiffer: there is a file, but it cannot be read.
    """
    file = Path(path)
    known = _known(file)
    named = to_servers(servers)
    async with _opened(named, start_timeout_s, CALL_TIMEOUT_S) as opened:
        offers = [offer for _, offer in opened]
    save_pins(file, Pins(servers={**known.servers, **{offer.server: pinned(offer) for offer in offers}}))
    return [line for offer in offers for line in _news(known, offer)]


def _known(file: Path) -> Pins:
    return load_pins(file) if file.exists() else Pins()


def _news(known: Pins, offer: Offer) -> list[str]:
    if offer.server in known.servers:
        return differences(known, offer)
    lines = [f"tool {each.name!r} of server {offer.server!r} is new: {beginning(each)}" for each in offer.tools]
    return [f"server {offer.server!r} is new: {dict(sorted(offer.identity.items()))}", *lines]


@asynccontextmanager
async def _opened(
    servers: Mapping[str, Server], start_timeout_s: float, call_timeout_s: float
) -> AsyncGenerator[list[tuple[Connection, Offer]]]:
    """Open all servers at the same time, and close them all."""
    if find_spec("mcp") is None:
        problem = Problem("MISSING_PACKAGE", "The package mcp is not installed.", "pip install 'journeyman[mcp]'")
        raise DefinitionError("The MCP servers", [problem])
    connections = [
        Connection(name, server, start_timeout_s=start_timeout_s, call_timeout_s=call_timeout_s)
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
        await ended(closing)  # it takes a moment, and nothing must be left
        closing.result()


# -- tools -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Taking:
    """What is said of all tools."""

    effects: Effect | Mapping[str, Effect]
    parallel: bool
    max_chars: int
    timeout_s: float

    def effect(self, name: str) -> Effect:
        return self.effects if isinstance(self.effects, str) else self.effects.get(name, "once")


def _tools(
    servers: Mapping[str, Server], opened: Sequence[tuple[Connection, Offer]], options: _Taking
) -> list[AnyTool]:
    taken = [(at, each) for at, offer in opened for each in _taken(servers[at.name], offer)]
    names = unique_names([(at.name, each.name) for at, each in taken])
    if not isinstance(options.effects, str) and (unknown := set(options.effects) - set(names)):
        hint = f"There are: {', '.join(names)}."
        raise DefinitionError(
            "The effects of MCP tools",
            [Problem("UNKNOWN_TOOL", f"There is no tool {name!r}.", hint) for name in sorted(unknown)],
        )
    return [_tool(at, each, name, options) for (at, each), name in zip(taken, names, strict=True)]


def _taken(server: Server, offer: Offer) -> list[Definition]:
    if server.only is None:
        return list(offer.tools)
    offered = {each.name: each for each in offer.tools}
    missing = [name for name in server.only if name not in offered]
    if missing:
        reason = f"it does not offer {', '.join(map(repr, missing))}"
        raise McpUnavailable(offer.server, reason, hint=f"It offers: {', '.join(offered) or 'nothing'}. Correct only=.")
    return [offered[name] for name in server.only]


def _tool(at: Connection, definition: Definition, name: str, options: _Taking) -> AnyTool:
    async def call(arguments: dict[str, object], context: ToolContext) -> ToolResult:
        return to_tool_result(await at.call(definition.name, arguments, context.progress))

    made = Tool(
        name,
        _description(definition),
        definition.input_schema,
        call,
        parallel=options.parallel,
        effect=options.effect(name),
        timeout_s=options.timeout_s,
        max_chars=options.max_chars,
        untrusted=True,
    )
    if problems := tool_problems(made):
        theirs = ("INVALID_INPUT_SCHEMA", "INVALID_PROPERTY_NAME")
        hint = f"Leave it out: Stdio(..., only=[...]) or Http(..., only=[...]) without {definition.name!r}."
        raise DefinitionError(
            f"Tool {definition.name!r} of MCP server {at.name!r}",
            [Problem(each.code, each.message, hint if each.code in theirs else each.hint) for each in problems],
        )
    return made


def _description(definition: Definition) -> str:
    text = definition.description.strip() or definition.title or definition.name
    if len(text) <= MAX_DESCRIPTION:
        return text
    return f"{text[:MAX_DESCRIPTION]}\n[Cut: the first {MAX_DESCRIPTION:,} of {len(text):,} characters.]"


# -- names -------------------------------------------------------------------------------------------------------------


def unique_names(offered: Sequence[tuple[str, str]]) -> list[str]:
    """Return a name for each server and tool: the tool's own, with the server's before it where two are the same."""
    plain = [_fit(tool) for _, tool in offered]
    n_plain = Counter(plain)
    names: dict[str, None] = {}
    for (server, tool), own in zip(offered, plain, strict=True):
        name = own if n_plain[own] == 1 else _fit(f"{server}_{tool}")
        names[name if name not in names else _marked(name, f"{server}/{tool}")] = None
    return list(names)


def _fit(name: str) -> str:
    """Return a name that every provider takes."""
    fit = re.sub(r"[^a-zA-Z0-9_-]", "_", name) or "_"
    return fit if len(fit) <= _LONGEST_NAME else _marked(fit, name)


def _marked(name: str, of: str) -> str:
    """Return a name that is told from others by a digest of what it stands for."""
    digest = sha256(of.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{digest}"


# -- what the model reads of an answer ---------------------------------------------------------------------------------


def to_tool_result(answer: CallToolResult) -> ToolResult:
    """Return an answer as the result of a call. It may be long: what cuts it is the tool's `max_chars`."""
    blocks = _merged(_limited(_shown(block) for block in _contents(answer)))
    match blocks:
        case [Text(text=text)]:
            return ToolResult(text, answer.is_error)
        case _:
            return ToolResult(tuple(blocks), answer.is_error)


def _contents(answer: CallToolResult) -> Sequence[ContentBlock | Text]:
    """Return the contents, with the structured result in the place of the texts that repeat it.

    Where it only wraps a text or a list of texts in an object, as servers do that have nothing more to say, these stay.
    """
    structured: Mapping[str, object] | None = answer.structured_content
    if structured is None:
        return answer.content
    texts = [block.text for block in answer.content if block.type == "text"]
    wrapped = next(iter(structured.values())) if len(structured) == 1 else structured
    if wrapped in (texts, *texts[:1]):
        return answer.content
    values: list[object] = [_value(text) for text in texts]
    said = values[0] if len(values) == 1 else values
    if said not in (structured, wrapped):
        return [*answer.content, Text(to_json(structured).decode())]
    others = [block for block in answer.content if block.type != "text"]
    return [Text(to_json(structured).decode()), *others]


def _value(text: str) -> object:
    try:
        return from_json(text)
    except ValueError:
        return text


def _shown(block: ContentBlock | Text) -> _Block:
    match block.type:
        case "text":
            return Text(block.text)
        case "image" | "audio":
            return _media(block.data, block.mime_type)
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return Text(f"[Resource {block.name} at {block.uri}{about}]")
        case "resource":
            return _resource(block.resource)


def _resource(resource: TextResourceContents | BlobResourceContents) -> _Block:
    from mcp.types import TextResourceContents  # noqa: PLC0415 - an optional package, and 1.2 s to import

    if isinstance(resource, TextResourceContents):
        return Text(f"[Resource {resource.uri}]\n{resource.text}")
    return _media(resource.blob, resource.mime_type or "", title=str(resource.uri))


def _media(data: str, media_type: str, *, title: str | None = None) -> _Block:
    """Return a picture or document, if it is one, and what it is: a server's word for it may be wrong."""
    try:
        content = b64decode(data, validate=True)
    except (NotBase64, ValueError):
        return Text(f"[{media_type or 'Data'}, damaged: not shown]")
    kind = _kind(content)
    if kind is None or len(content) > MAX_MEDIA_BYTES:
        about = f" {title}" if title else ""
        return Text(f"[{media_type or 'Data'}{about}, {count(len(content), 'byte')}: not shown]")
    if kind == "application/pdf":
        return Document.from_bytes(content, kind, title)
    return Image.from_bytes(content, kind)


def _kind(content: bytes) -> str | None:
    """Tell the kind of picture or document by how it begins; None for all that providers do not take."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if content.startswith(b"%PDF-") else None


def _limited(blocks: Iterable[_Block]) -> Iterable[_Block]:
    n_media = 0
    for block in blocks:
        n_media += not isinstance(block, Text)
        if isinstance(block, Text) or n_media <= MAX_MEDIA:
            yield block
    if n_media > MAX_MEDIA:
        what = "picture or document" if n_media == MAX_MEDIA + 1 else "pictures or documents"
        yield Text(f"[{n_media - MAX_MEDIA:,} more {what}: not shown]")


def _merged(blocks: Iterable[_Block]) -> list[_Block]:
    """Join neighbouring texts: a server may send very many."""
    merged: list[_Block] = []
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Text):
            lines.append(block.text)
            continue
        if lines:
            merged.append(Text("\n".join(lines)))
            lines = []
        merged.append(block)
    return [*merged, Text("\n".join(lines))] if lines else merged
