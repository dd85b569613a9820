"""What waits for the user: approvals that gates ask for, and questions of the model's."""

import asyncio

import pytest

from journeyman import Agent, Chat, Event, Limits, Runtime, ask_user, run
from journeyman.events import (
    ApprovalAnswered,
    ApprovalRequested,
    QuestionAnswered,
    QuestionAsked,
    ToolCalled,
    ToolFinished,
)
from journeyman.gate import Allow, Approval, Ask, Decision, Deny, Rewrite, Stop
from journeyman.testing.scripted import ScriptedModel, call
from tests.play import Recorder, Stage, chatting, look, make_gate, script_of, virtual_clock

REWRITTEN = 'The call was made with other arguments: {"where":"there"}'


async def asked(recorder: Recorder, kind: type[Event], n: int = 1) -> str:
    """Wait for a question, and return its id."""
    for _ in range(1_000):
        found = [event for event in recorder.events if isinstance(event, kind)]
        if len(found) >= n:
            return getattr(found[n - 1], "id", "")
        await asyncio.sleep(0)
    raise AssertionError(f"no {kind.__name__}")


@pytest.mark.parametrize(
    ("decision", "result", "told"),
    [
        (Allow(), "#a: found here", ("allow", "")),
        (Deny("not now"), "#a! Error: denied: not now", ("deny", "not now")),
        (Rewrite({"where": "there"}, "safer"), f"#a: {REWRITTEN}\nfound there", ("rewrite", "safer")),
    ],
)
async def test_a_call_that_a_gate_AsksAbout_waits_for_the_users_decision(
    decision: Decision, result: str, told: tuple[str, str]
) -> None:
    recorder = Recorder()
    model = ScriptedModel([call("look", id="a"), "Done."])
    async with chatting(model, tools=[look], gate=make_gate(Ask("May it?")), on_event=recorder) as chat:
        turn = chat.start("Go.")
        id = await asked(recorder, ApprovalRequested)
        assert chat.state.open_questions == (id,)
        assert [call.id for call in chat.state.pending_calls] == ["a"]
        (request,) = recorder.of(ApprovalRequested)
        assert (request.question, request.tool_use_id, request.tool_name) == ("May it?", "a", "look")
        assert (request.path, request.arguments, request.offers) == (("tester",), {}, ("once",))
        assert len(request.question_id) == 64
        chat.answer(id, decision)
        await turn
        assert chat.state.open_questions == ()
        assert script_of(chat)[2] == ("user", result)
    (answered,) = recorder.of(ApprovalAnswered)
    assert (answered.id, answered.decision, answered.reason) == (id, *told)
    kinds = (ToolCalled, ApprovalRequested, ApprovalAnswered, ToolFinished)
    assert [type(event) for event in recorder.events if isinstance(event, kinds)] == list(kinds)


async def test_the_user_may_stop_the_turn_instead_of_deciding(stage: Stage, recorder: Recorder) -> None:
    async with chatting(
        stage.model([call("look", id="a")]), tools=[look], gate=make_gate(Ask("May it?")), on_event=recorder
    ) as chat:
        turn = chat.start("Go.")
        chat.answer(await asked(recorder, ApprovalRequested), Stop("that is enough"))
        assert (await turn).code == "EXECUTION_CANCELLED"
    assert [event.decision for event in recorder.of(ApprovalAnswered)] == ["stop"]


async def test_an_approver_of_the_callers_own_is_asked_instead(stage: Stage, recorder: Recorder) -> None:
    approvals: list[Approval] = []

    async def approve(approval: Approval) -> Decision:
        approvals.append(approval)
        return Allow()

    model, runtime = stage.model([call("look"), "Done."]), Runtime(approver=approve)
    async with chatting(
        model, tools=[look], gate=make_gate(Ask("May it?")), runtime=runtime, on_event=recorder
    ) as chat:
        await chat.prompt("Go.")
    assert [approval.question for approval in approvals] == ["May it?"]
    assert recorder.of(ApprovalRequested) == []


async def test_without_anybody_who_listens_a_call_is_denied_with_the_question(stage: Stage) -> None:
    heard: list[object] = []
    model = stage.model([call("look", id="a"), "Done."])
    async with chatting(model, tools=[look], gate=make_gate(Ask("May it?")), on_message=heard.append) as chat:
        await chat.prompt("Go.")
        assert script_of(chat)[2] == ("user", "#a! Error: denied: May it?")


