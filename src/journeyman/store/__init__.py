"""Sessions in a SQLite file, or in a Postgres database."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.store.postgres import PostgresSession, PostgresSessions
    from journeyman.store.redacted import Redacted, RedactedSession
    from journeyman.store.repair import StoreRepaired
    from journeyman.store.store import FileSession, SessionInfo, Store

__all__ = [
    "FileSession",
    "PostgresSession",
    "PostgresSessions",
    "Redacted",
    "RedactedSession",
    "SessionInfo",
    "Store",
    "StoreRepaired",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "postgres": "PostgresSession PostgresSessions",
            "redacted": "Redacted RedactedSession",
            "repair": "StoreRepaired",
            "store": "FileSession SessionInfo Store",
        },
    )
