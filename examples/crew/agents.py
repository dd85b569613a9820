"""The crew: a lead, and the agents that it can send out. All of them read one folder of pages, and change nothing.

What scouts and reviewers hand in is held to every quotation: it has to stand in the line that it is said to be from.
Read `research.py` next. Also for the command line: `journeyman chat examples/crew/agents.py`, or
`journeyman run examples/crew/agents.py "What happens to cancelled calls?" --tree`.
"""

from __future__ import annotations

import os
from pathlib import Path

from offline import play_checker, play_reviewer, play_scout, play_writer
from offline_lead import play_lead
from pages import Finding, Findings, LinkReport, Pages, Review

from journeyman import Agent, Limits, Model, Output, Subagents
from journeyman.testing import FunctionModel, Policy
from journeyman.toolbox import Workspace

CLAUDE = "anthropic:claude-sonnet-5-5"
FOLDER = Path(os.environ.get("CREW_FOLDER") or Path(__file__).resolve().parents[2] / "docs")
"""Where the pages are: this project's own documentation, if nothing else is said."""

LEAD = """You answer questions about the pages in a folder. You do not see the pages; your sub-agents do.
Begin with one response of two calls: a parallel call with one scout for each topic of the question, and, once in a
conversation, a checker in the background. If that is refused, send the checker without background, later.
Then make a chain: the writer gets the question and the findings word for word, the reviewer gets {previous}.
Answer with the reviewed note. When you are told what the checker found, say it in a sentence or two."""

SCOUT = """You look for what pages say about a topic. Search, read the lines that look best, and hand in at most three
findings: a part of one line, word for word, with its file and the number of the line. None is an answer, too."""

WRITER = """You write short notes. Use nothing but the findings that you are given. After each quotation, which stands
in curly quotes, give its place: “like this” (page.md:12)."""

REVIEWER = """You check notes. Read every cited line. Take out what is not there word for word, and hand in the note as
it may be read, with what you took out."""

CHECKER = """You check the links of pages. List the files, look at the links and the headings of every page, and hand in
what leads nowhere: to a file that is not there, or to a heading that is not there. Leave out what leads to the web or
out of the folder."""


def has_key() -> bool:
    """Say whether the crew is Claude."""
    return bool(os.environ.get("ANTHROPIC_API_KEY"))


def notice() -> str:
    """Say who is at work."""
    if has_key():
        return f"At work: {CLAUDE}."
    return (
        "Offline stand-in at work: a small program, not a language model. All the rest is real. "
        "To use Claude, set ANTHROPIC_API_KEY."
    )


def model(policy: Policy) -> Model | str:
    """Return Claude, or, where there is no key, the policy that plays one member of the crew."""
    return CLAUDE if has_key() else FunctionModel(policy, name="stand-in", provider="offline")


def crew(folder: Path) -> Agent:
    """Define a lead with its sub-agents, for the pages in `folder`."""
    pages, workspace = Pages(folder), Workspace(folder)

    def quotations_stand(findings: Findings) -> None:
        """Every quotation stands in the line that it is said to be from."""
        pages.check(findings.findings)

    def citations_stand(review: Review) -> None:
        """Every citation of the note stands."""
        pages.check(Finding.cited_in(review.note))

    def links_are_broken(report: LinkReport) -> None:
        """Every link that is called broken is there, and leads nowhere."""
        pages.check_broken(report.broken)

    scout = Agent(
        name="scout",
        description="Finds what the pages say about one topic, word for word.",
        model=model(play_scout),
        system=SCOUT,
        tools=workspace.tools("grep", "read"),
        output=Output(Findings, name="hand_in"),
        validators=[quotations_stand],
    )
    writer = Agent(name="writer", description="Writes a note from findings.", model=model(play_writer), system=WRITER)
    reviewer = Agent(
        name="reviewer",
        description="Checks the citations of a note.",
        model=model(play_reviewer),
        system=REVIEWER,
        tools=workspace.tools("read"),
        output=Output(Review, name="hand_in"),
        validators=[citations_stand],
    )
    checker = Agent(
        name="checker",
        description="Checks every link of every page. Takes long: let it work in the background.",
        model=model(play_checker),
        system=CHECKER,
        tools=workspace.tools("glob", "grep"),
        output=Output(LinkReport, name="hand_in"),
        validators=[links_are_broken],
        limits=Limits(iterations=60),
    )
    return Agent(
        name="lead",
        description="Answers questions about the pages in a folder.",
        model=model(play_lead),
        system=LEAD,
        tools=[Subagents(scout, writer, reviewer, checker)],
        limits=Limits(tokens=1_000_000, seconds=600),  # for all of them together
    )


lead = crew(FOLDER)
