"""The same work with this library: an agent with a typed output and one tool, as a user would write it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from benchmarks.measuring import Contender
from benchmarks.work import MAX_ITERATIONS, MAX_TOKENS, MODEL, PROMPT, Function, Report, add, is_right
from journeyman import Agent, Limits, Model, ModelSettings, Output, run, tool
from journeyman.model import Request, Response
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.google.model import GoogleModel
from journeyman.testing.scripted import FunctionModel, call, say


def agent(model: Model, function: Function) -> Agent[Report]:
    """Return the agent."""
    return Agent(
        name="counter",
        model=model,
        tools=[tool(function)],
        output=Output(Report),
        limits=Limits(iterations=MAX_ITERATIONS),
        settings=ModelSettings(max_tokens=MAX_TOKENS),
    )


def contender(made: Agent[Report]) -> Contender:
    """Return a run of the agent."""

    async def work() -> None:
        is_right((await run(made, PROMPT)).unwrap().total)

    return work


def in_process(iterations: int, function: Function = add) -> Contender:
    """Return a run on a model that is a function, for `iterations` model calls."""
    return contender(counter(iterations, function))


def counter(iterations: int, function: Function = add) -> Agent[Report]:
    """Return an agent on a model that is a function, for `iterations` model calls. Its answers are made beforehand."""
    answers = [say(call("add", {"x": 1}, id=f"call_{turn}")) for turn in range(iterations - 1)]
    answers.append(say(call("output", {"total": 3.0}, id=f"call_{iterations - 1}")))

    def answer(request: Request) -> Response:
        return answers[len(request.messages) // 2]

    return agent(FunctionModel(answer), function)


@asynccontextmanager
async def over_http(url: str, function: Function = add) -> AsyncGenerator[Contender]:
    """Give a run on the adapter for the Messages API. Connections stay open as long as the block."""
    model = AnthropicModel(MODEL, api_key="key", base_url=url)
    async with model.open():
        yield contender(agent(model, function))


@asynccontextmanager
async def over_gemini(url: str, function: Function = add) -> AsyncGenerator[Contender]:
    """Give a run on the adapter for Gemini. Connections stay open as long as the block."""
    model = GoogleModel("gemini-3-flash-preview", api_key="key", base_url=f"{url}/v1beta")
    async with model.open():
        yield contender(agent(model, function))
