"""The limits of a run, and the account of its spending.

A budget draws on the budget above it: an attempt's on its run's, a child's on its parent's. Nothing is spent that was
not reserved first, in the whole chain at once; what was reserved and not used is given back. So a limit holds however
many spend at the same time. The `Ledger` counts what was used: tokens by attempt, calls by tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.problems import explain_arguments
from journeyman.errors import BudgetRefused
from journeyman.result import COUNTED, ToolKind, ToolStats
from journeyman.types import NOTHING_USED, Price, Usage

__all__ = ["BudgetPolicy", "Grant", "LimitExceeded", "Spending"]

SMALLEST_ANSWER_TOKENS: Final = 256
"""A model call for which less output than this is left is not made."""


@lazy_dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a run. Attempts and iterations are always finite."""

    attempts: int = 3
    """Outputs that may be validated before the run gives up."""
    iterations: int = 15
    """Model calls in each attempt."""
    tokens: int | None = None
    """Tokens of the whole run: see `Budget`."""
    cost: float | None = None
    """US dollars for the whole run."""
    seconds: float | None = None
    """Wall time of the whole run, in seconds."""
    calls: int | None = None
    """Tool calls of the whole run."""
    per_attempt: Budget | None = None
    """Further limits, which hold for each attempt by itself: each has a budget of its own with the same limits."""
    extended_max_tokens: int | None = None
    """When `max_tokens` cuts a response, the request is repeated once with this many tokens. None: such a response ends
    the run."""
    whole_responses: bool = False
    """What a limit on calls does with a response that asks for more than are left. False: the first ones are made;
    True: none of its calls is."""
    max_concurrency: int = 8
    """How many calls of parallel tools run at the same time."""
    tool_failures: int | None = None
    """How often one tool may fail in a row; its further calls are then answered with an error. None: without limit."""
    approval_seconds: float | None = None
    """How many seconds an approval may take; this wait does not count against `seconds`. None: without limit, and the
    wait counts."""
    request_retries: int | None = None
    """Repetitions of a model request that failed. None: 2 for a top-level run, 0 for a sub-agent."""
    result_chars: int | None = None
    """Reflections, and results of tools that set no limit of their own, are cut to this many characters."""
    budget_policies: Sequence[BudgetPolicy] = ()
    """Further limits of your own, checked before each model call."""

    def __post_init__(self) -> None:
        if isinstance(self.budget_policies, list):  # the caller may still change it
            object.__setattr__(self, "budget_policies", tuple(self.budget_policies))


@lazy_dataclass(frozen=True, kw_only=True)
class Spending:
    """The spending of a run so far, for a policy of the user's."""

    usage: Usage
    """What the run has used so far."""
    iterations: int
    """Model calls, of all attempts."""
    calls: int
    """Tool calls of all attempts, including output and submit, and those of the runs below."""
    seconds: float
    """How long the run has worked, in seconds."""
    attempt: int


@lazy_dataclass(frozen=True, kw_only=True)
class LimitExceeded:
    """The answer of a policy that ends the run."""

    limit: float
    """What is allowed: tokens, US dollars, seconds or calls, as the policy says."""
    used: float
    """What was used, in the same unit."""


class BudgetPolicy(Protocol):
    """A limit of the user's own."""

    @property
    def name(self) -> str:
        """The name of the policy, by which a failure calls it."""
        ...

    def check(self, spent: Spending) -> LimitExceeded | None:
        """Say before a model call whether the run must end. Called before every one; must be quick."""
        ...


@lazy_dataclass(frozen=True)
class Grant:
    """A reservation for one model call."""

    max_tokens: int
    """The longest answer it pays for."""
    tokens: int
    """How many tokens it holds back."""
    cost: float
    """How many US dollars it holds back."""

    def usage(self) -> Usage:
        """Return the reservation as the usage of a request of which nothing else is known."""
        return Usage(
            requests=1,
            input_tokens=self.tokens - self.max_tokens,
            output_tokens=self.max_tokens,
            cost=self.cost,
            exact=False,
        )


