"""A Postgres database: what its URL says, the tables there, and in words what goes wrong with it.

One version counts for all tables, those of sessions and those of durable runs. Whoever opens the database first makes
them, or adds what an older version lacks.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import reduce
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from journeyman.errors import StoreError, quoted
from journeyman.narrowing import is_list
from journeyman.store import recordings

SCHEMES: Final = ("postgresql", "postgres")
VERSION: Final = 3
"""The version of the tables. Those of a newer version are not touched; version 1 had none of sessions or queues, and
version 2 kept all steps in one table, and all signals."""
# The first with `pg_current_xact_id`, which tells what became of a lost answer.
OLDEST_SERVER: Final = 130000
# Names and ids are compared by bytes (COLLATE "C"): other orders neither find a beginning by a range nor agree between
# machines. Steps and signals lie in a table for each day, since to drop a table costs nothing and to delete a million
# rows does. A fifth of dead rows, as Postgres waits for by itself, would be too many in a table whose rows change all
# the time.
TABLES: Final = """
CREATE TABLE IF NOT EXISTS jm_version (version INT NOT NULL);
ALTER TABLE jm_version ADD COLUMN IF NOT EXISTS swept TIMESTAMPTZ;
CREATE TABLE IF NOT EXISTS jm_runs (
    id TEXT COLLATE "C" PRIMARY KEY, name TEXT COLLATE "C" UNIQUE, parent TEXT, agent TEXT COLLATE "C" NOT NULL,
    app TEXT NOT NULL, f INT NOT NULL, head BYTEA NOT NULL, queue TEXT COLLATE "C" NOT NULL, priority BIGINT NOT NULL,
    dedup TEXT COLLATE "C", created FLOAT8 NOT NULL, status TEXT COLLATE "C" NOT NULL, owner TEXT COLLATE "C",
    gen BIGINT NOT NULL, epoch BIGINT NOT NULL, wake FLOAT8, n_signals BIGINT NOT NULL, asked BYTEA,
    used_s FLOAT8 NOT NULL, tokens BIGINT NOT NULL, cost FLOAT8 NOT NULL, attempt BIGINT NOT NULL,
    iteration BIGINT NOT NULL, lives BIGINT NOT NULL, deaths BIGINT NOT NULL, n_steps BIGINT NOT NULL, why TEXT,
    result BYTEA, ended FLOAT8) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01);
CREATE UNIQUE INDEX IF NOT EXISTS jm_runs_of_a_dedup ON jm_runs (agent, dedup) WHERE dedup IS NOT NULL;
CREATE INDEX IF NOT EXISTS jm_runs_ready ON jm_runs (agent, queue, priority DESC, created, id) WHERE status = 'ready';
CREATE INDEX IF NOT EXISTS jm_runs_running ON jm_runs (queue, owner) WHERE status = 'running';
CREATE INDEX IF NOT EXISTS jm_runs_waiting ON jm_runs (wake) WHERE status = 'waiting' AND wake IS NOT NULL;
CREATE INDEX IF NOT EXISTS jm_runs_by_age ON jm_runs (created, id);
DO $$ BEGIN
IF EXISTS (SELECT FROM pg_class WHERE oid = to_regclass('jm_steps') AND relkind = 'r') THEN
    LOCK TABLE jm_steps, jm_signals IN ACCESS EXCLUSIVE MODE;
    ALTER TABLE jm_steps RENAME TO jm_steps_before;
    ALTER INDEX jm_steps_pkey RENAME TO jm_steps_before_pkey;
    ALTER SEQUENCE jm_steps_n_seq OWNED BY NONE;
    ALTER TABLE jm_signals RENAME TO jm_signals_before;
    ALTER TABLE jm_signals_before DROP CONSTRAINT jm_signals_pkey;
    ALTER INDEX jm_signals_run_kind_dedup_key RENAME TO jm_signals_before_run_kind_dedup_key;
    ALTER SEQUENCE jm_signals_n_seq OWNED BY NONE;
