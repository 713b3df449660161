-- The ends of what agents sent lately, encrypted, among the workers of one machine (proxy/store/flow_windows.py). A file
-- of its own, because it changes with every call that a flow is about, and a call must not wait for the disk.

CREATE TABLE IF NOT EXISTS flow_windows (
    agent TEXT PRIMARY KEY,
    sealed BLOB NOT NULL,
    expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
