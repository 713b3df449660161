-- The stop button: who may make no calls, since when, by whom and why. What is used of limits is in a file of its own.

CREATE TABLE halts (
    halt_id    TEXT PRIMARY KEY,
    agent      TEXT,
    server     TEXT,
    tool       TEXT,
    cut        INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    operator   TEXT NOT NULL,
    created_at REAL NOT NULL,
    origin     TEXT NOT NULL
) STRICT;

CREATE TABLE halt_state (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    store_id   TEXT NOT NULL,
    generation INTEGER NOT NULL
) STRICT;
