"""What holds of sessions in Postgres beside what holds of every session: its tables, and when the database is away."""

import asyncio
from collections.abc import Generator
from contextlib import closing, contextmanager
from threading import Thread
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from journeyman import Agent, Chat, Message, Text
from journeyman.durable import Durable
from journeyman.errors import SessionInUse, StoreError
from journeyman.record import Recorder
from journeyman.session import Step
from journeyman.store import PostgresSessions, StoreRepaired
from tests.play import echo
from tests.support.postgres import DeafSocket, PostgresServer


def talker() -> Agent:
    return Agent(name="tester", model=echo())


def changed(url: str, statement: str) -> list[tuple[object, ...]]:
    """Do something in the database, and return what comes back."""
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(statement.encode())
        return done.fetchall() if done.description else []


def name_of(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


def cut_off(postgres: PostgresServer, url: str) -> None:
    """End the connections of all sessions."""
    postgres.kill_connections("datname = %s AND application_name LIKE 'journeyman chat%%'", name_of(url))


def texts(sessions: PostgresSessions, id: str = "a") -> list[str]:
    return [each.text for each in sessions.messages(id)]


async def test_of_two_schemas_each_has_its_own_session_of_an_id(database: str) -> None:
    changed(database, "CREATE SCHEMA other")
    there = f"{database}&options={quote('-c search_path=other')}"
    async with (
        Chat.open(talker(), database, id="a", create=True) as here,
        Chat.open(talker(), there, id="a", create=True) as elsewhere,
    ):
        await here.prompt("Here.")
        await elsewhere.prompt("There.")
    assert (texts(PostgresSessions(database))[0], texts(PostgresSessions(there))[0]) == ("Here.", "There.")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE jm_conversation SET body = 'x' WHERE n = {n}",
        "UPDATE jm_conversation SET position = 7 WHERE n = {n}",
        "DELETE FROM jm_conversation WHERE n = {n}",
    ],
)
async def test_a_damaged_session_goes_on_from_its_last_good_record_and_the_rest_is_put_aside(
    emptied: str, damage: str
) -> None:
    async with Chat.open(talker(), emptied, id="a", create=True) as chat:
        await chat.prompt("One.")
        kept = chat.messages
        ((good,),) = changed(emptied, "SELECT max(n) FROM jm_conversation")
        await chat.prompt("Two.")
    assert isinstance(good, int)
    ((n_all,),) = changed(emptied, "SELECT count(*) FROM jm_conversation")
    changed(emptied, damage.format(n=good + 1))
    warning = rf"Session a in the database .* was damaged\. {good} records were recovered"
    with pytest.warns(StoreRepaired, match=warning):
        session = PostgresSessions(emptied).session("a", agent="tester")
    assert list(session.snapshot.messages) == list(kept)
    assert "kept in the table jm_conversation, as the session a/damaged-" in (session.notice or "")
    session.close()
    async with Chat.open(talker(), emptied, id="a") as chat:
        await chat.prompt("Three.")
    ((n_aside,),) = changed(emptied, "SELECT count(*) FROM jm_conversation WHERE session LIKE 'a/%'")
    assert n_aside == (n_all if isinstance(n_all, int) else 0) - good - damage.startswith("DELETE")
    async with Chat.open(talker(), emptied, id="a") as chat:
        assert [each.text for each in chat.messages] == ["One.", "<One.>", "Three.", "<Three.>"]


async def test_a_session_that_is_deleted_while_it_is_open_says_so(emptied: str) -> None:
    async with Chat.open(talker(), emptied, id="a", create=True) as chat:
        await chat.prompt("One.")
        changed(emptied, "DELETE FROM jm_sessions")
        with pytest.raises(StoreError, match=r"Session a in the database .* was changed elsewhere.*Open it again") as e:
            await chat.prompt("Two.")
        assert not e.value.may_pass
    assert PostgresSessions(emptied).sessions() == []


async def test_a_chat_goes_on_when_the_database_was_stopped_in_the_middle(
    postgres: PostgresServer, emptied: str
) -> None:
    async with Chat.open(talker(), emptied, id="a", create=True) as chat:
        await chat.prompt("One.")
        postgres.restart()
        await chat.prompt("Two.")
    assert texts(PostgresSessions(emptied)) == ["One.", "<One.>", "Two.", "<Two.>"]


async def test_what_could_not_be_written_is_part_of_the_next_step(postgres: PostgresServer, database: str) -> None:
    async with Chat.open(talker(), database, id="a", create=True) as chat:
        await chat.prompt("One.")
        postgres.execute(f"ALTER DATABASE {name_of(database)} ALLOW_CONNECTIONS false")
        cut_off(postgres, database)
        with pytest.raises(StoreError, match=r"The database .* could not be written: .*not currently accepting") as e:
            await chat.prompt("Two.")
        assert e.value.may_pass
        with pytest.raises(StoreError, match="could not be written"):
            chat.follow_up("Not queued.")
        postgres.execute(f"ALTER DATABASE {name_of(database)} ALLOW_CONNECTIONS true")
        await chat.prompt("Three.")
        said = list(chat.messages)
    sessions = PostgresSessions(database)
    assert (sessions.messages("a"), sessions.snapshot("a").waiting) == (said, ())
    assert "Two." in str(said)


