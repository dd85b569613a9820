"""The preparations of a run: its record is opened; then its input is checked, its model found, and its prompts are
made.

Whatever goes wrong here is an `ErrorInfo`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from inspect import signature
from itertools import count
from typing import Any, Final, Literal, Protocol, cast, runtime_checkable

from journeyman.agent import DEFAULT_RUNTIME, Agent, MessageContext, Runtime
from journeyman.budget import Budget, Ledger, limits_of, open_budget
from journeyman.cancellation import Scope, is_awaited, is_failure, running_loop
from journeyman.connect import connect, connect_fetch
from journeyman.content.media import LARGEST_BYTES, MediaSupport
from journeyman.definition.narrowing import is_sequence
from journeyman.definition.problems import is_count
from journeyman.endings import (
    Context,
    ErrorInfo,
    InternalContext,
    InvalidInputContext,
    ModelUnavailableContext,
    PromptContext,
)
from journeyman.errors import InvalidArguments, ModelUnavailable, Problem, name_and_words
from journeyman.events import Input, Listener, MessageCommitted, OutputModeChosen, RunResumed
from journeyman.events.json_form import plain
from journeyman.gate import NO_GUARD, ChecksTools, Gate, GateWithDeps, current_guard, guard_for
from journeyman.history import History
from journeyman.inbox.inbox import Inbox, Outside
from journeyman.journal import Digests, Journal, RecordingSink, TypedCodec
from journeyman.loop.replay import CONTENT, TEXTS, decide_once, difference, first_state, recall
from journeyman.loop.request import view_of
from journeyman.loop.state import (
    Attempt,
    Calls,
    Children,
    Clock,
    HandIn,
    Objection,
    Options,
    PreparedRun,
    Run,
    RunContext,
    call_with_deps,
    content_of,
    current_tally,
    input_for_functions,
    iteration_place,
    run_context,
)
from journeyman.loop.submission import hand_in_of
from journeyman.loop.toolsets import ToolsetFailed, ask_toolsets, describe_tools, is_asked_again, retired_tools
from journeyman.loop.watch import NO_CALLBACKS, Watch, begin_tape
from journeyman.model import Model, Prefix, ToolSpec, facts_of, make_no_price_error, sent_tools
from journeyman.output.output import OutputMode, PerRun, StopGuard
from journeyman.output.plan import choose_mode
from journeyman.prompt import Prompt, PromptFailed, make_content
from journeyman.step import RunStep
from journeyman.tools.check import (
    budget_problems,
    callback_problems,
    function_problem,
    gate_problems,
    history_problem,
    lacking,
    listener_problems,
    model_problems,
    signal_problems,
)
from journeyman.tools.collection import do_aside
from journeyman.tools.context import States, isolated, own_copy
from journeyman.tools.deps import deps_of_run, lacks_deps
from journeyman.tools.schema import CheckedValue
from journeyman.tools.signature import positional_parameters
from journeyman.tools.tools import AnyTool
from journeyman.types import Audio, Base64, Document, Effect, Image, Message, RunPath, Text, ToolUse, Url, UserContent
from journeyman.window import CompactedView

_log = logging.getLogger("journeyman")
UNKNOWN_MAX_TOKENS: Final = 8_192
"""The longest answer asked for from a model whose maximum is not known. One has to be named: the Messages API takes
no request without it, and refuses one above the model's own maximum."""
_MODES: Final[Mapping[str, OutputMode]] = {"tool": "tool", "native": "native", "prompted": "prompted"}


