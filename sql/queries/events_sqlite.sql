-- Audit events in SQLite alone (proxy/audit/event_store_sqlite.py).

-- name: insert_events
-- Of each event: the values of its columns as they were read from its text (proxy/core/event_columns.py), its number in
-- its writer's log, and the text itself. An event that is there already is left alone.
INSERT INTO events (
    event_id, ts, kind, call_id, proposal_id, agent, server, transport, revision, session, jsonrpc_id, method, tool,
    arguments_hash, decision, reason, rule, policy_version, result_digest, outcome, authenticated, is_error, gate_ms,
    upstream_ms, total_ms, result_size, arguments, rules, shadow_rules, redactions, detail, writer, seq, chain, body
)
VALUES {rows}
ON CONFLICT DO NOTHING;

-- name: stats_secrets
SELECT
    server, tool,
    CASE found.type WHEN 'object' THEN found.value ->> 'detector' END,
    count(*),
    count(*) FILTER (
        WHERE CASE found.type WHEN 'object' THEN json_type(found.value, '$.record_only') = 'true' END
    )
FROM events CROSS JOIN json_each(CASE json_type(redactions) WHEN 'array' THEN redactions END) AS found
WHERE redactions IS NOT NULL AND {conditions}
GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT {limit};

-- name: stats_days
SELECT date(ts, 'unixepoch'), count(*), count(*) FILTER (WHERE decision = 'deny')
FROM events WHERE kind = 'decided' AND method = 'tools/call' AND {conditions} GROUP BY 1 ORDER BY 1;

-- name: prune_chain
DELETE FROM events WHERE rowid IN (
    SELECT rowid FROM events WHERE writer = $1 AND seq <= $2 ORDER BY seq LIMIT $3
)
RETURNING rowid;

-- name: prune_unchained
DELETE FROM events WHERE rowid IN (
    SELECT rowid FROM events
    WHERE (writer IS NULL OR seq IS NULL OR chain IS NULL) AND ts < $1 ORDER BY ts LIMIT $2
)
RETURNING rowid;

-- name: vacuum
-- Give the room of deleted rows back to the disk.
PRAGMA incremental_vacuum;

-- name: has_text
-- A condition: a text is in one of these, as {pattern}; in the arguments, as {json_pattern}.
(
    coalesce(tool, '') LIKE {pattern} ESCAPE '\' OR coalesce(agent, '') LIKE {pattern} ESCAPE '\'
    OR coalesce(server, '') LIKE {pattern} ESCAPE '\' OR coalesce(rule, '') LIKE {pattern} ESCAPE '\'
    OR coalesce(reason, '') LIKE {pattern} ESCAPE '\' OR coalesce(arguments, '') LIKE {json_pattern} ESCAPE '\'
)

-- name: has_claim
-- A condition: what is told of the agent has {value} at {path}, or in a list there.
event_id IN (
    SELECT told.event_id FROM events AS told, json_each(told.detail, {path}) AS one WHERE one.value = {value}
)

-- name: chain_rows
-- A stretch of a writer's chain (proxy/audit/range_check.py). The columns behind the first five are those of `chain_page`.
SELECT
    seq, chain, body, event_id, ts,
    kind, call_id, proposal_id, agent, server, transport, revision, session, jsonrpc_id, method, tool, arguments_hash,
    decision, reason, rule, policy_version, result_digest, outcome, authenticated, is_error, gate_ms, upstream_ms,
    total_ms, arguments, rules, shadow_rules, redactions, detail, result_size
FROM events WHERE writer = ? AND seq >= ? AND seq <= ? ORDER BY seq;
