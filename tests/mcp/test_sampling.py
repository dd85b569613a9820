"""What MCP servers ask the model of the run that calls them, where a program lets them: in both generations of the
protocol."""

import json

import pytest

from journeyman import Agent, Limits, Result, Runtime, run
from journeyman.events import Event, Listener, RunStarted
from journeyman.gate import Allow, Deny, GateRequest, Verdict
from journeyman.loop import ask_model
from journeyman.mcp import Http, Sampler, mcp
from journeyman.mcp.sampling import MAX_SAMPLES
from journeyman.testing import ScriptedModel, call
from journeyman.types import Text

pytestmark = pytest.mark.timeout(60)

QUESTION = {"messages": [{"role": "user", "content": {"type": "text", "text": "How many?"}}], "maxTokens": 50}


DEFAULT = Limits()


async def result_of(
    url: str,
    *answers: str,
    sampling: Sampler | None = ask_model,
    limits: Limits = DEFAULT,
    on_event: Listener | None = None,
    runtime: Runtime | None = None,
    **arguments: object,
) -> tuple[str, Result[str], ScriptedModel]:
    """Return what the server says that it was answered, and the run that called it."""
    model = ScriptedModel([call("ask", {"sample": QUESTION, **arguments}), *answers, "Done."])
    async with mcp({"shop": Http(url, sampling=sampling)}) as tools:
        agent = Agent(name="buyer", model=model, tools=tools, limits=limits)
        result = await run(agent, "Go.", on_event=on_event, runtime=runtime)
    said = [block.text for message in result.history for block in message.content if block.type == "tool_result"]
    return said[0] if said else "", result, model


async def test_a_server_asks_the_model_of_the_run_which_pays_and_tells(either: str) -> None:
    events: list[Event] = []
    question = {**QUESTION, "systemPrompt": "Count."}
    said, result, model = await result_of(either, "Three.", "Four.", sample=question, times=2, on_event=events.append)
    assert json.loads(said) == ["Three.", "Four."]
    assert [child.path for child in result.metadata.children] == [
        ("buyer", "shop-sampling"),
        ("buyer", "shop-sampling"),
    ]
    assert result.metadata.usage is not None
    assert result.metadata.usage.requests == 4
    inner = model.requests[1]
    assert (inner.prefix.system[0].text, inner.messages[0].text, inner.prefix.tools) == ("Count.", "How many?", ())
    assert inner.messages[0].content == (Text("How many?", origin="stranger"),)
    assert [each.agent for each in events if isinstance(each, RunStarted)] == [
        "buyer",
        "shop-sampling",
        "shop-sampling",
    ]


async def test_without_leave_a_server_may_not_ask(either: str) -> None:
    said, result, _ = await result_of(either, sampling=None)
    assert "sampling" in said.lower() or "not let servers ask" in said
    assert result.metadata.children == ()


class Gatekeeper:
    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.seen: list[GateRequest] = []

    async def decide(self, request: GateRequest) -> Verdict:
        if request.tool_name == "ask":
            return Allow()
        self.seen.append(request)
        return self.verdict


@pytest.mark.parametrize("verdict", [Deny("Not today."), Allow()])
async def test_gates_decide_about_each_question(either: str, verdict: Verdict) -> None:
    gate = Gatekeeper(verdict)
    said, _, _ = await result_of(either, "Three.", runtime=Runtime(gate=gate))
    (request,) = gate.seen
    assert (request.tool_name, request.untrusted, request.external) == ("shop_sampling", True, True)
    assert request.server_names == ("mcp__shop__sampling", "mcp__shop")
    assert request.arguments["messages"] == QUESTION["messages"]
    assert ("Not today." in said) is isinstance(verdict, Deny)
    assert ("Three." in said) is isinstance(verdict, Allow)


async def test_a_question_beyond_the_runs_budget_ends_with_the_run(either: str) -> None:
    _, result, _ = await result_of(either, "Three.", limits=Limits(iterations=1))
    assert result.metadata.usage is not None
    assert result.metadata.usage.requests == 2


@pytest.mark.parametrize(
    ("question", "times", "why"),
    [
        (QUESTION, MAX_SAMPLES + 1, f"one call may ask the model {MAX_SAMPLES} times"),
        ({**QUESTION, "tools": [{"name": "x", "inputSchema": {"type": "object"}}]}, 1, "tools"),
        ({**QUESTION, "messages": []}, 1, "nothing to answer"),
    ],
)
async def test_what_a_server_may_not_ask_is_told_to_it(older: str, question: object, times: int, why: str) -> None:
    said, _, _ = await result_of(older, *["Three."] * MAX_SAMPLES, sample=question, times=times)
    assert why in said


async def test_outside_of_a_run_and_before_its_first_request_there_is_no_model_to_ask() -> None:
    with pytest.raises(RuntimeError, match="Call ask_model from a tool"):
        await ask_model("Hello?")

    async def ask_first(_: str) -> str:
        return (await ask_model("Hello?")).unwrap()

    assert "Call ask_model" in str(await run(Agent(name="early", model=ScriptedModel([]), system=ask_first), "Go."))
