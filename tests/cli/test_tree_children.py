"""The tree of a crew: sub-agents one inside the other, background work and mail, and all of it at the end."""

import io
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import JsonValue
from rich.console import Console

from journeyman import events as ev
from journeyman.cli.show.lines import Line, laid_out
from journeyman.cli.show.tail import Tail
from journeyman.cli.show.tree import Tree, outline_lines
from journeyman.events.json_form import told_of
from journeyman.events.run_view import RunViews
from journeyman.result import Metadata
from journeyman.types import RunPath, Usage
from tests.cli.program import AGENTS, Warm, timeless
from tests.cli.terminal import terminal

LEAD: RunPath = ("lead",)
ONE: RunPath = ("lead", "scout#1")
TWO: RunPath = ("lead", "scout#2")
AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
OF_A_TOOL: dict[str, Any] = {"attempt": 1, "iteration": 1, "kind": "tool"}


def started(path: RunPath, mode: str | None = None, *, call: str | None = None) -> ev.RunStarted:
    name = path[-1].partition("#")[0]
    return ev.RunStarted(
        path=path, agent=name, model="m", max_attempts=3, max_iterations=9, mode=mode, tool_use_id=call
    )


def iteration(path: RunPath, number: int, attempt: int = 1) -> ev.IterationStarted:
    return ev.IterationStarted(path=path, attempt=attempt, iteration=number)


def responded(path: RunPath, number: int, text: str = "", usage: Usage | None = None) -> ev.ModelResponded:
    used = usage or Usage(requests=1, input_tokens=10, output_tokens=5)
    return ev.ModelResponded(
        path=path, attempt=1, iteration=number, stop_reason="end_turn", text=text, usage=used, model="m"
    )


def called(path: RunPath, id: str, name: str = "look", **given: JsonValue) -> ev.ToolCalled:
    return ev.ToolCalled(path=path, tool_use_id=id, tool_name=name, tool_input=dict(given), **OF_A_TOOL)


def finished(path: RunPath, id: str, name: str = "look") -> ev.ToolFinished:
    how: dict[str, Any] = {"tool_result": "ok", "is_error": False, "cached": False, "duration_s": 0}
    return ev.ToolFinished(path=path, tool_use_id=id, tool_name=name, **how, **OF_A_TOOL)


def ended(path: RunPath) -> ev.RunSucceeded:
    return ev.RunSucceeded(path=path, output="", metadata=Metadata(usage=None, latency_s=0.2))


def told(*events: ev.Event) -> list[str]:
    tree, views = Tree(), RunViews()
    return shown([line for event in events for line in tree.lines(event, views.take(told_of(event)))])


def shown(lines: list[Line]) -> list[str]:
    return [" ".join([" " * line.indent + line.mark, line.name, line.text]).rstrip() for line in lines]


def test_a_sub_agent_is_indented_and_named_when_the_lines_change_hands() -> None:
    assert told(
        *(started(LEAD), started(TWO, "single"), iteration(TWO, 1), iteration(TWO, 1, attempt=2)),
        *(ev.CallAbandoned(path=LEAD, tool_use_id="1", tool_name="nap"), ended(TWO)),
    ) == [
        " lead · m",
        "    child scout#2 · single · m",
        "       attempt 2 of 3",
        "    warning nap was stopped and goes on; what it returns is dropped",
        "      scout#2",
        "      done done · 200 ms",
    ]


def test_what_works_at_the_same_time_is_told_iteration_by_iteration() -> None:
    assert told(
        *(started(LEAD), started(ONE, "parallel"), iteration(ONE, 1), started(TWO, "parallel"), iteration(TWO, 1)),
        *(responded(ONE, 1, "I look left."), responded(TWO, 1, "I look right."), called(ONE, "a"), called(TWO, "b")),
        *(finished(TWO, "b"), finished(ONE, "a"), iteration(ONE, 2), iteration(TWO, 2)),
        *(responded(TWO, 2, "Nothing."), responded(ONE, 2, "A cat."), ended(TWO), ended(ONE)),
    ) == [
        " lead · m",
        "    child scout#1 · parallel · m",
        "       1 I look left.",
        "        done look",
        "    child scout#2 · parallel · m",
        "       1 I look right.",
        "        done look",
        "       2 Nothing.",
        "      done done · 200 ms",
        "      scout#1",
        "       2 A cat.",
        "      done done · 200 ms",
    ]


