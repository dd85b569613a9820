"""Chats: stateful conversations of many prompts."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.chat.chat import Chat
    from journeyman.chat.questions import ask_user
    from journeyman.chat.turn import ChatState, Hold, Turn

__all__ = ["Chat", "ChatState", "Hold", "Turn", "ask_user"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"chat": "Chat", "questions": "ask_user", "turn": "ChatState Hold Turn"})