def begin(agent: Agent[Any, Any, Any], input: object, options: Options) -> Run:
    """Open the record of one run. Nothing of it has happened yet."""
    options, wrong = (options, list[str]()) if options.is_checked else _sound(options)
    around, origin = run_context.get(), options.origin
    above = around.run
    number = None if origin is None else origin.number
    name = agent.name if number is None else f"{agent.name}#{number}"
    is_callers = origin is None or origin.mode == "batch"
    if number is None or is_callers:  # an input's number is no number among the runs that the one above has started
        number = 0 if above is None else next(above.children.numbers)
    path = (*around.path, name)
    clock = running_loop().time
    started_s = clock()
    n_wrong = len(wrong)
    budget, used_s = _budget(agent, options, above, now=started_s, wrong=wrong)
    if len(wrong) > n_wrong:
        # A journal that could not be read must not be written either: the next steps would stand behind ones that
        # nobody knows.
        options = replace(options, runtime=replace(options.runtime, journal=None))
    # The time of earlier lives counts: a limit of seconds is one on work, whatever was between the lives.
    started_s -= used_s
    history, wrong_history = _history_of(options.history, agent)
    if wrong_history is not None:
        wrong.append(_wrong_history(options.history, wrong_history))
    if agent.gate is not None or options.runtime.gate is not None:
        wrong += _rules_without_effect(agent, options.runtime.gate)
    run = Run(
        agent=agent,
        input=input,
        options=options,
        deps=deps_of_run(options.deps, agent.deps),
        path=path,
        above=above,
        number=number,
        children=Children(options.numbers or count(1)),
        clock=Clock(clock, started_s),
        scope=_scope(budget, options, around),
        watch=_watch(agent, options, path, None if above is None else above.watch),
        budget=budget,
        ledger=Ledger(None if above is None else above.ledger, beside=options.ledger_beside),
        history=history,
        objection=Objection(tuple(wrong), wrong_history),
        attempt=Attempt(0, started_s, budget),
        calls=Calls(agent.plan.tools, tally=None if above is None else current_tally.get()),
    )
    if (watch := run.watch) is not None:
        journal = options.journal
        if watch.own_tape and (outside := watch.own_tape.outside) is not None:
            _hear_outside(run, outside)
        if journal.is_replaying():
            watch.is_muted = _mute_of(run, watch, journal)
        if agent.on_message is not None:
            watch.on_message = _message_listener(run, agent.on_message)
    return run


@runtime_checkable
class Delegates(Protocol):
    """A tool whose work is done by agents."""

    @property
    def agents(self) -> tuple[Agent[Any, Any, Any], ...]:
        """The agents, each with tools of its own."""
        ...


def _rules_without_effect(
    agent: Agent[Any, Any, Any], host_gate: object, *, asked: Iterable[AnyTool] = ()
) -> list[str]:
    """Return the complaints of a run's gates about rules for tools that neither the run nor an agent below it has.
    Gates of the run above are left out: their rules may be about its own tools. `asked` are the tools of the run, where
    its toolsets were asked for them."""
    guard = current_guard()
    given = [agent.gate, host_gate if guard is None else None]
    known = [] if guard is None else [id(each) for each, _ in guard.posts]
    gates = [each for each in _list_gates(given) if isinstance(each, ChecksTools) and id(each) not in known]
    if not gates:
        return []
    names: set[str] = set()
    left, seen = [agent], {id(agent)}
    while left:
        plan, given_now = left.pop().plan, [*asked]
        asked = ()
        if plan.sources and not given_now:  # nobody knows what tools there will be
            return []
        for tool in (*(given_now or plan.tools.values()), *plan.outputs.functions):
            names |= {tool.name, *tool.server_names}
            below = [each for each in tool.agents if id(each) not in seen] if isinstance(tool, Delegates) else []
            left += below
            seen |= {id(each) for each in below}
    return [str(problem).rstrip(" .") for gate in gates for problem in gate.tool_problems(names)]


def _hear_outside(run: Run, outside: Outside) -> None:
    """Connect the run to those outside of the process: their texts reach its inbox, also once it has its answer, and
    they can stop it."""
    inbox = run.options.inbox or Inbox()

    async def has_more() -> bool:
        return inbox.steer_with_follow_ups()

    run.options = replace(run.options, inbox=inbox, more=run.options.more or has_more)
    outside.listen(say=inbox.put, withdraw=inbox.withdraw, stop=run.scope.stop)


