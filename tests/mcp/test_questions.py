"""What MCP servers ask the user: in chats, by both generations of the protocol, over stdio and HTTP."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from mcp import types

from journeyman import Agent, Chat, ToolResult
from journeyman.events import Event, QuestionAnswered, QuestionAsked
from journeyman.mcp import Target, mcp
from journeyman.mcp.elicitation import DECLINE, MAX_QUESTIONS, SKIP, CallQuestions
from journeyman.testing.scripted import ScriptedModel, call
from tests.cli.program import Warm
from tests.mcp.small import ASKING, Small, outside
from tests.play import answered

pytestmark = pytest.mark.timeout(60)

SIZE = {"type": "string", "enum": ["small", "large"], "description": "How big?"}
ORDER = {"type": "object", "properties": {"size": SIZE}, "required": ["size"]}


class User:
    """Answers the questions of a chat in turn, the last answer again and again."""

    def __init__(self, *answers: str) -> None:
        self.answers = [*answers]
        self.asked: list[QuestionAsked] = []

    def hear(self, event: Event, chat: Chat[Any, Any]) -> None:
        if isinstance(event, QuestionAsked):
            self.asked.append(event)
            chat.answer(event.id, self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    @property
    def options(self) -> list[Sequence[str]]:
        return [each.options for each in self.asked]


async def told(target: Target, user: User, **arguments: object) -> Any:  # noqa: ANN401  JSON
    """Return what the server says that it was answered."""
    async with mcp({"shop": target}) as tools:
        agent = Agent(name="buyer", model=ScriptedModel([call("ask", arguments), "Done."]), tools=tools)
        async with Chat(agent) as chat:
            chat.subscribe(lambda event: user.hear(event, chat))
            assert (await chat.prompt("Go.")).unwrap() == "Done."
            (result,) = [block for block in chat.messages[2].content if isinstance(block, ToolResult)]
    return json.loads(result.text) if result.text.startswith("[") else result.text


@pytest.mark.parametrize("form", ["older", "newer"])
async def test_the_user_of_the_chat_is_asked_in_the_name_of_the_server(warm: Warm, form: str) -> None:
    user = User("large")
    assert await told(outside(warm.command(form, program=ASKING)), user, form=ORDER, message="We pack it.") == [
        ["accept", {"size": "large"}]
    ]
    (asked,) = user.asked
    assert asked.question == "The MCP server 'shop' asks: We pack it.\n\nsize: How big? [one of these]"
    assert (asked.options, asked.path) == (("small", "large", DECLINE), ("buyer",))


async def test_a_server_over_http_may_ask_and_who_says_no_declines(either: str) -> None:
    assert await told(either, User("small"), form=ORDER) == [["accept", {"size": "small"}]]
    assert await told(either, User(DECLINE), form=ORDER) == [["decline", None]]
    assert await told(either, User("no"), form=ORDER) == [["decline", None]]


async def test_where_nobody_can_be_asked_the_user_has_declined(either: str) -> None:
    async with mcp({"shop": either}) as (ask,):
        assert json.loads((await answered(ask, {"form": ORDER})).text) == [["decline", None]]


PLAIN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "age": {"type": "integer", "minimum": 18},
        "price": {"type": "number"},
        "gift": {"type": "boolean"},
        "when": {"type": "string", "format": "date"},
        "mail": {"type": "string", "format": "email"},
        "size": {"oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}], "type": "string"},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["ribbon", "card"]}, "maxItems": 1},
        "old": {"type": "string", "enum": ["a", "b"], "enumNames": ["Alpha", "Beta"]},
        "crossed": {"oneOf": [{"const": "up", "title": "down"}, {"const": "down", "title": "up"}]},
        "note": {"type": "string"},
        "colour": {"type": "string", "default": "red"},
        "copies": {"type": "integer", "default": 1},
    },
    "required": ["name", "age", "price", "gift", "when", "mail", "size", "extras", "old"],
}


async def test_a_form_is_one_question_for_each_field_and_answers_are_of_its_types(older: str) -> None:
    user = User("Ada", "36", "1.5", "Yes", "2026-02-28", "a@b.example", "Large", "card", "Beta", "down", SKIP, "", "2")
    filled = {"name": "Ada", "age": 36, "price": 1.5, "gift": True, "when": "2026-02-28", "mail": "a@b.example"}
    more = {"size": "l", "extras": ["card"], "old": "b", "crossed": "up", "colour": "red", "copies": 2}
    assert await told(older, user, form=PLAIN) == [["accept", {**filled, **more}]]
    assert user.asked[0].question.endswith("Your name [a text] (1 of 13)")
    assert user.asked[11].question.endswith("colour [a text, if blank, red] (12 of 13)")
    assert user.options[3] == ("yes", "no", DECLINE)
    assert user.options[10:] == [(SKIP, DECLINE), ("red", DECLINE), ("1", DECLINE)]


@pytest.mark.parametrize(
    ("field", "wrong", "right", "why"),
    [
        (PLAIN["properties"]["name"], "A", "Ada", "is shorter than 2 characters"),
        (PLAIN["properties"]["name"], "", "Ada", "it is needed."),
        (PLAIN["properties"]["age"], "17", 18, "18"),
        (PLAIN["properties"]["age"], "18.5", 18, "should be of type integer, got 18.5"),
        (PLAIN["properties"]["age"], "many", 18, 'should be of type integer, got "many"'),
        (PLAIN["properties"]["gift"], "perhaps", False, "perhaps is none of: yes, no."),
        (PLAIN["properties"]["when"], "2026-02-30", "2026-02-28", 'is not a "date", got "2026-02-30"'),
        (PLAIN["properties"]["mail"], "ada", "ada@example.org", 'is not a "email", got "ada"'),
        ({"type": "string", "format": "ipv4"}, "1.2.3", "1.2.3.4", 'is not a "ipv4"'),
        ({"type": "number"}, "null", 18, "should be of type number, got null"),
        (PLAIN["properties"]["size"], "Medium", "s", "Medium is none of: Small, Large."),
        (PLAIN["properties"]["extras"], "card, ribbon", ["card"], "1"),
    ],
)
async def test_an_answer_that_does_not_fit_is_asked_for_again(
    field: dict[str, Any], wrong: str, right: object, why: str, older: str
) -> None:
    given = "no" if right is False else "card" if isinstance(right, list) else str(right)
    user = User(wrong, given)
    form = {"type": "object", "properties": {"it": field}, "required": ["it"]}
    assert await told(older, user, form=form) == [["accept", {"it": right}]]
    assert "That does not fit: " in user.asked[1].question
    assert why in user.asked[1].question.partition("That does not fit: ")[2]


NEVER = {"type": "object", "properties": {"it": {"type": "string", "pattern": "("}}}


@pytest.mark.parametrize("form", [ORDER, NEVER])
async def test_who_never_gives_an_answer_that_fits_has_cancelled(form: dict[str, Any], older: str) -> None:
    user = User("huge")
    assert await told(older, user, form=form) == [["cancel", None]]
    assert len(user.asked) == 3


async def test_a_form_without_fields_is_a_question_of_yes_or_no(older: str) -> None:
    user = User("yes")
    assert await told(older, user, form={"type": "object", "properties": {}}) == [["accept", {}]]
    assert user.options == [("yes", "no")]
    assert await told(older, User("no"), form={"type": "object", "properties": {}}) == [["decline", None]]


async def test_an_address_is_shown_with_its_host_and_opened_by_the_user_alone(either: str) -> None:
    user = User("yes")
    url = "https://bank.example@evil.example/pay?x=1"
    assert await told(either, user, url=url, message="Pay.") == [["accept", None]]
    (asked,) = user.asked
    assert asked.question.startswith(
        f"The MCP server 'shop' asks you to open an address of evil.example in your browser: Pay.\n\n{url}\n\n"
    )
    assert asked.options == ("yes", "no")
    assert await told(either, User("no"), url=url) == [["decline", None]]


async def test_an_address_that_a_call_needs_opened_first_is_put_to_the_user(older: str) -> None:
    user = User("yes")
    said = await told(older, user, url="https://login.example/", first=True, message="Log in.")
    assert said.endswith("log in first: the user opens an address for that. Call again when they have done so.")
    assert "an address of login.example in your browser: Log in." in user.asked[0].question
    for answer in ("no", "perhaps"):
        said = await told(older, User(answer), url="https://login.example/", first=True)
        assert said.endswith("the user did not agree to open an address that it needs opened.")


@pytest.mark.parametrize(
    "url",
    ["http://shop.example/", "file:///etc/passwd", "javascript:alert(1)", "https://", "https://ex\u0430mple.org/"],
)
async def test_an_address_that_is_not_safe_is_never_shown(url: str, older: str, newer: str) -> None:
    user = User("yes")
    said = "A user is asked to open only https addresses, written in ASCII."
    assert await told(older, user, url=url) == [said]
    assert said in await told(newer, user, url=url)
    assert user.asked == []


@pytest.mark.parametrize(
    "form",
    [
        {"type": "object", "properties": {"it": {"type": "object", "properties": {}}}},
        {"type": "object", "properties": {"it": {"type": "array", "items": {"type": "object"}}}},
        {"type": "object", "properties": {"it": {"$ref": "https://evil.example/schema"}}},
        {"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(21)}},
        {"type": "object", "properties": {"it": {"type": "string", "enum": [str(n) for n in range(101)]}}},
    ],
)
async def test_what_is_no_form_is_not_put_to_the_user(form: dict[str, Any], older: str) -> None:
    (said,) = await told(older, User("x"), form=form)
    assert said.startswith(("It is not a form with at most 20 plain values, at properties", "Field 'it': "))


async def test_a_server_that_asks_without_end_is_refused(older: str, newer: str) -> None:
    user = User("small")
    *answers, last = await told(older, user, form=ORDER, times=1000)
    assert (len(answers), last) == (MAX_QUESTIONS, "One call asks the user at most 50 questions.")
    assert len(user.asked) == MAX_QUESTIONS
    said = await told(newer, user, form=ORDER, times=1000)
    assert "it asked for more input 20 times, and was not asked again" in said


async def test_questions_that_wait_are_not_too_many() -> None:
    class Thinker:
        async def ask(
            self, path: tuple[str, ...], question: str, options: Sequence[str], *, call: object = None
        ) -> str | None:
            await asyncio.Event().wait()

    questions = CallQuestions("shop", Thinker(), ("buyer",))
    wanted = types.ElicitRequestFormParams(message="Please.", requested_schema=ORDER)
    asking = [asyncio.create_task(questions.answer(wanted)) for _ in range(MAX_QUESTIONS + 10)]
    await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    questions.answers.close()
    answers = await asyncio.gather(*asking)
    refused = types.ErrorData(code=types.INVALID_REQUEST, message="50 questions of this call wait already.")
    assert answers == [types.ElicitResult(action="cancel")] * MAX_QUESTIONS + [refused] * 10


async def test_the_words_of_a_server_are_bounded(older: str) -> None:
    user = User("small", "w" * 300 + "…")
    long = {"size": {**SIZE, "description": "d" * 10_000}, "word": {"type": "string", "default": "w" * 10_000}}
    said = await told(older, user, form={**ORDER, "properties": long}, message="m" * 100_000)
    assert said == [["accept", {"size": "small", "word": "w" * 10_000}]]
    assert [len(each.question) < 3_500 for each in user.asked] == [True, True]
    assert max(len(option) for each in user.asked for option in each.options) < 400


async def test_a_question_of_a_call_that_is_stopped_is_taken_back_and_the_server_goes_on(older: str) -> None:
    events: list[Event] = []
    waits = asyncio.Event()
    async with mcp({"shop": older}) as tools:
        script = ScriptedModel([call("ask", {"form": ORDER}), call("ask", {"form": ORDER}), "Done."])
        async with Chat(Agent(name="buyer", model=script, tools=tools)) as chat:

            def hear(event: Event) -> None:
                events.append(event)
                if isinstance(event, QuestionAsked):
                    waits.set()

            chat.subscribe(hear)
            turn = chat.start("Go.")
            await waits.wait()
            chat.abort("enough")
            await turn
            assert [event.answer for event in events if isinstance(event, QuestionAnswered)] == [None]
            assert chat.state.open_questions == ()
            chat.subscribe(lambda event: chat.answer(event.id, "large") if isinstance(event, QuestionAsked) else None)
            assert (await chat.prompt("Again.")).unwrap() == "Done."
            assert json.loads(_result(chat)) == [["accept", {"size": "large"}]]


def _result(chat: Chat[Any, Any]) -> str:
    (result,) = [block for block in chat.messages[-2].content if isinstance(block, ToolResult)]
    return result.text


async def test_the_time_of_the_user_is_part_of_the_time_of_the_call(older: str) -> None:
    async with mcp({"shop": older}, call_timeout_s=0.5) as tools:
        agent = Agent(name="buyer", model=ScriptedModel([call("ask", {"form": ORDER}), "Done."]), tools=tools)
        async with Chat(agent) as chat:
            chat.subscribe(lambda event: None)
            assert (await chat.prompt("Go.")).unwrap() == "Done."
            assert _result(chat) == "Error: ask timed out after 0.5s"
            assert chat.state.open_questions == ()


async def test_what_two_chats_might_be_asked_is_asked_of_neither(older: str) -> None:
    async with mcp({"shop": older}, parallel=True) as tools, AsyncExitStack() as stack:
        waits, users = asyncio.Event(), [User("small"), User("large")]
        chats: list[Chat[str, str]] = []
        for _ in users:
            model = ScriptedModel([call("ask", {"form": ORDER}), "Done."])
            chats.append(await stack.enter_async_context(Chat(Agent(name="buyer", model=model, tools=tools))))
        first, second = chats
        first.subscribe(lambda event: waits.set() if isinstance(event, QuestionAsked) else None)
        second.subscribe(lambda event: users[1].hear(event, second))
        turn = first.start("Go.")
        await waits.wait()
        assert (await second.prompt("Go.")).unwrap() == "Done."
        assert json.loads(_result(second)) == [["decline", None]]
        first.answer(first.state.open_questions[0], "small")
        assert (await turn).unwrap() == "Done."
        assert json.loads(_result(first)) == [["accept", {"size": "small"}]]


async def test_a_server_that_asks_while_nobody_calls_it_is_declined(small: Small) -> None:
    async with mcp({"small": small.at("curious")}):
        pass
    (answer,) = [line for line in small.lines if '"id": "q"' in line or '"id":"q"' in line]
    assert json.loads(answer)["result"] == {"action": "decline"}
