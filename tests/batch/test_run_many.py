"""Many inputs for one agent: each comes back with its result, in bounded memory, and nothing is left behind."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, assert_type, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import (
    Abort,
    Agent,
    Budget,
    DefinitionError,
    ErrorCode,
    Event,
    Failure,
    Limits,
    Runtime,
    Success,
    ToolContext,
    run,
    run_many,
    tool,
)
from journeyman.batch import BatchOptions, Order
from journeyman.durable import Durable
from journeyman.endings import BudgetContext
from journeyman.errors import ProviderError
from journeyman.events import BatchPaused, InputFinished, RunStarted
from journeyman.journal import InMemoryJournal
from journeyman.model import Request
from journeyman.testing.faulty import FaultyModel
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.types import NOTHING_USED, Document, Usage
from tests.play import cancelled, context_of, failed, following, make_tool, on_virtual_clock, succeeded, virtual_clock


def given_text(request: Request) -> str:
    return request.messages[0].text


def echo(answer: Callable[[Request], Any] = given_text, **options: Any) -> Agent[str]:
    """Return an agent that answers with its input."""
    return Agent(name="echo", model=FunctionModel(answer), **options)


class Rows:
    def __init__(self) -> None:
        self.n_fetched = 0


@tool
def fetch(context: ToolContext[Rows]) -> str:
    context.deps.n_fetched += 1
    return "rows"


def naturals() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield str(number)


async def until_idle() -> None:
    """Let everything go on until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


def others() -> set[asyncio.Task[Any]]:
    """Return the tasks that go on, but for this test's and its runner's."""
    return {task for task in asyncio.all_tasks() - {asyncio.current_task()} if "TestRunner" not in repr(task)}


async def test_each_input_is_given_with_its_result_in_the_order_of_the_inputs() -> None:
    pairs = [
        (input, succeeded(result).output)
        async for input, result in run_many(echo(), ["a", "b", "c"], max_concurrency=2)
    ]
    assert pairs == [("a", "a"), ("b", "b"), ("c", "c")]


async def test_no_inputs_give_nothing() -> None:
    assert [pair async for pair in run_many(echo(), [])] == []


async def test_an_async_iterable_is_taken_as_it_comes() -> None:
    asked = asyncio.Queue[str | None]()

    async def inputs() -> AsyncIterator[str]:
        while (text := await asked.get()) is not None:
            yield text

    batch = run_many(echo(), inputs())
    asked.put_nowait("first")
    assert (await anext(batch))[0] == "first"  # although the second is not there yet
    asked.put_nowait("second")
    asked.put_nowait(None)
    assert [input async for input, _ in batch] == ["second"]


@virtual_clock
async def test_with_order_done_results_come_as_runs_end() -> None:
    async def slow(request: Request) -> str:
        await asyncio.sleep(int(given_text(request)))
        return "late"

    assert [input async for input, _ in run_many(echo(slow), ["3", "1", "2"], order="done")] == ["1", "2", "3"]
    assert [input async for input, _ in run_many(echo(slow), ["3", "1", "2"])] == ["3", "1", "2"]


async def test_one_input_that_fails_is_a_result_among_the_others() -> None:
    def answer(request: Request) -> str:
        if given_text(request) == "b":
            raise ProviderError("No.", kind="bad_request")
        return "fine"

    codes = [result.code async for _, result in run_many(echo(answer), ["a", "b", "c"])]
    assert codes == ["SUCCESS", ErrorCode.API_ERROR, "SUCCESS"]


async def test_what_the_inputs_raise_is_raised_after_the_results_of_those_before() -> None:
    def inputs() -> Iterator[str]:
        yield "a"
        yield "b"
        raise LookupError("the list is torn")

    batch = run_many(echo(), inputs())
    assert [(await anext(batch))[0] for _ in range(2)] == ["a", "b"]
    with pytest.raises(LookupError, match="the list is torn"):
        await anext(batch)


async def test_deps_are_given_to_every_run() -> None:
    db = Rows()
    agent = Agent(name="reader", model=following(call("fetch"), "done"), tools=[fetch], deps=Rows)
    assert [result.code async for _, result in run_many(agent, ["a", "b"], deps=db)] == ["SUCCESS"] * 2
    assert db.n_fetched == 2


