"""Everything before the first model call: the input's check, the model, the states, the prompts.

Whatever goes wrong here is an `Ending`. Imports `execution`, `agent`, `connect` and the parts.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Literal

from journeyman.agent import TOOL_NAME, Agent, is_count
from journeyman.budget import Budget, Ledger
from journeyman.cancel import Scope, is_failure
from journeyman.connect import connect
from journeyman.endings import (
    Context,
    Ending,
    InternalContext,
    InvalidInputContext,
    ModelUnavailableContext,
    PromptContext,
)
from journeyman.errors import InvalidArguments, ModelUnavailable, name_and_words
from journeyman.events import Callbacks, Listener, MessageCommitted
from journeyman.gate import Guard, guard_for
from journeyman.history import History
from journeyman.loop.hand_in import hand_in_of
from journeyman.loop.record import Conversation, Execution, Options, current_path, current_run
from journeyman.loop.request import compaction_of, kept_view_of
from journeyman.loop.watch import Watch
from journeyman.model import (
    Model,
    Prefix,
    ToolSpec,
    loads_tools_of,
    max_output_tokens_of,
    price_of,
    sent_tools,
    unpriced,
)
from journeyman.prompt import PromptFailed, made
from journeyman.tools.tools import States
from journeyman.types import JsonObject, Message, RunPath, Text, UserContent

UNKNOWN_MAX_TOKENS = 8_192
"""The longest answer asked for from a model whose maximum is not known."""


class Unprepared(Exception):
    """The run cannot begin. `ending` says why."""

    def __init__(self, context: Context, cause: BaseException | None = None) -> None:
        super().__init__(str(context))
        self.ending = Ending(context, "prompt_generation", cause)


async def prepare(execution: Execution) -> Conversation:
    """Return the conversation, ready for its first model call.

    Raises:
        Unprepared: the run cannot begin.
    """
    await execution.scope.checkpoint()
    _check_history(execution)
    given = _checked_input(execution)
    model = _resolved_model(execution)
    states = States(run=None if execution.agent.run_state is None else await _run_state(execution, given))
    system = await _system(execution, given)
    going_on = execution.options.going_on
    prompt = await _prompt(execution, given) if going_on is None else going_on()
    if prompt:
        execution.history.forget_server_calls()
        execution.history.say(*prompt)
    tools = sent_tools(execution.agent.plan.specs, loads_tools=loads_tools_of(model))
    prefix = Prefix(system=system, tools=tools or _retired_tools(execution.history))
    talk = _conversation(execution, model, prefix, input=given, states=states)
    if talk.guard is not None:
        talk.guard.recall(talk.history.messages, lambda name: name not in talk.tools or talk.tools[name].untrusted)
        talk.guard.hear(prompt)
    return talk


def _retired_tools(history: History) -> tuple[ToolSpec, ...]:
    """Return tools for the calls that an earlier agent left in the history: providers refuse calls without any tool."""
    called = [call.name for message in history.messages for call in message.tool_uses]
    names = {name: None for name in called if TOOL_NAME.fullmatch(name)} or dict.fromkeys(["retired"] if called else [])
    nothing: JsonObject = {"type": "object", "properties": {}}
    return tuple(ToolSpec(name=name, description="No longer available.", input_schema=nothing) for name in names)


def _checked_input(execution: Execution) -> object:
    if not is_count(execution.max_attempts, 1):
        issue = f"max_attempts is {execution.max_attempts!r}, not a whole number of at least 1"
        raise Unprepared(InvalidInputContext(issues=(issue,)))
    try:
        return execution.agent.plan.input.check(execution.input)
    except InvalidArguments as invalid:
        raise Unprepared(InvalidInputContext(issues=invalid.issues), invalid) from invalid


def _check_history(execution: Execution) -> None:
    if execution.wrong_history is not None:
        issue = f"history holds what is no message ({name_and_words(execution.wrong_history)})"
        raise Unprepared(InvalidInputContext(issues=(issue,)), execution.wrong_history)


def _resolved_model(execution: Execution) -> Model:
    model = execution.options.host.model or execution.agent.model
    if isinstance(model, str):
        try:
            model = connect(model)
        except ModelUnavailable as error:
            raise Unprepared(ModelUnavailableContext.of(error), error) from error
    if execution.budget.limits_cost and price_of(model) is None:
        raise Unprepared(ModelUnavailableContext.of(unpriced(model)))
    return model


async def _run_state(execution: Execution, given: object) -> object:
    make = execution.agent.run_state
    try:
        state = None if make is None else make(given)
        return await state if inspect.isawaitable(state) else state
    except BaseException as error:
        if not is_failure(error):
            raise
        context = InternalContext(where="Agent.run_state", error=name_and_words(error))
        raise Unprepared(context, error) from error


async def _system(execution: Execution, given: object) -> tuple[Text, ...]:
    system = execution.agent.system
    if system == "" or system == ():
        return ()
    content = await _made("system", system, given)
    texts = tuple(block for block in content if isinstance(block, Text))
    if len(texts) < len(content):
        raise Unprepared(PromptContext(prompt="system", reason="it holds more than text", attempt=0))
    return texts


async def _prompt(execution: Execution, given: object) -> tuple[UserContent, ...]:
    prompt = execution.agent.prompt
    if prompt is not None:
        return await _made("user", prompt, given)
    if isinstance(given, str):
        return (Text(given),) if given.strip() else await _made("user", given, given)
    return (Text(execution.agent.plan.input.dump(given).decode()),)


async def _made(
    which: Literal["system", "user"], prompt: str | Sequence[Any] | Callable[[Any], Any], given: object
) -> tuple[UserContent, ...]:
    try:
        value = prompt(given) if callable(prompt) else prompt
        return await made(await value if inspect.isawaitable(value) else value)
    except PromptFailed as failed:
        raise Unprepared(PromptContext(prompt=which, reason=failed.reason, attempt=0), failed) from failed
    except BaseException as error:
        if not is_failure(error):
            raise
        context = PromptContext(prompt=which, reason=f"it raised {name_and_words(error)}", attempt=0)
        raise Unprepared(context, error) from error


def _conversation(execution: Execution, model: Model, prefix: Prefix, *, input: object, states: States) -> Conversation:
    agent, host = execution.agent, execution.options.host
    longest = max_output_tokens_of(model) or UNKNOWN_MAX_TOKENS
    compaction = compaction_of(agent.compaction, model)
    return Conversation(
        path=execution.path,
        agent=agent.name,
        input=input,
        model=model,
        prefix=prefix,
        settings=agent.settings,
        limits=agent.limits,
        max_tokens=agent.settings.max_tokens or longest,
        history=execution.history,
        tools=agent.plan.tools,
        default_effect="idempotent" if agent.tools_are_idempotent else "once",
        hand_in=execution.hand_in.tools,
        budget=execution.budget,
        retries=agent.retries if agent.retries is not None else (2 if execution.depth == 0 else 0),
        policies=agent.budget or (),  # None means nothing
        compaction=compaction,
        kept=None if compaction is None else kept_view_of(execution.history, prefix),
        convert=agent.convert,
        guard=_guard(execution),
        middlewares=agent.middlewares,
        journal=host.journal,
        tasks=host.tasks,
        inbox=execution.options.inbox,
        keep=execution.options.keep,
        abort=execution.abort,
        scope=execution.scope,
        watch=execution.watch,
        ledger=execution.ledger,
        above=None if execution.above is None else execution.above.talk,
        max_result_chars=agent.max_result_chars,
        states=states,
        now=execution.now,
        started_s=execution.started_s,
    )


def _guard(execution: Execution) -> Guard | None:
    given = (execution.agent.gate, execution.options.host.gate)
    gates = [gate for each in given if each is not None for gate in (each if isinstance(each, Sequence) else (each,))]
    approve = execution.options.host.approve
    return guard_for(gates, approve, path=execution.path, stop=execution.scope.stop)


def begin(agent: Agent[Any, Any], input: object, options: Options) -> Execution:
    """Open the record of one run. Nothing of it has happened yet."""
    above, origin = current_run.get(), options.origin
    number = 0
    if above is not None:
        number = next(above.numbers) if origin is None or origin.number is None else origin.number
    name = agent.name if origin is None or origin.number is None else f"{agent.name}#{origin.number}"
    path = (*current_path.get(), name)
    clock = asyncio.get_running_loop().time
    now = clock()
    budget = Budget(agent.limits, scope="run", now=now, parent=_budget_above(options.host.budget, above))
    attempts = agent.limits.attempts if options.max_attempts is None else options.max_attempts
    history, wrong_history = _history_of(options.history)
    return Execution(
        agent=agent,
        input=input,
        options=options,
        path=path,
        now=clock,
        started_s=now,
        max_attempts=attempts,
        history=history,
        wrong_history=wrong_history,
        budget=budget,
        scope=_scope(budget, options, above),
        ledger=Ledger(None if above is None else above.ledger),
        watch=_watch(agent, options, path, attempts, above=None if above is None else above.watch),
        hand_in=hand_in_of(agent),
        numbers=options.numbers or count(1),
        above=above,
        number=number,
    )


def _budget_above(given: Budget | None, above: Execution | None) -> Budget | None:
    """Return what a run draws on: its caller's budget, unless the run above draws on that one itself."""
    if above is None:
        return given
    return above.spending if given is None or above.spending.draws_on(given) else given


