"""One table of conversations, every adapter: the same answers give the same history, events, usage and result.

What the model says is the same everywhere; so nothing that the user sees may depend on who carried it, nor on whether
anybody watched. Each adapter talks to a strict server, which refuses what the provider would refuse.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from journeyman import run
from journeyman.events import Event
from tests.contracts.carriers import CARRIERS, SCRIPTED, Carrier
from tests.contracts.conversations import CONVERSATIONS, Conversation
from tests.contracts.outcome import Outcome, outcome
from tests.support.recorder import Recorder, check_balance


async def carried(carrier: Carrier, conversation: Conversation, *, watched: bool) -> Outcome:
    """Let an adapter carry a conversation."""
    recorder = Recorder()
    async with carrier.play(conversation.answers) as played:
        agent = conversation.agent(played.model)
        result = await run(agent, "What sold best in May?", on_event=recorder if watched else None)
    if watched:
        check_balance(recorder.events)
    return outcome(result, list[Event](recorder.events))


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation.name)
@pytest.mark.parametrize("carrier", CARRIERS, ids=lambda carrier: carrier.name)
async def test_the_same_answers_give_the_same_run(carrier: Carrier, conversation: Conversation) -> None:
    if missing := conversation.needs & carrier.lacks.keys():
        pytest.skip(f"{carrier.name}: {'; '.join(carrier.lacks[feature] for feature in sorted(missing))}")
    expected = await carried(SCRIPTED, conversation, watched=True)
    assert await carried(carrier, conversation, watched=True) == expected
    unwatched = replace(expected, events=[], usage=expected.usage[-1:])
    assert await carried(carrier, conversation, watched=False) == unwatched
