"""Chats whose turns are durable runs, on each engine (K25): what holds of a run in many lives holds of a turn."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from journeyman import Agent, Chat, Failure, Success, run
from journeyman.compaction import TrimTexts
from journeyman.durable import Durable, Worker
from journeyman.errors import ChatBusy, RunDiffers, StoreError
from journeyman.events import ApprovalAnswered, ApprovalRequested, Event, TextDelta
from journeyman.gate import Allow, Deny
from journeyman.session import turn_name
from journeyman.testing.scripted import Answer
from tests.durable.processes import START, Process, Stage, a_signal, in_memory
from tests.durable.talks import ID, talked
from tests.durable.test_steps import Fives, a_tired_agent
from tests.durable.test_too_late import send_before
from tests.durable.worlds import UNKNOWN, World, asked, asking_agent, do
from tests.play import cancelled, echo, existing, failed, following, texts, virtual_clock
from tests.support.invariants_history import history_faults

FIRST = turn_name(ID, 1)


def worker_of(world: World, *answers: Answer, **options: Any) -> Agent[str, str]:
    return Agent(name="clerk", model=following(*answers, "Done."), tools=world.tools(), **options)


def said(chat: Chat) -> list[str]:
    """Return what the user's side has said."""
    users = [message for message in chat.messages if message.role == "user"]
    return [block.text for message in users for block in message.content if block.type == "text"]


async def settled(durable: Durable, run: str = FIRST) -> str:
    """Return how a run stands."""
    return (await (await durable.get(run)).info()).status


@pytest.mark.parametrize("dies", ["before", "after"])
@virtual_clock
async def test_a_call_of_a_turn_that_must_not_be_made_twice_is_unknown_in_every_later_life(
    stage: Stage, dies: str
) -> None:
    # K25 of K4
    world = World(dies_in="B" if dies == "before" else "", dies_after="B" if dies == "after" else "")
    agent = worker_of(world, do("once", "A"), do("once", "B"), do("idempotent", "C"))
    assert await talked(stage, agent, until=world.reached) is None
    world.lives_on()
    world.dies_in = "C"
    assert await talked(stage, agent, until=world.reached) is None
    world.lives_on()
    ended = existing(await talked(stage, agent))
    result, chat = ended
    told = texts(result)
    assert (told[0], UNKNOWN in told[1], told[2]) == ("did A", True, "did C")
    assert world.done == (["A", "C"] if dies == "before" else ["A", "B", "C"])
    assert said(chat)[0] == "Go."


_LIMITS: list[dict[str, Any]] = [{"tokens": 1_700}, {"cost": 2.0}, {"calls": 5}, {"seconds": 95}]


@pytest.mark.share(one_in=5)
@pytest.mark.parametrize(("n_lives", "limits"), [(n, _LIMITS[n % 4]) for n in range(1, 7)], ids=str)
@virtual_clock
async def test_a_turn_ends_by_its_limits_as_in_one_life_and_has_used_as_much(
    stage: Stage, n_lives: int, limits: dict[str, Any]
) -> None:
    # K25 of K14
    whole = failed(await run(a_tired_agent(World(random=Fives(), slowest_s=5.0), **limits), "Go."))
    world = World(random=Fives(), slowest_s=5.0)
    agent = a_tired_agent(world, **limits)
    for n in range(n_lives - 1):
        world.lives_on()
        world.dies_in = f"c{n}"
        assert await talked(stage, agent, until=world.reached) is None
        stage.skipped_s += 5_000
    world.lives_on()
    ended = existing(await talked(stage, agent))
    result, chat = ended
    assert isinstance(result, Failure)
    assert (result.code, result.metadata.usage, texts(result)) == (whole.code, whole.metadata.usage, texts(whole))
    assert (chat.usage, chat.messages) == (result.metadata.usage, result.history)
    async with stage.durable() as durable:
        assert (await (await durable.get(FIRST)).info()).leases == n_lives
        assert (await durable.hub.engine.conversation(ID)).usage == chat.usage


