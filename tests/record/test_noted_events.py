"""The events that only a recording and telemetry are told: each kind of them, as it is stored and read."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, Output, Runtime, ask_user, run, tool
from journeyman.durable import Durable
from journeyman.errors import RunBlocked
from journeyman.gate import Allow, Approval, Ask, Decision, Rewrite
from journeyman.inbox.signals import Signal, SignalHandle
from journeyman.record import RecordedEvent, Recorder, Recordings
from journeyman.record.operator import RecordedSignals, open_questions
from journeyman.testing.scripted import ScriptedModel, call, say
from journeyman.tools import ToolContext, toolset
from tests.play import make_gate

KINDS = (
    *("Target", "Input", "OutputModeChosen", "ToolsDiffer", "StepRecalled", "GateDecided", "ApproverAnswered"),
    *("CallOutcome", "SignalTaken", "ApprovalRequested", "ApprovalAnswered", "QuestionAsked", "QuestionAnswered"),
)


@tool(effect="once")
async def look(context: ToolContext, topic: str) -> str:
    """Look something up."""
    if topic == "fire":
        raise ValueError("too hot")
    context.set_run_state([*context.run_state(list[str]), topic])
    if topic == "stars":
        context.set_attempt_state([topic])
    return f"about {topic}"


NOTED = json.loads(Path(__file__).with_name("noted_events.json").read_text("utf-8"))
"""By name of a test what is noted: of each event its kind, its attempt, its iteration, its call and its facts."""


def no_topics(*_: object) -> list[str]:
    return []


ASKING = make_gate(lambda request: Ask("May it?") if request.tool_name == "look" else Allow())


def make_scout(*answers: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(
        name="scout", model=ScriptedModel(list(answers)), tools=[look, ask_user], run_state=no_topics, **options
    )


def noted_events(place: Path) -> list[list[object]]:
    """Return what was noted, without the numbers that differ from run to run; where no attempt has begun, none."""

    def place_and_facts(event: RecordedEvent) -> list[object]:
        facts = {name: fact for name, fact in event.facts.items() if fact is not None and name not in ("signal", "who")}
        return [event.kind, event.attempt or None, event.iteration or None, event.tool_use_id, facts]

    with Recordings(place) as recordings:
        events = [*recordings.all_events(recordings.find("last"))]
    assert {event.path for event in events} == {("scout",)}
    return [place_and_facts(event) for event in events if event.kind in KINDS]


async def test_a_run_whose_calls_are_asked_about_by_its_program(tmp_path: Path) -> None:
    calls = [call("look", {"topic": topic}, id=topic) for topic in ("tides", "fire", "moon")]

    async def approve(approval: Approval) -> Decision:
        is_moon = approval.request.arguments["topic"] == "moon"
        return Rewrite({"topic": "stars"}, "no moon") if is_moon else Allow()

    agent = make_scout(say(*calls), say("7"), gate=ASKING, output=Output(int, mode="auto"), attempt_state=no_topics)
    with Recorder(tmp_path / "runs.db", target="agents.py:scout") as recorder:
        await run(agent, "Look.", runtime=Runtime(recorder=recorder, approver=approve))
    assert noted_events(tmp_path / "runs.db") == NOTED["asked about"]
    with Recordings(tmp_path / "runs.db") as recordings:
        *_, outcome = recordings.events(recordings.find("last"), kinds=["CallOutcome"])
    assert outcome.document()["attempt"] == 1  # and not the state of the attempt


async def test_a_run_that_is_spoken_to_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    asks = call("look", {"topic": "tides"}, id="a"), call("ask_user", question="Which?", options=["x"], id="q")
    agent = make_scout(*map(say, asks), say("So."), gate=ASKING)
    with Recorder(path, asks=True) as recorder, Recordings(path) as recordings:
        going = asyncio.create_task(run(agent, "Look.", runtime=Runtime(recorder=recorder)))
        for kind in ("approve", "answer"):
            while not (found := recordings.runs()) or not (asked := open_questions(recordings, found[0])):
                await recorder.flush()
            handle = SignalHandle(found[0].id, RecordedSignals(recordings, found[0]))
            if kind == "approve":
                await handle.steer("Be short.", who="ann", idempotency_key="s1")
                await handle.approve(asked[0].question_id, Allow(), who="ann")
            else:
                await handle.answer(asked[0].question_id, "that one", who="ann")
            while open_questions(recordings, found[0])[:1] == asked[:1]:
                await recorder.flush()
        (await going).unwrap()
    assert noted_events(path) == NOTED["spoken to"]


async def test_who_answers_as_the_run_ends_is_told_who_was_first(tmp_path: Path) -> None:
    path, has_ended = tmp_path / "runs.db", threading.Event()
    agent = make_scout(say(call("ask_user", question="Which?", id="q")), say("So."))
    with Recorder(path, asks=True) as recorder, Recordings(path) as recordings, ThreadPoolExecutor(1) as thread:
        going = asyncio.create_task(run(agent, "Look.", runtime=Runtime(recorder=recorder)))
        while not (found := recordings.runs()) or not (asked := open_questions(recordings, found[0])):
            await recorder.flush()
        asyncio.get_running_loop().set_default_executor(thread)
        handle, id = SignalHandle(found[0].id, RecordedSignals(recordings, found[0])), asked[0].question_id
        late = asyncio.create_task(handle.answer(id, "this one", who="bob"))
        await asyncio.sleep(0)  # it looks at what waits; then its thread is busy until the run has ended
        thread.submit(has_ended.wait)
        first = threading.Thread(target=asyncio.run, args=(handle.answer(id, "that one", who="ann"),))
        first.start()
        (await going).unwrap()
        await recorder.flush()
        has_ended.set()
        with pytest.raises(LookupError, match="answered before: a text, by ann"):
            await late
        first.join()


async def test_a_durable_run_that_waits_and_goes_on_with_other_tools(tmp_path: Path) -> None:
    path, given = tmp_path / "runs.db", [[look, ask_user], [ask_user, look], [ask_user]]
    asks = [call("look", {"topic": "tides"}, id="a"), call("ask_user", question="Which?", options=["x"], id="q")]
    async with Durable(path, suspend_after_s=0.0) as durable:
        for n, tools in enumerate(given):
            live = toolset(lambda _, tools=tools: tools)
            agent = replace(make_scout(*map(say, asks[n:]), say("So."), gate=ASKING), tools=[live])
            handle = await durable.start(agent, "Look.", id="0")
            for question in (await handle.info()).pending:
                if question.kind == "answer":
                    await handle.answer(question.question_id, "that one", who="ann")
                else:
                    await handle.approve(question.question_id, Allow(), who="ann")
            with Recorder(path) as recorder:
                await durable.resume("0", agent, runtime=Runtime(recorder=recorder))
    assert noted_events(path) == NOTED["durable"]


async def test_an_answer_that_is_no_decision_blocks_a_recorded_run_as_any_other(tmp_path: Path) -> None:
    agent = make_scout(say(call("look", {"topic": "tides"}, id="a")), say("So."), gate=ASKING)
    async with Durable(tmp_path / "runs.db", suspend_after_s=0.0) as durable:
        handle = await durable.start(agent, "Look.", id="0")
        await durable.resume("0", agent)
        (question,) = (await handle.info()).pending
        junk = Signal(0, handle.id, "approve", question.key, {"decision": {"decision": "perhaps"}}, 0.0, "ann")
        await durable.hub.engine.signal(junk)
        with Recorder(tmp_path / "runs.db") as recorder, pytest.raises(RunBlocked, match="no decision 'perhaps'"):
            await durable.resume("0", agent, runtime=Runtime(recorder=recorder))
    kinds = {kind for kind, *_ in noted_events(tmp_path / "runs.db")}
    assert kinds & {"ApprovalAnswered", "ApproverAnswered"} == set()
