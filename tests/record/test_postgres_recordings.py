"""Recordings in Postgres: a connection that is lost at any point, many who record at once, and what cannot be used."""

import asyncio
import logging
import os

import pytest
from psycopg.conninfo import conninfo_to_dict

from journeyman import Agent, Runtime, Success, run, tool
from journeyman.durable import schema_sql
from journeyman.errors import StoreError
from journeyman.record import Recorder, Recordings
from journeyman.testing.scripted import ScriptedModel, call, say
from tests.support import tamper
from tests.support.postgres import DeafSocket, PostgresServer


@tool
async def look(topic: str = "") -> str:
    """Look something up."""
    return f"about {topic}: " + "x" * 300


def scout(*topics: str) -> Agent:
    answers = [*[say(call("look", {"topic": each}, id=each)) for each in topics], say("So.")]
    return Agent(name="scout", model=ScriptedModel(answers), tools=[look])


def looked(url: str) -> list[list[object]]:
    """Return the results of the calls of each recording, the newest first."""
    with Recordings(url) as recordings:
        for each in recordings.runs():
            assert all(recordings.body(request) for request in recordings.requests(each))
        return [
            [event.facts["tool_result"] for event in recordings.events(each, kinds=["ToolFinished"])]
            for each in recordings.runs()
        ]


async def test_nothing_is_lost_or_doubled_when_a_connection_is_lost(postgres: PostgresServer, emptied: str) -> None:
    with Recorder(emptied) as recorder:
        await run(scout("sand"), "?", runtime=Runtime(recorder=recorder))
        await recorder.flush()
        postgres.kill_connections("application_name LIKE 'journeyman r%%'")
        await run(scout("dune", "sand"), "?", runtime=Runtime(recorder=recorder))
    about = {topic: f"about {topic}: " + "x" * 300 for topic in ("sand", "dune")}
    assert looked(emptied) == [[about["dune"], about["sand"]], [about["sand"]]]


@pytest.mark.parametrize("is_restarted", [False, True], ids=["lost", "started again"])
async def test_nothing_is_lost_or_doubled_when_an_answer_is_lost(
    postgres: PostgresServer, emptied: str, *, is_restarted: bool
) -> None:
    # K22
    async with DeafSocket(postgres, str(conninfo_to_dict(emptied)["dbname"])) as between:
        if is_restarted:
            between.when_lost = postgres.rename
        for number in range(6):
            recorder = await asyncio.to_thread(Recorder, between.url, keep_s=None, keep_bytes=None)
            between.swallow(number)
            await run(scout("sand", "dune"), "?", runtime=Runtime(recorder=recorder))
            await recorder.flush()
            between.swallow(None)
            await asyncio.to_thread(recorder.close)
        assert between.n_swallowed >= 2  # that to the beginning, and that to a batch
    about = [f"about {topic}: " + "x" * 300 for topic in ("sand", "dune")]
    assert looked(emptied) == [about] * 6


async def test_texts_that_postgres_cannot_hold_come_back_as_they_were(emptied: str) -> None:
    name = "nul\0 and ␛0"
    agent = Agent(name="scout", model=ScriptedModel([say(call("look", {"topic": name})), say("So.")]), tools=[look])
    await run(agent, f"What of {name}?", runtime=Runtime(recorder=emptied))
    with Recordings(emptied) as recordings:
        [found] = recordings.runs()
        [called] = recordings.events(found, kinds=["ToolCalled"])
        assert recordings.search("␛0", tool="look") != []
    assert (found.input, called.facts["tool_input"]) == (f"What of {name}?", {"topic": name})


def test_a_store_that_cannot_be_written_is_said_at_once(postgres: PostgresServer, database: str) -> None:
    role = f"reader{os.getpid()}"
    postgres.execute(f"CREATE ROLE {role} LOGIN")
    tamper.alter(database, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    theirs = database.replace("user=tests", f"user={role}")
    with pytest.raises(StoreError, match="permission denied") as refused:
        Recorder(theirs)
    assert "rec_*" in refused.value.hint
    with Recordings(theirs) as recordings:
        assert recordings.runs() == []
    with pytest.raises(StoreError, match="read-only transaction"):
        Recorder(f"{database}&options=-c%20default_transaction_read_only%3Don")
    tamper.alter(database, "DROP TABLE rec_words, rec_events")
    with pytest.raises(StoreError, match="permission denied") as lacking:
        Recorder(theirs)
    assert "schema_sql()" in lacking.value.hint
    postgres.execute(f"REASSIGN OWNED BY {role} TO tests")


def test_the_statements_of_ddl_make_the_tables_of_recordings(postgres: PostgresServer) -> None:
    url = postgres.url(postgres.database())
    with Recordings(url) as recordings:
        assert (recordings.runs(), recordings.has_any) == ([], False)
    tamper.alter(url, schema_sql())
    with Recordings(url) as recordings:
        assert recordings.has_any


async def test_a_role_that_owns_nothing_records_and_is_told_what_its_prune_leaves(
    postgres: PostgresServer, database: str
) -> None:
    role = f"writer{os.getpid()}"
    postgres.execute(f"CREATE ROLE {role} LOGIN")
    rights = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"
    tamper.alter(database, f"GRANT {rights} IN SCHEMA public TO {role}")
    tamper.alter(database, f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
    theirs = database.replace("user=tests", f"user={role}")
    await run(scout("sand"), "?", runtime=Runtime(recorder=theirs))
    with Recordings(theirs) as recordings:
        [found] = recordings.runs()
        notice = recordings.forget([found]) or ""
        assert "vacuumed by its owner, or by itself" in notice
        assert recordings.runs() == []
    with Recordings(database) as recordings:
        assert recordings.forget([]) is None


def test_tables_of_somebody_else_are_refused(postgres: PostgresServer) -> None:
    url = postgres.url(postgres.database("CREATE TABLE rec_format (colour TEXT)"))
    for kind in (Recorder, Recordings):
        with pytest.raises(StoreError, match="version") as refused:
            kind(url)
        assert "rec_*" in refused.value.hint


async def test_recordings_are_read_through_a_pooler(postgres: PostgresServer, emptied: str) -> None:
    name = conninfo_to_dict(emptied)["dbname"]
    async with DeafSocket(postgres, str(name), hides_number=True) as pooler:
        with await asyncio.to_thread(Recordings, pooler.url) as recordings:
            assert await asyncio.to_thread(recordings.runs) == []


async def test_a_place_that_cannot_be_had_costs_one_warning_without_its_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = "postgresql://ann:hunter2@127.0.0.1:1/orders"
    with caplog.at_level(logging.WARNING):
        assert isinstance(await run(scout(), "?", runtime=Runtime(recorder=place)), Success)
    [told] = [each.getMessage() for each in caplog.records]
    assert "nothing is recorded" in told
    assert "hunter2" not in told
