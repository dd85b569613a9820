"""Generated worlds: mostly sensible, so that runs get far, with everything that can go wrong mixed in."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Literal, TypeVar, get_args

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from journeyman import Budget, Callbacks, Limits, Message, Text, ToolResult, Usage
from journeyman.errors import ProviderErrorKind
from journeyman.types import Block, Opaque, Price, RedactedThinking, StopReason, Thinking, ToolUse
from tests.properties.played_model import Fault, Turn
from tests.properties.world import (
    Act,
    ActKind,
    Deciding,
    Guarding,
    Judging,
    OutputKind,
    Raising,
    ReflectionPlan,
    Returning,
    Site,
    Stop,
    Stopping,
    ToolPlan,
    UsingContext,
    Waiting,
    World,
    Wrapping,
)

T = TypeVar("T")

SECONDS = st.sampled_from([0.0, 0.1, 1.0, 3.0])


def rarely(strategy: SearchStrategy[T], otherwise: T, one_in: int = 6) -> SearchStrategy[T]:
    """Return what `strategy` gives, one time in so many; mostly `otherwise`."""
    return st.one_of(*(st.just(otherwise) for _ in range(one_in - 1)), strategy)  # equal ones would count once


def kinds(*more: Any) -> list[ActKind]:
    """Return what any function may do, and these kinds besides."""
    return [kind for group in (Waiting, Stopping, Raising, *more) for kind in get_args(group)]


def acts(*more: Any, often: ActKind = "fine") -> SearchStrategy[Act]:
    """Return acts: every other one as it should be."""
    return st.builds(Act, st.one_of(st.just(often), st.sampled_from(kinds(*more))), SECONDS)


def sites(*more: Any) -> SearchStrategy[Site]:
    return st.builds(Site, st.sampled_from(["sync", "async"]), st.lists(acts(*more), min_size=1, max_size=3).map(tuple))


def sync_sites() -> SearchStrategy[Site]:
    return st.builds(Site, st.just("sync"), st.lists(acts(), min_size=1, max_size=3).map(tuple))


def maybe(strategy: SearchStrategy[T], one_in: int = 6) -> SearchStrategy[T | None]:
    nothing: T | None = None
    return rarely(strategy, nothing, one_in)


TOOL_NAMES = ("look", "count", "fetch", "ask")
_NAMES = (*TOOL_NAMES, *TOOL_NAMES, "output", "output", "submit", "submit", "unknown", "constructor", "bad name!", "")
_IDS = ("", "", "", "a", "b", "call_1", "call_2", "bad id!", "x" * 65)
_ARGUMENTS = (
    *("{}", '{"value": 1}', '{"title": "May", "total": 3}', '{"value": [1, 2]}', '{"value": null}'),
    *('{"value": {"title": "June"}}', '{"title": "May"}', '{"title": 5}', '{"value": "1"}', '{"more": 1}'),
    *("[1]", "", "{", '"text"', '{"value": NaN}', '{"value": "\\ud83d"}', "null"),
    '{"value": 123456789012345678901234567890}',
)
_TEXTS = ("Let me see.", "The answer is May.", "", " ", "\n", "half \ud83d", "ends with space ")
_SEARCH = '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"May"}}'
_FOUND = '{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}'


_RIGHT = ("{}", '{"value": 1}', '{"value": 2}')
_DRAFTS = ('{"title": "May", "total": 3}', '{"value": [1, 2]}', '{"value": null}', '{"value": {"title": "June"}}')


def tool_uses() -> SearchStrategy[ToolUse]:
    """Return calls: mostly of tools that are likely to exist, with arguments that are likely to fit."""
    ids = st.sampled_from(_IDS)
    return st.one_of(
        st.builds(ToolUse, ids, st.sampled_from(TOOL_NAMES), st.sampled_from(_RIGHT)),
        st.builds(ToolUse, ids, st.just(TOOL_NAMES[0]), st.sampled_from(_RIGHT)),
        st.builds(ToolUse, ids, st.just("output"), st.sampled_from(_DRAFTS)),
        st.builds(ToolUse, ids, st.sampled_from(_NAMES), st.sampled_from(_ARGUMENTS)),
    )


def texts() -> SearchStrategy[Text]:
    return st.builds(Text, st.sampled_from(_TEXTS))


def rare_blocks() -> SearchStrategy[Block]:
    return st.sampled_from(
        [
            Thinking("Hm.", "c2lnbmVk"),
            Thinking("Unsigned."),
            RedactedThinking("c2VjcmV0", "anthropic"),
            Opaque("anthropic", _SEARCH),
            Opaque("elsewhere", '{"type":"reasoning","id":"rs_1"}'),
            Text("Cited.", extra={"citations": []}),
        ]
    )


def searches() -> SearchStrategy[Sequence[Block]]:
    """Return a search by the provider, with its result."""
    return st.just([Opaque("anthropic", _SEARCH), Opaque("anthropic", _FOUND)])


def contents() -> SearchStrategy[Sequence[Block]]:
    block: SearchStrategy[Block] = st.one_of(tool_uses(), texts(), rare_blocks())
    calls = [st.lists(tool_uses(), min_size=1, max_size=4) for _ in range(5)]
    return st.one_of(st.lists(block, max_size=5), st.lists(block, max_size=5), *calls, searches())


def usages() -> SearchStrategy[Usage]:
    count = st.integers(0, 400)
    return st.builds(
        Usage,
        requests=st.just(1),
        input_tokens=count,
        output_tokens=count,
        cache_read_tokens=maybe(count, 3),
        cache_write_tokens=maybe(count, 3),
        reasoning_tokens=maybe(count, 3),
    )


_PROVIDER_KINDS = get_args(ProviderErrorKind)


def faults() -> SearchStrategy[Fault]:
    strange = ("raises", "leaks a CancelledError", "raises a group", "ends", "hangs")
    return st.builds(
        Fault,
        kind=st.one_of(st.sampled_from(_PROVIDER_KINDS), st.sampled_from(strange)),
        after=st.integers(0, 6),
        retry_after_s=maybe(st.sampled_from([0.0, 2.0, 1e6]), 2),
        usage=maybe(usages(), 3),
    )


_STOP_REASONS: tuple[StopReason, ...] = get_args(StopReason)


def turns() -> SearchStrategy[Turn]:
    turn = st.builds(
        Turn,
        content=contents().map(tuple),
        stop_reason=st.just("end_turn"),
        stop_detail=maybe(st.just("a word of its own")),
        usage=usages(),
        tells=rarely(st.sampled_from(["start", "nothing"]), "all"),
        slow_s=rarely(SECONDS, 0.0),
        fault=maybe(faults(), 10),
    )
    return st.tuples(turn, maybe(st.sampled_from(_STOP_REASONS), 12)).map(_with_stop_reason)


def _with_stop_reason(drawn: tuple[Turn, StopReason | None]) -> Turn:
    turn, reason = drawn
    calls = any(isinstance(block, ToolUse) for block in turn.content)
    return replace(turn, stop_reason=reason or ("tool_use" if calls else "end_turn"))


def last_turn(output: OutputKind) -> Turn:
    """Return a turn that hands in what will pass, so that scripts end well if nothing else is wrong."""
    if output == "text":
        return Turn(content=(Text("The answer is May."),), stop_reason="end_turn")
    right = {"model": '{"title": "May", "total": 3}', "list": '{"value": [1, 2]}', "optional": '{"value": null}'}
    handed_in = (ToolUse("", "output", right[output]), ToolUse("", "submit"))
    return Turn(content=handed_in, stop_reason="tool_use")


def tools() -> SearchStrategy[tuple[ToolPlan, ...]]:
    plan = st.builds(
        ToolPlan,
        name=st.just("look"),
        form=st.sampled_from(["async", "async", "inline", "thread"]),
        acts=st.lists(acts(Returning, UsingContext), min_size=1, max_size=4).map(tuple),
        parallel=st.booleans(),
        cache=rarely(st.sampled_from(["attempt", "run"]), False, 3),
        timeout_s=maybe(st.sampled_from([0.5, 2.0]), 3),
        max_chars=maybe(st.sampled_from([1, 100])),
        is_raw=rarely(st.just(True), False, 4),
    )
    plans = st.one_of(st.lists(plan, max_size=4), *(st.lists(plan, min_size=3, max_size=4) for _ in range(5)))
    return plans.map(lambda plans: tuple(replace(plan, name=name) for plan, name in zip(plans, TOOL_NAMES)))  # noqa: B905


def limits() -> SearchStrategy[Limits]:
    allowance = st.builds(
        Budget,
        tokens=maybe(st.integers(600, 3_000), 10),
        cost=maybe(st.sampled_from([0.01, 0.05]), 10),
        seconds=maybe(st.sampled_from([0.5, 5.0]), 10),
        calls=maybe(st.integers(1, 3), 10),
    )
    return st.builds(
        Limits,
        attempts=st.integers(1, 3),
        iterations=st.sampled_from([1, 2, 4, 6]),
        tokens=maybe(st.integers(600, 6_000)),
        cost=maybe(st.sampled_from([0.001, 0.05, 1.0])),
        seconds=maybe(st.sampled_from([0.5, 5.0, 20.0])),
        calls=maybe(st.integers(1, 4)),
        per_attempt=allowance,
        extended_max_tokens=maybe(st.just(5_000)),
        max_concurrency=st.integers(1, 3),
    )


def reflections() -> SearchStrategy[ReflectionPlan]:
    return st.builds(
        ReflectionPlan,
        site=sites(Returning),
        require_clean=st.booleans(),
        submit_alone=rarely(st.just(True), False),
        early_submit=st.sampled_from(["fail", "answer"]),
    )


def validators() -> SearchStrategy[tuple[Site, ...]]:
    return st.lists(sites(Judging), max_size=3).map(tuple)


def callbacks() -> SearchStrategy[dict[str, Site]]:
    names = [each.name for each in fields(Callbacks)]
    return rarely(st.dictionaries(st.sampled_from(names), sites(), max_size=6), dict[str, Site](), 2)


def foreign_messages() -> SearchStrategy[Message]:
    """Return messages of any origin: calls without results, results without calls, empty ones."""
    result: SearchStrategy[Block] = st.builds(
        ToolResult, st.sampled_from(["", "found", " "]), st.booleans(), st.sampled_from(["a", "b", "call_1", "gone"])
    )
    said = contents().map(lambda content: Message("assistant", tuple(content)))
    asked = st.lists(st.one_of(texts(), result), max_size=4).map(lambda content: Message("user", tuple(content)))
    return st.one_of(said, asked)


def histories() -> SearchStrategy[tuple[Message, ...]]:
    """Return what came before: it begins with the user, as every provider wants it."""
    first = Message("user", (Text("Hello."),))
    return st.lists(foreign_messages(), max_size=6).map(lambda messages: (first, *messages))


def worlds() -> SearchStrategy[World]:
    """Return whole worlds."""
    return st.one_of(*(_world(output) for output in get_args(OutputKind)))


def _world(output: OutputKind) -> SearchStrategy[World]:
    stops = st.lists(st.builds(Stop, st.sampled_from([0.0, 0.3, 2.0, 7.0]), st.sampled_from(["abort", "cancel"])))
    prices = st.builds(Price, input=st.sampled_from([0.0, 3.0]), output=st.sampled_from([0.0, 15.0]))
    stop_after: SearchStrategy[Site | tuple[str, ...]] = st.one_of(sites(Guarding), st.just(("look", "count")))
    nothing: tuple[str, ...] = ()
    prompts = sites(Literal["garbage", "nothing", "blank", "blocks", "surrogate"])
    return st.builds(
        World,
        turns=_scripts(output),
        output=st.just(output),
        tools=tools(),
        reflection=st.none() if output == "text" else maybe(reflections(), 2),
        validators=validators(),
        limits=limits(),
        request_retries=st.sampled_from([None, 0, 1, 3]),
        price=maybe(prices, 3),
        max_tokens=maybe(st.sampled_from([100, 1_000])),
        reminder=st.booleans(),
        feedback_role=st.sampled_from(["result", "text"]),
        stop_after=rarely(stop_after, nothing) if output == "text" else st.just(nothing),
        stop_guard=maybe(sites(Guarding)) if output == "text" else st.none(),
        system=maybe(prompts, 20),
        prompt=maybe(prompts, 20),
        error_prompt=maybe(prompts, 10),
        run_state=maybe(sync_sites(), 20),
        attempt_state=maybe(sync_sites(), 20),
        final_state=maybe(sync_sites(), 10),
        gate=maybe(sites(Deciding), 10),
        runtime_gate=maybe(sites(Deciding), 15),
        approve=maybe(sites(Deciding), 2),
        tool_middleware=rarely(st.lists(sites(Wrapping, Deciding), max_size=2).map(tuple), tuple[Site, ...](), 10),
        policy=maybe(sites(Deciding), 20),
        transform_messages=maybe(sync_sites(), 20),
        compaction=maybe(sites(), 15),
        on_message=maybe(sync_sites(), 10),
        callbacks=callbacks(),
        is_journalled=rarely(st.just(True), False),
        has_runtime_budget=st.booleans(),
        tracks_tokens=rarely(st.just(False), True),
        given=rarely(histories(), tuple[Message, ...](), 3),
        max_attempts=maybe(st.sampled_from([0, 1, 2, -1]), 20),
        stops=rarely(stops.map(tuple), tuple[Stop, ...](), 5),
        watch=rarely(st.sampled_from(["stream", "nobody"]), "listener", 5),
    ).map(_without_senseless_limits)


def _scripts(output: OutputKind) -> SearchStrategy[tuple[Turn, ...]]:
    some = st.one_of(st.lists(turns(), max_size=3), st.lists(turns(), min_size=2, max_size=7))
    return some.map(lambda some: (*some, last_turn(output)))


def _without_senseless_limits(world: World) -> World:
    """Leave out limits of money where the price is unknown: no such run begins."""
    if world.price is not None:
        return world
    each = world.limits.per_attempt or Budget()
    each = Budget(tokens=each.tokens, seconds=each.seconds, calls=each.calls)
    return replace(world, limits=replace(world.limits, cost=None, per_attempt=each))