async def test_a_session_that_somebody_took_meanwhile_is_told_and_nothing_is_written_twice(
    postgres: PostgresServer, emptied: str
) -> None:
    async with Chat.open(talker(), emptied, id="a", create=True) as chat:
        await chat.prompt("One.")
        cut_off(postgres, emptied)
        async with Chat.open(talker(), emptied, id="a") as other:
            with pytest.raises(SessionInUse, match=r"Session a in the database .* is open in this process"):
                await chat.prompt("Mine.")
            await other.prompt("Two.")
            said = list(other.messages)
        for _ in range(2):
            with pytest.raises(StoreError, match="was changed elsewhere while it was open"):
                await chat.prompt("Mine.")
    assert PostgresSessions(emptied).messages("a") == said


async def test_who_lost_a_session_goes_on_if_the_other_has_written_nothing(
    postgres: PostgresServer, emptied: str
) -> None:
    async with Chat.open(talker(), emptied, id="a", create=True) as chat:
        await chat.prompt("One.")
        cut_off(postgres, emptied)
        async with Chat.open(talker(), emptied, id="a"):
            pass
        await chat.prompt("Two.")
    assert texts(PostgresSessions(emptied)) == ["One.", "<One.>", "Two.", "<Two.>"]


def test_a_session_takes_its_lock_from_the_connection_that_it_lost(postgres: PostgresServer, emptied: str) -> None:
    with between(postgres, emptied, leaves_server=True) as line:
        session = PostgresSessions(line.url).session("a", agent="tester", create=True)
        session.add("One.", "follow_ups")
        line.swallow(0)  # here the connection is lost, and there it lives on
        session.add("Two.", "follow_ups")
        session.close()
    assert [each.text for each in PostgresSessions(emptied).snapshot("a").waiting] == ["One.", "Two."]


@contextmanager
def between(postgres: PostgresServer, url: str, **options: bool) -> Generator[DeafSocket]:
    """Pass on, in another thread, what a session and the server say."""
    line = DeafSocket(postgres, name_of(url), **options)
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(line.__aenter__(), loop).result()
    try:
        yield line
    finally:
        asyncio.run_coroutine_threadsafe(line.__aexit__(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def is_queued(chat: Chat[str], text: str) -> bool:
    """Queue a text, unless the database is away."""
    try:
        chat.follow_up(text)
    except StoreError as error:
        if not error.may_pass:
            raise
        return False
    return True


@pytest.mark.share(one_in=3)
@pytest.mark.parametrize("loses_question", [False, True], ids=["answer", "question"])
@pytest.mark.parametrize("lost", range(14))
async def test_a_lost_answer_loses_nothing_and_doubles_nothing(
    postgres: PostgresServer, emptied: str, lost: int, *, loses_question: bool
) -> None:
    # K22
    with between(postgres, emptied) as line:
        line.loses_question = loses_question
        async with Chat.open(talker(), line.url, id="a", create=True) as chat:
            if lost % 2:
                await chat.prompt("One.")
            line.swallow(lost // 2)
            refused = {text for text in ("Two.", "Three.") if not is_queued(chat, text)}
            assert line.n_swallowed == 1 or lost // 2 >= line.n_heard
            line.swallow(None)
            (await chat.prompt("Four.")).unwrap()
            chat.follow_up("Five.")
            said = list(chat.messages)
    snapshot = PostgresSessions(emptied).snapshot("a")
    assert ([*snapshot.messages], [each.text for each in snapshot.waiting]) == (said, ["Five."])
    users = [block.text for each in said if each.role == "user" for block in each.content if isinstance(block, Text)]
    assert sorted(users) == sorted({"Two.", "Three.", "Four.", *(["One."] if lost % 2 else [])} - refused)


def test_of_a_step_whose_answer_was_lost_only_the_one_that_is_written_next_is_kept(
    postgres: PostgresServer, emptied: str
) -> None:
    def said(*words: str) -> list[Message]:
        return [Message("user", (Text(word),)) for word in words]

    with between(postgres, emptied) as line:
        session = PostgresSessions(line.url).session("a", agent="tester", create=True)
        line.swallow(0)
        postgres.execute(f"ALTER DATABASE {name_of(emptied)} ALLOW_CONNECTIONS false")
        with pytest.raises(StoreError, match="could not be written"):
            session.write(Step(position=0, messages=said("One."), staged=[Text("Staged.")]))
        postgres.execute(f"ALTER DATABASE {name_of(emptied)} ALLOW_CONNECTIONS true")
        stored = "SELECT n FROM jm_conversation"
        assert len(changed(emptied, stored)) == 3
        session.write(Step(position=0, messages=said("One.", "Two."), staged=[Text("Staged.")]))
        session.close()
    found = PostgresSessions(emptied).snapshot("a")
    assert (list(found.messages), found.staged) == (said("One.", "Two."), (Text("Staged."),))
    assert len(changed(emptied, stored)) == 4


async def test_an_idle_chat_and_an_idle_durable_keep_their_locks_where_idle_connections_are_ended(
    database: str,
) -> None:
    changed(database, f"ALTER DATABASE {name_of(database)} SET idle_session_timeout = '100ms'")
    held = (
        "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted"
        " AND datname = current_database()"
    )
    async with Durable(database), Chat.open(talker(), database, id="a", create=True) as chat:
        with closing(Recorder(database)):
            await chat.prompt("Hi.")
            before = changed(database, held)
            await asyncio.to_thread(changed, database, "SELECT pg_sleep(0.5)")
            assert changed(database, held) == before
            with pytest.raises(SessionInUse, match="this process"):
                PostgresSessions(database).session("a", agent="tester")
