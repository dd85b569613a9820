"""Compaction: a conversation longer than its window. What is sent is made smaller; the history keeps everything."""

from journeyman import Agent, Event, Limits, ModelSettings, run_sync, tool
from journeyman.compaction import ClearToolResults, Compaction, Summarise
from journeyman.events import ContextCompacted
from journeyman.model import Request
from journeyman.testing import Answer, FunctionModel, call

PAGES = 75
visited: list[int] = []


@tool(effect="pure")
def page(number: int) -> str:
    """Read a page of the log book."""
    visited.append(number)
    return f"Page {number}: " + "calm sea, no ships. " * 40


def sailor(request: Request) -> Answer:
    number = len(visited) + 1
    return call("page", number=number) if number <= PAGES else "Calm seas on all pages, and no ship."


def secretary(request: Request) -> Answer:
    return f"Pages 1 to {len(visited)} were read. No ships so far."


reader = Agent(
    name="reader",
    model=FunctionModel(sailor),
    tools=[page],
    limits=Limits(iterations=PAGES + 1),
    settings=ModelSettings(max_tokens=500),
    compaction=Compaction(
        [ClearToolResults(keep=3), Summarise(FunctionModel(secretary), keep_tokens=1_000)], window_tokens=8_000
    ),
)


def show(event: Event) -> None:
    if isinstance(event, ContextCompacted):
        steps = " and ".join(step.strategy for step in event.steps)
        print(f"page {len(visited)}: {event.before_tokens} tokens to {event.after_tokens}, {steps}")


def main() -> None:
    result = run_sync(reader, "Which ships were seen?", on_event=show)
    print(result.unwrap())
    print(f"{len(result.history)} messages in the history")


if __name__ == "__main__":
    main()
