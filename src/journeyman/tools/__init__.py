"""Tools: what a model may call, and what comes of a call."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.tools.background import TaskContext
    from journeyman.tools.context import ToolContext
    from journeyman.tools.tools import CallNext, MiddlewareCall, Tool, tool

__all__ = ["CallNext", "MiddlewareCall", "TaskContext", "Tool", "ToolContext", "tool"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__, {"background": "TaskContext", "context": "ToolContext", "tools": "CallNext MiddlewareCall Tool tool"}
    )
