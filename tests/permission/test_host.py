"""Gates and approvers around a plain run: who is asked, at any depth, and what becomes of the answer."""

from typing import Any

import pytest

from journeyman import Agent, Failure, Limits, Runtime, Tool, run, tool
from journeyman.endings import CancelledContext
from journeyman.gate import Allow, Approval, Ask, Decision, Deny, Gate, GateRequest, Rewrite, Stop, Verdict
from journeyman.testing.scripted import Answer, ScriptedModel, call
from journeyman.types import ToolUse
from tests.permission.workshop import Approver, play
from tests.play import context_of, instance_of, make_gate, make_tool, texts


class Says:
    """A gate that gives one verdict after the other, the last one again and again."""

    def __init__(self, *verdicts: object) -> None:
        self._verdicts = verdicts
        self.asked: list[GateRequest] = []

    async def decide(self, request: GateRequest) -> Verdict:
        self.asked.append(request)
        verdict: Any = self._verdicts[min(len(self.asked), len(self._verdicts)) - 1]
        return verdict


class Ledger:
    """A tool with consequences, and what it was called with."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def tools(self) -> list[Tool[..., Any]]:
        @tool(effect="once")
        async def pay(amount: int) -> str:
            self.paid.append(amount)
            return f"paid {amount}"

        return [pay]

    async def play(self, *answers: Answer, own: Gate | list[Gate] | None = None, **around: Any) -> Any:  # noqa: ANN401
        return await play(self.tools(), *answers, gate=own, runtime=Runtime(**around))


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


PAY = call("pay", amount=5, id="p")
UNFIT = (
    "Error: denied: the gate's own arguments do not fit. Invalid arguments for tool 'pay':\n"
    '- amount: should be a valid integer, got "a lot"'
)


@pytest.mark.parametrize(
    ("decision", "paid", "read"),
    [
        (Allow(), [5], "paid 5"),
        (Deny("too much"), [], "Error: denied: too much"),
        (Rewrite({"amount": 1}), [1], 'The call was made with other arguments: {"amount":1}\npaid 1'),
        (Rewrite({"amount": 5}), [5], "paid 5"),
        pytest.param(Rewrite({"amount": "a lot"}), [], UNFIT, id="modified arguments are validated again"),
    ],
)
async def test_an_approver_answers_a_question(ledger: Ledger, decision: Decision, paid: list[int], read: str) -> None:
    approver = Approver(decision)
    result = await ledger.play(PAY, gate=Says(Ask("Pay 5?")), approver=approver)
    assert (ledger.paid, texts(result)) == (paid, [read])
    [approval] = approver.asked
    assert (approval.question, approval.request.arguments) == ("Pay 5?", {"amount": 5})
    assert approval.question_id == approval.request.digest


async def test_a_value_of_another_type_is_a_change(ledger: Ledger) -> None:
    @tool(effect="once")
    async def tell(value: bool | int) -> str:
        return repr(value)

    result = await play([tell], call("tell", value=True), runtime=Runtime(gate=Says(Rewrite({"value": 1}))))
    assert texts(result) == ['The call was made with other arguments: {"value":1}\n1']


async def test_without_an_approver_a_question_is_a_denial_with_its_words(ledger: Ledger) -> None:
    result = await ledger.play(PAY, gate=Says(Ask("Pay 5?")))
    assert (ledger.paid, texts(result)) == ([], ["Error: denied: Pay 5?"])


@pytest.mark.parametrize("asks", [True, False])
async def test_stop_ends_the_run(ledger: Ledger, asks: bool) -> None:
    gate = Says(Ask("Pay 5?") if asks else Stop("enough of this"))
    stopping = Approver(Stop("enough of this"))
    result = await ledger.play([PAY, call("pay", amount=6, id="q")], gate=gate, approver=stopping)
    assert (context_of(result, CancelledContext).reason, ledger.paid) == ("enough of this", [])
    assert texts(result)[0] == "Error: denied: enough of this"


async def test_several_gates_must_all_agree(ledger: Ledger) -> None:
    first, second, third = Says(Allow()), Says(Allow()), Says(Deny("no"))
    result = await ledger.play(PAY, own=[first, second], gate=third)
    assert (ledger.paid, texts(result)) == ([], ["Error: denied: no"])
    assert [len(gate.asked) for gate in (first, second, third)] == [1, 1, 1]


async def test_arguments_that_a_later_gate_changes_are_shown_to_the_earlier_ones(ledger: Ledger) -> None:
    at_most = make_gate(lambda request: Allow() if request.arguments["amount"] in (1, 5) else Deny("no such amount"))
    allowed = await ledger.play(PAY, own=at_most, gate=Says(Rewrite({"amount": 1})))
    assert (ledger.paid, texts(allowed)[0].rpartition("\n")[2]) == ([1], "paid 1")
    denied = await ledger.play(PAY, own=at_most, gate=Says(Rewrite({"amount": 9})))
    assert (ledger.paid, texts(denied)) == ([1], ["Error: denied: no such amount"])


async def test_an_approval_does_not_hold_for_what_another_gate_makes_of_the_call(ledger: Ledger) -> None:
    approver = Approver(Allow())
    await ledger.play(PAY, own=Says(Ask("Sure?")), gate=Says(Rewrite({"amount": 9})), approver=approver)
    assert [approval.request.arguments for approval in approver.asked] == [{"amount": 5}, {"amount": 9}]


async def test_gates_that_never_agree_deny(ledger: Ledger) -> None:
    plus = make_gate(lambda request: Rewrite({"amount": instance_of(int, request.arguments["amount"]) + 1}))
    result = await ledger.play(PAY, own=plus, gate=plus)
    assert texts(result) == ["Error: denied: the gates keep rewriting the arguments for one another"]


async def test_a_gate_that_changes_what_it_is_shown_changes_nothing(ledger: Ledger) -> None:
    class Meddler:
        async def decide(self, request: GateRequest) -> Verdict:
            request.arguments["amount"] = 1
            return Ask("Pay?")

    after = Says(Allow())

    async def approve(approval: Approval) -> Decision:
        approval.request.arguments["amount"] = 2
        return Allow()

    await ledger.play(PAY, own=Meddler(), gate=after, approver=approve)
    assert ([request.arguments for request in after.asked], ledger.paid) == ([{"amount": 5}], [5])


async def test_arguments_that_json_can_hold_but_few_libraries_can_are_asked_about_all_the_same(ledger: Ledger) -> None:
    keep = make_tool("keep", "kept", effect="once")
    answer = ToolUse("k", "keep", f'{{"value": {{"n": {2**70}}}}}')
    result = await play([keep], answer, runtime=Runtime(gate=Says(Ask("Keep?")), approver=Approver(Allow())))
    assert texts(result) == ["kept"]


def nested(ledger: Ledger, depth: int, answer: Answer, **around: Any) -> Agent:
    """Return an agent whose only tool starts an agent like it, down to one that pays."""
    if depth == 0:
        return Agent(name="d0", model=ScriptedModel([answer, "Done."]), tools=ledger.tools())
    inner = nested(ledger, depth - 1, answer, **around)

    @tool(effect="pure")
    async def delegate() -> str:
        result = await run(inner, "Go.", runtime=Runtime(**around))
        return "stopped" if isinstance(result, Failure) else " ".join(texts(result))

    return Agent(name=f"d{depth}", model=ScriptedModel([call("delegate"), "Done."]), tools=[delegate])


ASKS_TO_PAY = make_gate(Ask("Pay?"), "pay")


async def test_the_gates_of_a_run_hold_for_every_run_below_it_and_the_root_is_asked(ledger: Ledger) -> None:
    approver, child_approver = Approver(Allow()), Approver(Allow())
    await run(
        nested(ledger, 3, PAY, approver=child_approver), "Go.", runtime=Runtime(gate=ASKS_TO_PAY, approver=approver)
    )
    assert [approval.request.path for approval in approver.asked] == [("d3", "d2", "d1", "d0")]
    assert (ledger.paid, child_approver.asked) == ([5], [])


async def test_the_same_gate_above_and_below_is_asked_once_and_never_after_its_run(ledger: Ledger) -> None:
    gate = Says(Allow())
    await run(nested(ledger, 1, PAY, gate=gate), "Go.", runtime=Runtime(gate=gate))
    await ledger.play(PAY)  # the guard has ended with its run
    assert [request.tool_name for request in gate.asked] == ["delegate", "pay"]


async def test_a_run_below_passes_its_own_gate_and_then_those_above(ledger: Ledger) -> None:
    own, above = Says(Rewrite({"amount": 1})), Says(Allow())
    await run(nested(ledger, 1, PAY, gate=own), "Go.", runtime=Runtime(gate=above))
    assert (ledger.paid, [request.arguments for request in above.asked]) == ([1], [{}, {"amount": 1}])


async def test_a_stop_below_ends_the_outermost_run(ledger: Ledger) -> None:
    result = await run(
        nested(ledger, 2, PAY), "Go.", runtime=Runtime(gate=ASKS_TO_PAY, approver=Approver(Stop("enough")))
    )
    assert (context_of(result, CancelledContext).reason, ledger.paid) == ("enough", [])


class Flaky:
    """A tool that fails as often as it is told to, and counts how often it was run."""

    def __init__(self, *outcomes: bool) -> None:
        self._outcomes = list(outcomes)
        self.n_run = 0

    def tools(self, *, parallel: bool = False) -> list[Tool[..., Any]]:
        @tool(parallel=parallel)
        async def flaky(n: int = 0) -> str:
            self.n_run += 1
            if self._outcomes.pop(0):
                return "fine"
            raise ValueError("broken")

        return [flaky, make_tool("steady", "steady")]

    async def play(self, *answers: Answer, most: int = 2, **agent: Any) -> list[str]:
        tools = self.tools(parallel=agent.pop("parallel", False))
        limits = Limits(tool_failures=most, **agent.pop("limits", {}))
        return texts(await play(tools, *answers, limits=limits, **agent))


FAILING = "Error: not run: flaky failed 2 times in a row. Do not call it again; go on without it, or say so."


def flaky(n: int) -> list[Any]:
    return [call("flaky", id=f"f{each}") for each in range(n)]


async def test_a_tool_that_failed_too_often_in_a_row_is_not_run_again() -> None:
    player = Flaky(False, False)
    one, two, three = flaky(3)
    texts = await player.play(one, two, [three, call("steady", id="d")])
    assert (player.n_run, texts[2:]) == (2, [FAILING, "steady"])


async def test_a_success_begins_the_count_anew() -> None:
    player = Flaky(False, True, False, True, False, False)
    texts = await player.play(*flaky(7))
    assert (player.n_run, texts[6]) == (6, FAILING)


async def test_the_count_is_looked_at_when_a_call_starts_and_not_when_it_is_queued() -> None:
    player = Flaky(False, False)
    assert (await player.play(flaky(5)))[2:] == [FAILING] * 3
    parallel = Flaky(*[False] * 5)
    await parallel.play(flaky(5), parallel=True, limits={"max_concurrency": 1})
    assert (player.n_run, parallel.n_run) == (2, 2)


async def test_calls_with_wrong_arguments_and_unknown_tools_count_as_failures() -> None:
    player, wrong = Flaky(True), [call("flaky", n="x", id=f"w{each}") for each in range(2)]
    texts = await player.play(wrong, call("flaky", id="a"), [call("other", id=f"u{each}") for each in range(3)])
    assert (player.n_run, texts[2]) == (0, FAILING)
    assert texts[3:] == [*["Error: Unknown tool other"] * 2, FAILING.replace("flaky", "other")]


async def test_denials_and_the_breakers_own_answers_do_not_count() -> None:
    player = Flaky(False, False)
    texts = await player.play(*flaky(4), gate=Says(Deny("no"), Deny("no"), Allow()), most=3)
    assert (player.n_run, texts) == (2, ["Error: denied: no", "Error: denied: no", *["Error: broken"] * 2])


async def test_without_a_limit_nothing_is_counted() -> None:
    player = Flaky(*[False] * 6)
    await play(player.tools(), *flaky(6))
    assert player.n_run == 6
