-- Steps of the policy roll-out, on any database (proxy/store/rollout_store.py).

-- name: newest_steps
SELECT number, body, key_id, signature FROM policy_steps WHERE number > $1 ORDER BY number DESC LIMIT $2;

-- name: find_step
SELECT number, body, key_id, signature FROM policy_steps WHERE number = $1;

-- name: insert_step
INSERT INTO policy_steps (number, body, key_id, signature) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING RETURNING number;

-- name: insert_bundle
INSERT INTO policy_bundles (digest, content) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: find_bundle
SELECT content FROM policy_bundles WHERE digest = $1;

-- name: insert_return
INSERT INTO policy_returns (number, replica, reason, returned_at) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING RETURNING number;

-- name: find_return
SELECT reason FROM policy_returns WHERE number = $1;

-- name: list_returns
SELECT number, reason FROM policy_returns WHERE number >= $1 ORDER BY number;

-- name: add_counts
INSERT INTO policy_counts (number, slot, replica, side, calls, denials, errors) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (number, slot, replica, side) DO UPDATE
SET calls = policy_counts.calls + excluded.calls, denials = policy_counts.denials + excluded.denials,
    errors = policy_counts.errors + excluded.errors;

-- name: sum_counts
SELECT side, CAST(sum(calls) AS bigint), CAST(sum(denials) AS bigint), CAST(sum(errors) AS bigint)
FROM policy_counts WHERE number = $1 AND slot > $2 GROUP BY side;

-- name: drop_counts
DELETE FROM policy_counts WHERE number < $1;

-- name: report_replica
INSERT INTO policy_replicas (replica, number, version, problem, seen_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (replica) DO UPDATE
SET number = excluded.number, version = excluded.version, problem = excluded.problem, seen_at = excluded.seen_at;

-- name: list_replicas
SELECT replica, number, version, problem, seen_at FROM policy_replicas WHERE seen_at > $1 ORDER BY replica;

-- name: drop_replicas
DELETE FROM policy_replicas WHERE seen_at < $1;
