"""What must hold of every run, whatever happened in it (design, section 4, items 3 to 8).

`check_invariants` applies all rules to a `RunRecord` and raises with everything that does not hold. The rules of the
history are in `invariants_history.py`, those of events and callbacks in `invariants_events.py`.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from journeyman import ErrorCode, Failure, Success, Usage, endings
from journeyman import events as kinds
from journeyman.cancellation import GRACE_S
from journeyman.result import ToolStats
from tests.support import invariants_events, invariants_history
from tests.support.invariants_events import own_events
from tests.support.run_record import AnyResult, RunRecord

UNKNOWN = "(unknown)"
_COUNTS = ("requests", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


def check_invariants(record: RunRecord, *, is_inside: bool = False) -> None:
    """Raise AssertionError with every rule that the run broke, or one of the runs inside it."""
    is_watched = record.watch != "nobody"
    rules = [*_RULES, *(_RULES_OF_WATCHED_RUNS if is_watched else ())]
    if is_watched and not is_inside:  # the threads that are still at work may be those of the run around it
        rules.append(thread_faults)
    found = [f"- {rule.__name__}: {fault}" for rule in rules for fault in rule(record)]
    if record.result is not None:
        of_result = [*_RULES_OF_RESULTS, *(_RULES_OF_WATCHED_RESULTS if is_watched else ())]
        found += [f"- {rule.__name__}: {fault}" for rule in of_result for fault in rule(record, record.result)]
    if found:
        raise AssertionError("\n".join(["The run broke what every run must hold:", *found, "", _told(record)]))
    for inside in record.inside:
        check_invariants(inside, is_inside=True)


def _told(record: RunRecord) -> str:
    ended = record.raised if record.result is None else record.result
    return "\n".join(["Its events:", *(f"  {event}" for event in record.events), f"It ended with {ended!r}"])


def ending_faults(record: RunRecord) -> Iterator[str]:
    """One ending out of the closed set; CancelledError only for a task that was cancelled."""
    if record.result is None:
        if not (isinstance(record.raised, asyncio.CancelledError) and record.was_cancelled):
            yield f"it raised {record.raised!r}; cancelled: {record.was_cancelled}"
        return
    if record.raised is not None:
        yield "it both returned and raised"
    if isinstance(record.result, Failure):
        yield from _failure_faults(record, record.result)
    else:
        yield from _success_faults(record, record.result)


def _failure_faults(record: RunRecord, failure: Failure) -> Iterator[str]:
    error = failure.error
    if not isinstance(error.context, get_args(endings.Context)) or error.code not in ErrorCode:
        yield f"an ending of its own: {error}"
    if error.phase not in get_args(endings.Phase):
        yield f"a phase of its own: {error.phase}"
    if not (error.message.strip() and error.hint.strip() and error.category):
        yield f"no message or no hint: {error}"
    if not _fits(record, failure):
        yield f"it cannot have ended so: {error!r} ({error.cause!r}); {record.abort}; {failure.report}"
    if record.events and (error.attempt, error.iteration) != (reached := invariants_events.reached(own_events(record))):
        yield f"it failed in {(error.attempt, error.iteration)}, and had reached {reached}"


def _fits(record: RunRecord, failure: Failure) -> bool:
    """Tell whether the facts of the failure are those of the run."""
    limits, report = record.agent.limits, failure.report
    match failure.error.context:
        case endings.CancelledContext(reason=reason):
            return record.abort is not None and record.abort.aborted and reason == record.abort.reason
        case endings.IterationsContext() as context:
            return context.iteration_count == context.max_iterations == limits.iterations
        case endings.AttemptsContext() as context:
            is_last = context.attempts == context.max_attempts == record.attempts == len(failure.metadata.attempts)
            return is_last and report is not None and not report.passed and report.feedback == context.last_error
        case endings.BudgetContext() as context:
            return context.policy != "seconds" or context.used > context.limit * 0.999
        case endings.InternalContext():
            return record.may_fail_inside
        case _:
            return True


def _success_faults(record: RunRecord, success: Success[object]) -> Iterator[str]:
    """The output passed the schema and every validator, and is what was handed in."""
    plan = record.agent.plan
    report = success.metadata.attempts[-1].report if success.metadata.attempts else None
    layers = () if report is None else report.layers
    n_layers = len(record.agent.validators) + (plan.output is not None)
    if len(layers) != n_layers or not all(layer.passed for layer in layers):
        yield f"success, and the layers said {layers}"
    if plan.output is None:
        if not isinstance(success.output, str) or not success.output.strip():
            yield f"the text is {success.output!r}"
        return
    calls = [call for message in success.history for call in message.tool_uses if call.name in plan.outputs.members]
    written = calls[-1].input_json if calls[-1].malformed is None else calls[-1].malformed
    if plan.output.dump(plan.output.parse(written)) != plan.output.dump(success.output):
        yield f"the output is {success.output!r}, and {written} was handed in"
    plan.output.check(success.output)


def left_over(record: RunRecord) -> Iterator[str]:
    """Nothing of the run is alive afterwards, but for what would not end and was left behind."""
    if not _gave_up(record):
        yield from record.leftovers


def _gave_up(record: RunRecord) -> bool:
    if record.watch == "nobody":
        return record.result is None or record.result.metadata.latency_s >= GRACE_S
    return any(isinstance(event, kinds.CallAbandoned) for event in own_events(record))


def history_faults(record: RunRecord, result: AnyResult) -> Iterator[str]:
    """The history is closed and sendable, and what was said; also on the wire."""
    yield from invariants_history.history_faults(result.history)
    yield from invariants_history.wire_faults(record, result.history)


def usage_faults(record: RunRecord, result: AnyResult) -> Iterator[str]:
    """Usage is the sum of what was reported, to the run or to those it started, whatever became of it, and no less
    where the words of an answer that was cut are estimated; and the attempts' sums are the whole."""
    if not record.agent.track_tokens:
        if result.metadata.usage is not None:
            yield f"tokens are not tracked, and the usage is {result.metadata.usage}"
        return
    total = result.metadata.usage or Usage()
    replies = record.replies or ()
    below = [child.usage for child in result.metadata.children]
    own_requests = total.requests - sum(each.requests for each in below)
    measured = [reply.usage for reply in replies if reply.is_measured]
    is_known = len(measured) == len(replies) and (record.replies_are_all or own_requests == len(replies))
    if record.replies is not None and is_known and total.exact:
        yield from _differences(total, [*measured, *below], "the replies and children")
    elif own_requests < len(measured) or total.total_tokens < sum(each.total_tokens for each in [*measured, *below]):
        yield f"the usage is {total}, the replies that were heard had {measured}, and the children {below}"
    yield from _differences(total, [each.usage for each in result.metadata.attempts], "the attempts")


