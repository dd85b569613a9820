"""The analyst: an agent that answers questions about a table with numbers that add up.

It explores the table with SQL, drafts a typed report, sees the draft as its readers would, and hands it in; every
number is then computed again from the data. Run it: `journeyman demo`, or with a table of yours
`journeyman demo --data FILE.csv`, or `journeyman run examples/analyst/agent.py:agent "your question"`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from journeyman import Agent, Limits, Model, Output, tool

from .offline import offline_model
from .report import Report, checks, preview
from .tables import Description, Rows, Table

CLAUDE = "anthropic:claude-sonnet-5-5"


def analyst(table: Table, model: Model | str) -> Agent[Report]:
    """Define an analyst of one table."""

    @tool(parallel=True, effect="pure")
    def describe_table() -> Description:
        """Describe the table: its name, its rows, and what is in each column."""
        return table.describe()

    @tool(parallel=True, effect="pure")
    def query(sql: str) -> Rows:
        """Run one SELECT (SQLite) on the table. It can only read, and gives 200 rows at most.

        Args:
            sql: A single SELECT; names in double quotes, texts in single quotes.
        """
        return table.query(sql)

    return Agent(
        name="analyst",
        description="Answers questions about a table with numbers that add up.",
        model=model,
        system="You are a careful analyst. Look at the table, query before you claim, then report what answers the "
        "question. Look at the preview of your report as its reader would; submit it when nothing is missing.",
        tools=[describe_table, query],
        output=Output(Report, name="report", description="Propose the report and see its preview.", reflection=preview),
        validators=checks(table),
        limits=Limits(attempts=3, iterations=15, seconds=300),
    )


@dataclass(frozen=True, slots=True)
class Demo:
    """What `journeyman demo` runs."""

    agent: Agent[Report]
    question: str
    notice: str
    """The first line to show: who is at work."""


def demo_agent(data: Path | None = None) -> Demo:
    """Make the demo: on the table of the CSV file `data`, or on the bundled reports of wildlife strikes.

    Raises:
        DataError: the file cannot be used; the message is one line.
    """
    if data is None:
        question = (
            "In which phase of flight do most wildlife strikes happen? And over all strikes, what is the average speed"
            " in knots, and the average total cost?"
        )
        return Demo(analyst(birdstrikes, _model()), question, _notice())
    table = Table.from_csv(data)
    return Demo(analyst(table, _model()), f"What stands out in the table {table.name}?", _notice())


def _has_key() -> bool:
    return bool(os.environ.get("ANTHROPIC_API_KEY"))


def _model() -> Model | str:
    return CLAUDE if _has_key() else offline_model()


def _notice() -> str:
    if _has_key():
        return f"At work: {CLAUDE}."
    return (
        "Offline stand-in at work: a small program, not a language model. All the rest is real. "
        "To use Claude, set ANTHROPIC_API_KEY."
    )


with as_file(files(__name__.rpartition(".")[0]) / "data" / "birdstrikes.csv") as file:  # the package may be in a zip
    birdstrikes = Table.from_csv(file)
agent = analyst(birdstrikes, _model())
