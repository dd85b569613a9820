"""What is stored comes back as it was written, or is known to be damaged: steps and conversations alike."""

import re
import sqlite3
import zlib
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import Agent, Chat, Message, Output, Runtime, Text
from journeyman.durable import Durable
from journeyman.durable.records import Record, check_record
from journeyman.errors import RunBlocked, StoreError
from journeyman.record import Recorder
from journeyman.session import Step, turn_name
from journeyman.store import Store
from journeyman.store.codec import FORMAT, MOST_BYTES, DamagedValue, pack, unpack, unpack_beginning
from journeyman.store.log import SessionRecord, lines_of_step, readable_records, seal_records
from journeyman.store.recordings import events_path
from journeyman.store.repair import repair
from journeyman.testing.scripted import ScriptedModel, call
from tests.durable.processes import a_step
from tests.durable.worlds import Letter
from tests.play import existing, succeeded
from tests.support import tamper
from tests.support.kept import Kept

_LONG = b'{"kind":"model","value":"' + b"hello " * 500 + b'"}'
_VALUES = st.one_of(
    st.binary(max_size=3_000),
    st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 5_000)).map(lambda each: each[0] * each[1]),
    st.tuples(st.sampled_from([b"z", b"\0", b"z\0"]), st.binary(max_size=2_000)).map(b"".join),
)


@given(_VALUES, st.integers(0, 50_000))
def test_any_bytes_come_back_and_so_does_any_beginning_of_them(value: bytes, n_bytes: int) -> None:
    stored = pack(value)
    assert (unpack(stored), len(stored) <= len(value) + 1) == (value, True)
    assert n_bytes == 0 or unpack_beginning(stored, n_bytes) == value[:n_bytes]


def test_what_is_longer_than_may_be_unpacked_is_stored_as_it_is() -> None:
    assert pack(b"[" * (MOST_BYTES + 1)) == b"[" * (MOST_BYTES + 1)
    assert len(pack(b"[" * MOST_BYTES)) < 100_000


@pytest.mark.parametrize(
    "stored",
    [
        b"z" + zlib.compress(b"[" * (MOST_BYTES + 1)),
        b"z" + zlib.compress(b"[" * 10 * MOST_BYTES, 9),
        pack(_LONG)[:-1],
        pack(_LONG) + b"!",
        b"znothing",
        b"z",
    ],
    ids=["too long", "a bomb", "cut off", "more behind it", "not packed", "empty"],
)
def test_what_cannot_be_unpacked_is_told(stored: bytes) -> None:
    with pytest.raises(DamagedValue):
        unpack(stored)


def two_messages() -> list[SessionRecord]:
    """Return the records of a conversation of two messages, of which one is packed."""
    messages = [Message("user", (Text("Hi."),)), Message("assistant", (Text("hello " * 500),))]
    return seal_records("a", [*lines_of_step(Step(position=0, messages=messages))], after=0, at=7.5)


def is_sound_conversation(record: SessionRecord) -> bool:
    return len(readable_records([*two_messages()[:-1], record], "a")[0]) == 3


def is_sound_step(record: Record) -> bool:
    try:
        check_record(record)
    except RunBlocked:
        return False
    return True


def flip(body: bytes, at: int, bits: int) -> bytes:
    at %= len(body)
    return body[:at] + bytes([body[at] ^ bits]) + body[at + 1 :]


@given(st.integers(0), st.integers(1, 255))
def test_any_byte_that_is_another_and_any_end_that_is_cut_off_is_found(at: int, bits: int) -> None:
    said, step = two_messages()[-1], a_step("a", "attempt/1/iteration/1/model", _LONG)
    body = existing(step.body)
    assert (is_sound_conversation(said), is_sound_step(step)) == (True, True)
    for one, other in (
        (flip(said.body, at, bits), flip(body, at, bits)),
        (said.body[: at % len(said.body)], body[:at]),
    ):
        assert not is_sound_conversation(said._replace(body=one))
        assert other == body or not is_sound_step(step._replace(body=other))


