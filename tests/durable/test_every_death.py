"""A run whose process dies after any of its stored steps ends as if nobody had died: with the same ending, history,
usage, cost, counts and children. Tried for each kind of agent, in a journal and in a durable run."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import pytest

from journeyman import Agent, Chat, Limits, ModelSettings, Output, Rejected, Runtime, Subagents, ToolContext, run, tool
from journeyman.batch import run_many
from journeyman.budget import Budget
from journeyman.compaction import ClearToolResults, Summarise
from journeyman.durable.durable import Durable
from journeyman.durable.memory import InMemoryEngine, Memory
from journeyman.errors import ProviderError
from journeyman.gate import Allow, Approval, Ask, Decision, Deny, GateRequest, Verdict
from journeyman.journal import InMemoryJournal
from journeyman.model import Request
from journeyman.output.output import ContinueRun, FailRun, Reflection, StopContext
from journeyman.result import ChildRecord, Result
from journeyman.testing.scripted import Answer, FunctionModel, call, say
from journeyman.types import Price, Text
from tests.durable.worlds import Letter, is_long, read_without_times
from tests.play import cancelled, existing, n_answers, texts
from tests.support.shares import thinned

AnyAgent = Agent[Any, Any, Any]
_PRICE: Final = Price(input=1_000_000 / 1_024, output=1_000_000 / 512)
"""Costs add up to the same in any order."""


def priced(function: Callable[[Request], Answer]) -> FunctionModel:
    return FunctionModel(function, price=_PRICE)


def following(*answers: Answer) -> FunctionModel:
    """Return a model that knows by the conversation how far it is."""
    return priced(lambda request: answers[n_answers(request)])


@dataclass(frozen=True)
class Count:
    """A state whose fields are called like those of a step."""

    spent: int = 0
    kind: str = "end"
    error: str = "skipped"
    value: Mapping[str, str] = field(default_factory=lambda: {"error": "over_budget", "v": "1", "f": "9", "s": "[]"})


@tool(effect="pure")
def look(at: str, spent: int = 0) -> str:
    """Look at something."""
    return f"{at} is fine"


@tool(effect="pure")
def add(context: ToolContext, n: int) -> str:
    """Count."""
    context.set_run_state(Count(spent=context.run_state(Count).spent + n))
    return str(context.run_state(Count).spent)


def a_look(at: str) -> Any:  # noqa: ANN401 - a block
    return call("look", at=at, id=at)


def plain() -> AnyAgent:
    return Agent(name="plain", model=following(a_look("a"), [a_look("b"), a_look("c")], "Done."), tools=[look])


def stateful() -> AnyAgent:
    def count(input: str) -> Count:
        return Count()

    def of_attempt(input: str, state: Count) -> dict[str, str]:
        return {"spent": "much", "error": "skipped"}

    return Agent(
        name="stateful",
        model=following(call("add", n=1, id="1"), call("add", n=2, id="2"), "Done."),
        tools=[add],
        run_state=count,
        attempt_state=of_attempt,
        final_state=lambda states: states.run,
        limits=Limits(calls=3, tokens=10_000),
    )


def limited() -> AnyAgent:
    calls = [a_look(at) for at in "abcd"]
    limits = Limits(calls=3, tokens=100_000, per_attempt=Budget(calls=3))
    return Agent(name="limited", model=following(calls[0], calls[1:], "Done."), tools=[look], limits=limits)


def typed() -> AnyAgent:
    answers = [call("output", text="Hi", id="1"), a_look("a"), call("output", text="Hello", id="2")]
    return Agent(
        name="typed",
        model=following(*answers),
        tools=[look],
        output=Output(Letter),
        validators=[is_long],
        error_prompt=lambda rejection: f"No: {rejection.feedback}",
    )


def reflecting() -> AnyAgent:
    def shown(letter: Letter) -> str:
        if len(letter.text) < 3:
            raise Rejected("shorter than any letter")
        return f"It reads {letter.text}."

    drafts = [call("output", text=text, id=text) for text in ("Hi", "Hey!", "Hello")]
    submits = [call("submit", id=f"s{number}") for number in range(2)]
    return Agent(
        name="reflecting",
        model=following(drafts[0], drafts[1], submits[0], drafts[2], submits[1]),
        output=Output(Letter, reflection=Reflection(shown)),
        validators=[is_long],
    )


def out_of_attempts() -> AnyAgent:
    answers = [call("output", text="Hi", id=str(number)) for number in range(2)]
    limits = Limits(attempts=2)
    return Agent(name="hasty", model=following(*answers), output=Output(Letter), validators=[is_long], limits=limits)


def kept_going() -> AnyAgent:
    def guard(stopping: StopContext) -> ContinueRun | None:
        return ContinueRun("More.") if stopping.iteration < 3 else None

    return Agent(name="kept_going", model=following("One.", "Two.", "Three."), stop_guard=guard)


def escalated() -> AnyAgent:
    def guard(stopping: StopContext) -> ContinueRun | FailRun:
        return ContinueRun("More.") if stopping.iteration < 2 else FailRun("It never ends.")

    return Agent(name="escalated", model=following("One.", "Two.", "Three."), stop_guard=guard)


def stopped_after() -> AnyAgent:
    return Agent(name="stopped", model=following(a_look("a"), a_look("b")), tools=[look], stop_after=_is_b)


def _is_b(name: str, result: Any) -> bool:  # noqa: ANN401 - a tool's result
    return result.text.startswith("b")


def extended() -> AnyAgent:
    def answer(request: Request) -> Answer:
        return say("Half an", stop_reason="max_tokens") if (request.max_tokens or 0) < 500 else "A whole answer."

    limits, settings = Limits(extended_max_tokens=600), ModelSettings(max_tokens=100)
    return Agent(name="extended", model=priced(answer), limits=limits, settings=settings)


def _n_characters(request: Request) -> int:
    found = [block for message in request.messages for block in message.content]
    return sum([len(block.text) for block in found if isinstance(block, Text) or block.type == "tool_result"])


@tool(effect="pure")
def page(number: int) -> str:
    """Read a page."""
    return f"Page {number}. " + "words " * 400


def overflowing(*, summary: Answer) -> AnyAgent:
    def sum_up(request: Request) -> Answer:
        return summary

    pages = [call("page", number=number, id=str(number)) for number in range(4)]
    told = following(*pages, "Done.")

    def answer(request: Request) -> Answer:
        if _n_characters(request) > 4_000:
            return ProviderError("too long", kind="context_overflow")
        return told.function(request)  # pyright: ignore[reportReturnType] - it is no coroutine

    return Agent(
        name="overflowing",
        model=priced(answer),
        tools=[page],
        compaction=[Summarise(FunctionModel(sum_up, price=_PRICE), keep_tokens=10), ClearToolResults(keep=1)],
        settings=ModelSettings(max_tokens=500),
    )


def summarised() -> AnyAgent:
    return overflowing(summary="They read pages.")


def summary_failed() -> AnyAgent:
    return overflowing(summary=ProviderError("no summary today", kind="bad_request"))


@tool(effect="pure")
async def give_up(context: ToolContext) -> str:
    """Give up, after another agent was asked."""
    await run(silent("adviser"), "Give up?")
    context.stop("the page is gone")
    return "noted"


def stopped_inside() -> AnyAgent:
    answers = [a_look("a"), [a_look("b"), call("give_up", id="g"), a_look("c")]]
    return Agent(name="quitter", model=following(*answers), tools=[look, give_up], limits=Limits(calls=3))


def stopped_below() -> AnyAgent:
    """Return an agent whose last call is left only if the one that was not run below is not counted."""
    crew = Subagents(replace(stopped_inside(), description="Gives up."))
    answers = [call("subagent", agent="quitter", task="Go.", id="s"), [a_look("d"), a_look("e")], "Done."]
    return Agent(name="lead", model=following(*answers), tools=[crew, look], limits=Limits(calls=6))


def whole_responses() -> AnyAgent:
    answers = [a_look("a"), [a_look(at) for at in "bcd"], [a_look("e"), a_look("f")], a_look("g"), "Done."]
    limits = Limits(calls=3, whole_responses=True)
    return Agent(name="whole", model=following(*answers), tools=[look], limits=limits)


def whole_below() -> AnyAgent:
    """Return an agent below which calls are refused as a whole, in a sub-agent and in a tool's code."""
    below = replace(whole_responses(), description="Looks.")

    @tool(effect="pure")
    async def ask(context: ToolContext) -> str:
        """Ask."""
        return (await run(below, "Go.")).unwrap()

    answers = [
        [call("subagent", agent="whole", task="Go.", id="s"), call("ask", id="1")],
        [a_look(at) for at in "xyz"],
        [a_look("x"), a_look("y")],
        a_look("z"),
        "Done.",
    ]
    limits = Limits(calls=10, whole_responses=True)
    return Agent(name="lead", model=following(*answers), tools=[Subagents(below), ask, look], limits=limits)


