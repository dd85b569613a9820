"""What an approval reaches, and how it is told: the rule that it is; and no answer is lost, or counts twice."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from journeyman import Agent, Chat, Event, Runtime
from journeyman.cli.permit.asked import TerminalQuestion
from journeyman.errors import ApprovalsUnreadable
from journeyman.events import ApprovalRequested
from journeyman.gate import Allow, Approval, Ask, Decision, Deny, Extent, GateRequest, Rewrite, Stop
from journeyman.permission.approvals import Approvals
from journeyman.permission.permission import AuditEntry, Permission
from journeyman.testing.scripted import ScriptedModel, call
from tests.permission.test_approvals import question_of
from tests.permission.workshop import Approver, Workshop, play, request
from tests.play import cancelled, existing, texts

EXTENTS: list[Extent] = ["session", "always"]


@pytest.mark.parametrize("extent", EXTENTS)
async def test_an_approval_is_bound_to_its_host(workshop: Workshop, extent: Extent) -> None:
    gate, approver = Permission(roots=[workshop.root]), Approver(Allow(extent))
    await workshop.play(gate, call("fetch", url="https://example.org/a"), approver=approver)
    alike = ["https://example.org/b?c", "http://EXAMPLE.org:8080/"]
    others = ["https://www.example.org/", "https://example.com/", "https://example.org.evil.example/", "https://[::1]/"]
    await workshop.play(gate, [call("fetch", url=url) for url in alike], approver=approver)
    assert (len(approver.asked), len(workshop.ran)) == (1, 3)
    await workshop.play(gate, [call("fetch", url=url) for url in others], approver=Approver())
    assert len(workshop.ran) == 3


ALTERED: list[dict[str, Any]] = [{"n": 2}, {"n": True}, {"n": 1.0}, {"n": "1"}, {"n": 1, "m": None}, {}]


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("altered", ALTERED, ids=str)
async def test_an_approval_of_a_tool_is_bound_to_its_arguments(
    tmp_path: Path, extent: Extent, altered: dict[str, Any]
) -> None:
    gate = Permission(roots=[tmp_path])
    approval = await question_of(gate, request("transfer", n=1))
    assert gate.settle(approval, Allow(extent)) == Allow(extent)
    assert await gate.decide(request("transfer", n=1)) == Allow()
    assert isinstance(await gate.decide(request("transfer", **altered)), Ask)
    assert isinstance(await gate.decide(request("transfer_all", n=1)), Ask)


async def test_an_approval_of_a_call_that_is_passed_on_is_bound_to_its_arguments(tmp_path: Path) -> None:
    gate = Permission(roots=[tmp_path])
    first, other = (request("call_tool", name="transfer", arguments={"n": n}) for n in (1, 2))
    gate.settle(await question_of(gate, first), Allow("session"))
    assert await gate.decide(first) == Allow()
    assert isinstance(await gate.decide(other), Ask)


RULES: dict[str, tuple[GateRequest, str]] = {
    "a file": (request("write", path="src/../a", content="x"), "Edit(ROOT/a)"),
    "a command": (request("bash", command="git push\n\u202e"), "Bash(git push\\n\\u202e), exactly so, in ROOT"),
    "a folder": (request("bash", command="ls", folder="src"), "Bash(ls), exactly so, in ROOT/src"),
    "a host": (
        request("fetch", url="https://example.org/a?b"),
        "WebFetch(example.org), whatever is fetched from there or sent there",
    ),
    "no plain host": (request("fetch", url="https://a@b/"), "fetch of exactly this address"),
    "a tool": (request("transfer", n=1), "transfer with exactly these arguments"),
    "a tool behind": (request("call_tool", name="transfer", arguments={}), "transfer with exactly these arguments"),
    "outside": (request("write", path="/elsewhere", content="x"), ""),
}


@pytest.mark.parametrize(("wanted", "rule"), RULES.values(), ids=list(RULES))
async def test_a_wider_approval_is_told_as_the_rule_that_it_is(tmp_path: Path, wanted: GateRequest, rule: str) -> None:
    approvals, entries = Approvals(tmp_path / "approvals.json"), list[AuditEntry]()
    gate = Permission(roots=[tmp_path], approvals=approvals, audit=entries.append)
    approval = await question_of(gate, wanted)
    rule = rule.replace("ROOT", str(tmp_path))
    assert (approval.rule, approvals.pending()[0].rule) == (rule, rule)
    gate.settle(approval, Allow("always"))
    if not rule:
        assert (approval.offers, approvals.granted()) == (("once",), {})
        return
    assert entries[-1].reason == f"approved: always: {rule}."
    (key,) = Approvals(tmp_path / "approvals.json").granted()
    assert approvals.granted() == {key: rule}
    approvals.revoke(key)
    assert (approvals.granted(), Approvals(tmp_path / "approvals.json").granted()) == ({}, {})


async def test_what_is_granted_by_a_later_answer_is_listed_too(tmp_path: Path) -> None:
    approvals = Approvals()
    gate = Permission(roots=[tmp_path], approvals=approvals)
    for number, extent in enumerate(EXTENTS):
        approval = await question_of(gate, request("transfer", n=number))
        gate.settle(approval, None)
        approvals.answer(approval.question_id, Allow(extent))
    approvals.grant("network:example.org", "always")
    rules = ["transfer with exactly these arguments"] * 2
    assert sorted(approvals.granted().values()) == ["network:example.org", *rules]


async def test_the_user_of_a_chat_sees_the_rule(workshop: Workshop) -> None:
    rules: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, ApprovalRequested):
            rules.append(event.rule)
            chat.answer(event.id, Allow())

    agent = Agent(
        name="a",
        model=ScriptedModel([call("fetch", url="https://example.org/"), "Done."]),
        tools=workshop.tools(),
        gate=Permission(roots=[workshop.root]),
    )
    async with Chat(agent, on_event=listen) as chat:
        await chat.prompt("Go.")
    assert rules == ["WebFetch(example.org), whatever is fetched from there or sent there"]


@pytest.mark.parametrize("n_chars", [1_000, 1_999, 3_000, 100_000])
async def test_a_question_shows_the_end_of_a_long_command_too(tmp_path: Path, n_chars: int) -> None:
    hidden = f"echo {'a' * n_chars}; rm -rf ~ #end"
    entries: list[AuditEntry] = []
    gate = Permission(roots=[tmp_path], audit=entries.append)
    for wanted in (request("bash", command=hidden), request("transfer", text=hidden)):
        approval = await question_of(gate, wanted)
        assert re.search(r"'?.*echo aaa.*; rm -rf ~ #end.{0,3}: the (mode|command) is ", approval.question)
        assert len(approval.question) < 2_300
        gate.settle(approval, None)
    assert "; rm -rf ~ #end" in entries[0].summary
    assert len(entries[0].summary) < 300


@pytest.mark.parametrize("command", ["a" * 7_000 + "; rm -rf ~ #end", "true\n" * 90 + "rm -rf ~ #end"])
async def test_the_terminal_shows_the_end_of_a_long_command_too_and_the_rule(tmp_path: Path, command: str) -> None:
    wanted = request("bash", command=command, more=["row"] * 40, last=command)
    approval = await question_of(Permission(roots=[tmp_path]), wanted)
    facts: dict[str, Any] = {"tool_use_id": "a", "tool_name": "bash", "arguments": wanted.arguments, "question_id": "d"}
    asked = ApprovalRequested(
        path=("a",), id="1", question=approval.question, offers=approval.offers, rule=approval.rule, **facts
    )
    agent = Agent(name="a", model=ScriptedModel([]))
    lines = [line.text for line in TerminalQuestion(agent, asked, may_exit="turn").lines(40)]
    *shown, not_all, rule = lines
    assert any("rm -rf ~ #end" in line for line in shown)
    assert not_all == "Not all of it is shown: v shows it"
    assert rule.startswith("session and always allow Bash(")
    assert rule.endswith(f"rm -rf ~ #end), exactly so, in {tmp_path}")


def answer_in_a_thread(approvals: Approvals, digest: str, decision: Decision) -> None:
    thread = Thread(target=approvals.answer, args=(digest, decision))
    thread.start()
    thread.join()


def waiting(approvals: Approvals) -> dict[str, Any]:
    return approvals._waiting  # pyright: ignore[reportPrivateUsage] - nothing else shows what is left over


@pytest.mark.parametrize("decision", [Allow(), Deny("no"), Stop("stop"), Rewrite({"n": 2})], ids=str)
async def test_an_answer_from_a_thread_at_the_time_out_counts(tmp_path: Path, decision: Decision) -> None:
    clock_s, loop = [0.0], asyncio.get_running_loop()
    approvals = Approvals(expires_s=0.01, now=lambda: clock_s[0])
    gate = Permission(roots=[tmp_path], approvals=approvals)
    approval = await question_of(gate, request("transfer", n=1))
    waits = asyncio.create_task(approvals.wait(approval))
    await asyncio.sleep(0)  # it waits now
    due_s = loop.time() + 0.02
    while loop.time() < due_s:  # the loop is busy until the time is over
        pass
    clock_s[0] = 0.009
    answer_in_a_thread(approvals, approval.question_id, decision)
    clock_s[0] = 0.011  # by now the question itself would have expired
    assert await waits == decision
    assert gate.settle(approval, decision) == decision
    assert (waiting(approvals), approvals.pending()) == ({}, ())


@pytest.mark.parametrize("in_file", [False, True])
async def test_an_answer_to_a_run_that_ends_in_that_moment_waits_for_the_next(tmp_path: Path, in_file: bool) -> None:
    approvals = Approvals(tmp_path / "approvals.json" if in_file else None)
    gate, wanted = Permission(roots=[tmp_path], approvals=approvals), request("transfer", n=1)
    approval = await question_of(gate, wanted)
    waits = asyncio.create_task(approvals.wait(approval))
    await asyncio.sleep(0)
    answer_in_a_thread(approvals, approval.question_id, Allow())
    await cancelled(waits)
    assert (waiting(approvals), approvals.pending()) == ({}, ())
    assert await gate.decide(wanted) == Allow()
    assert isinstance(await gate.decide(wanted), Ask)


async def test_a_cancelled_wait_is_cancelled_also_if_the_answer_cannot_be_kept(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path / "approvals.json")
    approval = await question_of(Permission(roots=[tmp_path], approvals=approvals), request("transfer", n=1))
    waits = asyncio.create_task(approvals.wait(approval))
    await asyncio.sleep(0)
    answer_in_a_thread(approvals, approval.question_id, Allow())
    (tmp_path / "approvals.json").write_text("damaged")
    await cancelled(waits)
    with pytest.raises(ApprovalsUnreadable):
        approvals.pending()


async def test_a_question_that_nobody_answers_in_time_is_denied_and_leaves_nothing(tmp_path: Path) -> None:
    approvals = Approvals(expires_s=0.01)
    gate = Permission(roots=[tmp_path], approvals=approvals)
    digests: list[str] = []
    for n in range(3):
        approval = await question_of(gate, request("transfer", n=n))
        digests.append(approval.question_id)
        told = await approvals.wait(approval)
        assert told == Deny(f"nobody answered within 0.01s: {approval.question}")
    assert (len(digests), waiting(approvals)) == (3, {})
    for digest in digests:
        with pytest.raises(LookupError, match="has expired"):
            approvals.answer(digest, Allow())


async def test_what_was_answered_and_what_was_cancelled_leaves_nothing(tmp_path: Path) -> None:
    approvals = Approvals()
    gate = Permission(roots=[tmp_path], approvals=approvals)
    first, second = [await question_of(gate, request("transfer", n=n)) for n in range(2)]
    answered, cancelled = (asyncio.create_task(approvals.wait(each)) for each in (first, second))
    await asyncio.sleep(0)
    assert len(waiting(approvals)) == 2
    approvals.answer(first.question_id, Allow())
    cancelled.cancel()
    assert await answered == Allow()
    await asyncio.wait([cancelled])
    assert waiting(approvals) == {}


TAKING = """
import sys
from journeyman.permission import Approvals

