"""The steps that a run keeps in its journal besides its model calls: decisions of code outside of the loop, and the
outcomes of calls.

Where there is no journal, nothing here does more than call that code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import cache, lru_cache, partial
from inspect import isfunction
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

from pydantic import PydanticSchemaGenerationError, TypeAdapter
from pydantic_core import PydanticSerializationError, from_json, to_json

from journeyman.budget import Budget
from journeyman.definition.data import lazy_dataclass
from journeyman.errors import quoted
from journeyman.events import CallOutcome
from journeyman.journal import Codec, Journal, Reservation, StepFacts, TypedCodec, as_json, decode_step, encode_step
from journeyman.loop.state import Outcome, Run, StepTally, iteration_place
from journeyman.step import RunStep, StepKind
from journeyman.tools.collection import do_aside
from journeyman.tools.exact import StoredValue
from journeyman.types import NOTHING_USED, JsonObject, Text, ToolResult, ToolUse, Usage, UserContent, adapter_of

T = TypeVar("T")

CONTENT: Final = TypedCodec[tuple[UserContent, ...]](tuple[UserContent, ...])
TEXTS: Final = TypedCodec[tuple[Text, ...]](tuple[Text, ...])


class StepCodec(Generic[T]):
    """A codec that stores a step with its facts: its kind, and the use by the runs that began in it."""

    def __init__(
        self, kind: StepKind, values: Codec[T], tally: StepTally | None, *, counts: Callable[[T], int] = lambda _: 0
    ) -> None:
        """`counts` tells how many calls a value stands for itself."""
        self.known: StepFacts | None = None
        """The facts of a step that was read."""
        self._kind: Final = kind
        self._values = values
        self.tally: Final = tally
        self._counts = counts

    def encode(self, value: T) -> bytes:
        counts, tally = self._counts(value), self.tally
        facts = StepFacts(kind=self._kind, counts=counts)
        if tally is not None and (tally.children or tally.counts):
            used = NOTHING_USED if tally.is_stored else Usage.total([each.usage for each in tally.children])
            facts = StepFacts(
                kind=self._kind,
                counts=counts if tally.is_stored else counts + tally.counts,
                spent=used,
                children=tuple(tally.children),
                numbers=tuple(tally.numbers),
                calls_below=tally.calls,
                background=Usage.total([each for each in tally.background if each is not NOTHING_USED]),
            )
        return encode_step(self._values.encode(value), facts)

    def decode(self, data: bytes) -> T:
        self.known, value = decode_step(data)
        return self._values.decode(value)


async def decide_once(run: Run, step: RunStep, work: Callable[[Run], Awaitable[T]], *, codec: Codec[T]) -> T:
    """Return the decision of code outside of the loop; in a run that goes on, the one that was made in its earlier
    life."""
    # What is said tells the journal's life which signals it has taken, also where nothing is kept of it.
    journal = run.options.runtime.journal if step.kind == "said" else run.options.kept_journal
    if journal is None:
        return await work(run)
    return await take_step(run, journal.reserve(step, effect="pure"), lambda: work(run), kind=step.kind, codec=codec)


async def take_step(
    run: Run, place: Reservation, work: Callable[[], Awaitable[T]], *, kind: StepKind, codec: Codec[T]
) -> T:
    """Do a step, or take it from the journal, together with the runs that began in it."""
    tally, is_done = StepTally(run, run.calls.tally), False
    step = StepCodec(kind, codec, tally)

    async def do_work() -> T:
        nonlocal is_done
        is_done = True
        return await work()

    with tally:
        value = await place.step(do_work, codec=step)
    if step.known is not None and not is_done:
        recall_runs(run, step.known)
    return value


def recall_runs(run: Run, *steps: StepFacts) -> None:
    """Count the runs that began in what was one step of an earlier life, or several, as they were counted there."""
    children = {number: each for step in steps for number, each in zip(step.numbers, step.children, strict=True)}
    for step in [each for each in steps if each.children]:
        usages = [each.usage for each in step.children]
        run.ledger.recall_below(usages, calls=step.calls_below, background=step.background)
    for number in sorted(children):
        run.children.ended[next(run.children.numbers)] = children[number]


def recall(budget: Budget, journal: Journal, prefix: str = "", *, is_root: bool = False) -> None:
    """Count in a budget the spending of earlier lives: of all steps whose keys begin with `prefix`. `is_root`: also in
    the budgets above, since no run above does it.

    It is counted before the first step: of runs that go on at the same time, one could else spend what another one
    has spent already and not counted yet.
    """

    if not (budget.limits_calls or budget.limits_spending):
        return

    # Several budgets ask for the same sum, and reading all steps takes a while.
    @cache
    def sum_spending() -> tuple[int, Usage]:
        each = [facts_of_step(stored) for _, stored in journal.stored(prefix)]
        used = [usage for facts in each for usage in (facts.spent, facts.lost)]
        return sum([facts.counts for facts in each]), Usage.total(used)

    for level in budget.levels() if is_root else (budget,):
        level.recall(journal, sum_spending)


def facts_of_step(stored: bytes | None) -> StepFacts:
    """Return the facts of a stored step. One that was begun and not finished counts as a call: no other kind of step
    stores its beginning."""
    if stored is None:
        return StepFacts(kind="call", counts=1)
    # Without bytes, a step is known of which nothing counts: an answer from outside, whose writer knew no facts.
    return decode_step(stored)[0] if stored else StepFacts(kind="answer")


@lazy_dataclass(frozen=True)
class _RunHead:
    """The agent and the input by which a journal knows its run again."""

    agent: str
    input: str


async def difference(run: Run) -> str | None:
    """Return the reason why the journal is not that of this run; None if it is, or if there is none."""
    if run.options.kept_journal is None:
        return None
    codec = TypedCodec[_RunHead](_RunHead)
    # Through the codec and back: what it cannot store as it is, such as half a surrogate pair, would look like another
    # input.
    task = await do_aside(run.input, run.agent.plan.input.told)
    now = codec.decode(codec.encode(_RunHead(run.agent.name, task)))

    async def head(_: Run) -> _RunHead:
        return now

    try:
        known = await decide_once(run, RunStep(key="head", kind="head"), head, codec=codec)
    except ValueError as error:
        return f"the journal cannot be read: {error}"
    if known.agent != now.agent:
        return f"the journal is of the agent {known.agent!r}, not of {now.agent!r}"
    if known.input != now.input:
        # Enough to tell two inputs apart, and to be read in one line.
        return f"the journal is of the input {quoted(known.input[:200])}, not of {quoted(now.input[:200])}"
    return None


_WITHOUT_TYPE: Final = (type(None), list, tuple, set, frozenset)


class StateCodec:
    """A codec that stores a state by the type that the function which makes it declares; else by that of the state
    itself."""

    def __init__(self, make: Callable[..., object] | None, state: object = None) -> None:
        self._type = None if make is None else declared_type(make)
        self._state = state

    def encode(self, value: object) -> bytes:
        self.check(value)
        kind = type(value) if self._type is None else self._type
        try:
            # Pydantic only warns when a value does not fit the type that it is written by, and the next life could not
            # read it.
            return as_json(TypeAdapter[object](kind).dump_python(value, mode="json", warnings="error"))
        except PydanticSerializationError as error:
            raise TypeError(
                f"the state {value!r:.100} is not what the function that makes it declares ({kind}),"
                " so a journal could not give it back. Let the function declare all that calls make of it"
            ) from error

    def check(self, value: object) -> None:
        """Raise a `TypeError` if nothing says what a state like this one holds."""
        if self._type is None and isinstance(value, _WITHOUT_TYPE):
            raise TypeError(
                f"the state {value!r:.100} does not say what else it can be. Let the function that makes it declare the"
                " type that it returns: then a journal can store the state, and give it back as it was"
            )

    def decode(self, data: bytes) -> object:
        return TypeAdapter[object](type(self._state) if self._type is None else self._type).validate_json(data)


async def first_state(
    run: Run, step: RunStep, make: Callable[..., object], work: Callable[[Run], Awaitable[object]]
) -> object:
    """Return the state that a run, or an attempt, begins with. A function that does not declare its type is asked in
    each life: nothing else would tell how to read what calls have made of it."""
    codec = StateCodec(make)
    if run.options.kept_journal is None or declared_type(make) is not None:
        return await decide_once(run, step, work, codec=codec)
    state = await work(run)
    codec.check(state)
    return state


# It is asked in each run, and resolving type hints takes long. The limit bounds what short-lived functions leave
# behind.
@lru_cache(maxsize=256)
def declared_type(make: Callable[..., object]) -> Any:  # noqa: ANN401 - whatever Pydantic takes for a type
    """Return the type that a function says it returns, or what is awaited of it; None where it does not say."""
    try:
        declared = get_type_hints(make if isfunction(make) else type(make).__call__).get("return")
    except (NameError, TypeError):  # a name that cannot be resolved, or what is no function
        return None
    kind = get_origin(declared) or declared
    # A function that makes a state may be async: its type is what is awaited of it.
    if not (isinstance(kind, type) and issubclass(kind, Awaitable)):
        return None if declared in _ANYTHING else declared  # which says nothing of what it holds
    awaited = get_args(declared)
    return awaited[-1] if awaited else None


_ANYTHING: Final = (Any, object)


@lazy_dataclass(frozen=True)
class _Stored:
    """The outcome of one call, in a journal; beside it stand those states that the call changed."""

    result: ToolResult
    error: str | None = None
    cached: bool = False
    stop: str | None = None
    made: StoredValue | None = None


class OutcomeCodec:
    """A codec that stores a call's outcome together with the states that it changed, and puts those back when it is
    read."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._before = replace(run.prepared.states)

    def encode(self, value: Outcome) -> bytes:
        stored = _Stored(value.result, value.error, value.cached, value.stop, value.made)
        fields: dict[str, Any] = adapter_of(_Stored).dump_python(stored, mode="json")
        for name in [name for name in ("stop", "made") if fields[name] is None]:
            del fields[name]  # steps of earlier versions have no such field either
        if value.result.untrusted is None:
            del fields["result"]["untrusted"]  # the same
        for name, codec, state in self._states():
            if state is not getattr(self._before, name):
                # States may be large, and most calls change none: 64 KB of state made each iteration 68 KB.
                fields[name] = from_json(codec.encode(state))
        return as_json(fields)

    def decode(self, data: bytes) -> Outcome:
        fields: dict[str, Any] = from_json(data)
        for name, codec, _ in self._states():
            if name in fields:
                setattr(self._run.prepared.states, name, codec.decode(to_json(fields[name])))
        stored = adapter_of(_Stored).validate_python(fields)
        return Outcome(stored.result, stored.error, stored.cached, stored.stop, stored.made)

    def _states(self) -> Iterator[tuple[str, StateCodec, object]]:
        agent, states = self._run.agent, self._run.prepared.states
        yield "run", StateCodec(agent.run_state, states.run), states.run
        yield "attempt", StateCodec(agent.attempt_state, states.attempt), states.attempt


