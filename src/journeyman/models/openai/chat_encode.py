"""Conversations as Chat Completions bytes: each message, tool and prefix encoded once.

A request's bytes are the beginning of the next request's: providers cache by prefix. One message of ours is any number
of messages on the wire, in this order: one of the role `tool` for each result, then one of the user's. What the API
has no place for is settled here:

- pictures and documents in results follow in the user's message, with a text that says whose they are;
- an error says so in its text;
- where the service wants the model to answer results before the user says more, a short answer is put there;
- what the endpoint does not take is a text that says what is missing;
- reasoning goes back only where the endpoint takes it; another provider's becomes a text: see `models/wire.py`;
- empty texts, blank texts of the model's, and messages without content, are left out.

Some services pass marks for the prompt cache (`cache_control`) on to a provider that wants them. A mark is a member of
a part of content, so it can be set into the bytes of a message, and taken out of them, without encoding the message
again. For such a model every text is a part of a list, so that a mark changes nothing else.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Final

import orjson
from pydantic import JsonValue

from journeyman.content.media import PICTURES
from journeyman.definition.json_numbers import read_json
from journeyman.model import CachePolicy, Prefix, ToolSpec
from journeyman.models.cache_marks import MarkWriter, set_marks
from journeyman.models.openai.endpoint import SOUNDS, Endpoint
from journeyman.models.strict import is_enforceable
from journeyman.models.wire import (
    exact_id,
    is_marked_inside,
    join_body,
    join_tools,
    kept_beside,
    missing,
    readable_block,
    safe_id,
    safe_name,
    to_json,
)
from journeyman.tools.schema import flatten
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
    Source,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)

CODEC: Final = "openai-chat"
"""The beginning of the codec ids under which messages, tools and prefixes keep their bytes."""

NAME_CHARACTERS: Final = 64
"""The longest name of a tool that the API takes."""

MARK: Final[JsonObject] = {"cache_control": {"type": "ephemeral"}}
"""What a marked part has beside its text."""

_MARK: Final = b',"cache_control":{"type":"ephemeral"}'  # no text can hold this: quotes are escaped there
_BEGIN_OF_TEXT: Final = b'{"type":"text","text":'
_END_OF_TEXT: Final = b'"}]}'  # how a message ends whose last part is a text
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_REPLY: Final = "I see."


def encode(
    head: JsonObject,
    prefix: Prefix,
    messages: Sequence[Message],
    *,
    endpoint: Endpoint,
    cache: CachePolicy | None = None,
    more_tools: Sequence[object] = (),
    hears: bool = False,
) -> bytes:
    """Return a request's body: the fields of `head`, then tools and messages.

    `hears`: the model takes sounds. `cache` is None for one that takes no marks. `more_tools` are tools in the
    provider's own form, which follow those of `prefix`.
    """
    codec = _codec(endpoint, marks=cache is not None, hears=hears)
    id = codec.id
    pieces: list[bytes] = []
    by_hand: list[int] = []
    for message in messages:
        piece = message.wire.get(id)
        if piece is None:
            piece = codec.encode_once(message)
            if codec.marks and _MARK in piece:
                by_hand.append(len(pieces))
        pieces.append(piece)
    system, tools = _system_message(prefix, marks=codec.marks), _encode_functions(prefix, endpoint)
    if cache is not None:
        in_system = system.count(_MARK)
        kept, end = set_marks(pieces, messages, by_hand, n_in_system=in_system, cache=cache, writer=_MARK_WRITER)
        system = _keep_marks(system, kept)
        if end:  # of the system prompt, which stands behind the tools, or of these
            tools = tools[:-1] + _MARK + tools[-1:] if tools and not system else tools
            system = _mark_last_text(system) or system
    pieces.insert(0, system)
    tools = join_tools(tools, more_tools)
    start = (to_json(head)[:-1], b',"tools":[%b]' % tools if tools else b"", b',"messages":[')
    between = [each for piece in pieces if piece for each in (b",", piece)][1:]
    return join_body((*start, *between, b"]}"))


@cache
def _codec(endpoint: Endpoint, *, marks: bool, hears: bool) -> _Codec:
    own = (endpoint.provider, endpoint.is_openai, endpoint.id_characters, endpoint.reply_after_results)
    every = (CODEC, *own, endpoint.media, endpoint.reasoning, marks, hears)
    return _Codec(endpoint, "/".join(map(str, every)), marks, hears)


@dataclass(frozen=True, slots=True)
class _Codec:
    endpoint: Endpoint
    id: str
    """All that decides on the bytes of a message."""
    marks: bool
    """Whether texts may be marked for the cache: they are then parts of a list."""
    hears: bool = False
    """Whether the model takes sounds."""

    def encode_once(self, message: Message) -> bytes:
        """Return the message's bytes, and keep them: those with marks of the user's where they are looked at again."""
        wire, marked = message.wire, f"{self.id}/marked"
        if marked not in wire:
            piece = self.message(message)
            wire[marked if self.marks and _MARK in piece else self.id] = piece
            return piece
        return wire[marked]

    def message(self, message: Message) -> bytes:
        """Return the message's bytes; none at all if nothing of it can be sent."""
        if message.role == "assistant":
            return self._assistant(message)
        results = [block for block in message.content if isinstance(block, ToolResult)]
        parts = [part for result in results for part in self._media(result)]
        said = [block for block in message.content if not isinstance(block, ToolResult)]
        alone = said[0] if len(said) == 1 and not parts else None
        wired = [self._result(result) for result in results]
        if results and (said or parts) and self.endpoint.reply_after_results:
            wired.append(_encode_message("assistant", _REPLY))
        if isinstance(alone, Text) and not self.marks:
            wired += [_encode_message("user", alone.text)] if alone.text else []
        elif parts := [*parts, *[part for block in said for part in self._user_parts(block)]]:
            wired.append(_encode_message("user", parts))
        return b",".join(wired)

    def _result(self, result: ToolResult) -> bytes:
        if isinstance(result.content, str):
            text = result.content
        else:
            text = "\n".join([self._in_result(block) for block in result.parts])
        text = with_error(text, result)
        content = [self._text(text, marked=is_marked_inside(result))] if self.marks and text else text
        return to_json({"role": "tool", "tool_call_id": self._id(result.tool_use_id), "content": content})

    def _in_result(self, block: Text | Image | Document) -> str:
        match block:
            case Text(text):
                return text
            case Image():
                return "[An image: see the user's message after the results.]"
            case Document():
                text = plain_text(block)
                return text if text is not None else "[A document: see the user's message after the results.]"

    def _media(self, result: ToolResult) -> list[JsonObject]:
        """Return the parts that a result has no place for, after a text that says whose they are."""
        blocks = () if isinstance(result.content, str) else result.parts
        files = [block for block in blocks if not isinstance(block, Text)]
        media = [file for file in files if isinstance(file, Image) or plain_text(file) is None]
        if not media:
            return []
        whose = f"From the result of the call {self._id(result.tool_use_id)}:"
        return [_text_part(whose), *[part for block in media for part in self._user_parts(block)]]

    def _user_parts(self, block: Block) -> list[JsonObject]:
        block = readable_block(block, self.endpoint.provider) or Text("")
        match block:
            case Image(source) if takes_picture(self.endpoint, source):
                part = {"type": "image_url", "image_url": {"url": url_of(source)}}
            case Document():
                part = self._document(block)
            case Audio(Base64() as source) if self.hears and (form := SOUNDS.get(source.media_type)) is not None:
                part: JsonObject = {"type": "input_audio", "input_audio": {"data": source.data, "format": form}}
            case Image() | Audio():
                part = _text_part(missing(block))
            case Opaque():
                part = _text_part(_left_out(block))
            case Text(text) if text:
                part = self._text(text, marked=block.cache_mark)
            case _:
                return []
        return [part]

    def _text(self, text: str, *, marked: bool) -> JsonObject:
        return {**_text_part(text), **MARK} if marked and self.marks else _text_part(text)

    def _document(self, document: Document) -> JsonObject:
        if (text := plain_text(document)) is not None:
            return _text_part(text)
        taken = self.endpoint.media.documents and (
            isinstance(document.source, Base64) or self.endpoint.media.document_urls
        )
        if not taken:
            return _text_part(missing(document))
        return {"type": "file", "file": {"filename": file_name(document), "file_data": url_of(document.source)}}

    def _assistant(self, message: Message) -> bytes:
        blocks = [readable_block(block, self.endpoint.provider) for block in message.content]
        words, is_refusal = _assistant_text(message.content, blocks)
        calls = [self._call(block) for block in blocks if isinstance(block, ToolUse)]
        if not words.strip() and not calls:
            return b""
        content: object = words if words.strip() else None
        if is_refusal and self.endpoint.is_openai:
            content = [{"type": "refusal", "refusal": words}]
        fields: dict[str, object] = {"role": "assistant", "content": content, **self._reasoning(blocks)}
        if calls:
            fields["tool_calls"] = calls
            if self.endpoint.reasoning.is_needed_with_calls:
                fields.setdefault(self.endpoint.reasoning.message_field, "")
        return to_json(fields)

    def _call(self, call: ToolUse) -> JsonObject:
        name = safe_name(call.name, longest=NAME_CHARACTERS)
        function: JsonObject = {"name": name, "arguments": call.input_json}
        kept = kept_beside(call, self.endpoint.provider)
        return {"id": self._id(call.id), "type": "function", "function": function, **kept}

    def _reasoning(self, blocks: Sequence[Block | None]) -> JsonObject:
        """Return the model's own reasoning, as the endpoint takes it back."""
        if not self.endpoint.reasoning.is_echoed:
            return {}
        if self.endpoint.reasoning.has_details and (details := [each for block in blocks for each in _details(block)]):
            return {"reasoning_details": details}
        text = "".join([block.text for block in blocks if isinstance(block, Thinking)])
        return {self.endpoint.reasoning.message_field: text} if text else {}

    def _id(self, id: str) -> str:
        if self.endpoint.id_characters is None:
            return safe_id(id)
        least, most = self.endpoint.id_characters
        return exact_id(id, most) if least == most else safe_id(id, longest=most)