@virtual_clock
async def test_what_is_said_here_or_from_elsewhere_is_said_once_over_five_lives(stage: Stage) -> None:
    # K25 of K9 and K11
    world = World()
    agent = worker_of(world, *[do("idempotent", str(n)) for n in range(6)])
    for n in range(5):
        world.lives_on()
        world.dies_in = str(n)
        assert await talked(stage, agent, until=world.reached, told=lambda chat, n=n: chat.steer(f"here {n}")) is None
        async with stage.durable() as durable:
            await (await durable.get(FIRST)).steer(f"there {n}")
    world.lives_on()
    ended = existing(await talked(stage, agent))
    heard = [text for text in said(ended[1]) if "here" in text]
    assert sorted(heard) == sorted([f"{place} {n}" for place in ("here", "there") for n in range(5)])
    async with stage.durable() as durable:
        assert (await durable.hub.engine.conversation(ID)).waiting == ()


@virtual_clock
async def test_a_follow_up_is_said_once_in_whichever_life_its_run_ends(stage: Stage) -> None:
    world = World(dies_in="B")
    agent = worker_of(world, do("once", "A"), "First.", do("idempotent", "B"))
    queued = [None]

    def told(chat: Chat) -> None:
        if queued:
            queued.pop()
            chat.follow_up("And then?")

    assert await talked(stage, agent, until=world.reached, told=told) is None
    world.lives_on()
    ended = existing(await talked(stage, agent))
    assert said(ended[1]) == ["Go.", "And then?"]
    assert world.done == ["A", "B"]
    async with stage.durable() as durable:
        assert {info.name: info.leases for info in await durable.list()} == {FIRST: 1, turn_name(ID, 2): 2}


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
async def test_what_is_said_in_the_moment_in_which_a_turn_ends_waits_for_the_next(stage: Stage, *, dies: bool) -> None:
    agent, process = worker_of(World(), "First."), stage.process()
    taken = send_before(process, "settle", FIRST, a_signal("", text="In euros."))

    async def die(name: str) -> None:
        if dies and name == "settle" and existing(await process.engine.get(FIRST)).status == "done":
            process.kill()

    process.after = die
    assert (await talked(stage, agent, process=process) is None) == dies
    assert taken == ["taken"]
    async with stage.durable() as durable, Chat.open(agent, durable, id=ID) as chat:
        assert [*said(chat), *chat.state.steering].count("In euros.") == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_process_may_die_at_each_call_of_the_store_and_nothing_is_lost_or_doubled(when: str) -> None:
    n, n_lives = 0, 2
    while n_lives > 1:  # until the process lives longer than the turn
        stage, world, n = in_memory(), World(), n + 1
        agent = worker_of(world, do("once", "A"), do("idempotent", "B"), "First.", do("once", "C"), "Second.")
        n_lives, ended = 0, None
        while ended is None:
            n_lives += 1
            process = stage.process()
            first = Dying(process, n, when=when)
            if n_lives == 1:
                ended = await talked(stage, agent, process=process, told=first.talk)
            else:  # in between two runs of a turn, what waits is no turn yet
                ended = await talked(stage, agent, process=process, prompt="Go on.")
        chat = ended[1]
        assert len(said(chat)) == len(set(said(chat))), n
        assert {"Go.", "Steer.", "Follow."} <= set(said(chat)) <= {"Go.", "Steer.", "Follow.", "Go on."}, n
        assert world.done.count("A") <= 1, n
        assert world.done.count("C") <= 1, n
        assert list(history_faults(chat.messages)) == [], n
        snapshot = await stage.processes[-1].engine.conversation(ID)
        assert (tuple(snapshot.messages), snapshot.usage) == (chat.messages, chat.usage), n
        assert chat.usage.requests == len([each for each in chat.messages if each.role == "assistant"]), n
    assert n > 15


