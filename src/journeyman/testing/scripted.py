"""Models without a provider: a script, or a function. For tests, demos and offline work.

Both are ordinary models: everything around them, from retries to usage, works as with a provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast, get_args

from journeyman.cancellation import is_awaited
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.json_numbers import read_object
from journeyman.definition.narrowing import is_sequence
from journeyman.definition.problems import (
    DefinitionError,
    Problem,
    explain_arguments,
    is_amount,
    is_count,
    raise_problems,
)
from journeyman.errors import ProviderError, count
from journeyman.model import (
    BlockFinished,
    Facts,
    InputPart,
    Model,
    Part,
    Request,
    Response,
    ResponseFinished,
    ResponseStarted,
    TextPart,
    ThinkingPart,
)
from journeyman.models.wire import as_object, part_to_show, to_json
from journeyman.types import Block, Price, StopReason, Text, ToolUse, Usage

Answer: TypeAlias = Response | str | Block | Sequence[Block] | ProviderError
"""What a script or function may give: a response, the text of one, its blocks, or the error of a failed request."""


@lazy_dataclass(frozen=True)
class StreamedAnswer:
    """An answer that comes in pieces, as from a provider: texts, reasoning and the arguments of calls."""

    answer: Answer
    """The whole."""
    size: int = 4
    """How many characters each piece has."""
    pause_s: float = 0.0
    """The wait before each piece, in seconds on the clock of the event loop."""


Policy: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]
"""A function that gives the answer to a request; `FunctionModel` makes a model of it."""

Pieces: TypeAlias = AsyncIterator[str | Block | Response]
"""An answer while it is written: pieces of a text, and whole blocks. A `Response` ends it: with its blocks, its stop
reason and its usage."""

StreamingPolicy: TypeAlias = Callable[
    [Request], Answer | StreamedAnswer | Pieces | Awaitable[Answer | StreamedAnswer | Pieces]
]
"""A `Policy`, or an `async def` that yields the answer in pieces."""

_BLOCKS: Final = get_args(get_args(Block)[0])
_ANSWERS: Final = (
    "Give a text, blocks such as call(…), a Response, a StreamedAnswer, a ProviderError, or a function that gives one."
)
_USAGE = Usage(requests=1, input_tokens=10, output_tokens=5)


def call(name: str, arguments: Mapping[str, object] | None = None, /, *, id: str = "", **more: object) -> ToolUse:
    """Return the block with which a model calls the tool `name`, with `arguments` and those that are given by name.

    Without an `id`, the model that gives the block makes one. Where the tool itself has a parameter `id`, and
    `arguments` do not name it, `id` is that one: `call("task_message", id="bg-1", text="Hurry.")`.
    """
    return ToolUse(id, name, to_json({**(arguments or {}), **more}).decode())


def say(*blocks: Block | str, stop_reason: StopReason | None = None, usage: Usage = _USAGE) -> Response:
    """Return a response of these blocks; `stop_reason` defaults to what fits them, `usage` to 10 tokens in, 5 out."""
    content = tuple(Text(block) if isinstance(block, str) else block for block in blocks)
    calls = any(isinstance(block, ToolUse) for block in content)
    return Response(content=content, stop_reason=stop_reason or ("tool_use" if calls else "end_turn"), usage=usage)


@explain_arguments
class ScriptedModel:
    """A model that gives one answer after the other.

    A text or a block in place of a list is the only answer. An answer may also be a function of the request.
    `requests` keeps the requests. At the end of the script, the last answer repeats if `repeat` is set; otherwise a
    further request fails (`bad_request`).

    Raises:
        DefinitionError: the script holds what is no answer.
    """

    def __init__(
        self,
        answers: Sequence[Answer | StreamedAnswer | StreamingPolicy] | str | Block,
        *,
        name: str = "scripted",
        repeat: bool = False,
        price: Price | None = None,
    ) -> None:
        self._answers = [*_script(answers)]
        self._repeat = repeat
        self._function = FunctionModel(self._next, name=name, price=price)
        self.requests: list[Request] = []

    @property
    def provider(self) -> str:
        return self._function.provider

    @property
    def name(self) -> str:
        return self._function.name

    @property
    def facts(self) -> Facts:
        """The facts of the model: its price, if it has one."""
        return self._function.facts

    @property
    def remaining(self) -> int:
        """The number of answers that are left."""
        return max(0, len(self._answers) - len(self.requests))

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        return self._function.stream(request)

    async def _next(self, request: Request) -> Answer | StreamedAnswer | Pieces:
        self.requests.append(replace(request, messages=tuple(request.messages)))
        given = _play(self._answers, len(self.requests) - 1, request, repeat=self._repeat)
        return await given if is_awaited(given) else given


def play_by_history(
    answers: Sequence[Answer | StreamedAnswer | StreamingPolicy], *, repeat: bool = False
) -> StreamingPolicy:
    """Return a function that plays a script by the answers that the conversation has: a process that goes on with a
    run of another one goes on with the script. A `ScriptedModel` counts its requests, and would begin again.

    At the end the last answer repeats if `repeat` is set. Compaction that drops answers goes back in the script.

    Raises:
        DefinitionError: the script holds what is no answer.
    """
    script = [*_script(answers)]

    def answer(request: Request) -> Answer | StreamedAnswer | Pieces | Awaitable[Answer | StreamedAnswer | Pieces]:
        index = sum([message.role == "assistant" for message in request.messages])
        return _play(script, index, request, repeat=repeat)

    return answer


def _play(
    script: Sequence[Answer | StreamedAnswer | StreamingPolicy], index: int, request: Request, *, repeat: bool
) -> Answer | StreamedAnswer | Pieces | Awaitable[Answer | StreamedAnswer | Pieces]:
    """Return the answer of a script with this index; behind its end the last one again, if `repeat` is set."""
    if index >= len(script) and not (repeat and script):
        raise ProviderError(
            f"The script has {count(len(script), 'answer')}, and this is request {index + 1}.",
            kind="bad_request",
            usage=Usage(),
            hint="Add an answer, or pass repeat=True.",
        )
    given = script[min(index, len(script) - 1)]
    return given(request) if callable(given) else given


def _script(given: object) -> Iterator[Answer | StreamedAnswer | StreamingPolicy]:
    """Give the answers of a script.

    Raises:
        DefinitionError: it is no list, or holds what is no answer.
    """
    is_list = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
    every: list[object] = [*cast("Iterable[object]", given)] if is_list else [cast("object", given)]
    if not is_list and not _is_answer(every[0]):
        hint = f"Write ScriptedModel([…]) with its answers. {_ANSWERS}"
        raise DefinitionError("ScriptedModel", [Problem("INVALID_SCRIPT", f"The script is {every[0]!r}.", hint)])
    wrong = [
        Problem("INVALID_SCRIPT", f"Answer {n} of the script is {answer!r}.", _ANSWERS)
        for n, answer in enumerate(every, 1)
        if not _is_answer(answer)
    ]
    raise_problems("ScriptedModel", wrong)
    yield from cast("Sequence[Answer | StreamedAnswer | StreamingPolicy]", every)


def _is_answer(given: object) -> bool:
    """Tell whether a script may hold it; a class is no function that answers."""
    if isinstance(given, StreamedAnswer):
        whole: object = given.answer
        is_plain = not isinstance(whole, StreamedAnswer) and not callable(whole) and _is_answer(whole)
        return is_plain and is_count(given.size) and (given.pause_s == 0 or is_amount(given.pause_s))
    if isinstance(given, (Response, ProviderError, str, *_BLOCKS)):
        return True
    if is_sequence(given):
        return all(isinstance(block, (str, *_BLOCKS)) for block in given)
    return callable(given) and not isinstance(given, type)


@lazy_dataclass(frozen=True)
class FunctionModel:
    """A model that a function plays: it reads the request and gives the answer."""

    function: StreamingPolicy
    """The function that answers."""
    name: str = "function"
    """The model's name."""
    price: Price | None = None
    """What it costs; None: not known."""
    provider: str = "scripted"
    facts: Facts = field(init=False)
    """What is known of the model: its price, if it has one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", Facts(price=self.price))

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Part]]:
        return _Stream(self, request)


@lazy_dataclass(repr=False, eq=False)
class _Stream:
    """One answer, in parts. The function is asked for it with the first part."""

    _model: FunctionModel
    _request: Request
    _parts: Iterator[Part] | None = None
    """The parts of an answer that is there as a whole."""
    _pieces: AsyncGenerator[Part] | None = None
    """The parts of an answer that comes in pieces."""

    async def __aenter__(self) -> AsyncIterator[Part]:
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._pieces is not None:
            await self._pieces.aclose()

    def __aiter__(self) -> AsyncIterator[Part]:
        return self

    async def __anext__(self) -> Part:
        if self._parts is None and self._pieces is None:
            answer = self._model.function(self._request)
            if not isinstance(answer, Response):
                answer = await answer if is_awaited(answer) else answer
            if isinstance(answer, StreamedAnswer):
                self._pieces = _stream_in_pieces(self._model, self._request, answer)
            elif isinstance(answer, AsyncIterator):
                self._pieces = _stream_blocks(self._model, self._request, answer)
            else:
                answer = _response(answer, self._model.name)
                self._parts = iter(_parts_of(self._model, self._request, answer, deltas=self._request.deltas))
        if self._pieces is not None:
            return await anext(self._pieces)
        for part in self._parts or ():
            return part
        raise StopAsyncIteration


def _parts_of(model: FunctionModel, request: Request, response: Response, *, deltas: bool) -> list[Part]:
    usage = response.usage if model.price is None else model.price.charged(response.usage)
    parts: list[Part] = []
    if deltas:
        parts.append(ResponseStarted(response.model or model.name, response.id, _of_input(usage)))
    for number, block in enumerate(response.content):
        block = _give_id(block, request, number)
        if deltas and (part := part_to_show(block)) is not None:
            parts.append(part)
        parts.append(BlockFinished(block))
    parts.append(ResponseFinished(response.stop_reason, response.stop_detail, usage))
    return parts


async def _stream_in_pieces(model: FunctionModel, request: Request, given: StreamedAnswer) -> AsyncGenerator[Part]:
    """Give the parts of an answer, each delta in pieces."""
    for part in _parts_of(model, request, _response(given.answer, model.name), deltas=True):
        for piece in _pieces_of(part, given.size):
            if not isinstance(piece, ResponseStarted | BlockFinished | ResponseFinished):
                await asyncio.sleep(given.pause_s)
            if request.deltas or isinstance(piece, BlockFinished | ResponseFinished):
                yield piece


def _pieces_of(part: Part, size: int) -> Iterator[Part]:
    match part:
        case TextPart(text) | ThinkingPart(text):
            yield from (replace(part, text=text[at : at + size]) for at in range(0, len(text), size))
        case InputPart(_, _, text):
            yield from (replace(part, json=text[at : at + size]) for at in range(0, len(text), size))
        case _:
            yield part


async def _stream_blocks(model: FunctionModel, request: Request, pieces: Pieces) -> AsyncGenerator[Part]:
    """Give the parts of an answer that a function writes."""
    number, has_calls = 0, False
    if request.deltas:
        yield ResponseStarted(model.name, "", _of_input(_USAGE))
    async with aclosing(_read_blocks(pieces, model.name)) as written:
        async for each in written:
            if isinstance(each, Response):
                stop_reason = "tool_use" if has_calls and each.stop_reason == "end_turn" else each.stop_reason
                usage = each.usage if model.price is None else model.price.charged(each.usage)
                yield ResponseFinished(stop_reason, each.stop_detail, usage)
            elif isinstance(each, TextPart):
                if request.deltas:
                    yield each
            else:
                block, number = _give_id(each, request, number), number + 1
                has_calls = has_calls or isinstance(block, ToolUse)
                if request.deltas and not isinstance(block, Text) and (part := part_to_show(block)) is not None:
                    yield part
                yield BlockFinished(block)


async def _read_blocks(pieces: Pieces, model: str) -> AsyncGenerator[TextPart | Block | Response]:
    """Give the pieces of texts as they come, each block when it is whole, and in the end what closes the response."""
    text, ending = "", say()
    try:
        async for piece in pieces:
            if isinstance(piece, str):
                text += piece
                yield TextPart(piece)
                continue
            if text:
                yield Text(text)
                text = ""
            whole = _response(piece, model)
            for block in whole.content:
                if isinstance(block, Text):
                    yield TextPart(block.text)
                yield block
            if isinstance(piece, Response):
                ending = piece
                break
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
    if text:
        yield Text(text)
    yield ending


def _give_id(block: Block, request: Request, number: int) -> Block:
    """Return a block of an answer: a call with an id."""
    if isinstance(block, ToolUse):
        block = _with_id(block, request)
        if not block.id:
            return replace(block, id=f"call_{len(request.messages)}_{number}")
    return block


def _with_id(block: ToolUse, request: Request) -> ToolUse:
    """Return the call with its id as an argument, where the tool has such a parameter and it is not given."""
    schemas = [spec.input_schema for spec in request.prefix.tools if spec.name == block.name]
    takes_id = any("id" in as_object(schema.get("properties")) for schema in schemas)
    if not block.id or block.malformed or not takes_id:
        return block
    arguments = read_object(block.input_json)
    if "id" in arguments:
        return block
    return ToolUse("", block.name, to_json({"id": block.id, **arguments}).decode())


def _response(answer: Answer, model: str) -> Response:
    """Return the answer as a response; raise it if it is an error, or a `ProviderError` if it is no answer."""
    match answer:
        case Response():
            return answer
        case ProviderError():
            raise answer
        case str():
            return say(answer)
        case Sequence() if all(isinstance(block, (str, *_BLOCKS)) for block in answer):
            return say(*answer)
        case _ if isinstance(answer, _BLOCKS):
            return say(cast("Block", answer))
        case _:
            raise ProviderError(
                f"Model {model!r} gave {answer!r}, which is not an answer.",
                kind="bad_request",
                usage=Usage(),
                hint=_ANSWERS,
            )


def _of_input(usage: Usage) -> Usage:
    """Return the usage that a provider reports when it begins to answer."""
    return Usage(
        requests=usage.requests,
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )


if TYPE_CHECKING:
    _scripted: Model = ScriptedModel([])
    _function: Model = FunctionModel(lambda request: "")