def test_a_run_below_one_that_works_beside_others_stays_with_it() -> None:
    below: RunPath = (*ONE, "helper#1")
    lines = told(
        *(started(LEAD), started(ONE, "parallel"), started(TWO, "parallel"), iteration(ONE, 1), iteration(TWO, 1)),
        *(responded(ONE, 1, "I ask."), started(below, "single"), responded(below, 1, "Yes.")),
        *(responded(TWO, 1, "No."), ended(TWO), ended(below), ended(ONE)),
    )
    assert lines[1] == "    child scout#2 · parallel · m"
    assert lines[4:] == [
        "    child scout#1 · parallel · m",
        "       1 I ask.",
        "        child helper#1 · single · m",
        "           1 Yes.",
        "          done done · 200 ms",
        "      done done · 200 ms",
    ]


def test_two_delegations_in_one_response_are_told_apart() -> None:
    lines = told(
        *(started(LEAD), called(LEAD, "a", "subagent", agent="scout", task="left")),
        *(called(LEAD, "b", "subagent", agent="scout", task="right"), started(ONE, "single"), started(TWO, "single")),
        *(responded(ONE, 1, "Left."), responded(TWO, 1, "Right."), ended(ONE), ended(TWO)),
    )
    assert [line.split()[1] for line in lines[1:]] == ["scout#1", "Left.", "done", "scout#2", "Right.", "done"]


def test_sub_agents_that_were_cancelled_are_told_before_the_end_of_the_run_above() -> None:
    assert told(started(LEAD), started(ONE, "parallel"), responded(ONE, 1, "I look."), ended(LEAD)) == [
        " lead · m",
        "    child scout#1 · parallel · m",
        "       1 I look.",
        "      stopped stopped",
        "",
        "done done · 200 ms",
        "    tokens not counted",
    ]


def test_a_sub_agent_in_the_background_is_told_after_the_end_of_the_run_above() -> None:
    assert told(started(LEAD), started(ONE, "background"), ended(LEAD), responded(ONE, 1, "Still here."), ended(ONE))[
        -3:
    ] == ["    child scout#1 · background · m", "       1 Still here.", "      done done · 200 ms"]


def test_what_was_kept_of_runs_that_never_end_is_not_lost() -> None:
    tree, views = Tree(), RunViews()
    for event in (started(ONE, "parallel"), responded(ONE, 1, "I look.")):
        tree.lines(event, views.take(told_of(event)))
    assert shown(tree.rest()) == ["    child scout#1 · parallel · m", "       1 I look."]
    assert tree.rest() == []


def test_a_delegation_says_how_it_delegates() -> None:
    tasks: list[JsonValue] = [{"agent": "scout", "task": "a"}] * 3
    for given, said in (
        ({"tasks": tasks}, "3 tasks at the same time"),
        ({"chain": tasks[:2]}, "2 steps one after the other"),
        ({"agent": "scout", "task": "Look."}, "scout: Look."),
        ({"agent": "scout", "task": "Look.", "background": True}, "scout in the background: Look."),
    ):
        events = (called(LEAD, "1", "subagent", **given), finished(LEAD, "1", "subagent"))
        assert told(*events) == [f"    done subagent {said}"]


