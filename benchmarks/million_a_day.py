"""A million runs a day in one Postgres: 100 workers, ten steps a run, and what that comes to in speed and in bytes.

The workers are simulated by as many `Durable`s and `Worker`s with connections of their own, in a few processes: what
each costs the database is what a worker on a machine of its own costs. A run has five iterations of two steps, and
results of 2 KB. The runs are queued first; what is measured begins when all workers have begun.
`python -m benchmarks.million_a_day URL WORKERS` is one of the processes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg

from benchmarks.durable_file import reader
from benchmarks.measuring import Effort, Row, alone
from benchmarks.postgres_server import cpu_s, postgres
from benchmarks.server import ROOT
from benchmarks.work import PROMPT
from journeyman import Agent
from journeyman.durable import Durable, Worker, schema_sql
from tests.support.postgres import PostgresServer

ITERATIONS: Final = 5
STEPS: Final = 2 * ITERATIONS
A_DAY: Final = 1_000_000
_SLOTS: Final = 4
_POLL_S: Final = 0.05
_PROCESSES: Final = 4
_BYTES: Final = """
    SELECT sum(pg_table_size(c.oid)) / nullif((SELECT count(*) FROM {table}), 0),
        sum(pg_indexes_size(c.oid)) / nullif((SELECT count(*) FROM {table}), 0)
    FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE c.relkind = 'r' AND '{table}'::regclass IN (c.oid, i.inhparent)
"""
_CHANGED: Final = "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables WHERE relname ~ %s"
"""Each leaves a dead row."""


def worker_agent() -> Agent:
    """Return the agent of all runs: five model calls, four calls of a tool with pages of 2 KB."""
    return reader(ITERATIONS)


def measure(effort: Effort) -> list[Row]:
    """Measure against the targets, and say what a day of that is."""
    n_runs, n_workers = effort.size(2_000), effort.size(100)
    n_processes = min(_PROCESSES, n_workers)
    with postgres() as server:
        url = server.url(server.database(schema_sql()))
        asyncio.run(_queued(url, n_runs))
        with psycopg.connect(url, autocommit=True) as connection:
            return _measured(server, connection, url, n_runs=n_runs, shares=_shares(n_workers, n_processes))


def _shares(number: int, n_parts: int) -> Sequence[int]:
    return [number // n_parts + (part < number % n_parts) for part in range(n_parts)]


async def _queued(url: str, n_runs: int) -> None:
    agent = worker_agent()
    async with Durable(url) as durable:
        for _ in range(n_runs):
            await durable.start(agent, PROMPT)


def _measured(
    server: PostgresServer, connection: psycopg.Connection[Any], url: str, *, n_runs: int, shares: Sequence[int]
) -> list[Row]:
    def asked(query: str, *given: object) -> Any:  # noqa: ANN401 - a row
        found = connection.execute(query.encode(), given or None).fetchone()
        assert found is not None
        return found

    def n_done() -> int:
        return asked("SELECT count(*) FROM jm_runs WHERE status = 'done'")[0]

    def n_working() -> int:
        return asked("SELECT count(*) FROM procrastinate_workers")[0]

    workers = [_begun(url, share) for share in shares]
    try:
        while n_working() < sum(shares):
            time.sleep(_POLL_S)
        first, wal, cpu = n_done(), asked("SELECT pg_current_wal_lsn()::text")[0], cpu_s(server)
        began_s = time.perf_counter()
        speeds, before = list[float](), (began_s, first)
        while (done := n_done()) < n_runs:
            now_s = time.perf_counter()
            if now_s - before[0] > 5:
                speeds.append((done - before[1]) * STEPS / (now_s - before[0]))
                before = now_s, done
            if any(each.poll() is not None for each in workers):
                raise RuntimeError("A worker has ended.")
            time.sleep(_POLL_S)
        took_s, n_timed = time.perf_counter() - began_s, n_runs - first
        server_s = cpu_s(server) - cpu
        wal_bytes = float(asked("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), %s::pg_lsn)", wal)[0])
    finally:
        said = [_ended(each) for each in workers]
    connection.execute("SELECT pg_stat_force_next_flush()")
    step_bytes, n_steps = float(sum(asked(_BYTES.format(table="jm_steps")))), asked("SELECT count(*) FROM jm_steps")[0]
    run_bytes = sum(asked(_BYTES.format(table="jm_runs")))
    changed = float(asked(_CHANGED, "^jm_runs$")[0]) / n_runs
    if asked(_CHANGED, "^jm_steps")[0]:
        raise RuntimeError("Rows of steps were changed.")
    a_day = n_steps / n_runs * A_DAY
    steps_s = n_timed * STEPS / took_s
    cpu_s_a_run = sum(said) / n_runs + server_s / n_timed
    who = f"{sum(shares)} workers, {n_runs:,} runs of {STEPS} steps"
    return [
        alone(f"{who}: all", [steps_s], unit="steps / s", target="≥ 400"),
        alone(f"{who}: by CPU, two cores of our own", [2 * STEPS / cpu_s_a_run], unit="steps / s", target="≥ 400"),
        alone(f"{who}: the slowest five seconds", [min(speeds, default=steps_s)], unit="steps / s"),
        alone(f"{who}: all", [n_timed / took_s], unit="runs / s", target="≥ 11.6 (a million a day)"),
        alone(f"{who}: the workers", [sum(said) / n_runs * 1e3], unit="ms CPU / run"),
        alone(f"{who}: the server", [server_s / n_timed * 1e3], unit="ms CPU / run"),
        alone(f"{who}: WAL", [wal_bytes / n_timed / 1e3], unit="KB / run"),
        alone(f"{who}: a step with its index", [step_bytes], unit="bytes"),
        alone(f"{who}: a run, its steps left out", [float(run_bytes)], unit="bytes"),
        alone(f"{who}: dead rows of runs; of steps none", [changed], unit="/ run", target="≤ 2"),
        alone("a million runs a day: steps", [a_day * step_bytes / 1e9], unit="GB / day"),
        alone("a million runs a day: WAL", [wal_bytes / n_timed * A_DAY / 1e9], unit="GB / day"),
        alone("a million runs a day: of this server's time", [server_s / n_timed * A_DAY / 864], unit="% of a core"),
    ]


def _begun(url: str, n_workers: int) -> subprocess.Popen[str]:
    command = (sys.executable, "-m", "benchmarks.million_a_day", url, str(n_workers))
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ended(process: subprocess.Popen[str]) -> float:
    """Let a process end, and return how much CPU its workers have used, in seconds."""
    said, _ = process.communicate("stop\n", timeout=60)
    return float(said or 0)


async def _serve(url: str, n_workers: int) -> None:
    agent, stop = worker_agent(), asyncio.Event()

    async def work() -> None:
        async with Durable(url) as durable:
            await Worker(durable, agents=[agent], max_concurrency=_SLOTS).run(stop=stop, grace_s=5)

    began_s = time.process_time()
    working = asyncio.gather(*[work() for _ in range(n_workers)])
    await asyncio.to_thread(sys.stdin.readline)
    used_s = time.process_time() - began_s
    stop.set()
    await working
    print(used_s)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
