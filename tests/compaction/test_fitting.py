"""When a conversation is compacted, what of it is kept, what is told, and what becomes of failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

import journeyman.window as window
from journeyman import Agent, Chat, ErrorCode, Failure, Limits, ModelSettings, Result, Runtime, Usage, run
from journeyman.compaction import OPENING, ClearToolResults, Compaction, Summarise
from journeyman.errors import ProviderError
from journeyman.events import CompactionStep, ContextCompacted
from journeyman.journal import InMemoryJournal
from journeyman.model import Model, Prefix, Request
from journeyman.testing.scripted import Answer, FunctionModel, call
from journeyman.types import Base64, Document, Image, Message, Text, Thinking, ToolResult, ToolUse
from tests.compaction.small_window import SmallWindow, asked, calls, chain, exchange, look, looker, said, summary_call
from tests.play import Door, Recorder, cancelled, failed, instance_of, succeeded


@dataclass
class Own:
    """A strategy of a test's own."""

    make: Callable[[Sequence[Message]], Sequence[Message]]
    name: str = "own"
    asked: list[int] = field(default_factory=list[int])

    async def view(self, messages: Sequence[Message], *, excess_tokens: int) -> window.Shortened:
        self.asked.append(excess_tokens)
        return window.Shortened(messages=self.make(messages), changed=True)


def broken(messages: Sequence[Message]) -> Sequence[Message]:
    raise RuntimeError("no idea")


def the_end(messages: Sequence[Message]) -> Sequence[Message]:
    return [messages[0], *messages[-2:]] if len(messages) > 3 else messages


LOOKS = Limits(iterations=100)


async def looked(
    model: Model, *strategies: window.AnyStrategy, runtime: Runtime | None = None, limits: Limits = LOOKS
) -> tuple[Result[str], list[ContextCompacted]]:
    recorder, short = Recorder(), ModelSettings(max_tokens=1_000)
    agent = looker(model, *strategies, settings=short, limits=limits)
    return await run(agent, "Look at everything.", on_event=recorder, runtime=runtime), recorder.of(ContextCompacted)


async def compacted(model: Model, *strategies: window.AnyStrategy, limits: Limits = LOOKS) -> list[ContextCompacted]:
    """Return what is told of the compactions in a run that succeeds."""
    result, events = await looked(model, *strategies, limits=limits)
    succeeded(result)
    return events


async def test_what_fits_is_sent_as_it_is_and_nothing_is_told() -> None:
    own = Own(the_end)
    result, events = await looked(SmallWindow(calls(3)), own)
    assert (succeeded(result).output, events, own.asked) == ("Done.", [], [])


async def test_a_compaction_tells_its_reason_its_sizes_and_its_steps() -> None:
    events = await compacted(SmallWindow(calls(25, size=1_000)), ClearToolResults(keep=2), Own(the_end))
    first = events[0]
    assert (first.path, first.attempt, first.reason) == (("looker",), 1, "threshold")
    assert first.before_tokens > 4_000 > first.after_tokens
    assert [(step.strategy, step.error) for step in first.steps] == [("clear tool results", None)]
    assert abs(first.before_tokens - first.after_tokens - first.steps[0].saved_tokens) < 400


async def test_a_strategy_is_asked_only_while_those_before_it_have_not_saved_enough() -> None:
    little = Own(lambda messages: [*messages[:2], Message("user", (replaced(messages[2]),)), *messages[3:]])
    end = Own(the_end)
    _, events = await looked(SmallWindow(calls(25, size=1_000)), little, end)
    assert [step.strategy for step in events[0].steps] == ["own", "own"]
    assert end.asked[0] == little.asked[0] - events[0].steps[0].saved_tokens > 0


def replaced(message: Message) -> ToolResult:
    result = instance_of(ToolResult, message.content[0])
    return ToolResult("gone", tool_use_id=result.tool_use_id)


