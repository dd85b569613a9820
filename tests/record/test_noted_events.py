"""The events that only a recording and telemetry are told: each kind of them, as it is stored and read."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, Output, Runtime, ask_user, run, tool
from journeyman.durable import Durable
from journeyman.durable.records import Signal
from journeyman.errors import RunBlocked
from journeyman.gate import Allow, Approval, Ask, Decision, Rewrite
from journeyman.record import RecordedEvent, Recorder, Recordings
from journeyman.record.operator import RecordedHandle, open_questions
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


Noted = tuple[str, int | None, int | None, str | None, Mapping[str, object]]
"""The kind of an event, its attempt, its iteration, its call and its facts."""


def no_topics(*_: object) -> list[str]:
    return []


ASKING = make_gate(lambda request: Ask("May it?") if request.tool_name == "look" else Allow())


def make_scout(*answers: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(
        name="scout", model=ScriptedModel(list(answers)), tools=[look, ask_user], run_state=no_topics, **options
    )


def noted_events(place: Path, kinds: Sequence[str] = KINDS) -> list[Noted]:
    """Return what was noted, without the numbers that differ from run to run; where no attempt has begun, none."""

    def place_and_facts(event: RecordedEvent) -> Noted:
        facts = {name: fact for name, fact in event.facts.items() if fact is not None and name not in ("signal", "who")}
        spot = (event.attempt or None, event.iteration or None)
        return event.kind, *spot, event.tool_use_id, facts

    with Recordings(place) as recordings:
        events = [*recordings.all_events(recordings.find("last"))]
    assert {event.path for event in events} == {("scout",)}
    return [place_and_facts(event) for event in events if event.kind in kinds]


IDS = {
    "tides": "a575eb513190c601d5cb2eb1917db505ae3f815636f33bc1bb240368935301ed",
    "fire": "591b102905078f045c64e31848f461052cb7b563d186d479de11f532774565bc",
    "moon": "65a9e4a3fec7b631f5abbf5ea305280b86c372ca3794825328ba935892a2d164",
}
"""The digests of the calls that are asked about, by what they look up."""


def approved(topic: str, call: str) -> list[Noted]:
    """Return what is noted of a call that an approver allows."""
    answer = {"question": "May it?", "question_id": IDS[topic], "decision": "allow", "extent": "once"}
    return [("ApproverAnswered", 1, 1, call, answer), ("GateDecided", 1, 1, call, {"decision": "allow"})]


GIVEN: Noted = ("Input", None, None, None, {"input": "Look.", "limits": {}})
LOOKED: Noted = ("CallOutcome", 1, 1, "a", {"states": {"run": ["tides"]}})


async def test_a_run_whose_calls_are_asked_about_by_its_program(tmp_path: Path) -> None:
    calls = [call("look", {"topic": topic}, id=topic) for topic in ("tides", "fire", "moon")]

    async def approve(approval: Approval) -> Decision:
        is_moon = approval.request.arguments["topic"] == "moon"
        return Rewrite({"topic": "stars"}, "no moon") if is_moon else Allow()

    agent = make_scout(say(*calls), say("7"), gate=ASKING, output=Output(int, mode="auto"), attempt_state=no_topics)
    with Recorder(tmp_path / "runs.db", target="agents.py:scout") as recorder:
        await run(agent, "Look.", runtime=Runtime(recorder=recorder, approver=approve))
    rewritten = {"question": "May it?", "question_id": IDS["moon"], "decision": "rewrite", "reason": "no moon"}
    assert noted_events(tmp_path / "runs.db") == [
        ("Target", None, None, None, {"target": "agents.py:scout"}),
        GIVEN,
        ("OutputModeChosen", None, None, None, {"mode": "tool"}),
        *approved("tides", "tides"),
        ("CallOutcome", 1, 1, "tides", {"states": {"run": ["tides"], "attempt": []}}),
        *approved("fire", "fire"),
        ("CallOutcome", 1, 1, "fire", {"error": "raised"}),
        ("ApproverAnswered", 1, 1, "moon", rewritten),
        ("GateDecided", 1, 1, "moon", {"decision": "rewrite", "arguments": {"topic": "stars"}}),
        ("CallOutcome", 1, 1, "moon", {"states": {"run": ["tides", "stars"], "attempt": ["stars"]}}),
    ]
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
            handle = RecordedHandle(recordings, found[0])
            if kind == "approve":
                await handle.steer("Be short.", who="ann", idempotency_key="s1")
                await handle.approve(asked[0].question_id, Allow(), who="ann")
            else:
                await handle.answer(asked[0].question_id, "that one", who="ann")
            while open_questions(recordings, found[0])[:1] == asked[:1]:
                await recorder.flush()
        (await going).unwrap()
    told = {"id": "approval_1", "question": "May it?", "question_id": IDS["tides"], "offers": ["once"]}
    assert noted_events(path) == [
        GIVEN,
        ("ApprovalRequested", 1, 1, "a", told | {"arguments": {"topic": "tides"}}),
        ("SignalTaken", None, None, None, {"what": "steer", "outcome": "waits", "id": "s1", "text": "Be short."}),
        ("SignalTaken", None, None, None, {"what": "approve", "outcome": "taken", "id": "approval_1"}),
        ("ApprovalAnswered", 1, 1, "a", {"id": "approval_1", "decision": "allow", "reason": ""}),
        *approved("tides", "a"),
        LOOKED,
        ("SignalTaken", None, None, None, {"what": "steer", "outcome": "taken", "id": "s1", "text": "Be short."}),
        ("GateDecided", 1, 2, "q", {"decision": "allow"}),
        ("QuestionAsked", None, None, "q", {"id": "question_2", "question": "Which?", "options": ["x"]}),
        ("SignalTaken", None, None, None, ANSWERED | {"id": "question_2"}),
        ("QuestionAnswered", None, None, "q", {"id": "question_2", "answer": "that one"}),
    ]


ANSWERED = {"what": "answer", "outcome": "taken", "text": "that one"}


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
    approval, text = f"attempt/1/iteration/1/call/a/approval/1/{IDS['tides'][:16]}", "attempt/1/iteration/2/call/q/text"
    may_it = {"id": approval, "question": "May it?", "question_id": IDS["tides"], "offers": ["once"]}
    requested = ("ApprovalRequested", 1, 1, "a", may_it | {"arguments": {"topic": "tides"}})
    which = {"id": text, "question": "Which?", "question_id": WHICH, "options": ["x"]}
    recalled = [("StepRecalled", 1, n, None, {"key": f"attempt/1/iteration/{n}/model"}) for n in (1, 2)]
    assert noted_events(path) == [
        *(GIVEN, requested),
        ("SignalTaken", None, None, None, {"what": "approve", "outcome": "taken", "id": approval}),
        ("ToolsDiffer", None, None, None, {"differences": ["their order has changed"]}),
        *(GIVEN, recalled[0], requested),
        ("ApprovalAnswered", 1, 1, "a", {"id": approval, "decision": "allow", "reason": ""}),
        *(*approved("tides", "a"), LOOKED),
        ("GateDecided", 1, 2, "q", {"decision": "allow"}),
        ("QuestionAsked", 1, 2, "q", which),
        ("SignalTaken", None, None, None, ANSWERED | {"id": text}),
        ("ToolsDiffer", None, None, None, {"differences": ["'look' is gone"]}),
        *(GIVEN, recalled[0], LOOKED, recalled[1]),
        ("GateDecided", 1, 2, "q", {"decision": "allow"}),
        ("QuestionAsked", 1, 2, "q", which),
        ("QuestionAnswered", 1, 2, "q", {"id": text, "answer": "that one"}),
    ]


WHICH = "f8d9df3eef9a1006f431f06b269fd0216b95ff7d66be11fa998aaa852b23aa4b"


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
    answers = [
        kind for kind, *_ in noted_events(tmp_path / "runs.db") if kind in ("ApprovalAnswered", "ApproverAnswered")
    ]
    assert answers == []