END IF; END $$;
CREATE SEQUENCE IF NOT EXISTS jm_steps_n_seq;
CREATE TABLE IF NOT EXISTS jm_steps (
    n BIGINT NOT NULL DEFAULT nextval('jm_steps_n_seq'), run TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL,
    kind SMALLINT NOT NULL, about BYTEA, effect TEXT NOT NULL, epoch BIGINT NOT NULL, at FLOAT8 NOT NULL,
    used_s FLOAT8 NOT NULL, body BYTEA, crc BIGINT NOT NULL, PRIMARY KEY (run, key, kind)) PARTITION BY RANGE (run);
ALTER SEQUENCE jm_steps_n_seq OWNED BY jm_steps.n;
CREATE TABLE IF NOT EXISTS jm_steps_default PARTITION OF jm_steps DEFAULT WITH (autovacuum_vacuum_scale_factor = 0.01);
CREATE SEQUENCE IF NOT EXISTS jm_signals_n_seq;
CREATE TABLE IF NOT EXISTS jm_signals (
    n BIGINT NOT NULL DEFAULT nextval('jm_signals_n_seq'), run TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL, dedup TEXT COLLATE "C" NOT NULL, body BYTEA NOT NULL, at FLOAT8 NOT NULL,
    who TEXT NOT NULL, UNIQUE (run, kind, dedup)) PARTITION BY RANGE (run);
ALTER SEQUENCE jm_signals_n_seq OWNED BY jm_signals.n;
CREATE INDEX IF NOT EXISTS jm_signals_by_n ON jm_signals (n);
CREATE TABLE IF NOT EXISTS jm_signals_default PARTITION OF jm_signals DEFAULT
    WITH (autovacuum_vacuum_scale_factor = 0.01);
DO $$ DECLARE
    midnight TIMESTAMP := date_trunc('day', now() AT TIME ZONE 'UTC') + interval '1 day';
    digits TEXT := lpad(to_hex((extract(epoch FROM midnight) * 1000)::bigint), 12, '0');
    tomorrow TEXT := substr(digits, 1, 8) || '-' || substr(digits, 9);
BEGIN
IF EXISTS (SELECT FROM pg_class WHERE oid = to_regclass('jm_steps_before') AND NOT relispartition) THEN
    INSERT INTO jm_steps SELECT * FROM jm_steps_before WHERE run >= tomorrow;
    DELETE FROM jm_steps_before WHERE run >= tomorrow;
    EXECUTE format(
        'ALTER TABLE jm_steps ATTACH PARTITION jm_steps_before FOR VALUES FROM (MINVALUE) TO (%L)', tomorrow);
    INSERT INTO jm_signals SELECT * FROM jm_signals_before WHERE run >= tomorrow;
    DELETE FROM jm_signals_before WHERE run >= tomorrow;
    EXECUTE format(
        'ALTER TABLE jm_signals ATTACH PARTITION jm_signals_before FOR VALUES FROM (MINVALUE) TO (%L)', tomorrow);
END IF; END $$;
CREATE TABLE IF NOT EXISTS jm_parked (run TEXT COLLATE "C" PRIMARY KEY, queue TEXT COLLATE "C" NOT NULL);
CREATE INDEX IF NOT EXISTS jm_parked_by_queue ON jm_parked (queue);
CREATE TABLE IF NOT EXISTS jm_sessions (
    id TEXT COLLATE "C" PRIMARY KEY, agent TEXT NOT NULL, created FLOAT8 NOT NULL, parent TEXT);
CREATE TABLE IF NOT EXISTS jm_session_records (
    session TEXT COLLATE "C" NOT NULL REFERENCES jm_sessions ON DELETE CASCADE, n BIGINT NOT NULL, kind TEXT NOT NULL,
    position BIGINT NOT NULL, at FLOAT8 NOT NULL, body BYTEA NOT NULL, crc BIGINT NOT NULL, PRIMARY KEY (session, n));
CREATE INDEX IF NOT EXISTS jm_session_facts ON jm_session_records (session, kind, n) WHERE kind IN ('title', 'used');
CREATE TABLE IF NOT EXISTS jm_session_damage (
    found FLOAT8 NOT NULL, session TEXT COLLATE "C" NOT NULL, n BIGINT NOT NULL, kind TEXT NOT NULL,
    position BIGINT NOT NULL, at FLOAT8 NOT NULL, body BYTEA NOT NULL, crc BIGINT NOT NULL);
