"""Models without a provider, for users' own tests: scripted, conditional, delayed and failing."""

from journeyman import Limits, Usage, run
from journeyman.endings import ApiErrorContext
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.types import Text, Thinking, ToolUse
from tests.play import context_of, failed, succeeded, talker, transcript


async def test_a_script_gives_one_answer_after_the_other() -> None:  # X39
    model = ScriptedModel([call("look"), "Done."])
    assert model.remaining == 2
    assert succeeded(await run(talker(model), "Go.")).output == "Done."
    assert model.remaining == 0
    assert [len(request.messages) for request in model.requests] == [1, 3]
    assert transcript(model.requests[1].messages)[-1] == ("user", "#call_1_0: found here")


async def test_at_its_end_a_script_fails_unless_it_repeats() -> None:  # X39
    ended = await run(talker(ScriptedModel([call("look")])), "Go.")
    assert context_of(ended, ApiErrorContext).message == "The script has 1 answer, and this is request 2."
    assert failed(ended).error.hint == "Add an answer, or pass repeat=True."
    repeating = ScriptedModel([call("look")], repeat=True)
    result = await run(talker(repeating, limits=Limits(iterations=4)), "Go.")
    assert failed(result).code == "MAX_ITERATIONS"
    assert len(repeating.requests) == 4


async def test_an_answer_may_depend_on_the_request() -> None:  # X39
    def answer(request: Request) -> Answer:
        return "Done." if len(request.messages) > 2 else call("look", where="there")

    assert succeeded(await run(talker(FunctionModel(answer)), "Go.")).output == "Done."
    mixed = talker(ScriptedModel([answer, lambda request: f"{len(request.messages)}"]))
    assert succeeded(await run(mixed, "Go.")).output == "3"


def test_blocks_are_made_in_few_words() -> None:  # X39
    assert call("look", where="here", id="a") == ToolUse("a", "look", '{"where":"here"}')
    assert call("look", {"id": 7}) == ToolUse("", "look", '{"id":7}')
    assert say("Hm.", Thinking("x")).content == (Text("Hm."), Thinking("x"))
    assert [say("x").stop_reason, say(call("look")).stop_reason] == ["end_turn", "tool_use"]
    assert say("x", stop_reason="max_tokens").stop_reason == "max_tokens"
    assert say("x").usage == Usage(requests=1, input_tokens=10, output_tokens=5)


async def test_a_scripted_call_gets_an_id_that_says_where_it_was_made() -> None:  # X39
    model = ScriptedModel([[call("look"), call("look", id="mine"), call("look")], call("look"), "Done."])
    result = await run(talker(model), "Go.")
    ids = [use.id for message in result.history for use in message.tool_uses]
    assert ids == ["call_1_0", "mine", "call_1_2", "call_3_0"]
