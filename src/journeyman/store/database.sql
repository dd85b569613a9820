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