async def test_a_view_is_kept_and_grows_until_the_next_one() -> None:
    """D: nothing is compacted again while what is sent still fits."""
    end, model = Own(the_end), SmallWindow(calls(40, size=1_000))
    _, events = await looked(model, end)
    assert len(end.asked) == len(events) < 6
    lengths = [len(messages) for messages in model.requests]
    assert max(lengths) < 40
    assert sum(after < before for before, after in pairwise(lengths)) == len(events)


async def test_a_failed_strategy_is_passed_over() -> None:
    events = await compacted(SmallWindow(calls(25, size=1_000)), Own(broken), Own(the_end))
    assert [step.error for step in events[0].steps] == ["RuntimeError: no idea", None]


PARTED: dict[str, tuple[Callable[[Sequence[Message]], Sequence[Message]], str]] = {
    "a result without its call": (lambda m: [m[0], *m[2:]], "its message 1 answers the calls ['c1'] in place of []"),
    "a call without its result": (lambda m: [*m[:2], *m[3:]], "its message 2 answers the calls [] in place of ['c1']"),
    "the open turn changed": (lambda m: [*m[:-1], asked("Never mind.")], "it changes the open turn"),
    "the open turn gone": (lambda m: m[:1], "it changes the open turn"),
    "nothing left": (lambda m: [], "it changes the open turn"),
    "an assistant first": (lambda m: m[1:], "it begins with the assistant"),
    "an empty message": (lambda m: [Message("user", ()), *m[1:]], "its message 0 is empty"),
}


@pytest.mark.parametrize("name", PARTED)
async def test_a_view_that_could_not_be_sent_is_not_used(name: str) -> None:
    make, error = PARTED[name]
    events = await compacted(SmallWindow(calls(25, size=1_000)), Own(make), Own(the_end))
    assert events[0].steps[0] == CompactionStep(strategy="own", saved_tokens=0, error=error)


async def test_failures_do_not_end_a_run_that_fits_and_the_breaker_opens_by_half() -> None:
    own = Own(broken)
    events = await compacted(SmallWindow(calls(25, size=1_000), window=100_000), own)
    reasons = [event.reason for event in events]
    assert reasons[:8] == [*["threshold"] * 3, "breaker", "threshold", "breaker", "threshold", "breaker"]
    assert len(own.asked) == reasons.count("threshold")
    assert all(event.before_tokens == event.after_tokens for event in events)
    assert {event.steps for event in events if event.reason == "breaker"} == {()}


async def test_a_compaction_that_works_closes_the_breaker() -> None:
    made = 0

    def sometimes(messages: Sequence[Message]) -> Sequence[Message]:
        nonlocal made
        made += 1
        return the_end(messages) if made == 4 else broken(messages)

    _, events = await looked(SmallWindow(calls(50, size=1_000), window=100_000), Own(sometimes))
    reasons = [event.reason for event in events]
    assert reasons[:5] == [*["threshold"] * 3, "breaker", "threshold"]
    assert reasons[5:9] == [*["threshold"] * 3, "breaker"]


async def test_what_the_provider_finds_too_long_is_compacted_and_sent_once_more() -> None:
    model = SmallWindow(calls(25, size=1_000), context_window=None, window=4_000)
    events = await compacted(model, ClearToolResults(keep=1))
    assert (events[0].reason, model.refused) == ("overflow", 1)
    assert {event.reason for event in events[1:]} <= {"threshold"}  # it has learned where the end is


async def test_an_estimate_that_was_too_low_is_corrected() -> None:
    model = SmallWindow(calls(25, size=1_000), window=2_500, reports=False)
    events = await compacted(model, ClearToolResults(keep=1))
    assert (events[0].reason, model.refused <= 3) == ("overflow", True)


async def test_a_second_overflow_ends_the_run() -> None:
    refusal = ProviderError("prompt is too long", kind="context_overflow", usage=Usage())
    model = SmallWindow(lambda request: refusal if len(request.messages) > 2 else call("look", size=4_000))
    agent = Agent(name="looker", model=model, tools=[look], compaction=[Own(lambda m: [asked("Less."), *m[1:]])])
    assert (failed(await run(agent, "Look." * 40)).code, len(model.requests)) == (ErrorCode.CONTEXT_OVERFLOW, 3)


