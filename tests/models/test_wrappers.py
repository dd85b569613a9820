"""Models around models: who answers, what is counted, what events tell, and what is left behind."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import get_args

import pytest

from journeyman import Abort, Agent, DefinitionError, Limits, Runtime, Text, Usage, run, tool
from journeyman.errors import ProviderError, ProviderErrorKind
from journeyman.events import Event, ModelAnswered, ModelResponded, ModelRestarted
from journeyman.model import Answered, BlockFinished, Facts, ResponseFinished, ResponseStarted, Restarted, TextPart
from journeyman.models import FallbackModel, RateLimitedModel, SwappableModel
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.wrappers import PASSED_ON
from journeyman.testing import FaultyModel, ScriptedModel, call
from journeyman.types import NOTHING_USED, Price
from tests.models.asking import Request, ask, failure_of, known_of, parts_of, request
from tests.models.decoding import Part, Response, summed
from tests.play import stage as stage
from tests.play.models import Door
from tests.play.recorder import Recorder, check_balance
from tests.play.results import cancelled, existing, failed, succeeded
from tests.play.stage import Stage, broken
from tests.play.tools import make_tool
from tests.support.clock import virtual_clock
from tests.support.messages_answers import answer, fault
from tests.support.servers import MessagesApi

KINDS: tuple[ProviderErrorKind, ...] = get_args(ProviderErrorKind)
CHEAP, DEAR = Price(input=1, output=10), Price(input=100, output=1_000)
USED = Usage(requests=1, input_tokens=10, output_tokens=5)


def error(kind: ProviderErrorKind = "overloaded", *, usage: Usage | None = NOTHING_USED) -> ProviderError:
    return ProviderError(f"It failed: {kind}.", kind=kind, usage=usage, retry_after_s=0)


@dataclass
class Halting:
    """A model that says the beginning of an answer and then fails, or simply stops."""

    failure: ProviderError | None
    name: str = "halting"
    provider: str = "example"
    price: Price | None = None
    max_output_tokens: int = 100
    context_window: int | None = 1_000
    ending: ResponseFinished | None = None
    log: list[str] = field(default_factory=list[str])

    @property
    def facts(self) -> Facts:
        return Facts(max_output_tokens=self.max_output_tokens, context_window=self.context_window, price=self.price)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        self.log.append("open")
        yield
        self.log.append("close")

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Part]]:
        self.log.append("ask")
        try:
            yield self._parts()
        finally:
            self.log.append("left")

    async def _parts(self) -> AsyncIterator[Part]:
        yield ResponseStarted(self.name, "a-1", Usage(requests=1, input_tokens=7))
        yield TextPart("Half")
        yield BlockFinished(Text("Half"))
        if self.failure is not None:
            raise self.failure
        if self.ending is not None:
            yield self.ending


@pytest.mark.parametrize("kind", KINDS)
async def test_the_next_model_is_asked_for_what_may_go_better_there(kind: ProviderErrorKind) -> None:
    second = ScriptedModel(["Hi."], name="second")
    fallback = FallbackModel(ScriptedModel([error(kind)], name="first"), second)
    if kind in PASSED_ON:
        assert (await ask(fallback)).content == (Text("Hi."),)
        return
    assert ((await failure_of(fallback)).kind, second.requests) == (kind, [])


def test_the_kinds_that_are_passed_on_are_those_that_may_pass() -> None:
    assert {"rate_limited", "timeout", "network", "stream_idle", "stream_cut", "overloaded"} == PASSED_ON


async def test_the_kinds_to_pass_on_can_be_chosen() -> None:
    fallback = FallbackModel(ScriptedModel([error("quota"), error("overloaded")]), ScriptedModel(["Hi."]), on=["quota"])
    assert (await ask(fallback)).content == (Text("Hi."),)
    assert "overloaded" in str(await failure_of(fallback))


async def test_the_last_error_is_raised_when_nobody_is_left() -> None:
    fallback = FallbackModel(ScriptedModel([error("overloaded")]), ScriptedModel([error("network")]))
    assert "network" in str(await failure_of(fallback))


async def test_who_answers_is_told_before_the_answer_and_every_call_begins_with_the_first() -> None:
    first = ScriptedModel([error(), "One."], name="first")
    fallback = FallbackModel(first, ScriptedModel(["Two."], name="second"))
    parts = await parts_of(fallback)
    assert [*map(type, parts)] == [Restarted, Answered, ResponseStarted, TextPart, BlockFinished, ResponseFinished]
    assert parts[1] == Answered("scripted", "second")
    assert (await parts_of(fallback))[0] == Answered("scripted", "first")
    assert (fallback.provider, fallback.name) == ("scripted", "first"), "until somebody has answered"


async def test_half_an_answer_is_thrown_away_and_its_use_stays_counted() -> None:
    halting = Halting(error("stream_cut", usage=None), price=CHEAP)
    fallback = FallbackModel(halting, ScriptedModel(["Whole."], price=DEAR))
    response = await ask(fallback)
    assert response.content == (Text("Whole."),)
    assert (response.usage.requests, response.usage.input_tokens, response.usage.exact) == (2, 17, False)
    assert response.usage.cost == pytest.approx((7 * 1 + 1 * 10 + 10 * 100 + 5 * 1_000) / 1e6)
    assert halting.log == ["ask", "left"]


async def test_a_failure_that_used_nothing_leaves_the_usage_exact() -> None:
    response = await ask(FallbackModel(ScriptedModel([error()], price=CHEAP), ScriptedModel(["Hi."], price=DEAR)))
    assert response.usage == replace(USED, cost=DEAR.of(USED))


async def test_an_answer_that_ends_too_early_has_failed() -> None:
    response = await ask(FallbackModel(Halting(None), ScriptedModel(["Whole."])))
    assert response.content == (Text("Whole."),)
    assert (await failure_of(FallbackModel(Halting(None)))).kind == "stream_cut"


async def test_the_cost_is_the_answering_models_also_when_it_does_not_tell_it() -> None:
    silent = Halting(None, price=DEAR, ending=ResponseFinished("end_turn", None, USED))
    response = await ask(FallbackModel(ScriptedModel([error()], price=CHEAP), silent))
    assert response.usage == replace(USED, cost=DEAR.of(USED))


def test_the_limits_are_the_smallest_and_the_price_is_the_dearest() -> None:
    small = Halting(None, max_output_tokens=10, context_window=None, price=Price(input=1, output=9, cache_read=0.1))
    large = Halting(None, max_output_tokens=99, context_window=500, price=Price(input=2, output=8, cache_write=3))
    fallback = FallbackModel(small, large)
    assert known_of(fallback)[2:] == (Price(input=2, output=9, cache_read=2, cache_write=3), 10, 500)
    assert known_of(FallbackModel(small, ScriptedModel([])))[2] is None
    assert known_of(FallbackModel(ScriptedModel([])))[3] is None


def test_the_dearest_price_holds_for_long_requests_too() -> None:
    stepped = Price(input=1, output=1, above=((100, Price(input=5, output=1)),))
    price = known_of(FallbackModel(Halting(None, price=stepped), Halting(None, price=Price(input=2, output=2))))[2]
    assert price is not None
    assert [price.at(tokens).input for tokens in (100, 101)] == [2, 5]


async def test_opening_opens_all_and_closes_all() -> None:
    models = Halting(None), Halting(None)
    async with FallbackModel(*models).open():
        assert [model.log for model in models] == [["open"], ["open"]]
    assert [model.log for model in models] == [["open", "close"], ["open", "close"]]


def test_a_fallback_that_cannot_work_is_refused_with_all_its_problems() -> None:
    with pytest.raises(DefinitionError) as caught:
        FallbackModel(on=["late"])  # pyright: ignore[reportArgumentType] - the mistake in question
    assert [problem.code for problem in caught.value.problems] == ["NO_MODELS", "UNKNOWN_ERROR_KIND"]
    assert "on names 'late', which is not a kind of error. Choose from: rate_limited, " in str(caught.value)


async def test_who_hears_that_another_model_is_asked_may_stop_the_run_before_it_is() -> None:
    first, second, abort = Halting(error()), ScriptedModel(["Never."]), Abort()

    def stop(event: Event) -> None:
        if isinstance(event, ModelRestarted):
            abort.abort("enough")

    model = FallbackModel(first, second, on=["overloaded"])
    stopped = failed(await run(Agent(name="tester", model=model), "Go.", abort=abort, on_event=stop))
    assert (stopped.error.code, second.requests) == ("EXECUTION_CANCELLED", [])


async def test_a_run_shows_who_answered_and_charges_whom(stage: Stage) -> None:
    first = stage.model([broken("Half.", "More.", ending="error"), "Never."], price=CHEAP)
    second = stage.model([call("look", id="a"), "Done."], price=DEAR)

    look = make_tool("look", "found")
    recorder = Recorder()
    agent = Agent(
        name="tester",
        model=FallbackModel(first, second, on=["overloaded"]),
        tools=[look],
        limits=Limits(request_retries=0),
    )
    first_half = succeeded(await run(agent, "Go.", on_event=recorder, max_attempts=1))
    check_balance(recorder.events)
    answered = recorder.of(ModelAnswered)
    assert [event.model for event in answered[:2]] == [first.name, second.name]
    assert len(recorder.of(ModelRestarted)) == 1
    responded = recorder.of(ModelResponded)
    assert responded[0].usage.requests == 2
    assert first_half.output == "Never."
    cost = [CHEAP.of(replace(USED, output_tokens=1)), DEAR.of(USED), CHEAP.of(USED)]
    assert existing(first_half.metadata.usage).cost == pytest.approx(sum(each or 0 for each in cost))


async def test_retries_begin_with_the_first_model_again_and_count_everything() -> None:
    first = ScriptedModel([error("overloaded", usage=USED), error("overloaded", usage=USED)], price=CHEAP)
    second = ScriptedModel([error("network", usage=USED), "Done."], price=DEAR)
    result = succeeded(await run(Agent(name="tester", model=FallbackModel(first, second)), "Go."))
    assert result.metadata.usage is not None
    assert result.metadata.usage.requests == 4
    assert result.metadata.usage.cost == pytest.approx(2 * (CHEAP.of(USED) or 0) + 2 * (DEAR.of(USED) or 0))


async def test_over_http_the_second_service_answers_for_the_first() -> None:
    async with MessagesApi([fault(529)]) as busy, MessagesApi([answer("Here.")]) as free:
        models = [AnthropicModel(name, api_key="k", base_url=api.url) for name, api in (("a", busy), ("b", free))]
        fallback = FallbackModel(*models)
        async with fallback.open():
            result = await run(Agent(name="tester", model=fallback, limits=Limits(request_retries=0)), "Go.")
    assert result.unwrap() == "Here."


async def test_a_swap_counts_from_the_next_call_of_a_running_run() -> None:
    swappable = SwappableModel()
    second = ScriptedModel(["Second."], name="second", price=DEAR)

    @tool
    async def swap() -> str:
        """Swap."""
        swappable.swap(second)
        return "swapped"

    first = ScriptedModel([call("swap", id="a")], name="first", price=CHEAP)
    assert swappable.swap(first) is None
    recorder = Recorder()
    result = await run(Agent(name="tester", model=swappable, tools=[swap]), "Go.", on_event=recorder)
    assert result.unwrap() == "Second."
    assert [event.model for event in recorder.of(ModelAnswered)] == ["first", "second"]
    assert [event.model for event in recorder.of(ModelResponded)] == ["first", "second"]
    assert existing(result.metadata.usage).cost == pytest.approx((CHEAP.of(USED) or 0) + (DEAR.of(USED) or 0))


async def test_the_cost_is_unknown_after_a_swap_to_a_model_without_a_price() -> None:
    swappable = SwappableModel()

    @tool
    async def swap() -> str:
        """Swap."""
        swappable.swap(ScriptedModel(["Second."]))
        return "swapped"

    swappable.swap(ScriptedModel([call("swap", id="a")], price=CHEAP))
    agent = Agent(name="tester", model=swappable, tools=[swap])
    result = succeeded(await run(agent, "Go."))
    assert existing(result.metadata.usage).cost is None

    swappable.swap(ScriptedModel([call("swap", id="a")], price=CHEAP))
    limited = failed(await run(replace(agent, limits=Limits(cost=1.0)), "Go."))
    assert limited.code == "MODEL_UNAVAILABLE"
    said = "Model 'scripted:scripted' cannot be used: its cost is limited, and it has no known price."
    assert limited.error.message == said


async def test_a_swap_does_not_disturb_the_answer_under_way() -> None:
    swappable = SwappableModel(ScriptedModel(["First, whole."]))
    async with swappable.stream(request()) as parts:
        assert await anext(parts) == Answered("scripted", "scripted")
        swappable.swap(None)
        rest = [part async for part in parts]
    assert BlockFinished(Text("First, whole.")) in rest


async def test_without_a_model_a_run_ends_as_unavailable_and_says_what_to_do() -> None:
    swappable = SwappableModel()
    assert known_of(swappable) == ("swappable", "none", None, None, None)
    result = failed(await run(Agent(name="tester", model=swappable), "Go."))
    assert (result.code, result.error.phase) == ("MODEL_UNAVAILABLE", "iteration")
    assert result.error.message == "Model 'swappable' cannot be used: it holds no model."
    assert result.error.hint == "Give it one: SwappableModel(model), or swap(model) before the call."
    assert result.metadata.usage == NOTHING_USED


async def test_a_swappable_is_what_its_model_is() -> None:
    halting = Halting(None, price=CHEAP)
    swappable = SwappableModel(halting)
    assert known_of(swappable) == ("example", "halting", CHEAP, 100, 1_000)
    async with swappable.open():
        assert halting.log == ["open"]


@pytest.mark.parametrize(
    ("wrap", "shown"),
    [
        (partial(RateLimitedModel, max_concurrency=1), "<RateLimitedModel <AnthropicModel claude-sonnet-5-5>>"),
        (partial(FaultyModel, seed=1), "<FaultyModel <AnthropicModel claude-sonnet-5-5>, seed 1>"),
    ],
    ids=["one with limits", "one with faults"],
)
async def test_a_wrapper_is_what_its_model_is(wrap: Callable[..., RateLimitedModel | FaultyModel], shown: str) -> None:
    wrapped = wrap(AnthropicModel("claude-sonnet-5-5", price=CHEAP))
    assert known_of(wrapped) == ("anthropic", "claude-sonnet-5-5", CHEAP, 128_000, 1_000_000)
    async with wrapped.open():
        pass
    assert repr(wrapped) == shown


async def test_models_around_models_nest_and_tell_who_answered_once() -> None:
    inner = FallbackModel(ScriptedModel([error()], name="a"), SwappableModel(ScriptedModel(["Hi."], name="b")))
    parts = await parts_of(
        RateLimitedModel(FallbackModel(SwappableModel(inner), ScriptedModel([])), requests_per_minute=9)
    )
    assert [part for part in parts if isinstance(part, Answered)] == [Answered("scripted", "b")]


async def test_what_is_lost_is_counted_once_through_all_layers() -> None:
    inner = FallbackModel(Halting(error("network", usage=USED)), Halting(error("network", usage=USED)))
    outer = RateLimitedModel(FallbackModel(inner, ScriptedModel(["Hi."])), tokens_per_minute=10_000)
    response = await ask(outer)
    assert response.usage == Usage(requests=3, input_tokens=30, output_tokens=15)


def test_events_tell_restarts_with_what_they_threw_away() -> None:
    parts = [BlockFinished(Text("Half")), Restarted(USED), Restarted(USED), ResponseFinished("end_turn", None, USED)]
    assert summed(parts) == Response(content=(), stop_reason="end_turn", usage=Usage.total([USED] * 3))


async def test_a_host_may_bring_a_wrapper() -> None:
    agent = Agent(name="tester", model=ScriptedModel([]))
    result = await run(agent, "Go.", runtime=Runtime(model=FallbackModel(ScriptedModel(["Hi."]))))
    assert result.unwrap() == "Hi."


@virtual_clock
async def test_a_cancelled_call_closes_the_stream_that_is_open() -> None:
    door = Door()
    task = asyncio.create_task(ask(FallbackModel(ScriptedModel([error()]), ScriptedModel([door.before("")]))))
    await cancelled(task, when=door.reached)