def _differences(total: Usage, parts: list[Usage], name: str) -> Iterator[str]:
    for count in _COUNTS:
        known = [value for part in parts if (value := getattr(part, count)) is not None]
        expected = sum(known) if known else (None if count in _COUNTS[3:] else 0)
        if getattr(total, count) != expected:
            yield f"{count} is {getattr(total, count)}, and {name} had {expected}"
    if total.exact != all(part.exact for part in parts):
        yield f"exact is {total.exact}, and {name} were {[part.exact for part in parts]}"
    costs = [part.cost for part in parts if part.requests]
    expected_cost = None if None in costs or not costs else math.fsum(cost or 0.0 for cost in costs)
    if (total.cost is None) != (expected_cost is None) or not math.isclose(total.cost or 0.0, expected_cost or 0.0):
        yield f"the cost is {total.cost}, and {name} had {expected_cost}"


def told_usage_faults(record: RunRecord, result: AnyResult) -> Iterator[str]:
    """The usage told with the responses is the attempt's, unless its last call brought no response. What the runs it
    started used belongs to the attempts in which they did; which those are is not told, so the whole is looked at."""
    attempts, below = result.metadata.attempts, [child.usage for child in result.metadata.children]
    numbers = [{attempt.number} for attempt in attempts] if not below else [{attempt.number for attempt in attempts}]
    for of in numbers:
        events = [event for event in own_events(record) if getattr(event, "attempt", None) in of]
        told = [event.usage for event in events if isinstance(event, kinds.ModelResponded)]
        aside = [event.usage for event in events if isinstance(event, kinds.ContextCompacted) and event.usage.requests]
        n_asked = sum(isinstance(event, kinds.IterationStarted) for event in events)
        if n_asked == len(told):
            used = Usage.total([attempt.usage for attempt in attempts if attempt.number in of])
            yield from _differences(used, [*told, *aside, *below], f"the responses told in attempts {sorted(of)}")


def children_faults(record: RunRecord, result: AnyResult) -> Iterator[str]:
    """What the runs inside of it used is in the metadata, each by itself."""
    of_children = [child.usage for child in result.metadata.children]
    for inside in record.inside:
        usage = None if inside.result is None else inside.result.metadata.usage
        if usage is not None and usage not in of_children:
            yield f"a run inside of it used {usage}, and the children are {of_children}"


def record_faults(record: RunRecord, result: AnyResult) -> Iterator[str]:
    """The metadata's attempts are those that were told, with their layers."""
    events = own_events(record)
    attempts = result.metadata.attempts
    started = [event.attempt for event in events if isinstance(event, kinds.AttemptStarted)]
    if [attempt.number for attempt in attempts] != started:
        yield f"attempts {started} were told, the metadata has {attempts}"
    for attempt in attempts:
        of_it = [event for event in events if getattr(event, "attempt", None) == attempt.number]
        asked = sum(isinstance(event, kinds.IterationStarted) for event in of_it)
        if attempt.iterations - asked not in (0, 1):
            yield f"attempt {attempt.number} had {asked} iterations, not {attempt.iterations}"
        told = tuple(event.outcome for event in of_it if isinstance(event, kinds.LayerCompleted))
        if attempt.report is not None and attempt.report.layers != told:
            yield f"attempt {attempt.number} was judged {told}, not {attempt.report.layers}"
    if isinstance(result, Failure) and result.report is not None:
        reports = [attempt.report for attempt in attempts if attempt.report is not None]
        if not reports or result.report != reports[-1]:
            yield f"the report is {result.report}, and the attempts had {reports}"


