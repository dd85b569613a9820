"""Content as input: what a run says, what its functions are given, and what is stored of it."""

from pathlib import Path
from typing import Any, cast

import pytest

from journeyman import Agent, Chat, Failure, Image, Output, Reflection, run, run_many, run_sync, stream, tool
from journeyman.agent import MessageContext
from journeyman.durable import Durable
from journeyman.errors import DefinitionError
from journeyman.events import OutputDelta
from journeyman.loop import validation_context
from journeyman.model import Facts
from journeyman.output import StopContext
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.tools import ToolContext
from journeyman.types import Base64, Content, Message, Text, Url
from tests.play import existing, failed
from tests.support.files import PNG

PICTURE = Image.from_bytes(PNG)
ASKED: Content = ["What is on this?", PICTURE]
SAID = (Text("What is on this?"), PICTURE)


async def test_a_text_agent_takes_content() -> None:
    model = ScriptedModel([say("A pixel.")], repeat=True)
    agent = Agent(name="eyes", model=model)
    for given, said in ((ASKED, SAID), (PICTURE, (PICTURE,)), ([" ", PICTURE, Text("Hm?")], (PICTURE, Text("Hm?")))):
        result = await run(agent, given)
        assert result.unwrap() == "A pixel."
        assert result.history[0] == Message("user", said)


async def test_every_way_to_run_takes_content() -> None:
    agent = Agent(name="eyes", model=ScriptedModel([say("A pixel.")], repeat=True))
    async with stream(agent, ASKED) as events:
        async for _ in events:
            pass
    assert events.result.history[0].content == SAID
    async with Chat(agent) as chat:
        await chat.prompt(ASKED)
        await chat.start(PICTURE)
        async with chat.stream(["Again?", PICTURE]) as turn:
            async for _ in turn:
                pass
    assert [message.content for message in chat.messages if message.role == "user"] == [
        *(SAID, (PICTURE,), (Text("Again?"), PICTURE))
    ]
    pairs = [pair async for pair in run_many(agent, ["One?", ASKED])]
    assert [(given, result.history[0].content) for given, result in pairs] == [("One?", (Text("One?"),)), (ASKED, SAID)]


def test_run_sync_takes_content() -> None:
    assert run_sync(Agent(name="eyes", model=ScriptedModel("A pixel.")), ASKED).unwrap() == "A pixel."


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["Look.", 5, b"raw"], "item 2: 5 is neither a text nor an Image, a Document or an Audio"),
        ([], "it holds no words and no files"),
        ([" "], "it holds no words and no files"),
        (5, "string"),
        ({"a": 1}, "string"),
    ],
)
async def test_what_is_no_content_is_refused_before_any_call(given: object, why: str) -> None:
    model = ScriptedModel([])
    agent = Agent(name="eyes", model=model)
    result = failed(await run(agent, cast("Content", given)))
    assert result.code == "INVALID_INPUT"
    assert why in result.error.message
    assert model.requests == []


async def test_an_agent_of_another_input_takes_none() -> None:
    agent: Agent[str, Any] = Agent(name="sum", model=ScriptedModel([]), input=int)
    assert failed(await run(agent, ASKED)).code == "INVALID_INPUT"


async def test_functions_are_given_the_words_and_the_files_follow_the_prompt() -> None:
    given: list[object] = []

    def system(input: str) -> str:
        given.append(input)
        return "Look closely."

    agent = Agent(
        name="eyes",
        model=ScriptedModel([say("A pixel.")]),
        system=system,
        prompt=lambda input: f"Question: {input}",
        run_state=lambda input: {"asked": input},
    )
    result = await run(agent, ["What is this?", PICTURE, "And why?"])
    assert given == ["What is this?\n\nAnd why?"]
    assert result.history[0].content == (Text("Question: What is this?\n\nAnd why?"), PICTURE)


async def test_tools_validators_and_guards_see_what_was_given() -> None:
    seen: list[object] = []

    @tool
    async def crop(context: ToolContext) -> str:
        seen.append(context.input)
        return "cropped"

    def checks(output: str) -> None:
        seen.append(validation_context().input)

    def guard(stopping: StopContext) -> None:
        seen.append(stopping.task)

    def heard(message: Message, context: MessageContext) -> None:
        seen.append(context.task)

    model = ScriptedModel([say(call("crop")), say("A pixel.")])
    agent = Agent(name="eyes", model=model, tools=[crop], validators=[checks], stop_guard=guard, on_message=heard)
    (await run(agent, ASKED)).unwrap()
    tasks = {each for each in seen if isinstance(each, str)}
    [task] = tasks
    assert task.startswith("What is on this?\n[image: image/png, ")
    assert f"{len(PNG)} bytes, sha256 " in task
    assert [each for each in seen if not isinstance(each, str)] == [SAID, SAID]