def note_outcome(run: Run, use: ToolUse, outcome: Outcome) -> None:
    """Record what no event tells of a call: the kind of its failure, and the states that have changed with it."""
    states, calls = run.prepared.states, run.calls
    known, calls.recorded_states = calls.recorded_states, (states.run, states.attempt)
    if outcome.error is None and states.run is known[0] and states.attempt is known[1]:
        return
    run.record(partial(_make_outcome_event, run, use, outcome, known))


def _make_outcome_event(run: Run, use: ToolUse, outcome: Outcome, known: tuple[object, object]) -> CallOutcome:
    """Return the event that tells of a call what no other does. `known` are the states as they were recorded last."""
    changed: JsonObject = {}
    lost: str | None = None
    makers = (run.agent.run_state, run.agent.attempt_state)
    for name, make, state, before in zip(("run", "attempt"), makers, run.calls.recorded_states, known, strict=True):
        if state is not before:
            try:
                changed[name] = from_json(StateCodec(make, state).encode(state))
            except (TypeError, ValueError, PydanticSchemaGenerationError) as error:
                # It is missing in the recording only, which says so; the run has its state.
                lost = f"the state of the {name}: {error}"
    return CallOutcome(
        **iteration_place(run),
        tool_use_id=use.id,
        tool_name=use.name,
        error=outcome.error,
        states=changed or None,
        lost=lost,
    )
