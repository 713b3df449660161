-- What is used of limits, on one machine: a file of its own, so that no call waits for the events that are being stored
-- (proxy/store/limit_store_sqlite.py).
-- One row for each call that counts. `total` is the sum of all amounts up to this row, so what is used within a window
-- is the difference of two rows, however many lie between them. Numbers past 64 bits are text.
CREATE TABLE IF NOT EXISTS uses (
    budget  TEXT NOT NULL,
    at      REAL NOT NULL,
    amount  ANY NOT NULL,
    total   ANY NOT NULL,
    seconds REAL NOT NULL,
    call_id TEXT NOT NULL,
    PRIMARY KEY (budget, at)
) STRICT, WITHOUT ROWID;

-- Calls under way that take a place of a concurrency limit. A worker that lives renews its places.
CREATE TABLE IF NOT EXISTS places (
    budget     TEXT NOT NULL,
    call_id    TEXT NOT NULL,
    expires_at REAL NOT NULL,
    PRIMARY KEY (budget, call_id)
) STRICT, WITHOUT ROWID;
