-- The registry of writers, and signed checkpoints in a store, on SQLite and Postgres alike (proxy/audit/writers.py).

-- name: find_writer
SELECT number FROM audit_writers WHERE writer = $1;

-- name: last_writer
SELECT number, writer, body, chain FROM audit_writers ORDER BY number DESC LIMIT 1;

-- name: list_registered
SELECT number, writer, body, chain FROM audit_writers ORDER BY number;

-- name: insert_writer
-- Without a conflict target, so that a role with the right to INSERT alone can run this. Whoever comes second begins again.
INSERT INTO audit_writers (number, writer, body, chain) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: insert_checkpoint
INSERT INTO audit_checkpoints (writer, kind, seq, line) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: list_checkpoints
SELECT line FROM audit_checkpoints ORDER BY writer, seq;

-- name: last_checkpoints_of
-- The newest of one writer up to a number: whoever opens its log compares.
SELECT line FROM audit_checkpoints WHERE writer = $1 AND seq <= $2 ORDER BY seq DESC LIMIT 20;
