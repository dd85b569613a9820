"""What comes of one call, before it is staged; and how a journal keeps it. Imports `tools` and `types`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from journeyman.tools.tool import States
from journeyman.types import Text, ToolResult


@dataclass(slots=True)
class Outcome:
    """The result of a call, and how it came about."""

    result: ToolResult
    error: str | None = None
    """The kind of failure, as `ToolStats.errors` counts it; None for a success."""
    cached: bool = False

    @classmethod
    def failed(cls, error: str, text: str) -> Outcome:
        """Return the outcome of a call that was not made, or failed: the model reads `text`."""
        return cls(ToolResult(text, is_error=True), error)

    def noting(self, note: str) -> Outcome:
        """Return this with a note to the model in front of the result."""
        content = self.result.content
        noted = f"{note}\n{content}" if isinstance(content, str) else (Text(note), *content)
        return replace(self, result=replace(self.result, content=noted))


@dataclass(frozen=True, slots=True)
class _Stored:
    """One call in a journal: what came of it, and the states it left."""

    result: ToolResult
    error: str | None = None
    run: Any = None
    attempt: Any = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class OutcomeCodec:
    """Stores a call's outcome together with the states it left, and puts those back when it is read."""

    states: States

    def encode(self, value: Outcome) -> bytes:
        stored = _Stored(value.result, value.error, self.states.run, self.states.attempt, value.cached)
        return _stored().dump_json(stored)

    def decode(self, data: bytes) -> Outcome:
        stored = _stored().validate_json(data)
        self.states.run = _like(self.states.run, stored.run)
        self.states.attempt = _like(self.states.attempt, stored.attempt)
        return Outcome(stored.result, stored.error, stored.cached)


@cache
def _stored() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


def _like(state: object, stored: object) -> object:
    return TypeAdapter[object](type(state)).validate_python(stored)
