"""One iteration: one model call, and the calls that its response asks for.

The two verbs at the heart of everything: `ask` produces one message, `iterate` produces one message and runs its
calls. A run repeats `iterate` until there is an output; a chat, until there is nothing left to do. Imports `asking`,
`calls`, `conversation` and the parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from journeyman.endings import Ending
from journeyman.events.run import IterationStarted, ModelResponded
from journeyman.loop.asking import ask
from journeyman.loop.calls import Call, run_calls
from journeyman.loop.record import Conversation
from journeyman.loop.watch import Watch
from journeyman.model import Response
from journeyman.types import Message, ToolResult


@dataclass(slots=True)
class Iterated:
    """What one iteration brought."""

    response: Response
    said: Message | None
    """The response as it stands in the history; None if it was empty."""
    calls: tuple[Call, ...] = ()
    """In call order; empty unless the model stopped for them."""


async def iterate(talk: Conversation) -> Iterated | Ending:
    """Make one model call, run the calls it asks for, and stage their results."""
    await _begin(talk)
    response = await ask(talk)
    if isinstance(response, Ending):
        return response
    said = talk.history.respond(response.content)
    talk.measured(response.usage)
    if talk.keep is not None:
        talk.keep()
    if talk.watch is not None:
        await _tell(talk, talk.watch, response, said)
    uses = talk.history.calls
    if not uses:
        return Iterated(response, said)
    if response.stop_reason != "tool_use":
        _answer_unrun(talk, response)
        return Iterated(response, said)
    talk.doing = "running tools"
    return Iterated(response, said, await run_calls(talk, uses))


async def _begin(talk: Conversation) -> None:
    """Put what is staged into the history, after it what the user said meanwhile, and count the iteration."""
    if talk.inbox is not None and talk.inbox.has_news and talk.history.may_say:
        talk.say(*talk.inbox.take_steering())
    committed = talk.history.commit()
    if talk.keep is not None:
        talk.keep()
    if talk.watch is not None:
        await talk.committed(committed)
    if talk.scope.is_due():
        await talk.scope.checkpoint()
    talk.iteration += 1
    talk.iterations += 1
    if talk.watch is not None:
        await talk.watch.tell(IterationStarted(path=talk.path, attempt=talk.attempt, iteration=talk.iteration))
        await talk.scope.checkpoint()


async def _tell(talk: Conversation, watch: Watch, response: Response, said: Message | None) -> None:
    await talk.committed(said)
    await watch.tell(
        ModelResponded(
            path=talk.path,
            attempt=talk.attempt,
            iteration=talk.iteration,
            stop_reason=response.stop_reason,
            text=said.text if said is not None else "",
            usage=talk.call_usage,
            model=response.model or talk.model.name,
        )
    )


def _answer_unrun(talk: Conversation, response: Response) -> None:
    """Answer the calls of a response that did not stop for them: they may be cut short, so they must not run."""
    text = f"Error: not run, because the response stopped with {response.stop_detail or response.stop_reason!r}."
    for call in talk.history.unanswered:
        talk.history.answer(ToolResult(text, is_error=True, tool_use_id=call.id))
