-- Approval by people: who approved what, approvals that stand for the next calls, the last approved call of each tool,
-- and the notices that tell people.

ALTER TABLE proposals ADD COLUMN people INTEGER NOT NULL DEFAULT 1 CHECK (people >= 1);
ALTER TABLE proposals ADD COLUMN approvals INTEGER NOT NULL DEFAULT 0 CHECK (approvals >= 0);
ALTER TABLE proposals ADD COLUMN own TEXT NOT NULL DEFAULT 'allow' CHECK (own IN ('allow', 'refuse'));
ALTER TABLE proposals ADD COLUMN how TEXT NOT NULL DEFAULT 'propose' CHECK (how IN ('propose', 'hold', 'elicit', 'task'));
ALTER TABLE proposals ADD COLUMN parts TEXT NOT NULL DEFAULT '{}';
ALTER TABLE proposals ADD COLUMN standing_id TEXT;
UPDATE proposals SET approvals = 1 WHERE operator IS NOT NULL AND state IN ('approved', 'committed');

CREATE INDEX proposals_by_call ON proposals (call_key);

CREATE TABLE approvals (
    proposal_id TEXT NOT NULL REFERENCES proposals (proposal_id) ON DELETE CASCADE,
    operator    TEXT NOT NULL,
    reason      TEXT NOT NULL,
    approved_at REAL NOT NULL,
    PRIMARY KEY (proposal_id, operator)
) STRICT;

CREATE TABLE standing_approvals (
    standing_id  TEXT PRIMARY KEY,
    proposal_id  TEXT NOT NULL,
    server       TEXT NOT NULL,
    tool         TEXT NOT NULL,
    principal    TEXT NOT NULL,
    rule         TEXT NOT NULL,
    vary         TEXT NOT NULL,
    like_key     TEXT NOT NULL,
    arguments    TEXT NOT NULL,
    operator     TEXT NOT NULL,
    reason       TEXT NOT NULL,
    created_at   REAL NOT NULL,
    expires_at   REAL NOT NULL,
    granted      INTEGER NOT NULL CHECK (granted >= 1),
    remaining    INTEGER NOT NULL CHECK (remaining >= 0),
    revoked_by   TEXT,
    revoked_at   REAL,
    last_call_id TEXT
) STRICT;

CREATE INDEX standing_approvals_by_call ON standing_approvals (server, tool, principal, rule);
CREATE INDEX standing_approvals_newest ON standing_approvals (created_at DESC, standing_id DESC);

CREATE TABLE approved_calls (
    server      TEXT NOT NULL,
    tool        TEXT NOT NULL,
    proposal_id TEXT NOT NULL,
    principal   TEXT NOT NULL,
    arguments   TEXT NOT NULL,
    operator    TEXT NOT NULL,
    approved_at REAL NOT NULL,
    PRIMARY KEY (server, tool)
) STRICT;

CREATE TABLE notices (
    target      TEXT NOT NULL,
    proposal_id TEXT NOT NULL,
    state       TEXT NOT NULL,
    body        TEXT NOT NULL,
    created_at  REAL NOT NULL,
    due_at      REAL NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 0,
    sent_at     REAL,
    given_up_at REAL,
    problem     TEXT,
    PRIMARY KEY (target, proposal_id, state)
) STRICT;

CREATE INDEX notices_due ON notices (due_at) WHERE sent_at IS NULL AND given_up_at IS NULL;

ALTER TABLE commits ADD COLUMN token_id TEXT;

CREATE VIEW nonces AS
SELECT
    c.nonce, coalesce(c.token_id, c.proposal_id) AS token_id, c.expires_at, c.proposal_id, p.tool AS tool_name,
    p.server, p.principal, c.committed_at AS consumed_at, c.outcome
FROM commits c JOIN proposals p ON p.proposal_id = c.proposal_id;
