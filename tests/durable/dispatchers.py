"""What is asked of the tables of each dispatcher in tests: its jobs, and what goes wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import TypeVar

from examples.dispatchers import pgqueuer_dispatcher
from examples.dispatchers.pgqueuer_dispatcher import PgQueuerDispatcher
from journeyman.durable import Dispatcher, PostgresEngine, schema_sql

if TYPE_CHECKING:
    from journeyman.store.client import Connection


E = TypeVar("E", bound=PostgresEngine, default=PostgresEngine)


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """The jobs of a dispatcher, as statements."""

    name: str
    schema: Callable[[], str]
    """Returns the statements that make its tables, and those of the runs."""
    make: Callable[[str, float], Dispatcher | None]
    """Makes the dispatcher for a database, with a lease of so many seconds."""
    serves_all_queues: bool
    """Whether a worker that names no queue serves all of them."""
    table: str
    run: str
    """The run of a job."""
    all: str
    """Returns the run, gen, priority and status of each job, in the order in which they were written."""
    again: str
    """Writes those of the table `kept` again."""
    silenced: tuple[str, ...]
    """From now on nobody hears that those who have jobs live."""
    fetched: tuple[str, ...]
    """All were brought to a worker that has died since."""
    older: str
    """Makes the tables those of an older version, which lacks `lacks`."""
    lacks: str

    def engine(self, url: str, *, kind: type[E] = PostgresEngine, **options: float) -> E:
        """Return an engine on a database whose runs it brings."""
        return kind(url, dispatcher=self.make(url, options.get("lease_s", 10.0)), **options)

    @property
    def kept(self) -> str:
        return f"CREATE TABLE kept AS SELECT * FROM {self.table}"

    def lost(self, but: str = "") -> str:
        """Loses all jobs but those of a run."""
        return f"DELETE FROM {self.table} WHERE {self.run} <> '{but}'"


PROCRASTINATE = Jobs(
    name="procrastinate",
    schema=schema_sql,
    make=lambda url, lease_s: None,
    serves_all_queues=True,
    table="procrastinate_jobs",
    run="args->>'run'",
    all="SELECT args->>'run', (args->>'gen')::int, priority, status::text FROM procrastinate_jobs ORDER BY id",
    again="INSERT INTO procrastinate_jobs (queue_name, task_name, args) SELECT queue_name, task_name, args FROM kept",
    silenced=("DELETE FROM procrastinate_workers",),
    fetched=(
        "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 min')",
        "SELECT procrastinate_fetch_job_v2(ARRAY(SELECT queue_name FROM procrastinate_jobs)::varchar[], max(id))"
        " FROM procrastinate_workers",
    ),
    older="DROP FUNCTION procrastinate_fetch_job_v2",
    lacks="without procrastinate_fetch_job_v2",
)
PGQUEUER = Jobs(
    name="pgqueuer",
    schema=lambda: f"{schema_sql()}{pgqueuer_dispatcher.schema()}",
    make=lambda url, lease_s: PgQueuerDispatcher(url, lease_s=lease_s),
    serves_all_queues=False,
    table="jm_pgqueuer",
    run="headers->>'run'",
    all="SELECT headers->>'run', (headers->>'gen')::int, priority,"
    " CASE status WHEN 'queued' THEN 'todo' WHEN 'picked' THEN 'doing' END FROM jm_pgqueuer ORDER BY id",
    again="INSERT INTO jm_pgqueuer (priority, status, entrypoint, headers)"
    " SELECT priority, 'queued', entrypoint, headers FROM kept",
    silenced=(
        "UPDATE jm_pgqueuer SET heartbeat = now() - interval '1 min'",
        "CREATE FUNCTION unheard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER unheard BEFORE UPDATE ON jm_pgqueuer FOR EACH ROW"
        " WHEN (OLD.queue_manager_id = NEW.queue_manager_id) EXECUTE FUNCTION unheard()",
    ),
    fetched=(
        "UPDATE jm_pgqueuer SET status = 'picked', queue_manager_id = gen_random_uuid(),"
        " heartbeat = now() - interval '1 min'",
    ),
    older="ALTER TABLE jm_pgqueuer DROP COLUMN slot",
    lacks="'slot' is missing in the 'jm_pgqueuer'",
)
DISPATCHERS = (PROCRASTINATE, PGQUEUER)


async def asked_of(engine: PostgresEngine, *queries: str) -> list[tuple[Any, ...]]:
    """Do something in the database, and return what the last statement returns."""

    async def work(connection: Connection) -> list[tuple[Any, ...]]:
        for query in queries[:-1]:
            await connection.execute(query.encode())
        done = await connection.execute(queries[-1].encode())
        return await done.fetchall() if done.description else []

    return await engine.connections.patiently(work)
