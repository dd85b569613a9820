"""The reasons for not serving agents or refusing a client, and the owner in the name of a run or chat.

The name of a run, or of a chat, begins with the owner: `OWNER:KEY`. A client only ever gives the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, unquote

from journeyman.agent import Agent, Runtime
from journeyman.errors import Hinted, InvalidArguments, Problem
from journeyman.serve.documents import Issue
from journeyman.session import TURN
from journeyman.texts import shorten
from journeyman.tools.deps import deps_of_run, lacks_deps

RETRY_S: Final = 1
"""After how many seconds clients that are told to come back may come back."""
_LONGEST_OWNER: Final = 90


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
