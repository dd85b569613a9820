"""What counts of an answer whose use nobody told: its words by an estimate, and else what was reserved for it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journeyman import Abort, Agent, Failure, Limits, ModelSettings, Result, Runtime, Success, Usage, run, stream, tool
from journeyman.budget import Budget
from journeyman.endings import BudgetContext, ErrorCode
from journeyman.errors import ProviderError
from journeyman.events import Event, TextDelta
from journeyman.journal import InMemoryJournal, Journal
from journeyman.model import (
    BlockFinished,
    InputPart,
    Model,
    Part,
    Request,
    ResponseFinished,
    TextPart,
    ThinkingPart,
    UsageSeen,
)
from journeyman.models.wrappers import FallbackModel, RateLimitedModel
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.types import Effect, Price, Text
from tests.contracts.fault_adapters import ADAPTERS, Adapter
from tests.loop.parts import Speaking
from tests.models.raw_server import RawServer, hanging_after
from tests.play import context_of, existing, failed, n_answers, succeeded, virtual_clock

WORD = "fox and hound "  # 14 bytes: 3.5 tokens, by the estimate


def broken_off(usage: Usage | None = None) -> ProviderError:
    return ProviderError("cut", kind="stream_cut", usage=usage)


def budget_of(tokens: int) -> Budget:
    return Budget(tokens=tokens, scope="all")


async def spend(model: Model, budget: Budget, *, max_tokens: int = 500, retries: int = 0) -> Success[str] | Failure:
    agent = Agent(
        name="teller",
        model=model,
        settings=ModelSettings(max_tokens=max_tokens),
        limits=Limits(request_retries=retries),
    )
    return await run(agent, "Tell me a story.", runtime=Runtime(budget=budget))


async def test_aborted_streams_use_up_a_budget() -> None:  # A31, R79
    budget, n_words, ends = budget_of(1_500), 0, list[str]()
    model = Speaking(*[TextPart(WORD)] * 90, ResponseFinished("end_turn"))
    while len(ends) < 20 and "BUDGET_EXCEEDED" not in ends:
        abort = Abort()
        agent = Agent(name="teller", model=model, settings=ModelSettings(max_tokens=400))
        async with stream(agent, "Tell me a story.", abort=abort, runtime=Runtime(budget=budget)) as events:
            heard = 0
            async for event in events:
                heard += isinstance(event, TextDelta)
                if heard == 80:
                    abort.abort("enough")
        n_words += heard
        ends.append(events.result.code if isinstance(events.result, Failure) else "SUCCESS")
    assert ends[-1] == ErrorCode.BUDGET_EXCEEDED
    assert n_words * len(WORD) / 4 <= budget.used_tokens <= 1_500


@pytest.mark.parametrize(
    "part", [TextPart(WORD * 100), ThinkingPart(WORD * 100), InputPart("a", "look", WORD * 100)], ids=repr
)
@pytest.mark.parametrize("wrap", [None, FallbackModel, partial(RateLimitedModel, tokens_per_minute=9_999)])
async def test_whatever_was_written_counts(part: Part, wrap: Callable[[Model], Model] | None) -> None:
    budget, model = budget_of(10_000), Speaking(part, broken_off())
    result = await spend(model if wrap is None else wrap(model), budget)
    usage = existing(result.metadata.usage)
    assert (usage.output_tokens, usage.exact, usage.total_tokens) == (350, False, budget.used_tokens)
    assert usage.input_tokens > 0


async def test_a_figure_of_the_beginning_does_not_stand_for_the_whole() -> None:
    """As of a provider that tells one token when it begins."""
    told = Usage(requests=1, input_tokens=25, output_tokens=1)
    result = await spend(Speaking(UsageSeen(told), TextPart(WORD * 100), broken_off()), budget_of(10_000))
    assert result.metadata.usage == replace(told, output_tokens=350, exact=False)
    counted = replace(told, output_tokens=300)  # as of one that counts in every chunk
    result = await spend(Speaking(UsageSeen(counted), TextPart(WORD * 100), broken_off()), budget_of(10_000))
    assert result.metadata.usage == replace(counted, exact=False)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
async def test_over_every_wire_an_aborted_answer_counts(adapter: Adapter) -> None:
    """Its words where any have come, and else what was reserved."""
    budget, abort = budget_of(10_000), Abort()
    begun = adapter.wire.begun
    head = f"HTTP/1.1 200 Fine\r\nContent-Type: {adapter.wire.content_type}\r\nContent-Length: 99999\r\n\r\n".encode()

    def hear(event: Event) -> None:
        if isinstance(event, TextDelta):
            abort.abort("enough")

    async with RawServer(hanging_after(head + begun)) as server, adapter.model(server.url) as model:
        limits = Limits(seconds=None if adapter.wire.is_stream else 0.1)
        agent = Agent(name="teller", model=model, settings=ModelSettings(max_tokens=500), limits=limits)
        result = await run(agent, "Hello.", abort=abort, runtime=Runtime(budget=budget), on_event=hear)
    assert isinstance(result, Failure)
    seen = adapter.wire.seen.total_tokens if adapter.wire.seen is not None else 12
    assert budget.used_tokens == (seen if adapter.wire.is_stream else 510)


@pytest.mark.parametrize(
    "told",
    [None, Usage(requests=1), Usage(requests=1, input_tokens=10), Usage(requests=1, output_tokens=500)],
    ids=["nothing", "zeros", "no output", "no input"],
)
async def test_zero_tokens_of_an_answer_with_words_are_not_believed(told: Usage | None) -> None:
    budget, n = budget_of(3_000), 0
    model = Speaking(BlockFinished(Text(WORD * 100)), ResponseFinished("end_turn", usage=told))
    while isinstance(result := await spend(model, budget), Success):
        assert not (result.metadata.usage or Usage()).exact
        n += 1
        assert n < 20
    assert context_of(result, BudgetContext).policy == "tokens"
    assert 2_000 < budget.used_tokens <= 3_000 or told == Usage(requests=1, output_tokens=500)


async def test_an_answer_without_a_request_or_without_words_is_believed() -> None:
    budget = budget_of(1_000)
    for answer in (say("From a cache.", usage=Usage()), say(usage=Usage(requests=1, input_tokens=9))):
        result = await spend(ScriptedModel([answer, "Well."]), budget)
        assert isinstance(result, Success) or budget.used_tokens == 9
    assert budget.used_tokens in (9, 24)


async def test_where_nothing_is_known_the_reservation_counts() -> None:  # A31, R79
    budget, price = Budget(tokens=10_000, cost=1.0, scope="all"), Price(input=1, output=10)
    lost = ScriptedModel([ProviderError("gone", kind="network")], price=price)
    result = await spend(lost, budget)
    assert result.metadata.usage == Usage(requests=1, cost=0.0, exact=False)  # nobody knows
    assert 500 < budget.used_tokens < 600
    assert budget.used_cost == pytest.approx(500 * 10 / 1e6, rel=0.1)


@pytest.mark.parametrize("n", [1, 3])
@virtual_clock
async def test_what_is_not_billed_gives_the_reservation_back(n: int) -> None:
    budget = budget_of(10_000)
    refused = ProviderError("busy", kind="overloaded", usage=Usage())
    await spend(ScriptedModel([*[refused] * n, "Done."]), budget, retries=3)
    assert budget.used_tokens == 15


@virtual_clock
@pytest.mark.parametrize("by", ["retries", "fallback"])
async def test_each_request_of_a_call_is_reserved(by: str) -> None:
    """However many are cut after nearly all that was reserved, the budget holds."""

    def cut(request: Request) -> ProviderError:
        longest = request.max_tokens or 0
        asked.append(longest)
        return broken_off(Usage(requests=1, input_tokens=10, output_tokens=longest - 1))

    asked: list[int] = []
    for limit, n_asked in ((700, 1), (1_000, 2), (1_300, 3), (5_000, 4)):
        asked.clear()
        budget = budget_of(limit)
        models = [ScriptedModel([cut], repeat=True, name=f"m{n}") for n in range(4)]
        result = failed(
            await spend(models[0] if by == "retries" else FallbackModel(*models), budget, retries=3 * (by == "retries"))
        )
        assert budget.used_tokens <= limit
        assert (result.code == ErrorCode.BUDGET_EXCEEDED) is (len(asked) < 4)
        assert len(asked) == n_asked
        assert budget.overshoot_tokens == 0
        assert (budget._n_grants, budget._tokens_reserved) == (0, 0)  # pyright: ignore[reportPrivateUsage] - nothing is left reserved


@virtual_clock
async def test_the_next_model_may_answer_as_long_as_what_is_left_pays_for() -> None:
    first = ScriptedModel([broken_off(Usage(requests=1, input_tokens=10, output_tokens=400))], name="first")
    second = ScriptedModel(["Done."], name="second")
    result = await spend(FallbackModel(first, second), budget_of(1_000), max_tokens=800)
    assert isinstance(result, Success)
    assert second.requests[0].max_tokens is not None
    assert 550 < second.requests[0].max_tokens < 590
    assert first.requests[0].max_tokens == 800


@virtual_clock
async def test_a_model_that_asks_the_next_one_waits_for_nobody_who_waits_for_its_place() -> None:
    async def cut(request: Request) -> ProviderError:
        await asyncio.sleep(1)  # the other run has reserved by then, and waits for its place
        return broken_off(Usage(requests=1, input_tokens=10, output_tokens=400))

    model = RateLimitedModel(FallbackModel(ScriptedModel([cut, "One."]), ScriptedModel(["Two."])), max_concurrency=1)
    budget = budget_of(1_150)
    async with asyncio.timeout(60):
        results = await asyncio.gather(spend(model, budget), spend(model, budget))
    assert [isinstance(each, Success) for each in results] == [False, True]
    assert context_of(results[0], BudgetContext).policy == "tokens"


Death = tuple[Literal["model", "tool"], int]
"""In what a life dies, and how many answers it has got by then."""
LIMIT, LONGEST = 4_000, 500
RESERVED = LONGEST + 100
"""Tokens: of the budget, of an answer, and of what is reserved for the longest request with its answer."""


class Mortal:
    """A run of so many calls, one after the other, whose lives may die. A model call that a death cuts uses up all that
    was reserved for it; any other uses 60 tokens."""

    def __init__(self, journal: Journal, *, n_calls: int = 6, effect: Effect = "idempotent") -> None:
        self.journal = journal
        self.used = 0
        """How many tokens the provider has counted."""
        self.counted = 0
        """How many the budget had counted when the run died, or ended."""
        self._n_calls = n_calls
        self._effect: Effect = effect
        self._budget = budget_of(LIMIT)
        self._dies: Death | None = None
        self._died = asyncio.Event()

    def _agent(self) -> Agent[str, str]:
        asked = count()

        async def answer(request: Request) -> Answer:
            if self._dies == ("model", next(asked)):
                self.used += 20 + (request.max_tokens or 0)
                await self._die()
            self.used += 60
            n = n_answers(request)
            answer = call("look", id=str(n)) if n < self._n_calls else "Done."
            return say(answer, usage=Usage(requests=1, input_tokens=40, output_tokens=20))

        @tool(effect=self._effect)
        async def look() -> str:
            """Look."""
            if self._dies is not None and self._dies[0] == "tool":
                await self._die()
            return "seen"

        settings, limits = ModelSettings(max_tokens=LONGEST), Limits(iterations=99)
        return Agent(name="teller", model=FunctionModel(answer), tools=[look], settings=settings, limits=limits)

    async def _die(self) -> None:
        self.counted = self._budget.used_tokens
        self._died.set()
        await asyncio.Event().wait()

    async def live(self, dies: Death | None = None) -> Result[str] | None:
        """Let a life pass, and return how the run ended; None: it has died before."""
        self._dies, self._budget = dies, budget_of(LIMIT)
        self._died.clear()
        living = asyncio.create_task(
            run(self._agent(), "Go.", runtime=Runtime(budget=self._budget, journal=self.journal))
        )
        dying = asyncio.create_task(self._died.wait())
        await asyncio.wait([living, dying], return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if living.done():
            self.counted = self._budget.used_tokens
            return living.result()
        living.cancel()
        await asyncio.wait([living])
        return None


async def test_each_death_but_the_first_counts_as_what_was_reserved_for_the_call_that_it_cut() -> None:
    memory, counted, results = InMemoryJournal(), list[int](), list[Result[str] | None]()
    for n_answers_before in (0, 0, 1, 0, 1, 0, 9, 9):
        mortal = Mortal(memory, n_calls=2)
        results.append(await mortal.live(("model", n_answers_before)))
        counted.append(mortal.counted)
    first, later = LONGEST + 28, LONGEST + 69  # by the estimate of the requests
    second, third = first + 60, first + 60 + 2 * later + 60  # where these calls stand
    ends = third + 2 * later + 60
    assert counted == [0, 0, second, second + later, third, third + later, ends, ends]
    assert results[:-2] == [None] * 6
    usage = Usage(requests=3 + 5, input_tokens=120, output_tokens=60, exact=False)
    assert [succeeded(each).metadata.usage for each in results[-2:]] == [usage, usage]


@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_a_death_in_a_tool_counts_nothing_however_often_it_happens(effect: Effect) -> None:
    mortal = Mortal(InMemoryJournal(), effect=effect)
    for _ in range(6):
        assert await mortal.live(("tool", 0)) is None
    usage = succeeded(await mortal.live()).metadata.usage
    assert usage == Usage(requests=7, input_tokens=280, output_tokens=140)
    assert mortal.used == mortal.counted == 420


async def test_a_life_that_ended_in_good_order_has_not_died() -> None:
    """Its call failed, or it was not even prepared, again and again."""
    memory, budget = InMemoryJournal(), budget_of(LIMIT)

    async def live(input: str, answer: Answer | ProviderError) -> Result[str]:
        agent = Agent(name="teller", model=ScriptedModel([answer]), limits=Limits(request_retries=0))
        return await run(agent, input, runtime=Runtime(journal=memory, budget=budget))

    for _ in range(5):
        down = await live("Go.", ProviderError("down", kind="overloaded", usage=Usage()))
        other = await live("Another input.", "never")
        assert [isinstance(each, Failure) for each in (down, other)] == [True, True]
    result = await live("Go.", "Done.")
    assert succeeded(result).metadata.usage == Usage(requests=1, input_tokens=10, output_tokens=5)
    assert budget.used_tokens == 15


_DEATHS = st.tuples(st.sampled_from(["model", "model", "tool"]), st.integers(0, 1))


@settings(deadline=None, max_examples=settings().max_examples // 4)
@given(deaths=st.lists(_DEATHS, max_size=1) | st.lists(_DEATHS, min_size=9, max_size=20), n_calls=st.integers(1, 8))
async def test_whenever_a_run_dies_its_budget_holds_and_one_death_changes_nothing(
    deaths: list[Any], n_calls: int
) -> None:
    mortal, alive = Mortal(InMemoryJournal(), n_calls=n_calls), Mortal(InMemoryJournal(), n_calls=n_calls)
    n_died = 0
    for death in deaths:
        result = await mortal.live(death)
        if result is not None:
            break
        n_died += 1
    else:
        result = await mortal.live()
    assert mortal.used <= LIMIT + RESERVED
    assert isinstance(result, Success) or n_died > LIMIT // RESERVED
    if n_died <= 1:
        assert result is not None
        undisturbed = existing(await alive.live())
        assert (result.code, result.metadata.usage) == (undisturbed.code, undisturbed.metadata.usage)