@lazy_dataclass(frozen=True, kw_only=True)
class BudgetLeft:
    """The rest that may still be spent. None: without limit."""

    tokens: int | None = None
    """Tokens of input and output."""
    cost: float | None = None
    """US dollars."""
    calls: int | None = None
    """Tool calls."""


@explain_arguments
class Budget:
    """Limits of what runs may spend together, and the account of what they have spent.

    Its seconds begin when the first run draws on it. `Limits` sets the limits of one run.
    """

    def __init__(
        self,
        *,
        tokens: int | None = None,
        cost: float | None = None,
        seconds: float | None = None,
        calls: int | None = None,
        scope: str = "program",
        parent: Budget | None = None,
    ) -> None:
        """Limit each kind of spending; None: without limit.

        Args:
            tokens: Tokens of input and output of all requests, cached or not.
            cost: US dollars.
            seconds: Wall time in seconds. A model call or a tool that is running when the time is up is stopped.
            calls: Tool calls. Those beyond it are answered with an error, and the run goes on.
            scope: The name of the budget in failures.
            parent: The budget from which all that is spent here is spent as well.
        """
        self.tokens = tokens
        self.cost = cost
        self.seconds = seconds
        """The limit of the wall time, in seconds."""
        self.calls = calls
        self.scope = scope
        self.used_tokens = 0
        """Tokens that runs have used, here and in all budgets that draw on this one."""
        self.used_cost = 0.0
        """US dollars that they have cost."""
        self.used_calls = 0
        """Tool calls that they have made, where calls are limited here or below."""
        self.own_deadline: float | None = None
        """When time is up here, on the event loop's clock; None for never, and before the seconds begin."""
        self.deadline: float | None = None
        """When time is up here or above, on the event loop's clock; None for never, and before the seconds begin."""
        self.overshoot_tokens = 0
        """What responses reported beyond their reservations."""
        self.overshoot_cost = 0.0
        self._has_begun = False
        self._n_grants = 0
        """Reservations that are not settled yet."""
        self._tokens_reserved = 0
        self._cost_reserved = 0.0
        self._settled: asyncio.Event | None = None
        self._recalled: list[object] = []
        """The journals whose earlier lives are counted."""
        self.parent = parent
        """The budget from which all that is spent here is spent, too; None at the top."""
        self._beside: Budget | None = None
        """Another budget from which all that is spent here is spent as well."""
        self._note_limits()

    def __repr__(self) -> str:
        limits = [f"{name}={amount!r}" for name, amount in limits_of(self).items()]
        return f"Budget({', '.join(limits)})"

    def _note_limits(self) -> None:
        above = [each for each in (self.parent, self._beside) if each is not None]
        self.limits_cost = self.cost is not None or any([each.limits_cost for each in above])
        """True when money is limited, here or above."""
        self.limits_spending = (
            self.limits_cost or self.tokens is not None or any([each.limits_spending for each in above])
        )
        """True when tokens or money are limited, here or above."""
        self.limits_calls = self.calls is not None or any([each.limits_calls for each in above])
        """True when tool calls are limited, here or above."""

    def begin(self, now: float, *, used_s: float = 0.0) -> None:
        """Let the seconds begin at `now` on the event loop's clock, here and above, where they have not begun;
        `used_s` of those here are used already."""
        if self._has_begun:
            return
        self._has_begun = True
        if self.seconds is not None:
            self.own_deadline = now - used_s + self.seconds
        ends = [] if self.own_deadline is None else [self.own_deadline]
        for above in (self.parent, self._beside):
            if above is not None:
                above.begin(now)
                ends += [] if above.deadline is None else [above.deadline]
        self.deadline = min(ends, default=None)

    def beside(self, other: Budget) -> Budget:
        """Return a budget without limits of its own whose spending is spent from this one and from the other."""
        if self.draws_on(other):
            return self
        if other.draws_on(self):
            return other
        both = Budget(parent=self)
        both._beside = other
        both._note_limits()
        return both

    def draws_on(self, other: Budget) -> bool:
        """Tell whether what this budget spends is also spent from `other`."""
        return any(level is other for level in self.levels())

    def outliving(self) -> Budget:
        """Return a budget that draws on this one, but has no deadline: for work that outlives the run."""
        budget = Budget(scope="background", parent=self)
        budget._has_begun = True
        return budget

    def left(self) -> BudgetLeft:
        """Return what may still be spent here and above. Time is not part of it."""
        levels = list(self.levels())
        tokens = [each.tokens - each.used_tokens for each in levels if each.tokens is not None]
        cost = [each.cost - each.used_cost for each in levels if each.cost is not None]
        calls = [each.calls - each.used_calls for each in levels if each.calls is not None]
        return BudgetLeft(
            tokens=max(0, min(tokens)) if tokens else None,
            cost=max(0.0, min(cost)) if cost else None,
            calls=max(0, min(calls)) if calls else None,
        )

    def take_calls(self, n: int = 1) -> bool:
        """Count `n` tool calls, here and above, where calls are limited. Return False, and count none, if they are too
        many."""
        left = self.left().calls
        if left is not None and left < n:
            return False
        self.count_calls(n)
        return True

    def count_calls(self, n: int) -> None:
        """Count so many tool calls, here and above, whatever the limits say; give them back if `n` is negative."""
        if self.limits_calls:
            for level in self.levels():
                level.used_calls += n

    def recall(self, journal: object, spent: Callable[[], tuple[int, Usage]]) -> None:
        """Add the calls and the use of a run's earlier lives, whatever the limits say; of each journal once.

        `spent` is asked if what the journal knows was not spent here already: by a life in this process.
        """
        if journal not in self._recalled:
            self._recalled.append(journal)
            calls, usage = spent()
            self.used_calls += calls
            self.used_tokens += usage.total_tokens
            self.used_cost += usage.cost or 0.0

    async def reserve(self, *, input_tokens: int, max_tokens: int, price: Price | None, waits: bool = True) -> Grant:
        """Reserve what one model call may use: `input_tokens`, and an answer of `max_tokens` or of what is left.

        Waits while what is missing is only reserved by others; if it `waits`.

        Raises:
            BudgetRefused: too little is left, even if all reservations were given back, or, if it does not wait, now.
        """
        smallest = min(max_tokens, SMALLEST_ANSWER_TOKENS)
        price = None if price is None else price.at(input_tokens)
        while True:
            tightest = min(self.levels(), key=lambda level: level._output_left(input_tokens, price))
            left = tightest._output_left(input_tokens, price)
            if left >= smallest:
                return self._grant(input_tokens, int(min(max_tokens, left)), price)
            if not (waits and tightest._n_grants):
                raise tightest._refusal(input_tokens, smallest, price)
            if tightest._settled is None:
                tightest._settled = asyncio.Event()
            await tightest._settled.wait()

    def settle(self, grant: Grant, usage: Usage) -> None:
        """Give the reservation back and count what was used instead."""
        for level in self.levels():
            level._n_grants -= 1
            level._tokens_reserved -= grant.tokens
            level._cost_reserved = level._cost_reserved - grant.cost if level._n_grants else 0.0
            level.used_tokens += usage.total_tokens
            level.used_cost += usage.cost or 0.0
            if level.tokens is not None:
                level.overshoot_tokens += max(0, usage.total_tokens - grant.tokens)
            if level.cost is not None:
                level.overshoot_cost += max(0.0, (usage.cost or 0.0) - grant.cost)
            if level._settled is not None:
                level._settled.set()
                level._settled = None

    def levels(self) -> Iterator[Budget]:
        """Yield this budget, then those that it draws on, upwards; each once."""
        level: Budget | None = self
        while level is not None:
            yield level
            if (other := level._beside) is not None:
                parent = level.parent
                yield from (each for each in other.levels() if parent is None or not parent.draws_on(each))
            level = level.parent

    def _output_left(self, input_tokens: int, price: Price | None) -> float:
        left = float("inf")
        if self.tokens is not None:
            left = self.tokens - self.used_tokens - self._tokens_reserved - input_tokens
        if self.cost is not None and price is not None:
            money = self.cost - self.used_cost - self._cost_reserved - _cost_of(price, input_tokens, 0)
            affordable = money * 1_000_000 / price.output if price.output else float("inf")
            left = min(left, affordable if money >= 0 else -1.0)
        return left

    def _grant(self, input_tokens: int, max_tokens: int, price: Price | None) -> Grant:
        cost = 0.0 if price is None else _cost_of(price, input_tokens, max_tokens)
        grant = Grant(max_tokens=max_tokens, tokens=input_tokens + max_tokens, cost=cost)
        for level in self.levels():
            level._n_grants += 1
            level._tokens_reserved += grant.tokens
            level._cost_reserved += grant.cost
        return grant

    def _refusal(self, input_tokens: int, output_tokens: int, price: Price | None) -> BudgetRefused:
        tokens, needed = self.tokens, input_tokens + output_tokens
        used = self.used_tokens + self._tokens_reserved
        if tokens is not None and tokens - used < needed:
            return BudgetRefused("tokens", limit=tokens, used=used, scope=self.scope, needed=needed)
        cost = None if price is None else _cost_of(price, input_tokens, output_tokens)
        used_cost = self.used_cost + self._cost_reserved
        return BudgetRefused("cost", limit=self.cost or 0.0, used=used_cost, scope=self.scope, needed=cost)


