-- Policy roll-out on one machine: signed steps, the policies that they name, and what the proxy says of them.

CREATE TABLE policy_bundles (
    digest  TEXT PRIMARY KEY,
    content TEXT NOT NULL
) STRICT;

CREATE TABLE policy_steps (
    number    INTEGER PRIMARY KEY CHECK (number > 0),
    body      TEXT NOT NULL,
    key_id    TEXT NOT NULL,
    signature TEXT NOT NULL
) STRICT;

CREATE TABLE policy_returns (
    number      INTEGER PRIMARY KEY REFERENCES policy_steps,
    replica     TEXT NOT NULL,
    reason      TEXT NOT NULL,
    returned_at REAL NOT NULL
) STRICT;

CREATE TABLE policy_counts (
    number  INTEGER NOT NULL,
    slot    INTEGER NOT NULL,
    replica TEXT NOT NULL,
    side    TEXT NOT NULL CHECK (side IN ('stable', 'canary')),
    calls   INTEGER NOT NULL,
    denials INTEGER NOT NULL,
    errors  INTEGER NOT NULL,
    PRIMARY KEY (number, slot, replica, side)
) STRICT;

CREATE TABLE policy_replicas (
    replica TEXT PRIMARY KEY,
    number  INTEGER NOT NULL,
    version TEXT NOT NULL,
    problem TEXT,
    seen_at REAL NOT NULL
) STRICT;

CREATE TRIGGER policy_steps_kept BEFORE UPDATE ON policy_steps
BEGIN SELECT raise(ABORT, 'policy steps are never changed; push another version'); END;
CREATE TRIGGER policy_bundles_kept BEFORE UPDATE ON policy_bundles
BEGIN SELECT raise(ABORT, 'policy bundles are never changed; push another version'); END;
CREATE TRIGGER policy_steps_stay BEFORE DELETE ON policy_steps
BEGIN SELECT raise(ABORT, 'policy steps are never deleted; push another version'); END;
CREATE TRIGGER policy_bundles_stay BEFORE DELETE ON policy_bundles
BEGIN SELECT raise(ABORT, 'policy bundles are never deleted; push another version'); END;
