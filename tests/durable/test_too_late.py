"""Signals of the last moment: to a run that is about to end, or about a question that is about to expire.

They are obeyed, or somebody is told; and when one came is what its sender's clock says.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

import pytest

from journeyman import Agent, Callbacks, Chat, Event, Success
from journeyman.durable.durable import Durable
from journeyman.durable.engine import Taken
from journeyman.durable.worker import Worker
from journeyman.errors import RunOver
from journeyman.gate import DECISION, Allow
from journeyman.inbox.signals import PendingQuestion, Signal, SignalKind
from journeyman.types import JsonObject
from tests.durable.processes import Process, Stage, a_signal
from tests.durable.worlds import World, asked, asking_agent, do, is_cancelled, until
from tests.play import following, texts, virtual_clock


def clerk(world: World) -> Agent[str, str]:
    return Agent(name="clerk", model=following(do("idempotent", "A"), "Done.", "Again."), tools=world.tools())


def send_before(process: Process, name: str, run: str, *signals: Signal) -> list[Taken]:
    """Send signals just before the first call of this name about a run; return what the store answers."""
    taken: list[Taken] = []

    async def send(called: str) -> None:
        row = await process.engine.get(run) if called == name and not taken else None
        if row is not None and row.status == "running":
            taken.extend([await process.engine.signal(each._replace(run=row.id)) for each in signals])

    process.before = send
    return taken


@virtual_clock
async def test_a_stop_that_the_store_took_before_the_end_ends_the_run_and_all_hear_of_that_end(stage: Stage) -> None:
    process, events = stage.process(), list[Event]()
    taken = send_before(process, "settle", "run", a_signal("", "stop", reason="not today"))
    async with Durable(process, now=stage.now) as durable:
        result = await durable.run(clerk(World()), "Go.", id="run", on_event=events.append)
        info = await (await durable.get("run")).info()
    assert taken == ["taken"]
    assert is_cancelled(result)
    assert (info.status, info.reason) == ("cancelled", "EXECUTION_CANCELLED")
    assert [type(each).__name__ for each in events if type(each).__name__ in ("RunSucceeded", "RunFailed")] == [
        "RunFailed"
    ]


@virtual_clock
async def test_a_word_after_the_end_was_stored_is_refused_also_while_callbacks_are_still_told(stage: Stage) -> None:
    refused = list[str]()

    async with stage.durable() as durable, stage.durable() as other:

        async def on_success(*_: object) -> None:
            handle = await other.get("run")
            for send in (handle.stop, handle.hold, handle.release, partial(handle.steer, "Wait.")):
                with pytest.raises(RunOver) as over:
                    await send()
                refused.append(str(over.value))

        result = await durable.run(clerk(World()), "Go.", id="run", callbacks=Callbacks(on_success=on_success))
    assert isinstance(result, Success)
    assert result.metadata.callback_errors == ()
    assert len(refused) == 4


@virtual_clock
async def test_a_hold_just_before_the_end_holds_the_run_until_it_is_released(stage: Stage) -> None:
    world, process = World(), stage.process()
    agent = clerk(world)
    taken = send_before(process, "settle", "run", a_signal("", "hold"))
    async with Durable(process, now=stage.now) as durable:
        running = asyncio.create_task(durable.run(agent, "Go.", id="run"))
        await asyncio.sleep(1)  # virtual
        await until(durable, "run", "held")
        await (await durable.get("run")).release()
        assert isinstance(await running, Success)
    assert taken == ["taken"]
    assert world.done == ["A"]


@virtual_clock
async def test_a_text_and_an_answer_that_come_when_the_run_has_its_answer_are_said_to_be_late(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    process = stage.process()
    said = a_signal("", "steer", text="Wait.")
    answer = a_signal("", "approve", "attempt/1/iteration/9/call/A/approval/1/ab", digest="abcdef")
    taken = send_before(process, "settle", "run", said, answer)
    with caplog.at_level(logging.WARNING, "journeyman"):
        async with Durable(process, now=stage.now) as durable:
            assert isinstance(await durable.run(clerk(World()), "Go.", id="run"), Success)
    assert taken == ["taken", "taken"]
    text, answer = [record.getMessage() for record in caplog.records]
    assert [part for part in ("clerk", "'Wait.'", "too late") if part not in text] == []
    assert [part for part in ("clerk", "approve by ann@host", "too late") if part not in answer] == []


@pytest.mark.parametrize(("kind", "ends"), [("stop", "EXECUTION_CANCELLED"), ("steer", "SUCCESS")])
@virtual_clock
async def test_the_end_of_a_chats_turn_obeys_a_stop_and_says_a_text_in_its_next_run(
    stage: Stage, kind: SignalKind, ends: str
) -> None:
    process = stage.process()
    taken = send_before(process, "settle", "chat/1/1", a_signal("", kind, text="And then?", reason="not today"))
    async with (
        Durable(process, now=stage.now) as durable,
        Chat.open(clerk(World()), durable, id="1", create=True) as chat,
    ):
        result = await chat.prompt("Go.")
        assert taken == ["taken"]
        assert result.code == ends
        said = [block.text for message in chat.messages for block in message.content if block.type == "text"]
    assert said == (["Go.", "Done."] if kind == "stop" else ["Go.", "Done.", "And then?", "Again."])


@virtual_clock
async def test_a_run_whose_process_died_before_its_end_was_stored_tells_its_end_in_the_next_life(stage: Stage) -> None:
    process, dying = stage.process(), asyncio.Event()

    async def die(name: str) -> None:
        if name == "settle":
            dying.set()
            await asyncio.Event().wait()

    process.before = die
    events, agent = list[Event](), clerk(World())
    assert await stage.life(agent, until=dying, process=process, on_event=events.append) is None
    assert "RunSucceeded" not in [type(each).__name__ for each in events]
    async with stage.durable() as other:
        await (await other.get("run")).stop("not today")
    assert is_cancelled(await stage.life(agent, on_event=events.append))
    assert [type(each).__name__ for each in events][-2:] == ["RunResumed", "RunFailed"]


def answered(question: PendingQuestion, at: float) -> Signal:
    """Return an approval that was given at a moment."""
    body: JsonObject = {"decision": {"decision": "allow"}, "digest": question.question_id}
    assert DECISION.decode(b'{"decision":"allow"}') == Allow()
    return Signal(0, "", "approve", question.key, body, at, "ann@host")


DRIVERS = ("a worker", "the program", "an operator")


async def driven(stage: Stage, agent: Agent[str, str], by: str) -> Sequence[str]:
    """Let somebody drive the run that waits, and return what its model has read."""
    async with stage.durable(suspend_after_s=1) as durable:
        if by == "a worker":
            await Worker(durable, agents=[agent]).run(until_idle=True)
        elif by == "the program":
            await durable.run(agent, "Go.", id="run")
        else:
            await durable.resume("run", agent)
        return texts(await (await durable.get("run", agent)).result())


async def suspended(stage: Stage, agent: Agent[str, str]) -> PendingQuestion:
    """Let the run wait outside of memory, and return what it waits for."""
    async with stage.durable(suspend_after_s=1) as durable:
        await durable.start(agent, "Go.", id="run")
        await durable.resume("run", agent)
        info = await until(durable, "run", "waiting")
        [question] = info.pending
        assert info.wake_at == question.expires_at
        return question


@pytest.mark.share(one_in=4)
@pytest.mark.parametrize("by", DRIVERS)
@pytest.mark.parametrize("late_s", [0.0, 3_600.0, -1.0])
@virtual_clock
async def test_an_approval_counts_if_it_was_given_before_its_question_expired(
    stage: Stage, by: str, late_s: float
) -> None:
    """Nobody looks before an hour has passed: neither who is first then, nor when, makes a difference."""
    world = World()
    agent = asking_agent(world, approval_seconds=60)
    question = await suspended(stage, agent)
    assert question.expires_at is not None
    async with stage.durable() as other:
        row = await other.hub.row("run")
        assert await other.hub.engine.signal(answered(question, question.expires_at + late_s)._replace(run=row.id)) == (
            "taken"
        )
    stage.skipped_s += 3_600
    read = await driven(stage, agent, by)
    assert world.done == (["A"] if late_s < 0 else [])
    assert ("nobody answered within 60s" in read[0]) == (late_s >= 0)


@virtual_clock
async def test_who_answers_a_question_that_has_expired_is_told_so_and_nothing_is_sent(stage: Stage) -> None:
    world = World()
    agent = asking_agent(world, approval_seconds=60)
    question = await suspended(stage, agent)
    stage.skipped_s += 3_600
    async with stage.durable() as other:
        handle = await other.get("run")
        with pytest.raises(LookupError, match=r"The question about once expired 3,5\d\d s ago, and counts as denied"):
            await handle.approve(question.question_id, Allow())
        assert await other.hub.engine.signals(run=handle.id) == []
    assert "nobody answered" in (await driven(stage, agent, "a worker"))[0]
    assert world.done == []


@pytest.mark.parametrize("late_s", [0.0, -1.0])
@virtual_clock
async def test_an_answer_of_the_last_moment_is_heard_by_a_life_that_was_about_to_give_up(
    stage: Stage, late_s: float
) -> None:
    """The store did not say that there is news: the answer is looked for before it is said that there is none."""
    world, process = World(), stage.process()
    agent = asking_agent(world, approval_seconds=60)
    async with stage.durable() as other, Durable(process, now=stage.now, suspend_after_s=1e9) as durable:
        running = asyncio.create_task(durable.run(agent, "Go.", id="run"))
        await asyncio.sleep(1)  # virtual
        [question] = (await asked(other)).pending
        assert question.expires_at is not None
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + 100):
            answer = answered(question, question.expires_at + late_s)._replace(run=(await other.hub.row("run")).id)
            looks = process.engine.has_news
            process.engine.has_news = lambda: False
            assert await other.hub.engine.signal(answer) == "taken"
            assert isinstance(await running, Success)
            process.engine.has_news = looks
    assert world.done == (["A"] if late_s < 0 else [])
