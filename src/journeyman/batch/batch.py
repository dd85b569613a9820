"""Many inputs for one agent: `run_many` takes one after the other, runs some at once, and gives each with its result.

Memory stays bounded: an input is taken only when a run may begin, and nothing of it is kept after its pair was given
out. So the inputs may be endless.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, Protocol, Self, TypeAlias, Unpack, cast, get_args, overload

from typing_extensions import TypeVar

from journeyman.agent import DEFAULT_RUNTIME, Agent, Deps, In, Out, Runtime
from journeyman.budget import Budget, limits_of
from journeyman.cancellation import Abort, Scope, is_failure, running_loop, wait_until_ended
from journeyman.definition.foreign import refuse_old_arguments
from journeyman.definition.problems import COUNT, Kind, is_one_of, none_or, raise_problems, value_problems
from journeyman.endings import BudgetContext, CancelledContext, ErrorInfo, InternalContext
from journeyman.errors import JourneymanError, Problem, name_and_words
from journeyman.events import BatchEvent, BatchPaused, Callbacks, InputFinished, Listener
from journeyman.loop.prepare import begin
from journeyman.loop.run import carry_out
from journeyman.loop.state import Options, Origin, RatePause, RunOptions, enter, run_context
from journeyman.result import Failure, Metadata, Result, fail_before_start
from journeyman.tools.check import budget_problems, signal_problems
from journeyman.types import NOTHING_USED, Content, Message, RunPath, Usage

_log = logging.getLogger("journeyman")

Given = TypeVar("Given")
Handed = TypeVar("Handed", default=str)

Order: TypeAlias = Literal["input", "done"]
"""The order in which results are given: that of the inputs, or that in which runs end."""

HELD_FOR_EACH: Final = 4
"""For each run that it does at once, a batch holds at most so many inputs whose pairs were not given out yet."""
# Not None, which may be an input.
_END: Final = object()

Do: TypeAlias = Callable[[int, Given, Budget | None], Coroutine[Any, Any, Result[Handed]]]
"""Carries out the run of the input with this number, on this budget."""


class DurableRuns(Protocol):
    """A port that keeps the runs of a batch, so that a later batch goes on with them: an open `Durable`."""

    @property
    def run(self) -> Callable[..., Coroutine[Any, Any, Result[Any]]]:
        """Begin a run, or go on with the one that has this `id`, and return its result."""
        ...


class BatchOptions(RunOptions, total=False):
    """The options of `run_many`, beside the agent, its inputs and the deps."""

    key: Callable[[Any], str] | None
    """Returns what an input is known by in `durable`; None: its number."""
    durable: DurableRuns | None
    """Keeps the runs, so that a later batch goes on where this one stopped; None: nothing does."""

    max_concurrency: int
    """How many runs go on at the same time."""
    order: Order
    """`input`: results come in the order of the inputs; `done`: as they end."""
    budget: Budget | None
    """What all runs together may use; None: no limit but each run's own."""


