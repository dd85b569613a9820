"""Usage: added up over iterations and attempts, and told on every ending."""

from __future__ import annotations

import pytest

from journeyman import Agent, Limits, Observability, Output, Price, ProviderError, run
from journeyman.models.scripted import Answer, call, say
from journeyman.types import Usage
from tests.loop.players import Report, fail, failed, look, preview, report, small, submit, succeeded
from tests.support.stage import Stage, broken


def used(input_tokens: int, output_tokens: int, read: int | None = None, written: int | None = None) -> Usage:
    return Usage(
        requests=1,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


async def test_tokens_add_up_over_iterations_and_attempts(stage: Stage) -> None:  # R37, R38, R59
    model = stage.model(
        [
            say(call("look"), usage=used(1, 10)),
            say(report(7), usage=used(2, 20)),
            say(call("fail"), usage=used(4, 40)),
            say(report(2, id="o2"), usage=used(8, 80)),
        ]
    )
    agent = Agent(name="tester", model=model, tools=[look, fail], output=Output(Report), validators=[small])
    result = succeeded(await run(agent, "Go."))
    assert result.metadata.usage == Usage(requests=4, input_tokens=15, output_tokens=150)
    assert [record.usage for record in result.metadata.attempts] == [
        Usage(requests=2, input_tokens=3, output_tokens=30),
        Usage(requests=2, input_tokens=12, output_tokens=120),
    ]


async def test_cached_tokens_are_counted_apart_and_once(stage: Stage) -> None:  # X20, R59, D18
    model = stage.model(
        [
            say(report(7), usage=used(1, 1, read=0, written=100)),
            say(report(8, id="o2"), usage=used(1, 1, read=100, written=7)),
            say(report(2, id="o3"), usage=used(1, 1, read=107, written=0)),
        ]
    )
    agent = Agent(name="tester", model=model, output=Output(Report), validators=[small])
    usage = succeeded(await run(agent, "Go.")).metadata.usage
    assert usage == Usage(requests=3, input_tokens=3, output_tokens=3, cache_read_tokens=207, cache_write_tokens=107)


async def test_what_no_response_reported_stays_unknown(stage: Stage) -> None:  # X20
    usage = succeeded(await run(Agent(name="tester", model=stage.model(["Hello."])), "Go.")).metadata.usage
    assert usage is not None
    assert (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens, usage.cost) == (None,) * 4


async def test_what_one_response_reported_is_kept(stage: Stage) -> None:  # X20
    model = stage.model([say(call("look"), usage=used(1, 1)), say("Done.", usage=used(1, 1, read=5))])
    usage = succeeded(await run(Agent(name="tester", model=model, tools=[look]), "Go.")).metadata.usage
    assert usage == Usage(requests=2, input_tokens=2, output_tokens=2, cache_read_tokens=5)


async def test_with_a_price_the_cost_is_told(stage: Stage) -> None:  # R61, X21
    price = Price(input=1_000_000, output=2_000_000)
    model = stage.model([say("Done.", usage=used(3, 4))], price=price)
    usage = succeeded(await run(Agent(name="tester", model=model), "Go.")).metadata.usage
    assert usage == Usage(requests=1, input_tokens=3, output_tokens=4, cost=11.0)


async def test_tracking_can_be_switched_off_and_budgets_still_count(stage: Stage) -> None:  # R60, X21, A31
    untracked = Observability(track_tokens=False)
    agent = Agent(name="tester", model=stage.model(["Hello."]), observability=untracked)
    assert succeeded(await run(agent, "Go.")).metadata.usage is None
    model = stage.model([say(call("look"), usage=used(990, 5))], repeat=True)
    limits = Limits(tokens=1_000)
    agent = Agent(name="tester", model=model, tools=[look], limits=limits, observability=untracked)
    result = failed(await run(agent, "Go."))
    assert result.code == "BUDGET_EXCEEDED"
    assert result.metadata.usage is None


ENDINGS: dict[str, list[Answer]] = {
    "INVALID_RESPONSE": ["Hello."],
    "MODEL_REFUSED": [say("No.", stop_reason="refusal")],
    "TOKEN_LIMIT_EXCEEDED": [say("Hel", stop_reason="max_tokens")],
    "SUBMIT_BEFORE_OUTPUT": [submit()],
    "MAX_ITERATIONS": [call("look")],
    "MAX_ATTEMPTS_EXCEEDED": [[report(7), submit()]],
}


@pytest.mark.parametrize("code", ENDINGS)
async def test_every_response_counts_whatever_comes_of_it(stage: Stage, code: str) -> None:  # R38, R51, R66, A31
    model = stage.model([call("look"), *ENDINGS[code]])
    agent = Agent(
        name="tester",
        model=model,
        tools=[look],
        output=Output(Report, reflection=preview),
        validators=[small],
        limits=Limits(attempts=1, iterations=2),
    )
    result = failed(await run(agent, "Go."))
    assert result.code == code
    assert result.metadata.usage == Usage(requests=2, input_tokens=20, output_tokens=10)
    assert result.metadata.latency_s > 0


async def test_a_request_that_was_refused_at_the_door_used_nothing(stage: Stage) -> None:  # R66, A29, A31
    model = stage.model([call("look"), ProviderError("No.", kind="auth", usage=Usage())])
    result = failed(await run(Agent(name="tester", model=model, tools=[look]), "Go."))
    assert result.code == "API_ERROR"
    assert result.metadata.usage == Usage(requests=1, input_tokens=10, output_tokens=5)


async def test_an_answer_that_broke_off_counts_what_it_reported(stage: Stage) -> None:  # R74, A31
    model = stage.model([call("look"), broken("Hello", call("look"))])
    agent = Agent(name="tester", model=model, tools=[look], retries=0)
    result = failed(await run(agent, "Go."))
    assert result.code == "API_ERROR"
    assert result.metadata.usage == Usage(requests=2, input_tokens=20, output_tokens=6, exact=False)


async def test_a_run_that_asked_nothing_used_nothing() -> None:  # R66
    result = failed(await run(Agent(name="tester", model="nobody:nothing"), "Go."))
    assert result.metadata.usage == Usage()
    assert result.metadata.latency_s >= 0
