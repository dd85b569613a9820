"""The conversation: ids of calls, blocks that are sent back as they came, and histories from elsewhere."""

from collections.abc import Sequence
from typing import Literal

import pytest

from journeyman import Agent, Chat, ErrorCode, Limits, Output, Success, Tool, dump_messages, load_messages, run, tool
from journeyman.model import Response
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.types import Block, Effect, Message, Opaque, RedactedThinking, Text, Thinking, ToolResult, ToolUse
from tests.loop.callback_log import CallbackLog
from tests.loop.parts import REFLECTED, rejected
from tests.play import Recorder, Report, Stage, make_tool, report, reporter, submit, talker, transcript
from tests.play.results import existing, failed, succeeded

ODD_IDS: list[list[str]] = [
    ["a", "a"],
    ["a", "a", "a"],
    ["a b", "a b"],
    ["ü", "x" * 65],
    ["call_1", "call_2", "call_1"],
    ["call_3", "a", "a"],
    ["a\n", "\ud800", "."],
]


def keeping(*responses: Sequence[ToolUse]) -> ScriptedModel:
    """Return a model as a decoder without care would make it: it gives the ids as they are written."""
    return ScriptedModel([list(each) for each in responses] + ["Done."])


@pytest.mark.parametrize("ids", ODD_IDS, ids=range(len(ODD_IDS)))
async def test_calls_with_odd_or_equal_ids_each_have_an_id_and_a_result_of_their_own(
    ids: list[str], recorder: Recorder
) -> None:  # A37, design 4.3
    runs: list[int] = []

    act = make_tool("act", "acted {n}", into=runs)
    told = CallbackLog()
    agent = talker(keeping([call("act", n=n, id=id) for n, id in enumerate(ids)]), tools=[act])
    result = succeeded(await run(agent, "Go.", on_event=recorder, callbacks=told.callbacks()))
    uses = result.history[1].tool_uses
    made = [use.id for use in uses]
    assert len(set(made)) == len(ids)
    assert all(
        use.wire_id == id.encode(errors="replace").decode() for use, id in zip(uses, ids, strict=True) if use.id != id
    )
    assert result.history[2].content == tuple(ToolResult(f"acted {n}", tool_use_id=id) for n, id in enumerate(made))
    assert runs == list(range(len(ids)))
    assert [context.tool_use_id for context, _ in told.of("tool_call")] == made
    assert load_messages(dump_messages(result.history)) == list(result.history)


async def test_ids_are_unique_over_the_whole_history() -> None:  # A37, design 4.3
    model = keeping([call("look", id="a")], [call("look", id="a")], [call("look", id="call_1")])
    result = await run(talker(model), "Go.")
    ids = [use.id for message in result.history for use in message.tool_uses]
    assert (len(ids), len(set(ids)), ids[0], ids[2]) == (3, 3, "a", "call_1")


async def test_ids_are_unique_over_a_history_that_goes_on() -> None:  # A37
    first = await run(talker(keeping([call("look", id="a")])), "Go.")
    model = keeping([call("look", id="a"), call("look", id="a")])
    second = await run(talker(model), "Again.", history=first.history)
    ids = [use.id for message in second.history for use in message.tool_uses]
    assert len(set(ids)) == len(ids) == 3
    assert second.history[: len(first.history)] == first.history


async def test_two_outputs_of_one_id_are_two_calls(recorder: Recorder) -> None:  # A37, A3
    agent = reporter(keeping([report(99, "a"), report(1, "a")]))
    assert (await run(agent, "Go.", on_event=recorder)).unwrap() == Report(total=1)


async def test_calls_without_an_id_get_one(stage: Stage) -> None:  # A37
    result = await run(talker(stage.model([[call("look"), call("look")], [call("look")], "Done."])), "Go.")
    ids = [use.id for message in result.history for use in message.tool_uses]
    assert all(ids)
    assert len(set(ids)) == 3


THOUGHT = Thinking("Let me think.\n", "c2lnbmF0dXJl")
HIDDEN = RedactedThinking("EmwKAhgBEgy3va3pzix")
SEARCHING = Opaque("anthropic", '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q":"x"}}')
FOUND = Opaque("anthropic", '{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}')


def stopping(*blocks: Block, reason: Literal["tool_use", "pause_turn"] = "tool_use") -> Response:
    return Response(content=blocks, stop_reason=reason, usage=say().usage)


