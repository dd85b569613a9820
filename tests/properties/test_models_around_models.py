"""Whatever fails, waits or is stopped: models around models count exactly, keep limits, and leave nothing behind."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import Message, Model, ModelSettings, Text, Usage
from journeyman.errors import ProviderError
from journeyman.model import BlockFinished, Collector, Facts, Part, Prefix, Request, ResponseFinished, ResponseStarted
from journeyman.models import FallbackModel, RateLimitedModel, SwappableModel
from journeyman.types import Price
from tests.play import existing, instance_of
from tests.properties.examples import examples, patient
from tests.support.counting_loop import CountingLoop

pytestmark = patient


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, and how the model takes it."""

    begins_s: int
    takes_s: int
    chars: int
    """Of the message: four make a token."""
    answer_tokens: int
    fails: bool = False
    is_cancelled_after_s: int | None = None


@dataclass(slots=True, eq=False)
class Kept:
    """A call that the model was asked for."""

    number: int
    started_s: float
    n_at_once: int
    """How many were under way when it began, itself included."""
    ended_s: float = float("inf")
    tokens: int = 0
    """Used for certain."""


@dataclass(slots=True)
class Noting:
    """A model that plays the calls and notes what it was asked."""

    calls: tuple[Call, ...]
    kept: list[Kept] = field(default_factory=list[Kept])
    n_now: int = 0
    name: str = "noting"
    provider: str = "example"

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        number = int(request.messages[-1].text.partition(" ")[0])
        self.n_now += 1
        kept = Kept(number, asyncio.get_running_loop().time(), self.n_now)
        self.kept.append(kept)
        try:
            yield self._parts(self.calls[number], kept)
        finally:
            self.n_now -= 1
            kept.ended_s = asyncio.get_running_loop().time()

    async def _parts(self, call: Call, kept: Kept) -> AsyncIterator[Part]:
        yield ResponseStarted(self.name, "", Usage(requests=1, input_tokens=call.chars // 4))
        await asyncio.sleep(call.takes_s)
        if call.fails:
            raise ProviderError("It broke off.", kind="stream_cut")
        kept.tokens = call.chars // 4 + call.answer_tokens
        usage = Usage(requests=1, input_tokens=call.chars // 4, output_tokens=call.answer_tokens)
        yield ResponseFinished("end_turn", None, usage)


CALLS = st.builds(
    Call,
    begins_s=st.integers(0, 90),
    takes_s=st.integers(0, 40),
    chars=st.integers(4, 2_000),
    answer_tokens=st.integers(0, 200),
    fails=st.booleans(),
    is_cancelled_after_s=st.none() | st.integers(0, 120),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """What `RateLimitedModel` takes."""

    requests: int | None
    tokens: int | None
    concurrency: int | None


LIMITS = st.builds(
    RateLimits,
    requests=st.none() | st.integers(1, 4),
    tokens=st.none() | st.integers(200, 2_000),
    concurrency=st.none() | st.integers(1, 3),
)


async def _ask(model: Model, call: Call, number: int) -> None:
    text = f"{number} ".ljust(call.chars)
    settings = ModelSettings(max_tokens=200)
    request = Request(prefix=Prefix(), messages=[Message("user", (Text(text),))], settings=settings)
    async with model.stream(request) as parts:
        async for _ in parts:
            pass


async def _call(model: Model, call: Call, number: int) -> None:
    await asyncio.sleep(call.begins_s)
    try:
        async with asyncio.timeout(call.is_cancelled_after_s):
            await _ask(model, call, number)
    except (TimeoutError, ProviderError):
        return


def _limit_faults(kept: list[Kept], limits: RateLimits) -> list[str]:
    faults: list[str] = []
    requests, tokens, concurrency = limits.requests, limits.tokens, limits.concurrency
    for one in kept:
        now = one.started_s
        minute = [each for each in kept if now - 60 < each.started_s <= now]
        counted = [each for each in kept if each.started_s <= now and now - 60 < each.ended_s]
        if requests is not None and len(minute) > requests:
            faults.append(f"{len(minute)} requests in the minute before {now}")
        if concurrency is not None and one.n_at_once > concurrency:
            faults.append(f"{one.n_at_once} at once at {now}")
        if tokens is not None and len(counted) > 1 and sum(each.tokens for each in counted) > tokens:
            faults.append(f"{counted} at {now}")
    return faults


@pytest.mark.fuzz
@given(calls=st.lists(CALLS, max_size=8).map(tuple), limits=LIMITS)
@examples()
def test_no_minute_has_more_than_the_limits_and_nothing_is_left_behind(
    calls: tuple[Call, ...], limits: RateLimits
) -> None:
    noting = Noting((*calls, Call(begins_s=0, takes_s=0, chars=4, answer_tokens=0)))
    limited = RateLimitedModel(
        noting, requests_per_minute=limits.requests, tokens_per_minute=limits.tokens, max_concurrency=limits.concurrency
    )

    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number, call in enumerate(calls):
                tasks.create_task(_call(limited, call, number))
        assert len(asyncio.all_tasks()) == 1
        await asyncio.sleep(61)
        before = asyncio.get_running_loop().time()
        await _ask(limited, noting.calls[-1], len(calls))
        assert asyncio.get_running_loop().time() == before, "Nothing counts any more, and nobody holds a place."

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(scenario())
        loop = instance_of(CountingLoop, runner.get_loop())
        assert loop.pending_timers() == []
    assert _limit_faults(noting.kept, limits) == []
    patient_calls = [kept.number for kept in noting.kept[:-1] if calls[kept.number].is_cancelled_after_s is None]
    assert patient_calls == sorted(patient_calls, key=lambda number: calls[number].begins_s), (
        "First come, first served."
    )
    assert {*patient_calls} == {n for n, call in enumerate(calls) if call.is_cancelled_after_s is None}


def test_a_cancellation_before_any_step_leaves_no_task_no_timer_and_no_place_taken() -> None:
    step = 0
    while _cancelled_before(step := step + 1):
        assert step < 2_000
    assert step > 10


def _cancelled_before(step: int) -> bool:
    """Cancel one of three calls before the step; return whether it was still under way."""
    calls = tuple(Call(begins_s=0, takes_s=5, chars=40, answer_tokens=10, fails=n == 0) for n in range(4))
    noting = Noting(calls)
    limited = RateLimitedModel(
        FallbackModel(noting, noting), requests_per_minute=2, tokens_per_minute=300, max_concurrency=1
    )
    model = SwappableModel(limited)
    reached: list[bool] = []

    async def scenario() -> None:
        loop = instance_of(CountingLoop, asyncio.get_running_loop())
        tasks = [asyncio.create_task(_call(model, call, number)) for number, call in enumerate(calls[:3])]
        loop.count_from_here()
        loop.before_step(step, lambda: reached.append(tasks[1].cancel()))
        await asyncio.wait(tasks)
        loop.before_step(step, lambda: None)
        await asyncio.sleep(100)
        await _ask(model, calls[3], 3)
        assert len(asyncio.all_tasks()) == 1
        assert [timer for timer in loop.pending_timers() if not timer.cancelled()] == []
        assert all(kept.ended_s < float("inf") for kept in noting.kept)

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(scenario())
    return reached == [True]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a model takes the one call it is asked for."""

    input_tokens: int
    output_tokens: int
    price: Price | None
    ends: bool
    """False: it fails, after its first part, which tells the input, or before."""
    begins: bool
    tells: bool
    """Whether its failure tells the usage."""
    charges: bool
    """Whether it tells its costs itself."""


@dataclass(slots=True)
class Playing:
    """A model that takes its one call as planned."""

    outcome: Outcome
    name: str = "playing"
    provider: str = "example"
    n_open: int = 0

    @property
    def price(self) -> Price | None:
        return self.outcome.price

    @property
    def facts(self) -> Facts:
        return Facts(price=self.price)

    @property
    def usage(self) -> Usage:
        """What the call uses, as far as anyone may know."""
        plan = self.outcome
        if plan.ends or plan.tells:
            # That words came, and no tokens went in or out, is not believed of an answer that broke off.
            exact = plan.ends or not plan.begins or min(plan.input_tokens, plan.output_tokens) > 0
            used = Usage(requests=1, input_tokens=plan.input_tokens, output_tokens=plan.output_tokens)
            return replace(used, exact=exact)
        return Usage(requests=1, input_tokens=plan.input_tokens if plan.begins else 0, exact=False)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        if not self.outcome.ends and not self.outcome.begins:
            raise self._failure()
        self.n_open += 1
        try:
            yield self._parts()
        finally:
            self.n_open -= 1

    async def _parts(self) -> AsyncIterator[Part]:
        yield ResponseStarted(self.name, "", Usage(requests=1, input_tokens=self.outcome.input_tokens))
        yield BlockFinished(Text(self.name))
        if not self.outcome.ends:
            raise self._failure()
        yield ResponseFinished("end_turn", None, self._charged(self.usage))

    def _failure(self) -> ProviderError:
        usage = self._charged(self.usage) if self.outcome.tells else None
        return ProviderError("It failed.", kind="overloaded", usage=usage)

    def _charged(self, usage: Usage) -> Usage:
        return self.price.charged(usage) if self.price is not None and self.outcome.charges else usage


OUTCOMES = st.builds(
    Outcome,
    input_tokens=st.integers(0, 1_000),
    output_tokens=st.integers(0, 1_000),
    price=st.none() | st.builds(Price, input=st.sampled_from([0.0, 3.0]), output=st.sampled_from([1.0, 15.0])),
    ends=st.booleans(),
    begins=st.booleans(),
    tells=st.booleans(),
    charges=st.booleans(),
)


def _nested(models: list[Playing], cuts: list[bool]) -> Model:
    """Wrap the models, in order, in fallbacks within fallbacks and other wrappers."""
    wrapped: Model = models[-1]
    for model, cut in zip(reversed(models[:-1]), cuts, strict=False):
        around = FallbackModel(SwappableModel(model), RateLimitedModel(wrapped, tokens_per_minute=10**9))
        wrapped = around if cut else FallbackModel(FallbackModel(model), wrapped)
    return wrapped


@pytest.mark.fuzz
@given(outcomes=st.lists(OUTCOMES, min_size=1, max_size=5), cuts=st.lists(st.booleans(), min_size=4, max_size=4))
@examples()
def test_the_usage_is_the_sum_of_all_that_were_asked_at_their_own_prices(
    outcomes: list[Outcome], cuts: list[bool]
) -> None:
    models = [Playing(outcome, name=f"m{number}") for number, outcome in enumerate(outcomes)]
    last = next((number for number, outcome in enumerate(outcomes) if outcome.ends), len(outcomes) - 1)
    asked = models[: last + 1]
    collector = Collector()

    async def scenario() -> Usage:
        request = Request(prefix=Prefix(), messages=[Message("user", (Text("Go."),))], settings=ModelSettings())
        try:
            async with _nested(models, cuts).stream(request) as parts:
                async for part in parts:
                    collector.add(part)
        except ProviderError as error:
            return collector.used_before(error)
        assert collector.response().content == (Text(asked[-1].name),), "Nothing of a broken answer is left."
        return collector.response().usage

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        used = runner.run(scenario())
    expected = [model.usage for model in asked]
    assert used.requests == len(asked)
    told = Usage.total(expected)
    if used.exact:
        assert (used.input_tokens, used.output_tokens) == (told.input_tokens, told.output_tokens)
    else:  # what nobody told is estimated
        assert (used.input_tokens >= told.input_tokens, used.output_tokens >= told.output_tokens) == (True, True)
    assert used.exact == all(usage.exact for usage in expected)
    if len(models) > 1:
        costs = [None if model.price is None else model.price.of(model.usage) for model in asked]
        known = [cost for cost in costs if cost is not None]
        if used.exact or len(known) < len(costs):
            assert used.cost == (pytest.approx(sum(known)) if len(known) == len(costs) else None)
        else:
            assert existing(used.cost) >= sum(known) - 1e-9
    assert all(model.n_open == 0 for model in models)