@pytest.mark.parametrize("width", [80, 40])
def test_the_deepest_lines_fit_into_a_terminal(width: int) -> None:
    path: RunPath = ("lead", *[f"a-sub-agent-with-a-long-name#{number}" for number in range(1, 7)])
    long = "many words " * 40
    events: list[ev.Event] = [
        started(path, "single"),
        responded(path, 1, long, Usage(requests=1, input_tokens=1_234_567, output_tokens=12_345)),
        called(path, "a", "a_tool_with_a_long_name", text=long),
        finished(path, "a", "a_tool_with_a_long_name"),
        ended(path),
    ]
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    tree, tail = Tree(), Tail(views := RunViews(keeps_roots=True))
    lines: list[Line] = []
    for event in events:
        lines += [*tree.lines(event, views.take(told_of(event))), *tail.lines(unicode=True)]
    rows = [row.plain for line in [*lines, *outline_lines(views.roots)] for row in laid_out(line, console)]
    assert len(rows) > 10
    assert max(len(row) for row in rows) <= width


def info(
    id: str, status: ev.TaskStatus = "running", *, error: str | None = None, identity: ev.Identity | None = None
) -> ev.TaskInfo:
    about: dict[str, Any] = {"description": "check all links", "agent": "checker", "started": AT, "duration_s": 3.0}
    kind = "agent" if identity is None else "member"
    return ev.TaskInfo(id=id, kind=kind, status=status, path=LEAD, error=error, identity=identity, **about)


def test_background_work_has_a_line_when_it_begins_is_written_to_and_ends() -> None:
    assert told(
        started(LEAD),
        ev.TaskStarted(path=LEAD, info=info("bg-1")),
        ev.TaskMessaged(path=LEAD, id="bg-1", text="Hurry.", delivery="queued"),
        ev.TaskMessaged(path=LEAD, id="bg-9", text="Who?", delivery="unknown"),
        ev.TaskEnded(path=LEAD, info=info("bg-1", "completed")),
        ev.TaskEnded(path=LEAD, info=info("bg-2", "failed", error="no disk")),
        ev.TaskEnded(path=(), info=info("bg-3", "killed")),
    ) == [
        " lead · m",
        "background bg-1 checker: check all links · in the background",
        "mail to bg-1 Hurry.",
        "warning to bg-9 Who? (not read: unknown)",
        "done bg-1 checker: check all links · has ended",
        "failed bg-2 checker: check all links · failed",
        "  bar  no disk",
        "stopped bg-3 checker: check all links · was stopped",
    ]


def test_mail_has_a_line_and_notices_have_none() -> None:
    mail = ev.TeamMessage(id="1", sender="ada", to="max", text="Please\ncount C.", sent=AT)
    idle = ev.TeamMessage(id="2", sender="max", to="ada", text="idle", kind="idle", sent=AT)
    ada: RunPath = ("lead", "ada")
    assert told(
        ev.TaskStarted(path=LEAD, info=info("tm-1", identity=ev.Identity("ada", "stock"))),
        ev.MailSent(path=ada, mail=mail),
        ev.MailSent(path=ada, mail=idle),
        ev.MailReturned(path=LEAD, letter=ev.DeadLetter(mail=mail, reason="gone", at=AT)),
        ev.MemberChanged(path=ada, team="stock", name="ada", incarnation=1, liveness="idle", at=AT),
        ev.MemberChanged(path=ada, team="stock", name="ada", incarnation=1, liveness="gone", at=AT),
        ev.MemberChanged(path=ada, team="stock", name="max", incarnation=1, liveness="gone", at=AT, error="no key"),
    ) == [
        "    mail ada to max Please count C.",
        "warning ada to max not delivered (gone): Please count C.",
        "    stopped ada is gone",
        "    failed max is gone: no key",
    ]


def test_what_happens_beside_a_sub_agent_does_not_take_its_lines_for_another_s() -> None:
    assert told(
        started(LEAD),
        started(ONE, "single"),
        ev.TaskStarted(path=LEAD, info=info("bg-1")),
        responded(ONE, 1, "I look."),
    )[2:] == ["background bg-1 checker: check all links · in the background", "      scout#1", "       1 I look."]