@given(
    delays=st.lists(st.integers(min_value=0, max_value=9), max_size=30),
    max_concurrency=st.integers(min_value=1, max_value=5),
    order=st.sampled_from(["input", "done"]),
    reader_s=st.integers(min_value=0, max_value=5),
)
def test_whatever_takes_how_long_all_are_given_once_and_never_too_many_are_held(
    delays: list[int], max_concurrency: int, order: Order, reader_s: int
) -> None:
    running = most_running = held = most_held = 0

    async def answer(request: Request) -> str:
        nonlocal running, most_running
        running += 1
        most_running = max(most_running, running)
        await asyncio.sleep(int(given_text(request).partition(" ")[2]))
        running -= 1
        return given_text(request)

    def inputs() -> Iterator[str]:
        nonlocal held, most_held
        for number, delay in enumerate(delays):
            held += 1
            most_held = max(most_held, held)
            yield f"{number} {delay}"

    async def scenario() -> list[str]:
        nonlocal held
        seen: list[str] = []
        async for input, result in run_many(echo(answer), inputs(), max_concurrency=max_concurrency, order=order):
            held -= 1
            seen.append(input)
            assert succeeded(result).output == input
            await asyncio.sleep(reader_s)
        return seen

    seen = on_virtual_clock(scenario)
    every = [f"{number} {delay}" for number, delay in enumerate(delays)]
    assert seen == every if order == "input" else sorted(seen) == sorted(every)
    assert most_running <= max_concurrency
    assert most_held <= 4 * max_concurrency


async def test_endless_inputs_are_taken_only_as_they_are_read() -> None:
    taken = 0

    def inputs() -> Iterator[str]:
        nonlocal taken
        for text in naturals():
            taken += 1
            yield text

    async with run_many(echo(), inputs(), max_concurrency=3, order="done") as batch:
        for _ in range(5):
            await anext(batch)
        await until_idle()
        assert taken <= 5 + 4 * 3


@pytest.mark.parametrize("order", ["input", "done"])
async def test_a_spent_budget_takes_no_more_inputs_and_the_last_pair_is_the_first_not_taken(order: Order) -> None:
    agent = echo(lambda _: say("ok", usage=Usage(requests=1, input_tokens=90, output_tokens=10)))
    batch = run_many(agent, naturals(), max_concurrency=1, order=order, budget=Budget(tokens=1_000, scope="day"))
    pairs = [pair async for pair in batch]
    *done, (last, result) = pairs
    context = context_of(result, BudgetContext)
    assert (context.policy, context.limit, context.scope) == ("tokens", 1_000, "day")
    assert (int(last), batch.first_not_taken) == (len(done) + 1, len(done) + 1)
    assert failed(result).metadata.attempts == ()
    assert sum(each.metadata.usage.requests for _, each in done if each.metadata.usage is not None) >= 7


async def test_a_budget_object_is_shared_and_counts_what_the_batch_spent() -> None:
    budget = Budget(tokens=100_000, scope="evening")
    agent = echo(lambda _: say("ok", usage=Usage(requests=1, input_tokens=90, output_tokens=10)))
    assert len([pair async for pair in run_many(agent, ["a"] * 5, budget=budget)]) == 5
    assert budget.used_tokens == 500


@virtual_clock
async def test_a_budget_of_time_ends_the_runs_and_the_batch() -> None:
    async def slow(request: Request) -> str:
        await asyncio.sleep(4)
        return "done"

    batch = run_many(echo(slow), naturals(), max_concurrency=1, budget=Budget(seconds=10))
    codes = [(input, result.code) async for input, result in batch]
    assert codes == [("1", "SUCCESS"), ("2", "SUCCESS"), *[(n, ErrorCode.BUDGET_EXCEEDED) for n in ("3", "4")]]
    assert batch.first_not_taken == 4


async def test_the_limits_of_one_run_do_not_end_the_batch() -> None:
    agent = echo(lambda _: "ok", limits=Limits(tokens=10))
    batch = run_many(agent, ["a", "b"], budget=Budget(tokens=10_000))
    assert [result.code async for _, result in batch] == [ErrorCode.BUDGET_EXCEEDED] * 2
    assert batch.first_not_taken is None


@virtual_clock
async def test_when_a_provider_limits_the_rate_no_run_asks_it_during_the_pause() -> None:
    clock, asked, heard = asyncio.get_running_loop().time, list[float](), list[Event]()
    begun = clock()

    async def answer(request: Request) -> str:
        asked.append(clock() - begun)
        if len(asked) == 3:
            raise ProviderError("Slow down.", kind="rate_limited", status=429, retry_after_s=30)
        await asyncio.sleep(1)
        return "ok"

    batch = run_many(echo(answer), ["a"] * 9, max_concurrency=3, on_event=heard.append)
    assert [result.code async for _, result in batch] == ["SUCCESS"] * 9
    assert asked[:3] == [0.0] * 3
    assert min(asked[3:]) == 30.0
    assert [each for each in heard if isinstance(each, BatchPaused)] == [
        BatchPaused(path=(), provider="scripted", seconds=30)
    ]


