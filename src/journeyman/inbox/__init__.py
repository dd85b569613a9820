"""The inbox takes what comes to a run from outside: texts for its conversation, answers to its questions, signals."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.inbox.inbox import Inbox, Queue, Receipt

__all__ = ["Inbox", "Queue", "Receipt"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"inbox": "Inbox Queue Receipt"})
