"""However many spend at the same time: no budget is exceeded, nobody waits in vain, and nobody is refused in vain."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from journeyman import Agent, Budget, Failure, Limits, ModelSettings, Runtime, Success, Usage, run
from journeyman.budget import SMALLEST_ANSWER_TOKENS, Grant, open_budget
from journeyman.endings import BudgetContext
from journeyman.errors import BudgetRefused
from journeyman.model import Request, Response
from journeyman.testing.scripted import FunctionModel, call, say
from journeyman.types import Price
from tests.properties.examples import examples, patient
from tests.support.counting_loop import on_counting_loop

pytestmark = patient

PRICE = Price(input=3.0, output=15.0, cache_write=3.75)
A_MICRODOLLAR = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """One model call: what it asks for, how long it takes, and what it reports in the end."""

    input_tokens: int
    max_tokens: int
    takes_s: float
    reports: float
    """The part of its reservation that it uses; more than 1 is a surplus."""
    begins_s: float = 0.0
    is_cancelled_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A budget, the budgets that draw on it, and who spends from which."""

    root: Budget
    children: tuple[Budget, ...]
    spendings: tuple[tuple[int, Spending], ...]
    """The number of the child, and what it spends."""
    price: Price | None


@dataclass(slots=True)
class Ledger:
    """What is reserved and used of one budget, kept by hand."""

    budget: Budget
    reserved: list[Grant] = field(default_factory=list[Grant])
    used: list[Usage] = field(default_factory=list[Usage])
    overshoot: int = 0

    def tokens(self) -> int:
        return sum(grant.tokens for grant in self.reserved) + sum(usage.total_tokens for usage in self.used)

    def cost(self) -> float:
        return sum(grant.cost for grant in self.reserved) + sum(usage.cost or 0.0 for usage in self.used)

    def check(self, overshoot_cost: float) -> None:
        """Nothing beyond the limit is reserved or used, but for what was reported as a surplus."""
        if self.budget.tokens is not None:
            assert self.tokens() <= self.budget.tokens + self.overshoot
            assert self.budget.overshoot_tokens == self.overshoot
        if self.budget.cost is not None:
            assert self.cost() <= self.budget.cost + overshoot_cost + A_MICRODOLLAR
        assert self.budget.used_tokens == sum(usage.total_tokens for usage in self.used)


def spendings(reports: SearchStrategy[float]) -> SearchStrategy[Spending]:
    seconds = st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.0])
    return st.builds(
        Spending,
        input_tokens=st.integers(0, 2_000),
        max_tokens=st.sampled_from([1, 100, 256, 1_000, 8_192]),
        takes_s=seconds,
        reports=reports,
        begins_s=seconds,
        is_cancelled_after_s=st.one_of(st.none(), st.none(), seconds),
    )


def families(reports: SearchStrategy[float]) -> SearchStrategy[Family]:
    budgets = st.builds(
        Budget, tokens=st.one_of(st.none(), st.integers(1, 20_000)), cost=st.one_of(st.none(), st.floats(0.0001, 0.3))
    )
    return st.builds(
        Family,
        root=budgets,
        children=st.lists(budgets, min_size=3, max_size=3).map(tuple),
        spendings=st.lists(st.tuples(st.integers(0, 2), spendings(reports)), min_size=1, max_size=12).map(tuple),
        price=st.sampled_from([PRICE, Price(input=3.0, output=0.0), None]),
    )


WITHIN = st.sampled_from([0.0, 0.5, 1.0])
BEYOND = st.sampled_from([0.0, 1.0, 1.5, 3.0])


@pytest.mark.fuzz
@examples()
@given(families(WITHIN))
def test_a_budget_is_never_exceeded_when_nobody_reports_more_than_was_reserved(family: Family) -> None:  # 4.7
    ledgers = on_counting_loop(lambda: _spend(family))
    for ledger in ledgers:
        assert ledger.budget.overshoot_tokens == 0
        assert ledger.budget.overshoot_cost < A_MICRODOLLAR
        assert ledger.reserved == []


@pytest.mark.fuzz
@examples()
@given(families(BEYOND))
def test_a_surplus_is_kept_and_told_and_stops_what_comes_after(family: Family) -> None:  # 4.7 "marked overshoot"
    for ledger in on_counting_loop(lambda: _spend(family)):
        if ledger.budget.tokens is not None:
            assert ledger.budget.used_tokens <= ledger.budget.tokens + ledger.budget.overshoot_tokens


async def _spend(family: Family) -> list[Ledger]:
    """Let everybody spend at once. Whoever waits in vain is a `Deadlock` of the virtual clock."""
    root = open_budget(family.root, scope="root", parent=None)
    children = [open_budget(each, scope=f"child {n}", parent=root) for n, each in enumerate(family.children)]
    ledgers = [Ledger(root), *map(Ledger, children)]
    async with asyncio.TaskGroup() as tasks:
        for number, spending in family.spendings:
            tasks.create_task(_one(spending, [ledgers[1 + number], ledgers[0]], family.price))
    return ledgers


async def _one(spending: Spending, ledgers: list[Ledger], price: Price | None) -> None:
    await asyncio.sleep(spending.begins_s)
    try:
        async with asyncio.timeout(spending.is_cancelled_after_s):
            grant = await ledgers[0].budget.reserve(
                input_tokens=spending.input_tokens, max_tokens=spending.max_tokens, price=price
            )
            await _use(spending, grant, ledgers, price)
    except BudgetRefused as refused:
        _check_refusal(refused, spending, ledgers, price)
    except TimeoutError:
        return