def limits_of(holder: Limits | Budget) -> dict[str, float]:
    """Return the limits that are set, by their names: `tokens`, `cost`, `seconds` and `calls`."""
    limits = {"tokens": holder.tokens, "cost": holder.cost, "seconds": holder.seconds, "calls": holder.calls}
    return {name: most for name, most in limits.items() if most is not None}


def open_budget(limits: Limits | Budget, *, scope: str, parent: Budget | None) -> Budget:
    """Return a budget with these limits, of which nothing is spent yet."""
    return Budget(
        tokens=limits.tokens, cost=limits.cost, seconds=limits.seconds, calls=limits.calls, scope=scope, parent=parent
    )


def _cost_of(price: Price, input_tokens: int, output_tokens: int) -> float:
    dearest = max(price.input, price.cache_write or 0.0)
    return (input_tokens * dearest + output_tokens * price.output) / 1_000_000


UNKNOWN_TOOLS: Final = "(unknown)"
"""Under this name all calls of tools that do not exist are counted: the names are the model's, and endless."""


@lazy_dataclass()
class _Tally:
    """The calls of one tool."""

    kind: ToolKind
    calls: int = 0
    cache_hits: int = 0
    errors: dict[str, int] = field(default_factory=lambda: {})
    duration_s: float = 0.0

    def stats(self) -> ToolStats:
        return ToolStats(
            kind=self.kind,
            calls=self.calls,
            succeeded=self.calls - sum(self.errors.values()),
            cache_hits=self.cache_hits,
            errors=dict(self.errors),
            duration_s=self.duration_s,
        )


