CREATE TABLE IF NOT EXISTS jm_sessions (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, created REAL NOT NULL, parent TEXT);
CREATE TABLE IF NOT EXISTS jm_conversation (
    session TEXT NOT NULL, n INTEGER NOT NULL, kind TEXT NOT NULL, position INTEGER NOT NULL, at REAL NOT NULL,
    f INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS jm_conversation_by_n ON jm_conversation (session, n);
CREATE INDEX IF NOT EXISTS jm_conversation_facts ON jm_conversation (session, kind, n) WHERE kind IN ('title', 'used');
CREATE TABLE IF NOT EXISTS jm_runs (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT UNIQUE, parent TEXT, agent TEXT NOT NULL,
    app TEXT NOT NULL, target TEXT NOT NULL, f INTEGER NOT NULL, head BLOB NOT NULL, queue TEXT NOT NULL, priority INTEGER NOT NULL,
    dedup TEXT, created REAL NOT NULL, status TEXT NOT NULL, owner TEXT, gen INTEGER NOT NULL, epoch INTEGER NOT NULL,
    wake REAL, parked INTEGER NOT NULL, n_signals INTEGER NOT NULL, asked BLOB, used_s REAL NOT NULL,
    tokens INTEGER NOT NULL, cost REAL NOT NULL, attempt INTEGER NOT NULL, iteration INTEGER NOT NULL,
    lives INTEGER NOT NULL, deaths INTEGER NOT NULL, n_steps INTEGER NOT NULL, why TEXT, ended REAL);
CREATE UNIQUE INDEX IF NOT EXISTS jm_runs_of_a_dedup ON jm_runs (agent, dedup) WHERE dedup IS NOT NULL;
CREATE INDEX IF NOT EXISTS jm_runs_ready ON jm_runs (agent, queue, priority DESC, created, id)
    WHERE status = 'ready';
CREATE INDEX IF NOT EXISTS jm_runs_running ON jm_runs (queue, owner) WHERE status = 'running';
CREATE INDEX IF NOT EXISTS jm_runs_waiting ON jm_runs (wake) WHERE status = 'waiting' AND wake IS NOT NULL;
CREATE INDEX IF NOT EXISTS jm_runs_by_age ON jm_runs (created);
CREATE TABLE IF NOT EXISTS jm_steps (
    n INTEGER PRIMARY KEY, run TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL, kind TEXT NOT NULL,
    attempt INTEGER NOT NULL, iteration INTEGER NOT NULL, call TEXT, taken TEXT, deaths INTEGER NOT NULL, about BLOB,
    effect TEXT NOT NULL, epoch INTEGER NOT NULL, at REAL NOT NULL, used_s REAL NOT NULL, f INTEGER NOT NULL,
    body BLOB, crc INTEGER NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS jm_steps_by_key ON jm_steps (run, key, state);
CREATE TABLE IF NOT EXISTS jm_signals (
    n INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, kind TEXT NOT NULL, dedup TEXT NOT NULL, body TEXT NOT NULL,
    at REAL NOT NULL, who TEXT NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS jm_signals_by_dedup ON jm_signals (run, kind, dedup);