async def test_a_view_that_did_not_become_smaller_is_not_sent_again() -> None:
    model = SmallWindow(lambda request: call("look", size=40_000))
    result, events = await looked(model, Own(broken))
    assert failed(result).code == ErrorCode.CONTEXT_OVERFLOW
    assert "prompt is too long" in str(failed(result).error)
    assert (len(model.requests), [event.reason for event in events]) == (2, ["threshold", "overflow"])


async def test_without_strategies_an_overflow_ends_the_run_at_once() -> None:
    model = SmallWindow(lambda request: call("look", size=40_000))
    result, events = await looked(model)
    assert (failed(result).code, len(model.requests), events) == (ErrorCode.CONTEXT_OVERFLOW, 2, [])


async def test_the_answer_is_asked_for_at_the_length_that_is_left() -> None:
    asked_for: list[int | None] = []

    def play(request: Request) -> Answer:
        asked_for.append(request.max_tokens)
        return call("look", size=6_000) if len(asked_for) < 4 else "Done."

    model = SmallWindow(play, max_output_tokens=6_000)
    agent = Agent(name="looker", model=model, tools=[look], compaction=Compaction([Own(broken)], reserve_tokens=10))
    succeeded(await run(agent, "Go."))
    assert (asked_for[0], 3_000 < (asked_for[-1] or 0) < 3_200) == (6_000, True)
    assert all(n + (limit or 0) <= 8_000 for n, limit in zip(model.tokens, asked_for, strict=True))