@pytest.mark.parametrize(
    "change",
    [{"session": "b"}, {"n": 2}, {"n": 4}, {"kind": "cut"}, {"position": 0}, {"at": 7.25}, {"f": 0}, {"crc": 0}],
)
def test_any_fact_of_a_record_that_is_another_is_found(change: dict[str, Any]) -> None:
    assert not is_sound_conversation(two_messages()[-1]._replace(**change))


def test_a_conversation_of_another_version_is_refused_and_survives_a_repair(path: Path) -> None:
    with Store(path) as store, closing(store.session("a", agent="echo", create=True)) as session:
        session.write(Step(position=0, messages=[Message("user", (Text("Hi."),))]))
    tamper.change_format(path, "a", FORMAT + 1)
    for _ in range(2):
        with Store(path) as store, pytest.raises(StoreError, match=r"a record of format 2, .* Update journeyman"):
            store.session("a", agent="echo")
        repair(path)


def count(place: str, mark: bytes) -> Counter[str]:
    """Return how many packed values hold these bytes, by their table. One that holds them plain counts as a hundred."""
    paths = [] if "://" in place else [Path(place), events_path(Path(place))]
    connections: list[Any] = [sqlite3.connect(path) for path in paths] or [psycopg.connect(place)]
    leaves = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
    tables = "SELECT name FROM sqlite_master WHERE type = 'table'" if paths else leaves
    found = Counter[str]()
    for connection in connections:
        with closing(connection):
            named = [table for (table,) in connection.execute(tables).fetchall()]
            rows = [(table, row) for table in named for row in connection.execute(f"SELECT * FROM {table}").fetchall()]
        for table, value in [(table, value) for table, row in rows for value in row if isinstance(value, str | bytes)]:
            stored, name = value.encode() if isinstance(value, str) else value, re.sub(r"_(default|\d+)$", "", table)
            with suppress(DamagedValue):  # other bytes may begin as packed ones do
                found[name] += 100 * (mark in stored) + (mark in unpack(stored))
    return +found


@pytest.mark.parametrize("is_typed", [False, True], ids=["a text", "typed"])
@pytest.mark.parametrize("id", ["alone", turn_name("talk", 1)])
async def test_an_answer_stands_once_in_each_class_and_is_always_packed(kept: Kept, id: str, is_typed: bool) -> None:
    words = f"{'all is well, ' * 100}MARKED{', as before' * 100}"
    answers = [call("output", text=each) if is_typed else each for each in (words, "More.")]
    options: dict[str, Any] = {"output": Output(Letter)} if is_typed else {}
    agent: Agent[Any] = Agent(name="clerk", model=ScriptedModel(answers), **options)
    with Recorder(kept.place) as recorder:
        async with Durable(kept.place) as durable:
            runtime = Runtime(recorder=recorder)
            if id == "alone":
                result = succeeded(await durable.run(agent, "Go.", id=id, runtime=runtime))
            else:
                async with Chat.open(agent, durable, id="talk", create=True, runtime=runtime) as chat:
                    result = succeeded(await chat.prompt("Go."))
                    chat.undo()
                    succeeded(await chat.prompt("Again."))
    assert count(kept.place, b"MARKED") == {"jm_conversation": 1, "jm_steps": 1, "rec_pieces": 1}
    if "://" not in kept.place:
        repair(Path(kept.place))
    with kept.stored() as store:
        assert [each.id for each in store.sessions()] == ([] if id == "alone" else ["talk"])
    async with Durable(kept.place) as durable:
        for reader in (agent, None):  # the conversation has gone on since, and the result is as it was
            again = succeeded(await (await durable.get(id, reader)).result())
            assert again.history == result.history
            assert again.output == (result.output if reader else {"text": words} if is_typed else words)
        tamper.alter(kept.place, tamper.WITHOUT_A_LINE)
        with pytest.raises(RunBlocked, match=r"cannot be read: of its \d messages, \d are there"):
            await (await durable.get(id)).result()
        await durable.hub.engine.forget([run.id for run in await durable.list()])
    del (left := count(kept.place, b"MARKED"))["rec_pieces"]
    assert left == ({} if id == "alone" else {"jm_conversation": 1})
