"""Durable runs: they survive the death of their process, and wait for days without one."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.durable.chats import ChatSession
    from journeyman.durable.dispatch import Dispatcher, Driving, HandOver, Ticket
    from journeyman.durable.durable import Durable
    from journeyman.durable.handle import Handle
    from journeyman.durable.memory import InMemoryEngine, Memory
    from journeyman.durable.postgres.dispatchers import ddl
    from journeyman.durable.postgres.engine import PostgresEngine
    from journeyman.durable.records import Question, QueueState, RunInfo, Status
    from journeyman.durable.worker import Queue, Worker

__all__ = [
    "ChatSession",
    "Dispatcher",
    "Driving",
    "Durable",
    "HandOver",
    "Handle",
    "InMemoryEngine",
    "Memory",
    "PostgresEngine",
    "Question",
    "Queue",
    "QueueState",
    "RunInfo",
    "Status",
    "Ticket",
    "Worker",
    "ddl",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "dispatch": "Dispatcher Driving HandOver Ticket",
            "chats": "ChatSession",
            "durable": "Durable",
            "handle": "Handle",
            "memory": "InMemoryEngine Memory",
            "postgres.dispatchers": "ddl",
            "postgres.engine": "PostgresEngine",
            "records": "Question QueueState RunInfo Status",
            "worker": "Queue Worker",
        },
    )
