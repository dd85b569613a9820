"""Typed output: the agent hands in a value of your type, and takes one. Types that are no object work as well.

With ANTHROPIC_API_KEY set, Claude reads the messages; without, a script.
"""

import os
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field

from journeyman import Agent, Model, Output, run_sync
from journeyman.testing import ScriptedModel, call


@dataclass
class Mail:
    sender: str
    text: str


class Ticket(BaseModel):
    kind: Literal["bug", "question", "praise"]
    urgency: int = Field(ge=1, le=5, description="5 is most urgent.")
    summary: str


def model(*outputs: dict[str, object]) -> Model | str:
    if os.environ.get("ANTHROPIC_API_KEY"):
        return "anthropic:claude-sonnet-5-5"
    return ScriptedModel([call("output", arguments) for arguments in outputs])


sorter = Agent(
    name="sorter",
    model=model(
        {"kind": "bug", "urgency": 9, "summary": "It crashes."},  # does not fit: the model is told, and tries again
        {"kind": "bug", "urgency": 5, "summary": "The export crashes."},
    ),
    input=Mail,
    prompt=lambda mail: f"Sort this mail from {mail.sender}:\n\n{mail.text}",
    output=Output(Ticket),
)

words = Agent(name="words", model=model({"value": ["export", "crash"]}), output=Output(list[str]))

if __name__ == "__main__":
    result = run_sync(sorter, Mail("Ada", "The export crashes, and my deadline is today!"))
    ticket = result.unwrap()  # a Ticket, to the type checker, too
    print(f"{ticket.kind}, urgency {ticket.urgency}: {ticket.summary}")
    for attempt in result.metadata.attempts:
        print(f"attempt {attempt.number}: {attempt.report.feedback or 'passed' if attempt.report else 'not validated'}")
    print(run_sync(words, "Give the keywords of: The export crashes.").unwrap())
