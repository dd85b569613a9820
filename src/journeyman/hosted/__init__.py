"""Tools that the provider runs by itself, while it answers: how they are asked for, and what they did."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.hosted.calls import HostedCall, SearchHit, hosted_calls
    from journeyman.hosted.tools import CodeExecution, FileSearch, HostedTool, HostedToolSupport, Location, WebSearch

__all__ = [
    "CodeExecution",
    "FileSearch",
    "HostedCall",
    "HostedTool",
    "HostedToolSupport",
    "Location",
    "SearchHit",
    "WebSearch",
    "hosted_calls",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "calls": "HostedCall SearchHit hosted_calls",
            "tools": "CodeExecution FileSearch HostedTool HostedToolSupport Location WebSearch",
        },
    )
