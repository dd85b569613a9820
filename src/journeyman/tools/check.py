"""Checks of what a caller gives: functions with their arguments, numbers, words of a list, limits and settings.

Nothing here raises: a check gives the problems that it found, and whoever asked refuses with all of them at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, Final, cast, get_args

from journeyman.budget import Budget, Limits
from journeyman.cancellation import Abort
from journeyman.definition.narrowing import is_list_of_texts, is_list_or_tuple, is_mapping
from journeyman.definition.problems import (
    COUNT,
    Kind,
    Problem,
    field_problems,
    is_a,
    is_amount,
    is_count,
    is_zero_or_amount,
    meant,
    none_or,
    value_problems,
    write_value,
)
from journeyman.errors import name_and_words
from journeyman.events import CALLBACKS, Callbacks
from journeyman.hosted.tools import HostedToolSupport, hosted_problems
from journeyman.model import UNKNOWN, CachePolicy, ModelSettings, ThinkingLevel, ToolChoice
from journeyman.types import Message


def n_taken(function: object, most: int) -> int | None:
    """Return how many arguments, up to `most`, can be given to `function` in order; None if `most` must be given more,
    or cannot be told for sure."""
    try:
        signature = inspect.signature(cast("Any", function))
    except (TypeError, ValueError, NameError):  # built-in functions do not all tell
        return most
    for n in range(most, -1, -1):
        try:
            signature.bind(*range(n))
        except TypeError:
            continue
        return n
    return None


def function_problem(
    what: str, function: object, takes: str, *, n: int = 1, least: int | None = None, code: str = "INVALID_FUNCTION"
) -> Iterator[Problem]:
    """Give what is wrong with a function that is called with `n` arguments, or with as few as `least`."""
    if not callable(function):
        yield Problem(code, f"{what} is {function!r}, not a function.", f"Pass a function of {takes}.")
        return
    taken = n_taken(function, n)
    if taken is None or taken < (n if least is None else least):
        name = getattr(function, "__qualname__", None) or repr(function)
        yield Problem(code, f"{what}, {name}, cannot be called with {takes}.", f"Let it take {takes}, and no more.")


def lacking(what: str, value: object, *names: str, hint: str) -> Iterator[Problem]:
    """Give a problem if `value` is not None, and lacks one of these methods or facts."""
    try:
        is_wrong = isinstance(value, type) or not all([hasattr(value, name) for name in names])
        shown = repr(value) if is_wrong else ""
    except Exception as error:  # noqa: BLE001 - a property of a stranger's class
        raised = f"{what} is a {type(value).__name__} that raised {name_and_words(error)} when it was looked at."
        yield Problem("INVALID_ARGUMENT", raised, hint)
        return
    if value is not None and is_wrong:
        yield Problem("INVALID_ARGUMENT", f"{what} is {shown}.", hint)


def gate_problems(what: str, gate: object) -> Iterator[Problem]:
    """Give what is wrong with a gate, or with several."""
    for each in gate if is_list_or_tuple(gate) else (gate,):
        yield from lacking(what, each, "decide", hint="Pass a gate, such as Permission(…), or a list of gates.")


def model_problems(what: str, model: object) -> Iterator[Problem]:
    """Give what is wrong with a model that takes the place of an agent's."""
    hint = "Pass a model, such as connect('provider:name') gives."
    yield from lacking(what, model, "stream", "provider", "name", hint=hint)


def signal_problems(abort: object) -> Iterator[Problem]:
    """Give what is wrong with the signal of a run."""
    if abort is not None and not isinstance(abort, Abort):
        yield Problem("INVALID_ARGUMENT", f"abort is {abort!r}.", "Pass an Abort(), and call its abort() to stop.")


def callback_problems(given: object) -> Iterator[Problem]:
    """Give what is wrong with the callbacks of a run."""
    if given is None:
        return
    if not isinstance(given, Callbacks):
        hint = "Pass Callbacks(on_tool_call=…), or on_event= for every event."
        yield Problem("INVALID_ARGUMENT", f"callbacks is {given!r}.", hint)
        return
    for name in [each.name for each in fields(given)]:
        callback = getattr(given, name)
        n, takes = CALLBACKS[name]
        if callback is not None:
            yield from function_problem(f"Callbacks.{name}", callback, takes, n=n, code="INVALID_ARGUMENT")


def listener_problems(given: object) -> Iterator[Problem]:
    """Give what is wrong with a listener."""
    if not callable(given):
        yield Problem("INVALID_ARGUMENT", f"on_event is {given!r}.", "Pass a function of an event.")
    yield from async_problems("on_event", given)


