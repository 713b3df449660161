-- What the replicas of a fleet share, and which there are: Postgres only (proxy/store/fleet_store.py).

-- name: read_fleet
SELECT fleet_id, kek_id, probe, revision FROM fleet WHERE id = 1;

-- name: lock_fleet
SELECT fleet_id, kek_id, probe, revision FROM fleet WHERE id = 1 FOR UPDATE;

-- name: insert_fleet
INSERT INTO fleet (id, fleet_id, kek_id, probe, revision) VALUES (1, $1, $2, $3, 1) ON CONFLICT DO NOTHING
RETURNING fleet_id;

-- name: change_fleet_key
UPDATE fleet SET kek_id = $1, probe = $2 WHERE id = 1;

-- name: list_documents
SELECT name, generation, key_id, body, seal FROM shared_documents ORDER BY name;

-- name: list_generations
SELECT name, generation FROM shared_documents UNION ALL SELECT 'pins:' || name, generation FROM shared_pins;

-- name: read_document
SELECT name, generation, key_id, body, seal FROM shared_documents WHERE name = $1;

-- name: insert_document
INSERT INTO shared_documents (name, generation, key_id, body, seal) VALUES ($1, $2, $3, $4, $5);

-- Of two that add one document, the second changes nothing.
-- name: add_document
INSERT INTO shared_documents (name, generation, key_id, body, seal) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING RETURNING generation;

-- Two that change one document: the second finds another generation, and changes nothing.
-- name: update_document
UPDATE shared_documents SET generation = $2, key_id = $3, body = $4, seal = $5, changed_at = now()
WHERE name = $1 AND generation = $2 - 1 RETURNING generation;

-- name: list_pins
SELECT name, generation, approvals, listing, marks, body, seal FROM shared_pins ORDER BY name;

-- name: read_pins
SELECT name, generation, approvals, listing, marks, body, seal FROM shared_pins WHERE name = $1;

-- name: lock_pins
SELECT name, generation, approvals, listing, marks, body, seal FROM shared_pins WHERE name = $1 FOR UPDATE;

-- name: insert_pins
INSERT INTO shared_pins (name, generation, approvals, listing, marks, body, seal) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING RETURNING generation;

-- name: update_pins
UPDATE shared_pins SET generation = $2, approvals = $3, listing = $4, marks = $5, body = $6, seal = $7, changed_at = now()
WHERE name = $1 RETURNING generation;

-- name: beat
INSERT INTO fleet_replicas (replica_id, host, version, schema_version, policy, keys, workers, lag_seconds, waiting_events,
    problem, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (replica_id) DO UPDATE SET host = $2, version = $3, schema_version = $4, policy = $5, keys = $6, workers = $7,
    lag_seconds = $8, waiting_events = $9, problem = $10, started_at = $11, last_seen = now();

-- name: list_replicas
SELECT replica_id, host, version, schema_version, policy, keys, workers, lag_seconds, waiting_events, problem, started_at,
    last_seen, extract(epoch FROM now() - last_seen)::double precision AS silent
FROM fleet_replicas ORDER BY host, started_at, replica_id;

-- name: forget_replica
DELETE FROM fleet_replicas WHERE replica_id = $1 RETURNING replica_id;