async def test_what_the_model_thought_and_searched_is_sent_back_as_it_came(stage: Stage) -> None:  # A41, M8
    first = (THOUGHT, HIDDEN, Text("I will search."), SEARCHING, FOUND, Text(" Found."), call("look", id="a"))
    second = (Thinking("Now the draft.", "ZHJhZnQ="), report(99, "b"))
    third = (Thinking("Smaller.", "c21hbGw="), report(1, "c"))
    assert succeeded(await run(reporter(stage.model([stopping(*each) for each in (first, second, third)])), "Go."))
    assert stage.messages(1)[1].content == stage.messages(2)[1].content == first
    assert stage.messages(2)[3].content == second
    assert stage.messages(2)[:3] == stage.messages(1)


async def test_a_call_of_the_providers_own_that_is_open_is_answered_with_results_only(stage: Stage) -> None:  # A41
    model = stage.model([stopping(SEARCHING, call("look", id="a")), stopping(FOUND, report(1))])
    assert isinstance(await run(reporter(model), "Go."), Success)
    assert stage.messages(1)[-1].content == (ToolResult("found here", tool_use_id="a"),)


async def test_a_feedback_text_waits_until_the_providers_own_call_is_answered(stage: Stage) -> None:  # A41, A24
    model = stage.model([stopping(SEARCHING, report(99, "a")), stopping(FOUND, call("look", id="b")), report(1)])
    assert isinstance(await run(reporter(model, output=Output(Report, feedback_role="text")), "Go."), Success)
    assert [type(block) for block in stage.messages(1)[-1].content] == [ToolResult]
    assert stage.messages(2)[-1].content == (ToolResult("found here", tool_use_id="b"), Text(rejected(99)))


@pytest.mark.parametrize("stage", ["in process"], indirect=True)  # the server knows the blocks that there are
async def test_unknown_blocks_are_kept(stage: Stage) -> None:  # A41, M10
    odd = Opaque("anthropic", '{"type":"hologram","shape":[1,2,3]}')
    result = await run(talker(stage.model([stopping(odd, call("look", id="a")), "Done."])), "Go.")
    assert result.history[1].content == (odd, call("look", id="a"))


async def test_a_run_may_go_on_from_the_history_of_another(stage: Stage) -> None:  # A46, D46, R53
    agent = talker(stage.model([call("look", id="a"), "It is here.", "As I said."]))
    first = await run(agent, "Where is it?")
    second = await run(agent, "Are you sure?", history=load_messages(dump_messages(first.history)))
    assert second.unwrap() == "As I said."
    assert transcript(stage.messages(2)) == [
        ("user", "Where is it?"),
        ("assistant", "look({})#a"),
        ("user", "#a: found here"),
        ("assistant", "It is here."),
        ("user", "Are you sure?"),
    ]
    assert second.history[:4] == first.history
    assert existing(second.metadata.usage).requests == 1


@pytest.mark.parametrize(("answers", "offered"), [(["Hello."], []), ([call("look"), "Hello."], ["look"])])
async def test_a_history_goes_on_without_tools_and_those_it_calls_are_offered_as_gone(
    stage: Stage, answers: list[str | ToolUse], offered: list[str]
) -> None:  # R53, A46
    first = await run(talker(stage.model(answers)), "Hi.")
    second = await run(Agent(name="a", model=stage.model(["Fine."])), "How are you?", history=first.history)
    assert transcript(second.history) == [*transcript(first.history), ("user", "How are you?"), ("assistant", "Fine.")]
    assert [(tool.name, tool.description) for tool in stage.requests[-1].prefix.tools] == [
        (name, "No longer available.") for name in offered
    ]


async def test_what_went_before_does_not_count_against_a_run(stage: Stage) -> None:  # A46, A10
    agent = talker(stage.model([call("look"), "One."] * 3), limits=Limits(iterations=2, calls=1, attempts=1))
    history: Sequence[Message] = ()
    for _ in range(3):
        result = await run(agent, "Go on.", history=history)
        assert result.unwrap() == "One."
        assert result.metadata.tools["look"].succeeded == 1
        history = result.history
    assert len(history) == 12


async def test_a_draft_of_an_earlier_run_cannot_be_submitted(stage: Stage) -> None:  # A46, A8
    agent = reporter(stage.model([report(1), "Enough for now.", submit()]), output=REFLECTED)
    first = failed(await run(agent, "Go."))
    again = failed(await run(agent, "Go on.", history=first.history))
    assert (again.code, again.candidate) == (ErrorCode.SUBMIT_BEFORE_OUTPUT, None)


def user(*blocks: Block) -> Message:
    return Message("user", blocks)


def assistant(*blocks: Block) -> Message:
    return Message("assistant", blocks)


