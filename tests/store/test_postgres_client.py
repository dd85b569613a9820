"""What holds of all who use a Postgres database, since they have one client: durable runs, recordings and sessions."""

import asyncio
from collections.abc import Callable, Coroutine
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from journeyman import Agent, Chat, Runtime, run
from journeyman.durable import Durable, schema_sql
from journeyman.errors import StoreError
from journeyman.record import Recorder
from journeyman.store.client import Client, rows_of, take_lock_of, wait_in_loop
from journeyman.store.database import Database
from tests.play import echo
from tests.support import tamper
from tests.support.postgres import DeafSocket, PostgresServer

TALKER = Agent(name="tester", model=echo())


async def run_durably(url: str) -> None:
    async with Durable(url) as durable:
        (await durable.run(TALKER, "Hi.")).unwrap()


async def record(url: str) -> None:
    recorder = await asyncio.to_thread(Recorder, url)
    (await run(TALKER, "Hi.", runtime=Runtime(recorder=recorder))).unwrap()
    await asyncio.to_thread(recorder.close)


async def talk(url: str) -> None:
    async with Chat.open(TALKER, url) as chat:
        (await chat.prompt("Hi.")).unwrap()


USERS = (run_durably, record, talk)
Use = Callable[[str], Coroutine[None, None, None]]
each_user = pytest.mark.parametrize("use", USERS)


@each_user
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (tamper.NEWER_RUNS, "tables of version 9; this version of journeyman knows those up to 8"),
        (tamper.OLDER_RUNS, "tables of version 4, which only versions of journeyman before the first release read"),
    ],
)
async def test_tables_of_another_version_are_not_touched(database: str, use: Use, change: str, why: str) -> None:
    tamper.alter(database, change)
    with pytest.raises(StoreError, match=why):
        await use(database)


@each_user
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("postgresql://ann:secret@127.0.0.1:1/chats", "The database 'chats' on 127.0.0.1:1 could not be opened"),
        ("postgres://ann:secret@host/db?direct=db", r"The URL says direct=db\. Give the database itself as direct="),
        ("postgres://ann:secret@host/db?prepare_threshold=often", "The URL says prepare_threshold=often"),
        ("postgresql://ann:secret@:x/chats", "could not be opened: .*invalid"),
    ],
)
async def test_a_place_that_cannot_be_is_told_with_the_reason(use: Use, place: str, why: str) -> None:
    with pytest.raises((StoreError, ValueError), match=why) as refused:
        await use(place)
    assert "secret" not in str(refused.value)


@each_user
async def test_a_database_that_is_not_there_is_named(postgres: PostgresServer, use: Use) -> None:
    with pytest.raises(StoreError, match=r"The database 'nothing' on .* does not exist") as refused:
        await use(postgres.url("nothing"))
    assert "its host, database, user and password" in refused.value.hint


@each_user
async def test_a_pooler_is_refused_unless_the_database_itself_is_named(
    postgres: PostgresServer, emptied: str, use: Use
) -> None:
    async with DeafSocket(postgres, str(conninfo_to_dict(emptied)["dbname"]), hides_number=True) as pooler:
        with pytest.raises(StoreError, match=r"is a pooler.*direct=HOST:PORT"):
            await asyncio.to_thread(asyncio.run, use(pooler.url))
        direct = f"{pooler.url}&prepare_threshold=none&direct={quote(str(postgres.folder))}:5432"
        await asyncio.to_thread(asyncio.run, use(direct))


async def test_many_who_begin_at_once_make_the_tables_once(postgres: PostgresServer) -> None:
    database = postgres.database()
    url = postgres.url(database)
    await asyncio.gather(*[asyncio.to_thread(asyncio.run, use(url)) for use in USERS * 4])
    with psycopg.connect(url) as connection:
        for query, found in (("SELECT version FROM jm_version", [(8,)]), ("SELECT count(*) FROM rec_format", [(1,)])):
            assert connection.execute(query.encode()).fetchall() == found
    postgres.drop(database)


@each_user
async def test_who_may_not_make_the_tables_is_told_how_another_role_does(postgres: PostgresServer, use: Use) -> None:
    database = postgres.database()
    postgres.execute(f"CREATE ROLE guest_{database} LOGIN")
    url = postgres.url(database, user=f"guest_{database}")
    with pytest.raises(StoreError, match=r"permission denied for schema public.*print\(schema_sql\(\)\)"):
        await use(url)
    tamper.alter(postgres.url(database), schema_sql())
    for what in ("ALL TABLES", "ALL SEQUENCES"):
        tamper.alter(postgres.url(database), f"GRANT ALL ON {what} IN SCHEMA public TO guest_{database}")
    await use(url)
    postgres.drop(database)
    postgres.execute(f"DROP ROLE guest_{database}")


async def test_an_owner_takes_its_lock_from_its_own_lost_connection(postgres: PostgresServer, emptied: str) -> None:
    async with DeafSocket(postgres, str(conninfo_to_dict(emptied)["dbname"]), leaves_server=True) as line:
        client = Client(Database(line.url), waiting=wait_in_loop(2.0), take=lambda made: take_lock_of("pa11", made))
        lost = await client.hold()
        line.swallow(0)  # here the connection is lost, and there it lives on
        with pytest.raises(psycopg.OperationalError):
            await rows_of(lost, "SELECT 1")
        assert await rows_of(await client.hold(), "SELECT 1") == [(1,)]
        client.close()


async def test_who_is_closed_while_it_connects_holds_no_connection(emptied: str) -> None:
    client = Client(Database(emptied), waiting=wait_in_loop(2.0), take=lambda _: asyncio.to_thread(client.close))
    with pytest.raises(StoreError, match="was closed"):
        await client.hold()
