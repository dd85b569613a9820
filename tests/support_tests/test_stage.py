"""The stage itself: both halves ask and answer alike."""

from journeyman import Agent, Limits, Usage, run, tool
from journeyman.endings import ApiErrorContext
from journeyman.errors import ProviderError
from journeyman.testing.scripted import call, say
from journeyman.types import Opaque, RedactedThinking, Text, Thinking, ToolResult
from tests.play import Recorder, Stage, broken, calls, check_balance, failed, names, succeeded, transcript
from tests.play import stage as stage


@tool
async def look(n: int) -> str:
    return f"found {n}"


async def test_both_halves_show_the_same_requests_events_and_history(stage: Stage) -> None:
    answers = [
        say(Thinking("Hm.", "c2ln"), RedactedThinking("ZGF0YQ=="), "I look.", call("look", n=1), call("look", n=2)),
        say("Done.", usage=Usage(requests=1, input_tokens=3, output_tokens=4, cache_read_tokens=5)),
    ]
    agent = Agent(name="tester", model=stage.model(answers), system="Be brief.", tools=[look])
    recorder = Recorder()
    result = await run(agent, "Go.", on_event=recorder)
    check_balance(recorder.events)
    assert result.unwrap() == "Done."
    assert result.metadata.usage == Usage(requests=2, input_tokens=13, output_tokens=9, cache_read_tokens=5)
    assert stage.tool_names() == ["look"]
    assert [text.text for text in stage.requests[0].prefix.system] == ["Be brief."]
    assert stage.tool_results(1) == [
        ToolResult("found 1", tool_use_id="call_1_3"),
        ToolResult("found 2", tool_use_id="call_1_4"),
    ]
    assert transcript(stage.messages(1)) == [
        ("user", "Go."),
        ("assistant", "Thinking", "RedactedThinking", "I look.", 'look({"n":1})#call_1_3', 'look({"n":2})#call_1_4'),
        ("user", "#call_1_3: found 1", "#call_1_4: found 2"),
    ]
    assert transcript(result.history) == [*transcript(stage.messages(1)), ("assistant", "Done.")]
    assert calls(recorder.events) == [
        "look#call_1_3?",
        "look#call_1_3: found 1",
        "look#call_1_4?",
        "look#call_1_4: found 2",
    ]
    assert names(recorder.events, deltas=True)[:9] == [
        "RunStarted",
        "AttemptStarted",
        "MessageCommitted",
        "IterationStarted",
        "ThinkingDelta",
        "TextDelta",
        "ToolInputDelta",
        "MessageCommitted",
        "ModelResponded",
    ]


async def test_both_halves_carry_stop_reasons_and_unknown_blocks(stage: Stage) -> None:
    search = Opaque("anthropic", '{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{"q":"x"}}')
    found = Opaque("anthropic", '{"type":"web_search_tool_result","tool_use_id":"srv_1","content":[]}')
    answers = [say("Wait. ", search, found, stop_reason="pause_turn"), say(stop_reason="refusal")]
    assert failed(await run(Agent(name="tester", model=stage.model(answers)), "Go.")).code == "MODEL_REFUSED"
    assert transcript(stage.messages(1)) == [("user", "Go."), ("assistant", "Wait. ", "Opaque", "Opaque")]


async def test_both_halves_fail_alike(stage: Stage) -> None:
    answers = [ProviderError("No such thing.", kind="not_found")]
    result = failed(await run(Agent(name="tester", model=stage.model(answers)), "Go."))
    assert isinstance(result.error.context, ApiErrorContext)
    assert result.error.context.kind == "not_found"


async def test_both_halves_break_off_alike(stage: Stage) -> None:
    answers = [broken("Hello", "world", ending="cut"), "Hello again."]
    agent = Agent(name="tester", model=stage.model(answers), limits=Limits(request_retries=0))
    result = failed(await run(agent, "Go."))
    assert result.metadata.usage == Usage(requests=1, input_tokens=10, output_tokens=1, exact=False)
    assert stage.n_left == 1


async def test_a_function_may_answer_and_see_the_request(stage: Stage) -> None:
    model = stage.model([lambda request: say(Text(f"{len(request.messages)} message"))], repeat=True)
    agent = Agent(name="tester", model=model)
    assert [await run(agent, "Go."), await run(agent, "Go.")]
    assert succeeded(await run(agent, "Go.")).output == "1 message"
