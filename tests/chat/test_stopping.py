"""Stopping a chat: abort, hold, reset, leaving; what the model learns of it, and what is left behind."""

import asyncio
from collections.abc import Callable

import pytest

from journeyman import Callbacks, Limits, Message, Output, tool
from journeyman.chat.turn import ABORTED
from journeyman.endings import CancelledContext
from journeyman.errors import ChatHeld
from journeyman.events import Event, IterationStarted, MessageCommitted, RunFailed, RunStarted, RunSucceeded, TurnEnded
from journeyman.loop.prepare import CLOSING
from journeyman.testing.scripted import ScriptedModel, call
from tests.chat.opening import once
from tests.play import Door, Recorder, Report, cancelled, chatting, context_of, hang, look, names, script_of, transcript
from tests.play.stage import Stage
from tests.support.clock import virtual_clock

STOPPED = "Error: the run was stopped before this call finished."


async def test_after_an_abort_the_model_reads_that_it_was_stopped_once(stage: Stage, door: Door) -> None:
    async with chatting(stage.model([call("wait", id="a"), "I see.", "Go on."]), tools=[door.tool()]) as chat:
        turn = await door.reached_by(chat.start("Go."))
        chat.abort("wrong way")
        turn.abort("once more")
        result = await turn
        assert context_of(result, CancelledContext).reason == "wrong way"
        assert result.history == chat.messages
        await chat.prompt("Why did you stop?")
        await chat.prompt("Well.")
    assert transcript(stage.messages(1))[-1] == ("user", f"#a! {STOPPED}", ABORTED, "Why did you stop?")
    texts = [message.text for message in chat.messages]
    assert [text for text in texts if ABORTED in text] == [f"{ABORTED}\n\nWhy did you stop?"]


async def test_a_turn_can_be_aborted_by_itself(stage: Stage, door: Door) -> None:
    async with chatting(stage.model([door.before("One."), "Two."])) as chat:
        turn = await door.reached_by(chat.start("Go."))
        turn.abort()
        assert (await turn).code == "EXECUTION_CANCELLED"
        second = chat.start("Again.")
        turn.abort()
        assert (await second).unwrap() == "Two."
        assert script_of(chat) == [("user", "Go.", ABORTED, "Again."), ("assistant", "Two.")]


async def test_an_abort_without_a_turn_is_not_kept_for_later(stage: Stage, door: Door) -> None:
    async with chatting(stage.model(["One.", door.before("Never."), "Two."])) as chat:
        chat.abort()
        assert (await chat.prompt("Go.")).unwrap() == "One."
        chat.abort()
        turn = await door.reached_by(chat.start("Again."))
        async with chat.hold():
            pass
        assert (await turn).code == "EXECUTION_CANCELLED"
        await chat.prompt("Now?")
        assert not any(ABORTED in message.text for message in chat.messages)


async def test_an_abort_before_anything_was_said_leaves_no_trace() -> None:
    async with chatting(ScriptedModel(["One."])) as chat:
        turn = chat.start("Go.")
        chat.abort()
        assert (await turn).code == "EXECUTION_CANCELLED"
        assert chat.messages == ()


async def test_an_abort_of_the_checks_of_a_text_interrupts_nothing_the_model_did() -> None:
    async def check(text: str) -> None:
        chat.abort()
        await asyncio.Event().wait()

    async with chatting(ScriptedModel(["One."]), validators=[check]) as chat:
        assert (await chat.prompt("Go.")).code == "EXECUTION_CANCELLED"
        assert script_of(chat) == [("user", "Go."), ("assistant", "One.")]


async def test_an_aborted_turn_in_a_row_of_runs_keeps_what_was_not_said(stage: Stage) -> None:
    async with chatting(stage.model(["One."])) as chat:
        chat.follow_up("later")
        chat.subscribe(once(RunSucceeded, chat.abort))
        assert (await chat.prompt("Go.")).unwrap() == "One."
        assert chat.state.follow_ups == ("later",)
        assert script_of(chat) == [("user", "Go."), ("assistant", "One.")]


