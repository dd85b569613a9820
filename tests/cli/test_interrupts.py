"""Ctrl-C and SIGTERM: the first keeps what was gathered, the second quits at once, whatever blocks.

The tools here never end by themselves, so that whatever ends did not wait for them.
"""

import json
from signal import SIGINT, SIGTERM, Signals

import pytest

from tests.cli.program import AGENTS, Done, Start, Warm, from_nothing, running


def interrupted(start: Start, agent: str, *steps: tuple[str, Signals], options: tuple[str, ...] = ()) -> Done:
    """Run an agent that never ends by itself, and send it a signal at each sign on stderr."""
    with running("run", f"{AGENTS}:{agent}", "Go on", *options, start=start) as program:
        for sign, number in steps:
            program.wait_for(sign)
            program.send(number)
        return program.done()


@pytest.mark.parametrize(("agent", "sign"), [("sleeper", "Good night."), ("waiter", "I wait.")])
def test_the_first_interrupt_prints_what_was_gathered(warm: Warm, agent: str, sign: str) -> None:
    done = interrupted(warm.start, agent, (sign, SIGINT))
    assert (done.code, done.stdout) == (130, "")
    assert "■ stopped · 1 attempt, 1 iteration, 1 call" in done.stderr
    assert "10 tokens in, 5 out · cost unknown" in done.stderr
    assert f"3 messages so far (--json prints them), the model's last words:\n  │ {sign}" in done.stderr
    assert done.error.startswith("error: EXECUTION_CANCELLED: Cancelled while ")
    assert "Ctrl-C" in done.error


def test_the_first_interrupt_ends_with_a_whole_document(warm: Warm) -> None:
    done = interrupted(warm.start, "silent", ("attempt 1", SIGINT), options=("--json",))
    document = json.loads(done.stdout)
    assert (done.code, document["code"]) == (130, "EXECUTION_CANCELLED")
    assert document["usage"]["exact"] is False
    assert document["history"][0]["content"][0]["text"] == "Go on"


def test_a_termination_is_a_first_interrupt() -> None:
    done = interrupted(from_nothing, "waiter", ("I wait.", SIGTERM))
    assert done.code == 143
    assert "SIGTERM" in done.error


@pytest.mark.parametrize(
    ("agent", "first", "second"), [("blocker", "I block.", "stopping"), ("leaver", "I leave.", "EXECUTION_CANCELLED")]
)
def test_the_second_interrupt_quits_whatever_blocks(warm: Warm, agent: str, first: str, second: str) -> None:
    assert interrupted(warm.start, agent, (first, SIGINT), (second, SIGINT)).code == 130
