-- The local durable log (SQLite): events in the order they were acknowledged.
-- Each body is one JSON object, kept exactly as it was written.
CREATE TABLE IF NOT EXISTS events (
    seq  INTEGER PRIMARY KEY AUTOINCREMENT,
    body TEXT NOT NULL
);