def async_problems(what: str, given: object, *, code: str = "INVALID_ARGUMENT") -> Iterator[Problem]:
    """Give a problem if a function that is called, and not awaited, is `async def`."""
    call = getattr(given, "__call__", None)  # noqa: B004 - what it does is asked for, not whether it is there
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(call):
        name = getattr(given, "__qualname__", None) or repr(given)
        hint = "It is called, and not awaited: pass a plain function (def). What is awaited goes into Callbacks(…)."
        yield Problem(code, f"{what}, {name}, is an async function.", hint)


def block_problems(what: str, given: object, kinds: type | UnionType) -> Iterator[Problem]:
    """Give what is no block of content in a list of them."""
    for place, block in enumerate(given if is_list_or_tuple(given) else ()):
        if not isinstance(block, kinds):
            hint = f"Pass Text({block!r})." if isinstance(block, str) else "Pass blocks such as Text(…)."
            yield Problem("INVALID_PROMPT", f"{what}[{place}] is {block!r}, not a block.", hint)


_SOME_COUNT: Final[Kind] = (none_or(is_count), COUNT[1])
_SOME_AMOUNT: Final[Kind] = (none_or(is_amount), "Pass a finite number above 0.")
_SPENDING: Final = {"tokens": _SOME_COUNT, "calls": _SOME_COUNT, "seconds": _SOME_AMOUNT, "cost": _SOME_AMOUNT}
_LIMITS: Final[Mapping[str, Kind]] = {
    **{"extended_max_tokens": _SOME_COUNT, "tool_failures": _SOME_COUNT, "result_chars": _SOME_COUNT},
    "approval_seconds": _SOME_AMOUNT,
    "whole_responses": (is_a(bool), "Pass True or False."),
    **_SPENDING,
}
_BUDGET: Final[Kind] = (none_or(is_a(Budget)), "Pass a Budget(tokens=…, cost=…, seconds=…, calls=…).")
_RETRIES: Final[Kind] = (none_or(lambda value: is_count(value, 0)), "Pass a whole number of at least 0.")
_POLICIES: Final[Kind] = (is_list_or_tuple, "Pass a list of policies.")


def limits_problems(limits: Limits) -> Iterator[Problem]:
    """Give what is wrong with the limits of an agent."""
    yield from value_problems("INVALID_MAX_ATTEMPTS", "limits.attempts", limits.attempts, COUNT)
    yield from value_problems("INVALID_MAX_ITERATIONS", "limits.iterations", limits.iterations, COUNT)
    yield from value_problems("INVALID_MAX_CONCURRENCY", "limits.max_concurrency", limits.max_concurrency, COUNT)
    yield from field_problems("INVALID_LIMIT", "limits.", limits, _LIMITS)
    yield from budget_problems("limits.per_attempt", limits.per_attempt, code="INVALID_LIMIT")
    if isinstance(limits.per_attempt, Budget) and limits.per_attempt.parent is not None:
        hint = "Leave parent= out: each attempt draws on the budget of its run."
        yield Problem("INVALID_LIMIT", "limits.per_attempt has a parent.", hint)
    yield from value_problems("INVALID_RETRIES", "limits.request_retries", limits.request_retries, _RETRIES)
    yield from value_problems("INVALID_LIMIT", "limits.budget_policies", limits.budget_policies, _POLICIES)
    for policy in limits.budget_policies if is_list_or_tuple(limits.budget_policies) else ():
        hint = "Pass objects with a name and a check(spent), or use Limits."
        yield from lacking("A policy of limits.budget_policies", policy, "name", "check", hint=hint)


def budget_problems(where: str, budget: object, *, code: str = "INVALID_ARGUMENT") -> Iterator[Problem]:
    """Give what is wrong with a budget, where there may be one."""
    yield from value_problems(code, where, budget, _BUDGET)
    if isinstance(budget, Budget):
        yield from field_problems(code, f"{where}.", budget, _SPENDING)


_CHOICES_ELSEWHERE: Final = {
    "required": "any",  # OpenAI's word
    "xhigh": "max",
    "none": "off",
    "disabled": "off",
    "ephemeral": "auto",
    "on": "auto",
    "yes": "auto",
    "no": "off",
}
"""What other libraries and providers call these."""


def _choice(name: str, value: object, words: Sequence[str], *, code: str, also: str = "") -> Iterator[Problem]:
    if value in words:
        return
    listed = ", ".join(map(repr, words))
    elsewhere = {word: here for word, here in _CHOICES_ELSEWHERE.items() if here in words}
    hint = meant(value, words, elsewhere) if isinstance(value, str) else ""
    yield Problem(code, f"settings.{name} is {value!r}.{hint}", f"Pass one of {listed}{also}.")


