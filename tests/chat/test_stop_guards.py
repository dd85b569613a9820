"""Stop guards in a chat: asked when it would really stop, and what they add counts against the limit."""

from __future__ import annotations

import pytest

from journeyman import Agent, Chat, Escalate, KeepGoing, Limits, Stopping, tool
from journeyman.agent import StopVerdict
from journeyman.models.scripted import Scripted, call
from tests.chat.players import Door, code, hang, script_of
from tests.support.stage import Stage


@tool
async def stop() -> str:
    """Stop."""
    return "stopped"


async def test_a_guard_lets_the_turn_stop(stage: Stage) -> None:
    seen: list[Stopping] = []

    def guard(stopping: Stopping) -> None:
        seen.append(stopping)

    async with Chat(Agent(name="tester", model=stage.model(["Done."]), stop_guard=guard)) as chat:
        assert (await chat.prompt("Go.")).unwrap() == "Done."
    assert seen == [Stopping(text="Done.", attempt=1, iteration=1, trigger="answer")]


async def test_what_a_guard_adds_comes_before_the_steering_of_that_moment(stage: Stage) -> None:
    chats: list[Chat] = []

    def guard(stopping: Stopping) -> StopVerdict:
        if stopping.iteration > 1:
            return None
        chats[0].steer("Also this.")
        return KeepGoing("Test it first.")

    async with Chat(Agent(name="tester", model=stage.model(["Done.", "Tested."]), stop_guard=guard)) as chat:
        chats.append(chat)
        assert (await chat.prompt("Go.")).unwrap() == "Tested."
        assert script_of(chat)[2] == ("user", "Test it first.", "Also this.")


async def test_what_a_guard_adds_counts_against_the_limit(stage: Stage) -> None:
    agent = Agent(
        name="tester",
        model=stage.model(["Done."], repeat=True),
        stop_guard=lambda stopping: KeepGoing("More."),
        limits=Limits(iterations=3),
    )
    async with Chat(agent) as chat:
        assert code(await chat.prompt("Go.")) == "MAX_ITERATIONS"
        chat.follow_up("later")
        assert stage.n_requests == 3
        assert chat.state.follow_ups == ("later",)


async def test_a_guard_that_escalates_ends_the_turn_and_keeps_the_queues(stage: Stage) -> None:
    chats: list[Chat] = []

    def guard(stopping: Stopping) -> Escalate:
        chats[0].follow_up("later")
        return Escalate("stuck")

    async with Chat(Agent(name="tester", model=stage.model(["Done."]), stop_guard=guard)) as chat:
        chats.append(chat)
        assert code(await chat.prompt("Go.")) == "STOP_GUARD"
        assert chat.state.follow_ups == ("later",)
        assert chat.state.last_error is not None


async def test_a_guard_is_not_asked_while_something_waits_to_be_said(stage: Stage) -> None:
    texts: list[str] = []
    door = Door()
    model = stage.model([door.before("One."), "Two.", "Three."])
    agent = Agent(name="tester", model=model, stop_guard=lambda stopping: texts.append(stopping.text))
    async with Chat(agent) as chat:
        turn = chat.start("Go.")
        await door.reached.wait()
        chat.steer("two")
        chat.follow_up("three")
        door.opened.set()
        assert (await turn).unwrap() == "Three."
    assert texts == ["Three."]


async def test_a_guard_is_asked_where_a_call_ends_the_turn_although_a_follow_up_waits(stage: Stage) -> None:
    triggers: list[str] = []
    agent = Agent(
        name="tester",
        model=stage.model([call("stop")]),
        tools=[stop],
        stop_after=["stop"],
        stop_guard=lambda stopping: triggers.append(stopping.trigger),
    )
    async with Chat(agent) as chat:
        chat.follow_up("later")
        await chat.prompt("Go.")
        assert chat.state.follow_ups == ("later",)
    assert triggers == ["stop_after"]


@pytest.mark.parametrize("ending", ["abort", "limit"])
async def test_a_guard_is_asked_on_normal_stops_only(ending: str) -> None:
    asked: list[Stopping] = []
    answers = [hang] if ending == "abort" else [call("stop")]
    agent = Agent(
        name="tester",
        model=Scripted(answers),
        tools=[stop],
        stop_guard=asked.append,
        limits=Limits(iterations=1),
    )
    async with Chat(agent) as chat:
        turn = chat.start("Go.")
        if ending == "abort":
            chat.abort()
        assert code(await turn) in ("EXECUTION_CANCELLED", "MAX_ITERATIONS")
    assert asked == []
