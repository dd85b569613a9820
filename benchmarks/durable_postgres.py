"""Durable runs in Postgres: an iteration, replay, a drive, a queue of 200,000, approval and takeover.

The server is one that is started for this, which writes to the disk; its CPU is counted by itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from statistics import quantiles
from typing import Final

import psycopg

from benchmarks.durable_file import approval, called_at, elsewhere, reader, replays
from benchmarks.measuring import Effort, Row, alone
from benchmarks.postgres_server import cpu_s, postgres
from benchmarks.work import PROMPT
from journeyman import Agent, run
from journeyman.durable import Durable, PostgresEngine, Worker, schema_sql
from journeyman.testing.scripted import FunctionModel
from tests.support.postgres import PostgresServer

_FETCH: Final = "SELECT id FROM procrastinate_fetch_job_v2(%s::varchar[], %s)"
_QUEUED: Final = """
    INSERT INTO jm_runs
    SELECT gen.id, NULL, parent, agent, app, target, f, head, queue, priority, dedup, created, 'ready', owner,
    0, 0, wake, false, 0, asked, used_s, tokens, cost, attempt, iteration, lives, deaths, n_steps, why, ended
    FROM jm_runs, (SELECT 'q' || lpad(n::text, 12, '0') AS id FROM generate_series(1, %s) AS n) AS gen
    WHERE jm_runs.id = %s
"""
_TICKETS: Final = """
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, args)
    SELECT queue_name, task_name, job.priority, jsonb_build_object('run', jm_runs.id, 'gen', 0)
    FROM jm_runs, (SELECT * FROM procrastinate_jobs LIMIT 1) AS job WHERE jm_runs.id LIKE 'q%'
