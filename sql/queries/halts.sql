-- Who is halted, and by whom, on any database (proxy/store/halt_store.py).

-- name: halt_generation
SELECT store_id, generation FROM halt_state WHERE id = 1;

-- name: first_generation
INSERT INTO halt_state (id, store_id, generation) VALUES (1, $1, 0) ON CONFLICT DO NOTHING;

-- name: next_generation
UPDATE halt_state SET generation = generation + 1 WHERE id = 1 RETURNING store_id, generation;

-- name: list_halts
SELECT halt_id, agent, server, tool, cut, reason, operator, created_at, origin FROM halts ORDER BY created_at, halt_id;

-- name: insert_halt
INSERT INTO halts (halt_id, agent, server, tool, cut, reason, operator, created_at, origin)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING;

-- name: delete_halt
DELETE FROM halts WHERE halt_id = $1 RETURNING halt_id;
