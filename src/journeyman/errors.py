"""Every exception of this package.

    JourneymanError
    ├── DefinitionError       an agent or a tool is defined wrongly; lists every problem
    ├── Hinted                says what happened, and what to do about it
    │   ├── ModelUnavailable  no model answers to that name, or its key is missing
    │   ├── CassetteError     a cassette cannot be read or written; names the line
    │   ├── McpUnavailable    an MCP server does not start, answer or offer what it should
    │   └── StoreError        a store of sessions cannot be opened, read or written
    │       └── SessionInUse  another process, or this one, has the session open; names it
    ├── ProviderError         a model call failed; `kind` says how
    │   └── NotRecorded       a cassette is replayed, and does not hold what was asked for
    ├── InvalidArguments      a call's arguments, or a value, do not fit their schema; lists every issue
    ├── Rejected              raised by a validator or a tool: not good enough, with the reason for the model
    ├── BudgetRefused         a reservation does not fit; becomes `Failure(BUDGET_EXCEEDED)`
    ├── ApprovalsUnreadable   stored approvals cannot be trusted: damaged, or others may write them
    ├── PinsDiffer            MCP tools are not those that were pinned; lists every difference
    ├── OutcomeUnknown        a step with effect `once` was cut off before; it is not repeated
    ├── ChatBusy              a chat has a turn already
    ├── ChatHeld              a chat is held: no turn may begin
    ├── SubagentMisused       a delegation cannot be carried out as it was asked for; becomes an error result
    ├── SubagentFailed        a sub-agent's run failed; `failure` is its `Failure`
    ├── NothingToContinue     a chat's last word is the model's, and nothing waits
    ├── NothingToUndo         no turn of a chat has said anything, or all are undone
    ├── TeamError             a team cannot do what it was asked: a name is taken or unknown, it is closed, …
    ├── RunDiffers            a durable run has this id, and is of another agent, input or options
    ├── RunInUse              a durable run is driven elsewhere
    ├── RunUnknown            no durable run has this id; names the nearest
    ├── RunOver               a durable run has ended, so nothing can be said to it
    ├── RunBlocked            a durable run cannot go on by itself; says why, and what to do
    ├── StepTooLarge          the value of a step is too long to be stored
    └── RunError              `Failure.unwrap()` was called

A run itself raises none of them but `DefinitionError`: it returns a `Failure`. Where other people's code raises and
nobody else would see it, `cancellation.log_caught` logs it.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from journeyman.definition.problems import DefinitionError as DefinitionError
from journeyman.definition.problems import JourneymanError as JourneymanError
from journeyman.definition.problems import Problem as Problem
from journeyman.definition.problems import StoredError as StoredError
from journeyman.definition.problems import join_sentences
from journeyman.definition.problems import name_and_words as name_and_words
from journeyman.definition.problems import words_of as words_of
from journeyman.types import NOTHING_USED, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ApprovalsUnreadable",
    "BudgetRefused",
    "CassetteError",
    "ChatBusy",
    "ChatHeld",
    "Hinted",
    "InvalidArguments",
    "McpUnavailable",
    "ModelUnavailable",
    "NotRecorded",
    "NothingToContinue",
    "NothingToUndo",
    "OutcomeUnknown",
    "PinsDiffer",
    "ProviderError",
    "ProviderErrorKind",
    "RunBlocked",
    "RunDiffers",
    "RunError",
    "RunInUse",
    "RunOver",
    "RunUnknown",
    "SessionInUse",
    "StepTooLarge",
    "StoreError",
    "SubagentFailed",
    "SubagentMisused",
    "TeamError",
    "UnusableAnswer",
]

ProviderErrorKind: TypeAlias = Literal[
    "rate_limited",
    "overloaded",
    "timeout",
    "stream_idle",
    "stream_cut",
    "network",
    "auth",
    "quota",
    "content_filtered",
    "context_overflow",
    "bad_request",
    "not_found",
    "not_recorded",
    "unknown",
]
"""How a model call failed. These labels do not change."""

_ISSUES_SHOWN = 20
_OURS: Final = os.path.dirname(__file__) + os.sep
_PYTHONS: Final = os.path.dirname(os.__file__) + os.sep
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
HOW_TO_SEE_MORE: Final = "Set the logger 'journeyman' to DEBUG for its words and the traceback."
"""Ends each line about what was caught; the command line has another way."""


Told: TypeAlias = "set[tuple[str, str]]"
"""What was logged already: what raised, and where."""


def frames_of(error: BaseException) -> list[tuple[str, int]]:
    """Return the file and line of each frame in which an error passed that is not ours, the innermost last."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return [(file, line) for file, line in frames if not file.startswith((_OURS, "<frozen "))]


