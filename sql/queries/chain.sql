-- The hash chains of the events in a store, on SQLite and Postgres alike (proxy/audit/chain_reader.py).

-- name: list_writers
-- From one writer to the next by the index, however many events each has.
WITH RECURSIVE found (writer) AS (
    SELECT min(writer) FROM events
    UNION ALL
    SELECT (SELECT min(e.writer) FROM events e WHERE e.writer > found.writer) FROM found
    WHERE found.writer IS NOT NULL
)
SELECT writer FROM found WHERE writer IS NOT NULL;

-- name: chain_page
-- The time is part of the key: a row that somebody puts in under an event's id and number has another time.
SELECT
    body, writer, seq, chain, event_id, ts,
    kind, call_id, proposal_id, agent, server, transport, revision, session, jsonrpc_id, method, tool, arguments_hash,
    decision, reason, rule, policy_version, result_digest, outcome, authenticated, is_error, gate_ms, upstream_ms,
    total_ms, arguments, rules, shadow_rules, redactions, detail, result_size
FROM events
WHERE writer = $1 AND seq >= $2 AND (seq, event_id, ts) > ($2, $3, $4)
ORDER BY seq, event_id, ts LIMIT $5;

-- name: last_stored
SELECT max(seq) FROM events WHERE writer = $1;

-- name: find_unchained
SELECT event_id FROM events WHERE writer IS NULL OR seq IS NULL OR chain IS NULL ORDER BY ts LIMIT 1;

-- name: first_time
SELECT ts FROM events WHERE writer = $1 ORDER BY seq LIMIT 1;

-- name: first_young
SELECT min(seq) FROM events WHERE writer = $1 AND ts >= $2 AND ts < $3;

-- name: last_old
SELECT seq, chain FROM events WHERE writer = $1 AND seq < $2 AND ts < $3 AND chain IS NOT NULL
ORDER BY seq DESC LIMIT 1;

-- name: numbers_of_day
SELECT min(seq), max(seq) FROM events WHERE writer = $1 AND ts >= $2 AND ts < $3;

-- name: chain_texts
SELECT seq, body, chain FROM events WHERE writer = $1 AND seq > $2 AND seq <= $3 ORDER BY seq;
