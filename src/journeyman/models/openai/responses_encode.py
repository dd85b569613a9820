"""Conversations as Responses API bytes: each message, tool and prefix encoded once, the input at the end of a request.

A conversation is sent whole, as a list of items; nothing of it is kept by the service. Its bytes are the beginning of
the next request's, which is what the service's own cache depends on. What the API would refuse is settled here:

- reasoning goes back as the item that it came as, and with the id of the item that followed it: the API refuses one of
  the two without the other. All other items go without ids, so that a view may leave reasoning out;
- an error says so in its text;
- left out: empty texts, reasoning that the API cannot read again, and reasoning that nothing follows (it was cut off);
  and messages of the model's that say nothing: see `says_nothing`;
- what only another provider can read, and ids and names that this one would refuse: see `models/wire.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import orjson

from journeyman.definition.json_numbers import read_json
from journeyman.definition.narrowing import as_object
from journeyman.model import Prefix, ToolSpec
from journeyman.models.openai.chat_encode import (
    NAME_CHARACTERS,
    file_name,
    function_of,
    plain_text,
    takes_picture,
    url_of,
    with_error,
)
from journeyman.models.openai.endpoint import Endpoint
from journeyman.models.strict import is_enforceable
from journeyman.models.wire import (
    join_body,
    join_tools,
    kept_beside,
    missing,
    readable_block,
    safe_id,
    safe_name,
    says_nothing,
    to_json,
)
from journeyman.types import (
    Audio,
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Opaque,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Url,
    UserContent,
)

_ID_CHARACTERS: Final = 64
_TOOLS: Final = "responses/tools"  # in `Prefix.wire`
_SYSTEM: Final = "responses/instructions"  # in `Prefix.wire`


def encode(
    head: JsonObject,
    prefix: Prefix,
    messages: Sequence[Message],
    *,
    endpoint: Endpoint,
    more_tools: Sequence[object] = (),
) -> bytes:
    """Return a request's body: the fields of `head`, then tools, instructions and input.

    `more_tools` are tools in the API's own form, which follow those of `prefix`.
    """
    codec = codec_of(endpoint)
    pieces: list[bytes] = []
    for message in messages:
        piece = message.wire.get(codec)
        if piece is None:
            piece = message.wire[codec] = _encode_items(message, endpoint)
        pieces.append(piece)
    tools = join_tools(_encode_function_tools(prefix, strict=endpoint.strict), more_tools)
    tools = b',"tools":[%b]' % tools if tools else b""
    items = [piece for piece in pieces if piece]
    if items:
        items[0] = items[0][1:]
    return join_body((to_json(head)[:-1], tools, _instructions(prefix), b',"input":[', *items, b"]}"))


@cache
def codec_of(endpoint: Endpoint) -> str:
    """Return the codec id under which messages keep their bytes for this endpoint: what they depend on."""
    return f"responses/{endpoint.provider}/{endpoint.media}"


def _encode_function_tools(prefix: Prefix, *, strict: bool) -> bytes:
    key = f"{_TOOLS}/{strict}"
    if key not in prefix.wire:
        prefix.wire[key] = b",".join([_encode_function_tool(spec, may_be_strict=strict) for spec in prefix.tools])
    return prefix.wire[key]


def _encode_function_tool(spec: ToolSpec, *, may_be_strict: bool) -> bytes:
    key = f"{_TOOLS}/{may_be_strict}"
    if key not in spec.wire:
        # Always said: left out, the API would take it for true.
        strict = may_be_strict and spec.strict and is_enforceable(spec.input_schema)
        spec.wire[key] = to_json({"type": "function", **function_of(spec), "strict": strict})
    return spec.wire[key]


def _instructions(prefix: Prefix) -> bytes:
    if _SYSTEM not in prefix.wire:
        text = "\n\n".join([text.text for text in prefix.system if text.text])
        prefix.wire[_SYSTEM] = b',"instructions":%b' % to_json(text) if text else b""
    return prefix.wire[_SYSTEM]


def _encode_items(message: Message, endpoint: Endpoint) -> bytes:
    """Return the items of a message, each with a comma before it; nothing at all if nothing of it can be sent."""
    items = _MessageItems(message.role, endpoint)
    blocks = _select_readable(message.content, endpoint.provider)
    if message.role == "assistant" and says_nothing(blocks):
        return b""
    for block in blocks:
        items.add(block)
    return items.whole()


def _select_readable(content: Iterable[Block], provider: str) -> list[Block]:
    """Return the blocks as the API can read them, without those that it would refuse."""
    blocks = [readable_block(block, provider) for block in content]
    kept = [block for block in blocks if block is not None and _is_sent(block)]
    while kept and isinstance(kept[-1], Thinking):
        kept.pop()
    return kept


def _is_sent(block: Block) -> bool:
    match block:
        case Text(text):
            return text != ""
        case Thinking():
            return _is_readable_again(block)
        case RedactedThinking():
            return False
        case _:
            return True


def _is_readable_again(block: Thinking) -> bool:
    item, _, _ = (block.signature or "").partition("\n")
    try:
        fields = as_object(read_json(item))
    except orjson.JSONDecodeError:
        return False
    return fields.get("type") == "reasoning" and bool(fields.get("encrypted_content") or fields.get("content"))


@dataclass(slots=True)
class _MessageItems:
    """The items of one message, as far as they are made."""

    role: Role
    endpoint: Endpoint
    items: list[bytes] = field(default_factory=list[bytes])
    content: list[bytes] = field(default_factory=list[bytes])
    """What is said by the user and not in an item yet."""
    pair: str = ""
    """The kind and id of the next item, when the reasoning before it names them."""

    def add(self, block: Block) -> None:
        if self.role == "user" and isinstance(block, Text | Image | Document | Audio):
            self.content.append(_content_part(block, self.endpoint))
            return
        self._end_of_content()
        pair, self.pair = self.pair, ""
        match block:
            case Thinking():
                item, _, self.pair = (block.signature or "").partition("\n")
                self.items.append(item.encode("utf-8", "replace"))
            case Opaque():
                self.items.append(block.json.strip().encode("utf-8", "replace"))
            case ToolUse():
                kept = kept_beside(block, self.endpoint.provider)
                self.items.append(_function_call(block, _id_in_pair(pair, "function_call"), kept))
            case ToolResult():
                self.items.append(_function_call_output(block, self.endpoint))
            case Text():
                self.items.append(_assistant_text(block, _id_in_pair(pair, "message")))
            case Image() | Document() | Audio():
                self.items.append(_assistant_text(Text(missing(block)), ""))
            case RedactedThinking():
                pass  # see `_is_sent`

    def whole(self) -> bytes:
        self._end_of_content()
        return b"".join([b"," + item for item in self.items])

    def _end_of_content(self) -> None:
        if self.content:
            parts = b",".join(self.content)
            self.items.append(b'{"type":"message","role":"user","content":[%b]}' % parts)
            self.content.clear()


def _id_in_pair(pair: str, kind: str) -> str:
    paired_kind, _, id = pair.partition(" ")
    return id if paired_kind == kind else ""


def _assistant_text(block: Text, id: str) -> bytes:
    """Return a message of the model's: in full with the id that goes with it, else in short."""
    extra = block.extra or {}
    annotations, own_id = extra.get("annotations") or [], extra.get("id")
    id = id or (own_id if isinstance(own_id, str) else "")
    item: JsonObject = {"type": "message", "role": "assistant", "content": block.text}
    if id:
        part: JsonObject = {"type": "output_text", "text": block.text, "annotations": annotations}
        item |= {"id": id, "status": "completed", "content": [part]}
    if phase := extra.get("phase"):
        item["phase"] = phase
    return to_json(item)


