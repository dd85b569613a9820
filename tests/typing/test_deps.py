"""What type checkers make of dependencies: what is given to a run has the type that the agent declares.

As in `test_agents.py`, what both checkers should refuse is marked, for each in its own words.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_type

import pytest
from pydantic import BaseModel

from journeyman import (
    Agent,
    Chat,
    DefinitionError,
    Events,
    Failure,
    Output,
    Subagents,
    Success,
    ToolContext,
    run,
    run_sync,
    stream,
    tool,
)
from journeyman.durable import Durable, InMemoryEngine
from journeyman.gate import Allow, Deny, GateRequest
from journeyman.output import ContinueRun, StopContext
from journeyman.testing.scripted import Answer, ScriptedModel, call


class Report(BaseModel):
    headline: str


@dataclass
class Question:
    about: str


class Rows(ABC):
    @abstractmethod
    def fetch(self, sql: str) -> list[str]: ...


class Db(Rows):
    def fetch(self, sql: str) -> list[str]:
        return [sql]


class BigDb(Db):
    """More than is asked for."""


class Mail:
    """Something else."""


@tool
async def query(context: ToolContext[Db], sql: str) -> list[str]:
    assert_type(context.deps, Db)
    return context.deps.fetch(sql)


@tool(parallel=True)
def ask(context: ToolContext[Rows, Question]) -> str:
    assert_type(context.input, Question)
    return context.input.about


@tool
def write(context: ToolContext[Mail], to: str) -> str:
    return to


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool
def keep(value: object, context: ToolContext) -> str:
    assert_type(context.deps, object)
    return str(value)


def preview(report: Report, db: Db) -> str:
    return report.headline + db.fetch("one")[0]


def matches(report: Report, db: Rows) -> None:
    assert db.fetch(report.headline)


def matches_alone(report: Report) -> None:
    assert report.headline


def system(text: str, db: Db) -> str:
    return f"{text} {db.fetch('all')}"


def begun(text: str, db: Db) -> list[str]:
    return db.fetch(text)


def goes_on(stopping: StopContext, db: Db) -> ContinueRun | None:
    return None


class OfDb:
    async def decide(self, request: GateRequest, db: Db, /) -> Allow | Deny:
        return Allow()


class OfAll:
    async def decide(self, request: GateRequest) -> Allow:
        return Allow()


def scripted(*answers: Answer) -> ScriptedModel:
    return ScriptedModel(answers)


HANDS_IN: Sequence[Answer] = (call("query", sql="x"), call("output", headline="May"), call("submit"))


async def test_deps_flow_from_the_agent_to_its_tools_and_functions() -> None:
    agent = Agent(
        name="a",
        model=scripted(*HANDS_IN),
        deps=Db,
        tools=[query, add, keep],
        system=system,
        run_state=begun,
        output=Output(Report, reflection=preview),
        validators=[matches, matches_alone],
        gate=[OfDb(), OfAll()],
    )
    assert_type(agent, Agent[Report, str, Db])
    assert_type(await run(agent, "Go.", deps=BigDb()), Success[Report] | Failure)


async def test_all_three_are_inferred() -> None:
    agent = Agent(name="a", model=scripted(call("ask"), "Moles."), input=Question, deps=Db, tools=[ask])
    assert_type(agent, Agent[str, Question, Db])
    result = await run(agent, Question("moles"), deps=Db())
    assert_type(result, Success[str] | Failure)
    assert result.unwrap() == "Moles."
    guarded = Agent(name="a", model=scripted("Moles."), deps=Db, stop_guard=goes_on)
    assert_type(guarded, Agent[str, str, Db])


async def test_what_is_abstract_or_a_union_can_be_declared() -> None:
    agent = Agent(name="a", model=scripted("Hello."), deps=Rows)
    assert_type(agent, Agent[str, str, Rows])
    assert (await run(agent, "Go.", deps=Db())).unwrap() == "Hello."
    may_have = Agent(name="a", model=scripted("Hello."), deps=Db | None)
    assert_type(may_have, Agent[str, str, Db | None])
    assert (await run(may_have, "Go.", deps=None)).unwrap() == "Hello."


async def test_an_agent_without_deps_takes_none() -> None:
    agent = Agent(name="a", model=scripted("Hello."), tools=[add, keep])
    assert_type(agent, Agent[str, str])
    assert_type((await run(agent, "Go.")).unwrap(), str)


async def test_with_deps_gives_an_agent_that_needs_none() -> None:
    agent = Agent(name="a", model=scripted(call("query", sql="x"), "Done."), deps=Db, tools=[query])
    bound = agent.with_deps(Db())
    assert_type(bound, Agent[str, str])
    assert (await run(bound, "Go.")).unwrap() == "Done."


async def test_deps_are_given_wherever_a_run_begins() -> None:
    agent = Agent(name="a", model=ScriptedModel(["Hello."], repeat=True), deps=Db, tools=[query])
    async with stream(agent, "Go.", deps=Db()) as events:
        assert_type(events, Events[str])
        async for _ in events:
            pass
    assert_type(events.result, Success[str] | Failure)
    async with Chat(agent, deps=Db()) as chat:
        assert_type(chat, Chat[str, str])
        assert_type((await chat.prompt("Go.")).unwrap(), str)
    async with Durable(InMemoryEngine()) as durable:
        assert_type(await durable.run(agent, "Go.", deps=Db()), Success[str] | Failure)


def test_a_program_without_a_loop_gives_them_too() -> None:
    agent = Agent(name="a", model=scripted("Hello."), deps=Db)
    assert_type(run_sync(agent, "Go.", deps=Db(), max_attempts=1), Success[str] | Failure)


def test_sub_agents_need_what_their_run_has() -> None:
    reader = Agent(name="reader", model="a:b", deps=Db, tools=[query])
    lead = Agent(name="lead", model="a:b", deps=Db, tools=[Subagents(reader), query])
    assert_type(lead, Agent[str, str, Db])

    def db_of(mail: Mail) -> Db:
        return Db()

    other = Agent(name="lead", model="a:b", deps=Mail, tools=[Subagents(reader, deps=db_of), write])
    assert_type(other, Agent[str, str, Mail])


def test_a_tool_with_a_context_stays_what_it_was() -> None:
    assert_type(add(1), int)
    with pytest.raises(DefinitionError, match="asks for deps, and is not the first"):

        @tool
        def late(a: int, context: ToolContext[Db]) -> int:
            return a


READER = Agent(name="reader", model="nobody:x", deps=Db, tools=[query])


async def test_1_deps_that_are_left_out() -> None:
    await run(READER, "Go.")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def test_2_deps_of_another_type() -> None:
    await run(READER, "Go.", deps=Mail())  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def test_3_an_input_of_another_type() -> None:
    await run(READER, 3, deps=Db())  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_4_a_tool_that_asks_for_another_type() -> None:
    with pytest.raises(DefinitionError, match="Tool 'query' asks for deps of type Db, and the agent has Mail"):
        Agent(name="a", model="a:b", deps=Mail, tools=[query])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_5_a_tool_beside_one_that_fits() -> None:
    with pytest.raises(DefinitionError, match="Tool 'write' asks for deps of type Mail, and the agent has Db"):
        Agent(name="a", model="a:b", deps=Db, tools=[query, write])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_6_a_validator_that_takes_another_type() -> None:
    with pytest.raises(DefinitionError, match="matches, takes deps of type Rows, and the agent's are Mail"):
        Agent(name="a", model="a:b", deps=Mail, output=Output(Report), validators=[matches])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_7_a_reflection_that_takes_another_type() -> None:
    with pytest.raises(DefinitionError, match="preview, takes deps of type Db, and the agent's are Mail"):
        Agent(name="a", model="a:b", deps=Mail, output=Output(Report, reflection=preview))  # type: ignore[misc]  # pyright: ignore[reportArgumentType]


def test_8_a_prompt_that_takes_another_type() -> None:
    with pytest.raises(DefinitionError, match="system, takes deps of type Db, and the agent's are Mail"):
        Agent(name="a", model="a:b", deps=Mail, system=system)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_9_a_gate_that_decides_by_another_type() -> None:
    with pytest.raises(DefinitionError, match=r"OfDb\.decide, takes deps of type Db, and the agent's are Mail"):
        Agent(name="a", model="a:b", deps=Mail, gate=OfDb())  # type: ignore[misc]  # pyright: ignore[reportArgumentType]


def test_10_a_chat_that_gives_none() -> None:
    with pytest.raises(DefinitionError, match="deps are missing: the agent needs Db"):
        Chat(READER)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_11_sub_agents_that_need_what_the_run_has_not() -> None:
    with pytest.raises(DefinitionError, match="Tool 'subagent' asks for deps of type Db, and the agent has Mail"):
        Agent(name="a", model="a:b", deps=Mail, tools=[Subagents(READER)])  # type: ignore[arg-type]


def test_12_binding_another_type() -> None:
    with pytest.raises(DefinitionError, match="deps are of type Mail, and the agent needs Db"):
        READER.with_deps(Mail())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_13_an_option_that_there_is_not() -> None:
    with pytest.raises(TypeError):
        await run(READER, "Go.", deps=Db(), attempts=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