def _budget(
    agent: Agent[Any, Any, Any], options: Options, above: Run | None, *, now: float, wrong: list[str]
) -> tuple[Budget, float]:
    """Return the budget of a run, and how many seconds it has worked in earlier lives; both count what the journal
    knows of them. Say in `wrong` why it cannot be read."""
    journal, used_s = options.runtime.journal, 0.0
    parent = options.runtime.budget  # unless the run above draws on that one itself
    if above is not None and (parent is None or above.attempt.budget.draws_on(parent)):
        parent = above.attempt.budget
    budget = open_budget(agent.limits, scope="run", parent=parent)
    try:
        if journal is not None:
            used_s = 0.0 if above is not None else journal.begin_life()
            recall(budget, journal, is_root=above is None)
            journal.is_replaying()  # which is asked all the time
    except Exception as error:  # noqa: BLE001 - of a file, or of a journal of the user's
        wrong.append(f"the journal cannot be used ({name_and_words(error)})")
    budget.begin(now, used_s=used_s)
    return budget, used_s


def _mute_of(run: Run, watch: Watch, journal: Journal) -> Callable[[], bool]:
    """Return a function that tells whether the listeners hear nothing because the run replays. Its first False tells
    them that the run goes on."""

    def is_muted() -> bool:
        if journal.is_replaying():
            return True
        watch.is_muted = None
        if watch.above is not None and watch.above.is_muted is not None:
            watch.above.is_muted()  # whoever listens hears first that the run above goes on
        usage, about = run.ledger.usage, run.agent.description
        watch.show(RunResumed(**iteration_place(run), usage=usage, description=about))
        return False

    return is_muted


def wrong_options(agent: Agent[Any, Any, Any], options: Options) -> list[str]:
    """Return the complaints that a run would make about options that cannot be used."""
    sound, wrong = _sound(options)
    _, error = _history_of(sound.history, agent)
    return wrong if error is None else [*wrong, _wrong_history(sound.history, error)]


def _wrong_history(given: object, error: Exception) -> str:
    return str(history_problem(given, error)).rstrip(" .")


def _sound(options: Options) -> tuple[Options, list[str]]:
    """Return the options without those that cannot be used, and what is wrong with them."""
    wrong: list[str] = []
    usable: dict[str, Any] = {}
    attempts: list[Problem] = []
    if (given := options.max_attempts) is not None and not is_count(given):
        text = f"max_attempts is {given!r}, not a whole number of at least 1"
        attempts.append(Problem("INVALID_ARGUMENT", text, ""))
    for name, problems in (
        ("max_attempts", attempts),
        ("callbacks", callback_problems(options.callbacks)),
        ("listeners", [problem for each in options.listeners for problem in listener_problems(each)]),
        ("abort", signal_problems(options.abort)),
        ("runtime", () if options.runtime is DEFAULT_RUNTIME else runtime_problems(options.runtime)),
    ):
        found = [str(problem).rstrip(" .") for problem in problems]
        if found:
            usable[name] = _UNUSABLE[name]
            wrong += found
    return (replace(options, **usable) if usable else options), wrong


_UNUSABLE: Final[Mapping[str, Any]] = {
    **{"max_attempts": None, "callbacks": None, "listeners": (), "abort": None},
    "runtime": DEFAULT_RUNTIME,
}


def runtime_problems(runtime: object) -> Iterator[Problem]:
    """Yield the problems of a runtime: everything that cannot work as it was given."""
    if runtime is None or not isinstance(runtime, Runtime):
        if runtime is not None:
            yield Problem("INVALID_ARGUMENT", f"runtime is {runtime!r}.", "Pass a Runtime(…), or leave it out.")
        return
    yield from _journal_problems(runtime.journal)
    yield from gate_problems("Runtime.gate", runtime.gate)
    yield from lacking("Runtime.tasks", runtime.tasks, "start", hint="Pass a Tasks() that was entered.")
    yield from model_problems("Runtime.model", runtime.model)
    if runtime.approver is not None:
        yield from function_problem("Runtime.approver", runtime.approver, "an Approval", code="INVALID_ARGUMENT")
    if runtime.recorder is not None and not isinstance(runtime.recorder, str | os.PathLike):
        hint = "Pass a Recorder(…), a Store(…), or the path of one."
        yield from lacking("Runtime.recorder", runtime.recorder, "begin", hint=hint)
    yield from lacking("Runtime.telemetry", runtime.telemetry, "begin", hint="Pass OpenTelemetry() of journeyman.otel.")
    yield from budget_problems("Runtime.budget", runtime.budget)


