"""The stage on which a run is tested twice: in process, and over HTTP through the real adapter and a strict server.

    async def test_a_call_is_answered(stage: Stage) -> None:
        agent = Agent(name="tester", model=stage.model([call("look", id="a"), "Done."]), tools=[look])
        result = await run(agent, "Go.")
        assert stage.tool_results(1) == [ToolResult("found", tool_use_id="a")]

A script holds what `ScriptedModel` takes: texts, blocks, lists of them, `say(...)`, `ProviderError`s, functions of the
request; and `broken(...)`, an answer that stops half-way. Both halves show the same requests, as `Request`s in which
the messages are *neutral* (see `neutral`). When the test is over, a broken rule of the API, a task or connection left
over, fails it. `from tests.play.stage import stage as stage` in a `conftest.py` makes the fixture known to a folder.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Final, Literal, TypeAlias

import pytest

from journeyman.errors import ProviderError
from journeyman.model import Facts, Model, Part, Request, Response, ResponseFinished, ResponseStarted, UsageSeen
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.testing.scripted import Answer, FunctionModel, Policy, say
from journeyman.types import Block, Message, Price, Text, ToolResult
from tests.support.messages_answers import Reply
from tests.support.messages_json import Json, as_text
from tests.support.servers import MessagesApi
from tests.support.stage_wire import neutral, reply_of, request_of

MODEL_NAME: Final = "claude-sonnet-5-5"

_NOT_OURS: Final = ("aiohttp/web", "anyio/_backends")

Staged: TypeAlias = "Answer | Policy | Broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An answer that stops half-way: after some of its blocks it falls silent, is cut, or reports an overload."""

    whole: Response
    after_blocks: int
    ending: Literal["stall", "cut", "error"]


def broken(*blocks: Block | str, after_blocks: int = 1, ending: Literal["stall", "cut", "error"] = "cut") -> Broken:
    """Return an answer of these blocks that ends after the first `after_blocks` of them.

    What it has reported as used by then is the input of `say`, and one token of output.
    """
    return Broken(whole=say(*blocks), after_blocks=after_blocks, ending=ending)


@dataclass(slots=True)
class _Script:
    """The answers of one model."""

    answers: Sequence[Staged]
    repeat: bool
    price: Price | None
    n_given: int = 0

    async def next(self, request: Request) -> Answer | Broken:
        if self.n_given >= len(self.answers) and not self.repeat:
            raise LookupError(f"The script has {len(self.answers)} answers, and one more is asked for.")
        answer = self.answers[min(self.n_given, len(self.answers) - 1)]
        self.n_given += 1
        if not callable(answer):
            return answer
        given = answer(request)
        return await given if isawaitable(given) else given


