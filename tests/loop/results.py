"""What the tests of the loop look for: how a run ended, and what the model read of a call that was not accepted."""

from typing import TypeVar

from journeyman import Failure, Result, Success
from journeyman.endings import Context

C = TypeVar("C")
Given = TypeVar("Given")
SUPERSEDED = "Error: superseded by a later call in the same response."
STOPPED = "Error: the run was stopped before this call finished."


def rejected(total: int) -> str:
    """Return what the model reads when `small` rejects `report(total)`."""
    return f"Validation failed: small\n{total} is too much\n\nCorrect the output and hand it in again."


def succeeded(result: Result[Given]) -> Success[Given]:
    """Return the result, which must be a success."""
    assert isinstance(result, Success), result
    return result


def failed(result: Result[object]) -> Failure:
    """Return the result, which must be a failure."""
    assert isinstance(result, Failure), result
    return result


def context_of(result: Result[object], kind: type[C]) -> C:
    """Return the facts of a failure, which must be of this class."""
    context = failed(result).error.context
    assert isinstance(context, kind), context
    return context


def end_of(result: Result[object]) -> tuple[Context, int, int]:
    """Return the facts of a failure, and the attempt and the iteration in which the run failed."""
    ending = failed(result).error
    return ending.context, ending.attempt, ending.iteration