def summing(answer: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
    """Return a function that plays both the agent and the one who sums up."""

    def both(request: Request) -> Answer:
        is_summary = [tool.name for tool in request.prefix.tools] == ["record_summary"]
        return summary_call(facts=[f"{len(request.messages[0].text)} characters"]) if is_summary else answer(request)

    return both


def summing_model(n: int) -> SmallWindow:
    return SmallWindow(summing(calls(n, size=1_000)))


async def test_what_a_summary_costs_is_the_runs() -> None:
    model = summing_model(30)
    result, events = await looked(model, Summarise(keep_tokens=500))
    usage = succeeded(result).metadata.usage
    summaries = [event.usage for event in events if event.usage.requests]
    assert usage is not None
    assert (usage.requests, len(summaries) > 1, usage.input_tokens) == (len(model.requests), True, sum(model.tokens))


async def test_a_summary_is_drawn_on_the_runs_budget_and_done_without_if_there_is_too_little() -> None:
    model = SmallWindow(calls(14, size=1_000))
    _, events = await looked(model, Own(the_end))
    assert events[0].iteration == 15
    before = sum(model.tokens[:14]) + 14 * 20
    limits = Limits(iterations=100, tokens=before + 2_500)
    strategies = (Summarise(keep_tokens=500), ClearToolResults(keep=1))
    events = await compacted(SmallWindow(calls(14, size=1_000)), *strategies, limits=limits)
    assert str(events[0].steps[0].error).startswith("BudgetRefused: ")


async def test_a_summary_of_another_model_and_of_one_that_cannot_be_had() -> None:
    other = FunctionModel(lambda request: summary_call("Elsewhere."))
    model = SmallWindow(calls(20, size=1_000))
    result, _ = await looked(model, Summarise(other, keep_tokens=500))
    succeeded(result)
    assert "Elsewhere." in model.requests[-1][2].text
    events = await compacted(SmallWindow(calls(20, size=1_000)), Summarise("nowhere:x"), ClearToolResults())
    assert "nowhere" in str(events[0].steps[0].error)


async def test_a_failed_summary_falls_through_to_the_next_strategy() -> None:
    def play(request: Request) -> Answer:
        if request.prefix.tools[0].name == "record_summary":
            return ProviderError("Overloaded", kind="bad_request", usage=Usage(requests=1))
        return plain(request)

    plain = calls(20, size=1_000)
    events = await compacted(SmallWindow(play), Summarise(keep_tokens=500), ClearToolResults(keep=1))
    assert [step.error for step in events[0].steps] == ["ProviderError: Overloaded", None]
    assert (events[0].usage.requests, events[0].after_tokens < 2_000) == (1, True)


async def test_a_journalled_run_asks_for_no_summary_twice() -> None:
    journal = InMemoryJournal()
    first, events = await looked(summing_model(30), Summarise(keep_tokens=500), runtime=Runtime(journal=journal))
    silent = SmallWindow(lambda request: "", window=0)
    second, replayed = await looked(silent, Summarise(keep_tokens=500), runtime=Runtime(journal=journal))
    assert succeeded(second).history == succeeded(first).history
    assert succeeded(second).metadata.usage == succeeded(first).metadata.usage
    assert (len(silent.requests), len(events), replayed) == (0, 2, [])


@dataclass
class Retelling:
    """A strategy that lets the model tell the conversation anew."""

    situation: window.Situation | None = None
    name: str = "retelling"

    def informed(self, situation: window.Situation) -> Retelling:
        return Retelling(situation)

    async def view(self, messages: Sequence[Message], *, excess_tokens: int) -> window.Shortened:
        assert self.situation is not None
        request = Request(prefix=Prefix(), messages=[asked("Tell it anew.")], settings=ModelSettings(max_tokens=500))
        told = await self.situation.ask(self.situation.model, request)
        assert isinstance(told.content[0], Text)
        return window.Shortened(messages=[asked(told.content[0].text), *messages[-2:]])


async def test_two_summaries_of_one_iteration_are_two_steps() -> None:
    """At the threshold, and once more when the provider finds it too long: the second is not given the first one's."""
    journal, told = InMemoryJournal(), list[str]()

    def answer(request: Request) -> Answer:
        if request.messages[0].text == "Tell it anew.":
            told.append(f"story {len(told) + 1}" + " and more" * (200 if not told else 0))
            return told[-1]
        if len(told) == 1:
            return ProviderError("prompt is too long", kind="context_overflow", usage=Usage())
        return "Done." if told else call("look", size=1_000)

    first, events = await looked(SmallWindow(answer), Retelling(), runtime=Runtime(journal=journal))
    assert [event.reason for event in events] == ["threshold", "overflow"]
    assert [key.split("/", 4)[4] for key in journal.finished if key.endswith("/1") and "model" in key] == [
        "model/fit/1",
        "model/shrink/1",
    ]
    silent = SmallWindow(lambda request: "", window=0)
    second, _ = await looked(silent, Retelling(), runtime=Runtime(journal=journal))
    assert succeeded(second).history == succeeded(first).history
    assert (len(told), silent.refused) == (2, 0), "not even what was refused is asked once more"


async def test_a_summary_can_be_stopped() -> None:
    door = Door()
    agent = looker(SmallWindow(calls(20, size=1_000)), Summarise(FunctionModel(door.before("")), keep_tokens=500))
    task = asyncio.create_task(run(agent, "Go."))
    await cancelled(task, when=door.reached)


async def test_two_runs_at_once_may_share_their_strategies() -> None:  # S16.10
    shared = [ClearToolResults(keep=2), Summarise(keep_tokens=500)]
    models = [SmallWindow(summing(calls(30, size=700 + 100 * number))) for number in range(4)]
    alone = [await looked(SmallWindow(summing(calls(30, size=700 + 100 * n))), *shared) for n in range(4)]
    together = await asyncio.gather(*(looked(model, *shared) for model in models))
    for (result, events), (expected, of_expected) in zip(together, alone, strict=True):
        assert succeeded(result).metadata.usage == succeeded(expected).metadata.usage
        shortened = [event.after_tokens for event in events]
        assert shortened
        assert shortened == [event.after_tokens for event in of_expected]


async def test_a_factory_gets_the_runs_model() -> None:
    models: list[Model] = []

    def strategies(model: Model) -> Compaction:
        models.append(model)
        return Compaction([ClearToolResults(keep=1)], window_tokens=3_000)

    model = SmallWindow(calls(10, size=1_000))
    agent = Agent(
        name="looker", model=model, tools=[look], compaction=strategies, settings=ModelSettings(max_tokens=500)
    )
    succeeded(await run(agent, "Go."))
    assert models == [model]
    assert max(model.tokens) < 2_200


async def test_a_chat_keeps_its_view_from_prompt_to_prompt() -> None:
    recorder, model = Recorder(), SmallWindow(lambda request: "word " * 200)
    agent = Agent(name="talker", model=model, settings=ModelSettings(max_tokens=1_000), compaction=[Own(the_end)])
    async with Chat(agent, on_event=recorder) as chat:
        for number in range(40):
            succeeded(await chat.prompt(f"Prompt {number}: " + "why? " * 50))
        assert len(chat.messages) == 80
    lengths = [len(messages) for messages in model.requests]
    n_compactions = len(recorder.of(ContextCompacted))
    assert 2 < n_compactions < 6
    assert sum(after < before for before, after in pairwise(lengths)) == n_compactions


async def test_a_chat_that_was_reset_begins_anew() -> None:
    model = SmallWindow(lambda request: "word " * 200)
    async with Chat(looker(model, Own(the_end), settings=ModelSettings(max_tokens=1_000))) as chat:
        for _ in range(20):
            await chat.prompt("why? " * 50)
        await chat.reset()
        await chat.prompt("Hello?")
    assert [message.text for message in model.requests[-1]] == ["Hello?"]


async def test_a_prompt_that_grows_before_it_is_answered_grows_in_the_view() -> None:
    answers = iter(["word " * 200, *[ProviderError("Down", kind="auth", usage=Usage())] * 2, "Here."])
    model = SmallWindow(lambda request: next(answers))
    async with Chat(Agent(name="talker", model=model, compaction=[Own(the_end)])) as chat:
        await chat.prompt("One.")
        assert isinstance(await chat.prompt("Two."), Failure)
        assert isinstance(await chat.prompt("Three."), Failure)
        await chat.prompt("Four.")
    texts = [block.text for block in model.requests[-1][-1].content if isinstance(block, Text)]
    assert texts == ["Two.", "Three.", "Four."]


def view(prefix_tokens: int = 0) -> window.CompactedView:
    """Return a view of nothing, whose system prompt is that long."""
    system = (Text("x" * 4 * prefix_tokens),) if prefix_tokens else ()
    return window.CompactedView(Prefix(system=system), Compaction([Own(the_end)]))


def test_a_kept_view_measures_what_it_sends_and_not_what_was_said() -> None:
    """The report on the old view is not applied to the new one, nor the other way round."""  # S16.9
    log, kept = chain(20, size=4_000), view(prefix_tokens=100)
    kept.follow(log)
    assert 20_000 < kept.tokens < 22_000
    kept.measure(Usage(requests=1, input_tokens=30_000, output_tokens=10), log)
    assert kept.tokens == 30_010
    kept.rewrite(the_end(log))
    assert 1_000 < kept.tokens < 2_000
    log += exchange(21, size=4_000)
    kept.follow(log)
    assert len(kept.messages) == 5
    kept.measure(Usage(requests=1, input_tokens=2_500, output_tokens=10), log)
    assert kept.tokens == 2_510
    kept.measure(Usage(requests=1, exact=False), log)
    assert kept.tokens == 2_510


def test_a_report_that_cannot_be_is_not_believed() -> None:
    log, kept = chain(20, size=4_000), view()
    kept.measure(Usage(requests=1, input_tokens=10, output_tokens=5), log)
    assert kept.tokens > 20_000


def test_a_history_that_became_another_is_sent_whole() -> None:
    log, kept = chain(5), view()
    kept.follow(log)
    kept.rewrite(the_end(log))
    other = [asked("Another."), said()]
    kept.follow(other)
    assert kept.messages == other
    longer = [*chain(4), *exchange(77)]
    kept.follow(longer)
    assert kept.messages == longer


def test_what_is_added_to_a_prompt_is_added_behind_its_summary() -> None:
    log, kept = [asked("Old."), said(), asked("New.")], view()
    kept.follow(log)
    kept.rewrite([Message("user", (Text("Summary."), Text("New.")))])
    log[-1] = Message("user", (Text("New."), Text("More.")))
    kept.follow(log)
    texts = [block.text for block in kept.messages[0].content if isinstance(block, Text)]
    assert texts == ["Summary.", "New.", "More."]


def test_reasoning_after_the_first_change_is_left_out_and_before_it_stays() -> None:
    before = chain(4, thinking=True)
    after = [*before[:4], Message("user", (ToolResult("gone", tool_use_id="c2"),)), *before[5:]]
    left = window.without_stale_thinking(before, after)
    thoughts = [sum(isinstance(block, Thinking) for block in message.content) for message in left]
    assert thoughts == [0, 1, 0, 1, 0, 0, 0, 0, 0]
    assert all(mine is given for mine, given in zip(left[:4], before, strict=False))
    assert window.fault_of_view(before, after) is None


def test_a_message_of_reasoning_alone_does_not_become_empty() -> None:
    thought = Message("assistant", (Thinking("Hm.", "s"),))
    left = window.without_stale_thinking([asked("One."), thought, asked("Two.")], [asked("1"), thought, asked("Two.")])
    assert left[1] == Message("assistant", (Text("(nothing said)"),))


def test_the_size_of_things_is_that_of_their_words() -> None:
    assert window.estimate_message(Message("user", (Image(Base64("A" * 100_000, "image/png")),))) == 1_200
    assert window.estimate_message(Message("user", (Document(Base64("A" * 4_000, "application/pdf")),))) > 900
    assert window.estimate_message(Message("assistant", (ToolUse("a", "look", "{}"),))) == 10


def babbling(request: Request) -> Answer:
    """Answer as a small model does, which sums up badly."""
    return "Well, yes. " * 8


def failing(request: Request) -> Answer:
    """Answer, and never sum up."""
    if any(each.name == "record_summary" for each in request.prefix.tools):
        return ProviderError("no idea", kind="bad_request", usage=Usage())
    return babbling(request)


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("known", [2_000, None], ids=["known window", "unknown window"])
@pytest.mark.parametrize("answer", [babbling, failing])
@pytest.mark.parametrize("strategies", [[Summarise()], [ClearToolResults()]], ids=["summarise", "clear"])
async def test_a_chat_of_200_turns_goes_on_in_a_window_of_2_000_tokens(
    known: int | None, answer: Callable[[Request], Answer], strategies: list[window.AnyStrategy]
) -> None:
    model, recorder = SmallWindow(answer, context_window=known, window=2_000), Recorder()
    agent = Agent(name="talker", model=model, system="Be brief.", compaction=strategies)
    async with Chat(agent, on_event=recorder) as chat:
        for number in range(200):
            succeeded(await chat.prompt(f"Turn {number}. " + "The fox lives by the river. " * 20))
        assert len(chat.messages) == 400
    assert len(model.requests[-1]) > 2  # and not only the last prompt
    dropped = [step for event in recorder.of(ContextCompacted) for step in event.steps if "drop" in step.strategy]
    assert {step.strategy for step in dropped} <= {"drop the oldest turns"}
    assert bool(dropped) or answer is babbling
    assert model.refused < (3 if known else 60)


async def test_dropped_turns_are_told_to_the_model_and_a_summary_stays() -> None:
    summary = Text(f"{OPENING}It was about foxes.", origin="summary")
    messages = [Message("user", (summary, Text("One."))), said(), asked("Two." * 100), said(), asked("Three."), said()]
    shortened = await window.DropOldestTurns(summary_mark=OPENING).view([*messages, asked("Four.")], excess_tokens=50)
    assert [message.text for message in shortened.messages] == [
        f"{OPENING}It was about foxes.\n\n{window.OLDEST_DROPPED}\n\nThree.",
        "Done.",
        "Four.",
    ]
    alone = await window.DropOldestTurns(summary_mark=OPENING).view([asked("Four.")], excess_tokens=50)
    assert not alone.changed