@overload
def run_many(
    agent: Agent[Out, In], inputs: Iterable[In] | AsyncIterable[In], **options: Unpack[BatchOptions]
) -> Batch[In, Out]: ...
@overload
def run_many(
    agent: Agent[Out, In, Deps],
    inputs: Iterable[In] | AsyncIterable[In],
    *,
    deps: Deps,
    **options: Unpack[BatchOptions],
) -> Batch[In, Out]: ...
@overload
def run_many(
    agent: Agent[Out, str],
    inputs: Iterable[str | Content] | AsyncIterable[str | Content],
    **options: Unpack[BatchOptions],
) -> Batch[str | Content, Out]: ...
@overload
def run_many(
    agent: Agent[Out, str, Deps],
    inputs: Iterable[str | Content] | AsyncIterable[str | Content],
    *,
    deps: Deps,
    **options: Unpack[BatchOptions],
) -> Batch[str | Content, Out]: ...
@refuse_old_arguments
def run_many(  # noqa: PLR0913 - one for each option, all by name
    agent: Agent[Out, Any, Any],
    inputs: Iterable[Any] | AsyncIterable[Any],
    *,
    deps: object = None,
    max_concurrency: int = 16,
    order: Order = "input",
    budget: Budget | None = None,
    key: Callable[[Any], str] | None = None,
    durable: DurableRuns | None = None,
    max_attempts: int | None = None,
    callbacks: Callbacks | None = None,
    on_event: Listener | None = None,
    abort: Abort | None = None,
    history: Sequence[Message] = (),
    runtime: Runtime | None = None,
) -> Batch[Any, Out]:
    """Run `agent` on each of `inputs`: `async for input, result in run_many(agent, inputs):`.

    Nothing begins before the first pair is asked for. The other arguments are those of `run`, the same for every run.

    Args:
        agent: The agent that runs on each input.
        inputs: Any iterable, also an endless one, or an async one. A plain one is asked in the event loop, so it must
            give its next input at once. What it raises is raised after the results of all runs that began were given.
        deps: As for `run`.
        max_concurrency: How many runs go on at the same time, at least 1.
        order: `input`: results come in the order of the inputs; a slow run holds back others, at most 4 for each run
            at once. `done`: as runs end.
        budget: What all runs may spend together. When it is spent, no more inputs are taken; the last pair is the first
            input that was not taken, with `Failure(BUDGET_EXCEEDED)`.
        key: Returns what an input is known by in `durable`, where its run has the id `AGENT/KEY`. Left out: its number.
        durable: An open `Durable`: a later batch takes finished results from there, also failures, and goes on with
            what was under way. A run that cannot be kept is `Failure(INTERNAL_ERROR)`.
        max_attempts: As for `run`.
        callbacks: As for `run`.
        on_event: Told the events of all runs, `InputFinished` and `BatchPaused`. The path of run n ends with `NAME#n`.
        abort: Ends the runs under way with `Failure(EXECUTION_CANCELLED)`; those in a `durable` are only left.
        history: As for `run`.
        runtime: As for `run`, without a journal, which remembers one run only.

    Raises:
        DefinitionError: an argument is wrong; lists every problem.
    """
    runtime = DEFAULT_RUNTIME if runtime is None else runtime
    problems = [*_wrong_inputs(agent, inputs, max_concurrency, order), *_wrong_around(budget, runtime)]
    raise_problems("run_many", [*problems, *signal_problems(abort), *_wrong_keeping(key, durable)])
    options = Options(
        deps=deps,
        max_attempts=max_attempts,
        callbacks=callbacks,
        listeners=() if on_event is None else (on_event,),
        abort=abort,
        history=history,
        runtime=runtime,
    )
    do = _doing(agent, options) if durable is None else _keeping(agent, options, key, durable)
    work = BatchWork(inputs, do, options, agent.name, max_concurrency=max_concurrency, order=order, budget=budget)
    return Batch(work)


def _doing(agent: Agent[Out, In, Any], options: Options) -> Do[In, Out]:
    def do(number: int, input: In, budget: Budget | None) -> Coroutine[Any, Any, Result[Out]]:
        runtime = options.runtime if budget is None else replace(options.runtime, budget=budget)
        origin = Origin(mode="batch", number=number)
        return carry_out(begin(agent, input, replace(options, runtime=runtime, origin=origin)))

    return do


def _keeping(
    agent: Agent[Out, In, Any], options: Options, key: Callable[[Any], str] | None, durable: DurableRuns
) -> Do[In, Out]:
    """Return a function that carries out each run as a durable one, under the key of its input."""

    async def do(number: int, input: In, budget: Budget | None) -> Result[Out]:
        try:
            known_by = str(number) if key is None else key(input)
        except Exception as error:  # noqa: BLE001 - of a function of the user's
            return fail_before_start(InternalContext(where="asking key(…) for an input", error=name_and_words(error)))
        if not isinstance(known_by, str) or not known_by:  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
            wrong = f"it returned {known_by!r}. Let it return a text"
            return fail_before_start(InternalContext(where="asking key(…) for an input", error=wrong))
        work = durable.run(
            agent,
            input,
            id=f"{agent.name}/{known_by}",
            **({} if options.deps is None else {"deps": options.deps}),
            max_attempts=options.max_attempts,
            callbacks=options.callbacks,
            on_event=next(iter(options.listeners), None),
            history=options.history,
            runtime=options.runtime if budget is None else replace(options.runtime, budget=budget),
        )
        try:
            return await leaving(options.abort, work)
        except JourneymanError as error:
            return fail_before_start(InternalContext(where="going on with the durable run", error=str(error)))

    return do


