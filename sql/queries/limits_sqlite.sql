-- What is used of limits on one machine, a SQLite file (proxy/store/limit_store_sqlite.py). Its tables are in sql/limits.sql.

-- name: newest_use
SELECT at, total FROM uses WHERE budget = ? ORDER BY at DESC LIMIT 1;

-- name: uses_since
SELECT at, amount, total FROM uses WHERE budget = ? AND at > ? ORDER BY at;

-- name: oldest_use
SELECT at, amount, total FROM uses WHERE budget = ? AND at > ? ORDER BY at LIMIT 1;

-- name: add_use
INSERT INTO uses (budget, at, amount, total, seconds, call_id) VALUES (?, ?, ?, ?, ?, ?);

-- name: uses_of_budget
-- The newest first: what is given back was charged moments ago.
SELECT at, amount, total, call_id FROM uses WHERE budget = ? ORDER BY at DESC;

-- name: set_total
UPDATE uses SET total = ? WHERE budget = ? AND at = ?;

-- name: delete_use
DELETE FROM uses WHERE budget = ? AND at = ?;

-- name: count_places
SELECT count(*), min(expires_at) FROM places WHERE budget = ? AND expires_at > ?;

-- name: take_place
INSERT INTO places (budget, call_id, expires_at) VALUES (?, ?, ?)
ON CONFLICT (budget, call_id) DO UPDATE SET expires_at = excluded.expires_at;

-- name: leave_place
DELETE FROM places WHERE budget = ? AND call_id = ?;

-- name: leave_dead_places
DELETE FROM places WHERE expires_at <= ?;

-- name: budgets_like
-- From a beginning to what follows it: an index finds these, where LIKE would not.
SELECT DISTINCT budget FROM uses WHERE budget >= ?1 AND budget < ?2
UNION SELECT DISTINCT budget FROM places WHERE budget >= ?1 AND budget < ?2 ORDER BY budget LIMIT 10000;

-- name: delete_old_uses
DELETE FROM uses WHERE (budget, at) IN (SELECT budget, at FROM uses WHERE at + seconds <= ? LIMIT ?) RETURNING 1;
