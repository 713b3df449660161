-- What is used of limits among replicas (proxy/store/limit_store_postgres.py). The functions are in sql/postgres/0008_limits.sql.

-- name: reserve
SELECT number, used, retry_after FROM interlock_limit_reserve($1, $2::jsonb, $3, $4);

-- name: give_back
SELECT interlock_limit_give_back($1, $2::text[]);

-- name: leave_places
DELETE FROM limit_places WHERE call_id = $1 AND budget = ANY ($2::text[]);

-- name: renew_places
UPDATE limit_places SET expires_at = clock_timestamp() + make_interval(secs => $2::float8) WHERE call_id = ANY ($1::text[]);

-- name: usage
SELECT budget, coalesce(sum(amount), 0), count(*), max(at)
FROM limit_uses WHERE starts_with(budget, $1) AND at > clock_timestamp() - make_interval(secs => $2::float8)
GROUP BY budget ORDER BY budget LIMIT 10000;

-- name: usage_of_places
SELECT budget, count(*), count(*), max(expires_at)
FROM limit_places WHERE starts_with(budget, $1) AND expires_at > clock_timestamp()
GROUP BY budget ORDER BY budget LIMIT 10000;

-- name: delete_old_uses
DELETE FROM limit_uses WHERE use_id IN (
    SELECT use_id FROM limit_uses WHERE expires_at <= clock_timestamp() ORDER BY expires_at LIMIT $1
) RETURNING 1;

-- name: leave_dead_places
DELETE FROM limit_places WHERE expires_at <= clock_timestamp();
