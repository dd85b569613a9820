"""Agents, and chats with them: a talker that answers with text, and a reporter that hands in a small report."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from journeyman import Agent, Callbacks, Chat, Message, Model, Output, Runtime
from journeyman.events import Listener
from journeyman.testing.scripted import call
from journeyman.types import ToolUse
from tests.play.recorder import transcript
from tests.play.tools import look


class Report(BaseModel):
    total: int


def report(total: int = 3, id: str = "") -> ToolUse:
    """Return the call that proposes a report."""
    return call("output", total=total, id=id)


def submit(id: str = "") -> ToolUse:
    return call("submit", id=id)


def small(report: Report) -> None:
    if report.total > 5:
        raise ValueError(f"{report.total} is too much")


def reporter(model: Model | str, **options: Any) -> Agent[Report]:
    """Return an agent that may look around and hands in a small report, or one that differs from it in `options`."""
    ready: dict[str, Any] = {"tools": [look], "output": Output(Report), "validators": [small]}
    return Agent(name="reporter", model=model, **{**ready, **options})


def talker(model: Model | str, **options: Any) -> Agent[str]:
    """Return an agent that may look around and answers with text, or one that differs from it in `options`."""
    ready: dict[str, Any] = {"tools": [look], **options}
    return Agent(name="talker", model=model, **ready)


def chatting(
    model: Model | str,
    *,
    runtime: Runtime | None = None,
    history: Sequence[Message] = (),
    callbacks: Callbacks | None = None,
    on_event: Listener | None = None,
    **fields: Any,
) -> Chat[Any, Any]:
    """Return a chat with an agent called `tester` that plays this model."""
    agent = Agent(name="tester", model=model, **fields)
    return Chat(agent, runtime=runtime, history=history, callbacks=callbacks, on_event=on_event)


def script_of(chat: Chat[Any, Any]) -> list[tuple[str, ...]]:
    """Return the conversation in few words."""
    return transcript(chat.messages)
