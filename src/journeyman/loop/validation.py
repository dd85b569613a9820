"""Judging a candidate: its schema, then the agent's validators, each between its two events.

Imports `execution`, `conversation`, `handin` and the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from journeyman.contexts import ValidationContext
from journeyman.endings import Ending
from journeyman.errors import InvalidArguments
from journeyman.events.run import LayerCompleted, LayerStarted
from journeyman.loop.execution import Execution, Layer
from journeyman.loop.hand_in import Candidate
from journeyman.loop.record import Conversation
from journeyman.loop.validation_part import (
    Checking,
    Pristine,
    ValidatorBroken,
    check,
    checking,
    layer_description,
    layer_name,
)
from journeyman.result import LayerOutcome, ValidationReport
from journeyman.tools.schema import OutputSchema

_SCHEMA_LAYER = "schema"
_SCHEMA_DESCRIPTION = "The output must fit its type."


@dataclass(slots=True)
class Verdict:
    """What the layers said of a candidate."""

    report: ValidationReport
    value: Any
    """The output, when all passed."""


async def judge(execution: Execution, talk: Conversation, candidate: Candidate) -> Verdict | Ending:
    """Let one layer after the other judge the candidate, up to the first that does not pass."""
    await talk.scope.checkpoint()
    talk.phase, talk.doing = "validation", "validating the output"
    execution.report = execution.attempt_report = ValidationReport(layers=())
    value: Any = candidate.raw
    try:
        schema = execution.agent.plan.output
        if schema is not None:
            value = await _schema_layer(execution, talk, schema, candidate.raw)
        if execution.agent.validators and execution.attempt_report.passed:
            await _validators(execution, talk, candidate, value)
    except ValidatorBroken as broken:
        context = ValidationContext(layer=broken.layer, reason=broken.reason, attempt=talk.attempt)
        return Ending(context, "validation", broken)
    await talk.scope.checkpoint()
    return Verdict(execution.attempt_report, value)


async def _schema_layer(execution: Execution, talk: Conversation, schema: OutputSchema[Any], raw: str) -> object:
    value: object = None

    async def parse() -> LayerOutcome:
        nonlocal value
        error: InvalidArguments | None = None
        try:
            value = schema.parse(raw)
        except InvalidArguments as invalid:
            error = invalid
        return LayerOutcome(
            name=_SCHEMA_LAYER,
            kind="schema",
            description=_SCHEMA_DESCRIPTION,
            passed=error is None,
            feedback="" if error is None else "\n".join(f"- {issue}" for issue in error.issues),
            error=error,
        )

    await _announced(execution, talk, Layer(_SCHEMA_LAYER, "schema", _SCHEMA_DESCRIPTION, parse))
    return value


async def _validators(execution: Execution, talk: Conversation, candidate: Candidate, value: object) -> None:
    validators: Sequence[Callable[[Any], Any]] = execution.agent.validators
    schema = execution.agent.plan.output
    pristine = None if schema is None else Pristine(value, schema.parse(candidate.raw), schema.dump)
    facts = Checking(input=talk.input, attempt=talk.attempt, max_attempts=execution.max_attempts, abort=talk.abort)
    with checking(facts):
        for validator in validators:
            work = partial(check, validator, value, pristine)
            layer = Layer(layer_name(validator), "validator", layer_description(validator), work)
            if not (await _announced(execution, talk, layer)).passed:
                return


async def _announced(execution: Execution, talk: Conversation, layer: Layer) -> LayerOutcome:
    """Run one layer between its two events. One that is cut short is completed when the run ends."""
    await talk.scope.checkpoint()
    execution.open_layer = layer
    if talk.watch is not None:
        await talk.watch.tell(
            LayerStarted(
                path=talk.path,
                attempt=talk.attempt,
                name=layer.name,
                description=layer.description,
                kind=layer.kind,
            )
        )
    try:
        outcome = await layer.work()
    except ValidatorBroken as broken:
        await complete_layer(execution, talk, layer.cut_short(str(broken), broken))
        raise
    await complete_layer(execution, talk, outcome)
    return outcome


async def complete_layer(execution: Execution, talk: Conversation, outcome: LayerOutcome) -> None:
    """Put what the open layer said into the report, and tell it."""
    execution.open_layer = None
    so_far = execution.attempt_report.layers if execution.attempt_report else ()
    execution.report = execution.attempt_report = ValidationReport(layers=(*so_far, outcome))
    if talk.watch is not None:
        await talk.watch.tell(LayerCompleted(path=talk.path, attempt=talk.attempt, outcome=outcome))