"""
SET_VERSION: Final = (
    f"INSERT INTO jm_version (version) SELECT {VERSION} WHERE NOT EXISTS (SELECT FROM jm_version);"
    f"\nUPDATE jm_version SET version = {VERSION} WHERE version < {VERSION};"
)
# The first half is "jm" in letters, so that no other program has the number by chance.
MIGRATING: Final = 0x6A6D_0001
"""The number of the lock under which the tables are made."""
MAKE: Final = (
    # Under a lock: `IF NOT EXISTS` does not keep two that make the same table at once from failing.
    f"BEGIN;SELECT pg_advisory_xact_lock({MIGRATING}::bigint);SET LOCAL lock_timeout = '2s';"
    f"{TABLES}{SET_VERSION}\nCOMMIT;\n"
)
"""Makes the tables that are not there. However many do so at once: one makes them, the others wait for that. Where
somebody holds older ones for longer than 2 seconds, nothing is changed."""
_TYPES: Final = (
    (r" WITHOUT ROWID", ""),
    (r"\bINTEGER PRIMARY KEY", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
    (r"\bINTEGER\b", "BIGINT"),
    (r"\bREAL\b", "FLOAT8"),
    (r"\bBLOB\b", "BYTEA"),
    (r"\bTEXT\b", 'TEXT COLLATE "C"'),
    (r"(_of_a_run ON \w+ \(run)\)", r"\1, n)"),  # SQLite has the number in every index
)
"""How Postgres says what the tables of recordings say."""
MAKE_RECORDINGS: Final = (
    f"BEGIN;SELECT pg_advisory_xact_lock({MIGRATING}::bigint);SET LOCAL lock_timeout = '2s';"
    f"{reduce(lambda tables, spelling: re.sub(*spelling, tables), _TYPES, recordings.TABLES)}"
    "ALTER TABLE rec_format ADD COLUMN IF NOT EXISTS forgotten BIGINT NOT NULL DEFAULT 0;\n"
    f"INSERT INTO rec_format (version, key) SELECT {recordings.FORMAT}, uuid_send(gen_random_uuid())"
    " WHERE NOT EXISTS (SELECT FROM rec_format);\nCOMMIT;\n"
)
"""Makes the tables of recordings that are not there."""

HAS_VERSION: Final = "SELECT to_regclass('jm_version') IS NOT NULL"
GET_VERSION: Final = "SELECT max(version) FROM jm_version"

NUMBERING: Final = 0x6A6D_0002
"""The number of the lock of who numbers a signal: who has read one must have read all before it."""

HELD: Final = (
    # As Postgres shows a lock of 64 bits: its halves in two columns, and 1 in the third.
    "SELECT classid::bigint << 32 | objid::bigint AS number, pid FROM pg_locks WHERE locktype = 'advisory'"
    " AND objsubid = 1 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""The numbers of the locks that are held in this database."""
END_OLD: Final = (
    f"SELECT pg_terminate_backend(pid) FROM ({HELD}) AS held WHERE number = %s::bigint AND pid <> pg_backend_pid()"
)
"""Ends a connection that was lost here, and still holds the lock there."""
NOTICED: Final = (
    "SELECT pg_backend_pid(), set_config('tcp_keepalives_idle', '10', false),"
    " set_config('tcp_keepalives_interval', '5', false), set_config('tcp_keepalives_count', '3', false),"
    " (SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout')"  # not before 14
)
"""Lets the server notice in 25 seconds that a machine or a network is gone, and not end a connection that is idle: it
holds a lock."""
_PREPARE_AFTER: Final = 5
"""A statement is prepared on a connection when it was made so often there. The driver would do the same unasked."""
_OURS: Final = ("direct", "prepare_threshold")
"""The parameters of a URL that are not Postgres's own."""
_DEFAULTS: Final = {
    "connect_timeout": "5",
    # A machine or a network that is gone is noticed in half a minute, here and there.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    # As long as the questions before take together: 10 and three times 5 seconds.
    "tcp_user_timeout": "25000",
}


