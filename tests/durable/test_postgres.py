"""What holds of durable runs in Postgres beside what holds of every engine: its tables, its rights, its absence."""

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from journeyman import Agent, Success, tool
from journeyman.durable import Durable, PostgresEngine
from journeyman.durable.engine import Engine
from journeyman.durable.records import BEGUN, MOST_BYTES, Change
from journeyman.errors import StoreError
from journeyman.inbox.signals import Signal
from journeyman.store.database import NOTICED, NUMBER, OUTCOME
from journeyman.testing.scripted import ScriptedModel, call
from tests.durable.processes import START, a_row, a_signal, a_step, claimed, found, opened, ready_ids
from tests.support.postgres import DeafSocket, PostgresServer


@pytest.fixture
async def engine(emptied: str) -> AsyncGenerator[PostgresEngine]:
    """An engine on empty tables."""
    made = await opened(emptied)
    yield made
    await made.close()


async def test_statements_are_not_prepared_where_the_url_says_so(emptied: str) -> None:
    engine = await opened(f"{emptied}&prepare_threshold=none")
    for n in range(9):
        await engine.add(a_row(f"run{n}"))
    count = "SELECT count(*) FROM pg_prepared_statements"
    prepared = await engine.connections.patiently(lambda connection: connection.execute(count))
    assert await prepared.fetchone() == (0,)
    await engine.close()


async def test_every_text_comes_back_also_with_what_postgres_refuses(engine: PostgresEngine) -> None:
    odd = "a\0b␛0c␛\0'\"%s {} \\ é🎉"
    row = a_row("a", name=odd, app=odd, queue=odd, dedup=odd, agent="clerk", parent=odd, why=odd)
    assert await engine.add(row) == row
    assert await found(engine, odd) == row
    assert await ready_ids(engine, queues=(odd,)) == ["a"]
    assert await ready_ids(engine) == ["a"]
    [listed] = await engine.rows(prefix=odd[:5])
    assert (listed.name, listed.parent, listed.queue, listed.why) == (odd, odd, odd, odd)
    claim = await claimed(engine, "a", at_once=1)
    step = a_step("a", f"attempt/1/iteration/1/call/{odd}", None, state=BEGUN)
    assert await engine.write(claim, step) == "written"
    assert await engine.write(claim, step) == "taken"
    assert await engine.records("a") == [step]
    said = a_signal("a", "steer", odd, text=odd)
    assert await engine.signal(said) == "taken"
    assert await engine.signal(said) == "known"
    assert [each._replace(n=0) for each in await engine.signals(run="a")] == [said]


async def test_what_cannot_be_encoded_is_told_and_nothing_is_written(engine: PostgresEngine) -> None:
    with pytest.raises(StoreError, match="surrogates not allowed"):
        await engine.add(a_row("a", queue="\ud800"))
    with pytest.raises(StoreError, match="out of range"):
        await engine.add(a_row("a", priority=1 << 70))
    assert await engine.rows() == []


