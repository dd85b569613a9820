"""A run of thousands of iterations in a small window: it fits, it stays sendable, and its beginning stays the same."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations

import orjson
import pytest

from journeyman import ModelSettings, Text, run
from journeyman.compaction import ClearToolResults, Compaction, Summarise, TrimTexts
from journeyman.events import ContextCompacted
from journeyman.model import Request
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.testing.scripted import Answer, call
from journeyman.window import AnyStrategy
from tests.compaction.small_window import MARK, SmallWindow, calls, chain, looker, situation, summary_call, tokens_of
from tests.play import Recorder, succeeded, texts
from tests.properties.examples import patient
from tests.support.messages_answers import Reply, answer, thinking, tool_use
from tests.support.messages_json import Json, as_list, as_object
from tests.support.messages_rules import judge
from tests.support.servers import MessagesApi

WINDOW = 32_000
ROOM = ModelSettings(max_tokens=2_000)
HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01", "content-type": "application/json"}


def breaks(bodies: Sequence[bytes]) -> int:
    """Count the requests that do not begin with the whole of the one before, cache marks aside."""
    plain = [body.replace(MARK, b"}").removesuffix(b"]}]}") for body in bodies]
    return sum(not after.startswith(before) for before, after in pairwise(plain))


async def long_run(n: int, *strategies: AnyStrategy, size: int = 1_500) -> tuple[SmallWindow, Recorder]:
    made = 0

    def play(request: Request) -> Answer:
        nonlocal made
        if request.prefix.tools[0].name == "record_summary":
            return summary_call(done=[f"looked {made} times"])
        made += 1
        words = Text(f"Now number {made}. " + "Let me think. " * (made % 7))
        return [words, call("look", n=made, size=size * (made % 3), id=f"c{made}")] if made <= n else "Done."

    model, recorder = SmallWindow(play, context_window=WINDOW, window=WINDOW), Recorder()
    agent = looker(model, *strategies, n=n + 1, system="You look at things.", settings=ROOM)
    assert len(succeeded(await run(agent, "Look at everything.", on_event=recorder)).history) == 2 * n + 2
    return model, recorder


@patient
async def test_two_thousand_iterations_fit_a_window_of_32k() -> None:
    model, recorder = await long_run(2_000, ClearToolResults(), TrimTexts(), Summarise())
    compactions = recorder.of(ContextCompacted)
    bodies = [body for body in model.bodies if b'"record_summary"' not in body]
    longest, n_breaks, n_compactions = max(map(tokens_of, model.bodies)), breaks(bodies), len(compactions)
    assert longest <= WINDOW
    assert (model.refused, {event.reason for event in compactions}) == (0, {"threshold"})
    assert 10 < n_breaks == n_compactions < 100
    assert all(event.after_tokens < event.before_tokens for event in compactions)
    for body in [*bodies[:5], *bodies[::97]]:
        assert judge(orjson.loads(body), HEADERS) == []


async def test_a_compacted_conversation_with_bound_reasoning_breaks_no_rule_of_the_api() -> None:
    """Every request is judged: pairing, reasoning that no longer fits, and answers that came back otherwise."""

    made = 0

    def reply(request: Json) -> Reply:
        nonlocal made
        if "record_summary" in str(request.get("tools")):
            return answer(tool_use("record_summary", {"goal": "Look.", "facts": ["Things <b>are</b> there."]}))
        made += 1
        usage: Json = {"input_tokens": len(orjson.dumps(request)) // 4, "output_tokens": 60}
        if made > 60:
            return answer("Done.", usage=usage)
        return answer(thinking(f"Thought {made}."), "I look.", tool_use("look", {"n": made, "size": 600}), usage=usage)

    recorder = Recorder()
    async with MessagesApi(reply, bind_thinking=True) as api:
        model = AnthropicModel("claude-sonnet-4-5", api_key="k", base_url=api.url)
        compaction = Compaction([ClearToolResults(keep=2), Summarise(keep_tokens=500)], window_tokens=6_000)
        agent = looker(model, compaction=compaction, settings=ModelSettings(max_tokens=2_000, thinking=1_024))
        succeeded(await run(agent, "Look at everything.", on_event=recorder))
        main = [request for request in api.requests if "record_summary" not in str(request.body["tools"])]
    steps = {step.strategy for event in recorder.of(ContextCompacted) for step in event.steps if step.saved_tokens}
    assert steps == {"clear tool results", "summarise"}
    assert max(len(request.raw) // 4 for request in main) + 2_000 <= 6_000 * 1.1
    last = [as_object(each) for each in as_list(main[-1].body["messages"])]
    assert as_list(last[0]["content"]) == [{"type": "text", "text": "Look at everything."}]
    assert "Things &lt;b&gt;are&lt;/b&gt; there." in str(last[2])
    assert str(last).count("<context-summary>") == 1


async def test_the_log_and_the_result_keep_everything() -> None:
    model = SmallWindow(lambda request: call("look", size=2_000) if len(model.bodies) <= 30 else "Done.")
    result = succeeded(await run(looker(model, ClearToolResults(keep=1), n=50), "Go."))
    results = texts(result)
    assert [len(text) for text in results] == [2_006] * 30


CLEARING, TRIMMING, SUMMING = ClearToolResults(keep=1), TrimTexts(longest_chars=900, head_chars=20), Summarise()
ORDERS = [*permutations((CLEARING, TRIMMING, SUMMING)), (CLEARING, SUMMING), (SUMMING, CLEARING)]


@pytest.mark.share(one_in=2)
@pytest.mark.parametrize("strategies", ORDERS, ids=lambda order: ", ".join(each.name for each in order))
async def test_a_summary_is_made_of_whole_results_whatever_was_cleared_before(
    strategies: tuple[AnyStrategy, ...],
) -> None:
    def play(request: Request) -> Answer:
        return summary_call() if request.prefix.tools[0].name == "record_summary" else looking(request)

    looking = calls(300, size=1_200)
    model = SmallWindow(play)
    succeeded(await run(looker(model, *strategies, n=301), "Look at everything."))
    summaries = [messages[0].text for messages in model.requests if "Call record_summary now." in messages[0].text]
    assert summaries
    for read in summaries:
        made = [int(n) for n in re.findall(r"<call name='look'>{\"n\":(\d+)", read)]
        whole = [n for n in made if f"<result>{n:05} {'x' * 1_200}</result>" in read]
        assert whole == made[len(made) - len(whole) :]
        assert len(whole) == len(made) or len(read) + 1_200 > (8_000 - 4_096 - 1_000) * 4


async def test_a_summary_that_gets_too_long_with_whole_results_has_cleared_ones_of_the_oldest() -> None:
    messages = chain(40, size=1_900)
    cleared = (await ClearToolResults(keep=1).view(messages, excess_tokens=1)).messages
    found, requests = situation([summary_call()], history=messages)
    found = replace(found, model=SmallWindow(lambda _: "", context_window=9_000))
    await Summarise(keep_tokens=100).informed(found).view(cleared, excess_tokens=1)
    (read,) = [request.messages[0].text for request in requests]
    assert tokens_of(read.encode()) < 9_000 - 1_000 - 1_000  # without the summary and the instructions
    assert [n for n in range(1, 41) if f"<result>{n:05} {'x' * 1_900}</result>" in read] == [*range(29, 40)]
    assert read.count("<call name='look'>") == 38
