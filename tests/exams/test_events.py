"""The exam of the events of a run: what a listener hears does not depend on where the run is kept."""

from journeyman import Agent, Event, Failure, Limits, Output, Result, Subagents, Success, run
from journeyman.gate import Allow, Deny
from journeyman.testing.scripted import Answer, call
from tests.durable.processes import Stage
from tests.play import Recorder, Report, check_balance, existing, following, look, make_gate, names, virtual_clock

NO_SECRETS = make_gate(lambda request: Deny("not there") if request.arguments.get("where") == "secrets" else Allow())


def scout() -> Agent:
    return Agent(name="scout", description="Looks.", model=following(call("look", id="l"), "Found."), tools=[look])


def reporter(*answers: Answer, **options: object) -> Agent[Report]:
    given: dict[str, object] = {"limits": Limits(attempts=2), "gate": NO_SECRETS, **options}
    return Agent(
        name="lead",
        model=following(*answers),
        tools=[look, Subagents(scout())],
        output=Output(Report),
        **given,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - of an agent
    )


async def heard(place: Stage | None, agent: Agent[Report]) -> tuple[Result[Report], list[Event]]:
    """Run an agent, and return how that ended and what was told."""
    recorder = Recorder()
    if place is None:
        result = await run(agent, "Go.", on_event=recorder)
    else:
        kept = existing(await place.life(agent, on_event=recorder))
        result = kept
    for path in {event.path for event in recorder.events}:
        check_balance([event for event in recorder.events if event.path == path])
    return result, recorder.events


@virtual_clock
async def test_calls_sub_agents_and_denials_are_told_in_their_order(place: Stage | None) -> None:
    agent = reporter(
        [call("look", where="here", id="a"), call("look", where="secrets", id="b")],
        call("subagent", agent="scout", task="Look.", id="c"),
        call("output", total="many", id="d"),
        call("output", total=3, id="e"),
    )
    result, events = await heard(place, agent)
    assert isinstance(result, Success)
    assert (result.output, result.metadata.n_calls) == (Report(total=3), 3)
    begins = ["RunStarted", "AttemptStarted", "MessageCommitted"]
    answers, calls = ["IterationStarted", "MessageCommitted", "ModelResponded"], ["ToolCalled", "ToolFinished"]
    layers = ["LayerStarted", "LayerCompleted"]
    below = [*begins, *answers, *calls, "MessageCommitted", *answers, "AttemptCompleted", "RunSucceeded"]
    assert names(events) == [
        *(*begins, *answers, *calls, *calls, "MessageCommitted"),
        *(*answers, "ToolCalled", *below, "ToolFinished", "MessageCommitted"),
        *(*answers, "ToolCalled", *layers, "ValidationFailed", "ToolFinished", "AttemptCompleted"),
        *("AttemptStarted", "MessageCommitted", *answers, "ToolCalled", *layers, "ToolFinished", "AttemptCompleted"),
        *("MessageCommitted", "RunSucceeded"),
    ]
    paths = [event.path for event in events if names([event])]
    assert paths.index(("lead", "scout#1")) == 15
    assert paths.count(("lead", "scout#1")) == len(below)


@virtual_clock
async def test_a_failure_is_told_once_and_last(place: Stage | None) -> None:
    result, events = await heard(
        place, reporter(*[call("look", id=f"{n}") for n in range(9)], limits=Limits(iterations=2))
    )
    assert isinstance(result, Failure)
    assert (result.code, names(events)[-1], names(events).count("RunFailed")) == ("MAX_ITERATIONS", "RunFailed", 1)
