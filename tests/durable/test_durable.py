"""Durable runs, as a program uses them: they go on where they were, wait without a process, and are told apart."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from journeyman import (
    Abort,
    Agent,
    Callbacks,
    ErrorCode,
    Event,
    Failure,
    Limits,
    Output,
    Result,
    Runtime,
    Success,
    ToolContext,
    ask_user,
    run,
    tool,
)
from journeyman.durable import Durable, InMemoryEngine, Memory, PostgresEngine, Queue, RunHandle, RunInfo, Worker
from journeyman.durable.engine import Engine
from journeyman.durable.records import Change
from journeyman.durable.sqlite import SqliteEngine
from journeyman.errors import RunBlocked, RunDiffers, RunInUse, RunOver, RunUnknown, StoreError
from journeyman.events import RunResumed
from journeyman.gate import Allow, Approval, Decision, Deny
from journeyman.journal import InMemoryJournal
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call
from tests.durable.processes import IN_POSTGRES, a_step
from tests.durable.worlds import AsksAbout, World, payer, until
from tests.play import Door, Report, cancelled, existing, failed, following, succeeded, texts
from tests.support.invariants_history import history_faults

WEEK_S = 7 * 24 * 3600.0
NOW = 1.8e9


@pytest.fixture(params=["memory", "sqlite", IN_POSTGRES])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Durable]:
    """Returns what opens one store as another process would."""
    memory = Memory()
    kinds: dict[str, Callable[[], Engine]] = {
        "memory": lambda: InMemoryEngine(memory),
        "sqlite": lambda: SqliteEngine(tmp_path / "runs.db"),
        "postgres": lambda: PostgresEngine(request.getfixturevalue("emptied"), grace_s=0.0),
    }
    if request.param == "postgres":
        request.getfixturevalue("emptied")

    def opened(**options: Any) -> Durable:
        engine = kinds[request.param]()
        given: dict[str, Any] = {"suspend_after_s": 0.02, **options}
        return Durable(engine, **given)

    return opened


Process = Callable[..., Durable]


def results(result: Result[Any]) -> list[str]:
    """Return what the calls of a run resulted in."""
    assert not list(history_faults(result.history))
    return texts(result)


@pytest.mark.parametrize("dies", [False, True])
async def test_a_tool_stops_its_run_for_good_also_if_that_dies_at_once(process: Process, dies: bool) -> None:
    begun = asyncio.Event()

    @tool(effect="once")
    async def give_up(ctx: ToolContext) -> str:
        """Give up."""
        ctx.stop("the page is gone")
        return "noted"

    @tool(effect="idempotent")
    async def tell(ctx: ToolContext) -> str:
        """Tell of it."""
        return "told"

    async def dying(kind: object) -> None:
        begun.set()
        if dies:
            await asyncio.Event().wait()

    callbacks = Callbacks(on_tool_result=lambda context, name, result: dying(name))
    agent = Agent(name="quitter", model=ScriptedModel([[call("give_up"), call("tell")]]), tools=[give_up, tell])
    async with process() as durable:
        living = asyncio.create_task(durable.run(agent, "Go.", id="7", callbacks=callbacks))
        await begun.wait()
        if dies:
            await cancelled(living)
        else:
            await living
    async with process() as durable:
        again = failed(await durable.run(replace(agent, model=ScriptedModel([])), "Go.", id="7"))
        info = (await durable.list())[0]
    assert str(again.error).endswith("running tools: the page is gone.")
    assert results(again) == ["noted", "Error: not run, because an earlier call has stopped the run."]
    assert (info.status, info.leases) == ("cancelled", 1 + dies)


async def test_the_same_id_is_the_same_run_and_its_result_is_stored(process: Process) -> None:
    world = World()
    async with process() as durable:
        first = succeeded(await durable.run(payer(world), "Pay.", id="7"))
    async with process() as durable:
        agent = payer(world, model=ScriptedModel([]))
        again = succeeded(await durable.run(agent, "Pay.", id="7"))
        info = (await durable.list())[0]
    assert (again.output, again.history, again.metadata.usage) == (first.output, first.history, first.metadata.usage)
    assert world.done == ["A", "B"]
    assert (info.status, info.leases, info.tokens) == (
        "done",
        1,
        first.metadata.usage and first.metadata.usage.total_tokens,
    )


async def test_deps_are_given_anew_in_each_life_and_a_run_that_lacks_them_waits_for_who_has_them(
    process: Process,
) -> None:
    class Db:
        """What is never stored."""

    seen, world = list[object](), World(dies_after="B")

    def matches(text: str, db: Db) -> None:
        seen.append(db)

    agent = replace(payer(world), deps=Db, validators=[matches])
    first, second = Db(), Db()
    async with process() as durable:
        living = asyncio.create_task(durable.run(agent, "Pay.", id="7", deps=first))
        await cancelled(living, when=world.reached)
        world.dies_after = ""
        unbound: Any = agent
        with pytest.raises(RunDiffers, match="deps are missing: the agent needs Db"):
            await durable.resume("7", unbound)
        with pytest.raises(RunDiffers, match="deps are of type int, and the agent needs Db"):
            await durable.resume("7", unbound, deps=3)
        await Worker(durable, agents=[unbound]).run(until_idle=True)
        assert not (await (await durable.get("7")).info()).is_over
        handle = await durable.start(agent, "Pay.", id="8")
        assert isinstance(await durable.run(unbound, "Pay.", id="9"), Failure)
        assert [info.name for info in await durable.list()] == ["8", "7"]
        await Worker(durable, agents=[agent.with_deps(second)]).run(until_idle=True)
        assert isinstance(await handle.result(), Success)
        assert isinstance(await durable.run(agent, "Pay.", id="7", deps=first), Success)
    assert seen == [second, second]


async def test_a_stored_output_has_its_type_where_the_agent_is_there(process: Process) -> None:
    agent = Agent(name="counter", model=ScriptedModel([call("output", total=3)]), output=Output(Report))
    async with process() as durable:
        await durable.run(agent, "Count.", id="7")
    async with process() as durable:
        assert (await (await durable.get("7", agent)).result()).unwrap() == Report(total=3)
        assert (await (await durable.get("7")).result()).unwrap() == {"total": 3}


async def test_a_failure_is_stored_with_its_facts(process: Process) -> None:
    agent = Agent(name="talker", model=ScriptedModel([call("nothing")] * 3), limits=Limits(iterations=2))
    async with process() as durable:
        first = failed(await durable.run(agent, "Talk.", id="7"))
        again = failed(await durable.run(agent, "Talk.", id="7"))
    assert again.error == first.error
    assert again.code is ErrorCode.MAX_ITERATIONS
    assert again.metadata.tools == first.metadata.tools


@pytest.mark.parametrize(
    "stored", [b"", b"{", b"[1]", b'{"kind": "end", "value": {"metadata": 3}}', b'{"kind": "end", "value": []}']
)
async def test_a_result_that_cannot_be_read_is_told_so(process: Process, stored: bytes) -> None:
    async with process() as durable:
        handle = await durable.start(payer(World()), "Pay.", id="7")
        claim, end = existing(await durable.hub.engine.claim(handle.id, now=NOW)), a_step(handle.id, "end", stored)
        assert await durable.hub.engine.settle(claim, Change(status="done", end=end), now=NOW)
        with pytest.raises(RunBlocked, match="its stored result cannot be read"):
            await handle.result()
        with pytest.raises(RunBlocked, match="its stored result cannot be read"):
            await durable.run(payer(World()), "Pay.", id="7")


async def test_nobody_is_told_again_what_was_told_before(process: Process) -> None:
    world, told = World(dies_after="B"), list[str]()
    events: list[Event] = []
    callbacks = Callbacks(on_tool_call=lambda context, name, input: told.append(str(input["invoice"])))
    async with process() as durable:
        living = asyncio.create_task(durable.run(payer(world), "Pay.", id="7", callbacks=callbacks))
        await cancelled(living, when=world.reached)
    async with process() as durable:
        await durable.run(payer(world), "Pay.", id="7", callbacks=callbacks, on_event=events.append)
    assert told == ["A", "B"]
    assert isinstance(events[0], RunResumed)


async def test_a_run_is_driven_by_one_process_at_a_time(process: Process) -> None:
    world = World(dies_after="A")
    async with process() as first, process() as second:
        living = asyncio.create_task(first.run(payer(world), "Pay.", id="7"))
        await world.reached.wait()
        with pytest.raises(RunInUse, match="driven by"):
            await second.run(payer(world), "Pay.", id="7")
        with pytest.raises(RunInUse, match="this process"):
            await first.run(payer(world), "Pay.", id="7")
        await cancelled(living)


async def test_another_run_under_the_same_id_is_refused_and_the_difference_named(process: Process) -> None:
    world = World()
    async with process() as durable:
        await durable.run(payer(world), "Pay.", id="7")
        with pytest.raises(RunDiffers, match=r"its input is 'Pay.', not 'Pay twice.'"):
            await durable.run(payer(world), "Pay twice.", id="7")
        with pytest.raises(RunDiffers, match="one of the agent 'payer', not of 'other'"):
            await durable.run(Agent(name="other", model=ScriptedModel([])), "Pay.", id="7")
        with pytest.raises(RunDiffers, match="its max_attempts is None, not 2"):
            await durable.run(payer(world), "Pay.", id="7", max_attempts=2)
        with pytest.raises(RunDiffers, match="not of 'other'"):
            await durable.resume("7", Agent(name="other", model=ScriptedModel([])))


async def test_a_run_never_goes_on_with_fewer_gates_than_it_began_with(process: Process) -> None:
    world = World(dies_after="A")
    async with process() as durable:
        living = asyncio.create_task(durable.run(payer(world), "Pay.", id="7", runtime=Runtime(gate=AsksAbout("X"))))
        await cancelled(living, when=world.reached)
    async with process() as durable:
        with pytest.raises(RunDiffers, match="begun with the gate AsksAbout, which this program does not give it"):
            await durable.run(payer(world), "Pay.", id="7")
        worker = Worker(durable, agents=[payer(world)])
        await worker.run(until_idle=True)
        assert (await durable.list())[0].status == "ready"
        result = await durable.run(
            payer(world, gate=AsksAbout("X")), "Pay.", id="7", runtime=Runtime(gate=AsksAbout("X"))
        )
        assert isinstance(result, Success)


async def test_a_blocked_run_that_is_stopped_ends_with_what_it_has_used(process: Process) -> None:
    world = World(dies_after="B")
    async with process() as durable:
        living = asyncio.create_task(durable.run(payer(world), "Pay.", id="7"))
        await cancelled(living, when=world.reached)
        handle = await durable.get("7")
        used = (await handle.info()).tokens
        assert used > 0
        changed = payer(world, system="Be careful.")
        with pytest.raises(RunBlocked):
            await durable.run(changed, "Pay.", id="7")
        assert (await handle.info()).tokens == used
        await handle.stop("enough")
        result = failed(await durable.resume("7", changed))
        assert result.code == "EXECUTION_CANCELLED"
        assert result.metadata.usage is not None
        assert (result.metadata.usage.total_tokens, result.metadata.usage.exact) == (used, False)
        assert (await handle.info()).tokens == used


async def test_a_fork_takes_what_was_done_before_and_goes_its_own_way(process: Process) -> None:
    world = World()
    async with process() as durable:
        await durable.run(payer(world), "Pay.", id="7")
        changed = payer(world, "A", "C", system="Be careful.")
        branch = await durable.fork("7", at=(1, 2), agent=changed, id="branch")
        assert await (await durable.get("7")).effects((1, 2)) == ("attempt/1/iteration/2/call/pay-B",)
        result = succeeded(await durable.resume("branch", changed))
        assert world.done == ["A", "B", "C"]
        assert results(result) == ["paid A", "paid C"]
        assert (await branch.info()).parent == (await (await durable.get("7")).info()).id


async def test_a_fork_that_is_stopped_before_it_goes_on_keeps_what_was_done(process: Process) -> None:
    world = World()
    async with process() as durable:
        await durable.run(payer(world), "Pay.", id="7")
        branch = await durable.fork("7", at=(1, 3), id="branch")
        await branch.stop("not today")
        events: list[Event] = []
        result = failed(await durable.resume("branch", payer(world), on_event=events.append))
    assert results(result) == ["paid A", "paid B"]
    assert existing(result.metadata.usage).requests == 2
    assert isinstance(events[0], RunResumed)


@pytest.mark.parametrize(("at", "why"), [((0, 0), "never at 0/0"), ((1, 9), "never at 1/9"), ((2, 1), "never at 2/1")])
async def test_a_fork_at_no_place_is_refused(process: Process, at: tuple[int, int], why: str) -> None:
    async with process() as durable:
        await durable.run(payer(World()), "Pay.", id="7")
        with pytest.raises(ValueError, match=why):
            await durable.fork("7", at=at)
        await durable.start(payer(World()), "Pay.", id="8")
        with pytest.raises(ValueError, match="has done nothing yet"):
            await durable.fork("8", at=(1, 1))


async def test_a_call_has_one_idempotency_key_in_all_lives_and_another_in_a_fork(process: Process) -> None:
    keys: list[str] = []
    hangs = asyncio.Event()

    @tool(effect="idempotent")
    async def send(ctx: ToolContext) -> str:
        """Send."""
        keys.append(ctx.idempotency_key)
        if len(keys) == 1:
            hangs.set()
            await asyncio.Event().wait()
        return "sent"

    agent = Agent(name="sender", model=following(call("send", id="s"), "Sent."), tools=[send])
    async with process() as durable:
        living = asyncio.create_task(durable.run(agent, "Send.", id="7"))
        await cancelled(living, when=hangs)
        await durable.run(agent, "Send.", id="7")
        branch = await durable.fork("7", at=(1, 1))
        await durable.resume(branch.id, agent)
    assert len(keys) == 3
    assert len(keys[0]) == 32
    assert keys[0] == keys[1] != keys[2]


async def suspended(process: Process, agent: Agent[Any, Any], **options: Any) -> RunInfo:
    """Begin the run 7, and leave when it is a row."""
    async with process(**options) as durable:
        living = asyncio.create_task(durable.run(agent, "Pay.", id="7"))
        info = await until(durable, "7", "waiting")
        await cancelled(living)
        return info


async def test_the_first_answer_counts_and_the_second_is_told_who_gave_it(process: Process) -> None:
    world = World()
    asked = await suspended(process, payer(world, gate=AsksAbout("B")), now=lambda: NOW)
    digest = asked.pending[0].question_id
    async with process(now=lambda: NOW + 60) as durable:
        handle = await durable.get("7")
        with pytest.raises(
            LookupError, match=rf"No question waits under '123456' in the run [0-9a-f-]+. It waits for {digest[:12]}"
        ):
            await handle.approve("123456", Allow())
        with pytest.raises(ValueError, match="blank"):
            await handle.steer("  ")
        await handle.approve(digest, Deny("too much"), who="Ada")
        with pytest.raises(LookupError, match="answered before: deny, by Ada, 0 s ago"):
            await handle.approve(digest, Allow(), who="Bob")
        result = await durable.run(payer(world, gate=AsksAbout("B")), "Pay.", id="7")
        assert results(result)[1] == "Error: denied: too much"
        with pytest.raises(RunOver, match="has ended"):
            await handle.steer("Go on.")


async def test_an_approver_of_the_program_is_asked_once(process: Process) -> None:
    world, asked = World(dies_after="B"), list[str]()

    async def approve(approval: Approval) -> Decision:
        asked.append(approval.question)
        return Allow()

    runtime = Runtime(approver=approve, gate=AsksAbout("A", "B"))
    async with process() as durable:
        living = asyncio.create_task(durable.run(payer(world), "Pay.", id="7", runtime=runtime))
        await cancelled(living, when=world.reached)
        await durable.run(payer(world), "Pay.", id="7", runtime=runtime)
    assert asked == ["Pay A?", "Pay B?"]


async def test_a_question_of_the_model_may_be_answered_later(process: Process) -> None:
    model = following(call("ask_user", question="In euros?", id="q"), "In euros, then.")
    agent = Agent(name="payer", model=model, tools=[ask_user])
    asked = await suspended(process, agent)
    assert (asked.pending[0].kind, asked.pending[0].question) == ("answer", "In euros?")
    async with process() as durable:
        handle = await durable.get("7")
        digest = asked.pending[0].question_id
        with pytest.raises(LookupError):
            await handle.approve(digest, Allow())
        with pytest.raises(LookupError, match="at least its first 6 characters"):
            await handle.answer(digest[:5], "Yes.")
        await handle.answer(digest, "Yes.", who="Ada")
        with pytest.raises(LookupError, match="answered before: a text, by Ada"):
            await handle.answer(digest, "No.")
        result = await durable.run(agent, "Pay.", id="7")
        assert results(result) == ["Yes."]


async def test_what_is_said_when_a_run_has_its_answer_is_answered_too(process: Process) -> None:
    answering = asyncio.Event()

    async def answer(request: Request) -> Answer:
        texts = [message.text for message in request.messages if message.role == "user"]
        if len(texts) > 1:
            return f"Heard: {texts[-1]}"
        answering.set()
        await until(durable, "7", "running")
        await steered.wait()
        return "Done."

    steered = asyncio.Event()
    agent = Agent(name="talker", model=FunctionModel(answer))
    async with process() as durable:
        living = asyncio.create_task(durable.run(agent, "Talk.", id="7"))
        await answering.wait()
        await (await durable.get("7")).steer("In euros.")
        await durable.hub.look()
        steered.set()
        assert (await living).unwrap() == "Heard: In euros."
        branch = await durable.fork("7", at=(1, 3))
        assert succeeded(await durable.resume(branch.id, agent)).history == (await living).history


async def test_an_abort_of_the_program_ends_the_run(process: Process) -> None:
    world, abort = World(dies_after="B"), Abort()
    async with process() as durable:
        living = asyncio.create_task(durable.run(payer(world), "Pay.", id="7", abort=abort))
        await world.reached.wait()
        abort.abort("enough")
        failed(await living)
        assert (await durable.list())[0].status == "cancelled"


async def test_a_run_that_is_held_begins_no_step_until_it_is_released(process: Process) -> None:
    world, door = World(), Door()
    model = following(call("wait", id="w"), call("pay", invoice="A", id="a"), "Done.")
    agent = payer(world, model=model, tools=[door.tool(effect="once"), world.pay()])
    async with process() as durable:
        living = asyncio.create_task(durable.run(agent, "Pay.", id="7"))
        await door.reached.wait()
        handle = await durable.get("7")
        await handle.hold()
        door.opened.set()
        await until(durable, "7", "held")
        assert not world.done
        assert not living.done()
        await handle.release()
        assert results(await living) == ["waited", "paid A"]


async def test_a_worker_does_what_was_started(process: Process) -> None:
    world = World()
    async with process() as durable:
        handle = await durable.start(payer(world), "Pay.", idempotency_key="today")
        same = await durable.start(payer(world), "Pay.", idempotency_key="today")
        assert same.id == handle.id
        assert (await handle.info()).status == "ready"
    async with process() as durable:
        await Worker(durable, agents=[payer(world)]).run(until_idle=True)
        result = await RunHandle[str](durable.hub, handle.id).result()
    assert result.unwrap() == "All are paid."
    assert world.done == ["A", "B"]


def test_a_worker_that_could_do_nothing_is_refused(process: Process) -> None:
    durable, agent = process(), payer(World())
    with pytest.raises(ValueError, match="without agents"):
        Worker(durable, agents=[])
    with pytest.raises(ValueError, match="Two agents are called 'payer'"):
        Worker(durable, agents=[agent, payer(World())])
    with pytest.raises(ValueError, match="max_concurrency=0"):
        Worker(durable, agents=[agent], max_concurrency=0)
    with pytest.raises(ValueError, match="lets 0 runs"):
        Worker(durable, agents=[agent], queues={"q": Queue(max_concurrency=0)})


@pytest.mark.parametrize(
    ("id", "why"),
    [("", "it is empty"), ("  ", "it is empty"), ("a" * 201, "201 characters"), ("a\n", "cannot be shown")],
)
async def test_an_id_that_is_none_is_refused(process: Process, id: str, why: str) -> None:
    async with process() as durable:
        with pytest.raises(ValueError, match=why):
            await durable.run(payer(World()), "Pay.", id=id)


async def test_an_unknown_run_is_told_with_the_nearest(process: Process) -> None:
    async with process() as durable:
        with pytest.raises(RunUnknown, match="There is none yet"):
            await durable.get("invoice-7")
        await durable.start(payer(World()), "Pay.", id="invoices-7")
        with pytest.raises(RunUnknown, match="Did you mean invoices-7"):
            await durable.get("invoice-7")
        assert (await (await durable.get("invoi")).info()).name == "invoices-7"


@pytest.mark.parametrize("store", ["mysql://host/db", "redis:runs", ""])
def test_a_store_of_another_kind_is_refused(store: str) -> None:
    with pytest.raises(ValueError, match="Give a path, sqlite:PATH, or postgresql://…"):
        Durable(store)


async def test_what_is_not_open_here_is_not_used(tmp_path: Path) -> None:
    durable = Durable(tmp_path / "runs.db")
    with pytest.raises(RuntimeError, match="is not open"):
        await durable.run(payer(World()), "Pay.")
    async with durable:
        with pytest.raises(RuntimeError, match="entered before"):
            await durable.__aenter__()

        def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                asyncio.run(durable.list())

        await asyncio.to_thread(elsewhere)
        with pytest.raises(ValueError, match="The runtime has a journal"):
            await durable.run(payer(World()), "Pay.", runtime=Runtime(journal=InMemoryJournal()))


async def test_a_clock_that_must_be_wrong_is_told(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    async with process(now=lambda: 1e9):
        pass
    assert "The clock says 2001-09-09 01:46:40+00:00: before 2020" in caplog.text


async def test_a_wrong_input_begins_no_run(process: Process) -> None:
    agent = Agent(name="counter", model=ScriptedModel([]), input=Report)
    async with process() as durable:
        given: Any = "three"
        assert failed(await durable.run(agent, given, id="7")).code is ErrorCode.INVALID_INPUT
        assert await durable.list() == ()


async def test_an_input_that_no_longer_fits_blocks_the_run(process: Process) -> None:
    class Other(BaseModel):
        n: int

    async with process() as durable:
        agent = Agent(name="counter", model=ScriptedModel(["3"]), input=Report)
        await durable.start(agent, Report(total=3), id="7")
        with pytest.raises(RunBlocked, match="its input no longer fits the agent's type"):
            await durable.resume("7", Agent(name="counter", model=ScriptedModel(["3"]), input=Other))
        assert isinstance(await durable.resume("7", agent), Success)


async def test_only_runs_that_have_ended_are_forgotten(process: Process) -> None:
    world, clock = World(), [NOW]
    async with process(now=lambda: clock[0]) as durable:
        await durable.run(payer(world), "Pay.", id="old")
        await durable.start(payer(world), "Pay.", id="open")
        clock[0] += WEEK_S
        await durable.run(payer(world), "Pay.", id="new")
        with pytest.raises(ValueError, match="'open' is ready: only runs that have ended"):
            await durable.forget("open")
        assert [each.name for each in await durable.forget(older_s=3600, dry=True)] == ["old"]
        assert [each.name for each in await durable.forget(older_s=3600)] == ["old"]
        assert {each.name for each in await durable.list()} == {"open", "new"}


async def test_a_run_costs_nothing_where_there_is_no_store() -> None:
    succeeded(await run(payer(World()), "Pay."))


async def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.write_text("Dear diary")
    with pytest.raises(StoreError, match="is not a store"):
        async with Durable(path):
            pass
