"""Agents that hand in checked work.

An `Agent` is a frozen definition; `run` runs it. Every run ends in a `Success` or a `Failure`, with a conversation that
a provider would accept, exact usage, and an output that passed its checks, or the reason why not.

The names below are loaded when they are first used: `import journeyman` by itself costs next to nothing.
"""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.agent import Agent, Runtime
    from journeyman.batch.batch import run_many
    from journeyman.budget import Budget, LimitExceeded, Limits, Spending
    from journeyman.cancellation import Abort
    from journeyman.chat.chat import Chat
    from journeyman.chat.questions import ask_user
    from journeyman.chat.turn import Turn
    from journeyman.endings import ErrorCode, ErrorInfo
    from journeyman.errors import (
        ChatBusy,
        ChatHeld,
        DefinitionError,
        JourneymanError,
        ModelUnavailable,
        ProviderError,
        Rejected,
        RunError,
    )
    from journeyman.events import CallbackContext, Callbacks, Event, Listener
    from journeyman.journal import InMemoryJournal
    from journeyman.loop.run import run, run_sync
    from journeyman.loop.streaming import Events, stream
    from journeyman.loop.validation import validation_context
    from journeyman.model import Model, ModelSettings
    from journeyman.output import ContinueRun, FailRun, Output, Reflection, StopContext, SubmitTool
    from journeyman.prompt import ErrorPromptContext
    from journeyman.result import Failure, Metadata, Result, Success
    from journeyman.subagents.tool import Subagents
    from journeyman.tasks.tasks import Tasks
    from journeyman.team.team import Team
    from journeyman.tools.context import ToolContext
    from journeyman.tools.tools import Tool, tool
    from journeyman.types import (
        Audio,
        Document,
        Image,
        Message,
        Price,
        Text,
        ToolResult,
        Usage,
        dump_messages,
        load_messages,
    )

__all__ = [
    "Abort",
    "Agent",
    "Audio",
    "Budget",
    "CallbackContext",
    "Callbacks",
    "Chat",
    "ChatBusy",
    "ChatHeld",
    "ContinueRun",
    "DefinitionError",
    "Document",
    "ErrorCode",
    "ErrorInfo",
    "ErrorPromptContext",
    "Event",
    "Events",
    "FailRun",
    "Failure",
    "Image",
    "InMemoryJournal",
    "JourneymanError",
    "LimitExceeded",
    "Limits",
    "Listener",
    "Message",
    "Metadata",
    "Model",
    "ModelSettings",
    "ModelUnavailable",
    "Output",
    "Price",
    "ProviderError",
    "Reflection",
    "Rejected",
    "Result",
    "RunError",
    "Runtime",
    "Spending",
    "StopContext",
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
    "validation_context",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "agent": "Agent Runtime",
            "batch.batch": "run_many",
            "budget": "Budget LimitExceeded Limits Spending",
            "cancellation": "Abort",
            "chat.chat": "Chat",
            "chat.questions": "ask_user",
            "chat.turn": "Turn",
            "endings": "ErrorCode ErrorInfo",
            "errors": (
                "ChatBusy ChatHeld DefinitionError JourneymanError ModelUnavailable ProviderError Rejected RunError"
            ),
            "events": "CallbackContext Callbacks Event Listener",
            "journal": "InMemoryJournal",
            "loop.run": "run run_sync",
            "loop.streaming": "Events stream",
            "loop.validation": "validation_context",
            "model": "Model ModelSettings",
            "output": "ContinueRun FailRun Output Reflection StopContext SubmitTool",
            "prompt": "ErrorPromptContext",
            "result": "Failure Metadata Result Success",
            "subagents.tool": "Subagents",
            "tasks.tasks": "Tasks",
            "team.team": "Team",
            "tools.context": "ToolContext",
            "tools.tools": "Tool tool",
            "types": "Audio Document Image Message Price Text ToolResult Usage dump_messages load_messages",
        },
    )
