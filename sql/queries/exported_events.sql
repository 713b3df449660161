-- Exported events in a temporary SQLite table, sorted on disk (proxy/audit/chain_reader.py): an export may be larger than
-- memory.

-- name: make_table
CREATE TABLE lines (writer, seq, id, chain, body);

-- name: make_index
CREATE INDEX lines_in_order ON lines (writer, seq, id);

-- name: insert_line
INSERT INTO lines VALUES (?, ?, ?, ?, ?);

-- name: list_writers
SELECT DISTINCT writer FROM lines WHERE seq IS NOT NULL;

-- name: page
SELECT body, writer, seq, chain, id, rowid FROM lines WHERE writer = ? AND (seq, id, rowid) > (?, ?, ?)
ORDER BY seq, id, rowid LIMIT ?;
