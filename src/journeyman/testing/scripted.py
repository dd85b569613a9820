"""Models without a provider: a script, or a function. For tests, demos and offline work.

Both are ordinary models: everything around them, from retries to usage, works as with a provider.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast, get_args

from journeyman.cancellation import is_awaited
from journeyman.data import lazy_dataclass
from journeyman.definition import DefinitionError, Problem, explain_arguments, raise_problems
from journeyman.errors import ProviderError, count
from journeyman.json_numbers import read_object
from journeyman.model import BlockFinished, Facts, Model, Part, Request, Response, ResponseFinished, ResponseStarted
from journeyman.models.wire import as_object, part_to_show, to_json
from journeyman.narrowing import is_sequence
from journeyman.types import Block, Price, StopReason, Text, ToolUse, Usage

Answer: TypeAlias = Response | str | Block | Sequence[Block] | ProviderError
"""What a script or function may give: a response, the text of one, its blocks, or the error of a failed request."""

Policy: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]
"""A function that gives the answer to a request; `FunctionModel` makes a model of it."""

_BLOCKS: Final = get_args(get_args(Block)[0])
_ANSWERS: Final = "Give a text, blocks such as call(…), a Response, a ProviderError, or a function that gives one."
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
        answers: Sequence[Answer | Policy] | str | Block,
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

    async def _next(self, request: Request) -> Answer:
        asked = Request(
            prefix=request.prefix,
            messages=tuple(request.messages),
            settings=request.settings,
            max_tokens=request.max_tokens,
            deltas=request.deltas,
        )
        self.requests.append(asked)
        index = len(self.requests) - 1
        if index >= len(self._answers) and not (self._repeat and self._answers):
            raise ProviderError(
                f"The script has {count(len(self._answers), 'answer')}, and this is request {index + 1}.",
                kind="bad_request",
                usage=Usage(),
                hint="Add an answer, or pass repeat=True.",
            )
        answer = self._answers[min(index, len(self._answers) - 1)]
        if callable(answer):
            answer = answer(request)
        return await answer if is_awaited(answer) else answer


def _script(given: object) -> Iterator[Answer | Policy]:
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
    yield from cast("Sequence[Answer | Policy]", every)


def _is_answer(given: object) -> bool:
    """Tell whether a script may hold it; a class is no function that answers."""
    if isinstance(given, (Response, ProviderError, str, *_BLOCKS)):
        return True
    if is_sequence(given):
        return all(isinstance(block, (str, *_BLOCKS)) for block in given)
    return callable(given) and not isinstance(given, type)


@lazy_dataclass(frozen=True)
class FunctionModel:
    """A model that a function plays: it reads the request and gives the answer."""

    function: Policy
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

    async def __aenter__(self) -> AsyncIterator[Part]:
        return self

    async def __aexit__(self, *raised: object) -> None:
        return

    def __aiter__(self) -> AsyncIterator[Part]:
        return self

    async def __anext__(self) -> Part:
        if self._parts is None:
            answer = self._model.function(self._request)
            if not isinstance(answer, Response):
                answer = _response(await answer if is_awaited(answer) else answer, self._model.name)
            self._parts = iter(_parts_of(self._model, self._request, answer))
        for part in self._parts:
            return part
        raise StopAsyncIteration


def _parts_of(model: FunctionModel, request: Request, response: Response) -> list[Part]:
    usage = response.usage if model.price is None else model.price.charged(response.usage)
    parts: list[Part] = []
    if request.deltas:
        parts.append(ResponseStarted(response.model or model.name, response.id, _of_input(usage)))
    for number, block in enumerate(response.content):
        if isinstance(block, ToolUse):
            block = _with_id(block, request)
        if isinstance(block, ToolUse) and not block.id:
            block = replace(block, id=f"call_{len(request.messages)}_{number}")
        if request.deltas and (part := part_to_show(block)) is not None:
            parts.append(part)
        parts.append(BlockFinished(block))
    parts.append(ResponseFinished(response.stop_reason, response.stop_detail, usage))
    return parts


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
