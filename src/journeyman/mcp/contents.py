"""Converts the results of an MCP server into blocks for a model, and values for a program.

Nothing a server sends may make a conversation that no provider takes: pictures are looked at, what cannot be shown is
named by its kind and size, and structured results come once.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias

from pydantic_core import from_json, to_json

from journeyman.content.media import PICTURES, media_type_of
from journeyman.definition.narrowing import is_json_array, is_json_object
from journeyman.errors import count
from journeyman.texts import shorten_line
from journeyman.types import Base64, Document, Image, Message, Role, Text, ToolResult

if TYPE_CHECKING:
    from mcp.types import BlobResourceContents, CallToolResult, ContentBlock, TextResourceContents
    from pydantic import JsonValue

_log = logging.getLogger("journeyman")
MAX_MEDIA: Final = 20
"""The most pictures and documents of one answer that are shown."""
MAX_MEDIA_BYTES: Final = 5_000_000
"""The largest picture or document that is shown; providers refuse larger ones."""
MAX_TEXTS: Final = 50_000
"""The most names and texts that a message of a server may be made of: each becomes an object here."""
MAX_VALUES: Final = 500_000
"""The most values of any kind that it may be made of."""
MAX_DEPTH: Final = 190
"""The deepest that its lists and objects may be nested: no parser here takes 200."""
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS: Final = bytes([each for each in range(256) if each not in _STEPS])
_READ_AT_ONCE: Final = 2**18
_MAX_COMPARED_CHARS: Final = 200_000
"""In longer answers nobody looks whether the texts repeat the structured result."""
Shown: TypeAlias = Text | Image | Document


async def message_fault(message: bytes | bytearray) -> str:
    """Return why a message of a server is not read, or nothing: it is made of more pieces than can be right, so that
    reading it would take seconds, or is nested so deeply that nobody can read it.

    Only what stands outside of texts counts. Between the parts of a long message others have their turn.
    """
    if len(message) <= MAX_TEXTS and message.count(b"[") + message.count(b"{") <= MAX_DEPTH:
        return ""
    start = n_texts = n_values = depth = 0
    is_inside = False  # of a text
    while start < len(message):
        part = message[start : start + _READ_AT_ONCE]
        if (len(part) - len(part.rstrip(b"\\"))) % 2:  # what is escaped stays with its backslash
            part += message[start + len(part) : start + len(part) + 1]
        start += len(part)
        texts = part.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b" ".join(texts[is_inside::2])
        is_inside ^= len(texts) % 2 == 0
        n_texts += len(texts) // 2
        n_values += sum([outside.count(mark) for mark in (b",", b"[", b"{")])
        if n_texts > MAX_TEXTS or n_values > MAX_VALUES:
            return "it sent a message of more pieces than can be right"
        depths = [*accumulate(map(_STEPS.__getitem__, outside.translate(None, _NO_BRACKETS)), initial=depth)]
        if max(depths) > MAX_DEPTH:
            return f"it sent a message that is nested more than {MAX_DEPTH} deep"
        depth = depths[-1]
        await asyncio.sleep(0)
    return ""


def leave_out_bad_tools(result: object) -> None:
    """Take out of a list of tools, in place, those that no client could take, so that the others can be; and say so. A
    schema that only lacks the type of its top gets it."""
    from mcp.types import Tool

    tools = result.get("tools") if is_json_object(result) else None
    if not is_json_array(tools):
        return
    good: list[JsonValue] = []
    for each in tools:
        tool = each if is_json_object(each) else {}
        schema = tool.get("inputSchema")
        if is_json_object(schema):
            schema.setdefault("type", "object")
        told = tool.get("outputSchema")
        if is_json_object(told) and told.get("type") != "object":
            del tool["outputSchema"]  # nothing is checked by it
        try:
            Tool.model_validate(each, by_name=False)
            is_object = is_json_object(schema) and schema.get("type") == "object"
            wrong = "" if is_object else "its input schema is no object's"
        except ValueError as error:
            wrong = " ".join(str(error).splitlines()[1:2])
        if wrong:
            name = shorten_line(str(tool.get("name")), 80)
            _log.warning("The tool %r of an MCP server is left out: %s.", name, shorten_line(wrong, 200))
        else:
            good.append(each)
    tools[:] = good


def to_tool_result(answer: CallToolResult) -> ToolResult:
    """Return an answer as the result of a call. It may be long: what cuts it is the tool's `max_chars`."""
    blocks = to_blocks(_contents_once(answer))
    match blocks:
        case [Text(text=text)]:
            return ToolResult(text, answer.is_error)
        case _:
            return ToolResult(tuple(blocks), answer.is_error)


