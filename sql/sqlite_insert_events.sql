-- Keep events. Of each: the values of its columns as they were read from its text (store/event_text.py), its place in
-- its writer's log, and the text itself. One that is there already is left alone.
INSERT INTO events (
    event_id, ts, kind, call_id, proposal_id, agent, server, transport, revision, session, jsonrpc_id, method, tool,
    arguments_hash, decision, reason, rule, policy_version, result_digest, outcome, authenticated, is_error, gate_ms,
    upstream_ms, total_ms, result_size, arguments, rules, shadow_rules, redactions, detail, writer, seq, chain, body
)
VALUES {rows}
ON CONFLICT DO NOTHING