async def leaving(abort: Abort | None, work: Coroutine[Any, Any, Result[Out]]) -> Result[Out]:
    """Drive a durable run. When the signal fires, it is left, and not ended: the next batch goes on with it."""
    # In a scope: the signal ends the run, and a cancellation is meant for whoever reads the batch.
    result = await Scope(abort).carry(work)
    if result is not None:
        return result
    return fail_before_start(CancelledContext(reason=(abort and abort.reason) or "", doing="the durable run"))


def _wrong_keeping(key: object, durable: object) -> Iterator[Problem]:
    hint = "Pass a function from an input to its key: key=lambda order: order.id"
    yield from value_problems("INVALID_ARGUMENT", "key", key, (none_or(callable), hint))
    if key is not None and durable is None:
        hint = "Pass durable=, an open Durable(…), too, or leave key out."
        yield Problem("INVALID_ARGUMENT", "There is a key, and nothing that keeps runs under it.", hint)
    if durable is not None and not callable(getattr(durable, "run", None)):
        hint = "Pass an open Durable(…): async with Durable('runs.db') as durable."
        yield Problem("INVALID_ARGUMENT", f"durable is {durable!r}.", hint)


def _wrong_inputs(agent: object, inputs: object, max_concurrency: object, order: object) -> Iterator[Problem]:
    if not isinstance(agent, Agent):
        yield Problem("INVALID_ARGUMENT", f"The agent is {agent!r}.", "Pass an Agent(name=…, model=…).")
    if isinstance(inputs, str | bytes) or not isinstance(inputs, Iterable | AsyncIterable):
        hint = "Pass a list, a generator or an async generator of inputs."
        yield Problem("INVALID_ARGUMENT", f"inputs is a {type(inputs).__name__}, not many inputs.", hint)
    yield from value_problems("INVALID_ARGUMENT", "max_concurrency", max_concurrency, COUNT)
    orders: Kind = (is_one_of(*get_args(Order)), "Pass 'input' or 'done'.")
    yield from value_problems("INVALID_ARGUMENT", "order", order, orders)


def _wrong_around(budget: object, runtime: object) -> Iterator[Problem]:
    yield from budget_problems("budget", budget)
    if not isinstance(runtime, Runtime):
        yield Problem("INVALID_ARGUMENT", f"runtime is {runtime!r}.", "Pass a Runtime(…), or leave it out.")
        return
    if runtime.journal is not None:
        hint = "A journal remembers one run. Pass run_many(…, durable=…), which keeps all of them."
        yield Problem("INVALID_ARGUMENT", "runtime has a journal.", hint)


