"""The turns of a chat: one conversation, one turn at a time, what its end brings, and what stop guards make of it."""

import asyncio

import pytest

from journeyman import Agent, Chat, Limits, Output, Runtime, Success, run, tool
from journeyman.errors import ChatBusy, NothingToContinue, ProviderError
from journeyman.journal import InMemoryJournal
from journeyman.output import ContinueRun, FailRun, StopContext, StopVerdict
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.types import Message, Text
from tests.chat.opening import Opening
from tests.play import Door, Report, Stage, cancelled, chatting, existing, hang, only_over_http, script_of, transcript
from tests.play.tools import look, make_tool


async def test_a_turn_begins_at_once_and_is_awaited_for_its_result(stage: Stage) -> None:
    async with chatting(stage.model(["Hello."])) as chat:
        turn = chat.start("Hi.")
        assert chat.state.is_running
        assert (await turn).unwrap() == "Hello."
        assert (await turn).unwrap() == "Hello."
        assert not chat.state.is_running


async def test_who_stops_waiting_for_a_turn_does_not_stop_it(stage: Stage, door: Door) -> None:
    async with chatting(stage.model([door.before("Hello.")])) as chat:
        turn = chat.start("Hi.")
        waiting = asyncio.ensure_future(turn)
        await cancelled(waiting, when=door.reached)
        assert (await door.open_for(turn)).unwrap() == "Hello."


async def test_a_second_prompt_at_the_same_time_is_refused(stage: Stage, door: Door) -> None:
    async with chatting(stage.model([door.before("Hello.")])) as chat:
        turn = chat.start("Hi.")
        for go_on in (lambda: chat.prompt("Again."), chat.continue_):
            with pytest.raises(ChatBusy, match=r"Use steer\(\) or follow_up\(\), or abort\(\) it first"):
                await go_on()
        for act in (lambda: chat.start("Again."), lambda: chat.replace([])):
            with pytest.raises(ChatBusy):
                act()
        await door.open_for(turn)
    assert stage.n_requests == 1


async def test_input_that_does_not_fit_fails_before_anything_is_said() -> None:
    async with chatting(ScriptedModel([]), input=int, prompt="{}!".format) as chat:
        assert (await chat.prompt("many")).code == "INVALID_INPUT"
        assert chat.messages == ()


async def test_each_prompt_has_the_limits_of_a_run_to_itself(stage: Stage) -> None:
    answers = [call("look", id="a"), "One.", call("look", id="b"), "Two."]
    async with chatting(stage.model(answers), tools=[look], limits=Limits(iterations=2)) as chat:
        assert (await chat.prompt("One?")).unwrap() == "One."
        assert (await chat.prompt("Two?")).unwrap() == "Two."


async def test_usage_is_that_of_all_turns_failed_requests_included(stage: Stage, door: Door) -> None:
    answers = [call("look"), "One.", ProviderError("no", kind="bad_request"), door.before("Three.")]
    async with chatting(stage.model(answers), tools=[look]) as chat:
        first = await chat.prompt("One?")
        assert chat.usage == first.metadata.usage
        await chat.prompt("Two?")
        before = chat.usage
        turn = await door.reached_by(chat.start("Three?"))
        assert chat.usage.requests == before.requests
        third = await door.open_for(turn)
        assert chat.usage == before + existing(third.metadata.usage)
        assert chat.state.usage == chat.usage


async def test_the_conversation_can_be_replaced_between_turns(stage: Stage) -> None:
    other = [Message("user", (Text("Other?"),)), Message("assistant", (Text("Other."),))]
    async with chatting(stage.model(["One.", "Two."])) as chat:
        await chat.prompt("One?")
        chat.replace(other)
        assert chat.messages == tuple(other)
        await chat.prompt("Two?")
    assert transcript(stage.messages(1)) == [("user", "Other?"), ("assistant", "Other."), ("user", "Two?")]


@pytest.mark.parametrize("history", [[], [Message("user", (Text("One?"),)), Message("assistant", (Text("One."),))]])
async def test_a_chat_with_nothing_to_answer_cannot_be_continued(history: list[Message]) -> None:
    async with chatting(ScriptedModel([]), history=history) as chat:
        with pytest.raises(NothingToContinue, match=r"Use prompt\(\)"):
            await chat.continue_()


async def test_a_typed_chat_that_came_to_its_end_cannot_be_continued(stage: Stage) -> None:
    async with chatting(stage.model([call("output", total=1)]), output=Output(Report)) as chat:
        await chat.prompt("One.")
        with pytest.raises(NothingToContinue):
            await chat.continue_()


async def test_a_chat_is_used_inside_its_block_only() -> None:
    chat = chatting(ScriptedModel(["Hello."]))
    with pytest.raises(RuntimeError, match="Use it inside 'async with Chat"):
        chat.start("Hi.")
    async with chat:
        pass
    with pytest.raises(RuntimeError, match="Use it inside 'async with Chat"):
        chat.start("Hi.")
    with pytest.raises(RuntimeError, match="nobody will read this"):
        chat.steer("Hi.")
    with pytest.raises(RuntimeError, match=r"history=chat\.messages"):
        await chat.__aenter__()


async def test_a_model_that_cannot_be_used_is_what_every_prompt_says() -> None:
    async with chatting("nobody:knows") as chat:
        assert (await chat.prompt("Hi.")).code == "MODEL_UNAVAILABLE"
        chat.follow_up("More.")
        assert (await chat.prompt("Hi.")).code == "MODEL_UNAVAILABLE"
        assert chat.state.follow_ups == ("More.",)