class Ledger:
    """The account of one run, and in it of the runs that it started: what they use is counted in both at once."""

    __slots__ = (
        "_above",
        "_attempt",
        "_background",
        "_beside",
        "_calls_below",
        "_earlier",
        "_tallies",
        "call_usage",
        "n_model_calls",
    )

    def __init__(self, above: Ledger | None = None, *, beside: Ledger | None = None) -> None:
        """`above` is the ledger of the run that started this one, and waits for it; `beside`, of one that does not."""
        self._above = above
        self._beside = beside
        self._background: list[Usage] = []
        """What the background runs that this run, or one below it, started have used."""
        self._calls_below = 0
        """Finished calls of the runs that this one started."""
        self._earlier = NOTHING_USED
        """What the attempts before this one have used."""
        self._attempt: list[Usage] = []
        """What each request of this attempt used; it is added up when somebody asks."""
        self._tallies: dict[str, _Tally] = {}
        self.n_model_calls = 0
        """Of all attempts."""
        self.call_usage = NOTHING_USED
        """What the last model call used, including failed requests."""

    def begin_attempt(self) -> None:
        """Count all that follows for another attempt."""
        if self._attempt:
            self._earlier, self._attempt = self.usage, []

    def spend(self, usage: Usage) -> None:
        """Count what a request of the model call used."""
        self.add(usage)
        self.call_usage = usage if self.call_usage is NOTHING_USED else self.call_usage + usage

    def add(self, usage: Usage) -> None:
        """Count what a request used, here and above."""
        level: Ledger | None = self
        is_beside = False
        while level is not None:
            (level._background if is_beside else level._attempt).append(usage)
            is_beside = is_beside or level._beside is not None
            level = level._beside or level._above

    def count(self, kind: ToolKind, name: str, *, error: str | None, cached: bool, duration_s: float) -> None:
        """Count one finished call; `error` is the kind of its failure."""
        name = UNKNOWN_TOOLS if kind == "unknown" else name
        tally = self._tallies.get(name)
        if tally is None:
            tally = self._tallies[name] = _Tally(kind)
        tally.calls += 1
        tally.cache_hits += cached
        tally.duration_s += duration_s
        if error is not None:
            tally.errors[error] = tally.errors.get(error, 0) + 1
        above = self._above
        while above is not None:
            above._calls_below += 1
            above = above._above

    def recall_below(self, usages: Sequence[Usage], *, calls: int, background: Usage) -> None:
        """Count runs below that ended in a step of an earlier life: what they used, and their finished calls."""
        for usage in usages:
            self.add(usage)
        level: Ledger | None = self
        while level is not None:
            level._calls_below += calls
            level = level._above
        self._recall_background(background)

    def recall(self, usage: Usage, tools: Mapping[str, ToolStats], *, background: Usage, calls_below: int) -> None:
        """Count a run below that ended in an earlier life of the run above."""
        self.add(usage)
        self._calls_below = calls_below
        for name, stats in tools.items():
            self._tallies[name] = _Tally(
                stats.kind, stats.calls, stats.cache_hits, dict(stats.errors), stats.duration_s
            )
        above, calls = self._above, self.calls
        while above is not None:
            above._calls_below += calls
            above = above._above
        self._recall_background(background)

    def _recall_background(self, background: Usage) -> None:
        if background is not NOTHING_USED:
            level: Ledger | None = self
            while level is not None:
                level._background.append(background)
                level = level._beside or level._above

    @property
    def calls_below(self) -> int:
        """Finished calls of all tools in the runs below."""
        return self._calls_below

    @property
    def attempt_usage(self) -> Usage:
        """The usage of this attempt."""
        if len(self._attempt) > 1:
            self._attempt = [Usage.total(self._attempt)]
        return self._attempt[0] if self._attempt else NOTHING_USED

    @property
    def usage(self) -> Usage:
        """The usage of all attempts."""
        return self._earlier + self.attempt_usage

    @property
    def background_usage(self) -> Usage:
        """The usage so far of the background runs that this run, or one below it, started."""
        if len(self._background) > 1:
            self._background = [Usage.total(self._background)]
        return self._background[0] if self._background else NOTHING_USED

    @property
    def calls(self) -> int:
        """Finished calls of all tools, here and in the runs below."""
        return sum([tally.calls for tally in self._tallies.values()]) + self._calls_below

    @property
    def own_calls(self) -> int:
        """Finished calls of tools, here; output and submit are not counted."""
        return sum([tally.calls for tally in self._tallies.values() if tally.kind in COUNTED])

    def stats(self) -> dict[str, ToolStats]:
        """Return the calls by tool."""
        return {name: tally.stats() for name, tally in self._tallies.items()}
