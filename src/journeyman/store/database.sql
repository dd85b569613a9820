CREATE TABLE IF NOT EXISTS jm_version (version INT NOT NULL, swept TIMESTAMPTZ);
CREATE TABLE IF NOT EXISTS jm_runs (
    id TEXT COLLATE "C" PRIMARY KEY, name TEXT COLLATE "C" UNIQUE, parent TEXT, agent TEXT COLLATE "C" NOT NULL,
    app TEXT NOT NULL, target TEXT NOT NULL, f INT NOT NULL, head BYTEA NOT NULL, queue TEXT COLLATE "C" NOT NULL, priority BIGINT NOT NULL,
    dedup TEXT COLLATE "C", created FLOAT8 NOT NULL, status TEXT COLLATE "C" NOT NULL, owner TEXT COLLATE "C",
    gen BIGINT NOT NULL, epoch BIGINT NOT NULL, wake FLOAT8, parked BOOLEAN NOT NULL, n_signals BIGINT NOT NULL,
    asked BYTEA, used_s FLOAT8 NOT NULL, tokens BIGINT NOT NULL, cost FLOAT8 NOT NULL, attempt BIGINT NOT NULL,
    iteration BIGINT NOT NULL, lives BIGINT NOT NULL, deaths BIGINT NOT NULL, n_steps BIGINT NOT NULL, why TEXT,
    ended FLOAT8) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01);
CREATE UNIQUE INDEX IF NOT EXISTS jm_runs_of_a_dedup ON jm_runs (agent, dedup) WHERE dedup IS NOT NULL;
CREATE INDEX IF NOT EXISTS jm_runs_ready ON jm_runs (agent, queue, priority DESC, created, id) WHERE status = 'ready';
CREATE INDEX IF NOT EXISTS jm_runs_running ON jm_runs (queue, owner) WHERE status = 'running';
CREATE INDEX IF NOT EXISTS jm_runs_waiting ON jm_runs (wake) WHERE status = 'waiting' AND wake IS NOT NULL;
CREATE INDEX IF NOT EXISTS jm_runs_parked ON jm_runs (queue) WHERE parked;
CREATE INDEX IF NOT EXISTS jm_runs_by_age ON jm_runs (created, id);
CREATE SEQUENCE IF NOT EXISTS jm_steps_n_seq;
CREATE TABLE IF NOT EXISTS jm_steps (
    n BIGINT NOT NULL DEFAULT nextval('jm_steps_n_seq'), run TEXT COLLATE "C" NOT NULL, key TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL, kind TEXT NOT NULL, attempt BIGINT NOT NULL, iteration BIGINT NOT NULL, call TEXT,
    taken TEXT, deaths BIGINT NOT NULL, about BYTEA, effect TEXT NOT NULL, epoch BIGINT NOT NULL, at FLOAT8 NOT NULL,
    used_s FLOAT8 NOT NULL, f INT NOT NULL, body BYTEA, crc BIGINT NOT NULL, PRIMARY KEY (run, key, state))
    PARTITION BY RANGE (run);
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
CREATE TABLE IF NOT EXISTS jm_sessions (
    id TEXT COLLATE "C" PRIMARY KEY, agent TEXT NOT NULL, created FLOAT8 NOT NULL, parent TEXT);
CREATE TABLE IF NOT EXISTS jm_conversation (
    session TEXT COLLATE "C" NOT NULL, n BIGINT NOT NULL, kind TEXT NOT NULL, position BIGINT NOT NULL,
    at FLOAT8 NOT NULL, f INT NOT NULL, body BYTEA NOT NULL, crc BIGINT NOT NULL, PRIMARY KEY (session, n));
CREATE INDEX IF NOT EXISTS jm_conversation_facts ON jm_conversation (session, kind, n) WHERE kind IN ('title', 'used');