class Batch(Generic[Given, Handed]):
    """The inputs of a batch with their results, one pair after the other. Made by `run_many`.

    It is iterated once. If you leave the iteration early, the runs under way are cancelled and their end is awaited: at
    once in `async with run_many(…) as batch:` or with `await batch.aclose()`, otherwise as soon as nobody holds the
    batch any more.
    """

    def __init__(self, work: BatchWork[Given, Handed]) -> None:
        self._work = work
        self._pairs = _pairs(work)

    def __aiter__(self) -> AsyncIterator[tuple[Given, Result[Handed]]]:
        """Give each input with the result of its run."""
        return self

    async def __anext__(self) -> tuple[Given, Result[Handed]]:
        return await anext(self._pairs)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the runs under way, and await their end. Nothing of the batch is alive afterwards."""
        await self._pairs.aclose()

    @property
    def left(self) -> tuple[tuple[Given, Result[Handed]], ...]:
        """After the iteration was left early: the inputs that were finished but not given out, with their results."""
        return self._work.left

    @property
    def first_not_taken(self) -> int | None:
        """The number, from 1, of the first input that was not taken because the budget was spent. None: all were
        taken."""
        return self._work.first_not_taken


async def _pairs(work: BatchWork[Given, Handed]) -> AsyncGenerator[tuple[Given, Result[Handed]]]:
    # The tasks of the work hold the work, and never this generator: so it is closed when its reader lets it go.
    try:
        work.begin()
        while (taken := await work.next()) is not None:
            yield taken.pair()
    finally:
        await work.stop()


@dataclass(slots=True, kw_only=True, eq=False)
class _TakenInput(Generic[Given, Handed]):
    """An input that was taken from the inputs, and its run."""

    number: int
    input: Given
    run: asyncio.Future[Result[Handed]]

    def pair(self) -> tuple[Given, Result[Handed]]:
        """Return the input with its result. Raises what ended the run without one."""
        return self.input, self.run.result()


class BatchWork(Generic[Given, Handed]):
    """The work of a batch: one task takes the inputs, and begins a task for the run of each."""

    def __init__(
        self,
        inputs: Iterable[Given] | AsyncIterable[Given],
        do: Do[Given, Handed],
        options: Options,
        name: str,
        *,
        max_concurrency: int,
        order: Order,
        budget: Budget | None,
    ) -> None:
        """`do` carries out one run, `name` is its agent's. Of the options only the listeners, the signal and the budget
        of the runtime count here."""
        self._inputs, self._do, self._name = inputs, do, name
        self._at_once, self._is_ordered = max_concurrency, order == "input"
        self._spending, self._options = budget, options
        self.left: tuple[tuple[Given, Result[Handed]], ...] = ()
        self.first_not_taken: int | None = None
        self._budget: Budget | None = None
        self._lack: BudgetContext | None = None
        """Says that the budget is spent."""
        self._path: RunPath = ()
        self._pause = RatePause(
            lambda provider, s: self._tell(BatchPaused(path=self._path, provider=provider, seconds=s))
        )
        self._queue: deque[_TakenInput[Given, Handed]] = deque()
        """What is to be given next: all that was taken, or where results are given as runs end, what has ended."""
        self._running: set[_TakenInput[Given, Handed]] = set()
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._taker: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._n_taken = self._n_held = self._n_finished = self._n_failed = 0
        self._usage = NOTHING_USED

    def begin(self) -> None:
        """Begin to take inputs."""
        loop = running_loop()
        around = run_context.get()
        self._path, above = around.path, around.run
        budget, given = self._spending, self._options.runtime.budget
        around = given if given is not None or above is None else above.attempt.budget
        self._budget = given if budget is None else budget if around is None else budget.beside(around)
        if self._budget is not None:
            self._budget.begin(loop.time())
        taker = self._taker = loop.create_task(self._take_all())
        # Whoever waits learns that no more will come, and what the inputs raised.
        taker.add_done_callback(lambda _: self._news.set())
        if self._options.abort is not None:  # runs under way have the signal themselves
            self._unsubscribe = self._options.abort.subscribe(taker.cancel)

    async def next(self) -> _TakenInput[Given, Handed] | None:
        """Return what is to be given next, waiting for it; None when everything was given.

        Raises:
            Exception: what the inputs raised, when everything was given.
        """
        while True:
            # The first in line only: in the order of the inputs, whatever is done waits behind what is not.
            if self._queue and self._queue[0] not in self._running:
                self._n_held -= 1
                self._room.set()
                return self._queue.popleft()
            if self._taker is None or (self._taker.done() and not self._n_held):
                # Only now: the results of all runs that began were to be given first.
                if self._taker is not None and not self._taker.cancelled():
                    self._taker.result()
                return None
            # Without a step between this and the look above, so that no news is lost.
            self._news.clear()
            await self._news.wait()

    async def stop(self) -> None:
        """Cancel what goes on, and await its end."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._taker is None:
            return
        # Taken before the runs are cancelled, since each leaves the lists when it ends.
        held = {*self._queue, *self._running}
        tasks = [self._taker, *[each.run for each in self._running]]
        for task in tasks:
            task.cancel()
        try:
            await wait_until_ended(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            unread = sorted(
                [each for each in held if not (each.run.cancelled() or each.run.exception())],
                key=lambda each: each.number,
            )
            self.left = tuple([each.pair() for each in unread])
            self._queue.clear()
            if unread:
                numbers = ", ".join([str(each.number) for each in unread])
                _log.warning(
                    "%s: the batch was left with results that nobody read, of the inputs %s. They are in Batch.left.",
                    self._name,
                    numbers,
                )

    async def _take_all(self) -> None:
        enter(pause=self._pause)  # in the context of this task, and so of the runs that it begins
        take_next = self._source()
        while True:
            # The first bounds how much goes on at once, the second how much is held in memory.
            while len(self._running) >= self._at_once or self._n_held >= HELD_FOR_EACH * self._at_once:
                self._room.clear()
                await self._room.wait()
            input = await take_next()
            if input is _END or not self._take(cast("Given", input)):
                return

    def _source(self) -> Callable[[], Coroutine[Any, Any, object]]:
        """Return a function that gives the next input, or `_END`."""
        if isinstance(self._inputs, AsyncIterable):
            waited = aiter(self._inputs)

            async def take_awaited() -> object:
                return await anext(waited, _END)

            return take_awaited
        plain = iter(self._inputs)

        async def take() -> object:
            # In a coroutine, `StopIteration` would become a `RuntimeError`.
            return next(plain, _END)

        return take

    def _take(self, input: Given) -> bool:
        """Begin the run of an input. False: the budget is spent, and no run was begun."""
        number, lack = self._n_taken + 1, self._lack or _find_spent_limit(self._budget)
        self._n_held += 1
        if lack is not None:
            self.first_not_taken = number
            metadata = Metadata(usage=NOTHING_USED, latency_s=0.0, agent=self._name)
            not_begun: asyncio.Future[Result[Handed]] = asyncio.get_running_loop().create_future()
            not_begun.set_result(Failure(error=ErrorInfo(lack), metadata=metadata, history=()))
            self._queue.append(_TakenInput(number=number, input=input, run=not_begun))
            return False
        self._n_taken = number
        taken = _TakenInput(number=number, input=input, run=asyncio.create_task(self._do(number, input, self._budget)))
        self._running.add(taken)
        if self._is_ordered:
            self._queue.append(taken)
        taken.run.add_done_callback(lambda _: self._finish(taken))
        return True

    def _finish(self, taken: _TakenInput[Given, Handed]) -> None:
        self._running.discard(taken)
        if not self._is_ordered:
            self._queue.append(taken)
        self._news.set()
        self._room.set()
        if taken.run.cancelled() or taken.run.exception():  # its reader is told why
            return
        result = taken.run.result()
        code = result.code if isinstance(result, Failure) else None
        self._n_finished += 1
        self._n_failed += code is not None
        self._usage = Usage.total([self._usage, result.metadata.usage or NOTHING_USED])
        self._lack = self._lack or self._lack_told_by(result)
        event = InputFinished(
            path=(*self._path, f"{self._name}#{taken.number}"),
            number=taken.number,
            code=code,
            n_taken=self._n_taken,
            n_finished=self._n_finished,
            n_failed=self._n_failed,
            usage=self._usage,
        )
        self._tell(event)

    def _lack_told_by(self, result: Result[Handed]) -> BudgetContext | None:
        """Return why a run ended, if that is because the budget of all is spent, and not its own."""
        context = result.error.context if isinstance(result, Failure) else None
        if self._budget is None or not isinstance(context, BudgetContext):
            return None
        for level in self._budget.levels():
            if level.scope == context.scope and limits_of(level).get(context.policy) == context.limit:
                return context
        return None

    def _tell(self, event: BatchEvent) -> None:
        for listener in self._options.listeners:
            try:
                listener(event)
            except BaseException as error:
                if not is_failure(error):
                    raise
                _log.warning("%s: a listener raised %s. The batch goes on.", self._name, name_and_words(error))


def _find_spent_limit(budget: Budget | None) -> BudgetContext | None:
    """Say what of a budget is spent, here or above; None while something is left of everything."""
    now = asyncio.get_running_loop().time()
    if budget is None:
        return None
    for level in budget.levels():
        late_s = None if level.own_deadline is None else now - level.own_deadline
        if level.tokens is not None and level.used_tokens >= level.tokens:
            return BudgetContext(policy="tokens", limit=level.tokens, used=level.used_tokens, scope=level.scope)
        if level.cost is not None and level.used_cost >= level.cost:
            return BudgetContext(policy="cost", limit=level.cost, used=level.used_cost, scope=level.scope)
        if level.seconds is not None and late_s is not None and late_s >= 0:
            used_s = level.seconds + late_s
            return BudgetContext(policy="seconds", limit=level.seconds, used=used_s, scope=level.scope)
    return None