@virtual_clock
async def test_a_wait_that_is_too_long_for_one_run_still_holds_the_others_back() -> None:
    clock, asked = asyncio.get_running_loop().time, list[float]()
    begun = clock()

    def answer(request: Request) -> str:
        asked.append(clock() - begun)
        if len(asked) == 1:
            raise ProviderError("Slow down.", kind="rate_limited", status=429, retry_after_s=300)
        return "ok"

    codes = [result.code async for _, result in run_many(echo(answer), ["a"] * 4, max_concurrency=1)]
    assert codes == [ErrorCode.RATE_LIMIT_ERROR, "SUCCESS", "SUCCESS", "SUCCESS"]
    assert asked == [0.0, 300.0, 300.0, 300.0]


@virtual_clock
async def test_runs_outside_of_a_batch_do_not_wait_for_it() -> None:
    clock = asyncio.get_running_loop().time
    limited = ScriptedModel([ProviderError("Slow down.", kind="rate_limited", retry_after_s=50), "ok"])
    batch = run_many(Agent(name="echo", model=limited), ["a"])
    pair = asyncio.create_task(anext(batch))
    await until_idle()
    before = clock()
    assert succeeded(await run(echo(), "b")).output == "b"
    assert clock() == before
    assert succeeded((await pair)[1]).output == "ok"
    await batch.aclose()


def stuck_after(n: int) -> Agent[str]:
    """Return an agent that answers the inputs up to n, and then nobody."""

    async def answer(request: Request) -> str:
        if int(given_text(request)) > n:
            await asyncio.Event().wait()
        return "ok"

    return echo(answer)


async def test_leaving_the_block_ends_every_run_and_keeps_what_was_finished(caplog: pytest.LogCaptureFixture) -> None:
    async with run_many(stuck_after(3), naturals(), max_concurrency=4) as batch:
        assert (await anext(batch))[0] == "1"
        await until_idle()
    assert others() == set()
    assert [(input, result.code) for input, result in batch.left] == [("2", "SUCCESS"), ("3", "SUCCESS")]
    assert "of the inputs 2, 3. They are in Batch.left." in caplog.text
    with pytest.raises(StopAsyncIteration):
        await anext(batch)


async def test_a_loop_that_is_left_ends_every_run_as_soon_as_nobody_holds_the_batch() -> None:
    async for _ in run_many(stuck_after(1), naturals(), max_concurrency=4):
        break
    gc.collect()
    await until_idle()
    assert others() == set()


async def test_a_reader_that_is_cancelled_leaves_nothing_alive() -> None:
    async def read() -> None:
        async for _ in run_many(stuck_after(2), naturals(), max_concurrency=4):
            pass

    task = asyncio.create_task(read())
    await until_idle()
    await cancelled(task)
    assert others() == set()


async def test_an_abort_takes_no_more_inputs_and_gives_the_runs_under_way_as_cancelled() -> None:
    abort, codes = Abort(), list[str]()
    async for _, result in run_many(stuck_after(2), naturals(), max_concurrency=3, abort=abort):
        codes.append(result.code)
        if len(codes) == 2:
            await until_idle()
            abort.abort("enough")
    assert codes == ["SUCCESS", "SUCCESS", *["EXECUTION_CANCELLED"] * 3]
    assert others() == set()


async def test_an_abort_ends_the_wait_for_an_input() -> None:
    abort = Abort()

    async def inputs() -> AsyncIterator[str]:
        yield "1"
        await asyncio.Event().wait()

    seen: list[str] = []
    async for input, _ in run_many(echo(), inputs(), abort=abort):
        seen.append(input)
        abort.abort()
    assert (seen, others()) == (["1"], set())


async def test_a_signal_that_has_fired_lets_nothing_begin() -> None:
    abort = Abort()
    abort.abort()
    assert [pair async for pair in run_many(echo(), naturals(), abort=abort)] == []


