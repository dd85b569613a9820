"""What is said while a turn goes on: steering, follow-ups, injections, and what their receipts say."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from journeyman import Agent, Callbacks, Chat, Limits, Output, Tasks, Tool, Turn, run, tool
from journeyman.agent import StopContext
from journeyman.endings import StopGuardContext
from journeyman.errors import ChatHeld, ProviderError
from journeyman.events import ModelResponded, RunSucceeded, TurnEnded
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.tools import TaskContext
from journeyman.types import Opaque
from tests.chat.opening import once
from tests.play.agents import Report, chatting, script_of
from tests.play.models import Door
from tests.play.recorder import Recorder, calls, check_balance, transcript
from tests.play.results import context_of, succeeded
from tests.play.stage import Stage
from tests.play.tools import look, make_tool

SKIPPED = "Error: not run, because the user wrote something new. Read it first; call again if that is still right."


async def test_steering_skips_calls_that_have_not_started(stage: Stage, door: Door, recorder: Recorder) -> None:
    answers = [[call("wait", id="a"), call("look", id="b"), call("look", id="c")], "Stopped looking."]
    async with chatting(stage.model(answers), tools=[door.tool(), look], on_event=recorder) as chat:
        turn = await door.reached_by(chat.start("Go."))
        chat.steer("Don't look.")
        result = await door.open_for(turn)
    skipped = [each for name in "bc" for each in (f"look#{name}?", f"look#{name}! {SKIPPED}")]
    assert calls(recorder.events) == ["wait#a?", "wait#a: waited", *skipped]
    said = transcript(stage.messages(1))[-1]
    assert said == ("user", "#a: waited", f"#b! {SKIPPED}", f"#c! {SKIPPED}", "Don't look.")
    assert result.metadata.tools["look"].errors == {"skipped": 2}
    check_balance([event for event in recorder.events if not isinstance(event, TurnEnded)])


async def test_calls_that_run_together_finish_and_those_behind_them_are_skipped(stage: Stage) -> None:
    doors = [Door(), Door()]
    tools = [doors[0].tool("first", parallel=True), doors[1].tool("second", parallel=True), look]
    answers = [[call("first", id="a"), call("second", id="b"), call("first", id="c"), call("look", id="d")], "Done."]
    async with chatting(stage.model(answers), tools=tools, limits=Limits(max_concurrency=2)) as chat:
        turn = chat.start("Go.")
        await doors[1].reached.wait()
        chat.steer("Enough.")
        doors[0].opened.set()
        doors[1].opened.set()
        await turn
    said = transcript(stage.messages(1))[-1]
    assert said == ("user", "#a: waited", "#b: waited", f"#c! {SKIPPED}", f"#d! {SKIPPED}", "Enough.")


async def test_steering_while_the_model_writes_keeps_its_calls_from_beginning(stage: Stage, door: Door) -> None:
    model = stage.model([door.before(call("look", id="a")), "As you wish."])
    async with chatting(model, tools=[look]) as chat:
        turn = await door.reached_by(chat.start("Go."))
        chat.steer("Stop.")
        await door.open_for(turn)
    assert transcript(stage.messages(1))[-1] == ("user", f"#a! {SKIPPED}", "Stop.")


async def test_an_output_that_steering_came_before_is_not_handed_in(stage: Stage, door: Door) -> None:
    model = stage.model([door.before(call("output", total=1, id="a")), call("output", total=2, id="b")])
    async with chatting(model, output=Output(Report)) as chat:
        turn = await door.reached_by(chat.start("How many?"))
        chat.steer("One more.")
        assert (await door.open_for(turn)).unwrap() == Report(total=2)
    assert transcript(stage.messages(1))[-1] == ("user", f"#a! {SKIPPED}", "One more.")


async def test_steering_that_waits_at_the_natural_stop_is_the_next_prompt(stage: Stage) -> None:
    door, recorder = Door(), Recorder()
    async with chatting(stage.model([door.before("One."), "Two."]), on_event=recorder) as chat:
        turn = await door.reached_by(chat.start("Count."))
        chat.steer("Go on.")
        assert (await door.open_for(turn)).unwrap() == "Two."
        assert script_of(chat) == [("user", "Count."), ("assistant", "One."), ("user", "Go on."), ("assistant", "Two.")]
    assert [event.output for event in recorder.of(RunSucceeded)] == ["One.", "Two."]
    assert len(recorder.of(TurnEnded)) == 1


async def test_steering_goes_before_follow_ups_and_each_queue_is_said_whole(stage: Stage, door: Door) -> None:
    async with chatting(stage.model([door.before("1."), "2.", "3."])) as chat:
        turn = await door.reached_by(chat.start("Go."))
        for number in (1, 2):
            chat.follow_up(f"later {number}")
            chat.steer(f"now {number}")
        assert (await door.open_for(turn)).unwrap() == "3."
        assert script_of(chat)[::2] == [("user", "Go."), ("user", "now 1", "now 2"), ("user", "later 1", "later 2")]
        assert script_of(chat)[1::2] == [("assistant", f"{number}.") for number in (1, 2, 3)]


async def test_a_follow_up_does_not_disturb_the_calls(stage: Stage, door: Door) -> None:
    answers = [[call("wait", id="a"), call("look", id="b")], "Done.", "More."]
    async with chatting(stage.model(answers), tools=[door.tool(), look]) as chat:
        turn = await door.reached_by(chat.start("Go."))
        receipt = chat.follow_up("And then?")
        await door.open_for(turn)
        assert (receipt.disposition, receipt.status) == ("queued", "delivered")
    assert transcript(stage.messages(1))[-1] == ("user", "#a: waited", "#b: found here")
    assert transcript(stage.messages(2))[-1] == ("user", "And then?")


async def test_what_is_said_while_idle_waits_for_the_next_prompt(stage: Stage) -> None:
    async with chatting(stage.model(["One.", "Two."])) as chat:
        chat.follow_up("later")
        assert chat.steer("by the way").disposition == "queued"
        await chat.prompt("Go.")
        assert script_of(chat)[::2] == [("user", "Go.", "by the way"), ("user", "later")]
        assert script_of(chat)[1::2] == [("assistant", "One."), ("assistant", "Two.")]


async def test_continuing_an_idle_chat_says_the_steering_or_else_the_follow_ups(stage: Stage) -> None:
    async with chatting(stage.model(["One.", "Two.", "Three."])) as chat:
        await chat.prompt("Go.")
        chat.follow_up("later")
        chat.steer("now")
        assert (await chat.continue_()).unwrap() == "Three."
        assert [line[1] for line in script_of(chat)] == ["Go.", "One.", "now", "Two.", "later", "Three."]


@pytest.mark.parametrize("ending", ["abort", "limit", "error", "stop_after"])
async def test_the_queues_survive_every_ending_but_the_natural_stop(ending: str, door: Door) -> None:
    after: dict[str, Answer] = {"error": ProviderError("no", kind="bad_request"), "limit": call("look")}
    model = ScriptedModel([call("look"), door.before(after.get(ending, call("stop"))), "Done.", "More."])
    async with chatting(
        model, tools=[look, make_tool("stop", "stopped")], limits=Limits(iterations=2), stop_after=["stop"]
    ) as chat:
        turn = await door.reached_by(chat.start("Go."))
        receipt = chat.follow_up("later")
        if ending == "abort":
            chat.abort()
        result = await door.open_for(turn)
        expected = {
            "abort": "EXECUTION_CANCELLED",
            "limit": "MAX_ITERATIONS",
            "error": "API_ERROR",
            "stop_after": "SUCCESS",
        }
        assert result.code == expected[ending]
        assert (receipt.status, chat.state.follow_ups) == ("queued", ("later",))


async def test_steering_that_no_model_call_follows_stays_in_its_queue(stage: Stage, door: Door) -> None:
    model = stage.model([call("wait"), "Read."])
    async with chatting(model, tools=[door.tool()], limits=Limits(iterations=1)) as chat:
        turn = await door.reached_by(chat.start("Go."))
        receipt = chat.steer("Listen.")
        assert (await door.open_for(turn)).code == "MAX_ITERATIONS"
        assert (receipt.status, chat.state.steering) == ("queued", ("Listen.",))
        assert (await chat.continue_()).unwrap() == "Read."
        assert receipt.status == "delivered"


async def test_steering_whose_request_fails_is_part_of_the_next_one(door: Door) -> None:
    model = ScriptedModel([call("wait", id="a"), ProviderError("no", kind="bad_request"), "Read."])
    async with chatting(model, tools=[door.tool()]) as chat:
        turn = await door.reached_by(chat.start("Go."))
        receipt = chat.steer("Listen.")
        assert (await door.open_for(turn)).code == "API_ERROR"
        assert (receipt.status, chat.state.steering) == ("delivered", ())
        await chat.continue_()
        assert transcript(model.requests[2].messages)[-1] == ("user", "#a: waited", "Listen.")


async def test_follow_ups_return_to_their_queue_when_the_next_run_cannot_begin() -> None:
    n_built: list[str] = []

    def system(given: str) -> str:
        n_built.append(given)
        if len(n_built) == 2:
            raise ValueError("no")
        return "Be brief."

    async with chatting(ScriptedModel(["One.", "Two."]), system=system) as chat:
        receipt = chat.follow_up("later")
        chat.follow_up("and later")
        assert (await chat.prompt("Go.")).code == "PROMPT_GENERATION_FAILED"
        assert receipt.status == "queued"
        assert chat.state.follow_ups == ("later", "and later")
        assert (await chat.continue_()).unwrap() == "Two."
        assert n_built == ["Go.", "Go.", "Go."]


async def test_what_comes_while_a_run_begins_waits_behind_what_it_could_not_say(door: Door) -> None:
    n_built = list[str]()

    async def system(given: str) -> str:
        n_built.append(given)
        if len(n_built) == 2:
            await door.wait()
            raise ValueError("no")
        return "Be brief."

    async with chatting(ScriptedModel(["One."]), system=system) as chat:
        chat.follow_up("first")
        turn = await door.reached_by(chat.start("Go."))
        chat.follow_up("second")
        assert chat.state.follow_ups == ("first", "second")
        assert chat.clear() == ("second",)
        chat.follow_up("third")
        assert (await door.open_for(turn)).code == "PROMPT_GENERATION_FAILED"
        assert chat.state.follow_ups == ("first", "third")


async def test_a_text_that_comes_as_the_last_run_ends_is_not_dropped(stage: Stage) -> None:
    async with chatting(stage.model(["One.", "Two."])) as chat:
        chat.subscribe(once(RunSucceeded, lambda: chat.steer("One more.")))
        assert (await chat.prompt("Go.")).unwrap() == "Two."


async def test_a_text_that_comes_after_the_end_waits(stage: Stage) -> None:
    async with chatting(stage.model(["One."])) as chat:
        dispositions: list[str] = []
        chat.subscribe(once(TurnEnded, lambda: dispositions.append(chat.steer("One more.").disposition)))
        assert (await chat.prompt("Go.")).unwrap() == "One."
        assert dispositions == ["queued"]
        assert chat.state.steering == ("One more.",)


async def test_tools_and_listeners_may_steer(stage: Stage) -> None:
    @tool
    def remind() -> str:
        assert threading.current_thread() is not threading.main_thread()
        chat.steer("from the tool")
        return "reminded"

    async with chatting(stage.model([call("remind", id="a"), "Noted.", "Again."]), tools=[remind]) as chat:
        chat.subscribe(once(ModelResponded, lambda: chat.follow_up("from the listener")))
        await chat.prompt("Go.")
    assert transcript(stage.messages(1))[-1] == ("user", "#a: reminded", "from the tool")
    assert transcript(stage.messages(2))[-1] == ("user", "from the listener")


async def test_a_pause_for_the_providers_tool_is_not_steered_into(door: Door) -> None:
    asked = Opaque("scripted", '{"type":"server_tool_use","id":"s1","name":"search","input":{}}')
    found = Opaque("scripted", '{"type":"search_result","tool_use_id":"s1"}')
    model = ScriptedModel([say(asked, stop_reason="pause_turn"), door.before(say(found, "Found.")), "Noted."])
    async with chatting(model) as chat:
        chat.subscribe(once(ModelResponded, lambda: chat.steer("Hurry.")))
        turn = await door.reached_by(chat.start("Search."))
        assert chat.state.steering == ("Hurry.",)
        assert [message.role for message in model.requests[1].messages] == ["user", "assistant"]
        assert (await door.open_for(turn)).unwrap() == "Noted."
        assert script_of(chat)[-2:] == [("user", "Hurry."), ("assistant", "Noted.")]


async def test_an_injection_resumes_a_chat_that_came_to_its_end(stage: Stage) -> None:
    async with chatting(stage.model(["One.", "Noted."])) as chat:
        await chat.prompt("Go.")
        receipt = chat.inject("Task 1 is done.")
        assert receipt.disposition == "resumed"
        assert chat.state.is_running
        assert await receipt.outcome() == "delivered"
        await chat.wait_idle()
        assert script_of(chat)[-2:] == [("user", "Task 1 is done."), ("assistant", "Noted.")]


async def test_an_injection_resumes_a_typed_chat_as_well(stage: Stage) -> None:
    answers = [call("output", total=1, id="a"), call("output", total=2, id="b")]
    async with chatting(stage.model(answers), output=Output(Report)) as chat:
        await chat.prompt("Go.")
        assert chat.inject("One more.").disposition == "resumed"
        await chat.wait_idle()
    assert transcript(stage.messages(1))[-1] == ("user", "#a: Accepted.", "One more.")


async def test_an_injection_waits_where_nothing_was_said_yet_or_the_last_turn_failed() -> None:
    async with chatting(ScriptedModel([ProviderError("no", kind="bad_request"), "Both."])) as chat:
        assert chat.inject("first").disposition == "queued"
        await chat.prompt("Go.")
        assert chat.inject("second").disposition == "queued"
        assert not chat.state.is_running
        await chat.continue_()
        assert script_of(chat)[0] == ("user", "Go.", "first", "second")


async def test_an_injection_into_a_held_chat_is_refused(stage: Stage) -> None:
    async with chatting(stage.model([])) as chat, chat.hold():
        with pytest.raises(ChatHeld, match="Nothing was queued"):
            chat.inject("Hello.")
        assert chat.state.steering == ()


async def test_an_injection_from_another_thread_resumes_the_chat(stage: Stage) -> None:
    async with chatting(stage.model(["One.", "Noted."])) as chat:
        await chat.prompt("Go.")
        receipt = await asyncio.to_thread(chat.inject, "From afar.")
        assert receipt.disposition == "resumed"
        assert await receipt.outcome() == "delivered"
        await chat.wait_idle()
        with pytest.raises(RuntimeError, match=r"From another thread, use inject\(\)"):
            await asyncio.to_thread(chat.start, "From afar.")


GIVEN: dict[str, Callable[[Chat[Any, Any], Turn[Any]], object]] = {
    "receipt": lambda chat, turn: chat.steer("Hurry."),
    "turn": lambda chat, turn: turn,
    "hold": lambda chat, turn: chat.hold(),
}
"""What hooks return that would never come, or would stop a turn, if somebody awaited it."""


class Deciding:
    """A gate that decides as a function does."""

    def __init__(self, decide: Callable[..., Any]) -> None:
        self.decide = decide


def refuse(text: str) -> None:
    raise ValueError("refused")


HOOKS: dict[str, Callable[[Callable[..., Any]], dict[str, Any]]] = {
    **{
        name: lambda hook, name=name: {name: hook}
        for name in ("system", "prompt", "run_state", "attempt_state", "final_state", "on_message")
    },
    "stop_guard": lambda hook: {"stop_guard": hook},
    "stop_after": lambda hook: {"stop_after": hook},
    "validator": lambda hook: {"validators": [hook]},
    "error_prompt": lambda hook: {"validators": [refuse], "error_prompt": hook},
    "reflection": lambda hook: {
        "model": ScriptedModel([REPORTED], repeat=True),
        "output": Output(Report, reflection=hook),
    },
    "middleware": lambda hook: {"tool_middleware": [hook]},
    "gate": lambda hook: {"gate": Deciding(hook)},
    "handler": lambda hook: {"tools": [Tool("look", "Look.", {"type": "object"}, hook, thread=False)]},
    "model": lambda hook: {"model": FunctionModel(hook)},
}
REPORTED = [call("output", total=1), call("submit")]


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("where", HOOKS)
async def test_what_a_hook_returns_of_a_chat_is_not_waited_for(where: str, given: str, door: Door) -> None:
    returned: list[object] = []
    async with chatting(ScriptedModel([door.before("Done.")], repeat=True)) as chat:
        turn = await door.reached_by(chat.start("Go."))

        def hook(*_: object) -> object:
            returned.append(GIVEN[given](chat, turn))
            return returned[-1]

        options: dict[str, Any] = {"model": ScriptedModel([call("look"), "Done."], repeat=True), "tools": [look]}
        await run(Agent[Any, Any](name="a", **options | HOOKS[where](hook)), "Go.", max_attempts=2)
        assert returned
        assert (chat.state.is_running, chat.state.is_held) == (True, False)
        assert (await door.open_for(turn)).unwrap() == "Done."


@pytest.mark.parametrize("given", GIVEN)
async def test_what_callbacks_and_notifiers_return_of_a_chat_is_not_waited_for(given: str, door: Door) -> None:
    names = [field.name for field in fields(Callbacks)]
    told: list[str] = []

    async def work(task: TaskContext) -> None:
        told.append("work")

    async with chatting(ScriptedModel([door.before("Done.")], repeat=True)) as chat:
        turn = await door.reached_by(chat.start("Go."))

        def hook(name: str) -> Callable[..., Any]:
            return lambda *_: (told.append(name), GIVEN[given](chat, turn))[1]

        agent = Agent(
            name="a", model=ScriptedModel([call("look"), "Done."]), tools=[look], validators=[lambda text: None]
        )
        result = succeeded(await run(agent, "Go.", callbacks=Callbacks(**{name: hook(name) for name in names})))
        assert result.metadata.callback_errors == ()
        async with Tasks(notify=hook("notify")) as tasks:
            tasks.start(work, description="work")
            await tasks.wait()
        assert tasks.errors == ()
        assert {*told} == {*names, "work", "notify"} - {"on_validation_failure", "on_failure"}
        assert (chat.state.is_running, chat.state.is_held) == (True, False)
        assert (await door.open_for(turn)).unwrap() == "Done."


async def test_a_hook_may_say_something_to_the_chat_of_its_own_turn(stage: Stage) -> None:
    more = iter(["More."])

    def say_more(stopping: StopContext) -> Any:  # noqa: ANN401 - no verdict, on purpose
        return next((chat.follow_up(text) for text in more), None)

    async with chatting(stage.model(["One.", "Two."]), stop_guard=say_more) as chat:
        assert (await chat.prompt("Go.")).unwrap() == "Two."


async def test_a_turn_cannot_be_waited_for_from_inside_itself(stage: Stage) -> None:
    async def wait_for_it(stopping: StopContext) -> None:
        await turn

    async with chatting(stage.model(["One."]), stop_guard=wait_for_it) as chat:
        turn = chat.start("Go.")
        assert "from inside itself" in context_of(await turn, StopGuardContext).reason


async def test_what_waits_can_be_withdrawn(stage: Stage) -> None:
    async with chatting(stage.model(["One."])) as chat:
        steering, follow_up, kept = chat.steer("a"), chat.follow_up("b"), chat.follow_up("c")
        assert chat.clear("steering") == ("a",)
        assert (steering.status, follow_up.status) == ("withdrawn", "queued")
        assert chat.clear() == ("b", "c")
        assert await kept.outcome() == "withdrawn"
        await chat.prompt("Go.")
        assert script_of(chat)[0] == ("user", "Go.")


async def test_leaving_the_chat_withdraws_what_was_not_said() -> None:
    async with chatting(ScriptedModel([])) as chat:
        receipt = chat.follow_up("later")
        waiting = asyncio.ensure_future(receipt.outcome())
    assert await waiting == "withdrawn"
    assert repr(receipt) == "<Receipt withdrawn 'later'>"


async def test_who_stops_waiting_for_a_receipt_leaves_it_to_others(stage: Stage) -> None:
    async with chatting(stage.model(["One.", "Two."])) as chat:
        receipt = chat.follow_up("later")
        impatient, patient = asyncio.ensure_future(receipt.outcome()), asyncio.ensure_future(receipt.outcome())
        await asyncio.sleep(0)
        impatient.cancel()
        await chat.prompt("Go.")
        assert await patient == "delivered"
        assert impatient.cancelled()


@pytest.mark.parametrize("text", ["", " \n"])
async def test_a_blank_text_is_refused(text: str) -> None:
    async with chatting(ScriptedModel([])) as chat:
        for say_it in (chat.steer, chat.follow_up, chat.inject):
            with pytest.raises(ValueError, match="nothing to say"):
                say_it(text)
