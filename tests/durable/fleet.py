"""Three workers on one database: one is killed, one is stopped past its lease, and the database is restarted.

`python -m tests.durable.fleet --jobs 200 --dispatcher pgqueuer` prints what came of it as JSON, and what is wrong. Each
worker is a fork.
What a call does is a line in a file: whatever dies, that is seen.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psycopg

from journeyman import Agent, tool
from journeyman.durable import Durable, PostgresEngine, RunHandle, Worker
from journeyman.errors import StoreError
from journeyman.gate import Allow, Ask, GateRequest, Verdict
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, call
from tests.durable.dispatchers import DISPATCHERS, Jobs
from tests.play import make_gate, n_answers
from tests.support.postgres import NoPostgres, PostgresServer

LEASE_S = 2.0
LONGEST_S = 100
_CALLS = ("first", "second", "third")


def _text(request: Request) -> str:
    block = request.messages[0].content[0]
    return block.text if block.type == "text" else ""


def _answer(request: Request) -> Answer:
    number = n_answers(request)
    if number == len(_CALLS):
        return "Done."
    effect = "idempotent" if _CALLS[number] == "second" else "once"
    return call(effect, what=f"{_text(request)} {_CALLS[number]}", id=_CALLS[number])


def _ask_for_the_third(request: GateRequest) -> Verdict:
    """Ask about the last call of every third job."""
    job, _, name = str(request.arguments.get("what")).partition(" ")
    return Ask("May it?") if name == "third" and int(job) % 3 == 0 else Allow()


def clerk(log: Path, seed: int) -> Agent[str, str]:
    """Return an agent whose calls note in the log that they take effect."""
    random, number = Random(seed), os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    async def do(what: str) -> str:
        await asyncio.sleep(random.uniform(0, 0.05))
        os.write(number, f"{what}\n".encode())
        await asyncio.sleep(random.uniform(0, 0.05))
        return f"did {what}"

    @tool(effect="once")
    async def once(what: str) -> str:
        """Do it."""
        return await do(what)

    @tool(effect="idempotent")
    async def idempotent(what: str) -> str:
        """Do it."""
        return await do(what)

    return Agent(
        name="clerk", model=FunctionModel(_answer), tools=[once, idempotent], gate=make_gate(_ask_for_the_third)
    )


@dataclass(kw_only=True)
class Fleet:
    """The workers, and what becomes of their jobs."""

    server: PostgresServer
    url: str
    folder: Path
    seed: int
    jobs: Jobs
    pids: list[int] = field(default_factory=list[int])
    lives: Counter[int] = field(default_factory=Counter[int])
    """How many jobs had so many lives."""

    def engine(self) -> PostgresEngine:
        return self.jobs.engine(self.url, lease_s=LEASE_S, grace_s=LEASE_S)

    def begin(self) -> None:
        """Begin another worker, in a process of its own."""
        number, child = len(self.pids) + 1, os.fork()
        if child:
            self.pids.append(child)
            return
        status = 1
        try:
            os.dup2(os.open(self.folder / f"worker{number}", os.O_APPEND | os.O_CREAT | os.O_WRONLY), 2)
            logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
            asyncio.run(self._work(number))
            status = 0
        except BaseException:  # noqa: BLE001 - told to whoever reads its file
            traceback.print_exc()
        finally:
            os._exit(status)

    async def _work(self, number: int) -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        async with Durable(self.engine(), suspend_after_s=0.1) as durable:
            agent = clerk(self.folder / "effects", self.seed + number)
            await Worker(durable, agents=[agent], max_concurrency=4).run(stop=stop, grace_s=10)

    async def live(self, n_jobs: int) -> list[str]:
        """Start the jobs, let happen what happens, and return what is wrong when all have ended."""
        async with Durable(self.engine()) as durable:
            agent = clerk(self.folder / "effects", self.seed)
            handles = [await durable.start(agent, f"{n}", id=f"{n}") for n in range(n_jobs)]
            approving = asyncio.create_task(self._approve(durable))
            await self._done(n_jobs)
            os.kill(self.pids[0], signal.SIGKILL)
            await self._done(2 * n_jobs)
            os.kill(self.pids[1], signal.SIGSTOP)
            stopped_s = time.monotonic()
            self.server.restart()
            async with asyncio.timeout(LONGEST_S):
                await asyncio.sleep(stopped_s + 1.5 * LEASE_S - time.monotonic())  # what is tested is time that passes
                os.kill(self.pids[1], signal.SIGCONT)
                for handle in handles:
                    await self._patient(handle)
            approving.cancel()
            return await self._faults(handles)

    async def _done(self, at_least: int) -> None:
        """Wait until so many calls have taken effect, or nearly all."""
        log, until = self.folder / "effects", time.monotonic() + 20
        while len(log.read_text().splitlines()) < at_least * 0.9 and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def _approve(self, durable: Durable) -> None:
        while True:
            try:
                for info in await durable.list(statuses=["waiting"], limit=20):
                    handle = await durable.get(info.id)
                    for question in info.pending:
                        await handle.approve(question.question_id, Allow())
            except (StoreError, LookupError) as error:  # it is away; or the answer was stored, and only the row is old
                logging.getLogger("fleet").debug("%s", error)
            await asyncio.sleep(0.1)

    async def _patient(self, handle: RunHandle[str]) -> None:
        while True:
            try:
                await handle.result()
                return
            except StoreError:
                await asyncio.sleep(0.1)

    async def _faults(self, handles: Sequence[RunHandle[str]]) -> list[str]:
        effects = Counter((self.folder / "effects").read_text().splitlines())
        found = [f"{what!r} took effect {n} times" for what, n in effects.items() if n > 1 and "second" not in what]
        for number, handle in enumerate(handles):
            self.lives[(await handle.info()).leases] += 1
            history = (await handle.result()).history
            told = [each.text for message in history for each in message.content if each.type == "tool_result"]
            if len(told) != len(_CALLS):
                found.append(f"the job {number} has {len(told)} answers")
            for name, text in zip(_CALLS, told, strict=False):
                what = f"{number} {name}"
                if "whether" in text and name == "second":
                    found.append(f"{what!r} was told as unknown")
                if not effects[what] and "whether" not in text:
                    found.append(f"{what!r} was not done, and is told as {text!r}")
        return found

    def end(self) -> list[str]:
        """Tell the workers to stop, and return what is wrong with how they did."""
        left = self.pids[1:]
        for pid in left:
            os.kill(pid, signal.SIGTERM)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in left]
        os.waitpid(self.pids[0], 0)
        self.pids.clear()
        return [f"a worker ended with {code}" for code in codes if code]

    def left(self) -> list[str]:
        """Return what is wrong with the jobs of the dispatcher: none should be left."""
        with psycopg.connect(self.url) as connection:
            jobs = connection.execute(self.jobs.all.encode()).fetchall()
        return [f"the job {job} is left" for job in jobs]

    def kill(self) -> None:
        """Let nothing live on."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main() -> int:
    """Do what the arguments say, and print how it went; the exit code tells whether anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.durable.fleet")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--dispatcher", choices=[each.name for each in DISPATCHERS], default="procrastinate")
    parser.add_argument("--logs", action="store_true", help="show what the workers have said")
    given = parser.parse_args()
    try:
        server = PostgresServer()
    except NoPostgres as error:
        print(f"skipped: no Postgres can be had: {error}")  # noqa: T201 - a program
        return 3
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="journeyman-fleet-") as name:
        jobs = next(each for each in DISPATCHERS if each.name == given.dispatcher)
        url = server.url(server.database(jobs.schema()))
        fleet = Fleet(server=server, url=url, folder=Path(name), seed=given.seed, jobs=jobs)
        (fleet.folder / "effects").touch()
        try:
            for _ in range(3):
                fleet.begin()
            found = asyncio.run(fleet.live(given.jobs))
            found += fleet.end()
        except Exception:  # noqa: BLE001 - it is printed
            found = [traceback.format_exc()]
        finally:
            fleet.kill()
        found += fleet.left()
        if found or given.logs:
            for each in sorted(fleet.folder.glob("worker*")):
                print(f"-- {each.name}", each.read_text()[-3000:], sep="\n")  # noqa: T201
        server.stop()
    took_s = round(time.monotonic() - began_s, 1)
    report = {"dispatcher": given.dispatcher, "seed": given.seed, "jobs": given.jobs, "seconds": took_s}
    print(json.dumps({**report, "lives": fleet.lives, "wrong": found}))  # noqa: T201
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