async def _use(spending: Spending, grant: Grant, ledgers: list[Ledger], price: Price | None) -> None:
    assert min(spending.max_tokens, SMALLEST_ANSWER_TOKENS) <= grant.max_tokens <= spending.max_tokens
    for ledger in ledgers:
        ledger.reserved.append(grant)
        ledger.check(ledger.budget.overshoot_cost)
    usage = Usage()
    try:
        await asyncio.sleep(spending.takes_s)
        usage = _reported(spending, grant, price)
    finally:
        ledgers[0].budget.settle(grant, usage)
        for ledger in ledgers:
            ledger.reserved.remove(grant)
            ledger.used.append(usage)
            if ledger.budget.tokens is not None:
                ledger.overshoot += max(0, usage.total_tokens - grant.tokens)
            ledger.check(ledger.budget.overshoot_cost)


def _reported(spending: Spending, grant: Grant, price: Price | None) -> Usage:
    """Return what the call reports: all of its input, and a part of its longest answer, or more than that."""
    output = int(grant.max_tokens * spending.reports)
    usage = Usage(requests=1, input_tokens=spending.input_tokens, output_tokens=output)
    cost = None if price is None else price.of(usage)
    return Usage(requests=1, input_tokens=spending.input_tokens, output_tokens=output, cost=cost)


def _check_refusal(refused: BudgetRefused, spending: Spending, ledgers: list[Ledger], price: Price | None) -> None:
    """It would not have fitted either if all reservations had been given back, and the one that is named says why."""
    ledger = next(each for each in ledgers if each.budget.scope == refused.scope)
    budget, smallest = ledger.budget, min(spending.max_tokens, SMALLEST_ANSWER_TOKENS)
    if refused.policy == "tokens":
        assert (refused.limit, refused.used) == (budget.tokens, budget.used_tokens)
        assert refused.used + spending.input_tokens + smallest > refused.limit
    else:
        assert price is not None
        dearest = max(price.input, price.cache_write or 0.0)
        least = (spending.input_tokens * dearest + smallest * price.output) / 1_000_000
        assert (refused.policy, refused.limit, refused.used) == ("cost", budget.cost, budget.used_cost)
        assert refused.used + least > refused.limit - A_MICRODOLLAR


@pytest.mark.fuzz
@examples(one_in=5)
@given(
    tokens=st.integers(300, 12_000), parts=st.lists(st.floats(0, 1), min_size=2, max_size=6), parallel=st.integers(2, 6)
)
def test_runs_at_the_same_time_never_exceed_the_budget_they_share(  # 4.7, R79
    tokens: int, parts: list[float], parallel: int
) -> None:
    budget = on_counting_loop(lambda: _runs(tokens, parts, parallel))
    assert budget.used_tokens <= tokens
    assert budget.overshoot_tokens == 0


async def _runs(tokens: int, parts: list[float], parallel: int) -> Budget:
    """Let several runs draw on one budget; each answer takes a second, and uses a part of what it may."""
    budget = Budget(tokens=tokens, scope="all")
    allowed: list[int] = []

    async def answer(request: Request) -> Response:
        assert request.max_tokens is not None
        allowed.append(request.max_tokens)
        part = parts[len(request.messages) // 2 % len(parts)]
        await asyncio.sleep(1.0)
        usage = Usage(requests=1, input_tokens=1, output_tokens=int(part * request.max_tokens))
        return say(call("nothing"), usage=usage)

    settings, limits = ModelSettings(max_tokens=2_000), Limits(iterations=4, request_retries=0)
    agent = Agent(name="hero", model=FunctionModel(answer), settings=settings, limits=limits)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(run(agent, "Go.", runtime=Runtime(budget=budget))) for _ in range(parallel)]
    used = 0
    for task in running:
        used += _used_until_refused(task.result())
    assert used == budget.used_tokens
    assert all(SMALLEST_ANSWER_TOKENS <= each <= 2_000 for each in allowed)
    return budget


def _used_until_refused(result: Success[str] | Failure) -> int:
    """Return what a run used that ended because of its iterations, or because the budget of all was used up."""
    assert isinstance(result, Failure)
    assert result.code in ("MAX_ITERATIONS", "BUDGET_EXCEEDED")
    if isinstance(result.error.context, BudgetContext):
        assert (result.error.context.policy, result.error.context.scope) == ("tokens", "all")
    return 0 if result.metadata.usage is None else result.metadata.usage.total_tokens


@given(limits=st.lists(st.integers(0, 6), min_size=3, max_size=3), calls=st.lists(st.integers(0, 2), max_size=30))
def test_calls_are_counted_exactly_here_and_above(limits: list[int], calls: list[int]) -> None:  # 4.7 "exact"
    root = Budget(calls=5, scope="root")
    children = [Budget(calls=limit, scope="child", parent=root) for limit in limits]
    taken = [0, 0, 0]
    for child in calls:
        fits = taken[child] < limits[child] and sum(taken) < 5
        assert children[child].take_calls() is fits
        taken[child] += fits
    assert [child.used_calls for child in children] == taken
    assert root.used_calls == sum(taken)


@given(st.lists(st.one_of(st.none(), st.floats(0.1, 100)), min_size=1, max_size=5))
def test_a_deadline_is_the_earliest_of_all_above(seconds: list[float | None]) -> None:  # 4.7 "inherited"
    budget: Budget | None = None
    for number, each in enumerate(seconds):
        budget = Budget(seconds=each, scope=str(number), parent=budget)
    assert budget is not None
    budget.begin(10.0)
    assert budget.deadline == min((10.0 + each for each in seconds if each is not None), default=None)
