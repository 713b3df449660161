-- Reading audit events, on SQLite and Postgres alike (proxy/audit/event_store.py). {conditions} stands for the filter,
-- which is put together from constants; its values are bound.

-- name: list_calls
SELECT
    call_id, event_id, time, agent, authenticated, server, transport, revision, session, jsonrpc_id, method, tool,
    arguments, arguments_hash, decision, reason, rule, rules, shadow_rules, policy_version, redactions, gate_ms,
    upstream_ms, total_ms, result_digest, result_size, is_error, outcome, completed_at
FROM tool_calls WHERE {conditions}
ORDER BY time DESC, event_id DESC LIMIT {limit};

-- name: list_events
SELECT ts, event_id, body, writer, seq, chain FROM events WHERE {conditions} ORDER BY ts, event_id LIMIT {limit};

-- name: last_events
SELECT body FROM events ORDER BY ts DESC, event_id DESC LIMIT $1;

-- name: events_of_writer
SELECT body FROM events WHERE writer = $1 AND seq > $2 AND seq <= $3 ORDER BY seq;

-- name: newest_events
SELECT body FROM events WHERE {conditions} ORDER BY ts DESC, event_id DESC LIMIT {limit};

-- name: last_probes
-- What probes found, of the last events outside calls: an index has those.
SELECT body FROM (SELECT body, kind, ts FROM events WHERE call_id IS NULL ORDER BY ts DESC LIMIT $1) AS outside
WHERE kind IN ('probed', 'finding') ORDER BY ts DESC;

-- name: find_events
SELECT body, writer, seq, chain FROM events WHERE call_id = $1 OR event_id = $1 ORDER BY ts, event_id;

-- name: list_ids
-- An id of a call where that is what begins so, else the id of an event outside calls.
SELECT DISTINCT CASE WHEN {in_call} THEN call_id ELSE event_id END FROM events
WHERE {conditions} ORDER BY 1 LIMIT {limit};

-- name: count_events
SELECT count(*) FROM events WHERE {conditions};

-- name: stats_span
SELECT count(*), min(ts), max(ts) FROM events WHERE {conditions};

-- name: stats_tools
SELECT
    server, tool,
    count(*) FILTER (WHERE kind = 'decided'),
    count(*) FILTER (WHERE kind = 'decided' AND decision = 'deny'),
    count(*) FILTER (WHERE kind = 'completed' AND is_error),
    count(*) FILTER (WHERE kind = 'completed'),
    avg(total_ms) FILTER (WHERE kind = 'completed'),
    max(total_ms) FILTER (WHERE kind = 'completed')
FROM events WHERE method = 'tools/call' AND kind IN ('decided', 'completed') AND {conditions}
GROUP BY server, tool ORDER BY 3 DESC, server, tool LIMIT {limit};

-- name: stats_denials
SELECT reason, rule, count(*) FROM events WHERE kind = 'decided' AND decision = 'deny' AND {conditions}
GROUP BY reason, rule ORDER BY 3 DESC, reason, rule LIMIT {limit};

-- name: sample_events
-- Some of the events of a short time, for figures over a longer one. Of every kind, so that they stand for the others.
SELECT
    ts, kind, method, decision, reason, rule, server, tool, agent, total_ms, is_error, redactions, rules, shadow_rules
FROM events WHERE {conditions} LIMIT {limit};

-- name: sample_denied
-- The same of what was denied, which an index has.
SELECT
    ts, kind, method, decision, reason, rule, server, tool, agent, total_ms, is_error, redactions, rules, shadow_rules
FROM events WHERE kind = 'decided' AND decision = 'deny' AND {conditions} LIMIT {limit};

-- name: count_denied
SELECT count(*) FROM events WHERE kind = 'decided' AND decision = 'deny' AND {conditions};

-- name: event_is_not_past
-- A condition on events: not one that {writer} wrote past number {seq}.
(writer IS DISTINCT FROM {writer} OR coalesce(seq, 0) <= {seq})

-- name: call_is_not_past
-- The same condition on tool_calls, which has no writer.
NOT EXISTS (
    SELECT 1 FROM events w
    WHERE w.event_id = tool_calls.event_id AND w.ts = tool_calls.time AND w.writer = {writer} AND w.seq > {seq}
)
