"""The table of conversations: an agent, what the model answers, and how the run begins.

Every entry is tried on every adapter; `test_conversations.py` says what must agree. Ids are given, as providers do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pydantic import BaseModel

from journeyman import Agent, Limits, Output, Reflection, tool
from journeyman.model import Response
from journeyman.testing.scripted import call, say
from journeyman.types import Base64, Document, Image, Text, Thinking, ToolResult, ToolUse, Usage, UserContent
from tests.contracts.carriers import Feature

PIXEL: Final = Image(Base64("iVBORw0KGgo=", "image/png"))
PAPER: Final = Document(Base64("JVBERi0=", "application/pdf"), "report.pdf")
NOTE: Final = Document(Base64("MTIgdW1icmVsbGFz", "text/plain"), "note.txt")


class Report(BaseModel):
    """What sold best."""

    product: str
    total: float


@tool(parallel=True)
async def look(n: int) -> str:
    """Look at one row.

    Args:
        n: the number of the row.
    """
    return f"row {n}: ümlaut, 漢字, 🦜"


@tool
async def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


@tool
async def draw(title: str) -> ToolResult:
    """Draw a chart."""
    return ToolResult((Text(f"A chart of {title}."), PIXEL))


def positive(report: Report) -> None:
    """The total is positive."""
    if report.total <= 0:
        raise ValueError(f"the total is {report.total}")


def shown(report: Report) -> str:
    return f"{report.product}: {report.total:,.2f}"


@dataclass(frozen=True, slots=True)
class Conversation:
    """One entry of the table."""

    name: str
    agent: Callable[..., Agent[Any]]
    answers: Sequence[Response]
    needs: Feature | None = None


_tester: Final = partial(Agent[Any], name="tester", limits=Limits(request_retries=0))
_texts: Final = partial(_tester, system="Be careful.", tools=[look, fail, draw])


def _prompt(input: str) -> Sequence[UserContent]:
    return [Text(input), PIXEL, PAPER, NOTE, Image(Base64("R0lGODlh", "image/gif"))]


_picture: Final = partial(_tester, tools=[draw], prompt=_prompt)
_checked: Final = partial(_tester, validators=[positive], limits=Limits(attempts=2, iterations=4, request_retries=0))
_reports: Final = partial(_checked, system="Be careful.", tools=[look], output=Output(Report))
_reflected: Final = partial(_checked, output=Output(Report, reflection=Reflection(shown)))


def _look(n: int, id: str) -> ToolUse:
    return call("look", n=n, id=id)


def _draw(title: str, id: str) -> ToolUse:
    return call("draw", title=title, id=id)


def _report(id: str, product: str, total: float) -> ToolUse:
    return call("output", product=product, total=total, id=id)


def _cut(id: str, written: str) -> ToolUse:
    return ToolUse(id, "look", malformed=written)


def _used(input: int, output: int, *, read: int | None, written: int | None, reasoned: int | None) -> Usage:
    cached: dict[str, Any] = {"cache_read_tokens": read, "cache_write_tokens": written}
    return Usage(requests=1, input_tokens=input, output_tokens=output, reasoning_tokens=reasoned, **cached)


CONVERSATIONS: Final = (
    Conversation("a text", _texts, [say("Umbrellas, “naïve” 🦜.")]),
    Conversation("a text and a call", _texts, [say("Let me look.", _look(1, "a")), say("Done.")]),
    Conversation(
        "parallel calls, one of which fails",
        _texts,
        [
            say(_look(1, "a"), call("fail", reason="no such row", id="b"), _look(3, "c")),
            say(_look(4, "d")),
            say("Done."),
        ],
    ),
    Conversation(
        "a call of no tool, and one with the wrong arguments",
        _texts,
        [say(call("delete", id="a"), call("look", n="all", id="b")), say("Done.")],
    ),
    Conversation(
        "thinking",
        _texts,
        [
            say(Thinking("A row will do.\n\nOr two."), "I look.", _look(1, "a"), _look(2, "b")),
            say(Thinking("Two did."), _look(3, "c")),
            say(Thinking("Enough."), "Done."),
        ],
        needs="thinking",
    ),
    Conversation("a refusal", _texts, [say("I will not: “no” is 不.", stop_reason="refusal")]),
    Conversation("a filtered answer", _texts, [say(stop_reason="refusal")]),
    Conversation("an answer that is cut", _texts, [say("Umbrel", stop_reason="max_tokens")]),
    Conversation(
        "a call that is cut",
        _texts,
        [say("I look.", _cut("a", '{"n": 1'), stop_reason="max_tokens")],
        needs="malformed",
    ),
    Conversation("an empty answer", _texts, [say()]),
    Conversation("a blank answer", _texts, [say(_look(1, "a")), say(" \n")]),
    Conversation("blanks and a call", _texts, [say("\n\n", _look(1, "a")), say("Done.")]),
    Conversation(
        "a blank answer, a reminder, and then the output",
        partial(_reports, output=Output(Report, reminder=True)),
        [say(" "), say("\n"), say(_report("b", "umbrella", 12))],
    ),
    Conversation("an empty answer after a call", _texts, [say(_look(1, "a")), say(), say("Done.")]),
    Conversation(
        "malformed arguments",
        _texts,
        [say(_cut("a", '{"n": 1'), _look(2, "b")), say(_cut("c", "[1]")), say("Done.")],
        needs="malformed",
    ),
    Conversation("ids that are repeated", _texts, [say(_look(1, "a")), say(_look(2, "a")), say("Done.")]),
    Conversation(
        "ids that are repeated beside thinking",
        _texts,
        [
            say(Thinking("Row 1."), _look(1, "a")),
            say(Thinking("Row 2."), "Once more.", _look(3, "a"), _look(4, "b")),
            say(Thinking("Enough."), "Done."),
        ],
        needs="thinking",
    ),
    Conversation(
        "pictures and documents from the user, and in a result",
        _picture,
        [say(_draw("sales", "a"), _draw("costs", "b")), say(_draw("May", "c")), say("A parrot.")],
    ),
    Conversation("a typed output", _reports, [say(_look(1, "a")), say("Here it is.", _report("b", "umbrella", 12.5))]),
    Conversation(
        "an output that is rejected", _reports, [say(_report("a", "umbrella", -1)), say(_report("b", "umbrella", 12))]
    ),
    Conversation(
        "an output that does not fit, and a text instead of one",
        _reports,
        [say(call("output", product="umbrella", id="a")), say("I handed it in."), say(_report("b", "umbrella", 12))],
    ),
    Conversation(
        "reflection and submit",
        _reflected,
        [say(_report("a", "umbrela", 12)), say("A slip.", _report("b", "umbrella", 12)), say(call("submit", id="c"))],
    ),
    Conversation(
        "an output that is rejected once submitted",
        _reflected,
        [
            say(_report("a", "umbrella", -1)),
            say(call("submit", id="b")),
            say(_report("c", "umbrella", 1), call("submit", id="d")),
        ],
    ),
    Conversation(
        "no output in any attempt", _reports, [say(_report("a", "umbrella", -1)), say(_report("b", "umbrella", -2))]
    ),
    Conversation(
        "usage with cached tokens and reasoning",
        _texts,
        [
            say(_look(1, "a"), usage=_used(7, 9, read=0, written=100, reasoned=3)),
            say("Done.", usage=_used(3, 4, read=100, written=0, reasoned=2)),
        ],
    ),
    Conversation(
        "usage without any reasoning",
        _texts,
        [say("Done.", usage=_used(3, 4, read=0, written=None, reasoned=0))],
        needs="no reasoning",
    ),
    Conversation("usage without zeros", _texts, [say("Done.", usage=_used(3, 4, read=100, written=7, reasoned=None))]),
)
