"""A process that is killed, at any point: what it had said, queued and finished is there for the next one."""

import os
from collections.abc import Generator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO

import pytest

from journeyman import Chat, Runtime, Text
from journeyman.durable import Durable
from journeyman.errors import SessionInUse, StoreError
from journeyman.session import turn_name
from journeyman.testing.scripted import ScriptedModel
from tests.cli.program import Warm
from tests.play import existing, succeeded, transcript
from tests.store.mortal import echo, letters, payments
from tests.support.invariants_history import history_faults
from tests.support.kept import Kept

ID = "user-42"
ROOT = Path(__file__).parent.parent.parent
ONCE = "Error: interrupted before it finished. Whether it took effect is unknown: find out before calling again."
PURE = "Error: interrupted before it finished. It changes nothing, so it may be called again."


class Program:
    """A program under way, and the lines that it prints."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid = pid
        self._stdout = stdout

    def line(self) -> str:
        return self._stdout.readline().decode().strip()


@contextmanager
def started(warm: Warm, what: str, *given: str | Path) -> Generator[Program]:
    """Run a program, and kill it at the end of the block."""
    theirs, ours = os.pipe()
    with open(theirs, "rb") as printed, open(os.devnull, "rb") as nothing:  # noqa: PTH123
        streams = (nothing.fileno(), ours, 2)
        process = warm.start([what, *given], streams, ROOT, os.environ, program=ROOT / "tests" / "store" / "mortal.py")
        os.close(ours)
        with process:
            try:
                yield Program(process.pid, printed)
            finally:
                with suppress(ProcessLookupError):  # it has killed itself in this moment
                    process.kill()


@contextmanager
def sending(warm: Warm, place: str) -> Generator[tuple[str, int]]:
    """Start a chat that hangs in its second call, and kill it at the end. Gives the ids of session and process."""
    with started(warm, "chat", place) as program:
        id = program.line()
        assert (program.line(), program.line()) == ("read", "send")
        yield id, program.pid


async def test_a_chat_killed_in_mid_call_goes_on_with_everything_that_had_happened(warm: Warm, kept: Kept) -> None:
    with sending(warm, kept.place) as (id, _):
        pass
    async with Chat.open(letters(), kept.place, id=id) as chat:
        assert transcript(chat.messages) == [
            ("user", "Send the letter."),
            ("assistant", "read({})#r", "send({})#s", "look({})#l"),
            ("user", "#r: the letter", f"#s! {ONCE}", f"#l! {PURE}"),
        ]
        assert (chat.state.follow_ups, chat.usage.requests, chat.usage.exact) == (("And then?",), 1, True)
        assert list(history_faults(chat.messages)) == []
    async with Chat.open(
        letters(), kept.place, id=id, runtime=Runtime(model=ScriptedModel(["I see.", "Nothing more."]))
    ) as chat:
        assert (await chat.continue_()).unwrap() == "Nothing more."
        said = [("assistant", "I see."), ("user", "And then?"), ("assistant", "Nothing more.")]
        assert (transcript(chat.messages)[3:], chat.usage.requests) == (said, 3)


async def test_a_chat_killed_within_a_turn_goes_on_with_it_in_another_process(warm: Warm, kept: Kept) -> None:
    # K25 of K4
    with started(warm, "turn", kept.place) as program:
        assert (program.line(), program.line()) == ("pay A", "pay B")
        async with Durable(kept.place) as durable:
            with pytest.raises(SessionInUse, match=rf"Session {ID} in .* is open in process {program.pid}"):
                async with Chat.open(payments(), durable, id=ID):
                    pass
    with (
        kept.stored() as store,
        pytest.raises(StoreError, match=f"the durable turn {turn_name('user-42', 1)} has not ended"),
    ):
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


async def test_a_session_is_locked_while_its_process_lives_and_free_when_it_died(warm: Warm, kept: Kept) -> None:
    with sending(warm, kept.place) as (id, pid), kept.stored() as store:
        with pytest.raises(SessionInUse, match=f"{id} in .* is open in process {pid}") as e:
            store.session(id, agent="clerk")
        assert e.value.pid == pid
        assert [info.id for info in store.sessions()] == [id]
        assert [message.role for message in store.messages(id)] == ["user", "assistant", "user"]
    with kept.stored() as store:
        store.session(id, agent="clerk").close()


async def test_of_processes_that_begin_the_same_session_at_once_one_gets_it(warm: Warm, kept: Kept) -> None:
    program = ROOT / "tests" / "store" / "mortal.py"
    (theirs, ours), (held, gate) = os.pipe(), os.pipe()
    with ExitStack() as stack:
        printed = stack.enter_context(open(theirs, "rb"))  # noqa: PTH123
        for _ in range(3):
            streams = (held, ours, 2)
            stack.enter_context(warm.start(["claim", kept.place], streams, ROOT, os.environ, program=program))
        os.close(ours)
        os.close(held)
        told = [Program(0, printed).line() for _ in range(3)]
        os.close(gate)  # whoever has the session has held it until now
    assert sorted(told) == ["in use", "in use", "mine"]


@pytest.mark.share(one_in=12)
@pytest.mark.parametrize("n", range(1, 91))
@pytest.mark.parametrize(
    ("kept", "how"), [(each, how) for each in ("file", "postgres") for how in ("chat", "turns")], indirect=["kept"]
)
async def test_what_was_answered_or_queued_is_never_lost_or_doubled_at_whatever_statement_a_chat_dies(
    warm: Warm, kept: Kept, how: str, n: int
) -> None:
    with started(warm, "talk", kept.place, how, str(n)) as program:
        # A session of a database writes with single statements of which nobody hears: there it dies between two lines.
        told = [*islice(iter(program.line, ""), n)]
    assert told == ["One.", "Two.", "Three.", "end"][: len(told)]
    async with AsyncExitStack() as stack:
        place = kept.place if how == "chat" else await stack.enter_async_context(Durable(kept.place))
        chat = await stack.enter_async_context(Chat.open(echo(), place, id=ID, create=True))
        if chat.turn is not None:
            await chat.turn
        (await chat.prompt("Now?")).unwrap()
        users = [message for message in chat.messages if message.role == "user"]
        said = [block.text for message in users for block in message.content if isinstance(block, Text)]
        there = [*said, *chat.state.follow_ups]
        assert (len({*there}), {*told} - {*there, "end"}) == (len(there), set())
        assert list(history_faults(chat.messages)) == []
        answered = [message for message in chat.messages if message.role == "assistant"]
        assert how == "chat" or chat.usage.requests == len(answered)
    with kept.stored() as store:
        assert store.messages(ID) == list(chat.messages)