async def test_progress_is_told_after_each_run_and_paths_tell_the_inputs_apart() -> None:
    heard: list[Event] = []

    def answer(request: Request) -> str:
        if given_text(request) == "b":
            raise ProviderError("No.", kind="bad_request")
        return "ok"

    async for _ in run_many(echo(answer), ["a", "b"], max_concurrency=1, on_event=heard.append):
        pass
    told = [each for each in heard if isinstance(each, InputFinished)]
    assert [(each.path, each.number, each.code) for each in told] == [
        (("echo#1",), 1, None),
        (("echo#2",), 2, ErrorCode.API_ERROR),
    ]
    assert [(each.n_taken, each.n_finished, each.n_failed) for each in told] == [(1, 1, 0), (2, 2, 1)]
    assert told[1].usage.requests == 2
    started = [each for each in heard if isinstance(each, RunStarted)]
    assert [(each.path, each.mode) for each in started] == [(("echo#1",), "batch"), (("echo#2",), "batch")]


async def test_a_listener_that_raises_is_logged_and_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def hear(event: Event) -> None:
        if isinstance(event, InputFinished):
            raise LookupError("no such bar")

    with caplog.at_level(logging.WARNING, "journeyman"):
        assert [result.code async for _, result in run_many(echo(), ["a"], on_event=hear)] == ["SUCCESS"]
    assert "no such bar" in caplog.text


async def test_in_a_tool_the_runs_of_a_batch_count_in_the_run_above() -> None:
    @tool
    async def read_all() -> str:
        return " ".join([str(result.unwrap()) async for _, result in run_many(echo(), ["a", "b"])])

    agent = Agent(name="boss", model=ScriptedModel([call("read_all"), "done"]), tools=[read_all])
    result = succeeded(await run(agent, "Go."))
    assert [each.path for each in result.metadata.children] == [("boss", "echo#1"), ("boss", "echo#2")]
    assert result.metadata.usage is not None
    assert result.metadata.usage.requests == 4


async def test_faults_of_the_provider_are_repeated_and_no_input_is_lost() -> None:
    model = FaultyModel(
        FunctionModel(given_text), 7, rate=0.05, faults=["refused", "rate_limited", "overloaded", "cut"]
    )
    inputs = [str(number) for number in range(500)]
    agent = Agent(name="echo", model=model, limits=Limits(request_retries=6))
    pairs = [(input, result) async for input, result in run_many(agent, inputs)]
    assert [input for input, _ in pairs] == inputs
    assert [succeeded(result).output for _, result in pairs] == inputs
    assert len(model.made) > 10


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_concurrency": 0}, "max_concurrency is 0. Pass a whole number of at least 1."),
        ({"order": "size"}, "order is 'size'. Pass 'input' or 'done'."),
        ({"budget": 5}, "budget is 5. Pass a Budget"),
        ({"inputs": "abc"}, "inputs is a str, not many inputs."),
        ({"inputs": 3}, "inputs is a int, not many inputs."),
        ({"runtime": Runtime(journal=InMemoryJournal())}, "runtime has a journal. A journal remembers one run."),
        ({"abort": True}, "abort is True."),
        ({"agent": "echo"}, "The agent is 'echo'."),
    ],
)
def test_wrong_arguments_are_refused_before_anything_begins(wrong: dict[str, Any], said: str) -> None:
    arguments: dict[str, Any] = {"agent": echo(), "inputs": ["a"], **wrong}
    with pytest.raises(DefinitionError) as refused:
        run_many(arguments.pop("agent"), arguments.pop("inputs"), **arguments)
    assert said in str(refused.value)


async def test_what_a_batch_spends_is_spent_from_its_budget_and_from_that_around_it_each_time() -> None:
    everything = Budget(tokens=9_000)
    of_batches = Budget(tokens=2_000, parent=everything)
    worker = echo(lambda _: say("ok", usage=Usage(requests=1, input_tokens=90, output_tokens=10)))

    @tool
    async def work() -> int:
        """Work on two."""
        return len([pair async for pair in run_many(worker, ["a", "b"], budget=of_batches)])

    used: list[tuple[int, int]] = []
    days = [Budget(tokens=1_000, parent=everything) for _ in range(2)]
    for day in days:  # a budget of the program outlives the runs in whose tools it is given
        model = ScriptedModel([say(call("work"), usage=NOTHING_USED), say("Done.", usage=NOTHING_USED)])
        lead = Agent(name="lead", model=model, tools=[work], limits=Limits(tokens=900))
        succeeded(await run(lead, "Go.", runtime=Runtime(budget=day)))
        used.append((of_batches.used_tokens, day.used_tokens))
    assert used == [(200, 200), (400, 200)]
    batch = run_many(worker, ["a", "b"], budget=of_batches, runtime=Runtime(budget=days[1]))
    assert len([pair async for pair in batch]) == 2
    assert (of_batches.used_tokens, days[1].used_tokens, everything.used_tokens) == (600, 400, 600)


