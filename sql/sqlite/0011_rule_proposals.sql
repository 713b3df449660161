-- Rules that agents propose. A person decides; no row here puts a rule in force.

CREATE TABLE rule_proposals (
    proposal_id    TEXT PRIMARY KEY,
    agent          TEXT NOT NULL,
    rule_id        TEXT NOT NULL,
    text           TEXT NOT NULL CHECK (length(text) <= 131072),
    why            TEXT NOT NULL,
    digest         TEXT NOT NULL,
    call_id        TEXT NOT NULL,
    policy_version TEXT NOT NULL,
    created_at     REAL NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('waiting', 'accepted', 'rejected')),
    operator       TEXT,
    reason         TEXT,
    decided_at     REAL
) STRICT;

CREATE INDEX rule_proposals_by_agent ON rule_proposals (agent, created_at);
