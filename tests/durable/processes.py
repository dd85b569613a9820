"""Several processes on one store, inside one: each has an engine of its own, and may die, or fail at one of its calls.

The tests that use it run once for each engine that there is: what holds for one holds for all of them.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pytest

from journeyman import Agent, Result
from journeyman.durable.dispatch import Tickets
from journeyman.durable.durable import Durable
from journeyman.durable.engine import Engine
from journeyman.durable.memory import InMemoryEngine, Memory
from journeyman.durable.postgres.engine import PostgresEngine
from journeyman.durable.records import DONE, Claim, Record, Row, StepState, pack_step, record_of_step
from journeyman.durable.sqlite import SqliteEngine
from journeyman.errors import StoreError
from journeyman.inbox.signals import Signal, SignalKind
from journeyman.step import RunStep
from journeyman.store import StoredSession
from tests.play import existing
from tests.support.clock import VirtualClock
from tests.support.postgres import PostgresServer

T = TypeVar("T")

OF_THE_ENGINES: Final = ("test_engines.py", "test_signals.py", "test_contracts.py")
"""What they say, each engine has to do by itself; all else stands on that."""
IN_POSTGRES: Final = pytest.param("postgres", marks=pytest.mark.seldom(one_in=3, but=OF_THE_ENGINES))
"""The turn of a test in a database, as the parameter of a fixture."""

START = 1_800_000_000.0
"""The wall clock when the clock of the event loop is at 0, in seconds since 1970."""


async def at_once(_: str) -> None:
    """Do nothing around a call of an engine."""


_Base = InMemoryEngine if TYPE_CHECKING else object
"""For whoever looks at the types: all that the port has is passed on to an engine."""


class Process(_Base):
    """The engine of one process. Once that is dead, nothing reaches the store any more."""

    def __init__(self, engine: Engine, *, die: Callable[[str], None]) -> None:
        self.engine = engine
        self.owner = engine.owner
        self.tickets: Tickets | None = None
        """What brings runs to the workers of this process; None: they ask for what is ready."""
        self.before: Callable[[str], Awaitable[None]] = at_once
        """Awaited before each call, with its name: it may take a while, or raise."""
        self.after: Callable[[str], Awaitable[None]] = at_once
        """Awaited after each call, when what it does is done: it may raise, too."""
        self.calls = Counter[str]()
        self.opened_sessions: list[StoredSession] = []
        """The sessions that were opened in this process. With it, their locks go."""
        self.is_open = False
        self.is_dead = False
        self._die = die

    def kill(self) -> None:
        """Let the process be dead, in the middle of whatever it does."""
        if self.is_dead:
            return
        self.is_dead = True
        self._die(self.owner)
        for session in self.opened_sessions:
            session.close()

    async def call(self, work: Callable[[], Awaitable[T]], name: str) -> T:
        """Ask the engine, which is called `name`, while the process lives."""
        if self.is_dead:
            raise asyncio.CancelledError
        self.calls[name] += 1
        await self.before(name)
        done = await work()
        await self.after(name)
        if self.is_dead:
            raise asyncio.CancelledError
        return done

    async def open(self) -> None:
        await self.engine.open()
        self.is_open = True

    async def close(self) -> None:
        if not self.is_dead:
            self.is_open = False
            await self.engine.close()

    def session(self, id: str | None, *, agent: str, any_agent: bool, create: bool) -> StoredSession:
        session = self.engine.session(id, agent=agent, any_agent=any_agent, create=create)
        self.opened_sessions.append(session)
        return session

    def listen(self, wake: Callable[[], None]) -> None:
        """Nobody tells: the tests look."""

    def has_news(self) -> bool:
        if self.is_dead:
            raise asyncio.CancelledError
        return self.engine.has_news()


def _passed_on(name: str) -> Callable[..., Awaitable[Any]]:
    async def ask(process: Process, *given: Any, **options: Any) -> Any:  # noqa: ANN401 - what the engine does
        return await process.call(lambda: getattr(process.engine, name)(*given, **options), name)

    return ask


for _name, _ in inspect.getmembers(Engine, inspect.iscoroutinefunction):
    if _name not in vars(Process):
        setattr(Process, _name, _passed_on(_name))


@dataclass(kw_only=True)
class Stage:
    """One store, and the processes that have had it open."""

    make: Callable[[], Engine]
    die: Callable[[str], None]
    """Makes an owner look dead to the others."""
    is_elsewhere: bool = False
    """True when another process answers for the store."""
    skipped_s: float = 0.0
    """How far the wall clock is before that of the event loop."""
    processes: list[Process] = field(default_factory=list[Process])

    def now(self) -> float:
        """Return the wall clock."""
        return START + self.skipped_s + asyncio.get_running_loop().time()

    def process(self) -> Process:
        """Begin a process, which has not opened the store yet."""
        process = Process(self.make(), die=self.die)
        self.processes.append(process)
        return process

    async def begin(self) -> Process:
        """Begin a process that has the store open."""
        process = self.process()
        await process.open()
        return process

    @asynccontextmanager
    async def durable(self, **options: Any) -> AsyncGenerator[Durable]:
        """Begin a process that uses the store as a program does."""
        async with Durable(self.process(), now=self.now, **options) as durable:
            yield durable

    async def life(
        self,
        agent: Agent[Any, Any],
        *,
        until: asyncio.Event | None = None,
        process: Process | None = None,
        suspend_after_s: float = 1e9,
        **options: Any,
    ) -> Result[Any] | None:
        """Let the run "run" live in a process of its own until it ends, or until the process dies: then None."""
        process = process or self.process()
        until = until or asyncio.Event()
        async with Durable(process, now=self.now, suspend_after_s=suspend_after_s) as durable:
            given: dict[str, Any] = {"id": "run", **options}
            living: asyncio.Task[Any] = asyncio.create_task(cast("Any", durable.run(agent, "Go.", **given)))
            dying = asyncio.create_task(until.wait())
            await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
            dying.cancel()
            await asyncio.wait({dying})
            if not living.done():
                process.kill()
                living.cancel()
                await asyncio.wait({living})
        return None if process.is_dead else living.result()

    def close(self) -> None:
        """Close what the processes have left open."""

        async def close() -> None:
            for process in self.processes:
                if process.is_open:
                    await process.engine.close()

        asyncio.run(close())


def in_memory() -> Stage:
    """Return a store in memory."""
    memory = Memory()
    return Stage(make=lambda: InMemoryEngine(memory), die=memory.owners.discard)


def in_file(path: Path) -> Stage:
    """Return a store in a file. A process is dead when its lock beside the file is gone."""
    return Stage(
        make=lambda: SqliteEngine(path), die=lambda owner: path.with_name(f"{path.name}-{owner}.lock").unlink()
    )


@contextmanager
def time_stands_still() -> Generator[None]:
    """Hold a virtual clock while another process, which knows nothing of it, is asked."""
    loop = asyncio.get_running_loop()
    clock = loop if isinstance(loop, VirtualClock) else None
    if clock is not None:
        clock.n_working += 1
    try:
        yield
    finally:
        if clock is not None:
            clock.n_working -= 1


class MortalPostgresEngine(PostgresEngine):
    """An engine whose process may die: then it makes no connection any more. Whoever asks it, time stands still."""

    is_dead = False

    async def open(self) -> None:
        connect, patiently = self.connections.client.connect, self.connections.patiently

        async def held(work: Callable[..., Awaitable[Any]], **options: bool) -> Any:  # noqa: ANN401 - whatever `work` returns
            with time_stands_still():
                return await patiently(work, **options)

        async def connected(*, is_direct: bool = False) -> Any:  # noqa: ANN401 - of the driver
            if self.is_dead:
                raise asyncio.CancelledError
            connection = await connect(is_direct=is_direct)
            if self.is_dead:
                connection.pgconn.finish()
                raise asyncio.CancelledError
            return connection

        self.connections.client.connect, self.connections.patiently = connected, held
        with time_stands_still():
            await super().open()


def in_postgres(server: PostgresServer, url: str) -> Stage:
    """Return a store in a database. A process is dead when its connections are gone."""
    engines: dict[str, MortalPostgresEngine] = {}

    def make() -> MortalPostgresEngine:
        engine = MortalPostgresEngine(url, grace_s=0.0)
        engines[engine.owner] = engine
        return engine

    def die(owner: str) -> None:
        engines[owner].is_dead = True
        server.kill_connections("application_name = %s", f"journeyman {owner}")

    return Stage(make=make, die=die, is_elsewhere=True)


def a_row(id: str, **fields: Any) -> Row:
    """Return a run that was started."""
    given: dict[str, Any] = {"name": None, "agent": "clerk", "head": b"{}", "created": START, "status": "ready"}
    given |= {"id": id, **fields}
    return Row(**given)


def a_step(
    run: str, key: str, value: bytes | None = b"1", *, epoch: int = 1, state: StepState = DONE, **fields: Any
) -> Record:
    """Return the record of a step: by its fields as they are given, and as those of a call in the first iteration."""
    facts = {name: fields.pop(name) for name in ("kind", "attempt", "iteration", "call") if name in fields}
    told: dict[str, Any] = {"kind": "call", "attempt": 1, "iteration": 1, **facts}
    step = RunStep(key=key, **told)
    given: dict[str, Any] = {"about": b"12345678", "effect": "pure", "at": START, "used_s": 0.5, **fields}
    body = None if value is None else pack_step(value, key=key)
    return record_of_step(Claim(a_row(run), epoch), step, state, body=body, **given)


def a_signal(run: str, kind: SignalKind = "steer", dedup: str = "1", **body: str) -> Signal:
    """Return a word to a run, which is not stored yet."""
    return Signal(0, run, kind, dedup, dict(body), START, "ann@host")


def a_cut() -> StoreError:
    """Return what an engine raises while its store cannot be reached."""
    return StoreError("The store cannot be reached.", hint="It may be again.", may_pass=True)


async def claimed(engine: Engine, id: str, **options: Any) -> Claim:
    """Claim a run that can be claimed."""
    given: dict[str, Any] = {"now": START, **options}
    return existing(await engine.claim(id, **given))


async def found(engine: Engine, id: str) -> Row:
    """Return a run that is there."""
    return existing(await engine.get(id))


async def heard(engine: Engine) -> bool:
    """Wait until an engine has news: from another process they come when they come."""
    async with asyncio.timeout(30):
        while not engine.has_news():  # noqa: ASYNC110 - the port is asked, and tells nobody
            await asyncio.sleep(0)
    return True


async def ready_ids(engine: Engine, *, now: float = START, queues: tuple[str, ...] = (), limit: int = 9) -> list[str]:
    """Return the runs of the agent of these tests that may be claimed."""
    return [row.id for row in await engine.ready(now=now, agents=["clerk"], queues=queues, limit=limit)]


async def opened(url: str) -> PostgresEngine:
    """Return an engine that is open at once."""
    engine = PostgresEngine(url, grace_s=0.0)
    await engine.open()
    return engine
