"""Conversations as Messages API bytes: each message, tool and prefix encoded once, cache marks set at send time.

A request's bytes, cache marks aside, are the beginning of the next request's: the provider's prompt cache and the
signatures of the model's reasoning depend on that. What the API would refuse is settled here, block by block:

- left out: empty texts, blank texts of the user, reasoning without a signature (it was cut off) or at the end of a
  message, and messages of the model's that say nothing: see `says_nothing`;
- files that another provider took and this one would not become a text that says so;
- what only another provider can read, and ids and names that this one would refuse: see `models/wire.py`;
- an assistant message that `continues` the one before is joined to it; what comes before a continuation, or ends the
  conversation, loses its trailing white space;
- at most four cache marks: see `models/cache_marks.py`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from journeyman.content.media import PICTURES, MediaLimit, MediaSupport
from journeyman.model import CachePolicy, Prefix, ToolSpec
from journeyman.models.cache_marks import MarkWriter, set_marks
from journeyman.models.requests import make_unsent_error
from journeyman.models.strict import Grammars
from journeyman.models.wire import (
    is_marked_inside,
    is_reasoning,
    is_taken,
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
from journeyman.tools.schema import anthropic_problems
from journeyman.types import (
    Audio,
    Base64,
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Opaque,
    RedactedThinking,
    Role,
    Source,
    Text,
    Thinking,
    ToolReference,
    ToolResult,
    ToolUse,
)

CODEC: Final = "anthropic"
"""The codec id under which messages, tools and prefixes keep their bytes, and the provider's name."""

# A message is kept with the end of the one before, so that a conversation is the plain sum of its messages.
_OPEN: Final[dict[Role, bytes]] = {
    "user": b']},{"role":"user","content":[',
    "assistant": b']},{"role":"assistant","content":[',
}
_END_OF_MESSAGE: Final = b"]}"

_MARK: Final = b',"cache_control":{"type":"ephemeral"}}'
_SPECIAL: Final = f"{CODEC}/special"  # in `Message.wire`, in place of CODEC: its bytes are not yet all there is to it
_ALWAYS_SENT: Final = frozenset((ToolUse, ToolResult))  # as they are
_LOOK: Final = b"?"  # compared by identity
_HAND_MARKS: Final = f"{CODEC}/marks"  # in `Message.wire`: how many marks the user has set; absent for none
_MARKABLE_OPAQUE: Final = re.compile(r"server_tool_use|(\w+_)?tool_result|container_upload|search_result")
_NAME_CHARACTERS: Final = 128  # the API's pattern for names of tools: ^[a-zA-Z0-9_-]{1,128}$

_REQUEST_BYTES: Final = 32_000_000  # a longer body is answered with 413
# As "Vision" and "PDF support" of the API's documentation say; of more than 20 pictures less is taken, which is not
# looked at.
_SIDE: Final = 8_000
_PAGES: Final = 600
_PAGES_OF_SHORT_WINDOW: Final = 100
_SHORT_WINDOW: Final = 200_000
_PICTURE_BYTES: Final = 5 * 1024 * 1024 * 3 // 4  # the API counts the 5 MB of a picture as Base64


