"""Delegation: the tool by which a model hands tasks to other agents."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.subagents.results import (
        BackgroundResult,
        ChainResult,
        ItemResult,
        ParallelResult,
        SingleResult,
        SubagentResult,
        SubagentUsage,
        TeamResult,
    )
    from journeyman.subagents.tool import Subagents

__all__ = [
    "BackgroundResult",
    "ChainResult",
    "ItemResult",
    "ParallelResult",
    "SingleResult",
    "SubagentResult",
    "SubagentUsage",
    "Subagents",
    "TeamResult",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "results": "BackgroundResult ChainResult ItemResult ParallelResult SingleResult SubagentResult "
            "SubagentUsage TeamResult",
            "tool": "Subagents",
        },
    )