A, B, CALLED = Text("a"), Text("b"), call("look", id="x")
FOUND_1, FOUND_2 = ToolResult("1", tool_use_id="x"), ToolResult("2", tool_use_id="x")
UNSENDABLE: dict[str, list[Message]] = {
    "a call without a result": [user(A), assistant(CALLED)],
    "a result without a call": [user(FOUND_1, A)],
    "two users in a row": [user(A), user(B)],
    "an empty message": [user(), assistant()],
    "a blank text": [user(Text(" ")), assistant(Text(""))],
    "an assistant first": [assistant(Text("Hello."))],
    "a text before a result": [user(A), assistant(CALLED), user(B, FOUND_1)],
    "two results of one call": [assistant(CALLED), user(FOUND_1, FOUND_2)],
    "equal ids": [user(A), assistant(CALLED, CALLED), user(FOUND_1, FOUND_2)],
    "a call of a tool that is gone": [assistant(ToolUse("x", "gone"))],
}


# A46, design 4.3
@pytest.mark.parametrize("history", UNSENDABLE.values(), ids=UNSENDABLE)
async def test_a_history_that_could_not_be_sent_is_mended(stage: Stage, history: list[Message]) -> None:
    result = await run(talker(stage.model(["Hello."])), "Go.", history=history)
    assert result.unwrap() == "Hello."
    assert stage.messages(-1)[-1].content[-1] == Text("Go.")
    assert all(message.content for message in result.history)


SIGNED = Thinking("Hm.", "c2lnbmVk")
NOTHING_SAID: dict[str, Response] = {
    "nothing": say(),
    "an empty text": say(""),
    "a blank": say(" "),
    "blanks": say("\n", " \t"),
    "thinking": say(SIGNED),
    "thinking and a blank": say(SIGNED, "\n\n"),
    "hidden thinking": say(RedactedThinking("eDk="), " "),
    "a blank that is cut off": say(" ", stop_reason="max_tokens"),
    "a blank refusal": say(" ", stop_reason="refusal"),
    "a blank after a stop sequence": say(" ", stop_reason="stop_sequence"),
    "a blank before a pause": say(" ", stop_reason="pause_turn"),
    "a blank call of nothing": say(" ", stop_reason="tool_use"),
}


# A46, design 4.3
@pytest.mark.parametrize("answer", NOTHING_SAID.values(), ids=NOTHING_SAID)
async def test_a_run_that_ended_with_nothing_said_can_go_on(stage: Stage, answer: Response) -> None:
    agent = talker(stage.model([call("look", id="a"), answer, "Hello."]), limits=Limits(iterations=2))
    assert (await run(agent, "Go on.", history=failed(await run(agent, "Go.")).history)).unwrap() == "Hello."


@pytest.mark.parametrize("answer", NOTHING_SAID.values(), ids=NOTHING_SAID)
async def test_a_stored_answer_that_says_nothing_can_be_sent(stage: Stage, answer: Response) -> None:
    history = [user(A), Message("assistant", answer.content), user(B), Message("assistant", answer.content)]
    result = await run(talker(stage.model(["Hello."])), "Go.", history=history)
    assert result.unwrap() == "Hello."


@pytest.mark.parametrize(
    "answer", [say(" "), say(SIGNED), say(SIGNED, "\n")], ids=["a blank", "a thought", "a thought and a blank"]
)
async def test_a_reminder_after_a_blank_answer_can_be_sent(stage: Stage, answer: Response) -> None:
    model = stage.model([answer, answer, report(1)])
    assert (await run(reporter(model, output=Output(Report, reminder=True)), "Go.")).unwrap() == Report(total=1)
    reminder = "Nothing was handed in yet. Go on, and hand in the result with 'output'."
    assert stage.texts(2)[-1] == reminder


async def test_the_history_that_is_given_is_not_changed(stage: Stage) -> None:  # A46, A48
    history = [user(A), assistant(CALLED)]
    before = list(history)
    await run(talker(stage.model(["Hello."])), "Go.", history=history)
    assert history == before


async def test_a_call_that_was_cut_off_reads_the_same_in_a_run_and_in_a_chat() -> None:
    def with_effect(effect: Effect) -> Tool[..., object]:
        async def act() -> str:
            return ""

        return tool(act, name=effect, effect=effect)

    effects: tuple[Effect, ...] = ("pure", "idempotent", "once")
    cut = [Message("user", (Text("Go."),)), Message("assistant", tuple([ToolUse(each, each) for each in effects]))]
    told: list[list[str]] = []
    for asked in ("run", "chat"):
        agent = talker(ScriptedModel(["Done."]), tools=list(map(with_effect, effects)))
        if asked == "run":
            history = succeeded(await run(agent, "On.", history=cut)).history
        else:
            async with Chat(agent, history=cut) as chat:
                history = succeeded(await chat.prompt("On.")).history
        told.append([block.text for block in history[2].content if isinstance(block, ToolResult)])
    assert told[0] == told[1]
    assert [text.partition("finished. ")[2].partition(" ")[0] for text in told[0]] == ["It", "It", "Whether"]