def media(*, by_url: bool, context_window: int | None = None) -> MediaSupport:
    """Return which files Claude takes; `by_url`: the service fetches them by their address."""
    pages = _PAGES if context_window is None or context_window > _SHORT_WINDOW else _PAGES_OF_SHORT_WINDOW
    papers = frozenset({"application/pdf", "text/"})
    return MediaSupport(
        image=MediaLimit(PICTURES, _PICTURE_BYTES, by_url=by_url, largest_side=_SIDE),
        document=MediaLimit(papers, _REQUEST_BYTES * 3 // 4, by_url=by_url, most_pages=pages, takes_passwords=False),
        largest_request_bytes=_REQUEST_BYTES,
    )


_MEDIA: Final = media(by_url=True)


def encode(
    head: JsonObject,
    prefix: Prefix,
    messages: Sequence[Message],
    *,
    cache: CachePolicy,
    more_tools: Sequence[object] = (),
) -> bytes:
    """Return a request's body: the fields of `head`, then tools, system and messages.

    `more_tools` are tools in the provider's own form, which follow those of `prefix`.
    """
    if loadable := prefix.deferred:
        messages = [_referring(message, loadable) for message in messages]
    pieces, marked_by_hand = _pieces(messages)
    in_system = sum([_is_marked(text) for text in prefix.system])
    kept, end = set_marks(pieces, messages, marked_by_hand, n_in_system=in_system, cache=cache, writer=_MARK_WRITER)
    fixed = _encode_prefix(prefix, more_tools, kept=kept, end=end)
    sent = pieces if all(pieces) else [piece for piece in pieces if piece]
    listed = (sent[0][3:], *sent[1:], _END_OF_MESSAGE) if sent else ()
    return join_body((to_json(head)[:-1], fixed, b',"messages":[', *listed, b"]}"))


def _encode_prefix(prefix: Prefix, more_tools: Sequence[object], *, kept: int, end: bool) -> bytes:
    """Return the fields for tools and system, with the last `kept` of their marks, and with `end` one at the end."""
    key = f"{CODEC}/{kept}/{end}"
    if more_tools or key not in prefix.wire:
        system = _encode_system(prefix, kept=kept, end=end)
        tools = _encode_tools(prefix, end=end and not system)
        if more_tools:
            return _list_field(b"tools", join_tools(tools, more_tools)) + _list_field(b"system", system)
        prefix.wire[key] = _list_field(b"tools", tools) + _list_field(b"system", system)
    return prefix.wire[key]


def _list_field(name: bytes, elements: bytes) -> bytes:
    return b',"%b":[%b]' % (name, elements) if elements else b""


def _pieces(messages: Sequence[Message]) -> tuple[list[bytes], list[int]]:
    """Return the bytes of each message, and which messages have marks set by hand.

    Most messages were encoded for the request before, and have nothing special: no look is taken at those.
    """
    pieces = [message.wire.get(CODEC, _LOOK) for message in messages]
    marked: list[int] = []
    for index in [index for index, piece in enumerate(pieces) if piece is _LOOK]:
        message = messages[index]
        piece, is_marked = _piece(message)
        if message.continues and message.role == "assistant" and _trim(messages, pieces, index - 1) and piece:
            piece = b"," + piece.removeprefix(_OPEN["assistant"])
        if is_marked:
            marked.append(index)
        pieces[index] = piece
    # The API refuses a last text of the assistant's that ends with white space.
    _trim(messages, pieces, len(pieces) - 1)
    return pieces, marked


def _piece(message: Message) -> tuple[bytes, bool]:
    """Return the message's bytes, none at all if nothing of it can be sent, and whether the user has set marks in it.

    They are kept: as they are for a message with nothing special, else where `_pieces` will look at them again.
    """
    wire = message.wire
    if _SPECIAL not in wire:
        blocks = _encode_blocks(message.content, message.role)
        piece = _OPEN[message.role] + blocks if blocks else b""
        if message.role == "user" and (count := sum([_is_marked(block) for block in message.content])):
            wire[_HAND_MARKS] = b"%d" % count
        wire[_SPECIAL if message.continues or _HAND_MARKS in wire else CODEC] = piece
        return piece, _HAND_MARKS in wire
    return wire[_SPECIAL], _HAND_MARKS in wire


def _trim(messages: Sequence[Message], pieces: list[bytes], index: int) -> bool:
    """Take the trailing white space from the piece at `index` or, where it is empty, the one before that; return
    whether that is a message of the assistant."""
    while index >= 0 and not pieces[index] and messages[index].role == "assistant":
        index -= 1
    if index < 0 or messages[index].role != "assistant":
        return False
    pieces[index] = _without_trailing_space(messages[index], pieces[index])
    return pieces[index] != b""


def _without_trailing_space(message: Message, piece: bytes) -> bytes:
    content, is_shorter = _select_readable(message.content, "assistant"), False
    while content and isinstance(last := content[-1], Text) and last.text != (words := last.text.rstrip()):
        content[-1:] = [replace(last, text=words)] if words else []
        content, is_shorter = _trim_reasoning(content), True
    if not is_shorter:
        return piece
    blocks = _encode_blocks(content, "assistant")
    return (b"," if piece.startswith(b",") else _OPEN["assistant"]) + blocks if blocks else b""


def _encode_blocks(content: Sequence[Block], role: Role) -> bytes:
    return b",".join([_block(block, role) for block in _select_readable(content, role)])


def _select_readable(content: Sequence[Block], role: Role) -> list[Block]:
    """Return the blocks as this provider can read them, without those that it would refuse."""
    if all([type(block) in _ALWAYS_SENT for block in content]):
        return [*content]
    blocks = [readable_block(block, CODEC) for block in content]
    blocks = [
        Text(missing(each)) if isinstance(each, Image | Document | Audio) and not is_taken(each, _MEDIA) else each
        for each in blocks
    ]
    sent = [block for block in blocks if block is not None and _is_sent(block, role)]
    return _trim_reasoning(sent) if role == "assistant" else sent


def _trim_reasoning(content: list[Block]) -> list[Block]:
    """Return the blocks without the reasoning at their end; none if nothing is said in them."""
    while content and is_reasoning(content[-1]):
        content = content[:-1]
    return [] if says_nothing(content) else content


def _is_sent(block: Block, role: Role) -> bool:
    match block:
        case Text(text):
            # The API refuses empty texts, and blank ones of the user's.
            return text != "" and (role == "assistant" or not text.isspace())
        case Thinking():
            return bool(block.signature)  # without it the API refuses the thought
        case _:
            return True


def _block(block: Block, role: Role) -> bytes:
    match block:
        case Text():
            encoded = _encode_text(block, role)
        case ToolUse():
            encoded = _tool_use(block)
        case ToolResult():
            encoded = _tool_result(block)
        case Thinking(text, signature):
            encoded = to_json({"type": "thinking", "thinking": text, "signature": signature})
        case RedactedThinking(data):
            encoded = to_json({"type": "redacted_thinking", "data": data})
        case Image(source):
            encoded = to_json({"type": "image", "source": _source(source)})
        case Document():
            encoded = _encode_document(block)
        case Audio():  # one at an address; see `_select_readable`
            encoded = _encode_text(Text(missing(block)), role)
        case Opaque():
            encoded = block.json.strip().encode("utf-8", "replace")
    return encoded


def _encode_text(block: Text, role: Role) -> bytes:
    # Citations may come back with the assistant's texts only, and other providers' extras would be unknown fields.
    if role == "assistant" and block.extra and (citations := block.extra.get("citations")):
        return to_json({"type": "text", "text": block.text, "citations": citations})
    return b'{"type":"text","text":%b}' % to_json(block.text)


def _tool_use(block: ToolUse) -> bytes:
    # Ids of other providers may have other characters than the API takes: ^[a-zA-Z0-9_-]+$.
    id, name = safe_id(block.id).encode(), safe_name(block.name, longest=_NAME_CHARACTERS).encode()
    arguments = block.input_json.encode("utf-8", "replace")
    beside = b"," + to_json(kept)[1:-1] if (kept := kept_beside(block, CODEC)) else b""
    return b'{"type":"tool_use","id":"%b","name":"%b","input":%b%b}' % (id, name, arguments, beside)


def _tool_result(block: ToolResult) -> bytes:
    content = (
        to_json(block.content) if isinstance(block.content, str) else b"[%b]" % _encode_blocks(block.parts, "user")
    )
    if block.is_error and content in (b'""', b"[]"):
        content = b'"(no output)"'  # the API refuses an error without content
    error = b',"is_error":true' if block.is_error else b""
    id = safe_id(block.tool_use_id).encode()
    return b'{"type":"tool_result","tool_use_id":"%b","content":%b%b}' % (id, content, error)


def _source(source: Source) -> JsonObject:
    if isinstance(source, Base64):
        return {"type": "base64", "media_type": source.media_type, "data": source.data}
    return {"type": "url", "url": source.url}


def _encode_document(block: Document) -> bytes:
    source = _source(block.source)
    if isinstance(block.source, Base64) and block.source.media_type.startswith("text/"):
        text = b64decode(block.source.data).decode("utf-8", "replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
    title: JsonObject = {"title": block.title} if block.title else {}
    return to_json({"type": "document", "source": source, **title})


def _encode_tools(prefix: Prefix, *, end: bool) -> bytes:
    """Return the elements of `tools`; `end` marks the last one that is in the prompt."""
    grammars = Grammars()
    tools = [
        _encode_tool(
            spec, strict=spec.strict and CODEC not in spec.provider_schemas and grammars.take(spec.input_schema)
        )
        for spec in prefix.tools
    ]
    shown = [index for index, spec in enumerate(prefix.tools) if not spec.deferred]
    if end and shown:
        tools[shown[-1]] = tools[shown[-1]][:-1] + _MARK
    return b",".join(tools)


def _encode_tool(spec: ToolSpec, *, strict: bool) -> bytes:
    key = f"{CODEC}/strict" if strict else CODEC
    if key not in spec.wire:
        tool: JsonObject = {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
        if form := spec.provider_schemas.get(CODEC):
            tool = {**form, "name": spec.name}
        elif problems := anthropic_problems(spec):
            reasons = " ".join(map(str, problems))
            raise make_unsent_error(f"The tool {spec.name!r} cannot be sent. {reasons}")
        marks: JsonObject = {"strict": True} if strict else {}
        spec.wire[key] = to_json({**tool, **marks, "defer_loading": True} if spec.deferred else {**tool, **marks})
    return spec.wire[key]


def _encode_system(prefix: Prefix, *, kept: int, end: bool) -> bytes:
    """Return the elements of `system`, the last `kept` of the marks in it, and with `end` one on the last element."""
    blocks: list[bytes] = []
    for text in reversed([text for text in prefix.system if _is_sent(text, "user")]):
        marked = text.cache_mark and kept > 0
        kept -= marked
        block = _encode_text(text, "user")
        blocks.append(block[:-1] + _MARK if marked or (end and not blocks) else block)
    return b",".join(reversed(blocks))


def _is_marked(block: Block) -> bool:
    """Return whether the user has marked the block; a mark inside of a tool's result counts for the result."""
    match block:
        case Text():
            return block.cache_mark and _is_sent(block, "user")
        case _:
            return is_marked_inside(block)


def _is_markable(block: Block) -> bool:
    match block:
        case Opaque():
            return _MARKABLE_OPAQUE.fullmatch(block.kind) is not None
        case _:
            return True


def _mark_end(message: Message, piece: bytes) -> bytes | None:
    if piece and type(message.content[-1]) not in _ALWAYS_SENT:
        sent = _select_readable(message.content, message.role)
        piece = piece if sent and _is_markable(sent[-1]) else b""
    if not piece:
        return None
    return piece if piece.endswith(_MARK) else piece[:-1] + _MARK


def _keep_marks(message: Message, piece: bytes, kept: int) -> bytes:
    """Return a user message's bytes with the last `kept` of its marks."""
    if not kept:
        return piece
    key = f"{CODEC}/{kept}"
    if key not in message.wire:
        blocks: list[bytes] = []
        left = kept
        for block in reversed(_select_readable(message.content, message.role)):
            marked = left > 0 and _is_marked(block)
            left -= marked
            encoded = _block(block, message.role)
            blocks.append(encoded[:-1] + _MARK if marked else encoded)
        message.wire[key] = _OPEN[message.role] + b",".join(reversed(blocks))
    return message.wire[key]


_MARK_WRITER: Final = MarkWriter(lambda message, _: int(message.wire[_HAND_MARKS]), _keep_marks, _mark_end)


#
# A result that has any holds nothing else: the API shows the model the tools that are referred to, so the texts that
# would say the same are left out. It refuses a reference to a tool that the request does not defer: such a one is left
# out, too.


def _referring(message: Message, loadable: Collection[str]) -> Message:
    """Return the message, its references to `loadable` tools as blocks of the provider's own."""
    if message.role != "user" or not any(_find_tool_names(block, loadable) for block in message.content):
        return message
    return replace(message, content=tuple([_own(block, loadable) for block in message.content]))


def _find_tool_names(block: Block, loadable: Collection[str]) -> list[str]:
    if not isinstance(block, ToolResult) or isinstance(block.content, str) or block.is_error:
        return []
    return [part.name for part in block.content if isinstance(part, ToolReference) and part.name in loadable]


def _own(block: Block, loadable: Collection[str]) -> Block:
    names = _find_tool_names(block, loadable)
    if not names or not isinstance(block, ToolResult):
        return block
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": safe_id(block.tool_use_id), "content": references}
    return Opaque(CODEC, to_json(result).decode())
