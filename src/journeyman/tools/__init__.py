"""Tools: what a model may call, and what comes of a call."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.tools.background import TaskContext
    from journeyman.tools.context import ToolContext, ToolsetContext
    from journeyman.tools.external import ExternalTools
    from journeyman.tools.known_secrets import hide_values
    from journeyman.tools.tools import CallNext, MiddlewareCall, Tool, tool
    from journeyman.tools.toolsets import Toolset, toolset

__all__ = [
    "CallNext",
    "ExternalTools",
    "MiddlewareCall",
    "TaskContext",
    "Tool",
    "ToolContext",
    "Toolset",
    "ToolsetContext",
    "hide_values",
    "tool",
    "toolset",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "background": "TaskContext",
            "context": "ToolContext ToolsetContext",
            "external": "ExternalTools",
            "known_secrets": "hide_values",
            "tools": "CallNext MiddlewareCall Tool tool",
            "toolsets": "Toolset toolset",
        },
    )
