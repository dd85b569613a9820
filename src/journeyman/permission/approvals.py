"""What people have approved, and what waits for them: in memory, or in a file that outlives the process.

An answer is bound to the digest of the exact arguments, ends with its time, and is used up by the first call that it
fits. What is approved for the session, or for ever, is bound to a key instead: see `Permission`. Imports
`approval_file` and `gate`.

The file in which approvals outlive a process: what it holds, and whether it can be trusted.

Readable by its owner only, replaced at once, and believed only if nobody else can have written it.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Final, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from journeyman.errors import ApprovalsUnreadable
from journeyman.files import NO_LINKS, open_lock, replace_file, take_lock
from journeyman.gate import Allow, Approval, Decision, Deny, Extent, Rewrite, Stop
from journeyman.types import JsonObject

_MOST_BYTES: Final = 8_000_000

_STRICT: Final = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A question that waits for its answer."""

    digest: str
    """Of tool and arguments: what to answer to."""
    key: str
    """What a wider approval would be bound to."""
    path: tuple[str, ...]
    tool: str
    arguments: JsonObject | None
    """None: they are too long to be kept here."""
    question: str
    offers: tuple[Extent, ...]
    expires_at: float
    """Seconds since 1970."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that waits for its call."""

    decision: Literal["approve", "modify", "deny", "stop"]
    expires_at: float
    reason: str = ""
    arguments: JsonObject | None = None

    __pydantic_config__ = _STRICT

    def as_decision(self) -> Decision:
        """Return it as a gate gives it."""
        match self.decision:
            case "approve":
                return Allow()
            case "modify" if self.arguments is not None:
                return Rewrite(self.arguments, self.reason)
            case "stop":
                return Stop(self.reason)
            case _:
                return Deny(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """All that is kept in the file."""

    version: Literal[1] = 1
    always: tuple[str, ...] = ()
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    pending: dict[str, Pending] = field(default_factory=dict[str, Pending])

    __pydantic_config__ = _STRICT


@cache
def _adapter() -> TypeAdapter[Stored]:
    return TypeAdapter(Stored)


def answer_of(decision: Decision, expires_at: float) -> Answer:
    """Return a decision as it is kept."""
    match decision:
        case Allow():
            return Answer(decision="approve", expires_at=expires_at)
        case Rewrite(arguments, reason):
            return Answer(decision="modify", expires_at=expires_at, reason=reason, arguments=arguments)
        case Stop(reason):
            return Answer(decision="stop", expires_at=expires_at, reason=reason)
        case Deny(reason):
            return Answer(decision="deny", expires_at=expires_at, reason=reason)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Keep other processes out while the block changes the file."""
    lock = open_lock(path.with_name(f"{path.name}.lock"))
    try:
        try:
            take_lock(lock, wait=True)
        except OSError as error:
            raise ApprovalsUnreadable(str(path), str(error.strerror)) from error
        yield
    finally:
        os.close(lock)


def load(path: Path) -> Stored:
    """Return what the file holds; nothing if there is none.

    Raises:
        ApprovalsUnreadable: it cannot be trusted.
    """
    try:
        file = os.open(path, os.O_RDONLY | NO_LINKS | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return Stored()
    except OSError as error:
        raise ApprovalsUnreadable(str(path), f"it cannot be opened ({error.strerror})") from error
    try:
        _check(path, os.fstat(file))
        data = _read_all(file)
    finally:
        os.close(file)
    try:
        return _adapter().validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ApprovalsUnreadable(str(path), f"it is damaged, at {where[:100]} ({first['msg'][:200]})") from error


def _read_all(file: int) -> bytes:
    parts: list[bytes] = []
    while part := os.read(file, _MOST_BYTES):
        parts.append(part)
    return b"".join(parts)


def _check(path: Path, facts: os.stat_result) -> None:
    """Refuse what others may have written."""
    if not stat.S_ISREG(facts.st_mode):
        raise ApprovalsUnreadable(str(path), "it is not a regular file")
    if not hasattr(os, "geteuid"):
        raise ApprovalsUnreadable(str(path), "this system does not tell who may write to it")
    if facts.st_uid != os.geteuid():
        raise ApprovalsUnreadable(str(path), f"it belongs to another user ({facts.st_uid})")
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ApprovalsUnreadable(str(path), f"others may write to it (mode {stat.S_IMODE(facts.st_mode):o})")
    if facts.st_size > _MOST_BYTES:
        raise ApprovalsUnreadable(str(path), f"it is {facts.st_size:,} bytes long")


def save(path: Path, stored: Stored) -> None:
    """Replace the file at once, or not at all."""
    text = json.dumps(_adapter().dump_python(stored, mode="json"), indent=1, sort_keys=True)
    replace_file(path, text.encode(), mode=0o600)


HOUR_S: Final = 3_600.0
_MOST_PENDING: Final = 200
_LONGEST_QUESTION: Final = 3_000
_LONGEST_ARGUMENTS: Final = 8_000


class Approvals:
    """What was approved, and what waits to be.

    With a `path`, all but what is approved for the session is in that file, which several processes may share.
    """

    def __init__(
        self, path: str | Path | None = None, *, expires_s: float = HOUR_S, now: Callable[[], float] = time.time
    ) -> None:
        """`expires_s` is how long a question, and then its answer, is good for, in seconds."""
        self._path: Final = None if path is None else Path(path)
        self._expires_s: Final = expires_s
        self._now: Final = now
        self._memory = Stored()
        self._lock = RLock()
        self._session: set[str] = set()
        self._waiting: dict[str, list[asyncio.Future[Decision]]] = {}

    # -- for people and programs that answer

    def pending(self) -> tuple[Pending, ...]:
        """Return the questions that wait, the oldest first.

        Raises:
            ApprovalsUnreadable: the file cannot be trusted.
        """
        with self._opened() as stored:
            return tuple(sorted(stored.pending.values(), key=lambda each: each.expires_at))

    def answer(self, digest: str, decision: Decision) -> None:
        """Answer a question: `Allow`, `Rewrite`, `Deny` or `Stop`. The answer waits for the call to be tried again.

        Raises:
            LookupError: no such question waits, or no longer.
            ApprovalsUnreadable: the file cannot be trusted.
        """
        with self._changed() as change:
            asked = change.stored.pending.get(digest)
            if asked is None:
                raise LookupError(f"No question waits under {digest[:12]}…, or it has expired.")
            if isinstance(decision, Allow):
                change.stored = self._granted(change.stored, asked.key, decision.extent, asked.offers)
            if not self._handed_over(digest, decision):
                change.stored = _without_question(change.stored, digest)
                answer = answer_of(decision, self._now() + self._expires_s)
                change.stored = replace(change.stored, answers={**change.stored.answers, digest: answer})

    def grant(self, key: str, extent: Extent) -> None:
        """Approve whatever has this key, for the session or for ever.

        Raises:
            ApprovalsUnreadable: the file cannot be trusted.
        """
        with self._changed() as change:
            change.stored = self._granted(change.stored, key, extent, ("session", "always"))

    def revoke(self, key: str) -> None:
        """Take back what was approved for a key.

        Raises:
            ApprovalsUnreadable: the file cannot be trusted.
        """
        self._session.discard(key)
        with self._changed() as change:
            kept = tuple(each for each in change.stored.always if each != key)
            change.stored = replace(change.stored, always=kept)

    async def wait(self, approval: Approval) -> Decision:
        """Wait for `answer`: an approver for `Host.approve`, where somebody answers from elsewhere in this process."""
        future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(approval.digest, [])
        waiting.append(future)
        try:
            async with asyncio.timeout(self._expires_s):
                return await future
        except TimeoutError:
            return Deny(f"nobody answered within {self._expires_s:g}s: {approval.question}")
        finally:
            if future in waiting:
                waiting.remove(future)

    # -- for the gate

    def allows(self, key: str) -> bool:
        """Tell whether a key was approved, for the session or for ever.

        Raises:
            ApprovalsUnreadable: the file cannot be trusted.
        """
        if key in self._session:
            return True
        with self._opened() as stored:
            return key in stored.always

    def take(self, digest: str) -> Decision | None:
        """Return the answer that waits for a call, and use it up.

        Raises:
            ApprovalsUnreadable: the file cannot be trusted.
        """
        with self._opened() as stored:
            if digest not in stored.answers:
                return None
        with self._changed() as change:
            answer = change.stored.answers.get(digest)
            left = {each: kept for each, kept in change.stored.answers.items() if each != digest}
            change.stored = replace(change.stored, answers=left)
            return None if answer is None else answer.as_decision()

    def ask(self, approval: Approval, key: str) -> None:
        """Note a question, so that it can be answered later.

        Raises:
            ApprovalsUnreadable: the file cannot be trusted.
        """
        request = approval.request
        asked = Pending(
            digest=approval.digest,
            key=key,
            path=request.path,
            tool=request.tool_name,
            arguments=request.arguments if len(json.dumps(request.arguments)) <= _LONGEST_ARGUMENTS else None,
            question=approval.question[:_LONGEST_QUESTION],
            offers=approval.offers,
            expires_at=self._now() + self._expires_s,
        )
        with self._changed() as change:
            kept = sorted(change.stored.pending.values(), key=lambda each: each.expires_at)[-_MOST_PENDING + 1 :]
            pending = {**{each.digest: each for each in kept}, asked.digest: asked}
            change.stored = replace(change.stored, pending=pending)

    def close(self, digest: str) -> bool:
        """Forget a question that was answered. False: it has expired before.

        Raises:
            ApprovalsUnreadable: the file cannot be trusted.
        """
        with self._changed() as change:
            is_open = digest in change.stored.pending
            if not self._waiting.get(digest):  # the same call may wait for an answer of its own
                change.stored = _without_question(change.stored, digest)
            return is_open

    # -- inside

    def _granted(self, stored: Stored, key: str, extent: Extent, offers: tuple[Extent, ...]) -> Stored:
        if extent == "session" and "session" in offers:
            self._session.add(key)
        if extent == "always" and "always" in offers:
            return replace(stored, always=tuple(sorted({*stored.always, key})))
        return stored

    def _handed_over(self, digest: str, decision: Decision) -> bool:
        """Give the answer to one that waits for it; False if nobody does."""
        waiting = self._waiting.get(digest)
        if not waiting:
            return False
        future = waiting.pop(0)
        future.get_loop().call_soon_threadsafe(_resolve, future, decision)
        return True

    @contextmanager
    def _opened(self) -> Generator[Stored]:
        yield self._current(self._memory if self._path is None else load(self._path))

    @contextmanager
    def _changed(self) -> Generator[_Change]:
        """Let the block change what is stored, alone."""
        if self._path is None:
            with self._lock:
                change = _Change(self._current(self._memory))
                yield change
                self._memory = change.stored
            return
        with self._lock, locked(self._path):
            before = load(self._path)
            change = _Change(self._current(before))
            yield change
            if change.stored != before:
                save(self._path, change.stored)

    def _current(self, stored: Stored) -> Stored:
        """Leave out what has expired."""
        now = self._now()
        return replace(
            stored,
            answers={digest: each for digest, each in stored.answers.items() if each.expires_at > now},
            pending={digest: each for digest, each in stored.pending.items() if each.expires_at > now},
        )


@dataclass(slots=True)
class _Change:
    stored: Stored


def _resolve(future: asyncio.Future[Decision], decision: Decision) -> None:
    if not future.done():
        future.set_result(decision)


def _without_question(stored: Stored, digest: str) -> Stored:
    return replace(stored, pending={each: kept for each, kept in stored.pending.items() if each != digest})
