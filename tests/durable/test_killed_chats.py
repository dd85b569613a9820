"""A process is killed within a turn of a chat that is a durable run, and another one goes on with that turn."""

import pytest

from journeyman import Chat, Runtime, Text
from journeyman.durable import Durable
from journeyman.errors import SessionInUse, StoreError
from journeyman.session import turn_name
from journeyman.testing.scripted import ScriptedModel
from tests.cli.program import Warm
from tests.play import existing, succeeded
from tests.store.mortal import payments
from tests.store.test_killed import started
from tests.support.invariants_history import history_faults
from tests.support.kept import Kept
from tests.support.kept import kept as kept

ID = "user-42"


async def test_a_chat_killed_within_a_turn_goes_on_with_it_in_another_process(warm: Warm, kept: Kept) -> None:
    # K25 of K4
    with started(warm, "turn", kept.place) as program:
        assert (program.line(), program.line()) == ("pay A", "pay B")
        async with Durable(kept.place) as durable:
            with pytest.raises(SessionInUse, match=rf"Session {ID} in .* is open in process {program.pid}"):
                async with Chat.open(payments(), durable, id=ID):
                    pass
    with kept.stored() as store, pytest.raises(StoreError, match=f"the durable turn {turn_name(ID, 1)} has not ended"):
        store.session(ID, agent="payer")
    rest = ScriptedModel(["Ask whether B was paid.", "C is not due."])  # the first two answers are stored
    async with Durable(kept.place) as durable:
        async with Chat.open(payments(), durable, id=ID, runtime=Runtime(model=rest)) as chat:
            assert succeeded(await existing(chat.turn)).output == "C is not due."
            said = [block for message in chat.messages for block in message.content]
            results = [str(block.content) for block in said if block.type == "tool_result"]
            assert results[0] == "paid A"
            assert "whether it took effect is unknown, and it is not repeated" in results[1]
            assert (len(rest.requests), chat.usage.requests) == (2, 4)
            texts = [block.text for block in said if isinstance(block, Text)]
            assert texts == ["Pay A and B.", "Ask whether B was paid.", "And C?", "C is not due."]
            assert list(history_faults(chat.messages)) == []
        assert {info.name: info.leases for info in await durable.list()} == {turn_name(ID, 1): 2, turn_name(ID, 2): 1}
    with kept.stored() as store:
        assert store.snapshot(ID).waiting == ()
        assert store.sessions()[0].usage.requests == 4
        store.delete(ID)
    async with Durable(kept.place) as durable:
        assert await durable.list() == ()
