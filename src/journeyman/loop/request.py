"""The frame of a model call: the budget, the journal, and a view that fits the window.

A call is paid for before it is made, and remembered once it is. The strategies that shorten the view are asked one
after the other, at the threshold or when the provider says that the window is full. What they do wrong costs only
their saving: the run continues with what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Final, Literal

from journeyman.budget import Grant
from journeyman.cancellation import is_failure, log_caught
from journeyman.definition.data import lazy_dataclass
from journeyman.endings import TruncatedContext
from journeyman.errors import BudgetRefused, DefinitionError, Problem, ProviderError, ProviderErrorKind, name_and_words
from journeyman.events import CompactionStep, ContextCompacted, StepRecalled
from journeyman.history import SUMMARY_MARK, encodable
from journeyman.journal import Journal, Reservation, StepFacts, TypedCodec, decode_step, encode_step
from journeyman.loop.retry import respond
from journeyman.loop.state import Run, iteration_place
from journeyman.model import Model, Part, Prefix, Request, Response, Tap, facts_of, make_no_price_error
from journeyman.types import NOTHING_USED, Message, ToolUse, Usage, adapter_of
from journeyman.window import (
    AnyStrategy,
    CompactedView,
    Compaction,
    DropOldestTurns,
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
    kind: Literal["model", "compaction"] = "model"
    """What kind of step it is."""
    used: list[Usage] = field(default_factory=list[Usage])
    """By each of its requests, failed ones included."""
    lost: list[Usage] = field(default_factory=list[Usage])
    """The reservation of each of its requests of which nothing is known: a budget counts that."""

    def spend(self, usage: Usage) -> None:
        """Count what a request used."""
        self.used.append(usage)
        self.count(usage)


def taps_of(run: Run) -> Callable[[Model, Request], Tap] | None:
    """Return a function that makes a tap for each request which the run makes here; None where nothing is recorded."""
    watch, where = run.watch, (run.path, run.place)
    if watch is None or (tape := watch.tape) is None:
        return None

    def tap(model: Model, request: Request) -> Tap:
        watch.unmute()
        return tape.tap(where, model, request)

    return tap


async def once(run: Run, call: ModelCall, *, step: str) -> Response:
    """Make a call within the run's budget, or take its answer from the journal, where it is `step` of the iteration.

    Raises:
        ProviderError: of the last request.
        BudgetRefused: too little is left.
    """
    journal, n_cut = run.options.runtime.journal, 0
    if journal is None:
        return await _ask_and_pay(run, call)
    if run.options.kept_journal is None:
        return await journal.reserve(run.attempt.step(call.kind, step), effect="idempotent").step(
            lambda: _ask_and_pay(run, call), codec=_RESPONSE
        )

    async def work() -> _StoredAnswer:
        response = await _ask_and_pay(run, call, n_cut)
        # Half a surrogate pair cannot be written as UTF-8, and would end a run whose answer is paid for.
        content = tuple(encodable(block) for block in response.content)
        return _StoredAnswer(response=replace(response, content=content))

    place, codec = _reserve_step(run, call, journal, step), _AnswerCodec(call)
    # A life cannot tell whether the first call that is not stored was asked before the process died: it counts as
    # reserved.
    if run.attempt.budget.limits_spending and journal.is_replaying() and not place.is_known:
        n_cut = journal.n_cut_calls()
    if place.is_known:
        run.record(lambda: StepRecalled(**iteration_place(run), key=run.attempt.key(step)))
    answer = await place.step(work, codec=codec)
    # The answer is an earlier life's, and so is its use: the limits count both lives together.
    if codec.known is not None and not call.used:
        call.count(codec.known.spent)
    return answer.unwrap()


_RESPONSE: Final = TypedCodec[Response](Response)


async def note_failure(run: Run, call: ModelCall, error: ProviderError | BudgetRefused, *, step: str) -> None:
    """Store that a call failed, and that the run goes on nevertheless: no later life asks again."""
    journal = run.options.kept_journal
    if journal is None:
        return
    # The digest of the whole conversation is made only by a journal that compares.
    place = _reserve_step(run, call, journal, step)
    if not place.is_known:
        await place.settle(_stored_failure(error), codec=_AnswerCodec(call))


def _reserve_step(run: Run, call: ModelCall, journal: Journal, step: str) -> Reservation:
    about = partial(run.prepared.digests.about, call.request, run.history.messages)
    return journal.reserve(run.attempt.step(call.kind, step), effect="idempotent", about=about)


async def _ask_and_pay(run: Run, call: ModelCall, n_cut: int = 0) -> Response:
    """Make a call; before that, count what was reserved for it in each of the `n_cut` lives that died in it."""
    ask = partial(
        respond, call.model, retries=run.prepared.retries, on_part=call.on_part, on_cut=run.cut_off, asked=call.asked
    )
    if not run.attempt.budget.limits_spending:
        return await ask(call.request, spent=call.spend)
    payment = _Payment(run, call)
    try:
        for _ in range(n_cut):
            await payment.reserve()
            payment.spend(_UNKNOWN_USE)
        return await ask(payment.reserve, spent=payment.spend)
    finally:
        # A request that failed before anything was counted gives its reservation back, so that others may spend it.
        payment.settle(NOTHING_USED)


_UNKNOWN_USE: Final = Usage(requests=1, exact=False)


@lazy_dataclass()
class _Payment:
    """The purse of one model call: it reserves for each of its requests, and settles with the budget what that used."""

    run: Run
    call: ModelCall
    grant: Grant | None = None

    async def reserve(self, *, waits: bool = True) -> Request:
        """Reserve the budget for the next request, and return the request, with an answer no longer than that pays for.

        Raises:
            BudgetRefused: too little is left.
        """
        run, call = self.run, self.call
        budget, price = run.attempt.budget, facts_of(call.model).price
        if price is None and budget.limits_cost:
            raise make_no_price_error(call.model).in_stream()
        longest = call.request.max_tokens or run.prepared.max_tokens
        n_input = call.input_tokens()
        self.grant = await budget.reserve(input_tokens=n_input, max_tokens=longest, price=price, waits=waits)
        run.attempt.asked_max_tokens = self.grant.max_tokens
        if self.grant.max_tokens < longest:
            run.attempt.asked_by = "budget"
        return replace(call.request, max_tokens=self.grant.max_tokens)

    def spend(self, usage: Usage) -> None:
        """Count what a request used."""
        self.call.spend(usage)
        # Many services tell the use at the end of an answer alone: of one that broke off it is not known, which is not
        # nothing.
        if usage.requests and not usage.exact and not usage.total_tokens:
            self.lose()
        else:
            self.settle(usage)

    def lose(self) -> None:
        """Count the reservation, since nobody knows what was used of it."""
        if self.grant is not None:
            self.call.lost.append(self.grant.usage())
            self.settle(self.call.lost[-1])

    def settle(self, usage: Usage) -> None:
        """Give the reservation back, if there is one, and count `usage` instead."""
        if self.grant is not None:
            self.run.attempt.budget.settle(self.grant, usage)
            self.grant = None


@lazy_dataclass(frozen=True, kw_only=True)
class _StoredAnswer:
    """A call as a journal keeps it: its response, or the failure that the run went on after."""

    response: Response | None = None
    failure: _StoredFailure | None = None
    refusal: _StoredRefusal | None = None

    def unwrap(self) -> Response:
        """Return the response, or raise the failure."""
        if self.response is not None:
            return self.response
        failed = self.refusal or self.failure
        assert failed is not None, "a step without any of them is not read"
        raise failed.error()


@lazy_dataclass(frozen=True, kw_only=True)
class _StoredFailure:
    """The failure of a request."""

    message: str
    kind: ProviderErrorKind
    status: int | None = None
    type: str | None = None
    request_id: str | None = None

    def error(self) -> ProviderError:
        return ProviderError(
            self.message, kind=self.kind, status=self.status, type=self.type, request_id=self.request_id
        )


@lazy_dataclass(frozen=True, kw_only=True)
class _StoredRefusal:
    """A budget that did not let a request be made."""

    policy: str
    limit: float
    used: float
    scope: str
    needed: float | None = None

    def error(self) -> BudgetRefused:
        return BudgetRefused(self.policy, limit=self.limit, used=self.used, scope=self.scope, needed=self.needed)


def _stored_failure(error: ProviderError | BudgetRefused) -> _StoredAnswer:
    if isinstance(error, BudgetRefused):
        refusal = _StoredRefusal(
            policy=error.policy, limit=error.limit, used=error.used, scope=error.scope, needed=error.needed
        )
        return _StoredAnswer(refusal=refusal)
    failure = _StoredFailure(
        message=str(error), kind=error.kind, status=error.status, type=error.type, request_id=error.request_id
    )
    return _StoredAnswer(failure=failure)


class _AnswerCodec:
    """A codec that stores a model call together with the use by all its requests, failed ones included."""

    def __init__(self, call: ModelCall) -> None:
        self.known: StepFacts | None = None
        """The facts of a step that was read."""
        self._call = call

    def encode(self, value: _StoredAnswer) -> bytes:
        call = self._call
        facts = StepFacts(kind=call.kind, spent=Usage.total(call.used), lost=Usage.total(call.lost))
        return encode_step(adapter_of(_StoredAnswer).dump_json(value, exclude_none=True), facts)

    def decode(self, data: bytes) -> _StoredAnswer:
        self.known, value = decode_step(data)
        answer = adapter_of(_StoredAnswer).validate_json(value)
        if answer.response is answer.failure is answer.refusal:
            raise ValueError("a stored model call has neither a response nor a failure")
        return answer


_NEARLY: Final = 0.9
"""An answer that has come to this part of a limit has met it: not all services count alike."""
_LEAST_WINDOW: Final = 200
"""No model has a window below this: what reports less does not count, as a script of a test."""
_SHORTEST_ANSWER_TOKENS: Final = 1_024
"""However full the window is, an answer of this length is asked for, or of a quarter of the window. Without it, a
view that is larger than was estimated would leave no room, and the model could not say a word."""
_UNKNOWN_THRESHOLD_TOKENS: Final = 64_000
"""What strategies are told to be the threshold where the window is not known. It sizes only what they keep, and how
long a summary may be: where the window really ends, the first refusal of the provider tells."""

_NO_COMPACTION: Final = Compaction()
_LAST_RESORT: Final = DropOldestTurns(summary_mark=SUMMARY_MARK)

Reason = Literal["threshold", "overflow", "breaker", "asked"]


def view_of(run: Run, model: Model, prefix: Prefix) -> View:
    """Return the view of the run's history: the one that the run before left, if that was compacted."""
    given = run.agent.compaction
    made = given(model) if callable(given) else given
    compaction = made if isinstance(made, Compaction) else Compaction(made) if made else _NO_COMPACTION
    if not compaction.strategies:
        return WholeView(run.history.messages, prefix, compaction)
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
        # A fiftieth stays free, since lengths are estimates.
        window = view.compaction.window_of(run.prepared.model)
        most_tokens = None if window is None else window - window // 50 - _shortest_answer_tokens(window)
        # Down to four fifths: at the threshold itself, the view would be too long again after one more answer, and each
        # compaction costs the provider's cache once.
        excess_tokens = view.tokens - threshold * 4 // 5
        await _compact(run, view, reason, excess_tokens, step=f"{step}/fit", most_tokens=most_tokens)


