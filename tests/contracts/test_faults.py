"""Whatever goes wrong between a model and its provider: every fault of the table, on every adapter, in a whole run.

Each gives the right kind of error, is repeated as often and as late as it should be, keeps the use that was reported,
and shows neither the key nor an exception of somebody else's package.
"""

import asyncio
import logging
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from journeyman import Agent, ErrorCode, Event, Limits, Result, Success, Usage, run
from journeyman.errors import ProviderError
from journeyman.events import ModelRetried
from journeyman.loop.retry import LONGEST_WAIT_S, PASSING
from tests.contracts.fault_adapters import ADAPTERS, Adapter
from tests.contracts.faults import FAULTS, Fault, context, unknown
from tests.contracts.makers import KEY
from tests.contracts.patient_clock import on_patient_clock
from tests.models.raw_server import RawServer, http
from tests.play import Recorder, check_balance, failed
from tests.support.shares import thinned

ROWS = [(adapter, met) for fault in FAULTS for adapter in ADAPTERS if (met := adapter.meets(fault)) is not None]
ONE_IN = 5
UNTOLD = Usage(requests=1, exact=False)
BY_ITS_WORDS = Usage(requests=1, input_tokens=10, output_tokens=2, exact=False)
"""Of "Hello." and "Hello"."""
REQUESTS = 3  # a run's default: two retries


def named(rows: Sequence[tuple[Adapter, Fault]], one_in: int):
    """Try a share of the rows; `make fuzz` tries all."""
    return [pytest.param(*row, id=f"{row[0].name}: {row[1].name}") for row in thinned(rows, one_in)]


def may_pass(fault: Fault) -> bool:
    return fault.kind in PASSING and (fault.wait_s is None or fault.wait_s <= LONGEST_WAIT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a run and its server told."""

    result: Result[str]
    events: list[Event]
    n_requests: int
    seconds: float
    """By the clock that jumps."""


async def told(adapter: Adapter, fault: Fault, *, then_well: bool) -> Told:
    well = http(adapter.wire.whole, content_type=adapter.wire.content_type)
    answers = [fault.answer(adapter.wire), *[well] * then_well]
    recorder = Recorder()
    clock = asyncio.get_running_loop()
    async with RawServer(*answers, tls=context(fault.place)) as server:
        if fault.place == "nowhere":
            await server.__aexit__(None, None, None)
        began_s = clock.time()
        async with adapter.model(server.url) as model:
            result = await run(Agent(name="tester", model=model), "Hello.", on_event=recorder)
        return Told(
            result=result, events=recorder.events, n_requests=len(server.requests), seconds=clock.time() - began_s
        )


def use_of(fault: Fault, adapter: Adapter) -> Usage:
    """Return what one request with this fault counts as."""
    has_words = adapter.wire.is_stream and fault.is_within and fault.used is not unknown
    return fault.used(adapter.wire) or (BY_ITS_WORDS if has_words else UNTOLD)


def code_of(fault: Fault) -> ErrorCode:
    codes = {"rate_limited": ErrorCode.RATE_LIMIT_ERROR, "context_overflow": ErrorCode.CONTEXT_OVERFLOW}
    return codes.get(fault.kind, ErrorCode.API_ERROR)


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all those that a traceback shows with it."""
    left: list[BaseException | None] = [error]
    while left:
        if (one := left.pop()) is not None:
            yield one
            left += [one.__cause__, one.__context__]


def shown_of(told: Told, error: BaseException) -> str:
    """Return all that a log, a debugger or an error tracker would show."""
    texts = [f"{told.result} {told.result!r} {told.events}"]
    for one in chain_of(error):
        texts.append(f"{one} {one!r} {one.args} {vars(one)}")
        texts += traceback.TracebackException.from_exception(one, capture_locals=True).format()
    return "\n".join(texts)


def test_every_fault_and_every_adapter_is_tried() -> None:
    tried = thinned(ROWS, ONE_IN)
    assert {fault.name for _, fault in tried} == {fault.name for fault in FAULTS}
    assert {adapter.name for adapter, _ in tried} == {adapter.name for adapter in ADAPTERS}


@pytest.mark.fuzz
@pytest.mark.parametrize(("adapter", "fault"), named(ROWS, ONE_IN))
def test_a_fault_that_stays_ends_the_run(
    adapter: Adapter, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:  # D40
    caplog.set_level(logging.DEBUG)
    seen = on_patient_clock(lambda: told(adapter, fault, then_well=False))
    check_balance(seen.events)
    result = failed(seen.result)
    error = result.error.cause
    assert type(error) is ProviderError
    assert (result.code, error.kind, error.status) == (code_of(fault), fault.kind, fault.status)

    label = error.type if fault.is_within else adapter.wire.labels.get(fault.status or 0)
    assert error.type == (label if fault.labelled else None)
    assert error.retry_after_s == (None if fault.wait_s is None else pytest.approx(fault.wait_s, abs=2.0))

    n_requests = REQUESTS if may_pass(fault) else 1
    assert len([event for event in seen.events if isinstance(event, ModelRetried)]) == n_requests - 1
    assert seen.n_requests == (n_requests if fault.place == "here" else 0)
    assert error.usage == fault.used(adapter.wire)
    assert result.metadata.usage == sum([use_of(fault, adapter)] * n_requests, Usage())

    assert KEY not in shown_of(seen, error)
    assert KEY not in caplog.text
    assert [type(one) for one in chain_of(error)] == [ProviderError]


PASSING_ROWS = [(adapter, fault) for adapter, fault in ROWS if may_pass(fault) and fault.place == "here"]


@pytest.mark.fuzz
@pytest.mark.parametrize(("adapter", "fault"), named(PASSING_ROWS, ONE_IN))
def test_a_fault_that_passes_is_waited_for_as_told(adapter: Adapter, fault: Fault) -> None:
    seen = on_patient_clock(lambda: told(adapter, fault, then_well=True))
    check_balance(seen.events)
    assert isinstance(seen.result, Success)
    assert seen.result.output == "Hello there."
    assert seen.n_requests == 2
    assert seen.result.metadata.usage == use_of(fault, adapter) + adapter.wire.used
    (retried,) = [event for event in seen.events if isinstance(event, ModelRetried)]
    if fault.wait_s is None:
        assert 0.5 <= retried.delay_s <= 1.0
    else:
        assert retried.delay_s == pytest.approx(fault.wait_s, abs=2.0)
    assert (retried.kind, retried.request, retried.max_requests) == (fault.kind, 1, REQUESTS)
    waited_s = retried.delay_s + fault.silence_s
    assert waited_s - 0.001 <= seen.seconds < waited_s + 1.0


STREAMING = [adapter for adapter in ADAPTERS if adapter.wire.is_stream]


@pytest.mark.parametrize("adapter", STREAMING, ids=lambda adapter: adapter.name)
async def test_what_was_said_before_an_answer_broke_off_is_told_also_where_nobody_watches(adapter: Adapter) -> None:
    (broken,) = [fault for fault in FAULTS if fault.name == "closed in the middle"]
    said: list[str | None] = []
    for listener in (None, Recorder()):
        async with RawServer(broken.answer(adapter.wire)) as server, adapter.model(server.url) as model:
            result = failed(
                await run(
                    Agent(name="tester", model=model, limits=Limits(request_retries=0)), "Hello.", on_event=listener
                )
            )
        said.append(result.answer)
    assert said[0]
    assert said[0] == said[1]
