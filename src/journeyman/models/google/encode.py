"""Conversations as bytes of `generateContent`: each message, tool and prefix encoded once for a model.

A request's bytes are the beginning of the next request's: the provider caches by prefix. The rules of the API, and what
is done to keep them:

- results stand alone in a content, all of a turn's in one, with the names of their calls; what else the user says
  follows in the next one, and so do files of results that the model takes nowhere else;
- a signature goes back in the part where it came, to the model that gave it; a call that must have one and has none,
  or that of another model, bears a text that the API takes in its place;
- the first and the last content are the user's, and none is empty: a text is put there that says so;
- what only another provider can read becomes a text, or is left out: see `models/wire.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from mimetypes import guess_type
from typing import Final

from pydantic_core import from_json

from journeyman.content.media import MediaLimit, MediaSupport
from journeyman.definition.narrowing import as_object
from journeyman.history import BEGINNING_LEFT_OUT
from journeyman.model import Prefix, ToolSpec
from journeyman.models.google.decode import PROVIDER
from journeyman.models.wire import (
    is_taken,
    join_body,
    join_tools,
    missing,
    names_of_calls,
    readable_block,
    safe_id,
    safe_name,
    says_nothing,
    to_json,
)
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

DUMMY_SIGNATURE: Final = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""`skip_thought_signature_validator`: what the API takes in place of a signature that there is none of."""

_SYSTEM: Final = f"{PROVIDER}/system"  # in `Prefix.wire`
_NAME_CHARACTERS: Final = 128  # of the pattern for names, ^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$
_NAME_START: Final = re.compile("[a-zA-Z_]")
_USER: Final = b',{"role":"user","parts":[%b]}'
_MODEL: Final = b',{"role":"model","parts":['
_END: Final = b"]}"
_TWO_IN_A_ROW: Final = "assistantassistant"
_LOOK: Final = b"?"  # compared by identity
# The first and the last content must be the user's, in every request.
_FIRST: Final = _USER % b'{"text":"%b"}' % BEGINNING_LEFT_OUT.encode()
_LAST: Final = _USER % b'{"text":"Go on."}'
_PAGES: Final = 1_000  # "Document understanding" of the API's documentation
_IN_RESULTS: Final = frozenset(("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"))


def media(*, by_url: bool) -> MediaSupport:
    """Return which files Gemini takes within a request; the late models fetch others by their address."""
    pictures = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic"})
    sounds = frozenset(f"audio/{kind}" for kind in ("wav", "mpeg", "aiff", "aac", "ogg", "flac", "mp4"))
    return MediaSupport(
        image=MediaLimit(pictures, 7_000_000, by_url=by_url),  # Vertex's limit for a file within a request
        document=MediaLimit(frozenset({"application/pdf", "text/"}), 50_000_000, by_url=by_url, most_pages=_PAGES),
        audio=MediaLimit(sounds, 50_000_000, by_url=by_url),
    )


_MEDIA: Final = media(by_url=True)


@dataclass(frozen=True, slots=True)
class GoogleCodec:
    """The encoding of messages for one model. A message's bytes that were made under an equal `id` are used again."""

    model: str
    needs_signatures: bool = True
    """Whether the API refuses calls without a signature."""
    files_in_results: bool = True
    """Whether results may have pictures and documents."""
    keeps_signatures: bool = True
    """False: not even the model's own go back."""

    owner: str = field(init=False)
    """Whose signatures go back, as the decoder names it."""
    id: str = field(init=False)
    """All that decides on the bytes of a message."""

    def __post_init__(self) -> None:
        owner = f"{PROVIDER}:{self.model}"
        kind = f"{self.needs_signatures:d}{self.files_in_results:d}{self.keeps_signatures:d}"
        object.__setattr__(self, "owner", owner)
        object.__setattr__(self, "id", f"{owner}/{kind}")


def encode(
    head: JsonObject,
    prefix: Prefix,
    messages: Sequence[Message],
    *,
    codec: GoogleCodec,
    more_tools: Sequence[object] = (),
) -> bytes:
    """Return a request's body: the fields of `head`, then system, tools and contents.

    `more_tools` are tools in the provider's own form, which follow those of `prefix`.
    """
    start = to_json(head)[:-1] + (b"," if head else b"")
    contents = _encode_contents(messages, codec)
    # A single join: late in a long run each copy of the whole costs more than all else that is done here.
    fixed = _encode_prefix(prefix, more_tools)
    return join_body((start, fixed, b'"contents":[', contents[0][1:], *contents[1:], b"]}"))