def to_blocks(contents: Iterable[ContentBlock | Text]) -> list[Shown]:
    """Return contents as blocks of a message: texts that follow each other are one, and of very many pictures some."""
    return _merge_texts(_limit_media(_to_shown(block) for block in contents))


def to_message(role: Role, contents: Iterable[ContentBlock | Text]) -> Message:
    """Return what a server wrote as a message of one side. What the user seems to say in it is a stranger's."""
    blocks = to_blocks(contents)
    if role == "user":
        return Message("user", tuple([replace(each, origin="stranger") for each in blocks]))
    # A model says texts only.
    texts = [each if isinstance(each, Text) else Text("[A picture or document: not shown]") for each in blocks]
    return Message("assistant", tuple(texts))


def _contents_once(answer: CallToolResult) -> Sequence[ContentBlock | Text]:
    """Return the contents, with the structured result in the place of the texts that repeat it.

    Where it only wraps a text or a list of texts in an object, as servers do that have nothing more to say, these stay.
    """
    structured: Mapping[str, object] | None = answer.structured_content
    if structured is None:
        return answer.content
    texts = [block.text for block in answer.content if block.type == "text"]
    if sum(map(len, texts)) > _MAX_COMPARED_CHARS:
        return answer.content
    wrapped = next(iter(structured.values())) if len(structured) == 1 else structured
    if wrapped in (texts, *texts[:1]):
        return answer.content
    values: list[object] = [_json_or_text(text) for text in texts]
    said = values[0] if len(values) == 1 else values
    if said not in (structured, wrapped):
        return [*answer.content, Text(to_json(structured).decode())]
    others = [block for block in answer.content if block.type != "text"]
    return [Text(to_json(structured).decode()), *others]


def _json_or_text(text: str) -> object:
    try:
        return from_json(text)
    except ValueError:
        return text


def _to_shown(block: ContentBlock | Text) -> Shown:
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


def _resource(resource: TextResourceContents | BlobResourceContents) -> Shown:
    from mcp.types import TextResourceContents

    if isinstance(resource, TextResourceContents):
        return Text(f"[Resource {resource.uri}]\n{resource.text}")
    return _media(resource.blob, resource.mime_type or "", title=str(resource.uri))


def _media(data: str, media_type: str, *, title: str | None = None) -> Shown:
    """Return a picture or document, if it is one, and what it is: a server's word for it may be wrong."""
    about = f" {title}" if title else ""
    n_bytes = len(data) * 3 // 4 - data[-2:].count("=")
    if n_bytes > MAX_MEDIA_BYTES:  # which is not decoded to be thrown away
        return Text(f"[{media_type or 'Data'}{about}, {count(n_bytes, 'byte')}: not shown]")
    try:
        content = b64decode(data, validate=True)
    except (NotBase64, ValueError):
        return Text(f"[{media_type or 'Data'}, damaged: not shown]")
    kind = media_type_of(content)  # by how it begins
    if kind is None or kind not in _SHOWN or len(content) > MAX_MEDIA_BYTES:
        return Text(f"[{media_type or 'Data'}{about}, {count(len(content), 'byte')}: not shown]")
    if kind == "application/pdf":
        return Document(Base64.of(content, kind), title)
    return Image(Base64.of(content, kind))


_SHOWN: Final = frozenset({*PICTURES, "application/pdf"})


def _limit_media(blocks: Iterable[Shown]) -> Iterable[Shown]:
    n_media = 0
    for block in blocks:
        n_media += not isinstance(block, Text)
        if isinstance(block, Text) or n_media <= MAX_MEDIA:
            yield block
    if n_media > MAX_MEDIA:
        what = "picture or document" if n_media == MAX_MEDIA + 1 else "pictures or documents"
        yield Text(f"[{n_media - MAX_MEDIA:,} more {what}: not shown]")


def _merge_texts(blocks: Iterable[Shown]) -> list[Shown]:
    """Join neighbouring texts: a server may send very many."""
    merged: list[Shown] = []
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