class Dying:
    """A process that dies before or after one of its calls of the store."""

    def __init__(self, process: Process, n: int, *, when: str) -> None:
        self._process, self._left, self._when = process, n, when

    def talk(self, chat: Chat) -> None:
        """Say one thing now and one later, and begin to count."""
        chat.steer("Steer.")
        chat.follow_up("Follow.")
        setattr(self._process, self._when, self._count)

    async def _count(self, _: str) -> None:
        self._left -= 1
        if not self._left:
            self._process.kill()


async def test_a_compacted_chat_goes_on_with_what_was_made_of_it(stage: Stage) -> None:
    world = World(dies_in="B")
    agent = worker_of(world, "First.", "Second.", do("pure", "B"), compaction=[TrimTexts(keep_messages=1)])
    async with stage.durable() as durable, Chat.open(agent, durable, id=ID, create=True) as chat:
        await chat.prompt("One. " * 9_000)
        await chat.prompt("Two. " * 9_000)
        compacted = await chat.compact()
        assert compacted.after_tokens < compacted.before_tokens
    assert await talked(stage, agent, until=world.reached, prompt="Three.") is None
    world.lives_on()
    ended = existing(await talked(stage, agent))
    assert (ended[0].unwrap(), said(ended[1])[2:]) == ("Done.", ["Three."])


@virtual_clock
async def test_a_worker_takes_an_abandoned_turn_over_and_the_chat_has_what_was_said(stage: Stage) -> None:
    world = World(dies_in="B")
    agent = worker_of(world, do("once", "A"), do("pure", "B"))
    assert await talked(stage, agent, until=world.reached, told=lambda chat: chat.follow_up("More?")) is None
    world.lives_on()
    async with stage.durable() as durable:
        await Worker(durable, agents=[agent]).run(until_idle=True)
        assert await settled(durable) == "done"
    async with stage.durable() as durable, Chat.open(agent, durable, id=ID) as chat:
        assert chat.turn is None
        assert chat.messages[-1].text == "Done."
        assert (chat.usage.requests, chat.state.follow_ups, world.done) == (3, ("More?",), ["A", "B"])
        chat.undo()
        assert chat.messages == ()


@virtual_clock
async def test_who_opens_a_chat_whose_turn_a_worker_drives_waits_for_its_end(stage: Stage) -> None:
    world = World(dies_in="B")
    agent = worker_of(world, do("once", "A"), do("pure", "B"))
    assert await talked(stage, agent, until=world.reached) is None
    world.reached = asyncio.Event()
    async with stage.durable() as there, stage.durable() as here:
        working = asyncio.create_task(Worker(there, agents=[agent]).run(until_idle=True))
        await world.reached.wait()
        async with Chat.open(agent, here, id=ID) as chat:
            turn = existing(chat.turn)
            turn.abort("enough")
            result = failed(await turn)
            assert (result.code, world.done) == ("EXECUTION_CANCELLED", ["A"])
            assert result.history == chat.messages
            chat.follow_up("Later.")
        await working
    async with stage.durable() as durable, Chat.open(agent, durable, id=ID) as chat:
        assert chat.state.follow_ups == ("Later.",)