class Database:
    """A database, as a URL names it."""

    def __init__(self, url: str) -> None:
        """Raise a `ValueError` if it is no URL, or an option of it cannot be used."""
        if url.partition("://")[0] not in SCHEMES:
            raise ValueError(
                "The address of the database is no URL: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
            )
        address, _, query = url.partition("?")
        given = parse_qsl(query, keep_blank_values=True)
        others = urlencode([each for each in given if each[0] not in _OURS], quote_via=quote)
        options = {name: value for name, value in given if name in _OURS}
        self.url: Final = url
        self._address = f"{address}?{others}" if others else address
        self._direct = _direct(options.get("direct"))
        self.prepare_threshold: Final = _threshold(options.get("prepare_threshold"))
        self.place: Final = _name_of_database(self._address)
        """The database, for messages: without a password."""
        self._secrets = _secrets_of(self._address)
        self.ddl = "schema_sql()"
        """The call that returns the statements which make its tables, for messages."""

    def parameters(self, *, is_direct: bool, **unless_given: str) -> dict[str, Any]:
        """Return with what to connect. `is_direct`: to the database itself, and not to a pooler before it."""
        from psycopg.conninfo import conninfo_to_dict

        given: dict[str, Any] = {**_DEFAULTS, **unless_given, **conninfo_to_dict(self._address)}
        # Whatever the server or the environment says: other encodings cannot hold every text.
        return given | (self._direct if is_direct else {}) | {"client_encoding": "UTF8"}

    def check_number(self, told: int, true: int) -> None:
        """Raise a `StoreError` if the number that a connection has is not the one that the server knows."""
        if told != true:
            raise StoreError(
                f"There is a pooler between this process and {self.place}, and it does not keep a lock for a process.",
                hint="Name the database itself, too, for one connection of each process: …?direct=HOST:PORT.",
            )

    def lacks_tables(self, server: int, encoding: str | None, version: int | None) -> bool:
        """Tell whether tables are to be made. `version` is that of those which are there.

        Raises:
            StoreError: the server is too old, or has an encoding that cannot hold every text; or the tables are newer.
        """
        if server < OLDEST_SERVER:
            raise StoreError(f"{self.place} runs Postgres {server // 10000}.", hint="Use version 13 or later.")
        if encoding != "UTF8":
            raise StoreError(
                f"{self.place} has the encoding {encoding}, which cannot hold every text.",
                hint="Make one with: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
            )
        if version is not None and version > VERSION:
            raise StoreError(
                f"{self.place} has tables of version {version}; this version of journeyman knows those up to"
                f" {VERSION}.",
                hint="Update journeyman, or use another database. Nothing was changed.",
            )
        return version is None or version < VERSION

    @contextmanager
    def explaining(self, what: str) -> Generator[None]:
        """Raise what goes wrong in the block as a `StoreError` that says that the database could not be `what`."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            raise self.explained(error, what) from error

    def explained(self, error: BaseException, what: str) -> StoreError:
        """Return what went wrong as a `StoreError`, which may pass if the database is away."""
        if isinstance(error, StoreError):
            return error
        import psycopg

        text, may_pass = " ".join(str(error).split()).rstrip(".?"), False
        # The driver repeats what it cannot read of a URL.
        text = text if self._secrets is None else self._secrets.sub("…", text)
        match error:
            case psycopg.errors.InsufficientPrivilege():
                hint = (
                    "Let the role of the URL read and write the tables jm_* and rec_*. To make them as another role:"
                    f' python -c "from journeyman.durable import schema_sql; print({self.ddl})" | psql URL'
                )
            case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedColumn():
                hint = "Its tables are not those that this version made. Look at the tables jm_* and rec_* there."
            case psycopg.errors.LockNotAvailable():
                may_pass, hint = True, "Somebody holds its tables, such as a backup. Try again when that has ended."
            case psycopg.errors.CheckViolation():  # the table of a day was made in this moment
                may_pass, hint = True, "Its tables were changed meanwhile. Try again."
            case psycopg.errors.DiskFull():
                may_pass, hint = True, "Make room on its disk: nothing was lost that was written before."
            case psycopg.OperationalError() | psycopg.InterfaceError() | psycopg.errors.ReadOnlySqlTransaction():
                may_pass = True
                hint = "Check that the database runs, and check the URL: its host, database, user and password."
            case psycopg.ProgrammingError() | psycopg.DataError() | UnicodeError():
                hint = "Nothing was written."
            case psycopg.Error() | OSError():
                hint = "Look at the log of the database."
            case _:
                raise error
        return StoreError(f"{self.place} could not be {what}: {text}.", hint=hint, may_pass=may_pass)


_PASSWORD: Final = re.compile(r"(://[^:/@]*:).*(?=@)|([?&]\w*password=)[^&]*")


def without_password(place: str) -> str:
    """Return a path or a URL as it may be shown."""
    return _PASSWORD.sub(r"\1\2…", place)


def check_installed(what: str) -> None:
    """Raise a `StoreError` if the package that speaks to Postgres is not installed. `what` needs it."""
    if find_spec("psycopg") is None:
        raise StoreError(
            f"{what} in Postgres need the package psycopg, which is not installed.",
            hint="Install it: pip install 'journeyman[postgres]'",
        )


# -- what a URL says ---------------------------------------------------------------------------------------------------


def _direct(given: str | None) -> dict[str, str]:
    if given is None:
        return {}
    host, _, port = given.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"The URL says direct={given[:80]}. Give the database itself as direct=HOST:PORT.")
    return {"host": host, "port": port}


def _threshold(given: str | None) -> int | None:
    if given is None:
        return _PREPARE_AFTER
    if given.lower() == "none":
        return None
    if not given.isdecimal():
        raise ValueError(f"The URL says prepare_threshold={given[:80]}. Give a number, or none for a pooler.")
    return int(given)


def _secrets_of(url: str) -> re.Pattern[str] | None:
    """Return what finds the password of a URL, or a part of one that has what separates parts of URLs, in messages of
    the driver: it repeats what it cannot read. None: there is none."""
    address, _, query = url.partition("?")
    said = address.partition("://")[2].rpartition("@")[0].partition(":")[2]
    given = [said, *said.split("@"), *[value for name, value in parse_qsl(query) if "password" in name]]
    known = {each for text in given for each in (text, unquote(text), " ".join(text.split())) if each}
    # The longest first, or a part of a password would be taken out and leave the rest. Only whole words: a short one
    # stands in others by chance.
    words = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    return re.compile(rf"(?<!\w)(?:{words})(?!\w)") if words else None


def _name_of_database(url: str) -> str:
    """Return what a URL names, without its user and password."""
    address, _, query = url.partition("?")
    host, _, database = address.partition("://")[2].rpartition("@")[2].partition("/")
    parameters = dict(parse_qsl(query))
    host = host or parameters.get("host", "")
    return f"The database {quoted(unquote(database) or parameters.get('dbname', ''))} on {host or 'this machine'}"


# -- values ------------------------------------------------------------------------------------------------------------

# Postgres takes no NUL in a text, and models write them.
_SIGN: Final = "␛"


def storable_value(value: object) -> object:
    """Return a value as Postgres can keep it: its texts have no NUL."""
    if isinstance(value, str):
        return value.replace(_SIGN, _SIGN * 2).replace("\0", f"{_SIGN}0") if "\0" in value or _SIGN in value else value
    return [storable_value(each) for each in value] if is_list(value) else value


def restored(value: Any) -> Any:  # noqa: ANN401 - whatever a column holds
    """Return a value that was made by `storable_value`."""
    if not isinstance(value, str) or _SIGN not in value:
        return value
    return _SIGN.join([part.replace(f"{_SIGN}0", "\0") for part in value.split(_SIGN * 2)])


def lock_number(owner: str) -> int:
    """Return the number of the lock that an owner holds: that of its name, as Postgres has numbers."""
    number = int(owner[1:], 16)
    # Postgres's numbers have a sign.
    return number - (1 << 64) if number >= 1 << 63 else number