def rows(tail: Tail) -> list[str]:
    return [f"{' ' * line.indent}{line.text}" for line in tail.lines(unicode=False)]


def test_each_sub_agent_at_work_has_a_row_of_its_own() -> None:
    tail = Tail(views := RunViews(lambda: 7.0))
    below: RunPath = (*ONE, "helper#1")
    for event in (
        *(started(LEAD), called(LEAD, "s", "subagent", tasks=[1, 2]), started(ONE, "parallel")),
        *(started(TWO, "parallel"), ev.TextDelta(path=ONE, text="On the left")),
        *(ev.TextDelta(path=TWO, text="On the right"), ev.TextDelta(path=ONE, text=" a cat"), started(below, "single")),
        *(called(below, "a", city="Oslo"), called(below, "b", city="Rome")),
        ev.TaskStarted(path=LEAD, info=info("bg-1")),
    ):
        views.take(told_of(event))
    assert rows(tail) == [
        "    | subagent 2 tasks at the same time",
        "      | scout#1 · On the left a cat",
        "        | helper#1 · look (and 1 more) Oslo",
        "      | scout#2 · On the right",
        "| 3 sub-agents at work · 0.0 s",
    ]
    for event in (ended(ONE), ended(TWO)):
        views.take(told_of(event))
    assert rows(tail)[-1] == "| running subagent · 0.0 s"


def test_a_terminal_shows_six_sub_agents_and_counts_the_others() -> None:
    tail = Tail(views := RunViews(lambda: 7.0))
    for number in range(1, 1001):
        views.take(told_of(started(("lead", f"scout#{number}"), "parallel")))
    assert len(rows(tail)) == 8
    assert rows(tail)[-2:] == ["      and 994 more", "| 1,000 sub-agents at work · 0.0 s"]


def test_a_crowd_is_drawn_at_most_ten_times_a_second(warm: Warm) -> None:
    def has_run_for(shown: str, seconds: float) -> bool:
        return any(float(time) >= seconds for time in re.findall(r"stander#1 · wait +([\d.]+) s", shown))

    with terminal("run", f"{AGENTS}:crowd", "Go on", start=warm.start) as tty:
        tty.wait_for(lambda shown: has_run_for(shown, 0.3))
        before = tty.times_drawn("8 sub-agents at work")
        tty.wait_for(lambda shown: has_run_for(shown, 1.3))
        assert 0 < tty.times_drawn("8 sub-agents at work") - before <= 12
        tty.press(b"\x03")
        assert tty.end() == 130
    assert "      ■ stopped" in tty.text
    assert tty.is_calm


WHOLE_TREE = """\

The whole tree                                    tokens, of runs with all below
✓ chief · 3 iterations, 2 calls ·                              >= 110 in, 55 out
  1 ✓ subagent                                                      10 in, 5 out
    ✓ scout#1 · parallel · 2 iterations, 1 call ·                  20 in, 10 out
      1 ✓ look                                                      10 in, 5 out
      2 answers                                                     10 in, 5 out
    ✗ ill#2 · parallel · 1 iteration, 0 calls ·                  >= 0 in, 0 out
      │ API_ERROR: The model call failed (quota): No more.
      1 was not answered
    ✓ scout#3 · parallel · 2 iterations, 1 call ·                  20 in, 10 out
      1 ✓ look                                                      10 in, 5 out
      2 answers                                                     10 in, 5 out
  2 ✓ subagent                                                      10 in, 5 out
    ✓ guide#4 · single · 2 iterations, 1 call ·                    40 in, 20 out
      1 ✓ subagent                                                  10 in, 5 out
        ✓ scout#1 · single · 2 iterations, 1 call ·                20 in, 10 out
          1 ✓ look                                                  10 in, 5 out
          2 answers                                                 10 in, 5 out
      2 answers                                                     10 in, 5 out
  3 answers                                                         10 in, 5 out

in all · 6 runs, 6 attempts, 12 iterations, 6 calls
  at least 110 tokens in, 55 out · at least $0.0012
"""


