-- Synthetic events: $1 of them (an even number), of $2 days up to now, as calls look: half are decided and half completed, of 200
-- agents, 20 servers and 300 tools; one call in 50 is denied, one in 100 has a finding, one in 200 matches a shadow rule.
INSERT INTO events (
    event_id, ts, kind, call_id, agent, authenticated, server, transport, revision, session, jsonrpc_id, method, tool,
    arguments, arguments_hash, decision, reason, rule, rules, shadow_rules, policy_version, redactions, gate_ms, upstream_ms,
    total_ms, result_digest, result_size, is_error, outcome, writer, seq, chain, body
)
SELECT
    id, ts, CASE WHEN ended THEN 'completed' ELSE 'decided' END, call_id, 'agent-' || agent, true, 'server-' || server || '.example.com',
    'http', '2025-11-25', 'session-' || agent, n::text, 'tools/call', 'tool_' || tool,
    CASE WHEN NOT ended THEN jsonb_build_object('path', '/srv/data/' || n, 'limit', n % 100) END, CASE WHEN NOT ended THEN digest END,
    CASE WHEN NOT ended THEN CASE WHEN denied THEN 'deny' ELSE 'allow' END END, CASE WHEN denied AND NOT ended THEN 'policy_denied' END,
    CASE WHEN denied AND NOT ended THEN 'rule-' || n % 12 END, CASE WHEN denied AND NOT ended THEN jsonb_build_array('rule-' || n % 12) END,
    CASE WHEN n % 200 = 7 AND NOT ended THEN '["try-first"]'::jsonb END, 'b1946ac92492d234',
    CASE WHEN n % 100 = 3 AND NOT ended THEN '[{"detector": "aws_access_key", "path": "$.path", "fingerprint": "f0", "record_only": true}]'::jsonb END,
    CASE WHEN NOT ended THEN 0.2 END, CASE WHEN ended THEN 12.5 + n % 40 END, CASE WHEN ended THEN 13.0 + n % 40 END,
    CASE WHEN ended THEN digest END, CASE WHEN ended THEN n % 5000 END, CASE WHEN ended THEN n % 97 = 0 END, CASE WHEN ended THEN 'ok' END,
    'bench-writer', number, digest,
    json_build_object(
        'schema_version', 1, 'event_id', id, 'kind', CASE WHEN ended THEN 'completed' ELSE 'decided' END, 'time', extract(epoch FROM ts),
        'writer', 'bench-writer', 'host', 'proxy-1.example.com', 'proxy_version', '0.1.0', 'call_id', call_id, 'agent', 'agent-' || agent,
        'authenticated', true, 'server', 'server-' || server || '.example.com', 'transport', 'http', 'revision', '2025-11-25',
        'session', 'session-' || agent, 'jsonrpc_id', n, 'method', 'tools/call', 'tool', 'tool_' || tool,
        'arguments', json_build_object('path', '/srv/data/' || n, 'limit', n % 100), 'arguments_hash', digest, 'policy_version', 'b1946ac92492d234'
    )::text
FROM (
    SELECT
        number, number / 2 AS n, number % 2 = 1 AS ended, (number / 2) % 50 = 1 AS denied,
        now() - make_interval(secs => ($1 - number) * ($2 * 86400.0 / $1)) AS ts,
        encode(int8send(number), 'hex') || '-7000-8000-' || lpad(to_hex(number * 7919 % 281474976710655), 12, '0') AS id,
        encode(int8send(number / 2), 'hex') || '-call' AS call_id,
        (number / 2 * 31) % 200 AS agent, (number / 2 * 17) % 20 AS server, (number / 2 * 13) % 300 AS tool,
        encode(sha256(int8send(number)), 'hex') AS digest
    FROM generate_series($3::bigint, $4::bigint) AS number
) AS made;
