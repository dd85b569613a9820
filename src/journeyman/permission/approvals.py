"""Keeps the approvals of people, and the questions that wait for one, in memory or in a file that outlives the process.

An answer is bound to the digest of the exact arguments, expires, and is used up by the first call that it fits. An
approval for the session, or forever, is bound to a key instead, and shown as the rule that it is: see `Permission`.
Only its owner can read the file. It is replaced as a whole, and trusted only if nobody else can have written it.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Final, Literal, TypeAlias

from pydantic import ConfigDict, ValidationError

from journeyman.cancellation import call_in, end_wait
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.problems import explain_arguments
from journeyman.errors import ApprovalsUnreadable
from journeyman.gate import Allow, Approval, Decision, Deny, Extent, Rewrite, Stop
from journeyman.machine.files import NO_LINKS, make_private_folder, open_lock, replace_file, take_lock
from journeyman.types import JsonObject, RunPath, adapter_of

HOUR_S: Final = 3_600.0
_MOST_PENDING: Final = 200
_LONGEST_QUESTION: Final = 3_000
_LONGEST_ARGUMENTS: Final = 8_000
_MOST_BYTES: Final = 8_000_000

_STRICT: Final = ConfigDict(extra="forbid", strict=True)
_Name: TypeAlias = Literal["approve", "modify", "deny", "stop"]


@explain_arguments
class Approvals:
    """A store of the approvals that people gave, and of the questions that wait for their answer.

    With a `path`, everything except the approvals for the session is in that file, which several processes may share.
    If the file cannot be trusted or locked, every method that looks into it raises `ApprovalsUnreadable`.
    """

    def __init__(
        self, path: str | Path | None = None, *, expires_s: float = HOUR_S, now: Callable[[], float] = time.time
    ) -> None:
        """`expires_s` is how many seconds a question is valid, and then its answer."""
        self._path: Final = None if path is None else Path(path)
        self._expires_s: Final = expires_s
        self._now: Final = now
        self._memory = StoredApprovals()
        self._lock = RLock()
        self._session: dict[str, str] = {}
        """The rule of each key that is approved for the session."""
        self._waiting: dict[str, list[_Waiting]] = {}
        """The calls that wait in this process, by digest, the oldest first."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The file and its lock; nothing if it is all in memory."""
        return () if self._path is None else (self._path, _lock_of(self._path))

    def pending(self) -> tuple[PendingApproval, ...]:
        """Return the questions that wait, the oldest first."""
        with self._read_stored() as stored:
            return tuple(sorted(stored.pending.values(), key=lambda each: each.expires_at))

    def answer(self, digest: str, decision: Decision) -> None:
        """Answer a question: `Allow`, `Rewrite`, `Deny` or `Stop`. The answer waits for the call to be tried again.

        Raises:
            LookupError: no such question waits, or it waits no longer.
        """
        with self._change_stored() as stored:
            asked = stored.pending.get(digest)
            if asked is None:
                raise LookupError(f"No question waits under {digest[:12]}…, or it has expired.")
            if isinstance(decision, Allow):
                extent: Extent = decision.extent if decision.extent in asked.offers else "once"
                for key, rule in asked.list_grants().items():
                    self._grant(stored, key, extent, rule)
            until = self._now() + self._expires_s
            if waiting := self._waiting.get(digest):
                first = waiting[0]
                self._withdraw(digest, first)
                first.decision = decision
                stored.pending[digest] = replace(asked, expires_at=until)  # it was in time, also if the run is slow
                call_in(first.woken.get_loop(), partial(end_wait, first.woken))
            else:
                del stored.pending[digest]
                stored.answers[digest] = stored_answer(decision, until)

    def grant(self, key: str, extent: Extent, rule: str = "") -> None:
        """Approve every call with this key, for the session or forever. `rule` says in words which calls these are."""
        with self._change_stored() as stored:
            self._grant(stored, key, extent, rule)

    def granted(self) -> dict[str, str]:
        """Return what is approved for the session or forever: the rule of each key, in words, sorted by key.

        A rule that nobody gave in words is shown as its key.
        """
        with self._read_stored() as stored:
            rules = {**{key: stored.rules.get(key, key) for key in stored.always}, **self._session}
            return dict(sorted(rules.items()))

    def revoke(self, key: str) -> None:
        """Take back what was approved for a key."""
        with self._change_stored() as stored:
            self._session.pop(key, None)
            stored.always = tuple(each for each in stored.always if each != key)
            stored.rules.pop(key, None)

    async def wait(self, approval: Approval) -> Decision:
        """Wait for `answer`: an approver for `Runtime.approver`, for programs in which another part of the same process
        answers.

        Every answer that `answer` accepted counts, even if the time had just run out. If the wait is cancelled at that
        moment, the answer waits for the call to be tried again.
        """
        waits, digest = _Waiting(asyncio.get_running_loop().create_future()), approval.question_id
        with self._lock:
            self._waiting.setdefault(digest, []).append(waits)
        try:
            await asyncio.wait((waits.woken,), timeout=self._expires_s)
        except asyncio.CancelledError:
            self._withdraw(digest, waits)
            if waits.decision is not None:
                # The cancellation counts, whatever becomes of the file: whoever asks next is told.
                with suppress(ApprovalsUnreadable, OSError), self._change_stored() as stored:
                    stored.answers[digest] = stored_answer(waits.decision, self._now() + self._expires_s)
                    if digest not in self._waiting:
                        stored.pending.pop(digest, None)
            raise
        self._withdraw(digest, waits)
        if waits.decision is None:
            return Deny(f"nobody answered within {self._expires_s:g}s: {approval.question}")
        return waits.decision

    def allows(self, key: str) -> bool:
        """Tell whether a key was approved, for the session or forever."""
        if key in self._session:
            return True
        with self._read_stored() as stored:
            return key in stored.always

    def take(self, digest: str) -> Decision | None:
        """Return the answer that waits for a call, and use it up."""
        with self._read_stored() as stored:
            if digest not in stored.answers:
                return None
        with self._change_stored() as stored:
            answer = stored.answers.pop(digest, None)
            return None if answer is None else answer.as_decision()

    def ask(self, approval: Approval, key: str, grants: Mapping[str, str] | None = None) -> None:
        """Note a question, so that it can be answered later. `grants` are the keys that a wider approval is kept under,
        each with its rule in words; `key` alone if not given."""
        request = approval.request
        asked = PendingApproval(
            question_id=approval.question_id,
            key=key,
            path=request.path,
            tool=request.tool_name,
            arguments=request.arguments if len(json.dumps(request.arguments)) <= _LONGEST_ARGUMENTS else None,
            question=approval.question[:_LONGEST_QUESTION],
            offers=approval.offers,
            rule=approval.rule,
            grants=dict(grants or {}),
            expires_at=self._now() + self._expires_s,
        )
        with self._change_stored() as stored:
            newest = sorted(stored.pending.values(), key=lambda each: each.expires_at)[-_MOST_PENDING + 1 :]
            stored.pending = {**{each.question_id: each for each in newest}, asked.question_id: asked}

    def close(self, digest: str) -> PendingApproval | None:
        """Forget a question that was answered, and return it. None: it has expired before."""
        with self._change_stored() as stored:
            asked = stored.pending.get(digest)
            if not self._waiting.get(digest):  # the same call may wait for an answer of its own
                stored.pending.pop(digest, None)
            return asked

    def _grant(self, stored: StoredApprovals, key: str, extent: Extent, rule: str) -> None:
        if extent == "session":
            self._session[key] = rule or key
        if extent == "always":
            stored.always = tuple(sorted({*stored.always, key}))
            stored.rules |= {key: rule} if rule else {}

    def _withdraw(self, digest: str, waits: _Waiting) -> None:
        """Let no later answer reach a call. No list stays empty."""
        with self._lock:
            others = [each for each in self._waiting.pop(digest, ()) if each is not waits]
            if others:
                self._waiting[digest] = others

    @contextmanager
    def _read_stored(self) -> Generator[StoredApprovals]:
        """Let the block read what is stored."""
        with self._lock:
            stored = self._memory if self._path is None else load(self._path)
            stored.drop_expired(self._now())
            yield stored

    @contextmanager
    def _change_stored(self) -> Generator[StoredApprovals]:
        """Let the block change what is stored, alone."""
        if self._path is None:
            with self._read_stored() as stored:
                yield stored
            return
        if not self._path.parent.exists():
            make_private_folder(self._path.parent)
        with self._lock, locked(self._path):
            stored = load(self._path)
            before = stored.as_json()
            stored.drop_expired(self._now())
            yield stored
            after = stored.as_json()
            if after != before:
                replace_file(self._path, after, mode=0o600)


