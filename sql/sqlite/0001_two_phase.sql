-- Two-phase execution in the embedded store (SQLite).
-- Times are seconds since the epoch. Each table and column is what its namesake in sql/postgres/ is.

CREATE TABLE proposals (
    proposal_id     TEXT PRIMARY KEY,
    server          TEXT NOT NULL,
    tool            TEXT NOT NULL,
    principal       TEXT NOT NULL,
    arguments_hash  TEXT NOT NULL,
    arguments       TEXT NOT NULL,
    rule            TEXT NOT NULL,
    policy_version  TEXT NOT NULL,
    approval        TEXT NOT NULL CHECK (approval IN ('auto', 'human')),
    state           TEXT NOT NULL CHECK (
        state IN ('proposed', 'pending', 'approved', 'rejected', 'expired', 'blocked', 'committed')
    ),
    nonce           TEXT NOT NULL UNIQUE,
    created_at      REAL NOT NULL,
    expires_at      REAL NOT NULL,
    token_seconds   REAL NOT NULL,
    composite_score REAL,
    signals         TEXT NOT NULL,
    absent          TEXT NOT NULL,
    reason          TEXT,
    call_id         TEXT,
    operator        TEXT,
    operator_reason TEXT,
    operator_at     REAL,
    call_key        TEXT NOT NULL,
    awaited         INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX proposals_one_awaited_per_call ON proposals (call_key) WHERE awaited;
CREATE INDEX proposals_newest ON proposals (created_at DESC, proposal_id DESC);
CREATE INDEX proposals_newest_by_state ON proposals (state, created_at DESC, proposal_id DESC);
CREATE INDEX proposals_by_expiry ON proposals (expires_at);

CREATE TABLE commits (
    nonce        TEXT PRIMARY KEY,
    proposal_id  TEXT NOT NULL UNIQUE REFERENCES proposals (proposal_id),
    attempt_id   TEXT NOT NULL,
    committed_at REAL NOT NULL,
    expires_at   REAL NOT NULL,
    outcome      TEXT,
    ended_at     REAL,
    attempts     INTEGER NOT NULL,
    question     TEXT
) STRICT;

CREATE INDEX commits_by_expiry ON commits (expires_at);

CREATE TABLE tool_prompt_baselines (
    server      TEXT NOT NULL,
    tool        TEXT NOT NULL,
    prompt_hash TEXT NOT NULL,
    set_at      REAL NOT NULL,
    set_by      TEXT NOT NULL,
    PRIMARY KEY (server, tool)
) STRICT;
