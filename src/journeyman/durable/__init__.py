"""Durable runs: they survive the death of their process, and wait for days without one."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.durable.chats import ChatSession
    from journeyman.durable.dispatch import Dispatcher, Requeue, ResumeRun, Ticket
    from journeyman.durable.durable import Durable
    from journeyman.durable.handle import RunHandle
    from journeyman.durable.memory import InMemoryEngine, Memory
    from journeyman.durable.postgres.days import schema_sql
    from journeyman.durable.postgres.engine import PostgresEngine
    from journeyman.durable.records import PendingQuestion, QueueState, RunInfo, RunStatus
    from journeyman.durable.worker import Queue, Worker

__all__ = [
    "ChatSession",
    "Dispatcher",
    "Durable",
    "InMemoryEngine",
    "Memory",
    "PendingQuestion",
    "PostgresEngine",
    "Queue",
    "QueueState",
    "Requeue",
    "ResumeRun",
    "RunHandle",
    "RunInfo",
    "RunStatus",
    "Ticket",
    "Worker",
    "schema_sql",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "dispatch": "Dispatcher Requeue ResumeRun Ticket",
            "chats": "ChatSession",
            "durable": "Durable",
            "handle": "RunHandle",
            "memory": "InMemoryEngine Memory",
            "postgres.days": "schema_sql",
            "postgres.engine": "PostgresEngine",
            "records": "PendingQuestion QueueState RunInfo RunStatus",
            "worker": "Queue Worker",
        },
    )
