"""The port behind which durable runs are stored.

An engine keeps rows, records and signals, and decides who may write: only who has claimed a run last. What follows
from the records is not its concern.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias, TypedDict

from typing_extensions import Unpack

from journeyman.agent import Agent
from journeyman.durable.dispatch import Tickets
from journeyman.durable.records import (
    OVER,
    Change,
    Claim,
    ListedRun,
    ListPlace,
    QueueState,
    Record,
    Row,
    RunFilter,
    RunGlance,
    RunInfo,
    info_of,
    load_head,
    unpack_step,
)
from journeyman.durable.rules import ClaimOptions, FactName, RowRule, claim_row, note_questions, settle_row
from journeyman.errors import InvalidArguments, RunBlocked
from journeyman.inbox.signals import Signal
from journeyman.journal import END, decode_step
from journeyman.loop.results import load_result
from journeyman.result import Result
from journeyman.session import Snapshot
from journeyman.store.sessions import SessionHead, StoredSession
from journeyman.tools.collection import do_aside

Written: TypeAlias = Literal["written", "taken", "fenced"]
"""What became of a record. `taken`: there is a record under its key already; `fenced`: somebody else has claimed the
run."""
Taken: TypeAlias = Literal["taken", "known", "over"]
"""What became of a signal. `known`: there is one with the same kind and `dedup` already; `over`: the run has ended."""


class WriteOptions(TypedDict, total=False):
    """The options of a write: what is written in the same transaction, and how."""

    says: Change | None
    """With the change of a run: its last step, and lines of its conversation."""
    starts: Row | None
    """With a step: a run, as `add` stores it, unless its id exists. It is synced."""
    posts: Signal | None
    """A signal, as `signal` stores it: one that is known or comes too late changes nothing. With a step, it is
    synced."""
    is_synced: bool
    """True: no power cut undoes it once the method has returned."""


class RunChanges(Protocol):
    """Changes the rows of runs: engines inherit it. They know how to change a row, and not what the changes mean."""

    owner: str
    """The name under which this engine claims runs. It is alive as long as the engine is open."""

    async def change(self, id: str, rule: RowRule, *, now: float, **options: Unpack[WriteOptions]) -> Row | None:
        """Change a run as the rule says, and return it as it is then. None: the rule changes nothing, or there is no
        such run.

        In one transaction the row is read, with the facts that the rule reads, and written; with it the things that
        the options name, and the run's ticket.
        """
        ...

    async def find_dead(self, owners: Collection[str]) -> Collection[str]:
        """Return those of some owners whose process has ended."""
        ...

    async def infos(self, rows: Sequence[ListedRun]) -> tuple[RunInfo, ...]:
        """Return what rows tell, and whether the processes that drive these runs live."""
        owners = {row.owner for row in rows if row.status == "running" and row.owner is not None}
        dead = await self.find_dead(owners) if owners else ()
        return tuple([info_of(row, lambda owner: owner not in dead) for row in rows])

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` in the event loop as soon as `has_news` is true, if the store can tell. The engine is open by
        then."""
        del wake  # this one cannot

    async def drop_days(self, before: float) -> None:
        """Drop what is still stored about forgotten runs that began on days which were over at this moment, if it is
        kept by days."""
        del before  # this one keeps nothing by days

    async def claim(self, id: str, *, now: float, **given: Unpack[ClaimOptions]) -> Claim | None:
        """Claim a run that is ready, whose moment has come, or whose owner is dead, and what the options say.

        A run that has taken down too many processes is blocked instead. None: it cannot be claimed now. If a ticket
        brought the run to a full queue, it gets another ticket when a run leaves that queue.
        """
        # Without a limit on the queue, nobody counts: that would cost a look at other runs for each claim.
        reads: tuple[FactName, ...] = _OF_A_CLAIM if given.get("at_once") is None else (*_OF_A_CLAIM, "n_busy")
        rule = RowRule(partial(claim_row, by=self.owner, **given), reads)
        row = await self.change(id, rule, now=now)
        return None if row is None or row.status != "running" else Claim(row, row.epoch)

    async def note(self, claim: Claim, asked: bytes | None) -> None:
        """Note the questions of a run that is driven."""
        rule = RowRule(partial(note_questions, claim=claim, asked=asked))
        await self.change(claim.row.id, rule, now=0.0)  # no moment has a part in it

    async def settle(
        self, claim: Claim, change: Change, *, now: float, n_signals: int | None = None, posts: Signal | None = None
    ) -> bool:
        """Give a run back, once. False, and nothing changed: the claim no longer holds, the run was given back before,
        or more than `n_signals` have come: one that was not seen would have found a run that nobody wakes.

        A run that goes back to `ready` has another `gen`. What the change adds to a conversation is written in the same
        step, and so is a signal, as `signal` does it: all, or nothing.
        """
        rule = RowRule(partial(settle_row, claim=claim, change=change, n_signals=n_signals))
        says = change if change.lines or change.end is not None else None
        # That a run has ended is told to somebody: it must not be undone by a power cut.
        is_over = change.status in OVER
        return await self.change(claim.row.id, rule, now=now, says=says, posts=posts, is_synced=is_over) is not None