def analytics_faults(record: RunRecord, result: AnyResult) -> Iterator[str]:
    """What is counted of each tool adds up, and is what was told."""
    finished = [event for event in own_events(record) if isinstance(event, kinds.ToolFinished)]
    stats = result.metadata.tools
    told = Counter(UNKNOWN if event.kind == "unknown" else event.tool_name for event in finished)
    if told != Counter({name: each.calls for name, each in stats.items()}):
        yield f"told {told}, counted {stats}"
    for name, each in stats.items():
        yield from _stats_faults(name, each, [event for event in finished if _is_of(event, name)])


def _is_of(event: kinds.ToolFinished, name: str) -> bool:
    return event.kind == "unknown" if name == UNKNOWN else event.tool_name == name and event.kind != "unknown"


def _stats_faults(name: str, stats: ToolStats, finished: list[kinds.ToolFinished]) -> Iterator[str]:
    failed = sum(event.is_error for event in finished)
    cached = sum(event.cached for event in finished)
    if (sum(stats.errors.values()), stats.succeeded, stats.cache_hits) != (failed, len(finished) - failed, cached):
        yield f"{name}: told {len(finished)} calls, {failed} failed, {cached} cached; counted {stats}"
    if not math.isclose(stats.duration_s, sum(event.duration_s for event in finished), abs_tol=1e-6):
        yield f"{name}: told {[event.duration_s for event in finished]}, counted {stats}"
    if {event.kind for event in finished} - {stats.kind}:
        yield f"{name}: told as {finished}, counted as {stats.kind}"
    if unknown := stats.errors.keys() - _ERROR_KINDS:
        yield f"{name}: errors of an unknown kind: {unknown}"


_ERROR_KINDS = {*("unknown", "invalid_input", "raised", "timeout", "denied", "over_budget", "interrupted", "rejected")}


def limit_faults(record: RunRecord) -> Iterator[str]:
    """No limit is exceeded."""
    events = own_events(record)
    limits = record.agent.limits
    attempts = [event.attempt for event in events if isinstance(event, kinds.AttemptStarted)]
    if len(attempts) > max(record.attempts, 0):
        yield f"{len(attempts)} attempts of {record.attempts}"
    asked = Counter(event.attempt for event in events if isinstance(event, kinds.IterationStarted))
    if max(asked.values(), default=0) > limits.iterations:
        yield f"iterations by attempt {asked}, of {limits.iterations}"
    if record.result is None:
        return
    metadata = record.result.metadata
    helpers = [stats for stats in metadata.tools.values() if stats.kind == "tool"]
    not_made = sum(stats.errors.get("over_budget", 0) + stats.errors.get("interrupted", 0) for stats in helpers)
    calls = sum(stats.calls for stats in helpers) - not_made
    if limits.calls is not None and calls > limits.calls:
        yield f"{calls} calls of {limits.calls}"
    tokens = 0 if metadata.usage is None else metadata.usage.total_tokens
    if limits.tokens is not None and tokens > limits.tokens + metadata.overshoot_tokens:
        yield f"{tokens} tokens of {limits.tokens}, and an overshoot of {metadata.overshoot_tokens}"
    if limits.tokens is None and (limits.per_attempt or limits).tokens is None and metadata.overshoot_tokens:
        yield f"an overshoot of {metadata.overshoot_tokens} without a limit"


def event_order_faults(record: RunRecord) -> Iterator[str]:
    """The run's own events are in order."""
    events = own_events(record)
    yield from invariants_events.order_faults(events)
    if record.result is not None and not invariants_events.has_ended(events):
        yield f"no ending was told: {events[-1:]}"


def thread_faults(record: RunRecord) -> Iterator[str]:
    """A thread that is still at work was told as abandoned, if anybody listened."""
    if record.watch == "nobody":
        return
    abandoned = {event.tool_use_id for event in own_events(record) if isinstance(event, kinds.CallAbandoned)}
    if record.n_parked_threads > len(abandoned):
        yield f"{record.n_parked_threads} threads are still at work, and {abandoned} were abandoned"


_RULES = (ending_faults, left_over, limit_faults)
_RULES_OF_WATCHED_RUNS = (
    event_order_faults,
    invariants_events.ending_faults,
    invariants_events.success_faults,
    invariants_events.committed_faults,
    invariants_events.layer_name_faults,
    invariants_events.stop_faults,
    invariants_events.callback_faults,
)
_RULES_OF_RESULTS = (history_faults, usage_faults, children_faults)
_RULES_OF_WATCHED_RESULTS = (
    *(invariants_history.origin_faults, told_usage_faults, record_faults, analytics_faults),
    *(invariants_events.result_faults, invariants_events.mistaken_faults),
)