def _scope(budget: Budget, options: Options, above: Execution | None) -> Scope:
    """Return what stops a run. A deadline of the run above is not its own: that one's scope stops both."""
    inherited = above is not None and budget.parent is not None and budget.parent is above.spending
    deadline = budget.own_deadline if inherited else budget.deadline
    return Scope(options.abort, deadline, above=None if above is None else above.scope)


def _history_of(messages: Sequence[Message] | History) -> tuple[History, Exception | None]:
    """Return the history to go on from: an empty one, and why, if `messages` hold what is no message."""
    if isinstance(messages, History):
        return messages, None
    try:
        return History(messages), None
    except Exception as error:  # noqa: BLE001 - whatever the caller gave
        return History(), error


def _watch(
    agent: Agent[Any, Any], options: Options, path: RunPath, attempts: int, *, above: Watch | None
) -> Watch | None:
    above = above if above is not None and above.is_heard else options.watch_above
    if not options.listeners and options.callbacks is None and agent.on_message is None and above is None:
        return None
    return Watch(
        path=path,
        listeners=options.listeners,
        on_message=None if agent.on_message is None else _message_listener(agent),
        callbacks=options.callbacks or Callbacks(),
        above=above,
        max_attempts=attempts,
        max_iterations=agent.limits.iterations,
    )


def _message_listener(agent: Agent[Any, Any]) -> Listener:
    def on_message(event: object) -> None:
        if isinstance(event, MessageCommitted) and agent.on_message is not None:
            agent.on_message(event.message)

    return on_message
