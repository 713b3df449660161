-- The local durable log, a SQLite file (proxy/audit/local_log_sql.py). Its tables are in sql/log.sql.

-- name: has_log_table
SELECT 1 FROM sqlite_schema WHERE name = 'log';

-- name: has_sink_table
SELECT 1 FROM sqlite_schema WHERE name = 'sink_gaps';

-- name: has_log_row
SELECT 1 FROM log;

-- name: has_chain_column
SELECT 1 FROM pragma_table_info('events') WHERE name = 'chain';

-- name: add_chain_column
ALTER TABLE events ADD COLUMN chain TEXT;

-- name: list_numbers
SELECT seq FROM events ORDER BY seq;

-- name: find_body
SELECT body FROM events WHERE seq = ?;

-- name: link_event
UPDATE events SET seq = ?, chain = ? WHERE seq = ?;

-- name: begin_log
INSERT INTO log (id, writer, hash) VALUES (1, ?, ?);

-- name: insert_events
INSERT INTO events (seq, body, chain) VALUES {rows};

-- name: head
-- Where the log has come to: its last event or, where all of them were moved, the last that was.
SELECT log.writer, coalesce(last.seq, log.moved), coalesce(last.chain, log.hash)
FROM log LEFT JOIN (SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1) AS last;

-- name: find_link
SELECT chain FROM events WHERE seq = ?;

-- name: state
SELECT
    moved, moved_at, destination, problem, (SELECT count(*) FROM rejected),
    (SELECT body FROM events WHERE seq > log.moved ORDER BY seq LIMIT 1)
FROM log;

-- name: last_number
SELECT coalesce(max(seq), (SELECT moved FROM log)) FROM events;

-- name: set_aside
INSERT INTO rejected SELECT seq, body, chain, ?, ? FROM events WHERE seq = ? ON CONFLICT DO NOTHING;

-- name: mark_moved
-- Before the events are deleted: the link of the last is still to be had.
UPDATE log SET
    moved = $last, hash = (SELECT chain FROM events WHERE seq = $last), moved_at = $now, problem = NULL
WHERE moved < $last;

-- name: delete_moved
-- What the store has, and every sink.
DELETE FROM events
WHERE seq <= min((SELECT moved FROM log), coalesce((SELECT min(moved) FROM sinks), (SELECT moved FROM log)));

-- name: touch_log
-- Changes nothing, but has to be committed to disk.
UPDATE log SET problem = problem;

-- name: set_problem
UPDATE log SET problem = ?;

-- name: has_other_destination
SELECT 1 FROM log WHERE destination IS NOT ?;

-- name: set_destination
UPDATE log SET destination = ?;

-- name: moved_number
SELECT moved FROM log;

-- name: newest_events
SELECT seq, body FROM events WHERE seq > ? ORDER BY seq DESC LIMIT ?;

-- name: page
SELECT body, seq, chain FROM events WHERE seq > $after ORDER BY seq LIMIT $limit;

-- name: page_with_rejected
-- An event that was set aside is still in both, where a sink has not taken it yet.
SELECT body, seq, chain FROM events WHERE seq > $after AND seq > (SELECT moved FROM log)
UNION ALL
SELECT body, seq, chain FROM rejected WHERE seq > $after
ORDER BY seq LIMIT $limit;

-- name: page_size
SELECT count(*), sum(octet_length(body)), min(seq), max(seq)
FROM (SELECT body, seq FROM events WHERE seq > ? ORDER BY seq LIMIT ?);

-- name: page_at_once
-- char(30) is U+001E, which JSON writes as an escape.
SELECT group_concat(body, char(30)), group_concat(seq), group_concat(chain)
FROM (SELECT body, seq, chain FROM events WHERE seq > ? ORDER BY seq LIMIT ?);