async def test_the_model_is_opened_once_for_all_prompts() -> None:
    told = list[str]()
    async with chatting(Opening("one", told)) as chat:
        for _ in range(3):
            await chat.prompt("Hi.")
            assert (told[0], told.count("+one") - told.count("-one")) == ("+one", 1)
    assert told.count("+one") == told.count("-one")


@only_over_http
async def test_a_message_is_encoded_once_however_many_prompts_follow(stage: Stage) -> None:
    async with chatting(stage.model(["One.", "Two.", "Three."])) as chat:
        await chat.prompt("One?")
        await chat.prompt("Two?")
        before = [(message, dict(message.wire)) for message in chat.messages[:-1]]
        await chat.prompt("Three?")
        assert len(before) == 3
        for (message, wire), later in zip(before, chat.messages, strict=False):
            assert later is message
            assert wire
            assert all(later.wire[codec] is encoded for codec, encoded in wire.items())


async def test_a_journal_keeps_the_runs_of_a_chat_apart() -> None:
    journal = InMemoryJournal()
    for answers in (["One.", "Two."], []):  # the second chat reads everything from the journal
        async with chatting(ScriptedModel(answers), runtime=Runtime(journal=journal)) as chat:
            assert (await chat.prompt("One?")).unwrap() == "One."
            assert (await chat.prompt("Two?")).unwrap() == "Two."


async def test_a_chat_inside_a_run_is_shown_below_it() -> None:
    paths: list[tuple[str, ...]] = []
    inner = Agent(name="inner", model=ScriptedModel(["Hello."]))

    @tool
    async def delegate() -> str:
        async with Chat(inner, on_event=lambda event: paths.append(event.path)) as chat:
            return (await chat.prompt("Hi.")).unwrap()

    result = await run(Agent(name="outer", model=ScriptedModel([call("delegate"), "Done."]), tools=[delegate]), "Go.")
    assert isinstance(result, Success)
    assert set(paths) == {("outer", "inner")}


async def test_a_guard_lets_the_turn_stop(stage: Stage) -> None:
    seen: list[StopContext] = []
    async with chatting(stage.model(["Done."]), stop_guard=seen.append) as chat:
        assert (await chat.prompt("Go.")).unwrap() == "Done."
    assert seen == [
        StopContext(
            text="Done.",
            attempt=1,
            iteration=1,
            trigger="answer",
            path=(chat.agent.name,),
            agent=chat.agent.name,
            task="Go.",
        )
    ]


async def test_what_a_guard_adds_comes_before_the_steering_of_that_moment(stage: Stage) -> None:
    def guard(stopping: StopContext) -> StopVerdict:
        if stopping.iteration > 1:
            return None
        chat.steer("Also this.")
        return ContinueRun("Test it first.")

    async with chatting(stage.model(["Done.", "Tested."]), stop_guard=guard) as chat:
        assert (await chat.prompt("Go.")).unwrap() == "Tested."
        assert script_of(chat)[2] == ("user", "Test it first.", "Also this.")


async def test_what_a_guard_adds_counts_against_the_limit(stage: Stage) -> None:
    def guard(stopping: StopContext) -> ContinueRun:
        return ContinueRun("More.")

    model = stage.model(["Done."], repeat=True)
    async with chatting(model, stop_guard=guard, limits=Limits(iterations=3)) as chat:
        assert (await chat.prompt("Go.")).code == "MAX_ITERATIONS"
        chat.follow_up("later")
        assert stage.n_requests == 3
        assert chat.state.follow_ups == ("later",)


async def test_a_guard_that_escalates_ends_the_turn_and_keeps_the_queues(stage: Stage) -> None:
    def guard(stopping: StopContext) -> FailRun:
        chat.follow_up("later")
        return FailRun("stuck")

    async with chatting(stage.model(["Done."]), stop_guard=guard) as chat:
        assert (await chat.prompt("Go.")).code == "STOP_GUARD"
        assert chat.state.follow_ups == ("later",)
        assert chat.state.last_error is not None


async def test_a_guard_is_not_asked_while_something_waits_to_be_said(stage: Stage, door: Door) -> None:
    seen: list[StopContext] = []
    async with chatting(stage.model([door.before("One."), "Two.", "Three."]), stop_guard=seen.append) as chat:
        turn = await door.reached_by(chat.start("Go."))
        chat.steer("two")
        chat.follow_up("three")
        assert (await door.open_for(turn)).unwrap() == "Three."
    assert [stopping.text for stopping in seen] == ["Three."]


async def test_a_guard_is_asked_where_a_call_ends_the_turn_although_a_follow_up_waits(stage: Stage) -> None:
    seen: list[StopContext] = []
    async with chatting(
        stage.model([call("stop")]), tools=[make_tool("stop")], stop_after=["stop"], stop_guard=seen.append
    ) as chat:
        chat.follow_up("later")
        await chat.prompt("Go.")
        assert chat.state.follow_ups == ("later",)
    assert [stopping.trigger for stopping in seen] == ["stop_after"]


@pytest.mark.parametrize("ending", ["abort", "limit"])
async def test_a_guard_is_asked_on_normal_stops_only(ending: str) -> None:
    asked: list[StopContext] = []
    model = ScriptedModel([hang] if ending == "abort" else [call("stop")])
    async with chatting(model, tools=[make_tool("stop")], stop_guard=asked.append, limits=Limits(iterations=1)) as chat:
        turn = chat.start("Go.")
        if ending == "abort":
            chat.abort()
        assert (await turn).code in ("EXECUTION_CANCELLED", "MAX_ITERATIONS")
    assert asked == []
