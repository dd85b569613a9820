"""Damaged files: what is good is recovered, the file is kept beside, and somebody is told."""

import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path
from random import Random

import pytest

from journeyman import Agent, Chat, Message, Text, Usage
from journeyman.errors import StoreError
from journeyman.session import Step
from journeyman.store.codec import FORMAT, checksum
from journeyman.store.store import Store, StoreRepaired
from journeyman.testing.scripted import FunctionModel
from tests.support.invariants_history import history_faults

N = 60


def echo() -> Agent:
    return Agent(name="echo", model=FunctionModel(lambda request: f"answer to {request.messages[-1].text}"))


def filled(path: Path, n: int = N) -> str:
    """Write a session of `n` messages, and return its id."""
    with Store(path) as store, closing(store.session(agent="echo")) as session:
        for position in range(n):
            words = f"message {position} {Random(position).randbytes(700).hex()}"
            message = Message("assistant" if position % 2 else "user", (Text(words),))
            session.write(Step(position=position, messages=[message], usage=Usage(requests=position), n_runs=1))
        return session.id


def damaged_files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.damaged-*"))


async def reopened(path: Path, id: str) -> tuple[Message, ...]:
    """Return what is left of the session, after going on with it."""
    chat = Chat.open(echo(), path, id=id)
    with pytest.warns(StoreRepaired) as told:
        opened = await chat.__aenter__()
    try:
        left = opened.messages
        assert opened.session is not None
        assert opened.session.notice == str(told[0].message)
        assert str(damaged_files(path)[0]) in str(told[0].message)
        (await opened.prompt("Go on.")).unwrap()
        assert list(history_faults(opened.messages)) == []
        expected = opened.messages
    finally:
        await chat.__aexit__(None, None, None)
    async with Chat.open(echo(), path, id=id) as again:  # and now it is sound
        assert again.messages == expected
    return left


def assert_is_the_beginning(left: tuple[Message, ...]) -> None:
    assert [message.text.split()[1] for message in left] == [str(number) for number in range(len(left))]


