"""Durable runs: they survive the death of their process, and wait for days without one."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.durable.durable import Durable
    from journeyman.durable.handle import Handle
    from journeyman.durable.memory import InMemoryEngine, Memory
    from journeyman.durable.postgres import PostgresEngine, ddl
    from journeyman.durable.records import Question, RunInfo, Status
    from journeyman.durable.worker import Queue, Worker

__all__ = [
    "Durable",
    "Handle",
    "InMemoryEngine",
    "Memory",
    "PostgresEngine",
    "Question",
    "Queue",
    "RunInfo",
    "Status",
    "Worker",
    "ddl",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "durable": "Durable",
            "handle": "Handle",
            "memory": "InMemoryEngine Memory",
            "postgres": "PostgresEngine ddl",
            "records": "Question RunInfo Status",
            "worker": "Queue Worker",
        },
    )