_SAMPLING: Final[Mapping[str, Kind]] = {
    "temperature": (none_or(is_zero_or_amount), "Pass a finite number of at least 0."),
    "top_p": (
        none_or(lambda share: is_zero_or_amount(share) and cast("float", share) <= 1),
        "Pass a number from 0 to 1.",
    ),
    "seed": (none_or(lambda seed: isinstance(seed, int) and not isinstance(seed, bool)), "Pass a whole number."),
}
_EXTRA: Final[Kind] = (is_mapping, "Pass a dict of further fields of the request.")


def settings_problems(settings: ModelSettings, model: object, *, has_tools: bool) -> Iterator[Problem]:
    """Give what is wrong with how a model is asked, as far as the model is known."""
    yield from value_problems("INVALID_MAX_TOKENS", "settings.max_tokens", settings.max_tokens, _SOME_COUNT)
    thinking: object = settings.thinking
    if thinking is not None and not is_count(thinking):
        yield from _choice(
            "thinking", thinking, get_args(ThinkingLevel), code="INVALID_THINKING", also=", or a budget of tokens"
        )
    yield from _choice("tool_choice", settings.tool_choice, get_args(ToolChoice), code="INVALID_TOOL_CHOICE")
    yield from _choice("cache", settings.cache, get_args(CachePolicy), code="INVALID_CACHE")
    yield from field_problems("INVALID_SAMPLING", "settings.", settings, _SAMPLING)
    stops: object = settings.stop
    if not (is_list_of_texts(stops) and all(stops)):
        wanted = f"({stops!r},)" if isinstance(stops, str) and stops else '("END",)'
        hint = f"Pass a tuple of texts that are not empty: {wanted}."
        yield Problem("INVALID_STOP", f"settings.stop is {stops!r}.", hint)
    wrong = [*hosted_problems(settings.hosted)]
    yield from wrong
    hosting: HostedToolSupport | None = getattr(getattr(model, "facts", UNKNOWN), "hosted", None)
    if not wrong and hosting is not None and (lack := hosting.lack(settings.hosted, has_tools=has_tools)):
        named = f"{getattr(model, 'provider', '')}:{getattr(model, 'name', '')}"
        yield Problem("NOT_HOSTED", f"The model {named} cannot be asked: {lack[0]}.", lack[1])
    yield from value_problems("INVALID_EXTRA", "settings.extra", settings.extra, _EXTRA)


def section_hint(name: str, value: object, kinds: tuple[type, ...]) -> str:
    """Say what to write for something that is of no use in the section `name` of an agent."""
    if name == "tools" and (hint := tools_hint(value)):
        return hint
    if name == "tools" and inspect.isfunction(value):
        return f"Write tools=[tool({write_value(value)})]."
    if list in kinds and not is_mapping(value) and (callable(value) or isinstance(value, str)):
        return f"Write {name}=[{write_value(value)}]."
    wanted = kinds[0].__name__
    if name == "output":
        members = value if is_list_or_tuple(value) else (value,)
        is_known = members and all([isinstance(each, type) or inspect.isroutine(each) for each in members])
        made = f"{'Output' if len(members) == 1 else 'OneOf'}({', '.join(map(write_value, members))})"
        return f"Write output={made}." if is_known else "Leave it out, or Output(…)."
    if is_mapping(value) and all([isinstance(each, str) for each in value]):
        return f"Write {name}={wanted}({', '.join([f'{n}={write_value(each)}' for n, each in value.items()])})."
    return f"Leave it out, or pass {' or '.join([kind.__name__ for kind in kinds])}."


def history_problem(given: object, error: Exception) -> Problem:
    """Return what is wrong with a history that holds what is no message."""
    every = given if is_list_or_tuple(given) else ()
    strangers = [(n, each) for n, each in enumerate(every) if not isinstance(each, Message)]
    if not strangers:
        held = f"history is {write_value(given)}" if isinstance(given, str) else f"history cannot be read ({error})"
        return Problem("INVALID_ARGUMENT", held, "Pass messages, such as the history of a result.")
    n, wrong = strangers[0]
    fields: Mapping[object, object] = wrong if is_mapping(wrong) else {}
    role, content = fields.get("role"), fields.get("content")
    if role in ("user", "assistant") and isinstance(content, str):
        hint = f"Write Message({role!r}, (Text({write_value(content)}),))."
    else:
        hint = "Pass messages, such as the history of a result, or load_messages(…) of those that were stored."
    held = f"history[{n}] is {write_value(wrong)}, which is not a message"
    return Problem("INVALID_ARGUMENT", held, hint)


def tools_hint(value: object) -> str:
    """Say what to do with something that stands where tools do; empty where that is not known."""
    if hasattr(value, "spec") or hasattr(value, "plan"):
        return "Pass a list of tools; an agent among them as Subagents(agent)."
    if hasattr(value, "__aenter__"):
        return "Enter it: 'async with mcp(…) as tools:', and make the agent inside the block, with tools=tools."
    return ""
