"""The statements that read and write runs, their steps and their signals as rows of Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from journeyman.durable.records import Record, Row
from journeyman.store.database import NUMBER, NUMBERING

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
PARKED: Final = (
    "SELECT id, gen FROM jm_runs WHERE parked AND status = 'ready' AND queue = %s::text"
    " ORDER BY priority DESC, created, id LIMIT 1"
)
PARKED_QUEUES: Final = "SELECT DISTINCT queue FROM jm_runs WHERE parked AND status = 'ready'"
_SWEEPING: Final = 0x6A6D_0003
SWEEPS: Final = (
    # One process at a time, however many workers there are, and the moment is kept by the database's own clock.
    "UPDATE jm_version SET swept = now() WHERE (swept IS NULL OR swept < now() - make_interval(secs => %s::float8))"
    f" AND pg_try_advisory_xact_lock({_SWEEPING}) RETURNING true"
)
LATE: Final = (
    "SELECT id, gen FROM jm_runs WHERE ((status = 'ready' AND greatest(wake, created) < %s::float8)"
    " OR (status = 'waiting' AND wake < %s::float8)) AND id > %s::text AND NOT parked ORDER BY id LIMIT %s"
)
_BYTES: Final = ("head", "asked")
_FLOATS: Final = ("created", "wake", "used_s", "cost", "ended")
_TEXTS: Final = ("id", "name", "parent", "agent", "app", "target", "queue", "dedup", "status", "owner", "why")


def _mark(column: str) -> str:
    """Return the place of a value in a statement."""
    if column in _BYTES:
        return "%b::bytea"
    if column == "parked":
        return "%s::bool"
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
LOCK_RUN: Final = f"SELECT {NUMBER}, {LIST} FROM jm_runs WHERE id = %s::text FOR UPDATE"
# A limit on a queue is counted, so those who count come one after the other.
QUEUE_LOCK: Final = (
    "SELECT pg_advisory_xact_lock(hashtextextended('journeyman queue ' || queue, 0)) FROM jm_runs WHERE id = %s::text"
)
OWNERS: Final = "SELECT DISTINCT owner FROM jm_runs WHERE status = 'running' AND owner IS NOT NULL"


def update_run(columns: Sequence[str], *, tells: bool) -> str:
    """Return the statement that changes these columns of a run."""
    # Only what a run asks may be lost with the power: whoever drives it next asks it again.
    is_soon = f" AND {SOON}" if columns == ["asked"] else ""
    told = f" RETURNING {TELL}" if tells else ""
    changed = ", ".join(f"{each} = {_mark(each)}" for each in columns)
    return f"UPDATE jm_runs SET {changed} WHERE id = %s::text{is_soon}{told}"


SIGNAL: Final = (
    # One at a time until the end of the transaction: who has read a number must have read all before it.
    f"WITH queued AS MATERIALIZED (SELECT pg_advisory_xact_lock({NUMBERING}))"
    " INSERT INTO jm_signals (run, kind, dedup, body, at, who)"
    " SELECT %s::text, %s::text, %s::text, %b::bytea, %s::float8, %s::text FROM queued"
)
KNOWN_SIGNAL: Final = "SELECT n FROM jm_signals WHERE run = %s::text AND kind = %s::text AND dedup = %s::text"
FORGET: Final = "DELETE FROM jm_runs WHERE id = ANY(%s::text[]) AND status IN ('done', 'failed') RETURNING id"
FORGET_STEPS: Final = "DELETE FROM {} WHERE run = ANY(%s::text[])"
"""Deletes what is stored of these runs from a table."""
FORGET_CONVERSATIONS: Final = b"DELETE FROM jm_conversation WHERE session = ANY(%s::text[])"