@dataclass(slots=True)
class Stage:
    """Gives models to play with, and tells what they were asked."""

    over_http: bool
    url: str = ""
    requests: list[Request] = field(default_factory=list[Request])
    """What was asked, of all models, in order. The messages are neutral."""
    bodies: list[Json] = field(default_factory=list[Json])
    """The requests as they were sent; none in process."""
    api: MessagesApi | None = None
    """The server; None in process."""
    _scripts: list[_Script] = field(default_factory=list[_Script])

    def model(self, answers: Sequence[Staged], *, repeat: bool = False, price: Price | None = None) -> Model:
        """Return a model that gives one answer after the other; the last one again and again if `repeat` is set."""
        script = _Script(answers, repeat, price)
        self._scripts.append(script)
        if not self.over_http:
            return _InProcess(self, script)
        name = f"{MODEL_NAME}-stage-{len(self._scripts) - 1}"
        return AnthropicModel(name, api_key="key-of-a-test", base_url=self.url, price=price)

    @property
    def n_requests(self) -> int:
        return len(self.requests)

    def messages(self, n: int) -> list[Message]:
        """Return the conversation that request `n` (from 0) sent, neutral."""
        return list(self.requests[n].messages)

    def tool_results(self, n: int) -> list[ToolResult]:
        """Return the results in the last message of request `n` (from 0)."""
        return [block for block in self.requests[n].messages[-1].content if isinstance(block, ToolResult)]

    def texts(self, n: int) -> list[str]:
        """Return the texts in the last message of request `n` (from 0), results left out."""
        return [block.text for block in self.requests[n].messages[-1].content if isinstance(block, Text)]

    def tool_names(self, n: int = 0) -> list[str]:
        """Return the names of the tools that request `n` (from 0) offered, in order."""
        return [tool.name for tool in self.requests[n].prefix.tools]

    @property
    def n_left(self) -> int:
        """How many answers were not asked for."""
        return sum(max(0, len(script.answers) - script.n_given) for script in self._scripts)

    async def answer(self, request: Request, script: _Script) -> Answer | Broken:
        """Note a request and return what the script answers."""
        self.requests.append(replace(request, messages=neutral(request.messages)))
        return await script.next(request)

    async def reply(self, body: Json) -> Reply:
        """Answer a request that came over HTTP."""
        self.bodies.append(body)
        request = request_of(body)
        script = self._scripts[int(as_text(body["model"]).rpartition("-")[2])]
        answer = await self.answer(request, script)
        if isinstance(answer, Broken):
            return reply_of(answer.whole, turn=len(request.messages), broken=(answer.after_blocks, answer.ending))
        return reply_of(answer, turn=len(request.messages))


class _InProcess:
    """The model of a stage in process."""

    provider = "scripted"
    name = "scripted"

    def __init__(self, stage: Stage, script: _Script) -> None:
        self._stage = stage
        self._script = script
        self.facts = Facts(price=script.price)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        answer = await self._stage.answer(request, self._script)
        if isinstance(answer, Broken):
            yield _half(request, answer)
            return
        async with FunctionModel(lambda _: answer, name=self.name, price=self.facts.price).stream(request) as parts:
            yield parts


async def _half(request: Request, answer: Broken) -> AsyncIterator[Part]:
    yield ResponseStarted("scripted", "", replace(answer.whole.usage, output_tokens=1))
    begun = FunctionModel(lambda _: answer.whole.content[: answer.after_blocks])
    async with begun.stream(request) as parts:
        async for part in parts:
            if not isinstance(part, ResponseStarted | UsageSeen | ResponseFinished):
                yield part
    match answer.ending:
        case "stall":
            await asyncio.Event().wait()
        case "cut":
            raise ProviderError("The answer was cut.", kind="stream_cut")
        case "error":
            raise ProviderError("Overloaded", kind="overloaded")


only_over_http = pytest.mark.parametrize("stage", ["over http"], indirect=True)
"""Marks a test of what only the adapter does."""


@pytest.fixture(params=["in process", "over http"])
async def stage(request: pytest.FixtureRequest) -> AsyncGenerator[Stage]:
    """Give the stage, and fail the test if it leaves anything behind."""
    before = asyncio.all_tasks()
    if request.param == "in process":
        yield Stage(over_http=False)
        _nothing_is_left(before)
        return
    stage = Stage(over_http=True)
    async with MessagesApi(stage.reply) as api:
        stage.url, stage.api = api.url, api
        yield stage
        _nothing_is_left(before)
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await api.until(lambda: api.in_flight == 0)
        assert api.in_flight == 0, f"{api.in_flight} requests were left under way."


def _nothing_is_left(before: set[asyncio.Task[object]]) -> None:
    """Fail if tasks were left behind. Those of the server and of the test runner go by themselves."""
    left = [task for task in asyncio.all_tasks() - before if not any(name in _file_of(task) for name in _NOT_OURS)]
    assert not left, f"Tasks were left behind: {left}"


def _file_of(task: asyncio.Task[object]) -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    return str(getattr(code, "co_filename", "")).replace("\\", "/")