async def test_an_abort_works_from_every_place(stage: Stage) -> None:
    async with chatting(stage.model([call("look"), "Done."]), tools=[look]) as chat:
        for kind in (RunStarted, IterationStarted, MessageCommitted):
            unsubscribe = chat.subscribe(once(kind, chat.abort))
            assert (await chat.prompt("Go.")).code == "EXECUTION_CANCELLED"
            unsubscribe()
        turn = chat.start("Go.")
        await asyncio.to_thread(chat.abort)
        assert (await turn).code == "EXECUTION_CANCELLED"


@virtual_clock
async def test_a_chat_stopped_by_its_limits_has_no_marker() -> None:
    async with chatting(ScriptedModel([hang]), limits=Limits(seconds=5)) as chat:
        assert (await chat.prompt("Go.")).code == "BUDGET_EXCEEDED"
        assert script_of(chat) == [("user", "Go.")]


async def test_a_hold_stops_the_turn_silently_and_refuses_others_until_it_is_released(stage: Stage, door: Door) -> None:
    async with chatting(stage.model([door.before("One."), "Two.", "Three."])) as chat:
        turn = await door.reached_by(chat.start("Go."))
        receipt = chat.follow_up("later")
        async with chat.hold():
            assert chat.state.is_held
            assert (await turn).code == "EXECUTION_CANCELLED"
            for begin in (chat.prompt("No."), chat.continue_()):
                with pytest.raises(ChatHeld, match="Try again when it has been released"):
                    await begin
            with pytest.raises(ChatHeld):
                chat.start("No.")
            chat.steer("kept")
        assert not chat.state.is_held
        assert (await chat.prompt("Yes.")).unwrap() == "Three."
        assert script_of(chat)[0] == ("user", "Go.", "Yes.", "kept")
        assert receipt.status == "delivered"


async def test_holds_add_up_and_a_release_counts_once(stage: Stage) -> None:
    async with chatting(stage.model(["One."])) as chat:
        first, second = chat.hold(), await chat.hold()
        await first
        await first
        first.release()
        first.release()
        with pytest.raises(ChatHeld):
            chat.start("No.")
        second.release()
        assert (await chat.prompt("Yes.")).unwrap() == "One."


async def test_two_holders_of_one_turn_both_get_their_hold(stage: Stage) -> None:
    async with chatting(stage.model([hang])) as chat:
        turn = chat.start("Go.")
        holds = [chat.hold(), chat.hold()]
        await asyncio.gather(*(hold.__aenter__() for hold in holds))
        assert (await turn).code == "EXECUTION_CANCELLED"
        for hold in holds:
            hold.release()
        assert not chat.state.is_held


async def test_a_listener_cannot_begin_a_turn_while_the_chat_is_held(stage: Stage) -> None:
    async with chatting(stage.model([hang])) as chat:
        chat.subscribe(once(TurnEnded, lambda: chat.start("Again.")))
        chat.start("Go.")
        async with chat.hold():
            assert not chat.state.is_running
            assert [type(each.error) for each in chat.state.listener_errors] == [ChatHeld]


async def test_who_gives_up_on_a_hold_does_not_hold(door: Door) -> None:

    async def slow(*_: object) -> None:
        await door.wait()

    async with chatting(ScriptedModel([hang, "Two."]), callbacks=Callbacks(on_failure=slow)) as chat:
        chat.start("Go.")
        await asyncio.sleep(0)
        holding = asyncio.create_task(chat.hold().__aenter__())
        await cancelled(holding, when=door.reached)
        assert not chat.state.is_held
        assert not chat.state.is_running
        assert (await chat.prompt("Two?")).unwrap() == "Two."


async def test_a_chat_cannot_wait_for_itself(stage: Stage) -> None:
    @tool
    async def wait(how: str) -> str:
        """Wait for the chat."""
        waits: dict[str, Callable[[], object]] = {"idle": chat.wait_idle, "hold": chat.hold, "reset": chat.reset}
        await waits[how]()  # pyright: ignore[reportGeneralTypeIssues] - all are awaitable
        return "waited"

    answers = [call("wait", how=how, id=how) for how in ("idle", "hold", "reset")]
    async with chatting(stage.model([*answers, "x"]), tools=[wait]) as chat:
        await chat.prompt("Go.")
    for n in (1, 2, 3):
        (result,) = stage.tool_results(n)
        assert "from inside its own turn" in result.text


