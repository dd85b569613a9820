"""The exam of background tasks: what a model reads of what it has sent out is the same wherever that goes on."""

import asyncio
import re
from collections.abc import Sequence

from journeyman import Agent, Subagents, Success, Tasks, run
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, call
from journeyman.types import ToolUse
from tests.durable.processes import Stage
from tests.play import make_tool, n_answers, texts, virtual_clock

TASK = "<the task>"
"""Stands for the id of the task, in calls and in what is read."""
_ID = re.compile(r"bg-1\b|bg-[0-9a-f]{8}")
SEND = call("subagent", agent="scout", task="Look.", background=True, description="a look", id="send")
ENDS = call("task_output", {"id": TASK, "wait_s": 600})


async def work(request: Request) -> Answer:
    """Think for half a minute, look, and answer with what was heard by then."""
    if not n_answers(request):
        await asyncio.sleep(30)
        return call("look", id="look")
    heard = [block.text for message in request.messages for block in message.content if block.type == "text"]
    return f"Heard: {' '.join(heard)}"


def lead(calls: Sequence[ToolUse], open: Tasks | None = None) -> Agent:
    """Return an agent that sends another one out, and then makes these calls, one after the other."""

    def answer(request: Request) -> Answer:
        number = n_answers(request)
        if number == 0 or number > len(calls):
            return "Done." if number else SEND
        found = _ID.search(str(request.messages))
        arguments = {"id": found[0]} if found and calls[number - 1].input.get("id") == TASK else {}
        return call(calls[number - 1].name, {**calls[number - 1].input, **arguments}, id=f"c{number}")

    scout = Agent(
        name="scout", description="Looks.", model=FunctionModel(work), tools=[make_tool("look", effect="pure")]
    )
    return Agent(
        name="lead", model=FunctionModel(answer), tools=[Subagents(scout, tasks=open), *(open or Tasks()).tools()]
    )


async def read(place: Stage | None, *calls: ToolUse) -> Sequence[str]:
    """Return what a model reads of calls that it makes one after the other, once it has sent out a task."""
    if place is not None:
        result = await place.life(lead(calls), suspend_after_s=0.02)
    else:
        async with Tasks(notify=lambda text, info: None) as tasks:
            result = await run(lead(calls, tasks), "Go.")
    assert isinstance(result, Success), result
    return [_ID.sub(TASK, text) for text in texts(result)[1:]]


@virtual_clock
async def test_a_task_lasts_as_long_as_it_works_and_is_listed_before_and_after(place: Stage | None) -> None:
    first, *others = await read(place, call("task_list"), ENDS, call("task_list"))
    assert first in {
        f"{TASK} agent running (0 s) scout: a look",
        f"{TASK} agent running (0 s) scout: a look (waits for a worker)",
    }
    assert others == [
        f"[{TASK} agent completed (30 s) scout: a look]\nHeard: Look.",
        f"{TASK} agent completed (30 s) scout: a look",
    ]


@virtual_clock
async def test_what_is_said_to_a_task_at_work_is_queued_and_read(place: Stage | None) -> None:
    waits = call("task_output", {"id": TASK, "wait_s": 10})
    _, said, ended = await read(place, waits, call("task_message", {"id": TASK, "text": "Hurry."}), ENDS)
    assert said == f"Task {TASK} reads it before its next step."
    assert ended == f"[{TASK} agent completed (30 s) scout: a look]\nHeard: Look. Hurry."


@virtual_clock
async def test_what_is_said_to_a_task_that_has_ended_is_refused_and_there_is_nothing_to_stop(
    place: Stage | None,
) -> None:
    late = call("task_message", {"id": TASK, "text": "Hurry."})
    _, said, stopped = await read(place, ENDS, late, call("task_stop", {"id": TASK}))
    assert said == (f"Task {TASK} has ended (completed), so nobody reads it. Start another one if there is more to do.")
    assert stopped == f"Task {TASK} has ended already: completed."


@virtual_clock
async def test_a_task_that_is_stopped_ends_and_lasted_until_then(place: Stage | None) -> None:
    waits = call("task_output", {"id": TASK, "wait_s": 10})
    seen, stopped, ended = await read(place, waits, call("task_stop", {"id": TASK}), ENDS)
    assert seen.startswith(f"[{TASK} agent running (10 s) scout: a look]\n")
    assert stopped == f"Task {TASK} is being stopped."
    assert ended.startswith(f"[{TASK} agent killed (10 s) scout: a look]\n")
    assert "EXECUTION_CANCELLED: Cancelled while calling the model: stopped by the model." in ended


@virtual_clock
async def test_a_blank_word_and_an_unknown_task_are_refused_by_name(place: Stage | None) -> None:
    blank = call("task_message", {"id": TASK, "text": "  "})
    unknown = [call(name, {"id": "bg-9"}) for name in ("task_output", "task_stop")]
    assert await read(place, blank, *unknown) == [
        "The text is blank: there is nothing to say.",
        *[f"There is no task 'bg-9'. The tasks are: {TASK}."] * 2,
    ]
