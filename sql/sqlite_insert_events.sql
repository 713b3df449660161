-- Keep one event: its text ($1), what its columns are read from ($2), and its place in its writer's log ($3, $4, $5).
-- One that is there already is left alone.
INSERT INTO events (
    event_id, ts, kind, call_id, proposal_id, agent, authenticated, server, transport, revision, session, jsonrpc_id,
    method, tool, arguments, arguments_hash, decision, reason, rule, rules, shadow_rules, policy_version, redactions,
    gate_ms, upstream_ms, total_ms, result_digest, result_size, is_error, outcome, detail, writer, seq, chain, body
)
VALUES (
    $2 ->> 'event_id', $2 ->> 'time', $2 ->> 'kind', substr($2 ->> 'call_id', 1, 200),
    substr(coalesce($2 ->> 'proposal_id', $2 ->> '$.detail.proposal_id'), 1, 200), substr($2 ->> 'agent', 1, 200),
    $2 ->> 'authenticated', substr($2 ->> 'server', 1, 200), substr($2 ->> 'transport', 1, 200),
    substr($2 ->> 'revision', 1, 200), substr($2 ->> 'session', 1, 200), substr($2 ->> 'jsonrpc_id', 1, 200),
    substr($2 ->> 'method', 1, 200), substr($2 ->> 'tool', 1, 200), $2 -> 'arguments',
    substr($2 ->> 'arguments_hash', 1, 200), substr($2 ->> 'decision', 1, 16), substr($2 ->> 'reason', 1, 200),
    substr($2 ->> 'rule', 1, 200), $2 -> 'rules', $2 -> 'shadow_rules', substr($2 ->> 'policy_version', 1, 200),
    $2 -> 'redactions', $2 ->> 'gate_ms', $2 ->> 'upstream_ms', $2 ->> 'total_ms',
    substr($2 ->> 'result_digest', 1, 200), $2 ->> 'result_size', $2 ->> 'is_error', substr($2 ->> 'outcome', 1, 200),
    $2 -> 'detail', $3, $4, $5, $1
)
ON CONFLICT DO NOTHING
