"""The tool with which a model asks the user of its chat. Imports `questions` and `tools`."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from journeyman.chat.questions import current_questions
from journeyman.tools.tool import ToolContext, tool
from journeyman.types import ToolResult

NOBODY: Final = "Nobody is there to answer. Decide by yourself, and say in your answer what you assumed."
"""What the model reads outside a chat, or in one to which nobody listens."""

_QUESTION = "What you need to know, in one or two sentences."
_OPTIONS = "Answers to choose from, if there are few; the user may answer something else."


@tool(effect="pure")
async def ask_user(
    context: ToolContext,
    question: Annotated[str, Field(description=_QUESTION)],
    options: Annotated[list[str] | None, Field(description=_OPTIONS)] = None,
) -> str | ToolResult:
    """Ask the user, and wait for the answer. Ask only for what you cannot find out yourself."""
    questions = current_questions.get()
    answer = None if questions is None else await questions.ask(context.path, question, options or ())
    return ToolResult(NOBODY, is_error=True) if answer is None else answer
