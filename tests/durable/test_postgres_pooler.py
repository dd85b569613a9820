"""Behind a pooler in transaction mode: nothing rests on a session, since the next transaction may be in another one."""

import asyncio
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

from journeyman import Agent, Runtime, Success
from journeyman.durable import Durable, PostgresEngine, Queue, Worker
from journeyman.gate import Allow, Ask
from journeyman.testing.scripted import FunctionModel
from tests.durable.worlds import World, do
from tests.play import following, make_gate
from tests.support.postgres import PostgresServer

_STATE = """
    SELECT 'setting ' || name || ' ' || setting FROM pg_settings WHERE source = 'session'
    UNION ALL SELECT 'statement ' || name FROM pg_prepared_statements
    UNION ALL SELECT 'channel ' || name FROM pg_listening_channels() AS name
    UNION ALL SELECT 'lock ' || locktype FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
    UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relpersistence = 't'
"""
"""All that a session can keep from one transaction to the next."""


ASKS_FOR_B = make_gate(lambda request: Ask("May it?") if request.arguments.get("what") == "B" else Allow())


async def everything_done(engine: PostgresEngine, asking: PostgresEngine) -> list[Any]:
    """Let a worker do what it can do: a queue with a limit, approvals, signals, the sweep, retention. Return what the
    sessions of the two keep."""
    world, stop = World(), asyncio.Event()
    model = following(do("once", "A"), do("once", "B"), "Done.")
    agent = Agent(name="clerk", model=model, tools=world.tools())
    async with Durable(engine, suspend_after_s=0.0) as durable, Durable(asking) as other:
        queues, runtime = {"batch": Queue(max_concurrency=1)}, Runtime(gate=ASKS_FOR_B)
        handles = [await other.start(agent, "Go.", queue="batch", runtime=runtime) for _ in range(2)]
        await handles[0].steer("Hurry.")  # before it begins: no call is skipped because of it
        working = asyncio.create_task(Worker(durable, agents=[agent], queues=queues, runtime=runtime).run(stop=stop))
        for each in handles:
            while not (questions := (await each.info()).pending):
                await other.hub.changed(0.2)
            await each.approve(questions[0].question_id, Allow())
        assert [type(await each.result()) for each in handles] == [Success, Success]
        quick = Agent(name="quick", model=FunctionModel(lambda _: "Done."))
        assert isinstance(await durable.run(quick, "Go."), Success)
        await engine.sweep(now=durable.hub.now())
        await durable.forget(handles[0].id)
        await durable.forget(older_s=86_400.0)
        stop.set()
        await working
        states = [await _state(each) for each in (engine, asking)]
    assert sorted(world.done) == ["A", "A", "B", "B"]
    return [each for state in states for each in state]


async def _state(engine: PostgresEngine) -> list[Any]:
    async def work(connection: Any) -> list[Any]:  # noqa: ANN401 - of the driver
        return await (await connection.execute(_STATE.encode())).fetchall()

    return await engine.connections.patiently(work)


async def test_no_state_of_a_session_is_used_from_one_transaction_to_the_next(emptied: str) -> None:
    engines = [PostgresEngine(f"{emptied}&prepare_threshold=none", grace_s=0.0) for _ in range(2)]
    assert await everything_done(*engines) == []


@pytest.fixture
def bouncer(postgres: PostgresServer, emptied: str) -> Iterator[str]:
    """The URL of a database behind PgBouncer in transaction mode, with two connections for everybody."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    folder = Path(mkdtemp(prefix="jmpb", dir="/tmp"))
    name = conninfo_to_dict(emptied)["dbname"]
    (folder / "users").write_text('"tests" ""\n')
    (folder / "settings").write_text(
        f"[databases]\n{name} = host={postgres.folder} port=5432 user=tests\n[pgbouncer]\npool_mode = transaction\n"
        f"listen_addr =\nunix_socket_dir = {folder}\nlisten_port = 6432\nauth_type = any\nauth_file = {folder}/users\n"
        "default_pool_size = 2\nlogfile =\n"
    )
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        process = stack.enter_context(
            subprocess.Popen([program, folder / "settings"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **user)
        )
        stack.callback(process.kill)
        assert process.stderr is not None
        for line in process.stderr:
            if b"process up" in line:
                break
        else:
            pytest.fail("pgbouncer did not start")
        direct = quote(f"{postgres.folder}:5432", safe="")
        yield (
            f"postgresql:///{name}?host={quote(str(folder))}&port=6432&user=tests"
            f"&prepare_threshold=none&direct={direct}"
        )


async def test_workers_behind_pgbouncer_do_all_that_they_do_without(bouncer: str) -> None:
    engines = [PostgresEngine(bouncer, grace_s=0.0) for _ in range(2)]
    await everything_done(*engines)  # what its sessions keep is its own
