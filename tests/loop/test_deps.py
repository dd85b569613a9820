"""What runs are given beside their input: who sees it, who is refused, and where it comes from."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pytest
from pydantic import BaseModel

from journeyman import Agent, Chat, DefinitionError, Event, Output, Runtime, Subagents, Tasks, ToolContext, run, tool
from journeyman.gate import Allow, Deny, GateRequest
from journeyman.journal import InMemoryJournal
from journeyman.output.output import FailRun, PerRun, Reflection, StopContext, StopGuard
from journeyman.prompt import ErrorPromptContext
from journeyman.result import Failure
from journeyman.team import Team
from journeyman.testing.scripted import Answer, ScriptedModel, call, say
from journeyman.tools.context import States
from tests.play import failed, texts

SECRET = "hunter2"


@dataclass
class Db:
    """What runs are given. Nobody may copy or show it."""

    name: str = "shop"
    seen_by: list[str] = field(default_factory=list[str])
    seen_twice: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, who: str) -> str:
        self.seen_by.append(who)
        if len(self.seen_by) == 2:
            self.seen_twice.set()
        return f"{who} of {self.name}"

    def __deepcopy__(self, memo: object) -> Db:
        raise AssertionError("deps are shared")

    def __repr__(self) -> str:
        return SECRET


class Mail:
    """Something else."""


class Report(BaseModel):
    headline: str


@tool
def look(context: ToolContext[Db]) -> str:
    return context.deps.see(f"look in {context.agent}")


def looker(*answers: Answer, **more: Any) -> Agent[str, str, Db]:
    model = ScriptedModel([*answers] or [call("look"), "Done."])
    given: dict[str, Any] = {"name": "looker", "description": "Looks.", "model": model, "tools": [look], **more}
    return Agent(deps=Db, **given)


def issues(result: object) -> tuple[str, ...]:
    assert isinstance(result, Failure)
    assert (result.code, result.history) == ("INVALID_INPUT", ())
    return tuple(getattr(result.error.context, "issues", ()))


async def test_every_function_of_an_agent_that_needs_one_argument_more_is_given_the_deps() -> None:
    class Rights:
        async def decide(self, request: GateRequest, db: Db) -> Allow:
            db.see(f"gate for {request.tool_name}")
            return Allow()

    def matches(report: Report, db: Db) -> None:
        if db.see("validator") and report.headline == "May":
            raise ValueError("not May")

    def begun(text: str, state: object, number: int, db: Db) -> str:
        return db.see(f"attempt {number} after {state}")

    def feedback(rejection: ErrorPromptContext, db: Db) -> str:
        return db.see(f"error prompt after {rejection.feedback}")

    answers = [call("look"), call("output", headline="May"), call("submit"), call("output", headline="June")]
    agent = Agent(
        name="a",
        model=ScriptedModel([*answers, call("submit")]),
        deps=Db,
        system=lambda text, db: db.see(f"system for {text}"),
        prompt=lambda text, db: db.see(f"prompt for {text}"),
        run_state=lambda text, db: db.see("state"),
        attempt_state=begun,
        error_prompt=feedback,
        output=Output(Report, reflection=Reflection(lambda report, db: db.see(f"preview of {report.headline}"))),
        validators=[matches],
        final_state=lambda states, db: db.see(f"projection of {states.number}"),
        gate=Rights(),
        tools=[look],
    )
    db = Db()
    result = await run(agent, "Go.", deps=db)
    assert result.unwrap() == Report(headline="June")
    assert db.seen_by == [
        *("state", "system for Go.", "prompt for Go.", "attempt 1 after state of shop", "gate for look", "look in a"),
        *("preview of May", "validator", "error prompt after not May", "attempt 2 after state of shop"),
        *("preview of June", "validator", "projection of 2"),
    ]


@pytest.mark.parametrize("per_run", [False, True])
async def test_a_stop_guard_decides_with_the_deps(per_run: bool) -> None:
    def guard(stopping: StopContext, db: Db) -> FailRun:
        return FailRun(db.see(stopping.text))

    def made(agent: str, task: str, db: Db) -> StopGuard:
        return lambda stopping: FailRun(db.see(f"{task} {stopping.text}"))

    agent = looker("Done.", stop_guard=PerRun(made) if per_run else guard)
    result = failed(await run(agent, "Go.", deps=Db()))
    assert ("Go. Done. of shop" if per_run else "Done. of shop") in result.error.message


async def test_a_second_parameter_with_a_default_is_the_functions_own() -> None:
    def strict(text: str, most: int = 3) -> None:
        assert most == 3

    assert (await run(looker("Done.", validators=[strict]), "Go.", deps=Db())).unwrap() == "Done."


async def test_all_calls_and_their_threads_share_the_object() -> None:
    db = Db()
    looks: list[Answer] = [say(call("look"), call("look"), call("look")), "Done."]
    await run(looker(*looks), "Go.", deps=db)
    assert db.seen_by == ["look in looker"] * 3


async def test_a_tool_of_an_agent_without_deps_may_be_given_any() -> None:
    seen: list[object] = []

    @tool
    def ask(context: ToolContext) -> None:
        seen.append(context.deps)

    agent = Agent(name="a", model=ScriptedModel([call("ask"), "Done."], repeat=True), tools=[ask])
    await run(agent, "Go.", deps=3)
    assert seen == [3]


async def test_a_gate_decides_about_calls_of_sub_agents_with_the_deps_of_its_own_run() -> None:
    @dataclass
    class Rights:
        asked: list[str] = field(default_factory=list[str])

        async def decide(self, request: GateRequest, db: Db) -> Allow | Deny:
            self.asked.append(f"{request.path[-1]} {request.tool_name} by {db.name}")
            return Allow()

    rights = Rights()
    lead = Agent(
        name="lead",
        model=ScriptedModel([call("subagent", agent="looker", task="Look."), "Done."]),
        deps=Db,
        gate=[rights],
        tools=[Subagents(looker(), deps=lambda db: Db(f"{db.name}'s copy"))],
    )
    await run(lead, "Go.", deps=Db("shop"))
    assert rights.asked == ["lead subagent by shop", "looker#1 look by shop"]


async def test_a_run_without_its_deps_does_not_begin() -> None:
    begin: Callable[..., Any] = run
    assert issues(await begin(looker(), "Go.")) == ("deps are missing: the agent needs Db. Pass deps=…",)
    wrong = "deps are of type Mail, and the agent needs Db. Pass deps=… of that type"
    assert issues(await begin(looker(), "Go.", deps=Mail())) == (wrong,)
    both = issues(await begin(looker(), 3, deps=Mail()))
    assert both[0] == wrong
    assert len(both) == 2


@pytest.mark.parametrize(
    ("declared", "given"), [(dict[str, int], {"a": 1}), (Db | None, None), (Db | Mail, Mail()), (int, True)]
)
async def test_generic_types_and_unions_are_checked_as_far_as_they_can_be(declared: Any, given: object) -> None:  # noqa: ANN401 - any type
    agent = Agent(name="a", model=ScriptedModel(["Done."], repeat=True), deps=declared)
    assert (await run(agent, "Go.", deps=given)).unwrap() == "Done."
    assert issues(await run(agent, "Go.", deps="text")) != ()


async def test_a_protocol_is_left_to_type_checkers() -> None:
    class Fetches(Protocol):
        def fetch(self) -> str: ...

    @tool
    def get(context: ToolContext[Fetches]) -> str:
        return context.deps.fetch()

    class Rows:
        def fetch(self) -> str:
            return "rows"

    agent = Agent(name="a", model=ScriptedModel([call("get"), "Done."], repeat=True), deps=Fetches, tools=[get])
    assert (await run(agent, "Go.", deps=Rows())).unwrap() == "Done."
    begin: Callable[..., Any] = run
    assert issues(await begin(agent, "Go.")) == ("deps are missing: the agent needs Fetches. Pass deps=…",)
    Agent(name="a", model="a:b", deps=Rows, tools=[get])


def judge(text: str, db: Db) -> None:
    """Take one more than an output."""


def judge_by_two(text: str, db: Db, more: object) -> None:
    """Take two more."""


def hear(message: object, context: object, db: Db) -> None:
    """Take one more than is known of a message."""


FOR_NONE = "Tool 'look' asks for deps of type Db, and the agent declares none"
FOR_MAIL = "Tool 'look' asks for deps of type Db, and the agent has Mail"
DEFINITIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "an object": ({"deps": Db()}, "INVALID_DEPS", "deps is of type Db, and no type itself."),
    "None": ({"deps": None}, "INVALID_DEPS", "deps is of type NoneType"),
    "none for a tool": ({"tools": [look]}, "MISSING_DEPS", FOR_NONE),
    "others for a tool": ({"tools": [look], "deps": Mail}, "WRONG_DEPS", FOR_MAIL),
    "none for a function": ({"validators": [judge]}, "INVALID_VALIDATOR", "the agent declares no deps"),
    "two more": ({"validators": [judge_by_two], "deps": Db}, "INVALID_VALIDATOR", "an output"),
    "what hears messages": ({"on_message": hear, "deps": Db}, "INVALID_FUNCTION", "on_message"),
}


@pytest.mark.parametrize(("given", "code", "words"), DEFINITIONS.values(), ids=DEFINITIONS.keys())
def test_an_agent_whose_parts_do_not_fit_its_deps_is_refused(given: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        Agent(name="a", model="a:b", **given)
    assert [problem.code for problem in raised.value.problems] == [code]
    assert words in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_tool_that_asks_for_another_input_is_refused() -> None:
    @tool
    def ask(context: ToolContext[object, Report]) -> str:
        return context.input.headline

    with pytest.raises(DefinitionError, match="Tool 'ask' asks for an input of type Report, and the agent's is str"):
        Agent(name="a", model="a:b", tools=[ask])
    assert Agent(name="a", model="a:b", input=Report, tools=[ask]).tools == (ask,)


async def test_what_a_class_or_a_partial_takes_is_known() -> None:
    class Judge:
        def __call__(self, text: str, db: Db) -> None:
            db.see("judge")

        def method(self, text: str, db: Db) -> None:
            db.see("method")

    db = Db()
    agent = looker("Done.", validators=[Judge(), Judge().method])
    await run(agent, "Go.", deps=db)
    assert db.seen_by == ["judge", "method"]


async def test_an_agent_may_be_given_its_deps_for_all_runs() -> None:
    db, other = Db(), Db("other")
    bound = looker(call("look"), "Done.", call("look"), "Done.").with_deps(db)
    await run(bound, "Go.")
    await run(replace(bound, name="renamed"), "Go.", deps=other)
    assert (db.seen_by, other.seen_by) == (["look in looker"], ["look in renamed"])
    assert SECRET not in repr(bound)
    assert isinstance(bound.plan, type(looker().plan))


async def test_a_sub_agent_gets_the_deps_of_its_run_or_what_is_made_of_them() -> None:
    class Shop:
        def __init__(self, db: Db) -> None:
            self.db = db

    def lead(*tools: Any, deps: Any) -> Agent[str, str, Any]:  # noqa: ANN401 - of any
        answers = [call("subagent", agent="looker", task="Look."), "Done."]
        return Agent(name="lead", model=ScriptedModel(answers), deps=deps, tools=tools)

    db = Db()
    await run(lead(Subagents(looker()), deps=Db), "Go.", deps=db)

    def db_of(shop: Shop) -> Db:
        return shop.db

    await run(lead(Subagents(looker(), deps=db_of), deps=Shop), "Go.", deps=Shop(db))
    assert db.seen_by == ["look in looker", "look in looker"]
    with pytest.raises(DefinitionError, match="Tool 'subagent' asks for deps of type Db, and the agent has Shop"):
        lead(Subagents(looker()), deps=Shop)
    bound = lead(Subagents(looker().with_deps(db)), deps=Shop)
    assert bound.name == "lead"


@pytest.mark.parametrize("fault", ["raises", "is none"])
async def test_deps_that_cannot_be_made_fail_the_one_sub_agent(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    def made(db: Db) -> Any:  # noqa: ANN401 - that is the fault
        if fault == "raises":
            raise ConnectionError("no route")

    answers = [call("subagent", agent="looker", task="Look."), "It cannot."]
    lead = Agent(name="lead", model=ScriptedModel(answers), deps=Db, tools=[Subagents(looker(), deps=made)])
    with caplog.at_level(logging.WARNING, "journeyman"):
        result = await run(lead, "Go.", deps=Db())
    (read,) = texts(result)
    assert "Sub-agent 'looker' cannot begin" in read
    assert ("no route" if fault == "raises" else "deps are missing") in read
    assert ("Subagents.deps" in caplog.text) == (fault == "raises")


async def test_background_work_and_members_of_a_team_have_the_deps_of_the_run_that_began_them() -> None:
    db, ended = Db(), asyncio.Event()
    async with Tasks() as tasks, Team() as team:
        subagents = Subagents(looker(call("look"), "Done.", call("look"), "Done."), tasks=tasks, team=team)
        subagents.notify = lambda text, info: ended.set()
        answers = [
            call("subagent", agent="looker", task="Look.", background=True, description="Looks"),
            call("subagent", agent="looker", task="Look.", name="member", team_name="crew", description="Looks"),
            "Done.",
        ]
        lead = Agent(name="lead", model=ScriptedModel(answers), deps=Db, tools=[subagents])
        async with Chat(lead, deps=db) as chat:
            assert (await chat.prompt("Go.")).unwrap() == "Done."
            await ended.wait()
            await db.seen_twice.wait()
    assert sorted(db.seen_by) == ["look in looker", "look in looker"]


async def test_a_program_runs_a_sub_agent_with_deps_of_its_own() -> None:
    db = Db()
    assert (await Subagents(looker()).run("looker", "Look.", deps=db)).unwrap() == "Done."
    assert db.seen_by == ["look in looker"]


async def test_a_run_that_goes_on_from_a_journal_is_given_them_anew() -> None:
    first, second = Db("first"), Db("second")
    journal = InMemoryJournal()

    class Dies(KeyboardInterrupt):
        """The process dies."""

    @tool
    def die(context: ToolContext[Db]) -> str:
        if context.deps is first:
            raise Dies
        return context.deps.see("after")

    answers: list[Answer] = [call("look", id="a"), call("die", id="b"), "Done."]
    agent = Agent(name="a", model=ScriptedModel(answers), deps=Db, tools=[look, die], default_effect="idempotent")
    with pytest.raises(Dies):
        await run(agent, "Go.", deps=first, runtime=Runtime(journal=journal))
    assert (await run(agent, "Go.", deps=second, runtime=Runtime(journal=journal))).unwrap() == "Done."
    assert (first.seen_by, second.seen_by) == (["look in a"], ["after"])


async def test_they_are_neither_stored_nor_shown(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Event] = []
    journal = InMemoryJournal()

    def broken(states: States, db: Db) -> object:
        raise RuntimeError("it broke")

    db = Db()
    with caplog.at_level(logging.DEBUG, "journeyman"):
        agent = looker(final_state=broken)
        result = failed(await run(agent, "Go.", deps=db, on_event=events.append, runtime=Runtime(journal=journal)))
    assert db.seen_by == ["look in looker"]
    shown = (repr(events), repr(list(journal.stored())), result.to_json(), repr(result), caplog.text)
    assert [SECRET in each for each in shown] == [False] * 5


async def test_nobody_keeps_them_after_the_run() -> None:
    agent, db = looker("Done.", validators=[judge]), Db()  # without a call: the end of its thread is not waited for
    result = await run(agent, "Go.", deps=db)
    kept = weakref.ref(db)
    del db
    gc.collect()
    assert kept() is None
    assert result.unwrap() == "Done."