approvals = Approvals(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(*[digest for digest in sys.argv[2:] if approvals.take(digest) is not None])
"""


async def test_two_processes_never_take_the_same_answer(tmp_path: Path) -> None:
    path = tmp_path / "approvals.json"
    approvals = Approvals(path)
    gate = Permission(roots=[tmp_path], approvals=approvals)
    digests: list[str] = []
    for n in range(40):
        approval = await question_of(gate, request("transfer", n=n))
        approvals.answer(approval.question_id, Allow())
        digests.append(approval.question_id)

    def started() -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", TAKING, str(path), *digests], **pipes)

    with started() as first, started() as second:
        for each in (first, second):
            assert existing(each.stdout).readline() == "ready\n"
        for each in (first, second):
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        taken = [each.communicate()[0].split() for each in (first, second)]
    assert sorted(taken[0] + taken[1]) == sorted(digests)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "approvals.json"
    Approvals(path).grant("tool:transfer", "always")
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ApprovalsUnreadable, match=rf"it belongs to another user \({owner}\)"):
        Approvals(path).allows("tool:transfer")


class Wrong:
    """A gate that decides, or settles, with what is no verdict."""

    def __init__(self, decided: object, settled: object = None) -> None:
        self.decided: Any = decided
        self.settled: Any = settled

    async def decide(self, request: GateRequest) -> Any:  # noqa: ANN401 - that is what is tried
        return self.decided

    def settle(self, approval: Approval, decision: Decision | None) -> Any:  # noqa: ANN401 - that is what is tried
        return self.settled


@pytest.mark.parametrize("wrong", ["allow", True, None, Allow, 1, [Allow()]], ids=str)
async def test_a_gate_that_gives_no_verdict_denies(workshop: Workshop, wrong: object) -> None:
    for gate in (Wrong(wrong), Wrong(Ask("Really?"), wrong)):
        runtime = Runtime(gate=gate, approver=Approver(Allow()))
        result = await play(workshop.tools(), call("bash", command="touch trace"), runtime=runtime)
        assert texts(result) == [f"Error: denied: the gate gave no verdict, but {type(wrong).__name__}"]
    assert (workshop.ran, workshop.trace()) == ([], set())
