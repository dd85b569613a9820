"""The port that decides whether a call may happen, asked once for each call, before any effect.

A gate allows, denies, asks a person or program, or rewrites the arguments. Where several gates apply, each can only
narrow what the one before it let through. Imports `types` and, for the declared effects, `tools`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, cast

import orjson

from journeyman.cancel import is_failure
from journeyman.errors import name_and_words
from journeyman.tools import Effect
from journeyman.types import JsonObject


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may happen."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call must not happen; the model reads why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody must decide. Without an approver it is a denial, with this as its reason."""

    question: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The call may happen with other arguments. They are validated again, and the model is told."""

    arguments: JsonObject
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """One call, after its arguments were validated."""

    path: tuple[str, ...]
    """The run that wants it, from the root down."""
    tool_use_id: str
    tool_name: str
    arguments: JsonObject
    """As they will be given to the tool, rewrites of earlier gates included."""
    effect: Effect
    untrusted: bool = False
    """True when the tool's results come from outside."""

    @property
    def input_json(self) -> str:
        """The arguments as JSON."""
        return orjson.dumps(self.arguments).decode()

    @property
    def digest(self) -> str:
        """SHA-256 over tool and arguments: what an approval is bound to."""
        return hashlib.sha256(orjson.dumps([self.tool_name, self.arguments], option=orjson.OPT_SORT_KEYS)).hexdigest()


class Gate(Protocol):
    """Decides about calls."""

    async def decide(self, request: GateRequest) -> Allow | Deny | Ask | Rewrite:
        """Decide about one call. Raising denies it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A question to whoever may answer for this run."""

    request: GateRequest
    question: str
    digest: str
    """Of the request: the answer holds for exactly these arguments."""


Decision: TypeAlias = Allow | Deny | Rewrite
Approver: TypeAlias = Callable[[Approval], Awaitable[Decision]]


async def consult(gates: Sequence[Gate], request: GateRequest, approve: Approver | None) -> GateRequest | Deny:
    """Ask every gate in turn. Return the request as they let it through, or the first denial."""
    for gate in gates:
        try:
            verdict = cast("object", await gate.decide(request))
            if isinstance(verdict, Ask):
                verdict = await _ask(verdict, request, approve)
            if isinstance(verdict, Rewrite):
                request = replace(request, arguments=_json_object(verdict.arguments))
        except BaseException as error:
            if not is_failure(error):
                raise
            return Deny(f"the gate failed: {name_and_words(error)}")
        if isinstance(verdict, Deny):
            return verdict
        if not isinstance(verdict, Allow | Rewrite):
            return Deny(f"the gate gave no verdict, but {type(verdict).__name__}")
    return request


def _json_object(arguments: JsonObject) -> JsonObject:
    """Return the arguments as the tool would read them from JSON."""
    value: object = orjson.loads(orjson.dumps(arguments))
    if not isinstance(value, dict):
        raise TypeError(f"arguments are an object, not {type(arguments).__name__}")
    return cast("JsonObject", value)


async def _ask(ask: Ask, request: GateRequest, approve: Approver | None) -> Decision:
    if approve is None:
        return Deny(ask.question)
    return await approve(Approval(request=request, question=ask.question, digest=request.digest))
