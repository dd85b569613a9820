"""A model that plays a script part by part, with faults between any two parts, and keeps what there was to count.

What counts is written anew here, from the contract of `Model`: what was reported last, and exact only if the answer
was complete and had reported its use.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from journeyman import Usage
from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.model import (
    BlockFinished,
    Facts,
    InputPart,
    Part,
    Request,
    ResponseFinished,
    ResponseStarted,
    TextPart,
    ThinkingPart,
    UsageSeen,
)
from journeyman.types import Block, Price, StopReason, Text, Thinking, ToolUse
from tests.support.run_record import Reply

if TYPE_CHECKING:
    from journeyman.model import HasFacts, Model

HANG_S = 100_000.0
"""Longer than anything else; but not for ever, so that every run ends."""

FaultKind: TypeAlias = (
    ProviderErrorKind | Literal["raises", "leaks a CancelledError", "raises a group", "ends", "hangs"]
)
USED = Usage(requests=1, input_tokens=10, output_tokens=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong in an answer."""

    kind: FaultKind
    after: int
    """How many parts come before it."""
    retry_after_s: float | None = None
    usage: Usage | None = None
    """What the error says was used; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer."""

    content: Sequence[Block]
    stop_reason: StopReason
    stop_detail: str | None = None
    usage: Usage = USED
    tells: Literal["all", "start", "nothing"] = "all"
    """How much of its use it reports: `start` is the input only, when it begins."""
    slow_s: float = 0.0
    """Seconds before each part."""
    fault: Fault | None = None


@dataclass(slots=True, eq=False)
class PlayedModel:
    """Gives one turn after the other, and the last one again and again."""

    turns: Sequence[Turn]
    price: Price | None = None
    replies: list[Reply] = field(default_factory=list[Reply])
    requests: list[Request] = field(default_factory=list[Request])
    provider: str = "played"
    name: str = "script"

    def begin(self) -> list[Reply]:
        """Begin the script again, and return what the replies will be kept in."""
        self.replies, self.requests = [], []
        return self.replies

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        turn = self.turns[min(len(self.replies), len(self.turns) - 1)]
        nothing = self._priced(Usage(requests=1, exact=False))
        reply = Reply(name=f"{self.name}-{len(self.replies) + 1}", usage=nothing)
        self.replies.append(reply)
        self.requests.append(replace(request, messages=tuple(request.messages)))
        yield self._played(turn, reply)

    async def _played(self, turn: Turn, reply: Reply) -> AsyncIterator[Part]:
        for number, part in enumerate([*_parts(turn, reply.name), None]):
            await asyncio.sleep(turn.slow_s)
            if turn.fault is not None and turn.fault.after == number:
                await self._fail(turn.fault, reply)
                if turn.fault.kind == "ends":
                    return
            if part is not None:
                self._note(part, reply, tells=turn.tells)
                yield part

    def _note(self, part: Part, reply: Reply, *, tells: str) -> None:
        """Keep what there is to count once this part was given."""
        match part:
            case BlockFinished(block):
                reply.content.append(block)
            case ResponseStarted(usage=usage) | UsageSeen(usage):
                reply.usage = self._priced(replace(usage, exact=False))
            case ResponseFinished(stop_reason):
                reply.stop_reason = stop_reason
                reply.usage = replace(reply.usage, exact=tells == "all")
            case _:
                pass

    async def _fail(self, fault: Fault, reply: Reply) -> None:
        match fault.kind:
            case "hangs":
                await asyncio.sleep(HANG_S)
            case "ends":
                return
            case "raises":
                raise ZeroDivisionError("the model divided by zero")
            case "raises a group":
                raise ExceptionGroup("the model failed twice", [ValueError("once"), KeyError("twice")])
            case "leaks a CancelledError":
                raise asyncio.CancelledError("of a task inside the model")
            case kind:
                if fault.usage is not None:
                    reply.usage = self._priced(fault.usage)
                raise ProviderError(
                    f"The played model fails: {kind}.", kind=kind, retry_after_s=fault.retry_after_s, usage=fault.usage
                )

    @property
    def facts(self) -> Facts:
        return Facts(price=self.price)

    def _priced(self, usage: Usage) -> Usage:
        if self.price is None or usage.cost is not None or not usage.requests:
            return usage
        return replace(usage, cost=self.price.of(usage))


def _parts(turn: Turn, name: str) -> Iterator[Part]:
    knows_nothing = Usage(requests=1, exact=False)
    yield ResponseStarted(name, "", knows_nothing if turn.tells == "nothing" else replace(turn.usage, output_tokens=0))
    for block in turn.content:
        yield from _deltas(block)
        yield BlockFinished(block)
    if turn.tells == "all":
        yield UsageSeen(turn.usage)
    yield ResponseFinished(turn.stop_reason, turn.stop_detail)


def _deltas(block: Block) -> Iterator[Part]:
    match block:
        case Text(text) if text:
            yield TextPart(text)
        case Thinking(text) if text:
            yield ThinkingPart(text)
        case ToolUse():
            written = block.input_json
            for piece in (written[: len(written) // 2], written[len(written) // 2 :]):
                yield InputPart(block.id, block.name, piece)
        case _:
            return


if TYPE_CHECKING:
    _model: Model = PlayedModel([])
    _has_facts: HasFacts = PlayedModel([])