def inner(name: str = "inner") -> Agent[str, str]:
    return Agent(name=name, description="Looks.", model=following(a_look(f"{name}.a"), "Inside."), tools=[look])


def delegating() -> AnyAgent:
    tasks = [{"agent": name, "task": "Look."} for name in ("left", "right")]
    crew = Subagents(inner("left"), inner("right"), max_concurrency=1)
    answers = [call("subagent", tasks=tasks, id="p"), call("subagent", chain=tasks, id="c"), a_look("after"), "Done."]
    return Agent(name="lead", model=following(*answers), tools=[crew, look], limits=Limits(calls=20, tokens=100_000))


def failing_below() -> AnyAgent:
    hasty = replace(out_of_attempts(), description="Hurries.")
    crew = Subagents(hasty)
    return Agent(
        name="lead", model=following(call("subagent", agent="hasty", task="Go.", id="s"), "Done."), tools=[crew]
    )


def running_inside(how: str) -> AnyAgent:
    """Return an agent whose tool's code runs other agents."""
    crew = Subagents(inner())

    @tool(effect="pure")
    async def ask(context: ToolContext) -> str:
        """Ask."""
        match how:
            case "run":
                return (await run(inner(), "deeper")).unwrap()
            case "run_many":
                return " ".join(
                    [result.unwrap() async for _, result in run_many(inner(), ["1", "2"], max_concurrency=1)]
                )
            case "Subagents.run":
                return (await crew.run("inner", "deeper")).unwrap()
            case "Subagents.execute":
                return (await crew.execute({"agent": "inner", "task": "deeper"})).to_json()
            case _:
                first = await crew.execute({"agent": "inner", "task": "deeper"}, context)
                second = await crew.execute({"agent": "inner", "task": "again"}, context)
                return f"{first.to_json()} {second.to_json()}"

    answers = [call("ask", id="1"), [call("ask", id="2"), a_look("b")], a_look("c"), "Done."]
    limits = Limits(calls=6, tokens=100_000)
    return Agent(name="outer", model=following(*answers), tools=[ask, look], limits=limits)


