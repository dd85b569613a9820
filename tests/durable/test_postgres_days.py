"""Steps and signals are kept by days in Postgres: nothing is lost when a day gets its table, and when it loses it."""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from journeyman.durable import Durable, PostgresEngine, schema_sql
from journeyman.durable.postgres import days
from journeyman.durable.records import Change, Claim, Status, wall_clock
from journeyman.journal import new_id
from tests.durable.processes import a_row, a_signal, a_step, claimed, found, opened
from tests.support.postgres import PostgresServer

DAY_S = 86_400.0


@contextmanager
def asking(url: str) -> Generator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def places(url: str) -> dict[str, str]:
    """Return in which table the steps of each run lie."""
    with asking(url) as connection:
        return dict(connection.execute("SELECT run, tableoid::regclass::text FROM jm_steps").fetchall())


def tables(url: str) -> set[str]:
    """Return what follows `jm_steps_` in the names of the tables of steps."""
    with asking(url) as connection:
        found = connection.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", ["jm_steps"]
        )
        return {name.removeprefix("jm_steps_") for (name,) in found}


async def begun(engine: PostgresEngine, at: float, name: str, *, ends_as: Status | None = None) -> str:
    """Store a run that began at a moment, with a step and a signal."""
    id = new_id(at)
    await engine.add(a_row(id, name=name, created=at))
    claim = await claimed(engine, id, now=at)
    await engine.write(claim, a_step(id, "attempt/1/iteration/1/model", epoch=claim.epoch))
    await engine.signal(a_signal(id, dedup=name))
    if ends_as is not None:
        assert await engine.settle(claim, Change(status=ends_as), now=at + 1)
    return id


async def stored(engine: PostgresEngine, id: str) -> tuple[int, int]:
    """Return how many steps and signals of a run there are."""
    return len(await engine.records(id)), len(await engine.signals(run=id))


async def test_a_day_has_its_table_a_week_before_it_comes(database: str) -> None:
    now = wall_clock()
    engine = await opened(database)
    today, later = await begun(engine, now, "today"), await begun(engine, now + 7 * DAY_S, "in a week")
    far = await begun(engine, now + 30 * DAY_S, "in a month")
    assert places(database)[today] != places(database)[later] != "jm_steps_default" == places(database)[far]
    assert len(tables(database)) == 9
    await engine.sweep(now=now + 25 * DAY_S)
    assert places(database)[far] == f"jm_steps_{days.days_of(now + 30 * DAY_S, 0)[0]['name']}"
    assert await stored(engine, far) == (1, 1), "it was moved to its day"
    assert len(tables(database)) == 17
    await engine.close()


async def test_a_write_that_meets_a_new_table_is_made_again(database: str) -> None:
    engine, now = await opened(database), wall_clock() + 40 * DAY_S
    id = await begun(engine, now, "far")
    claim = Claim(await found(engine, id), 1)
    with asking(database) as other, other.transaction():
        other.execute(days.days_ddl(now, 0).replace("BEGIN;", "").replace("COMMIT;", "").encode())
        blocked = asyncio.create_task(engine.write(claim, a_step(id, "attempt/1/iteration/2/model")))
        while not other.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
    assert await blocked == "written"
    assert len(await engine.records(id)) == 2
    await engine.close()


