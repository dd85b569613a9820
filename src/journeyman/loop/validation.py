"""Validating a candidate: its schema first, then the agent's validators, in order, up to the first that fails.

A validator only judges. One that changes the output or returns a value is wrong itself, and no new attempt of the
model could fix that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from pydantic_core import from_json

from journeyman.cancellation import is_awaited, is_failure, log_caught
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_group, is_partial
from journeyman.endings import CancelledContext, ErrorInfo, ValidationContext
from journeyman.errors import InvalidArguments, Rejected, place_of, words_of
from journeyman.events import LayerCompleted, LayerStarted
from journeyman.journal import as_json
from journeyman.loop.output_functions import Made, make_output
from journeyman.loop.replay import decide_once
from journeyman.loop.state import Candidate, Checking, Layer, Run, attempt_place, call_with_deps, run_context
from journeyman.output.plan import ArgumentsSchema, OutputMember
from journeyman.result import LayerOutcome, ValidationReport
from journeyman.tools.collection import do_aside
from journeyman.tools.context import own_copy
from journeyman.tools.issues import written_path
from journeyman.tools.redaction import words_without_secrets
from journeyman.tools.schema import OutputSchema
from journeyman.tools.written import quoting

T = TypeVar("T")


@lazy_dataclass(frozen=True)
class _LayerCodec:
    """A codec that stores the verdict of a layer. What a validator raised is not kept: it is no JSON, and nothing reads
    it but the report. Of what may be a bug, the line is kept."""

    doubtful: set[str]
    """Where the validators of this run raised such."""

    def encode(self, value: LayerOutcome) -> bytes:
        said = {"name": value.name, "description": value.description}
        doubt = {"doubtful": [f"{value.name} {place_of(bug)}"]} if (bug := _bug_in(value.error)) is not None else {}
        return as_json({**said, "passed": value.passed, "feedback": value.feedback, **doubt})

    def decode(self, data: bytes) -> LayerOutcome:
        said = from_json(data)
        self.doubtful.update(said.pop("doubtful", ()))
        return LayerOutcome(kind="validator", **said)


SCHEMA_LAYER: Final = "schema"
_BROKEN: Final = (NameError, ImportError, NotImplementedError)
"""No output could raise these: the code that judges is broken."""
_DOUBTFUL: Final = (TypeError, AttributeError, RecursionError)
"""An output may raise these, and so may broken code: twice from the same line, it is the code."""
_SCHEMA_DESCRIPTION = "The output must fit its type."


@lazy_dataclass()
class Verdict:
    """The report of all layers on a candidate, with the output if it passed."""

    report: ValidationReport
    value: Any
    """The output, when all passed."""


_UNJUDGED: Final = ValidationReport(layers=())


async def validate(run: Run, candidate: Candidate) -> Verdict | ErrorInfo:
    """Let one layer after the other judge the candidate, up to the first that does not pass."""
    # Before and after: an abort that fires while validators run must not end as a success.
    await run.scope.checkpoint()
    run.enter("validation", "validating the output")
    run.attempt.report = _UNJUDGED
    value: Any = candidate.raw
    member, stop = candidate.member, None
    validators = (*(() if member is None else member.output.validators), *run.agent.validators)
    try:
        if member is not None:
            value = await _schema_layer(run, member.schema, candidate)
        if validators and run.attempt.report.passed:
            await _validators(run, candidate, value, validators)
        if member is not None and member.function is not None and run.attempt.report.passed:
            value, stop = await _function_layer(run, member, candidate)
    except ValidatorBroken as broken:
        return broken.ending(run)
    if stop is not None:
        return run.ending(CancelledContext(reason=stop, doing=run.attempt.doing))
    await run.scope.checkpoint()
    return Verdict(run.attempt.report, value)


async def _schema_layer(run: Run, schema: OutputSchema[Any] | ArgumentsSchema, candidate: Candidate) -> object:
    value: object = None

    async def parse() -> LayerOutcome:
        nonlocal value
        error: InvalidArguments | None = None
        try:
            value = await do_aside(candidate.raw, schema.parse)
        except InvalidArguments as invalid:
            error = invalid
            if (broken := broken_code(run, SCHEMA_LAYER, invalid.__cause__)) is not None:
                raise broken from invalid.__cause__
        told = "" if error is None else "\n".join(f"- {issue}" for issue in error.issues)
        malformed = None if error is None or candidate.call is None else candidate.call.malformed
        return LayerOutcome(
            name=SCHEMA_LAYER,
            kind="schema",
            description=_SCHEMA_DESCRIPTION,
            passed=error is None,
            feedback=quoting(told, malformed, may_be_quoted=schema.may_be_quoted),
            error=error,
        )

    await _run_layer(run, Layer(SCHEMA_LAYER, "schema", _SCHEMA_DESCRIPTION, parse))
    return value


async def _function_layer(run: Run, member: OutputMember, candidate: Candidate) -> tuple[object, str | None]:
    """Let the function make the output; return that, and why it stops the run, if it does."""
    made: Made | None = None
    about = "" if member.function is None else member.function.description.partition("\n")[0]

    async def make() -> LayerOutcome:
        nonlocal made
        try:
            made = await make_output(run, member, candidate)
        except InvalidArguments as wrong:
            # Not told to the model: the effect has happened, and only the function's author can put that right.
            raise ValidatorBroken(member.name, f"made no such output as it declares: {wrong}") from wrong
        error = made.outcome.error
        feedback = "" if error is None else made.outcome.result.text
        return LayerOutcome(
            name=member.name, kind="function", description=about, passed=error is None, feedback=feedback
        )

    await _run_layer(run, Layer(member.name, "function", about, make))
    return (None, None) if made is None else (made.value, made.outcome.stop)


async def _validators(run: Run, candidate: Candidate, value: object, validators: Sequence[Callable[..., Any]]) -> None:
    schema = None if candidate.member is None else candidate.member.schema
    # Of the same source a second time: a copy of a value that users define may share parts with it, or be impossible.
    copied = None if schema is None else await do_aside(candidate.raw, schema.parse)
    pristine = None if schema is None else await do_aside(value, lambda _: Pristine(value, copied, schema.dump))
    # The input is a copy: a validator that changes what it is given must not change what the next one sees.
    given = await do_aside(run.input, own_copy)
    facts = Checking(input=given, attempt=run.attempt.number, max_attempts=run.max_attempts, abort=run.abort)
    run.attempt.checking = facts
    try:
        for number, validator in enumerate(validators):
            step = run.attempt.outer_step("verdict", f"verdict/{number}")
            judged = partial(_judge_value, validator, value, pristine)
            work = partial(decide_once, run, step, judged, codec=_LayerCodec(run.doubtful))
            layer = Layer(layer_name(validator), "validator", layer_description(validator), work)
            if not (await _run_layer(run, layer)).passed:
                return
    finally:
        run.attempt.checking = None


async def _judge_value(
    validator: Callable[..., Any], value: object, pristine: Pristine[Any] | None, run: Run
) -> LayerOutcome:
    outcome = await run_validator(run, validator, value, pristine)
    broken = broken_code(run, outcome.name, outcome.error)
    if broken is not None:
        raise broken from outcome.error
    return outcome


async def _run_layer(run: Run, layer: Layer) -> LayerOutcome:
    """Run one layer between its two events. One that is cut short is completed when the run ends."""
    await run.scope.checkpoint()
    run.attempt.open_layer = layer
    about = layer.description
    await run.tell(lambda: LayerStarted(**attempt_place(run), name=layer.name, description=about, kind=layer.kind))
    try:
        outcome = await layer.work()
    except ValidatorBroken as broken:
        # Told before it is raised: each layer that has begun also ends, for those who draw it.
        await complete_layer(run, layer.cut_short(str(broken), broken))
        raise
    await complete_layer(run, outcome)
    return outcome


async def complete_layer(run: Run, outcome: LayerOutcome) -> None:
    """Put what the open layer said into the report, and tell it."""
    run.attempt.open_layer = None
    so_far = run.attempt.report.layers if run.attempt.report else ()
    run.attempt.report = ValidationReport(layers=(*so_far, outcome))
    await run.tell(lambda: LayerCompleted(**attempt_place(run), outcome=outcome))


def validation_context() -> Checking:
    """Return what a running validator may know besides the output.

    Raises:
        LookupError: no validator is running here.
    """
    run = run_context.get().run
    while run is not None:
        if run.attempt.checking is not None:
            return run.attempt.checking
        run = run.above
    raise LookupError("No validator is running here.")


class ValidatorBroken(Exception):
    """A validator did what no validator may do, or is broken itself."""

    def __init__(self, layer: str, reason: str) -> None:
        super().__init__(f"Validator {layer!r} {reason}.")
        self.layer = layer
        self.reason = reason

    def ending(self, run: Run) -> ErrorInfo:
        """Return the end of the run that this is."""
        return run.ending(ValidationContext(layer=self.layer, reason=self.reason), self.__cause__ or self)


def broken_code(run: Run, layer: str, error: BaseException | None) -> ValidatorBroken | None:
    """Say that a layer which raised is broken, if it is; None if it only does not like the output.

    What may be a bug is logged, and the run remembers the line: it is one, when the same line raises once more.
    """
    bug = _bug_in(error)
    if bug is None:
        return None
    line = f"{layer} {place_of(bug)}"
    if isinstance(bug, _DOUBTFUL) and line not in run.doubtful:
        run.doubtful.add(line)
        log_caught(f"{run.path[-1]}: the validator {layer}", bug)
        return None
    times = " again" if isinstance(bug, _DOUBTFUL) else ""
    place = place_of(bug) or place_of(error or bug)
    broken = ValidatorBroken(layer, f"raised {words_without_secrets(bug)}{times}{place and f', at {place}'}")
    broken.__cause__ = error
    return broken


def _bug_in(error: BaseException | None) -> BaseException | None:
    """Return what was raised, or the first of a group, that judges no output but shows a bug."""
    if is_group(error):
        inner = error.exceptions
        return next((bug for each in inner if (bug := _bug_in(each)) is not None), None)
    return error if isinstance(error, (*_BROKEN, *_DOUBTFUL)) else None


class Pristine(Generic[T]):
    """The state of an output before any validator saw it, to tell afterwards whether one has changed it."""

    def __init__(self, value: T, copy: T, dump: Callable[[T], bytes]) -> None:
        """`copy` is a second value made of the same source; `dump` gives the bytes of one."""
        self._value = value
        self._copy = copy
        self._dump = dump
        self._dumped = dump(value)
        self._compares = self._equal()
        """False for types that compare by identity, or hold what is never equal."""

    def is_changed(self) -> bool:
        """Tell whether the value is no longer what it was."""
        # Both are needed: bytes miss what a serializer leaves out, and equality misses what compares by identity.
        return self._dump(self._value) != self._dumped or (self._compares and not self._equal())

    def _equal(self) -> bool:
        try:
            return bool(self._value == self._copy)
        except Exception:  # noqa: BLE001 - a stranger's `__eq__`
            return False


async def run_validator(
    run: Run, validator: Callable[..., object], value: T, pristine: Pristine[T] | None
) -> LayerOutcome:
    """Let one validator judge `value`. `pristine` sees whether it changed; None for values that cannot change.

    Raises:
        ValidatorBroken: it changed the value, or returned something.
    """
    name = layer_name(validator)
    error = await _catch_rejection(partial(call_with_deps, run, validator), value, name)
    if pristine is not None and await do_aside(value, lambda _: pristine.is_changed()):
        raise ValidatorBroken(name, "changed the output; validators only judge")
    return LayerOutcome(
        name=name,
        kind="validator",
        description=layer_description(validator),
        passed=error is None,
        feedback="" if error is None else feedback_of(error),
        error=error,
    )


async def _catch_rejection(judge: Callable[[T], object], value: T, name: str) -> BaseException | None:
    try:
        verdict = judge(value)
        if is_awaited(verdict):
            verdict = await verdict
    except BaseException as error:
        if not is_failure(error):
            raise
        return error
    # A returned value looks as if it were used. It is not, so it is refused rather than lost.
    if verdict is not None:
        raise ValidatorBroken(name, f"returned {type(verdict).__name__}; it must raise to reject, and return nothing")
    return None


def feedback_of(error: BaseException) -> str:
    """Return what the model is told about `error`: its text, or its class if it has none."""
    if is_group(error):
        inner = error.exceptions
        return "\n".join(feedback_of(each) for each in inner)
    text = words_of(error) or type(error).__name__
    if isinstance(error, Rejected) and error.path:
        return f"{written_path(error.path)}: {text}"
    return text


def _judging(validator: Callable[..., object]) -> Callable[..., object]:
    """Return the function that judges, beneath partials and the like."""
    while True:
        if is_partial(validator):
            validator = validator.func
        elif isinstance(validator, validator_from):
            validator = cast("validator_from[object]", validator).checker
        else:
            return validator


def layer_name(validator: Callable[..., object]) -> str:
    """Return the name by which events and the model know the validator."""
    validator = _judging(validator)
    return getattr(validator, "__name__", None) or type(validator).__name__


def layer_description(validator: Callable[..., object]) -> str:
    """Return the first line of the validator's docstring."""
    validator = _judging(validator)
    # Of an object without a name, `getdoc` finds the docstring of its class, which is about all of them.
    doc = inspect.getdoc(validator) if hasattr(validator, "__name__") else ""
    return (doc or "").partition("\n")[0]


@lazy_dataclass(frozen=True)
class validator_from(Generic[T]):
    """Make a validator of a function that returns the value or raises: its return value is not used."""

    checker: Callable[[T], object]
    """The function that checks."""

    @property
    def __name__(self) -> str:
        return layer_name(self.checker)

    async def __call__(self, value: T) -> None:
        outcome = self.checker(value)
        if is_awaited(outcome):
            await outcome
