"""Conversations and tools as pydantic-ai's messages and definitions: `bridge/model.py` has a table of them.

A message is translated once per lease: pydantic-ai's messages are objects, not bytes, so they cannot stand in
`Message.wire`.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    CachePoint,
    DocumentUrl,
    ImageUrl,
    InstructionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.tools import ToolDefinition
from pydantic_core import from_json

from journeyman.definition.narrowing import as_object, as_text
from journeyman.history import encodable_text
from journeyman.model import Prefix
from journeyman.models.strict import Grammars
from journeyman.models.wire import exact_id, is_object, names_of_calls, readable_block, safe_id, safe_name, says_nothing
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
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)

_KEPT_AT_MOST: Final = 20_000  # messages; when there are more, the oldest are translated again
_ID_CHARACTERS: Final = 64
_NAME_CHARACTERS: Final = 128  # as in its list of tools
_File: TypeAlias = BinaryContent | ImageUrl | DocumentUrl | AudioUrl
_Key = TypeVar("_Key")
_Kept = TypeVar("_Kept")
_Made = TypeVar("_Made")


class Encoder:
    """An encoder that translates conversations for one provider, and remembers what it has translated."""

    def __init__(self, owner: str, profile: ModelProfile) -> None:
        """`owner` stands in the blocks that only this provider can read; `profile` says what the model takes."""
        self._owner = owner
        self._taken = _Taken(profile)
        # By identity. The message itself is kept too, so that its identity is not given to another.
        self._messages: dict[tuple[int, bool], tuple[Message, ModelMessage | None]] = {}
        self._prefixes: dict[int, tuple[Prefix, ModelRequestParameters]] = {}

    def messages(self, messages: Sequence[Message], *, marks: bool) -> list[ModelMessage]:
        """Return the conversation; with `marks`, with the cache marks in it."""
        made: list[ModelMessage] = []
        for index, message in enumerate(messages):
            key = (id(message), marks)
            kept = self._messages.get(key)
            if kept is None:
                kept = _keep(self._messages, key, message, self._message(messages, index, marks=marks))
            translated, before = kept[1], made[-1] if made else None
            if message.continues and isinstance(before, ModelResponse) and isinstance(translated, ModelResponse):
                made[-1] = ModelResponse(parts=[*before.parts, *translated.parts])
            elif translated is not None:
                made.append(translated)
        return made

    def parameters(self, prefix: Prefix) -> ModelRequestParameters:
        """Return the system prompt and the tools."""
        kept = self._prefixes.get(id(prefix))
        if kept is None:
            kept = _keep(self._prefixes, id(prefix), prefix, _request_parameters(prefix))
        return kept[1]

    def _message(self, messages: Sequence[Message], index: int, *, marks: bool) -> ModelMessage | None:
        """Return one message; None if nothing of it can be sent."""
        message = messages[index]
        blocks = [block for block in (readable_block(one, self._owner) for one in message.content) if block is not None]
        if message.role == "assistant":
            parts = [] if says_nothing(blocks) else _response_parts(blocks, self._owner, self._taken)
            return ModelResponse(parts=parts) if parts else None
        request_parts = _request_parts(blocks, names_of_calls(messages, index), self._taken, marks=marks)
        return ModelRequest(parts=request_parts) if request_parts else None


@dataclass(frozen=True, slots=True)
class _Taken:
    """The forms of files and ids that a model can read. pydantic-ai's own models do not check them."""

    profile: ModelProfile

    def file(self, file: Image | Document) -> bool:
        """Return whether the model can read a file of this kind in a tool's result."""
        if isinstance(file, Image):
            return self.profile.get("supports_image_input", True)
        return self.profile.get("supports_document_input", True)

    def id(self, id: str) -> str:
        """Return an id of letters, digits, `_` and `-`, always the same one; Mistral's have a fixed length."""
        n_characters = self.profile.get("tool_call_id_length")
        return safe_id(id, longest=_ID_CHARACTERS) if n_characters is None else exact_id(id, n_characters)


def _keep(kept: dict[_Key, tuple[_Kept, _Made]], key: _Key, original: _Kept, made: _Made) -> tuple[_Kept, _Made]:
    while len(kept) >= _KEPT_AT_MOST:
        del kept[next(iter(kept))]
    entry = kept[key] = (original, made)
    return entry


def _request_parts(
    blocks: Iterable[Block], names: dict[str, str], taken: _Taken, *, marks: bool
) -> list[ModelRequestPart]:
    parts: list[ModelRequestPart] = []
    content: list[UserContent] = []
    for block in blocks:
        if isinstance(block, ToolResult):
            parts.append(_tool_return(block, names, taken))
        else:
            content += _user_content(block, marks=marks)
    if content:
        parts.append(UserPromptPart(content=content))
    return parts


