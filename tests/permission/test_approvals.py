"""An approval holds for exactly what was shown, for its time, and for one call; unless it was given for more."""

import asyncio
import json
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from journeyman import Runtime, Tool, tool
from journeyman.errors import ApprovalsUnreadable
from journeyman.gate import Allow, Approval, Ask, Decision, Deny, Extent, GateRequest, Rewrite, Stop
from journeyman.permission.approvals import Approvals
from journeyman.permission.capability import Action
from journeyman.permission.permission import Permission
from journeyman.testing.scripted import call
from tests.permission.workshop import Approver, Workshop, play, request
from tests.play import instance_of, make_tool, texts


class Clock:
    """Tells the time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


PUSH = request("bash", command="git push")


async def question_of(gate: Permission, wanted: GateRequest) -> Approval:
    """Return what a permission asks about a call."""
    verdict = instance_of(Ask, await gate.decide(wanted))
    return Approval(
        request=wanted, question=verdict.question, question_id=wanted.digest, offers=verdict.offers, rule=verdict.rule
    )


async def asked(gate: Permission, wanted: GateRequest = PUSH) -> Approval:
    """Let the gate ask, with nobody there to answer. Return the question."""
    approval = await question_of(gate, wanted)
    assert isinstance(gate.settle(approval, None), Deny)
    return approval


async def test_a_question_shows_what_would_run(workshop: Workshop) -> None:
    approver, command = Approver(), "git push\n\u202e 世界 --force"
    result = await workshop.play(Permission(roots=[workshop.root]), call("bash", command=command), approver=approver)
    question = "bash 'git push\\n\\u202e 世界 --force': the mode is balanced, and no rule allows it."
    assert [approval.question for approval in approver.asked] == [question]
    assert approver.asked[0].request.arguments == {"command": command}
    assert (approver.asked[0].offers, texts(result)) == (("once", "session", "always"), ["Error: denied: not today"])


@pytest.mark.parametrize(("extent", "n_asked"), [("once", 3), ("session", 1), ("always", 1)])
async def test_an_approval_for_longer_is_for_the_same_key(workshop: Workshop, extent: Extent, n_asked: int) -> None:
    approver, gate = Approver(Allow(extent)), Permission(roots=[workshop.root])
    calls = [call("write", path=path, content=path) for path in ("a", "src/../a", "a")]
    await workshop.play(gate, *calls, approver=approver)
    assert (len(approver.asked), len(workshop.ran)) == (n_asked, 3)
    await workshop.play(gate, call("write", path="b", content="x"), approver=approver)
    assert len(approver.asked) == n_asked + 1


async def test_an_approved_command_is_no_approval_for_a_longer_one_or_elsewhere(workshop: Workshop) -> None:
    gate = Permission(roots=[workshop.root])
    await workshop.play(gate, call("bash", command="touch a"), approver=Approver(Allow("session")))
    approver = Approver()
    others = [{"command": "touch a b"}, {"command": "touch  a"}, {"command": "touch a", "folder": "src"}]
    await workshop.play(gate, [call("bash", other) for other in others], approver=approver)
    assert len(approver.asked) == 3


def test_an_approval_of_two_places_is_none_of_one_with_a_colon_in_its_name(workshop: Workshop) -> None:
    gate = Permission(roots=[workshop.root])
    two = Action(tool="copy", capability="write", paths=("a", "b"))
    one = Action(tool="copy", capability="write", paths=(f"a:{workshop.root.resolve()}/b",))
    assert gate.key(two) != gate.key(one)


@pytest.mark.parametrize("extent", ["session", "always"])
async def test_outside_of_the_roots_every_approval_shrinks_to_one_call(workshop: Workshop, extent: Extent) -> None:
    approver, gate = Approver(Allow(extent)), Permission(mode="trust", roots=[workshop.root])
    await workshop.play(gate, *[call("write", path=str(workshop.outside / "new"), content="x")] * 2, approver=approver)
    assert len(approver.asked) == 2


@pytest.mark.parametrize("answer", ["yes", True, None, Allow("forever"), Allow(["once"])])  # pyright: ignore[reportArgumentType]
async def test_an_answer_that_is_none_is_a_denial(workshop: Workshop, answer: object) -> None:
    approver = Approver(answer)  # pyright: ignore[reportArgumentType] - what an approver may give
    gate = Permission(roots=[workshop.root])
    result = await workshop.play(gate, call("bash", command="touch trace"), approver=approver)
    assert texts(result)[0].startswith("Error: denied: ")
    assert workshop.trace() == set()


async def test_an_approver_that_fails_denies(workshop: Workshop) -> None:
    async def broken(approval: Approval) -> Decision:
        raise ValueError("no connection")

    runtime = Runtime(gate=Permission(roots=[workshop.root]), approver=broken)
    result = await play(workshop.tools(), call("bash", command="touch trace"), runtime=runtime)
    assert (texts(result), workshop.trace()) == (["Error: denied: the gate failed: ValueError: no connection"], set())


async def test_modified_arguments_run_if_no_deny_rule_forbids_them_and_the_model_is_told(workshop: Workshop) -> None:
    gate, asked = Permission(roots=[workshop.root], deny=["Bash(rm *)"]), call("bash", command="touch trace")
    denied = await workshop.play(gate, asked, approver=Approver(Rewrite({"command": "ls; rm trace"})))
    assert (workshop.ran, texts(denied)) == ([], ["Error: denied: the rule Bash(rm *) forbids it."])
    result = await workshop.play(gate, asked, approver=Approver(Rewrite({"command": "touch harmless"})))
    assert workshop.trace() == {"project/harmless"}
    assert texts(result) == ['The call was made with other arguments: {"command":"touch harmless"}\n[0]']


@dataclass
class Opener:
    """Opens approvals: those in a file anew each time, as another process would; those in memory once."""

    path: Path | None
    kept: Approvals | None = None

    def __call__(self, *, expires_s: float = 3_600, now: Callable[[], float] = time.time) -> Approvals:
        if self.path is not None or self.kept is None:
            self.kept = Approvals(self.path, expires_s=expires_s, now=now)
        return self.kept


@pytest.fixture(params=["in memory", "in a file"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opener:
    in_file = request.param == "in a file"
    return Opener(tmp_path_factory.mktemp("approvals") / "approvals.json" if in_file else None)


async def test_without_an_approver_a_call_can_be_approved_for_later(workshop: Workshop, opened: Opener) -> None:
    touch = call("bash", command="touch trace")
    result = await workshop.play(Permission(roots=[workshop.root], approvals=opened()), touch)
    [pending] = opened().pending()
    assert texts(result) == [f"Error: denied: {pending.question} Nobody is there to approve it; it can be approved"
                               f" later, as {pending.question_id[:12]}."]  # fmt: skip
    assert (pending.tool, pending.arguments, pending.path) == ("bash", {"command": "touch trace"}, ("tester",))
    opened().answer(pending.question_id, Allow())
    assert opened().pending() == ()
    await workshop.play(Permission(roots=[workshop.root], approvals=opened()), touch)
    assert workshop.trace() == {"project/trace"}


async def test_a_used_approval_is_used_up(opened: Opener, tmp_path: Path) -> None:
    gate = Permission(roots=[tmp_path], approvals=opened())
    opened().answer((await asked(gate)).question_id, Allow())
    assert await gate.decide(PUSH) == Allow()
    assert isinstance(await gate.decide(PUSH), Ask)
    assert isinstance(await Permission(roots=[tmp_path], approvals=opened()).decide(PUSH), Ask)


async def test_an_approval_is_for_exactly_the_arguments_that_were_shown(opened: Opener, tmp_path: Path) -> None:
    gate = Permission(roots=[tmp_path], approvals=opened())
    opened().answer((await asked(gate, request("bash", command="git push", timeout_s=1))).question_id, Allow())
    altered = [request("bash", command="git push", timeout_s=other) for other in (2, True, 1.0, "1")]
    altered += [request("bash", command="git push "), PUSH, request("sh", command="git push", timeout_s=1)]
    assert [type(await gate.decide(other)) for other in altered] == [Ask] * len(altered)
    same = request("bash", timeout_s=1, command="git push")  # the order of the arguments does not matter
    assert await gate.decide(replace(same, path=("tester", "child", "grandchild"), tool_use_id="other")) == Allow()


async def test_approvals_and_questions_expire(opened: Opener, tmp_path: Path) -> None:
    clock = Clock()
    approvals = opened(expires_s=60, now=clock)
    gate = Permission(roots=[tmp_path], approvals=approvals)
    digest = (await asked(gate)).question_id
    clock.now_s += 59
    approvals.answer(digest, Allow())
    clock.now_s += 61
    assert isinstance(await gate.decide(PUSH), Ask)
    clock.now_s += 61
    assert approvals.pending() == ()
    with pytest.raises(LookupError, match="has expired"):
        approvals.answer(digest, Allow())


async def test_an_answer_that_comes_too_late_is_a_denial(tmp_path: Path) -> None:
    clock = Clock()
    gate = Permission(roots=[tmp_path], approvals=Approvals(expires_s=60, now=clock))
    approval = await question_of(gate, PUSH)
    clock.now_s += 61
    assert gate.settle(approval, Allow("always")) == Deny("the approval came too late. Ask for it again.")
    assert isinstance(await gate.decide(PUSH), Ask)


@pytest.mark.parametrize(
    ("decision", "verdict"),
    [
        (Deny("never"), Deny("never")),
        (Stop("enough"), Stop("enough")),
        (Rewrite({"command": "git status"}, "safer"), Rewrite({"command": "git status"}, "safer")),
        (Rewrite({"command": "rm x"}), Deny("the rule Bash(rm *) forbids it.")),
    ],
)
async def test_answers_may_come_later(opened: Opener, tmp_path: Path, decision: Decision, verdict: Decision) -> None:
    gate = Permission(roots=[tmp_path], approvals=opened(), deny=["Bash(rm *)"])
    opened().answer((await asked(gate)).question_id, decision)
    assert await gate.decide(PUSH) == verdict


async def test_what_is_approved_for_ever_is_until_it_is_revoked(opened: Opener, tmp_path: Path) -> None:
    approval = await asked(Permission(roots=[tmp_path], approvals=opened()))
    key = opened().pending()[0].key
    opened().answer(approval.question_id, Allow("always"))
    again = Permission(roots=[tmp_path], approvals=opened())
    assert [await again.decide(PUSH), await again.decide(PUSH), await again.decide(PUSH)] == [Allow()] * 3
    opened().revoke(key)
    assert isinstance(await again.decide(PUSH), Allow)  # the answer itself, that nobody had used yet
    assert isinstance(await again.decide(PUSH), Ask)


async def test_what_is_outside_cannot_be_approved_for_ever_later_either(opened: Opener, tmp_path: Path) -> None:
    gate = Permission(roots=[tmp_path], approvals=opened())
    outside = request("write", path="/outside", content="")
    opened().answer((await asked(gate, outside)).question_id, Allow("always"))
    assert await gate.decide(outside) == Allow()
    assert isinstance(await gate.decide(outside), Ask)


def pushing() -> tuple[list[str], asyncio.Event, Tool[..., Any]]:
    """Return a tool, what it was called with, and what tells of the first call."""
    ran, pushed = list[str](), asyncio.Event()

    @tool(parallel=True)
    async def push(what: str) -> str:
        ran.append(what)
        pushed.set()
        return "pushed"

    return ran, pushed, push


async def test_in_parallel_calls_an_approval_is_used_exactly_once(opened: Opener, tmp_path: Path) -> None:
    ran, _, push = pushing()
    runtime = Runtime(gate=Permission(roots=[tmp_path], approvals=opened()))
    pushes = [call("push", what="main", id=f"{n}") for n in range(5)]
    await play([push], pushes, runtime=runtime)
    assert (ran, len(opened().pending())) == ([], 1)
    opened().answer(opened().pending()[0].question_id, Allow())
    result = await play([push], pushes, runtime=runtime)
    assert (ran, sorted(text.partition(":")[0] for text in texts(result))) == (["main"], ["Error"] * 4 + ["pushed"])


async def test_a_run_can_wait_for_an_answer_from_elsewhere(workshop: Workshop) -> None:
    approvals = Approvals()
    gate = Permission(roots=[workshop.root], approvals=approvals)
    touch, waits = call("bash", command="touch trace"), asyncio.Event()

    async def approve(approval: Approval) -> Decision:
        waits.set()
        return await approvals.wait(approval)

    playing = asyncio.create_task(play(workshop.tools(), touch, runtime=Runtime(gate=gate, approver=approve)))
    await waits.wait()
    assert workshop.trace() == set()
    approvals.answer(approvals.pending()[0].question_id, Allow())
    await playing
    assert (workshop.trace(), approvals.pending()) == ({"project/trace"}, ())


async def test_calls_that_are_alike_wait_for_an_answer_each(tmp_path: Path) -> None:
    ran, pushed, push = pushing()
    approvals, both_wait = Approvals(), asyncio.Barrier(3)

    async def approve(approval: Approval) -> Decision:
        answer = asyncio.create_task(approvals.wait(approval))
        await both_wait.wait()
        return await answer

    runtime = Runtime(gate=Permission(roots=[tmp_path], approvals=approvals), approver=approve)
    playing = asyncio.create_task(play([push], [call("push", what="main", id=id) for id in "ab"], runtime=runtime))
    await both_wait.wait()
    digest = approvals.pending()[0].question_id
    approvals.answer(digest, Allow())
    await pushed.wait()
    assert ran == ["main"]
    approvals.answer(digest, Deny("once is enough"))
    assert [text for text in texts(await playing) if "Error" in text] == ["Error: denied: once is enough"]


async def test_the_file_is_private_sorted_and_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "approvals.json"
    approvals = Approvals(path)
    for key in ("tool:b", "tool:a", "write:/c"):
        approvals.grant(key, "always")
    before = path.stat().st_ino
    approvals.grant("network:x", "always")
    text = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_ino != before
    assert json.loads(text)["always"] == ["network:x", "tool:a", "tool:b", "write:/c"]
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True)
    assert {each.name for each in tmp_path.iterdir()} == {"approvals.json", "approvals.json.lock"}


ANSWER = '{{"version": 1, "answers": {{"x": {{"decision": {}, "expires_at": {}}}}}}}'
HOSTILE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_text(""),
    "cut": lambda path: path.write_text('{"version": 1, "always": ["tool:'),
    "no object": lambda path: path.write_text("[]"),
    "another version": lambda path: path.write_text('{"version": 2, "always": ["tool:mystery"]}'),
    "an unknown field": lambda path: path.write_text('{"version": 1, "allow_all": true}'),
    "other types": lambda path: path.write_text('{"version": 1, "always": "tool:mystery"}'),
    "an unknown decision": lambda path: path.write_text(ANSWER.format('"yes"', 9e99)),
    "never expires": lambda path: path.write_text(ANSWER.format('"approve"', '"never"')),
    "binary": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "too long": lambda path: path.write_text(json.dumps({"version": 1, "always": ["x" * 9_000_000]})),
    "deep": lambda path: path.write_text("[" * 100_000),
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "open to others": lambda path: (path.write_text('{"version": 1, "always": ["tool:mystery"]}'), path.chmod(0o666)),
}


@pytest.mark.parametrize("spoil", HOSTILE.values(), ids=list(HOSTILE))
async def test_a_file_that_cannot_be_trusted_approves_nothing(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    path = tmp_path / "approvals.json"
    spoil(path)
    ran: list[int] = []

    runtime = Runtime(gate=Permission(roots=[tmp_path], approvals=Approvals(path)), approver=Approver(Allow()))
    result = await play([make_tool("mystery", into=ran)], call("mystery", n=1), runtime=runtime)
    assert ran == []
    assert f"ApprovalsUnreadable: The approvals in {path} cannot be used: " in texts(result)[0]
    with pytest.raises(ApprovalsUnreadable, match="Look at the file, or remove it"):
        Approvals(path).pending()


async def test_a_damaged_file_does_not_matter_to_what_needs_no_approval(tmp_path: Path) -> None:
    (tmp_path / "approvals.json").write_text("garbage")
    gate = Permission(mode="auto", roots=[tmp_path], approvals=Approvals(tmp_path / "approvals.json"))
    assert await gate.decide(request("write", path="a", content="")) == Allow()


async def test_what_is_too_long_to_keep_is_asked_all_the_same(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path / "approvals.json")
    await asked(Permission(roots=[tmp_path], approvals=approvals), request("mystery", text="x" * 100_000))
    [pending] = approvals.pending()
    assert pending.arguments is None
    assert "more characters)" in pending.question
    assert (tmp_path / "approvals.json").stat().st_size < 10_000


async def test_the_oldest_of_very_many_questions_are_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    approvals = Approvals(now=clock)
    gate = Permission(roots=[tmp_path], approvals=approvals)
    for n in range(220):
        clock.now_s += 1
        await asked(gate, request("mystery", n=n))
    assert [pending.arguments for pending in approvals.pending()] == [{"n": n} for n in range(20, 220)]


async def test_every_decision_is_one_line_of_the_audit(workshop: Workshop, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    gate = Permission(roots=[workshop.root], deny=["Bash(rm *)"], audit=log)
    calls = [call("read", path="missing"), call("bash", command="rm x\ny"), call("write", path="a", content="")]
    await workshop.play(gate, calls, approver=Approver(Allow()))
    await workshop.play(gate, [call("fetch", url="https://example.org")])
    await workshop.play(gate, [call("bash", command="ls")], approver=Approver(Stop("enough")))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    told = ["read read allow", "bash exec deny", "write write allow", "fetch network unanswered", "bash exec stop"]
    assert [f"{line['tool']} {line['capability']} {line['decision']}" for line in lines] == told
    assert (lines[1]["summary"], lines[1]["reason"]) == ("bash 'rm x\\ny'", "the rule Bash(rm *) forbids it.")
    assert lines[2]["reason"] == "approved: once."
    facts = {"time", "mode", "path", "tool", "capability", "summary", "digest", "decision", "reason", "box"}
    assert {*lines[0]} == facts
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_a_call_that_cannot_be_audited_is_not_made(workshop: Workshop, tmp_path: Path) -> None:
    gate = Permission(mode="trust", roots=[workshop.root], audit=tmp_path / "missing" / "audit.jsonl")
    result = await workshop.play(gate, call("bash", command="touch trace"))
    assert (workshop.ran, workshop.trace()) == ([], set())
    assert "the gate failed: FileNotFoundError" in texts(result)[0]