def judged() -> AnyAgent:
    """Return an agent whose validator, prompt and error prompt run others."""

    async def is_liked(letter: Letter) -> None:
        result = await run(inner("judge"), letter.text)
        if len(letter.text) < 5:
            raise Rejected(result.unwrap())

    async def prompt(input: str) -> str:
        return (await run(inner("prompter"), input)).unwrap()

    async def explained(_: object) -> str:
        return (await run(inner("explainer"), "why")).unwrap()

    answers = [call("output", text=text, id=text) for text in ("Hi", "Hello")]
    return Agent(
        name="judged",
        model=following(*answers),
        prompt=prompt,
        output=Output(Letter),
        validators=[is_liked],
        error_prompt=explained,
        limits=Limits(calls=9, tokens=100_000),
    )


def silent(name: str) -> AnyAgent:
    """Return an agent without tools: the gates of a run above hold for it, too."""
    return Agent(name=name, model=following("Yes."))


class Asking:
    """A gate that asks about some calls, and asks an agent about each."""

    async def decide(self, request: GateRequest) -> Verdict:
        await run(silent("gate"), "May it?")
        return Ask("May it?") if request.arguments.get("at") in ("a", "b") else Allow()


async def approve(approval: Approval) -> Decision:
    """Let an agent decide."""
    await run(silent("approver"), "May it?")
    return Allow() if approval.request.arguments["at"] == "a" else Deny("not b")


def gated() -> AnyAgent:
    answers = [a_look("a"), a_look("b"), a_look("c"), "Done."]
    return Agent(name="gated", model=following(*answers), tools=[look], gate=Asking(), limits=Limits(calls=20))


_KINDS: Final[Mapping[str, Callable[[], AnyAgent]]] = {
    **{make.__name__: make for make in (plain, stateful, limited, typed, reflecting, out_of_attempts, kept_going)},
    **{make.__name__: make for make in (escalated, stopped_after, extended, summarised, summary_failed, delegating)},
    **{make.__name__: make for make in (failing_below, judged, gated)},
    **{make.__name__: make for make in (stopped_inside, stopped_below, whole_responses, whole_below)},
    **{
        f"in a tool: {how}": lambda how=how: running_inside(how)
        for how in ("run", "run_many", "Subagents.run", "Subagents.execute", "Subagents.execute with a context")
    },
}