"""


def measure(effort: Effort) -> list[Row]:
    """Measure against the same runs without a journal, and against the targets."""
    with postgres() as server:
        return asyncio.run(_rows(server, effort))


async def _rows(server: PostgresServer, effort: Effort) -> list[Row]:
    def url() -> str:
        return server.url(server.database(schema_sql()))

    return [
        *await _iterations(server, url(), effort),
        *await _drives(server, url(), effort),
        *await _queue(server, url(), effort),
        await _start(url(), effort),
        await approval(url(), effort),
        *await _takeovers(url(), effort),
    ]


async def _iterations(server: PostgresServer, url: str, effort: Effort) -> list[Row]:
    iterations, rounds = effort.size(100), effort.rounds(20)
    agent, more_s, server_s = reader(iterations), list[float](), list[float]()
    async with Durable(url) as durable:
        await durable.run(agent, PROMPT)
        for _ in range(rounds):
            before = cpu_s(server), time.process_time()
            await durable.run(agent, PROMPT)
            between = cpu_s(server), time.process_time()
            await run(agent, PROMPT)
            without_s = time.process_time() - between[1]
            server_s.append((between[0] - before[0]) / iterations)
            more_s.append(max(between[1] - before[1] - without_s, 0.0) / iterations)
        replayed = await replays(durable, iterations, rounds)
    what = f"durable in Postgres, {iterations} iterations, 2 KB results"
    return [
        _ms(f"{what}: more than without", more_s, "CPU / iteration", "≤ 1.5"),
        _ms(f"{what}: the server", server_s, "CPU / iteration"),
        _ms(f"replay of {iterations} iterations", replayed, "CPU / iteration", "≤ 0.4"),
    ]


def _ms(what: str, each_s: list[float], unit: str, target: str = "") -> Row:
    return alone(what, [max(each * 1e3, 1e-6) for each in each_s], unit=f"ms {unit}".strip(), target=target)


async def _drives(server: PostgresServer, url: str, effort: Effort) -> list[Row]:
    """Measure what a run of one answer costs that a worker drives, from its ticket to its end."""
    n_runs, rounds = effort.size(500), effort.rounds(5)
    costs: tuple[list[float], list[float]] = [], []
    async with Durable(url) as durable:
        for _ in range(rounds):
            left = iter(range(n_runs - 1))
            stop = asyncio.Event()

            async def answer(_: object, left: Iterator[int] = left, stop: asyncio.Event = stop) -> str:
                if next(left, None) is None:
                    stop.set()  # it is the last one
                return "Done."

            agent = Agent(name="quick", model=FunctionModel(answer))
            for _ in range(n_runs):
                await durable.start(agent, PROMPT)
            before = time.process_time(), cpu_s(server)
            await Worker(durable, agents=[agent], max_concurrency=8).run(stop=stop)
            for cost, now, then in zip(costs, (time.process_time(), cpu_s(server)), before, strict=True):
                cost.append((now - then) / n_runs)
    return [
        _ms("a drive of one answer: the worker", costs[0], "CPU", "≤ 2.5"),
        _ms("a drive of one answer: the server", costs[1], "CPU", "≤ 2.5"),
    ]


async def _queue(server: PostgresServer, url: str, effort: Effort) -> list[Row]:
    queued, fetch_s, claim_s = effort.size(200_000), list[float](), list[float]()
    agent = reader(1)
    async with Durable(url) as durable:
        begun = await durable.start(agent, PROMPT)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")  # nobody is told of each
            connection.execute(_QUEUED, [queued, begun.id])
            connection.execute(_TICKETS)
            connection.execute("RESET session_replication_role")
            connection.execute("ANALYZE")
            places = [name for (name,) in connection.execute("SELECT DISTINCT queue_name FROM procrastinate_jobs")]
            worker = connection.execute("SELECT worker_id FROM procrastinate_register_worker_v1()").fetchone()
            assert worker is not None
            for _ in range(effort.rounds(500)):
                began_s = time.perf_counter()
                fetched = connection.execute(_FETCH, [places, worker[0]]).fetchone()
                fetch_s.append(time.perf_counter() - began_s)
                assert fetched is not None
        engine = durable.hub.engine
        for n in range(effort.rounds(300)):
            began_s = time.perf_counter()
            assert await engine.claim(f"q{n + 1:012}", now=durable.hub.now(), gen=0) is not None
            claim_s.append(time.perf_counter() - began_s)
    behind = f"with {queued:,} queued"
    return [
        _ms(f"to fetch a ticket {behind}, p99", [_p99(fetch_s)], "", "≤ 10"),
        _ms(f"to claim its run {behind}, p99", [_p99(claim_s)], ""),
    ]


def _p99(figures: list[float]) -> float:
    return quantiles(figures, n=100)[98] if len(figures) > 1 else figures[0]


async def _start(url: str, effort: Effort) -> Row:
    """Measure from the start of a run to its first model call in a worker that idles."""
    called, taken_s, stop = asyncio.Event(), list[float](), asyncio.Event()

    async def note(_: int) -> None:
        called.set()

    agent = reader(1, at=note)
    async with Durable(url) as starter, Durable(url) as durable:
        serving = asyncio.create_task(Worker(durable, agents=[agent]).run(stop=stop))
        for n in range(effort.rounds(60) + 1):
            called.clear()
            began_s = time.perf_counter()
            handle = await starter.start(agent, PROMPT)
            await called.wait()
            if n:
                taken_s.append(time.perf_counter() - began_s)
            await handle.result()
        stop.set()
        await serving
    return _ms("start to first model call in a worker that idles", taken_s, "", "≤ 50")


async def _takeovers(url: str, effort: Effort) -> list[Row]:
    """Measure how long it takes until another worker calls the model for a run, whose worker is killed, or stopped."""
    lease_s = 0.5 if effort.share_of_size < 1 else 10.0
    rows: list[Row] = []
    for how, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        taken_s: list[float] = []
        for _ in range(effort.rounds(4)):
            called, stop = asyncio.Event(), asyncio.Event()

            async def note(_: int, called: asyncio.Event = called) -> None:
                called.set()

            agent, engine = reader(4, at=note), PostgresEngine(url, lease_s=lease_s, grace_s=0.0)
            async with Durable(engine) as durable, elsewhere(url, "hangs") as process:
                handle = await durable.start(agent, PROMPT)
                await called_at(process, 0)
                serving = asyncio.create_task(Worker(durable, agents=[agent]).run(stop=stop))
                await asyncio.sleep(lease_s / 4)  # it has looked once
                began_s = time.perf_counter()
                os.kill(process.pid, number)
                await called.wait()
                taken_s.append((time.perf_counter() - began_s) / lease_s)
                await handle.result()
                stop.set()
                await serving
        target = "≤ 1.6"
        rows.append(alone(f"takeover of a run whose worker was {how}", taken_s, unit="leases", target=target))
    return rows