def _journal_problems(journal: object) -> Iterator[Problem]:
    """Yield the problems of a journal: it is no subclass of `Journal`, or its `reserve` takes other arguments."""
    if journal is None:
        return
    hint = "Pass InMemoryJournal(), or a subclass of journeyman.journal.StoringJournal."
    if found := [*lacking("Runtime.journal", journal, *_OF_JOURNALS, hint=hint)]:
        yield from found
        return
    reserve: object = cast("Journal", journal).reserve
    if not _takes_what_a_run_gives(getattr(reserve, "__func__", reserve), is_method=hasattr(reserve, "__func__")):
        what = f"Runtime.journal is a {type(journal).__name__}, whose reserve does not take what a run gives it."
        yield Problem("INVALID_ARGUMENT", what, "Define it as reserve(self, step, *, effect, about=None).")


@lru_cache(maxsize=64)
def _takes_what_a_run_gives(reserve: Callable[..., object], *, is_method: bool) -> bool:
    """Tell whether a run can reserve steps by a function. It is asked in each run, and looking takes a while."""
    try:
        signature(reserve).bind(*(None,) * is_method, "step", effect="pure", about=None)
    except (TypeError, ValueError):
        return False
    return True


_OF_JOURNALS: Final = (
    *("reserve", "begin_life", "end_life", "stored", "is_replaying", "n_cut_calls", "name", "whole"),
    *("wait", "waits", "sent"),
)


def _scope(budget: Budget, options: Options, around: RunContext) -> Scope:
    """Return the scope that stops a run. A deadline of the run above is not its own: that one's scope stops both."""
    above = around.run
    inherited = above is not None and budget.parent is not None and budget.parent is above.attempt.budget
    deadline = budget.own_deadline if inherited else budget.deadline
    journal = options.runtime.journal
    return Scope(
        options.abort,
        deadline,
        above=None if above is None else above.scope,
        call=around.call,
        grace_s=options.runtime.grace_s,
        replays=journal.is_replaying if journal is not None and journal.is_replaying() else None,
    )


CLOSING: Final[Mapping[Effect, str]] = {
    "pure": "Error: interrupted before it finished. It changes nothing, so it may be called again.",
    "idempotent": "Error: interrupted before it finished. It may be called again with the same arguments.",
    "once": "Error: interrupted before it finished. Whether it took effect is unknown: find out before calling again.",
}
"""The result of a call that was cut off when its process or its task ended, by the effect of its tool."""


def closing_of(agent: Agent[Any, Any, Any], call: ToolUse) -> str:
    """Return the result of a call that was cut off."""
    plan = agent.plan
    tool = plan.tools.get(call.name) or plan.outputs.function_of(call.name)
    if tool is None and plan.outputs.hands_in(call.name):
        return CLOSING["pure"]
    return CLOSING["once" if tool is None else tool.effect or agent.default_effect]


def _history_of(messages: Sequence[Message] | History, agent: Agent[Any, Any, Any]) -> tuple[History, Exception | None]:
    """Return the history to go on from: an empty one, and why, if `messages` hold what is no message."""
    if isinstance(messages, History):
        return messages, None
    try:
        return History(messages, closing=partial(closing_of, agent)), None
    except Exception as error:  # noqa: BLE001 - whatever the caller gave
        return History(), error