_OF_A_CLAIM: Final[tuple[FactName, ...]] = ("owner_is_dead", "n_steps")


class Engine(RunChanges, Protocol):  # noqa: PLR0904 - what a store of runs does
    """Keeps durable runs.

    Raises, from every method:
        StoreError: it cannot be read or written.
    """

    @property
    def tickets(self) -> Tickets | None:
        """What brings the runs to workers. None: the rows are the queue, and workers ask for runs that are `ready`."""
        ...

    async def open(self) -> None:
        """Get ready to be used; before anything else.

        Raises:
            StoreError: the store cannot be used.
        """
        ...

    async def close(self) -> None:
        """Let go of the store. Runs that this engine has claimed can be claimed by others from now on."""
        ...

    async def add(self, row: Row, records: Sequence[Record] = (), *, is_queued: bool = True) -> Row:
        """Store a run with its first records, and return it. If a run has its name already, or its agent and `dedup`,
        return that one.

        If it is not `is_queued`, the caller drives it, so no worker is told.
        """
        ...

    async def get(self, id: str) -> Row | None:
        """Return the run with this id or name."""
        ...

    async def glance(self, id: str) -> RunGlance | None:
        """Return what changes of the run with this id, without its row, which may be long."""
        ...

    async def rows(self, **which: Unpack[RunFilter]) -> Sequence[ListedRun]:
        """Return runs, newest first."""
        ...

    async def queues(self, *, now: float) -> Sequence[QueueState]:
        """Return the state of each queue that has a run which is not over, by name. Reads the row of every run."""
        ...

    async def ready(self, *, now: float, agents: Collection[str], queues: Collection[str], limit: int) -> Sequence[Row]:
        """Return runs that may be claimed: those that are ready, those whose moment has come, and those whose owner is
        dead; higher priority first, then older. No `queues`: of all queues."""
        ...

    async def records(self, id: str, *, key: str | None = None) -> Sequence[Record]:
        """Return the records of a run, or those of one step, in the order in which they were written."""
        ...

    async def write(self, claim: Claim, record: Record, **options: Unpack[WriteOptions]) -> Written:
        """Write a record, if the claim still holds, and in one transaction with it the things that the options name."""
        ...

    async def signal(self, signal: Signal) -> Taken:
        """Store a signal, and change its run as `signal_row` says: an answer, for example, makes a waiting run
        ready."""
        ...

    async def signals(self, *, run: str | None = None, after: int = 0) -> Sequence[Signal]:
        """Return the signals after number `after`, of one run or of all, in order."""
        ...

    async def newest(self) -> int:
        """Return the number of the newest signal; 0 if there is none."""
        ...

    def has_news(self) -> bool:
        """Tell whether another process may have written since this was last called. Must be quick."""
        ...

    async def forget(self, ids: Collection[str], *, by_days: bool = False) -> int:
        """Forget runs that have ended: delete all that is stored about them. Return how many there were.

        `by_days`: what is stored of them may stay until `drop_days`.
        """
        ...

    def session(self, id: str | None, *, agent: str, any_agent: bool, create: bool) -> StoredSession:
        """Open a session of a chat that is kept with the runs, as `Sessions.session` does.

        Raises:
            SessionInUse: somebody has it open.
        """
        ...

    async def conversation(self, id: str, *, n_runs: int | None = None) -> Snapshot:
        """Return the conversation of a session, or of a run by itself; of one that is not there, nothing. `n_runs`: as
        it was when the session had had so many runs."""
        ...

    async def sessions(
        self, prefix: str, *, older_than: ListPlace | None = None, limit: int = 100
    ) -> Sequence[SessionHead]:
        """Return the sessions whose ids begin so, newest first."""
        ...

    async def delete_session(self, id: str) -> None:
        """Forget a session and its turns.

        Raises:
            StoreError: there is none.
            SessionInUse: somebody has it open.
        """
        ...


async def result_of(engine: Engine, row: Row, agent: Agent[Any, Any, Any] | None) -> Result[Any]:
    """Return the stored result of a run that is over, with its conversation. Without the agent, its output is plain
    JSON.

    Raises:
        RunBlocked: it cannot be read, or its output no longer fits the agent's type.
    """
    head = load_head(row)
    said = await engine.conversation(head.session or row.id, n_runs=head.number or None)
    try:
        end = next(iter(await engine.records(row.id, key=END)), None)
        if end is None:
            raise ValueError("it was not kept")
        read = partial(load_result, agent=agent, history=said.messages)
        return await do_aside(unpack_step(end), lambda stored: read(decode_step(stored)[1]))
    except (ValueError, InvalidArguments) as error:
        raise RunBlocked(row.name or row.id, f"its stored result cannot be read: {error}") from error
