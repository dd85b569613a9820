"""Agents that hand in checked work.

An `Agent` is a frozen definition; `run` runs it. Every run ends in a `Success` or a `Failure`, with a conversation that
a provider would accept, exact usage, and an output that passed its checks, or the reason why not.

The names below are loaded when they are first used: `import journeyman` by itself costs next to nothing.
"""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.agent import Agent, Runtime
    from journeyman.batch.batch import run_many
    from journeyman.budget import Budget, Limits
    from journeyman.cancellation import Abort
    from journeyman.chat.chat import Chat
    from journeyman.chat.questions import ask_user
    from journeyman.chat.turn import Turn
    from journeyman.endings import ErrorCode, ErrorInfo
    from journeyman.errors import DefinitionError, JourneymanError, Rejected
    from journeyman.events import Callbacks, Event
    from journeyman.loop.run import run, run_sync
    from journeyman.loop.streaming import Events, stream
    from journeyman.model import Model, ModelSettings
    from journeyman.output.output import OneOf, Output, Reflection, SubmitTool
    from journeyman.result import Failure, Result, Success
    from journeyman.subagents.tool import Subagents
    from journeyman.tasks.tasks import Tasks
    from journeyman.team.team import Team
    from journeyman.tools.context import ToolContext
    from journeyman.tools.tools import Tool, tool
    from journeyman.types import Audio, Document, Image, Message, Text, ToolResult, Usage, dump_messages, load_messages

__all__ = [
    "Abort",
    "Agent",
    "Audio",
    "Budget",
    "Callbacks",
    "Chat",
    "DefinitionError",
    "Document",
    "ErrorCode",
    "ErrorInfo",
    "Event",
    "Events",
    "Failure",
    "Image",
    "JourneymanError",
    "Limits",
    "Message",
    "Model",
    "ModelSettings",
    "OneOf",
    "Output",
    "Reflection",
    "Rejected",
    "Result",
    "Runtime",
    "Subagents",
    "SubmitTool",
    "Success",
    "Tasks",
    "Team",
    "Text",
    "Tool",
    "ToolContext",
    "ToolResult",
    "Turn",
    "Usage",
    "ask_user",
    "dump_messages",
    "load_messages",
    "run",
    "run_many",
    "run_sync",
    "stream",
    "tool",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "agent": "Agent Runtime",
            "batch.batch": "run_many",
            "budget": "Budget Limits",
            "cancellation": "Abort",
            "chat.chat": "Chat",
            "chat.questions": "ask_user",
            "chat.turn": "Turn",
            "endings": "ErrorCode ErrorInfo",
            "errors": ("DefinitionError JourneymanError Rejected"),
            "events": "Callbacks Event",
            "loop.run": "run run_sync",
            "loop.streaming": "Events stream",
            "model": "Model ModelSettings",
            "output.output": "OneOf Output Reflection SubmitTool",
            "result": "Failure Result Success",
            "subagents.tool": "Subagents",
            "tasks.tasks": "Tasks",
            "team.team": "Team",
            "tools.context": "ToolContext",
            "tools.tools": "Tool tool",
            "types": "Audio Document Image Message Text ToolResult Usage dump_messages load_messages",
        },
    )
