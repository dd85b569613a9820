"""The statements that read and write runs, their steps and their signals as rows of Postgres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Final, get_args

from journeyman.durable.records import OPEN, Record, Row, SignalKind, signalled
from journeyman.store.database import NUMBERING

CHANNEL: Final = "journeyman"
COLUMNS: Final = tuple(each.name for each in fields(Row))
LIST: Final = ", ".join(COLUMNS)
_FREE: Final = (
    "SELECT r.id FROM place p CROSS JOIN LATERAL (SELECT id FROM jm_runs WHERE status = 'ready' AND agent = p.agent"
    " AND queue = p.queue AND (wake IS NULL OR wake <= %(now)s::float8)"
    " ORDER BY priority DESC, created, id LIMIT %(limit)s) r"
)
_WHICH: Final = "agent = ANY(%(agents)s::text[]) AND (%(all)s::bool OR queue = ANY(%(queues)s::text[]))"
# From queue to queue, since Postgres does not skip to the next different value of an index by itself.
READY: Final = f"""
WITH RECURSIVE place(agent, queue) AS (
    SELECT agent, queue FROM unnest(%(agents)s::text[]) AS agent, unnest(%(queues)s::text[]) AS queue
    UNION ALL (
        SELECT agent, (SELECT min(r.queue) FROM jm_runs r WHERE r.status = 'ready' AND r.agent = a.agent)
        FROM unnest(%(agents)s::text[]) AS a(agent) WHERE %(all)s::bool
    )
), next(agent, queue) AS (
    SELECT agent, queue FROM place
    UNION
    SELECT agent, (
        SELECT min(r.queue) FROM jm_runs r WHERE r.status = 'ready' AND r.agent = next.agent AND r.queue > next.queue)
    FROM next WHERE next.queue IS NOT NULL AND %(all)s::bool
)
SELECT {LIST} FROM jm_runs WHERE id = ANY(ARRAY(
    {_FREE.replace("place p", "next p")}
    UNION ALL
    (SELECT id FROM jm_runs WHERE status = 'waiting' AND wake <= %(now)s::float8 AND {_WHICH}
        ORDER BY priority DESC, created, id LIMIT %(limit)s)
    UNION ALL
    (SELECT id FROM jm_runs WHERE status = 'running' AND owner = ANY(%(dead)s::text[]) AND {_WHICH}
        ORDER BY priority DESC, created, id LIMIT %(limit)s)
)) ORDER BY priority DESC, created, id LIMIT %(limit)s
"""
"""By agent and queue: however many wait for others, none of those is looked at. `next` goes from queue to queue."""
HAND_OVER: Final = (
    # The epoch changes where somebody drives it: whatever that process still does, it can write nothing more.
    "UPDATE jm_runs SET status = CASE status WHEN 'running' THEN 'ready' ELSE status END, gen = gen + 1,"
    " epoch = epoch + (status = 'running')::int WHERE id = %s::text AND gen = %s::bigint"
    f" AND (status IN ('ready', 'running') OR (status = 'waiting' AND wake IS NOT NULL)) RETURNING {LIST}"
)
"""The owner stays named: a run that takes its processes down is known by that."""
PARK: Final = "INSERT INTO jm_parked (run, queue) VALUES (%s::text, %s::text) ON CONFLICT DO NOTHING"
UNPARK: Final = (
    "DELETE FROM jm_parked WHERE run = (SELECT p.run FROM jm_parked p JOIN jm_runs r ON r.id = p.run"
    " WHERE p.queue = %s::text AND r.status = 'ready' ORDER BY r.priority DESC, r.created, r.id LIMIT 1) RETURNING run"
)
PARKED: Final = (
    "WITH gone AS (DELETE FROM jm_parked WHERE NOT EXISTS (SELECT FROM jm_runs WHERE id = run AND status = 'ready'))"
    " SELECT DISTINCT queue FROM jm_parked"
)
_SWEEPING: Final = 0x6A6D_0003
SWEEPS: Final = (
    # One process at a time, however many workers there are, and the moment is kept by the database's own clock.
    "UPDATE jm_version SET swept = now() WHERE (swept IS NULL OR swept < now() - make_interval(secs => %s::float8))"
    f" AND pg_try_advisory_xact_lock({_SWEEPING}) RETURNING true"
)
LATE: Final = (
    "SELECT id, gen FROM jm_runs WHERE ((status = 'ready' AND greatest(wake, created) < %s::float8)"
    " OR (status = 'waiting' AND wake < %s::float8)) AND id > %s::text"
    " AND NOT EXISTS (SELECT FROM jm_parked WHERE run = id) ORDER BY id LIMIT %s"
)
_BYTES: Final = ("head", "asked", "result")
_FLOATS: Final = ("created", "wake", "used_s", "cost", "ended")
_TEXTS: Final = ("id", "name", "parent", "agent", "app", "queue", "dedup", "status", "owner", "why")


def _mark(column: str) -> str:
    """Return the place of a value in a statement."""
    if column in _BYTES:
        return "%b::bytea"
    return "%s::text" if column in _TEXTS else "%s::float8" if column in _FLOATS else "%s::bigint"


TELL: Final = f"pg_notify('{CHANNEL}', %s::text)"
ADD_RUN: Final = (
    f"INSERT INTO jm_runs ({LIST}) VALUES ({', '.join(map(_mark, COLUMNS))}) ON CONFLICT DO NOTHING RETURNING {TELL}"
)
STEP: Final = ", ".join(Record._fields)
_STEP_MARKS: Final = (
    "%s::text, %s::text, %s::text, %s::text, %s::bigint, %s::bigint, %s::text, %s::text, %s::bigint,"
    " %b::bytea, %s::text, %s::bigint, %s::float8, %s::float8, %s::bigint, %b::bytea, %s::bigint"
)
ADD_STEP: Final = f"INSERT INTO jm_steps ({STEP}) VALUES ({_STEP_MARKS}) ON CONFLICT DO NOTHING"
# For steps that may be done again: whoever writes waits for the network, and not for the disk.
SOON: Final = "set_config('synchronous_commit', 'off', true) = 'off'"
"""Lets a statement end before what it writes is on the disk."""
_WRITE: Final = (
    # The epoch stands in the statement that writes: nothing is written by whoever has lost the run, not even late.
    f"INSERT INTO jm_steps ({STEP}) SELECT {_STEP_MARKS} FROM jm_runs WHERE id = %s::text AND epoch = %s::bigint"
)
_ONCE: Final = " ON CONFLICT DO NOTHING RETURNING n"
WRITE_SYNCED: Final = f"{_WRITE}{_ONCE}"
WRITE_SOON: Final = f"{_WRITE} AND {SOON}{_ONCE}"
KNOWN: Final = (
    f"SELECT r.epoch, {', '.join(f's.{each}' for each in Record._fields)} FROM jm_runs r LEFT JOIN jm_steps s"
    " ON s.run = %s::text AND s.key = %s::text AND s.state = %s::text WHERE r.id = %s::text"
)
CLAIMED: Final = ("status", "owner", "epoch", "gen", "lives", "deaths", "n_steps", "wake", "why", "head")
CLAIM: Final = (
    f"UPDATE jm_runs SET {', '.join(f'{each} = {_mark(each)}' for each in CLAIMED)} WHERE id = %s::text"
    # As it was read, in each thing that decides: what has changed meanwhile is read again, and nothing is locked while
    # a process thinks.
    " AND epoch = %s::bigint AND gen = %s::bigint AND n_signals = %s::bigint AND status = %s::text RETURNING id"
)
"""Changes a run only if it is as it was read."""
UNCLAIM: Final = (
    "UPDATE jm_runs SET status = 'ready', owner = NULL, gen = gen + 1 WHERE id = %s::text AND epoch = %s::bigint"
    f" RETURNING {TELL}"
)
GIVEN_BACK: Final = (
    *("status", "owner", "why", "wake", "asked", "used_s", "tokens", "cost", "attempt", "iteration", "deaths"),
    *("result", "ended"),
)
SETTLE: Final = (
    f"UPDATE jm_runs SET {', '.join(f'{each} = {_mark(each)}' for each in GIVEN_BACK)}, gen = gen + %s::bigint"
    " WHERE id = %s::text AND epoch = %s::bigint AND status = 'running'"
    # Not if a signal came that was not seen: it would have found a run that nobody would wake.
    f" AND (%s::bigint IS NULL OR n_signals = %s::bigint) RETURNING {TELL}"
)
# A limit on a queue is counted, so those who count come one after the other.
QUEUE_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('journeyman queue ' || %s::text, 0))"
OWNERS: Final = "SELECT DISTINCT owner FROM jm_runs WHERE status = 'running' AND owner IS NOT NULL"


def _told(kind: SignalKind) -> str:
    """Return the statement that stores a signal, and makes of its run what `signalled` says."""
    after = {status: signalled(replace(_PROBE, status=status), kind) for status in OPEN}
    status = " ".join(f"WHEN '{each}' THEN '{row.status}'" for each, row in after.items())
    gen = ", ".join([f"'{each}'" for each, row in after.items() if row.gen] or ["''"])
    wakes = ", ".join([f"'{each}'" for each, row in after.items() if row.wake is None] or ["''"])
    return (
        # The row is locked first: this waits for a suspension under way, and sees what the run is after it. Otherwise
        # the run would still look as if it were driven, and nobody would wake it.
        "WITH was AS (SELECT id, gen FROM jm_runs WHERE id = %s::text FOR UPDATE),"
        f" told AS (UPDATE jm_runs r SET n_signals = n_signals + 1, status = CASE status {status} END,"
        f" gen = r.gen + (status IN ({gen}))::int, wake = CASE WHEN status IN ({wakes}) THEN NULL ELSE wake END"
        f" FROM was WHERE r.id = was.id AND status NOT IN ('done', 'failed') AND NOT EXISTS"
        " (SELECT FROM jm_signals WHERE run = %s::text AND kind = %s::text AND dedup = %s::text)"
        " RETURNING r.id, r.gen <> was.gen AS is_woken),"
        # One at a time until the end of the transaction: who has read a number must have read all before it.
        f" queued AS MATERIALIZED (SELECT id, pg_advisory_xact_lock({NUMBERING}) FROM told)"
        " INSERT INTO jm_signals (run, kind, dedup, body, at, who)"
        " SELECT id, %s::text, %s::text, %b::bytea, %s::float8, %s::text FROM queued"
        f" RETURNING {TELL}, (SELECT is_woken FROM told)"
    )


_PROBE: Final = Row(id="", name=None, agent="", head=b"", created=0.0, status="ready", wake=0.0)
SIGNAL: Final[Mapping[SignalKind, str]] = {kind: _told(kind) for kind in get_args(SignalKind)}
SIGNAL_COLUMNS: Final = "n, run, kind, dedup, body, at, who"
FORGET: Final = "DELETE FROM jm_runs WHERE id = ANY(%s::text[]) AND status IN ('done', 'failed') RETURNING id"
FORGET_STEPS: Final = "DELETE FROM {} WHERE run = ANY(%s::text[])"
"""Deletes what is stored of these runs from a table."""
