-- Marks of labelled results (proxy/store/flow_store.py). SQLite and Postgres both take these.

-- name: next_number
-- The row stays locked until the marks are committed: whoever sees a number has seen all that are lower.
INSERT INTO flow_agents (agent, last_number) VALUES ($1, $2)
ON CONFLICT (agent) DO UPDATE SET last_number = flow_agents.last_number + $2
RETURNING last_number;

-- name: insert_mark
INSERT INTO flow_marks
    (agent, number, kind, call_id, server, tool, labels, session, trace, shingles, value_prints, complete, marked_at,
    expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: strip_marks
-- The oldest of very many keep their labels, and lose their fingerprints.
UPDATE flow_marks SET shingles = $3, value_prints = $3, complete = $4
WHERE agent = $1 AND number <= $2 AND complete <> $4;

-- name: read_marks
SELECT agent, number, kind, call_id, server, tool, labels, session, trace, shingles, value_prints, complete, marked_at,
    expires_at
FROM flow_marks WHERE agent = $1 AND number > $2 AND expires_at > $3 ORDER BY number;

-- name: read_window
SELECT sealed FROM flow_windows WHERE agent = $1 AND expires_at > $2;

-- name: put_window
INSERT INTO flow_windows (agent, sealed, expires_at) VALUES ($1, $2, $3)
ON CONFLICT (agent) DO UPDATE SET sealed = $2, expires_at = $3
RETURNING agent;

-- name: marked_agents
SELECT DISTINCT agent FROM flow_marks WHERE expires_at > $1 ORDER BY agent LIMIT 1000;

-- name: delete_old_marks
DELETE FROM flow_marks WHERE expires_at <= $1
RETURNING number;

-- name: delete_old_windows
DELETE FROM flow_windows WHERE expires_at <= $1
RETURNING agent;
