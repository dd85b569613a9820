"""The model's questions to the user, through the tool `ask_user`, and where a turn that goes on here asks its user."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import Field

from journeyman.gate import current_guard
from journeyman.inbox.inbox import current_conversation
from journeyman.inbox.questions import PendingQuestions
from journeyman.loop.watch import Watch
from journeyman.tools.context import ToolContext
from journeyman.tools.tools import tool
from journeyman.types import Text, ToolResult

Questions: TypeAlias = PendingQuestions[Watch]
"""The questions of a chat, or of a team. A turn that ends answers what is still open with a denial. Where nobody
listens, nothing is asked."""


NOBODY: Final = "Nobody is there to answer. Decide by yourself, and say in your answer what you assumed."
"""What the model reads outside a chat, or in one to which nobody listens."""

_QUESTION = "What you need to know, in one or two sentences."
_OPTIONS = "Answers to choose from, if there are few; the user may answer something else."


@tool(effect="pure", permission_kind="ask_user")
async def ask_user(
    context: ToolContext,
    question: Annotated[str, Field(description=_QUESTION)],
    options: Annotated[list[str] | None, Field(description=_OPTIONS)] = None,
) -> str | ToolResult:
    """Ask the user, and wait for the answer. Ask only for what you cannot find out yourself."""
    asker = current_conversation.get().asker
    # Its step is the same in each life of a durable run, so that a question is asked once.
    answer = None if asker is None else await asker.ask(context.path, question, options or (), call=context.step)
    if answer is None:
        return ToolResult(NOBODY, is_error=True)
    guard = current_guard()
    if guard is not None:  # the model has asked, but it is the user who speaks
        guard.hear([Text(answer)])
    return answer
