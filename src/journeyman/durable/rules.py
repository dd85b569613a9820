"""The rules by which the row of a run changes: pure functions, each with one home, that every engine applies.

A rule is given the row as it is, and the facts that were read in the same transaction. It returns the row as it is to
be; None: nothing changes. It may be called more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Literal, TypeAlias, TypedDict

from typing_extensions import Unpack

from journeyman.definition.data import copy_with, lazy_dataclass
from journeyman.durable.dispatch import may_be_handed_over
from journeyman.durable.records import OVER, Change, Claim, Row, Status
from journeyman.inbox.signals import SignalKind

MOST_DEATHS: Final = 20
"""A run that takes its process down so often in a row, before it has done a new step, is blocked. Fewer would block
a run because of machines that restart; without a limit, it would take down one worker after the other."""

FactName: TypeAlias = Literal["owner_is_dead", "n_steps", "n_busy"]
"""A fact that takes the engine a look elsewhere."""


@lazy_dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Facts about a run that its row does not say. Those that a rule does not read are as they stand here."""

    now: float
    """Seconds since 1970."""
    owner_is_dead: bool = False
    n_steps: int = 0
    """The number of its records."""
    n_busy: int = 0
    """The number of other runs of its queue that a living process drives."""


class ClaimOptions(TypedDict, total=False):
    """The options of who claims a run."""

    also: Collection[Status]
    """It is claimed with one of these statuses, too."""
    steal: bool
    """It is taken from an owner that lives."""
    at_once: int | None
    """It is claimed only if fewer runs of its queue are driven."""
    head: bytes | None
    """Replaces its head."""
    gen: int | None
    """The `gen` of the ticket that brought it, which has to be the run's. Without a ticket, those that there are become
    void."""


@lazy_dataclass(frozen=True)
class RowRule:
    """A rule with the facts that it reads."""

    apply: Callable[[Row, RunFacts], Row | None]
    """Returns the row as it is to be; None: nothing changes."""
    reads: Collection[FactName] = ()
    """The facts that have to be read for it."""


def claim_row(row: Row, facts: RunFacts, *, by: str, **options: Unpack[ClaimOptions]) -> Row | None:
    """Let a process drive a run, as `RunChanges.claim` says. A run that takes its processes down is blocked; one whose
    queue is full is parked, if a ticket brought it."""
    steal, at_once, gen = options.get("steal", False), options.get("at_once"), options.get("gen")
    also, head, owner_is_dead = options.get("also", ()), options.get("head"), steal or facts.owner_is_dead
    if gen not in (None, row.gen) or not is_free(row, now=facts.now, also=also, owner_is_dead=owner_is_dead):
        return None
    if at_once is not None and facts.n_busy >= at_once:
        return None if gen is None else copy_with(row, parked=True)
    deaths = 0
    # Who drove it and did not give it back has died, also if the run was handed over since. A new step is progress:
    # only those deaths count that came without one.
    if row.owner is not None and not steal:
        deaths = row.deaths + 1 if facts.n_steps == row.n_steps else 1
    if deaths >= MOST_DEATHS:
        why = (
            f"it took down the process that drove it {deaths} times in a row, without a new step: find out what it does"
            " there, and resume it"
        )
        return copy_with(row, status="blocked", why=why, owner=None, deaths=0)
    return copy_with(
        row,
        status="running",
        owner=by,
        epoch=row.epoch + 1,
        gen=row.gen + (gen is None),
        lives=row.lives + 1,
        deaths=deaths,
        n_steps=facts.n_steps,
        wake=None,
        why=None,
        parked=False,
        head=row.head if head is None else head,
    )


def return_row(row: Row, facts: RunFacts, *, claim: Claim) -> Row | None:
    """Make a run ready again that was claimed for somebody who is gone, if that claim holds: somebody else's may have
    the same number."""
    is_ours = claim.drives(row) and row.owner == claim.row.owner
    return copy_with(row, status="ready", owner=None, gen=row.gen + 1) if is_ours else None


def note_questions(row: Row, facts: RunFacts, *, claim: Claim, asked: bytes | None) -> Row | None:
    """Note the questions of a run that is driven."""
    return copy_with(row, asked=asked) if claim.drives(row) else None


def settle_row(row: Row, facts: RunFacts, *, claim: Claim, change: Change, n_signals: int | None) -> Row | None:
    """Give a run back, as `RunChanges.settle` says."""
    if not claim.drives(row) or n_signals not in (None, row.n_signals):
        return None
    return copy_with(
        row,
        status=change.status,
        owner=None,
        gen=row.gen + (change.status == "ready"),
        why=change.why,
        wake=change.wake,
        asked=change.asked,
        used_s=change.used_s,
        tokens=change.usage.total_tokens,
        cost=change.usage.cost or 0.0,
        attempt=change.attempt,
        iteration=change.iteration,
        deaths=0,
        ended=facts.now if change.status in OVER else None,
    )


def signal_row(row: Row, facts: RunFacts, *, kind: SignalKind) -> Row | None:
    """Return a run as it is once it was sent a signal of this kind.

    What goes on because of it does so at once. A delay with which a run was started is no waiting: while it is held and
    when it is released, it stays; only `stop` ends it.
    """
    if row.status in OVER:
        return None
    status = woken(row.status, kind)
    keeps_wake = status == row.status or {status, row.status} == {"ready", "held"}
    return copy_with(
        row,
        status=status,
        # A new number: a ticket of an earlier wake-up is void.
        gen=row.gen + (status == "ready" != row.status),
        n_signals=row.n_signals + 1,
        wake=row.wake if keeps_wake and kind != "stop" else None,
    )


def hand_over_row(row: Row, facts: RunFacts, *, gen: int) -> Row | None:
    """Give a run to the next who comes, if it has had no other wake-up since `gen`.

    The owner stays named: a run that takes its processes down is known by that.
    """
    if row.gen != gen or not may_be_handed_over(row):
        return None
    is_driven = row.status == "running"
    # Another epoch: whatever the process that drives it still does, it can write nothing more.
    epoch, status = row.epoch + is_driven, "ready" if is_driven else row.status
    return copy_with(row, status=status, gen=gen + 1, epoch=epoch, parked=False)


def woken(status: Status, kind: SignalKind) -> Status:
    """Return the status of a run that is sent a signal of this kind. Who drives it, if anybody does, is told of it."""
    match kind, status:
        case "hold", "ready" | "waiting":
            return "held"
        case "release", "held":
            return "ready"
        case "stop", "waiting" | "held" | "blocked":
            return "ready"
        case "approve" | "answer" | "steer" | "task_ended" | "mail", "waiting":
            return "ready"
        case _:
            return status


def is_free(row: Row, *, now: float, also: Collection[Status], owner_is_dead: bool) -> bool:
    """Tell whether a run may be claimed."""
    if row.status == "running":
        return owner_is_dead
    if row.status == "waiting" and row.wake is not None and row.wake <= now:
        return True
    return row.status in also or (row.status == "ready" and (row.wake is None or row.wake <= now))


def needs_ticket(row: Row, after: Row) -> bool:
    """Tell whether a run that has changed waits for a wake-up, or for a moment, of which no ticket tells yet."""
    is_same = (row.status, row.gen, row.wake) == (after.status, after.gen, after.wake)
    return after.status != "running" and may_be_handed_over(after) and not is_same
