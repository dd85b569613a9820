"""How a run ended, and what its model has read."""

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

from journeyman import Failure, Message, Result, Success, ToolResult

C = TypeVar("C")
Given = TypeVar("Given")


def succeeded(result: Success[Given] | object) -> Success[Given]:
    """Return the result, which must be a success."""
    given: Any = result
    assert isinstance(result, Success), given
    return given


def failed(result: object) -> Failure:
    """Return the result, which must be a failure."""
    assert isinstance(result, Failure), result
    return result


def context_of(result: Result[object], kind: type[C]) -> C:
    """Return the facts of a failure, which must be of this class."""
    context = failed(result).error.context
    assert isinstance(context, kind), context
    return context


def instance_of(kind: type[C], value: object) -> C:
    """Return the value, which must be of this class."""
    assert isinstance(value, kind), value
    return value


def existing(value: Given | None) -> Given:
    """Return the value, which must be there."""
    assert value is not None
    return value


def results_in(messages: Iterable[Message]) -> list[ToolResult]:
    """Return the results of the calls in these messages, in order."""
    return [block for message in messages for block in message.content if isinstance(block, ToolResult)]


def texts(result: Result[Any] | None) -> list[str]:
    """Return what the model of a run has read of its calls."""
    assert result is not None
    return [each.text for each in results_in(result.history)]


async def cancelled(work: asyncio.Future[Any], *, when: asyncio.Event | None = None) -> None:
    """Cancel a task, at once or when an event is set, and wait until it has ended by that."""
    if when is not None:
        await when.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