def is_installed(file: str) -> bool:
    """Tell whether a file belongs to an installed package."""
    return any(folder in file for folder in _INSTALLED)


def is_pythons(file: str) -> bool:
    """Tell whether a file belongs to Python itself."""
    return file.startswith(_PYTHONS) and not is_installed(file)


def place_of(error: BaseException) -> str:
    """Return the file and line where a user's code raised, as `/home/me/agents.py:12`; empty when none took part.

    It is the innermost frame that is neither ours, nor Python's, nor an installed package's; else the innermost that is
    not ours.
    """
    others = frames_of(error)
    users = [each for each in others if not (is_pythons(each[0]) or is_installed(each[0]))]
    for file, line in reversed(users or others):
        return f"{file}:{line}"
    return ""


def is_ours(error: BaseException) -> bool:
    """Tell whether this package raised an exception of its own: no bug of a user's code."""
    return type(error).__module__.startswith("journeyman.")


def count(number: int, noun: str) -> str:
    """Say how many: `1 call`, `1,204 calls`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def with_its_end(text: str, longest: int) -> str:
    """Return a text, or the beginning and the end of a longer one, with how much is missing between them: what
    matters may stand at either."""
    hidden = len(text) - longest
    if hidden <= 0:
        return text
    end = longest // 3
    return f"{text[: longest - end]}… ({count(hidden, 'more character')}) …{text[-end:]}"


_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
"""Letters, marks and symbols that look like nothing, although Unicode calls them printable."""


def quoted(text: str) -> str:
    """Return a text as Python writes it, on one line, in which whatever a screen would not show is written out."""
    return _BLANK.sub(lambda blank: ascii(blank[0])[1:-1], repr(text))


def printable(name: str) -> str:
    """Return the name of a file as it may be shown: a command may have chosen it, and what it holds may be for a
    terminal."""
    return name if name.isprintable() else quoted(name)


def visible(value: object, *, indent: int | None = 2) -> str:
    """Return a value as JSON in which whatever a screen would not show is written out, as `\\u202e`: controls, marks
    that turn the direction of writing, and other signs that take no place."""
    return visible_json(json.dumps(value, ensure_ascii=False, indent=indent, default=repr))


def visible_json(text: str) -> str:
    """Do the same as `visible` for a JSON text."""
    return "".join(
        each if _is_visible(each) else f"\\u{ord(each):04x}" if each.isascii() else json.dumps(each)[1:-1]
        for each in text
    )


def _is_visible(character: str) -> bool:
    return character == "\n" or (character.isprintable() and _BLANK.fullmatch(character) is None)


def shortage(policy: str, *, needed: float, limit: float, used: float) -> str:
    """Say what the next model call needs of a budget of tokens or US dollars, and what there is."""
    if policy == "cost":
        return f"the next call needs about ${needed:.4g}, ${limit:.4g} are allowed, ${used:.4g} are used"
    # The names of policies are plurals: `tokens`, `calls`.
    needs = f"{needed:,.0f} {policy}" if round(needed) != 1 else f"1 {policy.removesuffix('s')}"
    allowed, spent = [f"{n:,.0f} {'is' if round(n) == 1 else 'are'}" for n in (limit, used)]
    return f"the next call needs about {needs}, {allowed} allowed, {spent} used"


class Hinted(JourneymanError):
    """An error that says what happened, and apart from it what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(join_sentences(message, hint))
        self.message = message
        """The fault, with the values, and without secrets."""
        self.hint = hint
        """The way out."""


class ModelUnavailable(Hinted):
    """A model cannot be used at all: unknown name, missing key, missing package."""

    def __init__(self, message: str, *, model: str, hint: str) -> None:
        super().__init__(message, hint)
        self.model = model

    def __str__(self) -> str:
        return self.message

    def in_stream(self) -> ProviderError:
        """Return this as an error that `Model.stream` may raise. A run whose model raises it ends as
        `MODEL_UNAVAILABLE`."""
        error = ProviderError(str(self), kind="not_found", usage=NOTHING_USED)
        error.__cause__ = self
        return error