async def test_an_abort_denies_what_is_open(stage: Stage, recorder: Recorder) -> None:
    async with chatting(
        stage.model([call("look")]), tools=[look], gate=make_gate(Ask("May it?")), on_event=recorder
    ) as chat:
        turn = chat.start("Go.")
        id = await asked(recorder, ApprovalRequested)
        chat.abort()
        assert (await turn).code == "EXECUTION_CANCELLED"
        (answered,) = recorder.of(ApprovalAnswered)
        assert (answered.decision, answered.reason) == ("deny", "nobody answered")
        with pytest.raises(KeyError, match="Nothing waits for an answer"):
            chat.answer(id, Allow())


@virtual_clock
async def test_an_approval_may_take_only_so_long(recorder: Recorder) -> None:
    model, limits = ScriptedModel([call("look", id="a"), "Done."]), Limits(approval_seconds=30)
    async with chatting(model, tools=[look], gate=make_gate(Ask("May it?")), limits=limits, on_event=recorder) as chat:
        await chat.prompt("Go.")
        assert script_of(chat)[2] == ("user", "#a! Error: denied: nobody answered within 30s: May it?")
    assert [event.decision for event in recorder.of(ApprovalAnswered)] == ["deny"]


async def test_an_answer_is_taken_once_and_must_fit(stage: Stage, recorder: Recorder) -> None:
    model = stage.model([call("look"), call("ask_user", question="Which?"), "Done."])
    async with chatting(
        model, tools=[look, ask_user], gate=make_gate(Ask("May it?"), "look"), on_event=recorder
    ) as chat:
        turn = chat.start("Go.")
        approval = await asked(recorder, ApprovalRequested)
        with pytest.raises(TypeError, match="needs a decision, not str"):
            chat.answer(approval, "yes")
        chat.answer(approval, Allow())
        with pytest.raises(KeyError):
            chat.answer(approval, Allow())
        question = await asked(recorder, QuestionAsked)
        for answer in (Allow(), Deny("no")):
            with pytest.raises(TypeError, match="needs a text"):
                chat.answer(question, answer)
        chat.answer(question, "This.")
        assert (await turn).unwrap() == "Done."


async def test_a_listener_may_answer_at_once_and_cannot_change_the_arguments_of_the_call(stage: Stage) -> None:
    async with chatting(
        stage.model([call("look", where="x", id="a"), "Done."]), tools=[look], gate=make_gate(Ask("May it?"))
    ) as chat:

        def meddle(event: Event) -> None:
            if isinstance(event, ApprovalRequested):
                event.arguments["where"] = "elsewhere"
                chat.answer(event.id, Allow())

        chat.subscribe(meddle)
        await chat.prompt("Go.")
        assert script_of(chat)[2] == ("user", "#a: found x")


async def test_the_model_may_ask_the_user(stage: Stage, recorder: Recorder) -> None:
    question = call("ask_user", question="Which month?", options=["May", "June"], id="a")
    async with chatting(stage.model([question, "May it is."]), tools=[ask_user], on_event=recorder) as chat:
        turn = chat.start("Compare.")
        id = await asked(recorder, QuestionAsked)
        (event,) = recorder.of(QuestionAsked)
        assert (event.path, event.question, event.options) == (("tester",), "Which month?", ("May", "June"))
        chat.answer(id, "May")
        assert (await turn).unwrap() == "May it is."
        assert script_of(chat)[2] == ("user", "#a: May")
    assert [(event.id, event.answer) for event in recorder.of(QuestionAnswered)] == [(id, "May")]


async def test_an_abort_leaves_a_question_unanswered(stage: Stage, recorder: Recorder) -> None:
    model = stage.model([call("ask_user", question="Which?")])
    async with chatting(model, tools=[ask_user], on_event=recorder) as chat:
        turn = chat.start("Go.")
        await asked(recorder, QuestionAsked)
        async with chat.hold():
            assert (await turn).code == "EXECUTION_CANCELLED"
        assert chat.state.open_questions == ()
    assert [event.answer for event in recorder.of(QuestionAnswered)] == [None]


@pytest.mark.parametrize("in_chat", [False, True])
async def test_where_nobody_is_the_model_is_told_to_decide_by_itself(stage: Stage, in_chat: bool) -> None:
    agent = Agent(name="tester", model=stage.model([call("ask_user", question="Which?"), "Any."]), tools=[ask_user])
    if in_chat:
        async with Chat(agent) as chat:
            await chat.prompt("Go.")
    else:
        await run(agent, "Go.")
    (result,) = stage.tool_results(1)
    assert result.is_error
    assert result.text == "Nobody is there to answer. Decide by yourself, and say in your answer what you assumed."