def with_error(text: str, result: ToolResult) -> str:
    """Return the text of a result; that of an error says so, as the APIs have no other place for it."""
    if not result.is_error or text.lower().startswith("error"):
        return text
    return f"Error: {text or '(no output)'}"


def _encode_message(role: str, content: object) -> bytes:
    return to_json({"role": role, "content": content})


def _text_part(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _assistant_text(content: Sequence[Block], blocks: Sequence[Block | None]) -> tuple[str, bool]:
    """Return the assistant's text, and whether all of it is a refusal.

    Texts follow one another as they are; one that stands for another block is set apart.
    """
    words: list[str] = []
    refused: list[bool] = []
    apart = False
    for original, block in zip(content, blocks, strict=True):
        if isinstance(block, Text) and block is original:
            words.append(block.text)
            refused.append(bool(block.extra and block.extra.get("refusal")))
        elif isinstance(block, Text | Opaque):
            words.append(f"\n\n{block.text if isinstance(block, Text) else _left_out(block)}\n\n")
            apart = True
    text = "".join(words)
    return text.strip("\n") if apart else text, bool(refused) and all(refused) and not apart


def _left_out(block: Opaque) -> str:
    return f"[A {block.kind!r} block that has no place in Chat Completions is left out.]"


def _details(block: Block | None) -> list[JsonValue]:
    """Return the `reasoning_details` that a block of reasoning keeps in its signature or data."""
    match block:
        case Thinking(signature=str(kept)) | RedactedThinking(data=kept):
            try:
                details: JsonValue = read_json(kept)
            except orjson.JSONDecodeError:
                return []
            return details if isinstance(details, list) else []
        case _:
            return []


def _encode_functions(prefix: Prefix, endpoint: Endpoint) -> bytes:
    key = f"{CODEC}/tools/{endpoint.strict}"
    if key not in prefix.wire:
        prefix.wire[key] = b",".join([_encode_function(spec, strict=endpoint.strict) for spec in prefix.tools])
    return prefix.wire[key]


def _encode_function(spec: ToolSpec, *, strict: bool) -> bytes:
    strict = strict and spec.strict and is_enforceable(spec.input_schema)
    key = f"{CODEC}/strict" if strict else CODEC
    if key not in spec.wire:
        function = {**function_of(spec), "strict": True} if strict else function_of(spec)
        spec.wire[key] = to_json({"type": "function", "function": function})
    return spec.wire[key]


def function_of(spec: ToolSpec) -> JsonObject:
    """Return a tool as both APIs describe it."""
    schema, description = flatten(spec.input_schema, spec.description)
    parameters = {**schema, "properties": schema.get("properties", {})}
    name = safe_name(spec.name, longest=NAME_CHARACTERS)
    return {"name": name, "description": description, "parameters": parameters}


def _system_message(prefix: Prefix, *, marks: bool) -> bytes:
    """Return the message with the system prompt, with `marks` those of the user's; nothing if there is none."""
    key = f"{CODEC}/system/{marks}"
    if key not in prefix.wire:
        texts = [text for text in prefix.system if text.text]
        parts = [{**_text_part(text.text), **(MARK if text.cache_mark else {})} for text in texts]
        content = parts if marks else "\n\n".join([text.text for text in texts])
        prefix.wire[key] = _encode_message("system", content) if content else b""
    return prefix.wire[key]


def _keep_marks(piece: bytes, kept: int) -> bytes:
    """Return the piece with the last `kept` of its marks."""
    return piece.replace(_MARK, b"", piece.count(_MARK) - kept)


def _mark_last_text(piece: bytes) -> bytes | None:
    """Return the message with a mark at its last text; as it is where there is one; None where there is no text."""
    if piece.endswith(_END_OF_TEXT):
        return piece[:-3] + _MARK + piece[-3:]
    begin = piece.rfind(_BEGIN_OF_TEXT)
    text = _STRING.match(piece, begin + len(_BEGIN_OF_TEXT)) if begin >= 0 else None
    if text is None:
        return None
    return piece if piece.startswith(_MARK, text.end()) else piece[: text.end()] + _MARK + piece[text.end() :]


_MARK_WRITER: Final = MarkWriter(
    count_marks=lambda _, piece: piece.count(_MARK),
    keep_marks=lambda _, piece, kept: _keep_marks(piece, kept),
    mark_end=lambda message, piece: _mark_last_text(piece) if message.role == "user" else None,
)


def takes_picture(endpoint: Endpoint, source: Source) -> bool:
    """Tell whether a service takes a picture of this kind, or from elsewhere."""
    fits = source.media_type in PICTURES if isinstance(source, Base64) else endpoint.media.image_urls
    return endpoint.media.images and fits


def url_of(source: Source) -> str:
    """Return the address of what is elsewhere, or a `data:` URL that holds it."""
    return f"data:{source.media_type};base64,{source.data}" if isinstance(source, Base64) else source.url


def plain_text(document: Document) -> str | None:
    """Return the text of a document that is one, after its title; None for any other."""
    source = document.source
    if not isinstance(source, Base64) or not source.media_type.startswith("text/"):
        return None
    text = b64decode(source.data).decode("utf-8", "replace")
    return f"{document.title}:\n{text}" if document.title else text


def file_name(document: Document) -> str:
    """Return a name that says what kind of file it is."""
    name = document.title or "document"
    return name if PurePosixPath(name).suffix else f"{name}.pdf"
