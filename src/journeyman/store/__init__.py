"""Sessions in a SQLite file, or in a Postgres database."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.store.postgres import PostgresSessions
    from journeyman.store.repair import StoreRepaired
    from journeyman.store.sessions import SessionInfo, StoredSession
    from journeyman.store.store import Store

__all__ = ["PostgresSessions", "SessionInfo", "Store", "StoreRepaired", "StoredSession"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "postgres": "PostgresSessions",
            "repair": "StoreRepaired",
            "sessions": "SessionInfo StoredSession",
            "store": "Store",
        },
    )
