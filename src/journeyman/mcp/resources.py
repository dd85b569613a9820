"""The resources and prompts that MCP servers offer besides tools.

They are there for the program, which decides what of them a model sees; `mcp(..., resources=True)` lets the model list
and read resources by itself. All of it comes from somebody else, as results of tools do.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, fields
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pydantic_core import to_json

from journeyman.definition.data import lazy_dataclass
from journeyman.errors import Rejected
from journeyman.mcp.connection import MAX_PAGES, ServerConnection
from journeyman.mcp.contents import to_blocks, to_message
from journeyman.types import JsonObject, Message, Text, ToolResult

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from mcp.types import (
        BlobResourceContents,
        InputResponses,
        PaginatedRequest,
        PaginatedResult,
        ReadResourceResult,
        Request,
        TextResourceContents,
    )

MAX_LISTED: Final = 10_000
"""The most resources, templates or prompts of one server."""
T = TypeVar("T")
PageT = TypeVar("PageT", bound="PaginatedResult")
TakenT = TypeVar("TakenT", bound="DataclassInstance")


@lazy_dataclass(frozen=True, kw_only=True)
class Resource:
    """Something on a server that can be read."""

    uri: str
    """What it is read by."""
    name: str
    """Its name."""
    title: str | None = None
    """Its name for people, if the server has one."""
    description: str | None = None
    """What it is, as the server says."""
    media_type: str | None = None
    """Its media type, if the server says it."""
    size: int | None = None
    """The size in bytes, if the server tells it."""


@lazy_dataclass(frozen=True, kw_only=True)
class ResourceTemplate:
    """A kind of resources: each is read by its URI, which the template tells how to write (RFC 6570)."""

    uri_template: str
    """How the URIs of these resources are written."""
    name: str
    """Its name."""
    title: str | None = None
    """Its name for people, if the server has one."""
    description: str | None = None
    """What these resources are, as the server says."""
    media_type: str | None = None
    """Their media type, if they all have one."""


@lazy_dataclass(frozen=True, kw_only=True)
class ResourceContent:
    """One content of a resource that was read: a resource that is a folder has one for each of its files."""

    uri: str
    """What it is read by."""
    content: str | bytes
    """A text, or the bytes of anything that is not a text."""
    media_type: str | None = None
    """Its media type, if the server says it."""


@lazy_dataclass(frozen=True, kw_only=True)
class PromptArgument:
    """An argument that a prompt takes."""

    name: str
    """The argument's name."""
    description: str | None = None
    """What it is for, as the server says."""
    is_required: bool = False
    """Whether it has to be given."""


@lazy_dataclass(frozen=True, kw_only=True)
class ServerPrompt:
    """Messages that a server has prepared, to begin a conversation with."""

    name: str
    """Its name."""
    title: str | None = None
    """Its name for people, if the server has one."""
    description: str | None = None
    """What it is for, as the server says."""
    arguments: tuple[PromptArgument, ...] = ()
    """What it takes."""