def _encode_contents(messages: Sequence[Message], codec: GoogleCodec) -> list[bytes]:
    """Return the contents, each after a comma; a message has several, one or none.

    Most messages were encoded for the request before, and stand between those of the other role: no look is taken at
    those.
    """
    id = codec.id
    pieces = [message.wire.get(id, _LOOK) for message in messages]
    for index in [index for index, piece in enumerate(pieces) if piece is _LOOK]:
        pieces[index] = messages[index].wire[id] = _piece(codec, messages, index)
    if _TWO_IN_A_ROW in "".join([message.role for message in messages]) or b"" in pieces:
        pieces = _in_one_content(pieces)
    if pieces and pieces[0].startswith(_MODEL):
        pieces.insert(0, _FIRST)
    if not pieces or pieces[-1].startswith(_MODEL):
        pieces.append(_LAST)
    return pieces


def _in_one_content(pieces: Sequence[bytes]) -> list[bytes]:
    """Leave out the pieces without contents, and put neighbours of the model's into one content."""
    joined: list[bytes] = []
    in_model = False
    for piece in pieces:
        is_models = piece.startswith(_MODEL)
        if piece and is_models and in_model:
            joined[-1] = b"%b,%b" % (joined[-1].removesuffix(_END), piece.removeprefix(_MODEL))
        elif piece:
            joined.append(piece)
            in_model = is_models
    return joined


def _piece(codec: GoogleCodec, messages: Sequence[Message], index: int) -> bytes:
    """Return the contents of a message, each after a comma."""
    message = messages[index]
    if message.role == "assistant":
        parts = _models_parts(message.content, codec)
        return b"%b%b%b" % (_MODEL, parts, _END) if parts else b""
    results = [block for block in message.content if isinstance(block, ToolResult)]
    names = names_of_calls(messages, index)
    answers = b",".join([_encode_result(result, names, codec) for result in results])
    said = [part for result in results if type(result.content) is not str for part in _files_beside(result, codec)]
    if len(results) < len(message.content):
        others = [block for block in message.content if not isinstance(block, ToolResult)]
        said += [part for block in others for part in _users_parts(block, codec)]
    # Results stand alone in their content: with other parts beside them, the API takes the content for the model's.
    return b"".join([_USER % parts for parts in (answers, b",".join(said)) if parts])


def _models_parts(content: Sequence[Block], codec: GoogleCodec) -> bytes:
    blocks = [each for block in content if (each := _own(block, codec)) is not None]
    if says_nothing(blocks):
        return b""
    parts: list[bytes] = []
    signature, may_need = "", codec.needs_signatures
    for block in blocks:
        if isinstance(block, Thinking):
            if block.text:
                parts.append(b'{"text":%b,"thought":true}' % to_json(block.text))
            goes_back = codec.keeps_signatures and block.provider in (None, codec.owner)
            # Two in a row: the earlier one goes back in an empty text, as the API itself sends one that has no part.
            if (own := block.signature if goes_back else None) and signature:
                parts.append(_sign_part(b'{"text":""}', signature))
            signature = own or signature
            continue
        # The API asks for a signature at the first call of each step of the current turn. The first call of a message
        # gets one wherever the message stands, so that its bytes stay the same from request to request.
        if isinstance(block, ToolUse) and may_need:
            signature, may_need = signature or DUMMY_SIGNATURE, False
        # Vertex can refuse empty texts; they are only needed to carry a signature.
        elif isinstance(block, Text) and not block.text and not signature:
            continue
        parts += _models_part(block, signature)
        signature = ""
    if signature:
        parts.append(_sign_part(b'{"text":""}', signature))
    return b",".join(parts)


def _own(block: Block, codec: GoogleCodec) -> Block | None:
    """Return the block as this model can read it: it reads the thoughts of another of Gemini's models, but not its
    seals."""
    match block:
        case RedactedThinking():
            return None
        case Thinking(provider=str(provider)) if provider.startswith(f"{PROVIDER}:"):
            return block
        case _:
            return readable_block(block, codec.owner)


def _models_part(block: Block, signature: str) -> list[bytes]:
    match block:
        case Text(text):
            start = as_object(block.extra.get(PROVIDER)).get("signed_from") if block.extra else None
            if signature and isinstance(start, int):  # it came with the last piece of the text
                last = _sign_part(b'{"text":%b}' % to_json(text[start:]), signature)
                return [b'{"text":%b}' % to_json(text[:start]), last]
            part = b'{"text":%b}' % to_json(text)
        case ToolUse():
            id, name = safe_id(block.id).encode(), _name(block.name).encode()
            arguments = block.input_json.encode("utf-8", "replace")
            part = b'{"functionCall":{"id":"%b","name":"%b","args":%b}}' % (id, name, arguments)
        case Opaque():
            kept = as_object(from_json(block.json))
            part = to_json({key: value for key, value in kept.items() if key != "type"})
        case _:
            part = b",".join(_users_parts(block, None))
    return [_sign_part(part, signature)] if part else []


def _sign_part(part: bytes, signature: str) -> bytes:
    return b'%b,"thoughtSignature":%b}' % (part[:-1], to_json(signature)) if signature else part


