"""Carries out what people do in the viewer: they speak to runs, and delete them.

Texts and answers go through the signals of the store, so a run may be in any process.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from journeyman.durable.durable import Durable
from journeyman.errors import RunOver, RunUnknown
from journeyman.gate import Allow, Decision, Deny, Extent, Rewrite
from journeyman.inbox.signals import SAID, SignalHandle
from journeyman.machine.environment import somebody
from journeyman.record.operator import RecordedSignals
from journeyman.record.reading import RecordedRun, Recordings
from journeyman.types import JsonObject

_REMEMBERED: Final = 1_000
_EXTENTS: Final[dict[str, Extent]] = {"once": "once", "run": "session", "session": "session", "always": "always"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A request that somebody sends to a run: an answer, an approval, a text, or a command such as `stop`."""

    kind: Literal["approve", "answer", "steer", "follow_up", "hold", "release", "stop", "withdraw"]
    idempotency_key: str
    """A second one with the same changes nothing."""
    question_id: str = ""
    decision: Literal["allow", "deny"] | None = None
    arguments: JsonObject | None = None
    extent: Literal["once", "run", "session", "always"] = "once"
    text: str = ""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringAnswer:
    """The answer to such a request: whether it was taken, and what was done or decided."""

    status: Literal["taken", "known", "over"]
    """`known`: somebody has decided already; `over`: the run has ended."""
    told: str
    """What was done or decided, by whom and when, as one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwanted:
    """A request to delete runs from the store."""

    runs: Annotated[list[str], Field(min_length=1)]
    """The ids of the runs."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)


class Steering:
    """Says things to the runs of one store, and forgets them."""

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self._open = AsyncExitStack()
        self._durable: Durable | None = None
        self._recordings: Recordings | None = None
        self._alone = asyncio.Lock()
        self._answers: OrderedDict[tuple[str, str, str], SteeringAnswer] = OrderedDict()
        """What was answered to the last ones: a second click is answered as the first was."""

    async def close(self) -> None:
        """Close what was opened, once nobody opens anything any more."""
        async with self._alone:
            await self._open.aclose()

    async def say(self, id: str, given: Given, *, is_durable: bool) -> SteeringAnswer:
        """Say something to a run; a `ValueError` if it is empty, or this run takes no such words."""
        key = id, given.kind, given.idempotency_key
        async with self._alone:
            if key not in self._answers:
                handle: SignalHandle
                if is_durable:
                    handle = await (await self._runs()).get(id)
                else:
                    recordings = self._open_recordings()
                    handle = SignalHandle(id, RecordedSignals(recordings, await asyncio.to_thread(recordings.find, id)))
                try:
                    self._answers[key] = SteeringAnswer(status="taken", told=await _carry_out(handle, given))
                except RunOver as over:
                    self._answers[key] = SteeringAnswer(status="over", told=str(over))
                except RunUnknown as unknown:
                    raise LookupError(str(unknown)) from unknown
                except LookupError as known:
                    self._answers[key] = SteeringAnswer(status="known", told=str(known.args[0]))
            while len(self._answers) > _REMEMBERED:
                self._answers.popitem(last=False)
            return self._answers[key]

    async def forget(self, recordings: Sequence[RecordedRun], durable: Sequence[str]) -> str | None:
        """Forget recordings, and the durable runs with these ids, as `journeyman prune` does. Return why their room
        could not be given back, if so. Of the durable runs, one that was forgotten meanwhile is a `LookupError`, and
        one that goes on again a `ValueError`."""
        async with self._alone:
            if durable:
                try:
                    await (await self._runs()).forget(*durable)
                except RunUnknown as unknown:
                    raise LookupError(str(unknown)) from unknown
            return await asyncio.to_thread(self._open_recordings().forget, recordings) if recordings else None

    async def _runs(self) -> Durable:
        if self._durable is None:
            self._durable = await self._open.enter_async_context(Durable(self._path))
        return self._durable

    def _open_recordings(self) -> Recordings:
        if self._recordings is None:
            self._recordings = self._open.enter_context(Recordings(self._path))
        return self._recordings


async def _carry_out(handle: SignalHandle, given: Given) -> str:
    """Say it, and return what was done, as one sentence."""
    who = f"{somebody()} in the viewer"
    match given.kind:
        case "approve":
            decision = _decision(given)
            await handle.approve(given.question_id, decision, who=who)
            with_others = ", with other arguments" if isinstance(decision, Rewrite) else ""
            return "It is denied." if isinstance(decision, Deny) else f"It is allowed{with_others}."
        case "answer":
            await handle.answer(given.question_id, given.text, who=who)
        case "stop":
            await handle.stop(given.text.strip() or "stopped by somebody in the viewer", who=who)
        case "hold":
            await handle.hold(who=who)
        case "release":
            await handle.release(who=who)
        case "withdraw":
            if not given.text.isdecimal():
                raise ValueError("The text of a withdrawal is the number of what is withdrawn.")
            await handle.withdraw(int(given.text), who=who)
        case _:
            say = handle.steer if given.kind == "steer" else handle.follow_up
            await say(given.text, who=who, idempotency_key=given.idempotency_key)
    return SAID[given.kind]


def _decision(given: Given) -> Decision:
    if given.decision is None:
        raise ValueError("A call needs a decision: allow, or deny.")
    if given.decision == "deny":
        return Deny(given.text.strip() or "denied by the operator")
    if given.arguments is not None:
        return Rewrite(given.arguments, given.text.strip())
    return Allow(_EXTENTS[given.extent])
