"""The answers that pydantic-ai streams, as parts: `bridge/model.py` has a table of them.

Pieces are for display and are passed on as they come; the blocks are those of the whole, at the end, because a
provider may go on with an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, TypeAlias

from pydantic_ai.messages import (
    FinishReason,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPartDelta,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.messages import TextPart as ForeignText
from pydantic_ai.messages import ThinkingPart as ForeignThinking
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json, to_jsonable_python

from journeyman.definition.json_numbers import write_json
from journeyman.definition.narrowing import as_text
from journeyman.errors import ProviderError
from journeyman.model import (
    BlockFinished,
    InputPart,
    Part,
    ResponseFinished,
    ResponseStarted,
    Room,
    TextPart,
    ThinkingPart,
)
from journeyman.models.wire import make_damage_error, own_id, split_input, tool_use
from journeyman.types import (
    Block,
    JsonObject,
    Opaque,
    Price,
    RedactedThinking,
    StopReason,
    Text,
    Thinking,
    ToolUse,
    Usage,
)

_Piece: TypeAlias = TextPart | ThinkingPart | InputPart

_STOP_REASONS: Final[Mapping[FinishReason, StopReason]] = {
    "content_filter": "refusal",
    "length": "max_tokens",
    "stop": "end_turn",
    "tool_call": "tool_use",
}


@dataclass(slots=True, repr=False, eq=False)
class BridgeDecoder:
    """A decoder that turns the events of one answer into parts."""

    _stream: StreamedResponse
    _: KW_ONLY
    owner: str
    """It is written into the blocks that only this provider can read."""
    is_remote: bool
    """A remote one must say why it stops."""
    price: Price | None
    deltas: bool
    room: Room = field(default_factory=Room)
    """For what the answer may hold."""
    _started: bool = field(default=False, init=False)
    _calls: dict[int, ToolUse] = field(default_factory=dict[int, ToolUse], init=False)
    """The calls that have begun, by their place in the message: their ids and names only."""
    _ids: set[str] = field(default_factory=set[str], init=False)

    def feed(self, event: ModelResponseStreamEvent) -> Sequence[Part]:
        """Return the parts that an event brings."""
        started = () if self._started else (self._start(),)
        pieces: Sequence[_Piece]
        match event:
            case PartStartEvent(index=index, part=part):
                pieces = self._begin(index, part)
            case PartDeltaEvent(index=index, delta=delta):
                match delta:
                    case TextPartDelta(content_delta=text):
                        pieces = (TextPart(text),) if text else ()
                    case ThinkingPartDelta(content_delta=text):
                        pieces = (ThinkingPart(text),) if text else ()
                    case ToolCallPartDelta(args_delta=arguments):
                        pieces = self._input(self._calls.get(index), arguments)
                    case _:
                        pieces = ()
            case _:
                pieces = ()
        for piece in pieces:
            self.room.chars -= len(piece.json if isinstance(piece, InputPart) else piece.text)
        if self.room.chars < 0:
            self.room.check()
        return (*started, *pieces) if self.deltas else started

    def end(self) -> Sequence[Part]:
        """Return the blocks and the end, when the events have ended.

        Raises:
            ProviderError: the answer was not complete, or failed.
        """
        response = self._stream.get()
        stop, detail = self._stop(response)
        started = () if self._started else (self._start(),)
        blocks = [block for index, part in enumerate(response.parts) for block in self._blocks(index, part)]
        refusal = as_text((response.provider_details or {}).get("refusal"))
        if refusal:  # OpenAI's: no part of the message
            blocks.append(Text(refusal, extra={"refusal": True}))
        return (
            *started,
            *((TextPart(refusal),) if refusal and self.deltas else ()),
            *map(BlockFinished, blocks),
            ResponseFinished(stop, detail, self.usage() or Usage(requests=1)),
        )

    def unfinished_text(self) -> str:
        """Return the text that no part has told yet; see `model.read_unfinished_text`."""
        if self.deltas:
            return ""
        return "\n\n".join([part.content for part in self._stream.get().parts if isinstance(part, ForeignText)])

    def usage(self, *, exact: bool = True) -> Usage | None:
        """Return the usage that the answer has reported so far; None before it has reported any."""
        seen = self._stream.usage
        if not seen.total_tokens:
            return None
        read, written = _read_count(seen, "cache_read_tokens"), _read_count(seen, "cache_write_tokens")
        rest, written, fits = split_input(seen.input_tokens, read, written)
        usage = Usage(
            requests=1,
            input_tokens=rest,
            output_tokens=seen.output_tokens,
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=_reasoning(seen),
            exact=exact and fits and not seen.unmeasured_requests,
        )
        return usage if self.price is None else self.price.charged(usage)

    def _start(self) -> ResponseStarted:
        self._started = True
        stream = self._stream
        usage = self.usage(exact=False) or Usage(requests=1, exact=False)
        return ResponseStarted(stream.model_name, stream.provider_response_id or "", usage)

    def _begin(self, index: int, part: ModelResponsePart) -> Sequence[_Piece]:
        match part:
            case ForeignText(content=text) if text:
                return (TextPart(text),)
            case ForeignThinking(content=text) if text:
                return (ThinkingPart(text),)
            case ToolCallPart():
                return self._input(self._call(index, part), part.args)
            case _:
                return ()

    def _call(self, index: int, part: ToolCallPart) -> ToolUse:
        """Return the call at this place of the message, under an id that no other has."""
        if index not in self._calls:
            id, replaced = own_id(part.tool_call_id, self._ids)
            self._calls[index] = ToolUse(id, part.tool_name, wire_id=replaced)
        return self._calls[index]

    def _input(self, call: ToolUse | None, arguments: object) -> Sequence[InputPart]:
        if call is None or not arguments:
            return ()
        json = arguments if isinstance(arguments, str) else write_json(arguments).decode()
        return (InputPart(call.id, call.name, json),)

    def _stop(self, response: ModelResponse) -> tuple[StopReason, str | None]:
        reason, details = response.finish_reason, response.provider_details or {}
        told = details.get("finish_reason")
        # Some of pydantic-ai's models call an answer complete that has only ended.
        if response.state == "incomplete" or (self.is_remote and told is None and reason in (None, "stop")):
            raise make_damage_error("it ended before the provider said why")
        if reason == "error":
            usage = self.usage(exact=False)
            raise ProviderError(f"The answer failed: {told or reason}.", kind="overloaded", type=told, usage=usage)
        if response.state == "suspended":
            return "pause_turn", None
        is_call = any(isinstance(part, ToolCallPart) for part in response.parts)
        stop: StopReason = _STOP_REASONS[reason] if reason is not None else "end_turn"
        if stop in ("end_turn", "tool_use"):
            return "tool_use" if is_call else "end_turn", None  # Google says `stop` for a call, others `tool_call`
        return stop, str(told) if told is not None and stop != "max_tokens" else None

    def _blocks(self, index: int, part: ModelResponsePart) -> Sequence[Block]:
        match part:
            case ForeignText(content=text):
                details = _details(part)
                if part.citations:
                    details["citations"] = to_jsonable_python(part.citations)
                return (Text(text, extra={self.owner: details} if details else None),) if text else ()
            case ForeignThinking(content=text):
                envelope = _envelope(part, signature=part.signature)
                if text:
                    return (Thinking(text, envelope or None, self.owner),)
                return (RedactedThinking(envelope, self.owner),) if envelope else ()
            case ToolCallPart():
                call, given = self._call(index, part), part.args
                arguments = given if isinstance(given, str) else write_json(given or {}).decode()
                call = tool_use(call.id, call.name, arguments, wire_id=call.wire_id)
                envelope = _envelope(part, call=call.id)
                return (RedactedThinking(envelope, self.owner), call) if envelope else (call,)
            case _:
                whole = ModelMessagesTypeAdapter.dump_python([ModelResponse(parts=[part])], mode="json")[0]
                return (Opaque(self.owner, to_json({"type": part.part_kind, "response": whole}).decode()),)


def _read_count(usage: RequestUsage, name: str) -> int | None:
    """Return a count that the provider told, if only a 0: what it did not tell is no attribute of the object itself,
    where reading it gives the 0 of the class."""
    told: Mapping[str, Any] = vars(usage)
    return told.get(name)


def _reasoning(usage: RequestUsage) -> int | None:
    told, details = _read_count(usage, "output_reasoning_tokens"), usage.details
    if told is None:
        told = details.get("thinking_tokens", details.get("thoughts_tokens"))
    # Over Responses this one is 0 also where the server has said nothing.
    return details.get("reasoning_tokens") or None if told is None else told


def _details(part: ForeignText | ForeignThinking | ToolCallPart) -> JsonObject:
    """Return the details that the provider wants back with the part, and the provider's name."""
    details: JsonObject = {}
    if part.id:
        details["id"] = part.id
    if part.provider_details:
        details["provider_details"] = to_jsonable_python(part.provider_details, bytes_mode="base64")
    if details and part.provider_name:
        details["provider_name"] = part.provider_name
    return details


def _envelope(part: ForeignThinking | ToolCallPart, **more: str | None) -> str:
    """Return the details that the provider wants back, as JSON; empty if there are none."""
    details = _details(part)
    if more.get("signature"):
        details = {"provider_name": part.provider_name, **details, **more}
    elif details:
        details |= {name: value for name, value in more.items() if value}
    return write_json(details).decode() if details else ""
