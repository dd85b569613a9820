"""Whatever processes do with runs, in any order: one writes, no word and no run is lost, and no record changes.

Hypothesis makes up the order. The same is done on a store in memory and on one in a file: they answer alike.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from journeyman.durable import schema_sql
from journeyman.durable.engine import Engine
from journeyman.durable.records import OPEN, OVER, Change, Claim, Record, Row, Status
from journeyman.durable.rules import MOST_DEATHS, RowRule, hand_over_row
from journeyman.inbox.signals import SignalKind
from tests.durable.processes import START, Stage, a_row, a_signal, a_step, in_file, in_memory, in_postgres
from tests.play import existing
from tests.support.postgres import PostgresServer

T = TypeVar("T")

_RUNS: Final = ("a", "b", "c", "d")
_KEYS: Final = ("prompt", "system", "attempt/1/iteration/1/model", "attempt/1/iteration/1/call/1")
_KINDS: Final[tuple[SignalKind, ...]] = ("approve", "answer", "steer", "hold", "release", "stop")
_MOST_PROCESSES: Final = 6
any_run = st.sampled_from(_RUNS)
any_number = st.integers(min_value=0, max_value=50)


class Scheduler(RuleBasedStateMachine):  # noqa: PLR0904 - one for each thing that may happen
    """Processes on one store in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stages: list[Stage] = [in_memory()]
        self.now = START
        self.alive: list[int] = []
        """The numbers of the processes that live."""
        self.claims: list[tuple[int, list[Claim]]] = []
        """All claims that there were: the number of the process, and the claim in each store."""
        self.seen: dict[str, int] = {}
        """How many signals whoever claimed a run last has seen."""
        self.written: dict[str, list[Record]] = {}
        self.said: list[tuple[str, SignalKind, str]] = []

    def teardown(self) -> None:
        self.runner.close()
        for stage in self.stages:
            stage.close()

    def each(self, work: Callable[[int], Callable[[Engine], Awaitable[T]]], process: int | None = None) -> list[T]:
        """Do something in a process, on each store. `work` is given the number of the store."""
        if not self.alive:
            self.begin_a_process()
        number = self.alive[0] if process is None else process

        async def all_of_them() -> list[T]:
            done: list[T] = []
            for n, stage in enumerate(self.stages):
                # Where another process answers, a dead one has no connection: what it sent before comes late.
                sender = number if number in self.alive or not stage.is_elsewhere else self.alive[0]
                done.append(await work(n)(stage.processes[sender].engine))
            return done

        return self.runner.run(all_of_them())

    def alike(self, work: Callable[[Engine], Awaitable[T]], process: int | None = None) -> T:
        """Do something in a process, on each store, where it must come to the same."""
        first, *others = self.each(lambda _: work, process)
        for other in others:
            assert other == first
        return first

    def plain(self, row: Row | None, store: int) -> dict[str, Any] | None:
        """Return a row with the number of its owner instead of the name, which differs from store to store."""
        if row is None:
            return None
        owners = [process.owner for process in self.stages[store].processes]
        return asdict(row) | {"owner": None if row.owner is None else owners.index(row.owner)}

    def rows(self) -> dict[str, Row]:
        return {id: row for id in _RUNS if (row := self.row(id)) is not None}

    def row(self, id: str) -> Row | None:
        found = self.each(lambda _: lambda engine: engine.get(id))
        first, *others = [self.plain(row, store) for store, row in enumerate(found)]
        for other in others:
            assert other == first
        return found[0]

    def ready(self) -> list[str]:
        async def ready(engine: Engine) -> list[str]:
            found = await engine.ready(now=self.now, agents=["clerk"], queues=(), limit=9)
            return [row.id for row in found]

        return self.alike(ready)

    @precondition(lambda self: len(self.stages[0].processes) < _MOST_PROCESSES)
    @rule()
    def begin_a_process(self) -> None:
        self.alive.append(len(self.stages[0].processes))
        for stage in self.stages:
            self.runner.run(stage.begin())

    @precondition(lambda self: len(self.alive) > 1)
    @rule(which=any_number)
    def crash(self, which: int) -> None:
        process = self.alive.pop(which % len(self.alive))
        for stage in self.stages:
            stage.processes[process].kill()

    @rule(seconds=st.sampled_from([0.5, 5.0, 60.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        run=any_run,
        priority=st.integers(-1, 1),
        delay_s=st.sampled_from([None, None, 10.0]),
        dedup=st.sampled_from([None, None, "monday"]),
        queue=st.sampled_from(["default", "batch"]),
    )
    def start(self, run: str, priority: int, delay_s: float | None, dedup: str | None, queue: str) -> None:
        wake = None if delay_s is None else self.now + delay_s
        options = {"priority": priority, "wake": wake, "dedup": dedup, "queue": queue, "created": self.now}
        known = self.row(run)
        if known is None:
            stored = self.each(lambda _: lambda engine: engine.add(a_row(run, name=f"{run}'s name", **options)))
            assert all(self.plain(row, store) == self.plain(stored[0], 0) for store, row in enumerate(stored))
            assert stored[0].id == run or (dedup is not None and stored[0].dedup == dedup)
        else:
            again = self.each(lambda _: lambda engine: engine.add(a_row("other", name=f"{run}'s name")))
            assert {row.id for row in again} == {run}

    @precondition(lambda self: self.alive)
    @rule(
        which=any_number,
        run=any_run,
        also=st.sampled_from([(), (), ("waiting",), ("held", "blocked")]),
        steal=st.sampled_from([False, False, False, True]),
        limits=st.sampled_from([{}, {}, {"at_once": 1}, {"at_once": 2}, {"gen": 0}, {"gen": 1}]),
    )
    def claim(self, which: int, run: str, also: Sequence[Status], steal: bool, limits: dict[str, Any]) -> None:
        process, before = self.alive[which % len(self.alive)], self.row(run)
        is_ready = run in self.ready()
        claims = self.each(
            lambda _: lambda engine: engine.claim(run, now=self.now, also=also, steal=steal, **limits), process
        )
        assert len({claim is None for claim in claims}) == 1
        made = [claim for claim in claims if claim is not None]
        if not made:
            after = self.row(run)
            kills = before is not None and before.deaths == MOST_DEATHS - 1
            assert after == before or (kills and after is not None and after.status == "blocked")
            assert not is_ready or limits or kills, "what is ready can be claimed"
            return
        assert before is not None
        assert made[0].epoch == before.epoch + 1
        assert made[0].row.gen == limits.get("gen", before.gen + 1)
        assert is_ready or before.status in also or (steal and before.status == "running")
        self.claims.append((process, made))
        self.seen[run] = made[0].row.n_signals

    @precondition(lambda self: self.claims)
    @rule(which=any_number, key=st.sampled_from(_KEYS), is_synced=st.booleans())
    def write(self, which: int, key: str, is_synced: bool) -> None:
        process, claims = self.claims[-1 - which % len(self.claims)]
        run, epoch = claims[0].row.id, claims[0].epoch
        made = a_step(run, key, epoch=epoch)
        answers = self.each(
            lambda store: lambda engine: engine.write(claims[store], made, is_synced=is_synced), process
        )
        row, known = self.row(run), self.written.setdefault(run, [])
        if row is None or row.epoch != epoch:
            expected = "fenced"
        elif key in [each.key for each in known]:
            expected = "taken"
        else:
            expected = "written"
            known.append(made)
        assert set(answers) == {expected}

    @precondition(lambda self: self.claims)
    @rule(
        which=any_number,
        status=st.sampled_from(["ready", "waiting", "waiting", "held", "blocked", "done", "failed"]),
        wake_s=st.sampled_from([None, 5.0]),
        looks=st.booleans(),
    )
    def settle(self, which: int, status: Status, wake_s: float | None, looks: bool) -> None:
        process, claims = self.claims[-1 - which % len(self.claims)]
        run, epoch = claims[0].row.id, claims[0].epoch
        before = self.row(run)
        wake = self.now + wake_s if wake_s is not None and status == "waiting" else None
        change = Change(status=status, wake=wake, used_s=1.5, asked=b"[]", why="why" if status == "blocked" else None)
        n_signals = self.seen[run] if looks else None
        done = self.each(
            lambda store: lambda engine: engine.settle(claims[store], change, now=self.now, n_signals=n_signals),
            process,
        )
        assert len(set(done)) == 1
        is_ours = before is not None and (before.epoch, before.status) == (epoch, "running")
        assert done[0] == (is_ours and (n_signals is None or before is None or before.n_signals == n_signals))
        if not done[0]:
            assert self.row(run) == before
            if is_ours and before is not None:
                self.seen[run] = before.n_signals  # it looks again

    @rule(run=any_run, kind=st.sampled_from(_KINDS), dedup=st.sampled_from(["1", "2", "3"]))
    def say(self, run: str, kind: SignalKind, dedup: str) -> None:
        before = self.row(run)
        taken = self.alike(lambda engine: engine.signal(a_signal(run, kind, dedup)))
        if before is None or before.status in OVER:
            assert taken == "over"
            return
        assert taken == ("known" if (run, kind, dedup) in self.said else "taken")
        after = existing(self.row(run))
        if taken == "known":
            assert after == before
            return
        self.said.append((run, kind, dedup))
        assert after.n_signals == before.n_signals + 1
        if before.status == "waiting" and kind not in ("hold", "release"):
            assert run in self.ready(), "who only waits goes on with it"

    @rule(run=any_run, gen=st.integers(0, 2))
    def hand_over(self, run: str, gen: int) -> None:
        handed = RowRule(partial(hand_over_row, gen=gen))
        self.each(lambda _: lambda engine: engine.change(run, handed, now=self.now))

    @rule()
    def sweep(self) -> None:
        """Claim all that is ready, and give it back."""
        for run in self.ready():
            self.claim(0, run, (), False, {})
            row = existing(self.row(run))
            if row.status == "running":
                self.settle(0, "waiting", None, False)

    @rule()
    def forget(self) -> None:
        over = [id for id, row in self.rows().items() if row.status in OVER]
        assert self.alike(lambda engine: engine.forget(_RUNS)) == len(over)
        for run in over:
            self.written.pop(run, None)
            self.said = [each for each in self.said if each[0] != run]

    @invariant()
    def no_run_is_lost(self) -> None:
        rows, ready = self.rows(), self.ready()
        owners = [self.stages[0].processes[process].owner for process in self.alive]
        for id, row in rows.items():
            assert row.status in (*OPEN, *OVER)
            is_due = row.wake is None or row.wake <= self.now
            if row.status == "running":
                assert (id in ready) == (row.owner not in owners)
            elif row.status == "waiting":
                assert (id in ready) == (row.wake is not None and is_due)
            else:
                assert (id in ready) == (row.status == "ready" and is_due)
                assert row.status == "ready" or row.owner is None

    @invariant()
    def nothing_that_is_stored_changes(self) -> None:
        for run in _RUNS:

            async def stored(engine: Engine, run: str = run) -> tuple[list[Record], list[tuple[str, SignalKind, str]]]:
                signals = await engine.signals(run=run)
                assert [each.n for each in signals] == sorted({each.n for each in signals})
                return list(await engine.records(run)), [(each.run, each.kind, each.dedup) for each in signals]

            records, signals = self.alike(stored)
            assert records == self.written.get(run, [])
            assert signals == [each for each in self.said if each[0] == run]


class SchedulerOnBoth(Scheduler):
    """Processes on a store in memory, and the same on one in a file."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.stages.append(in_file(Path(self.folder.name) / "runs.db"))

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class SchedulerOnPostgres(Scheduler):
    """Processes on a store in memory, and the same on one in a database."""

    server: ClassVar[PostgresServer]

    def __init__(self) -> None:
        super().__init__()
        self.stages.append(in_postgres(self.server, self.server.url(self.server.emptied(schema_sql()))))


_EXAMPLES: Final = settings.get_profile("journeyman").max_examples
TestScheduler = Scheduler.TestCase
TestScheduler.settings = settings(max_examples=_EXAMPLES // 2, stateful_step_count=40, deadline=None)
TestSchedulerOnBoth = SchedulerOnBoth.TestCase
TestSchedulerOnBoth.settings = settings(max_examples=_EXAMPLES // 6, stateful_step_count=30, deadline=None)


def test_processes_on_a_database_answer_as_those_in_memory(postgres: PostgresServer) -> None:
    few = settings(max_examples=max(3, _EXAMPLES // 20), stateful_step_count=25, deadline=None)

    class OnThisServer(SchedulerOnPostgres):
        server = postgres

    run_state_machine_as_test(OnThisServer, settings=few)