def _watch(agent: Agent[Any, Any, Any], options: Options, path: RunPath, above: Watch | None) -> Watch | None:
    tapes = [options.tape, *[each.tape for each in (above, options.watch_above) if each is not None]]
    tape = next((each for each in tapes if each is not None), None)
    runtime = options.runtime
    own_tape: RecordingSink | None = None
    if tape is None and (runtime.recorder is not None or runtime.telemetry is not None):
        tape = own_tape = begin_tape(runtime, "run", agent.name)
    above = above if above is not None and above.is_heard else options.watch_above
    is_watched = options.listeners or options.callbacks is not None or agent.on_message is not None
    if not is_watched and above is None and tape is None:
        return None
    return Watch(
        path=path,
        listeners=options.listeners,
        callbacks=options.callbacks or NO_CALLBACKS,
        above=above,
        tape=tape,
        own_tape=own_tape,
        max_attempts=agent.limits.attempts if options.max_attempts is None else options.max_attempts,
        max_iterations=agent.limits.iterations,
    )


def _message_listener(run: Run, told: Callable[..., object]) -> Listener:
    wants_context = len(positional_parameters(told)) == 2

    def on_message(event: object) -> None:
        if not isinstance(event, MessageCommitted):
            return
        if not wants_context:
            told(event.message)
            return
        told(event.message, MessageContext(path=event.path, agent=run.agent.name, task=run.task, index=event.index))

    on_message.__qualname__ = "Agent.on_message"  # by which errors name it
    return on_message


class Unprepared(Exception):
    """The run cannot begin. `ending` says why."""

    def __init__(self, context: Context, cause: BaseException | None = None) -> None:
        super().__init__(str(context))
        self.ending = ErrorInfo(context, cause=cause)


async def prepare(run: Run) -> PreparedRun:
    """Make what the run needs for its first model call.

    Raises:
        Unprepared: the run cannot begin.
    """
    # Before anything of the user's is called: an abort that came first leaves nothing behind.
    await run.scope.checkpoint()
    is_quick = isinstance(run.input, str | CheckedValue)
    run.input = _own_input(run, run.input) if is_quick else await do_aside(run.input, partial(_own_input, run))
    plan, hand_in = run.agent.plan, hand_in_of(run.agent)
    model = _resolved_model(run, hand_in.mode)
    stop_guard = await _stop_guard(run)
    # Before any step is taken from the journal: another run's steps would answer this one.
    other = await difference(run)
    if other is not None:
        raise Unprepared(InvalidInputContext(issues=(f"{other}. Give each run a journal of its own",)))
    states = States(run=await _run_state(run))
    system = await (
        decide_once(run, RunStep(key="system", kind="system"), _system_texts, codec=TEXTS)
        if callable(plan.system)
        else _system_texts(run)
    )
    prompt = await _said_first(run, model)
    if prompt:
        # Anthropic refuses a user's text while its own tool still waits for a result.
        run.history.forget_server_calls()
        prompt = run.history.say(*prompt)
    specs = await _specs_of_toolsets(run, model, hand_in) if plan.sources else plan.specs
    view = view_of(run, model, _prefix(run, model, system, specs, mode=hand_in.mode))
    gates: list[Gate | GateWithDeps[Any]] = _list_gates((run.agent.gate, run.options.runtime.gate))
    guard = guard_for(
        gates,
        run.options.runtime.approver,
        path=run.path,
        stop=run.scope.stop,
        deps=run.deps,
        takes_deps=plan.takes_deps,
    )
    if guard.memories:
        known = run.calls.tools
        guard.recall(run.history.messages, lambda name: name not in known or bool(known[name].untrusted))
        guard.hear([text for text in system if text.origin is not None])
        guard.hear(prompt)
        describe_tools(run, guard)
    run.record(lambda: Input(path=run.path, input=plain(run.task), limits=limits_of(run.agent.limits)))
    return PreparedRun(
        model=model,
        max_tokens=_longest_answer(run, model),
        retries=_request_retries(run),
        hand_in=hand_in,
        view=view,
        guard=guard,
        stop_guard=stop_guard,
        states=states,
        digests=run.options.digests or Digests(),
    )


def _request_retries(run: Run) -> int:
    given, origin = run.agent.limits.request_retries, run.options.origin
    if given is not None:
        return given
    # No run inside another repeats a request.
    return 2 if len(run.path) == 1 and (origin is None or origin.mode == "batch") else 0


