CREATE TABLE IF NOT EXISTS rec_format (version INTEGER NOT NULL, key BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS rec_runs (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, agent TEXT NOT NULL, model TEXT NOT NULL,
    input TEXT NOT NULL, owner TEXT NOT NULL, has_content INTEGER NOT NULL, started REAL NOT NULL, seen REAL NOT NULL,
    ended REAL, status TEXT NOT NULL, code TEXT, attempts INTEGER NOT NULL DEFAULT 0,
    iterations INTEGER NOT NULL DEFAULT 0, calls INTEGER NOT NULL DEFAULT 0, children INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0, cached_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0, cost REAL, bytes INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0, why TEXT);
CREATE INDEX IF NOT EXISTS rec_runs_by_age ON rec_runs (started);
CREATE INDEX IF NOT EXISTS rec_runs_by_end ON rec_runs (status, ended);
CREATE TABLE IF NOT EXISTS rec_events (
    n INTEGER PRIMARY KEY, run INTEGER NOT NULL, at REAL NOT NULL, path TEXT NOT NULL, kind TEXT NOT NULL,
    attempt INTEGER, iteration INTEGER, call TEXT, tool TEXT, body TEXT, refs BLOB);
CREATE INDEX IF NOT EXISTS rec_events_of_a_run ON rec_events (run);
CREATE TABLE IF NOT EXISTS rec_requests (
    n INTEGER PRIMARY KEY, run INTEGER NOT NULL, at REAL NOT NULL, path TEXT NOT NULL, attempt INTEGER NOT NULL,
    iteration INTEGER NOT NULL, form TEXT NOT NULL, model TEXT NOT NULL, around INTEGER, size INTEGER NOT NULL,
    base INTEGER, pieces BLOB NOT NULL, answer TEXT, refs BLOB);
CREATE INDEX IF NOT EXISTS rec_requests_of_a_run ON rec_requests (run);
CREATE TABLE IF NOT EXISTS rec_pieces (
    n INTEGER PRIMARY KEY, run INTEGER NOT NULL, digest INTEGER NOT NULL, size INTEGER NOT NULL, body BLOB);
CREATE INDEX IF NOT EXISTS rec_pieces_by_digest ON rec_pieces (digest);
CREATE INDEX IF NOT EXISTS rec_pieces_of_a_run ON rec_pieces (run);
CREATE TABLE IF NOT EXISTS rec_shared (
    piece INTEGER NOT NULL, run INTEGER NOT NULL, PRIMARY KEY (piece, run)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rec_shared_by_run ON rec_shared (run);
CREATE TABLE IF NOT EXISTS rec_watched (
    watcher TEXT NOT NULL, run TEXT NOT NULL, until REAL NOT NULL, PRIMARY KEY (watcher, run)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rec_words (run TEXT PRIMARY KEY, at REAL NOT NULL, body TEXT NOT NULL) WITHOUT ROWID;
