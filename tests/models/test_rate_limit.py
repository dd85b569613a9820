"""How often, how much and how much at once a model is asked, on a clock that jumps."""

import asyncio
from collections.abc import Sequence

import pytest

from journeyman import Abort, Agent, DefinitionError, Limits, Message, Text, Usage, run
from journeyman.errors import ProviderError
from journeyman.model import Request
from journeyman.models import RateLimitedModel
from journeyman.testing import Answer, FunctionModel, ScriptedModel, say
from journeyman.types import NOTHING_USED
from tests.models import asking
from tests.play import failed, instance_of, on_virtual_clock, virtual_clock
from tests.support.counting_loop import CountingLoop


class Timed:
    """A model that notes when it is asked, in seconds from the start, and takes its time."""

    def __init__(self, *, takes_s: float = 0.0, answers: Sequence[Answer] = ("Hi.",)) -> None:
        self.asked_s: list[float] = []
        self.texts: list[str] = []
        self.n_now = self.n_most = 0
        self._start_s = asyncio.get_running_loop().time()
        self._takes_s = takes_s
        self._answers = list(answers)
        self.model = FunctionModel(self._answer)

    async def _answer(self, request: Request) -> Answer:
        self.asked_s.append(round(asyncio.get_running_loop().time() - self._start_s, 2))
        self.texts.append(request.messages[-1].text)
        self.n_now += 1
        self.n_most = max(self.n_most, self.n_now)
        try:
            await asyncio.sleep(self._takes_s)
        finally:
            self.n_now -= 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


async def ask(model: RateLimitedModel, text: str = "Hello", *, max_tokens: int = 100) -> None:
    await asking.ask(model, Message("user", (Text(text),)), max_tokens=max_tokens)


async def ask_at_once(model: RateLimitedModel, count: int) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(ask(model, str(number)))


@virtual_clock
async def test_requests_beyond_the_limit_wait_until_a_minute_has_passed() -> None:
    timed = Timed()
    await ask_at_once(RateLimitedModel(timed.model, requests_per_minute=2), 5)
    assert timed.asked_s == [0, 0, 60, 60, 120]


@virtual_clock
async def test_no_more_run_at_once_than_allowed() -> None:
    timed = Timed(takes_s=10)
    await ask_at_once(RateLimitedModel(timed.model, max_concurrency=2), 5)
    assert (timed.asked_s, timed.n_most) == ([0, 0, 10, 10, 20], 2)


@virtual_clock
async def test_whoever_comes_first_is_served_first() -> None:
    timed = Timed(takes_s=1)
    await ask_at_once(RateLimitedModel(timed.model, max_concurrency=1), 6)
    assert timed.texts == list("012345")


@virtual_clock
async def test_tokens_are_held_before_and_settled_after() -> None:
    timed = Timed(answers=[say("Hi.", usage=Usage(requests=1, input_tokens=50, output_tokens=50))])
    limited = RateLimitedModel(timed.model, tokens_per_minute=350)  # a call is estimated at 137, and uses 100
    await ask_at_once(limited, 3)
    assert timed.asked_s == [0, 0, 0], "Two are held, and settled with less before the third comes."
    await ask(limited)
    assert timed.asked_s[3:] == [60]


@virtual_clock
async def test_tokens_count_until_a_minute_after_the_answers_end() -> None:
    timed = Timed(takes_s=30, answers=[say("Hi.", usage=Usage(requests=1, input_tokens=90, output_tokens=10))])
    limited = RateLimitedModel(timed.model, tokens_per_minute=150)
    await ask(limited)
    await ask(limited)
    assert timed.asked_s == [0, 90]


@virtual_clock
async def test_a_request_that_is_larger_than_the_limit_waits_until_it_is_alone() -> None:
    timed = Timed(takes_s=1, answers=[say("Hi.", usage=Usage(requests=1, input_tokens=500, output_tokens=1))])
    limited = RateLimitedModel(timed.model, tokens_per_minute=200)
    await ask_at_once(limited, 2)
    assert timed.asked_s == [0, 61]


@virtual_clock
async def test_what_answers_are_expected_to_be_may_be_less_than_what_they_may_be() -> None:
    timed = Timed(takes_s=1, answers=[say("Hi.", usage=Usage(requests=1, input_tokens=10, output_tokens=10))])
    limited = RateLimitedModel(timed.model, tokens_per_minute=1_000, expected_output_tokens=50)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(ask(limited, max_tokens=100_000))
    assert timed.asked_s == [0, 0]