async def shrink(run: Run, view: CompactedView, *, step: str, again: bool = False) -> bool:
    """Make the view smaller after the provider has refused the model call `step` as too long. `again`: the strategies
    have had their turn, so shorten what they left, too. Return whether the view is smaller."""
    view.was_too_long()
    threshold = _threshold(run, view) or view.tokens
    # At least half: the provider has just shown that the estimate, and so the threshold, is too high.
    excess_tokens = max(view.tokens - threshold * 4 // 5, view.tokens // 2)
    most_tokens = 0 if again else threshold
    compacted = await _compact(run, view, "overflow", excess_tokens, step=f"{step}/shrink", most_tokens=most_tokens)
    return any(each.saved_tokens for each in compacted.steps)


async def compact(run: Run) -> ContextCompacted:
    """Make what is sent of the run's history half as long, if the strategies can, before anything is said in the run.

    Raises:
        DefinitionError: the agent has no strategies.
    """
    view = run.prepared.view
    if not isinstance(view, CompactedView):
        what = f"The agent {run.agent.name!r} has no strategies to compact with."
        hint = "Give it some: Agent(compaction=[ClearToolResults(), Summarise()])."
        problem = Problem("INVALID_COMPACTION", what, hint)
        raise DefinitionError("Chat.compact", [problem])
    view.follow(run.history.messages)
    return await _compact(run, view, "asked", view.tokens // 2, step="compact")


def room_for_answer(run: Run, view: CompactedView, max_tokens: int) -> int:
    """Return how long the answer may be, at most `max_tokens`, so that it fits the window together with the view."""
    window = view.compaction.window_of(run.prepared.model)
    if window is None:
        return max_tokens
    return min(max_tokens, max(window - window // 50 - view.tokens, _shortest_answer_tokens(window)))


def _shortest_answer_tokens(window: int) -> int:
    return min(_SHORTEST_ANSWER_TOKENS, window // 4)


def explain_cut(run: Run, response: Response) -> TruncatedContext:
    """Return the cause that cut a response short. Services say `max_tokens` of an answer that fills the window, and of
    one that meets a limit of their own.

    Services say `max_tokens` of an answer that fills the window, and of one that meets a limit of their own.
    """
    usage, asked, by = response.usage, run.attempt.asked_max_tokens, run.attempt.asked_by
    window = run.prepared.view.compaction.window_of(run.prepared.model)
    if response.stop_reason == "context_window":
        by = "window"
    elif usage.exact and usage.total_tokens >= _LEAST_WINDOW and usage.output_tokens < asked * _NEARLY:
        by = "window" if window is not None and usage.total_tokens >= window * _NEARLY else "service"
    is_told = usage.exact and usage.requests
    return TruncatedContext(
        stop_reason=response.stop_reason,
        max_tokens=asked,
        cut_by=by,
        input_tokens=usage.total_tokens - usage.output_tokens if is_told else None,
        output_tokens=usage.output_tokens if is_told else None,
        window_tokens=window,
        calls=sum([isinstance(block, ToolUse) for block in response.content]),
    )


def _threshold(run: Run, view: CompactedView) -> int | None:
    compaction, window = view.compaction, view.compaction.window_of(run.prepared.model)
    known = None if window is None else compaction.threshold_tokens(window, max_tokens=run.agent.settings.max_tokens)
    return min([limit for limit in (known, view.ceiling_tokens) if limit is not None], default=None)


@lazy_dataclass()
class _Shortening:
    """One compaction under way."""

    run: Run
    view: CompactedView
    messages: Sequence[Message]
    threshold_tokens: int | None
    step: str
    """In the journal: what is asked for one model call is under different keys each time."""
    steps: list[CompactionStep] = field(default_factory=list[CompactionStep])
    usage: Usage = NOTHING_USED
    n_asked: int = 0

    async def apply(self, position: int, strategy: AnyStrategy, excess_tokens: int) -> int:
        """Let one strategy shorten the messages. Return how many tokens that saves."""
        error, saved = None, 0
        try:
            shortened = await self._shorten_messages(position, strategy, excess_tokens)
            # A strategy may be a user's own: what breaks the pairs of calls and results would be refused by every
            # provider.
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

    async def _shorten_messages(self, position: int, strategy: AnyStrategy, excess_tokens: int) -> Shortened:
        if isinstance(strategy, Informed):
            situation = Situation(
                model=self.run.prepared.model,
                threshold_tokens=self.threshold_tokens or _UNKNOWN_THRESHOLD_TOKENS,
                is_threshold_known=self.threshold_tokens is not None,
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
        call.asked, call.kind = taps_of(self.run), "compaction"
        step = f"{self.step}/{self.n_asked}"
        try:
            return await once(self.run, call, step=step)
        except (ProviderError, BudgetRefused) as error:  # it costs only the saving
            await note_failure(self.run, call, error, step=step)
            raise

    def _count(self, usage: Usage) -> None:
        self.run.ledger.add(usage)
        self.usage += usage


async def _compact(
    run: Run, view: CompactedView, reason: Reason, excess_tokens: int, *, step: str, most_tokens: int | None = None
) -> ContextCompacted:
    """Let the strategies save `excess_tokens`. Return what they did, once it is told.

    If what they leave is still longer than `most_tokens`, which cannot be sent, the oldest turns are dropped.
    """
    before_tokens, threshold = view.tokens, _threshold(run, view)
    work = _Shortening(run, view, view.messages, threshold, step)
    strategies = () if reason == "breaker" else view.compaction.strategies
    saved = 0
    try:
        for position, strategy in enumerate(strategies):
            saved += await work.apply(position, strategy, excess_tokens - saved)
            if saved >= excess_tokens:
                break
        if most_tokens is not None and saved < excess_tokens and before_tokens - saved > most_tokens:
            await work.apply(len(strategies), _LAST_RESORT, excess_tokens - saved)
            if not (work.steps[-1].saved_tokens or work.steps[-1].error):  # there is only one turn
                work.steps.pop()
    finally:
        # Also when the run is stopped in between: a summary that was paid for is used.
        if work.messages is not view.messages:
            view.rewrite(without_stale_thinking(view.messages, work.messages))
        # An open breaker tries no strategy, and a person may ask when there is nothing to save: neither is a failure.
        elif reason not in ("breaker", "asked"):
            view.count_failure()
    compacted = ContextCompacted(
        **iteration_place(run),
        reason=reason,
        before_tokens=before_tokens,
        after_tokens=view.tokens,
        steps=tuple(work.steps),
        usage=work.usage,
    )
    await run.tell(lambda: compacted)
    return compacted


def _size(messages: Sequence[Message]) -> int:
    return sum(map(estimate_message, messages))