class ProviderError(JourneymanError):
    """A model call failed."""

    def __init__(
        self,
        message: str,
        *,
        kind: ProviderErrorKind,
        status: int | None = None,
        type: str | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ProviderErrorKind = kind
        self.hint = hint
        """What to do about it; None: what fits its kind."""
        self.status = status
        """The HTTP status, if there was a response."""
        self.type = type
        """The provider's own label for the error."""
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        """How long the provider asks to wait, in seconds."""
        self.usage = usage
        """What was used up to the failure; None when that is unknown."""


class UnusableAnswer(ProviderError):
    """A model's answer was not accepted: it is too large to be right, or reports usage that is impossible. The request
    is never retried."""

    def __init__(self, reason: str, *, limit: int | None = None) -> None:
        super().__init__(f"The answer was not accepted: {reason}.", kind="unknown")
        self.reason = reason
        self.limit = limit
        """The limit that the answer exceeds; None if it exceeds none."""


class NotRecorded(ProviderError):
    """A cassette is replayed, and does not hold this request or call. The first line says what differs, the others show
    it. The request is never retried, and the model never reads this."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="not_recorded", usage=NOTHING_USED)


class CassetteError(Hinted):
    """A cassette cannot be read or written."""

    def __init__(self, message: str, *, hint: str, line: int | None = None) -> None:
        super().__init__(message, hint)
        self.line = line
        """The number of the line, from 1; None when it is no single one."""


class InvalidArguments(JourneymanError):
    """A call's arguments, or a value, do not fit their schema. The text is what the model reads."""

    def __init__(self, subject: str, issues: Sequence[str]) -> None:
        self.subject = subject
        """What is invalid, for example `arguments for tool 'search'`."""
        self.issues = tuple(issues)
        """Everything that is wrong, one line each: what is missing, of a wrong type, a wrong value, unknown."""
        shown = self.issues[:_ISSUES_SHOWN]
        lines = "".join(f"\n- {issue}" for issue in shown)
        more = len(self.issues) - len(shown)
        super().__init__(f"Invalid {subject}:{lines}" + (f"\n- and {more:,} more" if more else ""))


class Rejected(JourneymanError):
    """Raise it in a validator to reject an output, or in a tool to refuse a call: the model reads `text`."""

    def __init__(self, text: str, *, path: Sequence[str | int] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.path = tuple(path)
        """Where in the output the fault is, for example `("totals", 0, "amount")`."""


class BudgetRefused(JourneymanError):
    """A reservation does not fit into what is left."""

    def __init__(self, policy: str, *, limit: float, used: float, scope: str, needed: float | None = None) -> None:
        if needed is None or used >= limit:
            super().__init__(f"the {scope}'s {policy} budget of {limit:g} is used up ({used:g} used)")
        else:
            lack = shortage(policy, needed=needed, limit=limit, used=used)
            super().__init__(f"the {scope}'s {policy} budget is too small: {lack}")
        self.needed = needed
        """What the reservation would need at least; None for a policy that did not say."""
        self.policy = policy
        self.limit = limit
        self.used = used
        self.scope = scope


class OutcomeUnknown(JourneymanError):
    """A step whose effect is `once` was started before and never finished: whether it took effect is unknown."""

    def __init__(self, key: str) -> None:
        super().__init__(f"step {key!r} was interrupted; whether it took effect is unknown, and it is not repeated")
        self.key = key


class ApprovalsUnreadable(JourneymanError):
    """The file with stored approvals cannot be trusted: damaged, or not ours alone. Nothing is approved by it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"The approvals in {path} cannot be used: {reason}. Look at the file, or remove it: what was approved is"
            " then asked again."
        )
        self.path = path
        self.reason = reason


class McpUnavailable(Hinted):
    """An MCP server does not start, does not answer, or does not offer what it should."""

    def __init__(self, server: str, reason: str, *, hint: str, needs: Sequence[str] = ()) -> None:
        super().__init__(f"The MCP server {server!r} cannot be used: {reason}.", hint)
        self.server = server
        self.reason = reason
        """What went wrong, without secrets."""
        self.needs = tuple(needs)
        """The needs that its box has refused, as `Stdio(needs=…)` takes them."""


class PinsDiffer(JourneymanError):
    """MCP servers offer other tools than were pinned, or none that can be compared. No model has seen these tools."""

    def __init__(self, path: str, differences: Sequence[str]) -> None:
        self.path = path
        self.differences = tuple(differences)
        """Everything that differs, one line each."""
        lines = "".join(f"\n  - {line}" for line in self.differences)
        super().__init__(
            f"The MCP tools are not those pinned in {path}, and no model was shown them:{lines}\n"
            "Look at what the servers offer now. If it is right, pin it: journeyman mcp pin."
        )


class ChatBusy(JourneymanError):
    """A turn of the chat goes on. Steer it, let a follow-up wait for its end, or abort it."""


class ChatHeld(JourneymanError):
    """The chat is held, so no turn may begin. Try again when it has been released."""


class NothingToContinue(JourneymanError):
    """The model has nothing to answer: the last words of the conversation are its own, and no text waits. Prompt the
    chat instead."""


class NothingToUndo(JourneymanError):
    """The chat has no turn that could be undone: no turn has said anything, or all are undone."""


class TeamError(JourneymanError):
    """A team cannot do what it was asked. The text says why and what to do; a model that asked reads it."""


class StoreError(Hinted):
    """A store of sessions cannot be opened, read or written. Nothing in it was changed."""

    def __init__(self, message: str, *, hint: str, may_pass: bool = False, is_busy: bool = False) -> None:
        super().__init__(message, hint)
        self.may_pass = may_pass
        """True if trying again later may help, as with a full disk; False for a closed or damaged file."""
        self.is_busy = is_busy
        """True when another process was writing just then."""


class SessionInUse(StoreError):
    """The session is open already, in this process or another one, and only one may write to it."""

    def __init__(self, message: str, *, hint: str, pid: int | None) -> None:
        super().__init__(message, hint=hint)
        self.pid = pid
        """The process that has it open; None when that cannot be read."""


class RunDiffers(JourneymanError):
    """A durable run with this id exists already, and its agent, input or options are others. Nothing was done."""

    def __init__(self, run: str, difference: str) -> None:
        super().__init__(f"There is a run {run!r} already, and {difference}. Give the new one another id.")
        self.run = run
        self.difference = difference


class RunInUse(JourneymanError):
    """A durable run is driven elsewhere: only one process may do so at a time."""

    def __init__(self, run: str, owner: str) -> None:
        super().__init__(
            f"The run {run!r} is driven by {owner}. Wait for its end with `await handle.result()`; if that process is"
            " stopped, take the run from it: durable.resume(…, steal=True), or journeyman resume --steal."
        )
        self.run = run
        self.owner = owner


class RunUnknown(JourneymanError):
    """No durable run has this id."""

    def __init__(self, run: str, nearest: Sequence[str]) -> None:
        near = f"Did you mean {' or '.join(nearest)}?" if nearest else "There is none yet."
        super().__init__(f"There is no run {run!r}. {near}")
        self.run = run
        self.nearest = tuple(nearest)


class RunOver(JourneymanError):
    """A durable run has ended: nothing can be said to it any more."""

    def __init__(self, run: str, how: str) -> None:
        super().__init__(f"The run {run!r} has ended ({how}), so nothing can be said to it. Its result is stored.")
        self.run = run


class RunBlocked(JourneymanError):
    """A durable run cannot go on by itself. Nothing of it was lost, and nothing was done that it did not ask for."""

    def __init__(self, run: str, why: str) -> None:
        super().__init__(f"The run {run!r} is blocked: {why}.")
        self.run = run
        self.why = why


class StepTooLarge(JourneymanError):
    """The value of a step is too long to be stored."""

    def __init__(self, key: str, *, n_bytes: int, most_bytes: int) -> None:
        super().__init__(f"the value of step {key!r} has {n_bytes:,} bytes; at most {most_bytes:,} bytes can be stored")
        self.key = key
        self.n_bytes = n_bytes


class SubagentMisused(JourneymanError):
    """A delegation cannot be carried out as it was asked for. The text says why; a model that asked reads it."""


class SubagentFailed(JourneymanError):
    """The run of a sub-agent failed. The text names it and says why; its usage so far is in `failure.metadata`."""

    def __init__(self, message: str, *, agent: str, failure: object) -> None:
        super().__init__(message)
        self.agent = agent
        self.failure = failure


class RunError(JourneymanError):
    """A failed run was unwrapped. `failure` is the `Failure`, with all it carries."""

    def __init__(self, message: str, failure: object) -> None:
        super().__init__(message)
        self.failure = failure
