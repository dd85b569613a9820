"""Who plays in the tests of compaction: a model with a small window that counts as the strict server does, a tool."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from journeyman import Agent, Limits, tool
from journeyman.errors import ProviderError
from journeyman.model import Facts, Model, Part, Request
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.testing.scripted import Answer, FunctionModel, call, say
from journeyman.types import Block, Message, Text, Thinking, ToolResult, ToolUse, Usage
from journeyman.window import AnyStrategy, Situation

WIRE = AnthropicModel("claude-test", api_key="key-of-a-test")
MARK = b',"cache_control":{"type":"ephemeral"}}'


@tool
async def look(n: int = 0, size: int = 100) -> str:
    return f"{n:05} {'x' * size}"


def looker(model: Model, *compaction: AnyStrategy, n: int = 100, **fields: Any) -> Agent:
    """Return an agent that looks, in at most `n` iterations."""
    fields = {"compaction": compaction, "limits": Limits(iterations=n), **fields}
    return Agent(name="looker", model=model, tools=[look], **fields)


def body_of(request: Request) -> bytes:
    """Return the request as the Messages API gets it."""
    return WIRE.body(request)


def tokens_of(body: bytes) -> int:
    return len(body) // 4


@dataclass(slots=True)
class SmallWindow:
    """A model that counts its tokens, and refuses what does not fit its window."""

    function: Callable[[Request], Answer]
    context_window: int | None = 8_000
    max_output_tokens: int = 1_000
    window: int = 8_000
    """What really fits."""
    reports: bool = True
    """Whether it tells how long the requests are."""
    bodies: list[bytes] = field(default_factory=list[bytes])
    requests: list[list[Message]] = field(default_factory=list[list[Message]])
    refused: int = 0
    provider: str = "scripted"
    name: str = "small"

    @property
    def tokens(self) -> list[int]:
        """The length of each request."""
        return list(map(tokens_of, self.bodies))

    @property
    def facts(self) -> Facts:
        return Facts(max_output_tokens=self.max_output_tokens, context_window=self.context_window)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        body = body_of(request)
        self.bodies.append(body)
        self.requests.append(list(request.messages))
        if tokens_of(body) > self.window:
            self.refused += 1
            raise ProviderError("prompt is too long", kind="context_overflow", usage=Usage())
        answer = self.function(request)
        if isinstance(answer, ProviderError):
            raise answer
        blocks = [answer] if isinstance(answer, str | Text | ToolUse) else answer
        assert isinstance(blocks, Sequence)
        n_input = tokens_of(body) if self.reports else 0
        whole = say(*blocks, usage=Usage(requests=1, input_tokens=n_input, output_tokens=20))
        async with FunctionModel(lambda _: whole).stream(request) as parts:
            yield parts


def calls(n: int, *, size: int = 100) -> Callable[[Request], Answer]:
    """Return a function that lets a model call `look` so many times, then answer."""
    made: list[int] = []

    def answer(request: Request) -> Answer:
        made.append(1)
        return call("look", n=len(made), size=size, id=f"c{len(made)}") if len(made) <= n else "Done."

    return answer


def exchange(n: int, *, size: int = 100, thinking: bool = False, **arguments: object) -> list[Message]:
    id = f"c{n}"
    thought: tuple[Block, ...] = (Thinking(f"Thought {n}.", f"signature{n}"),) if thinking else ()
    use = call("look", {"n": n, **arguments}, id=id)
    return [
        Message("assistant", (*thought, use)),
        Message("user", (ToolResult(f"{n:05} {'x' * size}", tool_use_id=id),)),
    ]


def asked(text: str = "Look at everything.") -> Message:
    return Message("user", (Text(text),))


def said(text: str = "Done.") -> Message:
    return Message("assistant", (Text(text),))


def chain(n: int, *, size: int = 100, thinking: bool = False) -> list[Message]:
    """Return a prompt, and so many calls with their results."""
    numbers = range(1, n + 1)
    return [asked(), *(each for number in numbers for each in exchange(number, size=size, thinking=thinking))]


def texts_of(messages: Sequence[Message]) -> list[str]:
    return [block.text for message in messages for block in message.content if isinstance(block, ToolResult)]


def situation(
    answers: Sequence[Answer],
    *,
    threshold: int = 4_000,
    memory: dict[str, object] | None = None,
    history: Sequence[Message] = (),
) -> tuple[Situation, list[Request]]:
    """Return a situation whose model gives these answers, and the list of what it is asked."""
    requests: list[Request] = []
    script = iter(answers)

    async def ask(model: Model, request: Request) -> object:
        requests.append(request)
        answer = next(script)
        if isinstance(answer, ProviderError):
            raise answer
        return answer if not isinstance(answer, str | ToolUse) else say(answer)

    model = FunctionModel(lambda request: "")
    found = Situation(
        model=model,
        threshold_tokens=threshold,
        memory={} if memory is None else memory,
        ask=ask,  # pyright: ignore[reportArgumentType] - the answers are responses
        history=history,
    )
    return found, requests


def summary_call(goal: str = "Find it.", **more: object) -> ToolUse:
    lists: dict[str, object] = {name: [] for name in ("wishes", "done", "facts", "files", "unfinished")}
    return call("record_summary", {"goal": goal, **lists, "next_step": "", **more}, id="sum")