@lazy_dataclass(eq=False)
class _Waiting:
    """A call that waits for its answer."""

    woken: asyncio.Future[None]
    decision: Decision | None = None
    """Set by whoever answers, in whichever thread, while the lock is held."""


@lazy_dataclass(frozen=True, kw_only=True)
class PendingApproval:
    """A question that waits for its answer."""

    question_id: str
    """The digest of tool and arguments, which the answer must name."""
    key: str
    """What a wider approval would be bound to."""
    path: RunPath
    """The path of the run that wants the call."""
    tool: str
    """The name of the tool."""
    arguments: JsonObject | None
    """The arguments; None when they are too long to be stored."""
    question: str
    """What is asked, in words."""
    offers: tuple[Extent, ...]
    """How far an approval may reach."""
    expires_at: float
    """Seconds since 1970."""
    rule: str = ""
    """What a wider approval would allow, in words."""
    grants: dict[str, str] = field(default_factory=dict[str, str])
    """The rule of each key that it would be bound to, where that is not `key` alone."""

    __pydantic_config__ = _STRICT

    def list_grants(self) -> dict[str, str]:
        """Return each key that a wider approval is kept under, with its rule."""
        return self.grants or {self.key: self.rule}


@lazy_dataclass(frozen=True, kw_only=True)
class StoredAnswer:
    """An answer that waits for its call."""

    decision: _Name
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


