"""The reading and writing of JSON for all adapters, and of messages that came from another provider.

Whatever a provider has sent, nothing here raises but `ProviderError`. And a conversation may go on with another
provider: reasoning then becomes a text in tags, encrypted reasoning is left out, and any other block of the old
provider's becomes a text that says what is missing. Ids and names that the new provider would refuse are rewritten,
each always to the same, so that a call and its result still belong together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final
from uuid import uuid4

import orjson
from pydantic_core import from_json

from journeyman.content.media import MediaSupport
from journeyman.definition.json_numbers import read_json, write_json
from journeyman.definition.narrowing import as_list, as_object, is_json_object, is_list
from journeyman.errors import ProviderError, ProviderErrorKind, UnusableAnswer
from journeyman.history import encodable_text
from journeyman.model import InputPart, Part, TextPart, ThinkingPart, ToolSpec, current_tap
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

MAX_VALUES: Final = 500_000
"""The most values of one event or document: the commas in it are counted, also those in its texts."""
_COUNTED_AT_ONCE: Final = 2**18

_SCAN: Final = json.JSONDecoder().raw_decode

_DIGEST_CHARACTERS: Final = 8

_SAFE: Final = re.compile(r"[a-zA-Z0-9_-]+")
_UNSAFE_CHARACTER: Final = re.compile(r"[^a-zA-Z0-9_-]")

_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_PIECES: Final = frozenset(
    ("arguments", "content", "delta", "partial_json", "reasoning", "reasoning_content", "refusal", "text", "thinking")
)
"""The names of texts that come in pieces."""
_COMPLETE: Final = frozenset(("args", "input"))
"""The names of what a model gives a tool as an object."""
_HALF_ESCAPES: Final = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def make_damage_error(what: str, kind: ProviderErrorKind = "stream_cut") -> ProviderError:
    return ProviderError(f"The answer cannot be read: {what}.", kind=kind)


def parse_object(data: bytes) -> JsonObject:
    """Return the JSON object; an empty one for any other JSON.

    Raises:
        ProviderError: it is damaged.
        UnusableAnswer: it has more than `MAX_VALUES`.
    """
    if is_too_fine(data):
        raise UnusableAnswer(f"it has a part of more than {MAX_VALUES:,} values", limit=MAX_VALUES)
    try:
        value: object = read_json(data)
    except orjson.JSONDecodeError as error:
        if (read := _read_with_halves(data)) is not None:
            return as_object(read)
        damage = f"{error}, in {data[:200].decode('utf-8', 'replace')!r}"
    else:
        return as_object(value)
    raise make_damage_error(damage)


def all_parsed(data: Sequence[bytes]) -> Iterator[JsonObject]:
    """Yield the JSON object in each of several texts, which are read one after the other only where one is damaged."""
    if len(data) == 1:
        return iter((parse_object(data[0]),))
    joined = b"[%b]" % b",".join(data)
    try:
        values = [] if is_too_fine(joined) else as_list(read_json(joined))
    except orjson.JSONDecodeError:
        values = []
    whole = len(values) == len(data)
    return map(as_object, values) if whole else map(parse_object, data)


def _read_with_halves(data: bytes) -> object:
    """Return a JSON value that has halves of surrogate pairs, which JSON allows and UTF-8 does not. They are replaced,
    except in texts that come in pieces, where the next one may bring the other half. None: it is no JSON."""
    if not _HALF.search(data):
        return None
    try:
        return _replace_halves(json.loads(data), is_piece=False)
    except (ValueError, RecursionError):
        return None


def _replace_halves(value: object, *, is_piece: bool | None) -> object:
    """Return a value with its halves of surrogate pairs replaced. With `is_piece` a text stays as it is, since the next
    piece may bring the other half. None: no text in it is a piece, whatever its field is called."""
    if isinstance(value, str):
        return value if is_piece else encodable_text(value)
    if is_list(value):
        return [_replace_halves(each, is_piece=is_piece) for each in value]
    if is_json_object(value):
        told = value.items()
        if is_piece is None:
            return {encodable_text(name): _replace_halves(each, is_piece=None) for name, each in told}
        return {
            encodable_text(name): _replace_halves(each, is_piece=None if name in _COMPLETE else name in _PIECES)
            for name, each in told
        }
    return value


def is_too_fine(data: bytes) -> bool:
    """Tell whether a text has more than `MAX_VALUES` values: its commas are counted, in pieces that take no time."""
    n_values = 0
    for start in range(0, len(data) if len(data) > MAX_VALUES else 0, _COUNTED_AT_ONCE):
        n_values += data.count(b",", start, start + _COUNTED_AT_ONCE)
        if n_values > MAX_VALUES:
            return True
    return False


def is_object(raw: str) -> bool:
    """Return whether `raw` is a JSON object that every reader of this package can parse."""
    try:
        return isinstance(from_json(raw, allow_inf_nan=False), dict)
    except ValueError:
        return False


def own_id(id: str, ids: set[str], *, prefix: str = "call") -> tuple[str, str | None]:
    """Return an id for a call that no other of `ids` has, and add it to them; then the provider's, if it is another."""
    own = id if id and id not in ids else f"{prefix}_{uuid4().hex[:24]}"
    ids.add(own)
    return own, None if own == id else id


