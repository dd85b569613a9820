"""What a model call needs around it: the budget, the journal, and a view that fits the window.

A call is paid for before it is made, and remembered once it is. The strategies that shorten the view are asked one
after the other, at the threshold or when the provider says that the window is full. What they do wrong costs only
their saving: the run continues with what it has.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace
from functools import partial
from typing import Any, Final, Literal, cast

from pydantic_core import from_json

from journeyman.cancel import is_failure
from journeyman.data import lazy_dataclass
from journeyman.errors import DefinitionError, Problem, log_caught, name_and_words
from journeyman.events import CompactionStep, ContextCompacted
from journeyman.history import encodable
from journeyman.loop.record import Run
from journeyman.loop.retry import respond
from journeyman.model import Model, Part, Prefix, Request, Response, Tap, price_of, unpriced
from journeyman.types import NOTHING_USED, Message, Usage, adapter_of
from journeyman.window import (
    AnyStrategy,
    CompactedView,
    Compaction,
    Informed,
    Shortened,
    Situation,
    View,
    WholeView,
    estimate_message,
    estimate_prefix,
    fault_of_view,
    without_stale_thinking,
)

# -- one call, within the budget and from the journal -----------------------------------------------------------------


@lazy_dataclass()
class ModelCall:
    """A model call that is about to be made."""

    model: Model
    request: Request
    count: Callable[[Usage], None]
    """Is told what each of its requests used."""
    input_tokens: Callable[[], int]
    """Estimates how long the request is; asked only where that is limited."""
    on_part: Callable[[Part], None] | None = None
    asked: Callable[[Model, Request], Tap] | None = None
    """Returns what hears one of its requests; None where nothing is recorded."""
    used: list[Usage] = field(default_factory=list[Usage])
    """By each of its requests, failed ones included."""

    def spend(self, usage: Usage) -> None:
        """Count what a request used."""
        self.used.append(usage)
        self.count(usage)


def taps_of(run: Run) -> Callable[[Model, Request], Tap] | None:
    """Return what makes the taps of the requests that the run makes here; None where nothing is recorded."""
    tape, watch, where = run.tape, run.watch, (run.path, run.place)
    if tape is None:
        return None

    def tap(model: Model, request: Request) -> Tap:
        if watch is not None:
            watch.unmute()
        return tape.tap(where, model, request)

    return tap


async def once(run: Run, call: ModelCall, *, step: str) -> Response:
    """Make a call within the run's budget, or take its answer from the journal, where it is `step` of the iteration.

    Raises:
        ProviderError: of the last request.
        BudgetRefused: too little is left.
    """
    if run.options.host.journal is None:
        return await _made(run, call)

    async def work() -> _StoredResponse:
        response = await _made(run, call)
        content = tuple(encodable(block) for block in response.content)
        return _StoredResponse(replace(response, content=content), Usage.total(call.used))

    about = partial(run.digests.about, call.request, run.history.messages)
    place = run.options.host.journal.reserve(run.key(step), effect="idempotent", about=about)
    if run.tape is not None and place.is_known:
        run.tape.note("StepRecalled", (run.path, run.place), key=run.key(step))
    answer = await place.step(work, codec=_ResponseCodec())
    if not call.used:
        call.count(answer.spent)
    return answer.response


async def _made(run: Run, call: ModelCall) -> Response:
    async with _reserved(run, call) as request:
        return await respond(
            call.model,
            request,
            retries=run.retries,
            spent=call.spend,
            on_part=call.on_part,
            on_cut=run.cut_off,
            asked=call.asked,
        )


@asynccontextmanager
async def _reserved(run: Run, call: ModelCall) -> AsyncGenerator[Request]:
    """Reserve what the call may use, and settle what it used. Give the request that the reservation pays for."""
    budget, request = run.attempt.budget, call.request
    if not budget.limits_spending:
        yield request
        return
    price = price_of(call.model)
    if price is None and budget.limits_cost:
        raise unpriced(call.model).in_stream()
    longest = request.max_tokens or run.max_tokens
    grant = await budget.reserve(input_tokens=call.input_tokens(), max_tokens=longest, price=price)
    run.attempt.asked_max_tokens = grant.max_tokens
    try:
        yield replace(request, max_tokens=grant.max_tokens)
    finally:
        budget.settle(grant, Usage.total(call.used))


@lazy_dataclass(frozen=True)
class _StoredResponse:
    """What a journal keeps of a call."""

    response: Response
    spent: Usage
    """By all requests of the call, failed ones included."""


_NOT_COUNTED: Final = (b'"error":"over_budget"', b'"error":"skipped"')
"""What a stored call says that no limit on calls has counted."""


def spent_by(key: str, value: bytes | None) -> tuple[int, Usage]:
    """Return how many calls, and what use, a stored step stands for."""
    if key.rpartition("/")[0].endswith("/call"):
        return int(value is None or not any(each in value for each in _NOT_COUNTED)), NOTHING_USED
    if value is not None and key.rpartition("/")[2] == "end":
        end: object = from_json(value)  # of a sub-agent; of others it is a text
        return (cast("dict[str, Any]", end).get("unstored_calls", 0) if isinstance(end, dict) else 0), NOTHING_USED
    if value is not None and b'"spent"' in value:
        return 0, _ResponseCodec().decode(value).spent
    return 0, NOTHING_USED


class _ResponseCodec:
    def encode(self, value: _StoredResponse) -> bytes:
        return adapter_of(_StoredResponse).dump_json(value, exclude_none=True)

    def decode(self, data: bytes) -> _StoredResponse:
        return adapter_of(_StoredResponse).validate_json(data)


# -- a view that fits -------------------------------------------------------------------------------------------------

_SHORTEST_ANSWER_TOKENS: Final = 1_024
"""However full the window is, an answer of this length is asked for."""
_UNKNOWN_THRESHOLD_TOKENS: Final = 64_000
"""What strategies are told to be the threshold where the window is not known."""

Reason = Literal["threshold", "overflow", "breaker", "asked"]


def view_of(run: Run, prefix: Prefix) -> View:
    """Return what is sent of the run's history: as the run before left it, if there was one and it was compacted."""
    given = run.agent.compaction
    made = given(run.model) if callable(given) else given
    compaction = made if isinstance(made, Compaction) else Compaction(made or ())  # None means nothing
    if not compaction.strategies:
        return WholeView(run.history.messages, prefix)
    view = run.history.view
    if isinstance(view, CompactedView):
        view.begin_run(prefix, compaction)
        return view
    run.history.view = view = CompactedView(prefix, compaction)
    return view