@virtual_clock
async def test_reads_from_a_cache_can_be_left_out() -> None:
    used = Usage(requests=1, input_tokens=10, output_tokens=10, cache_read_tokens=1_000)
    for counts, second_s in ((True, 60), (False, 0)):
        timed = Timed(answers=[say("Hi.", usage=used)])
        limited = RateLimitedModel(timed.model, tokens_per_minute=300, count_cache_reads=counts)
        await ask(limited)
        await ask(limited)
        assert timed.asked_s == [0, second_s]


@virtual_clock
async def test_a_failure_that_used_nothing_gives_its_tokens_back_and_any_other_keeps_them() -> None:
    for usage, second_s in ((NOTHING_USED, 0), (None, 60)):
        timed = Timed(answers=[ProviderError("Cut.", kind="stream_cut", usage=usage), "Hi."])
        limited = RateLimitedModel(timed.model, tokens_per_minute=200)
        with pytest.raises(ProviderError):
            await ask(limited)
        await ask(limited)
        assert timed.asked_s == [0, second_s]


@virtual_clock
async def test_runs_that_share_the_object_share_its_limits() -> None:
    timed = Timed(takes_s=5)
    agent = Agent(name="tester", model=RateLimitedModel(timed.model, max_concurrency=1))
    results = await asyncio.gather(*(run(agent, str(number)) for number in range(3)))
    assert [result.unwrap() for result in results] == ["Hi."] * 3
    assert timed.asked_s == [0, 5, 10]


@virtual_clock
async def test_waiting_ends_with_the_abort_and_with_the_deadline_of_the_run() -> None:
    timed = Timed()
    limited = RateLimitedModel(timed.model, requests_per_minute=1)
    await ask(limited)
    abort = Abort()
    asyncio.get_running_loop().call_later(5, abort.abort)
    stopped = failed(await run(Agent(name="tester", model=limited), "Go.", abort=abort))
    late = failed(await run(Agent(name="tester", model=limited, limits=Limits(seconds=5)), "Go."))
    assert [stopped.code, late.code] == ["EXECUTION_CANCELLED", "BUDGET_EXCEEDED"]
    await ask(limited)
    assert timed.asked_s == [0, 60]


@virtual_clock
async def test_one_who_gives_up_waiting_lets_the_next_pass() -> None:
    timed = Timed(takes_s=10)
    limited = RateLimitedModel(timed.model, max_concurrency=1)
    tasks = [asyncio.create_task(ask(limited, str(number))) for number in range(4)]
    await asyncio.sleep(1)
    tasks[0].cancel()
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert (timed.texts, timed.asked_s) == (["0", "2", "3"], [0, 1, 11])


def test_the_limits_hold_over_event_loops_one_after_the_other() -> None:
    asked_s: list[float] = []
    limited = RateLimitedModel(FunctionModel(lambda _: "Hi."), requests_per_minute=2)

    async def scenario() -> None:
        start_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(ask(limited))
        asked_s.append(round(asyncio.get_running_loop().time() - start_s))

    for _ in range(3):
        on_virtual_clock(scenario)  # whose clock starts anew each time
    assert asked_s[0] == 60
    assert all(each in (60, 120) for each in asked_s[1:])


def test_no_timer_is_left_behind() -> None:
    async def scenario() -> None:
        timed = Timed(takes_s=1)
        await ask_at_once(RateLimitedModel(timed.model, requests_per_minute=2, max_concurrency=1), 5)

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(scenario())
        loop = instance_of(CountingLoop, runner.get_loop())
        assert loop.pending_timers() == []


async def test_estimates_are_made_once_for_each_message_and_prefix() -> None:
    limited = RateLimitedModel(ScriptedModel(["Hi."], repeat=True), tokens_per_minute=10_000)
    one = asking.request(Message("user", (Text("Hello"),)))  # its own, with nothing encoded yet
    for _ in range(2):
        async with limited.stream(one) as parts:
            assert [part async for part in parts]
    assert list(one.messages[0].wire) == ["rate_limit/tokens"] == list(one.prefix.wire)


def test_limits_below_one_are_refused_all_at_once() -> None:
    with pytest.raises(DefinitionError) as caught:
        RateLimitedModel(ScriptedModel([]), requests_per_minute=0, tokens_per_minute=-5, max_concurrency=True)
    assert [str(problem) for problem in caught.value.problems] == [
        f"{text}. Pass a whole number of at least 1, or None."
        for text in ("requests_per_minute is 0", "tokens_per_minute is -5", "max_concurrency is True")
    ]
