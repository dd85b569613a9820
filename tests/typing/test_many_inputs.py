"""What type checkers make of many inputs and of skills: inputs, results and deps have the types of the agent.

As in `test_agents.py`, what both checkers should refuse is marked, for each in its own words.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_type

import pytest
from pydantic import BaseModel

from journeyman import Agent, DefinitionError, ErrorCode, Failure, Output, Success, ToolContext, run_many, tool
from journeyman.batch import Batch
from journeyman.skills import Skill, Skills
from journeyman.testing.scripted import ScriptedModel, call


class Report(BaseModel):
    headline: str


@dataclass
class Question:
    about: str


class Db:
    def fetch(self, sql: str) -> list[str]:
        return [sql]


@tool
def query(context: ToolContext[Db], sql: str) -> list[str]:
    """Query."""
    return context.deps.fetch(sql)


def reader() -> Agent[Report, Question, Db]:
    agent = Agent(
        name="reader",
        model=ScriptedModel([call("query", sql="x"), call("output", headline="May")], repeat=True),
        input=Question,
        deps=Db,
        tools=[query],
        output=Output(Report),
    )
    assert_type(agent, Agent[Report, Question, Db])
    return agent


async def questions() -> AsyncIterator[Question]:
    yield Question("moles")


async def test_inputs_results_and_deps_are_of_the_agents_types() -> None:
    batch = run_many(reader(), [Question("moles")], deps=Db(), max_concurrency=2, order="done")
    assert_type(batch, Batch[Question, Report])
    async for question, result in batch:
        assert_type(question, Question)
        assert_type(result, Success[Report] | Failure)
        assert_type(result.unwrap(), Report)
        assert result.unwrap().headline == "May"
    assert_type(batch.left, tuple[tuple[Question, Success[Report] | Failure], ...])


async def test_inputs_may_come_by_and_by() -> None:
    async with run_many(reader(), questions(), deps=Db()) as batch:
        assert_type(batch, Batch[Question, Report])
        assert [question.about async for question, _ in batch] == ["moles"]


async def test_an_agent_without_deps_takes_none() -> None:
    batch = run_many(Agent(name="a", model=ScriptedModel(["Hello."], repeat=True)), ["Go."])
    assert_type(batch, Batch[str, str])
    assert [result.unwrap() async for _, result in batch] == ["Hello."]


def test_skills_are_a_tool_that_needs_no_deps(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "SKILL.md").write_text("---\nname: letters\ndescription: Write letters.\n---\n")
    skills = Skills(tmp_path)
    assert_type(skills.skills["letters"], Skill)
    assert_type(Agent(name="a", model="a:b", tools=[skills]), Agent[str, str])
    assert_type(Agent(name="a", model="a:b", deps=Db, tools=[skills, query]), Agent[str, str, Db])


async def codes(batch: Batch[Question, Report]) -> list[str]:
    return [result.code async for _, result in batch]


async def test_1_deps_that_are_left_out() -> None:
    batch = run_many(reader(), [Question("moles")])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownVariableType]
    assert await codes(batch) == [ErrorCode.INVALID_INPUT]  # pyright: ignore[reportUnknownArgumentType]


async def test_2_deps_of_another_type() -> None:
    batch = run_many(reader(), [Question("moles")], deps="db")  # type: ignore[misc]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownVariableType]
    assert await codes(batch) == [ErrorCode.INVALID_INPUT]  # pyright: ignore[reportUnknownArgumentType]


async def test_3_inputs_of_another_type() -> None:
    batch = run_many(reader(), [3], deps=Db())  # type: ignore[misc]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownVariableType]
    assert await codes(batch) == [ErrorCode.INVALID_INPUT]  # pyright: ignore[reportUnknownArgumentType]


def test_4_an_order_that_there_is_not() -> None:
    with pytest.raises(DefinitionError, match="order is 'size'"):
        run_many(reader(), [Question("moles")], deps=Db(), order="size")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
