"""Sessions and journals in one SQLite file; sessions in a Postgres database, too."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.store.journal import FileJournal
    from journeyman.store.postgres import PostgresSession, PostgresSessions
    from journeyman.store.redacted import Redacted, RedactedSession
    from journeyman.store.repair import StoreRepaired
    from journeyman.store.store import FileSession, SessionInfo, Store

__all__ = [
    "FileJournal",
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
            "journal": "FileJournal",
            "postgres": "PostgresSession PostgresSessions",
            "redacted": "Redacted RedactedSession",
            "repair": "StoreRepaired",
            "store": "FileSession SessionInfo Store",
        },
    )