async def test_a_durable_run_keeps_the_content(tmp_path: Path) -> None:
    model = ScriptedModel([say("A pixel.")])
    agent = Agent(name="eyes", model=model)
    async with Durable(tmp_path / "runs.db") as durable:
        handle = await durable.start(agent, ASKED, id="seven")
        other = [*ASKED, "More?"] if isinstance(ASKED, list) else []
        assert (await durable.run(agent, ASKED, id="seven")).unwrap() == "A pixel."
    async with Durable(tmp_path / "runs.db") as durable:  # in another life of the program
        result = await durable.run(Agent(name="eyes", model=ScriptedModel([])), ASKED, id="seven")
        with pytest.raises(Exception, match="its input is"):
            await durable.run(agent, other, id="seven")
    assert result.unwrap() == "A pixel."
    assert result.history[0].content == SAID
    assert model.requests[0].messages[0].content == SAID
    assert handle.id


def test_a_native_output_cannot_be_reflected_on() -> None:
    class Answers(ScriptedModel):
        @property
        def facts(self) -> Facts:
            return Facts(native_output=False)

    output = Output(int, mode="native", name="my report", reflection=Reflection(str), reminder=True)
    with pytest.raises(DefinitionError) as raised:
        Agent(name="a", model=Answers([]), output=output)
    assert [problem.code for problem in raised.value.problems] == [
        *("NATIVE_REFLECTION", "NATIVE_REMINDER", "INVALID_NAME", "NO_NATIVE_OUTPUT")
    ]
    wrong = Output(int, mode="json")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(DefinitionError, match=r"Output\.mode is 'json'"):
        Agent(name="a", model="openai:gpt-6", output=wrong)


async def test_a_model_that_is_known_to_have_no_native_output_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    result = failed(await run(Agent(name="a", model="openai:gpt-4", output=Output(int, mode="native")), "How many?"))
    assert result.code == "MODEL_UNAVAILABLE"
    assert "has no native output" in result.error.message


async def test_the_last_text_is_the_native_output() -> None:
    model = ScriptedModel([say("I count.", '{"value": 3}')])
    result = await run(Agent(name="a", model=model, output=Output(int, mode="native")), "How many?")
    assert result.unwrap() == 3
    [request] = model.requests
    assert request.prefix.tools == ()
    assert existing(request.prefix.output).schema["required"] == ["value"]


async def test_an_empty_native_answer_is_no_output() -> None:
    result = await run(Agent(name="a", model=ScriptedModel([say(" ")]), output=Output(int, mode="native")), "How many?")
    assert isinstance(result, Failure)
    assert result.code == "INVALID_RESPONSE"


def delta(json: str, *, is_wrapped: bool = False) -> OutputDelta:
    return OutputDelta(path=("a",), tool_use_id="", json=json, is_wrapped=is_wrapped)


def test_a_growing_output_is_of_its_type_as_soon_as_it_can_be() -> None:
    texts = ["", "[", '{"value": [{"a": 1}, {"a"', '{"value": [{"a": 1}, {"a": 2,']
    grown = [delta(text, is_wrapped=True).partial(list[dict[str, int]]) for text in texts]
    assert grown == [None, None, [{"a": 1}, {}], [{"a": 1}, {"a": 2}]]
    assert delta('{"title": "Ma', is_wrapped=False).partial(dict[str, str]) == {"title": "Ma"}
    assert delta("I look it up.").partial() == {}
    assert delta("I look it up.").partial(dict[str, str]) is None


def test_an_address_is_kept_as_it_is_where_nobody_knows_what_the_model_takes() -> None:
    image = Image.from_url("http://localhost/a.png")
    result = run_sync(Agent(name="eyes", model=ScriptedModel("A pixel.")), [image])
    assert result.history[0].content == (Image(Url("http://localhost/a.png")),)
    assert isinstance(PICTURE.source, Base64)