def tool_use(id: str, name: str, arguments: str, *, wire_id: str | None, extra: JsonObject | None = None) -> ToolUse:
    """Return the block of a call. None are taken for `{}`, and what is no JSON object is kept as `malformed`."""
    raw = arguments if arguments.strip() else "{}"
    if not raw.isascii() or "\\u" in raw:
        raw = _HALF_ESCAPES.sub(lambda found: "?" if found[1] else found[0], encodable_text(raw))
    if is_object(raw) or is_object(raw := _without_repeats(raw)):
        return ToolUse(id, name, raw, wire_id=wire_id, extra=extra)
    return ToolUse(id, name, malformed=raw, wire_id=wire_id, extra=extra)


def _without_repeats(raw: str) -> str:
    """Return the object that arguments hold which a gateway has sent more than once, or behind an empty one; other
    arguments as they are."""
    texts, rest = list[str](), raw.strip()
    while rest.startswith("{"):
        try:
            _, end = _SCAN(rest)
        except (ValueError, RecursionError):
            break
        if not is_object(rest[:end]):
            break
        texts.append(rest[:end])
        rest = rest[end:].lstrip()
    told = [text for text in texts if read_json(text)] or texts
    is_repeat = bool(told) and told[-1].endswith(rest) and all(read_json(each) == read_json(told[-1]) for each in told)
    return told[-1] if is_repeat else raw


def repeats(raw: str, before: str) -> bool:
    """Tell whether arguments are the same object as those before."""
    return is_object(raw) and is_object(before) and read_json(raw) == read_json(before)


def split_input(total: int, read: int | None, written: int | None) -> tuple[int, int | None, bool]:
    """Return how many tokens of all input are neither read from a cache nor written to it, and how many were written.

    Where a service counts some for both, or more than there are, they are taken for read, the cheaper of the two, and
    the last value is False: the figures are lower bounds.
    """
    rest = total - (read or 0) - (written or 0)
    if rest >= 0:
        return rest, written, True
    return 0, None if written is None else max(0, total - (read or 0)), False


def kept_beside(call: ToolUse, provider: str) -> JsonObject:
    """Return the fields that `provider` has sent beside a call, and wants back with it."""
    return as_object(call.extra.get(provider)) if call.extra else {}


def part_to_show(block: Block) -> Part | None:
    """Return a block that came in one piece as a part for display; None if there is nothing to show."""
    match block:
        case Text(text) if text:
            return TextPart(text)
        case Thinking(text) if text:
            return ThinkingPart(text)
        case ToolUse():
            return InputPart(block.id, block.name, block.malformed or block.input_json)
        case _:
            return None


