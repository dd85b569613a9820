"""The reasons for not serving agents or refusing a client, and the owner in the name of a run or chat.

The name of a run, or of a chat, begins with the owner: `OWNER:KEY`. A client only ever gives the key.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, unquote

from journeyman.agent import Agent, Runtime
from journeyman.errors import (
    Hinted,
    InvalidArguments,
    Problem,
    RunBlocked,
    RunDiffers,
    RunUnknown,
    SessionInUse,
    StoreError,
)
from journeyman.serve.documents import Issue
from journeyman.session import TURN, turn_name
from journeyman.texts import shorten
from journeyman.tools.deps import deps_of_run, lacks_deps

RETRY_S: Final = 1
"""After how many seconds clients that are told to come back may come back."""
_LONGEST_OWNER: Final = 90
STORE_AWAY: Final = "The store cannot be used at the moment."
ASK_OPERATOR: Final = "The server's operator can see why: journeyman show RUN."
_log = logging.getLogger("journeyman")


def served_problems(
    agents: Sequence[Agent[Any, Any, Any]], runtime: Runtime, *, deps: object = None, hint: str
) -> list[Problem]:
    """Return the problems that keep agents from being served.

    `deps` gives each run its own; `hint` says how they are given.
    """
    names = [agent.name for agent in agents]
    problems = [
        Problem("DUPLICATE_AGENT_NAME", f"{names.count(name)} agents are called {name!r}.", "Rename all but one.")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    problems += [
        Problem("MISSING_DEPS", f"{agent.name}: {lack.partition('. ')[0]}.", hint)
        for agent in agents
        if deps is None and (lack := lacks_deps(deps_of_run(None, agent.deps), agent.deps)) is not None
    ]
    if not agents:
        problems.append(Problem("NO_AGENTS", "There is no agent to serve.", "Pass one or more."))
    if runtime.journal is not None:
        text = "The runtime has a journal, which belongs to one run: a second run would get the answers of the first."
        problems.append(Problem("SHARED_JOURNAL", text, "Leave Runtime.journal out."))
    return problems


class Refusal(Hinted):
    """The server does not do what a client asks for, and tells it why."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str,
        *,
        issues: Sequence[Issue] = (),
        retry_s: int | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message, hint)
        self.status = status
        """The HTTP status."""
        self.code = code
        self.issues = tuple(issues)
        """The issues, each with the `path` of a value and what is wrong with it."""
        self.retry_s = retry_s
        """When the client may come back."""
        self.headers = headers
        """What the answer says beside its body."""


def owner_key(owner: str) -> str:
    """Return an owner as it stands in names: without a colon or a slash.

    Raises:
        ValueError: it is empty, or too long.
    """
    key = quote(owner, safe="@ ")
    if not owner.strip() or len(key) > _LONGEST_OWNER:
        text = f"authorize returned the owner {shorten(owner, 40)!r}."
        raise ValueError(f"{text} Return 1 to {_LONGEST_OWNER} characters, or None.")
    return key


def key_of(name: str) -> str:
    """Return the part of a name that its client knows."""
    return name.removeprefix(TURN).partition(":")[2]


def owner_of(name: str) -> str:
    """Return whose a run, or a chat, is."""
    return unquote(name.removeprefix(TURN).partition(":")[0])


def misfit(issues: Sequence[Issue], hint: str = "See /openapi.json.") -> Refusal:
    """Return the refusal of a body that does not fit: its issues, the first of which the message tells."""
    shown = "; ".join([": ".join(filter(None, (each["path"], each["message"]))) for each in issues[:3]])
    return Refusal(422, "INVALID_INPUT", f"The body does not fit: {shown}.", hint, issues=issues[:20])


def wrong(path: str, what: str, hint: str = "See /openapi.json.") -> Refusal:
    """Return the refusal of a body, for the value at this path."""
    return misfit([Issue(path=path, message=what)], hint)


def invalid_input(invalid: InvalidArguments) -> Refusal:
    """Return the refusal of an input that does not fit."""
    issues: list[Issue] = []
    for issue in invalid.issues:
        path, is_named, what = issue.partition(": ")
        is_path = bool(is_named) and " " not in path
        issues.append(Issue(path=f"input.{path}" if is_path else "input", message=what if is_path else issue))
    return misfit(issues)


def nothing(what: str, name: str) -> Refusal:
    """Return the refusal for a name that nothing has, or that is another owner's: clients cannot tell these apart."""
    return Refusal(404, "NOT_FOUND", f"There is no {what} {key_of(name)[:100]!r}.", "Check the id.")


def describe_run(run: str) -> str:
    """Return the name by which clients know a run or a turn, for a sentence."""
    is_turn = run.startswith(TURN)
    key = key_of(run.rpartition("/")[0] if is_turn else run)
    return f"The turn of the chat {key!r}" if is_turn else f"The run {key!r}"


def tell_blocked(run: str, why: object) -> str:
    """Return the message for clients of a blocked run. The reason is logged, for the server's operator."""
    _log.warning("%s cannot go on by itself: %s", run, why)
    return f"{describe_run(run)} cannot go on by itself."


def _refusal_of_store(id: str, error: StoreError) -> Refusal:
    """Return the refusal of a turn whose chat the store does not give. The store's own words are logged."""
    _log.warning("A turn of the chat %s could not begin: %s", id, error)
    if error.is_busy or error.__cause__ is not None:
        return Refusal(503, "STORE_AWAY", STORE_AWAY, "Ask again.", retry_s=RETRY_S)
    text = f"The chat {key_of(id)!r} is one of another agent, or cannot be read."
    return Refusal(409, "CHAT_UNUSABLE", text, "Take another chat for another agent.")


def refusal_of_turn(id: str, error: Exception) -> Refusal:
    """Return the refusal of a turn that an error kept from beginning."""
    match error:
        case Refusal():
            return error
        case SessionInUse(pid=pid):  # its text also says where the store is
            whose = "this server" if pid == os.getpid() else "another server"
            text = f"The chat {key_of(id)!r} is open in {whose}, and only one may write to it."
            return Refusal(409, "CHAT_IN_USE", text, "Ask again when it has ended there.", retry_s=RETRY_S)
        case StoreError():
            return _refusal_of_store(id, error)
        case InvalidArguments():
            return invalid_input(error)
        case RunBlocked() | RunDiffers() | RunUnknown():
            return Refusal(409, "BLOCKED", tell_blocked(turn_name(id, 1), error), ASK_OPERATOR)
        case _:
            _log.warning("A turn of the chat %s could not begin.", id, exc_info=error)
            return Refusal(500, "INTERNAL_ERROR", "The turn could not begin.", "The server's log says why.")