class ConnectedServer:
    """A server of `async with mcp(...) as tools`, as `tools.servers[name]`.

    Every method takes at most the block's `call_timeout_s`, and raises `Rejected` if the server gives no answer; in a
    tool of yours, you may let this error through, so that the model reads it. If a server has no such thing, its list
    is empty.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self._connection: Final = connection

    @property
    def name(self) -> str:
        """The name that you gave the server."""
        return self._connection.name

    async def resources(self) -> list[Resource]:
        """Return the server's resources, in its order. A `ResourceTemplate` stands for resources that it does not
        list."""
        from mcp.types import ListResourcesRequest, ListResourcesResult

        if not await self._has("resources"):
            return []
        found = await self._pages(ListResourcesRequest, ListResourcesResult, lambda page: page.resources)
        return [_copy_fields(Resource, each) for each in found]

    async def templates(self) -> list[ResourceTemplate]:
        """Return the server's resource templates, in its order."""
        from mcp.types import ListResourceTemplatesRequest, ListResourceTemplatesResult

        if not await self._has("resources"):
            return []
        found = await self._pages(
            ListResourceTemplatesRequest, ListResourceTemplatesResult, lambda page: page.resource_templates
        )
        return [_copy_fields(ResourceTemplate, each) for each in found]

    async def read(self, uri: str) -> list[ResourceContent]:
        """Return what a resource holds, most often one content.

        Raises:
            Rejected: there is no such resource, or no answer.
        """
        return [_resource_content(self.name, each) for each in (await self._read(uri)).contents]

    async def read_as_result(self, uri: str) -> ToolResult:
        """Return what a resource holds as the result of a tool: pictures and PDFs as they are, other files only by kind
        and size.

        Raises:
            Rejected: there is no such resource, or no answer.
        """
        from mcp.types import EmbeddedResource

        read = await self._read(uri)
        blocks = to_blocks(EmbeddedResource(type="resource", resource=each) for each in read.contents)
        match blocks:
            case []:
                return ToolResult("The resource is empty.")
            case [Text(text=text)]:
                return ToolResult(text)
            case _:
                return ToolResult(tuple(blocks))

    async def _read(self, uri: str) -> ReadResourceResult:
        from mcp.types import ReadResourceRequest, ReadResourceRequestParams, ReadResourceResult

        def request(responses: InputResponses | None, state: str | None) -> Request[Any, Any]:
            params = ReadResourceRequestParams(uri=uri, input_responses=responses, request_state=state)
            return ReadResourceRequest(params=params)

        return await self._in_time(self._connection.request(request, ReadResourceResult))

    async def prompts(self) -> list[ServerPrompt]:
        """Return the server's prompts, in its order."""
        from mcp.types import ListPromptsRequest, ListPromptsResult

        if not await self._has("prompts"):
            return []
        found = await self._pages(ListPromptsRequest, ListPromptsResult, lambda page: page.prompts)
        return [
            _copy_fields(
                ServerPrompt,
                each,
                arguments=tuple(
                    [_copy_fields(PromptArgument, one, is_required=bool(one.required)) for one in each.arguments or ()]
                ),
            )
            for each in found
        ]

    async def prompt(self, name: str, /, **arguments: str) -> list[Message]:
        """Return the messages of a prompt. Messages of one side that follow each other become one message.

        Raises:
            Rejected: there is no such prompt, an argument is missing, or there is no answer.
        """
        from mcp.types import GetPromptRequest, GetPromptRequestParams, GetPromptResult

        def request(responses: InputResponses | None, state: str | None) -> Request[Any, Any]:
            params = GetPromptRequestParams(
                name=name, arguments=arguments, input_responses=responses, request_state=state
            )
            return GetPromptRequest(params=params)

        answer = await self._in_time(self._connection.request(request, GetPromptResult))
        return [
            to_message("user" if is_user else "assistant", [each.content for each in said])
            for is_user, said in groupby(answer.messages, lambda each: each.role == "user")
        ]

    async def _has(self, what: Literal["resources", "prompts"]) -> bool:
        return getattr(await self._in_time(self._connection.capabilities()), what) is not None

    async def _pages(
        self, request: Callable[..., PaginatedRequest[Any]], result: type[PageT], items: Callable[[PageT], list[T]]
    ) -> list[T]:
        """Return the items of all pages."""
        from mcp.types import PaginatedRequestParams

        async def turn_pages() -> list[T]:
            found: list[T] = []
            params = PaginatedRequestParams()
            for _ in range(MAX_PAGES):
                asked = request(params=params)
                page = await self._connection.request(lambda responses, state, asked=asked: asked, result)
                found += items(page)
                if len(found) > MAX_LISTED:
                    break
                if page.next_cursor is None:
                    return found
                params = PaginatedRequestParams(cursor=page.next_cursor)
            raise Rejected(f"Error: the MCP server {self.name!r} lists more than {MAX_LISTED:,}, or {MAX_PAGES} pages.")

        return await self._in_time(turn_pages())

    async def _in_time(self, asking: Awaitable[T]) -> T:
        seconds = self._connection.call_timeout_s
        try:
            async with asyncio.timeout(seconds):
                return await asking
        except TimeoutError:
            raise Rejected(f"Error: the MCP server {self.name!r} did not answer within {seconds:g}s.") from None


def _copy_fields(kind: type[TakenT], received: object, **changed: object) -> TakenT:
    """Copy what a server sent: a field has the name that the protocol gives it, except for the media type."""
    names = [each.name for each in fields(kind) if each.name not in changed]
    values = {name: getattr(received, "mime_type" if name == "media_type" else name) for name in names}
    return kind(**values, **changed)


def _resource_content(server: str, read: TextResourceContents | BlobResourceContents) -> ResourceContent:
    from mcp.types import TextResourceContents

    if isinstance(read, TextResourceContents):
        return _copy_fields(ResourceContent, read, content=read.text)
    try:
        content = b64decode(read.blob, validate=True)
    except (NotBase64, ValueError):
        raise Rejected(f"Error: the MCP server {server!r}: what it sent of {read.uri} is damaged.") from None
    return _copy_fields(ResourceContent, read, content=content)


LIST_RESOURCES: Final = "list_resources"
READ_RESOURCE: Final = "read_resource"


async def resource_list(servers: Mapping[str, ConnectedServer]) -> ToolResult:
    """Return all resources and templates, one line of JSON each."""
    lines: list[str] = []
    for name, server in servers.items():
        for each in (*await server.resources(), *await server.templates()):
            facts = {key: value for key, value in asdict(each).items() if value is not None}
            lines.append(to_json({"server": name, **facts}).decode())
    return ToolResult("\n".join(lines) or "There are no resources.")


def read_schema(servers: Mapping[str, ConnectedServer]) -> JsonObject:
    """Return the schema of the arguments of `read_resource`."""
    uri: JsonObject = {"type": "string", "description": "As list_resources says, or written by a uri_template of it."}
    named: JsonObject = {"type": "string", "enum": [*servers]}
    return {
        "type": "object",
        "properties": {"server": named, "uri": uri},
        "required": ["server", "uri"],
        "additionalProperties": False,
    }
