"""The tool `todo`: a list in the conversation, with one item in progress, that outlives a compaction."""

from typing import Any

import pytest

from journeyman import Agent, run
from journeyman.compaction import Summarise
from journeyman.events import Event, ToolProgress
from journeyman.testing import ScriptedModel, call
from journeyman.toolbox import todo_tool
from journeyman.types import Message, Text, ToolResult, ToolUse
from tests.compaction.small_window import chain, situation, summary_call
from tests.play import answered, succeeded, texts

WORK = [
    {"text": "Read the code.", "status": "done"},
    {"text": "Write   the\ntests.", "status": "in_progress"},
    {"text": "Ship it.", "status": "pending"},
]
LIST = "The list, 1 of 3 done:\n[x] Read the code.\n[>] Write the tests.\n[ ] Ship it."


async def test_a_list_is_told_once_and_leaves_the_beginning_of_every_request_as_it_was() -> None:
    model = ScriptedModel([call("todo", items=WORK), call("todo", items=[]), "Done."])
    seen: list[Event] = []
    result = succeeded(await run(Agent(name="a", model=model, tools=[todo_tool()]), "Go.", on_event=seen.append))
    told = [(event.message, event.fraction) for event in seen if isinstance(event, ToolProgress)]
    assert told == [("1 of 3 done: Write   the\ntests.", 1 / 3), ("0 of 0 done", None)]
    assert texts(result) == [LIST, "The list is empty."]
    assert len({id(request.prefix) for request in model.requests}) == 1


WRONG: list[tuple[list[dict[str, Any]], str]] = [
    ([WORK[0], {**WORK[0], "text": "Read  the code."}], "'Read the code.' stands there twice"),
    ([WORK[1], {"text": "Rest.", "status": "in_progress"}], "2 items are in progress"),
    ([{"text": " ", "status": "done"}], "items[0].text"),
    ([{"text": "x", "status": "later"}], "items[0].status"),
    ([{"text": str(n), "status": "pending"} for n in range(51)], "items"),
]


@pytest.mark.parametrize(("items", "told"), WRONG)
async def test_a_list_that_says_two_things_is_refused(items: list[dict[str, Any]], told: str) -> None:
    result = await answered(todo_tool(), {"items": items})
    assert result.is_error
    assert told in result.text


def listed(text: str, id: str, *, is_error: bool = False) -> list[Message]:
    use = ToolUse(id, "todo", "{}")
    return [Message("assistant", (use,)), Message("user", (ToolResult(text, is_error, id),))]


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ([*listed("<OUTDATED>", "t1"), *listed(LIST, "t2"), *listed("no", "t3", is_error=True)], [], True),
        (listed(LIST, "t1"), listed("newer", "t2"), False),
        ([], [], False),
    ],
)
async def test_the_last_list_stands_below_a_summary(before: list[Message], after: list[Message], kept: bool) -> None:
    work = chain(6, size=800)
    messages = [*work[:3], *before, *work[3:], *after]
    found, _ = situation([summary_call("Go on.")])
    view = await Summarise(keep_tokens=100).informed(found).view(messages, excess_tokens=1)
    assert view.changed
    [summary] = [
        block.text
        for message in view.messages
        for block in message.content
        if isinstance(block, Text) and block.origin == "summary"
    ]
    shown = LIST.replace(">", "&gt;")
    assert (f"\n<last-result tool='todo'>\n{shown}\n</last-result>\n</context-summary>" in summary) is kept
    assert "OUTDATED" not in summary
