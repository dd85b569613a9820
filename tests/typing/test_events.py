"""What type checkers make of events: whoever makes one gives its facts and no others, and reads only those.

As in `test_agents.py`, what both checkers should refuse is marked, for each in its own words.
"""

from typing import Any, assert_never, assert_type

import pytest

from journeyman import Callbacks, DefinitionError, events
from journeyman.events import AttemptCompleted, AttemptStarted, IterationStarted, LayerCompleted, Listener, RunSuspended
from journeyman.journal import RecordingSink
from journeyman.loop.state import Run, attempt_place, iteration_place


def test_an_event_has_its_facts_and_no_others() -> None:
    with pytest.raises(DefinitionError, match="AttemptStarted has no 'no_such_fact'"):
        AttemptStarted(path=("a",), attempt=1, no_such_fact=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def of_one(event: events.Event, started: AttemptStarted) -> None:
    """Only for the checkers: how an event cannot be made, changed or read."""
    AttemptStarted(path=("a",))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    AttemptStarted(("a",), 1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    started.attempt = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert event.text  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def of_the_loop(run: Run, tape: RecordingSink, outcome: Any) -> None:  # noqa: ANN401 - fits everywhere
    """Only for the checkers: how the loop tells of an event, and how it cannot."""
    await run.tell(lambda: AttemptStarted(**attempt_place(run)))
    await run.tell(lambda: IterationStarted(**iteration_place(run)))
    await run.tell(lambda: LayerCompleted(**attempt_place(run), outcome=outcome))
    tape.hear(AttemptCompleted(**attempt_place(run), succeeded=True))

    await run.tell(lambda: AttemptStarted(**attempt_place(run), no_such_fact=1))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await run.tell(lambda: AttemptStarted(**iteration_place(run)))  # type: ignore[misc]  # pyright: ignore[reportCallIssue]
    await run.tell(lambda: IterationStarted(**attempt_place(run)))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await run.tell(lambda: IterationStarted(**attempt_place(run), iteration="1"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run.tell(lambda: AttemptCompleted(**attempt_place(run), attempt=2, succeeded=True))  # type: ignore[misc]  # pyright: ignore[reportCallIssue]
    await run.tell(lambda: AttemptCompleted(**attempt_place(run)))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await run.tell(lambda: LayerCompleted(**attempt_place(run), outcome=True))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run.tell("AttemptStarted")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tape.hear({"path": ("a",)})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def of_listeners(queue: list[events.Event], event: events.TaskEvent) -> None:
    """Only for the checkers: who may listen, and who cannot."""
    listeners: list[Listener] = [queue.append, lambda event: None]
    match event:
        case events.TaskStarted() | events.TaskEnded():
            assert_type(event.info, events.TaskInfo)
        case events.TaskMessaged():
            assert_type(event.delivery, events.Delivery)
        case _:
            assert_never(event)

    async def later(event: events.Event) -> None: ...
    def pieces(event: events.TextDelta) -> None: ...
    def named(context: events.CallbackContext) -> None: ...

    listeners.append(later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - it would not be awaited
    listeners.append(pieces)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - it is given all others, too
    Callbacks(on_layer_start=named)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - it takes no name
    durable: list[events.DurableEvent] = [RunSuspended(path=("a",), run="1", worker="w", epoch=1)]
    durable.append(AttemptStarted(path=("a",), attempt=1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - not one of these
    RunSuspended(path=("a",), run="1", worker="w", epoch=1, why="")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