class Kept(InMemoryJournal):
    """A journal that remembers in which order it was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, bytes | None]] = []

    def put(self, key: str, value: bytes | None) -> None:
        self.written.append((key, value))
        super().put(key, value)


def seen(result: Result[Any]) -> object:
    """Return all that a result says, but for times."""
    state = getattr(result, "state", None)
    return read_without_times(result.to_json()), result.history, state, _timeless(result.metadata.children)


def _timeless(children: Sequence[ChildRecord]) -> list[ChildRecord]:
    return [replace(each, latency_s=0.0, children=tuple(_timeless(each.children))) for each in children]


def _deaths(kind: str, n_written: int, *, one_in: int = 6) -> Sequence[int]:
    """Return after how many steps to die: with each kind of agent, others."""
    return thinned(range(1, n_written + 1), one_in, first=[*_KINDS].index(kind))


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", _KINDS)
async def test_a_death_after_any_step_changes_nothing_in_a_journal(kind: str) -> None:
    whole = Kept()
    runtime = Runtime(approver=approve)
    lived = await run(_KINDS[kind](), "Go.", runtime=replace(runtime, journal=whole))
    expected = seen(lived)
    assert lived.metadata.children or not kind.startswith("in a tool")
    assert expected == seen(await run(_KINDS[kind](), "Go.", runtime=runtime)), "as without a journal"
    for n_steps in _deaths(kind, len(whole.written)):
        journal = InMemoryJournal()
        for key, value in whole.written[:n_steps]:
            journal.put(key, value)
        result = await run(_KINDS[kind](), "Go.", runtime=replace(runtime, journal=journal))
        assert seen(result) == expected, f"after {whole.written[n_steps - 1][0]}"


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", _KINDS)
async def test_a_death_after_any_step_changes_nothing_in_a_durable_run(kind: str) -> None:
    memory, runtime = Memory(), Runtime(approver=approve)
    async with Durable(InMemoryEngine(memory)) as durable:
        expected = seen(await durable.run(_KINDS[kind](), "Go.", id="run", runtime=runtime))
    [(id, row)] = memory.rows.items()
    for n_steps in _deaths(kind, len(memory.records[id])):
        left = Memory()
        left.put(replace(row, status="ready", ended=None, owner=None, used_s=0.0, tokens=0, cost=0.0))
        left.records[id] = dict(islice(memory.records[id].items(), n_steps))
        async with Durable(InMemoryEngine(left)) as durable:
            result = await asyncio.wait_for(durable.run(_KINDS[kind](), "Go.", id="run", runtime=runtime), 30)
        assert seen(result) == expected, f"after {[*left.records[id].values()][-1].key}"


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["plain", "kept_going", "in a tool: run"])
async def test_a_death_after_any_step_of_a_turn_changes_nothing_in_a_chat(kind: str) -> None:
    memory = Memory()
    async with (
        Durable(InMemoryEngine(memory)) as durable,
        Chat.open(_KINDS[kind](), durable, id="c", create=True) as chat,
    ):
        expected = seen(await chat.prompt("Go."))
    [(id, row)] = memory.rows.items()
    for n_steps in _deaths(kind, len(memory.records[id]), one_in=2):
        left = Memory()
        left.put(replace(row, status="ready", ended=None, owner=None, used_s=0.0, tokens=0, cost=0.0))
        left.records[id] = dict(islice(memory.records[id].items(), n_steps))
        left.said.sessions["c"], left.said.lines["c"] = memory.said.sessions["c"], []
        async with (
            Durable(InMemoryEngine(left)) as durable,
            Chat.open(_KINDS[kind](), durable, id="c", create=True) as chat,
        ):
            result = await asyncio.wait_for(existing(chat.turn), 30)
        assert seen(result) == expected, f"after {[*left.records[id].values()][-1].key}"


@pytest.mark.parametrize(
    ("kind", "made", "refused"),
    [("stopped_inside", 3, 1), ("stopped_below", 3, 0), ("whole_responses", 3, 4), ("whole_below", 4, 4)],
)
async def test_calls_that_were_stopped_or_refused_are_no_use_of_a_limit(kind: str, made: int, refused: int) -> None:
    result = await run(_KINDS[kind](), "Go.", runtime=Runtime(journal=InMemoryJournal()))
    read = texts(result)
    n_refused = len([text for text in read if text.startswith("Error: not run")])
    assert (len(read) - n_refused, n_refused) == (made, refused), read


async def test_a_stop_guard_is_not_asked_after_a_death_though_its_user_has_written_since() -> None:
    """It said to go on when nobody had written anything, and the run went on."""
    asked, written = list[int](), asyncio.Event()

    def guard(stopping: StopContext) -> ContinueRun | None:
        asked.append(stopping.iteration)
        return ContinueRun("More.") if stopping.iteration == 1 else None

    async def answer(request: Request) -> Answer:
        n = n_answers(request)
        if n == 1 and not written.is_set():
            written.set()
            await asyncio.Event().wait()
        return ["One.", "Two.", "Three.", "Four."][n]

    agent = Agent(name="talker", model=FunctionModel(answer), stop_guard=guard)
    memory = Memory()
    async with Durable(InMemoryEngine(memory)) as durable, Chat.open(agent, durable, id="c", create=True) as chat:
        turn = asyncio.ensure_future(chat.prompt("Go."))
        await cancelled(turn, when=written)
    async with Durable(InMemoryEngine(memory)) as durable, Chat.open(agent, durable, id="c") as chat:
        chat.follow_up("And then?")
        result = await asyncio.wait_for(existing(chat.turn), 30)
        await chat.wait_idle()
    assert [message.text for message in result.history[:4]] == ["Go.", "One.", "More.", "Two."]
    assert asked == [1, 1, 2], "and then in the turn of what was written"