def _function_call(block: ToolUse, id: str, kept: JsonObject) -> bytes:
    call = {
        "call_id": safe_id(block.id, longest=_ID_CHARACTERS),
        "name": safe_name(block.name, longest=NAME_CHARACTERS),
        "arguments": block.input_json,
    }
    return to_json({"type": "function_call", **({"id": id} if id else {}), **call, **kept})


def _function_call_output(block: ToolResult, endpoint: Endpoint) -> bytes:
    id = to_json(safe_id(block.tool_use_id, longest=_ID_CHARACTERS))
    content = block.content
    if isinstance(content, str):
        output = to_json(with_error(content, block))
    else:
        parts = [_content_part(part, endpoint) for part in block.parts if not isinstance(part, Text) or part.text]
        if said := with_error(block.text, block).removesuffix(block.text):
            parts.insert(0, _text_part(said))
        output = b"[%b]" % b",".join(parts) if parts else b'""'
    return b'{"type":"function_call_output","call_id":%b,"output":%b}' % (id, output)


def _content_part(block: UserContent, endpoint: Endpoint) -> bytes:
    match block:
        case Text(text):
            part = _text_part(text)
        case Image(source) if takes_picture(endpoint, source):
            part = to_json({"type": "input_image", "detail": "auto", "image_url": url_of(source)})
        case Document():
            part = _document_part(block, endpoint)
        case Image() | Audio():  # the API has no place for sounds
            part = _text_part(missing(block))
    return part


def _text_part(text: str) -> bytes:
    return b'{"type":"input_text","text":%b}' % to_json(text)


def _document_part(document: Document, endpoint: Endpoint) -> bytes:
    if (text := plain_text(document)) is not None:
        return _text_part(text)
    if not endpoint.media.documents:
        return _text_part(missing(document))
    if isinstance(document.source, Url):
        return to_json({"type": "input_file", "file_url": document.source.url})
    return to_json({"type": "input_file", "filename": file_name(document), "file_data": url_of(document.source)})