def squeezed(text: str) -> str:
    """Return the text without durations, wherever in the line they are, and with single blanks before what follows."""
    return re.sub(r"(?<=\S) +", " ", re.sub(r"· [\d.]+ m?s\b", "·", text))


def test_the_whole_tree_has_every_run_below_its_call_with_what_it_used(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:chief", "Where does it rain?", "--tree")
    _, mark, tree = done.stderr.partition("\n\nThe whole tree")
    assert squeezed(f"\n{mark.strip()}{tree}") == squeezed(WHOLE_TREE)
    assert (done.stdout, done.code) == ("Rain everywhere.\n", 0)
    assert max(len(line) for line in done.stderr.splitlines()) <= 80


def test_a_quiet_run_prints_the_whole_tree_where_it_is_asked_for(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:chief", "Where does it rain?", "--tree", "--quiet")
    assert squeezed(done.stderr) == squeezed(WHOLE_TREE)


def test_the_live_tree_of_a_crew_is_nested(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:chief", "Where does it rain?")
    lines = timeless(done.stderr).splitlines()
    at = lines.index("    ↳ guide#4 · single · scripted:scripted")
    assert lines[at : at + 8] == [
        "    ↳ guide#4 · single · scripted:scripted",
        "      Where to?",
        "      1                                                             10 in, 5 out",
        "        ↳ scout#1 · single · scripted:function",
        "          Bergen",
        "          1 I look at Bergen.                                       10 in, 5 out",
        "            ✓ look Bergen",
        "          2 Bergen: rain.                                           10 in, 5 out",
    ]
    assert "        │ API_ERROR: The model call failed (quota): No more." in lines


def test_several_attempts_are_told_apart(warm: Warm) -> None:
    done = warm("run", f"{AGENTS}:hopeless", "Hello", "--tree", "--quiet")
    assert "\n  attempt 1 · rejected " in done.stderr
    assert "\n  attempt 2 · rejected " in done.stderr
    assert done.stderr.count("\n    1 ✗ output ") == 2
    assert "in all · 1 run, 2 attempts, 2 iterations, 0 calls\n" in done.stderr


@pytest.mark.parametrize("is_later", [False, True])
def test_background_work_is_summed_up_once_with_the_rest_also_if_it_begins_later(is_later: bool) -> None:
    views, used = RunViews(keeps_roots=True), Usage(requests=1, input_tokens=10, output_tokens=5)
    own, behind = Metadata(usage=used, latency_s=0), Metadata(usage=used, latency_s=0, background_usage=used)
    lead = ev.RunSucceeded(path=LEAD, output="", metadata=own if is_later else behind)
    begins, one = started(ONE, "background"), ev.RunSucceeded(path=ONE, output="", metadata=own)
    for event in (started(LEAD), lead, begins, one) if is_later else (started(LEAD), begins, one, lead):
        views.take(told_of(event))
    assert shown(list(outline_lines(views.roots)))[-2:] == [
        " in all · 2 runs, 0 attempts, 0 iterations, 0 calls",
        "    20 tokens in, 10 out · cost unknown",
    ]


def test_sub_agents_that_go_on_before_their_agent_stand_below_it() -> None:
    views, ends = RunViews(keeps_roots=True), Metadata(usage=Usage(requests=1, input_tokens=10), latency_s=0)
    begins = started(ONE), ev.RunResumed(path=LEAD, attempt=1, iteration=2, usage=Usage())
    for event in (*begins, *[ev.RunSucceeded(path=path, output="", metadata=ends) for path in (ONE, LEAD)]):
        views.take(told_of(event))
    lines = list(outline_lines(views.roots))
    assert [(line.indent, line.name) for line in lines][2:4] == [(0, LEAD[-1]), (4, ONE[-1])]
    assert "10 tokens in" in shown(lines)[-1]
