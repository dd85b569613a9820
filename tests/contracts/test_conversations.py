"""One table of conversations, every adapter: the same answers give the same history, events, usage and result.

What the model says is the same everywhere; so nothing that the user sees may depend on who carried it, nor on whether
anybody watched. Each adapter talks to a strict server, which refuses what the provider would refuse.
"""

from dataclasses import replace

import pytest

from journeyman import Event, run
from tests.contracts.carriers import CARRIERS, SCRIPTED, Carrier
from tests.contracts.conversations import CONVERSATIONS, Conversation
from tests.contracts.outcome import Outcome, outcome
from tests.play import Recorder, check_balance
from tests.support.shares import thinned


async def carried(carrier: Carrier, conversation: Conversation, *, watched: bool) -> Outcome:
    """Let an adapter carry a conversation."""
    recorder = Recorder()
    async with carrier.play(conversation.answers) as played:
        agent = conversation.agent(model=played.model)
        result = await run(agent, "What sold best in May?", on_event=recorder if watched else None)
    if watched:
        check_balance(recorder.events)
    return outcome(result, list[Event](recorder.events))


ROWS = [(carrier, conversation) for carrier in CARRIERS for conversation in CONVERSATIONS]


# Five does not divide the number of conversations, 27: each of them is tried, and each carrier.
@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("carrier", "conversation"),
    [pytest.param(*row, id=f"{row[0].name}-{row[1].name}") for row in thinned(ROWS, one_in=5)],
)
async def test_the_same_answers_give_the_same_run(carrier: Carrier, conversation: Conversation) -> None:
    if conversation.needs is not None and (missing := carrier.lacks.get(conversation.needs)):
        pytest.skip(f"{carrier.name}: {missing}")
    expected = await carried(SCRIPTED, conversation, watched=True)
    expected = replace(expected, usage=[usage and carrier.tells(usage) for usage in expected.usage])
    assert await carried(carrier, conversation, watched=True) == expected
    unwatched = replace(expected, events=[], usage=expected.usage[-1:])
    assert await carried(carrier, conversation, watched=False) == unwatched
