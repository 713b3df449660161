-- What replicas that share a Postgres show each other of calls under way (proxy/store/replica_calls.py).

-- name: beat
-- Say that a process is alive; return how many processes of other replicas are.
WITH alive AS (
    INSERT INTO call_owners VALUES ($1, $2, clock_timestamp())
    ON CONFLICT (owner) DO UPDATE SET seen = clock_timestamp()
)
SELECT count(*) FROM call_owners WHERE replica <> $2 AND seen > clock_timestamp() - make_interval(secs => $3::float8);

-- name: leave
WITH gone AS (DELETE FROM call_owners WHERE owner = $1)
DELETE FROM call_claims WHERE owner = $1;

-- name: claim
-- Also where a process has it that is not alive any more, but not where a call of that id still waits for its answer.
INSERT INTO call_claims (key, owner)
SELECT $1::bytea, $2::text WHERE NOT EXISTS (
    SELECT 1 FROM replica_calls WHERE server = $3 AND session = $4 AND id = $5 AND is_open
)
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner WHERE NOT EXISTS (
    SELECT 1 FROM call_owners o
    WHERE o.owner = call_claims.owner AND o.seen > clock_timestamp() - make_interval(secs => $6::float8)
)
RETURNING 1;

-- name: release
DELETE FROM call_claims WHERE key = ANY ($1::bytea[]) AND owner = $2;

-- name: post
INSERT INTO replica_calls (call_id, server, session, id, is_open, posted_at, body, seal)
VALUES ($1, $2, $3, $4, $5, clock_timestamp(), $6, $7)
ON CONFLICT (call_id) DO UPDATE SET body = excluded.body, seal = excluded.seal;

-- name: find
SELECT call_id, server, session, id, is_open, body, seal,
    extract(epoch FROM clock_timestamp() - posted_at)::float8 AS age
FROM replica_calls WHERE server = $1 AND session = $2 AND id = $3 ORDER BY number DESC LIMIT 1;

-- name: open_calls
SELECT call_id, server, session, id, is_open, body, seal,
    extract(epoch FROM clock_timestamp() - posted_at)::float8 AS age
FROM replica_calls WHERE server = $1 AND session = $2 AND is_open ORDER BY number LIMIT 1000;

-- name: end
UPDATE replica_calls SET is_open = false WHERE call_id = $1 AND is_open RETURNING 1;

-- name: ended
SELECT c FROM unnest($1::text[]) AS c WHERE c NOT IN (SELECT call_id FROM replica_calls WHERE is_open);

-- name: learn
INSERT INTO replica_facts (kind, name, path, owner, learnt_at)
SELECT $1::text, $2::text, $3::text, $4::text, clock_timestamp()
WHERE (SELECT count(*) FROM replica_facts WHERE kind = $1) < $5::bigint
  AND (SELECT count(*) FROM replica_facts WHERE kind = $1 AND owner = $4) < $6::bigint
ON CONFLICT (kind, name, path) DO UPDATE SET learnt_at = clock_timestamp()
RETURNING owner;

-- name: is_known
SELECT 1 FROM replica_facts WHERE kind = $1 AND name = $2 AND path = $3;

-- name: facts_since
SELECT number, kind, name, path, owner FROM replica_facts WHERE number > $1 ORDER BY number LIMIT 1000;

-- name: delete_old_calls
DELETE FROM replica_calls WHERE call_id IN (
    SELECT call_id FROM replica_calls
    WHERE posted_at < clock_timestamp() - make_interval(secs => CASE WHEN is_open THEN $1::float8 ELSE $2::float8 END)
       OR number <= (SELECT max(number) FROM replica_calls) - $3::bigint
    LIMIT 5000
);

-- name: delete_dead
WITH dead AS (
    DELETE FROM call_owners WHERE seen < clock_timestamp() - make_interval(secs => $1::float8)
), facts AS (
    DELETE FROM replica_facts WHERE learnt_at < clock_timestamp() - make_interval(secs => $2::float8)
)
DELETE FROM call_claims c WHERE NOT EXISTS (SELECT 1 FROM call_owners o WHERE o.owner = c.owner);
