"""Who plays in the tests of delegation: a lead, those whom it sends, and what it reads of them."""

from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_core import from_json

from journeyman import Agent, Output, Result, Runtime, Subagents, Tasks, ToolResult, run
from journeyman.events import Listener, TaskInfo
from journeyman.testing.scripted import call
from tests.play import Stage, look
from tests.play.stage import Staged


class Count(BaseModel):
    total: int
    places: list[str] = []


def scout(stage: Stage, *answers: Staged, name: str = "scout", **fields: Any) -> Agent:
    """Return an agent that answers with text."""
    return Agent(name=name, model=stage.model(answers or ["found"], repeat=True), tools=[look], **fields)


def counter(stage: Stage, total: int = 4, *, name: str = "counter") -> Agent[Count]:
    """Return an agent that hands in a count."""
    answers = [call("output", total=total, places=["attic"])]
    return Agent(name=name, model=stage.model(answers, repeat=True), output=Output(Count))


def lead(stage: Stage, crew: Subagents, *arguments: dict[str, Any], **fields: Any) -> Agent:
    """Return an agent that makes these calls of `subagent`, one after the other, and is done."""
    answers = [call("subagent", each, id=f"c{number}") for number, each in enumerate(arguments, start=1)]
    return Agent(name="lead", model=stage.model([*answers, "done"]), tools=[crew], **fields)


async def play(
    stage: Stage,
    crew: Subagents,
    *arguments: dict[str, Any],
    runtime: Runtime | None = None,
    on_event: Listener | None = None,
    **fields: Any,
) -> Result[str]:
    """Run a lead that makes these calls."""
    return await run(lead(stage, crew, *arguments, **fields), "Go.", runtime=runtime, on_event=on_event)


async def detached(stage: Stage, crew: Subagents, call: dict[str, Any], on_event: Listener | None = None) -> TaskInfo:
    """Run a lead that starts work in the background, and return what its task is when it has ended."""
    async with Tasks(notify=lambda text, info: None) as tasks:
        crew.tasks = tasks
        await play(stage, crew, call, on_event=on_event)
        await tasks.wait()
        return tasks.get("bg-1")


def results(result: Result[Any]) -> list[ToolResult]:
    """Return what the lead read, in order."""
    return [block for message in result.history for block in message.content if isinstance(block, ToolResult)]


def read(result: Result[Any], number: int = 0) -> Any:  # noqa: ANN401 - parsed JSON
    """Return what the lead read of one call, parsed."""
    answer = results(result)[number]
    assert not answer.is_error, answer.text
    value: JsonValue = from_json(answer.text)
    return value


def errors(result: Result[Any]) -> list[str]:
    """Return the errors that the lead read."""
    return [answer.text for answer in results(result) if answer.is_error]
