"""Messages: one thing is told as one, and what is shown of a text is what everybody can see."""

import pytest

from journeyman import Agent, Limits, Rejected, run
from journeyman.endings import AttemptsContext, BudgetContext, IterationsContext, TruncatedContext
from journeyman.errors import count, quoted, shortage, visible
from journeyman.testing.scripted import ScriptedModel, call
from tests.play import make_tool

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
        (str(TruncatedContext(stop_reason="max_tokens", max_tokens=1)), "at 1 token."),
        (str(SPENT), "the next call needs about 1 call, 1 is allowed, 0 are used"),
        (shortage("tokens", needed=2_100, limit=250, used=1), "2,100 tokens, 250 are allowed, 1 is used"),
    ],
)
def test_one_is_told_as_one(told: str, text: str) -> None:
    assert text in told


async def test_a_tool_that_failed_once_failed_one_time() -> None:
    model = ScriptedModel([call("fail"), call("fail"), "Done."])
    agent = Agent(name="n", model=model, tools=[make_tool("fail", Rejected("No."))], limits=Limits(tool_failures=1))
    result = await run(agent, "Go.")
    assert "fail failed 1 time in a row." in str(result.history[-2].content[0])


HIDDEN = {
    "an escape sequence": ("\x1b[2K", "\\x1b[2K", "\\u001b[2K"),
    "delete": ("\x7f", "\\x7f", "\\u007f"),
    "right to left": ("\u202e", "\\u202e", "\\u202e"),
    "an isolate": ("\u2066", "\\u2066", "\\u2066"),
    "no width": ("\u200b", "\\u200b", "\\u200b"),
    "a soft hyphen": ("\u00ad", "\\xad", "\\u00ad"),
    "another space": ("\u00a0", "\\xa0", "\\u00a0"),
    "a tag": ("\U000e0041", "\\U000e0041", "\\udb40\\udc41"),
    "a filler": ("\u3164", "\\u3164", "\\u3164"),
    "a variation": ("\ufe0f", "\\ufe0f", "\\ufe0f"),
    "half a pair": ("\ud83d", "\\ud83d", "\\ud83d"),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_cannot_be_seen_is_written_out(name: str) -> None:
    text, as_text, as_json = HIDDEN[name]
    assert quoted(f"a{text}b") == f"'a{as_text}b'"
    assert visible([f"a{text}b"], indent=None) == f'["a{as_json}b"]'


@pytest.mark.parametrize("text", ["世界", "grüß", "привет", "😀 né", "שלום", "مرحبا", "हिन्दी", "→ “x”"])
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert quoted(text) == f"'{text}'"
    assert visible({text: text}, indent=None) == f'{{"{text}": "{text}"}}'
