"""Judging a candidate: its schema, then the agent's validators, each announced. Imports `conversation`, `handin` and
the parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from journeyman.agent import Agent
from journeyman.contexts import ValidationContext
from journeyman.conversation import Conversation
from journeyman.endings import Ending
from journeyman.errors import InvalidArguments
from journeyman.events import LayerCompleted, LayerStarted
from journeyman.handin import Candidate
from journeyman.result import LayerOutcome, ValidationReport
from journeyman.schema import OutputSchema
from journeyman.validation import Checking, ValidatorBroken, check, checking, layer_description, layer_name

_SCHEMA_LAYER = "schema"
_SCHEMA_DESCRIPTION = "The output must fit its type."


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the layers said of a candidate."""

    report: ValidationReport
    value: Any
    """The output, when all passed."""


async def judge(
    agent: Agent[Any, Any], talk: Conversation, candidate: Candidate, max_attempts: int
) -> Verdict | Ending:
    """Let one layer after the other judge the candidate, up to the first that does not pass."""
    talk.phase, talk.doing = "validation", "validating the output"
    facts = Checking(input=talk.input, attempt=talk.attempt, max_attempts=max_attempts, abort=talk.abort)
    outcomes: list[LayerOutcome] = []
    value: Any = candidate.raw
    try:
        with checking(facts):
            if agent.plan.output is not None:
                outcome, value = await _schema_layer(talk, agent.plan.output, candidate.raw)
                outcomes.append(outcome)
            if all(outcome.passed for outcome in outcomes):
                await _validators(agent, talk, value, outcomes)
    except ValidatorBroken as broken:
        context = ValidationContext(layer=broken.layer, reason=broken.reason, attempt=talk.attempt)
        return Ending(context, "validation", broken)
    return Verdict(ValidationReport(layers=tuple(outcomes)), value)


async def _schema_layer(talk: Conversation, schema: OutputSchema[Any], raw: str) -> tuple[LayerOutcome, object]:
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

    outcome = await _announced(talk, _SCHEMA_LAYER, "schema", _SCHEMA_DESCRIPTION, parse)
    return outcome, value


async def _validators(agent: Agent[Any, Any], talk: Conversation, value: object, outcomes: list[LayerOutcome]) -> None:
    schema = agent.plan.output
    dump: Callable[[Any], bytes] = schema.dump if schema is not None else lambda text: text.encode(errors="replace")
    validators: Sequence[Callable[[Any], Any]] = agent.validators
    for validator in validators:
        name, description = layer_name(validator), layer_description(validator)
        work = check_work(validator, value, dump)
        outcome = await _announced(talk, name, "validator", description, work)
        outcomes.append(outcome)
        if not outcome.passed:
            return


def check_work(
    validator: Callable[[Any], Any], value: object, dump: Callable[[Any], bytes]
) -> Callable[[], Awaitable[LayerOutcome]]:
    """Return what lets one validator judge."""
    return lambda: check(validator, value, dump=dump)


async def _announced(
    talk: Conversation, name: str, kind: str, description: str, work: Callable[[], Awaitable[LayerOutcome]]
) -> LayerOutcome:
    await talk.scope.checkpoint()
    if talk.watch is not None:
        await talk.watch.tell(
            LayerStarted(path=talk.path, attempt=talk.attempt, name=name, description=description, kind=kind)
        )
    outcome = await work()
    if talk.watch is not None:
        await talk.watch.tell(LayerCompleted(path=talk.path, attempt=talk.attempt, outcome=outcome))
    return outcome
