-- Labels that follow data: which labelled results an agent was given, and keyed fingerprints of what they held.

CREATE TABLE flow_agents (
    agent       TEXT PRIMARY KEY,
    last_number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE flow_marks (
    agent      TEXT NOT NULL,
    number     INTEGER NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('mark', 'cleared')),
    call_id    TEXT NOT NULL,
    server     TEXT NOT NULL,
    tool       TEXT,
    labels     TEXT NOT NULL,
    session    TEXT,
    trace      TEXT,
    shingles   BLOB NOT NULL,
    value_prints BLOB NOT NULL,
    complete   INTEGER NOT NULL CHECK (complete IN (0, 1)),
    marked_at  REAL NOT NULL,
    expires_at REAL NOT NULL,
    PRIMARY KEY (agent, number)
) STRICT;

CREATE INDEX flow_marks_by_expiry ON flow_marks (expires_at);

CREATE TABLE flow_windows (
    agent      TEXT PRIMARY KEY,
    sealed     BLOB NOT NULL,
    expires_at REAL NOT NULL
) STRICT;