async def test_a_file_that_was_cut_short_is_recovered_up_to_the_cut(path: Path) -> None:
    id, whole = filled(path), path.read_bytes()
    path.write_bytes(whole[: len(whole) * 3 // 4])
    left = await reopened(path, id)
    assert 5 < len(left) < N
    assert_is_the_beginning(left)
    assert damaged_files(path)[0].read_bytes() == whole[: len(whole) * 3 // 4]


@pytest.mark.filterwarnings("ignore::journeyman.store.store.StoreRepaired")
@pytest.mark.parametrize("seed", range(16))
async def test_flipped_bytes_cost_nothing_in_front_of_them(path: Path, seed: int) -> None:
    id, random = filled(path), Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(1 + seed % 8):
        data[random.randrange(100, len(data))] ^= 1 + random.randrange(255)
    path.write_bytes(data)
    chat, told = None, ""
    async with AsyncExitStack() as stack:
        try:
            chat = await stack.enter_async_context(Chat.open(echo(), path, id=id))
            assert_is_the_beginning(chat.messages)
            (await chat.prompt("Go on.")).unwrap()
        except StoreError as error:  # an index was hit, which shows when it is written to; or the very first record
            chat, told = None, str(error)
    if chat is None:
        assert "is damaged" in told or f"has no session '{id}'" in told
    with Store(path) as store:  # and now it is sound
        for info in store.sessions():
            async with Chat.open(echo(), store, id=info.id) as again:
                assert chat is None or again.messages == chat.messages
                (await again.prompt("Go on.")).unwrap()


@pytest.mark.parametrize("where", [5, 70, 100, b"CREATE TABLE"], ids=["magic", "application", "root", "schema"])
async def test_a_damaged_first_page_costs_nothing_where_the_file_is_known_as_ours(
    path: Path, where: int | bytes
) -> None:
    id, data = filled(path), bytearray(path.read_bytes())
    start = data.index(where) if isinstance(where, bytes) else where
    for place in range(start, start + 3):
        data[place] ^= 0xFF
    path.write_bytes(data)
    if where == 70:
        with pytest.raises(StoreError, match="is not a store of journeyman"):
            Store(path)
        assert path.read_bytes() == bytes(data)
        return
    assert len(await reopened(path, id)) == N


@pytest.mark.parametrize("body", [b"no JSON", b'{"role":"user"}', b"\xff\xfe"], ids=["text", "no message", "no UTF-8"])
@pytest.mark.parametrize("is_sealed", [False, True], ids=["wrong sum", "right sum"])
async def test_a_record_that_is_no_message_ends_its_session_there(path: Path, body: bytes, is_sealed: bool) -> None:
    id, other = filled(path), filled(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        where = "FROM jm_conversation WHERE session = ? AND kind = 'message' AND position = 40"
        n, at = connection.execute(f"SELECT n, at {where}", (id,)).fetchone()
        sealed = checksum((id, n, "message", 40, at, FORMAT), body) if is_sealed else 0
        change = "UPDATE jm_conversation SET body = ?, crc = ? WHERE session = ? AND n = ?"
        connection.execute(change, (body, sealed, id, n))
    left = await reopened(path, id)
    assert len(left) == 40
    assert_is_the_beginning(left)
    with closing(sqlite3.connect(damaged_files(path)[0])) as connection:
        assert connection.execute(f"SELECT body {where}", (id,)).fetchone()[0] == body
    async with Chat.open(echo(), path, id=other) as chat:  # it costs the others nothing
        assert len(chat.messages) == N


def test_each_session_whose_row_is_lost_keeps_the_date_of_its_own_first_record(path: Path) -> None:
    ids = [filled(path, 3) for _ in range(3)]
    with closing(sqlite3.connect(path)) as connection, connection:
        began = dict(connection.execute("SELECT session, min(at) FROM jm_conversation GROUP BY session"))
        connection.execute("DELETE FROM jm_sessions")
    assert len({*began.values()}) == 3
    with path.open("r+b") as file:  # it is to be repaired
        file.seek(100)
        file.write(bytes(8))
    with pytest.warns(StoreRepaired):
        store = Store(path)
    with store:
        assert {info.id: info.created for info in store.sessions()} == began
    assert {*began} == {*ids}


async def test_a_missing_record_ends_the_session_there(path: Path) -> None:
    id = filled(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM jm_conversation WHERE kind = 'message' AND position = 30")
    assert len(await reopened(path, id)) == 30


def test_a_file_of_which_nothing_can_be_read_is_kept_and_a_new_one_begun(path: Path) -> None:
    filled(path)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.warns(StoreRepaired, match="0 records were recovered"), Store(path) as store:
        assert store.sessions() == []
    assert len(damaged_files(path)[0].read_bytes()) == 60


def test_a_damaged_file_that_is_in_use_is_left_alone(path: Path) -> None:
    id = filled(path)
    with Store(path) as store, closing(store.session(id, agent="echo")):
        data = bytearray(path.read_bytes())
        data[200:3000] = bytes(2800)
        other = path.with_name("other.db")
        other.write_bytes(data)
        other.with_name(f"{other.name}-{id}.lock").hardlink_to(path.with_name(f"{path.name}-{id}.lock"))
        with pytest.raises(StoreError, match=r"damaged store .*other\.db is open in this process"):
            Store(other)
        assert other.read_bytes() == bytes(data)


def test_damage_that_cannot_be_repaired_as_the_file_is_closed_is_logged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    id = filled(path)
    other, store = Store(path), Store(path)
    with closing(other.session(agent="echo")):
        session = store.session(id, agent="echo")
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))
        with pytest.raises(StoreError):
            session.write(Step(position=N, messages=[Message("user", (Text("more"),))], usage=Usage(), n_runs=1))
        session.close()
        store.close()
        assert "is damaged, and could not be repaired as it was closed" in caplog.text
        assert damaged_files(path) == []  # somebody has a session of it open
    other.close()