@virtual_clock
async def test_whenever_another_process_ends_a_turn_its_chat_goes_on_from_all_that_was_said() -> None:
    n, was_ended_there = 0, True
    while was_ended_there:  # before a later call of the store each time
        n, stage, world = n + 1, in_memory(), World(dies_in="B")
        agent = worker_of(world, do("once", "A"), do("pure", "B"), "Later.")
        assert await talked(stage, agent, until=world.reached) is None
        world.lives_on()
        process, was_ended_there = stage.process(), False
        async with stage.durable() as there, Durable(process, now=stage.now) as here:
            n_calls = 0

            async def end(_: str, n: int = n, agent: Agent[str, str] = agent, there: Durable = there) -> None:
                nonlocal n_calls, was_ended_there
                n_calls += 1
                if n_calls == n:
                    await Worker(there, agents=[agent]).run(until_idle=True)
                    was_ended_there = await settled(there) == "done"

            async with Chat.open(agent, here, id=ID) as chat:
                assert chat.turn is not None
                process.before = end
                result = await chat.turn
                assert isinstance(result, Success), n
                assert (texts(result), result.history) == (["did A", "did B"], chat.messages), n
                assert (chat.usage.requests, said(chat)) == (3, ["Go."]), n
                assert (await chat.prompt("More?")).unwrap() == "Done.", n
                written = chat.messages
            snapshot = await there.hub.engine.conversation(ID)
        assert (tuple(snapshot.messages), [message.text for message in written][-3:]) == (
            written,
            ["Later.", "More?", "Done."],
        ), n
        assert world.done == ["A", "B"], n
    assert n > 3


async def test_a_turn_that_was_cancelled_is_gone_on_with_or_stopped_by_the_next_word(stage: Stage) -> None:
    world = World(dies_in="B D")
    agent = worker_of(world, do("once", "A"), do("pure", "B"), do("once", "C"), do("pure", "D"))
    async with stage.durable() as durable, Chat.open(agent, durable, id=ID, create=True) as chat:
        prompting = asyncio.ensure_future(chat.prompt("Go."))
        await cancelled(prompting, when=world.reached)
        for refused in (chat.undo, lambda: chat.replace(())):
            with pytest.raises(ChatBusy, match="was cut off, and has not ended"):
                refused()
        world.lives_on()
        world.dies_in = "D"
        going_on = asyncio.ensure_future(chat.continue_())
        await cancelled(going_on, when=world.reached)
        assert world.done == ["A", "B", "C"]
        assert isinstance(await chat.prompt("Leave D."), Success)
        assert [await settled(durable, turn_name(ID, n)) for n in (1, 2)] == ["cancelled", "done"]
        assert said(chat) == ["Go.", "Leave D."]
        assert chat.usage.requests == 5
        await chat.reset()
        assert chat.messages == ()


async def test_a_turn_that_is_cancelled_while_it_is_stored_is_no_hindrance(stage: Stage) -> None:
    agent, process, stored = Agent(name="tester", model=echo()), stage.process(), asyncio.Event()

    async def linger(name: str) -> None:
        if name == "add" and not stored.is_set():
            stored.set()
            await asyncio.Event().wait()

    process.after = linger
    async with Durable(process, now=stage.now) as durable, Chat.open(agent, durable, id=ID, create=True) as chat:
        prompting = asyncio.ensure_future(chat.prompt("One."))
        await cancelled(prompting, when=stored)
        assert (await chat.prompt("Two.")).unwrap() == "<Two.>"
        assert [info.status for info in await durable.list()] == ["done", "cancelled"]


async def test_a_chat_with_a_cut_off_turn_is_opened_by_the_same_agent_in_a_durable_only(stage: Stage) -> None:
    world = World(dies_in="A")
    agent = worker_of(world, do("pure", "A"))
    assert await talked(stage, agent, until=world.reached) is None
    other = Agent(name="other", model=echo())
    async with stage.durable() as durable:
        with pytest.raises(RunDiffers, match="it is one of the agent 'clerk', not of 'other'"):
            async with Chat.open(other, durable, id=ID, any_agent=True):
                pass
        with pytest.raises(ValueError, match="is a turn of a chat"):
            await durable.fork(FIRST, (1, 1))
        with pytest.raises(ValueError, match="turns of chats are called"):
            await durable.run(agent, "Go.", id=turn_name(ID, 9))
        with pytest.raises(StoreError, match="no session 'nobody'"):
            async with Chat.open(agent, durable, id="nobody"):
                pass


