"""A run that died goes on where its journal ends: nothing finished is done again, asked again, or told again."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from journeyman import (
    Agent,
    Callbacks,
    Chat,
    ErrorCode,
    Event,
    Limits,
    Output,
    Rejected,
    Result,
    Runtime,
    Subagents,
    Success,
    ToolContext,
    run,
    tool,
)
from journeyman.budget import Budget
from journeyman.errors import StoreError
from journeyman.events import RunResumed, RunStarted, RunSucceeded, ToolCalled
from journeyman.gate import Allow, Approval, Ask, Decision, GateRequest, Verdict
from journeyman.journal import InMemoryJournal, worked_s
from journeyman.loop.calls import SKIPPED
from journeyman.model import Request
from journeyman.output import ContinueRun, StopContext
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.types import Usage
from tests.durable.worlds import World
from tests.play import cancelled, failed, following, instance_of, make_gate, make_tool, succeeded, texts, virtual_clock
from tests.support.lines_journal import LinesJournal


async def life(world: World, agent: Agent[Any, Any], journal: InMemoryJournal, **options: Any) -> Result[Any] | None:
    """Let a run live until it ends, or until it is to die. None: it died, and nothing of it is alive."""
    world.reached.clear()
    runtime = replace(options.pop("runtime", Runtime()), journal=journal)
    living: asyncio.Task[Any] = asyncio.create_task(run(agent, "Pay the invoices.", runtime=runtime, **options))
    dying = asyncio.create_task(world.reached.wait())
    await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
    dying.cancel()
    await asyncio.wait({dying})
    if living.done():
        return living.result()
    await cancelled(living)
    return None


def payers(world: World) -> Agent[str, str]:
    """Return an agent with two sub-agents at once: one pays A and B, the other one C and D."""

    def paying(name: str, *invoices: str) -> Agent[str, str]:
        answers: list[Answer] = [call("pay", invoice=each, id=each) for each in invoices]
        return Agent(name=name, description="Pays.", model=following(*answers, "Done."), tools=[world.pay()])

    tasks = [{"agent": "left", "task": "Pay."}, {"agent": "right", "task": "Pay."}]
    script = following(call("subagent", tasks=tasks, id="s"), "Done.")
    subagents = Subagents(paying("left", "A", "B"), paying("right", "C", "D"))
    return Agent(name="leader", model=script, tools=[subagents], limits=Limits(calls=4))


@pytest.mark.parametrize("dies_in", ["A", "C", "B D"])
async def test_a_limit_on_calls_holds_for_all_lives_together(dies_in: str) -> None:
    """The delegation is a call, and so one of the four payments is refused; which, the first life decides."""
    world, journal = World(dies_in=dies_in), InMemoryJournal()
    assert await life(world, payers(world), journal) is None
    world.dies_in = ""
    assert isinstance(await life(world, payers(world), journal), Success)
    assert len(world.done) == 2, "the third call was begun in the first life, and is not known to have failed"
    assert len(set(world.done)) == 2


async def test_a_finished_call_is_never_refused_by_a_limit() -> None:
    world, journal = World(dies_in="C"), InMemoryJournal()
    both = [call("pay", invoice=each, id=each) for each in "AB"]
    script = ScriptedModel([both, call("pay", invoice="C", id="C"), "Done."])
    agent = Agent(name="payer", model=script, tools=[world.pay()], limits=Limits(calls=3))
    assert await life(world, agent, journal) is None
    world.dies_in = ""
    rest = Runtime(model=ScriptedModel(["Done."]))
    said = texts(await life(world, agent, journal, runtime=rest))
    assert said[:2] == ["paid A", "paid B"]
    assert "whether it took effect is unknown" in said[2]
    assert world.done == ["A", "B"]
    third = texts(await life(world, agent, journal, runtime=rest))
    assert third == said, "a third life says the same"


async def test_a_budget_that_outlives_the_lives_counts_each_once() -> None:
    """The program that goes on in the same process has counted what it recalls."""
    world, journal = World(dies_in="2"), InMemoryJournal()
    budget = Budget(tokens=100_000, scope="program")
    usage = Usage(requests=1, input_tokens=100, output_tokens=100)
    answers: list[Answer] = [say(call("pay", invoice=each, id=each), usage=usage) for each in "12"]
    agent = Agent(name="payer", model=following(*answers, say("Done.", usage=usage)), tools=[world.pay()])
    assert await life(world, agent, journal, runtime=Runtime(budget=budget)) is None
    assert budget.used_tokens == 400
    world.dies_in = ""
    assert isinstance(await life(world, agent, journal, runtime=Runtime(budget=budget)), Success)
    assert budget.used_tokens == 600
    elsewhere = Budget(tokens=100_000, scope="program")
    assert isinstance(await life(world, agent, journal, runtime=Runtime(budget=elsewhere)), Success)
    assert elsewhere.used_tokens == 600, "another one learns what was spent before"


def test_the_time_between_two_lives_does_not_count() -> None:
    lives = [(True, 100.0), (False, 101.0), (False, 103.5), (True, 9_000.0), (False, 9_000.5), (True, 9_999.0)]
    assert worked_s(lives) == 4.0
    assert worked_s([]) == 0.0


async def test_a_call_that_waits_for_an_approval_has_not_begun() -> None:
    world, journal = World(), InMemoryJournal()
    agent = Agent(name="payer", model=ScriptedModel([call("pay", invoice="A", id="A"), "Done."]), tools=[world.pay()])

    async def never(approval: Approval) -> Decision:
        await world.die()
        return Allow()

    async def at_once(approval: Approval) -> Decision:
        return Allow()

    assert await life(world, agent, journal, runtime=Runtime(gate=make_gate(Ask("May it?")), approver=never)) is None
    rest = Runtime(gate=make_gate(Ask("May it?")), approver=at_once, model=ScriptedModel(["Done."]))
    assert texts(await life(world, agent, journal, runtime=rest)) == ["paid A"]
    assert world.done == ["A"]


async def test_a_denial_is_not_asked_for_again() -> None:
    world, journal, asked = World(dies_in="B"), InMemoryJournal(), list[str]()

    class Denying:
        async def decide(self, request: GateRequest) -> Verdict:
            asked.append(str(request.arguments["invoice"]))
            return Ask("no") if request.arguments["invoice"] == "A" else Allow()

    script = ScriptedModel([call("pay", invoice="A", id="A"), call("pay", invoice="B", id="B"), "Done."])
    agent = Agent(name="payer", model=script, tools=[world.pay()])
    assert await life(world, agent, journal, runtime=Runtime(gate=Denying())) is None
    result = await life(world, agent, journal, runtime=Runtime(gate=Denying(), model=ScriptedModel(["Done."])))
    assert texts(result)[0] == "Error: denied: no"
    assert asked == ["A", "B"]


class Letter(BaseModel):
    text: str


async def test_functions_and_validators_are_not_asked_again() -> None:
    world, journal, asked = World(dies_in="A"), InMemoryJournal(), list[str]()

    def noted(name: str, value: object) -> Callable[..., Any]:
        def function(*given: object) -> object:
            asked.append(name)
            return value

        return function

    def is_long(letter: Letter) -> None:
        """It must be long."""
        asked.append("validator")
        if len(letter.text) < 5:
            raise Rejected("too short")

    def first_state(_: str) -> dict[str, int]:
        asked.append("state")
        return {"a": 1}

    def attempt_state(*_: object) -> dict[str, int]:
        asked.append("attempt")
        return {"b": 2}

    script: list[Answer] = [call("output", text="Hi", id="1"), call("pay", invoice="A", id="A")]
    agent = Agent(
        name="writer",
        model=ScriptedModel(script),
        output=Output(Letter),
        tools=[world.pay()],
        system=noted("system", "Write."),
        prompt=noted("prompt", "A letter."),
        run_state=first_state,
        attempt_state=attempt_state,
        validators=[is_long],
        error_prompt=noted("error", "Longer!"),
    )
    assert await life(world, agent, journal) is None
    before = sorted(asked)
    assert before == ["attempt", "attempt", "error", "prompt", "state", "system", "validator"]
    world.dies_in = ""
    rest = ScriptedModel([call("output", text="Hello, all.", id="2")])
    result = succeeded(await life(world, agent, journal, runtime=Runtime(model=rest)))
    assert result.output == Letter(text="Hello, all.")
    assert sorted(asked) == sorted([*before, "validator"])
    assert [message.text for message in rest.requests[0].messages if "Longer!" in str(message)] != []


async def test_a_stop_guard_is_not_asked_again() -> None:
    world, journal, asked = World(dies_in="A"), InMemoryJournal(), list[str]()

    def guard(stopping: StopContext) -> ContinueRun | None:
        asked.append(stopping.text)
        return ContinueRun("And then?") if stopping.text == "First." else None

    agent = Agent(
        name="payer",
        model=ScriptedModel(["First.", call("pay", invoice="A", id="A")]),
        tools=[world.pay()],
        stop_guard=guard,
    )
    assert await life(world, agent, journal) is None
    result = succeeded(await life(world, agent, journal, runtime=Runtime(model=ScriptedModel(["Last."]))))
    assert asked == ["First.", "Last."]
    assert "And then?" in [message.text for message in result.history]


@dataclass
class Item:
    name: str


async def test_states_are_given_back_by_the_type_that_is_declared() -> None:
    world, journal, seen = World(dies_in="A"), InMemoryJournal(), list[object]()

    @tool
    def add(name: str, context: ToolContext) -> str:
        context.set_run_state([*context.run_state(list[Item]), Item(name)])
        context.set_attempt_state(Item(name))
        return "added"

    @tool
    def look(context: ToolContext) -> str:
        seen.append((context.run_state(list[Item]), context.attempt_state(object)))
        return "seen"

    def empty(_: str) -> list[Item]:
        return []

    def nothing(*_: object) -> Item | None:
        return None

    script: list[Answer] = [call("add", name="x", id="1"), call("pay", invoice="A", id="A")]
    agent = Agent(
        name="adder",
        model=ScriptedModel(script),
        tools=[add, look, world.pay()],
        run_state=empty,
        attempt_state=nothing,
    )
    assert await life(world, agent, journal) is None
    rest = ScriptedModel([call("look", id="2"), "Done."])
    assert isinstance(await life(world, agent, journal, runtime=Runtime(model=rest)), Success)
    assert seen == [([Item("x")], Item("x"))]


async def test_a_step_without_facts_is_refused_in_one_sentence() -> None:
    """As steps were stored before they had facts: nothing is guessed of them."""
    journal = InMemoryJournal()
    journal.finished["head"] = b'{"agent":"adder","input":"Go."}'
    for limits in (Limits(), Limits(calls=3)):
        agent = Agent(name="adder", model=ScriptedModel(["Done."]), limits=limits)
        result = failed(await run(agent, "Go.", runtime=Runtime(journal=journal)))
        assert result.code is ErrorCode.INVALID_INPUT
        assert "it was stored by another version of journeyman" in result.error.message


async def test_a_state_that_may_be_anything_is_refused_where_it_would_have_to_be_stored() -> None:
    def anything(_: str) -> Any:  # noqa: ANN401 - it declares nothing that can be stored
        return []

    del anything.__annotations__["return"]

    agent = Agent(name="adder", model=ScriptedModel(["Done."]), run_state=anything)
    result = failed(await run(agent, "Go.", runtime=Runtime(journal=InMemoryJournal())))
    assert "Let the function that makes it declare the type that it returns" in str(result.error)
    assert isinstance(await run(agent, "Go."), Success)


async def test_a_state_of_another_type_than_the_declared_one_is_refused_where_it_would_have_to_be_stored() -> None:
    @tool
    def change(context: ToolContext) -> str:
        context.set_run_state(["x"])
        return "changed"

    def numbers(_: str) -> dict[str, int]:
        return {"x": 1}

    agent = Agent(name="changer", model=ScriptedModel([call("change"), "Done."]), tools=[change], run_state=numbers)
    result = failed(await run(agent, "Go.", runtime=Runtime(journal=InMemoryJournal())))
    assert "the state ['x'] is not what the function that makes it declares (dict[str, int])" in str(result.error)


async def test_a_state_function_may_declare_what_is_awaited_of_it() -> None:
    def later(_: str) -> Awaitable[list[Item]]:
        async def made() -> list[Item]:
            return [Item("x")]

        return asyncio.create_task(made())

    def anything(_: str, items: list[Item]) -> Awaitable[object]:
        return asyncio.create_task(asyncio.sleep(0, "y"))

    journal, seen = InMemoryJournal(), list[object]()

    @tool(effect="pure")
    def look(context: ToolContext) -> str:
        seen.append((context.run_state(list[Item]), context.attempt_state(str)))
        return "seen"

    for _ in range(2):
        model = ScriptedModel([call("look", id="1"), "Done."])
        agent = Agent(name="looker", model=model, tools=[look], run_state=later, attempt_state=anything)
        assert isinstance(await run(agent, "Go.", runtime=Runtime(journal=journal)), Success)
        journal.finished.pop("attempt/1/iteration/1/call/1", None)  # the second life makes the call, too
    assert seen == [([Item("x")], "y")] * 2


async def test_an_answer_with_an_id_that_is_no_text_is_stored() -> None:
    journal, world = InMemoryJournal(), World()
    results = [
        await life(world, Agent(name="payer", model=ScriptedModel(script), tools=[world.pay()]), journal)
        for script in ([call("pay", invoice="A", id="\ud800"), "Done."], [])
    ]
    assert isinstance(results[0], Success)
    assert isinstance(results[1], Success)
    assert (results[1].history, world.done) == (results[0].history, ["A"])


async def test_what_was_said_meanwhile_is_said_again_at_its_place() -> None:
    world, journal = World(dies_in="B"), InMemoryJournal()
    script: list[Answer] = [call("pay", invoice="A", id="A"), call("pay", invoice="B", id="B")]
    agent = Agent(name="payer", model=ScriptedModel(script), tools=[world.pay()])

    def steering(chat: Chat[Any]) -> Callable[[Event], None]:
        def on_event(event: Event) -> None:
            if isinstance(event, ToolCalled) and event.tool_use_id == "A":
                chat.steer("In euros.")

        return on_event

    async with Chat(agent, runtime=Runtime(journal=journal)) as chat:
        chat.subscribe(steering(chat))
        turn = asyncio.ensure_future(chat.prompt("Pay the invoices."))
        await cancelled(turn, when=world.reached)
    rest = ScriptedModel(["Done."])
    async with Chat(agent, runtime=Runtime(journal=journal, model=rest)) as chat:
        result = await chat.prompt("Pay the invoices.")
        assert "In euros." in [message.text for message in chat.messages]
    assert texts(result)[0] == SKIPPED, "a call that was skipped then is not made now"
    assert not world.done


async def test_what_is_said_while_a_run_replays_is_said_after_what_is_replayed() -> None:
    world, journal = World(dies_in="B"), InMemoryJournal()
    script: list[Answer] = [call("pay", invoice="A", id="A"), call("pay", invoice="B", id="B")]
    agent = Agent(name="payer", model=ScriptedModel(script), tools=[world.pay()])

    async def first_life() -> None:
        async with Chat(agent, runtime=Runtime(journal=journal)) as chat:
            await chat.prompt("Pay the invoices.")

    living = asyncio.create_task(first_life())
    await cancelled(living, when=world.reached)
    rest = ScriptedModel(["Done."])
    async with Chat(agent, runtime=Runtime(journal=journal, model=rest)) as chat:
        turn = chat.prompt("Pay the invoices.")
        chat.steer("In euros.")
        result = await turn
    assert [message.role for message in result.history] == ["user", "assistant"] * 3
    assert result.history[4].text == "In euros."
    assert texts(result)[0] == "paid A", "it was made before anything was said"
    assert "unknown" in texts(result)[1]


async def test_nobody_is_told_twice() -> None:
    world, journal = World(dies_in="B"), InMemoryJournal()
    events: list[Event] = []
    calls: list[str] = []
    callbacks = Callbacks(
        on_tool_call=lambda context, name, input: calls.append(f"{name} {input['invoice']}"),
        on_success=lambda context, output: calls.append(str(output)),
    )
    script: list[Answer] = [call("pay", invoice="A", id="A"), call("pay", invoice="B", id="B")]
    agent = Agent(name="payer", model=ScriptedModel(script), tools=[world.pay()])
    assert await life(world, agent, journal, on_event=events.append, callbacks=callbacks) is None
    first = len(events)
    assert isinstance(events[0], RunStarted)
    for _ in range(2):
        rest = Runtime(model=ScriptedModel(["Done."]))
        succeeded(await life(world, agent, journal, runtime=rest, on_event=events.append, callbacks=callbacks))
    resumed = instance_of(RunResumed, events[first])
    assert (resumed.path, resumed.attempt, resumed.iteration) == (("payer",), 1, 2)
    assert [type(event) for event in events].count(RunSucceeded) == 1
    assert calls == ["pay A", "pay B", "Done."]


async def test_what_a_finished_sub_agent_did_is_not_told_again_while_another_one_goes_on() -> None:
    world, journal, events = World(dies_in="D"), InMemoryJournal(), list[Event]()
    agent = replace(payers(world), limits=Limits())
    assert await life(world, agent, journal, on_event=events.append) is None
    world.dies_in = ""
    assert isinstance(await life(world, agent, journal, on_event=events.append), Success)
    told = [event.tool_use_id for event in events if isinstance(event, ToolCalled)]
    assert sorted(told) == ["A", "B", "C", "D", "s"]
    ended = [event.path[-1] for event in events if isinstance(event, RunSucceeded)]
    assert sorted(ended) == ["leader", "left#1", "right#2"]


async def test_a_sub_agent_that_first_begins_in_a_later_life_is_told_from_its_beginning() -> None:
    world, journal, events = World(), InMemoryJournal(), list[Event]()
    asking = asyncio.Event()

    class Held:
        async def decide(self, request: GateRequest) -> Verdict:
            if request.tool_name == "subagent" and not asking.is_set():
                await world.die()
            return Allow()

    assert await life(world, payers(world), journal, runtime=Runtime(gate=Held())) is None
    asking.set()
    succeeded(await life(world, payers(world), journal, runtime=Runtime(gate=Held()), on_event=events.append))
    began = [event.path[-1] for event in events if isinstance(event, RunStarted)]
    assert sorted(began) == ["left#1", "right#2"]


async def test_a_journal_answers_only_the_run_that_it_is_of() -> None:
    journal = InMemoryJournal()
    agent = Agent(name="one", model=ScriptedModel(["Done."], repeat=True))
    assert isinstance(await run(agent, "First.", runtime=Runtime(journal=journal)), Success)
    for other, input, named in (
        (agent, "Second.", "the journal is of the input 'First.', not of 'Second.'"),
        (replace(agent, name="two"), "First.", "the journal is of the agent 'one', not of 'two'"),
    ):
        result = failed(await run(other, input, runtime=Runtime(journal=journal)))
        assert result.code == "INVALID_INPUT"
        assert named in result.error.message


async def test_a_journal_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    journal = LinesJournal(tmp_path / "steps.jsonl")
    journal.path.unlink()
    agent = Agent(name="one", model=ScriptedModel(["Done."]))
    result = failed(await run(agent, "Go.", runtime=Runtime(journal=journal)))
    assert result.code == "INVALID_INPUT"
    assert "the journal cannot be used (FileNotFoundError: " in result.error.message


@virtual_clock
async def test_a_full_disk_holds_the_run_up_and_does_not_end_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paid: list[str] = []

    class Full(LinesJournal):
        """A journal on a disk that is full for a while."""

        until_s = 0.0

        def put(self, key: str, value: bytes | None) -> None:
            if asyncio.get_running_loop().time() < self.until_s:
                raise StoreError("No room.", hint="Make room.", may_pass=True)
            super().put(key, value)

    journal = Full(tmp_path / "steps.jsonl")

    @tool(effect="once")
    async def pay() -> str:
        journal.until_s = asyncio.get_running_loop().time() + 45
        paid.append("paid")
        return "paid " * 2_000

    agent = Agent(name="payer", model=ScriptedModel([call("pay", id="A"), "Done."]), tools=[pay])
    assert isinstance(await run(agent, "Go.", runtime=Runtime(journal=journal)), Success)
    keys = [key for key, _ in journal.stored()]
    assert keys[-3:] == ["attempt/1/iteration/1/call/A", "attempt/1/iteration/2/model", "end"]
    assert paid == ["paid"]
    waits = [each for each in caplog.messages if "The run waits until its step attempt/1/iteration/1/call/A" in each]
    assert len(waits) == 2, "it is said at once, and again after 30 s"


async def test_a_journal_that_is_gone_ends_the_run(tmp_path: Path) -> None:
    class Gone(LinesJournal):
        is_closed = False

        def put(self, key: str, value: bytes | None) -> None:
            if self.is_closed:
                raise StoreError("It could not be written.", hint="Open it again.")
            super().put(key, value)

    journal = Gone(tmp_path / "steps.jsonl")

    @tool
    async def close() -> str:
        journal.is_closed = True
        return "closed"

    agent = Agent(name="closer", model=ScriptedModel([call("close", id="A"), "Done."]), tools=[close])
    result = failed(await run(agent, "Go.", runtime=Runtime(journal=journal)))
    assert (result.code, "could not be written" in result.error.message) == ("INTERNAL_ERROR", True)


async def test_what_no_json_can_carry_is_stored_without_it() -> None:
    agent = Agent(name="one", model=ScriptedModel(["Done."], repeat=True), prompt=lambda input: f"{input} \ud83d")
    journal = InMemoryJournal()
    for _ in range(2):
        assert isinstance(await run(agent, "half a pair: \ud83d", runtime=Runtime(journal=journal)), Success)


@pytest.mark.parametrize("declared", [object, Any])
async def test_a_state_that_may_be_anything_comes_back_as_what_it_was(declared: Any) -> None:  # noqa: ANN401 - a type
    def make(input: str) -> Any:  # noqa: ANN401 - as a user may write it
        return Letter(text="first")

    make.__annotations__["return"] = declared

    @tool(effect="once")
    async def sign(ctx: ToolContext) -> str:
        ctx.set_run_state(Letter(text=f"{ctx.run_state(Letter).text}, signed"))
        return "signed"

    world, journal = World(dies_in="A"), InMemoryJournal()
    answers: list[Answer] = [call("sign", id="s"), call("pay", invoice="A", id="A"), "Done."]
    agent = Agent(
        name="signer",
        model=following(*answers),
        tools=[sign, world.pay()],
        run_state=make,
        final_state=lambda states: states.run,
    )
    assert await life(world, agent, journal) is None
    world.dies_in = ""
    assert succeeded(await life(world, agent, journal)).state == Letter(text="first, signed")


class Paid(BaseModel):
    invoice: str


async def test_a_preview_is_not_made_again() -> None:
    made: list[str] = []

    def preview(invoice: Paid) -> str:
        """Show what is paid."""
        made.append(invoice.invoice)
        return f"preview {len(made)}"

    world, journal = World(dies_in="A"), InMemoryJournal()
    model = following(call("output", invoice="A", id="o"), call("pay", invoice="A", id="A"))
    agent = Agent(name="payer", model=model, output=Output(Paid, reflection=preview), tools=[world.pay()])
    assert await life(world, agent, journal) is None
    world.dies_in = ""
    rest = Runtime(
        model=following(call("output", invoice="A", id="o"), call("pay", invoice="A", id="A"), call("submit", id="s"))
    )
    assert (made, texts(succeeded(await life(world, agent, journal, runtime=rest)))[0]) == (["A"], "preview 1")


def leading(world: World, child: Agent[Any, Any]) -> Agent[str, str]:
    """Return an agent that lets another one work, and then pays B."""
    script = following(
        call("subagent", agent=child.name, task="Look.", id="s"), call("pay", invoice="B", id="B"), "Done."
    )
    return Agent(name="leader", model=script, tools=[Subagents(child), world.pay()])


async def test_a_sub_agent_that_has_ended_is_not_begun_again_and_counts_as_before() -> None:
    world, journal, asked = World(dies_in="B"), InMemoryJournal(), list[int]()

    def answer(request: Request) -> Answer:
        asked.append(len(request.messages))
        return call("look", id="l") if len(request.messages) == 1 else "It is fine."

    look = make_tool("look", "fine", effect="pure")
    child = Agent(name="looker", description="Looks.", model=FunctionModel(answer), tools=[look])
    whole = succeeded(await life(World(), leading(World(), child), InMemoryJournal()))
    asked.clear()
    assert await life(world, leading(world, child), journal) is None
    keys = list(journal.finished)
    for key in keys:  # all that is left of the sub-agent is its end
        if "/single/0/" in key and not key.endswith("/end"):
            del journal.finished[key]
    world.dies_in = ""
    result = succeeded(await life(world, leading(world, child), journal))
    assert len(asked) == 2
    [record], [expected] = result.metadata.children, whole.metadata.children
    assert replace(record, latency_s=0.0) == replace(expected, latency_s=0.0)
    assert result.metadata.usage == whole.metadata.usage


async def test_a_sub_agent_whose_time_was_up_is_not_gone_on_with() -> None:
    world, journal, asked = World(dies_in="B"), InMemoryJournal(), list[int]()

    async def hang(request: Request) -> Answer:
        asked.append(1)
        await asyncio.Event().wait()
        return "never"

    limits = Limits(seconds=0.02)
    child = Agent(name="looker", description="Looks.", model=FunctionModel(hang), limits=limits)
    assert await life(world, leading(world, child), journal) is None
    world.dies_in = ""
    result = succeeded(await life(world, leading(world, child), journal))
    assert len(asked) == 1
    assert "BUDGET_EXCEEDED" in texts(result)[0] or "seconds" in texts(result)[0]


@virtual_clock
async def test_a_deadline_that_has_passed_stops_a_run_only_where_it_was() -> None:
    """It keeps what it has done and used in its earlier lives."""
    journal, reached = InMemoryJournal(), asyncio.Event()

    @tool(effect="once")
    async def pay(invoice: str) -> str:
        if invoice == "B":
            reached.set()
            await asyncio.Event().wait()
        await asyncio.sleep(8)
        return f"paid {invoice}"

    answers: list[Answer] = [call("pay", invoice=each, id=each) for each in "AB"]
    agent = Agent(name="payer", model=following(*answers, "Done."), tools=[pay], limits=Limits(seconds=10))
    living: asyncio.Task[Any] = asyncio.create_task(run(agent, "Pay.", runtime=Runtime(journal=journal)))
    await cancelled(living, when=reached)
    hurried = Agent(name="payer", model=following(*answers, "Done."), tools=[pay], limits=Limits(seconds=5))
    result = failed(await run(hurried, "Pay.", runtime=Runtime(journal=journal)))
    assert result.code is ErrorCode.BUDGET_EXCEEDED
    assert texts(result)[0] == "paid A"
    assert result.metadata.usage is not None
    assert result.metadata.usage.requests == 2
