"""The tool `todo`: a model's list of what is to be done, which it writes whole each time.

The list stands in the conversation and nowhere else: so a resumed run and a chat's next turn have it, the system prompt
never changes, and a summary of the conversation keeps the last one word for word (see `Summarise.last_results`).
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypedDict

from journeyman.errors import Rejected
from journeyman.tools.context import ToolContext
from journeyman.tools.tools import AnyTool, tool

NAME: Final = "todo"
_MOST_ITEMS: Final = 50
_LONGEST_CHARS: Final = 300
_BOXES: Final = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


class TodoItem(TypedDict):
    """One thing that is to be done."""

    text: Annotated[str, Field(max_length=_LONGEST_CHARS, pattern=r"\S")]
    status: Literal["pending", "in_progress", "done"]


def todo_tool() -> AnyTool:
    """Return the tool `todo`, with which a model keeps a list of what is to be done.

        agent = Agent(..., tools=[todo_tool(), *workspace.tools()])

    The model writes the whole list each time, with one item in progress at most. Each list is shown as the progress of
    the call: the event `ToolProgress`, with how many items are done, and which one is in progress.
    """

    @tool(name=NAME, effect="pure")
    async def todo(items: Annotated[list[TodoItem], Field(max_length=_MOST_ITEMS)], ctx: ToolContext) -> str:
        """Write down what is to be done, so that nothing is forgotten in a task of three steps or more.

        Write the whole list each time: it takes the place of the one before. Have one item in progress, and say that
        it is done before you begin the next. The list is for you and for the user, who sees it.

        Args:
            items: the whole list, in the order of the work.
        """
        working = _find_current(items)
        n_done = sum(item["status"] == "done" for item in items)
        said = f"{n_done} of {len(items)} done"
        ctx.progress(": ".join([said, *working]), n_done / len(items) if items else None)
        rows = [f"{_BOXES[item['status']]} {' '.join(item['text'].split())}" for item in items]
        return "\n".join([f"The list, {said}:", *rows]) if items else "The list is empty."

    return todo


def _find_current(items: list[TodoItem]) -> list[str]:
    """Return the item in progress, if there is one.

    Raises:
        Rejected: the list says two things.
    """
    times = Counter(" ".join(item["text"].split()) for item in items)
    if twice := [text for text, n in times.items() if n > 1]:
        raise Rejected(f"{twice[0]!r} stands there twice. Write each item once.")
    working = [item["text"] for item in items if item["status"] == "in_progress"]
    if len(working) > 1:
        raise Rejected(f"{len(working)} items are in progress. Have one at most, and the others pending or done.")
    return working
