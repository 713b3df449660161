-- What the workers of one proxy share, a SQLite file (proxy/store/shared_calls.py). Its tables are in sql/shared_calls.sql.

-- name: post_call
INSERT INTO calls (call_id, server, session, id, is_open, body) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (call_id) DO UPDATE SET body = excluded.body;

-- name: find_call
-- The newest: an id may be used again once its call has ended.
SELECT body, is_open FROM calls WHERE server = ? AND session = ? AND id = ? ORDER BY number DESC LIMIT 1;

-- name: open_calls
SELECT body, is_open FROM calls WHERE server = ? AND session = ? AND is_open ORDER BY number;

-- name: end_call
-- One worker alone gets the row back.
UPDATE calls SET is_open = 0 WHERE call_id = ? AND is_open RETURNING 1;

-- name: ended_calls
SELECT value FROM json_each(?) WHERE value NOT IN (SELECT call_id FROM calls WHERE is_open);

-- name: delete_old_calls
DELETE FROM calls WHERE number <= (SELECT max(number) FROM calls) - ?;

-- name: add_endpoint
INSERT INTO endpoints SELECT ?, ? WHERE (SELECT count(*) FROM endpoints) < ? ON CONFLICT DO NOTHING;

-- name: find_endpoint
SELECT 1 FROM endpoints WHERE server = ? AND path = ?;

-- name: add_mcp_endpoint
INSERT INTO mcp_endpoints SELECT ?1, ?2, ?3
WHERE (SELECT count(*) FROM mcp_endpoints WHERE agent = ?3) < ?4 AND (SELECT count(*) FROM mcp_endpoints) < ?5
ON CONFLICT DO NOTHING;

-- name: find_mcp_endpoint
SELECT 1 FROM mcp_endpoints WHERE server = ? AND path = ?;

-- name: own_credential
-- The update changes nothing and makes the row come back, whoever wrote it first.
INSERT INTO credentials (digest, owner) VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET owner = owner RETURNING owner;

-- name: new_credentials
SELECT number, digest, owner FROM credentials WHERE number > ? ORDER BY number;

-- name: delete_old_credentials
DELETE FROM credentials WHERE number <= (SELECT max(number) FROM credentials) - ?;
