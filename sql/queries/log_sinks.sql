-- The sinks of a local log (proxy/audit/log_sinks.py). Its tables are in sql/log.sql.

-- name: has_sink_table
SELECT 1 FROM sqlite_schema WHERE name = 'sink_gaps';

-- name: list_names
SELECT name FROM sinks ORDER BY name;

-- name: add_sink
-- A new sink begins with what the store has not taken yet.
INSERT INTO sinks (name, moved, keeps) SELECT $name, moved, $keeps FROM log WHERE true
ON CONFLICT (name) DO UPDATE SET keeps = $keeps;

-- name: remove_sink
DELETE FROM sinks WHERE name = ?;

-- name: position
SELECT moved FROM sinks WHERE name = ?;

-- name: mark_taken
UPDATE sinks SET moved = $last, moved_at = $now, problem = NULL WHERE name = $name AND moved < $last;

-- name: set_problem
UPDATE sinks SET problem = ? WHERE name = ?;

-- name: over_bound
-- Sinks for which more is kept than they may have: name, position, and up to where events are let go.
SELECT name, sinks.moved, log.moved - keeps FROM sinks, log WHERE log.moved - sinks.moved > keeps;

-- name: kept_for_optional
-- Sinks that are not required and for which anything is kept that the store has.
SELECT name, sinks.moved, log.moved FROM sinks, log WHERE keeps IS NOT NULL AND sinks.moved < log.moved;

-- name: let_go
UPDATE sinks SET moved = max(moved, $last), lost = lost + $count WHERE name = $name;

-- name: extend_gap
UPDATE sink_gaps SET last = $last, last_id = $last_id, at = $now
WHERE sink = $sink AND last = $first - 1 AND reason = $reason AND NOT told;

-- name: add_gap
INSERT INTO sink_gaps (sink, first, last, first_id, last_id, reason, at)
VALUES ($sink, $first, $last, $first_id, $last_id, $reason, $now);

-- name: event_id
SELECT CASE WHEN json_valid(body) THEN json_extract(body, '$.event_id') END FROM events WHERE seq = ?;

-- name: untold_gaps
-- Not one that may still grow: it is told once the sink has taken an event behind it.
SELECT sink_gaps.rowid, first, last, first_id, last_id, reason
FROM sink_gaps JOIN sinks ON sinks.name = sink_gaps.sink
WHERE sink = ? AND NOT told AND sinks.moved > last ORDER BY first LIMIT 100;

-- name: mark_told
UPDATE sink_gaps SET told = 1 WHERE rowid = ?;

-- name: forget_gaps
-- The last thousand that were told are kept.
DELETE FROM sink_gaps WHERE told AND rowid <= (SELECT max(rowid) FROM sink_gaps) - 1000;

-- name: states
SELECT
    name, sinks.moved, keeps, sinks.moved_at, sinks.problem, lost,
    (SELECT coalesce(max(seq), log.moved) FROM events) - sinks.moved,
    (SELECT body FROM events WHERE seq > sinks.moved ORDER BY seq LIMIT 1)
FROM sinks, log ORDER BY name;

-- name: gaps
SELECT sink, first, last, first_id, last_id, reason, at FROM sink_gaps ORDER BY rowid DESC LIMIT ?;
