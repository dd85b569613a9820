"""A turn of a chat as a stream of events, and what it used."""

import asyncio
from typing import assert_type

import pytest

from journeyman import Agent, Chat, Events, Output, Result, Usage
from journeyman.chat.turn import ABORTED
from journeyman.errors import ChatBusy, ProviderError
from journeyman.events import Event, RunSucceeded, TurnEnded
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.types import Price
from tests.play import Door, Report, Stage, cancelled, chatting, existing, look, script_of


def names(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_a_streamed_turn_gives_its_events_from_the_first_to_its_end_and_then_the_result(stage: Stage) -> None:
    async with chatting(stage.model([call("look", id="a"), "Found it.", "Again."]), tools=[look]) as chat:
        async with chat.stream("Find it.") as events:
            seen = [event async for event in events]
        assert (names(seen)[0], names(seen)[-1]) == ("RunStarted", "TurnEnded")
        assert events.result.unwrap() == "Found it."
        async with chat.stream("And now?") as events:
            seen = [event async for event in events]
        assert names(seen).count("TurnEnded") == 1
        assert [event.result for event in seen if isinstance(event, TurnEnded)] == [events.result]


async def test_events_of_a_turn_come_as_they_happen(stage: Stage, door: Door) -> None:
    model = stage.model([call("wait", id="a"), "Done."])
    async with chatting(model, tools=[door.tool()]) as chat, chat.stream("Go.") as events:
        async for event in events:
            if type(event).__name__ == "ToolCalled":
                await door.reached.wait()
                with pytest.raises(RuntimeError, match="has not ended"):
                    _ = events.result
                door.opened.set()
        assert events.result.unwrap() == "Done."


async def test_a_stream_shows_every_run_of_its_turn_and_nothing_of_the_next(stage: Stage, door: Door) -> None:
    async with chatting(stage.model([door.before("One."), "Two.", "Three."])) as chat:
        nexts: list[object] = []

        def begin_another(event: Event) -> None:
            if isinstance(event, TurnEnded) and not nexts:
                nexts.append(chat.start("Another."))

        chat.subscribe(begin_another)
        async with chat.stream("Go.") as events:
            chat.follow_up("And?")
            door.opened.set()
            seen = [event async for event in events]
        await chat.wait_idle()
    assert [event.output for event in seen if isinstance(event, RunSucceeded)] == ["One.", "Two."]
    assert names(seen)[-1] == "TurnEnded"


async def test_a_stream_that_is_left_early_aborts_its_turn_and_the_chat_goes_on(stage: Stage, door: Door) -> None:
    async with chatting(stage.model([call("wait", id="a"), "I see."]), tools=[door.tool()]) as chat:
        async with chat.stream("Go.") as events:
            async for event in events:
                if type(event).__name__ == "ToolCalled":
                    break
        assert not chat.state.is_running
        assert events.result.code == "EXECUTION_CANCELLED"
        assert "the stream was left" in str(events.result)
        assert (await chat.prompt("Well?")).unwrap() == "I see."
        assert ABORTED in script_of(chat)[2]


async def test_who_is_cancelled_in_a_stream_has_aborted_its_turn(stage: Stage, door: Door) -> None:
    async with chatting(stage.model([door.before("Hello."), "Again."])) as chat:

        async def read() -> None:
            async with chat.stream("Hi.") as events:
                async for _ in events:
                    pass

        reading = asyncio.ensure_future(read())
        await cancelled(reading, when=door.reached)
        assert not chat.state.is_running
        assert (await chat.prompt("Hi.")).unwrap() == "Again."


async def test_a_stream_of_a_busy_chat_is_refused_when_it_is_entered(stage: Stage, door: Door) -> None:
    async with chatting(stage.model([door.before("Hello.")])) as chat:
        turn = chat.start("Hi.")
        with pytest.raises(ChatBusy, match="A turn goes on"):
            async with chat.stream("Me too."):
                pass
        assert (await door.open_for(turn)).unwrap() == "Hello."


async def test_a_stream_is_entered_once_and_iterated_inside(stage: Stage) -> None:
    async with chatting(stage.model(["Hello."])) as chat:
        events = chat.stream("Hi.")
        with pytest.raises(RuntimeError, match="The stream is not open"):
            await anext(aiter(events))
        async with events:
            pass
        with pytest.raises(RuntimeError, match="The stream was entered before"):
            async with events:
                pass


async def test_a_stream_knows_the_type_of_its_agents_output() -> None:
    agent = Agent(name="typed", model=ScriptedModel([call("output", total=1)]), output=Output(Report))
    async with Chat(agent) as chat, chat.stream("One.") as events:
        assert_type(events, Events[Report])
        async for _ in events:
            pass
        assert_type(events.result, Result[Report])
        assert events.result.unwrap() == Report(total=1)


async def test_a_turn_counts_what_all_its_runs_have_used(stage: Stage, door: Door) -> None:
    async with chatting(stage.model([door.before("One."), "Two.", "Three."])) as chat:
        seen: list[Usage] = []
        chat.subscribe(lambda event: seen.append(event.usage) if isinstance(event, TurnEnded) else None)
        chat.follow_up("And?")
        turn = chat.start("Go.")
        assert turn.usage == Usage()
        result = await door.open_for(turn)
        assert turn.usage.requests == 2
        assert existing(result.metadata.usage).requests == 1
        assert chat.usage == turn.usage
        second = chat.start("Go.")
        await second
        assert (second.usage.requests, chat.usage) == (1, turn.usage + second.usage)
        assert seen == [turn.usage, second.usage]


async def test_a_turn_tells_what_all_its_runs_have_cost() -> None:
    model = ScriptedModel(["One.", "Two."], price=Price(input=1_000.0, output=1_000.0))
    async with chatting(model) as chat:
        turn = chat.start("Go.")
        chat.follow_up("And?")
        result = await turn
        assert result.metadata.cost is not None
        assert (turn.cost, turn.usage.requests) == (turn.usage.total_tokens / 1_000, 2)
        assert 0 < result.metadata.cost < turn.usage.total_tokens / 1_000


async def test_the_usage_of_an_aborted_or_cancelled_turn_is_counted(stage: Stage, door: Door) -> None:
    model = stage.model([call("wait", id="a"), call("wait", id="b")])
    async with chatting(model, tools=[door.tool()]) as chat:
        turn = chat.start("Go.")
        await door.reached.wait()
        assert turn.usage.requests == 1
        turn.abort()
        await turn
        assert turn.usage.requests == 1
        door.reached.clear()
        other = chat.start("Go.")
        await door.reached.wait()
        other.cancel()
        await chat.wait_idle()
        assert other.usage.requests == 1
        assert (turn.usage + other.usage, chat.usage.exact) == (chat.usage, True)


async def test_the_usage_of_a_turn_that_failed_holds_its_first_runs(door: Door) -> None:
    async with chatting(ScriptedModel([door.before("One."), ProviderError("no", kind="bad_request")])) as chat:
        chat.follow_up("And?")
        turn = chat.start("Go.")
        assert (await door.open_for(turn)).code == "API_ERROR"
        assert (turn.usage.requests, turn.usage) == (2, chat.usage)