def _longest_answer(run: Run, model: Model) -> int:
    return run.agent.settings.max_tokens or facts_of(model).max_output_tokens or UNKNOWN_MAX_TOKENS


def prepare_to_compact(run: Run) -> PreparedRun:
    """Make what the run needs to make its conversation shorter, and for nothing else.

    Raises:
        ModelUnavailable: there is no such model.
    """
    model, known = run.options.runtime.model or run.agent.model, run.history.view
    model = connect(model) if isinstance(model, str) else model
    prefix = known.prefix if isinstance(known, CompactedView) else Prefix(tools=run.agent.plan.specs)
    hand_in, view, longest = hand_in_of(run.agent), view_of(run, model, prefix), _longest_answer(run, model)
    retries = _request_retries(run)
    return PreparedRun(model=model, max_tokens=longest, retries=retries, hand_in=hand_in, view=view, guard=NO_GUARD)


async def _specs_of_toolsets(run: Run, model: Model, hand_in: HandIn) -> tuple[ToolSpec, ...]:
    """Ask the toolsets that are asked once, and return the tools as the model sees them."""
    try:
        specs = await ask_toolsets(run, RunStep(key="tools", kind="tools"), model, hand_in)
    except ToolsetFailed as failed:
        raise Unprepared(failed.context, failed.__cause__) from failed
    if not is_asked_again(run):
        tools = run.calls.tools.values()
        if wrong := _rules_without_effect(run.agent, run.options.runtime.gate, asked=tools):
            raise Unprepared(InvalidInputContext(issues=tuple(wrong)))
    return specs


def _prefix(
    run: Run, model: Model, system: tuple[Text, ...], specs: Sequence[ToolSpec], *, mode: OutputMode | None
) -> Prefix:
    """Return what each request begins with, for the way in which the output is handed in."""
    plan = run.agent.plan
    return Prefix(
        system=(*system, plan.outputs.words) if mode == "prompted" else system,
        tools=sent_tools(specs, loads_tools=facts_of(model).loads_tools) or retired_tools(run.history),
        output=plan.outputs.format if mode == "native" else None,
        is_shared=not (callable(plan.system) or plan.sources),
    )


async def adapt_to_server(run: Run, prepared: PreparedRun) -> PreparedRun:
    """Return what was prepared, with what the model's facts say once its server runs: how long an answer may be, and,
    if the agent leaves that to them, how the output is handed in; in a run that goes on, as in its first life."""
    model = prepared.model
    if (longest := _longest_answer(run, model)) != prepared.max_tokens:
        prepared = replace(prepared, max_tokens=longest)
    if run.agent.plan.outputs.mode != "auto":
        return prepared

    async def choose(_: Run) -> str:
        return choose_mode(facts_of(model))

    step = RunStep(key="output_mode", kind="output_mode")
    chosen = await decide_once(run, step, choose, codec=TypedCodec[str](str))
    mode = _MODES[chosen]
    _log.info("%s: %s:%s hands in by mode=%r", run.path[-1], model.provider, model.name, mode)
    run.record(lambda: OutputModeChosen(path=run.path, mode=mode))
    if mode == "tool":
        return prepared
    before, hands_in = prepared.view.prefix, run.agent.plan.outputs.hands_in
    helpers = [spec for spec in before.tools if not hands_in(spec.name)]
    view = view_of(run, model, _prefix(run, model, before.system, helpers, mode=mode))
    return replace(prepared, hand_in=hand_in_of(run.agent, mode), view=view)


_PROMPT: Final = RunStep(key="prompt", kind="said")


async def _said_first(run: Run, model: Model) -> tuple[UserContent, ...]:
    """Return the prompt, or what is said instead of one; what is not fixed, as it was in the first life of the run."""
    if run.options.going_on is None:
        # At an address, something else may be found in another life of the run.
        has_address = any(not isinstance(each, Text) and isinstance(each.source, Url) for each in content_of(run))
        is_fixed = not callable(run.agent.prompt) and not has_address
        make = partial(_prompt, model=model)
        return await (make(run) if is_fixed else decide_once(run, _PROMPT, make, codec=CONTENT))
    waiting = tuple(run.options.going_on())

    async def take_waiting(_: Run) -> tuple[UserContent, ...]:
        return waiting

    return await decide_once(run, _PROMPT, take_waiting, codec=CONTENT)


