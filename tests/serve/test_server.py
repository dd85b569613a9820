"""Agents as MCP tools, as the official client sees them, in both generations of the protocol."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from mcp import Client, MCPError, types
from pydantic import BaseModel, field_serializer

from journeyman import Abort, Agent, Budget, DefinitionError, Event, Output, Runtime, tool
from journeyman.errors import StoreError
from journeyman.events import RunFailed, RunStarted, SignalTaken, SinkEvent
from journeyman.gate import DECISION, Allow, Approval, Ask, Decision, Deny, GateRequest
from journeyman.inbox.signals import Signal
from journeyman.journal import InMemoryJournal
from journeyman.mcp_server import create_mcp_server
from journeyman.mcp_server.server import ServedCall, served_tool
from journeyman.record.signals import FromOutside
from journeyman.serve.live import Live, ServeLimits
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call, say
from journeyman.types import JsonObject, Usage
from tests.play import cancelled, make_gate, make_tool, virtual_clock
from tests.serve.clients import Heard, Pause, Person, answered, called, first_round, last_round, next_round, text_of
from tests.serve.served import cleaner, echo, hopeless, last_result, planner, remove, square, talker


@virtual_clock
async def test_every_agent_is_a_tool_with_schemas_of_what_it_takes_and_hands_in(mode: str) -> None:
    async with Client(create_mcp_server(echo, square, planner), mode=mode) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        assert (list(tools), tools["echo"].description) == (["echo", "square", "planner"], "Says what it is told.")
        assert tools["square"].description == "Give the agent square a task."
        task = {"input": {"type": "string", "description": "The task, in words."}}
        closed = {"type": "object", "required": ["input"], "additionalProperties": False}
        assert tools["echo"].input_schema == {**closed, "properties": task}
        assert tools["echo"].output_schema is None
        assert tools["square"].input_schema["properties"]["input"]["type"] == "integer"
        number = {"type": "object", "properties": {"output": {"type": "integer"}}, "required": ["output"]}
        assert tools["square"].output_schema == number
        assert tools["planner"].input_schema == planner.plan.input.input_schema
        bill = tools["planner"].output_schema or {}
        assert bill["properties"]["trip"] == {"$ref": "#/$defs/Trip"}
        assert bill["properties"]["total"]["type"] == "string"  # as it is written, not as it may be given


def test_a_text_is_given_as_text_alone(mode: str) -> None:
    result = called(create_mcp_server(echo), "echo", {"input": "Hello"}, mode)
    assert (result.is_error, text_of(result), result.structured_content) == (False, "<Hello>", None)


def test_a_typed_output_is_given_as_data_and_as_text(mode: str) -> None:
    server = create_mcp_server(planner, square)
    result = called(server, "planner", {"city": "Oslo", "days": 2}, mode)
    bill: dict[str, object] = {"trip": {"city": "Oslo", "days": 2}, "total": "12.50", "notes": []}
    assert (result.is_error, result.structured_content) == (False, bill)
    assert text_of(result) == '{"trip":{"city":"Oslo","days":2},"total":"12.50","notes":[]}'
    result = called(server, "square", {"input": 12}, mode)
    assert (text_of(result), result.structured_content) == ("144", {"output": 144})


def test_a_result_says_what_the_run_used(mode: str) -> None:
    usage = (called(create_mcp_server(talker), "talker", {"input": "Talk"}, mode).meta or {})["journeyman/usage"]
    assert (usage["requests"], usage["input_tokens"], usage["output_tokens"]) == (2, 20, 10)
    assert (usage["total_tokens"], usage["cost"], usage["exact"]) == (30, None, True)


def test_a_failure_is_an_error_with_its_code_and_the_next_step(mode: str) -> None:
    result = called(create_mcp_server(hopeless), "hopeless", {"input": "Go"}, mode)
    assert (result.is_error, result.structured_content) == (True, None)
    failure = (result.meta or {})["journeyman/failure"]
    assert (failure["code"], failure["phase"]) == ("MAX_ATTEMPTS_EXCEEDED", "validation")
    assert text_of(result) == f"MAX_ATTEMPTS_EXCEEDED: {failure['message']}. {failure['hint']}"
    assert (result.meta or {})["journeyman/usage"]["requests"] == 1


@pytest.mark.parametrize(
    ("name", "arguments", "issues"),
    [
        ("planner", {"days": 0}, ["city", "days"]),
        ("planner", {}, ["city", "days"]),
        ("square", {"input": "twelve"}, ["input"]),
        ("echo", {}, ["input"]),
        ("echo", {"input": "a", "more": 1}, ["more"]),
        ("echo", None, ["input"]),
    ],
)
def test_arguments_that_do_not_fit_are_an_error_that_names_each_issue_and_no_model_is_asked(
    name: str, arguments: dict[str, Any] | None, issues: list[str], mode: str
) -> None:
    events: list[Event] = []
    result = called(create_mcp_server(planner, square, echo, on_event=events.append), name, arguments, mode)
    assert result.is_error
    assert (result.meta or {})["journeyman/failure"]["code"] == "INVALID_INPUT"
    assert (result.meta or {})["journeyman/usage"]["requests"] == 0
    assert all(issue in text_of(result) for issue in issues), text_of(result)
    assert events == []


@virtual_clock
async def test_a_tool_that_is_not_there_is_an_error_of_the_protocol(mode: str) -> None:
    async with Client(create_mcp_server(echo), mode=mode) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("nobody", {"input": "?"})
        assert caught.value.error.code == types.INVALID_PARAMS
        assert "No agent is called 'nobody'. There are: echo." in str(caught.value)


def test_an_output_that_cannot_be_written_as_json_is_an_error(mode: str) -> None:
    class Odd(BaseModel):
        number: int

        @field_serializer("number")
        def refuse(self, number: int) -> int:
            raise TypeError("secret numbers are not told")

    odd = Agent(name="odd", model=ScriptedModel([call("output", number=1)]), output=Output(Odd))
    result = called(create_mcp_server(odd), "odd", {"input": "Go"}, mode)
    assert result.is_error
    assert text_of(result).startswith("INTERNAL_ERROR: The output is not JSON: Odd(number=1).")


@virtual_clock
async def test_a_client_that_wants_progress_hears_of_iterations_and_calls(mode: str) -> None:
    @tool
    async def count(n: int) -> str:
        return str(n)

    answers = [say(call("count", n=1), call("count", n=2)), "Two."]
    counter, heard = Agent(name="counter", model=ScriptedModel(answers), tools=[count]), Heard()
    async with Client(create_mcp_server(counter), mode=mode) as client:
        assert text_of(await client.call_tool("counter", {"input": "Count"}, progress_callback=heard)) == "Two."
    assert (heard.numbers, heard.messages) == ([1, 2, 3, 4], ["iteration 1", "count", "count", "iteration 2"])


@virtual_clock
async def test_a_client_hears_of_a_rejected_attempt_and_of_the_next_one(mode: str) -> None:
    def judge(answer: str) -> None:
        if answer != "Right.":
            raise ValueError("no")

    trying, heard = Agent(name="trying", model=ScriptedModel(["Wrong.", "Right."]), validators=[judge]), Heard()
    async with Client(create_mcp_server(trying), mode=mode) as client:
        assert text_of(await client.call_tool("trying", {"input": "Go"}, progress_callback=heard)) == "Right."
    assert heard.messages == ["iteration 1", "attempt 1 was rejected", "attempt 2, iteration 1"]


@virtual_clock
async def test_a_client_that_cancels_ends_the_run_and_can_call_again(mode: str) -> None:
    events: list[Event] = []
    pause = Pause()
    async with Client(create_mcp_server(pause.agent(), echo, on_event=events.append), mode=mode) as client:
        calling = await pause.begun_by(client)
        await cancelled(calling)
        await asyncio.sleep(1)
        assert text_of(await client.call_tool("echo", {"input": "Still there?"})) == "<Still there?>"
    (ended,) = [event for event in events if isinstance(event, RunFailed) and event.path == ("idler",)]
    assert pause.ends == ["cancelled"]
    assert "the client cancelled the call" in ended.error.message


@virtual_clock
async def test_a_server_that_closes_ends_its_runs(mode: str) -> None:
    events: list[Event] = []
    pause = Pause()
    async with Client(create_mcp_server(pause.agent(), on_event=events.append), mode=mode) as client:
        calling = await pause.begun_by(client)
    (outcome,) = await asyncio.gather(calling, return_exceptions=True)
    assert isinstance(outcome, MCPError) or (isinstance(outcome, types.CallToolResult) and outcome.is_error)
    assert pause.ends == ["cancelled"]
    assert isinstance(events[-1], RunFailed)


@virtual_clock
async def test_an_abort_ends_all_runs_and_each_client_is_told(mode: str) -> None:
    abort, pause = Abort(), Pause()
    async with Client(create_mcp_server(pause.agent(), abort=abort), mode=mode) as client:
        calling = await pause.begun_by(client)
        abort.abort("closing time")
        result = await calling
        assert result.is_error
        assert text_of(result).startswith("EXECUTION_CANCELLED: ")
        assert "closing time" in text_of(result)


@virtual_clock
async def test_calls_at_once_are_runs_of_their_own(mode: str) -> None:
    pause = Pause()
    async with Client(create_mcp_server(pause.agent(), square), mode=mode) as client:
        idling = await pause.begun_by(client)
        results = await asyncio.gather(*[client.call_tool("square", {"input": n}) for n in range(5)])
        assert [result.structured_content["output"] for result in results] == [0, 1, 4, 9, 16]
        pause.go_on.set()
        assert text_of(await idling) == "Rested."


@virtual_clock
async def test_more_calls_at_once_than_there_may_be_are_refused(mode: str) -> None:
    pause = Pause()
    async with Client(create_mcp_server(pause.agent(), max_calls=1), mode=mode) as client:
        idling = await pause.begun_by(client)
        refused = await client.call_tool("idler", {"input": "Rest, too"})
        assert refused.is_error
        assert text_of(refused).startswith("TOO_MANY_CALLS: 1 call is under way")
        pause.go_on.set()
        assert not (await idling).is_error
        assert not (await client.call_tool("idler", {"input": "Rest again"})).is_error


@virtual_clock
async def test_the_budget_of_the_host_holds_for_all_calls_together(mode: str) -> None:
    spent = say("Spent.", usage=Usage(requests=1, input_tokens=1_000, output_tokens=900))
    spender = Agent(name="spender", model=ScriptedModel([spent], repeat=True))
    runtime = Runtime(budget=Budget(tokens=2_000, scope="server"))
    async with Client(create_mcp_server(spender, runtime=runtime), mode=mode) as client:
        assert text_of(await client.call_tool("spender", {"input": "Go"})) == "Spent."
        result = await client.call_tool("spender", {"input": "Go"})
        assert text_of(result).startswith("BUDGET_EXCEEDED: "), text_of(result)


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        (answered("allow"), "removed report.txt"),
        (answered("deny", reason="It is needed."), "Error: denied: the user denied it: It is needed."),
        (answered("deny"), "Error: denied: the user denied it"),
        (types.ElicitResult(action="accept"), "Error: denied: the user denied it"),
        (types.ElicitResult(action="accept", content={"decision": "yes"}), "Error: denied: the user denied it"),
        (types.ElicitResult(action="decline"), "Error: denied: the user declined"),
        (types.ElicitResult(action="cancel"), "Error: denied: the user declined"),
    ],
)
def test_what_a_gate_asks_is_put_to_the_client(answer: types.ElicitResult, read: str, mode: str) -> None:
    person = Person(answer)
    result = called(create_mcp_server(cleaner), "cleaner", {"input": "Tidy up"}, mode, elicitation_callback=person)
    assert text_of(result) == read
    assert person.asked == ['cleaner wants to call remove with {"path":"report.txt"}\n\nMay it be removed?']


def test_without_a_client_that_can_be_asked_the_answer_is_no(mode: str) -> None:
    result = called(create_mcp_server(cleaner), "cleaner", {"input": "Tidy up"}, mode)
    assert text_of(result) == "Error: denied: May it be removed?"


def test_an_approver_of_the_host_is_asked_instead_of_the_client(mode: str) -> None:
    async def approve(approval: Approval) -> Decision:
        return Allow()

    person, server = Person(), create_mcp_server(cleaner, runtime=Runtime(approver=approve))
    result = called(server, "cleaner", {"input": "Tidy up"}, mode, elicitation_callback=person)
    assert (text_of(result), person.asked) == ("removed report.txt", [])


def test_long_arguments_are_cut_in_the_question(mode: str) -> None:
    long = Agent(name="long", model=last_result("x" * 9_000), tools=[remove], gate=make_gate(Ask("Really?")))
    person = Person(answered("deny"))
    called(create_mcp_server(long), "long", {"input": "Go"}, mode, elicitation_callback=person)
    (asked,) = person.asked
    assert len(asked) < 4_200
    assert "… (5,011 more characters) …" in asked


YES: types.InputResponses = {"approval_1": answered("allow")}


def asking_twice() -> Agent[str, str]:
    """Return an agent that makes two calls side by side, both of which are asked about."""

    careful = make_gate(lambda request: Ask(f"Take {request.arguments['what']}?"))
    take = make_tool("take", "took {what}", parallel=True)

    def answer(request: Any) -> Any:  # noqa: ANN401
        if len(request.messages) == 1:
            return say(call("take", what="bread"), call("take", what="wine"))
        return ", ".join(block.text for block in request.messages[-1].content)

    return Agent(name="guest", model=FunctionModel(answer), tools=[take], gate=careful)


def test_questions_of_parallel_calls_are_all_answered(mode: str) -> None:
    person = Person(answered("allow"), answered("deny"))
    result = called(create_mcp_server(asking_twice()), "guest", {"input": "Eat"}, mode, elicitation_callback=person)
    denied = "Error: denied: the user denied it"
    assert text_of(result) in (f"took bread, {denied}", f"{denied}, took wine")
    assert len(person.asked) == 2


@virtual_clock
async def test_what_was_left_open_is_asked_again() -> None:
    async with Client(create_mcp_server(asking_twice()), elicitation_callback=Person()) as client:
        asked = await first_round(client, "guest")
        assert list(asked.input_requests or {}) == ["approval_1", "approval_2"]
        again = await next_round(client, "guest", asked, {"approval_2": answered("allow")})
        assert isinstance(again, types.InputRequiredResult)
        assert list(again.input_requests or {}) == ["approval_1"]
        answers: types.InputResponses = {**YES, "approval-9": answered("allow")}
        assert await last_round(client, "guest", again, answers) == "took bread, took wine"
        assert (await last_round(client, "guest", again, YES)).startswith("NO_SUCH_CALL: ")


@virtual_clock
async def test_an_answer_is_for_the_call_that_asked_and_no_other() -> None:
    async with Client(create_mcp_server(cleaner, asking_twice()), elicitation_callback=Person()) as client:
        asked = await first_round(client, "cleaner")
        forged = types.InputRequiredResult(request_state="guessed")
        wrong = (("guest", asked, "Go"), ("cleaner", asked, "Go elsewhere"), ("cleaner", forged, "Go"))
        for name, state, input in wrong:
            assert (await last_round(client, name, state, YES, input)).startswith("NO_SUCH_CALL: ")
        assert await last_round(client, "cleaner", asked, YES) == "removed report.txt"


@virtual_clock
async def test_a_client_that_never_answers_loses_its_run_in_the_end() -> None:
    events: list[Event] = []
    async with Client(
        create_mcp_server(cleaner, on_event=events.append, patience_s=30), elicitation_callback=Person()
    ) as client:
        asked = await first_round(client, "cleaner")
        await asyncio.sleep(29)
        assert not isinstance(events[-1], RunFailed)
        await asyncio.sleep(2)
        (ended,) = [event for event in events if isinstance(event, RunFailed)]
        assert "the client did not answer within 30 s" in ended.error.message
        assert (await last_round(client, "cleaner", asked, YES)).startswith("NO_SUCH_CALL: ")


async def test_the_first_of_five_who_answer_is_heard_and_the_others_are_told_who_that_was() -> None:
    live = Live("r", talker, base=1, is_tied=False, limits=ServeLimits())
    taken, questions, loop = list[SinkEvent](), live.ask_here(), asyncio.get_running_loop()
    outside = FromOutside(loop, taken.append, ("talker",), is_asked=bool)
    outside.questions = questions
    request = GateRequest(path=("talker",), tool_use_id="1", tool_name="read", arguments={}, effect="once")
    approval, by = Approval(request=request, question="May it?", question_id="q"), {"terminal": "ann", "signal": "bob"}

    async def race(id: str, chance: random.Random) -> str:
        served, called, told = ServedCall(tool_name="t", arguments={}), loop.create_future(), dict[str, object]()
        beside = chance.choice(("callback", "MCP"))
        decision: JsonObject = {"decision": DECISION.document_of(Deny("signal")), "digest": "q"}
        acts: dict[str, Callable[[], object]] = {
            "HTTP": lambda: live.answer_here("q", Deny("HTTP")) or told.update(HTTP=questions.find_first(id)),
            "terminal": lambda: threads.append(asyncio.create_task(asyncio.to_thread(type_answer))),
            "signal": lambda: outside.deliver(Signal(1, "r", "approve", id, decision, 0.0, "bob")),
            "callback": lambda: called.set_result(Deny("callback")),
            "MCP": lambda: served.questions.open and served.questions.answer("approval_1", Deny("MCP")),
        }
        threads = list[asyncio.Task[None]]()

        def type_answer() -> None:
            try:
                questions.answer(id, Deny("terminal"), who="ann")
            except KeyError as error:
                told["terminal"] = error

        async def ask_beside(approval: Approval) -> Decision:
            try:
                return await (served.ask(approval) if beside == "MCP" else asyncio.shield(called))
            except asyncio.CancelledError as left:
                told[beside] = left
                raise

        deciding = asyncio.create_task(questions.approve(approval, beside=ask_beside))
        while not live.open:  # noqa: ASYNC110 - whoever answers has heard the question
            await asyncio.sleep(0)
        faces = [beside, "HTTP", "terminal", "signal"]
        for face in chance.sample(faces, 4):
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            acts[face]()
        decided = await deciding
        await asyncio.gather(*threads)
        if isinstance(last := taken.pop(), SignalTaken) and last.outcome != "taken":
            told["signal"] = last.why
        first = decided.reason if isinstance(decided, Deny) else ""
        assert {*told, first} - {beside} == {*faces} - {beside}
        assert first not in told
        assert {f"answered before: deny, by {by.get(first, 'somebody here')}" in str(why) for why in told.values()} == {
            True
        }
        return first

    firsts = [await race(f"approval_{seed + 1}", random.Random(seed)) for seed in range(1_000)]
    assert {*firsts} == {"HTTP", "terminal", "signal", "callback", "MCP"}


def test_what_is_wrong_with_a_server_is_said_at_once() -> None:
    twin = Agent(name="echo", model=ScriptedModel(["Hi."]))
    with pytest.raises(DefinitionError) as caught:
        create_mcp_server(echo, twin, runtime=Runtime(journal=InMemoryJournal()))
    assert [problem.code for problem in caught.value.problems] == ["DUPLICATE_AGENT_NAME", "SHARED_JOURNAL"]
    needy = Agent(name="needy", model=ScriptedModel(["Hi."]), deps=int)
    with pytest.raises(DefinitionError, match=r"needy: deps are missing: the agent needs int\. Pass agent\.with_deps"):
        create_mcp_server(needy)
    assert create_mcp_server(needy.with_deps(3)).name == "needy"
    assert "2 agents are called 'echo'. Rename all but one." in str(caught.value)
    with pytest.raises(DefinitionError, match="There is no agent to serve"):
        create_mcp_server()


@virtual_clock
async def test_a_listener_gets_the_events_of_all_runs(mode: str) -> None:
    events: list[Event] = []
    async with Client(create_mcp_server(echo, square, on_event=events.append), mode=mode) as client:
        await client.call_tool("echo", {"input": "1"})
        await client.call_tool("square", {"input": 1})
    assert [event.agent for event in events if isinstance(event, RunStarted)] == ["echo", "square"]


def test_why_a_run_broke_is_for_the_operator_and_not_for_its_clients(caplog: pytest.LogCaptureFixture) -> None:
    answered = served_tool(echo).answer(StoreError("The database at /srv/runs.db is gone.", hint="Look at 10.0.0.7."))
    assert "/srv/runs.db" not in str(answered)
    assert "10.0.0.7" not in str(answered)
    assert "/srv/runs.db is gone" in caplog.text