_NAMES: Final[dict[type, _Name]] = {Allow: "approve", Rewrite: "modify", Stop: "stop", Deny: "deny"}


def stored_answer(decision: Decision, expires_at: float) -> StoredAnswer:
    """Return a decision as it is stored."""
    reason = "" if isinstance(decision, Allow) else decision.reason
    arguments = decision.arguments if isinstance(decision, Rewrite) else None
    return StoredAnswer(decision=_NAMES[type(decision)], expires_at=expires_at, reason=reason, arguments=arguments)


@lazy_dataclass(kw_only=True)
class StoredApprovals:
    """All that outlives the process."""

    version: Literal[1] = 1
    always: tuple[str, ...] = ()
    """The keys that are approved forever."""
    rules: dict[str, str] = field(default_factory=dict[str, str])
    """What they allow, in words, by key."""
    answers: dict[str, StoredAnswer] = field(default_factory=dict[str, StoredAnswer])
    """The answers that wait for their calls, by digest."""
    pending: dict[str, PendingApproval] = field(default_factory=dict[str, PendingApproval])
    """The questions that wait for their answers, by digest."""

    __pydantic_config__ = _STRICT

    def drop_expired(self, now: float) -> None:
        self.answers = {digest: each for digest, each in self.answers.items() if each.expires_at > now}
        self.pending = {digest: each for digest, each in self.pending.items() if each.expires_at > now}

    def as_json(self) -> bytes:
        return json.dumps(adapter_of(StoredApprovals).dump_python(self, mode="json"), indent=1, sort_keys=True).encode()


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Keep other processes out while the block changes the file."""
    lock = open_lock(_lock_of(path))
    try:
        try:
            take_lock(lock, wait=True)
        except OSError as error:
            raise ApprovalsUnreadable(str(path), str(error.strerror)) from error
        yield
    finally:
        os.close(lock)


def load(path: Path) -> StoredApprovals:
    """Return what the file holds; nothing if there is none.

    Raises:
        ApprovalsUnreadable: it cannot be trusted.
    """
    try:
        file = os.open(path, os.O_RDONLY | NO_LINKS | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return StoredApprovals()
    except OSError as error:
        raise ApprovalsUnreadable(str(path), f"it cannot be opened ({error.strerror})") from error
    try:
        _check_owner(path, os.fstat(file))
        with os.fdopen(file, "rb", closefd=False) as opened:
            data = opened.read()
    finally:
        os.close(file)
    try:
        return adapter_of(StoredApprovals).validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ApprovalsUnreadable(str(path), f"it is damaged, at {where[:100]} ({first['msg'][:200]})") from error


def _check_owner(path: Path, facts: os.stat_result) -> None:
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