async def test_a_role_that_may_not_make_them_says_so_once_and_loses_nothing(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    name = postgres.database()
    owner, guest = postgres.url(name), postgres.url(name, user=f"guest_{name}")
    postgres.execute(f"CREATE ROLE guest_{name} LOGIN")
    now = wall_clock()
    with asking(owner) as connection:
        connection.execute(schema_sql().encode())
        for what in ("ALL TABLES", "ALL SEQUENCES"):
            connection.execute(f"GRANT ALL ON {what} IN SCHEMA public TO guest_{name}".encode())
    engine = await opened(guest)
    assert not caplog.records
    ids = [await begun(engine, now + 20 * DAY_S, f"{n}") for n in range(2)]
    with caplog.at_level(logging.WARNING, "journeyman"):
        for _ in range(3):
            await engine.sweep(now=now + 20 * DAY_S)
            with asking(owner) as connection:
                connection.execute("UPDATE jm_version SET swept = NULL")
    assert [each.message.count("schema_sql(days=90)") for each in caplog.records] == [1]
    assert {places(owner)[id] for id in ids} == {"jm_steps_default"}
    with asking(owner) as connection:
        connection.execute(days.days_ddl(now, 21).encode())
    assert "jm_steps_default" not in places(owner).values()
    assert [await stored(engine, id) for id in ids] == [(1, 1)] * 2
    await engine.close()
    postgres.drop(name)
    postgres.execute(f"DROP ROLE guest_{name}")


@pytest.mark.parametrize("number", [-1, 401])
def test_a_number_of_days_that_cannot_be_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="days cannot be made ahead"):
        schema_sql(days=number)


async def test_what_ended_long_ago_goes_with_its_day_and_what_is_open_is_kept(database: str) -> None:
    now = wall_clock()
    engine = PostgresEngine(database, grace_s=0.0)
    async with Durable(engine, now=lambda: now + 40 * DAY_S) as durable:
        long_ago = [await begun(engine, now, f"done {n}", ends_as="done") for n in range(3)]
        open_one = await begun(engine, now, "open")
        failed = await begun(engine, now + DAY_S, "failed", ends_as="failed")
        young = await begun(engine, now + 20 * DAY_S, "young", ends_as="done")
        n_deleted = deleted(database)
        gone = await durable.forget(older_s=30 * DAY_S, statuses=["done"])
        assert {each.id for each in gone} == {*long_ago}
        assert deleted(database) == n_deleted, "no row is deleted one by one"
        assert [await stored(engine, id) for id in (*long_ago, open_one, failed, young)] == [(0, 0)] * 3 + [(1, 1)] * 3
        assert {places(database)[id] for id in (open_one, failed)} == {"jm_steps_default"}
        assert len(tables(database)) == 1, "those of all days that were over have gone"
        claim = Claim(await found(engine, open_one), 1)
        assert await engine.write(claim, a_step(open_one, "attempt/1/iteration/2/model")) == "written"
        assert {each.id for each in await durable.forget(older_s=10 * DAY_S)} == {failed, young}
        assert [*places(database)] == [open_one]
    assert (await stored_anew(database, open_one)) == (2, 1)


async def test_a_day_of_which_many_runs_are_left_is_kept(database: str, caplog: pytest.LogCaptureFixture) -> None:
    engine, now = await opened(database), wall_clock()
    ids = [await begun(engine, now, f"{n}") for n in range(2)]
    before = now + 3 * DAY_S
    await engine.connections.patiently(lambda connection: days.drop_days(connection, before, most_kept=1))
    assert {places(database)[id] for id in ids} == {f"jm_steps_{days.days_of(now, 0)[0]['name']}"}
    assert "is kept: more than 1 of its runs are left" in caplog.text
    await engine.close()


async def test_a_run_that_is_named_is_forgotten_at_once_with_all_its_rows(database: str) -> None:
    async with Durable(engine := PostgresEngine(database)) as durable:
        ids = [await begun(engine, wall_clock(), f"{n}", ends_as="done") for n in range(2)]
        await durable.forget("0")
        assert [await stored(engine, id) for id in ids] == [(0, 0), (1, 1)]
        await durable.forget(older_s=-5.0)
        assert places(database) == {}


def deleted(url: str) -> int:
    with asking(url) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        query = "SELECT coalesce(sum(n_tup_del), 0) FROM pg_stat_user_tables WHERE relname ~ '^jm_(steps|signals)'"
        return int(connection.execute(query.encode()).fetchall()[0][0])


async def stored_anew(url: str, id: str) -> tuple[int, int]:
    engine = await opened(url)
    try:
        return await stored(engine, id)
    finally:
        await engine.close()