def _own_input(run: Run, given: object) -> object:
    """Return the input, checked. In a copy: functions of the agent get it, and the caller may hold the object."""
    lack = lacks_deps(run.deps, run.agent.deps)
    issues: tuple[str, ...] = () if lack is None else (lack,)
    wrong, cause = run.objection
    try:
        checked = run.agent.plan.input.check(given)
    except InvalidArguments as invalid:
        checked, issues, cause = None, (*issues, *invalid.issues), cause or invalid
    if issues or wrong:
        raise Unprepared(InvalidInputContext(issues=(*wrong, *issues)), cause) from cause
    return checked if isinstance(given, CheckedValue) else own_copy(checked)


def _resolved_model(run: Run, mode: OutputMode | None) -> Model:
    model = run.options.runtime.model or run.agent.model
    if isinstance(model, str):
        try:
            model = connect(model)
        except ModelUnavailable as error:
            raise Unprepared(ModelUnavailableContext.of(error), error) from error
    if run.budget.limits_cost and facts_of(model).price is None:
        raise Unprepared(ModelUnavailableContext.of(make_no_price_error(model)))
    if mode == "native" and facts_of(model).native_output is False:
        hint = "Use Output(…, mode='tool'), or another model."
        lacks = ModelUnavailable("it has no native output", model=f"{model.provider}:{model.name}", hint=hint)
        raise Unprepared(ModelUnavailableContext.of(lacks))
    if (lacks := _check_hosted_tools(run, model)) is not None:
        raise Unprepared(ModelUnavailableContext.of(lacks))
    return model


def _check_hosted_tools(run: Run, model: Model) -> ModelUnavailable | None:
    """Return why the model cannot run the hosted tools that the agent asks its provider for; None if it can."""
    hosted, facts, name = run.agent.settings.hosted, facts_of(model), f"{model.provider}:{model.name}"
    if hosted and facts.hosted is not None:
        lack = facts.hosted.lack(hosted, has_tools=bool(run.agent.plan.specs or run.agent.plan.sources))
        if lack is not None:
            return ModelUnavailable(lack[0], model=name, hint=lack[1])
    free = [tool.type for tool in hosted if facts.price is not None and getattr(facts.price, tool.type) is None]
    if free and run.budget.limits_cost:
        hint = f"Give the price of a thousand calls, as in Price(…, {free[0]}=10.0), or remove the limit on cost."
        return ModelUnavailable(
            f"its cost is limited, and its hosted {free[0]} has no known price", model=name, hint=hint
        )
    return None


async def _stop_guard(run: Run) -> StopGuard | None:
    given = run.agent.stop_guard
    if not isinstance(given, PerRun):
        return given
    guard = await _call_maker(run, "stop_guard", given.factory, run.agent.name, run.task)
    if guard is not None and not callable(guard):
        error = f"PerRun made {guard!r}, which is no function"
        raise Unprepared(InternalContext(where="Agent.stop_guard", error=error))
    return cast("StopGuard | None", guard)


async def _run_state(run: Run) -> object:
    make = run.agent.run_state
    if make is None:
        return None

    async def made_state(_: Run) -> object:
        return await _call_maker(run, "run_state", make, await input_for_functions(run))

    try:
        return isolated(await first_state(run, RunStep(key="state", kind="state"), make, made_state), "run")
    except TypeError as error:
        raise Unprepared(InternalContext(where="Agent.run_state", error=name_and_words(error)), error) from error


async def _call_maker(run: Run, where: str, make: Callable[..., object], *given: object) -> object:
    """Return what a function of the agent makes for this run."""
    try:
        value = call_with_deps(run, make, *given)
        return await value if is_awaited(value) else value
    except BaseException as error:
        if not is_failure(error):
            raise
        context = InternalContext(where=f"Agent.{where}", error=name_and_words(error))
        raise Unprepared(context, error) from error


