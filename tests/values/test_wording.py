"""Messages with numbers in them: one thing is told as one."""

from __future__ import annotations

import pytest

from journeyman import Agent, Limits, Rejected, run, tool
from journeyman.endings import AttemptsContext, BudgetContext, IterationsContext, TruncatedContext
from journeyman.errors import count, shortage
from journeyman.models.scripted import Scripted, call

REJECTED = AttemptsContext(attempts=1, max_attempts=1, last_error="No.")
SPENT = BudgetContext(policy="calls", limit=1, used=0, scope="run", needed=1)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (count(1, "call"), "1 call"),
        (count(0, "call"), "0 calls"),
        (count(1_204, "call"), "1,204 calls"),
        (str(REJECTED), "The only attempt was rejected, with: No."),
        (
            str(IterationsContext(iteration_count=1, max_iterations=1, has_draft=False)),
            "used its only iteration without",
        ),
        (str(TruncatedContext(stop_reason="max_tokens", max_tokens=1)), "at 1 token;"),
        (str(TruncatedContext(stop_reason="max_tokens", max_tokens=None)), "at an unknown length;"),
        (str(SPENT), "the next call needs about 1 call, 1 is allowed, 0 are used"),
        (shortage("tokens", needed=2_100, limit=250, used=1), "2,100 tokens, 250 are allowed, 1 is used"),
    ],
)
def test_one_is_told_as_one(told: str, text: str) -> None:
    assert text in told


async def test_a_tool_that_failed_once_failed_one_time() -> None:
    @tool
    async def fail() -> str:
        raise Rejected("No.")

    model = Scripted([call("fail"), call("fail"), "Done."])
    agent = Agent(name="n", model=model, tools=[fail], limits=Limits(tool_failures=1))
    result = await run(agent, "Go.")
    assert "fail failed 1 time in a row." in result.history[-2].content[0].text  # pyright: ignore[reportAttributeAccessIssue] - a result