async def test_a_result_is_a_success_or_a_failure_of_the_type() -> None:
    outputs = list[str]()
    async for input, result in run_many(echo(), ["a"]):
        assert_type(input, str)
        assert_type(result, Success[str] | Failure)
        match result:
            case Success():
                outputs.append(result.output)
            case Failure():
                raise AssertionError(result)
    assert outputs == ["a"]


@pytest.mark.parametrize("stops", ["abort", "left"])
async def test_a_batch_whose_runs_are_kept_goes_on_where_it_stopped(tmp_path: Path, stops: str) -> None:
    paid, begun, is_stuck = list[str](), asyncio.Event(), True

    pay = make_tool("pay", "paid {whom}", into=paid, effect="once")

    async def answer(request: Request) -> Answer:
        whom = request.messages[0].text
        if len(request.messages) == 1:
            return call("pay", whom=whom)
        if whom == "b" and is_stuck:
            begun.set()
            await asyncio.Event().wait()
        if whom == "c":
            raise ProviderError("Never.", kind="bad_request")
        return f"{whom} is paid"

    agent = Agent(name="payer", model=FunctionModel(answer), tools=[pay])
    abort = Abort()

    async def first(durable: Durable) -> list[tuple[str, str]]:
        options = BatchOptions(max_concurrency=1, abort=abort, key=lambda each: f"pay-{each}", durable=durable)
        async with run_many(agent, ["a", "b", "c"], **options) as batch:
            return [(input, str(result.code)) async for input, result in batch]

    async with Durable(tmp_path / "runs.db") as durable:
        working = asyncio.create_task(first(durable))
        await begun.wait()
        if stops == "abort":
            abort.abort("enough")
            assert await working == [("a", "SUCCESS"), ("b", "EXECUTION_CANCELLED")]
        else:
            await cancelled(working)
    is_stuck = False
    async with Durable(tmp_path / "runs.db") as durable:
        batch = run_many(agent, ["c", "b", "a"], key=lambda each: f"pay-{each}", durable=durable)
        codes = {input: str(result.code) async for input, result in batch}
        ids = {info.name async for info in _infos(durable)}
    assert codes == {"a": "SUCCESS", "b": "SUCCESS", "c": "API_ERROR"}
    assert sorted(paid) == ["a", "b", "c"]
    assert ids == {"payer/pay-a", "payer/pay-b", "payer/pay-c"}


async def _infos(durable: Durable) -> AsyncIterator[Any]:
    for info in await durable.list():
        yield info


async def test_a_file_is_an_input_and_is_kept_like_any_other(tmp_path: Path) -> None:
    scans = [[f"Page {n}.", Document.from_bytes(b"A page.", "text/plain", title=f"{n}.pdf")] for n in (1, 2)]
    seen: list[str] = []

    def answer(request: Request) -> Answer:
        seen.append(",".join([str(getattr(block, "title", block.type)) for block in request.messages[0].content]))
        return "Read."

    for _ in range(2):
        async with Durable(tmp_path / "runs.db") as durable:
            batch = run_many(echo(answer), scans, durable=durable, max_concurrency=1)
            assert [(input, result.unwrap()) async for input, result in batch] == [(each, "Read.") for each in scans]
    assert seen == ["text,1.pdf", "text,2.pdf"]


async def test_what_cannot_be_kept_is_a_failure_of_its_input_alone(tmp_path: Path) -> None:
    def key(given: str) -> Any:  # noqa: ANN401 - what a program might return
        return {"a": 7, "b": 1 / 0 if given == "b" else ""}.get(given, "same")

    async with Durable(tmp_path / "runs.db") as durable:
        batch = run_many(echo(), ["a", "b", "c", "d"], key=key, durable=durable, max_concurrency=1)
        results = [result async for _, result in batch]
    told = [result.error.message if isinstance(result, Failure) else result.output for result in results]
    assert "asking key(…) for an input failed: it returned 7. Let it return a text" in told[0]
    assert "ZeroDivisionError" in told[1]
    assert told[2] == "c"
    assert "another" in told[3]


def test_what_keeps_the_runs_of_a_batch_is_checked() -> None:
    with pytest.raises(DefinitionError) as wrong:
        run_many(echo(), ["a"], key=cast("Any", "id"), durable=cast("Any", "runs.db"))
    assert [problem.message for problem in wrong.value.problems] == ["key is 'id'.", "durable is 'runs.db'."]
    with pytest.raises(DefinitionError, match="There is a key, and nothing that keeps runs under it"):
        run_many(echo(), ["a"], key=str)
