"""Workers in processes of their own do the runs of a crew and of a team on one database, and one of them is killed.

`python -m tests.durable.crew` prints what came of it as JSON, and what is wrong. What a call does is a line in a file.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from journeyman import Agent, Subagents, tool
from journeyman.durable import Durable, Worker, schema_sql
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, call
from tests.durable.test_background import leads, sends
from tests.durable.test_teams import leader
from tests.support.postgres import NoPostgres, PostgresServer

LONGEST_S = 60
_N_BELOW = 4


def crew(log: Path) -> Agent[str, str]:
    """Return an agent that sends out others, whose calls take a while and note that they take effect."""

    @tool(effect="once")
    async def do(what: str) -> str:
        """Do it."""
        with log.open("a") as file:
            file.write(f"{what}\n")
        await asyncio.sleep(0.5)
        return f"did {what}"

    def made(name: str) -> Agent[str, str]:
        def answer(request: Request) -> Answer:
            at = sum([message.role == "assistant" for message in request.messages])
            return call("do", what=f"{name}.{at}", id=f"{at}") if at < 3 else "Done."

        return Agent(name=name, description="Does.", model=FunctionModel(answer), tools=[do])

    below = [made(f"below{number}") for number in range(_N_BELOW)]
    return Agent(name="crew", model=leads(answers=[sends(*below), "They work."]), tools=[Subagents(*below)])


def worker(url: str, log: Path) -> int:
    """Begin a worker in a process of its own."""
    child = os.fork()
    if child:
        return child
    try:
        asyncio.run(_work(url, log))
    except BaseException:  # noqa: BLE001 - told to whoever reads its words
        traceback.print_exc()
    finally:
        os._exit(1)


async def _work(url: str, log: Path) -> None:
    async with Durable(url, suspend_after_s=0.05) as durable:
        await Worker(durable, agents=[crew(log), leader()], max_concurrency=3).run()


async def live(url: str, log: Path, pids: list[int]) -> dict[str, Any]:
    """Start a crew and teams, kill a worker in the middle, and return what came of them."""
    async with Durable(url) as durable:
        handles = [await durable.start(crew(log), "Go.", id="crew")]
        handles += [await durable.start(leader(), "Find it.", id=f"team{number}") for number in range(5)]
        async with asyncio.timeout(LONGEST_S):
            while len(log.read_text().splitlines()) < 3:  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.02)
            os.kill(pids[0], signal.SIGKILL)
            outputs = [str((await handle.result()).unwrap()) for handle in handles]
            runs = await durable.list(limit=200)
            lives = Counter(run.leases for run in runs if run.agent != "crew")
    effects = Counter(log.read_text().splitlines())
    wrong = [f"{what} took effect {n} times" for what, n in effects.items() if n > 1]
    expected = "Heard of " + ", ".join(f"below{number}" for number in range(_N_BELOW)) + "."
    wrong += [] if outputs[0] == expected else [f"the crew said {outputs[0]!r}"]
    wrong += [f"a team said {each!r}" for each in outputs[1:] if "ada: bob found gold." not in each]
    return {"runs": len(runs), "effects": len(effects), "lives": lives, "wrong": wrong}


def main() -> int:
    """Do it once; the exit code tells whether anything was wrong."""
    try:
        server = PostgresServer()
    except NoPostgres as error:
        print(f"skipped: no Postgres can be had: {error}")  # noqa: T201 - a program
        return 3
    with tempfile.TemporaryDirectory(prefix="journeyman-crew-") as name:
        log, url = Path(name) / "effects", server.url(server.database(schema_sql()))
        log.touch()
        pids = [worker(url, log), worker(url, log)]
        try:
            report = asyncio.run(live(url, log, pids))
        except Exception:  # noqa: BLE001 - it is printed
            report = {"wrong": [traceback.format_exc()]}
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        server.stop()
    print(json.dumps(report))  # noqa: T201
    return bool(report["wrong"])


if __name__ == "__main__":
    sys.exit(main())