async def test_a_body_of_the_greatest_length_comes_back(engine: PostgresEngine) -> None:
    # K23
    await engine.add(a_row("a"))
    claim = await claimed(engine, "a")
    step = a_step("a", "attempt/1/iteration/1/model")._replace(body=bytes(range(256)) * (MOST_BYTES // 256))
    assert await engine.write(claim, step) == "written"
    assert await engine.records("a") == [step]


async def test_who_reads_signals_as_they_come_misses_none_however_many_write_at_once(emptied: str) -> None:
    writers, reader = [await opened(emptied) for _ in range(3)], await opened(emptied)
    for n in range(12):
        await reader.add(a_row(f"run{n}"))
    seen: list[Signal] = []
    said = [(writer, a_signal(f"run{n}", dedup=str(k))) for k, writer in enumerate(writers * 5) for n in range(12)]
    writing = asyncio.gather(*[writer.signal(each) for writer, each in said])
    while len(seen) < len(said):
        is_last = writing.done()
        seen += await reader.signals(after=seen[-1].n if seen else 0)
        assert not is_last or len(seen) == len(said), "each was stored before this was asked"
    assert await writing == ["taken"] * len(said)
    assert (await found(reader, "run0")).n_signals == 15
    for each in (*writers, reader):
        await each.close()


async def test_claims_that_wait_for_their_turn_in_a_queue_hold_up_nothing_else(
    engine: PostgresEngine, emptied: str
) -> None:
    for n in range(6):
        await engine.add(a_row(f"r{n}", queue="q"))
    claim = await claimed(engine, "r0")
    async with await psycopg.AsyncConnection.connect(emptied) as another:
        await another.execute("SELECT pg_advisory_xact_lock(hashtextextended('journeyman queue q', 0))")
        claiming = [asyncio.create_task(engine.claim(f"r{n}", now=START, at_once=9)) for n in range(1, 6)]
        async with asyncio.timeout(30):
            for n in range(20):
                assert await engine.write(claim, a_step("r0", f"step{n}")) == "written"
        assert not any(each.done() for each in claiming)
    assert all(await asyncio.gather(*claiming))


async def test_a_run_goes_on_when_the_database_was_stopped_in_the_middle(
    postgres: PostgresServer, emptied: str
) -> None:
    n_stops = 0

    @tool(effect="once")
    async def stop() -> str:
        """Stop the database."""
        nonlocal n_stops
        n_stops += 1
        postgres.restart()
        return "stopped"

    agent = Agent(name="clerk", model=ScriptedModel([call("stop"), call("stop"), "Done."]), tools=[stop])
    async with Durable(emptied) as durable:
        assert isinstance(await durable.run(agent, "Go.", id="run"), Success)
        assert [each.key for each in await (await durable.get("run")).records()][-1] == "end"
    assert n_stops == 2


async def test_steps_that_the_database_has_lost_are_written_again(
    engine: PostgresEngine, postgres: PostgresServer, emptied: str
) -> None:
    await engine.add(a_row("a"))
    claim = await claimed(engine, "a")
    steps = [a_step("a", f"attempt/1/iteration/{n}/model") for n in range(3)]
    for each in steps:
        assert await engine.write(claim, each) == "written"
    with psycopg.connect(emptied, autocommit=True) as connection:
        connection.execute("DELETE FROM jm_steps WHERE key <> %s", (steps[0].key,))
    postgres.kill_connections("application_name = %s", f"journeyman {engine.owner}")
    assert await engine.records("a") == steps


Work = Callable[[Engine, str], Awaitable[object]]


async def _claim(engine: Engine, id: str) -> object:
    return (await claimed(engine, id, at_once=9)).epoch


async def _write(engine: Engine, id: str) -> object:
    return await engine.write(await claimed(engine, id), a_step(id, "prompt", None, state=BEGUN), is_synced=True)


async def _send(engine: Engine, id: str) -> object:
    sent = a_step(id, "prompt", None, state=BEGUN)
    return await engine.write(
        await claimed(engine, id), sent, starts=a_row(f"{id}-b"), posts=a_signal("other")._replace(dedup=id)
    )


async def _settle(engine: Engine, id: str) -> object:
    change = Change(status="waiting", wake=START + 9)
    return await engine.settle(await claimed(engine, id), change, now=START, n_signals=0)


async def _add(engine: Engine, id: str) -> object:
    return (await engine.add(a_row(f"{id}-b", name=f"{id}-b"), [a_step(f"{id}-b", "prompt")])).name


WORKS: dict[str, tuple[Work, object]] = {
    "claim": (_claim, 1),
    "write": (_write, "written"),
    "write with others": (_send, "written"),
    "settle": (_settle, True),
    "signal": (lambda engine, id: engine.signal(a_signal(id)), "taken"),
    "add": (_add, "a-b"),
}


@pytest.mark.share(one_in=7)
@pytest.mark.parametrize("lost", range(12))
@pytest.mark.parametrize("loses_question", [False, True], ids=["answer", "question"])
@pytest.mark.parametrize("name", WORKS)
async def test_a_lost_answer_changes_nothing(
    postgres: PostgresServer, emptied: str, name: str, lost: int, *, loses_question: bool
) -> None:
    # K22: what was done is done once, and is not taken for another's
    work, expected = WORKS[name]
    async with DeafSocket(postgres, str(conninfo_to_dict(emptied)["dbname"])) as between:
        engine = await opened(between.url)
        await engine.add(a_row("a"))
        await engine.add(a_row("other"))
        between.loses_question = loses_question
        between.swallow(lost)
        assert await work(engine, "a") == expected
        assert between.n_swallowed == (lost < between.n_heard)
        between.swallow(None)
        row = await found(engine, "a")
        assert row.lives == (name not in ("signal", "add"))
        told = {"signal": "a", "write with others": "other"}.get(name)
        assert [each.run for each in await engine.signals()] == ([] if told is None else [told])
        assert row.n_signals == (name == "signal")
        assert (await engine.get("a-b") is not None) == (name in ("write with others", "add"))
        assert len(await engine.records("a-b")) == (name == "add")
        await engine.close()


async def test_a_run_that_was_given_back_stays_so_although_another_has_it_before_the_lost_answer_is_missed(
    postgres: PostgresServer, emptied: str
) -> None:
    # K22: a row tells only what the last change was
    async with DeafSocket(postgres, str(conninfo_to_dict(emptied)["dbname"])) as between:
        engine, other = await opened(between.url), await opened(emptied)
        for id in ("a", "b"):
            await engine.add(a_row(id))
        claims = [await claimed(engine, id) for id in ("a", "b")]
        between.swallow(99)
        assert await engine.settle(claims[0], Change(status="ready"), now=START)
        between.when_lost = lambda: claimed(other, "b")
        between.swallow(between.n_heard - 1)
        assert await engine.settle(claims[1], Change(status="ready"), now=START)
        assert between.n_swallowed == 1
        assert (await found(other, "b")).owner == other.owner
        await engine.close()
        await other.close()


@pytest.mark.parametrize("name", ["claim", "settle", "signal", "write with others"])
async def test_what_a_database_that_was_started_again_cannot_tell_is_found_or_told(
    postgres: PostgresServer, emptied: str, name: str
) -> None:
    # K22
    work, expected = WORKS[name]
    async with DeafSocket(postgres, str(conninfo_to_dict(emptied)["dbname"])) as between:
        engine = await opened(between.url)
        for id in ("a", "b", "other"):
            await engine.add(a_row(id))
        between.swallow(99)
        assert await work(engine, "a") == expected
        between.when_lost = postgres.rename
        between.swallow(between.n_heard - 1)
        if name == "signal":
            with pytest.raises(StoreError, match=r"started again in the moment .* cannot tell whether"):
                await work(engine, "b")
        else:
            assert await work(engine, "b") == expected
        assert between.n_swallowed == 1
        between.swallow(None)
        row = await found(engine, "b")
        assert (row.lives, row.n_signals) == ((0, 1) if name == "signal" else (1, 0))
        told = ["a", "b"] if name == "write with others" else []
        assert [each.dedup for each in await engine.signals(run="other")] == told
        await engine.close()


@pytest.mark.parametrize("is_whole", [True, False], ids=["restart", "crash"])
def test_a_server_that_was_started_again_knows_only_what_does_not_hold(
    postgres: PostgresServer, emptied: str, *, is_whole: bool
) -> None:
    # K22: it gives a number again that it has lost, and then that number is somebody else's
    asked = f"SELECT {NUMBER}, server FROM ({NOTICED}) AS noticed(pid, server)".encode()
    with psycopg.connect(emptied, autocommit=True) as one, psycopg.connect(emptied, autocommit=True) as other:
        names = list[tuple[object, ...]]()
        for each, end in ((other, b"SELECT 1"), (one, b"ROLLBACK"), (one, b"COMMIT")):
            each.execute(b"BEGIN")
            names += each.execute(asked).fetchall()
            each.execute(b"SELECT pg_logical_emit_message(true, 'a', 'b')")  # an end of nothing is not on the disk
            each.execute(end)
        outcomes = [one.execute(OUTCOME.encode(), each).fetchall() for each in names]
        assert outcomes == [[("in progress",)], [("aborted",)], [("committed",)]]
        postgres.restart() if is_whole else postgres.crash(other.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            other.execute(b"SELECT 1")
    with psycopg.connect(emptied, autocommit=True) as again:
        outcomes = [again.execute(OUTCOME.encode(), each).fetchall() for each in names]
        assert outcomes == [[("aborted",)], [("aborted",)], [(None,)]]
        assert again.execute(OUTCOME.encode(), ("999999999", names[0][1])).fetchall() == [("aborted",)]


async def test_a_connection_that_is_half_open_keeps_nobody_waiting(postgres: PostgresServer, emptied: str) -> None:
    async with DeafSocket(postgres, str(conninfo_to_dict(emptied)["dbname"])) as between:
        between.stays_open = True
        engine = PostgresEngine(between.url, grace_s=0.0, answer_s=1.0)
        await engine.open()
        await engine.add(a_row("a"))
        between.swallow(0)
        with pytest.raises(StoreError, match=r"has not answered within 1 s\..*what it waits for") as late:
            await engine.add(a_row("b"))
        assert late.value.may_pass
        between.swallow(None)
        await engine.add(a_row("b"))
        assert {each.id for each in await engine.rows()} == {"a", "b"}
        await engine.close()


async def test_an_engine_that_is_closed_while_it_connects_again_leaves_no_connection_and_no_lock(
    postgres: PostgresServer, emptied: str
) -> None:
    gc.collect()
    gc.freeze()  # below, only what is made here is looked through
    async with DeafSocket(postgres, str(conninfo_to_dict(emptied)["dbname"])) as between:
        for n_heard in range(6):
            engine = await opened(between.url)
            name = f"journeyman {engine.owner}"
            postgres.kill_connections("application_name = %s", name)
            between.swallow(None)
            asking = asyncio.create_task(engine.rows())
            while between.n_heard < n_heard:  # noqa: ASYNC110 - it has no event for each answer
                await asyncio.sleep(0)
            await engine.close()
            await asyncio.wait({asking})
            assert isinstance(asking.exception(), StoreError | None)
            del asking
            gc.collect()  # an error of a connection that was not made yet holds what there is of it
            async with asyncio.timeout(30):
                while postgres.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", name):  # noqa: ASYNC110
                    await asyncio.sleep(0.001)


async def test_a_process_that_is_killed_loses_its_runs_and_one_that_is_stopped_keeps_them(
    engine: PostgresEngine, emptied: str
) -> None:
    program = f"""
import asyncio
from tests.durable.processes import a_row, claimed, opened

async def main():
    engine = await opened({emptied!r})
    await engine.add(a_row("a"))
    await claimed(engine, "a")
    print("claimed", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"claimed\n"
    process.send_signal(signal.SIGSTOP)
    assert await ready_ids(engine) == []
    process.kill()
    await process.wait()
    async with asyncio.timeout(30):
        while not await ready_ids(engine):
            pass
    assert (await claimed(engine, "a")).epoch == 2


async def test_nobody_is_taken_for_dead_just_after_the_database_was_started(
    postgres: PostgresServer, emptied: str
) -> None:
    left, right = await opened(emptied), PostgresEngine(emptied, grace_s=3600.0)
    await right.open()
    await left.add(a_row("a"))
    await claimed(left, "a")
    await left.close()
    assert await ready_ids(right) == []
    assert await right.claim("a", now=START) is None
    assert (await claimed(right, "a", steal=True)).epoch == 2
    await right.close()


async def test_one_that_was_closed_says_so(engine: PostgresEngine) -> None:
    await engine.close()
    assert not engine.has_news()
    with pytest.raises(StoreError, match="was closed"):
        await engine.rows()
