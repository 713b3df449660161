-- Audit events in Postgres alone (proxy/audit/event_store_postgres.py).

-- name: insert_events
-- A batch of events: their texts ($1), what to read columns from where that is not the text itself ($2), and their
-- writers, numbers and links ($3, $4, $5), each as one text with U+001E between the values, which no JSON holds: a driver
-- takes far longer over an array. Events that are there already are left alone; the conflict has no target and nothing is
-- returned, so that a role with the right to INSERT alone can run this.
INSERT INTO events (
    event_id, ts, kind, call_id, proposal_id, agent, authenticated, server, transport, revision, session, jsonrpc_id,
    method, tool, arguments, arguments_hash, decision, reason, rule, rules, shadow_rules, policy_version, redactions,
    gate_ms, upstream_ms, total_ms, result_digest, result_size, is_error, outcome, detail, writer, seq, chain, body
)
SELECT
    r.event_id, to_timestamp(r.time), r.kind, left(r.call_id, 200),
    left(coalesce(r.proposal_id, r.detail ->> 'proposal_id'), 200), left(r.agent, 200), r.authenticated,
    left(r.server, 200), left(r.transport, 200), left(r.revision, 200), left(r.session, 200), left(r.jsonrpc_id, 200),
    left(r.method, 200), left(r.tool, 200), r.arguments, left(r.arguments_hash, 200), left(r.decision, 16),
    left(r.reason, 200), left(r.rule, 200), r.rules, r.shadow_rules, left(r.policy_version, 200), r.redactions,
    r.gate_ms, r.upstream_ms, r.total_ms, left(r.result_digest, 200), r.result_size, r.is_error, left(r.outcome, 200),
    r.detail, e.writer, e.seq, e.chain, e.body
FROM unnest(
        string_to_array($1, E'\x1e'), string_to_array($2, E'\x1e', ''), string_to_array($3, E'\x1e', ''),
        string_to_array($4, E'\x1e', '')::bigint[], string_to_array($5, E'\x1e', '')
    ) AS e (body, columns, writer, seq, chain),
    json_to_record(coalesce(e.columns, e.body)::json) AS r (
        event_id text, time double precision, kind text, call_id text, proposal_id text, agent text,
        authenticated boolean, server text, transport text, revision text, session text, jsonrpc_id text, method text,
        tool text, arguments jsonb, arguments_hash text, decision text, reason text, rule text, rules jsonb,
        shadow_rules jsonb, policy_version text, redactions jsonb, gate_ms double precision,
        upstream_ms double precision, total_ms double precision, result_digest text, result_size bigint,
        is_error boolean, outcome text, detail jsonb
    )
ON CONFLICT DO NOTHING;

-- name: stats_secrets
SELECT
    server, tool, found.value ->> 'detector', count(*),
    count(*) FILTER (WHERE found.value @> '{"record_only": true}')
FROM events
CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(redactions) WHEN 'array' THEN redactions END) AS found
WHERE redactions IS NOT NULL AND {conditions}
GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT {limit};

-- name: stats_days
SELECT to_char(ts AT TIME ZONE 'UTC', 'YYYY-MM-DD'), count(*), count(*) FILTER (WHERE decision = 'deny')
FROM events WHERE kind = 'decided' AND method = 'tools/call' AND {conditions} GROUP BY 1 ORDER BY 1;

-- name: make_partitions
SELECT interlock_make_partitions($1, $2);

-- name: one_moment
-- Of the transaction that this begins, every statement sees the same events.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: hours_past
-- The hours with events that do not count.
SELECT DISTINCT extract(epoch FROM date_trunc('hour', ts, 'UTC'))::float8 FROM events WHERE {past};

-- name: sums_span
-- Sums over whole hours from $1 up to $2, without those in $3.
SELECT sum(events)::bigint, min(first), max(last) FROM event_sums
WHERE what = 'all' AND hour >= $1 AND hour < $2 AND hour <> ALL ($3::timestamptz[]);

-- name: sums_tools
SELECT
    server, tool, sum(events)::bigint, sum(denied)::bigint, sum(errors)::bigint, sum(completed)::bigint,
    sum(total_ms) / nullif(sum(timed), 0), max(max_ms)
FROM event_sums WHERE what = 'tool' AND hour >= $1 AND hour < $2 AND hour <> ALL ($3::timestamptz[])
GROUP BY server, tool ORDER BY 3 DESC, server, tool LIMIT $4;

-- name: sums_denials
SELECT reason, rule, sum(events)::bigint
FROM event_sums WHERE what = 'denial' AND hour >= $1 AND hour < $2 AND hour <> ALL ($3::timestamptz[])
GROUP BY reason, rule ORDER BY 3 DESC, reason, rule LIMIT $4;

-- name: sums_secrets
SELECT server, tool, detector, count(*), count(*) FILTER (WHERE record_only)
FROM event_findings
WHERE ts >= $1 AND ts < $2 AND date_trunc('hour', ts, 'UTC') <> ALL ($3::timestamptz[])
GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT $4;

-- name: sums_days
SELECT to_char(hour AT TIME ZONE 'UTC', 'YYYY-MM-DD'), sum(events)::bigint, sum(denied)::bigint
FROM event_sums WHERE what = 'tool' AND hour >= $1 AND hour < $2 AND hour <> ALL ($3::timestamptz[])
GROUP BY 1 HAVING sum(events) > 0 ORDER BY 1;

-- name: sum_counts
SELECT interlock_sum_counts();

-- name: sum_hours
SELECT interlock_sum_hours($1);

-- name: recount_events
SELECT interlock_recount_events($1);

-- name: drop_events
SELECT interlock_drop_events($1, $2, $3);

-- name: has_text
-- A condition: a text is in one of these, as {pattern}; in the arguments, as {json_pattern}.
(
    tool ILIKE {pattern} OR agent ILIKE {pattern} OR server ILIKE {pattern} OR rule ILIKE {pattern}
    OR reason ILIKE {pattern} OR arguments::text ILIKE {json_pattern}
)

-- name: has_claim
-- A condition: what is told of the agent has {wanted} in it.
event_id IN (SELECT told.event_id FROM events AS told WHERE told.detail @> {wanted}::jsonb)

-- name: chain_rows
-- A stretch of a writer's chain (proxy/audit/range_check.py). The columns behind the first five are those of `chain_page`.
SELECT
    seq, chain, body, event_id, extract(epoch FROM ts)::float8,
    kind, call_id, proposal_id, agent, server, transport, revision, session, jsonrpc_id, method, tool, arguments_hash,
    decision, reason, rule, policy_version, result_digest, outcome, authenticated, is_error, gate_ms, upstream_ms,
    total_ms, arguments, rules, shadow_rules, redactions, detail, result_size
FROM events WHERE writer = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq;
