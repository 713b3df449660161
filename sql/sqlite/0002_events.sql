-- The audit trail in the embedded store (SQLite). Each column and view is what its namesake in sql/postgres/ is.
-- Times are seconds since the epoch; JSON values are text.

CREATE TABLE events (
    event_id       TEXT NOT NULL,
    ts             REAL NOT NULL,
    kind           TEXT NOT NULL,
    call_id        TEXT,
    proposal_id    TEXT,
    agent          TEXT,
    authenticated  INTEGER,
    server         TEXT,
    transport      TEXT,
    revision       TEXT,
    session        TEXT,
    jsonrpc_id     TEXT,
    method         TEXT,
    tool           TEXT,
    arguments      TEXT,
    arguments_hash TEXT,
    decision       TEXT,
    reason         TEXT,
    rule           TEXT,
    rules          TEXT,
    shadow_rules   TEXT,
    policy_version TEXT,
    redactions     TEXT,
    gate_ms        REAL,
    upstream_ms    REAL,
    total_ms       REAL,
    result_digest  TEXT,
    result_size    INTEGER,
    is_error       INTEGER,
    outcome        TEXT,
    detail         TEXT,
    writer         TEXT,
    seq            INTEGER,
    chain          TEXT,
    body           TEXT NOT NULL,
    PRIMARY KEY (event_id, ts)
) STRICT;

CREATE INDEX events_by_time ON events (ts, event_id);
CREATE INDEX events_by_call ON events (call_id, ts);
CREATE INDEX events_by_proposal ON events (proposal_id) WHERE proposal_id IS NOT NULL;
CREATE INDEX events_calls_by_tool ON events (tool, ts, event_id) WHERE kind = 'decided';
CREATE INDEX events_calls_by_agent ON events (agent, ts, event_id) WHERE kind = 'decided';
CREATE INDEX events_denied ON events (ts, event_id) WHERE kind = 'decided' AND decision = 'deny';

CREATE VIEW tool_calls AS
SELECT
    d.call_id, d.event_id, d.ts AS time, d.agent, d.authenticated, d.server, d.transport, d.revision, d.session,
    d.jsonrpc_id, d.method, d.tool, d.arguments, d.arguments_hash, d.decision, d.reason, d.rule, d.rules,
    d.shadow_rules, d.policy_version, d.redactions, d.gate_ms, c.upstream_ms, c.total_ms, c.result_digest,
    c.result_size, c.is_error, c.outcome, c.ts AS completed_at
FROM events d
LEFT JOIN events c ON c.rowid = (
    SELECT e.rowid FROM events e
    WHERE e.call_id = d.call_id AND e.kind = 'completed' AND e.ts > d.ts - 86400 AND e.ts < d.ts + 7 * 86400
    ORDER BY e.ts DESC LIMIT 1
)
WHERE d.kind = 'decided' AND d.method = 'tools/call';

CREATE VIEW denied_calls AS
SELECT
    call_id, event_id, ts AS time, agent, server, transport, method, tool, arguments, reason, rule, rules, policy_version
FROM events WHERE kind = 'decided' AND decision = 'deny';

CREATE VIEW two_phase_ledger AS
SELECT
    e.proposal_id,
    min(e.ts) AS proposed_at,
    max(e.agent) AS agent,
    max(e.server) AS server,
    max(e.tool) AS tool,
    max(e.rule) AS rule,
    max(e.arguments_hash) AS arguments_hash,
    max(e.detail ->> 'approval') AS approval,
    CAST(max(coalesce(e.detail ->> 'composite_score', e.detail ->> 'score')) AS TEXT) AS composite_score,
    max(e.ts) FILTER (WHERE e.kind = 'approved') AS approved_at,
    max(e.ts) FILTER (WHERE e.kind = 'rejected') AS rejected_at,
    max(e.detail ->> 'operator') FILTER (WHERE e.kind IN ('approved', 'rejected')) AS operator,
    max(e.ts) FILTER (WHERE e.kind = 'committed') AS committed_at,
    max(e.call_id) FILTER (WHERE e.kind = 'committed') AS commit_call_id,
    (
        SELECT l.kind FROM events l WHERE l.proposal_id = e.proposal_id ORDER BY l.ts DESC, l.event_id DESC LIMIT 1
    ) AS last_event
FROM events e WHERE e.proposal_id IS NOT NULL
GROUP BY e.proposal_id;

CREATE VIEW server_behaviour AS
SELECT
    server, tool, detail ->> 'capability' AS capability, count(*) AS observations,
    count(DISTINCT call_id) AS calls, min(ts) AS first_seen, max(ts) AS last_seen
FROM events WHERE kind = 'observed'
GROUP BY server, tool, detail ->> 'capability';
