"""The file in which approvals outlive a process: what it holds, and whether it can be trusted.

Readable by its owner only, replaced at once, and believed only if nobody else can have written it. Imports `errors`,
`gate` and `replacing`. Read `approvals.py` next.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from journeyman.errors import ApprovalsUnreadable
from journeyman.files import replace_file
from journeyman.gate import Allow, Decision, Deny, Extent, Rewrite, Stop
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
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(path.with_name(f"{path.name}.lock"), flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def load(path: Path) -> Stored:
    """Return what the file holds; nothing if there is none.

    Raises:
        ApprovalsUnreadable: it cannot be trusted.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
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
