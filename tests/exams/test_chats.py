"""The exam of chats: what is said, queued, stopped and undone is the same wherever a chat is kept."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from journeyman import Agent, Chat, ask_user
from journeyman.durable import Durable, InMemoryEngine, Memory, PostgresEngine
from journeyman.durable.sqlite import SqliteEngine
from journeyman.errors import NothingToContinue, ProviderError
from journeyman.events import Event, QuestionAsked, TurnEnded
from journeyman.model import Request
from journeyman.store import PostgresSessions, Store
from journeyman.testing.scripted import Answer, FunctionModel, call
from tests.exams.ports import CHATS
from tests.play import door as door
from tests.play import failed
from tests.play.models import Door, echo, following
from tests.play.recorder import Recorder, check_balance, names, transcript
from tests.play.results import cancelled, texts
from tests.play.tools import look, raising

Opened: TypeAlias = Callable[[Agent], AbstractAsyncContextManager[Chat]]
"""Opens the chat of a test, or goes on with it where it is kept."""


@pytest.fixture(params=CHATS)
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Opened]:
    kind: str = request.param
    if kind == "not kept":
        yield Chat
        return
    async with AsyncExitStack() as stack:
        if kind.startswith("durable"):
            engines = {
                "durable in memory": lambda: InMemoryEngine(Memory()),
                "durable in a file": lambda: SqliteEngine(tmp_path / "runs.db"),
                "durable in postgres": lambda: PostgresEngine(request.getfixturevalue("emptied")),
            }
            place = await stack.enter_async_context(Durable(engines[kind]()))
        elif kind == "postgres":
            place = PostgresSessions(request.getfixturevalue("emptied"))
        else:
            place = stack.enter_context(Store(tmp_path / "chats.db", redact=None if kind == "file" else ()))
        yield lambda agent: Chat.open(agent, place, id="user-1", create=True)


def said(chat: Chat) -> list[str]:
    return [message.text for message in chat.messages]


def answer_what_fits(request: Request) -> Answer:
    """Answer as a model with a window of 20 characters."""
    if len(request.messages[-1].text) > 20:
        raise ProviderError("prompt is too long", kind="context_overflow")
    return f"<{request.messages[-1].text}>"


async def test_a_prompt_that_is_too_long_is_taken_back_and_the_chat_goes_on(opened: Opened) -> None:
    agent = Agent(name="tester", model=FunctionModel(answer_what_fits))
    async with opened(agent) as chat:
        for text in ("Much too long. " * 2, "One.", "Far too long. " * 2, "More, and far too long.", "Two."):
            result = await chat.prompt(text)
            assert result.code == ("CONTEXT_OVERFLOW" if len(text) > 20 else "SUCCESS")
        assert said(chat) == ["One.", "<One.>", "Two.", "<Two.>"]
        with pytest.raises(NothingToContinue):
            await chat.continue_()
        chat.undo()
        expected = said(chat)
        assert expected == ["One.", "<One.>"]
    if chat.session is not None:
        async with opened(agent) as chat:
            assert said(chat) == expected
            assert (await chat.prompt("Three.")).unwrap() == "<Three.>"


async def test_what_was_said_later_and_is_too_long_is_taken_back_and_what_was_answered_stays(opened: Opened) -> None:
    async with opened(Agent(name="tester", model=FunctionModel(answer_what_fits))) as chat:
        chat.follow_up("This follow-up is much too long.")
        assert (await chat.prompt("One.")).code == "CONTEXT_OVERFLOW"
        assert said(chat) == ["One.", "<One.>"]
        assert (await chat.prompt("Two.")).unwrap() == "<Two.>"


async def test_prompts_and_answers_stand_in_their_order_with_what_they_used(opened: Opened) -> None:
    agent = Agent(name="tester", model=echo())
    async with opened(agent) as chat:
        assert [(await chat.prompt(text)).unwrap() for text in ("One.", "Two.")] == ["<One.>", "<Two.>"]
        expected = said(chat), chat.usage
        assert expected[0] == ["One.", "<One.>", "Two.", "<Two.>"]
        assert chat.usage.requests == 2
        is_kept = chat.session is not None
    if is_kept:
        async with opened(agent) as chat:
            assert (said(chat), chat.usage) == expected


async def test_what_is_undone_was_never_said(opened: Opened) -> None:
    async with opened(Agent(name="tester", model=echo())) as chat:
        await chat.prompt("One.")
        await chat.prompt("Two.")
        chat.undo()
        assert said(chat) == ["One.", "<One.>"]
        await chat.prompt("Three.")
        assert said(chat) == ["One.", "<One.>", "Three.", "<Three.>"]
        assert chat.usage.requests == 3, "what was spent stays spent"


async def test_steering_is_read_before_the_next_call_and_a_follow_up_when_all_is_done(
    opened: Opened, door: Door
) -> None:
    model = following(call("wait", id="w"), "First.", "Second.")
    async with opened(Agent(name="tester", model=model, tools=[door.tool()])) as chat:
        turn = await door.reached_by(chat.start("Go."))
        chat.follow_up("And then?")
        chat.steer("In French.")
        chat.steer("Briefly.")
        await door.open_for(turn)
        assert transcript(chat.messages) == [
            ("user", "Go."),
            ("assistant", "wait({})#w"),
            ("user", "#w: waited", "In French.", "Briefly."),
            ("assistant", "First."),
            ("user", "And then?"),
            ("assistant", "Second."),
        ]
        assert (chat.state.steering, chat.state.follow_ups) == ((), ())


async def test_a_turn_that_is_stopped_has_its_calls_closed_and_the_next_one_goes_on(opened: Opened, door: Door) -> None:
    model = following(call("wait", id="w"), "Again.")
    async with opened(Agent(name="tester", model=model, tools=[door.tool()])) as chat:
        turn = await door.reached_by(chat.start("Go."))
        turn.abort("enough")
        result = failed(await turn)
        assert (result.code, result.history) == ("EXECUTION_CANCELLED", chat.messages)
        assert (await chat.prompt("Go on.")).unwrap() == "Again."
        assert [each.role for each in chat.messages] == ["user", "assistant", "user", "assistant"]
        assert chat.messages[2].text == "[The user stopped the work here.]\n\nGo on."


async def test_a_question_of_the_model_is_answered_in_the_chat(opened: Opened) -> None:
    model = following(call("ask_user", question="Which year?", id="q"), "Noted.")
    async with opened(Agent(name="tester", model=model, tools=[ask_user])) as chat:

        def answer(event: Event) -> None:
            if isinstance(event, QuestionAsked):
                chat.answer(event.id, "2024")

        chat.subscribe(answer)
        assert texts(await chat.prompt("Go.")) == ["2024"]
        assert chat.state.open_questions == ()


async def test_a_turn_tells_the_same_events_in_the_same_order(opened: Opened) -> None:
    model = following(call("look", where="there", id="l"), "Found.")
    recorder = Recorder()
    async with opened(Agent(name="tester", model=model, tools=[look])) as chat:
        chat.subscribe(recorder)
        await chat.prompt("Go.")
    assert names(recorder.events) == [
        *("RunStarted", "AttemptStarted", "MessageCommitted"),
        *("IterationStarted", "MessageCommitted", "ModelResponded", "ToolCalled", "ToolFinished", "MessageCommitted"),
        *("IterationStarted", "MessageCommitted", "ModelResponded", "AttemptCompleted", "RunSucceeded", "TurnEnded"),
    ]
    check_balance([event for event in recorder.events if not isinstance(event, TurnEnded)])


async def test_a_model_that_fails_ends_the_turn_and_the_chat_goes_on(opened: Opened) -> None:
    async with opened(Agent(name="tester", model=FunctionModel(raising(ValueError("no"))))) as chat:
        result = failed(await chat.prompt("Go."))
        assert (result.code, result.history, chat.state.last_error) == ("API_ERROR", chat.messages, result.error)
        await chat.use(echo())
        assert (await chat.prompt("Again.")).unwrap() == "<Go.\n\nAgain.>"
        assert chat.state.last_error is None


async def test_a_prompt_that_was_cancelled_does_not_keep_the_next_one_from_being_answered(
    opened: Opened, door: Door
) -> None:
    model = following(call("wait", id="w"), "Done.", "Done.")
    async with opened(Agent(name="tester", model=model, tools=[door.tool()])) as chat:
        prompting = asyncio.ensure_future(chat.prompt("Go."))
        await cancelled(prompting, when=door.reached)
        assert (await chat.prompt("Again.")).unwrap() == "Done."