def _name(name: str) -> str:
    safe = safe_name(name, longest=_NAME_CHARACTERS)
    return safe if _NAME_START.match(safe) else f"_{safe}"[:_NAME_CHARACTERS]


def _users_parts(block: Block, codec: GoogleCodec | None) -> list[bytes]:
    block = readable_block(block, codec.owner if codec else PROVIDER) or Text("")
    match block:
        case Text(text):
            return [b'{"text":%b}' % to_json(text)] if text and not text.isspace() else []
        case Image() | Document() | Audio() if not is_taken(block, _MEDIA):
            return [b'{"text":%b}' % to_json(missing(block))]
        case Image(source):
            return [to_json(_file_part(source, "image/jpeg"))]
        case Document(source, title):
            named = [b'{"text":%b}' % to_json(f"The document {title!r}:")] if title else []
            return [*named, to_json(_file_part(source, "application/pdf"))]
        case Audio(source):
            return [to_json(_file_part(source, "audio/mpeg"))]
        case _:
            return []


def _file_part(source: Source, otherwise: str) -> JsonObject:
    if isinstance(source, Base64):
        return {"inlineData": {"mimeType": source.media_type, "data": source.data}}
    return {"fileData": {"mimeType": guess_type(source.url)[0] or otherwise, "fileUri": source.url}}


def _encode_result(result: ToolResult, names: Mapping[str, str], codec: GoogleCodec) -> bytes:
    text, files = result.content, b""
    if not isinstance(text, str):
        text = "\n".join([words for part in result.parts for words in _in_result(part, codec)])
        inside = [_file_part(part.source, "image/jpeg") for part in _files(result) if _is_inside(part, codec)]
        files = b',"parts":%b' % to_json(inside) if inside else b""
    # The id must stand on both sides, at the call and at its result. `response` must be an object.
    id, name = safe_id(result.tool_use_id).encode(), _name(names.get(result.tool_use_id, "")).encode()
    response = b'"error":%b' % to_json(text) if result.is_error else b'"output":%b' % to_json(text)
    return b'{"functionResponse":{"id":"%b","name":"%b","response":{%b}%b}}' % (id, name, response, files)


def _files(result: ToolResult) -> list[Image | Document]:
    return [part for part in result.parts if not isinstance(part, Text)]


def _is_inside(file: Image | Document, codec: GoogleCodec) -> bool:
    """Tell whether a file may be within a result."""
    source = file.source
    return codec.files_in_results and (not isinstance(source, Base64) or source.media_type in _IN_RESULTS)


def _in_result(part: Text | Image | Document, codec: GoogleCodec) -> list[str]:
    if isinstance(part, Text):
        return [part.text]
    if _is_inside(part, codec):
        return []
    return [f"[{'An image' if isinstance(part, Image) else 'A document'}: see the user's message after the results.]"]


def _files_beside(result: ToolResult, codec: GoogleCodec) -> list[bytes]:
    """Return the parts for files that this result has no place for, after a text that says whose they are."""
    files = [file for file in _files(result) if not _is_inside(file, codec)]
    if not files:
        return []
    whose = b'{"text":%b}' % to_json(f"From the result of the call {safe_id(result.tool_use_id)}:")
    return [whose, *[part for file in files for part in _users_parts(file, codec)]]


def _encode_prefix(prefix: Prefix, more_tools: Sequence[object]) -> bytes:
    """Return the fields for system and tools, each with a comma after it."""
    if PROVIDER not in prefix.wire:
        parts = b",".join([b'{"text":%b}' % to_json(text.text) for text in prefix.system if text.text.strip()])
        prefix.wire[_SYSTEM] = b'"systemInstruction":{"role":"user","parts":[%b]},' % parts if parts else b""
        functions = b",".join(
            [_encode_declaration(spec) for spec in prefix.tools if PROVIDER not in spec.provider_schemas]
        )
        hosted = [
            to_json(spec.provider_schemas[PROVIDER]) for spec in prefix.tools if PROVIDER in spec.provider_schemas
        ]
        declared = [b'{"functionDeclarations":[%b]}' % functions] if functions else []
        prefix.wire[PROVIDER] = b",".join([*declared, *hosted])
    tools = join_tools(prefix.wire[PROVIDER], more_tools)
    return prefix.wire[_SYSTEM] + (b'"tools":[%b],' % tools if tools else b"")


def _encode_declaration(spec: ToolSpec) -> bytes:
    if PROVIDER not in spec.wire:
        # Not `parameters`: that takes a subset only, without $ref, const and additionalProperties.
        schema = {key: value for key, value in spec.input_schema.items() if key != "$schema"}
        tool = {"name": _name(spec.name), "description": spec.description, "parametersJsonSchema": schema}
        spec.wire[PROVIDER] = to_json(tool)
    return spec.wire[PROVIDER]
