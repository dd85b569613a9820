"""A model around a model that fails now and then, in the same way for the same seed: for tests of code that uses
models.

Faults come as adapters report them: the same parts before, the same kinds of error, blocks as decoders make them of
damaged answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

from journeyman.definition.problems import Kind, Problem, explain_arguments, raise_problems, value_problems
from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.model import BlockFinished, InputPart, Model, Part, Request, ResponseFinished, TextPart, ThinkingPart
from journeyman.models.wrappers import WrapperModel
from journeyman.types import NOTHING_USED, ToolUse, Usage

FaultKind: TypeAlias = Literal[
    "refused", "rate_limited", "overloaded", "slow", "cut", "idle", "damaged_arguments", "repeated_ids", "empty"
]
"""What can go wrong: the connection is refused, or the provider limits the rate or is overloaded; the answer begins
late, breaks off or falls silent half-way; a call's arguments are not JSON, calls repeat an id, or the answer is
empty."""

FAULTS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)

# The kind of error, its status, what it says, and what was used by then if that is certain.
_ERRORS: Final[Mapping[str, tuple[ProviderErrorKind, int | None, str, Usage | None]]] = {
    "refused": ("network", None, "The connection was refused", NOTHING_USED),
    "rate_limited": ("rate_limited", 429, "There were too many requests", NOTHING_USED),
    "overloaded": ("overloaded", 529, "The provider is overloaded", NOTHING_USED),
    "cut": ("stream_cut", None, "The answer broke off", None),
    "idle": ("stream_idle", None, "The answer fell silent", None),
}

_Spoil: TypeAlias = Callable[[Part], Part | None]
"""Returns a part as the fault leaves it, None for nothing of it, or raises the error that breaks the answer off."""

_LONGEST_BEGINNING: Final = 8  # parts that come before an answer breaks off


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that was made."""

    request: int
    """The number of the request, from 1."""
    kind: FaultKind
    """What went wrong."""


@explain_arguments
class FaultyModel(WrapperModel):
    """A model that fails in some of its requests.

    Whether request n fails, and how, depends only on the seed and on n. `made` says which faults there were. A fault
    that does not fit an answer, such as damaged arguments in an answer without a call, is not made.
    """

    def __init__(
        self,
        model: Model,
        seed: int,
        *,
        rate: float = 0.25,
        faults: Collection[FaultKind] = FAULTS,
        retry_after_s: float | None = 0.0,
        slow_s: float = 0.05,
    ) -> None:
        """`rate` is the share of requests with a fault, from 0 to 1; all of `faults` are equally likely. Errors ask for
        a wait of `retry_after_s` seconds before the next request; None: they do not ask, so that retries wait as long
        as they usually do. `slow_s` is how many seconds late a slow answer begins.

        Raises:
            DefinitionError: `rate` is not from 0 to 1, or `faults` is empty or names something that is not a fault.
        """
        raise_problems("FaultyModel", _problems_of_faults(rate, faults))
        super().__init__(model)
        self.model = model
        self.seed = seed
        self.rate = rate
        self.faults: tuple[FaultKind, ...] = tuple([fault for fault in FAULTS if fault in faults])
        self.retry_after_s = retry_after_s
        self.slow_s = slow_s
        self.made: list[InjectedFault] = []
        """The faults so far, in the order in which they were made."""
        self._n_requests = 0

    def __repr__(self) -> str:
        return f"<FaultyModel {self.model!r}, seed {self.seed}>"

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        """Ask the model, unless the request fails before; see `Model.stream`."""
        self._n_requests += 1
        number = self._n_requests
        random = Random(f"{self.seed}/{number}")
        kind: FaultKind | None = random.choice(self.faults) if random.random() < self.rate else None
        if kind in ("refused", "rate_limited", "overloaded", "slow"):
            self.made.append(InjectedFault(number, kind))
            if kind != "slow":
                raise self._failure(kind)
            await asyncio.sleep(self.slow_s)
        async with self.model.stream(request) as parts:
            if kind is None or kind == "slow":
                yield parts
            else:
                note = partial(self.made.append, InjectedFault(number, kind))
                async with aclosing(_spoil_parts(parts, self._spoiling(kind, request, random), note)) as spoiled:
                    yield spoiled

    def _spoiling(self, kind: FaultKind, request: Request, random: Random) -> _Spoil:
        match kind:
            case "damaged_arguments":
                return _damaging(random)
            case "repeated_ids":
                return _repeating(request)
            case "empty":
                return _empty_part
            case _:
                return _breaking(self._failure(kind), after=random.randint(1, _LONGEST_BEGINNING))

    def _failure(self, kind: FaultKind) -> ProviderError:
        error, status, text, usage = _ERRORS[kind]
        text = f"{text}: a fault that FaultyModel made, seed {self.seed}."
        return ProviderError(text, kind=error, status=status, retry_after_s=self.retry_after_s, usage=usage)


def _problems_of_faults(rate: object, faults: object) -> Iterator[Problem]:
    share: Kind = (
        lambda value: isinstance(value, int | float) and 0 <= value <= 1,
        "Pass a share of the requests, from 0 to 1.",
    )
    yield from value_problems("INVALID_FAULTS", "rate", rate, share)
    given = cast("Collection[object]", faults) if isinstance(faults, Collection) else ()
    if not given or any(each not in FAULTS for each in given):
        yield Problem("INVALID_FAULTS", f"faults is {faults!r}.", f"Choose from: {', '.join(FAULTS)}.")


async def _spoil_parts(parts: AsyncIterator[Part], spoil: _Spoil, note: Callable[[], None]) -> AsyncGenerator[Part]:
    """Give the parts of an answer, each as a fault leaves it. `note` is called when the fault has shown, once."""
    has_shown = False
    async for part in parts:
        spoiled: Part | None = None
        try:
            spoiled = spoil(part)
        finally:
            if spoiled is not part and not has_shown:
                has_shown = True
                note()
        if spoiled is not None:
            yield spoiled


def _breaking(error: ProviderError, *, after: int) -> _Spoil:
    left = after

    def spoil(part: Part) -> Part:
        nonlocal left
        left -= 1
        if left < 0 or isinstance(part, ResponseFinished):
            raise error
        return part

    return spoil


def _damaging(random: Random) -> _Spoil:
    def spoil(part: Part) -> Part:
        match part:
            case BlockFinished(ToolUse(malformed=None) as block):
                written = block.input_json[: random.randrange(len(block.input_json))]
                return BlockFinished(replace(block, input_json="{}", malformed=written))
            case _:
                return part

    return spoil


def _repeating(request: Request) -> _Spoil:
    """Give every call the id of the last one in the conversation, or of the first one in the answer."""
    ids = [call.id for message in request.messages for call in message.tool_uses][-1:]

    def repeat_id(id: str) -> str:
        ids[:] = ids or [id]
        return ids[0]

    def spoil(part: Part) -> Part:
        match part:
            case BlockFinished(ToolUse(id=id) as block) if repeat_id(id) != id:
                return BlockFinished(replace(block, id=repeat_id(id)))
            case InputPart(tool_use_id=id) if repeat_id(id) != id:
                return replace(part, tool_use_id=repeat_id(id))
            case _:
                return part

    return spoil


def _empty_part(part: Part) -> Part | None:
    match part:
        case TextPart() | ThinkingPart() | InputPart() | BlockFinished():
            return None
        case ResponseFinished():
            return replace(part, stop_reason="end_turn", stop_detail=None)
        case _:
            return part


if TYPE_CHECKING:
    _model: type[Model] = FaultyModel