def to_json(value: object) -> bytes:
    """Return `value` as JSON. Lone surrogates, which no JSON text can carry, become question marks."""
    try:
        return write_json(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def is_marked_inside(block: Block) -> bool:
    """Return whether the user has set a cache mark in the parts of a tool's result."""
    if not isinstance(block, ToolResult) or isinstance(block.content, str):
        return False
    return any(isinstance(part, Text) and part.cache_mark for part in block.content)


def join_body(pieces: Sequence[bytes]) -> bytes:
    """Return a request's body, joined from pieces that are mostly those of the request before. The tap, if there is
    one, is given both."""
    body, tap = b"".join(pieces), current_tap()
    if tap is not None:
        tap.note_body(body, pieces)
    return body


def join_tools(tools: bytes, more: Sequence[object]) -> bytes:
    """Return the elements of a list of tools, with those that are given in the provider's own form at their end."""
    return b",".join([part for part in (tools, to_json(more)[1:-1]) if part]) if more else tools


TOLD_BESIDE: Final = frozenset({"executed_tools", "groundingMetadata", "logprobsResult", "urlContextMetadata"})
"""The kinds of blocks that stand beside the parts of an answer: no API takes them back, and the texts say what stands
on them."""


def readable_block(block: Block, provider: str) -> Block | None:
    """Return `block` as `provider` can read it; None if there is nothing in it for that provider.

    Reasoning that names no provider is taken for the reader's own.
    """
    match block:
        case Thinking() if block.provider not in (None, provider):
            return Text(f"<thinking>\n{block.text}\n</thinking>") if block.text.strip() else None
        case RedactedThinking() if block.provider not in (None, provider):
            return None
        case Opaque() if block.kind in TOLD_BESIDE:
            return None
        case Opaque() if block.provider != provider:
            return Text(f"[A {block.kind!r} block that only {block.provider} can read is left out.]")
        case _:
            return block


def is_taken(block: Image | Document | Audio, media: MediaSupport) -> bool:
    """Tell whether a model takes this file. Its bytes may be from a conversation with another model."""
    source = block.source
    if not isinstance(source, Base64):
        return True
    return media.lack(block.type, source.media_type, source.data, model="") is None


def missing(block: Image | Document | Audio) -> str:
    """Return the text that stands for a file that cannot be sent."""
    source = block.source
    kind = source.media_type if isinstance(source, Base64) else source.url
    noun = {"image": "An image", "document": "A document", "audio": "A sound"}[block.type]
    named = f" {block.title!r}" if isinstance(block, Document) and block.title else ""
    return f"[{noun}{named} ({kind}) that cannot be sent to this model is left out.]"


def says_nothing(blocks: Sequence[Block]) -> bool:
    """Return whether a message of the model's has nothing but reasoning and blank texts: it is not to be sent back."""
    return all([is_reasoning(block) or (type(block) is Text and not block.text.strip()) for block in blocks])


def is_reasoning(block: Block) -> bool:
    return isinstance(block, Thinking | RedactedThinking)


def names_of_calls(messages: Sequence[Message], index: int) -> dict[str, str]:
    """Return the names of the calls that a message of the user's may answer, by id: those of the turn before it."""
    names: dict[str, str] = {}
    has_turn = False
    for before in range(index - 1, -1, -1):
        message = messages[before]
        if message.role == "user" and has_turn:
            break
        has_turn = has_turn or message.role == "assistant"
        names |= {call.id: call.name for call in message.tool_uses}
    return names


def safe_id(id: str, *, longest: int | None = None) -> str:
    """Return the id if it is of letters, digits, `_` and `-`, and not too long; else another, always the same one."""
    if _SAFE.fullmatch(id) and (longest is None or len(id) <= longest):
        return id
    return f"id_{sha256(id.encode('utf-8', 'replace')).hexdigest()[:24]}"


def exact_id(id: str, length: int) -> str:
    """Return the id if it is of so many letters and digits; else another, always the same one."""
    if len(id) == length and id.isascii() and id.isalnum():
        return id
    return sha256(id.encode("utf-8", "replace")).hexdigest()[:length]


def safe_name(name: str, *, longest: int) -> str:
    """Return the name with what is not a letter, digit, `_` or `-` replaced; one that is longer than the `longest` that
    is allowed is cut, and ends with a digest, which tells it from others that begin as it does."""
    safe = name if _SAFE.fullmatch(name) else _UNSAFE_CHARACTER.sub("_", name) or "_"
    if len(safe) <= longest:
        return safe
    return f"{safe[: longest - _DIGEST_CHARACTERS - 1]}_{sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]}"


def shorten_names(tools: Iterable[ToolSpec], *, longest: int) -> dict[str, str]:
    """Return the names of those tools that must be called otherwise at a service, by their names there."""
    return {short: each.name for each in tools if (short := safe_name(each.name, longest=longest)) != each.name}
