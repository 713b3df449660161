-- What a listener asks of Postgres.

-- name: notify_channel
-- Sent to the channel that only the sender listens on: whether notifications arrive at all.
SELECT pg_notify($1, $2);