async def test_a_reset_stops_the_turn_and_forgets_everything(stage: Stage, door: Door) -> None:
    async with chatting(stage.model(["One.", door.before("Two."), "New."])) as chat:
        await chat.prompt("Go.")
        turn = await door.reached_by(chat.start("Again."))
        receipt = chat.follow_up("later")
        await chat.reset()
        assert (await turn).code == "EXECUTION_CANCELLED"
        assert (chat.messages, chat.usage.requests, receipt.status) == ((), 0, "withdrawn")
        assert chat.state.last_error is None
        assert (await chat.prompt("Hello.")).unwrap() == "New."
        assert script_of(chat) == [("user", "Hello."), ("assistant", "New.")]


async def test_leaving_the_chat_stops_what_runs_and_waits_for_it(stage: Stage) -> None:
    cleaned: list[str] = []
    begun = asyncio.Event()

    @tool
    async def work() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("work")
        return "never"

    async with chatting(stage.model([call("work", id="a")]), tools=[work]) as chat:
        turn = chat.start("Go.")
        await begun.wait()
    assert cleaned == ["work"]
    assert (await turn).code == "EXECUTION_CANCELLED"
    assert script_of(chat)[-1] == ("user", f"#a! {STOPPED}")


async def test_leaving_with_an_error_stops_what_runs_too(stage: Stage) -> None:
    turns: list[object] = []

    async def leave() -> None:
        async with chatting(stage.model([hang])) as chat:
            turns.append(chat.start("Go."))
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await leave()
    assert repr(turns[0]) == "<Turn of 'tester', over>"


async def test_no_listener_can_begin_a_turn_in_a_chat_that_is_left() -> None:
    async with chatting(ScriptedModel([hang])) as chat:
        chat.subscribe(once(TurnEnded, lambda: chat.start("Again.")))
        chat.start("Go.")
        await asyncio.sleep(0)
    assert not chat.state.is_running


@virtual_clock
async def test_a_callback_that_hangs_cannot_hold_up_who_gives_up(door: Door) -> None:

    async def never(*_: object) -> None:
        await door.wait()

    async with chatting(ScriptedModel(["One."], repeat=True), callbacks=Callbacks(on_success=never)) as chat:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(chat.prompt("Go."), 1)
        door.reached.clear()
        chat.start("Again.")
        await door.reached.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(chat.__aexit__(None, None, None), 1)
    assert not chat.state.is_running


async def test_a_task_that_is_cancelled_before_it_begins_leaves_the_chat_idle() -> None:
    async with chatting(ScriptedModel(["One."])) as chat:
        ends: list[object] = []
        chat.subscribe(lambda event: ends.append(event.result) if isinstance(event, TurnEnded) else None)
        turn = chat.start("Go.")
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert not chat.state.is_running
        assert ends == [None]
        assert (await chat.prompt("Again.")).unwrap() == "One."


async def test_waiting_for_idle_returns_at_once_where_nothing_runs_and_else_after_all_were_told(stage: Stage) -> None:
    told: list[Event] = []
    door = Door()
    async with chatting(stage.model([door.before("One."), hang])) as chat:
        await chat.wait_idle()
        chat.subscribe(once(TurnEnded, lambda: chat.start("Takeover.")))
        chat.subscribe(told.append)
        chat.start("Go.")
        waiting = asyncio.create_task(chat.wait_idle())
        await door.reached.wait()
        door.opened.set()
        await waiting
        assert chat.state.is_running
        assert "TurnEnded" in names(told)