def _user_content(block: Block, *, marks: bool) -> list[UserContent]:
    match block:
        case Text(text):
            mark: list[UserContent] = [CachePoint()] if marks and block.cache_mark else []
            return [encodable_text(text), *mark] if text and not text.isspace() else []
        case Document(title=str(title)) if title:
            return [f"Document {encodable_text(title)!r}:", _encode_file(block)]
        case Image() | Document() | Audio():
            return [_encode_file(block)]
        case _:
            return [f"[A {block.type!r} block is left out: it cannot stand in a user's message.]"]


def _encode_file(block: Image | Document | Audio) -> _File:
    if isinstance(block.source, Base64):
        return BinaryContent(data=b64decode(block.source.data), media_type=block.source.media_type)
    match block:
        case Image():
            return ImageUrl(url=block.source.url)
        case Document():
            return DocumentUrl(url=block.source.url)
        case Audio():
            return AudioUrl(url=block.source.url)


def _tool_return(result: ToolResult, names: dict[str, str], taken: _Taken) -> ToolReturnPart:
    files: list[_File] = []
    said = "\n".join([block.text for block in result.parts if isinstance(block, Text)])
    words = [said] if said else []
    for block in result.parts:
        if isinstance(block, Document) and block.title:
            words.append(f"Document {block.title!r}")
        if isinstance(block, Image | Document) and taken.file(block):
            files.append(_encode_file(block))
        elif isinstance(block, Image | Document):
            words.append(f"[This {block.type} is left out: the model cannot read it.]")
    text = encodable_text("\n".join(words))
    return ToolReturnPart(
        tool_name=safe_name(names.get(result.tool_use_id, "unknown"), longest=_NAME_CHARACTERS),
        # Some refuse an error, or a result of nothing but files, without any words.
        content=[text or "(see the files)", *files] if files else text or "(no output)",
        tool_call_id=taken.id(result.tool_use_id),
        outcome="failed" if result.is_error else "success",
    )


def _response_parts(blocks: Iterable[Block], owner: str, taken: _Taken) -> list[ModelResponsePart]:
    parts: list[ModelResponsePart] = []
    details: dict[str, JsonObject] = {}
    """What belongs to a call, by its id."""
    for block in blocks:
        match block:
            case Text(text):
                details_of_text = as_object((block.extra or {}).get(owner))
                parts += [_with_details(TextPart(content=encodable_text(text)), details_of_text)] if text else []
            case Thinking(text, signature):
                own = {"provider_name": owner.removeprefix("bridge:"), **_open_envelope(signature or "")}
                parts.append(_with_details(ThinkingPart(content=encodable_text(text)), own))
            case RedactedThinking(data):
                found = _open_envelope(data)
                if call := as_text(found.get("call")):
                    details[call] = found
                else:
                    parts.append(_with_details(ThinkingPart(content=""), found))
            case ToolUse():
                name, input_json = safe_name(block.name, longest=_NAME_CHARACTERS), encodable_text(block.input_json)
                part = ToolCallPart(tool_name=name, args=input_json, tool_call_id=taken.id(block.id))
                parts.append(_with_details(part, details.get(block.id, {})))
            case Opaque(json=json):
                # What `bridge/decode.py` kept as it was.
                for message in ModelMessagesTypeAdapter.validate_python([from_json(json).get("response")]):
                    parts += message.parts if isinstance(message, ModelResponse) else ()
            case Image() | Document() | Audio() | ToolResult():
                parts.append(TextPart(content=f"[A {block.type!r} block of the assistant's is left out.]"))
    return parts


_Part = TypeVar("_Part", TextPart, ThinkingPart, ToolCallPart)


def _with_details(part: _Part, details: JsonObject) -> _Part:
    """Return the part with the details that its provider wants back."""
    if not details:
        return part
    part = replace(
        part,
        id=as_text(details.get("id")) or None,
        provider_name=as_text(details.get("provider_name")) or None,
        provider_details=as_object(details.get("provider_details")) or None,
    )
    if isinstance(part, ThinkingPart):
        return replace(part, signature=as_text(details.get("signature")) or None)
    return part


def _open_envelope(envelope: str) -> JsonObject:
    """Return the details that `bridge/decode.py` wrote; a signature of any other origin as it is."""
    if is_object(envelope):
        return from_json(envelope)
    return {"signature": envelope} if envelope else {}


def _request_parameters(prefix: Prefix) -> ModelRequestParameters:
    grammars = Grammars()
    output = prefix.output
    form = None
    if output is not None:
        form = OutputObjectDefinition(
            json_schema=output.schema, name=output.name, description=output.description or None
        )
    return ModelRequestParameters(
        output_mode="text" if form is None else "native",
        output_object=form,
        function_tools=[
            ToolDefinition(
                name=spec.name,
                description=encodable_text(spec.description),
                parameters_json_schema=spec.input_schema,
                strict=spec.strict and grammars.take(spec.input_schema),
            )
            for spec in prefix.tools
        ],
        instruction_parts=[
            InstructionPart(content=encodable_text(text.text))
            for text in prefix.system
            if text.text and not text.text.isspace()
        ],
    )
