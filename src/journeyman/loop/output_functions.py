"""The function that makes an output of what the model handed in. It is called once for an output that passed, and is a
call as that of a tool is: gates, middlewares, limits of time and the journal see it, and its effect is respected.
"""

from __future__ import annotations

import logging
from typing import Final

from journeyman.definition.data import lazy_dataclass
from journeyman.errors import InvalidArguments
from journeyman.journal import NO_JOURNAL, about_call
from journeyman.loop.calls import (
    DECIDED,
    Arguments,
    call_through_gates,
    effect_of,
    execute_handler,
    recall_outcome,
    settle_outcome,
)
from journeyman.loop.state import Candidate, Outcome, Run, StepTally, wait_while_held
from journeyman.output.plan import OutputMember
from journeyman.tools.collection import do_aside
from journeyman.tools.exact import StoredValue, load_value, store_value
from journeyman.tools.tools import AnyTool, watch_calls
from journeyman.types import ToolUse

_log = logging.getLogger("journeyman")
_NOT_CALLED: Final = "Error: the function was not called, so there is no output. {told}"


@lazy_dataclass()
class Made:
    """The outcome of the function's call, and the output that it made."""

    outcome: Outcome
    value: object = None
    """The output, when the outcome is no failure."""


async def make_output(run: Run, member: OutputMember, candidate: Candidate) -> Made:
    """Call the function of an output, or take what came of it in an earlier life of the run.

    Raises:
        InvalidArguments: it returned what is not of the type that it declares.
    """
    function = member.function
    if function is None:
        raise AssertionError(f"The output {member.name!r} has no function.")
    run.attempt.doing = f"making the output with {member.name}"
    id = f"output-{run.attempt.number}" if candidate.call is None else candidate.call.id
    use = ToolUse(id, member.name, candidate.raw)
    step, effect = run.attempt.outer_step("call", "output"), effect_of(run, function)
    place = run.options.journal.reserve(step, effect=effect, about=lambda: about_call(use))
    returned: list[object] = []
    kept: list[object] = []

    async def execute(run: Run, function: AnyTool, use: ToolUse, arguments: Arguments) -> Outcome:
        outcome = await execute_handler(run, watch_calls(function, returned.append), use, arguments)
        if outcome.error is not None:
            return outcome
        if not returned:  # a middleware answered instead
            return Outcome.failure("raised", _NOT_CALLED.format(told=outcome.result.text))
        kept.append(await do_aside(returned[-1], member.made.check))
        outcome.made = None if place is NO_JOURNAL else await _store(member, kept[0])
        return outcome

    with StepTally(run, run.calls.tally, hands_in=True):
        if place.is_known:
            outcome = await recall_outcome(run, use, place)
        else:
            await wait_while_held(run)
            outcome = await call_through_gates(run, function, use, place, execute=execute)
            if outcome.error in DECIDED:
                await settle_outcome(run, place, outcome)
    if kept or outcome.made is None:
        return Made(outcome, kept[0] if kept else None)
    return Made(outcome, (await load_value(member.made, outcome.made)).value)


async def _store(member: OutputMember, value: object) -> StoredValue:
    try:
        return await store_value(member.made, value)
    except InvalidArguments as error:
        _log.warning(
            "The output of %s is stored as its JSON, which may be read as another value: %s", member.name, error
        )
        return StoredValue(member.made.dump(value).decode())