async def _system_texts(run: Run) -> tuple[Text, ...]:
    system = run.agent.plan.system
    if system == "" or system == ():
        return ()
    content = await _make_prompt(run, "system", system, await input_for_functions(run))
    texts = tuple(block for block in content if isinstance(block, Text))
    if len(texts) < len(content):
        raise Unprepared(PromptContext(prompt="system", reason="it holds more than text"))
    return texts


async def _prompt(run: Run, model: Model) -> tuple[UserContent, ...]:
    prompt, given = run.agent.prompt, run.input
    content = await _sendable(model, content_of(run))
    if prompt is not None:
        files = [block for block in content if not isinstance(block, Text)]
        return (*await _make_prompt(run, "user", prompt, await input_for_functions(run)), *files)
    if content:
        return content
    if isinstance(given, str):
        return (Text(given),) if given.strip() else await _make_prompt(run, "user", given, given)
    return (Text((await do_aside(given, run.agent.plan.input.dump)).decode()),)


async def _sendable(model: Model, content: tuple[UserContent, ...]) -> tuple[UserContent, ...]:
    """Return the content of the input as the model takes it: files that it cannot fetch by itself are fetched.

    What cannot be sent ends the run here, with every reason. Of a model that does not say what it takes, everything is
    tried.
    """
    if not content or (media := facts_of(model).media) is None:
        return content
    name = f"{model.provider}:{model.name}"
    # All of them, and here, where nothing is spent yet: a provider names one fault at a time, after the upload.
    issues: list[str] = []
    blocks: list[UserContent] = []
    for number, block in enumerate(content, start=1):
        try:
            blocks.append(block if isinstance(block, Text) else await _accept_file(block, media, model=name))
        except ValueError as error:
            issues.append(f"item {number}, {block.type}: {str(error).rstrip('.')}")
    sources = [block.source for block in blocks if not isinstance(block, Text)]
    sizes = [len(source.data) for source in sources if isinstance(source, Base64)]
    if not issues and media.largest_request_bytes is not None and sum(sizes) > media.largest_request_bytes:
        most = f"at most {media.largest_request_bytes:,} bytes of a request, as Base64"
        issues.append(f"all files together have {sum(sizes):,} bytes, and {name} takes {most}. Send fewer or smaller")
    if issues:
        raise Unprepared(InvalidInputContext(issues=tuple(issues)))
    return tuple(blocks)


async def _accept_file(block: Image | Document | Audio, media: MediaSupport, *, model: str) -> UserContent:
    """Return a file as the model takes it.

    Raises:
        ValueError: it does not, or the file cannot be fetched.
    """
    taken = media.of(block.type)
    if isinstance(block.source, Url) and taken is not None:
        if taken.by_url:
            return block
        # Twice what it takes: so the check behind it sees the real size, and says it, where a tighter limit could only
        # say that it is too large.
        block = await connect_fetch()(block, max_bytes=min(LARGEST_BYTES, 2 * taken.largest_bytes))
    media_type, data = (block.source.media_type, block.source.data) if isinstance(block.source, Base64) else ("", "")
    if (lack := media.lack(block.type, media_type, data, model=model)) is not None:
        raise ValueError(lack)
    return block


async def _make_prompt(
    run: Run, which: Literal["system", "user"], prompt: Prompt | Callable[..., Any], given: object
) -> tuple[UserContent, ...]:
    try:
        value = call_with_deps(run, prompt, given) if callable(prompt) else prompt
        return await make_content(await value if is_awaited(value) else value)
    except PromptFailed as failed:
        raise Unprepared(PromptContext(prompt=which, reason=failed.reason), failed) from failed
    except BaseException as error:
        if not is_failure(error):
            raise
        context = PromptContext(prompt=which, reason=f"it raised {name_and_words(error)}")
        raise Unprepared(context, error) from error


def _list_gates(given: Iterable[object]) -> list[Any]:
    """Return gates, each of which may be none or a list of them."""
    gates: list[Any] = []
    for each in given:
        if each is not None:
            gates += each if is_sequence(each) else [each]
    return gates