async def test_listeners_hear_everything_in_the_order_they_came(stage: Stage) -> None:
    heard: list[tuple[str, str]] = []

    def listener(name: str) -> Callable[[Event], None]:
        return lambda event: heard.append((name, event.message.text)) if isinstance(event, MessageCommitted) else None

    def on_message(message: Message) -> None:
        heard.append(("agent", message.text))

    async with chatting(stage.model(["One."]), on_message=on_message, on_event=listener("first")) as chat:
        chat.subscribe(listener("second"))
        unsubscribe = chat.subscribe(listener("third"))
        unsubscribe()
        unsubscribe()
        await chat.prompt("Go.")
    assert heard == [(name, text) for text in ("Go.", "One.") for name in ("agent", "first", "second")]


async def test_a_listener_may_take_over_at_the_end_of_a_turn(stage: Stage, door: Door) -> None:
    states: list[bool] = []
    async with chatting(stage.model(["One.", door.before("Two."), "Three."])) as chat:

        def take_over() -> None:
            states.append(chat.state.is_running)
            turns.append(chat.start("More."))
            states.append(chat.state.is_running)

        turns: list[object] = []
        chat.subscribe(once(TurnEnded, take_over))
        assert (await chat.prompt("Go.")).unwrap() == "One."
        assert states == [False, True]
        assert chat.state.is_running
        assert chat.steer("Steered.").disposition == "steered"
        door.opened.set()
        await chat.wait_idle()
        assert [line[1] for line in script_of(chat)] == ["Go.", "One.", "More.", "Two.", "Steered.", "Three."]


async def test_a_listener_that_raises_breaks_nothing(stage: Stage, recorder: Recorder) -> None:
    def bad(event: Event) -> None:
        raise LookupError(type(event).__name__)

    async with chatting(stage.model(["One."]), on_event=bad) as chat:
        chat.subscribe(recorder)
        result = await chat.prompt("Go.")
        assert result.unwrap() == "One."
        assert str(result.metadata.callback_errors[0].error) == "RunStarted"
        assert [str(each.error) for each in chat.state.listener_errors] == ["TurnEnded"]
    assert len(recorder.of(TurnEnded)) == 1


async def test_callbacks_are_awaited_in_every_run_of_a_turn(stage: Stage) -> None:
    outputs: list[object] = []

    async def keep(context: object, output: object) -> None:
        outputs.append(output)

    async with chatting(stage.model(["One.", "Two."]), callbacks=Callbacks(on_success=keep)) as chat:
        chat.follow_up("later")
        await chat.prompt("Go.")
    assert outputs == ["One.", "Two."]


async def test_a_message_that_grows_is_told_again_under_its_index(stage: Stage) -> None:
    log: dict[int, tuple[str, ...]] = {}

    def store(event: Event) -> None:
        if isinstance(event, MessageCommitted):
            (log[event.index],) = transcript([event.message])

    answers = [call("output", total=1, id="a"), call("output", total=2, id="b")]
    async with chatting(stage.model(answers), output=Output(Report), on_event=store) as chat:
        await chat.prompt("One.")
        await chat.prompt("Two.")
        assert list(log.values()) == script_of(chat)
        assert list(log) == [0, 1, 2, 3, 4]


async def test_nothing_is_left_when_the_work_around_a_chat_is_cancelled(stage: Stage, door: Door) -> None:
    chat = chatting(stage.model([call("wait", id="a")]), tools=[door.tool()])

    async def converse() -> None:
        async with chat:
            await chat.prompt("Go.")

    task = asyncio.create_task(converse())
    await cancelled(task, when=door.reached)
    assert script_of(chat)[-1] == ("user", f"#a! {CLOSING['once']}")


async def test_the_events_of_a_stopped_turn_end_with_its_end(stage: Stage, recorder: Recorder, door: Door) -> None:
    async with chatting(stage.model([door.before("Never.")]), on_event=recorder) as chat:
        turn = await door.reached_by(chat.start("Go."))
        chat.abort()
        await turn
    assert names(recorder.events)[-2:] == ["RunFailed", "TurnEnded"]
    assert len(recorder.of(RunFailed)) == 1
    told = [transcript([event.message])[0] for event in recorder.of(MessageCommitted)]
    assert told == [("user", "Go."), ("user", "Go.", ABORTED)]
