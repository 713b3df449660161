-- The local durable log (SQLite): events in the order they were acknowledged.
-- Each body is one JSON object, kept exactly as it was written; `chain` is its link (docs/audit.md).
CREATE TABLE IF NOT EXISTS events (
    seq   INTEGER PRIMARY KEY,
    body  TEXT NOT NULL,
    chain TEXT
);

-- One row: who writes this log, and up to where it was moved on to the store. It is not touched when events are
-- added: where the log has come to is its last event, or else where it was moved to.
CREATE TABLE IF NOT EXISTS log (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    writer      TEXT NOT NULL,
    moved       INTEGER NOT NULL DEFAULT 0,
    hash        TEXT NOT NULL,
    moved_at    REAL,
    destination TEXT,
    problem     TEXT
);

-- Events that the store does not take, set aside so that they hold up no other.
CREATE TABLE IF NOT EXISTS rejected (
    seq    INTEGER PRIMARY KEY,
    body   TEXT NOT NULL,
    chain  TEXT NOT NULL,
    reason TEXT NOT NULL,
    at     REAL NOT NULL
);

-- The sinks beside the store, and how far each has come. An event stays until the store and every sink here took it;
-- for a sink that is not required, at most `keeps` events are kept. Without sinks the table is empty.
CREATE TABLE IF NOT EXISTS sinks (
    name     TEXT PRIMARY KEY,
    moved    INTEGER NOT NULL,
    keeps    INTEGER,
    moved_at REAL,
    problem  TEXT,
    lost     INTEGER NOT NULL DEFAULT 0
);

-- What a sink did not get: events that were let go because it was away too long, or that it does not take.
CREATE TABLE IF NOT EXISTS sink_gaps (
    sink     TEXT NOT NULL,
    first    INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    first_id TEXT,
    last_id  TEXT,
    reason   TEXT NOT NULL,
    at       REAL NOT NULL,
    told     INTEGER NOT NULL DEFAULT 0
);