@pytest.mark.parametrize(("at", "counts"), [("write", "here"), ("", "elsewhere"), ("signal", "elsewhere")])
@virtual_clock
async def test_of_what_is_answered_here_and_elsewhere_the_first_counts_and_the_second_is_told(
    stage: Stage, at: str, counts: str
) -> None:
    world, heard, process, told = World(), list[Event](), stage.process(), list[str]()
    agent = asking_agent(world)
    async with (
        Durable(process, now=stage.now, suspend_after_s=1.0) as durable,
        stage.durable() as other,
        Chat.open(agent, durable, id=ID, create=True, on_event=heard.append) as chat,
    ):
        turn = chat.start("Go.")
        [question] = (await asked(other, FIRST)).pending
        handle = await other.get(FIRST)
        await asyncio.sleep(60)
        assert await settled(other) == "running", "an open chat stays in memory"

        async def answer_elsewhere(called: str) -> None:
            if called == at and not told:
                told.append(called)
                with suppress(LookupError):
                    await handle.approve(question.question_id, Deny("not today"), who="ann")

        process.before = answer_elsewhere
        if at:
            [id] = chat.state.open_questions
            chat.answer(id, Allow())
        else:
            await answer_elsewhere("")
        assert isinstance(await turn, Success)
        given = "allow, by somebody here" if counts == "here" else "deny, by ann"
        with pytest.raises(LookupError, match=f"answered before: {given}"):
            await handle.approve(question.question_id, Allow())
    assert world.done == (["A"] if counts == "here" else [])
    answers = [(event.decision, event.reason) for event in heard if isinstance(event, ApprovalAnswered)]
    assert len([event for event in heard if isinstance(event, ApprovalRequested)]) == 1
    assert answers == [("allow", "") if counts == "here" else ("deny", "not today")]


async def test_a_turn_is_stopped_from_elsewhere_and_streamed_and_the_model_changed(stage: Stage) -> None:
    world = World(dies_in="A")
    agent = worker_of(world, do("pure", "A"))
    async with stage.durable() as durable, Chat.open(agent, durable, id=ID, create=True) as chat:
        turn = chat.start("Go.")
        await world.reached.wait()
        await (await durable.get(FIRST)).stop("no more")
        assert failed(await turn).code == "EXECUTION_CANCELLED"
        await chat.use(echo())
        chat.undo()
        async with chat.stream("Hi.") as events:
            streamed = [event.text async for event in events if isinstance(event, TextDelta)]
        assert ("".join(streamed), events.result.unwrap()) == ("<Hi.>", "<Hi.>")
        chat.undo()
        assert "Hi." not in said(chat)
        assert (await chat.prompt("Ho.")).unwrap() == "<Ho.>"
        n_messages = len(chat.messages)
    async with stage.durable() as durable, Chat.open(agent, durable, id=ID) as chat:
        assert (len(chat.messages), said(chat)[-1]) == (n_messages, "Ho.")


async def test_the_steps_of_turns_go_and_the_conversation_stays(stage: Stage) -> None:
    agent = Agent(name="tester", model=echo())
    async with stage.durable() as durable:
        async with Chat.open(agent, durable, id=ID, create=True) as chat:
            await chat.prompt("One.")
            await chat.prompt("Two.")
        assert len(await durable.forget(FIRST)) == 1
        assert [info.name for info in await durable.list()] == [turn_name(ID, 2)]
        stage.skipped_s += 8 * 24 * 3600.0
        async with Chat.open(agent, durable, id=ID) as chat:
            assert await durable.list() == ()
            assert said(chat) == ["One.", "Two."]
            assert (await chat.prompt("Three.")).unwrap() == "<Three.>"
    assert stage.now() > START


async def test_input_that_does_not_fit_ends_the_turn_before_anything_is_done(stage: Stage) -> None:
    agent = Agent[str, int](name="counter", input=int, model=echo())
    async with stage.durable() as durable, Chat.open(agent, durable, id=ID, create=True) as chat:
        result = failed(await chat.prompt("many"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert result.code == "INVALID_INPUT"
        assert (await chat.prompt(3)).unwrap() == "<3>"
