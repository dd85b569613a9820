"""The table of conversations: an agent, what the model answers, and how the run begins.

Every entry is tried on every adapter; `test_conversations.py` says what must agree. Ids are given, as providers do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from journeyman import Agent, Limits, Output, Reflection, tool
from journeyman.model import Model, Response
from journeyman.models.scripted import call, say
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One entry of the table."""

    name: str
    answers: Sequence[Response]
    agent: Callable[[Model], Agent[Any]]
    needs: frozenset[Feature] = field(default_factory=frozenset[Feature])


def _texts(model: Model) -> Agent:
    return Agent(name="tester", model=model, system="Be careful.", tools=[look, fail, draw], retries=0)


def _picture(model: Model) -> Agent:
    def prompt(input: str) -> Sequence[UserContent]:
        return [Text(input), PIXEL, PAPER, NOTE, Image.from_bytes(b"GIF89a", "image/gif")]

    return Agent(name="tester", model=model, tools=[draw], prompt=prompt, retries=0)


def _reports(model: Model) -> Agent[Report]:
    return Agent(
        name="tester",
        model=model,
        system="Be careful.",
        tools=[look],
        output=Output(Report),
        validators=[positive],
        limits=Limits(attempts=2, iterations=4),
        retries=0,
    )


def _reflected(model: Model) -> Agent[Report]:
    return Agent(
        name="tester",
        model=model,
        output=Output(Report, reflection=Reflection(shown)),
        validators=[positive],
        limits=Limits(attempts=2, iterations=4),
        retries=0,
    )


def _report(id: str, product: str, total: float) -> ToolUse:
    return call("output", product=product, total=total, id=id)


CONVERSATIONS: Final = (
    Conversation(name="a text", answers=[say("Umbrellas, “naïve” 🦜.")], agent=_texts),
    Conversation(
        name="a text and a call", answers=[say("Let me look.", call("look", n=1, id="a")), say("Done.")], agent=_texts
    ),
    Conversation(
        name="parallel calls, one of which fails",
        answers=[
            say(call("look", n=1, id="a"), call("fail", reason="no such row", id="b"), call("look", n=3, id="c")),
            say(call("look", n=4, id="d")),
            say("Done."),
        ],
        agent=_texts,
    ),
    Conversation(
        name="a call of no tool, and one with the wrong arguments",
        answers=[say(call("delete", id="a"), call("look", n="all", id="b")), say("Done.")],
        agent=_texts,
    ),
    Conversation(
        name="thinking",
        answers=[
            say(Thinking("A row will do.\n\nOr two."), "I look.", call("look", n=1, id="a"), call("look", n=2, id="b")),
            say(Thinking("Two did."), call("look", n=3, id="c")),
            say(Thinking("Enough."), "Done."),
        ],
        agent=_texts,
        needs=frozenset({"thinking"}),
    ),
    Conversation(name="a refusal", answers=[say("I will not: “no” is 不.", stop_reason="refusal")], agent=_texts),
    Conversation(name="a filtered answer", answers=[say(stop_reason="refusal")], agent=_texts),
    Conversation(name="an answer that is cut", answers=[say("Umbrel", stop_reason="max_tokens")], agent=_texts),
    Conversation(
        name="a call that is cut",
        answers=[say("I look.", ToolUse("a", "look", malformed='{"n": 1'), stop_reason="max_tokens")],
        agent=_texts,
        needs=frozenset({"malformed"}),
    ),
    Conversation(name="an empty answer", answers=[say()], agent=_texts),
    Conversation(
        name="an empty answer after a call", answers=[say(call("look", n=1, id="a")), say(), say("Done.")], agent=_texts
    ),
    Conversation(
        name="malformed arguments",
        answers=[
            say(ToolUse("a", "look", malformed='{"n": 1'), call("look", n=2, id="b")),
            say(ToolUse("c", "look", malformed="[1]")),
            say("Done."),
        ],
        agent=_texts,
        needs=frozenset({"malformed"}),
    ),
    Conversation(
        name="ids that are repeated",
        answers=[say(call("look", n=1, id="a")), say(call("look", n=2, id="a")), say("Done.")],
        agent=_texts,
    ),
    Conversation(
        name="ids that are repeated beside thinking",
        answers=[
            say(Thinking("Row 1."), call("look", n=1, id="a")),
            say(Thinking("Row 2."), "Once more.", call("look", n=3, id="a"), call("look", n=4, id="b")),
            say(Thinking("Enough."), "Done."),
        ],
        agent=_texts,
        needs=frozenset({"thinking"}),
    ),
    Conversation(
        name="pictures and documents from the user, and in a result",
        answers=[
            say(call("draw", title="sales", id="a"), call("draw", title="costs", id="b")),
            say(call("draw", title="May", id="c")),
            say("A parrot."),
        ],
        agent=_picture,
    ),
    Conversation(
        name="a typed output",
        answers=[say(call("look", n=1, id="a")), say("Here it is.", _report("b", "umbrella", 12.5))],
        agent=_reports,
    ),
    Conversation(
        name="an output that is rejected",
        answers=[say(_report("a", "umbrella", -1)), say(_report("b", "umbrella", 12))],
        agent=_reports,
    ),
    Conversation(
        name="an output that does not fit, and a text instead of one",
        answers=[
            say(call("output", product="umbrella", id="a")),
            say("I have handed it in."),
            say(_report("b", "umbrella", 12)),
        ],
        agent=_reports,
    ),
    Conversation(
        name="reflection and submit",
        answers=[
            say(_report("a", "umbrela", 12)),
            say("A slip.", _report("b", "umbrella", 12)),
            say(call("submit", id="c")),
        ],
        agent=_reflected,
    ),
    Conversation(
        name="an output that is rejected once submitted",
        answers=[
            say(_report("a", "umbrella", -1)),
            say(call("submit", id="b")),
            say(_report("c", "umbrella", 1), call("submit", id="d")),
        ],
        agent=_reflected,
    ),
    Conversation(
        name="no output in any attempt",
        answers=[say(_report("a", "umbrella", -1)), say(_report("b", "umbrella", -2))],
        agent=_reports,
    ),
    Conversation(
        name="usage with cached tokens and reasoning",
        answers=[
            say(
                call("look", n=1, id="a"),
                usage=Usage(
                    requests=1,
                    input_tokens=7,
                    output_tokens=9,
                    cache_read_tokens=0,
                    cache_write_tokens=100,
                    reasoning_tokens=3,
                ),
            ),
            say(
                "Done.",
                usage=Usage(
                    requests=1,
                    input_tokens=3,
                    output_tokens=4,
                    cache_read_tokens=100,
                    cache_write_tokens=0,
                    reasoning_tokens=2,
                ),
            ),
        ],
        agent=_texts,
    ),
    Conversation(
        name="usage without any reasoning",
        answers=[
            say(
                "Done.",
                usage=Usage(requests=1, input_tokens=3, output_tokens=4, cache_read_tokens=0, reasoning_tokens=0),
            )
        ],
        agent=_texts,
        needs=frozenset({"no reasoning"}),
    ),
    Conversation(
        name="usage without zeros",
        answers=[
            say(
                "Done.",
                usage=Usage(requests=1, input_tokens=3, output_tokens=4, cache_read_tokens=100, cache_write_tokens=7),
            )
        ],
        agent=_texts,
    ),
)