async def fit(run: Run, view: CompactedView, *, step: str) -> None:
    """Let the view follow the history, and make it shorter if it is too long now, for the model call `step`."""
    view.follow(run.history.messages)
    threshold = _threshold(run, view)
    if threshold is not None and view.tokens > threshold:
        reason: Reason = "breaker" if view.skips() else "threshold"
        await _compact(run, view, reason, view.tokens - threshold * 4 // 5, step=f"{step}/fit")


async def shrink(run: Run, view: CompactedView, *, step: str) -> bool:
    """Make the view smaller because the provider said of the model call `step` that it is too long. Return whether it
    is."""
    view.was_too_long()
    threshold = _threshold(run, view) or view.tokens
    excess_tokens = max(view.tokens - threshold * 4 // 5, view.tokens // 2)
    compacted = await _compact(run, view, "overflow", excess_tokens, step=f"{step}/shrink")
    return any(each.saved_tokens for each in compacted.steps)


async def compact(run: Run) -> ContextCompacted:
    """Make what is sent of the run's history half as long, if the strategies can, before anything is said in the run.

    Raises:
        DefinitionError: the agent has no strategies.
    """
    known = run.history.view
    view = view_of(run, known.prefix if isinstance(known, CompactedView) else Prefix(tools=run.agent.plan.specs))
    if not isinstance(view, CompactedView):
        what = f"The agent {run.agent.name!r} has no strategies to compact with."
        hint = "Give it some: Agent(compaction=[ClearToolResults(), Summarise()])."
        problem = Problem("INVALID_COMPACTION", what, hint)
        raise DefinitionError("Chat.compact", [problem])
    view.follow(run.history.messages)
    return await _compact(run, view, "asked", view.tokens // 2, step="compact")


def room_for_answer(run: Run, view: CompactedView, max_tokens: int) -> int:
    """Return how long the answer may be, at most `max_tokens`, so that it fits the window together with the view."""
    window = view.compaction.window_of(run.model)
    if window is None:
        return max_tokens
    return min(max_tokens, max(window - window // 50 - view.tokens, _SHORTEST_ANSWER_TOKENS))


def _threshold(run: Run, view: CompactedView) -> int | None:
    compaction, window = view.compaction, view.compaction.window_of(run.model)
    known = None if window is None else compaction.threshold_tokens(window, max_tokens=run.agent.settings.max_tokens)
    return min([limit for limit in (known, view.ceiling_tokens) if limit is not None], default=None)


@lazy_dataclass()
class _Shortening:
    """One compaction under way."""

    run: Run
    view: CompactedView
    messages: Sequence[Message]
    threshold_tokens: int
    step: str
    """In the journal: what is asked for one model call is under different keys each time."""
    steps: list[CompactionStep] = field(default_factory=list[CompactionStep])
    usage: Usage = NOTHING_USED
    n_asked: int = 0

    async def apply(self, position: int, strategy: AnyStrategy, excess_tokens: int) -> int:
        """Let one strategy shorten the messages. Return how many tokens that saves."""
        error, saved = None, 0
        try:
            shortened = await self._shortened(position, strategy, excess_tokens)
            error = fault_of_view(self.messages, shortened.messages)
        except BaseException as raised:
            if not is_failure(raised):
                raise
            error = name_and_words(raised)
            log_caught(f"The compaction strategy {strategy.name!r}", raised)
        else:
            saved = 0 if error else max(0, _size(self.messages) - _size(shortened.messages))
            self.messages = shortened.messages if saved else self.messages
        self.steps.append(CompactionStep(strategy=strategy.name, saved_tokens=saved, error=error))
        return saved

    async def _shortened(self, position: int, strategy: AnyStrategy, excess_tokens: int) -> Shortened:
        if isinstance(strategy, Informed):
            situation = Situation(
                model=self.run.model,
                threshold_tokens=self.threshold_tokens,
                memory=self.view.memories[position],
                ask=self._ask,
                history=self.run.history.messages,
            )
            strategy = strategy.informed(situation)
        return await strategy.view(tuple(self.messages), excess_tokens=excess_tokens)

    async def _ask(self, model: Model, request: Request) -> Response:
        """Make a model call for a strategy: the run pays for it."""
        self.n_asked += 1
        call = ModelCall(model, request, self._count, lambda: estimate_prefix(request.prefix) + _size(request.messages))
        call.asked = taps_of(self.run)
        return await once(self.run, call, step=f"{self.step}/{self.n_asked}")

    def _count(self, usage: Usage) -> None:
        self.run.ledger.add(usage)
        self.usage += usage


async def _compact(run: Run, view: CompactedView, reason: Reason, excess_tokens: int, *, step: str) -> ContextCompacted:
    """Let the strategies save `excess_tokens`. Return what they did, once it is told."""
    before_tokens, threshold = view.tokens, _threshold(run, view)
    work = _Shortening(run, view, view.messages, threshold or _UNKNOWN_THRESHOLD_TOKENS, step)
    try:
        for position, strategy in enumerate(() if reason == "breaker" else view.compaction.strategies):
            excess_tokens -= await work.apply(position, strategy, excess_tokens)
            if excess_tokens <= 0:
                break
    finally:
        if work.messages is not view.messages:
            view.rewrite(without_stale_thinking(view.messages, work.messages))
        elif reason not in ("breaker", "asked"):
            view.failed()
    compacted = ContextCompacted(
        path=run.path,
        attempt=run.attempt.number,
        iteration=run.attempt.iteration,
        reason=reason,
        before_tokens=before_tokens,
        after_tokens=view.tokens,
        steps=tuple(work.steps),
        usage=work.usage,
    )
    if run.watch is not None:
        await run.watch.tell(compacted, run.place)
    return compacted


def _size(messages: Sequence[Message]) -> int:
    return sum(map(estimate_message, messages))
